"""Schedulers by name. A scheduler is a function of a layer, a chip and the requantisation's multiplier."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol, TypeVar

from meshloom.hw.config import ChipConfig, near

from ..ir.schedule import Schedule
from ..workload.layers import ConvShape
from .budget import Budget, BudgetError

T = TypeVar("T")


class SchedulerError(ValueError):
    """A name that means no scheduler, options that it does not have, or a scheduler that failed."""


class Scheduler(Protocol):
    """Makes the schedule of one layer. Raises ValueError when the layer does not fit the chip.

    Besides these it is handed what it has a parameter for: `folder`, `tell` (see `find`), and the options `budget` (a
    `Budget`) and `effort` (a number); all other options, as text, only if it takes `**options`.
    """

    def __call__(self, shape: ConvShape, chip: ChipConfig, scale: int = ...) -> Schedule: ...


#: Name to module and function; modules are imported when first asked for.
_KNOWN = {
    "loop_order": ("meshloom.sched.schedulers.loop_order.scheduler", "schedule"),
    "dtt": ("meshloom.sched.schedulers.ahead.scheduler", "schedule"),
    "flexer": ("meshloom.sched.schedulers.flexer.scheduler", "flexer"),
    "paper_static": ("meshloom.sched.schedulers.flexer.scheduler", "paper_static"),
    "hybrid": ("meshloom.sched.schedulers.flexer.scheduler", "hybrid"),
}


def names() -> tuple[str, ...]:
    """Names of all schedulers."""
    return tuple(sorted(_KNOWN))


def find(name: str, folder: Path | None = None, **more: Any) -> Scheduler:
    """The scheduler of that name, with options behind a colon: `loop_order:effort=0.5`.

    `folder`: where schedulers that search for long keep what they find; `more`: further arguments for those that take
    them (`tell`). Raises SchedulerError that lists the known names, or says which option is none. What is found raises
    Meshloom's own errors as they are, and SchedulerError with the scheduler's name for all others.
    """
    base, options = options_of(name)
    made = _function(base)
    takes = signature(made).parameters
    given: dict[str, Any] = {"folder": folder, **more}
    given = {key: value for key, value in given.items() if key in takes}
    for key, value in options.items():
        if key in _PARSED and key in takes:
            given[key] = _PARSED[key](name, key, value)
        elif any(parameter.kind is Parameter.VAR_KEYWORD for parameter in takes.values()):
            given[key] = value
        else:
            known = [option for option in _PARSED if option in takes]
            hint = near(key, known) or f"it has {', '.join(known) or 'none'}"
            raise SchedulerError(f"scheduler {base} has no option {key!r}; {hint}")

    def make(shape: ConvShape, chip: ChipConfig, *scale: int, **scales: int) -> Schedule:
        return called(name, shape.name, Schedule, made, shape, chip, *scale, **given, **scales)

    return make


def require_known(base: str) -> None:
    """Raises SchedulerError, with the known names, for one that is none."""
    if base not in _KNOWN:
        hint = near(base, names())
        raise SchedulerError(f"unknown scheduler {base!r}; known are {', '.join(names())}" + (hint and f"; {hint}"))


def takes_option(base: str, option: str) -> bool:
    """Whether a scheduler has a parameter for an option. Raises SchedulerError on a name that is none."""
    return option in signature(_function(base)).parameters


def _function(base: str) -> Callable[..., Any]:
    require_known(base)
    module, function = _KNOWN[base]
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise SchedulerError(f"scheduler {base} cannot be loaded: {error}; mend {module}") from error


def called(name: str, workload: str, kind: type[T], make: Callable[..., Any], *given: Any, **more: Any) -> T:
    """What a scheduler makes of a workload: a `kind`.

    Meshloom's own errors come through as they are; all others, and other results, become a SchedulerError that names
    scheduler, workload and the line that failed.
    """
    try:
        made = make(*given, **more)
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "meshloom" or isinstance(error, MemoryError):
            raise
        # a plain ValueError is how a scheduler says that something does not fit
        what = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        frames = extract_tb(error.__traceback__)
        place = next((frame for frame in reversed(frames) if "site-packages" not in frame.filename), frames[-1])
        where = f"line {place.lineno} of {Path(place.filename).name}"
        raise SchedulerError(f"scheduler {name} failed on {workload}: {what} ({where})") from error
    if not isinstance(made, kind):
        raise SchedulerError(f"scheduler {name} made a {type(made).__name__} of {workload}, not a {kind.__name__}")
    return made


def options_of(name: str) -> tuple[str, dict[str, str]]:
    """A scheduler's name and its options: `loop_order:effort=0.5`. Raises SchedulerError when one has no value."""
    base, _, text = name.partition(":")
    options: dict[str, str] = {}
    for option in filter(None, text.split(",")):
        key, equals, value = option.partition("=")
        if not equals or not value:
            raise SchedulerError(f"scheduler {name!r}: {option!r} is not key=value")
        if key in options:
            raise SchedulerError(f"scheduler {name!r}: {key} is there twice")
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


#: Options that have a parameter of their own, and what reads them, of scheduler, key and value; whoever takes
#: `**options` gets all others as text.
_PARSED: dict[str, Callable[[str, str, str], Any]] = {
    "budget": lambda name, key, value: budget_of(name, value),
    "effort": number_of,
}
