"""What a set of operations does: tiles come and go, cores compute, clocks advance.

Times are those of the chip, estimated. DRAM moves one word after the other, what is ready first; the scratchpad's ports
and each core's link carry what a core does not hold already; a core's array runs its operations in order. Operands of
the next operation travel while the present one computes, as far as the core has room for both. A load waits until the
words that it overwrites have been read.
"""

from __future__ import annotations

import numpy as np

from ...support.records import Table
from . import policy as rules
from .jit import compiled, inner
from .memory import place
from .state import (
    DROP,
    EVENT,
    GIVE,
    LOAD,
    NEXT,
    RUN,
    STORE,
    Array,
    CoreState,
    LayerConstants,
    OutputPair,
    Segment,
    Totals,
)


@inner
def sums_of(work: LayerConstants, pair: int) -> int:
    """The number of a pair's partial sums among the tiles."""
    return (work.dims.m + work.dims.n) * work.dims.k + pair


@inner
def operand(pairs: Table[OutputPair], pair: int, kind: int) -> int:
    """The input tile (kind 0) or the weight tile (1) of a pair's next operation."""
    return pairs[pair].input if kind == 0 else pairs[pair].weight


@inner
def log_event(log: Array, totals: Totals, kind: int, what: int, where: int, words: int) -> Array:
    """Appends an event, to a longer array if need be."""
    at = totals.logged
    if at == len(log):
        longer = np.zeros(2 * len(log), EVENT)
        longer[: len(log)] = log
        log = longer
    event = log[at]
    event.kind, event.what, event.where, event.words = kind, what, where, words
    totals.logged = at + 1
    return log


@inner
def dram(work: LayerConstants, state: CoreState, words: int, code: float, after: float) -> float:
    """DRAM moves words and code from `after` on at the earliest; when it is done.

    What has to wait holds up no other move: whatever is ready goes first (see `emit`).
    """
    cycles = (words + code) * work.rates.dram
    state.clock.dram += cycles
    return max(state.clock.dram, after + cycles)


@inner
def leave(work: LayerConstants, state: CoreState, tile: int, row: int, log: Array, record: bool) -> tuple[float, Array]:
    """A live tile is given up; cycle from which its words may be overwritten (if later than they are read), the log."""
    words, kind, done = state.tiles[tile].words, DROP, 0.0
    state.totals.spilled += words
    state.totals.least += words  # it must come again
    state.tiles[tile].where = -1
    if state.tiles[tile].dirty:
        # The core that made the sums hands them over as soon as they are complete.
        done = dram(work, state, words, work.rates.store_code, state.there[tile])
        state.totals.moved += words
        state.tiles[tile].dirty = 0
        kind = STORE
    if record:
        log = log_event(log, state.totals, kind, tile, row, words)
    return done, log


@inner
def come(
    work: LayerConstants, state: CoreState, tile: int, free: float, partial: bool, log: Array, record: bool
) -> Array:
    """A tile comes to its place, whose words are free from cycle `free` on; the log. `partial`: sums that are new."""
    words, kind = state.tiles[tile].words, GIVE
    state.there[tile] = free
    if not partial:
        kind = LOAD
        state.there[tile] = dram(work, state, words, work.rates.load_code, free) + work.rates.far
        state.totals.moved += words
        state.totals.least -= words
    if record:
        log = log_event(log, state.totals, kind, tile, state.tiles[tile].where, words)
    return log


@inner
def _locate(state: CoreState) -> None:
    """Enters in the table of tiles what lies in the scratchpad."""
    row = 0
    for index in range(state.totals.segments):
        if state.spm[index].tile >= 0:
            state.tiles[state.spm[index].tile].where = row
        row += state.spm[index].rows


@inner
def segment_of(spm: Table[Segment], tile: int) -> int:
    """The segment of a tile that is there."""
    index = 0
    while spm[index].tile != tile:
        index += 1
    return index


