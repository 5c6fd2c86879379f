"""The command line: help, exit statuses, errors in one line, and what a run leaves behind.

The engine that co-simulates is replaced by one that reports rows at once: what it finds is tested elsewhere.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import onnx
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner, Result

from meshloom.hw.config import ConfigError, built_in_chips
from meshloom.hw.config import load as load_chip
from meshloom.hw.isa import IsaError, VectorOp
from meshloom.sched.ir.schedule import Gemm, Move, Piece, Prediction, Schedule, ScheduleError, Span, Tensor, Vec
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program import image
from meshloom.sched.schedulers.online.registry import ONLINE
from meshloom.sched.schedulers.registry import REGISTRY
from meshloom.sched.workload import training, zoo
from meshloom.sched.workload.catalog import find as find_workloads
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.layout import BiasLayout
from meshloom.tb.benchmarks.registry import SHIPPED
from meshloom.tb.build.builder import BuildError
from meshloom.tb.cli.main import app
from meshloom.tb.devices.folders import RunsError
from meshloom.tb.devices.interface import DeviceError
from meshloom.tb.inputs.sources import NetworkSource, is_network
from meshloom.tb.report.console import CAUSES, LOG_WIDTH
from meshloom.tb.results.events import OnEvent, Plan, Stage, Unwritten
from meshloom.tb.results.exits import Exit
from meshloom.tb.results.figures import (
    Congestion,
    LayerFigures,
    LinkFigures,
    NetworkFigures,
    PacketFigures,
    SourceFigures,
)
from meshloom.tb.results.saved import SUFFIXES
from meshloom.tb.results.schema import Row, Status, load
from meshloom.tb.results.shelf import Shelf
from meshloom.tb.runs.options import RunOptions

from ..sched.float_models import FloatModel

COMMANDS = (
    "run", "explain", "compare", "report", "serve", "schedule", "schedulers", "verilog", "chips", "workloads", "check",
    "disasm", "bench", "cache", "schemas",
)  # fmt: skip


def row(workload: str = "gemm:8x8x8", **changes: Any) -> Row:
    good = {"chip": "tiny", "scheduler": "loop_order", "simulator": "verilator", "cpu_seconds": 0.1}
    numbers = {"rtl_cycles": 1000, "model_cycles": 1001, "utilisation": 0.5, "bytes_checked": 64, "instructions": 4}
    return Row.model_validate({"workload": workload} | good | numbers | changes)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Installs an engine that plays a script of rows and exceptions; returns the arguments of its calls."""

    def install(
        *script: Row | Unwritten | BaseException, kept: list[Shelf | None] | None = None
    ) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []
        kept = [] if kept is None else kept

        def run(
            workloads: list[str],
            chip: str,
            scheduler: str,
            on_event: OnEvent,
            options: RunOptions,
        ) -> list[Row]:
            calls.append((workloads, chip, scheduler, options.device, options.waves, options.jobs, options.links))
            kept.append(options.artefacts)
            on_event(Plan(len(script)))
            for step in script:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, Unwritten):
                    on_event(step)
                    continue
                on_event(Stage(step.workload, "simulating"))
                on_event(step)
            return [step for step in script if isinstance(step, Row)]

        module = ModuleType("meshloom.tb.runs.runner")
        monkeypatch.setattr(module, "run", run, raising=False)
        monkeypatch.setitem(sys.modules, "meshloom.tb.runs.runner", module)
        return calls

    return install


def results_in(folder: Path) -> Path:
    return folder / "sim_build" / "results"


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


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_not_stale(command: str) -> None:
    """Options are there, and what is named is known."""
    found: Any = get_command(app)
    epilog = found.commands[command].epilog
    examples = re.findall(r"`meshloom (.*)`", epilog)
    assert examples
    for example in examples:
        name, *arguments = shlex.split(example.partition("|")[0])
        assert name == command
        given = found.commands[name].make_context(name, arguments).params
        if name == "bench":
            assert set(given["names"] or ()) <= set(SHIPPED)
        for chip in [given[key] for key in ("chip",) if isinstance(given.get(key), str)]:
            assert chip.endswith(".toml") or chip in built_in_chips()
        workloads = given.get("workloads") or [given[key] for key in ("workload",) if given.get(key)]
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


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom meshloom.tb.cli.main import app\n"
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0\n"
        "print(*sorted({'amaranth', 'cocotb', 'numpy', 'onnx', 'onnxruntime'} & set(sys.modules)))"
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


