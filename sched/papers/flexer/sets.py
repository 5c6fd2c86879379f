"""Sets of operations that could run side by side next: which there are, and the best of them.

Sets whose data flow is the same are looked at once. A data flow is, for each type of tile, how many tiles are new and
how many are there already, and by how many of the operations each is used: the dataflow map of the paper's Figure 7
(c). `EVERY` looks at all sets; `PRUNED` enumerates all and looks at the first of each data flow, as the paper does;
`LEVELS` grows sets operation by operation and keeps one of each data flow at each size, so that it never enumerates
them all; `BEAM` grows only the most promising of these. Source: Min, Kwon, Egger, "Flexer" (CGO 2023), sections 4.2
and 4.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from ...support.records import Table, layout
from .jit import compiled, inner
from .machine import operand, sums_of
from .memory import place
from .state import Array, BufferTile, CoreState, Dims, LayerConstants, OutputPair, Segment, Start

EVERY, PRUNED, LEVELS, BEAM = range(4)
#: Orders of priority: the paper's; Table 2's "min transfer" and "min spilling".
BENEFIT, MIN_TRANSFER, MIN_SPILL = range(3)

#: Sets of one size that `BEAM` grows.
WIDTH = 4
#: Sets of one size that `LEVELS` keeps at most, and the room of the table that it finds data flows in.
MOST = 512
_TABLE = 8192
_FAR = 1 << 60


class About:
    """A set: hash of its data flow; words that are there already; rows that are needed; words to load; cores (bits)
    that are bound by sums."""

    flow: int
    reused: int
    needed: int
    fetched: int
    bound: int


class Seen:
    """A data flow that was met, and since when that holds."""

    key: int
    since: int


class Marks:
    """The present time of the table of data flows, and how many entries it has."""

    now: int
    entries: int


ABOUT, SEEN, MARKS = (layout(kind) for kind in (About, Seen, Marks))


class Looked(NamedTuple):
    """Whether a set is possible; its benefit; rows that live tiles occupy then; words to move, and spilled."""

    possible: bool
    benefit: int
    occupied: int
    moved: int
    spilled: int


class Scratch(NamedTuple):
    """Room for the enumeration.

    `sets` [size, number, size]: pairs (m, n); `about` [size, number]; `counts` [size]: how many. `table`: data flows
    seen. `groups` [8, pairs], `group_counts`: ready pairs by which of their tiles are there. `lists` [tile, 4, some],
    `list_counts` [tile, 4]: the first ready pairs of each input and weight tile, by which other tiles are there;
    `list_stamps`: since when that holds. `rows`: see `survey`; `density`: the fewest words that a row of a tile
    stands for.
    """

    sets: Array
    about: Any
    counts: Array
    table: Table[Seen]
    marks: Marks
    groups: Array
    group_counts: Array
    lists: Array
    list_counts: Array
    list_stamps: Array
    wanted: Array
    gone: Array
    keys: Array
    rows: Array
    density: float


def scratch(start: Start) -> Scratch:
    """Fresh room for a layer."""
    work, held = start.work, start.tiles[start.tiles["height"] > 0]
    m, n, cores = work.dims.m, work.dims.n, work.dims.cores
    tiles = (m + n) * work.dims.k
    generator = np.random.Generator(np.random.PCG64(1))
    return Scratch(
        sets=np.zeros((cores + 1, MOST, cores), np.int64),
        about=np.zeros((cores + 1, MOST), ABOUT),
        counts=np.zeros(cores + 1, np.int64),
        table=cast(Any, np.full(_TABLE, -1, SEEN)),
        marks=np.zeros(1, MARKS)[0],
        groups=np.zeros((8, m * n), np.int64),
        group_counts=np.zeros(8, np.int64),
        lists=np.zeros((tiles, 4, 4 * cores), np.int64),
        list_counts=np.full((tiles, 4), -1, np.int64),
        list_stamps=np.full(tiles, -1, np.int64),
        wanted=np.zeros(3 * cores, np.int64),
        gone=np.zeros(tiles + m * n + 1, np.int64),
        keys=generator.integers(-(1 << 63), (1 << 63) - 1, (3, 2, cores + 1), np.int64),
        rows=np.zeros(cores + 1, np.int64),
        density=float((held["words"] / held["height"]).min()),
    )


@inner
def _seen(table: Table[Seen], marks: Marks, key: int) -> bool:
    """Whether a data flow has been met since the table was begun; enters it."""
    at = key & (_TABLE - 1)
    while table[at].since == marks.now:
        if table[at].key == key:
            return True
        at = (at + 1) & (_TABLE - 1)
    if marks.entries < _TABLE // 2:  # a full table forgets
        table[at].key, table[at].since = key, marks.now
        marks.entries += 1
    return False


@inner
def _begin(marks: Marks) -> None:
    """Empties the table of data flows."""
    marks.now += 1
    marks.entries = 0


@inner
def _shares(pairs: Table[OutputPair], chosen: Array, size: int, pair: int) -> tuple[bool, int, int]:
    """Whether a pair is in a set, how many operations there use its input, and how many its weight."""
    one, two = pairs[pair].input, pairs[pair].weight
    inside, same_in, same_wt = False, 0, 0
    for index in range(size):
        other = chosen[index]
        inside = inside or other == pair
        same_in += pairs[other].input == one
        same_wt += pairs[other].weight == two
    return inside, same_in, same_wt


@inner
def _clash(
    dims: Dims, opened: Array, pairs: Table[OutputPair], chosen: Array, size: int, bound: int, pair: int
) -> bool:
    """Whether sums that stay in their cores forbid adding a pair to a set: two of one core, or no room for a new
    one."""
    if not dims.home or dims.k == 1:
        return False
    began = 0
    for index in range(size):
        began += pairs[chosen[index]].depth == 0
    if pairs[pair].depth > 0:
        mine = 1 << pairs[pair].core
        if bound & mine:
            return True
        bound |= mine
    else:
        began += 1
    vacant = 0
    for core in range(dims.cores):
        if (bound >> core) & 1 == 0 and opened[core] < dims.sum_slots:
            vacant += 1
    return began > vacant


@inner
def _add(
    tiles: Table[BufferTile],
    pairs: Table[OutputPair],
    keys: Array,
    sums: int,
    pair: int,
    same_in: int,
    same_wt: int,
    about: About,
    new: About,
) -> None:
    """Writes to `new` what `about` becomes with one more operation, which shares as many tiles. `sums`: its tile."""
    flow, reused, needed, fetched = about.flow, about.reused, about.needed, about.fetched
    deep = pairs[pair].depth
    for kind in range(3):
        if kind == 0:
            tile, same = pairs[pair].input, same_in
        elif kind == 1:
            tile, same = pairs[pair].weight, same_wt
        else:
            tile, same = sums, 0
            if tiles[tile].height == 0:
                continue
        there = 1 if tiles[tile].where >= 0 else 0
        flow += keys[kind, there, same + 1]
        if same:
            flow -= keys[kind, there, same]
        elif there:
            reused += tiles[tile].words
        else:
            needed += tiles[tile].height
            if kind < 2 or deep > 0:
                fetched += tiles[tile].words
    bound = about.bound
    if deep > 0:
        bound |= 1 << pairs[pair].core
    new.flow, new.reused, new.needed, new.fetched, new.bound = flow, reused, needed, fetched, bound


@inner
def _keep(
    work: LayerConstants, state: CoreState, room: Scratch, base: int, number: int, pair: int, same_in: int, same_wt: int
) -> None:
    """Adds a pair to set `number` of `base` operations, if it may be and the data flow is new."""
    size = base + 1
    count = room.counts[size]
    if count == MOST:
        return
    old, new = room.about[base, number], room.about[size, count]
    before = room.sets[base, number]
    if _clash(work.dims, state.open, state.pairs, before, base, old.bound, pair):
        return
    _add(state.tiles, state.pairs, room.keys, sums_of(work, pair), pair, same_in, same_wt, old, new)
    if _seen(room.table, room.marks, new.flow):
        return
    after = room.sets[size, count]
    for index in range(base):
        after[index] = before[index]
    after[base] = pair
    room.counts[size] = count + 1


@inner
def _sort_ready(work: LayerConstants, state: CoreState, room: Scratch) -> int:
    """Ready pairs by which of their tiles are there, in the order of the queue; most words that one of them reuses."""
    k, cap, tiles, pairs = work.dims.k, room.lists.shape[2], state.tiles, state.pairs
    room.group_counts[:] = 0
    state.totals.stamp += 1
    state.totals.steps += 4 * state.totals.ready
    stamp, sums, most = state.totals.stamp, sums_of(work, 0), 0
    for at in range(state.totals.ready):
        pair = state.queue[at]
        one, two = pairs[pair].input, pairs[pair].weight
        has_in = 1 if tiles[one].where >= 0 else 0
        has_wt = 1 if tiles[two].where >= 0 else 0
        has_ot = 1 if k > 1 and tiles[sums + pair].where >= 0 else 0
        reused = has_in * tiles[one].words + has_wt * tiles[two].words
        if has_ot:
            reused += tiles[sums + pair].words
        most = max(most, reused)
        group = 4 * has_in + 2 * has_wt + has_ot
        room.groups[group, room.group_counts[group]] = pair
        room.group_counts[group] += 1
        for tile, kind in ((one, 2 * has_wt + has_ot), (two, 2 * has_in + has_ot)):
            counts = room.list_counts[tile]
            if room.list_stamps[tile] != stamp:
                counts[0], counts[1], counts[2], counts[3] = 0, 0, 0, 0
                room.list_stamps[tile] = stamp
            count = counts[kind]
            if count < cap:
                room.lists[tile, kind, count] = pair
                counts[kind] = count + 1
    return most


@inner
def _grow(work: LayerConstants, state: CoreState, room: Scratch, size: int, number: int) -> None:
    """All data flows that one more operation can make of a set."""
    pairs, looks = state.pairs, 0
    chosen, bound = room.sets[size, number], room.about[size, number].bound
    for group in range(8):  # shares nothing
        for at in range(room.group_counts[group]):
            pair = room.groups[group, at]
            looks += 1
            _, same_in, same_wt = _shares(pairs, chosen, size, pair)
            if same_in + same_wt == 0 and not _clash(work.dims, state.open, pairs, chosen, size, bound, pair):
                _keep(work, state, room, size, number, pair, 0, 0)
                break
    for index in range(size):
        for kind in range(2):  # shares an input, or a weight
            tile, again = operand(pairs, chosen[index], kind), False
            for before in range(index):
                again = again or operand(pairs, chosen[before], kind) == tile
            if again:
                continue
            for which in range(4):
                for at in range(room.list_counts[tile, which]):
                    pair = room.lists[tile, which, at]
                    looks += 1
                    inside, same_in, same_wt = _shares(pairs, chosen, size, pair)
                    other = same_wt if kind == 0 else same_in
                    if (
                        not inside
                        and other == 0
                        and not _clash(work.dims, state.open, pairs, chosen, size, bound, pair)
                    ):
                        _keep(work, state, room, size, number, pair, same_in, same_wt)
                        break
        for other in range(size):  # shares the input of one and the weight of another
            first, second = chosen[index], chosen[other]
            deep = pairs[first].depth
            if other != index and pairs[second].depth == deep:
                pair = pairs[first].m * work.dims.n + pairs[second].n
                if pairs[pair].depth == deep:
                    looks += 1
                    inside, same_in, same_wt = _shares(pairs, chosen, size, pair)
                    if not inside:
                        _keep(work, state, room, size, number, pair, same_in, same_wt)
    state.totals.steps += (looks + 1) * (size + 2)


@inner
def survey(work: LayerConstants, state: CoreState, room: Scratch) -> None:
    """Enters in `room.rows` the rows that nobody needs, then those of live tiles that lose 1, 2, ... uses if
    spilled."""
    rows = room.rows
    rows[:] = 0
    for index in range(state.totals.segments):
        held = state.spm[index].tile
        lost = 0 if held < 0 else min(work.dims.cores, state.tiles[held].uses)
        rows[lost] += state.spm[index].rows


@inner
def promise(about: About, rows: Array, density: float, priority: int) -> int:
    """An upper bound of a set's benefit (or of what comes before it in the priority).

    `rows`: see `survey`; `density`: the fewest words that a row of a tile stands for. What a set needs beyond the rows
    that nobody needs must be taken from others, and those that lose fewest uses are the cheapest.
    """
    if priority == MIN_TRANSFER:
        return -about.fetched
    left, cost = about.needed - rows[0], 0
    if left <= 0:
        return 0 if priority == MIN_SPILL else about.reused
    if priority == MIN_SPILL:
        return -int(left * density)
    for lost in range(1, len(rows)):
        some = min(left, rows[lost])
        cost += some * lost
        left -= some
    return about.reused - int((cost + left * len(rows)) * density)


@compiled
def enumerate_levels(
    work: LayerConstants, state: CoreState, room: Scratch, most: int, priority: int, beam: int, floor: int
) -> None:
    """One set of each data flow for each size up to `most`.

    `beam`: sets of a size that are grown, 0: all but those that cannot come up to a benefit of `floor` (or what comes
    before the benefit) with `most` operations.
    """
    gain = _sort_ready(work, state, room) if priority == BENEFIT else 0
    if priority != BENEFIT:
        _sort_ready(work, state, room)
    room.counts[:] = 0
    room.counts[0] = 1
    for size in range(most):
        _begin(room.marks)
        count = room.counts[size]
        if not beam:
            for number in range(count):
                if promise(room.about[size, number], room.rows, room.density, priority) + (most - size) * gain >= floor:
                    _grow(work, state, room, size, number)
            continue
        grown = np.zeros(count, np.bool_)
        for _ in range(min(beam, count)):
            best, most_promising = -1, 0
            for number in range(count):
                if not grown[number]:
                    value = promise(room.about[size, number], room.rows, room.density, priority)
                    if best < 0 or value > most_promising:
                        best, most_promising = number, value
            grown[best] = True
            _grow(work, state, room, size, best)


@compiled
def data_flow(work: LayerConstants, state: CoreState, room: Scratch, chosen: Array, size: int) -> int:
    """A hash of a set's dataflow map; the order of the operations plays no part."""
    about = np.zeros(1, ABOUT)
    for index in range(size):
        pair = chosen[index]
        _, same_in, same_wt = _shares(state.pairs, chosen, index, pair)
        _add(state.tiles, state.pairs, room.keys, sums_of(work, pair), pair, same_in, same_wt, about[0], about[0])
    return about["flow"][0]  # not `about[0].flow`: compiled code may free the array before it looks into its element


