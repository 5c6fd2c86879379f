"""How long code that does not ship with Meshloom may run, and how much memory it may take."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

#: Of one call of a scheduler that does not ship with Meshloom: seconds, and megabytes (of 2^20 bytes).
SECONDS, MEGABYTES = 600.0, 4096


@dataclass(frozen=True)
class Limits:
    """Of one call. `seconds`: on the clock; `megabytes`: of memory beside what there was before; None: any number."""

    seconds: float | None = SECONDS
    megabytes: int | None = MEGABYTES


@dataclass(frozen=True)
class Guard:
    """Limits of schedulers: of those that ship, and of `foreign` ones, which then run in a process of their own. None:
    they are called in this process, without any."""

    shipped: Limits | None = None
    foreign: Limits | None = Limits()


def guard_of(seconds: float | None = None, megabytes: int | None = None) -> Guard:
    """The guard that `--time-limit` and `--memory-limit` ask for: a number holds for all schedulers, 0 is no limit, and
    None leaves foreign ones the usual limit and others none."""
    foreign = Limits(
        SECONDS if seconds is None else seconds or None, MEGABYTES if megabytes is None else megabytes or None
    )
    return Guard(Limits(seconds, megabytes) if seconds or megabytes else None, foreign)


_GUARD: ContextVar[Guard] = ContextVar("guard")


def guard() -> Guard:
    """The guard in force."""
    return _GUARD.get(Guard())


@contextmanager
def guarded(by: Guard) -> Generator[None]:
    """Puts a guard in force, also for processes that are started meanwhile by `fork`."""
    before = _GUARD.set(by)
    try:
        yield
    finally:
        _GUARD.reset(before)
