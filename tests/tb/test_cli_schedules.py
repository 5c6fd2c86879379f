"""`meshloom schedule`, `check` and `disasm`: one road for all, the one that `run` takes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import Result

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Execution, Prediction, Schedule
from meshloom.sched.lowering.lifted import metadata_of
from meshloom.sched.program import image
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.interface import Maker, Scheduler
from meshloom.sched.schedulers.loop_order.scheduler import schedule as loop_order
from meshloom.sched.workload.catalog import find, regression
from meshloom.tb.devices.simulated import VERILATOR
from meshloom.tb.runs import runner
from meshloom.tb.runs.runner import prepare

from ..sched.float_models import FloatModel
from .command_line import invoke

LAYER = "gemm:32x32x32"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Registers scheduler `mine`, which changes what loop_order makes."""

    def enter(change: Any) -> None:
        module = ModuleType("somebodys_scheduler")
        make = Maker(lambda shape, chip, scale, options, context: change(loop_order(shape, chip, scale)))
        module.MINE = Scheduler("mine", "", make)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "somebodys_scheduler", module)
        monkeypatch.setitem(registry.REGISTRY.shipped, "mine", "somebodys_scheduler:MINE")
        monkeypatch.setattr(registry.REGISTRY, "_loaded", {})

    return enter


def cycles(shown: Result, name: str) -> int:
    match = re.search(rf"{name} +│.* ([\d,]+) │ +[\d.]+ %", shown.output)
    assert match, shown.output
    return int(match[1].replace(",", ""))


