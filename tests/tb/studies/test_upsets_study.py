"""The page of flips: shares by kind and by block."""

from __future__ import annotations

from meshloom.tb.studies.chip.upsets import CHIP, FLIPS, STUDY, Flipped, UpsetPoint, points
from meshloom.tb.verify.upsets import Outcome

from .made_rows import page_of


def test_points_of_both_kinds() -> None:
    quick, full = points(False), points(True)
    assert quick == [UpsetPoint(CHIP, "registers", 0), UpsetPoint(CHIP, "memories", 0)]
    assert set(quick) <= set(full)
    assert FLIPS * len(full) > 5_000


def test_shares_by_kind_and_blocks_with_most_silent_flips_first() -> None:
    rows = {
        UpsetPoint(CHIP, "registers", 0): Flipped(100, {"router": {"HARMLESS": 6, "NAMED": 2}, "drain": {"SILENT": 2}}),
        UpsetPoint(CHIP, "registers", 1): Flipped(100, {"router": {"LATE": 6}, "drain": {"STOPPED": 3, "BROKEN": 1}}),
        UpsetPoint(CHIP, "memories", 0): Flipped(900, {"memory bank": {"HARMLESS": 10}}),
    }
    page = page_of(STUDY, rows)
    assert page.texts["flips"] == "30"
    assert (page.texts["registers_silent"], page.texts["memories_silent"]) == ("10.0 %", "0.0 %")
    assert (page.texts["registers_noticed"], page.texts["registers_named"]) == ("60.0 %", "10.0 %")
    kinds, blocks = page.tables
    assert [row[0] for row in kinds.rows] == ["registers", "memories"]
    assert kinds.rows[0][1:] == ("20", "30.0 %", "10.0 %", "15.0 %", "5.0 %", "30.0 %", "10.0 %")
    assert len(kinds.rows[0]) == 2 + len(Outcome)
    assert [row[0] for row in blocks.rows] == ["drain", "router", "memory bank"]
