"""Pushed against pulled: no arrival, cycle or byte off, and a gain everywhere; larger chips are planned in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshloom.tb.results.schema import Row
from meshloom.tb.studies.dtt.ahead import BASE, GRIDS, STUDY, Fed, LayerFed, fed_chip
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.points.runs import RunPoint

from .made_rows import page_of

FED = Fed(pulled=1000, shared=900, pushed=950, packets=10, macs=64 * 9 * 475, seconds=59)


def row(cycles: int, **changes: Any) -> Row:
    links = [{"tile": 0, "port": port, "busy": 250, "blocked": 0, "cycles": 1000} for port in ("east", "local")]
    good = {"workload": "resnet8", "chip": "ahead16", "scheduler": "dtt", "simulator": "verilator", "links": links}
    numbers = {"rtl_cycles": cycles, "model_cycles": cycles, "bytes_checked": 64, "planned_arrivals": 5}
    return Row.model_validate(good | numbers | changes)


def page(pushed: Row, pulled: Row | None = None, fed: Fed = FED) -> Page:
    runs = {BASE: pulled or row(1100, planned_arrivals=0), "dtt": pushed}
    rows = {RunPoint("ahead16", "resnet8", name, links=True): each for name, each in runs.items()}
    return page_of(STUDY, {**rows, LayerFed("gemm:64x256x128", 3): fed})


@pytest.mark.slow
def test_gains() -> None:
    good = page(row(1000))
    assert good.missed == []
    cycles, fed = good.tables
    assert cycles.rows[0][:10] == (
        "resnet8", "1,100", "1,000", "1.100", "5", "0", "25.0 %", "25.0 %", "250", "250",
    )  # fmt: skip
    assert fed.rows[0] == (
        "gemm:64x256x128", "9", "1,000", "950", "1.053", "900", "0.947", "10", "6 %", "48 %", "50 %", "59",
    )  # fmt: skip
    assert good.answer == "On the RTL pushed ones are 1.100 to 1.100 times as fast as the same layers pulled."


@pytest.mark.parametrize(
    ("pushed", "text"),
    [
        (row(1000, arrival_mismatches=2), "2 of 5 planned arrivals are off"),
        (row(1000, planned_arrivals=0), "resnet8: no arrival was planned"),
        (row(1000, model_cycles=999), "1,000 cycles, the model says 999"),
        (row(1000, bytes_checked=0), "no byte was compared"),
        (row(1100), "resnet8: pushed takes 1,100 cycles, pulled 1,100"),
    ],
)
def test_bars_on_the_rtl(pushed: Row, text: str) -> None:
    bad = page(pushed)
    assert any(text in reason for reason in bad.missed), bad.missed
    assert bad.tables[0].bad == {0}


def test_pulled_runs_have_bars() -> None:
    assert any("resnet8, pulled: 3 of 64 bytes" in text for text in page(row(1000), row(1100, mismatches=3)).missed)


def test_larger_chips_have_bars_of_cycles_and_of_planning() -> None:
    (reason,) = page(row(1000), fed=replace(FED, pushed=1000)).missed
    assert reason == "gemm:64x256x128 on 9 cores: pushed takes 1,000 cycles, pulled 1,000"
    reasons = page(row(1000), fed=replace(FED, seconds=61)).missed
    assert reasons[0] == "gemm:64x256x128 on 9 cores: planned in 61 s, the bar is 60 s"
    for grid in GRIDS:
        chip = fed_chip(grid)
        assert (len(chip.cores), len(chip.drams), len(chip.channels)) == (grid * grid, grid, grid + 1)
