"""The controller's program of a timetable: an order for each operation, and MOVEs that bring the program itself.

A MOVE off dimension order is preceded by an ORDER with the fewest waypoints from which dimension order rebuilds its
route; a GEMM or VEC by one that names its core. A controller with a code channel (`ChipConfig.controller_channel`)
fetches its program by itself. Others request the first ring of it, and MOVEs of the program bring the rest, packet by
packet, as soon as there is room in the ring.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from meshloom.hw.spec.config import MOST_POINTS, ChipConfig, TileKind
from meshloom.hw.spec.contracts import (
    ISSUE_CYCLES,
    ORDER_CYCLES,
    PACE_CYCLES,
    PUSH_CYCLES,
    REQUEST_CYCLES,
    REQUEST_INTERVAL,
    ROUTE_BUILD_CYCLES,
)
from meshloom.hw.spec.isa import COMPUTES, Opcode, Region, Unit, address
from meshloom.hw.spec.routes import dimension_ordered

from ...ir.hazards import unit_of
from ...ir.schedule import Move, Span
from ...program.program import Instruction, Program, Stream, next_tag
from ...routing.hardware import DttError, TimingFault
from .timetable import Timed, Timetable, Timetabler
from .windows import SPARE, FetchedCode, arrival, code_there, hops, launch, train

#: Most cycles from the delivery of a half ring to the first of its control packets: an ORDER and the instruction after
#: it are issued.
CODE_TO_PACKET = 2 * ISSUE_CYCLES + SPARE
#: Cycles that the controller needs for an ORDER and its route, besides hops and waypoints.
ROUTE_CYCLES = ORDER_CYCLES + ROUTE_BUILD_CYCLES
#: Most cycles from a fire time to the sending of a packet that has waited for it.
PACED_CYCLES = PACE_CYCLES + SPARE


@dataclass(frozen=True)
class Orders:
    """A program, the operation of each of its tags (including the MOVEs that bring its code), its length in cycles."""

    program: Program
    timed: dict[int, Timed]
    cycles: int


def waypoints_of(path: Sequence[int], routing: str) -> tuple[int, ...]:
    """The fewest tiles of a path between which dimension order follows it; empty if it does so all the way.

    Each is as far along the path as dimension order reaches. That gives the fewest, since no earlier tile reaches
    further.
    """
    points: list[int] = []
    at = 0
    while True:
        reach = at + 1
        for to in range(at + 2, len(path)):
            if tuple(path[at : to + 1]) != dimension_ordered(path[at], path[to], routing):
                break
            reach = to
        if reach >= len(path) - 1:
            return tuple(points)
        points.append(path[reach])
        at = reach


def rebuilt(source: int, points: Sequence[int], target: int, routing: str) -> tuple[int, ...]:
    """The path that the controller rebuilds from way-points."""
    path = [source]
    for point in (*points, target):
        path += dimension_ordered(path[-1], point, routing)[1:]
    return tuple(path)


def _codes(timed: Timed, tag: int, chip: ChipConfig) -> list[Instruction]:
    """The instructions that order an operation."""
    op = timed.op
    order: dict[str, int] = {}
    if isinstance(op, Move):
        points = waypoints_of(timed.path, chip.noc.data_routing)
        if rebuilt(op.src.tile, points, op.dst.tile, chip.noc.data_routing) != timed.path or len(points) > MOST_POINTS:
            raise DttError(f"operation {timed.operation}: its route {timed.path} cannot be rebuilt from {points}")
        if points:
            order = {"count": len(points), "points": sum(point << 8 * at for at, point in enumerate(points))}
        opcode, body = Opcode.MOVE, op.body
    else:
        order = {"tile": op.core}
        opcode, body = COMPUTES[unit_of(op)], op.body
    prefix = [Instruction(Opcode.ORDER, {"tag": next_tag(tag + (1 << 15))} | order)] if order else []
    return [*prefix, Instruction(opcode, {"tag": tag, "fire_at": timed.fire} | body)]


def emit(planner: Timetabler, table: Timetable, code_address: int) -> Orders:
    """The program of a timetable that `planner` has made; the controller's code is stored in `table.code_tile` from
    word `code_address` (a multiple of 64) on. Also reserves the route of the code.

    Raises Late if control packets cannot arrive in time; then plan again with its floors.
    """
    chip = planner.chip
    work = deque(table.timed)
    if len(work) >= 1 << 15:
        raise DttError(f"{len(work)} operations, but tags for only {1 << 15}: plan fewer at once")
    packet, room, per = code_packet(chip), code_room(chip), chip.instruction_words
    left = sum(_instructions(one, chip) for one in work) + 1
    sender = _Sender(chip, table.begins)
    code: list[Instruction] = []
    timed: dict[int, Timed] = {}
    fetched = chip.controller_channel
    chunk = room  # the next packet of code; the first ring is requested
    while work or (not fetched and len(code) + 1 > chunk * packet):
        # when the packet one ring earlier has been sent, there is room for more code
        one = None
        if not fetched and len(code) >= (chunk - room + 1) * packet and len(code) + left > chunk * packet:
            op = code_move(chip, planner.code_tile, code_address, chunk, packet * per)
            sent = sender.next(len(code) + 1, planner.code_tile, Unit.MOVER)
            forced = not work or len(code) + 4 >= chunk * packet
            one = _bring(planner, op, sent, sender.fired(planner.code_tile), None if forced else work[0].fire)
            if one is not None:
                missing = len(code) + left + _instructions(one, chip) - chunk * packet
                one = _cut(one, min(packet, missing) * per, chip)
        if one is not None:
            if work and one.fire >= work[0].fire:  # an operation that fires earlier would wait for it
                sender.delay(work[0], one.fire + 1)
            sender.code[chunk] = one.arrival
            chunk += 1
            left += _instructions(one, chip)
        else:
            one = work.popleft()
        tag = next_tag(len(timed))
        timed[tag] = one
        codes = _codes(one, tag, chip)
        sender.send(len(code) + len(codes) - 1, one, codes)
        code += codes
        left -= len(codes)
    sender.check()
    cycles = max([table.cycles, *(one.arrival + 1 for one in timed.values())])
    end = {"tag": next_tag((1 << 16) - 3), "fire_at": cycles, "tile": chip.host, "sem": 0, "n": 1}
    code.append(Instruction(Opcode.SYNC, end))
    assert chip.dtt is not None
    stream = Stream(chip.dtt, Unit.MOVER, table.code_tile, code_address, tuple(code))
    boot_address = code_address + -(-len(code) * per // 64) * 64
    fetch = {
        "tag": next_tag(0), "tile": chip.dtt, "unit": int(Unit.MOVER), "dram": table.code_tile,
        "addr": code_address, "count": len(code),
    }  # fmt: skip
    boot = (
        Instruction(Opcode.FETCH, fetch),
        Instruction(Opcode.SYNC, {"tag": next_tag(1), "wait_sem": 0, "wait_n": 1}),
        Instruction(Opcode.END),
    )
    if boot_address + len(boot) * per > chip.dram.words:
        raise DttError(
            f"{len(code)} instructions do not fit after the tensors in DRAM tile {table.code_tile:#04x}; raise "
            "dram.words"
        )
    program = Program(
        chip.digest,
        (stream,),
        Stream(chip.host, Unit.MOVER, table.code_tile, boot_address, boot),
        {tag: one.operation for tag, one in timed.items() if one.operation >= 0},
    )
    return Orders(program, timed, cycles)


def _instructions(one: Timed, chip: ChipConfig) -> int:
    return len(_codes(one, 0, chip))


def code_packet(chip: ChipConfig) -> int:
    """Instructions per packet of code."""
    return min(chip.packet_words // chip.instruction_words, chip.ring(TileKind.DTT) // 2)


def code_room(chip: ChipConfig) -> int:
    """Packets of code that the controller's ring holds."""
    return chip.ring(TileKind.DTT) // code_packet(chip)


