"""Routing several data one after the other, and repairing what the order spoils.

Each datum takes the cheapest route that those before it have left (Algorithm 2). So one that goes first may take the
wire that another cannot do without; and it goes as late as it can, by itself, where earlier and elsewhere it could have
served others on the way. As in J. Li et al., "Anytime Multi-Agent Path Finding via Large Neighborhood Search" (IJCAI
2021), a solution is therefore changed and planned again, and kept if it is no worse: some needs get other turns, late
ones earlier ones, and data get stopovers, nodes in which they have to be in some cycle before, where routes to several
needs can part (Steiner points of the tree through time).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from ...routing.hardware import Datum, Hardware, TimingFault
from .routing import FreeRouteSearch

#: Changes of a round, at most, and the share of those that add a stopover, and of those that take one away.
_CHANGES, _STOPOVER = 3, 0.3


@dataclass(frozen=True)
class Load:
    """A node that holds a datum from a cycle on."""

    datum: Datum
    node: str
    since: int = 0


@dataclass(frozen=True)
class Need:
    """A node in which a datum has to be in a cycle, or as few cycles later as possible. `operation`: who needs it."""

    datum: Datum
    node: str
    cycle: int
    operation: str = ""


@dataclass(frozen=True)
class Routed:
    """`cycles`: when each need is met, in the order of the needs; `late`: cycles later than they should be, in all;
    `router`: with all of them routed."""

    cycles: tuple[int, ...]
    late: int
    router: FreeRouteSearch

    @property
    def energy(self) -> Fraction:
        """Cost of all movements and waits."""
        return self.router.energy


#: The number of a need, or a stopover.
Turn = int | Need


def routed(
    hardware: Hardware, loads: Sequence[Load], needs: Sequence[Need], patience: int, turns: Sequence[Turn] | None = None
) -> Routed:
    """Routes needs, each to the first cycle, `patience` cycles later at most, in which it can be met. `turns`: their
    order, with stopovers, of which one that cannot be is left out; None: the needs as they are listed.

    Raises TimingFault for a need that cannot be met, and DttError as `FreeRouteSearch` does.
    """
    router = FreeRouteSearch(hardware)
    for load in loads:
        router.load(load.datum, load.node, load.since)
    cycles = [0] * len(needs)
    for turn in range(len(needs)) if turns is None else turns:
        stopover = isinstance(turn, Need)
        need = turn if stopover else needs[turn]
        for cycle in range(need.cycle, need.cycle + 1 + patience * (not stopover)):
            try:
                router.route(need.datum, need.node, cycle, need.operation)
            except TimingFault:
                if not stopover and cycle == need.cycle + patience:
                    raise
                continue
            if not stopover:
                cycles[turn] = cycle
            break
    late = sum(cycle - need.cycle for cycle, need in zip(cycles, needs, strict=True))
    return Routed(tuple(cycles), late, router)


def repaired(
    hardware: Hardware, loads: Sequence[Load], needs: Sequence[Need], patience: int, rounds: int, seed: int = 0
) -> Routed:
    """The best of `rounds` changes of what `routed` finds in the listed order: least late, then least energy. The same
    everywhere for a seed. `rounds` = 0: `routed`.

    Raises TimingFault if no order that was tried meets all needs, and DttError as `FreeRouteSearch` does.
    """
    random = Random(seed)
    turns: list[Turn] = list(range(len(needs)))
    best: Routed | None = None
    fault: TimingFault | None = None
    try:
        best = routed(hardware, loads, needs, patience)
    except TimingFault as error:
        fault = error
    for _ in range(rounds if needs else 0):
        trial = _changed(random, hardware, needs, turns, best)
        try:
            routes = routed(hardware, loads, needs, patience, trial)
        except TimingFault as error:
            fault = fault or error
            continue
        if best is None or (routes.late, routes.energy) <= (best.late, best.energy):
            best, turns = routes, trial
    if best is None:
        assert fault is not None
        raise fault
    return best


def _changed(
    random: Random, hardware: Hardware, needs: Sequence[Need], turns: Sequence[Turn], best: Routed | None
) -> list[Turn]:
    """Other turns: one to `_CHANGES` changes."""
    trial = list(turns)
    late = [] if best is None else [at for at, need in enumerate(needs) if best.cycles[at] > need.cycle]
    for _ in range(random.randint(1, _CHANGES)):
        kind = random.random()
        if kind < _STOPOVER:
            need = random.choice(needs)
            stop = Need(need.datum, random.choice(list(hardware.nodes)), random.randint(0, need.cycle))
            trial.insert(random.randint(0, len(trial)), stop)
        elif kind < 2 * _STOPOVER:
            stops = [turn for turn in trial if isinstance(turn, Need)]
            if stops:
                trial.remove(random.choice(stops))
        else:
            moved = random.choice(late) if late and random.random() < 0.5 else random.choice(trial)
            at = trial.index(moved)
            del trial[at]
            trial.insert(random.randint(0, at if moved in late else len(trial)), moved)
    return trial
