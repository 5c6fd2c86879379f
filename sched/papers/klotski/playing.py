"""How long the micro-ops of a cutting take on a chip: a list schedule that feeds its cores, quick enough for searches.

Tables of cycles alone make small micro-ops look free. Here a core computes one micro-op at a time (Definition 2) while
the operands of its next one come, a word a cycle: weights, unless it has just used them, and what lies in DRAM at its
share of the channels; results of other cores when these are done, by way of the mesh. What a core made itself is there.
So a micro-op starts at the latest of

    end of the one before it
    start of the one before it + cycles of all words that come for it
    for each operand, end of its producer + the tail of its pipeline, and from another core a MOVE's landing (`latency`)

What queues in the mesh and at channels is not in it: the timeline model plays programs with that.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.contracts import GEMM_ISSUE_CYCLES
from meshloom.hw.spec.timing import gemm_tail

from ...mapping.traffic import dram_word_cycles
from ...model.latency import landing
from ...routing.compiled import jit
from .cutting import Cutting, Ints
from .muops import Orchestration


@jit
def _levels(cycles: Any, first_out: Any, outs: Any, levels: Any) -> None:
    """Bottom levels: cycles of the longest chain from each micro-op on, itself included."""
    for op in range(len(cycles) - 1, -1, -1):
        longest = np.int64(0)
        for arc in range(first_out[op], first_out[op + 1]):
            longest = max(longest, levels[outs[arc]])
        levels[op] = cycles[op] + longest


@jit
def _play(
    cycles: Any, plain: Any, weights: Any, same: Any, first_in: Any, ins: Any, words: Any, first_out: Any, outs: Any,
    key: Any, hops: Any, share: float, tail: int, longest: int, given: Any, steps: Any, starts: Any, where: Any,
) -> int:  # fmt: skip
    """Fills `starts` and `where`; the highest `key` of those whose producers are placed comes first, on the core where
    it starts earliest, of equal ones where most of its operands are, or on the `given` one; none before all of earlier
    `steps` have ended. Returns the makespan."""
    size, cores = len(cycles), len(hops)
    waits = np.zeros(size, np.int64)
    free, begun, held = np.zeros(cores, np.int64), np.zeros(cores, np.int64), np.full(cores, -1, np.int64)
    ready = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for op in range(size):
        waits[op] = first_in[op + 1] - first_in[op]
        if waits[op] == 0:
            heapq.heappush(ready, (-key[op], np.int64(op)))
    last, step = np.int64(0), np.int64(0)
    while ready:
        _, op = heapq.heappop(ready)
        if steps[op] > step:
            step, free[:] = steps[op], last
        best, near, chosen = np.int64(-1), np.int64(-1), 0
        for core in range(cores):
            if given[op] >= 0 and core != given[op]:
                continue
            come, local, start = np.int64(0), np.int64(0), free[core]
            for arc in range(first_in[op], first_in[op + 1]):
                other = ins[arc]
                end = starts[other] + cycles[other] + tail
                if where[other] == core:
                    local += words[arc]
                else:
                    come += words[arc]
                    end += hops[where[other], core] + words[arc] + -(-words[arc] // longest)
                start = max(start, end)
            fetched = plain[op] + (np.int64(0) if held[core] == same[op] else weights[op])
            start = max(start, begun[core] + come + np.int64(np.ceil(fetched * share)))
            if best < 0 or start < best or (start == best and local > near):
                best, near, chosen = start, local, core
        starts[op], where[op] = best, chosen
        begun[chosen], free[chosen] = best, best + cycles[op]
        if weights[op]:
            held[chosen] = same[op]
        last = max(last, free[chosen])
        for arc in range(first_out[op], first_out[op + 1]):
            other = outs[arc]
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(ready, (-key[other], np.int64(other)))
    return int(last)


@dataclass(frozen=True, eq=False)
class Cores:
    """What feeds the cores of a chip. `hops`: int64 [cores, cores], cycles of a packet's head between them; `share`:
    those that a word of DRAM takes, when all cores ask for some; `tail`: those from the end of a GEMM's occupancy until
    its result can be sent; `longest`: words of the longest packet."""

    hops: Ints
    share: float
    tail: int
    longest: int

    @classmethod
    def of(cls, chip: ChipConfig) -> Cores:
        """Those of a chip, in the order of its floorplan."""
        places = np.array([tile_position(core) for core in chip.cores], np.int64)
        hops = np.abs(places[:, None] - places[None]).sum(axis=2) + landing(chip, 0, 1) - 2
        share = len(places) * dram_word_cycles(chip) / len(chip.drams)
        return cls(hops, max(1.0, share), gemm_tail(chip, chip.rows) + GEMM_ISSUE_CYCLES, chip.packet_words)

    def __len__(self) -> int:
        return len(self.hops)


@dataclass(frozen=True, eq=False)
class Played:
    """A schedule of a cutting: int64 of each micro-op. `bound`: cycles below which no schedule on so many cores can be,
    of what units must do alone (longest chain, all work over all cores)."""

    cores: Ints
    starts: Ints
    makespan: int
    bound: int

    def orchestration(self) -> Orchestration:
        """The same, as program generators take it."""
        return Orchestration(tuple(self.cores.tolist()), tuple(self.starts.tolist()), self.makespan, self.bound)


def play(cutting: Cutting, cores: Cores, given: Ints | None = None, barrier: bool = False) -> Played:
    """Schedules the micro-ops of a cutting. `given`: their cores, -1 for any (None: any for all). What has the highest
    bottom level comes first; with a `barrier` between stages, they come in their order."""
    size, links = cutting.count, cutting.links
    by_producer = np.argsort(links.producer, kind="stable")
    outs = links.consumer[by_producer]
    first_in, first_out = (
        np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=size)))) for ends in (links.consumer, links.producer)
    )
    levels = np.zeros(size, np.int64)
    _levels(cutting.cycles, first_out, outs, levels)
    starts, where = np.zeros(size, np.int64), np.zeros(size, np.int64)
    makespan = _play(
        cutting.cycles, cutting.fetched, cutting.weights, cutting.same, first_in, links.producer, links.words,
        first_out, outs, -np.arange(size) if barrier else levels, cores.hops, cores.share, cores.tail, cores.longest,
        np.full(size, -1, np.int64) if given is None else given, cutting.stage * barrier, starts, where,
    )  # fmt: skip
    work = -(-int(cutting.cycles.sum()) // len(cores))
    return Played(where, starts, makespan, max(work, int(levels.max(initial=0))))
