"""From a schedule to a program that has been checked, by the road that its execution asks for: one road for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshloom.hw.config import ChipConfig

from ..checker.check import check
from ..checker.problems import Report
from ..ir.schedule import Execution, Schedule
from ..model.timeline import Timeline, play
from ..program.program import Program
from .predict import prediction
from .semaphores.lower import lower

OnProgress = Callable[[str], None]


def _nobody(what: str) -> None:
    """Nobody hears what is being done."""


@dataclass(frozen=True)
class Planned:
    """What is known of a schedule before it runs. `schedule.predicted` is what `timeline` says of its operations."""

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
    """The program of a schedule, checked. `on_progress` hears what is being done.

    Raises what making and checking it raise: ScheduleError, ProgramError, CheckError; of a timed one DttError,
    TimingFault, ProofError too.
    """
    program = unchecked(schedule, chip, on_progress)
    check_program(program, chip, schedule, on_progress)
    return program


def unchecked(schedule: Schedule, chip: ChipConfig, on_progress: OnProgress = _nobody) -> Program:
    """The program of a schedule as it is: triggered by semaphores, or timed ahead. Raises ScheduleError, ProgramError,
    and DttError (TimingFault) for what cannot be timed."""
    if schedule.execution != Execution.TIMED:
        on_progress("lowering")
        return lower(schedule, chip)
    from .timed.compile import compile_ahead

    on_progress("timing it ahead")
    return compile_ahead(schedule, chip).program


def check_program(
    program: Program, chip: ChipConfig, schedule: Schedule | None = None, on_progress: OnProgress = _nobody
) -> Report:
    """Proves that a program can run, whichever kind it is, and that it is the `schedule`'s, if that is known.

    Raises CheckError with everything found; of a program that is timed ahead, ProofError too.
    """
    if all(stream.tile != chip.dtt for stream in program.streams):
        on_progress("checking the program")
        return check(program, chip, schedule)
    from .timed.check import check_ahead

    on_progress("proving it")
    return check_ahead(program, chip, schedule)
