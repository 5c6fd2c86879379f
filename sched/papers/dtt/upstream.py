"""What an explorer before the scheduler sees of complex hardware (the paper's Figure 7), and what it finds there.

Tools such as ZigZag or Timeloop know memories, buses and processing elements, no butterflies. So the hardware is told
them as a star: every actor is behind the memory by one wire of its own, as long, as costly and as wide as the cheapest
way to it. What is lost are the wires that ways share. The explorer tries mappings there and hands on the best, which is
then scheduled for the hardware as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from random import Random

from ...routing.hardware import Actor, Datum, DttError, Hardware, TimingFault, Wire
from .placing import Operation, Placing, cached
from .schedule import Outcome, plan


def simplified(hardware: Hardware, memory: str) -> Hardware:
    """Hardware as a star around the node `memory`, with the same actors.

    From the memory to each actor's input, and from its output to the memory, leads one wire with the sum of costs and
    delays of the cheapest way, and the least bandwidth on it. Raises DttError naming an actor without a way.
    """
    star = Hardware(wait_cost=hardware.wait_cost)
    ends = {memory, *(end for actor in hardware.actors.values() for end in (actor.input, actor.output))}
    for node in hardware.nodes.values():
        if node.name in ends:
            star.node(size=node.size, name=node.name, cost=node.cost, delay=node.delay, keeps=node.keeps)
    for actor in hardware.actors.values():
        for source, destination in ((memory, actor.input), (actor.output, memory)):
            way = _cheapest(hardware, source, destination)
            between = [hardware.nodes[wire.destination] for wire in way[:-1]]
            star.wire(
                source=source,
                destination=destination,
                bandwidth=min(wire.bandwidth for wire in way),
                cost=sum(Fraction(one.cost) for one in (*way, *between)),
                delay=sum(one.delay for one in (*way, *between)),
            )
        star.actor(actor)
    return star


def _cheapest(hardware: Hardware, source: str, destination: str) -> list[Wire]:
    """The wires of the way of least cost, of equals that of least delay."""
    wires, nodes = hardware.wires, hardware.nodes
    heap: list[tuple[Fraction, int, tuple[int, ...], str]] = [(Fraction(0), 0, (), source)]
    done: set[str] = set()
    while heap:
        cost, delay, way, at = heappop(heap)
        if at == destination:
            return [wires[number] for number in way]
        if at in done:
            continue
        done.add(at)
        for number, wire in enumerate(wires):
            if wire.source == at:
                end = nodes[wire.destination]
                more = cost + Fraction(wire.cost) + Fraction(end.cost), delay + wire.delay + end.delay
                heappush(heap, (*more, (*way, number), wire.destination))
    raise DttError(f"no way leads from {source} to {destination}; add a wire")


@dataclass(frozen=True)
class Exploration:
    """The best mapping of an exploration: who does each operation (by its result), and the schedule that led to it.
    `tried`: mappings with a schedule, of `asked`; `moves`: data movements routed for all of them."""

    actors: Mapping[Datum, str]
    outcome: Outcome
    tried: int
    asked: int
    moves: int


def explore(
    hardware: Hardware,
    operations: Sequence[Operation],
    initial: Mapping[str, Sequence[Datum]],
    distribution: int,
    tries: int,
    seed: int = 0,
    patience: int = 200,
) -> Exploration:
    """The fastest of `tries` mappings on this hardware, of equals the one of least energy: First Best Fit with the
    usual affinity first, then with random preferences of operations for actors added. Raises DttError if none has a
    schedule."""
    random = Random(seed)
    best: tuple[tuple[int, Fraction], Outcome] | None = None
    tried = moves = 0
    for number in range(tries):
        likes = {
            (actor, operation.result): random.random() * 4 * (number > 0)
            for actor in hardware.actors
            for operation in operations
        }
        try:
            outcome = mapped(hardware, operations, initial, distribution, likes, patience)
        except TimingFault:
            continue
        tried += 1
        moves += len(outcome.movements)
        worth = outcome.runtime, outcome.energy
        if best is None or worth < best[0]:
            best = worth, outcome
    if best is None:
        raise DttError(f"none of {tries} mappings has a schedule; allow more patience or distribution")
    actors = {one.operation.result: one.actor for one in best[1].placed}
    return Exploration(actors, best[1], tried, tries, moves)


def mapped(
    hardware: Hardware,
    operations: Sequence[Operation],
    initial: Mapping[str, Sequence[Datum]],
    distribution: int,
    likes: Mapping[tuple[str, Datum], float],
    patience: int = 200,
) -> Outcome:
    """A schedule by First Best Fit (Algorithm 3) whose affinity is data sent before, and how much an actor is liked for
    an operation."""

    def affinity(actor: Actor, operation: Operation, placing: Placing) -> float:
        return cached(actor, operation, placing) + likes.get((actor.name, operation.result), 0.0)

    return plan(hardware, operations, initial, distribution, affinity, filtered=True, patience=patience)


def handed_on(
    exploration: Exploration,
    hardware: Hardware,
    operations: Sequence[Operation],
    initial: Mapping[str, Sequence[Datum]],
    distribution: int,
    patience: int = 200,
) -> Outcome:
    """The schedule of a mapping, found elsewhere, on this hardware. Raises as `plan`."""
    likes = {(actor, result): 1000.0 for result, actor in exploration.actors.items()}
    return mapped(hardware, operations, initial, distribution, likes, patience)
