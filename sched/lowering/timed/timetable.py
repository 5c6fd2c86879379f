"""Plans a schedule ahead of time: the fire time of each operation, the route of each MOVE, its arrival.

Operations are planned in the order of the schedule, each at the earliest cycle in which everything it needs is free:
the mover that sends it, every link of its route, the destination port and memory, a slot of the controller to send its
control packet. Gaps left by earlier operations are used. Ways are found by Dijkstra through time
(`sched.routing.search`), so that no flit ever waits for another. Dependences are derived from the words that the
schedule's operations access, not from the order in which units happen to work. DRAM channels are requested a latency
ahead, and read or write, never both at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.contracts import (
    HEAD_CYCLES,
    ISSUE_CYCLES,
    OFFER_CYCLES,
    ORDER_CYCLES,
    PUSH_CYCLES,
    REQUEST_CYCLES,
    REQUEST_INTERVAL,
    TURN_CYCLES,
    WORD_CYCLES,
)
from meshloom.hw.spec.isa import OFFSET_BITS, Region, Unit
from meshloom.hw.spec.routes import dimension_ordered

from ...ir.dependences import Depends
from ...ir.hazards import unit_of
from ...ir.schedule import Gemm, Move, Operation, Schedule, Vec
from ...routing.hardware import DttError, TimingFault
from ...routing.mesh import mesh_of
from ...routing.plan import Settings
from ...routing.planner import mesh_space, new_question
from . import dram_train
from .windows import (
    FIRST_WRITE,
    OPERANDS,
    WRITE_DONE,
    ComputeWindow,
    arrival,
    bursts,
    hops,
    landing,
    launch,
    train,
    work,
    write_beats,
)

if TYPE_CHECKING:
    from ...routing.search import Space

#: Cycles of the first reservation tables; they double when full.
_FIRST_CYCLES = 1 << 14
#: Cycles reserved in the controller for a control packet: the time of one with an ORDER.
_SLOT_CYCLES = REQUEST_INTERVAL + ORDER_CYCLES
#: Searches for one MOVE, each from a later cycle, before it is an error.
_PATIENCE = 2000


@dataclass(frozen=True)
class Timed:
    """An operation's place in time. `operation`: its index in the schedule, -2 - n for the n-th MOVE of code.

    `fire`: its fire time. `start`: of its record (a MOVE: taken by the mover). `end`: of a computation; for a MOVE, the
    last word has left. `read`: its operands have been read; `writes`: for a computation, its first result is written.
    MOVEs: `departure` of the first head, `flits`, `path` (tiles), `arrival` (`windows.arrival`).
    """

    operation: int
    op: Operation
    fire: int
    start: int
    end: int
    read: int
    writes: int = 0
    departure: int = 0
    flits: int = 0
    path: tuple[int, ...] = ()
    arrival: int = 0

    @property
    def hops(self) -> int:
        """Links of its route."""
        return max(0, len(self.path) - 1)


@dataclass(frozen=True)
class Timetable:
    """All operations in the order of their fire times. `begins`: cycle from which the controller can send its first
    control packet. `cycles`: everything has been delivered. `code_tile`: the DRAM tile that stores the controller's
    program."""

    timed: tuple[Timed, ...]
    begins: int
    cycles: int
    code_tile: int

    @property
    def flit_hops(self) -> int:
        """Flits x links, to which the energy spent in the NoC is proportional."""
        return sum(one.flits * one.hops for one in self.timed)


class _Windows:
    """Windows in which a resource is used; adjacent ones are merged."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def clash(self, first: int, end: int) -> int:
        """The end of the last window that overlaps [first, end), -1 if there is none."""
        at = bisect_left(self._starts, end)
        return self._ends[at - 1] if at and self._ends[at - 1] > first else -1

    def take(self, first: int, end: int) -> None:
        """Marks [first, end) as used."""
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [end]


