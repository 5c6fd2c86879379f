"""A fluid model of a chip: layers are flows that share the DRAM's bandwidth. Fast, and exact for nothing.

A layer has a latency (launch, fetch of its code, first words, last words), then it works at a rate that its arrays and
its DRAM words allow:

    peak     = min(bandwidth, link * cores)                                words a cycle, alone
    exposed  part of its words that nothing hides (the first tiles' loads, the last tiles' stores)
    alone    = latency + exposed * words / peak + max(compute, (1 - exposed) * words / peak)

Of several layers each asks for what it would take alone in its current phase, and the bandwidth is divided max-min
fairly among them: whoever asks for less than an equal share gets it, and the rest is divided among the others. A layer
that gets less is slower in proportion. Routers, banks and the order of packets play no part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil

from meshloom.sched.schedulers.online.congestion import shares
from meshloom.sched.schedulers.online.drive import Ended
from meshloom.sched.schedulers.online.interface import Instance, Placement, Platform, Version

#: Cycles from a launch to the first word that is asked for, and from the last word to the end.
LATENCY = 400
#: Part of a layer's words that is not overlapped with computation.
EXPOSED = 0.15
#: A phase is over when less than this part of a cycle is left: sums of floats.
_EPSILON = 1e-6


def phases(platform: Platform, cores: int, compute: float, words: float) -> tuple[tuple[float, float], ...]:
    """The phases of a layer: cycles alone on the chip, and words a cycle that it asks for meanwhile."""
    peak = min(platform.bandwidth, platform.link * cores)
    exposed, rest = EXPOSED * words, (1 - EXPOSED) * words
    body = max(compute, rest / peak)
    return (float(LATENCY), 0.0), (exposed / peak, peak), (body, rest / body if body else 0.0)


def alone(platform: Platform, cores: int, compute: float, words: float) -> int:
    """Cycles of a layer that has the chip to itself."""
    return ceil(sum(cycles for cycles, _ in phases(platform, cores, compute, words)) - _EPSILON)


@dataclass
class _Flow:
    """A layer that runs. `left`: cycles of its current phase that remain, at full rate. `rate`: of 1."""

    placement: Placement
    phases: list[tuple[float, float]]
    left: float = 0.0
    asked: float = 0.0
    rate: float = 1.0

    def next_phase(self) -> bool:
        """Enters the next phase that takes any time; whether there is one."""
        while self.phases:
            self.left, self.asked = self.phases.pop(0)
            if self.left > _EPSILON:
                return True
        return False


@dataclass
class Fluid:
    """An executor (see `drive.Executor`) that plays layers on the fluid model. Cycles of ends are rounded up. Memory
    is not counted: everything fits. `faults`: (instance, index of a layer): that launch ends with a fault."""

    platform: Platform
    now: int = 0
    faults: frozenset[tuple[int, int]] = frozenset()
    _flows: dict[int, _Flow] = field(default_factory=dict[int, _Flow])
    _coming: dict[int, _Flow] = field(default_factory=dict[int, _Flow])
    _after: dict[int, Placement] = field(default_factory=dict[int, Placement])
    _time: float = 0.0

    def admit(self, instance: Instance) -> bool:
        """Always."""
        return True

    def release(self, instance: Instance) -> None:
        """Nothing to give back."""

    def launch(self, slot: int, instance: Instance, placement: Placement) -> None:
        """Starts a layer in cycle `placement.start`."""
        self.start(slot, placement)

    def follow(self, slot: int, instance: Instance, placement: Placement) -> None:
        """See `drive.Executor`. The successor of a layer that a fault has stopped never begins."""
        self._after[slot] = placement

    def start(self, slot: int, placement: Placement) -> None:
        """The same without an instance, for samples of single layers."""
        assert placement.start > self.now, "a layer starts after the cycle that has been reached"
        assert slot not in self._flows, f"slot {slot} is taken"
        assert slot not in self._coming, f"slot {slot} is taken"
        self._coming[slot] = _Flow(placement, list(self._phases(placement.version)))

    def advance(self, until: int | None) -> tuple[Ended, ...]:
        """See `drive.Executor`."""
        while True:
            self._begin()
            step, ends = self._step(until)
            if step is None:
                self.now = max(self.now, until or 0)
                self._time = float(self.now)
                return ()
            self._time += step
            for flow in self._flows.values():
                flow.left -= step * flow.rate
            if not ends:
                self.now = int(self._time)
                continue
            over = [slot for slot, flow in self._flows.items() if flow.left <= _EPSILON and not flow.next_phase()]
            if over:
                self.now = ceil(self._time - _EPSILON)
                return tuple(self._ended(slot) for slot in sorted(over))

    def _phases(self, version: Version) -> tuple[tuple[float, float], ...]:
        return phases(self.platform, version.cores, version.compute, version.read + version.written)

    def _begin(self) -> None:
        """Lets those start whose cycle has come, and divides the bandwidth."""
        due = [slot for slot, flow in self._coming.items() if flow.placement.start <= self._time + _EPSILON]
        for slot in due:
            flow = self._flows[slot] = self._coming.pop(slot)
            flow.next_phase()
        flows = list(self._flows.values())
        given = shares([flow.asked for flow in flows], self.platform.bandwidth)
        for flow, share in zip(flows, given, strict=True):
            flow.rate = share / flow.asked if flow.asked else 1.0

    def _step(self, until: int | None) -> tuple[float | None, bool]:
        """Cycles to what happens next, and whether that is the end of a phase; None if that is after `until`."""
        end = min((flow.left / flow.rate for flow in self._flows.values()), default=None)
        start = min((flow.placement.start - self._time for flow in self._coming.values()), default=None)
        result = [cycles for cycles in (end, start) if cycles is not None]
        assert result or until is not None, "nothing runs and nothing is to come"
        if until is not None and (not result or self._time + min(result) > until):
            if until > self._time:  # play up to there
                for flow in self._flows.values():
                    flow.left -= (until - self._time) * flow.rate
            return None, False
        return min(result), end is not None and end <= min(result) + _EPSILON

    def _ended(self, slot: int) -> Ended:
        placement = self._flows.pop(slot).placement
        fault = (placement.instance, placement.layer) in self.faults
        after = self._after.pop(slot, None)
        if after is not None and not fault:
            self._coming[slot] = _Flow(
                replace(after, start=max(self.now, after.start)), list(self._phases(after.version))
            )
        return Ended(slot, self.now, "a fault that the scenario injects" if fault else None)
