"""What a chip takes, estimated, as data."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from .record import Count, Record


class AreaTotals(Record):
    """An estimate of a chip's size: generic `cells` (two-input gates, multiplexers and flip-flops), the `flip_flops`
    among them, and the bits of its memories, which are not mapped. `flow`: what they were counted by; `tools`: its
    versions. Wires and macros have no area in it, and nothing is placed."""

    flow: str
    tools: str
    cells: Count
    flip_flops: Count
    memory_bits: Count


class AreaPart(Record):
    """A part of a chip, `count` times; the other numbers are those of one."""

    name: str
    count: Annotated[int, Field(ge=1)]
    cells: Count
    flip_flops: Count
    memory_bits: Count


class AreaFigures(AreaTotals):
    """The same by `parts`, largest first: kinds of tiles (cores without the blocks of their arrays), such blocks, and
    the planes of the NoC. They add up to the totals."""

    parts: tuple[AreaPart, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("cells", "flip_flops", "memory_bits"):
            if getattr(self, name) != (whole := sum(part.count * getattr(part, name) for part in self.parts)):
                raise ValueError(f"{name} = {getattr(self, name)} is not {whole}, the sum over the parts")
        return self

    @property
    def totals(self) -> AreaTotals:
        """Without the parts."""
        return AreaTotals(**{name: getattr(self, name) for name in AreaTotals.model_fields})
