"""What a set of operations does: tiles come and go, cores compute, clocks advance.

Times are those of the chip, estimated. DRAM moves one word after the other, what is ready first; the scratchpad's ports
and each core's link carry what a core does not hold already; a core's array runs its operations in order. Operands of
the next operation travel while the present one computes, as far as the core has room for both. A load waits until the
words that it overwrites have been read.
"""

from __future__ import annotations

import numpy as np

from . import policy as rules
from .jit import compiled, inner
from .memory import place
from .state import (
    A_SLOTS,
    CORE,
    CORES,
    DEEP,
    DIRTY,
    DRAIN,
    DRAM,
    DROP,
    END,
    FAR,
    GIVE,
    HEIGHT,
    HOME,
    LEAST,
    LEFT,
    LINK,
    LOAD,
    LOAD_CODE,
    LOGGED,
    MOVED,
    NEAR,
    NEXT,
    OF_M,
    OF_N,
    ONE,
    OUT_SLOTS,
    PIN,
    PORT,
    READY,
    RESULT,
    RUN,
    RUN_CODE,
    SEGMENTS,
    SPILLED,
    STAMP,
    STEPS,
    STORE,
    STORE_CODE,
    SUM_SLOTS,
    TWO,
    USES,
    WHERE,
    WORDS,
    Array,
    K,
    M,
    N,
    State,
    Work,
)


@inner
def sums_of(work: Work, pair: int) -> int:
    """The number of a pair's partial sums among the tiles."""
    return (work.dims[M] + work.dims[N]) * work.dims[K] + pair


@inner
def log_event(log: Array, totals: Array, kind: int, what: int, where: int, words: int) -> Array:
    """Appends an event, to a longer array if need be."""
    at = totals[LOGGED]
    if at == len(log):
        longer = np.zeros((2 * len(log), 4), np.int64)
        longer[: len(log)] = log
        log = longer
    log[at, 0], log[at, 1], log[at, 2], log[at, 3] = kind, what, where, words
    totals[LOGGED] = at + 1
    return log


@inner
def dram(work: Work, state: State, words: int, code: float, after: float) -> float:
    """DRAM moves words and code from `after` on at the earliest; when it is done.

    What has to wait holds up no other move: whatever is ready goes first (see `emit`).
    """
    cycles = (words + code) * work.rates[DRAM]
    state.clock[0] += cycles
    return max(state.clock[0], after + cycles)


@inner
def leave(work: Work, state: State, tile: int, row: int, log: Array, record: bool) -> tuple[float, Array]:
    """A live tile is given up; cycle from which its words may be overwritten (if later than they are read), the log."""
    words, kind, done = state.tiles[tile, WORDS], DROP, 0.0
    state.totals[SPILLED] += words
    state.totals[LEAST] += words  # it must come again
    state.tiles[tile, WHERE] = -1
    if state.tiles[tile, DIRTY]:
        # The core that made the sums hands them over as soon as they are complete.
        done = dram(work, state, words, work.rates[STORE_CODE], state.there[tile])
        state.totals[MOVED] += words
        state.tiles[tile, DIRTY] = 0
        kind = STORE
    if record:
        log = log_event(log, state.totals, kind, tile, row, words)
    return done, log


@inner
def come(work: Work, state: State, tile: int, free: float, given: bool, log: Array, record: bool) -> Array:
    """A tile comes to its place, whose words are free from cycle `free` on; the log. `given`: sums that are new."""
    words, kind = state.tiles[tile, WORDS], GIVE
    state.there[tile] = free
    if not given:
        kind = LOAD
        state.there[tile] = dram(work, state, words, work.rates[LOAD_CODE], free) + work.rates[FAR]
        state.totals[MOVED] += words
        state.totals[LEAST] -= words
    if record:
        log = log_event(log, state.totals, kind, tile, state.tiles[tile, WHERE], words)
    return log


@inner
def _locate(state: State) -> None:
    """Enters in the table of tiles what lies in the scratchpad."""
    row = 0
    for index in range(state.totals[SEGMENTS]):
        if state.spm[index, 1] >= 0:
            state.tiles[state.spm[index, 1], WHERE] = row
        row += state.spm[index, 0]


