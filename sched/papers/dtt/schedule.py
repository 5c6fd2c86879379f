"""Both steps together: operations are placed, results announced, operands routed; who would be late is re-timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...routing.hardware import Datum, DttError, Hardware, TimingFault
from .placing import Affinity, Occupancy, Operation, Placed, cached, first_best_fit
from .repair import Load, Need, repaired
from .routing import FreeRouteSearch, Movement


@dataclass(frozen=True)
class Retimed:
    """An operation whose operands could not be there when it was planned. `wire`: what stood in the way at first."""

    operation: str
    planned: int
    actual: int
    wire: str


@dataclass(frozen=True)
class Outcome:
    """A schedule: operations with the cycles that they have in the end, movements in the order they were routed."""

    placed: tuple[Placed, ...]
    movements: tuple[Movement, ...]
    retimed: tuple[Retimed, ...]
    energy: Fraction
    router: FreeRouteSearch

    @property
    def runtime(self) -> int:
        """The cycle in which the last result is there."""
        return max((placed.ready for placed in self.placed), default=0)

    def utilisation(self, wire: str) -> float:
        """Share of a wire's bandwidth that is used over the runtime. Raises DttError if there is no such wire."""
        for one in self.router.hardware.wires:
            if one.name == wire:
                return sum(self.router.used(one).values()) / (one.bandwidth * max(self.runtime, 1))
        raise DttError(f"there is no wire {wire!r}")


def plan(
    hardware: Hardware,
    operations: Sequence[Operation],
    initial: Mapping[str, Sequence[Datum]],
    distribution: int,
    affinity: Affinity = cached,
    *,
    filtered: bool = False,
    patience: int = 0,
    repair: int = 0,
) -> Outcome:
    """Schedules operations on hardware. `initial`: data that nodes hold from cycle 0 on. `repair`: so many other orders
    of routing and stopovers are tried, for less energy and operands in time (`repair.repaired`); 0: none, as in the
    paper.

    An operation whose operands cannot be there in time is moved to the earliest cycle in which they can, `patience`
    cycles later at most, and whoever reads its result with it; with 0 that is an error. Raises TimingFault naming
    operation, cycle and wire, and DttError as `first_best_fit` and `FreeRouteSearch` do.
    """
    placed = first_best_fit(operations, hardware.actors, distribution, affinity, filtered=filtered)
    loads = [Load(datum, node) for node, data in initial.items() for datum in data]
    if repair or not patience:
        # All results are announced before anything is routed, as in the paper.
        results = [Load(one.operation.result, hardware.actors[one.actor].output, one.ready) for one in placed]
        needs = [
            Need(datum, hardware.actors[one.actor].input, one.cycle, one.operation.name)
            for one in placed
            for datum in one.operation.data
        ]
        try:
            router = repaired(hardware, [*loads, *results], needs, 0, repair).router
            return Outcome(tuple(placed), tuple(router.movements), (), router.energy, router)
        except TimingFault:
            if not patience:
                raise
    router = FreeRouteSearch(hardware)
    for load in loads:
        router.load(load.datum, load.node)
    occupancy = Occupancy()
    final: list[Placed] = []
    retimed: list[Retimed] = []
    for one in placed:
        done, wire = _route_late(router, one, occupancy, distribution, patience)
        router.load(one.operation.result, hardware.actors[one.actor].output, done.ready)
        if done.cycle != one.cycle:
            retimed.append(Retimed(one.operation.name, one.cycle, done.cycle, wire))
        final.append(done)
    return Outcome(tuple(final), tuple(router.movements), tuple(retimed), router.energy, router)


def _route(router: FreeRouteSearch, placed: Placed) -> None:
    """Brings all operands to an operation's actor, or raises TimingFault with none of them reserved."""
    node = router.hardware.actors[placed.actor].input
    for count, datum in enumerate(placed.operation.data):
        try:
            router.route(datum, node, placed.cycle, placed.operation.name)
        except TimingFault:
            for _ in range(count):
                router.undo()
            raise


def _route_late(
    router: FreeRouteSearch, placed: Placed, occupancy: Occupancy, distribution: int, patience: int
) -> tuple[Placed, str]:
    """The operation in the first cycle from its planned one on in which its actor is free and its operands arrive, and
    the wire that kept it from the planned one ("its actor" if it was that)."""
    actor = router.hardware.actors[placed.actor]
    first: TimingFault | None = None
    for cycle in range(placed.cycle, placed.cycle + patience + 1):
        moved = replace(placed, cycle=cycle, ready=cycle + placed.ready - placed.cycle)
        if not occupancy.available(actor, placed.operation, cycle - distribution):
            continue
        try:
            _route(router, moved)
        except TimingFault as fault:
            first = first or fault
            continue
        occupancy.take(actor, placed.operation, cycle - distribution)
        return moved, first.wire if first else "its actor"
    if first is not None:
        raise TimingFault(
            f"{first}; nor within {patience} cycles of it", first.operation, first.cycle, first.wire
        ) from first
    raise TimingFault(
        f"operation {placed.operation.name}: actor {placed.actor} is busy from cycle {placed.cycle} for {patience} "
        f"cycles and longer, wire to it {actor.input} -> {actor.input} (waiting); allow more patience",
        placed.operation.name,
        placed.cycle,
        f"{actor.input} -> {actor.input} (waiting)",
    )