def test_links_and_congestion_are_shown(folder: Path, engine: Any) -> None:
    links = [
        LinkFigures(tile=0x12, port="east", busy=250, blocked=50, cycles=1000),
        LinkFigures(tile=0x12, port="local", busy=1000, blocked=0, cycles=1000),
    ]
    packets = PacketFigures(count=1234, mean=45.26, worst=301, idle_mean=30.0, worst_late=255)
    sources = (SourceFigures(tile=0x12, moves=7, ideal_cycles=300, real_cycles=1200),)
    level = Congestion(ideal_cycles=300, real_cycles=1200, sources=sources, packets=packets)
    engine(row(rtl_cycles=1000, model_cycles=1000, links=links, congestion=level))
    output = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--links").output
    assert "gemm:8x8x8 on tiny: data plane" in output
    assert re.search(r"\(2,1\) +east +250 +50 +25\.0 % +16\.7 %", output)
    assert re.search(r"\(2,1\) +tile +1,000 +0 +100\.0 % +0\.0 %", output)
    assert re.search(r"\(2,1\) +7 +300 +1,200 +0\.250", output)
    assert re.search(r"all +7 +300 +1,200 +0\.250", output)
    assert "1,234 packets, 45.3 cycles on their way in the mean (alone 30.0), 301 at worst, at most 255 late" in output
    engine(row())
    assert "data plane" not in invoke("run", "gemm:8x8x8", "--chip", "tiny").output


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


def test_rows_as_a_table(folder: Path, engine: Any) -> None:
    engine(row(), row("resnet8/fc"))
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--csv", "-")
    assert shown.stdout.splitlines()[0].startswith("workload,chip,chip_digest,")
    assert [line.partition(",")[0] for line in shown.stdout.splitlines()[1:]] == ["gemm:8x8x8", "resnet8/fc"]
    assert "2 of 2 passed" in shown.stderr
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny", "--csv", "new/rows.csv").exit_code == 0
    assert (folder / "new" / "rows.csv").read_text() == shown.stdout
    refused = invoke("run", "gemm:8x8x8", "--csv", "-", "--json", "-")
    assert refused.exit_code == 2
    assert "only one of --json, --csv and" in refused.output
    (folder / "place").mkdir()
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny", "--csv", "place").exit_code == 5


def test_artefacts_are_kept_in_the_cache_or_where_asked_for(
    folder: Path, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(folder / "cache"))
    kept: list[Shelf | None] = []
    engine(row(), kept=kept)
    for option in ((), ("--artefacts",), ("--no-artefacts",)):
        assert invoke("run", "gemm:8x8x8", "--chip", "tiny", *option).exit_code == 0
    cached, asked, none = kept
    assert none is None
    assert asked is not None
    assert asked.asked
    assert asked.folder.parent == Path("sim_build/results")
    assert cached is not None
    assert not cached.asked
    assert cached.folder.parent == folder / "cache" / "artefacts"
    assert (results_in(folder) / f"{cached.folder.name}.json").exists()
    monkeypatch.setenv("MESHLOOM_ARTEFACTS_MB", "0")
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny").exit_code == 0
    assert kept[-1] is None


def test_no_room_in_the_cache_is_a_note(folder: Path, engine: Any) -> None:
    engine(Unwritten("gemm:8x8x8", "there/links.parquet: No space left on device", asked=False), row())
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny")
    assert shown.exit_code == 0
    assert "will know nothing of it: there/links.parquet: No space left on device" in shown.output


