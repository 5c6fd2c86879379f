"""The paper's routing step against an explicit time-expanded graph searched by networkx, on random hardware."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from meshloom.sched.papers.dtt.routing import FreeRouteSearch
from meshloom.sched.routing.hardware import Hardware, TimingFault

CYCLES = 14


def random_hardware(random: Random) -> Hardware:
    hardware = Hardware(wait_cost=random.choice([0, Fraction(1, 100), 0.1, 1]))
    count = random.randint(3, 6)
    for number in range(count):
        hardware.node(
            size=random.choice([None, 1, 2, 3]),
            name=f"N{number}",
            cost=random.choice([0, 0, 0.5]),
            delay=random.choice([0, 0, 0, 1]),
            keeps=random.random() < 0.2,
        )
    hardware.node(size=None, name="MEM", keeps=True)
    names = list(hardware.nodes)
    for _ in range(3 * count):
        source, destination = random.sample(names, 2)
        hardware.wire(
            source=source,
            destination=destination,
            bandwidth=random.choice([1, 1, 2]),
            cost=random.choice([0, 1, 2, 0.5, Fraction(1, 3)]),
            delay=random.choice([1, 1, 2, 3]),
            size=random.choice([None, None, 1, 2]),
        )
    return hardware


class Graph:
    """Explicit vertices (node, cycle) and edges that are free, from a router's public state alone."""

    def __init__(self, router: FreeRouteSearch) -> None:
        self.router, self.hardware = router, router.hardware
        self.exact = {True: Fraction(str(self.hardware.wait_cost))}

    def room(self, datum: int, name: str, cycle: int) -> bool:
        node = self.hardware.nodes[name]
        until = CYCLES * 2 if node.keeps else cycle + 1
        if node.size is None or self.router.has(datum, name, cycle):
            return True
        return all(len(self.router.held(name, at) | {datum}) <= node.size for at in range(cycle, until))

    def free(self, number: int, cycle: int) -> bool:
        wire = self.hardware.wires[number]
        delay = wire.delay + self.hardware.nodes[wire.destination].delay
        used = self.router.used(wire)
        if used.get(cycle, 0) >= wire.bandwidth:
            return False
        if wire.size is None:
            return True
        # under way in cycle t: all that started in (t - delay, t]
        return all(
            sum(used.get(start, 0) for start in range(at - delay + 1, at + 1)) < wire.size
            for at in range(cycle, cycle + delay)
        )

    def least(self, datum: int, target: str, due: int) -> Fraction | None:
        import networkx

        graph: Any = networkx.DiGraph()
        graph.add_node("source")
        for name, node in self.hardware.nodes.items():
            for cycle in range(due + 1):
                if self.router.has(datum, name, cycle):
                    graph.add_edge("source", (name, cycle), weight=Fraction(0))
                if cycle < due:
                    self.edge(graph, datum, (name, cycle), (name, cycle + 1), Fraction(str(self.hardware.wait_cost)))
            assert node.name == name
        for number, wire in enumerate(self.hardware.wires):
            there = self.hardware.nodes[wire.destination]
            delay = wire.delay + there.delay
            cost = Fraction(str(wire.cost)) + Fraction(str(there.cost))
            for cycle in range(due + 1 - delay):
                if self.free(number, cycle):
                    self.edge(graph, datum, (wire.source, cycle), (wire.destination, cycle + delay), cost)
        try:
            length: Any = networkx.dijkstra_path_length(graph, "source", (target, due))
        except (networkx.NetworkXNoPath, networkx.NodeNotFound):
            return None
        return length

    def edge(self, graph: Any, datum: int, start: tuple[str, int], end: tuple[str, int], cost: Fraction) -> None:
        if not (self.room(datum, *start) and self.room(datum, *end)):
            return
        if not graph.has_edge(start, end) or graph.edges[start, end]["weight"] > cost:
            graph.add_edge(start, end, weight=cost)


@pytest.mark.parametrize("seed", range(25))
def test_every_route_costs_what_networkx_finds_and_reserves_what_it_uses(seed: int) -> None:
    random = Random(seed)
    hardware = random_hardware(random)
    router = FreeRouteSearch(hardware)
    for datum in range(4):
        router.load(datum, "MEM", since=random.choice([0, 0, 2]))
    faults = 0
    for turn in range(14):
        datum, name, due = random.randrange(4), random.choice(list(hardware.nodes)), random.randint(1, CYCLES)
        expected = Graph(router).least(datum, name, due)
        before, moved = router.energy, len(router.movements)
        if expected is None:
            with pytest.raises(TimingFault) as result:
                router.route(datum, name, due, f"op {turn}")
            assert result.value.operation == f"op {turn}"
            assert result.value.wire
            assert 0 <= result.value.cycle <= due
            assert (router.energy, len(router.movements)) == (before, moved)
            faults += 1
            continue
        path = router.route(datum, name, due, f"op {turn}")
        assert expected == router.energy - before
        assert router.has(datum, name, due)
        assert list(path.movements) == router.movements[moved:]
        if random.random() < 0.3:
            router.undo()
            assert (router.energy, len(router.movements)) == (before, moved)
            assert Graph(router).least(datum, name, due) == expected
    check(router)
    assert faults < 14


def check(router: FreeRouteSearch) -> None:
    """No wire and no node is used beyond what it has."""
    hardware = router.hardware
    wires: defaultdict[tuple[str, str], int] = defaultdict(int)
    for wire in hardware.wires:
        wires[wire.source, wire.destination] += wire.bandwidth
    starts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    for move in router.movements:
        starts[move.source, move.destination, move.start] += 1
        assert starts[move.source, move.destination, move.start] <= wires[move.source, move.destination]
        assert router.has(move.datum, move.source, move.start)
        assert router.has(move.datum, move.destination, move.end)
    for name, node in hardware.nodes.items():
        assert node.size is None or all(len(router.held(name, cycle)) <= node.size for cycle in range(CYCLES + 4))


def test_a_wire_that_is_no_pipeline_holds_one_datum_at_a_time() -> None:
    hardware = Hardware()
    hardware.node(size=None, name="A", keeps=True)
    hardware.node(size=None, name="B")
    hardware.wire("A", "B", bandwidth=1, cost=1, delay=3, size=1)
    router = FreeRouteSearch(hardware)
    for datum in (1, 2, 3):
        router.load(datum, "A")
    ends = [router.route(datum, "B", 9).movements[0].end for datum in (1, 2, 3)]
    assert ends == [9, 6, 3]
    router.load(4, "A")
    with pytest.raises(TimingFault, match=r"operation mul: datum 4 .* wire A -> B has no bandwidth left in cycle 6"):
        router.route(4, "B", 9, "mul")


def test_a_full_node_is_named_with_the_wire_that_leads_to_it() -> None:
    hardware = Hardware()
    hardware.node(size=None, name="A", keeps=True)
    hardware.node(size=1, name="B")
    hardware.node(size=9, name="C")
    hardware.wire("A", "B", bandwidth=4, cost=1, delay=1)
    hardware.wire("B", "C", bandwidth=4, cost=1, delay=1)
    router = FreeRouteSearch(hardware)
    router.load(1, "A")
    router.load(2, "A")
    router.route(1, "B", 3)
    with pytest.raises(TimingFault, match=r"B is full in cycle 3 \(1 data: 1\), at the end of wire A -> B") as result:
        router.route(2, "B", 3, "add")
    assert (result.value.wire, result.value.cycle, result.value.operation) == ("A -> B", 3, "add")
