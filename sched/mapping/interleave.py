"""Reorders a list of operations so that units find work: list scheduling on estimated times.

Layers one after the other leave every unit idle at each border. What an operation really depends on are words
(`Depends`), so weights can be fetched while the layer before computes, a core can begin with rows whose producers are
done, and branches fill each other's gaps. The list is played on the chip's resources (streams, movers, DRAM channels,
ports into tiles); whenever one is free it takes, of all operations whose inputs are there, the first in the list. The
order in which that happens is the new list: a topological order of the same dependences, so with the same meaning.

Fetching ahead is bounded: a MOVE is held back while more than `horizon` cycles of computing lie before its first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from meshloom.hw.config import PACKET_WORDS, ChipConfig, TileKind
from meshloom.hw.isa import REQUEST_FLITS, Unit

from ..ir.dependences import Depends
from .estimate import (
    FLIGHT_CYCLES,
    REQUEST_CYCLES,
    START_CYCLES,
    VECTOR_CYCLES,
    WRITE_CYCLES,
    dram_word_cycles,
    pipeline_cycles,
)
from .nodes import Node

#: Requests that a mover may have before it at a time: one that it serves, one on its way.
UNDER_WAY = 2
#: Times a MOVE's words that are added to the horizon: long transfers have to begin earlier.
PER_WORD = 4

_FREE, _READ, _END, _ARRIVE, _LAND = range(5)


@dataclass(frozen=True)
class Interleaved:
    """A new order (indices into the old list) and the cycles that the estimate gives it."""

    order: list[int]
    cycles: int


class Interleaver:
    """Prepares a list once; `run` plays it with some horizon."""

    def __init__(self, nodes: Sequence[Node], chip: ChipConfig) -> None:
        self.nodes, self.chip = nodes, chip
        depends = Depends([node.operation() for node in nodes], chip)
        count = len(nodes)
        self.on_end: list[list[int]] = [[] for _ in range(count)]  # who waits for what it writes
        self.on_read: list[list[int]] = [[] for _ in range(count)]  # who waits for what it has read
        self.missing = [0] * count
        users: list[list[int]] = [[] for _ in range(count)]  # who reads what it writes
        for index in range(count):
            for other in depends.data[index]:
                self.on_end[other].append(index)
                users[other].append(index)
            for other in depends.room[index]:
                # Moves into the same words land in order only if they go the same way; waiting is always right.
                written = nodes[other].fields is None and _overlap(nodes[other], nodes[index])
                (self.on_end if written or nodes[other].fields is not None else self.on_read)[other].append(index)
            self.missing[index] = len(depends.data[index]) + len(depends.room[index])
        # Cycles of computing that lie before each operation in its stream, and the first use of what a move brings.
        self.before = [0] * count
        so_far: dict[tuple[int, Unit], int] = {}
        for index, node in enumerate(nodes):
            if node.fields is not None:
                self.before[index] = so_far.get(node.stream, 0)
                so_far[node.stream] = self.before[index] + node.cycles
        self.use: list[tuple[tuple[int, Unit], int] | None] = [None] * count
        for index in range(count - 1, -1, -1):
            if nodes[index].fields is not None:
                self.use[index] = nodes[index].stream, self.before[index]
            elif chip.tiles[nodes[index].target.tile] is TileKind.CORE or not self._made(depends, index):
                uses = [use for other in users[index] if (use := self.use[other])]
                self.use[index] = min(uses, key=lambda use: use[1], default=None)
        self.longest = max((node.cycles for node in nodes), default=0)

    def _made(self, depends: Depends, index: int) -> bool:
        """Whether a move carries something computed: results are never held back."""
        return any(self.nodes[other].fields is not None for other in depends.data[index])

    def run(self, horizon: int) -> Interleaved:
        """The order that a horizon of so many cycles gives."""
        return _Play(self, max(horizon, 2 * self.longest)).run()


def _overlap(first: Node, second: Node) -> bool:
    """Whether the first move writes in the memory that the second operation writes (not just reads from it)."""
    return second.fields is None and first.target.tile == second.target.tile


class _Play:
    def __init__(self, work: Interleaver, horizon: int) -> None:
        self.work, self.nodes, self.chip, self.horizon = work, work.nodes, work.chip, horizon
        self.missing = list(work.missing)
        self.rate, self.drain = dram_word_cycles(work.chip), pipeline_cycles(work.chip)
        self.is_dram = {tile: kind is TileKind.DRAM for tile, kind in work.chip.tiles.items()}
        self.order: list[int] = []
        self.events: list[tuple[float, int, int, int]] = []
        self.ready: dict[tuple[int, Unit], list[int]] = {}  # compute operations, by stream
        self.asking: dict[int, list[int]] = {tile: [] for tile in work.chip.tiles}  # moves, by source
        self.held: dict[tuple[int, Unit], list[tuple[int, int]]] = {}  # moves held back, by stream that uses them
        self.under_way = dict.fromkeys(work.chip.tiles, 0)
        self.own = dict.fromkeys(work.chip.tiles, 0)
        self.mover_free = dict.fromkeys(work.chip.tiles, 0.0)
        self.issuer_free = dict.fromkeys(work.chip.tiles, float(START_CYCLES))
        self.channel = dict.fromkeys(work.chip.tiles, 0.0)
        self.sink = dict.fromkeys(work.chip.tiles, 0.0)
        self.busy: dict[tuple[int, Unit], bool] = {}
        self.progress: dict[tuple[int, Unit], int] = {}
        self.touched: set[tuple[int, Unit]] = set()
        self.sources: set[int] = set()
        self.number = 0
        self.end = 0.0

    def run(self) -> Interleaved:
        self.now = float(START_CYCLES)
        for index, missing in enumerate(self.missing):
            if not missing:
                self._offer(index)
        self._dispatch_all()
        while self.events or self._unhold():
            self.now, _, kind, index = heappop(self.events)
            self._event(kind, index)
            while self.events and self.events[0][0] == self.now:
                _, _, kind, index = heappop(self.events)
                self._event(kind, index)
            self._dispatch_all()
        assert len(self.order) == len(self.nodes), "a dependence that points forward"
        return Interleaved(self.order, int(self.end))

    def _unhold(self) -> bool:
        """Lets the first MOVE go that is held back, when everything stands still; False if none is held.

        Streams that share what it brings can be so far apart that the one by which it is held waits for the other."""
        held = [(index, stream) for stream, some in self.held.items() for _, index in some]
        if not held:
            return False
        first, stream = min(held)
        self.held[stream] = sorted(entry for entry in self.held[stream] if entry[1] != first)
        self._ready(first)
        self._dispatch_all()
        return True

    def _ready(self, index: int) -> None:
        """A MOVE that its source may be asked for."""
        source = self.nodes[index].source.tile
        heappush(self.asking[source], index)
        self.sources.add(source)

    def _at(self, time: float, kind: int, index: int) -> None:
        self.number += 1
        heappush(self.events, (time, self.number, kind, index))

    def _event(self, kind: int, index: int) -> None:
        node = self.nodes[index]
        if kind == _FREE:
            self.busy[node.stream] = False
            self.touched.add(node.stream)
        elif kind == _READ:
            source = node.source.tile
            self.under_way[source] -= 1
            if node.issuer == source:
                self.own[source] -= 1
            self.sources.add(source)
            self._release(self.work.on_read[index])
        elif kind == _END:
            self.end = max(self.end, self.now)
            if node.fields is not None:
                self._release(self.work.on_read[index])
            self._release(self.work.on_end[index])
        elif kind == _ARRIVE:
            self._serve(index, node)
        else:
            self._land(index, node)

    def _release(self, waiting: list[int]) -> None:
        for index in waiting:
            self.missing[index] -= 1
            if not self.missing[index]:
                self._offer(index)

    def _offer(self, index: int) -> None:
        """An operation whose inputs are there."""
        node = self.nodes[index]
        if node.fields is not None:
            heappush(self.ready.setdefault(node.stream, []), index)
            self.touched.add(node.stream)
            return
        use = self.work.use[index]
        if use is not None:
            stream, position = use
            position -= PER_WORD * node.words
            if position > self.progress.get(stream, 0) + self.horizon:
                heappush(self.held.setdefault(stream, []), (position, index))
                return
        self._ready(index)

    def _dispatch_all(self) -> None:
        while self.touched or self.sources:
            while self.touched:
                self._compute(self.touched.pop())
            while self.sources:
                self._ask(self.sources.pop())

    def _compute(self, stream: tuple[int, Unit]) -> None:
        heap = self.ready.get(stream)
        if not heap or self.busy.get(stream):
            return
        index = heappop(heap)
        node = self.nodes[index]
        self.order.append(index)
        self.busy[stream] = True
        self._at(self.now + node.cycles, _FREE, index)
        self._at(self.now + node.cycles + (VECTOR_CYCLES if node.vec else self.drain), _END, index)
        progress = max(self.progress.get(stream, 0), self.work.before[index] + node.cycles)
        self.progress[stream] = progress
        held = self.held.get(stream, [])
        while held and held[0][0] <= progress + self.horizon:
            self._ready(heappop(held)[1])

    def _ask(self, source: int) -> None:
        heap = self.asking[source]
        while heap and self.under_way[source] < UNDER_WAY:
            own = self.nodes[heap[0]].issuer == source
            if own and self.own[source]:
                return
            index = heappop(heap)
            node = self.nodes[index]
            self.order.append(index)
            self.under_way[source] += 1
            begin = max(self.now, self.issuer_free[node.issuer])
            if own:
                self.own[source] += 1
                self.issuer_free[node.issuer] = begin + 2
                self._at(begin + 2, _ARRIVE, index)
            else:
                self.issuer_free[node.issuer] = begin + REQUEST_FLITS + 1
                self._at(begin + REQUEST_CYCLES, _ARRIVE, index)

    def _serve(self, index: int, node: Node) -> None:
        tile = node.source.tile
        time = max(self.now, self.mover_free[tile])
        busy, flight = node.words * (1 + 1 / PACKET_WORDS) + 1, float(FLIGHT_CYCLES)
        if self.is_dram[tile]:
            time = max(time, self.channel[tile])
            self.channel[tile] = time + node.words * self.rate
            busy = max(busy, node.words * self.rate)
            flight += self.chip.dram.latency
        self.mover_free[tile] = time + busy
        self._at(time + busy, _READ, index)
        self._at(time + flight, _LAND, index)

    def _land(self, index: int, node: Node) -> None:
        target = node.target.tile
        landing = max(self.now, self.sink[target])
        self.sink[target] = end = landing + node.words * (1 + 1 / PACKET_WORDS)
        if self.is_dram[node.source.tile]:
            end = max(end, self.now + node.words * self.rate)
        if self.is_dram[target]:
            self.channel[target] = max(self.channel[target], self.now) + node.words * self.rate
            end = max(end, self.channel[target]) + WRITE_CYCLES
        self._at(end, _END, index)
