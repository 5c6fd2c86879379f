"""Schedulers of whole networks, by the names that `scheduler` has for those of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from meshloom.hw.config import ChipConfig, near

from ..workload.graph import Graph
from .ahead.scheduler import timed
from .budget import Budget
from .network.scheduler import NetworkSchedule, Progress, Sharing, schedule, search_cache
from .network.storage import Between
from .registry import SchedulerError, budget_of, called, options_of, require_known

#: Makes the schedule of a network on a chip, and tells how far it is. Raises DoesNotFit, WorkloadError.
NetworkScheduler = Callable[[Graph, ChipConfig, Progress | None], NetworkSchedule]


def names() -> tuple[str, ...]:
    """Names of all schedulers of networks."""
    return tuple(sorted(_KNOWN))


def find(name: str, folder: Path | None = None, tell: Any = None) -> NetworkScheduler:
    """The scheduler of that name for networks, with options behind a colon.

    `loop_order` and `dtt` take `between=dram|whole|planes` (what of the tensors between layers may lie in the
    scratchpad), `fused=yes|no` (additions and max pools with the convolution before them) and `tight=yes|no` (max
    pools even if rows are computed twice for it); `flexer`, `paper_static` and `hybrid` the options that they have for
    layers. `folder`: where searches keep what they find; `tell` hears how far they are. Raises SchedulerError that
    lists what there is, also for a scheduler of layers that knows no networks: none stands in for another. What is
    found raises as `scheduler.find` says.
    """
    base, options = options_of(name)
    require_known(base)
    if base not in _KNOWN:
        raise SchedulerError(
            f"scheduler {base} schedules layers, not whole networks; give it a network's layers ('NETWORK/*'), or take "
            f"one of {', '.join(names())}"
        )
    make = _KNOWN[base](name, options, folder, tell)

    def made(graph: Graph, chip: ChipConfig, progress: Progress | None) -> NetworkSchedule:
        return called(name, f"network {graph.name}", NetworkSchedule, make, graph, chip, progress)

    return made


def _static(name: str, options: dict[str, str], folder: Path | None, tell: Any) -> NetworkScheduler:
    sharing = _sharing(name, options)

    def make(graph: Graph, chip: ChipConfig, progress: Progress | None) -> NetworkSchedule:
        made = schedule(graph, chip, progress, search_cache(folder, chip), sharing)
        if not options:
            return made  # under the name that it gives itself
        return replace(made, schedule=made.schedule.model_copy(update={"scheduler": name}))

    return make


def _timed(name: str, options: dict[str, str], folder: Path | None, tell: Any) -> NetworkScheduler:
    static = _static(name, options, folder, tell)

    def make(graph: Graph, chip: ChipConfig, progress: Progress | None) -> NetworkSchedule:
        made = static(graph, chip, progress)
        return replace(made, schedule=timed(made.schedule))

    return make


def _out_of_order(kind: str, name: str, options: dict[str, str], folder: Path | None, tell: Any) -> NetworkScheduler:
    from .flexer.network import planned
    from .flexer.policy import PolicyError

    budget = _budget(name, options)
    try:
        return planned(options_of(name)[0], kind, options, folder, budget, tell)
    except PolicyError as error:
        raise SchedulerError(f"scheduler {name!r}: {error}") from error


def _hybrid(name: str, options: dict[str, str], folder: Path | None, tell: Any) -> NetworkScheduler:
    from .flexer.network import hybrid

    budget = _budget(name, options)
    if options:
        raise SchedulerError(f"scheduler hybrid has no option {next(iter(options))!r}; it has budget")
    return lambda graph, chip, progress: hybrid(graph, chip, progress, folder, budget, tell)


def _budget(name: str, options: dict[str, str]) -> Budget | None:
    """Takes the budget out of the options."""
    return budget_of(name, options.pop("budget")) if "budget" in options else None


def _sharing(name: str, options: dict[str, str]) -> Sharing:
    """What layers have in common, from options. Raises SchedulerError."""
    allowed = {"between": [kind.value for kind in Between], "fused": ["yes", "no"], "tight": ["yes", "no"]}
    for key, value in options.items():
        if key not in allowed:
            hint = near(key, allowed)
            raise SchedulerError(
                f"scheduler {name!r}: {key} is no option for networks; there are {', '.join(allowed)}"
                + (hint and f"; {hint}")
            )
        if value not in allowed[key]:
            raise SchedulerError(f"scheduler {name!r}: {key} = {value!r} must be one of {', '.join(allowed[key])}")
    return Sharing(
        between=Between(options.get("between", "whole")),
        fused=options.get("fused", "yes") == "yes",
        tight=options.get("tight", "no") == "yes",
    )


#: How the scheduler of a name is made, of all that know networks: of its name, its options and what `find` is given.
_KNOWN: dict[str, Callable[[str, dict[str, str], Path | None, Any], NetworkScheduler]] = {
    "loop_order": _static,
    "dtt": _timed,
    "flexer": partial(_out_of_order, "flexer"),
    "paper_static": partial(_out_of_order, "static"),
    "hybrid": _hybrid,
}
