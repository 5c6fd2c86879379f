"""The benchmark of micro-ops: its tables and bars, of results that are made up."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from meshloom.tb.benchmarks import klotski, klotski_waits
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.benchmarks.network_runs import Asked, Found
from meshloom.tb.results.events import OnEvent
from meshloom.tb.results.figures import MicroOpFigures

MICRO_OPS = MicroOpFigures(count=10, planned_cycles=110, bound_cycles=100, hops_bytes=4096, spilled_words=0)
NINE = Asked("klotski9", "resnet50", klotski.OURS)


def answer_of(cycles: int, rtl_cycles: int = 0, trouble: str = "") -> Found:
    return Found(cycles, 4500, 1, MICRO_OPS, 2.0, rtl_cycles, 64, 0, trouble)


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[Asked, Found]:
    """What is known; nothing is measured."""
    answers: dict[Asked, Found] = {}

    def collected(some: Iterable[Asked]) -> tuple[dict[Asked, Found], set[Asked]]:
        return {one: answers[one] for one in some if one in answers}, set()

    monkeypatch.setattr(klotski.KEPT, "collected", collected)
    monkeypatch.setattr(klotski, "measure", lambda result, on_progress: [])
    monkeypatch.setattr(klotski_waits.KEPT, "collected", lambda some: ({}, set()))
    return answers


@pytest.fixture
def heard() -> OnEvent:
    return lambda event: None


def test_a_row_is_beside_the_papers(results: dict[Asked, Found], heard: OnEvent) -> None:
    """Cycles and use of the arrays against baseline 1, the search's time against baseline 2; a gap of a tenth."""
    results |= {
        Asked("klotski9", "resnet50", klotski.ONE): answer_of(4000),
        Asked("klotski9", "resnet50", klotski.TWO): answer_of(2000),
        NINE: answer_of(1000),
    }
    sheet = next(one for one in klotski.run(heard, ["kept"]).sheets if one.title.startswith("klotski9: Table I,"))
    (row,) = (row for row in sheet.rows if row[1] == "klotski")
    assert row == (
        "resnet50", "klotski", "1,000", "0.00", "0.250", "50.0 % (4.00)", "10", "110", "100", "10.0 %", "4,096", "1.00",
    )  # fmt: skip
    (row,) = (row for row in sheet.rows if row[1].startswith("baseline 2"))
    assert row[4:6] == ("0.500 / 0.737", "25.0 % (2.00) / 0.98")


def test_bars_that_are_missed(results: dict[Asked, Found], heard: OnEvent) -> None:
    ours, loops = (Asked("klotski9", "resnet50", name, rtl=True) for name in (klotski.OURS, klotski.LOOPS))
    results |= {
        ours: answer_of(1000, 1000),
        loops: answer_of(900, 900),
        Asked("klotski9", "vgg16", klotski.OURS): answer_of(0, 0, "big"),
    }
    failures = klotski.run(heard, ["kept"]).failures
    assert "resnet50 on klotski9: micro-ops take 1,000 cycles, loop_order 900" in failures
    results[loops] = answer_of(1000, 1000)
    assert "resnet50 on klotski9: micro-ops take 1,000 cycles, loop_order 1,000" in (
        klotski.run(heard, ["kept"]).failures
    ), "as many are not fewer"
    assert "vgg16 on klotski9 by klotski:fallback=none: big" in failures
    results[loops] = answer_of(1100, 1000)
    assert "resnet50 on klotski9 by loop_order: the model is 10.00 % off, the bound is 3 %" in (
        klotski.run(heard, ["kept"]).failures
    )


def test_what_a_search_costs(results: dict[Asked, Found], heard: OnEvent) -> None:
    """The first way alone beside all of them; nothing where one of both is missing."""
    results[Asked("klotski25", "resnet50", klotski.FIRST)] = answer_of(1010)
    assert not any(one.title.startswith("Searches") for one in klotski.run(heard, ["kept"]).sheets)
    results[Asked("klotski25", "resnet50", klotski.OURS)] = answer_of(1000)
    (sheet,) = (one for one in klotski.run(heard, ["kept"]).sheets if one.title.startswith("Searches"))
    assert sheet.rows == [("klotski25", "resnet50", "1,000", "1,010", "1.0 %", "2 s", "2 s")]


def test_what_holds_a_network_up(results: dict[Asked, Found], heard: OnEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column for each chip that has been measured; older code is said to be such."""
    texts = *klotski_waits.KINDS, *klotski_waits.ROOM
    cycles: dict[str, int] = dict(zip(texts, (1000, 900, 800, 500, 950, 960, 940), strict=True))
    waits = {"klotski25": klotski_waits.Waits(cycles)}
    monkeypatch.setattr(klotski_waits.KEPT, "collected", lambda some: (waits, set(waits)))
    result = klotski.run(heard, ["kept"])
    (sheet,) = (one for one in result.sheets if one.title.startswith("What holds up"))
    assert sheet.columns == ("a word each, or room", "klotski25>")
    assert [row[1] for row in sheet.rows][:4] == ["1,000 (1.000)", "900 (0.900)", "800 (0.800)", "500 (0.500)"]
    assert sheet.rows[-1] == ("both", "940 (0.940)")
    assert result.remarks[-1].endswith("(1 results): what holds up resnet50 on klotski25.")
    del cycles["both"]  # what older code has not looked at
    (sheet,) = (one for one in klotski.run(heard, ["kept"]).sheets if one.title.startswith("What holds up"))
    assert sheet.rows[-1] == ("both", "-")


def test_an_unknown_part(heard: OnEvent) -> None:
    with pytest.raises(BenchmarkError, match=r"^no part klotski10; there are klotski9, klotski9-printed"):
        klotski.run(heard, ["klotski10"])
