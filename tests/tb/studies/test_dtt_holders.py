"""Nearest sources are held to bars: no byte, arrival or cycle off, pushed no slower, a tenth of the flit-hops saved."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.tb.results.schema import Row
from meshloom.tb.studies.dtt.dtt_holders import CHIPS, NEAREST, PLACED, PUSHED, RUNS, STUDY
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.points.runs import RunPoint

from .made_rows import page_of

LAYER = "gemm:64x256x128"


def row(cycles: int, flits: int, **changes: Any) -> Row:
    links = [{"tile": 0, "port": port, "busy": flits, "blocked": 0, "cycles": cycles} for port in ("east", "local")]
    good = {"workload": LAYER, "chip": "ahead16", "scheduler": "dtt", "simulator": "verilator"}
    numbers = {"rtl_cycles": cycles, "model_cycles": cycles, "bytes_checked": 64, "links": links}
    return Row.model_validate(good | numbers | changes)


def page(**others: Row) -> Page:
    """Of one layer on four cores; all ways come to the same, except `others`."""
    rows = {name: row(1000, 100) for name in RUNS} | {NEAREST: row(990, 80)} | others
    return page_of(
        STUDY,
        {
            RunPoint("ahead16", LAYER, scheduler, CHIPS["four cores"], links=True): rows[name]
            for name, scheduler in RUNS.items()
        },
    )


def test_gains_and_flit_hops() -> None:
    good = page()
    assert good.missed == []
    cycles, traffic = good.tables
    assert cycles.rows[0] == (
        "four cores",
        LAYER,
        "1,000",
        "1,000",
        "1,000",
        "990",
        "1,000",
        "1.000",
        "1.010",
        "0",
        "0",
    )
    assert traffic.rows[0][2:6] == ("100", "80", "20.0 %", "100")
    assert (good.texts["pushed_gain"], good.texts["pushed_saved"]) == ("1.010", "20.0 %")
    assert (good.texts["placed_hops"], good.texts["placed_cycles"]) == ("+25.0 %", "1.010")
    assert "1.010 times as fast and save 20.0 %" in good.answer


@pytest.mark.parametrize(
    ("nearest", "text"),
    [(row(990, 95), "flit-hops saved: 5.0 %, not at least 10.0 %"), (row(1010, 80), "0.990, not at least 1.000")],
)
def test_means_have_bars(nearest: Row, text: str) -> None:
    (reason,) = page(**{NEAREST: nearest}).missed
    assert reason.startswith("nearest sources, pushed: ")
    assert text in reason


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"planned_arrivals": 5, "arrival_mismatches": 2}, "2 of 5 planned arrivals are off"),
        ({"model_cycles": 999}, "1,000 cycles, the model says 999"),
        ({"mismatches": 1}, "1 of 64 bytes differ"),
        ({"bytes_checked": 0}, "no byte was compared"),
    ],
)
def test_runs_have_bars(changes: dict[str, Any], text: str) -> None:
    reasons = page(**{PLACED: row(1000, 100, **changes)}).missed
    assert any(text in reason and f"by {RUNS[PLACED]}" in reason for reason in reasons), reasons


def test_a_layer_counts_once_all_ways_have_run() -> None:
    rows: dict[Point, Row] = {RunPoint("ahead16", LAYER, RUNS[PUSHED], CHIPS["four cores"], links=True): row(1000, 100)}
    assert page_of(STUDY, rows).tables == []
    assert page_of(STUDY, rows).missed == []


def test_sizes() -> None:
    assert len(STUDY.points(True)) == 30
    assert set(STUDY.points(False)) < set(STUDY.points(True))
    assert {len(point.config.cores) for point in STUDY.points(True) if isinstance(point, RunPoint)} == {4, 9}
