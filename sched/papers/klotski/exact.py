"""Schedules of micro-ops by CP-SAT: each is an interval, and no more than m of them overlap.

That is the strong form of Eq. 18 with what the paper leaves out, at most one micro-op at a time on a core: intervals of
which at most m overlap can be laid on m cores, each in the order of the starts. The solver begins with the best of
many lists (`listing`) and with heads and tails that bounds have lengthened (`bounds`).

A graph falls into segments where all that is before waits for nothing behind, and all that is behind for everything
before. Schedules of segments follow each other and so do their bounds: neither loses anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...support.cpsat import solve
from .bounds import Bounds, bound
from .dag import Dag, Ints, numbers
from .flexibility import levels
from .listing import OpPlacement, makespan, searched

#: Micro-ops of a segment that CP-SAT is asked for, at most; longer ones are left to lists.
WHOLE = 150
#: Intervals are looked at in segments of at most so many micro-ops: they take the square of it, and add little.
_INTERVALS = 500

#: Told of the makespan so far and the bound.
OnBetter = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Solved:
    """A schedule and what is proven. `bound`: cycles below which there is none; `work`: deterministic time spent."""

    plan: OpPlacement
    makespan: int
    bound: int
    work: float

    @property
    def gap(self) -> float:
        """How far the makespan can be above the best, as a share of the bound."""
        return self.makespan / self.bound - 1 if self.bound else 0.0


def laid(dag: Dag, starts: Ints, cores: int) -> OpPlacement:
    """Starts of which at most `cores` overlap, with a core for each: the lowest that is idle."""
    where = np.zeros(len(dag), np.int64)
    idle, busy = list(range(cores)), list[tuple[int, int]]()
    for op in np.argsort(starts, kind="stable").tolist():
        while busy and busy[0][0] <= starts[op]:
            heapq.heappush(idle, heapq.heappop(busy)[1])
        where[op] = core = heapq.heappop(idle)
        heapq.heappush(busy, (int(starts[op] + dag.cycles[op]), core))
    return OpPlacement(where, starts)


def whole(
    dag: Dag, cores: int, plan: OpPlacement, bounds: Bounds, work: float, on_better: OnBetter | None = None
) -> Solved:
    """A schedule at least as good as `plan`, which is the solver's first hint. `work`: deterministic time."""
    from ortools.sat.python import cp_model

    most, least = makespan(dag, plan), bounds.best
    if most <= least:
        return Solved(plan, most, least, 0.0)
    model = cp_model.CpModel()
    end = model.new_int_var(least, most, "makespan")
    lengths, tails = dag.cycles.tolist(), bounds.tails.tolist()
    starts = [
        model.new_int_var(head, most - tail, f"start {op}")
        for op, (head, tail) in enumerate(zip(bounds.heads.tolist(), tails, strict=True))
    ]
    spans = [model.new_fixed_size_interval_var(start, lengths[op], "") for op, start in enumerate(starts)]
    model.add_cumulative(spans, [1] * len(spans), cores)
    for producer, consumer in dag.pairs:
        model.add(starts[consumer] >= starts[producer] + lengths[producer])
    for op, start in enumerate(starts):
        model.add(end >= start + tails[op])
        model.add_hint(start, int(plan.starts[op]))
    model.add_hint(end, most)
    model.minimize(end)

    def heard(objective: float, proven: float) -> None:
        if on_better is not None:
            on_better(round(objective), max(least, round(proven)))

    solver = solve(model, work, heard)
    if solver is None:  # not even the hint was completed
        return Solved(plan, most, least, work)
    found = laid(dag, np.array([solver.value(start) for start in starts], np.int64), cores)
    bound = max(least, int(np.ceil(solver.best_objective_bound - 1e-6)))
    return Solved(found, makespan(dag, found), bound, solver.response_proto.deterministic_time)


def segments(dag: Dag) -> list[list[int]]:
    """The micro-ops of each segment, in the order of time.

    What waits for all of a set and for nothing else has as many before it as the set has members; so it is enough to
    sort by that number.
    """
    before = [0] * len(dag)  # sets of micro-ops, a bit each
    for op in numbers(dag.order):
        for other in dag.producers[op]:
            before[op] |= before[other] | 1 << other
    counts = [some.bit_count() for some in before]
    found: list[list[int]] = []
    for place, op in enumerate(sorted(range(len(dag)), key=lambda op: (counts[op], op))):
        if counts[op] >= place:
            found.append([])
        found[-1].append(op)
    return found


def solved(dag: Dag, cores: int, tries: int, work: float, on_better: OnBetter | None = None) -> Solved:
    """The best schedule that `tries` lists of each segment find and CP-SAT in deterministic time `work`, which segments
    share by the gap that lists leave."""
    parts = [(chosen, dag.part(chosen)) for chosen in segments(dag)]
    plans, bounds = list[OpPlacement](), list[Bounds]()
    for _, part in parts:
        known = bound(part, cores, intervals=len(part) <= _INTERVALS)
        plans.append(searched(part, cores, [-levels(part), -known.tails], tries, known.best))
        bounds.append(known)
    ends = [makespan(part, plan) for (_, part), plan in zip(parts, plans, strict=True)]
    least = [known.best for known in bounds]

    def heard(at: int, end: int, proven: int) -> None:
        ends[at], least[at] = min(ends[at], end), max(least[at], proven)
        if on_better is not None:
            on_better(sum(ends), sum(least))

    if on_better is not None:
        on_better(sum(ends), sum(least))
    spent = 0.0
    open_gaps = {
        at: ends[at] - least[at] for at, (_, part) in enumerate(parts) if ends[at] > least[at] and len(part) <= WHOLE
    }
    for at, gap in sorted(open_gaps.items(), key=lambda pair: (pair[1], pair[0])):
        left = sum(other for which, other in open_gaps.items() if (other, which) >= (gap, at))
        if spent >= work:
            break
        one = whole(parts[at][1], cores, plans[at], bounds[at], (work - spent) * gap / left, partial(heard, at))
        plans[at], spent = one.plan, spent + one.work
        heard(at, one.makespan, one.bound)
    where, starts, now = np.zeros(len(dag), np.int64), np.zeros(len(dag), np.int64), 0
    for (chosen, _), plan, end in zip(parts, plans, ends, strict=True):
        where[chosen], starts[chosen] = plan.cores, plan.starts + now
        now += end
    return Solved(OpPlacement(where, starts), now, sum(least), spent)
