"""A run as tables for viewers: every instruction measured and predicted, every packet, every link and counter.

`results.artefacts.TABLES` has the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.model.timeline import Executed, Timeline
from meshloom.sched.program.program import OPERATIONS, Program

from ..devices.interface import Run
from ..devices.readout import Record
from ..results.artefacts import TABLES, Columns
from .links import links, routes_of
from .records import InstructionPlace, match, numbered

#: A record, its prediction (either may be missing), and the instruction, if known.
_Entry = tuple[Record | None, Executed | None, InstructionPlace | None]


def tables(run: Run, timeline: Timeline, program: Program, schedule: Schedule, chip: ChipConfig) -> dict[str, Columns]:
    """All tables of a run. After a fault there are predictions, but no records, links and counters."""
    result = match(run.records, timeline.executed, program)
    entries: list[_Entry] = [(pair.measured, pair.predicted, pair.place) for pair in result.pairs]
    entries += [(record, None, None) for record in result.strange]
    entries += [(None, entry, place) for entry, place in result.absent]
    entries.sort(key=lambda entry: next(one.start for one in entry[:2] if one is not None))
    packets = [entry for entry in entries if _one(entry).unit is Unit.NONE]
    instructions = [entry for entry in entries if _one(entry).unit is not Unit.NONE]
    return {
        "instructions": _instructions(instructions, program, schedule, chip),
        "packets": _columns("packets", (_packet(*entry[:2]) for entry in packets)),
        "links": _columns(
            "links", ((link.tile, link.port, link.busy, link.blocked, link.cycles) for link in links(run, chip))
        ),
        "counters": _columns("counters", _counters(run, chip)),
    }


def _one(entry: _Entry) -> Record | Executed:
    """The record, or the prediction of a missing one."""
    record = entry[0] or entry[1]
    assert record is not None
    return record


def _columns(name: str, rows: Iterable[Sequence[Any]]) -> Columns:
    names = [column.name for column in TABLES[name]]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=True))


def _packet(record: Record | None, predicted: Executed | None) -> tuple[int | None, ...]:
    one = _one((record, predicted, None))
    measured = (record.start, record.end) if record else (None, None)
    expected = (predicted.start, predicted.end) if predicted else (None, None)
    return one.tile, one.tag, one.wait, *measured, *expected


def _counters(run: Run, chip: ChipConfig) -> Iterable[tuple[int, str, int]]:
    from meshloom.hw.control.trace import counters_of

    for tile, values in run.counters.items():
        for counter in counters_of(chip):
            yield tile, counter.name.lower(), values[counter]


def _instructions(entries: Sequence[_Entry], program: Program, schedule: Schedule, chip: ChipConfig) -> Columns:
    streams = {(stream.tile, stream.unit): stream for stream in (*program.streams, program.boot)}
    places = _places_of_tags(program) if program.ahead else {}
    numbers = numbered(program, schedule)
    routes = routes_of(program, chip)
    rows: list[tuple[Any, ...]] = []
    for record, predicted, place in entries:
        one = record or predicted
        assert one is not None
        if place is None:
            place = places.get((one.opcode, one.tag))
        key = None if place is None else place[:3]
        fields: Mapping[str, int] | None = None
        if place is not None and one.opcode is Opcode.MOVE:
            counts = streams[place.tile, place.unit].instructions[place.index].fields
            fields = counts if one.tile == counts["src_tile"] else None  # a request moves nothing itself
        rows.append(
            (
                one.tile,
                one.unit.name.lower(),
                one.opcode.name,
                one.tag,
                *((None, None, None) if place is None else (place.tile, place.unit.name.lower(), place.index)),
                None if key is None else numbers.get(key),
                *((record.wait, record.stall, record.start, record.end) if record else (None,) * 4),
                *((predicted.wait, predicted.start, predicted.end) if predicted else (None,) * 3),
                *_moved(fields, None if key is None else routes.get(key), chip),
            )
        )
    return _columns("instructions", rows)


def _moved(fields: Mapping[str, int] | None, route: Any, chip: ChipConfig) -> tuple[int | None, ...]:
    """What a MOVE transfers from where to where, and on which route; empty for other instructions."""
    if fields is None or route is None:
        return (None,) * 8
    ends = fields["src_tile"], fields["src"], fields["dst_tile"], fields["dst"]
    return fields["words"], fields["words"] * chip.lanes, *ends, route.channel, route.hops


def _places_of_tags(program: Program) -> dict[tuple[Opcode, int], InstructionPlace]:
    """For a program that is timed ahead, whose operations have unique tags."""
    return {
        (instruction.opcode, instruction.fields["tag"]): InstructionPlace(stream.tile, stream.unit, index)
        for stream in program.streams
        for index, instruction in enumerate(stream.instructions)
        if instruction.opcode in OPERATIONS
    }
