"""The paper's baseline: loop nests with fixed regions of the scratchpad for inputs, weights and partial sums.

The innermost loop over pixels or output blocks is unrolled over the cores (Figure 3 (b)); with input blocks innermost
it is the loop around them, because sums of one output cannot be made side by side. A region is divided into slots of
the largest tile; a tile that is not there takes the next slot of its region in turn, whatever lies there (Figure 5
(b)). Every order of the three loops, tiling and division of the scratchpad is tried; see `search`.
Source: Min, Kwon, Egger, "Flexer" (CGO 2023), sections 2.2, 4.1 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .jit import compiled, inner
from .machine import apart, assign, come, gathered, hopeless, latency, leave, log_event, operand, run_set, sums_of
from .policy import Regions
from .state import NEXT, Array, CoreState, LayerConstants, Order, Start

#: Numbers of the loops.
M, N, K = range(3)


def unrolled(loops: str) -> str:
    """The loop that a nest unrolls over the cores: the innermost one over pixels or output blocks."""
    return [loop for loop in loops if loop != "k"][-1]


def divisions(start: Start, order: Order, shares: Regions = "best") -> Iterator[tuple[int, int, int]]:
    """Slots for inputs, weights and sums: what a set needs once or twice, and the rest of the room for one kind; with
    equal `shares`, as many as fit into a region as large as the others."""
    m, n, k, cores, rows = start.work.dims[:5]
    tall = [int(start.tiles["height"][a:b].max()) for a, b in ((0, m * k), (m * k, (m + n) * k), ((m + n) * k, None))]
    total = [m * k, n * k, m * n if k > 1 else 0]
    inner = unrolled(order.loops)
    wide = min(cores, n if inner == "n" else m)
    need = [wide if inner == "m" else 1, wide if inner == "n" else 1, wide if k > 1 else 0]
    if shares == "equal":
        room = rows // sum(1 for height in tall if height)
        equal = tuple(min(most, room // height) if height else 0 for most, height in zip(total, tall, strict=True))
        if all(has >= least for has, least, height in zip(equal, need, tall, strict=True) if height):
            yield equal[0], equal[1], equal[2]
        return
    slots_of_regions: set[tuple[int, int, int]] = set()
    for greedy in range(3):
        for factors in np.ndindex(2, 2):
            slots = list(need)
            others = [kind for kind in range(3) if kind != greedy]
            for kind, factor in zip(others, factors, strict=True):
                slots[kind] = min(need[kind] * (1 + factor), total[kind])
            left = rows - sum(slots[kind] * tall[kind] for kind in others)
            if left < need[greedy] * tall[greedy]:
                continue
            slots[greedy] = min(total[greedy], left // tall[greedy]) if tall[greedy] else 0
            slots_of_regions.add((slots[0], slots[1], slots[2]))
    yield from sorted(slots_of_regions)


def regions(start: Start, slots: tuple[int, int, int], steps: int = 0) -> CoreState:
    """The state before the first set: three regions of empty slots. `steps`: of work so far."""
    m, n, k = start.work.dims[:3]
    state = start.fresh(steps)
    spm: Any = state.spm
    at = 0
    for count, (first, end) in zip(slots, ((0, m * k), (m * k, (m + n) * k), ((m + n) * k, None)), strict=True):
        spm["rows"][at : at + count] = start.tiles["height"][first:end].max()
        at += count
    state.totals.segments = at
    return state


@inner
def _take(work: LayerConstants, state: CoreState, at: int, tile: int, partial: bool, log: Array, record: bool) -> Array:
    """A tile takes a slot, and what lies there leaves it; the log."""
    row, stored = 0, 0.0
    state.totals.steps += at
    for before in range(at):
        row += state.spm[before].rows
    old = state.spm[at].tile
    if old >= 0:
        if state.tiles[old].uses > 0:
            stored, log = leave(work, state, old, row, log, record)
        state.tiles[old].where = -1
    state.spm[at].tile = tile
    state.time[at] = max(state.time[at], stored)
    state.tiles[tile].where = row
    return come(work, state, tile, state.time[at], partial, log, record)


@inner
def _bring(
    work: LayerConstants,
    state: CoreState,
    slots: Array,
    turns: Array,
    pairs: Array,
    size: int,
    log: Array,
    record: bool,
) -> Array:
    """Moves the tiles of a set into the slots whose turn it is; the log."""
    state.totals.stamp += 1
    stamp = state.totals.stamp
    for index in range(size):
        pair = pairs[index]
        for tile in (state.pairs[pair].input, state.pairs[pair].weight, sums_of(work, pair)):
            state.tiles[tile].pin = stamp
    for index in range(size):
        pair = pairs[index]
        base = 0
        for kind in range(3):
            tile = operand(state.pairs, pair, kind) if kind < 2 else sums_of(work, pair)
            count = slots[kind]
            if state.tiles[tile].height > 0 and state.tiles[tile].where < 0:
                at = base + turns[kind]
                while state.spm[at].tile >= 0 and state.tiles[state.spm[at].tile].pin == stamp:
                    turns[kind] = (turns[kind] + 1) % count
                    at = base + turns[kind]
                turns[kind] = (turns[kind] + 1) % count
                log = _take(work, state, at, tile, kind == 2 and state.pairs[pair].depth == 0, log, record)
            base += count
    return log


@compiled
def unroll(
    work: LayerConstants,
    state: CoreState,
    loops: Array,
    slots: Array,
    weights: Array,
    limit: float,
    most: int,
    record: bool,
) -> tuple[bool, float, int, Array]:
    """Plays a loop nest: (finished, cycles, words moved, log).

    `loops`: the numbers (0 m, 1 n, 2 k) of the loops, outermost first; `slots` as from `divisions`; `weights`, `limit`,
    `most`: as for `listing.make`.
    """
    dims, cores, n = work.dims, work.dims.cores, work.dims.n
    sizes: Array = (dims.m, dims.n, dims.k)
    log = state.log
    inner = 2 if loops[2] != K else 1  # the loop that is unrolled
    step = np.ones(3, np.int64)
    step[inner] = cores
    pairs, mine, turns = np.zeros(cores, np.int64), np.zeros(cores, np.int64), np.zeros(3, np.int64)
    at: Array = np.zeros(3, np.int64)
    for one in range(0, sizes[loops[0]], step[0]):
        at[loops[0]] = one
        for two in range(0, sizes[loops[1]], step[1]):
            at[loops[1]] = two
            for three in range(0, sizes[loops[2]], step[2]):
                at[loops[2]] = three
                size = min(cores, sizes[loops[inner]] - at[loops[inner]])
                for index in range(size):
                    m = at[M] + (index if loops[inner] == M else 0)
                    pairs[index] = m * n + at[N] + (index if loops[inner] == N else 0)
                if record:
                    log = log_event(log, state.totals, NEXT, size, 0, 0)
                apart(work, state)
                log = _bring(work, state, slots, turns, pairs, size, log, record)
                if not work.dims.overlap:
                    gathered(work, state, pairs, size)
                fits = assign(work, state, pairs, size, mine)
                assert fits  # sums go to the scratchpad, so any core will do
                log = run_set(work, state, pairs, mine, size, log, record)
            if hopeless(work, state, weights, limit, most):
                return False, latency(work, state), state.totals.moved, log
    return True, latency(work, state), state.totals.moved, log
