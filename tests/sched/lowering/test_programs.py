"""One road from a schedule to its program: its execution decides which, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Execution, Schedule, ScheduleError
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.programs import check_program, planned, program_of, unchecked
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload import zoo
from meshloom.sched.workload.catalog import find

CHIP = load("ahead8")


def made(name: str) -> Schedule:
    layer = find("gemm:32x32x32")[0]
    return scheduler(name)(layer.shape, CHIP, layer.data().scale)


@pytest.fixture(scope="module")
def timed() -> Schedule:
    return made("dtt")


@pytest.fixture(scope="module")
def triggered() -> Schedule:
    return made("loop_order")


def test_the_scheduler_sets_it(timed: Schedule, triggered: Schedule) -> None:
    assert (timed.execution, triggered.execution) == (Execution.TIMED, Execution.TRIGGERED)
    assert timed.predicted is None, "what was predicted of the triggered one"
    assert timed.operations == triggered.operations


def test_networks_of_the_scheduler_have_it_too() -> None:
    schedule = registry.find_network("dtt")(zoo.load("resnet8"), CHIP, None).schedule
    assert (schedule.scheduler, schedule.execution) == ("dtt", Execution.TIMED)


@pytest.mark.parametrize("label", ["dtt", "mine", ""])
def test_labels_decide_nothing(timed: Schedule, triggered: Schedule, label: str) -> None:
    for schedule in (timed, triggered):
        program = program_of(schedule.model_copy(update={"scheduler": label}), CHIP)
        assert program == program_of(schedule, CHIP)
        assert program.ahead == (schedule is timed)


def test_it_is_saved_and_read(timed: Schedule, triggered: Schedule, tmp_path: Path) -> None:
    for schedule in (timed, triggered):
        schedule.save(tmp_path / "s.json")
        assert json.loads((tmp_path / "s.json").read_text())["execution"] == schedule.execution.value
        assert Schedule.load(tmp_path / "s.json") == schedule


def test_a_file_that_does_not_say_is_triggered(timed: Schedule, tmp_path: Path) -> None:
    timed.save(tmp_path / "s.json")
    values = json.loads((tmp_path / "s.json").read_text())
    del values["execution"]
    (tmp_path / "s.json").write_text(json.dumps(values))
    assert Schedule.load(tmp_path / "s.json").execution is Execution.TRIGGERED
    (tmp_path / "s.json").write_text(json.dumps(values | {"execution": "soon"}))
    with pytest.raises(ScheduleError, match=r"s\.json: execution: .*'triggered' or 'timed'"):
        Schedule.load(tmp_path / "s.json")


def test_it_is_validated(triggered: Schedule) -> None:
    chip = load("quad8")
    layer = find("gemm:8x8x8")[0]
    schedule = scheduler("loop_order")(layer.shape, chip, layer.data().scale)
    with pytest.raises(ScheduleError, match='is timed, and chip quad8 has no controller to time it; draw a "dtt" tile'):
        validate(schedule.model_copy(update={"execution": Execution.TIMED}), chip)
    with pytest.raises(ScheduleError, match="execution 'soon' is not one of triggered, timed"):
        program_of(triggered.model_copy(update={"execution": "soon"}), CHIP)


def test_what_is_timed_is_never_lowered(timed: Schedule) -> None:
    with pytest.raises(ScheduleError, match="is timed, not triggered: it has no semaphores"):
        lower(timed, CHIP)


def test_a_controller_issues_no_moves_of_a_schedule(triggered: Schedule) -> None:
    """Its stream is not executed where it is: MOVEs and semaphores of a triggered program would be lost there."""
    first = triggered.operations[0]
    assert first.kind == "move"
    by_it = first.model_copy(update={"issuer": CHIP.dtt})
    with pytest.raises(ScheduleError, match=r"^operation 0 .*issuer tile \(3, 0\) has no mover stream"):
        validate(triggered.model_copy(update={"operations": (by_it, *triggered.operations[1:])}), CHIP)


def test_what_is_predicted_is_what_is_played(timed: Schedule, triggered: Schedule) -> None:
    for schedule in (timed, triggered):
        ready = planned(schedule, CHIP)
        assert ready.program == unchecked(schedule, CHIP) == program_of(schedule, CHIP)
        assert ready.timeline == play(ready.program, CHIP)
        assert ready.schedule.predicted is not None
        assert ready.schedule.predicted.cycles == ready.timeline.cycles
        assert ready.schedule.model_copy(update={"predicted": schedule.predicted}) == schedule
        assert (check_program(ready.program, CHIP, schedule).timed > 0) == (schedule is timed)
    assert planned(timed, CHIP).timeline.cycles != planned(triggered, CHIP).timeline.cycles


def test_what_is_being_done_is_told(timed: Schedule, triggered: Schedule) -> None:
    for schedule, first, second in (
        (triggered, "lowering", "checking the program"),
        (timed, "timing it ahead", "proving it"),
    ):
        message: list[str] = []
        planned(schedule, CHIP, message.append)
        assert message == [first, second, "predicting its cycles"]
