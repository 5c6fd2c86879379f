"""What no other order of a run's operations can undercut: the busiest resource of each kind, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping

from meshloom.sched.schedulers.network.limits import busiest, totals

from ..results.explanation import Bounds, LayerBusy
from .finished import FinishedRun
from .floors import floor_of


def bounds_of(run: FinishedRun) -> Bounds:
    """The bounds of a run's schedule."""
    layers = busiest(run.schedule, run.chip, run.layer)
    return Bounds(
        busy=_whole(totals(run.schedule, run.chip)),
        layers=tuple(LayerBusy(layer=layer, busy=_whole(busy)) for layer, busy in layers.items()),
        floor=floor_of(run.row.workload, run.chip),
    )


def _whole(busy: Mapping[str, float]) -> dict[str, int]:
    return {str(kind): int(cycles) for kind, cycles in busy.items()}