@inner
def _occupied(spm: Table[Segment], count: int, tiles: Table[BufferTile]) -> int:
    """Rows of live tiles."""
    rows = 0
    for index in range(count):
        held = spm[index].tile
        if held >= 0 and tiles[held].uses > 0:
            rows += spm[index].rows
    return rows


@compiled
def look(
    work: LayerConstants, state: CoreState, room: Scratch, chosen: Array, size: int, policy: int, now: int
) -> Looked:
    """What a set would do.

    Benefit = reused - spilled words, the latter times the uses that are lost (at most one for each core).
    """
    tiles, pairs, totals = state.tiles, state.pairs, state.totals
    totals.stamp += 1
    stamp, count, first_sums = totals.stamp, totals.segments, sums_of(work, 0)
    missing, reused, moved = 0, 0, 0
    for turn in range(3 * size):  # sums first, then weights, then inputs
        kind, pair = 2 - turn // size, chosen[turn % size]
        tile = operand(pairs, pair, kind) if kind < 2 else first_sums + pair
        if tiles[tile].height == 0 or tiles[tile].pin == stamp:
            continue
        tiles[tile].pin = stamp
        if tiles[tile].where >= 0:
            reused += tiles[tile].words
            continue
        room.wanted[missing] = tile
        missing += 1
        if kind < 2 or pairs[pair].depth > 0:
            moved += tiles[tile].words
    totals.steps += 3 * size + (1 + 2 * missing) * count
    if not missing:
        return Looked(True, reused, _occupied(state.spm, count, tiles), moved, 0)
    for index in range(count):
        state.trial[index].rows, state.trial[index].tile = state.spm[index].rows, state.spm[index].tile
        state.trial_time[index] = state.time[index]
    count, lost = place(
        state.trial, state.trial_time, count, tiles, stamp, now, room.wanted, missing, policy, state.clock.dram,
        room.gone,
    )  # fmt: skip
    if lost < 0:
        return Looked(False, 0, 0, 0, 0)
    spilled, weighted = 0, 0
    for index in range(lost):
        tile = room.gone[index]
        spilled += tiles[tile].words
        weighted += tiles[tile].words * min(work.dims.cores, tiles[tile].uses)
        if tiles[tile].dirty:
            moved += tiles[tile].words
    return Looked(True, reused - weighted, _occupied(state.trial, count, tiles), moved, spilled)


