"""A run as its artefacts have it: every instruction with its place in the program, measured and predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.ir.schedule import Operation, Schedule
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.network.scheduler import layer_of
from meshloom.sched.workload.layout import ActivationLayout, WeightLayout

from ..results.artefacts import Artefacts
from ..results.explanation import Who
from ..results.schema import Row, Status
from .records import InstructionPlace, numbered

_UNITS = {unit.name.lower(): unit for unit in Unit}


class Entry(NamedTuple):
    """A record, measured or predicted; `stall` is measured only."""

    tile: int
    unit: Unit
    opcode: Opcode
    tag: int
    wait: int
    start: int
    end: int
    stall: int = 0


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended. `measured` is empty after a fault; `unmatched`: records that are of no instruction."""

    row: Row
    chip: ChipConfig
    schedule: Schedule
    program: Program
    measured: Mapping[InstructionPlace, Entry]
    predicted: Mapping[InstructionPlace, Entry]
    unmatched: int
    _numbers: Mapping[tuple[int, Unit, int], int] = field(repr=False)

    def number(self, place: InstructionPlace) -> int | None:
        """The operation of an instruction; None if lowering added it."""
        return self._numbers.get(place[:3])

    def label(self, place: InstructionPlace) -> str:
        """Label of its operation; empty if lowering added the instruction."""
        number = self.number(place)
        return "" if number is None else self.schedule.operations[number].label

    def layer(self, op: Operation) -> str:
        """The layer of a network that an operation belongs to, or the workload."""
        named = self.row.network is not None and bool(self.row.network.layers)
        return layer_of(op.label) if named else self.row.workload

    def who(self, place: InstructionPlace) -> Who:
        """An instruction by name."""
        entry, number = self.measured.get(place) or self.predicted[place], self.number(place)
        return Who(
            opcode=entry.opcode.name,
            tile=place.tile,
            unit=place.unit.name.lower(),
            position=place.index,
            executed_by=entry.tile,
            operation=number,
            label=self.label(place),
            layer="" if number is None else self.layer(self.schedule.operations[number]),
        )

    @property
    def planned(self) -> bool:
        """Whether it has not run, and was not to."""
        return self.row.status is Status.PLANNED

    @property
    def macs(self) -> dict[str, int] | None:
        """Multiply-accumulates of each layer; None for a program of which nobody knows what it computes."""
        return macs_of(self.row, self.schedule)


def macs_of(row: Row, schedule: Schedule) -> dict[str, int] | None:
    """Multiply-accumulates of each layer of a run; None for a program of which nobody knows what it computes."""
    network = row.network
    if network is not None:
        return {layer.name: layer.macs for layer in network.layers} or {row.workload: network.macs}
    if row.gradient is not None:
        return None if row.gradient.macs is None else {row.workload: row.gradient.macs}
    return macs_of_layer(schedule, row.workload)


def macs_of_layer(schedule: Schedule, name: str) -> dict[str, int] | None:
    """Those of a single layer called `name`, by the shapes of its tensors; None if it has not the tensors of one."""
    layouts = {tensor.name: tensor.layout for tensor in schedule.tensors}
    result, weights = layouts.get("y"), layouts.get("w")
    if not isinstance(result, ActivationLayout) or not isinstance(weights, WeightLayout):
        return None
    return {name: prod(result.shape) * prod(weights.shape[1:])}


def finished_run(artefacts: Artefacts) -> FinishedRun:
    """The run of which these are the artefacts."""
    table = artefacts.tables["instructions"]
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in table.column_names}
    units, opcodes = [_UNITS[unit] for unit in columns["unit"]], [Opcode[name] for name in columns["opcode"]]
    measured: dict[InstructionPlace, Entry] = {}
    predicted: dict[InstructionPlace, Entry] = {}
    unmatched = 0
    ahead = artefacts.program.ahead  # looks at all instructions
    for row, tile in enumerate(columns["tile"]):
        start, expected = columns["start"][row], columns["predicted_start"][row]
        unmatched += start is None or expected is None
        if columns["position"][row] is None:
            continue
        stream = columns["stream_tile"][row]
        remote = not ahead and tile != stream
        place = InstructionPlace(stream, _UNITS[columns["stream_unit"][row]], columns["position"][row], remote)
        kind = tile, units[row], opcodes[row], columns["tag"][row]
        if start is not None:
            times = (columns[name][row] for name in ("wait", "start", "end", "stall"))
            measured[place] = Entry(*kind, *times)
        if expected is not None:
            times = (columns[name][row] for name in ("predicted_wait", "predicted_start", "predicted_end"))
            predicted[place] = Entry(*kind, *times)
    numbers = numbered(artefacts.program, artefacts.schedule)
    strange = unmatched if measured else 0  # where nothing was measured, that is no difference
    return FinishedRun(
        artefacts.row, artefacts.chip, artefacts.schedule, artefacts.program, measured, predicted, strange, numbers
    )
