"""The study of the arena: what its page says of rows that are known."""

from __future__ import annotations

from meshloom.tb.compare.floors import floor_of
from meshloom.tb.studies.points.runs import RunPoint, chip_of
from meshloom.tb.studies.tools.arena import HEATS, QUICK, SCHEDULERS, STUDY, heats_of, points
from meshloom.tb.studies.tools.mapped import FILES, MappedPoint, MappedRun, every_point

from ..command_line import row
from .made_rows import rows_of

CHIP, WORKLOAD = HEATS[0]
ZIGZAG = MappedPoint("zigzag", CHIP, "zigzag/tiny/gemm_32x32x32_complete.json", WORKLOAD)


def ours(scheduler: str) -> RunPoint:
    return RunPoint(CHIP, WORKLOAD, scheduler)


def mapped(rtl: int, problem: str = "") -> MappedRun:
    return MappedRun(claimed=2306, rtl=rtl, model=rtl, compared=64, problem=problem)


def test_every_tool_takes_part_and_the_quick_study_is_a_part_of_the_full_one() -> None:
    full = points(True)
    assert {*points(False)} < {*full}
    assert {point.tool for point in full if isinstance(point, MappedPoint)} == FILES.keys()
    assert len([point for point in full if isinstance(point, RunPoint)]) == len(HEATS) * len(SCHEDULERS)
    assert {(point.chip, point.workload) for point in points(False) if isinstance(point, MappedPoint)} == {
        *HEATS[:QUICK]
    }
    assert {point for point in full if isinstance(point, MappedPoint)} <= {*every_point()}
    assert all(floor_of(workload, chip_of(chip)) for chip, workload in HEATS)


def test_what_is_shown() -> None:
    """A mapping that is refused is there, with the reason."""
    known = {
        ours("loop_order"): row(rtl_cycles=2500, model_cycles=2500),
        ours("klotski"): row(rtl_cycles=4096, model_cycles=4096),
        ZIGZAG: mapped(3000),
        MappedPoint("stream", CHIP, "f", WORKLOAD): MappedRun(refused="FY 3 is unrolled over cores; unroll pixels"),
    }
    rows = rows_of(known)
    texts = STUDY.texts(rows)
    names = "heats", "entries", "ours", "above", "theirs", "tools"
    assert [texts[name] for name in names] == ["1", "4", "1", "1.221", "1.200", "2"]
    standings, heat = STUDY.shown(rows)
    assert standings.rows == [
        ("loop_order", "1", "1", "0", "1.000"),
        ("zigzag (mapping)", "1", "0", "0", "1.200"),
        ("klotski", "1", "0", "0", "1.638"),
        ("stream (mapping)", "1", "0", "1", "-"),
    ]
    assert heat.title == "gemm:32x32x32 on tiny: no schedule takes fewer than 2,048 cycles"
    assert heat.rows == [
        ("loop_order", "2,500", "1.000", "1.221", "-", ""),
        ("zigzag (mapping)", "3,000", "1.200", "1.465", "2,306", ""),
        ("klotski", "4,096", "1.638", "2.000", "-", ""),
        ("stream (mapping)", "-", "-", "-", "-", "FY 3 is unrolled over cores"),
    ]
    assert STUDY.missed(rows) == []


def test_whoever_is_wrong_or_below_the_bound_is_no_winner_in_silence() -> None:
    known = {
        ours("loop_order"): row(rtl_cycles=2000, model_cycles=2000),
        ours("klotski"): row(rtl_cycles=2500, model_cycles=2500, mismatches=3),
        ZIGZAG: mapped(2400, problem="2 of 64 bytes differ from the golden model"),
    }
    rows = rows_of(known)
    below, klotski, zigzag, bar = STUDY.missed(rows)
    assert below == "loop_order, gemm:32x32x32 on tiny: 2000 cycles are below the bound"
    assert klotski.startswith("gemm:32x32x32 on tiny by klotski: 3 of ")
    assert zigzag == "gemm:32x32x32 on tiny by zigzag: 2 of 64 bytes differ from the golden model"
    assert bar.startswith("cycles of the fastest entry / bound")
    (heat,) = heats_of(rows)
    assert [(score.entry, score.cycles) for score in heat.scores] == [
        ("loop_order", 2000), ("klotski", None), ("zigzag (mapping)", None),
    ]  # fmt: skip
