"""Exact cycle counts of the core's units, as plain arithmetic; the gateware is tested against them, 0 cycles off."""

from __future__ import annotations

from dataclasses import dataclass

from .config import ChipConfig

#: Cycles from the acceptance of a GEMM by an idle matrix unit to its first operand address.
GEMM_ISSUE_CYCLES = 2
#: Pipeline between the last operand address slot and the end: memory read, word register, operand register, store of
#: the sum, addend, scale, write = 7 cycles; less 2 because `gemm_tail` counts rows and columns from one.
_GEMM_PIPELINE = 5


@dataclass(frozen=True)
class GemmShape:
    """What the length of a GEMM depends on; the fields are those of the instruction, all >= 1."""

    pixels: int
    n_blocks: int = 1
    k_blocks: int = 1
    kernel_h: int = 1
    kernel_w: int = 1

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if value < 1:
                raise ValueError(f"GEMM {field} = {value} must be at least 1")

    @property
    def taps(self) -> int:
        """K: windows of one fold."""
        return self.k_blocks * self.kernel_h * self.kernel_w


def gemm_folds(config: ChipConfig, shape: GemmShape) -> int:
    """Folds: n blocks x groups of `rows` pixels."""
    return shape.n_blocks * -(-shape.pixels // config.rows)


def gemm_occupancy(config: ChipConfig, shape: GemmShape) -> int:
    """Cycles for which a GEMM keeps the operand readers: folds x K windows of `lanes` cycles."""
    return gemm_folds(config, shape) * shape.taps * config.lanes


def gemm_tail(config: ChipConfig, pixels: int) -> int:
    """Cycles from the last operand address slot of a GEMM to its end; the next GEMM's windows run meanwhile."""
    last_rows = (pixels - 1) % config.rows + 1
    return config.cols + last_rows + _GEMM_PIPELINE + int(config.product_register)


def gemm_cycles(config: ChipConfig, shape: GemmShape) -> int:
    """`end - start` of a GEMM: first operand address to the cycle after its last row was written."""
    return gemm_occupancy(config, shape) + gemm_tail(config, shape.pixels)


def gemm_start(config: ChipConfig, accepted: int, previous_start: int | None, previous: GemmShape | None) -> int:
    """Start of a GEMM accepted in cycle `accepted`, after the GEMM `previous` that started at `previous_start`.

    It starts `GEMM_ISSUE_CYCLES` later, or as soon as the readers are free. So it follows the one before without a
    bubble if `accepted <= previous_start + gemm_occupancy(previous) - GEMM_ISSUE_CYCLES`.
    """
    earliest = accepted + GEMM_ISSUE_CYCLES
    if previous_start is None or previous is None:
        return earliest
    return max(earliest, previous_start + gemm_occupancy(config, previous))
