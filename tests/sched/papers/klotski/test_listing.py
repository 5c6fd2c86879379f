"""Micro-op schedules: windows, lists, bounds and CP-SAT, against brute force and networkx."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest

from meshloom.sched.papers.klotski.bounds import bound
from meshloom.sched.papers.klotski.dag import Dag, GraphError, Ints, dag
from meshloom.sched.papers.klotski.exact import laid, segments, solved, whole
from meshloom.sched.papers.klotski.flexibility import alap, asap, levels, windows
from meshloom.sched.papers.klotski.listing import Delays, OpPlacement, check, listed, makespan, retimed, searched


def random_dag(random: Random, size: int, longest: int = 9, density: float = 0.3) -> Dag:
    edges = [(one, two) for two in range(size) for one in range(two) if random.random() < density]
    names = random.sample(range(size), size)  # numbers say nothing about the order
    cycles = [random.randint(1, longest) for _ in range(size)]
    return dag(cycles, [(names[one], names[two]) for one, two in edges], [random.randint(1, 20) for _ in edges])


def optimum(graph: Dag, cores: int) -> int:
    """The least makespan: some order of all micro-ops, each started as soon as operands and a core are there, is
    best. Knows nothing of the code under test but the edges."""
    size, cycles, producers = len(graph), graph.cycles.tolist(), graph.producers
    best = sum(cycles)
    for order in permutations(range(size)):
        ends, free = dict[int, int](), [0] * cores
        for op in order:
            if any(other not in ends for other in producers[op]):
                break
            begin = max([min(free), *(ends[other] for other in producers[op])])
            core = max((core for core in range(cores) if free[core] <= begin), key=lambda core: free[core])
            ends[op] = free[core] = begin + cycles[op]
        else:
            best = min(best, max(ends.values()))
    return best


def small() -> Iterator[Any]:
    random = Random(5)
    for number in range(12):
        graph = random_dag(random, random.randint(1, 6), density=random.choice((0, 0.2, 0.5)))
        yield pytest.param(graph, random.randint(1, 3), id=str(number))


# -- windows ----------------------------------------------------------------------------------------------------------

#: Twelve micro-ops of one time slot each, in the shape of Figure 3. The paper's text names two of their windows: slots
#: 1 to 2 of μop 3, and 2 to 4 of μop 8 (slots and micro-ops count from 1); its edges are only drawn.
FIGURE_3 = ((1, 5), (2, 5), (2, 6), (3, 7), (4, 8), (5, 9), (6, 9), (7, 10), (9, 11), (9, 12))


def test_windows_of_figure_3() -> None:
    graph = dag([1] * 12, [(one - 1, two - 1) for one, two in FIGURE_3])
    result = windows(graph, 4)
    slots = [(first + 1, last + 1) for first, last in zip(result.first.tolist(), result.last.tolist(), strict=True)]
    assert slots[3 - 1] == (1, 2)
    assert slots[8 - 1] == (2, 4)
    assert result.flexibility.tolist() == [0, 0, 1, 2, 0, 0, 1, 2, 0, 1, 0, 0]
    assert alap(graph, 6).tolist() == (result.last + 2).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_windows_are_longest_paths(seed: int) -> None:
    import networkx

    graph = random_dag(Random(seed), 20)
    known: Any = networkx.DiGraph()
    known.add_nodes_from(range(20))
    known.add_weighted_edges_from((one, two, graph.cycles[one]) for one, two in graph.edges.tolist())
    for op in range(20):
        before = known.subgraph(networkx.ancestors(known, op) | {op})
        assert asap(graph)[op] == networkx.dag_longest_path_length(before)
        after = known.subgraph(networkx.descendants(known, op) | {op}).copy()
        after.add_weighted_edges_from((end, "end", graph.cycles[end]) for end in [*after] if not after.out_degree(end))
        assert levels(graph)[op] == networkx.dag_longest_path_length(after)


def test_what_cannot_be_scheduled() -> None:
    with pytest.raises(GraphError, match=r"in a circle: \d+ -> \d+ -> \d+"):
        dag([1, 1, 1], [(0, 1), (1, 2), (2, 1)])
    with pytest.raises(GraphError, match=r"micro-op 1 takes 0 cycles; it must take at least one"):
        dag([1, 0], [])
    with pytest.raises(GraphError, match=r"from micro-op 0 to 2; there are 0 to 1"):
        dag([1, 1], [(0, 2)])
    with pytest.raises(GraphError, match="takes 3 cycles, which is beyond the horizon of 2"):
        alap(dag([1, 2], [(0, 1)]), 2)


# -- lists and bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("graph", "cores"), list(small()))
def test_against_brute_force(graph: Dag, cores: int) -> None:
    """Any list is within 2 - 1/m (Theorem 1), bounds are below, and CP-SAT proves the optimum."""
    best, random = optimum(graph, cores), Random(1)
    for _ in range(20):
        plan = listed(graph, cores, np.array([random.randint(0, 9) for _ in range(len(graph))], np.int64))
        check(graph, plan, cores)
        assert best <= makespan(graph, plan) <= (2 - 1 / cores) * best
    known = bound(graph, cores)
    assert max(known.chain, known.work) <= known.sets <= known.intervals <= best
    result = whole(graph, cores, listed(graph, cores), known, 1.0)
    check(graph, result.plan, cores)
    assert result.makespan == result.bound == best == solved(graph, cores, 10, 1.0).makespan


@pytest.mark.parametrize("seed", range(6))
def test_heads_and_tails_hold_in_schedules(seed: int) -> None:
    """Every schedule respects every head and tail, so bounds that follow from these are bounds."""
    random = Random(seed)
    graph, cores = random_dag(random, 40, density=0.1), random.randint(2, 5)
    known = bound(graph, cores)
    assert (known.heads >= asap(graph)).all()
    assert (known.tails >= levels(graph)).all()
    for _ in range(10):
        plan = listed(graph, cores, np.array([random.randint(0, 99) for _ in range(40)], np.int64))
        assert (plan.starts >= known.heads).all()
        assert (plan.starts + known.tails <= makespan(graph, plan)).all()


def test_bounds_see_what_work_and_chains_do_not() -> None:
    """Ten equal micro-ops on nine cores take two rounds, twice where a barrier parts them; a late crowd is seen in its
    interval."""
    rounds = dag([10] * 20, [(one, two) for one in range(10) for two in range(10, 20)])
    known = bound(rounds, 9)
    assert (known.chain, known.work, known.best) == (20, 23, 40)
    # one chain of 12; two long micro-ops beside it need a middle that the chain's own crowd fills
    crowd = dag([4, 4, 4, 6, 6, 4, 4], [(0, 1), (1, 2), (0, 5), (0, 6), (5, 2), (6, 2)])
    assert bound(crowd, 3).best == optimum(crowd, 3)


def test_more_lists_are_never_worse_and_always_the_same() -> None:
    graph = random_dag(Random(3), 200, longest=50, density=0.02)
    keys = [-levels(graph)]
    ends = [makespan(graph, searched(graph, 7, keys, tries)) for tries in (1, 10, 100, 1000)]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] < ends[0]
    one, two = (searched(graph, 7, keys, 300, seed=4) for _ in range(2))
    assert (one.starts == two.starts).all()
    check(graph, one, 7)


# -- delays -----------------------------------------------------------------------------------------------------------


def stored(hops: Ints) -> Delays:
    """Each word takes a cycle for each hop: packets are stored and sent on, one at a time."""
    return Delays(np.zeros_like(hops), hops)


@pytest.mark.parametrize("seed", range(4))
def test_delays_are_kept(seed: int) -> None:
    random = Random(seed)
    graph = random_dag(random, 30)
    hops = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    for delays in (stored(hops), Delays.wormhole(hops, 3)):
        plan = listed(graph, 4, delays=delays)
        check(graph, plan, 4, delays)
        free = listed(graph, 4)
        with pytest.raises(GraphError, match="before"):
            check(graph, free, 4, delays)
        late = retimed(graph, free, delays)
        check(graph, late, 4, delays)
        assert (late.cores == free.cores).all()
        assert makespan(graph, late) >= makespan(graph, free)


def test_delays_as_they_are_defined() -> None:
    """Ten words over two hops take 20 cycles one by one, 3 for each hop and ten behind each other; none at home."""
    hops = np.array([[0, 2], [2, 0]])
    graph, apart = dag([5, 5], [(0, 1)], [10]), np.array([0, 1])
    for delays, start in ((stored(hops), 25), (Delays.wormhole(hops, 3), 21)):
        assert retimed(graph, OpPlacement(apart, np.array([0, 5])), delays).starts.tolist() == [0, start]
        assert listed(graph, 2, delays=delays).starts.tolist() == [0, 5]


def test_a_check_finds_what_is_wrong() -> None:
    graph = dag([3, 3, 3], [(0, 1)])
    for cores, starts, message in (
        ([0, 1, 1], [0, 2, 6], "before 0's words: 3"),
        ([0, 0, 1], [0, 3, -1], "before cycle 0"),
        ([0, 1, 1], [0, 3, 5], "1 and 2 are on core 1 at the same time"),
        ([0, 2, 1], [0, 3, 0], "beyond 1"),
    ):
        with pytest.raises(GraphError, match=message):
            check(graph, OpPlacement(np.array(cores), np.array(starts)), 2)


# -- segments ---------------------------------------------------------------------------------------------------------


def test_segments_lose_nothing() -> None:
    """Two graphs behind each other: the best of both is the sum, and each is proven by itself."""
    import networkx

    random = Random(8)
    one, two = random_dag(random, 6), random_dag(random, 6)
    across = [(first, 6 + second) for first in range(6) for second in range(6)]
    edges = [*map(tuple, one.edges.tolist()), *((a + 6, b + 6) for a, b in two.edges.tolist()), *across]
    both = dag([*one.cycles.tolist(), *two.cycles.tolist()], edges)
    parts = segments(both)
    assert sorted(op for part in parts for op in part) == list(range(12))
    for at, some in enumerate(parts[:-1]):  # by definition
        later = {op for part in parts[at + 1 :] for op in part}
        assert all(later <= networkx.descendants(networkx.DiGraph(both.edges.tolist()), op) for op in some)
    result = solved(both, 2, 10, 1.0)
    check(both, result.plan, 2)
    assert result.makespan == result.bound == optimum(one, 2) + optimum(two, 2)


def test_nothing_and_next_to_nothing() -> None:
    for graph, end in ((dag([], []), 0), (dag([7], []), 7), (dag([3, 4, 5], []), 5)):
        result = solved(graph, 3, 5, 0.1)
        assert (result.makespan, result.bound, result.gap) == (end, end, 0)
    assert solved(dag([3, 4, 5], []), 1, 5, 0.1).makespan == 12


def test_starts_find_their_cores() -> None:
    graph = dag([4, 2, 2, 4], [])
    assert laid(graph, np.array([0, 0, 2, 4]), 2).cores.tolist() == [0, 1, 1, 0]
    with pytest.raises(IndexError):
        laid(graph, np.array([0, 0, 0, 0]), 3)
