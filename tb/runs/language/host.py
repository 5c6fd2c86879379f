"""What the host takes between two programs."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig


def least_wait(chip: ChipConfig) -> int:
    """Cycles from the end of a program to the launch of the next, if the host takes none to decide: reading and writing
    registers, as many as `meshloom serve` counts."""
    return 128 + 48 * len(chip.cores)
