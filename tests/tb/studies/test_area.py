"""The study of what serving costs: tiles are counted as the floorplan has them. Nothing is synthesised here."""

from __future__ import annotations

from meshloom.hw.spec.config import TileKind
from meshloom.tb.build.synthesis import Area
from meshloom.tb.studies.chip import area
from meshloom.tb.studies.points.areas import AreaPoint, ChipArea, TileArea

from .made_rows import page_of


def test_all_tiles_are_those_of_the_floorplan() -> None:
    """Tiles of a hundred cells, ten more with programs, a thousand more in cores with counters."""

    def cells(point: AreaPoint) -> Area:
        assert isinstance(point, ChipArea)
        changes = dict(point.changes)
        core = isinstance(point, TileArea) and point.kind is TileKind.CORE
        return Area(100 + 10 * ("programs" in changes) + 1000 * ("counters" in changes and core), 5)

    page = page_of(area.STUDY, {point: cells(point) for point in area.points(True)})
    (table,) = page.tables
    rows = {(part, added): list(values) for part, added, *values in table.rows}
    assert rows["mover of a core", "programs"] == ["110", "5", "+10.0 %"]
    assert rows["all tiles", ""] == ["1,600", "80", ""]
    assert rows["all tiles", "programs, counters"] == ["10,760", "80", "+572.5 %"]
    assert page.texts == {"tiles": "+572.5 %", "host": "+10.0 %", "core": "+1010.0 %"}
