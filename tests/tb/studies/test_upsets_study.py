"""The page of flips: shares by kind and by block."""

from __future__ import annotations

from meshloom.hw.spec.config import TileKind
from meshloom.tb.build.synthesis import Area
from meshloom.tb.studies.chip.upsets import CHIP, CODED, FLIPS, STUDY, Flipped, UpsetPoint, points
from meshloom.tb.studies.points.areas import TileArea
from meshloom.tb.verify.upsets import FlipPlace, Outcome

from .made_rows import page_of


def test_points_of_both_kinds() -> None:
    quick, full = points(False), points(True)
    used = [UpsetPoint(CHIP, FlipPlace.USED, 0, coded) for coded in (False, True)]
    assert quick[:4] == [UpsetPoint(CHIP, FlipPlace.REGISTERS, 0), UpsetPoint(CHIP, FlipPlace.MEMORIES, 0), *used]
    assert {type(point) for point in quick[4:]} == {TileArea}
    assert set(quick) <= set(full)
    assert FLIPS * len(full) > 5_000
    assert (used[0].config.ecc, used[1].config.ecc) == (False, True)


def test_shares_by_kind_and_blocks_with_most_silent_flips_first() -> None:
    rows = {
        UpsetPoint(CHIP, FlipPlace.REGISTERS, 0): Flipped(
            100, {"router": {"HARMLESS": 6, "NAMED": 2}, "drain": {"SILENT": 2}}
        ),
        UpsetPoint(CHIP, FlipPlace.REGISTERS, 1): Flipped(
            100, {"router": {"LATE": 6}, "drain": {"STOPPED": 3, "BROKEN": 1}}
        ),
        UpsetPoint(CHIP, FlipPlace.MEMORIES, 0): Flipped(900, {"memory bank": {"HARMLESS": 10}}),
    }
    page = page_of(STUDY, rows)
    assert page.texts["flips"] == "30"
    assert (page.texts["registers_silent"], page.texts["memories_silent"]) == ("10.0 %", "0.0 %")
    assert (page.texts["registers_noticed"], page.texts["registers_named"]) == ("60.0 %", "10.0 %")
    kinds, _, blocks = page.tables
    assert [row[0] for row in kinds.rows] == ["registers", "memories"]
    assert kinds.rows[0][1:] == ("20", "30.0 %", "0.0 %", "10.0 %", "15.0 %", "5.0 %", "30.0 %", "10.0 %")
    assert len(kinds.rows[0]) == 2 + len(Outcome)
    assert [row[0] for row in blocks.rows] == ["drain", "router", "memory bank"]


def test_a_code_beside_none() -> None:
    tiles = {changes: TileArea(TileKind.SPM, CHIP, changes) for changes in ((), CODED)}
    rows = {
        UpsetPoint(CHIP, FlipPlace.USED, 0): Flipped(100, {"memory bank": {"HARMLESS": 9, "SILENT": 1}}),
        UpsetPoint(CHIP, FlipPlace.USED, 0, True): Flipped(120, {"memory bank": {"HARMLESS": 8, "CORRECTED": 2}}),
        tiles[()]: Area(1_000, 100),
        tiles[CODED]: Area(1_250, 110),
    }
    page = page_of(STUDY, rows)
    assert (page.texts["used_silent"], page.texts["coded_silent"], page.texts["coded_corrected"]) == (
        "10.0 %", "0.0 %", "20.0 %",
    )  # fmt: skip
    kinds, area, words, blocks = page.tables
    assert [row[:2] for row in kinds.rows] == [("words in use", "10"), ("words in use, chip with `ecc`", "10")]
    assert list(area.rows) == [("spm tile", "1,000", "1,250", "+25.0 %")]
    assert words.rows[1] == ("8", "64", "8", "+12.5 %")
    assert blocks.rows[0][1] == "10", "of the chip without a code"
