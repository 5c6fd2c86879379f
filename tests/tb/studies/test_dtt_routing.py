"""Ahead-of-time routing: what the tables say, and that plans which are slow or wrong miss their bars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.sched.papers.dtt.reference_search import Yardstick
from meshloom.sched.papers.dtt.synthetic import random_program
from meshloom.tb.studies.dtt import flows as flows_module
from meshloom.tb.studies.dtt.dtt_plot import draw
from meshloom.tb.studies.dtt.dtt_routing import LOAD, PLOT, STUDY
from meshloom.tb.studies.dtt.flows import BothFlows, Flows, PulledFlow
from meshloom.tb.studies.dtt.routing_points import (
    Beside,
    BesideNetworkx,
    PlanFigures,
    PlanTimed,
    TreeReduced,
    WaypointsStored,
    plan_figures,
    route,
)
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.engine.rows import StudyError

from .made_rows import page_of, rows_of

PLAN = PlanTimed(4, 1000, LOAD, 3)
FAST = PlanFigures(970, 18, 5409, 0.2, 6, 6, 400, 5820, seconds=0.0097)
NETWORKX = BesideNetworkx(4, 16, 150, LOAD, 3)
BESIDE = Beside(Yardstick(146, 0.5, 0.84, 145, 1, 0), 100_000)
FLOWS = BothFlows("square4", "gemm:64x64x64", ("gemm:64x64x64",))
PULLED = PulledFlow(cycles=1100, moves=90, flit_hops=2000, request_flit_hops=50, link_load=0.2)
BOTH = Flows(
    128, 500.0, 1000, 96, 3000, 0.3, "injection port of 0x10", 0.4, 0.001,
    (PULLED, replace(PULLED, cycles=1300), replace(PULLED, cycles=1400)), (replace(PULLED, cycles=1200),) * 3,
)  # fmt: skip


def page(plan: PlanFigures = FAST, beside: Beside = BESIDE, flows: Flows = BOTH) -> Page:
    return page_of(STUDY, {PLAN: plan, NETWORKX: beside, FLOWS: flows})


def test_tables_and_figures() -> None:
    good = page()
    speeds, beside, both = good.tables
    assert speeds.rows[0] == (
        "4x4", "60 %", "970", "18", "5,409", "20 %", "0.6 %", "6 of 400", "6", "10", "100,000",
    )  # fmt: skip
    assert beside.rows[0] == ("4x4", "16", "146", "145", "1", "0.84", "292.0", "100,000", "342")
    assert both.rows[0] == (
        "square4", "gemm:64x64x64", "128", "500", "1,000", "1,100 / 1,300 / 1,400", "1,200 / 1,200 / 1,200", "1.10",
        "96", "90", "3,000", "2,000 + 50", "30.0 / 20.0 %", "40 %", "96,000",
    )  # fmt: skip
    assert (good.texts["least_4"], good.texts["most_8"], good.texts["least_gain"]) == ("100,000", "-", "1.10")
    assert good.missed == []
    assert good.remarks() == []


def test_bars() -> None:
    slow = page(replace(FAST, seconds=97.0)).missed
    assert slow[0] == "4x4: 970 moves at 10 moves/s, below 30,000"
    (wrong,) = page(replace(FAST, problems=3, first_problem="two trains on a wire")).missed
    assert wrong == "4x4, 970 moves: two trains on a wire (and 2 more)"
    (dear,) = page(beside=replace(BESIDE, networkx=replace(BESIDE.networkx, wrong=2))).missed
    assert dear == "4x4: 2 of 146 routes do not cost what networkx finds"


def test_where_pulled_is_faster_is_said() -> None:
    page_lost = page(flows=replace(BOTH, cycles=1250))
    assert page_lost.tables[2].bad == {0}
    assert page_lost.remarks() == [
        "Pulled is faster in gemm:64x64x64 on square4, by 12.0 % (pushed, the cores work in 40 % of all cycles, and "
        "the injection port of 0x10 carries flits in 40 %)."
    ]


@pytest.mark.slow
def test_the_picture_is_that_of_its_rows(tmp_path: Path) -> None:
    some: dict[Point, object] = {PLAN: FAST, NETWORKX: BESIDE, FLOWS: BOTH}
    rows, paths = rows_of(some), [tmp_path / name for name in ("one.svg", "two.svg")]
    for path in paths:
        draw(rows, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"4x4, networkx" in paths[0].read_bytes()
    draw(rows_of({}), tmp_path / PLOT)


@pytest.mark.slow
def test_plans_are_checked() -> None:
    routed = route(random_program(4, 300), repeats=2)
    row = plan_figures(routed)
    assert (row.moves, row.problems, row.tasks) == (routed.plan.moves, 0, len(routed.plan.program.tasks))
    begun = routed.plan.begun.copy()
    begun[0] -= 1
    wrong = plan_figures(replace(routed, plan=replace(routed.plan, begun=begun)))
    assert wrong.problems > 0
    assert "it is made from" in wrong.first_problem


@pytest.mark.parametrize(
    "point",
    [
        BesideNetworkx(4, 16, 20, LOAD, 1),
        WaypointsStored(4, 200, LOAD, "search"),
        TreeReduced((2, 4, 2)),
        BothFlows("square4", "gemm:8x8x8", ("gemm:8x8x8",)),
    ],
)
def test_points_are_measured(point: Point) -> None:
    row = point.measure(lambda what: None)
    assert point.load(point.dump(row)) == row
    match point:
        case BesideNetworkx():
            assert row.networkx.equal == row.networkx.moves > 0
        case WaypointsStored():
            assert row.points == 0 < row.moves
        case TreeReduced():
            assert row.augmented.energy < row.plain.energy
            assert len(row.augmented.side_links) == 2
        case _:
            assert row.cycles >= row.ideal


def test_what_cannot_be_planned_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows_module.check, "problems", lambda plan: ["two trains on a wire"])
    with pytest.raises(StudyError, match=r"square4, gemm:8x8x8: two trains on a wire"):
        BothFlows("square4", "gemm:8x8x8", ("gemm:8x8x8",)).measure(lambda what: None)
