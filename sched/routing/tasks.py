"""Planning tasks in the order in which they can begin, compiled: inputs are fetched, memories filled, late tasks moved.

For each task: its start is the planned one, or later if its tile is not free or an input not made. Each input is
fetched by then; what cannot be there lands as early as possible, and the task starts later. Then everything it reads is
kept until it ends, and room is made for what it makes. If a memory is full on the way, all of it is taken back and
tried again from the cycle after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import jit
from .fetch import RoutingArrays, add_residency, extend, fetch, occupy
from .levels import add_words, last_full
from .search import FOREVER, Question, Space
from .tables import NONE, ONE, ZERO

#: How planning ended: all done; the tables end too early; memories have too few steps; a task could not be placed
#: however late; a page it reads has had to leave the last memory that it was in.
DONE, GROW, GROW_LEVELS, STUCK, LOST = range(5)
#: Attempts at one task before it counts as stuck.
_ATTEMPTS = 10_000
_LONGER: Any = FOREVER
_LOST: Any = np.int64(FOREVER + 1)


@jit
def _take_back(work: RoutingArrays, space: Space, first: int, last: int, residencies: int, moves: int) -> None:
    """Frees what tasks `first` .. `last` have reserved since there were `residencies` residencies and `moves` moves."""
    for index in range(work.in_first[first], work.in_first[last + 1]):
        move = work.moves[index]
        if move.order >= moves and move.departure >= 0:
            flits = work.flits[work.in_page[index]]
            occupy(space, work.ways, move.way, move.hops, move.departure, flits)
        move.order = -1
    for entry in range(work.counts.entries - 1, -1, -1):
        number, end = work.journal[entry].residency, work.journal[entry].end
        if number < 0:
            continue
        residency = work.residencies[number]
        if work.capacity[residency.memory] >= 0:
            add_words(work.levels, residency.memory, end, residency.until, -work.words[residency.page])
        residency.until = end
    for number in range(work.counts.residencies - 1, residencies - 1, -1):
        residency = work.residencies[number]
        if work.capacity[residency.memory] >= 0:
            add_words(work.levels, residency.memory, residency.since, residency.until, -work.words[residency.page])
        work.head[residency.page] = residency.before
    work.counts.residencies, work.counts.moves = residencies, moves


@jit
def place(work: RoutingArrays, space: Space, question: Question, task: int, start: int) -> int:
    """Plans one task from cycle `start` on: -1 if it is done, otherwise the cycle from which to try again; `_LONGER` if
    the tables end too early, `_LOST` if an input is nowhere any more. What it has reserved by then is not taken back.
    """
    landing, end = work.common.landing, work.common.horizon
    tile, cycles = work.tile[task], work.cycles[task]
    soon = work.start[task] < 0 and cycles == 0
    begin = start
    for index in range(work.in_first[task], work.in_first[task + 1]):
        entry = work.counts.entries
        work.counts.entries += 2
        if soon:
            arrival = fetch(work, space, question, task, index, NONE, landing + 1, entry)
        else:
            arrival = fetch(work, space, question, task, index, begin - landing, landing + cycles, entry)
        if arrival < 0:
            work.failure.cycle, work.failure.input = question.query.longest, index
            return _LONGER if arrival == -1 else _LOST
        begin = max(begin, arrival + landing)
    finish = begin + cycles
    if finish + 1 >= end:
        return _LONGER
    work.begun[task] = begin
    for index in range(work.in_first[task], work.in_first[task + 1]):
        number = work.moves[index].residency
        if cycles == 0:
            if work.capacity[work.residencies[number].memory] < 0:
                work.residencies[number].until = FOREVER
            continue
        entry = work.counts.entries
        work.counts.entries += 1
        work.journal[entry].residency = -1
        full = extend(work, number, finish, entry)
        if full >= 0:
            work.failure.cycle, work.failure.memory = full, work.residencies[number].memory
            return full + 1
    for index in range(work.out_first[task], work.out_first[task + 1]):
        page = work.out_page[index]
        memory = tile * work.common.regions + work.result_region[page]
        if work.capacity[memory] >= 0:
            full = last_full(work.levels, memory, begin, finish, work.capacity[memory] - work.words[page])
            if full >= 0:
                work.failure.cycle, work.failure.memory = full, memory
                return full + 1
        add_residency(work, page, memory, begin, finish, finish, NONE)
    return -1


@jit
def _group_end(work: RoutingArrays, task: int) -> int:
    """The last of the deliveries of a task's results that follow it at once; the task itself if there is none."""
    last = task
    while last + 1 < len(work.tile) and work.cycles[last + 1] == 0 and work.cycles[task] > 0:
        page = work.in_page[work.in_first[last + 1]]
        ours = False
        for index in range(work.out_first[task], work.out_first[task + 1]):
            ours = ours or work.out_page[index] == page
        if not ours:
            break
        last += 1
    return last


@jit
def _next(work: RoutingArrays) -> int:
    """The queue whose turn it is: that of the tile which could begin its next task first, of those whose next task's
    inputs are made; of equals the task first in the program. -1 if all queues are empty."""
    best, soonest, number = NONE, ZERO, ZERO
    for queue in range(len(work.turn)):
        at = work.queue_first[queue] + work.turn[queue]
        if at == work.queue_first[queue + 1]:
            continue
        task = work.queue[at]
        begin = work.start[task]
        if work.cycles[task] > 0:
            begin = max(begin, work.free[work.tile[task]])
        if best >= 0 and (begin > soonest or (begin == soonest and task > number)):
            continue
        progress = True
        for index in range(work.in_first[task], work.in_first[task + 1]):
            if work.head[work.in_page[index]] < 0:
                progress = False
                break
        if progress:
            best, soonest, number = ONE * queue, begin, task
    return best


@jit
def plan_tasks(work: RoutingArrays, space: Space, question: Question) -> int:
    """Plans tasks until all are done, or one needs larger tables (and `plan_tasks` goes on there), or is stuck.

    Tiles take turns as their work ends, so that none takes the network for what it needs much later. A task and the
    deliveries of its results that follow it are placed together: results that could not leave before their memory is
    wanted would be lost.
    """
    counts = work.counts
    while True:
        queue = _next(work)
        if queue < 0:
            return DONE
        # a page's residency begins and ends, and so does each of its extensions
        if work.levels.most.steps + 4 * len(work.journal) > work.levels.at.shape[1]:
            return GROW_LEVELS
        first = work.queue[work.queue_first[queue] + work.turn[queue]]
        last = _group_end(work, first)
        start = max(work.start[first], work.common.landing + 1)
        if work.cycles[first] > 0:
            start = max(start, work.free[work.tile[first]])
        residencies, ways, moves = counts.residencies, counts.way_entries, counts.moves
        for _ in range(_ATTEMPTS):
            counts.entries = 0
            task = first
            again = place(work, space, question, task, start)
            while again < 0 and task < last:
                task += 1
                again = place(work, space, question, task, max(work.start[task], work.common.landing + 1))
            if again < 0:
                break
            _take_back(work, space, first, task, residencies, moves)
            counts.way_entries = ways
            work.failure.task = task
            if again == _LONGER:
                return GROW
            if again == _LOST:
                if task == first:
                    return LOST
                # its result has to be made when the memory stays free for longer
                again = work.failure.cycle + 1 - work.cycles[first]
            counts.retries += 1
            start = max(start + 1, again)
        else:
            return STUCK
        if work.cycles[first] > 0:
            work.free[work.tile[first]] = work.begun[first] + work.cycles[first]
        work.turn[queue] += 1
