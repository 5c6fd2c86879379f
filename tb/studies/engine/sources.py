"""Where the numbers of prose that speaks of several studies come from: a study's figures, cells of its tables, and
cells of the page that was printed before rows were kept as text. Every number knows which of these it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from .page import EARLIER, row_file
from .point import Point
from .rows import Measurement, RowFile, Rows, StudyError, name_of
from .study import Study
from .tables import Table
from .values import NUMBER, Origin, ProseNumber

_TABLE = re.compile(r"^## (.+)\n\n((?:\|.*\n?)+)", re.MULTILINE)


def tables_of(page: str) -> list[Table]:
    """The tables of a page of Markdown, each with the heading above it."""
    tables: list[Table] = []
    for title, text in _TABLE.findall(page):
        head, _, *rows = [_cells(line) for line in text.strip().splitlines()]
        tables.append(Table(title, head, [row for row in rows if len(row) == len(head)]))
    return tables


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1])


class StudySource:
    """A study, as prose refers to it: `study.NAME` is a figure, `study.cell(...)` and `study.cells(...)` are cells of
    its tables. `find`: gives the study of that name; `folder`: of the pages.

    Rows of the whole study count; where more than a tenth of these is missing and there is a page of before, that
    counts; where there is neither, the rows of the sample.
    """

    def __init__(self, name: str, find: Callable[[str], Study], folder: Path) -> None:
        self._name, self._find, self._folder = name, find, folder

    @cached_property
    def study(self) -> Study:
        """Imported when prose first refers to it."""
        return self._find(self._name)

    @cached_property
    def _rows(self) -> tuple[Rows, Rows]:
        """Of the sample and of the whole study."""
        file = row_file(self.study, self._folder)
        if not file.path.exists():  # points of some studies take a second
            return Rows((), {}), Rows((), {})
        quick, full = self.study.points(False), self.study.points(True)
        known = {point: each for point in {*quick, *full} if (each := _known(file, point)) is not None}
        return Rows(quick, known), Rows([*full, *quick], known)

    @cached_property
    def before(self) -> str:
        """The page of before rows were kept as text; empty where there is none."""
        for path in (self._folder / EARLIER / f"{self._name}.md", self._folder / f"{self._name}.md"):
            if path.exists() and "\nQuick: " not in (text := path.read_text(encoding="utf-8")):
                return text
        return ""

    @cached_property
    def origin(self) -> Origin:
        """What its figures are of. Its cells may be of an earlier page instead of the sample."""
        quick, full = self._rows
        whole = any(point not in quick.points for point in full.all)
        left_out = len(full.missing) > len(full.points) / 10 and self.before
        return Origin.FULL if whole and not left_out else Origin.QUICK

    @cached_property
    def rows(self) -> Rows:
        """Those of its figures."""
        return self._rows[self.origin is Origin.FULL]

    @property
    def state(self) -> str:
        """In words: what is measured, and whether there is an earlier page."""
        quick, full = self._rows
        if self.origin is Origin.FULL:
            return f"whole: {len(full.all):,} of {len(full.points):,} points"
        sample = f"sample: {len(quick.all):,} of {len(quick.points):,} points" if quick.all else ""
        return ", ".join(part for part in ("earlier page" if self.before else "", sample) if part) or "no rows"

    def _tables(self) -> Iterator[tuple[Origin, list[Table]]]:
        """The best first, none computed before it is asked for."""
        if self.origin is Origin.FULL:
            yield self.origin, self._shown
        yield Origin.EARLIER, tables_of(self.before)
        if self.origin is Origin.QUICK:
            yield self.origin, self._shown

    @cached_property
    def _shown(self) -> list[Table]:
        return self.study.shown(self.rows) if self.rows else []

    @property
    def is_used(self) -> bool:
        """Whether prose has referred to it."""
        return bool({"_rows", "before"} & vars(self).keys())

    def __getitem__(self, name: str) -> ProseNumber:
        """A figure. Raises StudyError for one that is none, and for one that rows do not suffice for."""
        for figure in self.study.figures:
            if figure.name == name:
                number = figure.value(self.rows)
                if number is None:
                    raise StudyError(f"{self._name}.{name}: the rows that there are do not suffice for this figure")
                return ProseNumber(number, figure.form.format(number), self.origin)
        raise StudyError(f"{self._name} has no figure {name!r}")

    def cells(self, title: str, row: str, column: str, nth: int = 1) -> list[ProseNumber]:
        """Numbers of a column of the table whose title begins so.

        `row`: what cells of its rows are, separated by ` | `, those that end with a colon what cells begin with; empty:
        any row. `column`: its name, with `#2` for the second of that name; `nth`: which number of each cell. Cells
        without a number are left out. Raises StudyError if there are none.
        """
        for origin, tables in self._tables():
            if values := numbers(tables, origin, title, row, column, nth):
                return values
        raise StudyError(f"{self._name}: no number in column {column!r}, row {row!r} of a table {title!r}")

    def cell(self, title: str, row: str, column: str, nth: int = 1) -> ProseNumber:
        """The only one of `cells`. Raises StudyError also if there are several."""
        values = self.cells(title, row, column, nth)
        if len(values) > 1:
            raise StudyError(f"{self._name}: {len(values)} rows {row!r} in table {title!r}; name one")
        return values[0]

    def printed(self, text: str) -> ProseNumber:
        """A number that stands in a sentence of the earlier page. Raises StudyError if it does not."""
        if not re.search(rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d)", self.before):
            raise StudyError(f"{text!r} does not stand in the earlier page of {self._name}")
        return ProseNumber.of_cell(text, Origin.EARLIER)


def _known(file: RowFile, point: Point) -> Measurement | None:
    """What there is of a point, whatever code has made it: to ask that takes a second for each kind of points."""
    line = file.lines.get(name_of(point))
    try:
        return line and Measurement(point, None if line.error else point.load(line.row), line, current=True)
    except ValidationError:
        return None


def numbers(
    tables: Iterable[Table], origin: Origin, title: str, row: str, column: str, nth: int = 1
) -> list[ProseNumber]:
    """What `StudySource.cells` says, of some tables; of the first that has any."""
    for one in tables:
        if one.title.startswith(title) and (place := _place(one.columns, column)) is not None:
            cells = [each[place] for each in one.rows if _matches(each, row)]
            if values := [ProseNumber.of_cell(cell, origin, nth) for cell in cells if NUMBER.search(cell)]:
                return values
    return []


def _place(columns: Sequence[str], name: str) -> int | None:
    name, _, nth = name.partition("#")
    places = [place for place, one in enumerate(columns) if one.rstrip("> ").strip() == name]
    return places[int(nth or 1) - 1] if len(places) >= int(nth or 1) else None


def _matches(cells: Sequence[str], row: str) -> bool:
    return all(
        any(cell.startswith(word) if word.endswith(":") else cell.rstrip("*") == word for cell in cells)
        for word in filter(None, row.split(" | "))
    )
