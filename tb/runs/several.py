"""The same workloads on several chips or under several schedulers, one after another: each pair is a target."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig

from ..inputs.sources import NetworkSource
from ..results.events import Event, RowCount
from ..results.schema import Row
from . import runner
from .kinds.mappings import MappedSource
from .options import RunOptions
from .saved import SavedSource

#: What may be run on several targets.
Source = str | NetworkSource | SavedSource | MappedSource
#: Characters of the name of a target's folder.
_LONGEST = 80


@dataclass(frozen=True)
class Target:
    """A chip and a scheduler, both by name or the chip itself."""

    chip: str | ChipConfig
    scheduler: str

    @property
    def folder(self) -> str:
        """The name of a folder for what it leaves."""
        chip = self.chip.name if isinstance(self.chip, ChipConfig) else Path(self.chip).stem
        return re.sub(r"[^\w-]+", "_", f"{chip}-{self.scheduler}", flags=re.ASCII)[:_LONGEST]


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
