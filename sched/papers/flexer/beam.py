"""Looking ahead: several partial schedules are kept side by side, and the best of those that have ended is taken.

List scheduling commits itself to the set of highest priority, and always to one of the largest size. Here the partial
schedules with equally many operations compete: those with the least lower bound of the metric (`machine.bound`: arrays
busy with all that is left, every tile that is not there moved once) are continued, each with the best sets of every
size. Schedules that come to the same clocks and counts are the same but for names of tiles, and one of them is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .jit import compiled, inlined, inner
from .machine import apart, bound, commit, flush, latency, metric
from .nests import Sequence, sequence
from .sets import WIDTH, Looked, Scratch, better, enumerate_levels, look, possible_sums, survey
from .state import Array, CoreState, Dims, LayerConstants, Start

#: Sets of one size that a partial schedule is continued with, at most.
BRANCHES = 12
#: All sets of a size are looked at if there are no more of them than this, else one of each data flow (`sets.BEAM`).
FEW = 64
#: Elements of arrays that are copied in the time of a step of work.
_COPIED = 8


class Beam(NamedTuple):
    """Partial schedules, by the number of their place. `states`: the fields of `CoreState` with one more axis in front;
    `scores`: lower bounds of the metric, infinite where there is none; `marks` [place, 5]: clocks and counts; `pairs`,
    `sizes` [place, operation]: what has been scheduled, and in sets of which sizes; `sets`: how many of these."""

    states: Any
    scores: Array
    marks: Array
    pairs: Array
    sizes: Array
    sets: Array


class Branches(NamedTuple):
    """Sets that a partial schedule is continued with, best first, by size: `chosen` [size, number, size], `looked`
    [size, number, 4] (see `sets.Looked`), `counts` [size]."""

    chosen: Array
    looked: Array
    counts: Array


def beam_of(start: Start, width: int) -> Beam:
    """Room for `width` partial schedules of each number of operations that a set can lead to, and one to try on; the
    empty schedule is the first."""
    dims = start.work.dims
    places, total = width * (dims.cores + 1) + 1, dims.m * dims.n * dims.k
    fields: list[Any] = [np.repeat(np.asarray(field)[None], places, 0) for field in start.fresh()]
    scores = np.full(places, np.inf)
    scores[0] = 0.0
    counts = np.zeros((places, total), np.int64)
    return Beam(CoreState(*fields), scores, np.zeros((places, 5)), counts, counts.copy(), np.zeros(places, np.int64))


@inlined
def _at(states: Any, place: int) -> CoreState:
    """One of several states."""
    return CoreState(
        states.tiles[place], states.pairs[place], states.spm[place], states.trial[place], states.time[place],
        states.trial_time[place], states.there[place], states.queue[place], states.clock[place], states.free[place],
        states.began[place], states.slots[place], states.open[place], states.stored[place], states.log[place],
        states.totals[place],
    )  # fmt: skip


@inner
def _copy(beam: Beam, source: int, target: int, done: int) -> int:
    """A partial schedule of `done` operations takes another place; steps of work."""
    old, new = beam.states, beam.states
    new.tiles[target] = old.tiles[source]
    new.pairs[target] = old.pairs[source]
    segments = old.totals[source].segments
    for index in range(segments):
        new.spm[target, index].rows = old.spm[source, index].rows
        new.spm[target, index].tile = old.spm[source, index].tile
        new.time[target, index] = old.time[source, index]
    new.there[target] = old.there[source]
    new.queue[target] = old.queue[source]
    new.clock[target] = old.clock[source]
    new.free[target] = old.free[source]
    new.began[target] = old.began[source]
    new.slots[target] = old.slots[source]
    new.open[target] = old.open[source]
    new.stored[target] = old.stored[source]
    new.totals[target] = old.totals[source]
    beam.pairs[target, :done] = beam.pairs[source, :done]
    beam.sizes[target, : beam.sets[source]] = beam.sizes[source, : beam.sets[source]]
    beam.sets[target] = beam.sets[source]
    return (
        7 * old.tiles.shape[1] + 7 * old.pairs.shape[1] + 3 * segments + old.slots.size // len(old.slots)
    ) // _COPIED


@inner
def _offer(branches: Branches, chosen: Array, size: int, outlook: Looked, priority: int) -> None:
    """A set takes its place among the best of its size."""
    count, looked = branches.counts[size], branches.looked[size]
    at = count
    while at > 0:
        other = Looked(True, looked[at - 1, 0], looked[at - 1, 1], looked[at - 1, 2], looked[at - 1, 3])
        if not better(outlook, other, priority):
            break
        at -= 1
    if at == BRANCHES:
        return
    last = min(count, BRANCHES - 1)
    for index in range(last, at, -1):
        looked[index] = looked[index - 1]
        branches.chosen[size, index] = branches.chosen[size, index - 1]
    looked[at, 0], looked[at, 1], looked[at, 2], looked[at, 3] = (
        outlook.benefit, outlook.occupied, outlook.moved, outlook.spilled,
    )  # fmt: skip
    branches.chosen[size, at, :size] = chosen[:size]
    branches.counts[size] = last + 1


@inner
def _few(ready: int, size: int) -> bool:
    """Whether no more than `FEW` sets of a size can be made of what is ready."""
    count = 1
    for index in range(size):
        count = count * (ready - index) // (index + 1)
    return count <= FEW


@inner
def _continue(
    work: LayerConstants, state: CoreState, room: Scratch, branches: Branches, size: int, priority: int, policy: int
) -> None:
    """All sets of a size that are possible, if there are few."""
    ready = state.totals.ready
    places, chosen = np.arange(size), np.zeros(size, np.int64)
    while True:
        for index in range(size):
            chosen[index] = state.queue[places[index]]
        if possible_sums(work, state, chosen, size):
            outlook = look(work, state, room, chosen, size, policy, 0)
            if outlook.possible:
                _offer(branches, chosen, size, outlook, priority)
        index = size - 1
        while index >= 0 and places[index] == ready - size + index:
            index -= 1
        if index < 0:
            return
        places[index] += 1
        for other in range(index + 1, size):
            places[other] = places[other - 1] + 1


@inner
def _branch(
    work: LayerConstants, state: CoreState, room: Scratch, branches: Branches, priority: int, policy: int
) -> None:
    """The best sets of each size."""
    most = min(work.dims.cores, state.totals.ready)
    branches.counts[:] = 0
    many = False
    for size in range(1, most + 1):
        if _few(state.totals.ready, size):
            _continue(work, state, room, branches, size, priority, policy)
        else:
            many = True
    if not many:
        return
    survey(work, state, room)
    room.list_stamps[:] = -1  # they were another state's
    state.totals.steps += len(room.list_stamps) // _COPIED
    enumerate_levels(work, state, room, most, priority, WIDTH, 0)
    for size in range(1, most + 1):
        if not _few(state.totals.ready, size):
            for number in range(room.counts[size]):
                outlook = look(work, state, room, room.sets[size, number], size, policy, 0)
                if outlook.possible:
                    _offer(branches, room.sets[size, number], size, outlook, priority)


@inner
def _enter(
    work: LayerConstants,
    beam: Beam,
    trial: int,
    first: int,
    width: int,
    chosen: Array,
    size: int,
    done: int,
    weights: Array,
    limit: float,
) -> int:
    """The schedule in place `trial`, which has come from `done` operations by one more set, takes one of `width` places
    from `first` on if it is among the best; steps of work."""
    state, total = _at(beam.states, trial), work.dims.m * work.dims.n * work.dims.k
    cycles = latency(work, state) if done + size == total else bound(work, state)
    score = metric(cycles, state.totals.moved + state.totals.least, weights)
    if score >= limit:
        return 0
    mark = beam.marks[trial]
    mark[0], mark[1], mark[2] = state.clock.dram, state.clock.end, state.free.sum()
    mark[3], mark[4] = state.totals.moved, state.totals.least
    worst = first
    for place in range(first, first + width):
        if beam.scores[place] == score and (beam.marks[place] == mark).all():
            return width
        if beam.scores[place] > beam.scores[worst]:
            worst = place
    if score >= beam.scores[worst]:
        return width
    beam.scores[worst] = score
    beam.marks[worst] = mark
    beam.pairs[trial, done : done + size] = chosen[:size]
    beam.sizes[trial, beam.sets[trial]] = size
    beam.sets[trial] += 1
    return width + _copy(beam, trial, worst, done + size)


@inner
def _spent(totals: Any) -> int:
    """Steps of work that a state has counted; it begins anew."""
    steps = totals.steps
    totals.steps = 0
    return steps


@compiled
def climb(
    work: LayerConstants,
    beam: Beam,
    room: Scratch,
    branches: Branches,
    width: int,
    priority: int,
    policy: int,
    weights: Array,
    limit: float,
    most: int,
) -> tuple[int, int]:
    """Continues the empty schedule until all operations are done: the place of the best schedule whose metric is below
    `limit` (-1: there is none, or it has taken more than `most` steps), and the steps of work."""
    dims = work.dims
    total, trial, steps = dims.m * dims.n * dims.k, width * (dims.cores + 1), 0
    for done in range(total):
        first = width * (done % (dims.cores + 1))
        for place in range(first, first + width):
            if beam.scores[place] >= limit:
                beam.scores[place] = np.inf
                continue
            state = _at(beam.states, place)
            apart(work, state)
            _branch(work, state, room, branches, priority, policy)
            if branches.counts.sum() == 0:  # nothing finds room
                flush(work, state, state.log, False)
                _continue(work, state, room, branches, 1, priority, policy)
            steps += _spent(state.totals)
            for size in range(1, dims.cores + 1):
                for number in range(branches.counts[size]):
                    steps += _copy(beam, place, trial, done)
                    tried, chosen = _at(beam.states, trial), branches.chosen[size, number]
                    commit(work, tried, room.wanted, room.gone, chosen, size, policy, 0, tried.log, False)
                    steps += _spent(tried.totals)
                    there = width * ((done + size) % (dims.cores + 1))
                    steps += _enter(work, beam, trial, there, width, chosen, size, done, weights, limit)
            beam.scores[place] = np.inf
            if steps > most:
                return -1, steps
    first = width * (total % (dims.cores + 1))
    best = first
    for place in range(first, first + width):
        if beam.scores[place] < beam.scores[best]:
            best = place
    return best if beam.scores[best] < limit else -1, steps


def branches_of(dims: Dims) -> Branches:
    """Room for the sets that one partial schedule is continued with."""
    cores = dims.cores
    return Branches(
        np.zeros((cores + 1, BRANCHES, cores), np.int64), np.zeros((cores + 1, BRANCHES, 4), np.int64),
        np.zeros(cores + 1, np.int64),
    )  # fmt: skip


def ahead(
    start: Start, room: Scratch, width: int, priority: int, policy: int, weights: Array, limit: float, most: int
) -> tuple[Sequence | None, int]:
    """The best sequence that `width` partial schedules side by side come to, and the steps of work; None: there is none
    whose metric is below `limit`, or it takes more than `most` steps. `priority`, `policy`: as for `sets.choose`."""
    beam = beam_of(start, width)
    place, steps = climb(
        start.work, beam, room, branches_of(start.work.dims), width, priority, policy, weights, limit, most
    )
    if place < 0:
        return None, steps
    pairs, sizes = beam.pairs[place].copy(), beam.sizes[place, : beam.sets[place]]
    depth = np.array([int((pairs[:at] == pair).sum()) for at, pair in enumerate(pairs)], np.int64)
    return sequence(start.work.dims, pairs, depth, np.concatenate([[0], np.cumsum(sizes)])), steps
