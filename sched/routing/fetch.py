"""Bringing a page to a tile, compiled: who could send it, which way and when, and what room it takes in memories.

A page that is on the tile already is a *hit*: its residency is extended. Otherwise it is routed so that it lands when
it is due, or as early as possible after that.
"""

from __future__ import annotations

from typing import NamedTuple

from ..support.records import Table, layout
from .compiled import jit
from .levels import Levels, add_words, first_full, last_full
from .search import FOREVER, Question, Space, in_time, later
from .tables import NONE, ZERO, Array, flip


class ResidencyRecord:
    """A page in a memory: cycle from which room is taken, first cycle in which it can be sent or read, end; the page's
    residency before (-1: none); the input it came for (-1: none)."""

    page: int
    memory: int
    since: int
    ready: int
    until: int
    before: int
    brought: int


class MoveRecord:
    """How a page comes to an input: the residency that it is taken from and the one that it is in then; departure (-1:
    a hit, it was there) and arrival (cycles); hops; first entry of its way in `Work.ways`; order of commitment. All are
    -1 before the input is planned."""

    source: int
    residency: int
    departure: int
    arrival: int
    hops: int
    way: int
    order: int


class Extension:
    """An entry of the journal: a residency that was extended (-1: none was), and its end before."""

    residency: int
    end: int


class Counts:
    """Residencies; entries of ways; moves; attempts that were taken back; entries of the journal."""

    residencies: int
    way_entries: int
    moves: int
    retries: int
    entries: int


class Failure:
    """Where planning failed last: task, cycle, memory, input."""

    task: int
    cycle: int
    memory: int
    input: int


class Common:
    """The same for all tasks: regions of a tile; cycles from a page's arrival until it can be used; cycles that the
    tables have, without a margin; cycles from the start of a move to its departure."""

    regions: int
    landing: int
    horizon: int
    launch: int


RESIDENCY, MOVE, EXTENSION, COUNTS, FAILURE, COMMON = (
    layout(kind) for kind in (ResidencyRecord, MoveRecord, Extension, Counts, Failure, Common)
)


class RoutingArrays(NamedTuple):
    """Program, memories and results for compiled code; arrays are int64 unless said otherwise.

    Pages: `flits`, `words`, `region`, `result_region`, `head` (its latest residency, -1: none). Tasks: `tile`, `start`
    (-1: as soon as possible), `cycles`, `window`, `in_first`/`in_page` and `out_first`/`out_page` (inputs and outputs
    of task t are entries `first[t]` .. `first[t + 1] - 1`). Memories: `levels`, `capacity` [memory], -1 without limit;
    memory = tile x regions + region. `residencies`: `counts.residencies` of them. `moves` [input]; `ways`: their tiles,
    one way after the other. `begun` [task]: starts. `journal`: what the present tasks have extended. `free`
    [tile]: end of its last task. `queue_first`, `queue`: tasks of each tile in program order, then deliveries that do
    not follow what they deliver; `turn` [queue]: how many of them are done.
    """

    flits: Array
    words: Array
    region: Array
    result_region: Array
    head: Array
    tile: Array
    start: Array
    cycles: Array
    window: Array
    in_first: Array
    in_page: Array
    out_first: Array
    out_page: Array
    levels: Levels
    capacity: Array
    residencies: Table[ResidencyRecord]
    moves: Table[MoveRecord]
    ways: Array
    begun: Array
    counts: Counts
    failure: Failure
    journal: Table[Extension]
    free: Array
    queue_first: Array
    queue: Array
    turn: Array
    common: Common


@jit
def add_residency(work: RoutingArrays, page: int, memory: int, since: int, ready: int, until: int, brought: int) -> int:
    """Notes that a page is in a memory, and takes its room (of unlimited memories none); the residency's number."""
    number = work.counts.residencies
    work.counts.residencies += 1
    residency = work.residencies[number]
    residency.page, residency.memory, residency.since = page, memory, since
    residency.ready, residency.until, residency.brought = ready, until, brought
    residency.before = work.head[page]
    work.head[page] = number
    if work.capacity[memory] >= 0:
        add_words(work.levels, memory, since, until, work.words[page])
    return number


@jit
def extend(work: RoutingArrays, number: int, until: int, entry: int) -> int:
    """Keeps a page longer; -1, or the first cycle in which its memory has no room. `entry`: next of the journal."""
    residency = work.residencies[number]
    end = residency.until
    if end >= until:
        return -1
    page, memory = residency.page, residency.memory
    if work.capacity[memory] >= 0:
        full = first_full(work.levels, memory, end, until, work.capacity[memory] - work.words[page])
        if full >= 0:
            return full
        add_words(work.levels, memory, end, until, work.words[page])
    work.journal[entry].residency, work.journal[entry].end = number, end
    residency.until = until
    return -1


