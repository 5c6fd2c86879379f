"""Proves an ahead-of-time program before it runs, from its instructions alone, without any code of the planner.

Routes are rebuilt from waypoints as the controller rebuilds them; the position of each flit in each cycle follows from
the contracts of the hardware (`windows`). Then

- no link, port or DRAM channel carries two things in a cycle, so nothing ever stalls;
- every word is read after it has been written, and overwritten after it has been read, as the schedule requires;
- every control packet reaches its unit before it is due, and no unit is sent more than it can hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.contracts import (
    ADDRESS_CYCLES,
    ISSUE_CYCLES,
    OFFER_CYCLES,
    ORDER_CYCLES,
    PACE_CYCLES,
    PUSH_CYCLES,
    REQUEST_CYCLES,
    REQUEST_INTERVAL,
    ROUTE_BUILD_CYCLES,
    SOURCE_CYCLES,
    TURN_CYCLES,
    WORD_CYCLES,
)
from meshloom.hw.spec.isa import OFFSET_BITS, Opcode, Region, Unit

from ...ir.dependences import Depends
from ...ir.schedule import Gemm, Move, Operation, Schedule
from ...program.program import Instruction, Program
from . import dram_train
from .boot import boot_of
from .windows import (
    OPERANDS,
    WRITE_DONE,
    ComputeWindow,
    FetchedCode,
    arrival,
    bursts,
    code_there,
    hops,
    landing,
    launch,
    train,
    work,
    write_beats,
)

#: The drain path's reads of ACC, and the vector unit's of A and B, among the memories of a core.
_ADDENDS, _WALKED = "addends", "walked"


class ProofError(ValueError):
    """A program that is not proven; the message names operation, cycle and wire of the first problem, and the number of
    others."""


@dataclass(frozen=True)
class _Seen:
    """The effects of one of the controller's instructions. Windows are [first cycle, cycle after the last)."""

    position: int
    tag: int
    tile: int
    unit: Unit
    fire: int
    reads: tuple[int, int]
    writes: tuple[int, int]
    start: int
    path: tuple[int, ...] = ()
    departure: int = 0
    length: int = 0
    does: ComputeWindow | None = None

    @property
    def arrival(self) -> int:
        """The cycle from which the words that it moved can be read."""
        return self.writes[1]


def arrivals(program: Program, chip: ChipConfig) -> dict[int, int]:
    """Tag of each MOVE to the cycle after the delivery of its last word: `end` of its record."""
    seen, _ = _trains(list(_seen(program, chip)), program, chip)
    return {one.tag: arrival(chip, one.departure, len(one.path) - 1, one.length) for one in seen if one.path}


