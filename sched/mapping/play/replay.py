"""A replay of an emitted candidate: every operation queues behind what it waits for, streams in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import REQUEST_FLITS, Unit

from ...model.traffic import REQUEST_CYCLES, START_CYCLES, Traffic
from ..nodes import Node
from .estimate import END_CYCLES, VECTOR_CYCLES, pipeline_cycles


def replay(nodes: Sequence[Node], chip: ChipConfig) -> int:
    """Cycles of a run in which each resource serves operations in the order in which they reach it.

    Resources: the stream of each mover and matrix unit, the mover of each tile (one word a cycle), the channel of each
    DRAM tile, the link into each tile. Contention inside the mesh is left out.
    """
    return _Replay(nodes, chip).run()


_ISSUE, _SOURCE, _FREE, _SINK = range(4)


class _Replay:
    """Events in order of time: an operation is issued, reaches the mover of its source, reaches its destination."""

    def __init__(self, nodes: Sequence[Node], chip: ChipConfig) -> None:
        self.nodes = nodes
        self.drain, self.traffic = pipeline_cycles(chip), Traffic(chip)
        self.busy = dict.fromkeys(chip.tiles, False)
        self.queue: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}
        place = {id(node): index for index, node in enumerate(nodes)}
        self.waits = [[place[id(other)] for other in node.after] for node in nodes]
        self.missing = [len(wait) for wait in self.waits]
        self.wakes: list[list[int]] = [[] for _ in nodes]
        self.streams: dict[tuple[int, Unit], list[int]] = {}
        for index, node in enumerate(nodes):
            for other in self.waits[index]:
                self.wakes[other].append(index)
            self.streams.setdefault(node.stream, []).append(index)
        self.free = dict.fromkeys(self.streams, float(START_CYCLES))
        self.next = dict.fromkeys(self.streams, 0)
        self.waiting: dict[int, tuple[int, Unit]] = {}  # heads of streams that wait for others
        self.ends = [0.0] * len(nodes)
        self.events: list[tuple[float, int, int]] = []

    def run(self) -> int:
        for key in self.streams:
            self._offer(key)
        while self.events:
            time, index, kind = heappop(self.events)
            if kind == _FREE:  # `index` is the tile
                self.busy[index] = False
                self._serve(index, time)
                continue
            node = self.nodes[index]
            key = node.stream
            if kind == _ISSUE:
                if node.fields is not None:
                    self._go_on(key, time + node.cycles)
                    self._end(index, time + node.cycles + (VECTOR_CYCLES if node.vec else self.drain))
                elif node.issuer == node.source.tile:
                    heappush(self.events, (time + 2, index, _SOURCE))
                else:
                    self._go_on(key, time + REQUEST_FLITS + 1)
                    heappush(self.events, (time + REQUEST_CYCLES, index, _SOURCE))
            elif kind == _SOURCE:
                self.queue[node.source.tile].append(index)
                self._serve(node.source.tile, time)
            else:
                self._end(index, self.traffic.land(node.source.tile, node.target.tile, node.words, time))
        return int(max(self.ends) + END_CYCLES)

    def _serve(self, tile: int, time: float) -> None:
        """The mover of a tile takes up the next operation that has reached it, if it is free."""
        if self.busy[tile] or not self.queue[tile]:
            return
        index = self.queue[tile].popleft()
        node = self.nodes[index]
        time, busy, flight = self.traffic.send(tile, node.words, time)
        self.busy[tile] = True
        heappush(self.events, (time + busy, tile, _FREE))
        heappush(self.events, (time + flight, index, _SINK))
        if node.issuer == tile:
            self._go_on(node.stream, time + busy)

    def _go_on(self, key: tuple[int, Unit], time: float) -> None:
        self.free[key] = time
        self.next[key] += 1
        self._offer(key)

    def _offer(self, key: tuple[int, Unit]) -> None:
        """Issues the head of a stream as soon as what it waits for is known to end."""
        if self.next[key] < len(self.streams[key]):
            index = self.streams[key][self.next[key]]
            if self.missing[index]:
                self.waiting[index] = key
            else:
                begin = max([self.free[key], *(self.ends[other] for other in self.waits[index])])
                heappush(self.events, (begin, index, _ISSUE))

    def _end(self, index: int, time: float) -> None:
        self.ends[index] = time
        for other in self.wakes[index]:
            self.missing[other] -= 1
            if not self.missing[other] and other in self.waiting:
                self._offer(self.waiting.pop(other))
