"""The area of the chip of a run: what was measured of it before, or what is measured now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from meshloom.hw.spec.config import ChipConfig

from ..build.area import FLOW, chip_area, kept_area
from ..results.area import AreaFigures, AreaPart


def area_of(
    chip: ChipConfig, measure: bool, on_progress: Callable[[str], None] = lambda what: None
) -> AreaFigures | None:
    """The estimate for a chip; None if it is not known yet and is not to be measured now, which takes minutes. Raises
    BuildError if synthesis fails."""
    area = chip_area(chip, on_progress) if measure else kept_area(chip)
    if area is None:
        return None
    parts = tuple(AreaPart(**asdict(part)) for part in area.parts)
    return AreaFigures(
        flow=FLOW,
        tools=area.tools,
        cells=sum(part.count * part.cells for part in parts),
        flip_flops=sum(part.count * part.flip_flops for part in parts),
        memory_bits=sum(part.count * part.memory_bits for part in parts),
        parts=parts,
    )