def test_artefacts_that_cannot_be_written_exit_with_5(folder: Path, engine: Any) -> None:
    """And the results, which could be, are there."""
    engine(Unwritten("gemm:8x8x8", "there/links.parquet: No space left on device"), row())
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--artefacts")
    assert shown.exit_code == 5
    assert "could not be written: there/links.parquet: No space left on device" in shown.stderr
    assert load(results_in(folder) / "latest.json").complete


def test_json_on_stdout_is_empty_when_nothing_ran(folder: Path, engine: Any) -> None:
    engine(ScheduleError("no room"))
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--json", "-")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (2, "", "error: no room\n")


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"mismatches": 1}, Status.MISMATCH, "1 of 64 bytes"),
        ({"faults": 1}, Status.FAULT, "1 faults"),
        ({"model_cycles": 1051}, Status.MODEL, "model error +5.10 % exceeds 5 %"),
        ({"bytes_checked": 0}, Status.FAILED, "no output byte was compared"),
    ],
)
def test_bad_rows_exit_with_1(folder: Path, engine: Any, changes: dict[str, Any], status: Status, reason: str) -> None:
    engine(row(), row("bad", **changes))
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 1
    assert f"bad [{status}]" in shown.output
    assert f"not good: bad: {reason}" in shown.output
    assert load(results_in(folder) / "latest.json").rows[1].status is status


def test_mean_error_over_the_run_exits_with_1(folder: Path, engine: Any) -> None:
    engine(row(model_cycles=1030), row(model_cycles=970))
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 1
    assert "not good: mean model error 3.00 % exceeds 2 %" in shown.output


def test_a_run_without_rows_is_not_good(folder: Path, engine: Any) -> None:
    engine()
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 1
    assert "no workload ran" in shown.output


def test_interrupt_keeps_finished_rows(folder: Path, engine: Any) -> None:
    engine(row(), KeyboardInterrupt())
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 130
    kept = load(results_in(folder) / "latest.json")
    assert (len(kept.rows), kept.complete) == (1, False)
    assert "interrupted" in shown.output
    assert "Traceback" not in shown.output


def test_interrupt_before_the_first_row_writes_nothing(folder: Path, engine: Any) -> None:
    engine(KeyboardInterrupt())
    assert invoke("run", "--regression", "--chip", "tiny").exit_code == 130
    assert not list(folder.iterdir())


@pytest.mark.parametrize("kind", [ConfigError, IsaError, ScheduleError, WorkloadError])
def test_our_errors_become_one_line(folder: Path, engine: Any, kind: type[Exception]) -> None:
    engine(kind("tile 3: too large, choose a smaller one"))
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 2
    assert shown.stderr == "error: tile 3: too large, choose a smaller one\n"
    assert not list(folder.iterdir())


def test_an_error_after_rows_keeps_them(folder: Path, engine: Any) -> None:
    engine(row(), ScheduleError("no room"))
    assert invoke("run", "--regression", "--chip", "tiny").exit_code == 2
    kept = load(results_in(folder) / "latest.json")
    assert (len(kept.rows), kept.complete) == (1, False)


def test_a_bug_keeps_its_traceback(folder: Path, engine: Any) -> None:
    """And does not have the exit status of a mismatch."""
    engine(ZeroDivisionError("a bug"))
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 4
    assert shown.stderr.startswith("error: this is a bug in Meshloom:\nTraceback")
    assert "ZeroDivisionError: a bug" in shown.stderr


@pytest.mark.parametrize("kind", [BuildError, DeviceError, RunsError])
def test_a_failure_of_the_tools_exits_with_4(folder: Path, engine: Any, kind: type[Exception]) -> None:
    engine(row(), kind("the simulator died"))
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 4
    assert shown.stderr == "error: the simulator died\n"


