"""Compiled functions, kept on disk so that only the first run of a version of this package compiles.

The compiler's own check looks at the file that a function is in, not at those that it calls, so the folder is named
after all sources that such functions are made from together. (The compiler itself, and the processor, are in the
index that it keeps there.)

Such functions take arrays and numbers one by one, also where these are many: an object around them would be made anew,
or taken apart, at every call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as numba_config
from numba.core import event as numba_event
from numba.core import types as numba_types

from ...store import provenance
from ...store.kinds import NUMBA
from ...support.kept_code import keep

#: numba's own modules, which say nothing of their types.
event: Any = numba_event
types: Any = numba_types

F = TypeVar("F", bound=Callable[..., Any])
#: The modules whose functions are called from outside compiled code; the others are imported by these.
_MODULES = ("beam", "exhaustive", "listing", "nests", "static")
#: All functions that are compiled, by their number in memory.
_compiled: dict[int, Any] = {}


@cache
def folder() -> Path | None:
    """Where compiled code is kept: below NUMBA_CACHE_DIR or in `numba/` of the cache (`sched.store.cache`); None if
    nothing can be written there, so that every process compiles."""
    digest = provenance.digest(*(f"sched.papers.flexer.{name}" for name in _MODULES))
    name = f"flexer-{digest[:12]}"
    if not (named := os.environ.get("NUMBA_CACHE_DIR")):
        return NUMBA.compiled(name)
    place = Path(named) / name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return place if os.access(place, os.W_OK) else None


def _compile(function: F, **options: bool | str) -> F:
    config: Any = numba_config
    njit: Any = numba.njit
    before, place = config.CACHE_DIR, folder()
    config.CACHE_DIR = str(place) if place else before
    try:
        dispatcher = njit(nogil=True, **options)(function)
        if place is not None:
            keep(dispatcher, function)
    finally:
        config.CACHE_DIR = before
    _compiled[id(dispatcher)] = dispatcher
    return dispatcher


def compiled(function: F) -> F:
    """Compiles a function when it is first called; it then runs without the interpreter's lock."""
    return _generally(_compile(function))


def inner(function: F) -> F:
    """The same for a function that only compiled ones call, which spares what makes it callable from outside."""
    return _generally(_compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True))


def inlined(function: F) -> F:
    """The same for a function that becomes part of those that call it, as one must that makes tuples with records:
    compiled functions cannot return them."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, inline="always")


def _generally(dispatcher: Any) -> Any:
    """Compiled functions that call this one with a constant do not get a version of their own for each constant, which
    is what most of the time would go into."""
    template = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template(tuple(types.unliteral(kind) for kind in args), plain)

    dispatcher.get_call_template = get_call_template
    return dispatcher


class _Listener(numba_event.Listener):
    """Hears of every function that is really compiled, not only loaded."""

    def __init__(self, heard: Callable[[int, int], None]) -> None:
        self.heard, self.done = heard, set[int]()

    def on_start(self, event: Any) -> None:
        self._hear()

    def on_end(self, event: Any) -> None:
        data: dict[str, Any] = event.data or {}
        which = id(data.get("dispatcher"))
        if which in _compiled:
            self.done.add(which)
        self._hear()

    def _hear(self) -> None:
        self.heard(len(self.done), len(_compiled))


@contextmanager
def hearing(heard: Callable[[int, int], None]) -> Generator[None]:
    """While this lasts, `heard` is called whenever a function begins to be compiled or is done: how many of ours have
    been, and how many there are."""
    listener = _Listener(heard)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)
