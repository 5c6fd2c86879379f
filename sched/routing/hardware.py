"""The paper's objects: data, the nodes that hold them, the wires they move over, the actors that compute.

Hardware is described by calls, as in Figure 5 of "Dijkstra-Through-Time":

    network = Hardware()
    network.node(size=2, name="MUL_0")
    network.outNode(size=4, name="ADD_20")
    network.wire(source="MUL_0", destination="ADD_00", bandwidth=1, cost=2, delay=1)

A datum is one unit of information, named by an integer: a byte, a word or a page, whatever the sizes count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import Self

Datum = int
#: What costs are given as. Floats stand for the decimal number that they print as.
Cost = int | float | Fraction

#: Cost of waiting for a cycle, the paper's epsilon.
WAIT_COST = Fraction(1, 1000)


class DttError(ValueError):
    """Hardware, a workload or a plan that cannot be; the message names the place and the mend."""


class TimingFault(DttError):
    """Data that cannot be in time. `operation`: who needs them; `cycle`: when; `wire`: what stands in the way."""

    def __init__(self, message: str, operation: str, cycle: int, wire: str) -> None:
        super().__init__(message)
        self.operation, self.cycle, self.wire = operation, cycle, wire


@dataclass(frozen=True)
class Node:
    """A memory element. `size`: data that it holds at a time (None: no limit).

    `cost` and `delay` (cycles) are added to those of every wire that leads here. `keeps`: what once arrived stays (a
    DRAM, an output register); elsewhere data are only where and when a path has them.
    """

    name: str
    size: int | None
    cost: Cost = 0
    delay: int = 0
    keeps: bool = False


@dataclass(frozen=True)
class Wire:
    """A directed way for data. `bandwidth`: data that may start in a cycle; `delay`: cycles until they have arrived.

    `size`: data that may be under way at a time (None: bandwidth x delay, a pipelined wire).
    """

    source: str
    destination: str
    bandwidth: int
    cost: Cost
    delay: int
    size: int | None = None

    @property
    def name(self) -> str:
        """Source and destination."""
        return f"{self.source} -> {self.destination}"


@dataclass(frozen=True)
class Actor:
    """Something that computes: operands must be in node `input`, results appear in node `output`.

    `slots`: what operations share in one cycle (multipliers). `cooldown`: cycles between two cycles in which it takes
    operations. `latency`: kind of operation to cycles until the result is there, or one number for all kinds; a kind
    that is not named cannot be done here.
    """

    name: str
    input: str
    output: str
    slots: int = 1
    cooldown: int = 1
    latency: int | Mapping[str, int] = 1

    def __post_init__(self) -> None:
        for name in ("slots", "cooldown"):
            if getattr(self, name) < 1:
                raise DttError(f"actor {self.name}: {name} = {getattr(self, name)} must be at least 1")

    def can(self, kind: str) -> bool:
        """Whether it performs operations of that kind."""
        return isinstance(self.latency, int) or kind in self.latency

    def cycles(self, kind: str) -> int:
        """Cycles from the operands' arrival to the result. Raises DttError for a kind it cannot do."""
        if isinstance(self.latency, int):
            return self.latency
        if kind not in self.latency:
            raise DttError(f"actor {self.name} cannot do {kind!r}; it does {', '.join(self.latency)}")
        return self.latency[kind]


