"""What the model says of an instruction."""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.hw.isa import Opcode, Unit


@dataclass(frozen=True)
class Executed:
    """One instruction as one unit executed it; `wait` and the cycles as in a trace record (`hw.isa.TRACE`)."""

    tile: int
    unit: Unit
    opcode: Opcode
    tag: int
    wait: int
    start: int
    end: int
