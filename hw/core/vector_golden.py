"""NumPy golden model of a VEC on word memories: the semantics of `hw.spec.isa.VectorOp`, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

import numpy as np
import numpy.typing as npt

from ..spec.config import ChipConfig
from ..spec.isa import (
    DIVIDEND_SHIFT,
    MOST_QUOTIENT,
    ROOT_SHIFT,
    SCALED_BIAS_WORDS,
    TABLE_BYTES,
    TWO_OPERANDS,
    Pair,
    VectorOp,
    YWalk,
)
from .golden import CoreMemories, multipliers, requantise

#: Operations whose results are not scaled.
EXACT = (VectorOp.MAX, VectorOp.ADD, VectorOp.TRANSPOSE, VectorOp.TABLE)


def taken(
    memory: npt.NDArray[np.generic], address: npt.NDArray[np.int64] | npt.NDArray[np.intp], name: str
) -> npt.NDArray[np.int32]:
    """Words of a memory as int32, (..., P). Raises IndexError with the name and the first address past the end."""
    past = address[address >= len(memory)]
    if past.size:
        raise IndexError(f"VEC reaches {name} word {past[0]}, {name} has {len(memory)}")
    return memory[address].astype(np.int32)


def windows(
    memory: npt.NDArray[np.generic], name: str, vec: Mapping[str, int]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """The words of x: (blocks, pixels, taps, P) int32, and which of them are inside the tile: (pixels, taps).

    Words of taps outside are word 0 of the memory. Raises IndexError when a word inside is past the memory.
    """
    pixel = np.arange(vec["pixels"]).reshape(-1, 1)
    ky, kx = (index.reshape(1, -1) for index in np.indices((vec["kernel_h"], vec["kernel_w"])))
    times = vec["repeat"] + 1
    row = pixel // vec["out_w"] // times * vec["stride_h"] + ky * vec["dilation"] - vec["pad_top"]
    column = pixel % vec["out_w"] // times * vec["stride_w"] + kx * vec["dilation"] - vec["pad_left"]
    inside = (column >= 0) & (column < vec["in_w"]) & (row >= 0) & (row * vec["in_w"] < vec["x_plane"])
    block = np.arange(vec["blocks"]).reshape(-1, 1, 1)
    address = vec["x_base"] + block * vec["x_plane"] + row * vec["in_w"] + column
    return taken(memory, np.where(inside, address, 0), name), inside


def transposed(x: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """(blocks, pixels, P) to (pixel blocks, blocks * P, P): [pixel block][block * P + lane][pixel], filled with 0."""
    blocks, pixels, lanes = x.shape
    filled = np.zeros((blocks, -(-pixels // lanes) * lanes, lanes), np.int32)
    filled[:, :pixels] = x
    return filled.reshape(blocks, -1, lanes, lanes).transpose(1, 0, 3, 2).reshape(-1, blocks * lanes, lanes)


def second(memories: CoreMemories, fields: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """The words of OUT that are y of an ADD or PAIR, (blocks, pixels, P). Raises IndexError past its end."""
    block, pixel = np.arange(fields["blocks"])[:, None], np.arange(fields["pixels"])
    place = {
        YWalk.EACH: block * fields["pixels"] + pixel,
        YWalk.BLOCK: np.broadcast_to(block, (len(block), len(pixel))),
        YWalk.PIXEL: np.broadcast_to(pixel, (len(block), len(pixel))),
    }[YWalk(fields["y_walk"])]
    return taken(memories.out, fields["y_base"] + place, "OUT")


def paired(pair: Pair, x: npt.NDArray[np.int32], y: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The function of a PAIR before requantisation and clamps, int32 of one shape."""
    if pair is Pair.MUL:
        return x * y
    if pair is Pair.MASK:
        return np.where(y > 0, x, 0)
    return (x == y).astype(np.int32) if pair is Pair.EQUAL else x - y