@dataclass
class Hardware:
    """Nodes, wires and actors. `wait_cost`: of a cycle in which a datum waits in its node.

    Every node has a waiting wire to itself: no limit but the node's size, cost `wait_cost`, one cycle.
    """

    wait_cost: Cost = WAIT_COST
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    wires: list[Wire] = field(default_factory=list[Wire])
    actors: dict[str, Actor] = field(default_factory=dict[str, Actor])
    out_nodes: list[str] = field(default_factory=list[str])

    def node(self, size: int | None, name: str, *, cost: Cost = 0, delay: int = 0, keeps: bool = False) -> Node:
        """Adds a memory element. Raises DttError if the name is taken or a number is negative."""
        if name in self.nodes:
            raise DttError(f"node {name!r} is described twice; names must differ")
        if size is not None and size < 1:
            raise DttError(f"node {name!r}: size = {size} must be at least 1, or None for no limit")
        if delay < 0 or _exact(cost) < 0:
            raise DttError(f"node {name!r}: cost = {cost} and delay = {delay} must not be negative")
        self.nodes[name] = Node(name, size, cost, delay, keeps)
        return self.nodes[name]

    def outNode(self, size: int | None, name: str, *, cost: Cost = 0, delay: int = 0) -> Node:
        """Adds the node through which results leave (spelt as in the paper)."""
        self.out_nodes.append(name)
        return self.node(size, name, cost=cost, delay=delay)

    def wire(
        self, source: str, destination: str, bandwidth: int, cost: Cost, delay: int, *, size: int | None = None
    ) -> Wire:
        """Adds a wire between two nodes there are. Raises DttError on unknown nodes or impossible numbers."""
        new = Wire(source, destination, bandwidth, cost, delay, size)
        for end in (source, destination):
            if end not in self.nodes:
                raise DttError(f"wire {new.name}: there is no node {end!r}; add it before the wire")
        if source == destination:
            raise DttError(f"wire {new.name} leads nowhere; waiting wires are there by themselves")
        if bandwidth < 1 or delay < 1 or _exact(cost) < 0 or (size is not None and size < 1):
            raise DttError(
                f"wire {new.name}: bandwidth = {bandwidth}, delay = {delay} and size must be at least 1, "
                f"cost = {cost} not negative"
            )
        self.wires.append(new)
        return new

    def actor(self, actor: Actor) -> Actor:
        """Adds an actor. Raises DttError if its name is taken or one of its nodes is not there."""
        if actor.name in self.actors:
            raise DttError(f"actor {actor.name!r} is described twice; names must differ")
        for end in (actor.input, actor.output):
            if end not in self.nodes:
                raise DttError(f"actor {actor.name}: there is no node {end!r}; add it before the actor")
        self.actors[actor.name] = actor
        return actor

    def without(self, *wires: str) -> Self:
        """A copy without the wires of these names ("A -> B"). Raises DttError if one is not there."""
        names = {wire.name for wire in self.wires}
        for name in wires:
            if name not in names:
                raise DttError(f"there is no wire {name!r}; there are {', '.join(sorted(names))}")
        return self._copy(wire for wire in self.wires if wire.name not in wires)

    def reversed(self) -> Self:
        """A copy whose wires lead the other way, in the same order."""
        return self._copy(replace(wire, source=wire.destination, destination=wire.source) for wire in self.wires)

    def _copy(self, wires: Iterable[Wire]) -> Self:
        return replace(
            self,
            nodes=dict(self.nodes),
            wires=list(wires),
            actors=dict(self.actors),
            out_nodes=list(self.out_nodes),
        )


def _exact(cost: Cost) -> Fraction:
    return Fraction(str(cost)) if isinstance(cost, float) else Fraction(cost)


def integer_costs(hardware: Hardware) -> tuple[int, list[int], int]:
    """(unit, cost of each wire with its destination, cost of waiting): integers, in units of 1 / `unit`.

    So that equal costs are equal whatever order they were added in. Raises DttError on a negative `wait_cost`.
    """
    wait = _exact(hardware.wait_cost)
    if wait < 0:
        raise DttError(f"wait_cost = {hardware.wait_cost} must not be negative")
    costs = [_exact(wire.cost) + _exact(hardware.nodes[wire.destination].cost) for wire in hardware.wires]
    unit = lcm(wait.denominator, *(cost.denominator for cost in costs))
    return unit, [int(cost * unit) for cost in costs], int(wait * unit)
