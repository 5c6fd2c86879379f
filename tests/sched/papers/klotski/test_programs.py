"""Integer programs and mappings of micro-ops against brute force over starts and cores."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.papers.klotski import ilp, mapping_ilp
from meshloom.sched.papers.klotski.dag import Dag, GraphError, Ints, dag
from meshloom.sched.papers.klotski.listing import OpPlacement, check, listed, makespan
from meshloom.sched.papers.klotski.mapping import (
    annealed,
    greedy,
    hop_words,
    hops_between,
    mapped_by_cp_sat,
    overlapping,
)

from .test_listing import optimum, random_dag


def mesh(rows: int, columns: int) -> Ints:
    places = list(product(range(rows), range(columns)))
    return np.array([[abs(a - c) + abs(b - d) for c, d in places] for a, b in places], np.int64)


def least_cost(graph: Dag, starts: Ints, hops: Ints) -> int:
    """Of all mappings without two micro-ops on a core at the same time."""
    cores, size = len(hops), len(graph)
    ends = starts + graph.cycles
    clash = [
        (one, two) for one in range(size) for two in range(one) if starts[one] < ends[two] and starts[two] < ends[one]
    ]
    return min(
        sum(
            words * int(hops[where[one], where[two]])
            for (one, two), words in zip(graph.edges.tolist(), graph.words.tolist(), strict=True)
        )
        for where in product(range(cores), repeat=size)
        if all(where[one] != where[two] for one, two in clash)
    )


# -- Eq. 18, 19, 15 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_eq_18_is_the_optimum_and_eq_19_below_it(seed: int) -> None:
    random = Random(seed)
    graph, cores = random_dag(random, 6, longest=4), random.randint(1, 3)
    exact, relaxed = (ilp.scheduled(graph, cores, relaxed) for relaxed in (False, True))
    best = optimum(graph, cores)
    assert exact.proven
    assert exact.makespan == exact.bound == exact.objective == best
    assert relaxed.makespan <= best
    plan = ilp.played(graph, relaxed, cores)
    check(graph, plan, cores)
    assert best <= makespan(graph, plan)


def test_eq_19_starts_more_than_there_are_cores() -> None:
    """Four long micro-ops and one core: one may start in each slot, while the others still run."""
    graph = dag([4, 4, 4, 4], [])
    assert ilp.scheduled(graph, 1).makespan == 16
    relaxed = ilp.scheduled(graph, 1, relaxed=True)
    assert relaxed.makespan == 7
    assert makespan(graph, ilp.played(graph, relaxed, 1)) == 16


@pytest.mark.parametrize("seed", range(3))
def test_eq_15_weighs_hops_and_slots(seed: int) -> None:
    """Against every start and core of three micro-ops on a row of three cores."""
    random = Random(seed)
    graph, hops = random_dag(random, 3, longest=2, density=0.6), mesh(1, 3)
    horizon = makespan(graph, listed(graph, 3))
    for beta in (0.01, 2.0):
        best = np.inf
        for starts in product(range(horizon), repeat=3):
            ends = np.array(starts) + graph.cycles
            if ends.max() > horizon or any(starts[b] < ends[a] for a, b in graph.edges.tolist()):
                continue
            for cores in product(range(3), repeat=3):
                plan = OpPlacement(np.array(cores), np.array(starts))
                try:
                    check(graph, plan, 3)
                except GraphError:
                    continue
                cost = sum(int(hops[cores[a], cores[b]]) for a, b in graph.edges.tolist())
                best = min(best, int(ends.max()) + beta * cost)
        result = ilp.unified(graph, hops, beta)
        assert result.proven
        assert result.objective == pytest.approx(best)
        assert result.cores is not None
        check(graph, OpPlacement(result.cores, result.starts), 3)


def test_eq_8_and_12_allow_two_at_a_time() -> None:
    """A long micro-op and two that follow each other, one of which needs what the long one's core has: as printed
    they may share it, because neither starts with the other."""
    graph = dag([4, 1, 2], [(1, 2)])
    hops = mesh(1, 2)
    printed = ilp.unified(graph, hops, 10.0, exclusive=False)
    assert (printed.makespan, printed.objective) == (4, 4)
    assert ilp.unified(graph, hops, 10.0).objective == 4
    busy = dag([4, 4, 1, 2], [(2, 0), (2, 1), (2, 3)])
    apart, together = (ilp.unified(busy, hops, 10.0, exclusive).objective for exclusive in (True, False))
    assert together <= apart


def test_too_many_variables() -> None:
    graph = dag([1, 200_000, 1], [(0, 1)])
    with pytest.raises(GraphError, match=r"has more than 60000 variables"):
        ilp.scheduled(graph, 2)


# -- mapping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns", "seed"), [(2, 2, 1), (2, 2, 2), (1, 3, 3), (2, 3, 4)])
def test_mappings_against_all_there_are(rows: int, columns: int, seed: int) -> None:
    graph, hops = random_dag(Random(seed), 6), mesh(rows, columns)
    starts = listed(graph, rows * columns).starts
    best = least_cost(graph, starts, hops)
    first = greedy(graph, starts, hops)
    better = annealed(graph, first, hops, 3000)
    by_cp = mapped_by_cp_sat(graph, first, hops, 1.0)
    by_milp, proven = mapping_ilp.mapped(graph, starts, rows, columns)
    for cores in (first.cores, better.cores, by_cp.cores, by_milp.cores):
        check(graph, OpPlacement(cores, starts), rows * columns)
        assert hop_words(graph, cores, hops) >= best
    assert proven
    assert by_cp.cost == by_cp.bound == by_milp.cost == by_milp.bound == best
    assert hop_words(graph, better.cores, hops) == best


def test_cp_sat_is_never_worse_than_its_hint() -> None:
    """Even with no work at all."""
    graph, hops = random_dag(Random(6), 60, density=0.05), mesh(3, 3)
    plan = annealed(graph, greedy(graph, listed(graph, 9).starts, hops), hops, 20000)
    for work in (1e-6, 0.05):
        result = mapped_by_cp_sat(graph, plan, hops, work)
        check(graph, OpPlacement(result.cores, plan.starts), 9)
        assert result.bound <= result.cost <= hop_words(graph, plan.cores, hops)


def test_as_printed_columns_cost_nothing() -> None:
    """Two neighbours that overlap must part: by Eq. 21 as printed that is free along a row."""
    graph = dag([2, 2, 1, 1], [(0, 2), (0, 3), (1, 2), (1, 3)], [5, 5, 5, 5])
    starts = np.array([0, 0, 2, 2])
    mended, _ = mapping_ilp.mapped(graph, starts, 1, 3)
    printed, _ = mapping_ilp.mapped(graph, starts, 1, 3, printed=True)
    assert mended.cost == 10
    assert printed.cost >= mended.cost
    assert printed.bound == 0  # of another cost


def test_annealing_keeps_cores_apart_and_repeats() -> None:
    graph, hops = random_dag(Random(2), 150, density=0.03), mesh(3, 3)
    first = greedy(graph, listed(graph, 9).starts, hops)
    before = hop_words(graph, first.cores, hops)
    costs = []
    for moves in (1000, 20000):
        plan = annealed(graph, first, hops, moves)
        check(graph, plan, 9)
        assert (plan.cores == annealed(graph, first, hops, moves).cores).all()
        costs.append(hop_words(graph, plan.cores, hops))
    assert before > costs[0] > costs[1]


def test_one_core_or_one_micro_op_has_no_cost() -> None:
    graph = dag([2, 3], [(0, 1)], [7])
    plan = annealed(graph, greedy(graph, np.array([0, 2]), mesh(1, 1)), mesh(1, 1), 100)
    assert hop_words(graph, plan.cores, mesh(1, 1)) == 0
    assert mapped_by_cp_sat(graph, plan, mesh(1, 1), 0.1).cost == 0


def test_overlaps_and_hops() -> None:
    graph = dag([2, 2, 2], [])
    others, ends = overlapping(graph, np.array([0, 1, 2]))
    assert (others.tolist(), ends.tolist()) == ([1, 0, 2, 1], [1, 3, 4])
    assert (hops_between(load("quad16")) == hops_between(load("quad16")).T).all()
    assert hops_between(load("lp9"))[0].tolist() == [0, 1, 2, 1, 2, 3, 2, 3, 4]
