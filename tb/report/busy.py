"""How busy the parts of a chip were, as a small table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshloom.hw.spec.config import tile_position

from ..results.busy import BusyRow, busiest_link
from .narrow import show

if TYPE_CHECKING:
    from rich.console import Console

#: Rows of the table: what it is called, the kind of tile (any, if empty), and the counters that are added.
_PARTS = (
    ("arrays", "core", ("matrix",)),
    ("vector units", "core", ("vector",)),
    ("movers of cores", "core", ("mover",)),
    ("DRAM channels", "dram", ("dram_read", "dram_write")),
    ("links", "", ("north", "east", "south", "west", "local")),
)


def print_busy(rows: Sequence[BusyRow], console: Console) -> None:
    """Prints the mean share of the cycles in which each kind of part was busy, and which was the busiest."""
    from rich.table import Table

    table = Table(title="busy", title_justify="left")
    for name in ("part", "mean", "busiest", "where"):
        table.add_column(name, justify="right" if name in ("mean", "busiest") else "left")
    for name, kind, parts in _PARTS:
        by_part: dict[tuple[int, str], float] = {}  # a channel reads or writes, a link is by itself
        for row in rows:
            if row.part in parts and row.kind == (kind or row.kind):
                key = row.tile, "" if kind else row.part
                by_part[key] = by_part.get(key, 0.0) + row.share
        if by_part:
            (tile, port), most = max(by_part.items(), key=lambda one: one[1])
            x, y = tile_position(tile)
            mean = sum(by_part.values()) / len(by_part)
            table.add_row(name, f"{100 * mean:.1f} %", f"{100 * most:.1f} %", f"({x},{y}) {port}".strip())
    show(table, console)
    link = busiest_link(tuple(rows))
    if link is not None and link.cycles:
        console.print(f"the busiest link carried {link.busy:,} flits in {link.cycles:,} cycles", markup=False)
