"""Measured against predicted, instruction by instruction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..hw.isa import Opcode, Unit
from ..sched.model.timeline import Executed
from ..sched.program.program import Program
from ..sched.schedule import Schedule
from .readout import Record
from .results import Divergence

_Key = tuple[int, Unit, Opcode, int]


@dataclass(frozen=True)
class Pair:
    """One instruction as it ran and as the model says it would."""

    measured: Record
    predicted: Executed

    @property
    def differs(self) -> bool:
        """Whether start or end differ, by however little."""
        return (self.measured.start, self.measured.end) != (self.predicted.start, self.predicted.end)


def pair(records: Sequence[Record], executed: Sequence[Executed]) -> list[Pair]:
    """Pairs records with predictions, in the order of measured start.

    An instruction is known by tile, unit, opcode and tag; where tags wrap around, by its turn among equals.
    Instructions without a partner (trace memory full) are left out.
    """
    predictions: dict[_Key, list[Executed]] = defaultdict(list)
    for entry in sorted(executed, key=lambda entry: entry.start):
        predictions[entry.tile, entry.unit, entry.opcode, entry.tag].append(entry)
    turns: dict[_Key, int] = defaultdict(int)
    pairs = []
    for record in sorted(records, key=lambda record: record.start):
        key = record.tile, record.unit, record.opcode, record.tag
        turn = turns[key]
        turns[key] += 1
        if turn < len(predictions[key]):
            pairs.append(Pair(record, predictions[key][turn]))
    return pairs


def first_divergence(
    pairs: Sequence[Pair], schedule: Schedule, operation_of_tag: Mapping[int, int]
) -> Divergence | None:
    """The earliest instruction that did not run when the model says, by measured start."""
    for found in pairs:
        if found.differs:
            record = found.measured
            # tags of the boot program and of the SYNCs between operations may come again as those of operations
            operation = record.opcode in (Opcode.MOVE, Opcode.GEMM)
            index = operation_of_tag.get(record.tag) if operation else None
            return Divergence(
                tile=record.tile,
                unit=record.unit.name.lower(),
                tag=record.tag,
                operation=index,
                label=schedule.operations[index].label if index is not None else record.opcode.name,
                predicted_start=found.predicted.start,
                predicted_end=found.predicted.end,
                measured_start=record.start,
                measured_end=record.end,
            )
    return None


def label_of(program: Program, schedule: Schedule, tag: int) -> str:
    """Label of the operation behind a tag; empty when lowering made the instruction."""
    index = program.operation_of_tag.get(tag)
    return schedule.operations[index].label if index is not None else ""
