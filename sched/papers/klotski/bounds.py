"""Cycles below which no schedule of micro-ops on m equal cores can be, by proof.

* The longest chain, and all work over m.
* Sets: micro-ops that cannot start before x, and after whose end y cycles must pass, need x + y and the cycles that m
  cores take for them at least: their work over m, or by the pigeonhole, j + 1 of the longest jm + 1 on one core.
* Heads and tails by sets (after R. Jain, S. Rajaraman, IPL 1995, who split the graph at its earliest and latest
  starts): what must come before a micro-op is such a problem of its own. So its earliest start is later than the
  longest chain to it says, and that again moves those behind it. The same backwards for tails.
* Intervals (E. Fernández, B. Bussell, IEEE TC 1973): if all end by T, each micro-op has a window, and a part of it must
  lie in a given interval however it is shifted. If in one interval these parts are more than m cores can do, T is
  impossible. The least T that passes is the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...routing.compiled import jit
from .dag import Dag, Ints
from .flexibility import asap, levels
from .listing import Int

#: Sets that `_set_bound` looks at by the pigeonhole, at most; latest starts that it looks at, all of them; of others
#: the fewer the farther they are.
_PIGEONHOLES, _NEAR = 32, 48


@jit
def _pigeonhole(lengths: Any, count: int, cores: int) -> int:
    """Cycles that one of `cores` must work at least: the first `count` of `lengths`, sorted here, highest first."""
    some = np.sort(lengths[:count])
    most, each = Int(0), Int(1)
    while (each - 1) * cores + 1 <= count:  # `each` of the longest (each - 1) x cores + 1 share a core
        first = count - ((each - 1) * cores + 1)
        total = Int(0)
        for at in range(first, first + each):
            total += some[at]
        most = max(most, total)
        each += 1
    return most


@jit
def _set_bound(heads: Any, lengths: Any, tails: Any, size: int, cores: int, least: int) -> int:
    """The most, and at least `least`, of all sets of the first `size` micro-ops: `heads` before, `tails` behind."""
    by_tail, by_head = np.argsort(-tails[:size]), np.argsort(-heads[:size])
    longest = Int(0)
    for at in range(size):
        longest = max(longest, lengths[at])
    chosen = np.zeros(size, np.int64)
    best, left = least, _PIGEONHOLES
    behind, starts = Int(0), 0  # work of all that have heads from `start`; which of these it is
    for place in range(size):
        start = heads[by_head[place]]
        behind += lengths[by_head[place]]
        if place + 1 < size and heads[by_head[place + 1]] == start:
            continue
        starts += 1
        if starts > _NEAR and starts % (starts // (_NEAR // 2)):
            continue
        work, count, room = Int(0), 0, best - start - longest - -(-behind // cores)
        for at in range(size):
            op = by_tail[at]
            if tails[op] <= room:  # not even all of them with this tail
                break
            if heads[op] < start:
                continue
            chosen[count] = lengths[op]
            count += 1
            work += lengths[op]
            tail = tails[op]
            if at + 1 < size and tails[by_tail[at + 1]] == tail and heads[by_tail[at + 1]] >= start:
                continue
            reach = start + tail + -(-work // cores)
            best = max(best, reach)
            if left > 0 and reach + longest > best and count > cores:
                left -= 1
                best = max(best, start + tail + _pigeonhole(chosen, count, cores))
    return best


@jit
def _heads(ops: Any, ins: Any, order: Any, between: Any, cores: int, heads: Any) -> int:
    """Raises `heads` by sets of what comes before each micro-op. `between` [n, n]: see `_chains`. Returns how many."""
    size = len(ops)
    some, lengths, tails = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    raised = 0
    for at in range(size):
        op = order[at]
        count, early = 0, heads[op]
        for arc in range(ops[op].first_in, ops[op].end_in):
            other = ins[arc].other
            early = max(early, heads[other] + ops[other].cycles)
        for back in range(at):
            other = order[back]
            if between[op, other] >= 0:
                some[count], lengths[count], tails[count] = heads[other], ops[other].cycles, between[op, other]
                count += 1
        if count > cores:
            early = _set_bound(some, lengths, tails, count, cores, early)
        raised += early > heads[op]
        heads[op] = early
    return raised


@jit
def _chains(ops: Any, ins: Any, order: Any, between: Any) -> None:
    """Fills `between` [n, n]: cycles of the longest chain of others from the end of a micro-op (second index) to the
    start of another one (first); -1 where there is none."""
    between[:] = -1
    for at in range(len(order)):
        op = order[at]
        for arc in range(ops[op].first_in, ops[op].end_in):
            other = ins[arc].other
            between[op, other] = max(between[op, other], 0)
            for back in range(at):
                before = order[back]
                if between[other, before] >= 0:
                    between[op, before] = max(between[op, before], between[other, before] + ops[other].cycles)


@jit
def _overfull(first: Any, lengths: Any, last: Any, cores: int) -> bool:
    """Whether in some interval more must be done than `cores` can; micro-ops start from `first` to `last`.

    For one begin of an interval, what must lie in it is a sum of functions of its end, each 0 at first, then rising by
    one a cycle, then constant; so it is enough to look where one ends to rise.
    """
    size = len(first)
    bends, slopes = np.zeros(2 * size, np.int64), np.zeros(2 * size, np.int64)
    for begin in np.unique(np.concatenate((first, last, first + lengths, last + lengths))):
        count = 0
        for op in range(size):
            # shifted left it needs this much behind `begin`; shifted right it starts at `last`
            most = min(lengths[op], first[op] + lengths[op] - begin)
            if most <= 0:
                continue
            rises = max(last[op], begin)
            bends[count], slopes[count] = rises, 1
            bends[count + 1], slopes[count + 1] = rises + most, -1
            count += 2
        by = np.argsort(bends[:count])
        before, slope, work = begin, 0, 0
        for at in range(count):
            bend = by[at]
            work += slope * (bends[bend] - before)
            before = bends[bend]
            slope += slopes[bend]
            if work > cores * (before - begin):
                return True
    return False


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is proven. `heads`: earliest start of each micro-op; `tails`: cycles that must pass from its start to the
    end of all; `chain`, `work`, `sets`, `intervals`: the bounds, in cycles, each with what those before it have shown.
    """

    heads: Ints
    tails: Ints
    chain: int
    work: int
    sets: int
    intervals: int

    @property
    def best(self) -> int:
        """The highest."""
        return max(self.chain, self.work, self.sets, self.intervals)


