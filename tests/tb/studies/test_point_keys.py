"""Rows of points are those of their gateware, chip and tools: others have another key."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.spec.config import TileKind
from meshloom.tb.studies.chip import gemm
from meshloom.tb.studies.chip.channel_scales import ScaleArea
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.networks import files, operators
from meshloom.tb.studies.networks.models import CountedChunk, SimulatedChunk
from meshloom.tb.studies.points import areas, runs
from meshloom.tb.studies.points.areas import RouterArea, TileArea, UnitArea
from meshloom.tb.studies.points.runs import RunPoint

from .made_rows import rows_of


@pytest.mark.parametrize(
    ("module", "point"),
    [
        (gemm, gemm.GemmPoint("tiny")),
        (files, files.FilePoint("alexa")),
        (operators, operators.NodeTestPoint("Add", "test_add")),
        (areas, RouterArea(2)),
        (areas, ScaleArea("lane")),
        (areas, TileArea(TileKind.CORE, "tiny")),
        (runs, RunPoint("tiny", "gemm:8x8x8")),
        (runs, SimulatedChunk("tiny", 0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_gateware_is_another_row(module: Any, point: Point, monkeypatch: pytest.MonkeyPatch) -> None:
    before = point.key
    monkeypatch.setattr(module, "gateware", lambda *_: "other")
    assert point.key != before


def test_other_chips_are_other_rows() -> None:
    changes = (("core.vec_windows", 1),)
    some = [UnitArea("vector", "tiny"), UnitArea("vector", "tiny", changes), UnitArea("matrix", "tiny")]
    some += [UnitArea("vector", "quad8")]
    assert len({point.key for point in some}) == len({point.name for point in some}) == len(some)
    assert CountedChunk("tiny", 0).key != CountedChunk("tiny", 1).key != CountedChunk("quad8", 1).key


def test_rows_come_with_points_of_their_kind() -> None:
    one, other = RunPoint("tiny", "a"), UnitArea("vector", "tiny")
    rows = rows_of({one: 1, other: 2}, errors={RunPoint("tiny", "b"): "too large"})
    assert rows.pairs(RunPoint) == [(one, 1)]
    assert rows.pairs(UnitArea) == [(other, 2)]