@inner
def bring(
    work: LayerConstants,
    state: CoreState,
    missing_tiles: Array,
    gone: Array,
    pairs: Array,
    size: int,
    policy: int,
    now: int,
    log: Array,
    record: bool,
) -> Array:
    """Gives the tiles of a possible set their places, and moves them there; the log.

    Places depend on the clock, so nothing may have advanced it since `sets.look` found the set possible.
    """
    state.totals.stamp += 1
    stamp = state.totals.stamp
    missing, first_sums = 0, sums_of(work, 0)
    for turn in range(3 * size):  # as in `sets.look`
        kind, pair = 2 - turn // size, pairs[turn % size]
        tile = operand(state.pairs, pair, kind) if kind < 2 else first_sums + pair
        if state.tiles[tile].height > 0 and state.tiles[tile].pin != stamp:
            state.tiles[tile].pin = stamp
            if state.tiles[tile].where < 0:
                missing_tiles[missing] = tile
                missing += 1
    if not missing:
        return log
    fetched = missing_tiles[:missing].copy()
    count = state.totals.segments
    state.totals.steps += (2 + 3 * missing) * count
    before = np.empty(count, np.int64)
    for index in range(count):
        before[index] = state.spm[index].tile
    count, lost = place(
        state.spm, state.time, count, state.tiles, stamp, now, missing_tiles, missing, policy, state.clock.dram, gone
    )
    assert lost >= 0  # what was not placed would be looked for beyond the last segment
    state.totals.segments = count
    stored = 0.0
    for index in range(lost):
        done, log = leave(work, state, gone[index], state.tiles[gone[index]].where, log, record)
        stored = max(stored, done)
    for index in range(len(before)):
        if before[index] >= 0:
            state.tiles[before[index]].where = -1
    _locate(state)
    for index in range(missing):
        tile = fetched[index]
        at = segment_of(state.spm, tile)
        state.time[at] = max(state.time[at], stored)
        partial = tile >= first_sums and state.pairs[tile - first_sums].depth == 0
        log = come(work, state, tile, state.time[at], partial, log, record)
    return log


@compiled
def flush(work: LayerConstants, state: CoreState, log: Array, record: bool) -> Array:
    """Everything leaves the scratchpad; the log."""
    time, row = 0.0, 0
    state.totals.steps += state.totals.segments
    for index in range(state.totals.segments):
        tile = state.spm[index].tile
        time = max(time, state.time[index])
        if tile >= 0:
            if state.tiles[tile].uses > 0:
                done, log = leave(work, state, tile, row, log, record)
                time = max(time, done)
            state.tiles[tile].where = -1
        row += state.spm[index].rows
    state.totals.segments = 1
    state.spm[0].rows, state.spm[0].tile, state.time[0] = row, -1, time
    apart(work, state)
    return log


@inner
def apart(work: LayerConstants, state: CoreState) -> None:
    """Without overlap: what comes next comes when all that is scheduled has ended. Called before a set is looked at."""
    if work.dims.overlap:
        return
    ended = max(state.clock.dram, state.clock.end)
    for core in range(work.dims.cores):
        ended = max(ended, state.free[core] + work.rates.drain)
    state.clock.dram = state.clock.ports = ended


@inner
def gathered(work: LayerConstants, state: CoreState, pairs: Array, size: int) -> None:
    """Without overlap: no tile of a set can be read before all of them have come."""
    come, first = 0.0, sums_of(work, 0)
    for index in range(size):
        pair = pairs[index]
        for kind in range(3):
            tile = operand(state.pairs, pair, kind) if kind < 2 else first + pair
            come = max(come, state.there[tile])
    for index in range(size):
        pair = pairs[index]
        for kind in range(3):
            state.there[operand(state.pairs, pair, kind) if kind < 2 else first + pair] = come


@inner
def _hold(slots: Array, tile: int, room: int) -> bool:
    """Whether a core's memory of `room` tiles holds a tile; then, or once it has come, it was used last."""
    at = 0
    while at < room and slots[at] != tile:
        at += 1
    for index in range(min(at, room - 1), 0, -1):
        slots[index] = slots[index - 1]
    slots[0] = tile
    return at < room


@inner
def _holds(slots: Array, tile: int, room: int) -> bool:
    """Whether a core's memory of `room` tiles holds a tile."""
    at = 0
    while at < room and slots[at] != tile:
        at += 1
    return at < room


@inner
def _gain(work: LayerConstants, state: CoreState, pair: int, core: int) -> int:
    """Words that a pair's next operation finds in a core's own memories; its sums count twice, for they would come and
    go."""
    gain, slots = 0, state.slots[core]
    if state.pairs[pair].depth > 0 and state.pairs[pair].core == core and _holds(slots[2], pair, work.dims.sum_slots):
        gain += 2 * state.tiles[sums_of(work, pair)].words
    if _holds(slots[0], state.pairs[pair].input, work.dims.a_slots):
        gain += state.tiles[state.pairs[pair].input].words
    if _holds(slots[1], state.pairs[pair].weight, work.dims.b_slots):
        gain += state.tiles[state.pairs[pair].weight].words
    return gain


