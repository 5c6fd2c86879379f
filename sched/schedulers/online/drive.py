"""The loop that serves a scenario: arrivals and ends of layers, a scheduler that decides, launches.

It knows no clock but the executor's. What runs the layers is the chip or the timeline model; the loop is the same, and
so are the views that a scheduler gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .decisions import Logged
from .interface import Decision, Instance, Layer, OnlineScheduler, Placement, Platform, ServingError, View


@dataclass(frozen=True)
class Ended:
    """A layer that ended in `cycle`. `fault`: what stopped it, in words; None if it ended well."""

    slot: int
    cycle: int
    fault: str | None = None


class Executor(Protocol):
    """What runs layers. `now`: the cycle that it has reached, from 0."""

    @property
    def platform(self) -> Platform: ...
    @property
    def now(self) -> int: ...
    def admit(self, instance: Instance) -> bool:
        """Makes room in memory for an instance; False: there is none before another one has been released."""
        ...

    def release(self, instance: Instance) -> None:
        """Gives its room back."""
        ...

    def launch(self, slot: int, instance: Instance, placement: Placement) -> None:
        """Starts a layer in cycle `placement.start` > now in a free slot."""
        ...

    def follow(self, slot: int, instance: Instance, placement: Placement) -> None:
        """Starts a layer in a slot when the one there, of the same instance, has ended, and no earlier than in cycle
        `placement.start` > now; not at all if that one ends with a fault."""
        ...

    def advance(self, until: int | None) -> Sequence[Ended]:
        """Goes on until a layer ends, and returns all that end in that cycle; or until cycle `until`, and returns
        none."""
        ...


@dataclass(frozen=True)
class Ran:
    """A layer that ran, or was stopped by `fault`, from `placement.start` to `end`."""

    placement: Placement
    end: int
    fault: str | None = None


@dataclass(frozen=True)
class Served:
    """An instance at its end. `end`: the cycle, None if a fault ended it. `lost`: the fault. `waited`: the longest time
    that it was ready and nothing of it ran; `skipped`: the most decisions in a row that left it waiting."""

    instance: Instance
    start: int | None
    end: int | None
    lost: str | None
    waited: int
    skipped: int


@dataclass(frozen=True)
class Run:
    """A scenario that has been served. `calls`: of `decide`. `end`: the last cycle."""

    scheduler: str
    platform: Platform
    served: tuple[Served, ...]
    ran: tuple[Ran, ...]
    log: tuple[Logged, ...]
    calls: int

    @property
    def end(self) -> int:
        return max((one.end for one in self.ran), default=0)


@dataclass
class _Life:
    """What the loop knows of an instance."""

    instance: Instance
    ready: int
    start: int | None = None
    end: int | None = None
    lost: str | None = None
    waited: int = 0
    skipped: int = 0
    most_skipped: int = 0

    @property
    def over(self) -> bool:
        return self.end is not None or self.lost is not None


@dataclass
class Drive:
    """One run. `decision_cycles`: from an event to the launch of what was decided on it; what happens meanwhile is seen
    by the next decision. `patience`: calls of `decide` in a row that may leave cores free and one instance waiting
    before that counts as starvation. `on_event` is told of each launch and each end."""

    executor: Executor
    scheduler: OnlineScheduler
    decision_cycles: int = 0
    patience: int = 10_000
    on_event: Callable[[int, Instance, str], None] | None = None
    _lives: dict[int, _Life] = field(default_factory=dict[int, _Life])
    _busy: dict[int, Placement] = field(default_factory=dict[int, Placement])
    _after: dict[int, Placement] = field(default_factory=dict[int, Placement])
    _ran: list[Ran] = field(default_factory=list[Ran])
    _log: list[Logged] = field(default_factory=list[Logged])
    _calls: int = 0

    def run(self, instances: Iterable[Instance]) -> Run:
        """Serves all. Raises ServingError when the scheduler decides what cannot be or starves somebody, and when an
        instance never fits."""
        coming = sorted(instances, key=lambda one: (one.arrival, one.number))
        _check(coming, self.executor.platform)
        waiting: list[Instance] = []  # for memory, in order of arrival
        while coming or waiting or self._active():
            now = self.executor.now
            while coming and coming[0].arrival <= now:
                waiting.append(coming.pop(0))
            self._admit(waiting, now)
            if self._active():
                self._decide(now)
            if not self._busy and not coming:
                self._stuck(waiting, now)
            # a decision is launched one cycle after it has been made at the earliest: the queue takes it then
            for ended in self.executor.advance(coming[0].arrival if coming else None):
                self._end(ended)
        served = tuple(
            Served(life.instance, life.start, life.end, life.lost, life.waited, life.most_skipped)
            for _, life in sorted(self._lives.items())
        )
        executor = self.executor
        return Run(self.scheduler.name, executor.platform, served, tuple(self._ran), tuple(self._log), self._calls)

    def _active(self) -> bool:
        return any(not life.over for life in self._lives.values())

    def _admit(self, waiting: list[Instance], now: int) -> None:
        while waiting and self.executor.admit(waiting[0]):
            instance = waiting.pop(0)
            self._lives[instance.number] = _Life(instance, now)

    def view(self) -> View:
        """What the scheduler would see now."""
        platform = self.executor.platform
        busy = {core for each in (self._busy, self._after) for placement in each.values() for core in placement.cores}
        return View(
            self.executor.now,
            platform,
            tuple(core for core in platform.cores if core not in busy),
            platform.programs - len(self._busy),
            tuple(life.instance for _, life in sorted(self._lives.items()) if not life.over),
            tuple(sorted(self._busy.values(), key=lambda placement: placement.instance)),
            tuple(sorted(self._after.values(), key=lambda placement: placement.instance)),
        )

    def _decide(self, now: int) -> None:
        view = self.view()
        if not view.pending and not (view.open and getattr(self.scheduler, "ahead", False)):
            return
        decisions = list(self.scheduler.decide(view))
        self._calls += 1
        start = now + max(1, self.decision_cycles)
        free, slots = set(view.free), [slot for slot in range(view.platform.programs) if slot not in self._busy]
        pending = {instance.number: instance for instance in view.pending}
        for decision in decisions:
            if decision.instance not in pending and self._followed(decision, free, now, start):
                continue
            instance = self._checked(decision, pending, free, slots, now)
            free -= set(decision.cores)
            placement = Placement(instance.number, instance.next, decision.version, decision.cores, start)
            life = self._lives[instance.number]
            life.waited = max(life.waited, start - life.ready)
            life.start = start if life.start is None else life.start
            life.skipped = 0
            life.instance = replace(instance, running=True)
            slot = slots.pop(0)
            self._busy[slot] = placement
            self._log.append(_logged(self._calls, now, start, instance, instance.layer, decision))
            self.executor.launch(slot, life.instance, placement)
            if self.on_event:
                self.on_event(start, life.instance, f"{instance.layer.name} on {len(decision.cores)} cores")
        for instance in pending.values():
            life = self._lives[instance.number]
            life.skipped += bool(free)
            life.most_skipped = max(life.most_skipped, life.skipped)
            if life.skipped > self.patience:
                raise ServingError(
                    f"scheduler {self.scheduler.name} starves {instance.label}: {life.skipped} decisions since cycle "
                    f"{life.ready} left cores free and did not launch {instance.layer.name}"
                )

    def _followed(self, decision: Decision, free: set[int], now: int, start: int) -> bool:
        """Carries out a decision about a successor, whose cores are no longer free then; False: it is about none."""
        number = decision.instance
        slot = next((slot for slot, placement in self._busy.items() if placement.instance == number), None)
        if slot is None:
            return False
        instance, own = self._lives[number].instance, set(self._busy[slot].cores)
        layer, problem = instance.following, ""
        if layer is None:
            problem = f"{instance.label} has no layer after {instance.layer.name}, which runs"
        elif slot in self._after:
            problem = f"{instance.layer.name} of {instance.label} has a successor already"
        elif decision.version in instance.layer.versions and decision.version not in layer.versions:
            problem = (
                f"{instance.label} is launched twice: {instance.layer.name} runs, and the next decision for it must "
                f"have a version of {layer.name}, not {decision.version}"
            )
        else:
            problem = _misfit(instance, layer, decision, free | own)
        if problem or layer is None:
            raise ServingError(f"scheduler {self.scheduler.name}, decision in cycle {now}: {problem}")
        free -= set(decision.cores)
        placement = Placement(number, instance.next + 1, decision.version, decision.cores, start)
        self._after[slot] = placement
        self._log.append(_logged(self._calls, now, start, instance, layer, decision))
        self.executor.follow(slot, replace(instance, next=instance.next + 1), placement)
        return True

    def _checked(
        self, decision: Decision, pending: dict[int, Instance], free: set[int], slots: list[int], now: int
    ) -> Instance:
        """The instance of a decision that can be carried out, taken out of those that are pending."""
        instance = pending.get(decision.instance)
        problem = ""
        if instance is None:
            problem = f"instance {decision.instance} is not waiting"
        elif not slots:
            problem = f"{instance.label}: {self.executor.platform.programs} programs run, and no more may"
        else:
            problem = _misfit(instance, instance.layer, decision, free)
        if problem or instance is None:
            raise ServingError(f"scheduler {self.scheduler.name}, decision in cycle {now}: {problem}")
        return pending.pop(decision.instance)

    def _end(self, ended: Ended) -> None:
        placement = self._busy.pop(ended.slot)
        self._ran.append(Ran(placement, ended.cycle, ended.fault))
        life = self._lives[placement.instance]
        after = self._after.pop(ended.slot, None)
        instance = replace(life.instance, next=placement.layer + 1, running=False)
        life.ready = ended.cycle
        if after is not None and ended.fault is None:
            after = self._busy[ended.slot] = replace(after, start=max(after.start, ended.cycle))
            instance = replace(instance, running=True)
            life.waited = max(life.waited, after.start - ended.cycle)
        if ended.fault is not None:
            life.lost, life.instance = ended.fault, replace(instance, next=placement.layer)
        else:
            life.instance = instance
            if instance.next == len(instance.network.layers):
                life.end = ended.cycle
        if life.over:
            self.executor.release(life.instance)
        if self.on_event:
            done = "lost: " + str(life.lost) if life.lost else "done" if life.over else ""
            self.on_event(
                ended.cycle, life.instance, done or f"layer {instance.next} of {len(instance.network.layers)}"
            )
            if after is not None and life.instance.running:
                on = f"{life.instance.layer.name} on {len(after.cores)} cores"
                self.on_event(after.start, life.instance, on)

    def _stuck(self, waiting: list[Instance], now: int) -> None:
        """Raises ServingError if nothing runs and nothing will."""
        left = [life.instance.label for _, life in sorted(self._lives.items()) if not life.over]
        if left:
            raise ServingError(
                f"scheduler {self.scheduler.name} starves {', '.join(left)}: all cores are free in cycle {now}, "
                "nothing more arrives, and it launches nothing"
            )
        if waiting:
            raise ServingError(
                f"{waiting[0].label} does not fit into the memory of {self.executor.platform.name}, with nothing else "
                "there; take a smaller batch or more DRAM words"
            )


def _logged(order: int, seen: int, start: int, instance: Instance, layer: Layer, decision: Decision) -> Logged:
    network, scheme = instance.network.label, decision.version.scheme
    return Logged(order, seen, start, instance.number, network, layer.name, scheme, decision.cores, decision.reason)


def _misfit(instance: Instance, layer: Layer, decision: Decision, free: set[int]) -> str:
    """Why a version of a layer cannot run on those of the `free` cores; nothing if it can."""
    if decision.version not in layer.versions:
        return f"{instance.label} has no such version of {layer.name}: {decision.version}"
    if len(decision.cores) != decision.version.cores or len(set(decision.cores)) != len(decision.cores):
        return f"{instance.label} takes {decision.version.cores} cores, not {list(decision.cores)}"
    if not set(decision.cores) <= free:
        return f"{instance.label} takes cores that are not free: {sorted(set(decision.cores) - free)}"
    return ""


def _check(instances: Sequence[Instance], platform: Platform) -> None:
    """Raises ServingError for instances that no schedule could serve."""
    if len({instance.number for instance in instances}) != len(instances):
        raise ServingError("two instances have the same number")
    for instance in instances:
        least = instance.network.least_cores()
        if least > len(platform.cores):
            raise ServingError(
                f"{instance.label} has a layer with no version below {least} cores, {platform.name} has "
                f"{len(platform.cores)}"
            )
