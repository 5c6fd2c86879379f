"""Planaria (Ghodrati et al.: "Planaria: Dynamic Architecture Fission for Spatial Multi-Tenant Acceleration of Deep
Neural Networks", MICRO 2020), its scheduler alone: networks share the chip in space, with cores of their own that are
divided anew when one arrives or ends.

Each network needs the fewest cores on which it would meet its deadline. If all of these fit, what is left is divided by
score, 1 / remaining time. If not, those with the highest 1 / (slack * cores needed) get theirs until no core is left.
Cores that a layer cannot use stay with its network.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...schedulers.online.interface import Decision, Instance, View
from .launching import Launching


@dataclass
class Planaria:
    """The scheduler, for one run."""

    name: str = "planaria"
    _numbers: tuple[int, ...] = ()
    _cores: dict[int, int] = field(default_factory=dict[int, int])

    def decide(self, view: View) -> list[Decision]:
        """The next layer of each waiting network that has cores, on as many of them as are free by now."""
        numbers = tuple(instance.number for instance in view.instances)
        if numbers != self._numbers:
            self._cores, self._numbers = divide(view), numbers
        launching = Launching(view)
        reserved = sum(max(0, self._cores[one.instance] - one.version.cores) for one in view.running)
        for instance in view.pending:
            own = min(self._cores[instance.number], launching.room - reserved)
            version = instance.layer.fastest(own)
            if version is None:
                continue
            launching.launch(instance, version, f"has {self._cores[instance.number]} cores until an arrival or end")
            reserved += max(0, self._cores[instance.number] - version.cores)
        return launching.decisions


def needed(instance: Instance, now: int, cores: int) -> int:
    """The fewest cores on which the deadline would be met; all of them if it cannot be, the fewest that any layer takes
    if there is none."""
    least = instance.network.least_cores()
    if instance.deadline is None:
        return least
    for count in range(least, cores + 1):
        if instance.network.remaining(instance.next, count) <= instance.deadline - now:
            return count
    return cores


def divide(view: View) -> dict[int, int]:
    """Cores for each instance, by number; 0 for those that have to wait."""
    total = len(view.platform.cores)
    need = {instance.number: needed(instance, view.now, total) for instance in view.instances}
    if sum(need.values()) <= total:
        return _spread(view, need, total - sum(need.values()))

    def score(instance: Instance) -> tuple[float, int]:
        slack = max(1, (instance.deadline or view.now) - view.now)
        return -1 / (slack * need[instance.number]), instance.number

    shares, left = dict.fromkeys(need, 0), total
    for instance in sorted(view.instances, key=score):
        shares[instance.number] = min(need[instance.number], left)
        if shares[instance.number] < instance.network.least_cores():
            shares[instance.number] = 0
        left -= shares[instance.number]
    return shares


def _spread(view: View, need: dict[int, int], left: int) -> dict[int, int]:
    """What is left, in proportion to 1 / remaining time; whole cores first, then by the largest rest."""
    scores = {
        instance.number: 1 / max(1, instance.network.remaining(instance.next, need[instance.number]))
        for instance in view.instances
    }
    whole = sum(scores.values())
    wished = {number: left * score / whole for number, score in scores.items()}
    cores = {number: need[number] + int(wish) for number, wish in wished.items()}
    rest = left - sum(int(wish) for wish in wished.values())
    for number in sorted(wished, key=lambda number: (int(wished[number]) - wished[number], number))[:rest]:
        cores[number] += 1
    return cores