def test_names_of_files_are_printed_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do brackets colour what follows, nor are names broken where a line ends."""
    monkeypatch.setenv("COLUMNS", "20")
    place = folder / "[red] and more"
    places = place / "schedule.json", place / "program.bin"
    shown = invoke("schedule", LAYER, "--chip", "tiny", "--out", places[0], "--program", places[1])
    assert shown.stdout.splitlines()[-2:] == [f"schedule: {places[0]}", f"program: {places[1]}"]


@pytest.mark.parametrize(
    ("chip", "name"),
    [
        ("tiny", "loop_order"),
        pytest.param("ahead8", "loop_order", marks=pytest.mark.slow),
        pytest.param("ahead8", "dtt", marks=pytest.mark.slow),
    ],
)
def test_what_is_shown_and_saved_is_what_runs(folder: Path, chip: str, name: str) -> None:
    shown = invoke("schedule", LAYER, "--chip", chip, "--scheduler", name, "--out", "s.json", "--program", "p.bin")
    assert shown.exit_code == 0, shown.output
    config = load(chip)
    runs = prepare(find(LAYER)[0], config, name)
    assert Schedule.load("s.json") == runs.schedule
    assert (folder / "p.bin").read_bytes() == image.to_bytes(runs.program, metadata_of(runs.schedule))
    assert cycles(shown, LAYER) == runs.cycles
    for file in ("s.json", "p.bin"):
        checked = invoke("check", file)
        assert checked.exit_code == 0, checked.output
        assert f"{file}: good on {chip}: " in checked.output
        assert ("of them timed ahead, all in time" in checked.output) == (name == "dtt")
        assert invoke("disasm", file).exit_code == 0


def float_file(shape: tuple[int | str, ...]) -> None:
    """A float model with two convolutions in groups, as `float.onnx`, and an input for it, as `x.npy`."""
    model = FloatModel(shape)
    first = model.node("Conv", ["x", model.normal(8, 2, 3, 3), model.normal(8)], "first", group=2, pads=[1, 1, 1, 1])
    model.node("Conv", [first, model.normal(8, 4, 1, 1), model.normal(8)], "second", group=2)
    onnx.save(model.build("second"), "float.onnx")
    np.save("x.npy", np.random.default_rng(3).normal(2, 5, (1, 4, 8, 8)).astype(np.float32))


def test_a_float_model_needs_no_pictures_to_be_scheduled(folder: Path) -> None:
    """Its cycles hardly depend on them, and not at all on this chip. One sample is scheduled where the file leaves open
    how many there are."""
    float_file(("N", 4, 8, 8))
    drawn = invoke("schedule", "float.onnx", "--chip", "tiny")
    assert drawn.exit_code == 0, drawn.output
    assert "note: It is quantised with an input that is drawn, since no files are given (--calibrate; " in drawn.output
    assert "note: first and second: convolutions in groups. The groups of each run as one" in drawn.output
    fed = invoke("schedule", "float.onnx", "--chip", "tiny", "--calibrate", "x.npy", "--out", "s.json")
    assert fed.exit_code == 0, fed.output
    assert "that is drawn" not in fed.output
    assert cycles(fed, "float") == cycles(drawn, "float")
    result = invoke("run", "float.onnx", "--chip", "tiny")
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "float, input of seed 0: output second [1, 8, 8, 8] is in sim_build/results/" in text
    assert "The input is drawn with --seed, since no files are given (--input): its results mean nothing." in text


def test_a_schedule_of_another_calibration_says_how_to_make_it_again(folder: Path) -> None:
    float_file((1, 4, 8, 8))
    command = ["schedule", "float.onnx", "--chip", "tiny", "--calibrate", "x.npy", "--out", "s.json"]
    assert invoke(*command).exit_code == 0
    saved = json.loads(Path("s.json").read_text())
    (bias,) = [tensor for tensor in saved["tensors"] if tensor["name"] == "second/bias"]
    bias["name"] = "second/zeros"  # which this network has none of
    Path("s.json").write_text(json.dumps(saved))
    shown = invoke("run", "s.json", "--chip", "tiny", "--workload", "float.onnx", "--input", "x.npy")
    assert shown.exit_code == 3, shown.output
    text = " ".join(shown.output.split())
    assert "follow from the files that a float model is quantised with: save the schedule again" in text
    assert "`meshloom schedule float.onnx --calibrate x.npy --out FILE`" in text


def test_a_size_that_a_file_leaves_open_is_asked_for(folder: Path) -> None:
    float_file((1, 4, "rows", 8))
    shown = invoke("schedule", "float.onnx", "--chip", "tiny")
    assert shown.exit_code == 3
    assert (
        "input 'x' has a size that is not fixed; give it one (--bind x:2=32; in a scenario: bind)"
        in shown.output.replace("\n", " ")
    )
    assert invoke("schedule", "float.onnx", "--chip", "tiny", "--bind", "rows=8").exit_code == 0


@pytest.mark.parametrize("option", ["--calibrate", "--bind"])
def test_what_is_for_networks_alone(folder: Path, option: str) -> None:
    shown = invoke("schedule", LAYER, "--chip", "tiny", option, "rows=8")
    assert shown.exit_code == 2
    assert "is for a network" in shown.output


def test_a_third_partys_schedule_is_predicted(folder: Path, register: Any) -> None:
    register(lambda value: value.model_copy(update={"scheduler": "theirs", "predicted": Prediction(cycles=1)}))
    shown = invoke("schedule", LAYER, "--chip", "tiny", "--scheduler", "mine", "--out", "s.json", "--show")
    assert shown.exit_code == 0, shown.output
    runs = prepare(find(LAYER)[0], load("tiny"), "mine")
    assert cycles(shown, LAYER) == runs.cycles > 1
    assert runs.schedule.predicted is not None
    assert Schedule.load("s.json").predicted == runs.schedule.predicted
    first = next(line for line in shown.output.splitlines() if line.split()[:1] == ["0"])
    assert first.split()[1:3] == [str(runs.schedule.predicted.start[0]), str(runs.schedule.predicted.end[0])]


def without_the_first_load(schedule: Schedule) -> Schedule:
    return schedule.model_copy(update={"operations": schedule.operations[1:]})


def outside(schedule: Schedule) -> Schedule:
    first = schedule.operations[0].model_copy(update={"issuer": 0x77})
    return schedule.model_copy(update={"operations": (first, *schedule.operations[1:])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (outside, "error: operation 0 ("),
        (without_the_first_load, "error: the program has "),
        (lambda result: None, "error: scheduler mine made a NoneType of gemm:32x32x32, not a Schedule"),
        (lambda result: 1 / 0, "error: scheduler mine failed on gemm:32x32x32: ZeroDivisionError: division by zero"),
        (
            lambda value: value.model_copy(update={"execution": Execution.TIMED}),
            "chip tiny has no controller to time it",
        ),
        (lambda value: value.model_copy(update={"chip_digest": "0"}), "not for tiny"),
    ],
)
def test_a_third_partys_schedule_is_checked(folder: Path, register: Any, change: Any, message: str) -> None:
    register(change)
    shown = invoke("schedule", LAYER, "--chip", "tiny", "--scheduler", "mine", "--out", "s.json", "--program", "p.bin")
    assert shown.exit_code == 3
    assert message in shown.stderr
    assert "Traceback" not in shown.output
    assert not list(folder.iterdir()), "nothing is written"


def test_a_schedule_that_must_not_run_is_listed_all_the_same(folder: Path) -> None:
    schedule = prepare(find(LAYER)[0], load("tiny"), "loop_order").schedule
    without_the_first_load(schedule.model_copy(update={"predicted": None})).save(folder / "s.json")
    refused = invoke("check", "s.json")
    assert refused.exit_code == 2
    shown = invoke("disasm", "s.json")
    assert shown.exit_code == 0, shown.output
    assert sum("GEMM" in line for line in shown.stdout.splitlines()) == sum(
        op.kind == "gemm" for op in schedule.operations
    )
    assert shown.stderr == refused.stderr.replace("error: ", "note: this program must not run: ", 1)
    assert "which" in shown.stderr or "written" in shown.stderr


def test_a_schedule_without_a_program_has_no_listing(folder: Path) -> None:
    outside(prepare(find(LAYER)[0], load("tiny"), "loop_order").schedule).save(folder / "s.json")
    shown = invoke("disasm", "s.json")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.startswith("error: operation 0 ")


def test_the_regression_of_a_scheduler_of_layers_has_no_networks(register: Any) -> None:
    register(lambda value: value)
    values: list[Any] = []
    requests = runner._regression(VERILATOR, "mine", values.append)
    assert [each.name for each in requests] == [layer.name for layer in regression()]
    assert [stage.what for stage in values] == [f"scheduler mine takes no networks: the {len(requests)} layers"]
    both = runner._regression(VERILATOR, "loop_order:effort=0.5", values.append)
    assert len(both) > len(requests)
    assert len(values) == 1
    with pytest.raises(registry.SchedulerError, match="unknown scheduler 'nobody'"):
        runner._regression(VERILATOR, "nobody", values.append)


def test_a_scheduler_of_layers_is_refused_on_a_network_before_anything_is_built(folder: Path, register: Any) -> None:
    register(lambda value: value)
    shown = invoke("run", "resnet8", "--chip", "tiny", "--scheduler", "mine")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: scheduler mine schedules layers, not whole networks; give it a network's la")
    assert not list(folder.iterdir())


def test_a_chip_with_another_value_in_a_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduling and running mean the same chip; a saved schedule of it is not taken for one of the built-in chip's."""
    monkeypatch.chdir(tmp_path)
    slow = ("--chip", "tiny", "--set", "dram.latency=25", "--set", "spm_words=4096")
    scheduled = invoke("schedule", "gemm:8x8x8", *slow, "--out", "slow.json")
    assert scheduled.exit_code == 0, scheduled.stderr
    saved = Schedule.load(Path("slow.json"))
    assert saved.chip_digest != load("tiny").digest
    assert f"tiny@{saved.chip_digest[:8]}" in scheduled.stdout, "it is told from the built-in chip"
    refused = invoke("run", "slow.json")
    assert refused.exit_code == 2
    assert "not (or no longer) a built-in one; name it with --chip (and --set)" in refused.stderr
    for command in ("check", "disasm", "explain"):
        shown = invoke(command, "slow.json", *slow)
        assert shown.exit_code == 0, shown.stderr
        refused = invoke(command, "slow.json", "--set", "dram.latency=25")
        assert refused.exit_code == 2
        assert "changes a chip; name it with --chip" in refused.stderr
    assert invoke("compare", "slow.json", "slow.json", *slow).exit_code == 2, "the same twice"
    assert invoke("report", "slow.json", *slow, "--out", "page.html").exit_code == 0
    wrong = invoke("run", "slow.json", "--chip", "tiny", "--set", "dram.latency=26")
    assert wrong.exit_code == 2
    for command in ("run", "schedule"):
        refused = invoke(command, "gemm:8x8x8", "--chip", "tiny", "--set", "dram.delay=3")
        assert refused.exit_code == 2
        assert "dram.delay: there is no such field" in refused.stderr


