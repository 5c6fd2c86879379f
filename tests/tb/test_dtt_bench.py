"""The benchmark of ahead-of-time routing: what its tables say, and that its bars can be missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.sched.papers.dtt.reference_search import compare
from meshloom.sched.papers.dtt.synthetic import random_program
from meshloom.sched.routing.plan import Settings
from meshloom.tb.benchmarks import dtt_flows, dtt_routing
from meshloom.tb.benchmarks.dtt_plot import draw
from meshloom.tb.benchmarks.interface import BenchmarkError


@pytest.fixture(scope="module")
def routed() -> dtt_routing.Routed:
    return dtt_routing.route(random_program(4, 300), repeats=2)


@pytest.mark.slow
def test_a_sound_and_fast_plan_misses_no_bar(routed: dtt_routing.Routed) -> None:
    assert dtt_routing.slow(4, dtt_routing.LOAD, replace(routed, seconds=1e-9)) == []
    row = dict(zip(dtt_routing._SPEED, dtt_routing.speed_row(4, 0.6, routed), strict=True))
    assert row["moves>"] == f"{routed.plan.moves:,}"
    assert row["mesh"] == "4x4"


def test_slow_or_wrong_plans_miss_their_bars(routed: dtt_routing.Routed) -> None:
    (reason,) = dtt_routing.slow(4, dtt_routing.LOAD, replace(routed, seconds=1000.0))
    assert "below 30,000" in reason
    begun = routed.plan.begun.copy()
    begun[0] -= 1
    wrong = replace(routed, plan=replace(routed.plan, begun=begun), seconds=1e-9)
    (reason,) = dtt_routing.slow(4, dtt_routing.LOAD, wrong)
    assert "it is made from" in reason
    assert "more)" in reason


def test_tables_of_the_other_comparisons() -> None:
    routed = dtt_routing.route(random_program(4, 40, results=False), Settings(hop_weight=16))
    yardstick = compare(routed.plan, 20)
    row = dict(zip(dtt_routing._YARDSTICK, dtt_routing.yardstick_row(4, 16, routed, yardstick), strict=True))
    assert row["of equal cost>"] == row["moves>"] == f"{yardstick.moves}"
    plan = dtt_routing.route(random_program(4, 200)).plan
    stored = dict(zip(dtt_routing._STORED, dtt_routing.stored_row(4, plan, "search"), strict=True))
    assert stored["waypoints>"] == "0.000"
    sheet = dtt_routing.reductions_sheet()
    by_name = {row[0]: row for row in sheet.rows}
    assert by_name["8"][4] == "0.0 %"
    assert float(by_name["2+4+2"][2]) > float(by_name["2+4+2"][3])


def test_both_ways_and_the_picture(tmp_path: Path, routed: dtt_routing.Routed) -> None:
    chip = dtt_routing.square(4)
    flows = dtt_routing.pushed_and_pulled(chip, "gemm:64x64x64", ["gemm:64x64x64"])
    row = dict(zip(dtt_routing.FLOWS, dtt_routing.flows_row(flows), strict=True))
    assert row["chip"] == "square4"
    assert flows.pushed.cycles >= flows.ideal
    assert row["gain>"] == f"{min(run.cycles for run in (*flows.pulled, *flows.expecting)) / flows.pushed.cycles:.2f}"
    assert "gemm:64x64x64 on square4" in dtt_routing._lost([flows])
    paths = [tmp_path / name for name in ("one.svg", "two.svg")]
    for path in paths:
        draw({4: [(300, routed.rate), (600, 2 * routed.rate)]}, {4: 25.0}, [flows], path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"4x4, networkx" in paths[0].read_bytes()


def test_what_cannot_be_planned_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtt_flows.check, "problems", lambda plan: ["two trains on a wire"])
    with pytest.raises(BenchmarkError, match=r"square4, gemm:8x8x8: two trains on a wire"):
        dtt_routing.pushed_and_pulled(dtt_routing.square(4), "gemm:8x8x8", ["gemm:8x8x8"])
