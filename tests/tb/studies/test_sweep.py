"""The study of sweeps: bars, and which rows its tables have. No worker is started here."""

from __future__ import annotations

from dataclasses import replace

from meshloom.tb.studies.tools import sweep
from meshloom.tb.studies.tools.sweep import EmptyPoint, EmptyTimes, SweepPoint, SweepTimes

from .made_rows import page_of

TIMES = SweepTimes(200, 8, 0, 21, 90.0, 70.0, 130.0, 2.0, 0.4, 1.0, 0.6, 6.0, 4711)


def test_bars_of_sweeps() -> None:
    point = SweepPoint("rtl", 200)
    assert sweep.missed(point, TIMES) == []
    assert (TIMES.overhead, TIMES.whole_overhead) == (10.0, 50.0)
    bad = replace(TIMES, differ=2, rows=199, killed=0, between=20.0)
    assert [text.split(": ", 1)[1] for text in sweep.missed(point, bad)] == [
        "2 rows are not those of the serial run",
        "199 rows, not 200",
        "no worker was killed",
        "108.5 ms for each point, 50 are allowed",
    ]
    assert "no work was lost" in sweep.missed(point, replace(TIMES, lost=0.0))[0]


def test_tables_have_the_larger_sweep() -> None:
    quick = replace(TIMES, rows=40)
    page = page_of(
        sweep.STUDY,
        {SweepPoint("rtl", 200): TIMES, SweepPoint("rtl", 40): quick, EmptyPoint(500): EmptyTimes(14.0, 3.0)},
    )
    times, empty = page.tables
    assert [row[:2] for row in times.rows] == [("rtl", "200")]
    assert empty.rows == [("500", "28.0", "6.0")]


def test_points_of_a_quick_sweep_are_of_the_same_space() -> None:
    for name, (full, quick) in sweep.SAMPLES.items():
        one, other = (sweep.sweep_of(name, sample) for sample in (full, quick))
        assert one.model_copy(update={"sample": quick}) == other
