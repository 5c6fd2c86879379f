"""Sequences of sets that are known from the beginning, and what the scratchpad does for them.

Where the future is known, the tile that leaves is the one that is needed again last (after L. A. Belady, "A study of
replacement algorithms for a virtual-storage computer", 1966; here among blocks of different sizes that lie side by
side). A sequence is a loop nest of rectangles of pairs, one pair for each core, or what list scheduling has chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .jit import compiled, inner
from .machine import apart, assign, bring, flush, gathered, hopeless, latency, log_event, run_one
from .memory import FUTURE
from .sets import Scratch, look
from .state import NEXT, RUN, Array, CoreState, Dims, LayerConstants

Ints = NDArray[np.int64]


class Sequence(NamedTuple):
    """Operations in order: `pairs` and tiles of input blocks `k`; `first` operation of each set, and one more entry.

    `next_input`, `next_weight`: number of the next set that needs an operation's tile (or a number past all).
    """

    pairs: Array
    k: Array
    first: Array
    next_input: Array
    next_weight: Array


@compiled
def follow(dims: Dims, pairs: Array, k: Array, first: Array) -> tuple[Array, Array]:
    """`Sequence.next_input` and `next_weight`."""
    inputs = np.full((dims.m, dims.k), len(first), np.int64)
    weights = np.full((dims.n, dims.k), len(first), np.int64)
    next_input, next_weight = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
    for number in range(len(first) - 2, -1, -1):
        for index in range(first[number], first[number + 1]):
            m, n = pairs[index] // dims.n, pairs[index] % dims.n
            next_input[index], next_weight[index] = inputs[m, k[index]], weights[n, k[index]]
        for index in range(first[number], first[number + 1]):
            m, n = pairs[index] // dims.n, pairs[index] % dims.n
            inputs[m, k[index]] = weights[n, k[index]] = number
    return next_input, next_weight


def sequence(dims: Dims, pairs: Ints, k: Ints, first: Ints) -> Sequence:
    """A sequence of given operations and sets."""
    return Sequence(pairs, k, first, *follow(dims, pairs, k, first))


def of_log(dims: Dims, log: NDArray[np.void]) -> Sequence:
    """The sequence that a log tells of."""
    what: Ints = log["what"]
    sizes = what[log["kind"] == NEXT]
    pairs, k = np.divmod(what[log["kind"] == RUN], dims.k)
    return sequence(dims, pairs, k, np.concatenate([[0], np.cumsum(sizes)]))


@compiled
def _rectangles(dims: Dims, tall: int, wide: int, by_rows: bool, group: int) -> tuple[Array, Array, Array, int]:
    """Operations and sets of `nest`; the number of sets."""
    total = dims.m * dims.n * dims.k
    pairs, ks, first = np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total + 1, np.int64)
    rows, columns = -(-dims.m // tall), -(-dims.n // wide)
    outer, inner = (rows, columns) if by_rows else (columns, rows)
    at, sets, turn = 0, 0, 0
    for one in range(outer):
        groups = -(-inner // group)
        for number in range(groups):
            part = number if one % 2 == 0 else groups - 1 - number
            begin, end = part * group, min((part + 1) * group, inner)
            for deep in range(dims.k):
                k = deep if turn % 2 == 0 else dims.k - 1 - deep
                for step in range(end - begin):
                    two = begin + step if (deep + one) % 2 == 0 else end - 1 - step
                    row, column = (one, two) if by_rows else (two, one)
                    first[sets] = at
                    sets += 1
                    for m in range(row * tall, min((row + 1) * tall, dims.m)):
                        for n in range(column * wide, min((column + 1) * wide, dims.n)):
                            pairs[at], ks[at] = m * dims.n + n, k
                            at += 1
            turn += 1
    first[sets] = at
    return pairs, ks, first, sets


def nest(dims: Dims, tall: int, wide: int, by_rows: bool, group: int) -> Sequence:
    """Rectangles of `tall` x `wide` pairs, row by row or column by column and back and forth, `group` of them at a time
    for all input blocks (these back and forth too)."""
    pairs, k, first, sets = _rectangles(dims, tall, wide, by_rows, group)
    return sequence(dims, pairs, k, first[: sets + 1].copy())


@inner
def _point(work: LayerConstants, state: CoreState, sequence: Sequence, begin: int, end: int) -> None:
    """Pairs go on with the input blocks that a sequence says."""
    for index in range(begin, end):
        pair, k = sequence.pairs[index], sequence.k[index]
        state.pairs[pair].input = state.pairs[pair].m * work.dims.k + k
        state.pairs[pair].weight = (work.dims.m + state.pairs[pair].n) * work.dims.k + k


@inner
def _together(
    work: LayerConstants,
    state: CoreState,
    room: Scratch,
    sequence: Sequence,
    begin: int,
    end: int,
    now: int,
    policy: int,
    log: Array,
    record: bool,
) -> tuple[bool, Array]:
    """Schedules operations begin..end as one set; whether cores and scratchpad have room for it (else nothing is
    done), and the log. A single operation gets an empty scratchpad if need be."""
    size = end - begin
    chosen, cores = sequence.pairs[begin:end], np.zeros(size, np.int64)
    apart(work, state)
    possible = look(work, state, room, chosen, size, policy, now).possible
    if (size > 1 and not possible) or not assign(work, state, chosen, size, cores):
        return False, log
    if not possible:
        log = flush(work, state, log, record)
    if record:
        log = log_event(log, state.totals, NEXT, size, 0, 0)
    log = bring(work, state, room.wanted, room.gone, chosen, size, policy, now, log, record)
    if not work.dims.overlap:
        gathered(work, state, chosen, size)
    for index in range(size):
        log = run_one(work, state, chosen[index], cores[index], log, record)
    for index in range(begin, end):
        pair = sequence.pairs[index]
        state.tiles[state.pairs[pair].input].following = sequence.next_input[index]
        state.tiles[state.pairs[pair].weight].following = sequence.next_weight[index]
        state.pairs[pair].depth += 1
    return True, log


@compiled
def replay(
    work: LayerConstants,
    state: CoreState,
    room: Scratch,
    sequence: Sequence,
    policy: int,
    weights: Array,
    limit: float,
    most: int,
    record: bool,
) -> tuple[bool, float, int, Array]:
    """Schedules a sequence: (finished, cycles, words moved, log); arguments as of `listing.make`.

    Sets for which there is no room are taken operation by operation. A sequence is given up, unfinished, at an
    operation that no core has room for: its sums would have to stay where other sums that stay fill ACC.
    """
    log = state.log
    for number in range(len(sequence.first) - 1):
        begin, end = sequence.first[number], sequence.first[number + 1]
        _point(work, state, sequence, begin, end)
        fits, log = _together(work, state, room, sequence, begin, end, number, policy, log, record)
        for index in range(begin, begin if fits else end):
            fits, log = _together(work, state, room, sequence, index, index + 1, number, policy, log, record)
            if not fits:
                return False, latency(work, state), state.totals.moved, log
        if hopeless(work, state, weights, limit, most):
            return False, latency(work, state), state.totals.moved, log
    return True, latency(work, state), state.totals.moved, log


__all__ = ["FUTURE", "Sequence", "nest", "of_log", "replay", "sequence"]
