"""Simulated cycles per CPU-second of a chip in which nothing happens but that the host counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Cause, Opcode, Unit
from meshloom.sched.program.program import Instruction, Program, place

from ..devices.interface import Job
from ..results.events import OnEvent, Stage
from .interface import BenchmarkError
from .results import Sheet

#: Cycles per CPU-second, at least.
BAR = 5e6
CHIPS = ("quad16", "quad32")
_CYCLES, _REPEATS = 5_000_000, 3


@dataclass(frozen=True)
class Idle:
    """How many `cycles` the run had and how many CPU-seconds its simulation took."""

    chip: str
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


def missed(measured: Sequence[Idle]) -> list[str]:
    """Bars that were missed."""
    return [
        f"{one.chip}, idle: {one.cycles_per_second:,.0f} cycles per CPU-second, the bar is {BAR:,.0f}"
        for one in measured
        if one.cycles_per_second < BAR
    ]


def measure(on_progress: OnEvent) -> tuple[Sheet, list[str]]:
    """A table, and the bars that were missed. Raises BenchmarkError if a run ends otherwise than by the watchdog."""
    from ..devices.simulated import VERILATOR

    found: list[Idle] = []
    for name in CHIPS:
        on_progress(Stage(workload=name, what="idle"))
        chip = load(name)
        device = VERILATOR.open(chip, False, lambda what, name=name: on_progress(Stage(workload=name, what=what)))
        runs = list(device.run([waiting(chip, _CYCLES)] * _REPEATS, "bench"))
        for run in runs:
            if run.fault is None or run.fault.cause is not Cause.WATCHDOG:
                said = "nothing" if run.fault is None else run.fault.describe(chip)
                raise BenchmarkError(f"an idle {name} was to be ended by its watchdog; it reported {said}")
        fastest = min(runs, key=lambda run: run.cpu_seconds)
        found.append(Idle(name, fastest.cycles, fastest.cpu_seconds))
    cells = [(one.chip, f"{one.cycles:,}", f"{one.cpu_seconds:.2f}", f"{one.cycles_per_second:,.0f}") for one in found]
    bad = frozenset(number for number, one in enumerate(found) if missed([one]))
    title = "A chip at rest: every stream waits for a post that never comes"
    return Sheet(title, ("chip", "RTL cycles>", "CPU s>", "cycles/s>"), cells, bad), missed(found)
