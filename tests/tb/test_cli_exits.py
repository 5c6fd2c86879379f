"""The command line: exit statuses, errors in one line, and what is left behind by what went wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from PIL import Image

from meshloom.hw.spec.config import ConfigError
from meshloom.hw.spec.isa import IsaError
from meshloom.sched.ir.schedule import ScheduleError
from meshloom.sched.support.files import WriteError
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.build.builder import BuildError
from meshloom.tb.devices.folders import RunsError
from meshloom.tb.devices.interface import DeviceError
from meshloom.tb.results.exits import Exit, expected
from meshloom.tb.results.schema import Row, Status, load
from meshloom.tb.runs.failures import failure

from ..sched.float_models import FloatModel
from .command_line import invoke, results_in, row


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
    results = load(results_in(folder) / "latest.json")
    assert (len(results.rows), results.complete) == (1, False)
    assert "Traceback" not in shown.output
    (kept,) = (path for path in results_in(folder).glob("*.json") if path.name != "latest.json")
    message = shown.stderr.replace("\n", " ")
    assert (
        f"error: interrupted after 1 row, kept in {kept.relative_to(folder)}; simulators, compiled networks" in message
    )
    assert "; go on with: meshloom " in message


def test_interrupt_before_the_first_row_writes_nothing(folder: Path, engine: Any) -> None:
    engine(KeyboardInterrupt())
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 130
    assert "interrupted after no row; simulators" in shown.stderr
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
    results = load(results_in(folder) / "latest.json")
    assert (len(results.rows), results.complete) == (1, False)


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
    results = load(results_in(folder) / "latest.json")
    assert (results.complete, list(results.rows)) == (True, rows)


def test_a_row_names_the_file_of_its_traceback(folder: Path, engine: Any) -> None:
    engine(failed("big", traceback="sim_build/results/x/big.traceback.txt", kind="ZeroDivisionError"))
    output = invoke("run", "--regression", "--chip", "tiny").output
    assert (
        "big: scheduling: ZeroDivisionError: too big; its traceback is in sim_build/results/x/big.traceback.txt"
        in output
    )


@pytest.mark.parametrize(
    "error",
    [MemoryError(), ImportError("libarrow.so: failed to map segment from shared object"), OSError(12, "Cannot")],
)
def test_a_lack_of_memory_is_named_with_what_to_do(error: Exception) -> None:
    words = "this process may have no more memory"
    assert (pair := expected(error)) is not None
    assert pair[0].startswith(words)
    assert pair[1] is Exit.TOOL
    outcome = failure(error, "comparing")
    assert (outcome.message, outcome.trace) == (pair[0], "")
    assert failure(ImportError("no such module"), "comparing").trace


def test_help_names_every_exit_status() -> None:
    shown = " ".join(invoke("--help").output.split())
    for status in Exit:
        assert f"{status.value} {status.meaning.split(',')[0]}" in shown
    documented = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", documented, re.MULTILINE)} == set(Exit)


def test_a_place_that_cannot_be_written_is_told_before_the_run(folder: Path, engine: Any) -> None:
    calls = engine(row())
    (folder / "file").touch()
    for place in (folder, folder / "file" / "out.json"):
        shown = invoke("run", "--regression", "--chip", "tiny", "--json", str(place))
        assert shown.exit_code == 5
        assert shown.stderr.startswith(f"error: {place}: cannot be written: ")
    (folder / "sim_build").touch()
    shown = invoke("run", "--regression", "--chip", "tiny")
    assert shown.exit_code == 5
    assert re.fullmatch(
        r"error: sim_build/\S+\.json: cannot be written: Not a directory; name another place\n", shown.stderr
    )
    assert calls == []


@pytest.mark.parametrize(("bad", "status"), [(row(), 5), (row(mismatches=1), 1)])
def test_results_that_cannot_be_written_are_shown(
    folder: Path, engine: Any, bad: Row, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up while the run goes on."""

    def full(*_: Any) -> None:
        raise WriteError(28, "No space left on device", "x.json")

    monkeypatch.setattr("meshloom.tb.results.schema.write_atomically", full)
    monkeypatch.setattr("meshloom.tb.report.registry.write_atomically", full)
    engine(row("first"), bad, row("last"))
    shown = invoke("run", "--regression", "--chip", "tiny", "--json", "copy.json")
    assert shown.exit_code == status
    assert "of 3 passed" in shown.output
    assert "│last " in shown.output
    why = "No space left on device; make room there, or name another place"
    assert shown.stderr == f"error: x.json: cannot be written: {why}\n"
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
        (["run", "odd.onnx", "--chip", "tiny"], "Hardmax"),
        (["run", "gemm:8x8x8", "absent.onnx", "--chip", "tiny"], "error: absent.onnx: cannot be read"),
        (["run", "resnet8", "ds_cnn", "--input", "wide.png"], "--input: is for one network; given are 2"),
        (["run", "gemm:8x8x8", "--input", "wide.png"], "--input: is for one network; given are 0"),
        (["run", "resnet8", "resnet8/fc", "--calibrate", "x.png", "vww"], "--calibrate: is for one network; given are"),
        (
            ["run", "odd.onnx/conv", "--input", "x.png"],
            "odd.onnx/conv: a layer of a file cannot run by itself; run odd",
        ),
        (
            ["schedule", "odd.onnx/conv"],
            "odd.onnx/conv: a layer of a file cannot run by itself; run odd.onnx (--layers",
        ),
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
        (["check", "absent.json"], "error: absent.json: cannot be read"),
        (["check", "broken.toml.json"], "error: broken.toml.json"),
        (["nonsense"], "nonsense"),
        (["rnu"], "Did you mean 'run'?"),
        (["run", "resnet8", "--chip", "quad61"], "or give a .toml; did you mean quad16"),
        (["schedule", "gemm:8x8x8", "--scheduler", "loop_ordr"], "did you mean loop_order?"),
        (["schedule", "gemm:8x8x8", "--budget", "3"], "--budget: scheduler loop_order has no budget, its work ends by"),
        (["run", "resnet8", "--scheduler", "dtt", "--budget", "3"], "flexer, hybrid, klotski, paper_static take one"),
        (["run", "resnet8", "--scheduler", "hybrid:budget=2", "--budget", "3"], "names a budget, and so does --budget"),
        (["schedule", "gemm:8x8x8", "--scheduler", "klotski", "--effort", "quick"], "scheduler klotski has no effort"),
        (["bench", "scalsim"], "error: unknown study 'scalsim'; known are "),
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


def test_a_layer_that_no_schedule_can_have_exits_with_3_as_a_run_of_it_does(folder: Path) -> None:
    shown = invoke("schedule", "gemm:1000000x1000000x1000000", "--chip", "tiny")
    assert shown.exit_code == 3, shown.output
    assert shown.stderr.startswith(
        "error: layer gemm:1000000x1000000x1000000 is too big for chip tiny: its tensors take"
    )
