"""The study of a language model: a page of what is known, bars, wrong bytes. Nothing is scheduled or run here."""

from __future__ import annotations

from dataclasses import replace

from meshloom.tb.results.legend import GROUPS
from meshloom.tb.studies.engine.page import Page
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.networks import language
from meshloom.tb.studies.networks.language import STUDY
from meshloom.tb.studies.networks.language_points import Phase, StepPoint, StepRow, TextPoint, TextRow, model_of

PREFILL = Phase(3, 18, 180_000, 180_000, 90_000, 36_000, 3_000, 9.0)
DECODE = Phase(11, 11, 440_000, 440_000, 110_000, 9_900, 2_200, 22.0)
TEXT = TextRow("the", "thy", 0.75, 4.113, 4.104, PREFILL, DECODE, 5000, 0, 1.5)
BUSY = {"dram": 300, "compute": 200, "vector": 100}
STEP = StepRow(1000, 512_000, 28_000, 1_600, 32_000, 921_600, 1000, BUSY, dict.fromkeys(GROUPS, 10.0), 300, 7)


def page(**changes: TextRow) -> Page:
    some: dict[Point, TextRow | StepRow] = {
        TextPoint("quad16", True): changes.get("quad16", TEXT),
        TextPoint("lp9", False): changes.get("lp9", TEXT),
        StepPoint("quad16", 1): STEP,
        StepPoint("quad16", 127): STEP,
        StepPoint("quad16", 1, 640): replace(STEP, weights=30_400),
    }
    return page_of_language(some)


def page_of_language(some: dict[Point, TextRow | StepRow]) -> Page:
    from .made_rows import page_of

    return page_of(STUDY, some)


def test_tables_and_figures() -> None:
    good = page()
    phases, texts, steps, causes, wide = good.tables
    assert [row[:6] for row in phases.rows] == [
        ("quad16", "RTL", "prefill", "3", "18", "10,000"),
        ("quad16", "RTL", "decode", "11", "11", "40,000"),
        ("lp9 + core.vec_whole", "model", "prefill", "3", "18", "10,000"),
        ("lp9 + core.vec_whole", "model", "decode", "11", "11", "40,000"),
    ]
    assert phases.rows[1][6:] == ("0.0800", "25.0 %", "900", "200", "2.0", "+0.00 %")
    assert phases.rows[3][9:] == ("-", "2.0", "-")
    assert [row[1:3] for row in texts.rows] == [("`'the'`", "`'thy'`")] * 2
    assert steps.rows[0][:8] == ("quad16", "1", "1,000", "1,000", "32,000", "29,600", "92.5 %", "90.0 %")
    assert causes.rows[0][2:] == ("10.0",) * len(GROUPS)
    assert wide.rows[0][0] == "640"
    assert good.missed == []
    assert good.answer == (
        "On quad16 a token of decode takes 40,000 cycles, at 92.5 % of what DRAM could bring of weights and cache (a "
        "model of width 640 100.0 %); 0 of 10,000 bytes are wrong."
    )


def test_bars_and_wrong_bytes() -> None:
    bad = page(quad16=replace(TEXT, wrong=3, reasons=("3 of 5,000 bytes are wrong",)), lp9=replace(TEXT, text="thu"))
    assert bad.missed == [
        "text on quad16: 3 of 5,000 bytes are wrong", "chips do not say the same text", "wrong bytes: 3, not exactly 0"
    ]  # fmt: skip
    slow = page_of_language({StepPoint("quad16", 1): replace(STEP, cycles=2000)})
    assert slow.missed == ["decode: weights and cache, of DRAM's bandwidth: 46.2 %, not at least 92.0 %"]


def test_what_is_measured() -> None:
    quick, full = language.points(False), language.points(True)
    assert set(quick) - set(full) == {TextPoint(chip, False) for chip in ("lp9", "server1")}
    assert len(full) > len(quick)
    assert {point.config.core.vec_whole for point in full} == {True}
    assert model_of(256).width == 256
    assert len({point.name for point in full}) == len(full)
    assert all(point.key for point in quick)


def test_a_step_is_measured() -> None:
    row = StepPoint("quad16", 1, 64).measure(lambda what: None)
    assert StepPoint.load(StepPoint.dump(row)) == row
    assert 0 < row.changing < row.instructions
    assert 99 < sum(row.shares.values()) < 101
    assert row.dram_bytes > row.weights + row.cache
