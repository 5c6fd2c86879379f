"""Every sequence of sets of a small tiled layer, under every memory policy: what no heuristic can beat.

A reference for what list scheduling loses (`listing`, `beam`), not a scheduler: from seven operations on there are more
sequences than anyone would wait for. A sequence is an ordered list of sets of operations whose predecessors have run, a
set at most one operation for each core, in any order of its operations. Cores and places follow from a sequence by the
same rules as in the schedulers (`nests.replay`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import Problem
from .jit import compiled, inner
from .memory import FIRST_FIT, FRAGMENTATION, FUTURE, SMALL
from .nests import Sequence, follow, replay, sequence
from .policy import Policy
from .sets import Scratch, scratch
from .state import Array, CoreState, LayerConstants, Order, Start, begin
from .tiles import Tiles, Tiling

#: Operations that a layer may be tiled into.
MOST = 6
#: Memory policies that are tried: the paper's, Table 2's, and that which knows the future.
POLICIES = (FRAGMENTATION, FIRST_FIT, SMALL, FUTURE)
#: More steps of work than any sequence takes.
_ENDLESS = 1 << 62


@dataclass(frozen=True)
class Sequences:
    """All sequences of a tiling: `pairs` and tiles of input blocks `k` [sequence, operation], `first` operation of each
    set [sequence, operation + 1], and how many `sets` each has."""

    pairs: NDArray[np.int64]
    k: NDArray[np.int64]
    first: NDArray[np.int64]
    sets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pairs)


@lru_cache(maxsize=64)
def sequences(pairs: int, k: int, cores: int) -> Sequences:
    """All of so many pairs of `k` operations each. Raises ValueError for more than `MOST` operations."""
    if not 0 < pairs * k <= MOST:
        raise ValueError(f"{pairs * k} operations: all sequences are tried of 1 to {MOST}")

    def following(depths: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        ready = [pair for pair, depth in enumerate(depths) if depth < k]
        if not ready:
            yield ()
        for size in range(1, min(cores, len(ready)) + 1):
            for chosen in permutations(ready, size):
                after = tuple(depth + (pair in chosen) for pair, depth in enumerate(depths))
                for rest in following(after):
                    yield (chosen, *rest)

    orders = list(following((0,) * pairs))
    flat = np.array([[pair for chosen in one for pair in chosen] for one in orders], np.int64)
    first = np.full((len(orders), pairs * k + 1), pairs * k, np.int64)
    for number, one in enumerate(orders):
        first[number, : len(one) + 1] = np.cumsum([0, *map(len, one)])
    depth = np.zeros_like(flat)
    for at in range(pairs * k):
        depth[:, at] = (flat[:, :at] == flat[:, at, None]).sum(1)
    return Sequences(flat, depth, first, np.array([len(one) for one in orders], np.int64))


@inner
def _reset(state: CoreState, fresh: CoreState) -> None:
    """Everything as at the beginning."""
    for index in range(len(fresh.tiles)):
        one, other = state.tiles[index], fresh.tiles[index]
        one.height, one.words, one.where, one.uses = other.height, other.words, other.where, other.uses
        one.dirty, one.pin, one.following = other.dirty, other.pin, other.following
    for index in range(len(fresh.pairs)):
        here, there = state.pairs[index], fresh.pairs[index]
        here.depth, here.input, here.weight, here.core = there.depth, there.input, there.weight, there.core
    state.spm[0].rows, state.spm[0].tile = fresh.spm[0].rows, fresh.spm[0].tile
    for array, before in (
        (state.time, fresh.time),
        (state.there, fresh.there),
        (state.free, fresh.free),
        (state.began, fresh.began),
    ):
        array[:] = before
    state.slots[:] = fresh.slots
    state.open[:] = fresh.open
    state.stored[:] = fresh.stored
    state.clock.dram, state.clock.ports = fresh.clock.dram, fresh.clock.ports
    state.clock.end, state.clock.results = fresh.clock.end, fresh.clock.results
    now, before_ = state.totals, fresh.totals
    now.moved, now.spilled, now.least, now.left = before_.moved, before_.spilled, before_.least, before_.left
    now.ready, now.segments, now.logged = before_.ready, before_.segments, before_.logged
    now.stamp, now.steps = before_.stamp, before_.steps


@compiled
def _all(
    work: LayerConstants,
    fresh: CoreState,
    state: CoreState,
    room: Scratch,
    pairs: Array,
    ks: Array,
    firsts: Array,
    sets: Array,
    policies: Array,
    cycles: Array,
    words: Array,
) -> None:
    """Fills `cycles` and `words` [sequence, policy]; infinite if a sequence cannot be played."""
    weights = np.ones(2)
    for number in range(len(pairs)):
        first = firsts[number, : sets[number] + 1]
        next_input, next_weight = follow(work.dims, pairs[number], ks[number], first)
        sequence = Sequence(pairs[number], ks[number], first, next_input, next_weight)
        for which in range(len(policies)):
            _reset(state, fresh)
            done = replay(work, state, room, sequence, policies[which], weights, np.inf, _ENDLESS, False)
            cycles[number, which] = done[1] if done[0] else np.inf
            words[number, which] = done[2] if done[0] else np.inf


@dataclass(frozen=True)
class Tried:
    """What every sequence costs under each memory policy (`POLICIES`) [sequence, policy]: estimated cycles, words from
    and to DRAM; infinite if a sequence cannot be played."""

    start: Start
    sequences: Sequences
    cycles: NDArray[np.float64]
    words: NDArray[np.float64]

    def sequence(self, number: int) -> Sequence:
        """One of them, as `nests.replay` takes it."""
        all_ = self.sequences
        first = all_.first[number, : all_.sets[number] + 1]
        return sequence(self.start.work.dims, all_.pairs[number].copy(), all_.k[number].copy(), first.copy())

    def log(self, number: int, which: int) -> NDArray[np.void]:
        """What a sequence does under `POLICIES[which]` (`state.State.log`)."""
        state, work = self.start.fresh(), self.start.work
        done = replay(
            work, state, scratch(self.start), self.sequence(number), POLICIES[which], np.ones(2), np.inf, _ENDLESS, True
        )
        return done[3][: state.totals.logged]


def tried(problem: Problem, chip: ChipConfig, tiling: Tiling, policy: Policy) -> Tried:
    """All sequences of a tiling on a chip; of `policy` count `home`, `overlap` and `private`. Raises ValueError for a
    tiling with more than `MOST` operations."""
    tiles = Tiles(problem, tiling)
    start = begin(tiles, chip, Order("mnk"), policy.home, policy.overlap, policy.private)
    dims = start.work.dims
    all_ = sequences(dims.m * dims.n, dims.k, dims.cores)
    cycles, words = np.zeros((2, len(all_), len(POLICIES)))
    _all(
        start.work, start.fresh(), start.fresh(), scratch(start), all_.pairs, all_.k, all_.first, all_.sets,
        np.array(POLICIES), cycles, words,
    )  # fmt: skip
    return Tried(start, all_, cycles, words)