def failed(workload: str, stage: str = "scheduling", **changes: Any) -> Row:
    error = {"kind": "DoesNotFit", "stage": stage, "message": "too big"}
    return row(workload, error=error | changes, rtl_cycles=0, model_cycles=0, bytes_checked=0, instructions=0)


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([row(), failed("big")], 3),
        ([failed("big")], 3),
        ([row(), failed("big"), failed("dead", "simulating")], 4),
        ([row(), failed("big"), row("wrong", mismatches=1)], 1),
        ([failed("dead", "simulating"), row("wrong", faults=1)], 1),
        ([failed("big"), row(model_cycles=1030), row(model_cycles=970)], 1),
    ],
)
def test_a_workload_that_cannot_be_run_is_a_row(folder: Path, engine: Any, rows: list[Row], status: int) -> None:
    engine(*rows)
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == status
    assert "not good: big: scheduling: too big" in shown.output or "big" not in {each.workload for each in rows}
    found = load(results_in(folder) / "latest.json")
    assert (found.complete, list(found.rows)) == (True, rows)


def test_a_row_names_the_file_of_its_traceback(folder: Path, engine: Any) -> None:
    engine(failed("big", traceback="sim_build/results/x/big.traceback.txt", kind="ZeroDivisionError"))
    output = invoke("run", "--regression", "--chip", "tiny").output
    assert (
        "big: scheduling: ZeroDivisionError: too big; its traceback is in sim_build/results/x/big.traceback.txt"
        in output
    )


def test_help_names_every_exit_status() -> None:
    shown = " ".join(invoke("--help").output.split())
    for status in Exit:
        assert f"{status.value} {status.meaning.split(',')[0]}" in shown
    documented = (Path(__file__).parents[2] / "docs" / "results" / "README.md").read_text()
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", documented, re.MULTILINE)} == set(Exit)


def test_a_place_that_cannot_be_written_is_told_before_the_run(folder: Path, engine: Any) -> None:
    calls = engine(row())
    (folder / "file").touch()
    for place in (folder, folder / "file" / "out.json"):
        shown = invoke("run", "--regression", "--chip", "tiny", "--json", str(place))
        assert shown.exit_code == 5
        assert shown.stderr.startswith(f"error: results could not be written: {folder}")
    (folder / "sim_build").touch()
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert (shown.exit_code, shown.stderr) == (5, "error: results could not be written: sim_build: Not a directory\n")
    assert calls == []


