"""How long code that does not ship with Meshloom may run, how much memory it may take, and whether it has a network.

Everybody who calls such code asks `limits_for`: for layers, networks and training, scenarios, texts, and files of other
tools.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from errno import ENOMEM

#: Of one call of a scheduler that does not ship with Meshloom: seconds, and megabytes (of 2^20 bytes).
SECONDS, MEGABYTES = 600.0, 4096


class LimitError(ValueError):
    """A limit that cannot be one."""


@dataclass(frozen=True)
class Limits:
    """Of one call. `seconds`: on the clock; `megabytes`: of memory beside what there was before; None: any number.
    `network`: whether it may reach other machines, and this one by its network."""

    seconds: float | None = SECONDS
    megabytes: int | None = MEGABYTES
    network: bool = False


@dataclass(frozen=True)
class Guard:
    """Limits of schedulers: of those that ship, and of `foreign` ones, which then run in a process of their own. None:
    they are called in this process, without any."""

    shipped: Limits | None = None
    foreign: Limits | None = Limits()


def guard_of(seconds: float | None = None, megabytes: int | None = None, network: bool = False) -> Guard:
    """The guard that `--time-limit`, `--memory-limit` and `--network` ask for: a number holds for all schedulers, 0 is
    no limit, and None leaves foreign ones the usual limit and others none. Raises LimitError."""
    _check("time_limit", seconds)
    _check("memory_limit", megabytes)
    foreign = Limits(
        SECONDS if seconds is None else seconds or None, MEGABYTES if megabytes is None else megabytes or None, network
    )
    return Guard(Limits(seconds, megabytes, network) if seconds or megabytes else None, foreign)


def _check(name: str, value: object) -> None:
    """Raises LimitError for what is no limit."""
    if value is not None and not (isinstance(value, int | float) and value >= 0):
        raise LimitError(f"{name} = {value!r} must be a number, 0 or more; 0 is no limit")


def time_text(seconds: float) -> str:
    """What is said of a call that takes longer."""
    return f"no result within {seconds:g} seconds (--time-limit)"


#: What the system says of a library that it has no memory for.
_UNLOADED = ("failed to map segment", "Cannot allocate memory", "cannot allocate memory")


def memory_text(megabytes: int) -> str:
    """What is said of a call that needs more."""
    return f"needs more memory than {megabytes} MB (--memory-limit)"


def memory_shortage(error: BaseException) -> str:
    """What is said of an error for want of memory, and what to do; empty of another one."""
    unloaded = isinstance(error, ImportError) and any(words in str(error) for words in _UNLOADED)
    if not (unloaded or isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM)):
        return ""
    text = " ".join(str(error).split())
    return (
        f"this process may have no more memory{f' ({text})' * bool(text)}; raise its limit (ulimit -v, that of a "
        "container), or take a smaller workload"
    )


_GUARD: ContextVar[Guard] = ContextVar("guard")


def guard() -> Guard:
    """The guard in force."""
    return _GUARD.get(Guard())


def limits_for(shipped: bool) -> Limits | None:
    """Under which code runs in a process of its own; None: it is called in this one. `shipped`: with Meshloom."""
    return guard().shipped if shipped else guard().foreign


@contextmanager
def guarded(by: Guard) -> Generator[None]:
    """Puts a guard in force, also for processes that are started meanwhile by `fork`."""
    before = _GUARD.set(by)
    try:
        yield
    finally:
        _GUARD.reset(before)


def comes_again(kind: str, text: str) -> bool:
    """Whether a call that ended at a limit (`TimeLimit`, `MemoryLimit`, `NetworkLimit`) would end so under the guard in
    force; of other errors nobody knows better."""
    limits = [some for some in (guard().shipped, guard().foreign) if some is not None]
    match kind:
        case "TimeLimit":
            return any(some.seconds is not None and time_text(some.seconds) in text for some in limits)
        case "MemoryLimit":
            return any(some.megabytes is not None and memory_text(some.megabytes) in text for some in limits)
        case "NetworkLimit":
            return not all(some.network for some in limits)
        case _:
            return True
