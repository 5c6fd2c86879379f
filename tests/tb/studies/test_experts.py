"""The study of a model with experts: a page of what is known, wrong bytes, choices that are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshloom.tb.results.language import ExpertFigures, PhaseFigures
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.networks import experts
from meshloom.tb.studies.networks.experts import ALIKE, STUDY
from meshloom.tb.studies.networks.experts_points import (
    CutPoint,
    CutRow,
    SkewPoint,
    SkewRow,
    TextPoint,
    TextRow,
    drawn_choices,
)

from .made_rows import page_of

PHASE = PhaseFigures(
    steps=2, tokens=20, rtl_cycles=40_000, model_cycles=40_000, dram_bytes=8000, least_cycles=9000, host_bytes=600,
    expert_cycles=10_000, expert_bytes=2000, round_trips=4,
)  # fmt: skip
CHOSEN = ExpertFigures(
    layers=(0,), top=2, choices=((30, 10),), fetched=((4, 3),), weight_bytes=512, round_trip_cycles=100
)
TEXT = TextRow("the", "thy", 0.75, 4.2, 4.1, PHASE, PHASE, CHOSEN, 5000, 0, 1.5)
EVEN = SkewRow(8.0, 1.5, 40_000.0, 20_000.0, 320_000.0, 160_000.0)
LIKE = replace(EVEN, experts=2.0, busiest=4.0, cycles=30_000.0, dram_bytes=160_000.0)


def page(text: TextRow = TEXT, **more: SkewRow) -> Page:
    some: dict[Point, TextRow | SkewRow | CutRow] = {
        TextPoint("quad16"): text,
        SkewPoint("quad16", 16, 0.0): EVEN,
        SkewPoint("quad16", 16, ALIKE): LIKE,
        CutPoint("quad16", 1): CutRow(5, 1000, 1200, 1500, 7000, 9000),
    }
    if more:
        some[SkewPoint("quad16", 16, 0.0, rtl=True)] = more["rtl"]
    return page_of(STUDY, some)


def test_tables_and_figures() -> None:
    good = page(rtl=replace(EVEN, compared=700))
    phases, texts, chosen, skews, cuts = good.tables
    assert phases.rows[0] == (
        "quad16", "prefill", "2", "20", "2,000", "25.0 %", "400", "100", "300", "2", "1.0 %", "+0.00 %"
    )  # fmt: skip
    assert texts.rows[0][1:3] == ("`'the'`", "`'thy'`")
    assert list(chosen.rows) == [("0", "30, 10", "4, 3", "1.50")]
    assert [row[1:5] for row in skews.rows] == [
        ("model", "16", "0", "8.0"), ("model", "16", "all alike", "2.0"), ("RTL", "16", "0", "8.0")
    ]  # fmt: skip
    assert list(cuts.rows) == [("64", "1", "1,000", "5", "1,200", "1,840", "1,500", "7,000", "9,000")]
    assert good.missed == []
    assert good.answer == (
        "On quad16 a token of decode takes 2,000 cycles, 25.0 % of them in experts' programs; a chunk of 16 tokens "
        "that all choose alike takes 25.0 % fewer cycles than a balanced one and reads 50.0 % fewer bytes; 0 of 5,700 "
        "bytes are wrong."
    )


def test_wrong_bytes() -> None:
    bad = page(replace(TEXT, wrong=3, reasons=("3 of 5,000 bytes are wrong",)), rtl=replace(EVEN, reasons=("x is 1",)))
    assert bad.missed == [
        "text on quad16: 3 of 5,000 bytes are wrong", "step of 16 on quad16, skew 0 (RTL): x is 1",
        "wrong bytes: 3, not exactly 0",
    ]  # fmt: skip


def test_what_is_measured() -> None:
    quick, full = experts.points(False), experts.points(True)
    assert set(quick) < set(full)
    assert len({point.name for point in full}) == len(full)
    assert all(point.key for point in quick)


def test_choices_are_drawn_by_skew() -> None:
    for skew in (0.0, 1.0, ALIKE):
        chosen = drawn_choices(400, 8, 2, skew, 3)
        assert chosen.shape == (400, 2)
        assert np.all(chosen[:, 0] < chosen[:, 1])
    counts = [np.bincount(drawn_choices(400, 8, 2, skew, 3).ravel(), minlength=8) for skew in (0.0, 1.0, ALIKE)]
    assert counts[0].max() < 140
    assert np.all(np.diff(counts[1][:4]) < 0)
    assert counts[2].tolist() == [400, 400, 0, 0, 0, 0, 0, 0]