@pytest.mark.parametrize(("bad", "status"), [(row(), 5), (row(mismatches=1), 1)])
def test_results_that_cannot_be_written_are_shown(
    folder: Path, engine: Any, bad: Row, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up while the run goes on."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "x.json")

    monkeypatch.setattr("meshloom.tb.results.schema.write_atomically", full)
    monkeypatch.setattr("meshloom.tb.report.registry.write_atomically", full)
    engine(row("first"), bad, row("last"))
    shown = invoke("run", "--regression", "--chip", "tiny", "--json", "copy.json")
    assert shown.exit_code == status
    assert "of 3 passed" in shown.output
    assert "│last " in shown.output
    assert shown.stderr == "error: results could not be written: x.json: No space left on device\n"
    assert "results: " not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "give workloads or --regression"),
        (["run", "resnet8", "--regression"], "give workloads or --regression"),
        (["run", "resnet8", "--chip", "nochip"], "error: unknown chip 'nochip': built in are"),
        (["run", "resnet8", "--chip", "absent.toml"], "error: absent.toml: cannot be read"),
        (["run", "resnet8", "--device", "spice"], "error: unknown device 'spice'; known are icarus, verilator"),
        (["run", "resnet8", "--simulator", "spice"], "error: unknown device 'spice'"),
        (["run", "resnet8", "--report", "rows.csv"], "'rows.csv' is not FORM=PATH, as in csv=rows.csv; forms are csv"),
        (["run", "resnet8", "--report", "xls=rows.xls"], "unknown report 'xls'; known are csv, json, junit, parquet"),
        (["run", "resnet8", "--report", "csv=-", "--json", "-"], "only one of --json, --csv and --report can go to"),
        (["run", "resnet8", "--jobs", "0"], "--jobs"),
        (["chips", "broken.toml"], "error: broken.toml: malformed TOML"),
        (["chips", "no_dram.toml"], 'no_dram.toml: floorplan has no "dram" tile'),
        (["verilog", "--chip", "no_dram.toml"], 'floorplan has no "dram" tile'),
        (["run", "squeeznet"], "error: unknown workload 'squeeznet': did you mean squeezenet?"),
        (["run", "resnet99/conv1"], "error: unknown workload 'resnet99/conv1': did you mean resnet8/conv1"),
        (["run", "absent.onnx", "--chip", "tiny"], "error: absent.onnx: cannot be read"),
        (["run", "resnet8", "--chip", "tiny", "--input", "absent.png"], "error: absent.png: cannot be read"),
        (["run", "resnet8", "--chip", "tiny", "--input", "wide.png"], "error: wide.png: is 33x32 pixels"),
        (["run", "odd.onnx", "--chip", "tiny", "--input", "wide.png"], "Hardmax"),
        (["run", "float.onnx", "--chip", "tiny"], "error: float.onnx: is a float model; give pictures to calibrate"),
        (["run", "gemm:8x8x8", "absent.onnx", "--chip", "tiny"], "error: absent.onnx: cannot be read"),
        (["run", "resnet8", "ds_cnn", "--input", "wide.png"], "--input: is for one network; given are 2"),
        (["run", "gemm:8x8x8", "--input", "wide.png"], "--input: is for one network; given are 0"),
        (["run", "resnet8", "resnet8/fc", "--calibrate", "x.png", "vww"], "is for one network; given are 2"),
        (["run", "gemm:8x8x8", "--labels", "wide.png"], "--labels: is for one network; given are 0"),
        (
            ["run", "resnet8", "--chip", "tiny", "--labels", "wide.png"],
            "wide.png: cannot be read: it is not UTF-8",
        ),
        (["run", "resnet8", "--chip", "tiny", "--labels", "absent"], "error: absent: cannot be read: No such file"),
        (["run", "resnet8", "--chip", "tiny", "--labels", "no_dram.toml"], "no_dram.toml: has 3 lines, output fc of"),
        (["run", "resnet8", "--mean", "1,two"], "--mean: '1,two' must be numbers separated by commas"),
        (["run", "resnet8", "--std", "1,,2"], "must be numbers separated by commas"),
        (["run", "resnet8", "--std", "1,0"], "--std: '1,0': every value must be finite, and those of --std not 0"),
        (["run", "resnet8", "--mean", "inf"], "--mean: 'inf': every value must be finite, and those of --std not 0"),
        (["workloads", "vgg16/conv4_9"], "error: unknown workload 'vgg16/conv4_9': did you mean"),
        (["schedule", "lenet", "--chip", "tiny"], "error: unknown workload 'lenet'"),
        (
            ["schedule", "gemm:1000000x1000000x1000000", "--chip", "tiny"],
            "error: layer gemm:1000000x1000000x1000000 is too big for chip tiny: its tensors take",
        ),
        (["check", "absent.json"], "error: absent.json: cannot be read"),
        (["check", "broken.toml.json"], "error: broken.toml.json"),
        (["nonsense"], "nonsense"),
        (["rnu"], "Did you mean 'run'?"),
        (["run", "resnet8", "--chip", "quad61"], "or give a .toml; did you mean quad16"),
        (["schedule", "gemm:8x8x8", "--scheduler", "loop_ordr"], "did you mean loop_order?"),
        (["schedule", "gemm:8x8x8", "--budget", "3"], "--budget: scheduler loop_order has no budget, its work ends by"),
        (["run", "resnet8", "--scheduler", "dtt", "--budget", "3"], "flexer, hybrid, klotski, paper_static take one"),
        (["run", "resnet8", "--scheduler", "hybrid:budget=2", "--budget", "3"], "names a budget, and so does --budget"),
        (["bench", "scalsim"], "error: unknown benchmark 'scalsim'; known are ahead"),
    ],
)
def test_bad_input_exits_with_2_and_says_why(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "broken.toml").write_text("name = ")
    (folder / "broken.toml.json").write_text('{"version": 1, "chip": "tiny"')
    (folder / "no_dram.toml").write_text('name = "x"\nlanes = 4\nfloorplan = ["core host"]\n')
    Image.new("RGB", (33, 32)).save(folder / "wide.png")
    for name, operator in (("odd", "Hardmax"), ("float", "Relu")):
        model = FloatModel()
        model.node(operator, model.conv("x", "c", (4, 3, 1, 1)), "y")
        onnx.save(model.build(model.conv("y", "z", (2, 4, 1, 1))), folder / f"{name}.onnx")
    before = set(folder.rglob("*"))
    shown = invoke(*arguments)
    assert shown.exit_code == 2, shown.output
    assert message in " ".join(shown.stderr.replace("│", " ").split())
    assert "Traceback" not in shown.output
    assert set(folder.rglob("*")) == before, "nothing is written"


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


