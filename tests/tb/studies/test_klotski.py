"""Micro-ops beside the paper's tables: the page and its bars, of rows that are made up."""

from __future__ import annotations

from meshloom.tb.results.figures import MicroOpFigures
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.engine.tables import Table
from meshloom.tb.studies.klotski import waits
from meshloom.tb.studies.klotski.klotski import FIRST, LOOPS, ONE, OURS, PAPERS_WAY, STUDY, TWO
from meshloom.tb.studies.klotski.waits import WaitPoint, Waits
from meshloom.tb.studies.points.network_runs import NetworkCycles, NetworkRun

from .made_rows import page_of

MICRO_OPS = MicroOpFigures(count=10, planned_cycles=110, bound_cycles=100, hops_bytes=4096, spilled_words=0)


def row(cycles: int, rtl_cycles: int = 0) -> NetworkCycles:
    return NetworkCycles(cycles, 4500, 1, MICRO_OPS, 2.0, rtl_cycles, 64, 0)


def point(scheduler: str, network: str = "resnet50", rtl: bool = False) -> NetworkRun:
    return NetworkRun("klotski9", network, scheduler, rtl)


def sheet(begin: str, some: dict[Point, object]) -> Table:
    return next(one for one in page_of(STUDY, some).tables if one.title.startswith(begin))


def test_a_row_is_beside_the_papers() -> None:
    """Cycles and use of the arrays against baseline 1, the search's time against baseline 2; a gap of a tenth."""
    some: dict[Point, object] = {point(ONE): row(4000), point(TWO): row(2000), point(OURS): row(1000)}
    rows = sheet("klotski9: Table I,", some).rows
    (ours,) = (cells for cells in rows if cells[1] == "klotski")
    assert ours == (
        "resnet50", "klotski", "1,000", "0.00", "0.250", "50.0 % (4.00)", "10", "110", "100", "10.0 %", "4,096", "1.00",
    )  # fmt: skip
    (two,) = (cells for cells in rows if cells[1].startswith("baseline 2"))
    assert two[4:6] == ("0.500 / 0.737", "25.0 % (2.00) / 0.98")
    texts = page_of(STUDY, some).texts
    assert (texts["one_klotski9"], texts["two_klotski9"], texts["printed_klotski9"]) == ("75.0 %", "50.0 %", "-")
    means = sheet("Cycles, geometric mean", some)
    assert means.rows[0] == (
        "klotski",
        "baseline 1: whole layers, zig-zag",
        "0.250 / 0.622 (1 networks)",
        "- / -",
        "- / -",
    )


def test_bars_that_are_missed() -> None:
    ours, loops = (point(name, rtl=True) for name in (OURS, LOOPS))

    def missed(some: dict[Point, object], errors: dict[Point, str] | None = None) -> list[str]:
        return page_of(STUDY, some, errors=errors).missed

    assert missed({ours: row(1000, 1000), loops: row(1100, 1100)}) == []
    fast = "resnet50 on klotski9: micro-ops take 1,000 cycles, loop_order"
    assert missed({ours: row(1000, 1000), loops: row(900, 900)}) == [f"{fast} 900"]
    assert missed({ours: row(1000, 1000), loops: row(1000, 1000)}) == [f"{fast} 1,000"], "as many are not fewer"
    failures = missed({ours: row(1000, 1000), loops: row(1210, 1100)}, {point(OURS, "vgg16"): "lowering: too big"})
    assert failures == [
        "vgg16 on klotski9 by klotski:fallback=none (model): lowering: too big",
        "the model's error, mean: 5.000 %, not at most 1.000 %",
        "the model's error, worst: 10.000 %, not at most 3.000 %",
    ]
    assert missed({point(OURS): row(1010), point(TWO): row(1000)}) == [
        "klotski: fewer cycles than baseline 2, klotski9: -1.0 %, not at least 0.0 %"
    ]
    assert missed({point(PAPERS_WAY): row(1010), point(TWO): row(1000)}) == [], "it may take more"


def test_what_a_search_costs() -> None:
    """The first way alone beside all of them; nothing where one of both is missing."""
    first = NetworkRun("klotski25", "resnet50", FIRST)
    assert not any(one.title.startswith("Searches") for one in page_of(STUDY, {first: row(1010)}).tables)
    some: dict[Point, object] = {first: row(1010), NetworkRun("klotski25", "resnet50", OURS): row(1000)}
    assert sheet("Searches", some).rows == [("klotski25", "resnet50", "1,000", "1,010", "1.0 %", "2 s", "2 s")]


def test_what_holds_a_network_up() -> None:
    """A column for each chip that has been measured."""
    texts = *waits.KINDS, *waits.ROOM
    cycles: dict[str, int] = dict(zip(texts, (1000, 900, 800, 500, 950, 960, 940), strict=True))
    some: dict[Point, object] = {WaitPoint("klotski25"): Waits(cycles)}
    shown = sheet("What holds up", some)
    assert shown.columns == ("a word each, or room", "klotski25>")
    assert [cells[1] for cells in shown.rows][:4] == ["1,000 (1.000)", "900 (0.900)", "800 (0.800)", "500 (0.500)"]
    assert shown.rows[-1] == ("both", "940 (0.940)")
    del cycles["both"]  # what older code has not looked at
    assert sheet("What holds up", some).rows[-1] == ("both", "-")