def code_move(chip: ChipConfig, source: int, code_address: int, chunk: int, words: int) -> Move:
    """The MOVE that brings `words` words of a packet of code from DRAM tile `source` into the controller's ring."""
    assert chip.dtt is not None
    size = code_packet(chip) * chip.instruction_words
    return Move(
        issuer=chip.dtt,
        src=Span(tile=source, address=code_address + chunk * size, run=words),
        dst=Span(tile=chip.dtt, address=address(Region.RING_MOVER, chunk % code_room(chip) * size), run=words),
        words=words,
        label=f"code {chunk}",
    )


def code_times(planner: Timetabler, packets: int, cycles: int, share: float, dense: int) -> Iterator[int]:
    """Cycles in which packets of code might leave DRAM: `share` times as many as needed in `cycles` cycles, but far
    enough apart for the longest MOVE to fit in between; the first `dense` exactly that far apart."""
    chip, tile = planner.chip, planner.code_tile
    words = code_packet(chip) * chip.instruction_words
    moves = [op for op in planner.ops if isinstance(op, Move) and tile in (op.src.tile, op.dst.tile)]
    least = max((planner.length(op) for op in moves), default=0) + 2 * words
    step = max(least, int(cycles / (share * max(1, packets))))
    begins, then = planner.begins, planner.begins + dense * least
    yield from range(begins, then, least)
    yield from range(then, cycles + cycles // 4, step)


def keep_code_times(planner: Timetabler, code_address: int, times: Iterable[int]) -> None:
    """Reserves times for packets of code before anything else is planned. Unused ones cost channel bandwidth."""
    chip = planner.chip
    op = code_move(chip, planner.code_tile, code_address, 0, code_packet(chip) * chip.instruction_words)
    for number, ready in enumerate(times, 1):
        placed = planner.place(-number, op, ready)
        assert placed is not None
        if not planner.code or placed.departure > planner.code[-1].departure:
            planner.code.append(placed)


def _bring(planner: Timetabler, op: Move, sent: int, fired: int, last: int | None) -> Timed | None:
    """A MOVE of code, ordered in cycle `sent`, that fires after `fired`: at the first reserved time, or later. None if
    it cannot fire by cycle `last`."""
    chip, source = planner.chip, planner.code_tile
    assert chip.dtt is not None
    fires = launch(chip, source)
    ready = max(sent + REQUEST_CYCLES + hops(chip.dtt, source), fired + 1) + fires
    # for the longest route and the most way-points that its order could have
    ready += chip.noc.route_hops + MOST_POINTS + ROUTE_CYCLES
    at = bisect_left(planner.code, ready, key=lambda reserved: reserved.departure)
    if at == len(planner.code):
        return planner.place(-1 - at, op, ready, None if last is None else last + fires)
    reserved = planner.code[at]
    if last is not None and reserved.fire > last:
        return None
    del planner.code[: at + 1]
    return replace(reserved, op=op)


def _cut(one: Timed, words: int, chip: ChipConfig) -> Timed:
    """A MOVE of code, or the first part of it."""
    op = one.op
    assert isinstance(op, Move)
    spans = {end: getattr(op, end).model_copy(update={"run": words}) for end in ("src", "dst")}
    op = op.model_copy(update={**spans, "words": words})
    flits, _ = train(op.body, chip)
    end = one.departure + flits
    lands = arrival(chip, one.departure, one.hops, flits)
    return replace(one, op=op, flits=flits, end=end, read=end, arrival=lands)


class _Sender:
    """The latest cycles in which the controller sends its packets (`hw/dtt/controller.py`)."""

    def __init__(self, chip: ChipConfig, begins: int) -> None:
        self.chip, self.begins, self.now = chip, begins, begins - REQUEST_INTERVAL
        self.code: dict[int, int] = {}  # chunk to the cycle in which it has arrived
        self.fetched = FetchedCode(chip, begins) if chip.controller_channel else None
        self._fired: dict[tuple[int, Unit], deque[int]] = {}
        self._floors: dict[int, int] = {}
        self._first: tuple[Timed, int, int] | None = None

    def next(self, position: int, tile: int, unit: Unit) -> int:
        """The cycle in which the next packet would be sent if it went to this unit; `position`: of its instruction."""
        chip, cycle = self.chip, self.now + REQUEST_INTERVAL
        if self.fetched is not None:
            cycle = max(cycle, self.fetched.there(position))
        elif (arrived := self.code.get(position // code_packet(chip))) is not None:
            cycle = max(cycle, arrived + CODE_TO_PACKET)
        else:
            cycle = max(cycle, self.begins + code_there(chip, position))
        fired = self._fired.setdefault((tile, unit), deque(maxlen=chip.mover_queue))
        return max(cycle, fired[0] + PACED_CYCLES) if len(fired) == chip.mover_queue else cycle

    def fired(self, tile: int) -> int:
        """The last fire time sent to the mover of a tile."""
        fired = self._fired.get((tile, Unit.MOVER))
        return fired[-1] if fired else 0

    def send(self, position: int, one: Timed, codes: Sequence[Instruction]) -> None:
        """Sends the next packet; its instruction is at `position` of the stream."""
        chip, op = self.chip, one.op
        tile, unit = (op.src.tile, Unit.MOVER) if isinstance(op, Move) else (op.core, unit_of(op))
        self.now = self.next(position, tile, unit)
        if isinstance(op, Move) and len(codes) > 1:
            self.now += one.hops + codes[0].fields["count"] + ROUTE_CYCLES
        elif len(codes) > 1:
            self.now += ORDER_CYCLES
        if self.fetched is not None:  # code that is requested behind its ORDER goes before its packet
            self.now += self.fetched.take(range(position + 1 - len(codes), position), self.now)
        assert chip.dtt is not None
        ready = self.now + (REQUEST_CYCLES if unit is Unit.MOVER else PUSH_CYCLES) + hops(chip.dtt, tile)
        self._fired[tile, unit].append(max(one.fire, ready))  # those behind one that is late wait for it
        if self.fetched is not None:
            self.now += self.fetched.take(range(position, position + 1), self.now)
        if ready > one.fire:
            if one.operation >= 0:  # code is sent when possible, and the operations that need it fire later
                self._floors[one.operation] = ready
            self._first = self._first or (one, tile, ready)

    def delay(self, one: Timed, fire: int) -> None:
        """Records that an operation cannot fire before cycle `fire`."""
        tile = one.op.src.tile if isinstance(one.op, Move) else one.op.core
        self._floors[one.operation] = max(fire, self._floors.get(one.operation, 0))
        self._first = self._first or (one, tile, fire)

    def check(self) -> None:
        """Raises Late if some packets are sent too late."""
        if self._first is None:
            return
        one, tile, ready = self._first
        raise Late(
            f"operation {one.operation} ({one.op.label or one.op.kind}): its control packet can reach {tile:#04x} only "
            f"in cycle {ready}, and it is to fire in {one.fire}; begin the plan {ready - one.fire} cycles later",
            str(one.operation),
            one.fire,
            f"request plane to {tile:#04x}",
            self._floors,
        )


class Late(TimingFault):
    """Control packets that cannot arrive in time. `floors`: operation to its earliest fire time."""

    def __init__(self, message: str, operation: str, cycle: int, wire: str, floors: dict[int, int]) -> None:
        super().__init__(message, operation, cycle, wire)
        self.floors = floors