def test_networks_run_whole_and_their_layers_by_a_star(folder: Path, engine: Any) -> None:
    calls = engine(row())
    assert invoke("run", "resnet8", "resnet8/*", "--chip", "tiny").exit_code == 0
    ((workloads, *_),) = calls
    assert workloads == [NetworkSource("resnet8"), "resnet8/*"]


LAYER = LayerFigures(
    name="features.12.expand/Conv_output_0", kind="average_pool", macs=123_456_789, limit="compute",
    rtl_cycles=1_234_567, model_cycles=1_234_569, core_cycles=12_345_678, utilisation=1,
    shares=dict.fromkeys(CAUSES, 100.0),
)  # fmt: skip


def test_tables_of_networks_are_readable_in_a_log(folder: Path, engine: Any) -> None:
    """Every number whole and every head whole in a width of 176, with long names and large numbers."""
    names: dict[str, Any] = {
        "picture": "imagenet_00_243.webp",
        "answer": "black-and-tan coonhound",
        "expected": "American Staffordshire",
    }
    layers = (LAYER, LAYER.model_copy(update={"name": "pool", "shares": {}, "kind": "max_pool"}))
    figures = NetworkFigures(
        **names, float_answer="wire-haired fox terrier", macs=15_470_264_320, tensors_checked=121,
        dram_bytes=1_234_567_890, spilled=("y",), layers=layers, shares=dict.fromkeys(CAUSES, 100.0),
    )  # fmt: skip
    engine(row("efficientnet_lite0", network=figures), row("gemm:8x8x8"))
    shown = invoke("run", "efficientnet_lite0", "--chip", "tiny", "--layers")
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.output.splitlines() if not line.startswith(("results:", "[1/2]"))]
    assert max(map(len, lines)) <= LOG_WIDTH
    assert "…" not in shown.output
    for head in ("RTL says", "float says", "DRAM MB", "layer error", "core cycles", "RTL cycles", *CAUSES):
        assert head in shown.output
    for cell in (*names.values(), "wire-haired fox terrier", "15,470.3", "1,234.57", "121", "123.46", "1,234,567"):
        assert cell in shown.output
    for layer in layers:
        (line,) = [line for line in lines if line.startswith(layer.name)]
        assert len(line.split()) == 8 + len(CAUSES)
    assert (
        "[1/2] efficientnet_lite0: passed, imagenet_00_243.webp is black-and-tan coonhound, 1,000 cycles"
        in shown.output
    )
    assert LAYER.name not in invoke("run", "efficientnet_lite0", "--chip", "tiny").output, "only if asked for"


def test_a_very_long_layer_name_is_folded_and_no_number_is(folder: Path, engine: Any) -> None:
    layer = LAYER.model_copy(update={"name": "a" * 100})
    figures = NetworkFigures(
        macs=1, tensors_checked=1, dram_bytes=1, layers=(layer,), shares=dict.fromkeys(CAUSES, 1.0)
    )
    engine(row("mine", network=figures))
    output = invoke("run", "mine.onnx", "--chip", "tiny", "--layers").output
    assert output.count("a" * 20) >= 2
    assert "12,345,678" in output
    assert "…" not in output


