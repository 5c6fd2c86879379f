"""NumPy golden model of a GEMM on word memories: the semantics of docs/architecture/operations.md, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ..spec.config import ChipConfig
from ..spec.isa import INT4_SCALES, SCALE_SHIFT, SCALED_BIAS_WORDS, Addend
from ..spec.timing import weight_words


@dataclass
class CoreMemories:
    """The memories of a core; one row of each array is one word of `lanes` elements.

    `a` (a_words, P) int8, `b` (b_words, P) int8, `acc` (acc_words, P) int32, `out` (out_words, P) int8, `vec`
    (vec_words, P) int8.
    """

    a: npt.NDArray[np.int8]
    b: npt.NDArray[np.int8]
    acc: npt.NDArray[np.int32]
    out: npt.NDArray[np.int8]
    vec: npt.NDArray[np.int8]

    @classmethod
    def zeros(cls, config: ChipConfig) -> Self:
        """Memories as large as the chip's, all zero."""
        core, lanes = config.core, config.lanes
        return cls(
            np.zeros((core.a_words, lanes), np.int8),
            np.zeros((core.b_words, lanes), np.int8),
            np.zeros((core.acc_words, lanes), np.int32),
            np.zeros((core.out_words, lanes), np.int8),
            np.zeros((core.vec_words, lanes), np.int8),
        )

    def copy(self) -> CoreMemories:
        return CoreMemories(self.a.copy(), self.b.copy(), self.acc.copy(), self.out.copy(), self.vec.copy())


def requantise(
    acc: npt.NDArray[np.int32], scale: int | npt.NDArray[np.int64], relu: bool = False, clamp: int = 127
) -> npt.NDArray[np.int8]:
    """`clamp(sat8(RNE(acc * scale / 2^17)))`: int32 of any shape to int8 of the same shape.

    `scale` 0..65535, one or one for each; round half to even; clamped below at 0 if `relu`, above at `clamp` (0..127).
    """
    product = acc.astype(np.int64) * scale
    quotient = product >> SCALE_SHIFT
    remainder = product - (quotient << SCALE_SHIFT)
    half = 1 << (SCALE_SHIFT - 1)
    rounded = quotient + ((remainder > half) | ((remainder == half) & (quotient % 2 == 1)))
    return np.clip(np.clip(rounded, -128, 127), 0 if relu else -128, clamp).astype(np.int8)


def multipliers(words: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The multipliers, 0..65535, in words of ACC."""
    return words.astype(np.int64) & 0xFFFF


def unpacked(words: npt.NDArray[np.int8], cols: int) -> npt.NDArray[np.int8]:
    """Weights of an `int4` GEMM: [pairs * (INT4_SCALES + cols), P] int8 as it lies in B to [2 * pairs * cols, P]."""
    pairs = words.view(np.uint8).reshape(-1, INT4_SCALES + cols, words.shape[-1])
    scales, weights = pairs[:, 0, :cols, None], pairs[:, INT4_SCALES:]
    halves = [
        (((weights >> shift & 15) ^ 8).astype(np.int8) - np.int8(8)) * (scales >> shift & 15).astype(np.int8)
        for shift in (0, 4)
    ]
    return np.stack(halves, axis=1).reshape(-1, words.shape[-1])


def accumulate(config: ChipConfig, memories: CoreMemories, gemm: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Sums of a GEMM without its addend, (n_blocks, pixels, cols) int32, wrapping.

    `gemm` holds the instruction's fields by name. Raises IndexError for a read past A or B.
    """
    kernel_h, kernel_w, in_w, plane = gemm["kernel_h"], gemm["kernel_w"], gemm["in_w"], gemm["a_plane"]
    taps = gemm["k_blocks"] * kernel_h * kernel_w
    pixel = np.arange(gemm["pixels"])
    oy, ox = pixel // gemm["out_w"], pixel % gemm["out_w"]
    kb, ky, kx = (index.reshape(-1, 1) for index in np.indices((gemm["k_blocks"], kernel_h, kernel_w)))
    y_offset = (oy * gemm["stride_h"] + ky * gemm["dilation"] - gemm["pad_top"]) * in_w
    ix = ox * gemm["stride_w"] + kx * gemm["dilation"] - gemm["pad_left"]
    inside = (ix >= 0) & (ix < in_w) & (y_offset >= 0) & (y_offset < plane)
    address = np.where(inside, gemm["a_base"] + kb * plane + y_offset + ix, 0)
    words = memories.a[address].astype(np.int32) * inside[..., None]  # (K, pixels, P)

    count = gemm["n_blocks"] * weight_words(taps, config.cols, bool(gemm.get("int4")))
    if gemm["b_base"] + count > len(memories.b):
        raise IndexError(f"GEMM reads B words up to {gemm['b_base'] + count}, B has {len(memories.b)}")
    words_of_b = memories.b[gemm["b_base"] :][:count]
    if gemm.get("int4"):
        words_of_b = unpacked(words_of_b, config.cols)
    weights = words_of_b.astype(np.int32).reshape(gemm["n_blocks"], taps, config.cols, config.lanes)
    return np.einsum("kpl,bkcl->bpc", words, weights, dtype=np.int32, casting="same_kind")


def gemm(config: ChipConfig, memories: CoreMemories, fields: Mapping[str, int]) -> None:
    """Executes one GEMM in place, row by row in the order of the hardware.

    `fields`: all fields of the instruction body by name. Raises IndexError for an access past a memory.
    """
    stride = SCALED_BIAS_WORDS if fields["by_channel"] else 1
    sums = np.zeros((fields["n_blocks"], fields["pixels"], config.lanes), np.int32)
    sums[..., : config.cols] = accumulate(config, memories, fields)
    base, dest = fields["addend_base"], fields["dest_base"]
    for block in range(fields["n_blocks"]):
        for pixel in range(fields["pixels"]):
            at = block * fields["pixels"] + pixel
            row = sums[block, pixel].copy()
            if fields["addend"] == Addend.BIAS:
                row[: config.cols] += memories.acc[base + stride * block, : config.cols]
            elif fields["addend"] == Addend.PARTIAL:
                row[: config.cols] += memories.acc[base + at, : config.cols]
            if fields["to_acc"]:
                memories.acc[dest + at] = row
            else:
                scale: int | npt.NDArray[np.int64] = fields["scale"]
                if fields["by_channel"]:
                    scale = multipliers(memories.acc[fields["scale"] + stride * block])
                memories.out[dest + at] = requantise(row, scale, bool(fields["relu"]), fields["clamp"])
