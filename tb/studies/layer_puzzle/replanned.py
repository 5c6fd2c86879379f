"""VELTAIR that plans its blocks anew when a network arrives: what its blocks cost where networks arrive one by one.

As described, a block keeps its cores to its end. The network that has the chip to itself plans with a threshold of all
cores, so that its block is all of it, and who comes next waits for its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meshloom.sched.papers.layer_puzzle.entry import VeltairOptions, congestion_of
from meshloom.sched.papers.layer_puzzle.veltair import Veltair
from meshloom.sched.schedulers.online.interface import Decision, OnlineScheduler, Platform, View
from meshloom.sched.schedulers.online.registry import OnlineMaker


@dataclass
class ReplannedVeltair(Veltair):
    """The scheduler, for one run."""

    _known: set[int] = field(default_factory=set[int])

    def decide(self, view: View) -> list[Decision]:
        """As `Veltair`; blocks end when a network arrives."""
        numbers = {instance.number for instance in view.instances}
        if numbers - self._known:
            self._blocks.clear()
            self._known |= numbers
        return super().decide(view)


def replanned(platform: Platform, options: VeltairOptions) -> OnlineScheduler:
    """See above."""
    return ReplannedVeltair(congestion_of(options.estimator, platform))


SCHEDULER = OnlineMaker("replanned", "VELTAIR whose blocks end when a network arrives", replanned, VeltairOptions)
#: Its name for `meshloom serve --scheduler`.
NAME = f"{__name__}:SCHEDULER"
