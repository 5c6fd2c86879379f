"""Schedulers of whole networks, by the names that `scheduler` has for those of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshloom.hw.config import ChipConfig

from .network.memory import Memory
from .network.scheduler import NetworkSchedule, Progress, Sharing, schedule
from .network.storage import Between
from .scheduler import SchedulerError, budget_of, names, options_of
from .workload.graph import Graph

#: Makes the schedule of a network on a chip, and tells how far it is. Raises DoesNotFit, WorkloadError.
NetworkScheduler = Callable[[Graph, ChipConfig, Progress | None], NetworkSchedule]


def find(name: str, folder: Path | None = None, tell: Any = None) -> NetworkScheduler:
    """The scheduler of that name for networks, with options behind a colon.

    `loop_order` and `dtt` take `between=dram|whole|planes` (what of the tensors between layers may lie in the
    scratchpad), `fused=yes|no` (additions and max pools with the convolution before them) and `tight=yes|no` (max
    pools even if rows are computed twice for it); `flexer`, `paper_static` and `hybrid` the options that they have for
    layers. `folder`: where searches keep what they find; `tell` hears how far they are. Raises SchedulerError that
    lists what there is.
    """
    base, options = options_of(name)
    if base in ("loop_order", "dtt"):
        return _static(name, _sharing(name, options), folder)
    from .flexer.network import hybrid, planned
    from .flexer.policy import PolicyError

    if base not in names():
        raise SchedulerError(f"unknown scheduler {base!r}; known are {', '.join(names())}")
    budget = budget_of(name, options.pop("budget")) if "budget" in options else None
    try:
        if base == "hybrid":
            if options:
                raise SchedulerError(f"scheduler hybrid has no option {next(iter(options))!r}; it has budget")
            return lambda graph, chip, progress: hybrid(graph, chip, progress, folder, budget, tell)
        return planned(base, options, folder, budget, tell)
    except PolicyError as error:
        raise SchedulerError(f"scheduler {name!r}: {error}") from error


def _static(name: str, sharing: Sharing, folder: Path | None) -> NetworkScheduler:
    base = options_of(name)[0]

    def make(graph: Graph, chip: ChipConfig, progress: Progress | None) -> NetworkSchedule:
        made = schedule(graph, chip, progress, Memory(folder, chip) if folder else None, sharing)
        if name == "loop_order":
            return made
        called = name if base == "loop_order" else base
        return replace(made, schedule=made.schedule.model_copy(update={"scheduler": called}))

    return make


def _sharing(name: str, options: dict[str, str]) -> Sharing:
    """What layers have in common, from options. Raises SchedulerError."""
    allowed = {"between": [kind.value for kind in Between], "fused": ["yes", "no"], "tight": ["yes", "no"]}
    for key, value in options.items():
        if key not in allowed:
            raise SchedulerError(f"scheduler {name!r}: {key} is no option for networks; there are {', '.join(allowed)}")
        if value not in allowed[key]:
            raise SchedulerError(f"scheduler {name!r}: {key} = {value!r} must be one of {', '.join(allowed[key])}")
    return Sharing(
        between=Between(options.get("between", "whole")),
        fused=options.get("fused", "yes") == "yes",
        tight=options.get("tight", "no") == "yes",
    )
