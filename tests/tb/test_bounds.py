"""What bounds a run and the gap to it, as tables and sentences: every figure is in its column."""

from __future__ import annotations

import pytest
from rich.table import Table

from meshloom.hw.spec.config import load
from meshloom.tb.report.bounds import bounds_line, bounds_table, gap_table, share_line
from meshloom.tb.results.explanation import BoundGap, Bounds, GapPart, LayerBusy, LayerSpent, Waterfall

CHIP = load("tiny")
CORE = CHIP.cores[0]
LAYERS = (
    LayerBusy(layer="conv1", busy={"compute": 3000, "vector": 40, "dram": 500, "noc": 60}),
    LayerBusy(layer="conv2", busy={"compute": 100, "dram": 1500}),
)
PARTS = (
    GapPart(after="", before="conv1", causes={"dram": 30, "start": 1}),
    GapPart(after="conv1", before="conv1", causes={"dram": 20}),
    GapPart(after="conv1", before="conv2", causes={"noc": 9}),
    GapPart(after="conv2", before="", causes={"end": 40}),
)
GAP = BoundGap(tile=CORE, what="array", mean=3000.0, parts=PARTS)
BUSY = {"compute": 3100, "vector": 40, "dram": 2000, "receiving": 70, "sending": 90, "memories": 80}
BOUNDS = Bounds(busy=BUSY, layers=LAYERS, floor=2500, gap=GAP)


def rows(table: Table) -> list[list[str]]:
    return [list(cells) for cells in zip(*(map(str, column.cells) for column in table.columns), strict=True)]


def test_each_layer_and_all_have_their_busiest() -> None:
    table = bounds_table(BOUNDS, 6200)
    assert [column.header for column in table.columns] == ["layer", "compute", "vector", "dram", "noc", "most"]
    assert rows(table) == [
        ["conv1", "3,000", "40", "500", "60", "compute"],
        ["conv2", "100", "0", "1,500", "0", "dram"],
        ["all", "3,100", "40", "2,000", "90", "compute"],
        ["", "50.0 %", "0.6 %", "32.3 %", "1.5 %", ""],
    ]


def test_what_nothing_keeps_busy_is_zero() -> None:
    assert rows(bounds_table(Bounds(busy={"dram": 5}, layers=()), 10)) == [
        ["all", "0", "0", "5", "0", "dram"],
        ["", "0.0 %", "0.0 %", "50.0 %", "0.0 %", ""],
    ]


def test_the_bounds_in_sentences() -> None:
    assert bounds_line(BOUNDS, 6200) == (
        "no order of these operations takes less than 3,100 cycles (an array), 50.0 % of what it took; layers one "
        "after the other, each at its limit, would take 4,500; no schedule whatever takes less than 2,500: useful "
        "products, or bytes in DRAM"
    )
    one = bounds_line(BOUNDS.model_copy(update={"layers": LAYERS[:1], "floor": None, "busy": {"sending": 7}}), 0)
    assert one == "no order of these operations takes less than 7 cycles (a port out of a core), - of what it took"


def test_the_gap_by_cause_and_place() -> None:
    table = gap_table(BOUNDS, CHIP)
    assert table.title == "gap to the bound: cycles in which the array of core@(1,0) has nothing to do"
    causes = [str(column.header) for column in table.columns][1:-2]
    assert sorted(causes) == ["dram", "end", "noc", "start"]

    def row(where: str, share: str, **spent: int) -> list[str]:
        return [where, *(str(spent.get(cause, 0)) for cause in causes), str(sum(spent.values())), share]

    assert rows(table) == [
        row("before conv1", "31.0 %", dram=30, start=1),
        row("in conv1", "20.0 %", dram=20),
        row("conv1, then conv2", "9.0 %", noc=9),
        row("after conv2", "40.0 %", end=40),
        row("within a layer", "20.0 %", dram=20),
        row("between layers", "9.0 %", noc=9),
        row("all", "100.0 %", dram=50, start=1, noc=9, end=40),
    ]


def test_of_many_places_the_longest_are_shown_in_the_order_of_time() -> None:
    cycles = [*range(1, 19), 500]
    parts = tuple(GapPart(after=f"a{spent}", before=f"b{spent}", causes={"dram": spent}) for spent in cycles)
    table = rows(gap_table(BOUNDS.model_copy(update={"gap": GAP.model_copy(update={"parts": parts})}), CHIP))
    assert [row[0] for row in table] == [
        *(f"a{spent}, then b{spent}" for spent in cycles[3:]), "3 shorter ones", "within a layer", "between layers",
        "all",
    ]  # fmt: skip
    assert table[16][1:] == ["6", "6", f"{600 / sum(cycles):.1f} %"]
    assert table[-2][1] == table[-1][1] == str(sum(cycles))


WORDS = "of edges (arrays are fed what is no product, on average), and"


@pytest.mark.parametrize(
    ("busy", "useful", "text"),
    [
        (BUSY, 1200, f"3,100 cycles: 1,200 of useful products, 1,800 {WORDS} 100 more than the mean of its kind"),
        (BUSY, 0, f"3,100 cycles: 0 of useful products, 3,000 {WORDS} 100 more than the mean of its kind"),
        (BUSY | {"dram": 3200}, 1200, "3,200 cycles is 200 more than the mean of its kind"),
        (
            BUSY | {"compute": 2900},
            1200,
            f"2,900 cycles: 1,200 of useful products, 1,800 {WORDS} 0 more than the mean of its kind",
        ),
    ],
)
def test_what_the_bound_consists_of(busy: dict[str, int], useful: int, text: str) -> None:
    total = {"dram": 5000 - useful} | ({"useful": useful} if useful else {})
    falls = Waterfall(cycles=5000, pes=1, layers=(LayerSpent(layer="conv1", pe_cycles=total),), total=total)
    assert share_line(BOUNDS.model_copy(update={"busy": busy}), falls) == f"the bound of {text}"
