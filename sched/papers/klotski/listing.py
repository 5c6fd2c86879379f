"""List scheduling on equal cores (Graham 1966, 1969; Klotski, Theorem 1), and what makes its lists better.

Whenever a core is idle it takes the ready micro-op that comes first in a list. Without delays of communication the
makespan is at most 2 - 1/m times the least one, whatever the list. Lists here come from bottom levels, from tails that
bounds have lengthened (`bounds`), and from schedules: a schedule is pushed to the right, last ends first, then to the
left, first starts first, which never makes it longer (A. Valls et al., "Justification and RCPSP", EJOR 2005), and lists
near the best one are tried.

Compiled; the work is counted in lists tried, so what is found depends on no machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...routing.compiled import jit
from .dag import Dag, GraphError, Ints
from .flexibility import levels

#: numba takes a literal for a type of its own.
Int: Any = np.int64


@dataclass(frozen=True, eq=False)
class OpPlacement:
    """A core (0..) and a first cycle for each micro-op."""

    cores: Ints
    starts: Ints


@dataclass(frozen=True, eq=False)
class Delays:
    """Cycles from the end of a producer until its words are on another core: `fixed[a, b] + words x each[a, b]`, int64
    [cores, cores]; 0 on the same core."""

    fixed: Ints
    each: Ints

    @classmethod
    def wormhole(cls, hops: Ints, cycles: int) -> Delays:
        """A train of flits: `cycles` for each hop of its head, then a word a cycle."""
        return cls(hops * cycles, (hops > 0).astype(np.int64))


def makespan(dag: Dag, plan: OpPlacement) -> int:
    """Cycles until all have ended."""
    return int((plan.starts + dag.cycles).max()) if len(dag) else 0


def check(dag: Dag, plan: OpPlacement, cores: int, delays: Delays | None = None) -> None:
    """Raises GraphError unless operands are there when a micro-op starts, and every core does one at a time."""
    ends = plan.starts + dag.cycles
    for (producer, consumer), words in zip(dag.pairs, dag.words.tolist(), strict=True):
        ready = ends[producer]
        if delays is not None:
            where = plan.cores[producer], plan.cores[consumer]
            ready = ready + delays.fixed[where] + words * delays.each[where]
        if plan.starts[consumer] < ready:
            raise GraphError(
                f"micro-op {consumer} starts in {plan.starts[consumer]}, before {producer}'s words: {ready}"
            )
    by_core = np.lexsort((plan.starts, plan.cores))
    for one, two in pairwise(by_core.tolist()):
        if plan.cores[one] == plan.cores[two] and ends[one] > plan.starts[two]:
            raise GraphError(f"micro-ops {one} and {two} are on core {plan.cores[one]} at the same time")
    if len(dag) and not (plan.cores.min() >= 0 and plan.cores.max() < cores and plan.starts.min() >= 0):
        raise GraphError(f"a micro-op is on a core beyond {cores - 1}, or before cycle 0")


@jit
def _list(ops: Any, ins: Any, outs: Any, key: Any, cores: int, starts: Any, where: Any) -> int:
    """Fills `starts` and `where` by a list; the lower `key` (then number), the earlier in it. Returns the makespan."""
    size = len(ops)
    waits = np.zeros(size, np.int64)
    ready = [(Int(0), Int(0)) for _ in range(0)]
    busy = [(Int(0), Int(0)) for _ in range(0)]
    idle = [Int(core) for core in range(cores)]
    for op in range(size):
        waits[op] = ops[op].end_in - ops[op].first_in
        if waits[op] == 0:
            heapq.heappush(ready, (key[op], Int(op)))
    now = Int(0)
    while ready or busy:
        while ready and idle:
            _, op = heapq.heappop(ready)
            starts[op], where[op] = now, heapq.heappop(idle)
            heapq.heappush(busy, (now + ops[op].cycles, op))
        now = busy[0][0]
        while busy and busy[0][0] == now:
            _, op = heapq.heappop(busy)
            heapq.heappush(idle, where[op])
            for arc in range(ops[op].first_out, ops[op].end_out):
                other = outs[arc].other
                waits[other] -= 1
                if waits[other] == 0:
                    heapq.heappush(ready, (key[other], other))
    return now


@jit
def _list_delayed(ops: Any, ins: Any, outs: Any, key: Any, fixed: Any, each: Any, starts: Any, where: Any) -> int:
    """The same where words take time from core to core: the ready micro-op that is first in the list goes where it can
    start earliest; of equal cores, where it gets most words from."""
    size, cores = len(ops), len(fixed)
    waits = np.zeros(size, np.int64)
    free = np.zeros(cores, np.int64)
    ready = [(Int(0), Int(0)) for _ in range(0)]
    for op in range(size):
        waits[op] = ops[op].end_in - ops[op].first_in
        if waits[op] == 0:
            heapq.heappush(ready, (key[op], Int(op)))
    last = Int(0)
    while ready:
        _, op = heapq.heappop(ready)
        best, near, chosen = Int(-1), Int(-1), 0
        for core in range(cores):
            begin, local = free[core], Int(0)
            for arc in range(ops[op].first_in, ops[op].end_in):
                other, words = ins[arc].other, ins[arc].words
                come = starts[other] + ops[other].cycles + fixed[where[other], core] + words * each[where[other], core]
                begin = max(begin, come)
                if where[other] == core:
                    local += words
            if best < 0 or begin < best or (begin == best and local > near):
                best, near, chosen = begin, local, core
        starts[op], where[op] = best, chosen
        free[chosen] = best + ops[op].cycles
        last = max(last, free[chosen])
        for arc in range(ops[op].first_out, ops[op].end_out):
            other = outs[arc].other
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(ready, (key[other], other))
    return last


@jit
def _search(
    ops: Any, ins: Any, outs: Any, back: Any, back_ins: Any, back_outs: Any, keys: Any, cores: int, goal: int,
    tries: int, seed: int, starts: Any, where: Any,
) -> int:  # fmt: skip
    """Schedules by each row of `keys`, then by lists near the best; each is pushed right and left while that shortens
    it. `starts`, `where`: of the best, whose makespan is returned. Ends at `goal`, or after so many lists."""
    size = len(ops)
    np.random.seed(seed)
    best, done, row = Int(-1), 0, 0
    key, one, at = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    while done < tries:
        if row < len(keys):
            key[:] = keys[row]
        else:  # the best one's list, those of some part of it moved by up to a share of the makespan
            reach = np.float64(best) * 0.5 ** np.random.randint(2, 9)
            first = np.random.random() * 1.2 * best - 0.2 * best
            behind = first + reach * 2 ** np.random.randint(1, 5)
            for op in range(size):
                key[op] = starts[op]
                if first <= starts[op] < behind:
                    key[op] += Int(reach * np.random.random())
        row += 1
        length, better = Int(-1), True
        while better and done < tries:
            new = _list(ops, ins, outs, key, cores, one, at)
            done += 1
            if best < 0 or new <= best:  # equally good ones too: lists near them are others
                best = new
                starts[:], where[:] = one, at
            better = length < 0 or new < length
            if best <= goal:
                return best
            if better and done < tries:
                length = new
                for op in range(size):
                    key[op] = -(one[op] + ops[op].cycles)
                late = _list(back, back_ins, back_outs, key, cores, one, at)
                done += 1
                for op in range(size):
                    key[op] = late - one[op] - ops[op].cycles
    return best


def listed(dag: Dag, cores: int, key: Ints | None = None, delays: Delays | None = None) -> OpPlacement:
    """The schedule of one list. `key`: int64 [n], the lowest comes first (None: the highest bottom level). With
    `delays`, cores are the rows of these."""
    order = -levels(dag) if key is None else key
    plan = OpPlacement(np.zeros(len(dag), np.int64), np.zeros(len(dag), np.int64))
    if delays is None:
        _list(*dag.tables, order, cores, plan.starts, plan.cores)
    else:
        _list_delayed(*dag.tables, order, delays.fixed, delays.each, plan.starts, plan.cores)
    return plan


def searched(dag: Dag, cores: int, keys: Sequence[Ints], tries: int, goal: int = 0, seed: int = 1) -> OpPlacement:
    """The best schedule of so many lists (at least one): those of `keys`, and lists near the best. It is the result at
    once when its makespan is `goal`, a lower bound."""
    plan = OpPlacement(np.zeros(len(dag), np.int64), np.zeros(len(dag), np.int64))
    back, back_ins, back_outs = dag.backwards.tables
    _search(
        *dag.tables,
        back,
        back_ins,
        back_outs,
        np.stack(keys),
        cores,
        goal,
        max(1, tries),
        seed,
        plan.starts,
        plan.cores,
    )
    return plan


@jit
def _retimed(ops: Any, ins: Any, order: Any, where: Any, fixed: Any, each: Any, starts: Any) -> None:
    free = np.zeros(len(fixed), np.int64)
    for at in range(len(order)):
        op = order[at]
        begin = free[where[op]]
        for arc in range(ops[op].first_in, ops[op].end_in):
            other, words = ins[arc].other, ins[arc].words
            come = (
                starts[other]
                + ops[other].cycles
                + fixed[where[other], where[op]]
                + words * each[where[other], where[op]]
            )
            begin = max(begin, come)
        starts[op] = begin
        free[where[op]] = begin + ops[op].cycles


def retimed(dag: Dag, plan: OpPlacement, delays: Delays) -> OpPlacement:
    """The same cores in the same order on each, as early as delays allow."""
    rank = np.empty(len(dag), np.int64)
    rank[dag.order] = np.arange(len(dag))
    order, starts = np.lexsort((rank, plan.starts)), np.zeros(len(dag), np.int64)
    ops, ins, _ = dag.tables
    _retimed(ops, ins, order, plan.cores, delays.fixed, delays.each, starts)
    return OpPlacement(plan.cores, starts)