def whole(x: npt.NDArray[np.int32], fields: Mapping[str, int]) -> npt.NDArray[np.int8]:
    """The results of a `YWalk.WHOLE` for x (blocks, pixels, P), same shape."""
    op, pair, low = VectorOp(fields["op"]), Pair(fields["pair"]), 0 if fields["relu"] else -128
    sums = (x * x if op is VectorOp.MAC else x).sum(axis=1, keepdims=True, dtype=np.int32)
    if pair is Pair.SUBTRACT:
        if op is VectorOp.MAX:
            y = x.max(axis=1, keepdims=True)
        else:
            y = requantise(sums << 4 if fields["times16"] else sums, fields["scale"], relu=False, clamp=127)
        return np.clip(np.clip(x - y.astype(np.int32), -128, 127), low, fields["clamp"]).astype(np.int8)

    def quotient(total: int) -> int:
        divisor = isqrt(total << ROOT_SHIFT) if op is VectorOp.MAC and total > 0 else total
        return min(MOST_QUOTIENT, (fields["scale"] << DIVIDEND_SHIFT) // divisor) if divisor > 0 else MOST_QUOTIENT

    factors = np.array([quotient(int(total)) for total in sums.reshape(-1)], np.int64).reshape(sums.shape)
    return requantise(x << 4 if fields["times16"] else x, factors, bool(fields["relu"]), fields["clamp"])


def vec(config: ChipConfig, memories: CoreMemories, fields: Mapping[str, int]) -> None:
    """Executes one VEC in place.

    `fields`: all fields of the instruction body by name. Raises IndexError for an access past a memory, ValueError for
    an unknown `op`.
    """
    op = VectorOp(fields["op"])
    blocks = fields["blocks"]
    source, name = (memories.out, "OUT") if fields["x_out"] else (memories.a, "A")
    if op is VectorOp.REQUANT:
        source, name = memories.acc, "ACC"
    x, inside = windows(source, name, fields)
    x[:, ~inside] = -128 if op is VectorOp.MAX else 0
    if fields["y_walk"] == YWalk.WHOLE:
        words = whole(x[:, :, 0], fields).reshape(-1, config.lanes)
        _store(memories, fields["dest_base"], words)
        return
    if op is VectorOp.MAC:
        taps = x.shape[2]
        y = taken(memories.b, fields["y_base"] + np.arange(blocks * taps), "B")
        x *= y.reshape(blocks, 1, taps, config.lanes)
    result = x.max(axis=2) if op is VectorOp.MAX else x.sum(axis=2, dtype=np.int32)
    if op in TWO_OPERANDS:
        y = second(memories, fields)
        result = result + y if op is VectorOp.ADD else paired(Pair(fields["pair"]), result, y)
    if op is VectorOp.TABLE:
        words = np.arange(TABLE_BYTES // config.lanes)
        result = taken(memories.b, fields["y_base"] + words, "B").reshape(-1)[result + 128]
    if fields["addend"]:
        stride = SCALED_BIAS_WORDS if fields["by_channel"] else 1
        result += taken(memories.acc, fields["addend_base"] + stride * np.arange(blocks), "ACC")[:, None]
    if op is VectorOp.TRANSPOSE:
        result = transposed(result)
    if op in EXACT or (op is VectorOp.PAIR and fields["pair"] != Pair.MUL):
        words = np.clip(np.clip(result, -128, 127), 0 if fields["relu"] else -128, fields["clamp"]).astype(np.int8)
    else:
        sums = result << 4 if fields["times16"] else result
        scale: int | npt.NDArray[np.int64] = fields["scale"]
        if fields["by_channel"]:
            words_of = fields["scale"] + SCALED_BIAS_WORDS * np.arange(blocks)
            scale = multipliers(taken(memories.acc, words_of, "ACC"))[:, None]
        words = requantise(sums, scale, bool(fields["relu"]), fields["clamp"])
    _store(memories, fields["dest_base"], words.reshape(-1, config.lanes))


def _store(memories: CoreMemories, dest: int, words: npt.NDArray[np.int8]) -> None:
    """Writes results to VEC. Raises IndexError past its end."""
    if dest + len(words) > len(memories.vec):
        raise IndexError(f"VEC writes VEC words up to {dest + len(words)}, VEC has {len(memories.vec)}")
    memories.vec[dest : dest + len(words)] = words
