"""The table of `meshloom cache`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from ..results.cache import CacheKind


def cache_table(rows: Iterable[CacheKind], now: float) -> Table:
    """Kinds of what is kept, with `bytes`, times of use and `now` in seconds since the epoch."""
    table = Table(header_style="bold", pad_edge=False)
    table.add_column("kind", no_wrap=True)
    for name in ("entries", "in use", "size", "limit", "oldest use", "newest use"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True)
    for row in rows:
        table.add_row(
            row.kind,
            f"{row.entries:,}",
            f"{row.in_use:,}",
            megabytes(row.bytes),
            megabytes(row.limit_bytes),
            _ago(row.oldest_use, now),
            _ago(row.newest_use, now),
            row.what,
        )
    return table


def megabytes(size: int) -> str:
    """Bytes in megabytes."""
    return f"{size / 1e6:,.1f} MB"


def _ago(then: float | None, now: float) -> str:
    if then is None:
        return "-"
    seconds = max(0.0, now - then)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "now"
