"""Token schedulers by name: those that ship, those of installed packages (entry points `meshloom.token_schedulers`),
and any `package.module:THING` or `FILE.py:THING`: a function of a `TextView` that returns a `Batch`, or a class
without arguments that has a method `decide`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from ...support.limits import limits_for
from ...support.plugins import Registry
from ..authored import check_plain
from ..failures import SchedulerError, failure
from .elsewhere import TokensElsewhere
from .interface import Batch, TextView, TokenScheduler


@dataclass(frozen=True)
class TokenMaker:
    """How a scheduler is made for one run. `summary`: one line; `source`: the file to which errors are traced."""

    name: str
    summary: str
    make: Callable[[], Callable[[TextView], object]]
    source: str


@dataclass(frozen=True)
class _Guarded:
    """A scheduler whose failures are told in its name: SchedulerError says in which cycle, and on which line of
    `source`; likewise if it answers with anything but a batch."""

    name: str
    decides: Callable[[TextView], object]
    source: str

    def decide(self, view: TextView) -> Batch:
        try:
            answer = self.decides(view)
        except (Exception, SystemExit, GeneratorExit) as error:
            raise failure(self.name, self.source, f"in cycle {view.now}", error) from error
        if not isinstance(answer, Batch):
            raise SchedulerError(
                f"scheduler {self.name} answered in cycle {view.now} with {answer!r:.80}; it must be a Batch"
            )
        return answer


def _accept(name: str, thing: object) -> TokenMaker:
    """See above. Raises TypeError with what it must be."""
    summary = (inspect.getdoc(thing) or "").partition("\n")[0]
    if isinstance(thing, type) and hasattr(thing, "decide"):
        make: Any = thing
        check_plain(make.decide)
        if needed := _needed(thing):
            raise TypeError(f"takes {', '.join(needed)}; a class of token schedulers is made without arguments")
        return TokenMaker(name, summary, lambda: make().decide, inspect.getsourcefile(thing) or "")
    if not inspect.isfunction(thing) or not _takes_view(thing):
        raise TypeError(
            f"is a {type(thing).__name__}; it must be a function with a parameter annotated TextView, or a class with "
            "a method decide"
        )
    check_plain(thing)
    return TokenMaker(name, summary, lambda: thing, inspect.getsourcefile(inspect.unwrap(thing)) or "")


def _needed(thing: type) -> list[str]:
    """The arguments without which a class makes no object."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # its call will say
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _takes_view(function: Callable[..., object]) -> bool:
    try:
        hints = get_type_hints(function)
    except (TypeError, NameError):
        return False
    first = next(iter(inspect.signature(function).parameters), None)
    return first is not None and hints.get(first) is TextView


_POLICIES = "meshloom.sched.schedulers.tokens.policies"
TOKENS: Registry[TokenMaker] = Registry(
    "token scheduler",
    "meshloom.token_schedulers",
    {name: f"{_POLICIES}:{name}" for name in ("fcfs", "prefill_first", "decode_first", "chunked")}
    | {"lookahead": "meshloom.sched.schedulers.tokens.lookahead:LookaheadTokens"},
    _accept,
    SchedulerError,
    tried=True,
)


def token_scheduler(name: str) -> TokenScheduler:
    """A new scheduler for one run, in a process of its own if it does not ship. Raises SchedulerError that lists what
    there is, or says on which line it failed; and so does the scheduler."""
    base, colon, options = name.partition(":")
    if colon and base in TOKENS.names():
        raise SchedulerError(f"token scheduler {base} has no options; leave out :{options}")
    maker, limits = TOKENS.get(name), limits_for(base in TOKENS.shipped)
    if limits is None:
        return _guarded(name, maker)
    return TokensElsewhere(name, maker.source, lambda: _guarded(name, maker), limits)


def _guarded(name: str, maker: TokenMaker) -> _Guarded:
    try:
        return _Guarded(name, maker.make(), maker.source)
    except (Exception, SystemExit, GeneratorExit) as error:
        raise failure(name, maker.source, "before the first cycle", error) from error
