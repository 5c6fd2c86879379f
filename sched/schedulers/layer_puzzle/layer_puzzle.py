"""Layer-Puzzle's Algorithm 2 (Gao et al., DATE 2023, section III-B.2).

    priority = expected progress - elapsed time / deadline        elapsed and deadline counted from the arrival

In order of priority each waiting network takes, of its next layer's versions that fit the free cores, the fastest at
the estimated congestion. Whoever was skipped `starvation` times in a row stops all others until cores suffice for it.

The algorithm as printed has no way out of its inner loop: it appends a version for each number of cores that fits, and
takes all of their cores away. `literal` plays that: the last version that fits runs, and the cores of the others that
were appended stay idle until the next decision. The paper sorts by priority and does not say which way; its text
("higher priority when the current progress is behind the expected progress") with Eq. 1 puts the largest value first,
networks whose work is ahead of their time. `order="behind"` puts those first that are late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal

from ..online.congestion import Congestion, fastest_beside
from ..online.interface import Decision, Instance, Version, View
from .launching import Launching

Order = Literal["ahead", "behind"]


@dataclass
class LayerPuzzle:
    """The scheduler, for one run."""

    congestion: Congestion
    order: Order = "ahead"
    starvation: int = 3
    literal: bool = False
    name: str = "layer_puzzle"
    _skipped: dict[int, int] = field(default_factory=dict[int, int])

    def decide(self, view: View) -> list[Decision]:
        """The fastest version that fits, for each waiting network in order of priority."""
        launching = Launching(view)
        sign = -1 if self.order == "ahead" else 1

        def key(instance: Instance) -> tuple[float, int]:
            return sign * priority(instance, view), instance.number

        starving = [one for one in view.pending if self._skipped.get(one.number, 0) >= self.starvation]
        others = sorted((one for one in view.pending if one not in starving), key=key)
        starving.sort(key=lambda one: (-self._skipped[one.number], one.number))
        room = launching.room
        for instance in (*starving, *others):
            taken, version = self._take(view, launching, instance, room)
            if version is not None:
                self._skipped[instance.number] = 0
                value = f"priority {priority(instance, view):+.3f}"
                launching.launch(instance, version, value + (", starving" if instance in starving else ""))
                room = min(room - taken, launching.room)
                continue
            self._skipped[instance.number] = self._skipped.get(instance.number, 0) + 1
            if instance in starving:
                break  # nobody else is launched until this one can be
        return launching.decisions

    def _take(
        self, view: View, launching: Launching, instance: Instance, room: int
    ) -> tuple[int, Version | None]:  # fmt: skip
        """The cores that a launch takes away, and the version; (0, None) if none fits."""
        beside = partial(fastest_beside, self.congestion, view.platform, running=launching.running)
        if not self.literal:
            best = beside([version for version in instance.layer.versions if version.cores <= room])
            return (best.cores if best else 0), best
        taken, last = 0, None
        for cores, versions in groupby(instance.layer.versions, key=lambda version: version.cores):
            if cores <= room - taken:
                last = beside(versions)
                taken += cores
        return taken, last


def priority(instance: Instance, view: View) -> float:
    """Expected minus current progress. Without a deadline, time is measured in isolated times on one core."""
    elapsed = view.now - instance.arrival
    if instance.deadline is not None:
        whole = instance.deadline - instance.arrival
    else:
        whole = instance.network.isolated(instance.network.least_cores())
    return instance.network.progress[instance.next] - elapsed / max(1, whole)
