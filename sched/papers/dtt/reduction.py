"""Reductions: results are distributed over the mirrored network and the movements played backwards.

Adding and reusing have opposite flows: where a datum forks on its way from the output to the multipliers, partial sums
meet and are added. Each place and cycle is reached in one way only, so no product is added twice.

The paper routes to one multiplier after the other, each as late as can be; a way that forks late never passes over a
side link, which takes a cycle more than the next multiplier has. So every multiplier of a reduction is tried as the
first one, also up to `lead` cycles early (its product waits for the others), and the whole up to `lead` cycles later
than it could be; the cheapest tree counts. With a lead of 0 that is the paper's greedy routing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...routing.hardware import Datum, DttError, Hardware, TimingFault
from .routing import FreeRouteSearch, Movement

#: Multipliers in the order in which they are reached, and how many cycles early each.
_Tree = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Reduction:
    """A dot product: the products of some multipliers are summed. `result` names the sum."""

    result: Datum
    multipliers: tuple[str, ...]


@dataclass(frozen=True)
class ReductionPlan:
    """Reductions on a network, in forward time.

    `start`: result to cycle in which its multipliers hold their products; `movements`: of partial sums, by start;
    `runtime`: cycles from the first product to the last sum in the output; `energy`: cost of movements and waits;
    `utilisation`: wire to share of its bandwidth used over the runtime.
    """

    start: dict[Datum, int]
    movements: tuple[Movement, ...]
    runtime: int
    energy: Fraction
    utilisation: dict[str, float]


def reduce(network: Hardware, reductions: Sequence[Reduction], *, lead: int = 1, patience: int = 1000) -> ReductionPlan:
    """Schedules reductions one after the other, each as early as the mirrored network can serve it.

    `lead`: cycles by which the first of a reduction's multipliers may be reached early, at most. With 0 none is, and
    they are reached in the order given. Raises DttError if the network does not have exactly one output or a reduction
    names no multiplier, TimingFault if one cannot be served within `patience` cycles of the one before.
    """
    if len(network.out_nodes) != 1:
        raise DttError(f"a reduction network has one outNode, this one has {len(network.out_nodes)}")
    out = network.out_nodes[0]
    mirror = network.reversed()
    # Outside the network sums take no room: whoever reads them does so when they come.
    mirror.nodes["outside"] = type(mirror.nodes[out])("outside", None, keeps=True)
    mirror.wire("outside", out, bandwidth=len(network.wires), cost=0, delay=1)
    router = FreeRouteSearch(mirror)
    ends: dict[Datum, int] = {}
    busy: dict[str, set[int]] = {}
    cycle = 0
    for one in reductions:
        if not one.multipliers:
            raise DttError(f"reduction {one.result} names no multiplier")
        if one.result in ends:
            raise DttError(f"reduction {one.result} is there twice; results must differ")
        router.load(one.result, "outside")
        cycle = _serve(router, one, cycle, lead, patience, busy)
        ends[one.result] = cycle
    last = max(ends.values(), default=0)
    moves = [move for move in router.movements if move.source != "outside"]
    # The way from outside takes a cycle in the mirror, which is none of the network's.
    first = min((move.end for move in router.movements if move.source == "outside"), default=last)
    backwards = [
        Movement(move.datum, move.destination, last - move.end, move.source, last - move.start) for move in moves
    ]
    runtime = last - first
    starts = {wire.name: sum(router.used(wire).values()) / wire.bandwidth for wire in mirror.wires}
    return ReductionPlan(
        {result: last - end for result, end in ends.items()},
        tuple(sorted(backwards, key=lambda move: (move.start, move.datum, move.source))),
        runtime,
        router.energy,
        {wire.name: starts[f"{wire.destination} -> {wire.source}"] / max(runtime, 1) for wire in network.wires},
    )


def _serve(
    router: FreeRouteSearch, one: Reduction, cycle: int, lead: int, patience: int, busy: dict[str, set[int]]
) -> int:
    """The first cycle from `cycle` on in which a datum can be in all its multipliers, routed and reserved."""
    fault: TimingFault | None = None
    names = one.multipliers
    #: Cost of movements, cycle, cost of waits, and the tree: who comes later has to save a movement.
    best: tuple[Fraction, int, Fraction, _Tree] | None = None
    end = cycle + patience + 1
    at = cycle
    while at < end:
        if not any(at in busy.get(name, ()) for name in names):  # a multiplier makes one product a cycle
            for tree in _trees(names, min(lead, at)):
                transport, energy = router.transport, router.energy
                try:
                    _grow(router, one, tree, at)
                except TimingFault as error:
                    fault = fault or error
                    continue
                if best is None:
                    end = at + lead + 1
                cost = router.transport - transport, at, router.energy - energy
                if best is None or cost < best[:3]:
                    best = *cost, tree
                for _ in range(sum(map(len, (cycles for _, cycles in _visits(tree, at))))):
                    router.undo()
        at += 1
    if best is not None:
        _, at, _, tree = best
        _grow(router, one, tree, at)
        for name in names:
            busy.setdefault(name, set()).add(at)
        return at
    wire = fault.wire if fault else f"{names[0]} -> {names[0]} (waiting)"
    raise TimingFault(
        f"reduction {one.result}: {fault or 'its multipliers are busy'}, nor within {patience} cycles from {cycle} on",
        f"reduction {one.result}",
        cycle,
        wire,
    )


def _trees(names: tuple[str, ...], lead: int) -> Iterator[_Tree]:
    """Orders in which multipliers may be reached, and how early; just the one given if `lead` is 0."""
    for early in range(lead + 1):
        for first in range(len(names) if lead else 1):
            yield (names[first], early), *((name, 0) for name in names[:first] + names[first + 1 :])


def _visits(tree: _Tree, at: int) -> list[tuple[str, tuple[int, ...]]]:
    """Multipliers, and the cycles to which a datum is routed there: early and then to wait, or in time."""
    return [(name, (at - early, at) if early else (at,)) for name, early in tree]


def _grow(router: FreeRouteSearch, one: Reduction, tree: _Tree, at: int) -> None:
    """Brings a datum to its multipliers; raises TimingFault with nothing reserved."""
    done = 0
    try:
        for name, cycles in _visits(tree, at):
            for cycle in cycles:
                router.route(one.result, name, cycle, f"reduction {one.result}")
                done += 1
    except TimingFault:
        for _ in range(done):
            router.undo()
        raise
