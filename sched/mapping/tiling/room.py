"""Whether a layer fits a chip's DRAM at all: checked before a search, or anything of that size is allocated."""

from __future__ import annotations

from math import prod

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig

from ...program.program import ample_words
from ...workload.layers import ConvShape
from .problem import DoesNotFit


def least_bytes(shape: ConvShape) -> int:
    """Bytes of a layer's input, weights, biases and output, without what layouts add."""
    return prod(shape.x_shape) + prod(shape.w_shape) + 4 * shape.out_channels + prod(shape.y_shape)


def size_text(size: int) -> str:
    """A number of bytes for people: `65,536 bytes`, from a mebibyte on `1.5 MiB`."""
    return f"{size / 2**20:,.1f} MiB" if size >= 1 << 20 else f"{size:,} bytes"


def dram_fix(size: int, chip: ChipConfig) -> str:
    """What to do about tensors of `size` bytes that DRAM cannot hold: words of each tile for these, and as many for
    what is not known before there is a schedule: padding, what lies between layers, programs."""
    least = -(-size // (chip.lanes * len(chip.drams)))
    if least > 1 << OFFSET_BITS:
        return "take a smaller one"
    words = ample_words(2 * least)
    return f"give the chip's [dram] words = {words} (--set dram.words={words})"


def check_room(shape: ConvShape, chip: ChipConfig) -> None:
    """Raises DoesNotFit for a layer whose tensors are larger than all DRAM of the chip.

    One that passes may still be too large, with its padding and programs: schedulers find that.
    """
    need, have = least_bytes(shape), len(chip.drams) * chip.dram.words * chip.lanes
    if need <= have:
        return
    raise DoesNotFit(
        f"layer {shape.name} is too big for chip {chip.name}: its tensors take {size_text(need)}, the DRAM "
        f"has {size_text(have)}; {dram_fix(need, chip)}"
    )