@inner
def better(first: Looked, second: Looked, priority: int) -> bool:
    """Whether what the first set does (see `look`) has the higher priority.

    By benefit, then occupied rows, then cycles of its moves, which grow with their words. Table 2's alternatives put
    the words moved, or those spilled, before these.
    """
    if priority == MIN_TRANSFER and first.moved != second.moved:
        return first.moved < second.moved
    if priority == MIN_SPILL and first.spilled != second.spilled:
        return first.spilled < second.spilled
    if first.benefit != second.benefit:
        return first.benefit > second.benefit
    if first.occupied != second.occupied:
        return first.occupied > second.occupied
    return first.moved < second.moved


@inner
def possible_sums(work: LayerConstants, state: CoreState, chosen: Array, size: int) -> bool:
    """Whether sums that stay in their cores allow a set."""
    bound = 0
    for index in range(size):
        pair = chosen[index]
        if _clash(work.dims, state.open, state.pairs, chosen, index, bound, pair):
            return False
        if state.pairs[pair].depth > 0:
            bound |= 1 << state.pairs[pair].core
    return True


@inner
def _combinations(
    work: LayerConstants,
    state: CoreState,
    room: Scratch,
    size: int,
    pruning: int,
    priority: int,
    policy: int,
    best: Array,
) -> bool:
    """The best of all sets of `size` ready operations, written to `best`; whether any is possible."""
    ready = state.totals.ready
    places, chosen = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for index in range(size):
        places[index] = index
    leader = Looked(False, 0, 0, 0, 0)
    _begin(room.marks)
    while True:
        for index in range(size):
            chosen[index] = state.queue[places[index]]
        state.totals.steps += size * (size + 2)
        if possible_sums(work, state, chosen, size) and (
            pruning == EVERY or not _seen(room.table, room.marks, data_flow(work, state, room, chosen, size))
        ):
            outlook = look(work, state, room, chosen, size, policy, 0)
            if outlook.possible and (not leader.possible or better(outlook, leader, priority)):
                leader = outlook
                best[:size] = chosen
        index = size - 1
        while index >= 0 and places[index] == ready - size + index:
            index -= 1
        if index < 0:
            return leader.possible
        places[index] += 1
        for other in range(index + 1, size):
            places[other] = places[other - 1] + 1