@inner
def assign(work: LayerConstants, state: CoreState, pairs: Array, size: int, cores: Array) -> bool:
    """Each operation of a set to the core that holds most of its tiles, the best match first.

    Sums that stay at home decide alone; a new pair then needs a core with room for one more. If no core without an
    operation of the set has that, one that has gets two. Whether all have a core; if one has none, the set must not be
    scheduled. Nothing but `cores` and the count of steps changes.
    """
    total, home = work.dims.cores, work.dims.home
    occupied, fresh = np.zeros(total, np.int64), state.open.copy()
    for index in range(size):
        cores[index] = -1
        if home and state.pairs[pairs[index]].depth > 0:
            cores[index] = state.pairs[pairs[index]].core
            occupied[cores[index]] = 1
    twice = False
    state.totals.steps += size * size * total
    for _ in range(2 * size):
        best, best_core, best_gain, best_free = -1, -1, -1, 0.0
        for index in range(size):
            if cores[index] >= 0:
                continue
            pair = pairs[index]
            for core in range(total):
                if (occupied[core] and not twice) or (home and fresh[core] >= work.dims.sum_slots):
                    continue
                gain = 0
                if work.dims.private:
                    gain = _gain(work, state, pair, core)
                if gain > best_gain or (gain == best_gain and state.free[core] < best_free):
                    best, best_core, best_gain, best_free = index, core, gain, state.free[core]
        if best < 0:
            if twice:
                break
            twice = True
            continue
        cores[best] = best_core
        occupied[best_core] = 1
        fresh[best_core] += 1
    return size == 0 or cores[:size].min() >= 0


@inner
def _sums(work: LayerConstants, state: CoreState, pair: int, core: int) -> tuple[int, float]:
    """Words of partial sums that an operation pulls, and when they are there."""
    rates, tile = work.rates, sums_of(work, pair)
    resident = _hold(state.slots[core, 2], pair, work.dims.sum_slots) and state.pairs[pair].core == core
    resident = resident and (work.dims.private or work.dims.home)
    if state.pairs[pair].depth == 0 or (resident and (state.tiles[tile].dirty or work.dims.home)):
        return 0, 0.0
    words, ready = state.tiles[tile].words, state.there[tile] + rates.near
    if state.tiles[tile].dirty:  # from the core that made them, by way of the scratchpad
        ready += words * rates.link
    return words, ready


@inner
def _run(work: LayerConstants, state: CoreState, pair: int, core: int) -> None:
    """Runs an operation whose tiles are in the scratchpad, or on their way there."""
    rates, deep, k = work.rates, state.pairs[pair].depth, work.dims.k
    one, two, sums = state.pairs[pair].input, state.pairs[pair].weight, sums_of(work, pair)
    words, ready, pull = 0, 0.0, state.began[core]
    if k > 1:
        words, ready = _sums(work, state, pair, core)
    for kind in range(2):
        tile = one if kind == 0 else two
        room = work.dims.a_slots if kind == 0 else work.dims.b_slots
        ready = max(ready, state.there[tile])
        if not (_hold(state.slots[core, kind], tile, room) and work.dims.private):
            words += state.tiles[tile].words
            if room == 1:  # no second slot: the operation before must be done
                pull = max(pull, state.free[core])
        state.tiles[tile].uses -= 1
    pulled = ready
    if words:
        state.clock.ports = max(state.clock.ports, min(ready, pull)) + words * rates.port
        pulled = max(max(ready, pull) + words * rates.link, state.clock.ports) + rates.near
    begin = max(state.free[core], pulled)
    if deep + 1 == k:
        begin = max(begin, state.stored[core, 0])
    cycles = work.cycles[pair, one - state.pairs[pair].m * k]
    state.began[core] = begin
    state.free[core] = begin + cycles
    done = state.free[core] + rates.drain
    state.totals.left -= cycles
    state.clock.dram += rates.run_code * rates.dram
    for tile in (one, two, sums):
        if state.tiles[tile].height > 0:
            at = segment_of(state.spm, tile)
            state.totals.steps += at
            state.time[at] = max(state.time[at], pulled)
    if k > 1:
        state.tiles[sums].uses -= 1
        state.there[sums] = done
        state.tiles[sums].dirty = 1
        state.pairs[pair].core = core
        state.open[core] += (1 if deep == 0 else 0) - (1 if deep + 1 == k else 0)
    if deep + 1 == k:
        words = state.pairs[pair].result
        state.clock.dram += (words + rates.store_code) * rates.dram
        # Results wait for each other, and take turns with what is read meanwhile.
        left = max(done, state.clock.results) + words * rates.dram * (2 if state.totals.ready > 0 else 1)
        state.clock.results = max(done, state.clock.results) + words * rates.dram
        done = max(state.clock.results, state.clock.dram)
        state.totals.moved += words
        state.totals.least -= words
        state.tiles[sums].dirty = 0
        for index in range(1, work.dims.out_slots):
            state.stored[core, index - 1] = state.stored[core, index]
        state.stored[core, work.dims.out_slots - 1] = max(left, done)
    state.clock.end = max(state.clock.end, done)


