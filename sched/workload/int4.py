"""Weights of four bits with a scale for each group of input channels, on chips whose cores have `core.int4`.

A weight is an integer of -8..7 times the scale of its group, an integer of 1..15. Both are below the usual scale of a
layer or filter, so the products are those of int8 (QServe: W4A8KV4 Quantization and System Co-design for Efficient LLM
Serving, Lin et al., 2024, section 4.1: progressive group quantisation, there with zero points). The sums, and whatever
computes them, do not know that DRAM and B hold half as many bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INT4_SCALES

#: What four bits hold, and the scales of a group.
LEAST, MOST = -8, 7
SCALES = range(1, 16)
#: The largest weight of either sign that the rounding below makes.
LARGEST = MOST * SCALES[-1]
#: Input channels of a group, unless it is said otherwise: those of a word of the widest chips that share a scale.
GROUP = 32


def in_groups(weights: NDArray[np.float64], group: int = GROUP) -> NDArray[np.int8]:
    """The nearest weights that four bits and a scale for each group can say, int8 of the same shape.

    `weights`: [outputs, inputs, ...], in units of the result's 1, of which LARGEST is the largest. Each run of `group`
    inputs of one output (and of one tap of a kernel) has the scale with the least sum of squared errors.
    """
    outputs, inputs = weights.shape[:2]
    rows = np.zeros((outputs, -(-inputs // group) * group, *weights.shape[2:]))
    rows[:, :inputs] = weights
    groups = rows.reshape(outputs, -1, group, *weights.shape[2:])
    best, least = np.zeros_like(groups), np.full((groups.shape[0], groups.shape[1], 1, *groups.shape[3:]), np.inf)
    for scale in SCALES:
        rounded = np.clip(np.rint(groups / scale), LEAST, MOST) * scale
        error = np.square(rounded - groups).sum(axis=2, keepdims=True)
        best, least = np.where(error < least, rounded, best), np.minimum(error, least)
    return np.ascontiguousarray(best.reshape(rows.shape)[:, :inputs].astype(np.int8))


def scales_of(groups: NDArray[np.int8]) -> NDArray[np.uint8]:
    """The largest scale that says each group, uint8 [...]; 0 for one that none does. `groups`: int8 [..., members]."""
    scales = np.zeros(groups.shape[:-1], np.uint8)
    for scale in SCALES:
        fits = (groups % scale == 0) & (groups >= LEAST * scale) & (groups <= MOST * scale)
        scales[fits.all(axis=-1)] = scale
    return scales


def packed(weights: NDArray[np.int8]) -> NDArray[np.uint8]:
    """The words of B, uint8 [n blocks * pairs * (1 + columns), P], of weights int8 [n blocks, windows, columns, P].

    Raises ValueError for an odd number of windows, and where a window has a column that no scale says.
    """
    blocks, windows, columns, lanes = weights.shape
    if windows % 2:
        raise ValueError(f"{windows} windows; weights of four bits lie in pairs of windows")
    scales = scales_of(weights)
    if not scales.all():
        block, window, column = np.argwhere(scales == 0)[0].tolist()
        raise ValueError(
            f"no scale of 1..{SCALES[-1]} says the weights of output channel {block * columns + column} in window "
            f"{window}: they must be {LEAST}..{MOST} times it"
        )
    nibbles = (weights // scales[..., None].astype(np.int8)).view(np.uint8) & 15
    words = np.zeros((blocks, windows // 2, INT4_SCALES + columns, lanes), np.uint8)
    words[:, :, 0, :columns] = scales[:, ::2] | scales[:, 1::2] << 4
    words[:, :, INT4_SCALES:] = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    return words.reshape(-1, lanes)


def unpacked(words: NDArray[np.int8], columns: int) -> NDArray[np.int8]:
    """What `packed` was given, int8 [n blocks * windows * columns, P]."""
    pairs = words.view(np.uint8).reshape(-1, INT4_SCALES + columns, words.shape[-1])
    weights = np.zeros((len(pairs), 2, columns, words.shape[-1]), np.int8)
    for half in range(2):
        nibbles = (pairs[:, INT4_SCALES:] >> 4 * half & 15).astype(np.int16)
        scales = pairs[:, 0, :columns, None] >> 4 * half & 15
        weights[:, half] = (nibbles - 16 * (nibbles > MOST)) * scales
    return weights.reshape(-1, words.shape[-1])
