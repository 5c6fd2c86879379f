"""Progress: a bar for many equal things, a line for one long thing. On a terminal they move, in a log a line comes now
and then. Nothing is silent for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds between two lines of a log, at least, and those after which one says what takes so long.
EVERY, SOON = 10.0, 2.0
#: What takes long is told less often: after this share of the time that it has taken.
_SHARE = 0.1


def whole() -> Column:
    """A column of bars that is never cut: others give way."""
    return Column(no_wrap=True)


def folded() -> Column:
    """A column of bars that gives way: what is too long goes on in the next line, between words where it can."""
    return Column(no_wrap=False, overflow="fold")


def pause(seconds: float) -> float:
    """Seconds until the next line of what has gone on for so many."""
    return max(EVERY, _SHARE * seconds)


class _Pulse(Thread):
    """Calls `beat(seconds)` when it has run for `SOON` seconds, and then after each `pause`."""

    def __init__(self, beat: Callable[[float], None]) -> None:
        super().__init__(daemon=True)
        self._beat, self._over = beat, Event()

    def run(self) -> None:
        began, wait = time.monotonic(), SOON
        while not self._over.wait(wait):
            seconds = time.monotonic() - began
            wait = pause(seconds)
            self._beat(seconds)

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()


class _Shown:
    """A line on a terminal, or beats in a log, as long as the context lasts."""

    _console: Console
    _bars: Progress
    _pulse: _Pulse

    def __enter__(self) -> Self:
        self._bars.start()
        if not self._console.is_terminal:
            self._pulse.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
        self._pulse.stop()


class Working(_Shown):
    """Says what is being done, and for how long, until it is done; in a log only once it takes long. Use as a context
    manager."""

    def __init__(self, to: Console, what: str) -> None:
        self._console, self._what = to, what
        self._bars = Progress(
            SpinnerColumn(),
            TimeElapsedColumn(table_column=whole()),
            TextColumn("{task.description}", markup=False, table_column=folded()),
            console=to,
            transient=True,
            disable=not to.is_terminal,
        )
        self._task = self._bars.add_task(what, total=None)
        self._pulse = _Pulse(self._beat)

    def say(self, what: str) -> None:
        """What is being done now."""
        self._what = what
        self._bars.update(self._task, description=what)

    def _beat(self, seconds: float) -> None:
        self._console.print(f"{self._what}: {seconds:.0f} s so far", style="dim", markup=False, soft_wrap=True)


class Counted(_Shown):
    """Counts things, `unit` by name, as they are done. Use as a context manager."""

    def __init__(self, to: Console, name: str, unit: str = "points") -> None:
        self._console, self._name, self._unit = to, name, unit
        self._total = self._done = 0
        self._printed = self._began = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=folded()),
            MofNCompleteColumn(table_column=whole()),
            BarColumn(bar_width=24),
            TimeElapsedColumn(table_column=whole()),
            TextColumn("left", markup=False, table_column=whole()),
            TimeRemainingColumn(table_column=whole()),
            TextColumn("{task.fields[what]}", style="red", markup=False, table_column=folded()),
            console=to,
            transient=True,
            disable=not to.is_terminal,
            speed_estimate_period=300,
        )
        self._task = self._bars.add_task(name, total=None, what="")
        self._pulse = _Pulse(self._beat)

    def begin(self, total: int, done: int) -> None:
        """How many there are, and how many were done before."""
        self._total, self._done = total, done
        self._began = time.monotonic()
        self._bars.update(self._task, total=total, completed=done)
        if not self._console.is_terminal:
            self._console.print(f"{self._name}: {total:,} {self._unit}, {done:,} are there", markup=False)

    def say(self, what: str) -> None:
        """What is being done before, after or between the things that are counted."""
        self._bars.update(self._task, what=what)
        if not self._console.is_terminal:
            self._console.print(f"{self._name}: {what}", markup=False)

    def advance(self, count: int, what: str = "") -> None:
        """Some more are done. `what`: what else there is to say."""
        self._done += count
        self._bars.update(self._task, completed=self._done, what=what)
        if not self._console.is_terminal and time.monotonic() - self._printed > EVERY:
            more = f", {what}" if what else ""
            self._print(f"{self._name}: {self._done:,} of {self._total:,}{more}")

    @property
    def count(self) -> str:
        """`3 of 200 points`."""
        return f"{self._done:,} of {self._total:,} {self._unit}"

    @property
    def reached(self) -> str:
        """How far it has come: `after 3 of 200 points`."""
        return f"after {self.count}" if self._total else f"before the {self._unit} were counted"

    def _beat(self, seconds: float) -> None:
        if time.monotonic() - self._printed > EVERY / 2:
            count = f"{self.count} " if self._total else "at it for "
            self._print(f"{self._name}: {count}{'after ' * bool(self._total)}{seconds:.0f} s")

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self._console.print(line, markup=False, soft_wrap=True)
