"""List scheduling of micro-ops that knows where their operands are: of the cores that could do one, that is taken on
which it ends first, if its weights and inputs are not dearer to bring there than the time is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.isa import Unit

from ...mapping.play.estimate import pipeline_cycles
from ...model.traffic import REQUEST_CYCLES
from .muops import MuGraph, MuOp, Orchestration
from .packing import pack
from .proof import proven

#: Cycles a result takes, besides its words, from the unit that makes it to the one that reads it.
HANDOVER = REQUEST_CYCLES


@dataclass(frozen=True)
class Affinity:
    """What a word costs, in cycles: of weights that a core does not have yet, and of operands from another core."""

    weights: float = 0.15
    operands: float = 0.05


def bottom_levels(graph: MuGraph) -> list[int]:
    """Cycles from the start of each micro-op to the end of the last one that depends on it, without waiting."""
    levels = [0] * len(graph.ops)
    for op in reversed(graph.ops):
        tail = max((levels[edge.consumer] for edge in graph.after[op.number]), default=0)
        levels[op.number] = op.cycles + tail
    return levels


def placed(graph: MuGraph, chip: ChipConfig, affinity: Affinity | None = None) -> Orchestration:
    """A core and a start for each micro-op, the longest chain behind it first. A core's units work side by side."""
    return _Listing(graph, chip, affinity or Affinity()).run()