@inner
def position(work: LayerConstants, state: CoreState, pair: int) -> int:
    """Place of a pair's next operation in the loop nest."""
    return (
        state.pairs[pair].m * work.place.m + state.pairs[pair].n * work.place.n + state.pairs[pair].depth * work.place.k
    )


@inner
def _wake(work: LayerConstants, state: CoreState, pair: int) -> None:
    """The next operation of a pair takes its place in the ready queue; a pair that is done leaves it."""
    queue, count = state.queue, state.totals.ready
    at = 0
    while queue[at] != pair:
        at += 1
    state.pairs[pair].depth += 1
    state.pairs[pair].input += 1
    state.pairs[pair].weight += 1
    if state.pairs[pair].depth == work.dims.k:
        for index in range(at, count - 1):
            queue[index] = queue[index + 1]
        state.totals.ready = count - 1
        return
    here = position(work, state, pair)
    while at + 1 < count and position(work, state, queue[at + 1]) < here:
        queue[at] = queue[at + 1]
        at += 1
    while at > 0 and position(work, state, queue[at - 1]) > here:
        queue[at] = queue[at - 1]
        at -= 1
    queue[at] = pair
    state.totals.steps += at


@inner
def run_one(work: LayerConstants, state: CoreState, pair: int, core: int, log: Array, record: bool) -> Array:
    """An operation on its core; the log."""
    if record:
        k = state.pairs[pair].input - state.pairs[pair].m * work.dims.k
        log = log_event(log, state.totals, RUN, pair * work.dims.k + k, core, 0)
    _run(work, state, pair, core)
    state.totals.steps += 10
    return log


@inner
def run_set(
    work: LayerConstants, state: CoreState, pairs: Array, cores: Array, size: int, log: Array, record: bool
) -> Array:
    """The operations of a set on their cores, and what they wake up; the log."""
    for index in range(size):
        log = run_one(work, state, pairs[index], cores[index], log, record)
    for index in range(size):
        _wake(work, state, pairs[index])
    return log


@compiled
def commit(
    work: LayerConstants,
    state: CoreState,
    missing_tiles: Array,
    gone: Array,
    pairs: Array,
    size: int,
    policy: int,
    now: int,
    log: Array,
    record: bool,
) -> Array:
    """Schedules a possible set: memory operations, its operations on the cores, what they wake up; the log."""
    cores = np.zeros(size, np.int64)
    fits = assign(work, state, pairs, size, cores)
    assert fits  # sets that cores have no room for have been left out (`sets._clash`)
    if record:
        log = log_event(log, state.totals, NEXT, size, 0, 0)
    log = bring(work, state, missing_tiles, gone, pairs, size, policy, now, log, record)
    if not work.dims.overlap:
        gathered(work, state, pairs, size)
    return run_set(work, state, pairs, cores, size, log, record)


@inner
def latency(work: LayerConstants, state: CoreState) -> float:
    """Cycles of what is scheduled."""
    return max(state.clock.dram, state.clock.end) + work.rates.end


@inner
def bound(work: LayerConstants, state: CoreState) -> float:
    """Cycles that a schedule takes at least, whatever follows."""
    arrays = (state.free.sum() + state.totals.left) / work.dims.cores + work.rates.drain
    moves = state.clock.dram + state.totals.least * work.rates.dram
    return max(arrays, moves, state.clock.end) + work.rates.end


power = inner(rules.power)


@inner
def metric(cycles: float, words: float, weights: Array) -> float:
    """cycles ** weights[0] * words ** weights[1]."""
    return power(cycles, weights[0]) * power(words, weights[1])


@inner
def hopeless(work: LayerConstants, state: CoreState, weights: Array, limit: float, most: int) -> bool:
    """Whether a schedule must end above a limit of the metric, or has taken more than `most` steps of work."""
    return (
        state.totals.steps > most
        or metric(bound(work, state), state.totals.moved + state.totals.least, weights) > limit
    )
