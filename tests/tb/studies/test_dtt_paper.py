"""An explorer that knows a star is held to what it finds if it knows all; what controllers would need is counted."""

from __future__ import annotations

from dataclasses import replace

from meshloom.sched.lowering.timed.again import Again
from meshloom.tb.studies.dtt.dtt_paper import STUDY, ButterflyExplored, ButterflyMapping, Explored, SearchedAgain
from meshloom.tb.studies.engine.page import Page

from .made_rows import page_of

EXPLORED = Explored(
    ButterflyMapping(150, 30.0), ButterflyMapping(90, 50.0, 100), ButterflyMapping(100, 22.0),
    ButterflyMapping(100, 20.0, 250),
)  # fmt: skip
AGAIN = Again(instructions=200, waypoints=5, moves=100, held=32, ahead=8192, resources=4, looked_at=350)


def page(explored: Explored = EXPLORED) -> Page:
    return page_of(STUDY, {ButterflyExplored(3): explored, SearchedAgain("nine cores", "gemm:8x8x8"): AGAIN})


def test_tables_and_figures() -> None:
    good = page()
    figure_7, again = good.tables
    assert figure_7.rows == [("3", "150", "90", "100", "100", "30.0", "50.0", "22.0", "20.0", "100", "250")]
    assert again.rows == [
        ("nine cores", "gemm:8x8x8", "100", "200", "5", "2.5 %", "3.5", "32", "1.0", "8,192", "4", "4.0")
    ]
    texts = good.texts
    assert (texts["slower"], texts["dearer"], texts["less_work"], texts["first_fit"]) == (
        "1.000",
        "1.100",
        "2.5",
        "1.50",
    )
    assert "2.5 % of the instructions" in good.answer
    assert good.missed == []


def test_what_is_handed_on_may_be_five_percent_slower() -> None:
    slow = replace(EXPLORED, handed_on=ButterflyMapping(106, 20.0))
    assert page(slow).missed == ["handed on: times the cycles, mean: 1.060, not at most 1.050"]


def test_a_point_is_measured() -> None:
    row = ButterflyExplored(0, tries=2).measure(lambda what: None)
    assert ButterflyExplored.load(ButterflyExplored.dump(row)) == row
    assert row.whole.moves > row.star.moves > 0
    assert row.handed_on.cycles <= row.first_fit.cycles
