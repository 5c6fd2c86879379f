"""Our own scheduler: an order of networks by what their delay costs, each on the whole chip in its turn, the next layer
launched while one runs, and others beside it only where that pays.

**Order.** The cost of a schedule is the sum of normalised turnaround times plus `penalty` for each deadline that is
missed. With networks one after the other on the whole chip, the sum alone is least in order of remaining time times
isolated time (Smith's rule with weights 1 / isolated time). From there the order is improved by moving single networks,
until no move lowers the cost, so that deadlines that can still be met are. Times are predicted ones times the pace: how
many cycles each predicted one has taken so far.

**Ahead.** The first network in the order takes the version of each layer that ends first. A layer that runs is given
its successor at once, so no time passes between the two. Where other layers hold cores, the network waits for those if
its layer then ends earlier, and they get no successors that are in its way.

**Beside.** Cores that the first network does without may run layers of others. That costs more than a fair share of the
bandwidth: DRAM channels serve requests in the order in which they come, and cores with large memories ask for large
tiles, so a layer waits behind whatever others have asked for. Two layers delay each other by up to the time that the
channels need for all words of the other one; that much is counted. So a layer on n of N cores that takes T cycles costs
the first network, and all behind it (weights V together), D cycles: those of its own words at the channels, and what
the network's next layers lose on N - n cores, as long as T lasts. It saves its own network, and all behind that
(weights W), the time S that it would take on the whole chip, less the time by which it outlasts the beginning of its
turn, when all ahead of it have ended. It runs if W * S > `MARGIN` * V * D; of several versions, the one with
the largest difference for each of its cycles.

Each part can be switched off, to see what it is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .choosing import together
from .interface import Decision, Instance, Layer, Platform, Version, View

#: Networks whose order is searched; those behind keep the order that they begin with.
SEARCHED = 8
#: How many times what others lose a layer beside them must save: estimates are that far off.
MARGIN = 2.0
#: Cycles of a pace of 1 that count before any have passed.
PRIOR = 50_000


@dataclass(frozen=True)
class Parts:
    """What is switched on. `weights`: order by cost (off: by arrival). `deadlines`: search for an order that meets
    them. `pace`: predicted times are corrected. `ahead`: successors. `beside`: layers of others next to those of the
    first network. `queues`: what they wait for each other at the channels is counted. `reserve`: the first network
    waits for cores."""

    weights: bool = True
    deadlines: bool = True
    pace: bool = True
    ahead: bool = True
    beside: bool = True
    queues: bool = True
    reserve: bool = True


@dataclass(frozen=True)
class _Rival:
    """A network in the order: `worth` of a cycle of the whole chip to it and all behind it, and in how many cycles it
    is its `turn`."""

    instance: Instance
    worth: float
    turn: int


@dataclass
class _Cores:
    """What is left of the cores of a view while decisions are made. `own`: by instance, cores of its layer that runs
    and may have a successor."""

    view: View
    free: list[int] = field(init=False)
    slots: int = field(init=False)
    own: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    decisions: list[Decision] = field(default_factory=list[Decision])

    def __post_init__(self) -> None:
        self.free, self.slots = list(self.view.free), self.view.slots
        open_ = {one.number for one in self.view.open}
        self.own = {one.instance: one.cores for one in self.view.running if one.instance in open_}

    def room(self, instance: Instance) -> list[int]:
        """Cores that the next launch of an instance may have, in floorplan order."""
        own = self.own.get(instance.number)
        if own is None:
            return self.free if self.slots and not instance.running else []
        there = {*self.free, *own}
        return [core for core in self.view.platform.cores if core in there]

    def take(self, instance: Instance, version: Version, reason: str) -> None:
        """Launches a layer of an instance, or the successor of the one that runs, on cores that lie together."""
        cores = together(self.room(instance), version.cores)
        self.free = [core for core in self.free if core not in cores]
        if instance.number in self.own:
            del self.own[instance.number]
        else:
            self.slots -= 1
            if instance.following is not None:
                self.own[instance.number] = cores
        self.decisions.append(Decision(instance.number, version, cores, reason))


@dataclass
class Lookahead:
    """The scheduler, for one run. `penalty`: what a missed deadline costs, in normalised turnaround times."""

    penalty: float = 2.0
    parts: Parts = Parts()
    name: str = "lookahead"
    _seen: int = 0  # cycle of the last decision
    _spent: int = 0  # cycles in which some network was there
    _left: dict[int, int] = field(default_factory=dict[int, int])  # predicted cycles of what has not ended, by network
    _done: int = 0  # predicted cycles of what has

    @property
    def ahead(self) -> bool:
        """Whether it is asked for successors when nothing is pending."""
        return self.parts.ahead

    def decide(self, view: View) -> list[Decision]:
        """What to launch now, network by network in the order of cost."""
        cores = _Cores(view)
        order = self.order(view)
        weights = [1 / max(1, one.network.isolated(len(view.platform.cores))) for one in order]
        worth = [sum(weights[place:]) for place in range(len(order))]
        turn = [0]  # in how many cycles all of those ahead would have ended, one after the other
        for one in order:
            turn.append(turn[-1] + one.network.remaining(one.next, len(view.platform.cores)))
        rivals = [_Rival(*each) for each in zip(order, worth, turn, strict=False)]
        lead = next((place for place, one in enumerate(order) if _ahead(cores, one)), None)
        if lead is None:
            return []
        waiting = False
        for place, (instance, rival) in enumerate(zip(order[lead:], rivals[lead:], strict=True), lead):
            while (layer := self._next(cores, instance)) is not None:
                if place == lead:
                    version = self._first(cores, rivals[lead:], layer)
                    waiting = version is None
                elif waiting or not self.parts.beside:
                    version = None
                else:
                    version = self._beside(cores, rivals[lead], rival, layer, len(cores.room(instance)))
                if version is None:
                    break
                cores.take(instance, version, f"{place + 1}. of {len(order)}")
        return cores.decisions

    def order(self, view: View) -> list[Instance]:
        """All instances, those that run too, by what their delay costs."""
        if not self.parts.weights:
            return sorted(view.instances, key=lambda one: (one.arrival, one.number))
        cores = len(view.platform.cores)
        pace = self._pace(view)
        left = {one.number: one.network.remaining(one.next, cores) for one in view.instances}
        alone = {one.number: max(1, one.network.isolated(cores)) for one in view.instances}
        cheapest = sorted(view.instances, key=lambda one: (left[one.number] * alone[one.number], one.number))
        if not self.parts.deadlines:
            return cheapest
        head, tail = cheapest[:SEARCHED], cheapest[SEARCHED:]
        jobs = [Job(round(pace * left[one.number]), alone[one.number], one.deadline, one.arrival) for one in head]
        return [head[index] for index in improved(jobs, view.now, self.penalty)] + tail

    def _pace(self, view: View) -> float:
        """Cycles that each predicted cycle has taken so far."""
        if not self.parts.pace:
            return 1.0
        cores = len(view.platform.cores)
        if self._left:
            self._spent += view.now - self._seen
        self._seen = view.now
        now = {one.number: one.network.remaining(one.next, cores) for one in view.instances}
        self._done += sum(left - now.get(number, 0) for number, left in self._left.items())
        self._left = now
        return (self._spent + PRIOR) / (self._done + PRIOR)

    def _next(self, cores: _Cores, instance: Instance) -> Layer | None:
        """The layer of an instance that could be launched: the next one, or the successor of that which runs."""
        if not cores.room(instance):
            return None
        if instance.number not in cores.own:
            return None if any(one.instance == instance.number for one in cores.decisions) else instance.layer
        return instance.following if self.parts.ahead else None

    def _first(self, cores: _Cores, rivals: Sequence[_Rival], layer: Layer) -> Version | None:
        """The version for the first network: the fastest on the cores that it may have and does not leave to others;
        None if it had better wait for more."""
        view, instance = cores.view, rivals[0].instance
        room, every = cores.room(instance), view.platform.cores
        most = len(room)
        if self.parts.beside and most == len(every):
            for other in rivals[1:]:
                if other.instance.running:
                    continue
                launch = self._beside(cores, rivals[0], other, other.instance.layer, len(every) - 1)
                if launch is not None:
                    most -= launch.cores
                    break
        version = layer.fastest(most) or layer.fastest(len(room))
        if not self.parts.reserve:
            return version
        begin = _end(cores, instance)
        free, best = len(room), begin + version.cycles if version else None
        for end, returned in sorted(_ends(cores, instance)):
            free += returned
            later = layer.fastest(free)
            if (
                later is not None
                and later.cores > len(room)
                and (best is None or max(begin, end) + later.cycles < best)
            ):
                return None
        return version

    def _beside(
        self,
        cores: _Cores,
        first: _Rival,
        other: _Rival,
        layer: Layer,
        room: int,
    ) -> Version | None:
        """The version of a layer of another network to run next to the first one's on so many cores, if any is worth
        it."""
        platform = cores.view.platform
        every = len(platform.cores)
        running = next((one.version for one in cores.view.running if one.instance == first.instance.number), None)
        starts = _end(cores, other.instance)
        ahead = _ahead(cores, first.instance)
        rival = running or (ahead[0].fastest(every) if ahead else None)
        whole = layer.fastest(every)
        best: tuple[float, Version] | None = None
        for version in layer.versions:
            if version.cores > room or whole is None:
                break
            cycles = version.cycles + (self._queued(platform, rival, version.cycles) if rival else 0.0)
            lost = _slower(ahead, every, version.cores, cycles)
            if self.parts.queues:
                lost += (version.read + version.written) / platform.bandwidth
            saved = whole.cycles - max(0.0, starts + cycles - other.turn)
            gain = (other.worth * saved - MARGIN * first.worth * lost) / cycles
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, version
        return best and best[1]

    def _queued(self, platform: Platform, other: Version, cycles: int) -> float:
        """Cycles that the channels need for what another layer asks for: all of its words, or those of as many
        cycles."""
        if not self.parts.queues:
            return 0.0
        return max(other.read + other.written, other.intensity * cycles) / platform.bandwidth


def _ahead(cores: _Cores, instance: Instance) -> tuple[Layer, ...]:
    """The layers of a network for which nothing has been decided."""
    planned = (*cores.decisions, *cores.view.running, *cores.view.successors)
    return instance.network.layers[instance.next + sum(one.instance == instance.number for one in planned) :]


def _end(cores: _Cores, instance: Instance) -> int:
    """In how many cycles the layer of a network that runs, or has just been launched, is expected to end; 0 without."""
    for one in cores.view.running:
        if one.instance == instance.number:
            return max(1, one.start + one.version.cycles - cores.view.now)
    return next((one.version.cycles for one in cores.decisions if one.instance == instance.number), 0)


def _slower(layers: Sequence[Layer], cores: int, without: int, cycles: float) -> float:
    """By how much layers are slower without some of the cores, for as many of their cycles."""
    at, lost = 0.0, 0.0
    for layer in layers:
        if at >= cycles:
            break
        whole, part = layer.fastest(cores), layer.fastest(cores - without)
        if whole is None or part is None:
            return lost + cycles - at  # it has to wait
        at += part.cycles
        lost += part.cycles - whole.cycles
    return lost


def _ends(cores: _Cores, instance: Instance) -> list[tuple[int, int]]:
    """In how many cycles the layers of other networks, and their successors, are expected to return how many cores."""
    view, ends = cores.view, list[tuple[int, int]]()
    after = {one.instance: one for one in view.successors}
    for one in view.running:
        if one.instance == instance.number:
            continue
        end = max(1, one.start + one.version.cycles - view.now)
        follower = after.get(one.instance)
        reserved = set(follower.cores) if follower else set[int]()
        ends.append((end, len(set(one.cores) - reserved)))
        if follower:
            ends.append((end + follower.version.cycles, len(follower.cores)))
    return ends


@dataclass(frozen=True)
class Job:
    """Remaining and isolated cycles on the whole chip, deadline and arrival."""

    left: int
    alone: int
    deadline: int | None
    arrival: int


def improved(jobs: Sequence[Job], now: int, penalty: float) -> list[int]:
    """Indices of the jobs, all of which have arrived by `now`, in an order that no move of a single job makes cheaper,
    from the order that they have."""
    order = list(range(len(jobs)))
    if all(job.deadline is None for job in jobs):
        return order
    costs = _Costs(jobs, now, penalty)
    cost = costs.take(order)
    for _ in jobs:  # rounds: each lowers the cost or is the last
        better = False
        for place in range(len(order)):
            for other in range(len(order)):
                if other == place:
                    continue
                moved = order.copy()
                moved.insert(other, moved.pop(place))
                if costs.below(cost - 1e-9, moved, min(place, other)):
                    order, cost, better = moved, costs.take(moved), True
        if not better:
            break
    return order


class _Costs:
    """Costs of orders of jobs. Most of those that are tried are dearer than the one that they come from: none is summed
    up for longer than that takes, nor where it is the same."""

    def __init__(self, jobs: Sequence[Job], now: int, penalty: float) -> None:
        never = float("inf")
        self.jobs = [
            (one.left, one.arrival, one.alone, never if one.deadline is None else one.deadline) for one in jobs
        ]
        self.now, self.penalty = now, penalty
        self.before: list[tuple[int, float]] = []  # cycle and cost before each place of the order taken

    def take(self, order: Sequence[int]) -> float:
        """The cost of an order, from which others will be tried."""
        at, cost = self.now, 0.0
        self.before = [(at, cost)]
        for index in order:
            left, arrival, alone, deadline = self.jobs[index]
            at += left
            cost += (at - arrival) / alone
            if at > deadline:
                cost += self.penalty
            self.before.append((at, cost))
        return cost

    def below(self, limit: float, order: Sequence[int], first: int) -> bool:
        """Whether an order costs less than the limit. It is the one taken up to place `first`."""
        at, cost = self.before[first]
        jobs, penalty = self.jobs, self.penalty
        for index in order[first:]:
            left, arrival, alone, deadline = jobs[index]
            at += left
            cost += (at - arrival) / alone
            if at > deadline:
                cost += penalty
            if cost >= limit:
                return False
        return cost < limit
