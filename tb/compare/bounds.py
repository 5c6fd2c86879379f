"""What no other order of a run's operations can undercut: the busiest resource of each kind, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping

from meshloom.sched.schedulers.network.limits import busiest, totals

from ..results.explanation import Bounds, LayerBusy
from .causes import Causes
from .finished import Entry, FinishedRun
from .floors import floor_of
from .gap import gap_of


def bounds_of(run: FinishedRun, causes: Causes[Entry] | None, cycles: int) -> Bounds:
    """The bounds of a run's schedule, and why it took `cycles`. `causes`: None for a program timed ahead."""
    layers = busiest(run.schedule, run.chip, run.layer)
    return Bounds(
        busy=_whole(totals(run.schedule, run.chip)),
        layers=tuple(LayerBusy(layer=layer, busy=_whole(busy)) for layer, busy in layers.items()),
        floor=floor_of(run.row.workload, run.chip),
        gap=None if causes is None else gap_of(run, causes, cycles),
    )


def _whole(busy: Mapping[str, float]) -> dict[str, int]:
    return {str(kind): int(cycles) for kind, cycles in busy.items()}
