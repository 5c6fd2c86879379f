"""Progress of many equal things: a bar with the remaining time on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds between two lines of a log.
EVERY = 10.0


class Counted:
    """Counts things, `unit` by name, as they are done. Use as a context manager."""

    def __init__(self, to: Console, name: str, unit: str = "points") -> None:
        self._console, self._name, self._unit = to, name, unit
        self._total = self._done = 0
        self._printed = self._began = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("left", markup=False),
            TimeRemainingColumn(),
            TextColumn("{task.fields[what]}", style="red", markup=False),
            console=to,
            transient=True,
            disable=not to.is_terminal,
            speed_estimate_period=300,
        )
        self._task = self._bars.add_task(name, total=None, what="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

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
            self._printed = time.monotonic()
            more = f", {what}" if what else ""
            self._console.print(f"{self._name}: {self._done:,} of {self._total:,}{more}", markup=False)
