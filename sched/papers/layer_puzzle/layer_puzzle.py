"""Layer-Puzzle's Algorithm 2 (Gao et al., DATE 2023, section III-B.2).

    priority = elapsed time / deadline - progress        elapsed and deadline counted from the arrival

In order of priority each waiting network takes, of its next layer's versions that fit the free cores, the fastest at
the estimated congestion. Whoever was skipped `starvation` times in a row stops all others until cores suffice for it.

What is printed can be read in several ways:

- The paper gives the priority the other sign and names its terms the other way round: "expected progress" is the part
  of the work that is done (Eq. 1), "current progress" the part of the time that has passed. What it wants of the order,
  that a network whose progress is behind what is expected comes first, holds with the names as anybody would use them.
  `order="ahead"` plays the formula as printed, largest first: whoever is late, and above all whoever was late with a
  short deadline, comes last.
- A network is skipped when cores do not suffice for it and one of lower priority is launched. `skips="every"` counts
  each decision that leaves a network waiting. Where networks outnumber cores that holds for most of them most of the
  time; they all starve, and go in order of how long they have, whatever their priorities.
- The loop has no way out: it appends a version for each number of cores that fits, and takes all of their cores away.
  `literal` plays that: the last version that fits runs, and the cores of the others that were appended stay idle until
  the next decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal

from ...schedulers.online.congestion import Congestion, fastest_beside
from ...schedulers.online.interface import Decision, Instance, Version, View
from .launching import Launching

Order = Literal["behind", "ahead"]
Skips = Literal["overtaken", "every"]


@dataclass
class LayerPuzzle:
    """The scheduler, for one run."""

    congestion: Congestion
    order: Order = "behind"
    skips: Skips = "overtaken"
    starvation: int = 3
    literal: bool = False
    name: str = "layer_puzzle"
    _skipped: dict[int, int] = field(default_factory=dict[int, int])

    def decide(self, view: View) -> list[Decision]:
        """The fastest version that fits, for each waiting network in order of priority."""
        launching = Launching(view)
        sign = 1 if self.order == "ahead" else -1

        def key(instance: Instance) -> tuple[float, int]:
            return sign * priority(instance, view), instance.number

        starving = [one for one in view.pending if self._skipped.get(one.number, 0) >= self.starvation]
        others = sorted((one for one in view.pending if one not in starving), key=key)
        starving.sort(key=lambda one: (-self._skipped[one.number], one.number))
        room, passed = launching.room, list[int]()
        for instance in (*starving, *others):
            cores, version = self._take(view, launching, instance, room)
            if version is None:
                passed.append(instance.number)
                if instance in starving:
                    break  # nobody else is launched until this one can be
                continue
            self._skipped[instance.number] = 0
            value = f"priority {priority(instance, view):+.3f}"
            launching.launch(instance, version, value + (", starving" if instance in starving else ""))
            room = min(room - cores, launching.room)
            if self.skips == "overtaken":
                self._skip(passed)
                passed.clear()
        if self.skips == "every":
            self._skip(passed)
        return launching.decisions

    def _skip(self, instances: Iterable[int]) -> None:
        for number in instances:
            self._skipped[number] = self._skipped.get(number, 0) + 1

    def _take(
        self, view: View, launching: Launching, instance: Instance, room: int
    ) -> tuple[int, Version | None]:  # fmt: skip
        """The cores that a launch takes away, and the version; (0, None) if none fits."""
        beside = partial(fastest_beside, self.congestion, view.platform, running=launching.running)
        if not self.literal:
            best = beside([version for version in instance.layer.versions if version.cores <= room])
            return (best.cores if best else 0), best
        total, last = 0, None
        for cores, versions in groupby(instance.layer.versions, key=lambda version: version.cores):
            if cores <= room - total:
                last = beside(versions)
                total += cores
        return total, last


def priority(instance: Instance, view: View) -> float:
    """Part of the time that has passed, minus part of the operations done. Without a deadline, time is measured in
    isolated times on one core."""
    elapsed = view.now - instance.arrival
    if instance.deadline is not None:
        whole = instance.deadline - instance.arrival
    else:
        whole = instance.network.isolated(instance.network.least_cores())
    return elapsed / max(1, whole) - instance.network.progress[instance.next]
