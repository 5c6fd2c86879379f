"""What a study is: points to be measured, and what is shown of their rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .point import Point
from .rows import Rows
from .tables import DASH, Table

#: What draws a picture into a file.
Draw = Callable[[Rows, Path], None]
#: How a figure and its bound are compared.
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "at least": operator.ge, "at most": operator.le, "above": operator.gt, "below": operator.lt, "exactly": operator.eq,
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A bound that a figure has to keep."""

    relation: Literal["at least", "at most", "above", "below", "exactly"]
    bound: float

    def holds(self, value: float) -> bool:
        """Whether a value keeps it."""
        return _RELATIONS[self.relation](value, self.bound)

    def text(self, form: str) -> str:
        """In words: `at most 2.00 %`."""
        return f"{self.relation} {form.format(self.bound)}"


@dataclass(frozen=True)
class Figure:
    """A number that a study comes to, and that prose refers to by `name`.

    `what`: it in words; `value`: computed from rows, None where these do not suffice; `form`: how it is written
    (`{:,.0f}`, `{:.3f}`, `{:.1f} %`); `bar`: the bound that it has to keep; `paper`: what the paper says.
    """

    name: str
    what: str
    value: Callable[[Rows], float | None]
    form: str = "{:.3f}"
    bar: Bar | None = None
    paper: str = ""

    def text(self, rows: Rows) -> str:
        """The number as it is written; a dash where there is none."""
        value = self.value(rows)
        return DASH if value is None else self.form.format(value)

    def missed(self, rows: Rows) -> str:
        """That the bar is missed, in words; empty if it is kept, or if there is no number."""
        value = self.value(rows)
        if self.bar is None or value is None or self.bar.holds(value):
            return ""
        return f"{self.what}: {self.form.format(value)}, not {self.bar.text(self.form)}"


def prose(module: str) -> str:
    """The text beside a module (its `__file__`): `flexer_rtl.md` beside `flexer_rtl.py`, in which `{{ name }}` is a
    figure."""
    return Path(module).with_suffix(".md").read_text(encoding="utf-8").strip()


def no_checks(rows: Rows) -> list[str]:
    """Nothing that could be wrong with a row."""
    return []


@dataclass(frozen=True)
class Study:
    """A study.

    `title`: of its page; `question`: what a reader wants to know; `answer`: one sentence, in which `{{ name }}` is a
    figure; `about`: what is measured and how, prose with figures likewise. `points`: what is measured, of the quick or
    of the full study; the quick one takes at most five minutes of a processor. `tables`: what is shown of the rows;
    `checks`: what is wrong with rows, in words; `figures`: the numbers that it comes to, with their bars.

    `pictures`: name of a file beside the page, and what draws it. `remarks`: sentences below the tables. `paper`: whose
    study it is, by the folder in `sched/papers`; without that it is not listed. `store`: the file of rows that it
    shares with other studies; empty: its own. `alone`: its points are measured one after the other in this process,
    since they measure time (single points: `Point.alone`). `versions`: of tools, besides those of every page.
    """

    name: str
    title: str
    question: str
    answer: str
    about: str
    points: Callable[[bool], Sequence[Point]]
    tables: Sequence[Callable[[Rows], Table | Sequence[Table]]]
    figures: Sequence[Figure] = ()
    checks: Callable[[Rows], list[str]] = no_checks
    pictures: Mapping[str, Callable[[Rows, Path], None]] = field(
        default_factory=dict[str, Callable[[Rows, Path], None]]
    )
    remarks: Callable[[Rows], Sequence[str]] = no_checks
    paper: str = ""
    store: str = ""
    alone: bool = False
    versions: Callable[[], Mapping[str, str]] = dict[str, str]

    @property
    def summary(self) -> str:
        """One line for lists."""
        return self.question

    def shown(self, rows: Rows) -> list[Table]:
        """Its tables, of which none is empty."""
        tables: list[Table] = []
        for make in self.tables:
            one = make(rows)
            tables += [one] if isinstance(one, Table) else one
        return [one for one in tables if one.rows]

    def texts(self, rows: Rows) -> dict[str, str]:
        """Its figures as they are written, by name."""
        return {figure.name: figure.text(rows) for figure in self.figures}

    def missed(self, rows: Rows) -> list[str]:
        """Bars that are missed, and what is wrong with rows."""
        bars = [text for figure in self.figures if (text := figure.missed(rows))]
        errors = [f"{point.name}: {why}" for point, why in rows.errors.items()]
        return [*errors, *self.checks(rows), *bars]
