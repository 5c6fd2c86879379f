"""The study of windows: more must not be slower, or wrong. No simulator is built or run here."""

from __future__ import annotations

from typing import Any

from meshloom.tb.build.synthesis import Area
from meshloom.tb.results.schema import Row
from meshloom.tb.studies.chip import vector
from meshloom.tb.studies.engine.page import Page

from .made_rows import page_of
from .run_rows import row


def some(windows: int, cycles: int = 1000, **changes: Any) -> dict[Any, Row]:
    return {vector.run_of("vww", windows): row(**{"rtl_cycles": cycles, "model_cycles": cycles} | changes)}


def page(*parts: dict[Any, Any]) -> Page:
    known: dict[Any, Any] = {}
    for part in parts:
        known |= part
    return page_of(vector.STUDY, known)


def test_more_windows_must_not_be_slower_or_wrong() -> None:
    good = page(some(1), some(3, 900), some(5))
    assert good.missed == []
    assert good.texts["three"] == "1.111"
    slow = page(some(1), some(3, 1001))
    assert slow.missed[0] == "vww with 3 windows: 1,001 cycles, 1,000 with 1"
    (text,) = page(some(1), some(5, 999, model_cycles=1000)).missed
    assert text.endswith("999 cycles, the model says 1,000")
    assert "differ" in page(some(1), some(5, mismatches=1)).missed[0]


def test_cells_are_of_both_units() -> None:
    areas = {vector.MATRIX: Area(300, 10), vector.unit_of(1): Area(100, 5), vector.unit_of(3): Area(140, 5)}
    units = page(some(1), areas).tables[1]
    assert units.rows == [
        ("matrix", "", "300", "10", ""),
        ("vector", "1", "100", "5", "+0.0 %"),
        ("vector", "3", "140", "5", "+10.0 %"),
    ]


def test_chips_differ_in_windows_alone() -> None:
    chips = [vector.run_of("vww", windows).config for windows in vector.WINDOWS]
    assert [one.core.vec_windows for one in chips] == list(vector.WINDOWS)
    alike = [one.model_copy(update={"core": one.core.model_copy(update={"vec_windows": 1})}) for one in chips]
    assert alike[0] == alike[1] == alike[2]
