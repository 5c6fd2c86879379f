"""Rows and table of busy parts, from snapshots of counters."""

from __future__ import annotations

import io

import pytest
from pydantic import ValidationError
from rich.console import Console

from meshloom.hw.spec.config import TileKind, load
from meshloom.hw.spec.registers import Counted
from meshloom.sched.model.busy import Snapshot
from meshloom.tb.report.busy import print_busy
from meshloom.tb.results.busy import BusyRow, busiest_link, counters_of

CHIP = load("lp9")


def snapshots(**busy: int) -> dict[Counted, Snapshot]:
    """Counters of 1000 cycles, each alike in all tiles but one more at (1,1)."""
    return {one: Snapshot(1000, {tile: busy.get(one.name, 0) + (tile == 17) for tile in CHIP.tiles}) for one in Counted}


def test_each_tile_has_a_row_for_each_part_that_it_has() -> None:
    rows = counters_of(CHIP, snapshots(MATRIX=500, EAST=7))
    assert list(dict.fromkeys(row.tile for row in rows)) == list(CHIP.tiles)
    parts = {tile: [row.part for row in rows if row.tile == tile] for tile in CHIP.tiles}
    assert parts[0] == ["mover", "dram_read", "dram_write", "east", "south", "local"]  # a corner
    assert parts[17] == ["mover", "matrix", "vector", "north", "east", "south", "west", "local"]
    assert parts[CHIP.host] == ["mover", "north", "east", "west", "local"]
    core = next(row for row in rows if (row.tile, row.part) == (17, "matrix"))
    assert (core.kind, core.busy, core.cycles, core.share) == ("core", 501, 1000, 0.501)
    link = busiest_link(rows)
    assert link is not None
    assert (link.tile, link.part, link.busy) == (17, "east", 8)
    assert BusyRow.model_validate_json(core.model_dump_json()) == core


def test_no_part_is_busy_for_longer_than_the_run() -> None:
    with pytest.raises(ValidationError, match="matrix of tile 0x11: busy in 1001 of 1000 cycles"):
        BusyRow(tile=17, kind=TileKind.CORE.value, part="matrix", busy=1001, cycles=1000)


def test_the_table_shows_means_and_the_busiest() -> None:
    out = io.StringIO()
    print_busy(counters_of(CHIP, snapshots(MATRIX=499, DRAM_READ=200, DRAM_WRITE=100, WEST=90)), Console(file=out))
    lines = {line.split("│")[1].strip(): line.split("│")[2:] for line in out.getvalue().splitlines() if "│" in line}
    cells = {name: [cell.strip() for cell in texts] for name, texts in lines.items()}
    assert cells["arrays"][:3] == ["49.9 %", "50.0 %", "(1,1)"]
    assert cells["DRAM channels"][:2] == ["30.0 %", "30.0 %"]
    assert cells["links"][1:3] == ["9.1 %", "(1,1) west"]
    assert "the busiest link carried 91 flits in 1,000 cycles" in out.getvalue()


def test_a_run_of_no_cycles_has_no_shares() -> None:
    rows = counters_of(CHIP, {one: Snapshot(0, dict.fromkeys(CHIP.tiles, 0)) for one in Counted})
    assert {row.share for row in rows} == {0.0}
    print_busy(rows, Console(file=io.StringIO()))
