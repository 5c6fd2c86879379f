"""Schedulers by name. A scheduler is a function of a layer, a chip and the requantisation's multiplier."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

from meshloom.hw.config import ChipConfig

from .budget import Budget, BudgetError
from .schedule import Schedule
from .workload.layers import ConvShape


class SchedulerError(ValueError):
    """A name that means no scheduler, or options that it does not have."""


class Scheduler(Protocol):
    """Makes the schedule of one layer. Raises ValueError when the layer does not fit the chip."""

    def __call__(self, shape: ConvShape, chip: ChipConfig, scale: int = ...) -> Schedule: ...


#: Name to module and function; modules are imported when first asked for.
_KNOWN = {
    "loop_order": ("meshloom.sched.loop_order.scheduler", "schedule"),
    "dtt": ("meshloom.sched.ahead.scheduler", "schedule"),
    "flexer": ("meshloom.sched.flexer.scheduler", "flexer"),
    "paper_static": ("meshloom.sched.flexer.scheduler", "paper_static"),
    "hybrid": ("meshloom.sched.flexer.scheduler", "hybrid"),
}


def names() -> tuple[str, ...]:
    """Names of all schedulers."""
    return tuple(sorted(_KNOWN))


def find(name: str, folder: Path | None = None, **more: Any) -> Scheduler:
    """The scheduler of that name, with options behind a colon: `loop_order:effort=0.5`.

    `folder`: where schedulers that search for long keep what they find; `more`: further arguments for those that take
    them (`tell`). Raises SchedulerError that lists the known names, or says which option is none.
    """
    base, options = options_of(name)
    if base not in _KNOWN:
        raise SchedulerError(f"unknown scheduler {base!r}; known are {', '.join(names())}")
    module, function = _KNOWN[base]
    made = getattr(import_module(module), function)
    takes = signature(made).parameters
    given: dict[str, Any] = {"folder": folder, **more}
    given = {key: value for key, value in given.items() if key in takes}
    for key, value in options.items():
        if key not in ("budget", "effort") or key not in takes:
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
                raise SchedulerError(f"scheduler {base} has no option {key!r}")
            given[key] = value
        else:
            given[key] = budget_of(name, value) if key == "budget" else number_of(name, key, value)
    return partial(made, **given) if given else made


def options_of(name: str) -> tuple[str, dict[str, str]]:
    """A scheduler's name and its options: `loop_order:effort=0.5`. Raises SchedulerError when one has no value."""
    base, _, text = name.partition(":")
    options: dict[str, str] = {}
    for option in filter(None, text.split(",")):
        key, equals, value = option.partition("=")
        if not equals or not value:
            raise SchedulerError(f"scheduler {name!r}: {option!r} is not key=value")
        options[key] = value
    return base, options


def budget_of(name: str, value: str) -> Budget:
    """How much a search may do. Raises SchedulerError."""
    try:
        return Budget.parse(value)
    except BudgetError as error:
        raise SchedulerError(f"scheduler {name!r}: {error}") from None


def number_of(name: str, key: str, value: str) -> float:
    """An option's value above 0. Raises SchedulerError."""
    try:
        number = float(value)
    except ValueError:
        raise SchedulerError(f"scheduler {name!r}: {key} = {value!r} is not a number") from None
    if not 0 < number < 1e9:
        raise SchedulerError(f"scheduler {name!r}: {key} = {value} must be above 0")
    return number