@inner
def _reached(outlook: Looked, priority: int) -> int:
    """What a set that was looked at has come up to, as `promise` counts."""
    if priority == MIN_TRANSFER:
        return -outlook.moved
    if priority == MIN_SPILL:
        return -outlook.spilled
    return outlook.benefit


@inner
def _best_of(
    work: LayerConstants, state: CoreState, room: Scratch, size: int, priority: int, policy: int
) -> tuple[int, int]:
    """The number of the set of `size` operations with the highest priority, the first of equals (-1: none fits), and
    what it has reached."""
    promising, most = -1, 0
    state.totals.steps += 2 * room.counts[size]
    for number in range(room.counts[size]):
        value = promise(room.about[size, number], room.rows, room.density, priority)
        if promising < 0 or value > most:
            promising, most = number, value
    if promising < 0:
        return -1, 0
    leader = look(work, state, room, room.sets[size, promising], size, policy, 0)
    best = promising if leader.possible else -1
    for number in range(room.counts[size]):
        if number == promising:
            continue
        if best >= 0 and promise(room.about[size, number], room.rows, room.density, priority) < _reached(
            leader, priority
        ):
            continue
        outlook = look(work, state, room, room.sets[size, number], size, policy, 0)
        if not outlook.possible:
            continue
        if best < 0 or better(outlook, leader, priority) or (number < best and not better(leader, outlook, priority)):
            leader, best = outlook, number
    return best, _reached(leader, priority)


@compiled
def choose(
    work: LayerConstants, state: CoreState, room: Scratch, pruning: int, priority: int, policy: int, best: Array
) -> int:
    """The set of highest priority, written to `best`; its size.

    Of the largest size of which one is possible; 0 if not even a single operation finds room beside what it needs.
    """
    most = min(work.dims.cores, state.totals.ready)
    if pruning < LEVELS:
        for size in range(most, 0, -1):
            if _combinations(work, state, room, size, pruning, priority, policy, best):
                return size
        return 0
    survey(work, state, room)
    enumerate_levels(work, state, room, most, priority, WIDTH, 0)
    if pruning == LEVELS:
        number, reached = _best_of(work, state, room, most, priority, policy)
        enumerate_levels(work, state, room, most, priority, 0, reached if number >= 0 else -_FAR)
    for size in range(most, 0, -1):
        number, _ = _best_of(work, state, room, size, priority, policy)
        if number >= 0:
            best[:size] = room.sets[size, number, :size]
            return size
    return 0
