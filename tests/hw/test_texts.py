"""What the description of the chip refuses, each with an input that provokes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.routes import decode
from meshloom.hw.spec.timing import noc_arrival


@pytest.mark.parametrize(
    ("provoke", "text"),
    [
        (lambda: decode((0, 7), 0x00, 2, 2), "route (0, 7) has an entry that is not 0..3"),
        (lambda: decode((0, 3), 0x02, 2, 2), "tile 0x02 is outside the 2x2 mesh; use y * 16 + x of one inside"),
        (lambda: noc_arrival(-1, 1), "a packet of 1 flits over -1 hops: give at least 1 flit, and 0 hops or more"),
        (lambda: noc_arrival(2, 0), "a packet of 0 flits over 2 hops: give at least 1 flit, and 0 hops or more"),
    ],
)
def test_impossible_numbers_are_refused(provoke: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"mesh|route|packet") as refused:
        provoke()
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("floorplan", "text"),
    [
        ('["dram host"]', 'floorplan has no "core" tile; every chip needs at least one'),
        ('["core host"]', 'floorplan has no "dram" tile; every chip needs at least one'),
        ('["dram core dtt", "host dtt core"]', 'floorplan has 2 "dtt" tiles; one controller orders everything'),
    ],
)
def test_floorplans_without_what_a_chip_needs_are_refused(floorplan: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nlanes = 4\nfloorplan = {floorplan}\n')
    with pytest.raises(ValueError, match="floorplan has") as refused:
        load(path)
    assert text in str(refused.value)
