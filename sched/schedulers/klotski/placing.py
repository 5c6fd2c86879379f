"""List scheduling of micro-ops that knows where their operands are: of the cores that could do one, that is taken on
which it ends first, if its weights and inputs are not dearer to bring there than the time is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import ChipConfig, tile_position
from meshloom.hw.isa import Unit

from ...mapping.estimate import REQUEST_CYCLES, pipeline_cycles
from .muops import MuGraph, MuOp, Orchestration

#: Cycles a result takes, besides its words, from the unit that makes it to the one that reads it.
HANDOVER = REQUEST_CYCLES


@dataclass(frozen=True)
class Affinity:
    """What a word costs, in cycles: of weights that a core does not have yet, and of operands from another core."""

    weights: float = 0.15
    operands: float = 0.05


def bottom_levels(graph: MuGraph) -> list[int]:
    """Cycles from the start of each micro-op to the end of the last one that depends on it, without waiting."""
    found = [0] * len(graph.ops)
    for op in reversed(graph.ops):
        epilogue = max((found[edge.consumer] for edge in graph.after[op.number]), default=0)
        found[op.number] = op.cycles + epilogue
    return found


def least_cycles(graph: MuGraph, cores: int) -> int:
    """Cycles below which no schedule can be: the longest chain, and the work of each kind of unit shared out."""
    work = {unit: sum(op.cycles for op in graph.ops if op.unit is unit) for unit in (Unit.MATRIX, Unit.VECTOR)}
    return max(max(bottom_levels(graph), default=0), *(-(-cycles // cores) for cycles in work.values()))


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
        bound = least_cycles(self.graph, len(self.links))
        return Orchestration(tuple(self.core), tuple(self.starts), max(self.ends, default=0), bound)

    def _place(self, op: MuOp) -> None:
        edges, count = self.graph.before[op.number], len(self.links)
        begin, dear = self.free[op.unit].copy(), np.zeros(count)
        if edges:
            made = np.array([self.core[edge.producer] for edge in edges])
            ends = np.array([self.ends[edge.producer] for edge in edges]) + self.drain
            words = np.array([edge.words for edge in edges])
            away = made[:, None] != np.arange(count)[None]
            late = (
                ends[:, None] + HANDOVER + np.where(away, self.links[made] + words[:, None] // 2, words[:, None] // 4)
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
