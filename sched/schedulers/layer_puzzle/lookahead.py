"""Our own scheduler: an order of networks by what their delay costs, cores by what they are worth to the others, and
reservations instead of whatever happens to be free.

**Order.** The cost of a schedule is the sum of normalised turnaround times plus `penalty` for each deadline that is
missed. With networks one after the other on the whole chip, the sum alone is least in order of remaining time times
isolated time (Smith's rule with weights 1 / isolated time). From there the order is improved by moving single networks,
until no move lowers the cost, so that deadlines that can still be met are.

**Cores.** A layer on n of N cores takes T(n) cycles, and takes from all networks behind it the part of the chip that it
occupies for so long: n / N of the cores, or its part of the DRAM's bandwidth if that is more. Of the versions that fit, it gets
the one with the least

    T(n) * (w + W * max(n / N, words a cycle / bandwidth))       w: its weight, W: those of the networks behind it

which is the fastest when nobody waits or cores still double the speed, and a smaller one when more cores would be idle
half of the time. T is what the congestion estimator expects beside the layers that run.

**Look-ahead.** When the ends of running layers (known but for congestion) would allow a version that ends earlier than
the best one now, the network waits for them, and its cores are reserved: those behind it may only launch what ends
before, or what leaves enough cores.

Each of the three can be switched off, and so can single parts of them, to see what they are worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...serving.congestion import Congestion, cycles_beside
from ...serving.scheduler import Decision, Instance, Version, View
from .launching import Launching

#: Networks whose order is searched; those behind keep the order that they begin with.
SEARCHED = 12


@dataclass(frozen=True)
class Parts:
    """What is switched on. `weights`: order by cost (off: by arrival). `deadlines`: search for an order that meets them.
    `marginal`: cores by their worth to others (off: the fastest version that fits). `bandwidth`: DRAM counts as part of
    the chip. `reserve`: look-ahead."""

    weights: bool = True
    deadlines: bool = True
    marginal: bool = True
    bandwidth: bool = True
    reserve: bool = True


@dataclass(frozen=True)
class _Reservation:
    """`cores` that must be free in cycle `at`; `spare`: how many will be free beyond these."""

    at: int
    spare: int


@dataclass
class Lookahead:
    """The scheduler, for one run. `penalty`: what a missed deadline costs, in normalised turnaround times."""

    congestion: Congestion
    penalty: float = 2.0
    parts: Parts = Parts()
    name: str = "lookahead"
    _ends: dict[int, int] = field(default_factory=dict[int, int])

    def decide(self, view: View) -> list[Decision]:
        """What to launch now, network by network in the order of cost."""
        launching = Launching(view)
        order = self.order(view)
        weights = {one.number: 1 / max(1, one.network.isolated(len(view.platform.cores))) for one in order}
        behind = sum(weights.values())
        reserved: _Reservation | None = None
        ends = self._expected(view)
        for place, instance in enumerate(order):
            behind -= weights[instance.number]
            if instance.running or not launching.room:
                continue
            weight = weights[instance.number]
            best = self._best(view, launching, instance, weight, max(0.0, behind), reserved)
            later = None
            if self.parts.reserve and reserved is None and instance.layer.versions[-1].cores > launching.room:
                later = self._later(view, launching, instance, (weight, max(0.0, behind)), ends, best)
            if later is not None:
                reserved = later
                continue
            if best is None:
                continue
            version, cycles = best
            ends.append((view.now + cycles, version.cores))
            self._ends[instance.number] = view.now + cycles
            if reserved is not None and view.now + cycles > reserved.at:
                reserved = _Reservation(reserved.at, reserved.spare - version.cores)
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
        jobs = [
            _Job(left[one.number], alone[one.number], one.deadline, one.arrival) for one in head
        ]
        return [head[index] for index in improved(jobs, view.now, self.penalty)] + tail

    def _expected(self, view: View) -> list[tuple[int, int]]:
        """Cycle in which each running layer ends, as far as is known, and its cores."""
        found: list[tuple[int, int]] = []
        for one in view.running:
            end = self._ends.get(one.instance, one.start + one.version.cycles)
            found.append((max(end, view.now + 1), one.version.cores))
        return found

    def _best(
        self,
        view: View,
        launching: Launching,
        instance: Instance,
        weight: float,
        behind: float,
        reserved: _Reservation | None,
    ) -> tuple[Version, int] | None:
        """The version to launch now and its expected cycles; None if none fits."""
        found: tuple[float, Version, int] | None = None
        for version in instance.layer.versions:
            if version.cores > launching.room:
                break
            cycles = cycles_beside(self.congestion, view.platform, version, launching.running)
            if reserved is not None and view.now + cycles > reserved.at and version.cores > reserved.spare:
                continue
            cost = self._cost(view, version, cycles, weight, behind)
            if found is None or cost < found[0]:
                found = cost, version, cycles
        return found and found[1:]

    def _cost(self, view: View, version: Version, cycles: int, weight: float, behind: float) -> float:
        if not self.parts.marginal:
            return float(cycles)
        occupied = version.cores / len(view.platform.cores)
        if self.parts.bandwidth:
            occupied = max(occupied, (version.read + version.written) / cycles / view.platform.bandwidth)
        return cycles * (weight + behind * occupied)

    def _later(
        self,
        view: View,
        launching: Launching,
        instance: Instance,
        weights: tuple[float, float],
        ends: Sequence[tuple[int, int]],
        now: tuple[Version, int] | None,
    ) -> _Reservation | None:
        """A reservation, if waiting for running layers costs less than the best launch now."""
        weight, behind = weights
        least = self._cost(view, now[0], now[1], weight, behind) if now else float("inf")
        free, found = launching.room, None
        for end, cores in sorted(ends):
            free += cores
            for version in instance.layer.versions:
                if not launching.room < version.cores <= free:
                    continue
                wait = end - view.now
                cost = wait * weight + self._cost(view, version, version.cycles, weight, behind)
                if cost < least:
                    least, found = cost, _Reservation(end, free - version.cores)
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
