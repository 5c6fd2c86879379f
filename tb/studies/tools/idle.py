"""Simulated cycles per CPU-second of a chip in which nothing happens but that the host counts."""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Cause, Opcode, Unit
from meshloom.sched.program.program import Instruction, Program, place

from ...devices.interface import Job
from ..engine.point import Report
from ..engine.rows import StudyError

_CYCLES, _REPEATS = 5_000_000, 3


@dataclass(frozen=True)
class Rest:
    """How many `cycles` the run had and how many CPU-seconds its simulation took."""

    cycles: int
    cpu_seconds: float

    @property
    def cycles_per_second(self) -> float:
        return self.cycles / self.cpu_seconds


def waiting(chip: ChipConfig, cycles: int) -> Job:
    """A program in which each core's matrix stream waits for a post that never comes, until the watchdog ends it."""
    dram = chip.drams[0]
    streams = {
        (core, Unit.MATRIX): (
            Instruction(Opcode.SYNC, {"tag": 0, "wait_sem": 1, "wait_n": 1}),
            Instruction(Opcode.SYNC, {"tag": 1, "tile": chip.host, "sem": 0, "n": 1}),
        )
        for core in chip.cores
    }
    placed, boot = place(streams, {dram: 0}, chip)
    program = Program(chip.digest, placed, boot, {})
    return Job(program=program, memory=[], outputs=[], watchdog=cycles, stall_limit=2 * cycles)


def rest(name: str, report: Report) -> Rest:
    """The fastest of some runs. Raises StudyError if one ends otherwise than by the watchdog."""
    from ...devices.simulated import VERILATOR

    chip = load(name)
    runs = list(VERILATOR.open(chip, False, report).run([waiting(chip, _CYCLES)] * _REPEATS, "bench"))
    for run in runs:
        if run.fault is None or run.fault.cause is not Cause.WATCHDOG:
            words = "nothing" if run.fault is None else run.fault.describe(chip)
            raise StudyError(f"an idle {name} was to be ended by its watchdog; it reported {words}")
    fastest = min(runs, key=lambda run: run.cpu_seconds)
    return Rest(fastest.cycles, fastest.cpu_seconds)