def test_chips_are_listed_and_shown(folder: Path) -> None:
    shown = invoke("chips").output
    assert all(name in shown for name in built_in_chips())
    text = 'name = "mine"\nlanes = 8\nrows = 5\ncols = 7\nfloorplan = ["core dram host"]\n[dram]\nbytes_per_cycle = 8\n'
    (folder / "mine.toml").write_text(text)
    shown = invoke("chips", "mine.toml")
    assert shown.exit_code == 0
    assert "core dram host" in shown.output
    assert "1 x 5x7" in shown.output


def test_workloads_are_listed_and_shown() -> None:
    shown = invoke("workloads").output
    assert all(name in shown for name in zoo.names())
    assert "gemm:MxNxK" in shown
    assert "squeezenet/fire2_squeeze" in invoke("workloads", "squeezenet").output
    shown = invoke("workloads", "vgg16/conv4_2").output
    assert "1x512x28x28" in shown
    assert "random" in shown
    assert len(invoke("workloads", "regression").output.splitlines()) > 30


def test_verilog_says_what_it_wrote(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Path]] = []

    def emit(config: Any, out: Path) -> tuple[Path, Path]:
        seen.append((config.name, out))
        return out / "chip.v", out / "chip.json"

    monkeypatch.setitem(sys.modules, "meshloom.tb.build.builder", SimpleNamespace(emit_verilog=emit))
    assert invoke("verilog", "--chip", "tiny", "--out", "there").output.splitlines() == [
        "there/chip.v",
        "there/chip.json",
    ]
    assert invoke("verilog", "--chip", "tiny").exit_code == 0
    assert seen == [("tiny", Path("there")), ("tiny", Path("sim_build/verilog/tiny"))]


def saved_schedule(path: Path, chip: str = "tiny", digest: str | None = None) -> Schedule:
    """One move inside the DRAM of a chip, saved; its source counts as loaded because it is a tensor."""
    config = load_chip(chip)
    dram = config.drams[0]
    layout = BiasLayout(out_channels=config.cols, cols=config.cols)
    x = Tensor(name="x", role="input", layout=layout, pieces=(Piece(tile=dram, address=0, first=0, words=4),))
    y = Tensor(name="y", role="output", layout=layout, pieces=(Piece(tile=dram, address=64, first=0, words=4),))
    spm = config.spms[0]
    there = Move(issuer=dram, src=Span(tile=dram, address=0, run=4), dst=Span(tile=spm, address=0, run=4), words=4)
    back = Move(
        issuer=spm, src=Span(tile=spm, address=0, run=4), dst=Span(tile=dram, address=64, run=4), words=4, label="home"
    )
    schedule = Schedule(
        chip=chip,
        chip_digest=digest or config.digest,
        workload="copy",
        scheduler="hand",
        operations=(there, back),
        tensors=(x, y),
    )
    schedule.save(path)
    return schedule


def test_check_and_disasm_of_schedule_and_image(folder: Path) -> None:
    schedule = saved_schedule(folder / "copy.json")
    image.save(lower(schedule, load_chip("tiny")), folder / "copy.bin")
    for name in ("copy.json", "copy.bin"):
        shown = invoke("check", name)
        assert shown.exit_code == 0, shown.output
        assert f"{name}: good on tiny:" in shown.output
        listing = invoke("disasm", name)
        assert listing.exit_code == 0, listing.output
        assert "MOVE" in listing.output
        assert ("home" in listing.output) == (name == "copy.json")
        wrong = invoke("check", name, "--chip", "quad8")
        assert wrong.exit_code == 2
        assert wrong.stderr.startswith("error: ")


