"""The placing step: which actor performs which operation, and in which cycle its operands have to be there.

First Best Fit (Algorithm 1), operations in the order given: each goes to the available actor of highest affinity; if
there is none, a cycle passes. Algorithm 3 first filters the actors that can do that kind of operation. An actor that is
full, or was used in an earlier cycle, is busy until its cool-down is over; until then it takes operations of the same
cycle as long as it has slots.

Tie rule: of actors with equal affinity the one described first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...routing.hardware import Actor, Datum, DttError

#: What an operation is if nobody says otherwise: products that are summed.
DOT = "dot"


@dataclass(frozen=True)
class Operation:
    """`data` become `result`. `slots`: how much of an actor it takes (multipliers).

    `offset`: first cycle in which it may be placed, for its data dependences; None: derived, the cycle in which the
    last of its operands that other operations compute is there. `cycles`: how long it occupies its actor, if that is
    longer than the actor's cool-down.
    """

    result: Datum
    data: tuple[Datum, ...]
    kind: str = DOT
    slots: int = 1
    offset: int | None = None
    cycles: int = 0
    label: str = ""

    @property
    def name(self) -> str:
        """The label, or what is computed."""
        return self.label or f"{self.result}"


def dot_product(result: Datum, *pairs: tuple[Datum, Datum], offset: int | None = None, label: str = "") -> Operation:
    """The sum of products of pairs, which takes a multiplier for each."""
    return Operation(result, tuple(datum for pair in pairs for datum in pair), DOT, len(pairs), offset, label=label)


@dataclass(frozen=True)
class Placed:
    """What should be sent (the operation's data), where (its actor's input node), and when it should arrive.

    `cycle`: arrival of the operands; `ready`: the result is in the actor's output node.
    """

    operation: Operation
    actor: str
    cycle: int
    ready: int


@dataclass
class Placing:
    """What an affinity function may look at: data sent to each actor so far, and who computed what."""

    sent: dict[str, set[Datum]] = field(default_factory=dict[str, set[Datum]])
    places: dict[Datum, str] = field(default_factory=dict[Datum, str])


#: Scores how fit an actor is for an operation; the highest score wins.
Affinity = Callable[[Actor, Operation, Placing], float]


def cached(actor: Actor, operation: Operation, placing: Placing) -> float:
    """How many of the operation's data have been sent to the actor before."""
    sent = placing.sent.get(actor.name, set())
    return sum(datum in sent for datum in set(operation.data))


def first(actor: Actor, operation: Operation, placing: Placing) -> float:
    """No preference: the first actor that is available."""
    return 0.0


class Occupancy:
    """Which slots of which actors are taken when."""

    def __init__(self) -> None:
        #: For each actor its cycles of use, ascending, and for each of them (slots taken, first cycle after it).
        self._cycles: dict[str, list[int]] = {}
        self._uses: dict[str, dict[int, tuple[int, int]]] = {}

    def available(self, actor: Actor, operation: Operation, cycle: int) -> bool:
        """Whether an actor can take an operation whose operands are sent in a cycle."""
        cycles, uses = self._cycles.get(actor.name, []), self._uses.get(actor.name, {})
        if cycle in uses and uses[cycle][0] + operation.slots > actor.slots:
            return False
        before, after = bisect_left(cycles, cycle), bisect_right(cycles, cycle)
        if before and uses[cycles[before - 1]][1] > cycle:
            return False
        return after == len(cycles) or cycles[after] >= cycle + max(actor.cooldown, operation.cycles)

    def take(self, actor: Actor, operation: Operation, cycle: int) -> None:
        """Notes that the actor has taken it."""
        cycles, uses = self._cycles.setdefault(actor.name, []), self._uses.setdefault(actor.name, {})
        if cycle not in uses:
            insort(cycles, cycle)
        slots, until = uses.get(cycle, (0, 0))
        uses[cycle] = (slots + operation.slots, max(until, cycle + max(actor.cooldown, operation.cycles)))

    def next_change(self, actors: Iterable[Actor], cycle: int) -> int:
        """The first cycle after `cycle` in which one of the actors that is busy then may be available."""
        ends: list[int] = []
        for actor in actors:
            cycles = self._cycles.get(actor.name, [])
            at = bisect_right(cycles, cycle)
            # the use that goes on now, and the one that is too close behind
            for near in cycles[max(at - 1, 0) : at + 1]:
                ends.append(self._uses[actor.name][near][1])
        return min((end for end in ends if end > cycle), default=cycle + 1)


def first_best_fit(
    operations: Sequence[Operation],
    actors: Mapping[str, Actor],
    distribution: int,
    affinity: Affinity = cached,
    *,
    filtered: bool = False,
) -> list[Placed]:
    """Places operations in their order (Algorithm 1; with `filtered` Algorithm 3).

    `distribution`: cycles between the placing of an operation and the arrival of its operands. Raises DttError naming
    the operation that no actor can ever take, or whose operands nobody has computed before it.
    """
    if distribution < 0:
        raise DttError(f"distribution latency {distribution} must not be negative")
    results = {operation.result for operation in operations}
    occupancy, placing = Occupancy(), Placing()
    ready: dict[Datum, int] = {}
    placed: list[Placed] = []
    clock = 0
    for operation in operations:
        able = _able(operation, actors, filtered)
        start = operation.offset
        if start is None:
            missing = [datum for datum in operation.data if datum in results and datum not in ready]
            if missing:
                raise DttError(
                    f"operation {operation.name}: datum {missing[0]} is computed later in the list; compute it earlier"
                )
            start = max((ready[datum] for datum in operation.data if datum in ready), default=0)
        cycle = max(clock, start)
        while not (free := [actor for actor in able if occupancy.available(actor, operation, cycle)]):
            cycle = occupancy.next_change(able, cycle)
        # `max` keeps the first of equals
        chosen = max(free, key=lambda actor: affinity(actor, operation, placing))
        occupancy.take(chosen, operation, cycle)
        placing.sent.setdefault(chosen.name, set()).update(operation.data)
        placing.places[operation.result] = chosen.name
        arrival = cycle + distribution
        ready[operation.result] = arrival + chosen.cycles(operation.kind)
        placed.append(Placed(operation, chosen.name, arrival, ready[operation.result]))
        if start <= clock:  # it has waited for an actor; who waits for data lets others pass
            clock = cycle
    return placed


def _able(operation: Operation, actors: Mapping[str, Actor], filtered: bool) -> list[Actor]:
    able = [actor for actor in actors.values() if operation.slots <= actor.slots]
    if not able:
        most = max((actor.slots for actor in actors.values()), default=0)
        raise DttError(
            f"operation {operation.name} needs {operation.slots} slots at once; the largest of {len(actors)} actors "
            f"has {most}: split it"
        )
    if not filtered:
        return able
    able = [actor for actor in able if actor.can(operation.kind)]
    if not able:
        raise DttError(
            f"operation {operation.name}: no actor with {operation.slots} slots performs {operation.kind!r}; add one"
        )
    return able
