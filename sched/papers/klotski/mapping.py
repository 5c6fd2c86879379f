"""Which core runs which micro-op, so that few words go few hops (Klotski, section III-C, "NoC communication cost").

Starts are given; micro-ops that overlap in time need different cores, anything else is free. The cost is the sum of
words x hops over all edges (the paper counts hops alone). Greedy: in order of time each goes where its words come from.
Annealing: chains of two cores' overlapping micro-ops change places, which never makes a conflict. `mapped_by_cp_sat`
begins with the best of these and can prove that it is; for Eq. 20 to 28 see `mapping_ilp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from meshloom.hw.spec.config import ChipConfig, tile_position

from ...routing.compiled import jit
from ...support.cpsat import solve
from .dag import Dag, Ints, numbers
from .listing import Int, OpPlacement

#: Micro-ops that may change places together; longer chains are left as they are.
_CHAIN = 200


def hops_between(chip: ChipConfig) -> Ints:
    """Links between the cores of a chip, in the order of `chip.cores`: int64 [cores, cores]."""
    places = np.array([tile_position(tile) for tile in chip.cores], np.int64)
    return np.abs(places[:, None, :] - places[None, :, :]).sum(axis=2)


def hop_words(dag: Dag, cores: Ints, hops: Ints) -> int:
    """Words x hops of all edges; a word has P bytes."""
    return int((dag.words * hops[cores[dag.edges[:, 0]], cores[dag.edges[:, 1]]]).sum())


def overlapping(dag: Dag, starts: Ints) -> tuple[Ints, Ints]:
    """For each micro-op those that run at the same time: their numbers in a row, and where those of each end."""
    ends = starts + dag.cycles
    result: list[Any] = []
    for op in range(len(dag)):
        same = np.flatnonzero((starts < ends[op]) & (ends > starts[op]))
        result.append(same[same != op])
    counts = np.array([len(same) for same in result], np.int64)
    return np.concatenate([*result, np.zeros(0, np.int64)]).astype(np.int64), np.cumsum(counts)


@jit
def _greedy(ops: Any, ins: Any, order: Any, starts: Any, hops: Any, free: Any, where: Any) -> None:
    for at in range(len(order)):
        op = order[at]
        chosen, least = Int(-1), Int(0)
        for core in range(len(hops)):
            if free[core] > starts[op]:
                continue
            cost = Int(0)
            for arc in range(ops[op].first_in, ops[op].end_in):
                cost += ins[arc].words * hops[where[ins[arc].other], core]
            if chosen < 0 or cost < least:
                chosen, least = core, cost
        where[op] = chosen
        free[chosen] = starts[op] + ops[op].cycles


def greedy(dag: Dag, starts: Ints, hops: Ints) -> OpPlacement:
    """Cores in order of the starts, of which at most as many overlap as there are cores."""
    plan = OpPlacement(np.zeros(len(dag), np.int64), starts)
    ops, ins, _ = dag.tables
    _greedy(ops, ins, np.argsort(starts, kind="stable"), starts, hops, np.zeros(len(hops), np.int64), plan.cores)
    return plan


@jit
def _around(ops: Any, ins: Any, outs: Any, op: int, hops: Any, where: Any, marked: Any) -> int:
    """Cost of the edges of a micro-op; of those between two that are marked, what it gets only."""
    cost = Int(0)
    for arc in range(ops[op].first_in, ops[op].end_in):
        cost += ins[arc].words * hops[where[ins[arc].other], where[op]]
    for arc in range(ops[op].first_out, ops[op].end_out):
        if not marked[outs[arc].other]:
            cost += outs[arc].words * hops[where[op], where[outs[arc].other]]
    return cost


@jit
def _anneal(
    ops: Any, ins: Any, outs: Any, others: Any, ends: Any, hops: Any, moves: int, seed: int, where: Any, best: Any
) -> int:
    """Improves `where`, keeps the best in `best`, returns by how much the cost of that is lower."""
    size, cores = len(ops), len(hops)
    np.random.seed(seed)
    marked, chain = np.zeros(size, np.bool_), np.zeros(_CHAIN, np.int64)
    now, lowest = Int(0), Int(0)
    warm = 0.0
    for move in range(-200, moves):  # the first tell what a step costs
        op, to = np.random.randint(size), np.random.randint(cores)
        own = where[op]
        if to == own:
            continue
        chain[0], count, at, fits = op, 1, 0, True
        marked[op] = True
        while at < count and fits:  # whoever is in the way on the other core goes back, and so on
            one = chain[at]
            at += 1
            for which in range(ends[one - 1] if one else 0, ends[one]):
                other = others[which]
                if marked[other] or where[other] != (to if where[one] == own else own):
                    continue
                if count == _CHAIN:
                    fits = False
                    break
                chain[count], marked[other] = other, True
                count += 1
        if fits:
            change = Int(0)
            for at in range(count):
                change -= _around(ops, ins, outs, chain[at], hops, where, marked)
            for at in range(count):
                where[chain[at]] = own + to - where[chain[at]]
            for at in range(count):
                change += _around(ops, ins, outs, chain[at], hops, where, marked)
            if move < 0:
                warm += abs(change) / 200
            heat = warm * (1e-3 ** ((move + 1) / moves))
            if move >= 0 and (change <= 0 or np.random.random() < np.exp(-change / max(heat, 1e-9))):
                now += change
                if now < lowest:
                    lowest = now
                    best[:] = where
            else:
                for at in range(count):
                    where[chain[at]] = own + to - where[chain[at]]
        for at in range(count):
            marked[chain[at]] = False
    return -lowest


def annealed(dag: Dag, plan: OpPlacement, hops: Ints, moves: int, seed: int = 1) -> OpPlacement:
    """The best cores found in so many moves from a mapping without conflicts, which keeps its starts."""
    if len(dag) < 2 or len(hops) < 2:
        return plan
    others, ends = overlapping(dag, plan.starts)
    best = plan.cores.copy()
    _anneal(*dag.tables, others, ends, hops, max(1, moves), seed, plan.cores.copy(), best)
    return OpPlacement(best, plan.starts)


@dataclass(frozen=True, eq=False)
class Mapped:
    """Cores, their cost in words x hops, and the cost below which there is no mapping for these starts, by proof."""

    cores: Ints
    cost: int
    bound: int


def mapped_by_cp_sat(dag: Dag, plan: OpPlacement, hops: Ints, work: float) -> Mapped:
    """The best mapping found by CP-SAT in deterministic time `work`; never worse than that of `plan`, its hint."""
    from ortools.sat.python import cp_model

    before = hop_words(dag, plan.cores, hops)
    model, linear = cp_model.CpModel(), cast("Any", cp_model.LinearExpr)
    on = [[model.new_bool_var(f"{op} on {core}") for core in range(len(hops))] for op in range(len(dag))]
    for op, some in enumerate(on):
        model.add_exactly_one(some)
        for core, it in enumerate(some):
            model.add_hint(it, int(plan.cores[op] == core))
    ends = plan.starts + dag.cycles
    for start in np.unique(plan.starts).tolist():  # whoever overlaps does so at the start of one
        running = np.flatnonzero((plan.starts <= start) & (ends > start)).tolist()
        for core in range(len(hops)) if len(running) > 1 else ():
            model.add_at_most_one(on[op][core] for op in running)
    ways: list[cp_model.IntVar] = []
    for producer, consumer in dag.pairs:
        way = model.new_int_var(0, int(hops.max()), "")
        model.add_hint(way, int(hops[plan.cores[producer], plan.cores[consumer]]))
        ways.append(way)
        for core in range(len(hops)):  # from `core` at least its distance to wherever the consumer is
            far = linear.weighted_sum(on[consumer], numbers(hops[core]))
            held: Any = model.add(way >= far)
            held.only_enforce_if(on[producer][core])
    model.minimize(linear.weighted_sum(ways, numbers(dag.words)))
    solver = solve(model, work)
    if solver is None:
        return Mapped(plan.cores, before, 0)
    cores = np.array([next(core for core, it in enumerate(some) if solver.value(it)) for some in on], np.int64)
    if hop_words(dag, cores, hops) > before:  # a hint is one, and may be dropped
        cores = plan.cores
    return Mapped(cores, hop_words(dag, cores, hops), max(0, int(np.ceil(solver.best_objective_bound - 1e-6))))