def test_a_schedule_or_a_program_goes_to_stdout(folder: Path) -> None:
    tiny = ("--chip", "tiny")
    shown = invoke("schedule", "gemm:8x8x8", *tiny, "--out", "-")
    assert Schedule.model_validate_json(shown.stdout).workload == "gemm:8x8x8"
    assert "model cycles" in shown.stderr
    assert not list(folder.glob("-*"))
    image.from_bytes(invoke("schedule", "gemm:8x8x8", *tiny, "--program", "-").stdout_bytes, load("tiny"))
    both = invoke("schedule", "gemm:8x8x8", *tiny, "--program", "-", "--out", "-")
    assert "only one of --out and --program can go" in both.stderr
    several = invoke("schedule", "resnet8/*", *tiny, "--out", "-")
    assert "10 schedules need a folder; only one can go" in several.stderr


@pytest.mark.slow
def test_a_run_on_a_chip_with_another_value_in_a_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("run", "gemm:8x8x8", "--chip", "tiny", "--set", "dram.latency=25", "--json", "a.json")
    assert shown.exit_code == 0, shown.stderr
    assert "tiny@" in shown.output
    row = json.loads(Path("a.json").read_text())["rows"][0]
    assert row["chip_digest"] != load("tiny").digest
    assert row["rtl_cycles"] == row["model_cycles"]
