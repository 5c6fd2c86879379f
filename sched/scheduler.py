"""Schedulers by name. A scheduler is a function of a layer, a chip and the requantisation's multiplier."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from meshloom.hw.config import ChipConfig

from .schedule import Schedule
from .workload.layers import ConvShape


class SchedulerError(ValueError):
    """A name that means no scheduler."""


class Scheduler(Protocol):
    """Makes the schedule of one layer. Raises ValueError when the layer does not fit the chip."""

    def __call__(self, shape: ConvShape, chip: ChipConfig, scale: int = ...) -> Schedule: ...


#: Name to module and function; modules are imported when first asked for.
_KNOWN = {"loop_order": ("meshloom.sched.loop_order.scheduler", "schedule")}


def names() -> tuple[str, ...]:
    """Names of all schedulers."""
    return tuple(sorted(_KNOWN))


def find(name: str) -> Scheduler:
    """The scheduler of that name. Raises SchedulerError that lists the known names."""
    if name not in _KNOWN:
        raise SchedulerError(f"unknown scheduler {name!r}; known are {', '.join(names())}")
    module, function = _KNOWN[name]
    return getattr(import_module(module), function)