def prove(program: Program, schedule: Schedule, chip: ChipConfig, begins: int) -> int:
    """Raises ProofError if anything does not hold; returns the number of operations proven.

    `begins`: the cycle in which the controller can send its first packet.
    """
    seen, late = _trains(list(_seen(program, chip)), program, chip)
    problems = [
        *late,
        *_wires(seen, chip),
        *_units(seen),
        *_ports(seen, program),
        *_words(seen, program, schedule, chip),
        *_packets(seen, program, chip, begins),
        *_end(seen, program),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ProofError(f"{problems[0]}{more}")
    return len(seen)


def _seen(program: Program, chip: ChipConfig) -> Iterator[_Seen]:
    order: Instruction | None = None
    (stream,) = program.streams
    for position, instruction in enumerate(stream.instructions):
        if instruction.opcode is Opcode.ORDER:
            order = instruction
            continue
        if instruction.opcode is Opcode.SYNC:
            continue
        fields = dict(instruction.fields)
        tag, fire = fields["tag"], fields.get("fire_at", 0)
        if instruction.opcode is Opcode.MOVE:
            source, target = fields["src_tile"], fields["dst_tile"]
            points = [] if order is None else [
                order.fields["points"] >> 8 * at & 0xFF for at in range(order.fields["count"])
            ]  # fmt: skip
            path = tuple(_path([source, *points, target], chip))
            departure = fire + launch(chip, source)
            length, _ = train(fields, chip)
            burst = fire + OFFER_CYCLES + SOURCE_CYCLES + ADDRESS_CYCLES
            read = burst if chip.tiles[source] is TileKind.DRAM else departure - WORD_CYCLES
            first, there = landing(chip, departure, len(path) - 1, length)
            there += WRITE_DONE if chip.tiles[target] is TileKind.DRAM else 0
            yield _Seen(
                position, tag, source, Unit.MOVER, fire, (read, departure + length), (first, there),
                fire + OFFER_CYCLES, path, departure, length,
            )  # fmt: skip
        else:
            assert order is not None
            core, op = order.fields["tile"], Gemm(core=0, fields={})
            body = {name: value for name, value in fields.items() if name not in ("tag", "fire_at")}
            if instruction.opcode is Opcode.GEMM:
                op, unit = Gemm(core=core, fields=body), Unit.MATRIX
            else:
                from ...ir.schedule import Vec

                op, unit = Vec(core=core, fields=body), Unit.VECTOR
            does = work(op, chip)
            start = fire + does.lead
            yield _Seen(
                position, tag, core, unit, fire, (start, start + does.occupied),
                (start + does.first_write, start + does.cycles), start, does=does,
            )  # fmt: skip
        order = None


def _path(stops: list[int], chip: ChipConfig) -> Iterator[int]:
    """Tiles of a route through its waypoints, in dimension order between them, step by step like the hardware."""
    x_first = chip.noc.data_routing.value == "xy"
    at = stops[0]
    yield at
    for stop in stops[1:]:
        while at != stop:
            (x, y), (to_x, to_y) = tile_position(at), tile_position(stop)
            in_x = x != to_x and (x_first or y == to_y)
            at += (1 if to_x > x else -1) if in_x else (16 if to_y > y else -16)
            yield at


def _wires(seen: list[_Seen], chip: ChipConfig) -> Iterator[str]:
    """No two trains on a wire in a cycle; the port of a DRAM tile is shared by both directions."""
    used: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for one in seen:
        if not one.path:
            continue
        d, n = one.departure, one.length
        if len(one.path) - 1 > chip.noc.route_hops:
            yield f"instruction {one.position} (tag {one.tag}): its route has {len(one.path) - 1} hops, too many"
        for place, (before, after) in enumerate(pairwise(one.path), 1):
            if (before, after) == (chip.code_channel, chip.dtt):
                yield f"cycle {d + place}: the MOVE with tag {one.tag} is on the link of the controller's code"
            used[f"link {before:#04x} -> {after:#04x}"].append((d + place, d + place + n, one.tag))
        ends = (
            (one.path[0], d, d + n + TURN_CYCLES, "out of"),
            (one.path[-1], d + len(one.path), d + len(one.path) + n, "into"),
        )
        for tile, first, end, direction in ends:
            dram = chip.tiles[tile] is TileKind.DRAM
            more = write_beats(chip) if dram and direction == "into" else 0
            used[f"channel of {tile:#04x}" if dram else f"port {direction} {tile:#04x}"].append(
                (first, end + more, one.tag)
            )
    for wire, windows in used.items():
        windows.sort()
        for (_, end, tag), (first, _, other) in pairwise(windows):
            if first < end:
                yield f"cycle {first}: MOVEs with tags {tag} and {other} are both on {wire}"


def _trains(seen: list[_Seen], program: Program, chip: ChipConfig) -> tuple[list[_Seen], list[str]]:
    """The MOVEs as they leave their movers one after another, and the problems: sent in another order than they fire,
    or not taken when they fire."""
    problems: list[str] = []
    trains = {one.position: one for one in seen}
    (stream,) = program.streams
    code = stream.instructions
    boot = boot_of(chip, stream.dram_tile, stream.address, len(code))
    for tile in {one.tile for one in seen if one.path}:
        state = dram_train.new_state() if chip.tiles[tile] is TileKind.DRAM else None
        if tile == stream.dram_tile:
            state = boot.mover(chip)
        before = None
        for one in sorted((one for one in seen if one.path and one.tile == tile), key=lambda one: one.fire):
            if before is not None and (one.fire <= before.fire or one.position < before.position):
                problems.append(
                    f"cycle {one.fire}: MOVEs {before.tag} and {one.tag} of {tile:#04x} are sent in the wrong order"
                )
            before = one
            if state is None:
                continue
            fields = dict(code[one.position].fields)
            _, words = train(fields, chip)
            if (free := dram_train.earliest(state, one.start)) != one.start:
                problems.append(
                    f"cycle {one.fire}: the mover of {tile:#04x} cannot take the MOVE with tag {one.tag} before {free}"
                )
            its = np.array(bursts(fields, chip)), np.array(words)
            leaves, last = dram_train.send(state, free, chip.dram.latency, *its)
            later = last + 1 - one.departure - one.length
            writes = one.writes[0] + leaves - one.departure, one.writes[1] + later
            trains[one.position] = replace(
                one, departure=leaves, length=last - leaves + 1, reads=(one.reads[0], last + 1), writes=writes
            )
    return list(trains.values()), problems


def _units(seen: list[_Seen]) -> Iterator[str]:
    """A computing unit has read the operands of one instruction before it starts the next."""
    by_unit: dict[tuple[int, Unit], list[_Seen]] = defaultdict(list)
    for one in seen:
        if not one.path:
            by_unit[one.tile, one.unit].append(one)
    for (tile, unit), its in by_unit.items():
        for before, one in pairwise(its):
            if one.start < before.reads[1] or one.fire < before.fire + ISSUE_CYCLES:
                yield (
                    f"cycle {one.fire}: the {unit.name.lower()} unit of {tile:#04x} is to begin instruction "
                    f"{one.position} (tag {one.tag}) in {one.start}, but is busy until {before.reads[1]}"
                )


def _ports(seen: list[_Seen], program: Program) -> Iterator[str]:
    """No word arrives in ACC or OUT while the drain path writes there, none leaves ACC while it reads addends, and none
    leaves A or B while the vector unit walks over its operands."""
    drains: dict[tuple[int, object], list[tuple[int, int]]] = defaultdict(list)
    for one in seen:
        if one.does is not None and one.does.writes:
            drains[one.tile, one.does.region] += [(one.start + a, one.start + b) for a, b in one.does.writes]
        if one.does is not None and one.does.addend:
            drains[one.tile, _ADDENDS].append((one.start, one.start + one.does.cycles))
        if one.does is not None and one.does.walks:
            drains[one.tile, _WALKED].append((one.start, one.start + one.does.occupied))
    code = program.streams[0].instructions
    for one in seen:
        if not one.path:
            continue
        fields = code[one.position].fields
        into, out = Region(fields["dst"] >> OFFSET_BITS), Region(fields["src"] >> OFFSET_BITS)
        source, who = (_WALKED, "vector unit") if out in OPERANDS else (_ADDENDS, "drain path")
        meets = [(begin, end, one.writes, "drain path") for begin, end in drains.get((fields["dst_tile"], into), ())]
        if out is Region.ACC or out in OPERANDS:
            meets += [(begin, end, one.reads, who) for begin, end in drains.get((fields["src_tile"], source), ())]
        for begin, end, (first, over), with_whom in meets:
            if begin < over and first < end:
                yield f"cycle {max(begin, first)}: the MOVE with tag {one.tag} conflicts with the {with_whom}"
                break


def _words(seen: list[_Seen], program: Program, schedule: Schedule, chip: ChipConfig) -> Iterator[str]:
    """Words are read after the writes that they depend on, and overwritten after earlier reads."""
    of = {program.operation_of_tag[one.tag]: one for one in seen if one.tag in program.operation_of_tag}
    operations = schedule.operations
    if sorted(of) != list(range(len(operations))):
        yield f"{len(operations)} operations in the schedule, {len(of)} in the program"
        return
    depends = Depends(operations, chip)
    for index, op in enumerate(operations):
        one = of[index]
        for other in depends.data[index]:
            source = of[other]
            if source.unit is one.unit is not Unit.MOVER and source.tile == one.tile:
                ordered = source.start < one.start  # by the unit's own pipeline
            else:
                ordered = source.writes[1] <= one.reads[0]
            if not ordered:
                yield f"cycle {one.reads[0]}: operation {index} reads what {other} writes by cycle {source.writes[1]}"
        for other in depends.room[index]:
            source = of[other]
            if source.unit is one.unit is not Unit.MOVER and source.tile == one.tile:
                ordered = source.start < one.start
            else:
                operand = isinstance(op, Move) and Region(op.dst.address >> OFFSET_BITS) in OPERANDS
                computed = source.unit is not Unit.MOVER and not operand
                ordered = (max(source.reads[1], source.writes[1]) if computed else source.reads[1]) <= one.writes[0]
                if source.unit is Unit.MOVER and source.path[-1] == _written(op):
                    ordered = ordered and source.writes[1] <= one.writes[1]
            if not ordered:
                yield f"cycle {one.writes[0]}: operation {index} overwrites what operation {other} needs"


def _written(op: Operation) -> int:
    return op.dst.tile if isinstance(op, Move) else op.core


def _end(seen: list[_Seen], program: Program) -> Iterator[str]:
    """The host is notified when everything has been written."""
    fire = program.streams[0].instructions[-1].fields.get("fire_at", 0)
    for one in seen:
        if max(one.reads[1], one.writes[1]) > fire:
            yield (
                f"cycle {fire}: the host is notified before instruction {one.position} (tag {one.tag}) is complete, in "
                f"{max(one.reads[1], one.writes[1])}"
            )


def _packets(seen: list[_Seen], program: Program, chip: ChipConfig, begins: int) -> Iterator[str]:
    """Control packets are early enough, although each waits for the one before, for a queue entry, and for its code."""
    assert chip.dtt is not None
    fetched = FetchedCode(chip, begins) if chip.controller_channel else None
    ring, per = chip.ring(TileKind.DTT), chip.instruction_words
    code = program.streams[0].instructions
    there: dict[int, int] = {}  # position in the stream to the cycle in which the instruction has been loaded
    first = program.streams[0].address
    for one in seen:
        if one.path and one.path[-1] == chip.dtt:
            fields = code[one.position].fields
            at = (fields["src"] - first) // per
            for position in range(at, at + fields["words"] // per):
                there[position] = one.arrival
                if position - ring > one.position:
                    yield f"instruction {one.position} loads code over instructions that have yet to be sent"
    missing = [position for position in range(ring, len(code)) if position not in there]
    if missing and fetched is None:
        yield f"instruction {missing[0]} of the controller is never loaded"
    now = begins - REQUEST_INTERVAL
    fired: dict[tuple[int, Unit], list[int]] = defaultdict(list)
    last = -1  # the instruction before
    for one in seen:
        if fetched is not None:
            arrived = fetched.there(one.position)
        else:
            first_ring = begins + code_there(chip, one.position) if one.position < ring else 0
            arrived = there.get(one.position, first_ring)
        now = max(now + REQUEST_INTERVAL, arrived)
        if code[one.position - 1].opcode is Opcode.ORDER and one.path:
            now += len(one.path) - 1 + code[one.position - 1].fields["count"] + ORDER_CYCLES + ROUTE_BUILD_CYCLES
        elif code[one.position - 1].opcode is Opcode.ORDER:
            now += ORDER_CYCLES
        waiting = fired[one.tile, one.unit]
        if len(waiting) >= chip.mover_queue:
            now = max(now, waiting[-chip.mover_queue] + PACE_CYCLES + 1)
        waiting.append(one.fire)
        if fetched is not None:  # code that is requested behind its ORDER goes before its packet
            now += fetched.take(range(last + 1, one.position), now)
        sent = now
        if fetched is not None:
            now += fetched.take(range(one.position, one.position + 1), now)
            last = one.position
        lead = (REQUEST_CYCLES if one.unit is Unit.MOVER else PUSH_CYCLES) + hops(chip.dtt, one.tile)
        if sent + lead > one.fire:
            yield (
                f"cycle {one.fire}: the control packet of instruction {one.position} (tag {one.tag}) reaches tile "
                f"{one.tile:#04x} only in cycle {sent + lead}"
            )
