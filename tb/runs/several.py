"""The same workloads for several targets, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..inputs.sources import NetworkSource
from ..results.events import Event, RowCount
from ..results.schema import Row
from . import runner
from .kinds.mappings import MappedSource
from .options import RunOptions
from .saved import SavedSource
from .targets import Target

#: What may be run on several targets.
Source = str | NetworkSource | SavedSource | MappedSource


def run(
    workloads: Sequence[Source], targets: Sequence[Target], on_event: Callable[[Event], None], options: RunOptions
) -> list[Row]:
    """Runs workloads on each target and returns their rows, target by target, in the order given.

    Raises what `runner.run` does; errors of bad input for any target before anything runs.
    """
    if len(targets) == 1:
        return runner.run(workloads, targets[0].chip, targets[0].scheduler, on_event, options)
    total = sum(runner.count_rows(workloads, each.chip, each.scheduler, options) for each in targets)
    on_event(RowCount(rows=total))

    def pass_on(event: Event) -> None:
        if not isinstance(event, RowCount):  # of one target
            on_event(event)

    rows: list[Row] = []
    for index, each in enumerate(targets):
        traces = options.traces and options.traces / f"{index + 1}-{each.folder}"
        sources = [_saving_in(source, traces) for source in workloads]
        rows += runner.run(sources, each.chip, each.scheduler, pass_on, replace(options, traces=traces))
    return rows


def _saving_in(source: Source, folder: Path | None) -> Source:
    """A workload that saves what it computes in `folder`: those of two targets have the same names."""
    if isinstance(source, NetworkSource):
        return replace(source, tensors=folder)
    return replace(source, fed=replace(source.fed, tensors=folder)) if isinstance(source, SavedSource) else source
