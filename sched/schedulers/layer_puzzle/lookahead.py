"""Our own scheduler: an order of networks by what their delay costs, cores by what they are worth to the others, and
reservations instead of whatever happens to be free.

**Order.** The cost of a schedule is the sum of normalised turnaround times plus `penalty` for each deadline that is
missed. With networks one after the other on the whole chip, the sum alone is least in order of remaining time times
isolated time (Smith's rule with weights 1 / isolated time). From there the order is improved by moving single networks,
until no move lowers the cost, so that deadlines that can still be met are.

**Cores.** The first network in the order takes the version that ends first. The others fill what it leaves. A layer on
n of N cores that takes T cycles saves the time S that it would take on the whole chip in its turn, for its network and
all behind it (weights W together); it costs those ahead (weights V) the cores that they want when the next of their
layers ends, as long as it outlasts that by L cycles, and the part s by which the DRAM's bandwidth that it takes slows
the first of them down. It gets the version with the largest

    (W * (S - by how much it outlasts the beginning of its turn) - V * n / N * L - V * s * T) / T

and is not launched at all if that is negative. T and s are what the congestion estimator expects.

**Look-ahead.** When the ends of running layers (known but for congestion) would allow the first network a version that
ends earlier than the best one now, it waits for them, and its cores are reserved: those behind may only launch what
ends before, or what leaves enough cores.

Each part can be switched off, to see what it is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...serving.congestion import Congestion, cycles_beside
from ...serving.scheduler import Decision, Instance, Placement, Version, View
from .launching import Launching

#: Networks whose order is searched; those behind keep the order that they begin with.
SEARCHED = 8


@dataclass(frozen=True)
class Parts:
    """What is switched on. `weights`: order by cost (off: by arrival). `deadlines`: search for an order that meets
    them. `overhang`: what those ahead lose when a launch outlasts their layers. `bandwidth`: what they lose of it.
    `reserve`: look-ahead."""

    weights: bool = True
    deadlines: bool = True
    bandwidth: bool = True
    reserve: bool = True
    overhang: bool = True


@dataclass(frozen=True)
class _Claim:
    """A network ahead, of that worth, wants cores from cycle `at` on. `spare`: those that it leaves; None: it has not
    reserved any."""

    worth: float
    at: int
    spare: int | None

    def allows(self, end: int, cores: int) -> bool:
        """Whether so many cores may be taken until `end`."""
        return self.spare is None or end <= self.at or cores <= self.spare


@dataclass(frozen=True)
class _Ahead:
    """Whom a launch costs something: the claim of a network ahead, and the first of those that run with its worth."""

    claim: _Claim | None
    lead: tuple[float, Version] | None


@dataclass(frozen=True)
class _Rival:
    """A network that waits: `worth` of a cycle of the whole chip to it and all behind it, and the cycle of its `turn`,
    when all ahead of it have ended."""

    instance: Instance
    worth: float
    turn: int


def _first(one: _Claim | None, other: _Claim) -> _Claim:
    """The claim that matters: a reservation, or else the earlier one."""
    if one is None or (one.spare is None and (other.spare is not None or other.at < one.at)):
        return other
    return one


@dataclass
class Lookahead:
    """The scheduler, for one run. `penalty`: what a missed deadline costs, in normalised turnaround times."""

    congestion: Congestion
    penalty: float = 2.0
    parts: Parts = Parts()
    name: str = "lookahead"
    _ends: dict[int, int] = field(default_factory=dict[int, int])
    _before: float | None = None  # how fast the first that runs is without the launch that is being chosen

    def _end_of(self, view: View, one: Placement) -> int:
        """The cycle in which a running layer is expected to end."""
        return max(self._ends.get(one.instance, one.start + one.version.cycles), view.now + 1)

    def decide(self, view: View) -> list[Decision]:
        """What to launch now, network by network in the order of cost."""
        launching = Launching(view)
        order = self.order(view)
        cores = len(view.platform.cores)
        weights = [1 / max(1, one.network.isolated(cores)) for one in order]
        worth = [sum(weights[place:]) for place in range(len(order))]
        turn = [view.now] * len(order)  # when all of those ahead would have ended, one after the other
        for place, one in enumerate(order[:-1]):
            turn[place + 1] = turn[place] + one.network.remaining(one.next, cores)
        running = {one.instance: one for one in view.running}
        lead: tuple[float, Version] | None = None  # worth and version of the first that runs
        ends = [(self._end_of(view, one), one.version.cores) for one in view.running]
        claim: _Claim | None = None  # of the first network ahead that will want cores
        for place, instance in enumerate(order):
            if instance.number in running:
                lead = lead or (worth[place], running[instance.number].version)
                if instance.next + 1 < len(instance.network.layers):
                    claim = _first(claim, _Claim(worth[place], self._end_of(view, running[instance.number]), None))
                continue
            if not launching.room:
                break
            rival = _Rival(instance, worth[place], turn[place])
            choice, later = self._choose(view, launching, rival, _Ahead(claim, lead), ends)
            if later is not None:
                claim = _first(claim, later)
                continue
            if choice is None:
                continue
            version, cycles = choice
            lead = lead or (worth[place], version)
            ends.append((view.now + cycles, version.cores))
            end = self._ends[instance.number] = view.now + cycles
            if claim is not None and claim.spare is not None and end > claim.at:
                claim = _Claim(claim.worth, claim.at, claim.spare - version.cores)
            if instance.next + 1 < len(instance.network.layers):
                claim = _first(claim, _Claim(worth[place], end, None))
            launching.launch(instance, version, f"{place + 1}. of {len(order)}, {cycles} cycles expected")
        return launching.decisions

    def order(self, view: View) -> list[Instance]:
        """All instances, those that run too, by what their delay costs."""
        if not self.parts.weights:
            return sorted(view.instances, key=lambda one: (one.arrival, one.number))
        cores = len(view.platform.cores)
        left = {one.number: one.network.remaining(one.next, cores) for one in view.instances}
        alone = {one.number: max(1, one.network.isolated(cores)) for one in view.instances}
        found = sorted(view.instances, key=lambda one: (left[one.number] * alone[one.number], one.number))
        if not self.parts.deadlines:
            return found
        head, tail = found[:SEARCHED], found[SEARCHED:]
        jobs = [_Job(left[one.number], alone[one.number], one.deadline, one.arrival) for one in head]
        return [head[index] for index in improved(jobs, view.now, self.penalty)] + tail

    def _choose(
        self,
        view: View,
        launching: Launching,
        rival: _Rival,
        ahead: _Ahead,
        ends: Sequence[tuple[int, int]],
    ) -> tuple[tuple[Version, int] | None, _Claim | None]:
        """What to launch with its expected cycles, or what to wait for; neither if nothing is worth it."""
        instance, claim = rival.instance, ahead.claim
        self._before = None
        best: tuple[float, Version, int] | None = None
        for version in instance.layer.versions:
            if version.cores > launching.room:
                break
            cycles = cycles_beside(self.congestion, view.platform, version, launching.running)
            if claim is not None and not claim.allows(view.now + cycles, version.cores):
                continue
            gain = self._gain(view, launching, rival, version, cycles, ahead)
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, version, cycles
        later = None
        if self.parts.reserve and claim is None:
            later = self._later(view, launching, instance, rival.worth, ends, best and best[2])
        return (best and best[1:]), later

    def _gain(
        self, view: View, launching: Launching, rival: _Rival, version: Version, cycles: int, ahead: _Ahead
    ) -> float:
        """By how much a launch lowers the cost of the schedule, for each of its cycles: the time of the whole chip that
        the layer would take in its turn, less the time by which it outlasts the beginning of its turn, less what those
        ahead lose: cores while the launch outlasts a claim, and bandwidth."""
        cores, end = len(view.platform.cores), view.now + cycles
        whole = rival.instance.layer.fastest(cores)
        saved = whole.cycles if whole else cycles
        claim = ahead.claim
        if claim is not None:
            saved -= max(0, end - rival.turn)
        gain = rival.worth * saved
        if self.parts.overhang and claim is not None:
            gain -= claim.worth * version.cores / cores * max(0, end - claim.at)
        if self.parts.bandwidth and ahead.lead is not None:
            worth, first = ahead.lead
            others = [one for one in launching.running if one is not first]
            if self._before is None:
                self._before = self.congestion.factor(view.platform, first, others)
            before = self._before
            gain -= worth * cycles * (1 - self.congestion.factor(view.platform, first, [*others, version]) / before)
        return gain / cycles

    def _later(
        self,
        view: View,
        launching: Launching,
        instance: Instance,
        worth: float,
        ends: Sequence[tuple[int, int]],
        least: int | None,
    ) -> _Claim | None:
        """A claim, if the layer would end earlier when it waits for running ones. `least`: its cycles now."""
        free, found = launching.room, None
        for end, cores in sorted(ends):
            free += cores
            version = instance.layer.fastest(free)
            if version is None or version.cores <= launching.room:
                continue
            wait = end - view.now + version.cycles
            if least is None or wait < least:
                least, found = wait, _Claim(worth, end, free - version.cores)
        return found


@dataclass(frozen=True)
class _Job:
    """Remaining and isolated cycles on the whole chip, deadline and arrival."""

    left: int
    alone: int
    deadline: int | None
    arrival: int


def improved(jobs: Sequence[_Job], now: int, penalty: float) -> list[int]:
    """Indices of the jobs in an order that no move of a single job makes cheaper, from the order that they have."""
    order = list(range(len(jobs)))
    cost = _cost_of(jobs, order, now, penalty)
    if all(job.deadline is None for job in jobs):
        return order
    for _ in jobs:  # rounds: each lowers the cost or is the last
        better = False
        for place in range(len(order)):
            for other in range(len(order)):
                if other == place:
                    continue
                moved = order.copy()
                moved.insert(other, moved.pop(place))
                if (found := _cost_of(jobs, moved, now, penalty)) < cost - 1e-9:
                    order, cost, better = moved, found, True
        if not better:
            break
    return order


def _cost_of(jobs: Sequence[_Job], order: Sequence[int], now: int, penalty: float) -> float:
    at, cost = now, 0.0
    for index in order:
        job = jobs[index]
        at += job.left
        cost += (at - job.arrival) / job.alone
        if job.deadline is not None and at > job.deadline:
            cost += penalty
    return cost