@jit
def gather(
    work: RoutingArrays, space: Space, question: Question, page: int, memory: int, latest: int, reach: int
) -> None:
    """Lists who holds a page and could send it by `latest`. Residencies may be extended by `reach` cycles at most."""
    target, flits = question.query.tile, work.flits[page]
    count, least, most, parities, soonest, longest = ZERO, FOREVER, ZERO, ZERO, FOREVER, ZERO
    number = work.head[page]
    while number >= 0:
        residency, this = work.residencies[number], number
        held, ready, until = residency.memory, residency.ready + work.common.launch, residency.until
        number = residency.before
        if held == memory:
            continue
        if ready + flits > latest:
            longest = FOREVER  # it will be there
            continue
        if until < latest:
            end = latest
            if work.capacity[held] >= 0:
                end = min(latest, until + reach)
                full = first_full(work.levels, held, until, end, work.capacity[held] - work.words[page])
                end = end if full < 0 else full
            until = end
        if until < ready + flits:
            continue
        tile = held // work.common.regions
        question.tiles[count], question.ready[count], question.until[count] = tile, ready, until
        question.residencies[count] = this
        apart = space.distance[target, tile]
        least, most = min(least, apart), max(most, apart)
        parities |= 1 << (apart & 1)
        soonest = min(soonest, ready + flits + apart)
        longest = max(longest, until)
        count += 1
    query = question.query
    query.flits, query.least_hops, query.holders = flits, least, count
    query.stride = 1 if parities == 3 else 2
    query.soonest, query.longest = soonest, longest
    query.extra = most - least + space.rules.detour


@jit
def fetch(
    work: RoutingArrays, space: Space, question: Question, task: int, index: int, due: int, after: int, entry: int
) -> int:
    """Brings the page of input `index` to its task's tile by cycle `due`, or as early as can be after it.

    It stays for `after` cycles from the later of `due` and its arrival. Returns its arrival, at most `due` if it is in
    time; -1 if the tables end before it could come, -2 if it is nowhere any more. `entry`: the first of two entries of
    the journal.
    """
    page = work.in_page[index]
    tile, landing, window, end = work.tile[task], work.common.landing, work.window[task], work.common.horizon
    memory = tile * work.common.regions + work.region[page]
    words, limit = work.words[page], work.capacity[memory]
    flits = work.flits[page]
    work.journal[entry].residency = work.journal[entry + 1].residency = -1
    # A page that is on the tile, or will be.
    wait, waiting = FOREVER, NONE
    number = work.head[page]
    while number >= 0:
        residency = work.residencies[number]
        if residency.memory == memory:
            usable = residency.ready - landing
            until = max(usable, due) + after
            if usable <= due and until + 1 < end and extend(work, number, until, entry) < 0:
                _note(work, index, number, number, NONE, usable, ZERO)
                return due
            if due < usable < wait:
                wait, waiting = usable, number
        number = residency.before
    question.query.tile = tile
    if due >= 0:
        if due + after >= end:
            return -1
        gather(work, space, question, page, memory, due, window)
        least = due - window
        if limit >= 0:
            head = due - flits + 1
            full = last_full(work.levels, memory, max(0, head - window), due + after, limit - words)
            if full >= head:
                least = due + 1
            else:
                least = max(least, full + flits)
        least = max(least, question.query.soonest)
        if question.query.holders and least <= due:
            arrival = in_time(space, question, least, due)
            if arrival >= 0:
                _commit(work, space, question, index, page, memory, arrival, due + after, entry)
                return arrival
    # As early as can be. Memory decides from when on, then the network.
    last = end - after - 1
    first, reach = max(due + 1, flits), window
    while True:
        arrival = NONE
        gather(work, space, question, page, memory, last, reach)
        first = max(first, question.query.soonest)
        if question.query.holders and first < last:
            arrival = later(space, question, first, min(last, wait))
        if arrival < 0:
            if wait < last:
                if extend(work, waiting, wait + after, entry) < 0:
                    _note(work, index, waiting, waiting, NONE, wait, ZERO)
                    return wait
                wait = FOREVER
            elif reach < end:  # whoever holds it may have to wait for long
                reach = end
            elif waiting < 0 and question.query.longest < last:
                return -2
            else:
                return -1
            continue
        full = NONE
        if limit >= 0:
            full = last_full(work.levels, memory, arrival - flits + 1, arrival + after, limit - words)
        if full < 0:
            _commit(work, space, question, index, page, memory, arrival, arrival + after, entry)
            return arrival
        first = full + flits


@jit
def _note(work: RoutingArrays, index: int, source: int, into: int, departure: int, arrival: int, hops: int) -> None:
    move = work.moves[index]
    move.source, move.residency, move.departure = source, into, departure
    move.arrival, move.hops, move.way = arrival, hops, work.counts.way_entries
    move.order = work.counts.moves
    work.counts.moves += 1


@jit
def _commit(
    work: RoutingArrays,
    space: Space,
    question: Question,
    index: int,
    page: int,
    memory: int,
    arrival: int,
    until: int,
    entry: int,
) -> None:
    """Reserves what a search has found."""
    source = question.residencies[question.answer.holder]
    hops, flits = question.answer.hops, work.flits[page]
    departure = arrival - flits - hops
    at = work.counts.way_entries
    extend(work, source, departure + flits, entry + 1)
    into = add_residency(work, page, memory, arrival - flits + 1, arrival + work.common.landing, until, index)
    _note(work, index, source, into, departure, arrival, hops)
    for hop in range(hops + 1):
        work.ways[at + hop] = space.path[hop]
    work.counts.way_entries += hops + 1
    occupy(space, work.ways, at, hops, departure, flits)


@jit
def occupy(space: Space, ways: Array, at: int, hops: int, departure: int, flits: int) -> None:
    """Reserves a train's resources, or frees them."""
    flip(space.busy, space.inject[ways[at]], departure, departure + flits + space.rules.gap)
    for hop in range(1, hops + 1):
        before, here = ways[at + hop - 1], ways[at + hop]
        for back in range(4):
            if space.near[here, back] == before:
                flip(space.busy, space.into[here, back], departure + hop, departure + hop + flits)
                break
    head = departure + hops + 1
    flip(space.busy, space.eject[ways[at + hops]], head, head + flits)
