"""From a schedule to a program that has been checked, by whatever road its scheduler asks for."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.config import ChipConfig

from .program.check import check
from .program.lower import lower
from .program.program import Program
from .schedule import Schedule


def program_of(schedule: Schedule, chip: ChipConfig, tell: Callable[[str], None] = lambda what: None) -> Program:
    """The program of a schedule: triggered by semaphores, or timed ahead if it is one of scheduler `dtt`. `tell` hears
    what is being done.

    Raises what lowering and checking raise (ScheduleError, ProgramError, CheckError), or planning and proving
    (DttError, TimingFault, ProofError).
    """
    if schedule.scheduler != "dtt":
        tell("lowering")
        program = lower(schedule, chip)
        tell("checking the program")
        check(program, chip, schedule)
        return program
    from .ahead.compile import compile_ahead
    from .ahead.prove import prove

    tell("timing it ahead")
    made = compile_ahead(schedule, chip)
    tell("proving it")
    prove(made.program, schedule, chip, made.table.begins)
    return made.program
