"""Flexer beside every sequence: cases are drawn the same everywhere; what the page says of rows."""

from __future__ import annotations

from itertools import islice

from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.flexer.flexer_optimum import (
    CASES,
    JUDGED,
    ON_TIMELINE,
    STUDY,
    WIDTHS,
    Optimum,
    OptimumPoint,
    cases,
    points,
)

from .made_rows import page_of


def row(listed: float, ahead: float, timeline: dict[int, float] | None = None) -> Optimum:
    ratios = dict.fromkeys(WIDTHS, ahead) | {0: listed}
    return Optimum("w", ratios, dict.fromkeys(ratios, 1000), 77, 5 if timeline else 0, timeline or {}, (-0.4, 0.02))


def test_cases_are_the_same_on_every_machine() -> None:
    """The quick study has the first of the full one."""
    one, other = (next(iter(cases(1))) for _ in range(2))
    assert one.name == other.name
    names = [case.name for case in islice(cases(3), 3)]
    assert names[0] == one.name
    assert len(set(names)) == 3
    assert [point.number for point in points(True)] == list(range(CASES))
    assert points(False) == points(True)[: len(points(False))]


def test_tables_and_figures_are_of_ratios_to_the_optimum() -> None:
    page = page_of(STUDY, {OptimumPoint(0): row(1.5, 1.0, {0: 1.2, JUDGED: 1.0}), OptimumPoint(1): row(1.0, 1.0)})
    estimate, timeline, errors = page.tables
    assert estimate.rows[0] == ("list scheduling (the paper's)", "1.250", "1.50", "50 %", "1,000")
    assert estimate.rows[-1][1:4] == ("1.000", "1.00", "100 %")
    assert timeline.rows[0] == ("list scheduling (the paper's)", "1.200", "1.20", "0 %", "1")
    assert errors.rows[0] == ("of the search", "-40.0 %", "40.0 %", "-40 %")
    assert (page.texts["listed"], page.texts["worst"], page.texts["ahead"]) == ("1.250", "1.50", "1.000")
    assert page.remarks() == ["List scheduling's worst: 1.50, w (77 sequences). 5 sequences were played in all."]
    assert page.missed == []


def test_bars() -> None:
    page = page_of(STUDY, {OptimumPoint(0): row(0.9, 1.06, {0: 1.2, JUDGED: 1.06})})
    assert page.missed == [
        "w: better than the best of all sequences",
        f"lookahead={JUDGED} over the optimum, mean, estimate: 1.060, not at most 1.050",
        f"lookahead={JUDGED} over the optimum, mean, timeline: 1.060, not at most 1.050",
    ]


def test_so_many_cases_are_shown_as_played() -> None:
    one = row(1.0, 1.0, {0: 1.0, JUDGED: 1.0})
    some: dict[Point, object] = {OptimumPoint(number): one for number in range(ON_TIMELINE + 2)}
    _, timeline, _ = page_of(STUDY, some).tables
    assert timeline.rows[0][-1] == f"{ON_TIMELINE}"