@inner
def segment_of(spm: Array, tile: int) -> int:
    """The segment of a tile that is there."""
    index = 0
    while spm[index, 1] != tile:
        index += 1
    return index


@inner
def bring(
    work: Work, state: State, wanted: Array, gone: Array, pairs: Array, size: int, policy: int, now: int, log: Array,
    record: bool,
) -> Array:  # fmt: skip
    """Gives the tiles of a possible set (see `sets.look`) their places, and moves them there; the log."""
    state.totals[STAMP] += 1
    stamp = state.totals[STAMP]
    missing, first_sums = 0, sums_of(work, 0)
    for turn in range(3 * size):  # as in `sets.look`
        kind, pair = 2 - turn // size, pairs[turn % size]
        tile = state.pairs[pair, ONE + kind] if kind < 2 else first_sums + pair
        if state.tiles[tile, HEIGHT] > 0 and state.tiles[tile, PIN] != stamp:
            state.tiles[tile, PIN] = stamp
            if state.tiles[tile, WHERE] < 0:
                wanted[missing] = tile
                missing += 1
    if not missing:
        return log
    fetched = wanted[:missing].copy()
    count = state.totals[SEGMENTS]
    state.totals[STEPS] += (2 + 3 * missing) * count
    before = state.spm[:count, 1].copy()
    count, lost = place(state.spm, state.time, count, state.tiles, stamp, now, wanted, missing, policy, gone)
    state.totals[SEGMENTS] = count
    stored = 0.0
    for index in range(lost):
        done, log = leave(work, state, gone[index], state.tiles[gone[index], WHERE], log, record)
        stored = max(stored, done)
    for index in range(len(before)):
        if before[index] >= 0:
            state.tiles[before[index], WHERE] = -1
    _locate(state)
    for index in range(missing):
        tile = fetched[index]
        at = segment_of(state.spm, tile)
        state.time[at] = max(state.time[at], stored)
        given = tile >= first_sums and state.pairs[tile - first_sums, DEEP] == 0
        log = come(work, state, tile, state.time[at], given, log, record)
    return log


@compiled
def flush(work: Work, state: State, log: Array, record: bool) -> Array:
    """Everything leaves the scratchpad; the log."""
    time, row = 0.0, 0
    state.totals[STEPS] += state.totals[SEGMENTS]
    for index in range(state.totals[SEGMENTS]):
        tile = state.spm[index, 1]
        time = max(time, state.time[index])
        if tile >= 0:
            if state.tiles[tile, USES] > 0:
                done, log = leave(work, state, tile, row, log, record)
                time = max(time, done)
            state.tiles[tile, WHERE] = -1
        row += state.spm[index, 0]
    state.totals[SEGMENTS] = 1
    state.spm[0, 0], state.spm[0, 1], state.time[0] = row, -1, time
    return log


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
def assign(work: Work, state: State, pairs: Array, size: int, cores: Array) -> None:
    """Each operation of a set to the core that holds most of its tiles, the best match first.

    Sums that stay at home decide alone; a new pair then needs a core with room for one more. If no core without an
    operation of the set has that, one that has gets two.
    """
    total, home = work.dims[CORES], work.dims[HOME]
    taken, fresh = np.zeros(total, np.int64), state.open.copy()
    for index in range(size):
        cores[index] = -1
        if home and state.pairs[pairs[index], DEEP] > 0:
            cores[index] = state.pairs[pairs[index], CORE]
            taken[cores[index]] = 1
    twice = False
    state.totals[STEPS] += size * size * total
    for _ in range(2 * size):
        best, best_core, best_gain, best_free = -1, -1, -1, 0.0
        for index in range(size):
            if cores[index] >= 0:
                continue
            pair = pairs[index]
            for core in range(total):
                if (taken[core] and not twice) or (home and fresh[core] >= work.dims[SUM_SLOTS]):
                    continue
                gain, slots = 0, state.slots[core]
                if (
                    state.pairs[pair, DEEP] > 0
                    and state.pairs[pair, CORE] == core
                    and _holds(slots[2], pair, work.dims[SUM_SLOTS])
                ):
                    gain += 2 * state.tiles[sums_of(work, pair), WORDS]
                if _holds(slots[0], state.pairs[pair, ONE], work.dims[A_SLOTS]):
                    gain += state.tiles[state.pairs[pair, ONE], WORDS]
                if _holds(slots[1], state.pairs[pair, TWO], work.dims[A_SLOTS + 1]):
                    gain += state.tiles[state.pairs[pair, TWO], WORDS]
                if gain > best_gain or (gain == best_gain and state.free[core] < best_free):
                    best, best_core, best_gain, best_free = index, core, gain, state.free[core]
        if best < 0:
            if twice:
                return
            twice = True
            continue
        cores[best] = best_core
        taken[best_core] = 1
        fresh[best_core] += 1


