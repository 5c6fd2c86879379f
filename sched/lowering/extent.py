"""How far a schedule reaches into DRAM: its program lies behind that."""

from __future__ import annotations

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig

from ..ir.schedule import Move, Schedule, intervals

_OFFSET = (1 << OFFSET_BITS) - 1


def dram_ends(schedule: Schedule, chip: ChipConfig) -> dict[int, int]:
    """First word of each DRAM tile, that of a controller's code among them, after everything that tensors and
    operations use."""
    ends = dict.fromkeys(chip.channels, 0)
    for tensor in schedule.tensors:
        for piece in tensor.pieces:
            ends[piece.tile] = max(ends[piece.tile], (piece.address & _OFFSET) + piece.words)
    for op in schedule.operations:
        if not isinstance(op, Move):
            continue
        for span in (op.src, op.dst):
            if span.tile in ends:
                ends[span.tile] = max(ends[span.tile], intervals(span, op.words)[-1][1])
    return ends
