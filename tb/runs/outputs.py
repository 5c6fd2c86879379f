"""What a run must leave in DRAM, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.sched.ir.schedule import Schedule, Tensor


class Location(NamedTuple):
    """`words` words from word `address` of a DRAM channel (its number, in floorplan order) on."""

    channel: int
    address: int
    words: int


@dataclass(frozen=True, eq=False)
class OutputWords:
    """An output tensor: its words one after the other, uint8 [n, P], and where they stand. `compared`: the bytes that
    count, bool [n, P]."""

    name: str
    locations: tuple[Location, ...]
    words: NDArray[np.uint8]
    compared: NDArray[np.bool_]


def locations(tensor: Tensor, chip: ChipConfig) -> tuple[Location, ...]:
    """Where a tensor stands."""
    within = (1 << OFFSET_BITS) - 1
    return tuple(
        Location(chip.channels.index(piece.tile), piece.address & within, piece.words) for piece in tensor.pieces
    )


def packed(schedule: Schedule, golden: Callable[[str], NDArray[Any]], chip: ChipConfig) -> list[OutputWords]:
    """The outputs of a schedule, of which `golden` says what they must be. Lanes without a channel must be zero."""
    outputs: list[OutputWords] = []
    for tensor in schedule.tensors:
        if tensor.role == "output":
            words = tensor.layout.pack(golden(tensor.name), chip.lanes)
            outputs.append(
                OutputWords(tensor.name, locations(tensor, chip), words, np.ones_like(words, dtype=np.bool_))
            )
    return outputs
