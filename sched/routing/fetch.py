"""Bringing a page to a tile, compiled: who could send it, which way and when, and what room it takes in memories.

A page that is on the tile already is a *hit*: its stay is extended. Otherwise it is routed so that it lands when it is
due, or as early as possible after that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .compiled import jit
from .levels import add_words, first_full, last_full
from .search import FOREVER, in_time, later
from .tables import NONE, ZERO, Array, flip


class Work(NamedTuple):
    """Program, memories and results for compiled code; arrays are int64 unless said otherwise.

    Pages: `flits`, `words`, `region`, `made`, `head` (its latest stay, -1: none). Tasks: `tile`, `start` (-1: as soon
    as possible), `cycles`, `window`, `in_first`/`in_page` and `out_first`/`out_page` (inputs and outputs of task t
    are entries `first[t]` .. `first[t + 1] - 1`). Memories: `levels` (`levels.Levels`), `capacity` [memory], -1
    without limit; memory = tile x regions + region. Stays (a page in a memory): `stay` [7, stay]: page, memory, cycle
    from which room is taken, first cycle in which it can be sent or read, end, the page's stay before, and the input
    it came for. Moves, one for each input: `move` [7, input]: stay it was taken from, stay it is now in, departure
    (-1: a hit), arrival, hops, first entry of its way in `ways`, order of commitment. `begun` [task]: starts.
    `counts`: stays, way entries, moves, attempts that were taken back, journal entries; task, cycle, memory and input
    of the last failure. `journal` [2, n]: stays extended by the present tasks, and their ends before. `free` [tile]:
    end of its last task. `queue_first`, `queue`: tasks of each tile in program order, then deliveries that do not
    follow what they deliver; `turn` [queue]: how many of them are done. `numbers`: regions, landing, cycles of the
    tables, launch.
    """

    flits: Array
    words: Array
    region: Array
    made: Array
    head: Array
    tile: Array
    start: Array
    cycles: Array
    window: Array
    in_first: Array
    in_page: Array
    out_first: Array
    out_page: Array
    levels: Any
    capacity: Array
    stay: Array
    move: Array
    ways: Array
    begun: Array
    counts: Array
    journal: Array
    free: Array
    queue_first: Array
    queue: Array
    turn: Array
    numbers: Array


PAGE, MEMORY, SINCE, READY, UNTIL, BEFORE, BROUGHT = range(7)
FROM, INTO, DEPARTURE, ARRIVAL, HOPS, WAY, ORDER = range(7)
STAYS, WAY_ENTRIES, MOVES, RETRIES, ENTRIES, WHY_TASK, WHY_CYCLE, WHY_MEMORY, WHY_INPUT = range(9)


@jit
def add_stay(work: Any, page: int, memory: int, since: int, ready: int, until: int, brought: int) -> int:
    """Notes that a page is in a memory, and takes its room (of unlimited memories none); the number of the stay."""
    number = work.counts[STAYS]
    work.counts[STAYS] += 1
    stay = work.stay
    stay[PAGE, number], stay[MEMORY, number], stay[SINCE, number] = page, memory, since
    stay[READY, number], stay[UNTIL, number], stay[BROUGHT, number] = ready, until, brought
    stay[BEFORE, number] = work.head[page]
    work.head[page] = number
    if work.capacity[memory] >= 0:
        add_words(work.levels, memory, since, until, work.words[page])
    return number


@jit
def extend(work: Any, number: int, until: int, entry: int) -> int:
    """Keeps a page longer; -1, or the first cycle in which its memory has no room. `entry`: next of the journal."""
    stay = work.stay
    end = stay[UNTIL, number]
    if end >= until:
        return -1
    page, memory = stay[PAGE, number], stay[MEMORY, number]
    if work.capacity[memory] >= 0:
        full = first_full(work.levels, memory, end, until, work.capacity[memory] - work.words[page])
        if full >= 0:
            return full
        add_words(work.levels, memory, end, until, work.words[page])
    work.journal[0, entry], work.journal[1, entry] = number, end
    stay[UNTIL, number] = until
    return -1


@jit
def gather(work: Any, space: Any, question: Any, page: int, memory: int, latest: int, reach: int) -> None:
    """Lists who holds a page and could send it by `latest`. Stays may be extended by `reach` cycles at most."""
    target, flits = question.numbers[0], work.flits[page]
    count, least, most, parities, soonest, longest = ZERO, FOREVER, ZERO, ZERO, FOREVER, ZERO
    number = work.head[page]
    while number >= 0:
        held, until, this = work.stay[MEMORY, number], work.stay[UNTIL, number], number
        ready = work.stay[READY, number] + work.numbers[3]
        number = work.stay[BEFORE, number]
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
        tile = held // work.numbers[0]
        question.tiles[count], question.ready[count], question.until[count] = tile, ready, until
        question.stays[count] = this
        apart = space.distance[target, tile]
        least, most = min(least, apart), max(most, apart)
        parities |= 1 << (apart & 1)
        soonest = min(soonest, ready + flits + apart)
        longest = max(longest, until)
        count += 1
    numbers = question.numbers
    numbers[1], numbers[2], numbers[3], numbers[7], numbers[8] = flits, least, count, soonest, longest
    numbers[6] = 1 if parities == 3 else 2
    numbers[9] = most - least + space.numbers[2]


@jit
def fetch(work: Any, space: Any, question: Any, task: int, index: int, due: int, after: int, entry: int) -> int:
    """Brings the page of input `index` to its task's tile by cycle `due`, or as early as can be after it.

    It stays for `after` cycles from the later of `due` and its arrival. Returns its arrival, at most `due` if it is in
    time; -1 if the tables end before it could come, -2 if it is nowhere any more. `entry`: the first of two entries of
    the journal.
    """
    page = work.in_page[index]
    tile, landing, window, end = work.tile[task], work.numbers[1], work.window[task], work.numbers[2]
    memory = tile * work.numbers[0] + work.region[page]
    words, limit = work.words[page], work.capacity[memory]
    flits = work.flits[page]
    work.journal[0, entry] = work.journal[0, entry + 1] = -1
    # A page that is on the tile, or will be.
    wait, waiting = FOREVER, NONE
    number = work.head[page]
    while number >= 0:
        if work.stay[MEMORY, number] == memory:
            usable = work.stay[READY, number] - landing
            until = max(usable, due) + after
            if usable <= due and until + 1 < end and extend(work, number, until, entry) < 0:
                _note(work, index, number, number, NONE, usable, ZERO)
                return due
            if due < usable < wait:
                wait, waiting = usable, number
        number = work.stay[BEFORE, number]
    question.numbers[0] = tile
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
        least = max(least, question.numbers[7])
        if question.numbers[3] and least <= due:
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
        first = max(first, question.numbers[7])
        if question.numbers[3] and first < last:
            arrival = later(space, question, first, min(last, wait))
        if arrival < 0:
            if wait < last:
                if extend(work, waiting, wait + after, entry) < 0:
                    _note(work, index, waiting, waiting, NONE, wait, ZERO)
                    return wait
                wait = FOREVER
            elif reach < end:  # whoever holds it may have to wait for long
                reach = end
            elif waiting < 0 and question.numbers[8] < last:
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
def _note(work: Any, index: int, source: int, into: int, departure: int, arrival: int, hops: int) -> None:
    move = work.move
    move[FROM, index], move[INTO, index], move[DEPARTURE, index] = source, into, departure
    move[ARRIVAL, index], move[HOPS, index], move[WAY, index] = arrival, hops, work.counts[WAY_ENTRIES]
    move[ORDER, index] = work.counts[MOVES]
    work.counts[MOVES] += 1


@jit
def _commit(
    work: Any, space: Any, question: Any, index: int, page: int, memory: int, arrival: int, until: int, entry: int
) -> None:
    """Reserves what a search has found."""
    source = question.stays[question.numbers[4]]
    hops, flits = question.numbers[5], work.flits[page]
    departure = arrival - flits - hops
    at = work.counts[WAY_ENTRIES]
    extend(work, source, departure + flits, entry + 1)
    into = add_stay(work, page, memory, arrival - flits + 1, arrival + work.numbers[1], until, index)
    _note(work, index, source, into, departure, arrival, hops)
    for hop in range(hops + 1):
        work.ways[at + hop] = space.path[hop]
    work.counts[WAY_ENTRIES] += hops + 1
    occupy(space, work.ways, at, hops, departure, flits)


@jit
def occupy(space: Any, ways: Array, at: int, hops: int, departure: int, flits: int) -> None:
    """Reserves a train's resources, or frees them."""
    flip(space.busy, space.inject[ways[at]], departure, departure + flits + space.numbers[0])
    for hop in range(1, hops + 1):
        before, here = ways[at + hop - 1], ways[at + hop]
        for back in range(4):
            if space.near[here, back] == before:
                flip(space.busy, space.into[here, back], departure + hop, departure + hop + flits)
                break
    head = departure + hops + 1
    flip(space.busy, space.eject[ways[at + hops]], head, head + flits)