@inner
def _sums(work: Work, state: State, pair: int, core: int) -> tuple[int, float]:
    """Words of partial sums that an operation pulls, and when they are there."""
    rates, tile = work.rates, sums_of(work, pair)
    resident = _hold(state.slots[core, 2], pair, work.dims[SUM_SLOTS]) and state.pairs[pair, CORE] == core
    if state.pairs[pair, DEEP] == 0 or (resident and (state.tiles[tile, DIRTY] or work.dims[HOME])):
        return 0, 0.0
    words, ready = state.tiles[tile, WORDS], state.there[tile] + rates[NEAR]
    if state.tiles[tile, DIRTY]:  # from the core that made them, by way of the scratchpad
        ready += words * rates[LINK]
    return words, ready


@inner
def _run(work: Work, state: State, pair: int, core: int) -> None:
    """Runs an operation whose tiles are in the scratchpad, or on their way there."""
    rates, deep, k = work.rates, state.pairs[pair, DEEP], work.dims[K]
    one, two, sums = state.pairs[pair, ONE], state.pairs[pair, TWO], sums_of(work, pair)
    words, ready, pull = 0, 0.0, state.began[core]
    if k > 1:
        words, ready = _sums(work, state, pair, core)
    for kind in range(2):
        tile = one if kind == 0 else two
        room = work.dims[A_SLOTS + kind]
        ready = max(ready, state.there[tile])
        if not _hold(state.slots[core, kind], tile, room):
            words += state.tiles[tile, WORDS]
            if room == 1:  # no second slot: the operation before must be done
                pull = max(pull, state.free[core])
        state.tiles[tile, USES] -= 1
    pulled = ready
    if words:
        state.clock[1] = max(state.clock[1], min(ready, pull)) + words * rates[PORT]
        pulled = max(max(ready, pull) + words * rates[LINK], state.clock[1]) + rates[NEAR]
    begin = max(state.free[core], pulled)
    if deep + 1 == k:
        begin = max(begin, state.stored[core, 0])
    cycles = work.cycles[pair, one - state.pairs[pair, OF_M] * k]
    state.began[core] = begin
    state.free[core] = begin + cycles
    done = state.free[core] + rates[DRAIN]
    state.totals[LEFT] -= cycles
    state.clock[0] += rates[RUN_CODE] * rates[DRAM]
    for tile in (one, two, sums):
        if state.tiles[tile, HEIGHT] > 0:
            at = segment_of(state.spm, tile)
            state.totals[STEPS] += at
            state.time[at] = max(state.time[at], pulled)
    if k > 1:
        state.tiles[sums, USES] -= 1
        state.there[sums] = done
        state.tiles[sums, DIRTY] = 1
        state.pairs[pair, CORE] = core
        state.open[core] += (1 if deep == 0 else 0) - (1 if deep + 1 == k else 0)
    if deep + 1 == k:
        words = state.pairs[pair, RESULT]
        state.clock[0] += (words + rates[STORE_CODE]) * rates[DRAM]
        # Results wait for each other, and take turns with what is read meanwhile.
        left = max(done, state.clock[3]) + words * rates[DRAM] * (2 if state.totals[READY] > 0 else 1)
        state.clock[3] = max(done, state.clock[3]) + words * rates[DRAM]
        done = max(state.clock[3], state.clock[0])
        state.totals[MOVED] += words
        state.totals[LEAST] -= words
        state.tiles[sums, DIRTY] = 0
        for index in range(1, work.dims[OUT_SLOTS]):
            state.stored[core, index - 1] = state.stored[core, index]
        state.stored[core, work.dims[OUT_SLOTS] - 1] = max(left, done)
    state.clock[2] = max(state.clock[2], done)


