"""The proven bound of a network's micro-ops: never above the best schedule, and no weaker than what it is made of."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Unit
from meshloom.sched.papers.klotski.muops import Edge, MuGraph, MuOp, Region
from meshloom.sched.papers.klotski.partition import Partition, micro_ops
from meshloom.sched.papers.klotski.placing import placed, settled
from meshloom.sched.papers.klotski.proof import proven
from meshloom.sched.papers.klotski.work import stages_of

from ...network_graphs import random_network

CHIP = load("tiny")
PART = Region((0, 1), (0, 1), (0, 1))


def drawn(seed: int, size: int) -> MuGraph:
    """Micro-ops of both units with any edges forwards; their tensors do not matter here."""
    random = Random(seed)
    ops = tuple(
        MuOp(number, 0, 0, random.choice((Unit.MATRIX, Unit.VECTOR)), PART, (), (0, 1), None, True, cycles, 0)
        for number, cycles in enumerate(random.choices(range(1, 9), k=size))
    )
    edges = tuple(
        Edge(producer, consumer, "x", PART)
        for consumer in range(size)
        for producer in range(consumer)
        if random.random() < 0.3
    )
    graph = micro_ops(stages_of(random_network(0), CHIP), CHIP, Partition(4, 9, 8, 8))
    return MuGraph(graph.stages, ops, edges)


def least(graph: MuGraph, cores: int) -> int:
    """The best schedule of all lists: each micro-op as early as its operands and a unit of its kind allow."""
    best = sum(op.cycles for op in graph.ops)
    for order in permutations(range(len(graph.ops))):
        ends: dict[int, int] = {}
        free = {unit: [0] * cores for unit in Unit}
        for number in order:
            op = graph.ops[number]
            if any(edge.producer not in ends for edge in graph.before[number]):
                break
            units = free[op.unit]
            units.sort()
            units[0] = ends[number] = op.cycles + max([units[0], *(ends[e.producer] for e in graph.before[number])])
        else:
            best = min(best, max(ends.values()))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_below_it(seed: int) -> None:
    """Of all schedules of small graphs."""
    graph, cores = drawn(seed, 6), 1 + seed % 3
    assert proven(graph, cores) <= least(graph, cores)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_no_weaker_than_chains_and_work(seed: int) -> None:
    """Of whole networks, and plans are above it."""
    import networkx

    chip = load("klotski9")
    graph = micro_ops(stages_of(random_network(seed), chip), chip, Partition(4, 9, chip.lanes, chip.cols))
    result = proven(graph, len(chip.cores))
    chains = networkx.DiGraph((edge.producer, edge.consumer) for edge in graph.edges)
    chains.add_nodes_from(range(len(graph.ops)))
    ends: dict[int, int] = {}
    for number in networkx.topological_sort(chains):
        ends[number] = graph.ops[number].cycles + max((ends[one] for one in chains.predecessors(number)), default=0)
    work = {unit: sum(op.cycles for op in graph.ops if op.unit is unit) for unit in Unit}
    assert result >= max(max(ends.values()), *(-(-each // len(chip.cores)) for each in work.values()))
    assert result <= min(settled(graph, chip).makespan, placed(graph, chip).makespan)


def test_nothing_takes_nothing() -> None:
    graph = drawn(0, 1)
    assert proven(MuGraph(graph.stages, (), ()), 4) == 0