class _Slots:
    """The controller's packets, one per `_SLOT_CYCLES`. If each operation has a slot before it is due, all can be sent
    in the order in which they are due."""

    def __init__(self, begins: int) -> None:
        self.begins = begins
        self._before: dict[int, int] = {}  # a taken slot to an earlier one, on the way to a free one
        self._high = 0  # all slots from here on are free

    def _last_free(self, slot: int) -> int:
        """The last free slot up to `slot`, -1 if there is none."""
        passed_slots: list[int] = []
        while slot in self._before:
            passed_slots.append(slot)
            slot = self._before[slot]
        for passed in passed_slots:
            self._before[passed] = slot
        return slot

    def earliest(self, cycle: int) -> int:
        """`cycle` if a packet can be sent by then, otherwise the first cycle in which one can."""
        slot = (cycle - self.begins) // _SLOT_CYCLES
        if slot >= 0 and self._last_free(slot) >= 0:
            return cycle
        slot = max(0, slot)
        while slot in self._before:
            slot += 1
        return self.begins + slot * _SLOT_CYCLES

    def take(self, cycle: int) -> None:
        """Reserves a slot for a packet by `cycle`."""
        slot = self._last_free((cycle - self.begins) // _SLOT_CYCLES)
        assert slot >= 0, "no slot of the controller is free"
        self._before[slot] = slot - 1


class CodeTimes(NamedTuple):
    """First cycle in which the controller can send, and until when its first instructions arrive from which tile. (All
    others come the same way from a code channel, which no data passes.)"""

    begins: int
    until: int
    tile: int


class Timetabler:
    """Plans one schedule. `code`: when the controller's code arrives. `floors`: operation to its earliest fire time.
    `lengths`: MOVE to the cycles that its flits take, where that is known better than for a MOVE alone.

    Raises DttError for a chip without a controller, or with source routes that are too short.
    """

    def __init__(
        self,
        schedule: Schedule,
        chip: ChipConfig,
        code: CodeTimes,
        floors: Mapping[int, int] | None = None,
        lengths: Mapping[int, int] | None = None,
        settings: Settings | None = None,
    ) -> None:
        if chip.dtt is None:
            raise DttError(f'chip {chip.name} has no "dtt" tile to time anything; add one to its floorplan')
        spare = chip.noc.route_hops - (chip.width + chip.height - 2)
        if spare < 0:
            raise DttError(
                f"chip {chip.name}: noc.route_hops = {chip.noc.route_hops} is less than its diameter; planned routes "
                f"need at least {chip.width + chip.height - 2}"
            )
        self.chip, self.ops, self.dtt = chip, schedule.operations, chip.dtt
        self.begins, self.code_tile, self.floors = code.begins, code.tile, floors or {}
        self.lengths = lengths or {}
        self.mesh = replace(mesh_of(chip), gap=TURN_CYCLES)
        self.settings = settings or Settings(detour=min(4, spare // 2 * 2))
        self.space = mesh_space(self.mesh, self.settings, _FIRST_CYCLES)
        self.question = new_question(self.mesh, self.settings, 1)
        self.depends = Depends(self.ops, chip)
        self.timed: list[Timed] = []
        self.unit_free: dict[tuple[int, Unit], int] = {}
        self.unit_fire: dict[tuple[int, Unit], int] = {}
        self.ports: dict[tuple[int, Region | str], _Windows] = {}
        self.slots = _Slots(code.begins)
        self.code: list[Timed] = []  # times reserved for code, in order
        self._code_links = [] if chip.code_channel is None else [self.mesh.link(chip.code_channel, self.dtt)]
        if self._code_links:
            self.space.busy[self._code_links] = ~np.uint64(0)
        self._occupy_boot(code.until)

    # -- planning ---------------------------------------------------------------------------------------------------

    def plan(self) -> Timetable:
        """Raises TimingFault naming operation, cycle and wire for an operation without a free time."""
        for index, op in enumerate(self.ops):
            timed = self._move(index, op) if isinstance(op, Move) else self._compute(index, op)
            self.timed.append(timed)
        every = tuple(sorted(self.timed, key=lambda one: (one.fire, one.operation)))
        last = max((max(one.end, one.arrival + WRITE_DONE) for one in every), default=self.begins)
        return Timetable(every, self.begins, last, self.code_tile)

    def _ready(self, index: int) -> int:
        """The earliest start of a computation, or departure of a MOVE, that its dependences allow."""
        op = self.ops[index]
        earliest = 0
        for other in self.depends.data[index]:
            earliest = max(earliest, self._after_data(op, self.timed[other]))
        for other in self.depends.room[index]:
            earliest = max(earliest, self._after_room(op, self.timed[other]))
        return earliest

    def _after_data(self, op: Operation, before: Timed) -> int:
        """`op` reads what `before` writes."""
        if not isinstance(op, Move):
            if isinstance(before.op, Move):
                return before.arrival
            same = unit_of(op) is unit_of(before.op)  # a unit keeps its own order in its pipeline
            return 0 if same else before.end
        lead = WORD_CYCLES + (
            self.chip.dram.latency if self._from_dram(op) else 0
        )  # from the first read to the departure
        if isinstance(before.op, Move):
            written = before.arrival + (WRITE_DONE if self._to_dram(before.op) else 0)
            return written + lead
        return before.end + lead

    def _after_room(self, op: Operation, before: Timed) -> int:
        """`op` overwrites what `before` reads or writes."""
        if isinstance(op, Move):
            if isinstance(before.op, Move):
                # its words are delivered after those of the other, which has then read its source
                return max(before.end, before.arrival + (WRITE_DONE if self._to_dram(before.op) else 0))
            # no computation writes operand memories: only its reads can be in the way there
            operand = Region(op.dst.address >> OFFSET_BITS) in OPERANDS
            return (before.read if operand else before.end) - FIRST_WRITE
        if isinstance(before.op, Move):
            delivered = before.arrival if before.op.dst.tile == op.core else 0
            return max(delivered, before.read - work(op, self.chip).first_write)
        same = unit_of(op) is unit_of(before.op)
        return 0 if same else before.end

    # -- computing --------------------------------------------------------------------------------------------------

    def _compute(self, index: int, op: Gemm | Vec) -> Timed:
        unit = unit_of(op)
        key = op.core, unit
        does = work(op, self.chip)
        start = max(self._ready(index), self.unit_free.get(key, 0))
        fire = max(self.floors.get(index, 0), self.unit_fire.get(key, 0) + ISSUE_CYCLES)
        start = max(start, fire + does.lead)
        ahead = does.lead + PUSH_CYCLES + hops(self.dtt, op.core)  # from the slot to the start
        while True:
            later = max(self._compute_clash(op.core, does, start), self.slots.earliest(start - ahead) + ahead)
            if later <= start:
                break
            start = later
        self.slots.take(start - ahead)
        for first, end in does.writes:
            self._port(op.core, does.region).take(start + first, start + end)
        if does.addend:
            self._port(op.core, "addends").take(start, start + does.cycles)
        if does.walks:
            self._port(op.core, "walked").take(start, start + does.occupied)
        self.unit_free[key] = start + does.occupied
        self.unit_fire[key] = start - does.lead
        ends = start + does.cycles, start + does.occupied, start + does.first_write
        return Timed(index, op, start - does.lead, start, *ends)

    def _compute_clash(self, core: int, does: ComputeWindow, start: int) -> int:
        for first, end in does.writes:
            if (busy := self._port(core, does.region).clash(start + first, start + end)) >= 0:
                return busy - first
        if does.addend and (busy := self._port(core, "moved").clash(start, start + does.cycles)) >= 0:
            return busy
        if does.walks and (busy := self._port(core, "passed on").clash(start, start + does.occupied)) >= 0:
            return busy
        return start

    def _port(self, core: int, name: Region | str) -> _Windows:
        """Uses of the write port of ACC or OUT, or reads of ACC: by the drain path ("addends") or a mover ("moved"); or
        of A and B: by the vector unit ("walked") or a mover ("passed on")."""
        if (core, name) not in self.ports:
            self.ports[core, name] = _Windows()
        return self.ports[core, name]

    # -- moving -----------------------------------------------------------------------------------------------------

    def _from_dram(self, op: Move) -> bool:
        return self.chip.tiles[op.src.tile] is TileKind.DRAM

    def _to_dram(self, op: Move) -> bool:
        return self.chip.tiles[op.dst.tile] is TileKind.DRAM

    def _of_operands(self, op: Move) -> bool:
        region = Region(op.src.address >> OFFSET_BITS)
        return region in OPERANDS and self.chip.tiles[op.src.tile] is TileKind.CORE

    def _move(self, index: int, op: Move) -> Timed:
        timed = self.place(index, op, self._ready(index))
        assert timed is not None
        return timed

    def place(self, index: int, op: Move, ready: int, last: int | None = None) -> Timed | None:
        """Finds the earliest route for a MOVE that departs in cycle `ready` or later, and reserves it; None if that is
        after cycle `last`. Code (a negative index) needs no slot of the controller."""
        timed = self.find(index, op, ready, last)
        if timed is not None:
            self._keep(timed)
        return timed

    def find(self, index: int, op: Move, ready: int, last: int | None = None) -> Timed | None:
        """What `place` would reserve."""
        source, target = op.src.tile, op.dst.tile
        before = launch(self.chip, source)
        ahead = before + REQUEST_CYCLES + hops(self.dtt, source)  # from the slot to the departure
        ready = max(ready, self.floors.get(index, 0) + before)
        length = max(self.length(op), self.lengths.get(index, 0))
        for _ in range(_PATIENCE):
            departure, path = self._route(source, target, ready, length)
            later = self._move_clash(op, departure, len(path) - 1, length)
            if index >= 0:
                later = max(later, self.slots.earliest(departure - ahead) + ahead)
            if last is not None and later > last:
                return None
            if later > departure:
                ready = later
                continue
            end = departure + length
            lands = arrival(self.chip, departure, len(path) - 1, length)
            fire = departure - before
            return Timed(index, op, fire, fire + OFFER_CYCLES, end, end, 0, departure, length, path, lands)
        wire = self.mesh.resource_name(self.mesh.injection(source))
        raise TimingFault(
            f"operation {index} ({op.label or 'a move'}): no route from {source:#04x} to {target:#04x} is free for "
            f"{length} cycles from cycle {ready} on, at {wire}",
            str(index),
            ready,
            wire,
        )

    def _keep(self, timed: Timed) -> None:
        """Reserves what `find` has found."""
        assert isinstance(timed.op, Move)
        self._reserve(timed.op, timed.departure, timed.path, timed.flits)
        if timed.operation >= 0:
            self.slots.take(timed.fire - REQUEST_CYCLES - hops(self.dtt, timed.op.src.tile))

    def length(self, op: Move) -> int:
        """Cycles from a MOVE's first flit to its last: its flits, and gaps where DRAM is too slow for short runs."""
        flits, words = train(op.body, self.chip)
        if not self._from_dram(op):
            return flits
        its = bursts(op.body, self.chip)
        leaves, last = dram_train.send(
            dram_train.new_state(), 0, self.chip.dram.latency, np.array(its), np.array(words)
        )
        return max(flits, last - leaves + 1)

    def _route(self, source: int, target: int, ready: int, flits: int) -> tuple[int, tuple[int, ...]]:
        """Departure, in cycle `ready` or later, and tiles of the route that arrives first."""
        from ...routing.search import FOREVER, later

        space, question, mesh = self.space, self.question, self.mesh
        tile, end = mesh.number(target), mesh.number(source)
        apart = int(space.distance[tile, end])
        question.tiles[0], question.residencies[0], question.ready[0], question.until[0] = end, 0, ready, FOREVER
        query = question.query
        query.tile, query.flits, query.least_hops, query.holders = tile, flits, apart, 1
        query.stride = 2  # in a mesh, detours add an even number of hops
        query.extra = self.settings.detour
        while True:
            first = ready + apart + flits
            limit = 64 * self.space.busy.shape[1]
            leaves = later(self.space, question, first, limit - flits - 2) if first < limit - flits - 2 else -1
            if leaves >= 0:
                break
            space = self._grow()
        length = int(question.answer.hops)
        numbers: list[int] = space.path[: length + 1].tolist()
        path = tuple(mesh.tiles[number] for number in numbers)
        departure = int(leaves) - length - flits
        plain = dimension_ordered(source, target, self.chip.noc.data_routing)
        if len(plain) == len(path) and self._free(plain, departure, flits):
            path = plain  # it needs no waypoints
        return departure, path

    def _grow(self) -> Space:
        """Doubles the cycles of the reservation tables."""
        busy = self.space.busy
        more = np.zeros_like(busy)
        more[self._code_links] = ~np.uint64(0)  # links that belong to code
        self.space = self.space._replace(busy=np.concatenate([busy, more], axis=1))
        return self.space

    def _free(self, path: tuple[int, ...], departure: int, flits: int) -> bool:
        """Whether the links of a path are free for a train."""
        from ...routing.tables import first_busy

        links = self.mesh.occupied(path, departure, flits)[1:-1]
        return all(first_busy(self.space.busy, link, first, end) < 0 for link, first, end in links)

    def _move_clash(self, op: Move, departure: int, path_hops: int, flits: int) -> int:
        """A later departure to try if a port at either end is taken, otherwise `departure`."""
        source, target = op.src.tile, op.dst.tile
        first, end = landing(self.chip, departure, path_hops, flits)
        region = Region(op.dst.address >> OFFSET_BITS)
        if region in (Region.ACC, Region.OUT) and (busy := self._port(target, region).clash(first, end)) >= 0:
            return departure + busy - first
        if Region(op.src.address >> OFFSET_BITS) is Region.ACC:
            busy = self._port(source, "addends").clash(departure - HEAD_CYCLES, departure + flits)
            if busy >= 0:
                return busy + HEAD_CYCLES
        if self._of_operands(op):
            busy = self._port(source, "walked").clash(departure - HEAD_CYCLES, departure + flits)
            if busy >= 0:
                return busy + HEAD_CYCLES
        if self._to_dram(op):  # the channel is still writing for some cycles after the words have arrived
            from ...routing.tables import last_busy

            row, gone = self.mesh.ejection(target), departure + path_hops + 1 + flits
            if (busy := int(last_busy(self.space.busy, row, gone, gone + write_beats(self.chip)))) >= 0:
                return departure + busy + 1 - gone + 1
        return departure

    def _reserve(self, op: Move, departure: int, path: tuple[int, ...], flits: int) -> None:
        from ...routing.tables import flip

        while departure + len(path) + flits + 64 > 64 * self.space.busy.shape[1]:
            self._grow()
        for resource, first, end in self.mesh.occupied(path, departure, flits):
            flip(self.space.busy, resource, first, end)
        target, last = op.dst.tile, departure + len(path) + flits
        if self._to_dram(op):
            flip(self.space.busy, self.mesh.ejection(target), last, last + write_beats(self.chip))
        region = Region(op.dst.address >> OFFSET_BITS)
        if region in (Region.ACC, Region.OUT):
            self._port(target, region).take(*landing(self.chip, departure, len(path) - 1, flits))
        if Region(op.src.address >> OFFSET_BITS) is Region.ACC:
            self._port(op.src.tile, "moved").take(departure - HEAD_CYCLES, departure + flits)
        if self._of_operands(op):
            self._port(op.src.tile, "passed on").take(departure - HEAD_CYCLES, departure + flits)

    # -- the controller ---------------------------------------------------------------------------------------------

    def _occupy_boot(self, until: int) -> None:
        """The first instructions leave the code's channel unplanned: reserves it and their route until then."""
        from ...routing.tables import flip

        for target in (self.dtt, self.chip.host):
            path = dimension_ordered(self.code_tile, target, self.chip.noc.data_routing)
            for resource, _, _ in self.mesh.occupied(path, 0, 1):
                busy = self.space.busy
                if not busy[resource].any():
                    flip(busy, resource, 0, until)
