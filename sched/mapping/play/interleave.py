"""Reorders a list of operations so that units find work: list scheduling on estimated times.

Layers one after the other leave every unit idle at each border. What an operation really depends on are words
(`ir.dependences`), so weights can be fetched while the layer before computes, a core can begin with rows whose
producers are done, and branches fill each other's gaps. The list is played on the chip's resources (streams, movers,
DRAM channels, ports into tiles); whenever one is free it takes, of all operations whose inputs are there, the first in
the list. The order in which that happens is the new list: a topological order of the same dependences, so with the same
meaning.

Fetching ahead is bounded: a MOVE is held back while more than `horizon` cycles of computing lie before its first use.
That helps where results come too early for the memory that they go to; but until a core's result has been sent, nothing
can be computed in its place. So results can be sent `at_once` instead. Units can be told to keep the order of the list
(`in_order`); then only MOVEs change their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import REQUEST_FLITS, Unit

from ...ir.dependences import Words
from ...ir.schedule import Operation
from ..nodes import Node
from .estimate import REQUEST_CYCLES, START_CYCLES, VECTOR_CYCLES
from .player import Player, Waits
from .traffic import Traffic

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

    def __init__(
        self,
        nodes: Sequence[Node],
        chip: ChipConfig,
        in_order: bool = False,
        operations: Sequence[Operation] | None = None,
        like: Interleaver | None = None,
        words: Iterable[Words] | None = None,
    ) -> None:
        """`operations`: what the nodes are in a schedule, and `words`: what these read and write, if that is known;
        `like`: another list, whose operations differ only in who issues them, and need not be looked at again."""
        self.waits = Waits(nodes, chip, operations, like and like.waits, words)
        self.nodes, self.in_order = nodes, in_order
        self._runs: dict[tuple[int, bool], Interleaved] = {}
        # Cycles of computing that lie before each operation in its stream, and the first use of what a move brings.
        self.turns: dict[tuple[int, Unit], list[int]] = {}  # compute operations, by stream
        self.before: list[int] = [0] * len(nodes)
        self.use: list[tuple[tuple[int, Unit], int] | None] = [None] * len(nodes)
        self.longest = max((node.cycles for node in nodes), default=0)
        if like is not None:
            self.turns, self.before, self.use = like.turns, like.before, like.use
        else:
            self._look_ahead(chip)

    def _look_ahead(self, chip: ChipConfig) -> None:
        """Fills `turns`, `before` and `use`."""
        nodes = self.nodes
        users: list[list[int]] = [[] for _ in nodes]  # who reads what it writes
        for index, data in enumerate(self.waits.depends.data):
            for other in data:
                users[other].append(index)
        so_far: dict[tuple[int, Unit], int] = {}
        for index, node in enumerate(nodes):
            if node.fields is not None:
                stream = node.stream
                self.turns.setdefault(stream, []).append(index)
                self.before[index] = so_far.get(stream, 0)
                so_far[stream] = self.before[index] + node.cycles
        for index in range(len(nodes) - 1, -1, -1):
            if nodes[index].fields is not None:
                self.use[index] = nodes[index].stream, self.before[index]
            elif chip.tiles[nodes[index].target.tile] is TileKind.CORE or not self._carries_result(index):
                uses = [use for other in users[index] if (use := self.use[other])]
                self.use[index] = min(uses, key=lambda use: use[1], default=None)

    def _carries_result(self, index: int) -> bool:
        """Whether a move carries something computed; on its way to a memory that is never held back."""
        return any(self.nodes[other].fields is not None for other in self.waits.depends.data[index])

    def run(self, horizon: int, at_once: bool = False) -> Interleaved:
        """The order that a horizon of so many cycles gives, at least twice those of the longest operation. `at_once`:
        what a core sends is never held back."""
        key = max(horizon, 2 * self.longest), at_once
        if key not in self._runs:
            played = _Play(self, *key)
            played.play()
            self._runs[key] = Interleaved(played.order, int(played.end))
        return self._runs[key]


class _Play(Player):
    def __init__(self, work: Interleaver, horizon: int, at_once: bool) -> None:
        super().__init__(work.waits)
        self.work, self.horizon, self.at_once = work, horizon, at_once
        tiles = self.chip.tiles
        self.offered: dict[tuple[int, Unit], list[int]] = {}  # compute operations, by stream
        self.asking: dict[int, list[int]] = {tile: [] for tile in tiles}  # moves, by source
        self.held: dict[tuple[int, Unit], list[tuple[int, int]]] = {}  # moves held back, by stream that uses them
        self.in_flight = dict.fromkeys(tiles, 0)
        self.own = dict.fromkeys(tiles, 0)
        self.mover_free = dict.fromkeys(tiles, 0.0)
        self.issuer_free = dict.fromkeys(tiles, float(START_CYCLES))
        self.traffic = Traffic(self.chip)
        self.busy: dict[tuple[int, Unit], bool] = {}
        self.progress: dict[tuple[int, Unit], int] = {}
        self.done = dict.fromkeys(work.turns, 0)  # operations issued, by stream
        self.touched: set[tuple[int, Unit]] = set()
        self.sources: set[int] = set()

    def stuck(self) -> bool:
        """Lets the first MOVE go that is held back, when everything stands still; False if none is held.

        Streams that share what it brings can be so far apart that the one by which it is held waits for the other."""
        held = [(index, stream) for stream, some in self.held.items() for _, index in some]
        if not held:
            return False
        first, stream = min(held)
        self.held[stream] = sorted(entry for entry in self.held[stream] if entry[1] != first)
        self._may_ask(first)
        self.settle()
        return True

    def _may_ask(self, index: int) -> None:
        """A MOVE that its source may be asked for."""
        source = self.nodes[index].source.tile
        heappush(self.asking[source], index)
        self.sources.add(source)

    def event(self, kind: int, index: int) -> None:
        node = self.nodes[index]
        if kind == _FREE:
            self.busy[node.stream] = False
            self.touched.add(node.stream)
        elif kind == _READ:
            source = node.source.tile
            self.in_flight[source] -= 1
            if node.issuer == source:
                self.own[source] -= 1
            self.sources.add(source)
            self.has_read(index)
        elif kind == _END:
            self.has_ended(index)
        elif kind == _ARRIVE:
            self._serve(index, node)
        else:
            self._land(index, node)

    def ready(self, index: int) -> None:
        node = self.nodes[index]
        if node.fields is not None:
            heappush(self.offered.setdefault(node.stream, []), index)
            self.touched.add(node.stream)
            return
        use = self.work.use[index]
        if use is not None and not (self.at_once and self.chip.tiles[node.source.tile] is TileKind.CORE):
            stream, position = use
            position -= PER_WORD * node.words
            if position > self.progress.get(stream, 0) + self.horizon:
                heappush(self.held.setdefault(stream, []), (position, index))
                return
        self._may_ask(index)

    def settle(self) -> None:
        while self.touched or self.sources:
            while self.touched:
                self._compute(self.touched.pop())
            while self.sources:
                self._ask(self.sources.pop())

    def _compute(self, stream: tuple[int, Unit]) -> None:
        heap = self.offered.get(stream)
        if not heap or self.busy.get(stream):
            return
        if self.work.in_order and heap[0] != self.work.turns[stream][self.done[stream]]:
            return
        index = heappop(heap)
        self.done[stream] += 1
        node = self.nodes[index]
        self.order.append(index)
        self.busy[stream] = True
        self.at(self.now + node.cycles, _FREE, index)
        self.at(self.now + node.cycles + (VECTOR_CYCLES if node.vec else self.drain), _END, index)
        progress = max(self.progress.get(stream, 0), self.work.before[index] + node.cycles)
        self.progress[stream] = progress
        held = self.held.get(stream, [])
        while held and held[0][0] <= progress + self.horizon:
            self._may_ask(heappop(held)[1])

    def _ask(self, source: int) -> None:
        heap = self.asking[source]
        while heap and self.in_flight[source] < UNDER_WAY:
            own = self.nodes[heap[0]].issuer == source
            if own and self.own[source]:
                return
            index = heappop(heap)
            node = self.nodes[index]
            self.order.append(index)
            self.in_flight[source] += 1
            begin = max(self.now, self.issuer_free[node.issuer])
            if own:
                self.own[source] += 1
                self.issuer_free[node.issuer] = begin + 2
                self.at(begin + 2, _ARRIVE, index)
            else:
                self.issuer_free[node.issuer] = begin + REQUEST_FLITS + 1
                self.at(begin + REQUEST_CYCLES, _ARRIVE, index)

    def _serve(self, index: int, node: Node) -> None:
        tile = node.source.tile
        time, busy, flight = self.traffic.send(node, max(self.now, self.mover_free[tile]), pause=1)
        self.mover_free[tile] = time + busy
        self.at(time + busy, _READ, index)
        self.at(time + flight, _LAND, index)

    def _land(self, index: int, node: Node) -> None:
        self.at(self.traffic.land(node, self.now), _END, index)