def test_check_of_onnx_files(folder: Path) -> None:
    """What would run, and what cannot; sizes that the file leaves open are asked for."""
    model = FloatModel((1, 3, "rows", 8))
    scores = model.node("GlobalAveragePool", model.conv("x", "c", (4, 3, 3, 3)), "p")
    onnx.save(model.build(model.node("Hardmax", scores, "y", axis=1)), "good.onnx")
    shown = invoke("check", "good.onnx", "--bind", "rows=6")
    assert shown.exit_code == 0, shown.output
    assert (
        "good.onnx: 3 nodes can run as 2 layers (1 conv, 1 average_pool); input x [1, 3, 6, 8]; float" in shown.output
    )
    assert "Hardmax y at the end runs on the host." in shown.output
    for options, message in (
        ((), "dimension 2 of input 'x' is not fixed (rows); give it a size (--bind rows=N)"),
        (("--bind", "row=6"), "no input has a size 'row' to bind; sizes are x:0, x:1, rows, x:3"),
        (("--bind", "rows"), "'rows' must be a name and a size of 1 or more"),
    ):
        shown = invoke("check", "good.onnx", *options)
        assert shown.exit_code == 2
        assert message in shown.stderr
    onnx.save(model.build(model.conv("y", "z", (4, 4, 1, 1))), "bad.onnx")
    shown = invoke("check", "bad.onnx", "--bind", "rows=6")
    assert shown.exit_code == 2
    assert "n_y (Hardmax): no layer does that" in shown.stderr


def test_check_of_damaged_files(folder: Path) -> None:
    schedule = saved_schedule(folder / "copy.json")
    image.save(lower(schedule, load_chip("tiny")), folder / "copy.bin")
    whole = (folder / "copy.bin").read_bytes()
    (folder / "flipped.bin").write_bytes(whole[:90] + bytes([whole[90] ^ 4]) + whole[91:])
    (folder / "short.bin").write_bytes(whole[:-20])
    saved_schedule(folder / "foreign.json", digest="0" * 64)
    for name, message in (("flipped.bin", "flipped.bin"), ("short.bin", "truncated"), ("foreign.json", "--chip")):
        shown = invoke("check", name)
        assert shown.exit_code == 2
        assert message in shown.stderr
        assert len(shown.stderr.splitlines()) == 1


def test_operations_are_listed_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    from meshloom.tb.report.console import console
    from meshloom.tb.report.tables import print_operations

    move = Move(issuer=1, src=Span(tile=0, address=64, run=8), dst=Span(tile=1, address=(1 << 24) + 5, run=8), words=8)
    fields = {"op": VectorOp.MAX, "x_out": 1, "pixels": 4, "blocks": 2, "kernel_h": 2, "kernel_w": 2, "dest_base": 7}
    vec = Vec(core=1, fields=fields, label="v 0")
    gemm = Gemm(core=1, fields={"pixels": 9, "n_blocks": 1, "k_blocks": 2, "kernel_h": 3, "kernel_w": 1}, label="g 0")
    schedule = Schedule(
        chip="tiny",
        chip_digest="0",
        workload="w",
        scheduler="s",
        operations=(move, gemm, vec),
        predicted=Prediction(cycles=90, start=(3, 20, 40), end=(19, 90, 48)),
    )
    print_operations(schedule, console())
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["0", "3", "19"]
    assert "MOVE by (1,0)" in first
    assert "8 words (0,0) MAIN[64] -> (1,0) B[5]" in first
    assert second.split()[:3] == ["1", "20", "90"]
    assert "GEMM on (1,0)" in second
    assert "6 taps -> OUT[0]  g 0" in second
    assert third.split()[:3] == ["2", "40", "48"]
    assert "VEC on (1,0)" in third
    assert "MAX OUT[0], 4 pixels, 2 blocks, 4 taps -> VEC[7]  v 0" in third


def test_results_file_is_plain_json(folder: Path, engine: Any) -> None:
    engine(row())
    assert invoke("run", "gemm:8x8x8", "--chip", "tiny").exit_code == 0
    (first,) = json.loads((results_in(folder) / "latest.json").read_text())["rows"]
    issue = {"workload", "chip", "scheduler", "simulator", "rtl_cycles", "model_cycles", "utilisation", "bytes_checked"}
    assert issue | {"mismatches", "faults", "cpu_seconds", "cycles_per_second"} <= set(first)


def test_a_reader_that_has_had_enough_is_no_bug() -> None:
    """`meshloom workloads | head -1`."""
    command = [sys.executable, "-m", "meshloom.tb.cli.main", "workloads"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
