"""Rows of studies, made up: what a page says of them is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.engine.point import Point, form
from meshloom.tb.studies.engine.rows import Line, Measurement, Rows
from meshloom.tb.studies.engine.study import Study

P = TypeVar("P", bound=Point)


def measurement(point: Point, row: Any, *, error: str = "", current: bool = True) -> Measurement:
    """What a file of rows says of a point."""
    fields = form(type(point)).dump_python(point, mode="json")
    line = Line(type(point).__name__, fields, None, point.key if current else "older", error, "commit x", "2026-01-31")
    return Measurement(point, None if error else row, line, current)


def rows_of(known: Mapping[P, Any], errors: Mapping[P, str] | None = None, older: Iterable[Point] = ()) -> Rows:
    """Rows of some points. `errors`: points that came to one; `older`: those of other code."""
    old = set(older)
    all_of_them: dict[Point, Measurement] = {
        point: measurement(point, row, current=point not in old) for point, row in known.items()
    }
    all_of_them |= {point: measurement(point, None, error=why) for point, why in (errors or {}).items()}
    return Rows(all_of_them, all_of_them)


def page_of(study: Study, known: Mapping[P, Any], **more: Any) -> Page:
    """The page of a study whose full and quick rows are these."""
    rows = rows_of(known, **more)
    return Page(study, rows, rows)
