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
from typing import NamedTuple

import numpy as np

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.contracts import GEMM_ISSUE_CYCLES
from meshloom.hw.spec.timing import gemm_tail

from ...model.latency import landing
from ...model.traffic import dram_word_cycles
from ...routing.compiled import jit
from .cutting import Cutting, Ints
from .muops import Orchestration


class _Ops(NamedTuple):
    """The micro-ops of a cutting, int64 of each: its `cycles`; words that come for it from DRAM, always (`plain`) and
    unless its core has just used the same (`weights`, `same`); `key`: what is high comes first; `fixed`: its core, or
    -1; `step`: none begins before all of earlier steps have ended."""

    cycles: Ints
    plain: Ints
    weights: Ints
    same: Ints
    key: Ints
    fixed: Ints
    step: Ints


class _Arcs(NamedTuple):
    """What micro-ops read of each other: producers (`ins`) and `words` of those of micro-op i from `first_in[i]` on,
    consumers (`outs`) from `first_out[i]` on."""

    first_in: Ints
    ins: Ints
    words: Ints
    first_out: Ints
    outs: Ints


class _Chip(NamedTuple):
    """The fields of `Cores`, as compiled code takes them."""

    hops: Ints
    share: float
    tail: int
    longest: int


@jit
def _levels(cycles: Ints, arcs: _Arcs, levels: Ints) -> None:
    """Bottom levels: cycles of the longest chain from each micro-op on, itself included."""
    for op in range(len(cycles) - 1, -1, -1):
        longest = 0
        for arc in range(arcs.first_out[op], arcs.first_out[op + 1]):
            longest = max(longest, levels[arcs.outs[arc]])
        levels[op] = cycles[op] + longest


@jit
def _arrive(op: int, core: int, ops: _Ops, arcs: _Arcs, chip: _Chip, starts: Ints, where: Ints) -> tuple[int, int, int]:
    """When the results of others have come to a core, and their words: from other cores, from the same one."""
    there = come = local = 0
    for arc in range(arcs.first_in[op], arcs.first_in[op + 1]):
        other, words = arcs.ins[arc], arcs.words[arc]
        end = int(starts[other] + ops.cycles[other] + chip.tail)
        if where[other] == core:
            local += words
        else:
            come += words
            end += chip.hops[where[other], core] + words + -(-words // chip.longest)
        there = max(there, end)
    return there, come, local


@jit
def _play(ops: _Ops, arcs: _Arcs, chip: _Chip, starts: Ints, where: Ints) -> int:
    """Fills `starts` and `where`: of those whose producers are placed one after the other, on the core where it starts
    earliest, of equal ones where most of its operands are. Returns the makespan."""
    size, cores = len(ops.cycles), len(chip.hops)
    waits = np.zeros(size, np.int64)
    free, begun, held = np.zeros(cores, np.int64), np.zeros(cores, np.int64), np.full(cores, -1, np.int64)
    ready = [(0, 0) for _ in range(0)]
    for op in range(size):
        waits[op] = arcs.first_in[op + 1] - arcs.first_in[op]
        if waits[op] == 0:
            heapq.heappush(ready, (-int(ops.key[op]), op))
    last = step = 0
    while ready:
        _, op = heapq.heappop(ready)
        if ops.step[op] > step:
            step, free[:] = ops.step[op], last
        best, near, chosen = -1, -1, 0
        for core in range(cores):
            if ops.fixed[op] >= 0 and core != ops.fixed[op]:
                continue
            there, come, local = _arrive(op, core, ops, arcs, chip, starts, where)
            fetched = ops.plain[op] + (0 if held[core] == ops.same[op] else ops.weights[op])
            start = max(free[core], there, begun[core] + come + int(np.ceil(fetched * chip.share)))
            if best < 0 or start < best or (start == best and local > near):
                best, near, chosen = start, local, core
        starts[op], where[op] = best, chosen
        begun[chosen], free[chosen] = best, best + ops.cycles[op]
        if ops.weights[op]:
            held[chosen] = ops.same[op]
        last = max(last, free[chosen])
        for arc in range(arcs.first_out[op], arcs.first_out[op + 1]):
            other = arcs.outs[arc]
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(ready, (-int(ops.key[other]), int(other)))
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


def play(cutting: Cutting, cores: Cores, fixed: Ints | None = None, barrier: bool = False) -> Played:
    """Schedules the micro-ops of a cutting. `fixed`: their cores, -1 for any (None: any for all). What has the highest
    bottom level comes first; with a `barrier` between stages, they come in their order."""
    size, links = cutting.count, cutting.links
    by_producer = np.argsort(links.producer, kind="stable")
    outs = links.consumer[by_producer]
    first_in, first_out = (
        np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=size)))) for ends in (links.consumer, links.producer)
    )
    arcs = _Arcs(first_in, links.producer, links.words, first_out, outs)
    levels = np.zeros(size, np.int64)
    _levels(cutting.cycles, arcs, levels)
    starts, where = np.zeros(size, np.int64), np.zeros(size, np.int64)
    ops = _Ops(
        cutting.cycles,
        cutting.fetched,
        cutting.weights,
        cutting.same,
        key=-np.arange(size) if barrier else levels,
        fixed=np.full(size, -1, np.int64) if fixed is None else fixed,
        step=cutting.stage * barrier,
    )
    makespan = _play(ops, arcs, _Chip(cores.hops, cores.share, cores.tail, cores.longest), starts, where)
    work = -(-int(cutting.cycles.sum()) // len(cores))
    return Played(where, starts, makespan, max(work, int(levels.max(initial=0))))
