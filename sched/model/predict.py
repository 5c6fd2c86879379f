"""From a schedule to its predicted cycles: lower it and play the program."""

from __future__ import annotations

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Opcode

from ..program.lower import lower
from ..program.program import Program
from ..schedule import Prediction, Schedule
from .timeline import Timeline, play


def predict(schedule: Schedule, chip: ChipConfig) -> Prediction:
    """Predicted cycles of a schedule on a chip."""
    program = lower(schedule, chip)
    return prediction(schedule, program, play(program, chip))


def prediction(schedule: Schedule, program: Program, timeline: Timeline) -> Prediction:
    """Start and end of each operation in a played program: of a MOVE, where its source is read."""
    start, end = [0] * len(schedule.operations), [0] * len(schedule.operations)
    for entry in timeline.executed:
        index = program.operation_of_tag.get(entry.tag)
        if index is None or entry.opcode not in (Opcode.MOVE, Opcode.GEMM):
            continue
        operation = schedule.operations[index]
        where = operation.src.tile if operation.kind == "move" else operation.core
        if entry.tile == where:
            start[index], end[index] = entry.start, entry.end
    return Prediction(cycles=timeline.cycles, start=tuple(start), end=tuple(end))
