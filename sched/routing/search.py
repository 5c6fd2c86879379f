"""The search for one page's way, compiled: iterative-deepening A* backwards from the destination.

A train that nothing stops is its departure and its path, so the scheduling graph shrinks to (tile, hops still to go)
for each arrival. Ways are tried by cost, `hop_weight` x hops + cycles that the page is early; within one arrival and
number of hops a depth-first search goes from the destination to any tile that holds the page, along links that are free
when the train would be on them. The bound that makes it A*: whoever is further from every holder than hops are left
turns back. It never overestimates, so the first way found is a cheapest one.

Tie rule: of equal costs the one with fewer hops (it arrives earlier); of those the way whose last hop comes from the
first of NORTH, SOUTH, EAST, WEST that leads to a holder at all, then its last but one, and so on. Over free links that
is the dimension-ordered (XY) path. No heap is involved: a plan follows from the reservations and the question. A
way visits no tile twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..support.records import Table, layout
from .compiled import jit
from .tables import NONE, ZERO, Array, first_busy, last_busy

#: Headings (hw.spec.routes.DIRECTIONS: north, east, south, west) in the order in which the search looks back along
#: them.
LOOK_BACK = (0, 2, 1, 3)
#: Cycle after the end of what stays for ever.
FOREVER: Any = np.int64(1 << 60)
DOWN: Any = np.bool_(False)
UP: Any = np.bool_(True)


class Rules:
    """Cycles that a tile's injection port rests after a train; cycles that a page may be earlier to save a hop; hops
    above the fewest, at most."""

    gap: int
    hop_weight: int
    detour: int


class Tally:
    """Searches so far; links looked at so far; by how many cycles the last search, if it found no way, is to be moved
    (see `find_route`)."""

    searches: int
    looked_at: int
    shift: int


class WayTile:
    """A tile of the way that is being tried: its number; the next way back from it; 1 if tiles of this way stood in the
    way behind it, otherwise 0."""

    tile: int
    turn: int
    tainted: int


class Query:
    """The tile that a page is for; its flits; hops to the nearest holder; number of holders; 1, or 2 if all holders are
    an even number of hops apart; the earliest arrival if all were free; the longest `until` of a holder (cycles); hops
    from the shortest way to the longest that is allowed."""

    tile: int
    flits: int
    least_hops: int
    holders: int
    stride: int
    soonest: int
    longest: int
    extra: int


class Answer:
    """The holder that sends the page (its index in the question), and hops of its way."""

    holder: int
    hops: int


RULES, TALLY, STEP, QUERY, ANSWER = (layout(kind) for kind in (Rules, Tally, WayTile, Query, Answer))


class Space(NamedTuple):
    """A mesh for compiled code. N tiles by number; arrays are int64 unless said otherwise.

    `near` [N, 4]: the tile from which the q-th way back comes, -1 if there is none; `into`, `out` [N, 4]: resources of
    the links from and to there; `distance` [N, N]: hops; `inject`, `eject` [N]: resources; `busy`: reservations, uint64
    [resource, cycle // 64]; scratch: `failed` [hops + 1, N], `stack` [hops + 1], `on_path` [N], `path` [hops + 1].
    """

    near: Array
    into: Array
    out: Array
    distance: Array
    inject: Array
    eject: Array
    busy: Array
    failed: Array
    stack: Table[WayTile]
    on_path: Array
    path: Array
    tally: Tally
    rules: Rules


class Question(NamedTuple):
    """The query for a page, and the answer. `tiles`, `residencies` [holders]: tile numbers, residencies; `ready`,
    `until` [holders]: cycles in which a holder may send. `goals`, `which`, `early`: scratch. Arrays are int64.
    """

    tiles: Array
    residencies: Array
    ready: Array
    until: Array
    goals: Array
    which: Array
    early: Array
    query: Query
    answer: Answer


@jit
def shift_of(space: Space, resource: int, start: int, end: int, upwards: bool) -> int:
    """0 if a resource is free in [start, end), otherwise by how many cycles later or earlier it may be."""
    if upwards:
        blocked = last_busy(space.busy, resource, start, end)
        return 0 if blocked < 0 else blocked + 1 - start
    blocked = first_busy(space.busy, resource, start, end)
    return 0 if blocked < 0 else end - blocked


@jit
def find_route(
    space: Space, target: int, head: int, flits: int, hops: int, goals: Array, count: int, upwards: bool
) -> int:
    """A route of exactly `hops` hops whose head is ejected at tile `target` in cycle `head`; the index of the holder
    that it comes from, -1 if there is none. `goals` [count]: tiles of holders that may send a train then.

    The tiles of the way are left in `space.path`, the source first. Without a way `space.tally.shift` says by how many
    cycles the head has to be later (`upwards`) or earlier for there to be one: every link that was in the way stays so
    until then.
    """
    space.tally.searches += 1
    space.tally.shift = FOREVER
    stamp = space.tally.searches
    stack = space.stack
    stack[0].tile, stack[0].turn, stack[0].tainted = target, 0, 0
    if hops == 0:
        for goal in range(count):
            if goals[goal] == target:
                space.path[0] = target
                return goal
        return -1
    space.on_path[target] = stamp
    depth = 0
    while depth >= 0:
        here = stack[depth].tile
        if stack[depth].turn == 4:
            # a dead end is one for every way that comes by, unless only this way's own tiles stood in its way
            if not stack[depth].tainted:
                space.failed[depth, here] = stamp
            elif depth:
                stack[depth - 1].tainted = 1
            space.on_path[here] = 0
            depth -= 1
            continue
        back = stack[depth].turn
        stack[depth].turn += 1
        before = space.near[here, back]
        if before < 0:
            continue
        left = hops - depth - 1
        reachable = False
        for goal in range(count):
            if space.distance[before, goals[goal]] <= left:
                reachable = True
                break
        if not reachable or space.failed[depth + 1, before] == stamp:
            continue
        if space.on_path[before] == stamp:
            stack[depth].tainted = 1
            continue
        enters = head - 1 - depth
        space.tally.looked_at += 1
        shift = shift_of(space, space.into[here, back], enters, enters + flits, upwards)
        if shift:
            space.tally.shift = min(space.tally.shift, shift)
            continue
        if left == 0:  # the bound says that this is a holder
            for at in range(depth + 1):
                space.path[hops - at] = stack[at].tile
            space.path[0] = before
            for goal in range(count):
                if goals[goal] == before:
                    return goal
        depth += 1
        stack[depth].tile, stack[depth].turn, stack[depth].tainted = before, 0, 0
        space.on_path[before] = stamp
    return -1


@jit
def in_time(space: Space, question: Question, least: int, latest: int) -> int:
    """The cheapest way that arrives in `least` .. `latest`: its arrival, -1 if there is none.

    The holder and hops are left in the question, the way in `space.path`.
    """
    extra = question.query.extra
    early = question.early
    for more in range(0, extra + 1, question.query.stride):
        early[more] = 0
    while True:
        best, cost = NONE, ZERO
        for more in range(0, extra + 1, question.query.stride):
            if early[more] > latest - least:
                continue
            its = space.rules.hop_weight * more + early[more]
            if best < 0 or its < cost:
                best, cost = more, its
        if best < 0:
            return -1
        arrival = latest - early[best]
        step = try_arrival(space, question, arrival, best, DOWN)
        if step == 0:
            return arrival
        early[best] += step


@jit
def later(space: Space, question: Question, first: int, end: int) -> int:
    """The earliest arrival from `first` on before `end`, with the fewest hops: as `in_time`."""
    extra = question.query.extra
    late = question.early
    for more in range(0, extra + 1, question.query.stride):
        late[more] = first
    while True:
        best = ZERO
        for more in range(question.query.stride, extra + 1, question.query.stride):
            if late[more] < late[best]:
                best = more
        if late[best] >= end:
            return -1
        step = try_arrival(space, question, late[best], best, UP)
        if step == 0:
            return late[best]
        late[best] += step


@jit
def try_arrival(space: Space, question: Question, arrival: int, more: int, upwards: bool) -> int:
    """0: there is a way with `more` hops above the least that arrives in this cycle. Otherwise the number of cycles by
    which to go on (`upwards` or down): none between can be one."""
    target, flits = question.query.tile, question.query.flits
    hops = question.query.least_hops + more
    head = arrival - flits + 1
    departure = head - 1 - hops
    if departure < 0:
        return -departure if upwards else FOREVER
    step = shift_of(space, space.eject[target], head, head + flits, upwards)
    if step:
        return step
    gap = space.rules.gap
    count, step = ZERO, FOREVER
    for holder in range(question.query.holders):
        tile = question.tiles[holder]
        apart = space.distance[target, tile]
        if not apart <= hops <= apart + space.rules.detour or (hops - apart) & 1:
            continue
        wait = _wait(space, question, holder, departure, departure + flits, gap, upwards)
        if not wait and hops:
            wait = _gets_out(space, tile, target, departure, flits, hops, upwards)
        if wait:
            step = min(step, wait)
        else:
            question.goals[count], question.which[count] = tile, holder
            count += 1
    if not count:
        return step
    route = find_route(space, target, head, flits, hops, question.goals, count, upwards)
    if route < 0:
        return min(step, space.tally.shift)
    question.answer.holder = question.which[route]
    question.answer.hops = hops
    return 0


@jit
def _wait(space: Space, question: Question, holder: int, departure: int, end: int, gap: int, upwards: bool) -> int:
    """0 if a holder can send a train in [departure, end), otherwise by how many cycles at least it has to move."""
    ready, until, port = question.ready[holder], question.until[holder], space.inject[question.tiles[holder]]
    if upwards:
        if end > until:
            return FOREVER
        if departure < ready:
            return ready - departure
        return shift_of(space, port, departure, end + gap, upwards)
    if departure < ready:
        return FOREVER
    if end > until:
        return end - until
    return shift_of(space, port, departure, end + gap, upwards)


@jit
def _gets_out(space: Space, tile: int, target: int, departure: int, flits: int, hops: int, upwards: bool) -> int:
    """0 if a link out of a holder is free (the search would find out last), otherwise when one may be, as `_wait`."""
    least = FOREVER
    for turn in range(4):
        beside = space.near[tile, turn]
        if beside < 0 or space.distance[beside, target] >= hops:
            continue
        shift = shift_of(space, space.out[tile, turn], departure + 1, departure + 1 + flits, upwards)
        if not shift:
            return 0
        least = min(least, shift)
    return least
