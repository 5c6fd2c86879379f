"""Figures that many studies have: sums and extremes of a field of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .point import Point
from .rows import Rows
from .study import Bar, Figure


def _values(rows: Rows, field: str, kind: type[Point]) -> Iterator[Any]:
    return (getattr(row, field) for _, row in rows.pairs(kind))


def total(name: str, what: str, field: str, kind: type[Point] = Point, *, none: bool = False) -> Figure:
    """The sum of a field of the rows of points of a kind. `none`: the bar is that it is 0."""
    bar = Bar("exactly", 0) if none else None
    return Figure(name, what, lambda rows: sum(_values(rows, field, kind)), "{:,.0f}", bar)


def extreme(
    pick: Callable[..., Any], name: str, what: str, field: str, form: str, bar: Bar | None = None,
    kind: type[Point] = Point,
) -> Figure:  # fmt: skip
    """The least (`pick` is `min`) or the most (`max`) of a field of the rows of points of a kind."""
    return Figure(name, what, lambda rows: pick(_values(rows, field, kind), default=None), form, bar)
