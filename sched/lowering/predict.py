"""From a schedule to its predicted cycles: lower it and play the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Unit

from ..ir.hazards import Dependence, unit_of
from ..ir.schedule import Move, Prediction, Schedule
from ..model.timeline import Timeline, play
from ..program.program import OPERATIONS, Program
from ..support.garbage import uncollected
from .semaphores.lower import lower


@dataclass(frozen=True, eq=False)
class Lowered:
    """A schedule's program, which nobody has checked, and its timeline."""

    schedule: Schedule
    program: Program
    timeline: Timeline

    def is_of(self, schedule: Schedule) -> bool:
        """Whether it is that of this schedule, under whatever name."""
        ours = self.schedule
        same = ours.operations is schedule.operations and ours.tensors is schedule.tensors
        return same and (ours.fences, ours.execution) == (schedule.fences, schedule.execution)


def lowered(schedule: Schedule, chip: ChipConfig, needs: Sequence[tuple[Dependence, ...]] | None = None) -> Lowered:
    """Lowers a schedule and plays its program. `needs`: see `lower`."""
    with uncollected():
        program = lower(schedule, chip, needs=needs)
        return Lowered(schedule, program, play(program, chip))


def predict(schedule: Schedule, chip: ChipConfig) -> Prediction:
    """Predicted cycles of a schedule on a chip."""
    result = lowered(schedule, chip)
    return prediction(schedule, result.program, result.timeline)


def prediction(schedule: Schedule, program: Program, timeline: Timeline) -> Prediction:
    """Start and end of each operation in a played program; for a MOVE, in the tile where its source is read.

    An operation is identified by tile, unit and tag; where tags wrap around, by its position among equals.
    """
    equals: dict[tuple[int, int, int], list[tuple[int, bool]]] = {}  # operations, and whether they execute there
    for stream in program.streams:
        unit = stream.unit
        for index, instruction in zip(program.operations_of(stream), stream.instructions, strict=True):
            if index is None:
                continue
            op, tag = schedule.operations[index], instruction.fields["tag"]
            tile, executes = (op.src.tile, Unit.MOVER) if isinstance(op, Move) else (op.core, unit_of(op))
            equals.setdefault((tile, executes, tag), []).append((index, True))
            if tile != stream.tile:  # the request
                equals.setdefault((stream.tile, unit, tag), []).append((index, False))
    turns = {key: iter(sorted(cycles)) for key, cycles in equals.items()}
    start, end = [0] * len(schedule.operations), [0] * len(schedule.operations)
    for entry in sorted(timeline.executed, key=lambda entry: entry.start):
        if entry.opcode in OPERATIONS and (entry.tile, entry.unit, entry.tag) in turns:
            index, executes = next(turns[entry.tile, entry.unit, entry.tag])
            if executes:
                start[index], end[index] = entry.start, entry.end
    return Prediction(cycles=timeline.cycles, start=tuple(start), end=tuple(end))
