"""The study of scales by channel: its tables and figures. Nothing is synthesised or rounded here."""

from __future__ import annotations

from typing import Any

from meshloom.tb.build.synthesis import Area
from meshloom.tb.studies.chip import channel_scales
from meshloom.tb.studies.chip.channel_scales import NoisePoint, ScaleArea, unit_of
from meshloom.tb.studies.chip.rounding import Noise

from .made_rows import page_of


def test_gains_and_cells() -> None:
    known: dict[Any, Any] = {
        NoisePoint("alexa"): Noise(20.0, 25.0, 26.0, 27.0, 35.0),
        ScaleArea("instruction"): Area(1000, 50),
        ScaleArea("lane"): Area(1100, 80),
        unit_of("vector", False): Area(2000, 100),
        unit_of("vector", True): Area(2300, 130),
    }
    page = page_of(channel_scales.STUDY, known)
    noises, lanes, built = page.tables
    assert noises.rows == [("alexa", "20.0 dB", "25.0 dB", "26.0 dB", "27.0 dB", "35.0 dB")]
    assert [row[3] for row in lanes.rows] == ["", "+10.0 %"]
    assert built.rows == [("vector unit, 4 lanes", "2,000", "2,300", "+15.0 %", "+30")]
    assert page.texts == {"channel": "10.0", "shifted": "2.0", "vector": "+15.0 %", "drain": "-"}
    assert unit_of("drain", True).config.core.channel_scales != unit_of("drain", False).config.core.channel_scales