class _Listing:
    def __init__(self, graph: MuGraph, chip: ChipConfig, affinity: Affinity) -> None:
        self.graph, self.affinity = graph, affinity
        places = np.array([tile_position(core) for core in chip.cores])
        #: Links from core to core.
        self.links: NDArray[np.int64] = np.abs(places[:, None] - places[None]).sum(axis=2)
        self.drain = pipeline_cycles(chip)
        count = len(chip.cores)
        self.free = {unit: np.zeros(count, np.int64) for unit in (Unit.MATRIX, Unit.VECTOR)}
        self.core = [0] * len(graph.ops)
        self.starts = [0] * len(graph.ops)
        self.ends = [0] * len(graph.ops)
        self.weights: dict[tuple[object, ...], NDArray[np.bool_]] = {}  # which cores have them
        self.operands: dict[int, NDArray[np.bool_]] = {}  # which cores have read a result already

    def run(self) -> Orchestration:
        levels = bottom_levels(self.graph)
        missing = [len(edges) for edges in self.graph.before]
        ready = [(-levels[number], number) for number, count in enumerate(missing) if not count]
        heapify(ready)
        while ready:
            _, number = heappop(ready)
            self._place(self.graph.ops[number])
            for edge in self.graph.after[number]:
                missing[edge.consumer] -= 1
                if not missing[edge.consumer]:
                    heappush(ready, (-levels[edge.consumer], edge.consumer))
        bound = proven(self.graph, len(self.links))
        return Orchestration(tuple(self.core), tuple(self.starts), max(self.ends, default=0), bound)

    def _place(self, op: MuOp) -> None:
        edges, count = self.graph.before[op.number], len(self.links)
        begin, dear = self.free[op.unit].copy(), np.zeros(count)
        if edges:
            producers = np.array([self.core[edge.producer] for edge in edges])
            ends = np.array([self.ends[edge.producer] for edge in edges]) + self.drain
            words = np.array([edge.words for edge in edges])
            away = producers[:, None] != np.arange(count)[None]
            late = (
                ends[:, None]
                + HANDOVER
                + np.where(away, self.links[producers] + words[:, None] // 2, words[:, None] // 4)
            )
            begin = np.maximum(begin, late.max(axis=0))
            here = np.array([self.operands.setdefault(edge.producer, np.zeros(count, np.bool_)) for edge in edges])
            dear += self.affinity.operands * (words[:, None] * (away & ~here)).sum(axis=0)
        key = op.stage, op.result.planes, op.channels
        have = self.weights.setdefault(key, np.zeros(count, np.bool_))
        dear += self.affinity.weights * op.constants * ~have
        core = int(np.argmin(begin + dear))
        have[core] = True
        for edge in edges:
            self.operands[edge.producer][core] = True
        self.core[op.number], self.starts[op.number] = core, int(begin[core])
        self.ends[op.number] = int(begin[core]) + op.cycles
        self.free[op.unit][core] = self.ends[op.number]


def settled(graph: MuGraph, chip: ChipConfig) -> Orchestration:
    """A core and a start for each micro-op: each layer shared out in runs of neighbours that end at the same time
    (`packing`), results taken up by additions where they are. The order on a core is that of a list schedule."""
    return _Settling(graph, chip).run()


class _Settling:
    def __init__(self, graph: MuGraph, chip: ChipConfig) -> None:
        self.graph, self.count, self.drain = graph, len(chip.cores), pipeline_cycles(chip)
        self.core = [0] * len(graph.ops)
        self.ends = [0] * len(graph.ops)
        self.free = {unit: [0] * self.count for unit in (Unit.MATRIX, Unit.VECTOR)}

    def run(self) -> Orchestration:
        stages: dict[int, list[MuOp]] = {}
        for op in self.graph.ops:
            stages.setdefault(op.stage, []).append(op)
        for ops in stages.values():
            self._stage(ops)
        starts, ends = self._starts()
        return Orchestration(tuple(self.core), starts, max(ends, default=0), proven(self.graph, self.count))

    def _ready(self, op: MuOp) -> int:
        """When its operands are there."""
        before = self.graph.before[op.number]
        return max((self.ends[edge.producer] + self.drain + HANDOVER for edge in before), default=0)

    def _stage(self, ops: list[MuOp]) -> None:
        heads = [op for op in ops if op.sums is None]  # those that add up the same sums share a core
        work: dict[int, int] = {}
        head = -1
        for op in ops:
            head = op.number if op.sums is None else head
            work[head] = work.get(head, 0) + op.cycles
        head_homes = [self._home(op) for op in heads]
        if all(core >= 0 for core in head_homes):
            shares = head_homes
        else:
            free = self.free[ops[0].unit]
            first = min(self._ready(op) for op in heads)
            shares = pack([work[op.number] for op in heads], [max(free[core], first) for core in range(self.count)])
        homes = {op.number: share for op, share in zip(heads, shares, strict=True)}
        for op in ops:
            head = op.number if op.sums is None else head
            core = self.core[op.number] = homes[head]
            free = self.free[op.unit]
            free[core] = self.ends[op.number] = max(free[core], self._ready(op)) + op.cycles

    def _home(self, op: MuOp) -> int:
        """The core that has a result of the array which a micro-op just takes up; -1 if there is none."""
        for edge in self.graph.before[op.number]:
            producer = self.graph.ops[edge.producer]
            if len(op.reads) == 2 and producer.unit is Unit.MATRIX and edge.region == producer.result == op.result:
                return self.core[edge.producer]
        return -1

    def _starts(self) -> tuple[tuple[int, ...], list[int]]:
        """The start and the end of each micro-op on its core: whenever a unit is free it takes, of those whose operands
        are there, the one with the longest chain behind it."""
        graph, levels = self.graph, bottom_levels(self.graph)
        missing = [len(edges) for edges in graph.before]
        starts, ends = [0] * len(graph.ops), [0] * len(graph.ops)
        ready: dict[tuple[int, Unit], list[tuple[int, int]]] = {}
        busy: dict[tuple[int, Unit], int] = {}
        events: list[tuple[int, int, int]] = [(0, 0, op.number) for op in graph.ops if not missing[op.number]]
        heapify(events)
        while events:
            now = events[0][0]
            touched: set[tuple[int, Unit]] = set()
            while events and events[0][0] == now:
                _, ended, number = heappop(events)
                op = graph.ops[number]
                stream = self.core[number], op.unit
                touched.add(stream)
                if not ended:
                    heappush(ready.setdefault(stream, []), (-levels[number], number))
            for stream in sorted(touched):
                if busy.get(stream, 0) > now or not ready.get(stream):
                    continue
                _, number = heappop(ready[stream])
                starts[number], ends[number] = now, now + graph.ops[number].cycles
                busy[stream] = ends[number]
                heappush(events, (ends[number], 1, number))
                for edge in graph.after[number]:
                    missing[edge.consumer] -= 1
                    if not missing[edge.consumer]:
                        there = max(ends[other.producer] for other in graph.before[edge.consumer])
                        heappush(events, (there + self.drain + HANDOVER, 0, edge.consumer))
        return tuple(starts), ends
