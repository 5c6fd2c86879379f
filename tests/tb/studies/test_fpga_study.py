"""The study of a chip on an FPGA: its chips, and what its page says of made-up rows. Nothing is synthesised here."""

from __future__ import annotations

from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.tb.build.fpga.estimate import FpgaEstimate
from meshloom.tb.build.fpga.layout import FpgaLayout, FpgaPart, Hop, Used
from meshloom.tb.build.fpga.timing import TimedPath
from meshloom.tb.studies.chip import fpga

from .made_rows import page_of

BOARDS = Path(__file__).parents[3] / "examples" / "boards"


def estimate(luts: int, delay: float) -> FpgaEstimate:
    parts = [("chip", luts), ("tile_1", luts // 2), ("tile_1.vector", 300), ("tile_1.tiny", 10), ("tile_1.a.b", 900)]
    path = TimedPath(delay=delay, cells=3, start="tile_1.mover.left", end="tile_0.port", through=("tile_1.mover",))
    return FpgaEstimate(
        cells={"LUT4": luts},
        parts=tuple(
            FpgaPart(name=name, luts=number, flip_flops=7, block_rams=2, multipliers=1) for name, number in parts
        ),
        paths=(path,),
    )


def test_the_chip_is_that_of_the_board() -> None:
    assert fpga.WHOLE.config == load(BOARDS / "fpga4.toml")
    assert fpga.LEAST.config == load(BOARDS / "fpga4_small.toml")
    assert fpga.LEAST_VECTOR.config.core == fpga.WHOLE.config.core
    assert fpga.UNTRACED.config.trace_records == 0
    assert fpga.QUAD.config == load(BOARDS / "fpga8_quad.toml")
    assert fpga.SMALL_PLACED.config == fpga.LEAST.config
    assert len({point.key for point in fpga.points(True)}) == 17


def test_a_page_says_what_traces_take_and_what_is_longest() -> None:
    layout = FpgaLayout(
        fmax=24.0,
        cells={name: Used(used=40_000, available=80_000) for name in ("TRELLIS_COMB", "MULT18X18D", "DP16KD")},
        path=(Hop(kind="clk-to-q", delay=1.0, cell="begin"), Hop(kind="setup", delay=40.66, cell="end")),
        parts=(),
    )
    rows = {
        fpga.WHOLE: estimate(44_000, 20.0), fpga.UNTRACED: estimate(33_000, 16.0), fpga.PLACED: layout,
        fpga.LEAST: estimate(22_000, 15.0),
    }  # fmt: skip
    page = page_of(fpga.STUDY, rows)
    chips, choices, parts, paths, placed = page.tables
    assert chips.rows[1] == ("fpga4, trace_records = 0", "33,000", "7", "2", "1", "62.5")
    assert chips.rows[2] == ("fpga4_small", "22,000", "7", "2", "1", "66.7")
    assert [row[0] for row in parts.rows] == ["the chip", "core tile", "core tile: vector"]
    assert parts.rows[0] == ("the chip", "44,000", "7", "2", "1", "33,000", "22,000")
    assert paths.rows == [("20.0", "3", "tile_1.mover.left", "tile_0.port", "tile_1.mover")]
    assert placed.rows == [
        ("fpga4 on ulx3s", "24.0", "40,000", "50.0 %", "40,000", "40,000", "begin", "end", "41.7"),
    ]
    assert choices.rows == [("trace_records = 0", "33,000", "11,000")]
    assert page.answer == (
        "fpga4 takes 44,000 LUT4, 25.0 % fewer without traces, and 22,000 without all that it may leave out; its "
        "longest path allows an estimated 50.0 MHz."
    )
    assert page.missed == [
        "LUT4 of fpga4: 44,000, not at most 40,000",
        "LUT4 of fpga4_small: 22,000, not at most 20,000",
        "MHz of fpga4, estimated: 50.0, not at least 54.0",
        "MHz of fpga4, placed and routed: 24.0, not at least 25.0",
    ]
