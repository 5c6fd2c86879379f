"""What the user sees of a run while it works."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..results.events import Event, MoreRows, RowCount, Stage, Unwritten
from ..results.schema import Row, Status
from .console import percent
from .progress import folded, whole
from .row_tables import COLOUR

#: Seconds between two lines of a log that say how far something is.
LOG_SECONDS = 30.0


class Reporter:
    """Shows a run's events: a live line on a terminal, plain lines in a log. Use as a context manager.

    Call it with each `Event`. Rows print as soon as they finish; if they are of `several` chips or schedulers, with
    theirs.
    """

    def __init__(self, to: Console, several: bool = False) -> None:
        self._console, self._several = to, several
        self._planned = 0
        self._done = 0
        self._printed = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(table_column=whole()),
            BarColumn(bar_width=20),
            TimeElapsedColumn(table_column=whole()),
            TextColumn("{task.description}", markup=False, table_column=folded()),
            console=to,
            transient=True,
            disable=not to.is_terminal,
        )
        self._task = self._progress.add_task("planning", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case RowCount():
                self._planned, self._done = event.rows, 0
                self._progress.update(self._task, total=event.rows, completed=0)
            case MoreRows():
                self._planned += event.rows
                self._progress.update(self._task, total=self._planned)
            case Stage():
                self._progress.update(self._task, description=f"{event.workload}: {event.what}")
                late = time.monotonic() - self._printed > LOG_SECONDS
                if not self._console.is_terminal and (late or not event.passing):
                    self._printed = time.monotonic()
                    self._console.print(f"{event.workload}: {event.what}", markup=False, soft_wrap=True)
            case Row():
                self._done += 1
                self._progress.update(self._task, completed=self._done)
                self._console.print(self._line(event), style=COLOUR[event.status], markup=False, soft_wrap=True)
            case Unwritten(workload, why, required):
                if not required:  # otherwise the command says so at its end
                    note = f"note: {workload}: `explain` and `report` will know nothing of it: {why}"
                    self._console.print(note, style="yellow", markup=False, soft_wrap=True)

    def _line(self, row: Row) -> str:
        where = f" on {row.chip} by {row.settings.scheduler if row.settings else row.scheduler}" * self._several
        count = f"[{self._done}/{self._planned or '?'}] {row.workload}{where}: {row.status}"
        if row.status is not Status.PASSED:
            return f"{count}: {row.reason}"
        if row.network and row.network.answer:
            verb = "is" if row.network.detector is None else "has"
            count += f", {row.network.picture} {verb} {row.network.answer}"
        speed = f", {row.cycles_per_second:,.0f} cycles/s" if row.cpu_seconds else ""  # a board's is not measured
        return (
            f"{count}, {row.rtl_cycles:,} cycles, model {percent(row.error_percent, sign='+')}, "
            f"{row.bytes_checked:,} bytes equal{speed}"
        )
