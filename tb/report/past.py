"""The table of `meshloom runs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from ..results.listings import PastRun

#: Names of a list that are shown; the others are counted.
_SHOWN = 3


def runs_table(runs: Iterable[PastRun]) -> Table:
    """Runs that are over, one a line."""
    table = Table(header_style="bold", pad_edge=False)
    for name in ("run", "kind", "workloads", "chips", "schedulers", "ended"):
        table.add_column(name, no_wrap=name != "ended")
    for name in ("cycles", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            run.run,
            run.kind,
            _few(run.workloads),
            _few(run.chips),
            _few(run.schedulers),
            run.ended,
            f"{run.cycles:,}",
            "-" if run.seconds is None else f"{run.seconds:,.1f}",
            style="" if run.ok else "red",
        )
    return table


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
    return ", ".join(names[:_SHOWN]) + more or "-"
