"""The study of the regression: what runs where, tables and bars. No simulator is built or run here."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.sched.workload.catalog import find
from meshloom.tb.results.schema import Row
from meshloom.tb.studies.engine.tables import Table
from meshloom.tb.studies.networks import regression
from meshloom.tb.studies.points.runs import RunPoint

from .made_rows import page_of
from .run_rows import row


def judged(some: Sequence[Row]) -> tuple[Table, list[str]]:
    """The table of what the arrays bound, and the bars that are missed."""
    texts = [text for each in regression.by_arrays(some) for text in regression.idle("quad16", each)]
    return regression.bounded("quad16", some), texts


def test_regression_runs_small_layers_on_the_small_chip() -> None:
    every, small = regression.layers("quad16"), regression.layers("tiny")
    assert set(small) < set(every)
    assert len(small) >= 10
    assert max(find(name)[0].shape.macs for name in small) <= regression.SMALL_MACS


def test_regression_marks_rows_that_did_not_pass() -> None:
    table = regression.chip_table("quad16", [row(), row(model_cycles=1100), row(mismatches=1)])
    assert table.bad == {1, 2}
    assert table.title == "quad16: 1 of 3 passed, mean error 3.40 %, worst 10.00 %"
    assert table.rows[1][:4] == ("gemm:8x8x8 [model]", "1,000", "1,100", "+10.00 %")
    assert table.rows[2][0] == "gemm:8x8x8 [mismatch]"


def test_layers_that_the_arrays_bound_have_bars() -> None:
    used = {"limit": "compute", "span_cycles": 4000, "fed_cycles": 3960, "within": 0.98, "edges": 0.99}
    table, missed = judged([row(utilisation=0.95, arrays=used), row()])
    assert (len(table.rows), missed) == (1, [])
    assert table.rows[0] == ("gemm:8x8x8", "1,000", "98.0 %", "95.0 %", "99.0 %", "99.0 %")
    table, missed = judged([row(utilisation=0.5, arrays=used | {"limit": "dram"})])
    assert (len(table.rows), missed) == (0, [])
    edges = used | {"within": 0.75, "edges": 0.765}
    table, missed = judged([row(utilisation=0.95, arrays=used), row(arrays=edges)])
    assert table.bad == {1}
    leave = "its edges leave 76.5 % of the PEs"
    assert missed == [
        f"quad16: gemm:8x8x8, within its cores: 75.0 % of the PE cycles are useful, not 97 %: {leave}",
        f"quad16: gemm:8x8x8, end to end: 50.0 % of the PE cycles are useful, not 94 %: {leave}",
    ]
    (text,) = judged([row(utilisation=0.9, arrays=used)])[1]
    assert text.endswith("end to end: 90.0 % of the PE cycles are useful, not 94 %")


def test_a_page_has_the_chips_that_were_measured() -> None:
    good, bad = RunPoint("quad16", "gemm:8x8x8"), RunPoint("tiny", "gemm:8x8x8")
    page = page_of(regression.STUDY, {good: row(), bad: row(chip="tiny", mismatches=2)})
    assert [table.title.partition(":")[0] for table in page.tables] == ["quad16", "tiny"]
    assert page.missed == [
        "tiny: gemm:8x8x8: 2 of 64 bytes differ from the golden model",
        "bytes that differ: 2, not exactly 0",
    ]
    assert page.answer.startswith("Over 2 runs of layers the model is 0.10 % off in the mean and 0.10 % at worst; 2 of")
