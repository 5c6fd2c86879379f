"""The command line: help, what a run passes on, and what it leaves behind.

The engine that co-simulates is replaced by one that reports rows at once: what it finds is tested elsewhere.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from runpy import run_module
from typing import Any

import pytest
from typer.main import get_command

from meshloom.hw.spec.config import built_in_chips
from meshloom.sched.ir.schedule import ScheduleError
from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.schedulers.registry import REGISTRY
from meshloom.sched.workload import training
from meshloom.sched.workload.catalog import find as find_workloads
from meshloom.tb.cli.catalogue import LISTED, commands_of
from meshloom.tb.cli.main import app
from meshloom.tb.inputs.sources import NetworkSource, is_network
from meshloom.tb.results.events import Unwritten
from meshloom.tb.results.saved import SUFFIXES
from meshloom.tb.results.schema import load
from meshloom.tb.results.shelf import Shelf
from meshloom.tb.studies import registry as studies

from .command_line import invoke, results_in, row

COMMANDS = (
    "init", "run", "runs", "explain", "compare", "report", "serve", "schedule", "schedulers", "verilog", "chips",
    "workloads", "devices", "check", "disasm", "bench", "studies", "cache", "schemas",
    "doctor", "export", "board", "bitstream", "load",
)  # fmt: skip


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_teaches(command: tuple[str, ...]) -> None:
    shown = invoke(*command, "--help")
    assert shown.exit_code == 0
    if command:
        assert "Examples:" in shown.output
        assert f"meshloom {command[0]}" in shown.output
    else:
        assert all(name in shown.output for name in COMMANDS)


@pytest.mark.parametrize("command", [(), ("run",)])
def test_help_has_a_short_name(command: tuple[str, ...]) -> None:
    assert invoke(*command, "-h").output == invoke(*command, "--help").output


def test_version() -> None:
    shown = invoke("--version")
    assert (shown.exit_code, shown.output) == (0, f"meshloom {version('meshloom')}\n")


def test_the_package_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["python", "--version"])
    with pytest.raises(SystemExit) as ended:
        run_module("meshloom", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out) == (0, invoke("--version").stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_not_stale(command: str) -> None:
    """Options are there, and what is named is known."""
    value: Any = get_command(app)
    epilog = value.commands[command].epilog
    examples = re.findall(r"`meshloom (.*)`", epilog)
    assert examples
    for example in examples:
        name, *arguments = shlex.split(example.partition("|")[0])
        assert name == command
        result = value.commands[name].make_context(name, arguments).params
        if name == "bench":
            assert set(result["names"] or ()) <= set(studies.SHIPPED)
        chips = result.get("chip") or []
        for chip in [chips] if isinstance(chips, str) else chips:
            assert chip.endswith(".toml") or chip in built_in_chips()
        workloads = result.get("workloads") or [result[key] for key in ("workload",) if result.get(key)]
        assert all(
            each.endswith((".onnx", *SUFFIXES))
            or is_network(each)
            or (each.startswith(training.PREFIX) and training.find(each, training.Setting(server=False, batch=4)))
            or find_workloads(each)
            for each in workloads
        )


def test_schedulers_of_both_kinds_are_listed_with_their_options() -> None:
    shown = invoke("schedulers").output
    assert all(name in shown for name in (*REGISTRY.names(), *ONLINE.names()))
    assert "starvation" in invoke("schedulers", "layer_puzzle").output
    assert "prema: one network at a time" in invoke("schedulers", "prema:period=3").output
    wrong = invoke("schedulers", "pream")
    assert (wrong.exit_code, "did you mean prema?" in wrong.output) == (2, True)


def test_no_help_names_online_schedulers_by_hand() -> None:
    """But for the default: new ones would be missing."""
    shown = invoke("serve", "--help").output.partition("Examples:")[0]
    assert not [name for name in ONLINE.names() if name != "lookahead" and re.search(rf"\b{name}\b", shown)]


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    """The list is written by hand, so that `--help` imports no command: it has all, with the lines of their help."""
    value: Any = get_command(app)
    named = {
        module.stem
        for module in (Path(__file__).parents[2] / "tb/cli").glob("*.py")
        if "\napp = " in module.read_text()
    }
    assert {module for module, _ in LISTED.values()} == named - {"main"}
    for name, (module, summary) in LISTED.items():
        command = value.commands[name]
        assert " ".join(command.help.partition("\n\n")[0].split()) == summary, name
        assert command.name == name
        assert set(commands_of(module)) == {each for each, listed in LISTED.items() if listed.module == module}


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], "amaranth cocotb meshloom.tb.cli.run numpy onnx onnxruntime pydantic"),
        (["run", "--help"], "amaranth cocotb meshloom.tb.cli.sweep numpy onnx onnxruntime"),
        (["chips"], "amaranth cocotb meshloom.tb.cli.run meshloom.tb.results.schema numpy onnx onnxruntime"),
        (["schedule", "gemm:4x4x4", "--chip", "tiny"], "amaranth cocotb meshloom.tb.runs.runner onnx onnxruntime"),
    ],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_need(arguments: list[str], heavy: str) -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom meshloom.tb.cli.main import app\n"
        f"assert CliRunner().invoke(app, {arguments}).exit_code == 0\n"
        f"print(*sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_run_passes_everything_on(folder: Path, engine: Any) -> None:
    calls = engine(row())
    options = ["--chip", "tiny", "--scheduler", "mine", "--device", "icarus", "--waves", "--jobs", "3", "--links"]
    shown = invoke("run", "gemm:8x8x8", "resnet8/fc", *options)
    assert shown.exit_code == 0, shown.output
    assert calls == [(["gemm:8x8x8", "resnet8/fc"], "tiny", "mine", "icarus", True, 3, True)]


def test_run_defaults_and_regression(folder: Path, engine: Any) -> None:
    calls = engine(row())
    assert invoke("run", "--regression").exit_code == 0
    ((workloads, chip, scheduler, simulator, waves, jobs, links),) = calls
    assert (workloads, chip, scheduler, simulator, waves, links) == (
        ["regression"],
        "quad16",
        "loop_order",
        "verilator",
        False,
        False,
    )
    assert jobs >= 1


def test_run_leaves_results(folder: Path, engine: Any) -> None:
    engine(row(), row("resnet8/fc"))
    shown = invoke("run", "gemm:8x8x8", "resnet8/fc", "--chip", "tiny", "--json", "copy/out.json")
    assert shown.exit_code == 0, shown.output
    latest = load(results_in(folder) / "latest.json")
    assert [each.workload for each in latest.rows] == ["gemm:8x8x8", "resnet8/fc"]
    assert latest.complete
    assert latest.summary.ok
    assert load(folder / "copy" / "out.json") == latest
    names = {path.name for path in results_in(folder).iterdir()}
    assert names == {f"{latest.run}.json", f"{latest.run}.xml", "latest.json"}
    assert latest.run.endswith("-tiny-loop_order-verilator")
    assert "2 of 2 passed" in shown.output
    assert f"results: sim_build/results/{latest.run}.json" in shown.output


@pytest.mark.parametrize("script", [(row(), row("resnet8/fc")), (row(mismatches=1),), (row(), KeyboardInterrupt())])
def test_json_on_stdout_and_all_else_on_stderr(folder: Path, engine: Any, script: tuple[Any, ...]) -> None:
    engine(*script)
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--json", "-")
    latest = results_in(folder) / "latest.json"
    assert shown.stdout == latest.read_text()
    assert load(latest).complete == (not isinstance(script[-1], BaseException))
    assert "gemm:8x8x8" in shown.stderr
    assert f"results: sim_build/results/{load(latest).run}.json" in shown.stderr
    assert not (folder / "-").exists()


def test_artefacts_are_kept_in_the_cache_or_where_asked_for(
    folder: Path, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(folder / "cache"))
    shelves: list[Shelf | None] = []
    engine(row(), shelves=shelves)
    for option in ((), ("--artefacts",), ("--no-artefacts",)):
        assert invoke("run", "gemm:8x8x8", "--chip", "tiny", *option).exit_code == 0
    cached, shelf, none = shelves
    assert none is None
    assert shelf is not None
    assert shelf.required
    assert shelf.folder.parent == Path("sim_build/results")
    assert cached is not None
    assert not cached.required
    assert cached.folder.parent == folder / "cache" / "artefacts"
    assert (results_in(folder) / f"{cached.folder.name}.json").exists()
    monkeypatch.setenv("MESHLOOM_ARTEFACTS_MB", "0")
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny").exit_code == 0
    assert shelves[-1] is None


def test_no_room_in_the_cache_is_a_note(folder: Path, engine: Any) -> None:
    engine(Unwritten("gemm:8x8x8", "there/links.parquet: No space left on device", required=False), row())
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny")
    assert shown.exit_code == 0
    assert "will know nothing of it: there/links.parquet: No space left on device" in shown.output


def test_artefacts_that_cannot_be_written_exit_with_5(folder: Path, engine: Any) -> None:
    """And the results, which could be, are there."""
    engine(Unwritten("gemm:8x8x8", "there/links.parquet: No space left on device"), row())
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--artefacts")
    assert shown.exit_code == 5
    assert "error: there/links.parquet: No space left on device" in shown.stderr
    assert load(results_in(folder) / "latest.json").complete


def test_json_on_stdout_is_empty_when_nothing_ran(folder: Path, engine: Any) -> None:
    engine(ScheduleError("no room"))
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--json", "-")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (2, "", "error: no room\n")


def test_networks_get_their_files(folder: Path, engine: Any) -> None:
    calls = engine(row())
    options = ["--input", "a.png", "--input", "b.png", "--calibrate", "c.npy", "--mean", "1,2,3", "--std", "64"]
    options += ["--labels", "l.txt"]
    assert invoke("run", "gemm:8x8x8", "my.onnx", "resnet8/fc", "--chip", "tiny", *options).exit_code == 0
    ((workloads, *_),) = calls
    source = NetworkSource("my.onnx", (Path("a.png"), Path("b.png")), (Path("c.npy"),), (1.0, 2.0, 3.0), (64.0,))
    assert workloads == ["gemm:8x8x8", replace(source, labels=Path("l.txt")), "resnet8/fc"]
    (results,) = results_in(folder).glob("2*.json")
    assert workloads[1].tensors == results.relative_to(folder).with_suffix(""), "tensors lie beside the results"


def test_results_file_is_plain_json(folder: Path, engine: Any) -> None:
    engine(row())
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny").exit_code == 0
    (first,) = json.loads((results_in(folder) / "latest.json").read_text())["rows"]
    issue = {"workload", "chip", "scheduler", "simulator", "rtl_cycles", "model_cycles", "utilisation", "bytes_checked"}
    assert issue | {"mismatches", "faults", "cpu_seconds", "cycles_per_second"} <= set(first)


@pytest.mark.parametrize(
    "command", ["workloads", "run --help", pytest.param("run gemm:4x4x4 --chip tiny", marks=pytest.mark.slow)]
)
def test_a_reader_that_has_had_enough_is_no_bug(command: str) -> None:
    """`meshloom workloads | head -1`: the status is that of what SIGPIPE ends, not that of a run that is wrong."""
    words = [sys.executable, "-m", "meshloom.tb.cli.main", *command.split()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, "error" in said.lower(), "Traceback" in said) == (141, False, False), said


@pytest.mark.parametrize("command", ["chips tiny >&-", "mcp --folder . <&-"])
def test_a_stream_that_is_closed_leads_nowhere(command: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m meshloom {command}', sys.executable], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
