"""Online schedulers by name: those that ship, those of installed packages (entry points
`meshloom.online_schedulers`), and any `package.module:THING` or `FILE.py:THING`. Options follow a colon:
`layer_puzzle:starvation=5`.

THING is a function of a `View`, a class of schedulers, which is made with a `Platform`, or an `OnlineMaker`. Both
functions and classes may take options: a second parameter annotated with a model derived from `Options`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, cast, get_type_hints

from pydantic import BaseModel

from ...support.limits import limits_for
from ...support.plugins import Registry
from ..authored import check_plain, options_taken
from ..failures import SchedulerError, failure
from ..interface import Options
from ..papers import declared
from ..registry import options_of, typed_options
from .elsewhere import OnlineElsewhere
from .interface import Decision, OnlineScheduler, Platform, View


@dataclass(frozen=True)
class OnlineMaker:
    """How an online scheduler is made. `make(platform, options)`, or `module:function`, which is imported on the first
    call, makes one for one run. `summary`: one line for lists. `source`: the file to which errors are traced."""

    name: str
    summary: str
    make: Callable[[Platform, Any], OnlineScheduler] | str
    options: type[BaseModel] = Options
    source: str = field(default="", compare=False)

    def __call__(self, platform: Platform, options: BaseModel) -> OnlineScheduler:
        make: Any = self.make
        if isinstance(make, str):
            module, _, name = make.partition(":")
            make = getattr(import_module(module), name)
        return make(platform, options)


@dataclass(frozen=True)
class _Function:
    """A function of a view as a scheduler that remembers nothing."""

    name: str
    function: Callable[[View], Sequence[Decision]]

    def decide(self, view: View) -> Sequence[Decision]:
        return self.function(view)


@dataclass(frozen=True)
class Guarded:
    """A scheduler whose failures are told in its name: SchedulerError says in which cycle, and on which line of
    `source`; likewise if it answers with anything but decisions."""

    name: str
    scheduler: OnlineScheduler
    source: str

    def decide(self, view: View) -> list[Decision]:
        try:
            answer: object = self.scheduler.decide(view)
        except (Exception, SystemExit, GeneratorExit) as error:
            raise failure(self.name, self.source, f"in cycle {view.now}", error) from error
        decisions = _decisions(answer)
        if decisions is None:
            raise SchedulerError(
                f"scheduler {self.name} answered in cycle {view.now} with {answer!r:.80}; it must be a list of "
                "Decisions, empty to launch nothing"
            )
        return decisions


def _decisions(answer: object) -> list[Decision] | None:
    """What a scheduler has answered, if it is decisions."""
    if not isinstance(answer, list | tuple):
        return None
    decisions = [each for each in cast("Sequence[object]", answer) if isinstance(each, Decision)]
    return decisions if len(decisions) == len(cast("Sequence[object]", answer)) else None


def _accept(name: str, thing: object) -> OnlineMaker:
    """See above. Raises TypeError with what it must be."""
    if isinstance(thing, OnlineMaker):
        return replace(thing, name=name) if ":" in name else thing
    summary = (inspect.getdoc(thing) or "").partition("\n")[0]
    if isinstance(thing, type) and hasattr(thing, "decide"):
        source = inspect.getsourcefile(thing) or ""
        make: Any = thing
        check_plain(make.decide)
        options, takes = options_taken(thing, "a Platform")
        return OnlineMaker(
            name, summary, lambda platform, values: make(platform, *([values] if takes else [])), options, source
        )
    if not inspect.isfunction(thing) or not _takes_view(thing):
        raise TypeError(
            f"is a {type(thing).__name__}; it must be a function with a parameter annotated View, a class with a "
            "method decide, or an OnlineMaker"
        )
    check_plain(thing)
    options, takes = options_taken(thing, "a View")
    source = inspect.getsourcefile(inspect.unwrap(thing)) or ""
    function: Callable[..., Sequence[Decision]] = thing

    def decides(platform: Platform, values: BaseModel) -> OnlineScheduler:
        return _Function(name, lambda view: function(view, *([values] if takes else [])))

    return OnlineMaker(name, summary, decides, options, source)


def _takes_view(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated so: a function of a `LayerTask` schedules something else."""
    try:
        hints = get_type_hints(function)
    except (TypeError, NameError):
        return False
    first = next(iter(inspect.signature(function).parameters), None)
    return first is not None and hints.get(first) is View


ONLINE: Registry[OnlineMaker] = Registry(
    "online scheduler",
    "meshloom.online_schedulers",
    {"lookahead": "meshloom.sched.schedulers.online.entry:LOOKAHEAD"} | declared("ONLINE_SCHEDULERS"),
    _accept,
    SchedulerError,
    tried=True,
)


def online_scheduler(name: str, platform: Platform) -> OnlineScheduler:
    """A new scheduler for one run. Raises SchedulerError that lists what there is, says which option is wrong, or on
    which line it failed; and so does the scheduler (`Guarded`)."""
    maker, options = chosen(name)
    limits = limits_for(options_of(name, ONLINE)[0] in ONLINE.shipped)
    if limits is None:
        return _guarded(maker, platform, options)
    return OnlineElsewhere(maker.name, maker.source, platform, lambda: _guarded(maker, platform, options), limits)


def _guarded(maker: OnlineMaker, platform: Platform, options: BaseModel) -> Guarded:
    try:
        scheduler = maker(platform, options)
    except (Exception, SystemExit, GeneratorExit) as error:
        raise failure(maker.name, maker.source, f"for {platform.name}", error) from error
    if not callable(getattr(scheduler, "decide", None)):
        raise SchedulerError(
            f"scheduler {maker.name} is a {type(scheduler).__name__}; it must have a method decide(view)"
        )
    return Guarded(maker.name, scheduler, maker.source or inspect.getsourcefile(type(scheduler)) or "")


def chosen(name: str) -> tuple[OnlineMaker, BaseModel]:
    """The maker and the options that a name asks for, without making anything. Raises SchedulerError as above."""
    base, options = options_of(name, ONLINE)
    maker = ONLINE.get(base)
    return maker, typed_options(base, "serving", maker.options, options)