def bound(dag: Dag, cores: int, most: int | None = None, intervals: bool = True) -> Bounds:
    """Lower bounds of the makespan on so many cores. `most`: a makespan that has been reached (the bounds do not look
    beyond it); `intervals`: whether the last and dearest is computed."""
    size = len(dag)
    heads, tails = asap(dag), levels(dag)
    if not size:
        return Bounds(heads, tails, 0, 0, 0, 0)
    chain, work = int(tails.max()), -(-int(dag.cycles.sum()) // cores)
    between = np.empty((size, size), np.int64)
    for graph, ends in ((dag, heads), (dag.backwards, behind := tails - dag.cycles)):
        ops, ins, _ = graph.tables
        _chains(ops, ins, graph.order, between)
        _heads(ops, ins, graph.order, between, cores, ends)
    tails = behind + dag.cycles
    sets = int(_set_bound(heads, dag.cycles, behind, size, cores, max(chain, work, int((heads + tails).max()))))
    reached = sets
    if intervals and (most is None or sets < most):
        reached = _least(sets, most or 2 * sets, lambda end: not _overfull(heads, dag.cycles, end - tails, cores))
    return Bounds(heads, tails, chain, work, sets, reached)


def by_chains(dag: Dag, cycles: Ints, cores: int) -> int:
    """The bound by sets whose heads and tails are the longest chains of a graph. `cycles`: int64 [n], those for which a
    micro-op needs one of the cores, at most all that it takes."""
    heads, behind = asap(dag), levels(dag) - dag.cycles
    least = -(-int(cycles.sum()) // cores)
    return int(_set_bound(heads, cycles, behind, len(dag), cores, least)) if len(dag) else 0


def _least(low: int, high: int, possible: Callable[[int], bool]) -> int:
    """The least number from `low` for which `possible`, which stays so above it; not beyond `high`."""
    step = 1
    while low < high and not possible(low):
        low, step = low + 1, step
        if possible(min(high, low + step)):
            break
        low, step = min(high, low + step + 1), step * 2
    else:
        return low
    high = min(high, low + step)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle + 1, high)
    return low
