"""From a schedule to a checked program, triggered or timed: the one path that all callers use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig

from ..checker.check import check
from ..checker.problems import Report
from ..ir.schedule import Execution, Schedule
from ..ir.validation import validate
from ..model.timeline import Timeline, play
from ..program.program import Program
from .predict import Lowered, prediction
from .semaphores.lower import lower

OnProgress = Callable[[str], None]


def _nobody(what: str) -> None:
    """Ignores the progress."""


@dataclass(frozen=True)
class Planned:
    """A schedule before it runs. `schedule.predicted` holds the times of its operations in `timeline`."""

    schedule: Schedule
    program: Program
    timeline: Timeline


def planned(schedule: Schedule, chip: ChipConfig, on_progress: OnProgress = _nobody) -> Planned:
    """The program of a schedule, checked, and its predicted cycles. Raises what `program_of` raises."""
    program = program_of(schedule, chip, on_progress)
    on_progress("predicting its cycles")
    timeline = play(program, chip)
    predicted = prediction(schedule, program, timeline)
    return Planned(schedule.model_copy(update={"predicted": predicted}), program, timeline)


def program_of(schedule: Schedule, chip: ChipConfig, on_progress: OnProgress = _nobody) -> Program:
    """The checked program of a schedule. `on_progress` is called with each step.

    Raises what building and checking raise: ScheduleError, ProgramError, CheckError; for a timed one also DttError,
    TimingFault, ProofError.
    """
    program = unchecked(schedule, chip, on_progress)
    check_program(program, chip, schedule, on_progress)
    return program


def checked(done: Lowered, chip: ChipConfig, on_progress: OnProgress = _nobody) -> Program:
    """The program of a triggered schedule that has been lowered without a look at it. Raises as `program_of` does."""
    validate(done.schedule, chip)
    check_program(done.program, chip, done.schedule, on_progress)
    return done.program


def unchecked(schedule: Schedule, chip: ChipConfig, on_progress: OnProgress = _nobody) -> Program:
    """The program of a schedule, unchecked: triggered by semaphores, or timed ahead. Raises ScheduleError,
    ProgramError, and DttError (TimingFault) for a schedule that cannot be timed."""
    if schedule.execution != Execution.TIMED:
        on_progress("lowering")
        return lower(schedule, chip)
    from .timed.compile import compile_ahead

    on_progress("timing it ahead")
    return compile_ahead(schedule, chip).program


def check_program(
    program: Program, chip: ChipConfig, schedule: Schedule | None = None, on_progress: OnProgress = _nobody
) -> Report:
    """Proves that a program of either kind can run, and that it implements `schedule`, if given.

    Raises CheckError with everything found; for a program timed ahead also ProofError.
    """
    if all(stream.tile != chip.dtt for stream in program.streams):
        on_progress("checking the program")
        return check(program, chip, schedule)
    from .timed.check import check_ahead

    on_progress("proving it")
    return check_ahead(program, chip, schedule)
