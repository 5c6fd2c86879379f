"""Tables of a page: columns of rows, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import geometric_mean
from typing import TypeVar

from rich.console import Console
from rich.table import Table as RichTable

from ...report.narrow import show

T = TypeVar("T")
#: What stands where there is nothing.
DASH = "-"


@dataclass(frozen=True)
class Table:
    """A table of texts. `columns`: names, those of numbers end with ">" (aligned right). `bad`: numbers of bad rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    bad: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row of {len(row)} cells in a table of {len(self.columns)} columns")


def table(
    title: str,
    columns: Mapping[str, Callable[[T], str]],
    items: Iterable[T],
    bad: Callable[[T], bool] = lambda _: False,
) -> Table:
    """A table with a row for each item. `columns`: their names (those of numbers end with ">") and what is in them."""
    some = list(items)
    rows = [tuple(cell(item) for cell in columns.values()) for item in some]
    return Table(title, tuple(columns), rows, frozenset(number for number, item in enumerate(some) if bad(item)))


def count(value: float | None) -> str:
    """A whole number with commas: `1,234,567`."""
    return DASH if value is None else f"{value:,.0f}"


def ratio(one: float | None, other: float | None = 1.0, digits: int = 3) -> str:
    """One divided by another: `1.107`; a dash where one of them is not known, or the other is 0."""
    return DASH if one is None or not other or isnan(one) else f"{one / other:.{digits}f}"


def share(value: float | None, digits: int = 1, sign: str = "") -> str:
    """A fraction in percent: `12.3 %`."""
    return DASH if value is None else f"{100 * value:{sign}.{digits}f} %"


def mean_ratio(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Geometric mean of the quotients of pairs, of those of which both are known; None if there are none."""
    quotients = [one / other for one, other in pairs if one and other]
    return geometric_mean(quotients) if quotients else None


def markdown(one: Table) -> str:
    """As Markdown, with its title as a heading."""
    lines = [f"## {one.title}", ""]
    lines.append("| " + " | ".join(name.rstrip(">") for name in one.columns) + " |")
    lines.append("|" + "|".join("---:" if name.endswith(">") else "---" for name in one.columns) + "|")
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in one.rows]
    return "\n".join(lines)


def print_table(one: Table, to: Console) -> None:
    """On a terminal, bad rows in red."""
    shown = RichTable(title=one.title, title_justify="left", header_style="bold", pad_edge=False)
    for name in one.columns:
        shown.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", no_wrap=True)
    for number, row in enumerate(one.rows):
        shown.add_row(*row, style="red" if number in one.bad else "")
    show(shown, to)