@inner
def position(work: Work, state: State, pair: int) -> int:
    """Place of a pair's next operation in the loop nest."""
    return (
        state.pairs[pair, OF_M] * work.place[M]
        + state.pairs[pair, OF_N] * work.place[N]
        + state.pairs[pair, DEEP] * work.place[K]
    )


@inner
def _wake(work: Work, state: State, pair: int) -> None:
    """The next operation of a pair takes its place in the ready queue; a pair that is done leaves it."""
    queue, count = state.queue, state.totals[READY]
    at = 0
    while queue[at] != pair:
        at += 1
    state.pairs[pair, DEEP] += 1
    state.pairs[pair, ONE] += 1
    state.pairs[pair, TWO] += 1
    if state.pairs[pair, DEEP] == work.dims[K]:
        for index in range(at, count - 1):
            queue[index] = queue[index + 1]
        state.totals[READY] = count - 1
        return
    here = position(work, state, pair)
    while at + 1 < count and position(work, state, queue[at + 1]) < here:
        queue[at] = queue[at + 1]
        at += 1
    while at > 0 and position(work, state, queue[at - 1]) > here:
        queue[at] = queue[at - 1]
        at -= 1
    queue[at] = pair
    state.totals[STEPS] += at


@inner
def run_one(work: Work, state: State, pair: int, core: int, log: Array, record: bool) -> Array:
    """An operation on its core; the log."""
    if record:
        k = state.pairs[pair, ONE] - state.pairs[pair, OF_M] * work.dims[K]
        log = log_event(log, state.totals, RUN, pair * work.dims[K] + k, core, 0)
    _run(work, state, pair, core)
    state.totals[STEPS] += 10
    return log


@inner
def run_set(work: Work, state: State, pairs: Array, cores: Array, size: int, log: Array, record: bool) -> Array:
    """The operations of a set on their cores, and what they wake up; the log."""
    for index in range(size):
        log = run_one(work, state, pairs[index], cores[index], log, record)
    for index in range(size):
        _wake(work, state, pairs[index])
    return log


@compiled
def commit(
    work: Work, state: State, wanted: Array, gone: Array, pairs: Array, size: int, policy: int, now: int, log: Array,
    record: bool,
) -> Array:  # fmt: skip
    """Schedules a possible set: memory operations, its operations on the cores, what they wake up; the log."""
    if record:
        log = log_event(log, state.totals, NEXT, size, 0, 0)
    log = bring(work, state, wanted, gone, pairs, size, policy, now, log, record)
    cores = np.zeros(size, np.int64)
    assign(work, state, pairs, size, cores)
    return run_set(work, state, pairs, cores, size, log, record)


@inner
def latency(work: Work, state: State) -> float:
    """Cycles of what is scheduled."""
    return max(state.clock[0], state.clock[2]) + work.rates[END]


@inner
def bound(work: Work, state: State) -> float:
    """Cycles that a schedule takes at least, whatever follows."""
    arrays = (state.free.sum() + state.totals[LEFT]) / work.dims[CORES] + work.rates[DRAIN]
    moves = state.clock[0] + state.totals[LEAST] * work.rates[DRAM]
    return max(arrays, moves, state.clock[2]) + work.rates[END]


power = inner(rules.power)


@inner
def metric(cycles: float, words: float, weights: Array) -> float:
    """cycles ** weights[0] * words ** weights[1]."""
    return power(cycles, weights[0]) * power(words, weights[1])


@inner
def hopeless(work: Work, state: State, weights: Array, limit: float, most: int) -> bool:
    """Whether a schedule must end above a limit of the metric, or has taken more than `most` steps of work."""
    return (
        state.totals[STEPS] > most
        or metric(bound(work, state), state.totals[MOVED] + state.totals[LEAST], weights) > limit
    )
