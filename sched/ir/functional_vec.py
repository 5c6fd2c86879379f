"""The results of a VEC, in NumPy, and the requantisation that both units of a core share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import (
    DIVIDEND_SHIFT,
    MOST_QUOTIENT,
    ROOT_SHIFT,
    SCALE_SHIFT,
    TWO_OPERANDS,
    Pair,
    VectorOp,
    YWalk,
)

from .schedule import Vec

#: Words gathered at once.
_CHUNK = 1 << 15
#: What taps outside of the tile count as, and for a maximum.
_NOTHING = (np.int8(0), np.int8(-128))


def requantise(sums: NDArray[np.int32], scale: int | NDArray[np.int64], relu: int, clamp: int) -> NDArray[np.int8]:
    """sat8(RNE(sums * scale / 2^17)), then clamped below at 0 if `relu`, above at `clamp`; same shape."""
    product = sums.astype(np.int64) * scale
    floor = product >> SCALE_SHIFT
    rest = product & ((1 << SCALE_SHIFT) - 1)
    half = 1 << (SCALE_SHIFT - 1)
    rounded = floor + ((rest > half) | ((rest == half) & (floor & 1 == 1)))
    return np.clip(rounded, 0 if relu else -128, min(clamp, 127)).astype(np.int8)


def multipliers(words: NDArray[np.int32]) -> NDArray[np.int64]:
    """The multipliers, 0..65535, that words of ACC hold."""
    return words.astype(np.int64) & ((1 << 16) - 1)


def vector(
    op: Vec,
    x: NDArray[Any],
    y: NDArray[np.int8] | None = None,
    bias: NDArray[np.int32] | None = None,
    scales: NDArray[np.int64] | None = None,
) -> NDArray[np.int8]:
    """The words that a VEC writes from `dest_base` on, int8 [words, P].

    `x`: the memory that `op.x_region` names, int8 [words, P] (REQUANT: int32 [acc words, P]). `y`: MAC, the filters
    [block * tap, P]; ADD and PAIR, the other operand [block * pixel, P], [block, P] or [pixel, P] (`y_walk`); TABLE,
    the table [256 / P, P]. `bias`: [block, P], if `addend`; `scales`: [block, P], if `by_channel`.
    """
    kind, blocks, pixels, lanes = op["op"], op["blocks"], op["pixels"], x.shape[1]
    where, inside = _windows(op)
    if kind == VectorOp.TRANSPOSE:
        groups = -(-pixels // lanes)
        words = np.zeros((blocks, groups * lanes, lanes), np.int8)
        words[:, :pixels] = np.where(inside[0, :, None], x[where[:, 0]], np.int8(0))
        flat = words.reshape(blocks, groups, lanes, lanes).transpose(1, 0, 3, 2).reshape(-1, lanes)
        return np.clip(flat, 0 if op["relu"] else -128, op["clamp"])
    if op.whole:
        return _whole(op, np.where(inside[0, :, None], x[where[:, 0]], _NOTHING[kind == VectorOp.MAX]))
    if kind == VectorOp.MAX:
        sums = _folded(np.maximum, -128, x, where, inside, None)
    else:
        filters = y.reshape(blocks, op.taps, lanes) if kind == VectorOp.MAC and y is not None else None
        sums = _folded(np.add, 0, x, where, inside, filters)
    if kind in TWO_OPERANDS and y is not None:
        shape = {YWalk.EACH: (blocks, pixels), YWalk.BLOCK: (blocks, 1), YWalk.PIXEL: (1, pixels)}[YWalk(op["y_walk"])]
        second = y.reshape(*shape, lanes).astype(np.int32)
        sums = sums + second if kind == VectorOp.ADD else _paired(Pair(op["pair"]), sums, second)
    if kind == VectorOp.TABLE and y is not None:
        sums = y.reshape(-1)[sums + 128].astype(np.int32)
    if bias is not None:
        sums += bias[:, None]
    sums = sums.reshape(blocks * pixels, lanes)
    if not op.requantises:
        return np.clip(np.clip(sums, -128, 127), 0 if op["relu"] else -128, op["clamp"]).astype(np.int8)
    scale = op["scale"] if scales is None else scales.repeat(pixels, axis=0)
    return requantise(sums << 4 if op["times16"] else sums, scale, op["relu"], op["clamp"])


def _whole(op: Vec, x: NDArray[Any]) -> NDArray[np.int8]:
    """`YWalk.WHOLE`: x [block, pixel, P] with what the operation makes of each block."""
    x = x.astype(np.int32)
    lanes = x.shape[-1]
    if op["op"] == VectorOp.MAX:
        results = x - np.max(x, axis=1, keepdims=True)
    else:
        terms = x * x if op["op"] == VectorOp.MAC else x
        sums = terms.sum(axis=1, keepdims=True, dtype=np.int32)
        if op["pair"] == Pair.MUL:
            return requantise(_times(op, x), _quotients(op, sums), op["relu"], op["clamp"]).reshape(-1, lanes)
        results = x - requantise(_times(op, sums), op["scale"], 0, 127)
    return (
        np.clip(np.clip(results, -128, 127), 0 if op["relu"] else -128, op["clamp"]).astype(np.int8).reshape(-1, lanes)
    )


def _times(op: Vec, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    return numbers << 4 if op["times16"] else numbers


def _quotients(op: Vec, sums: NDArray[np.int32]) -> NDArray[np.int64]:
    """What x is multiplied by, for sums of any shape."""
    divisors = np.maximum(sums, 0).astype(np.int64)
    if op["op"] == VectorOp.MAC:
        squares = divisors << ROOT_SHIFT
        divisors = np.sqrt(squares).astype(np.int64)  # below 2^39: off by one at most
        divisors -= divisors**2 > squares
        divisors += (divisors + 1) ** 2 <= squares
    quotients = (op["scale"] << DIVIDEND_SHIFT) // np.maximum(divisors, 1)
    return np.where(divisors > 0, np.minimum(quotients, MOST_QUOTIENT), MOST_QUOTIENT)


def _paired(pair: Pair, x: NDArray[np.int32], y: NDArray[np.int32]) -> NDArray[np.int32]:
    """What a PAIR makes of x [block, pixel, P] and a y that broadcasts to it, before it is requantised."""
    match pair:
        case Pair.MUL:
            return x * y
        case Pair.MASK:
            return np.where(y > 0, x, 0)
        case Pair.EQUAL:
            return (x == y).astype(np.int32)
        case Pair.SUBTRACT:
            return x - y


def _windows(op: Vec) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Words of x under each tap, [block, tap, pixel] (word 0 if outside), and which are inside, [tap, pixel]."""
    ky, kx = np.divmod(np.arange(op.taps)[:, None], op["kernel_w"])
    oy, ox = np.divmod(np.arange(op["pixels"]), op["out_w"])
    oy, ox = oy // (op["repeat"] + 1), ox // (op["repeat"] + 1)
    iy = oy * op["stride_h"] + ky * op["dilation"] - op["pad_top"]
    ix = ox * op["stride_w"] + kx * op["dilation"] - op["pad_left"]
    inside = (ix >= 0) & (ix < op["in_w"]) & (iy >= 0) & (iy * op["in_w"] < op["x_plane"])
    first = op["x_base"] + op["x_plane"] * np.arange(op["blocks"])[:, None, None]
    return np.where(inside, first + iy * op["in_w"] + ix, 0), inside


def _folded(
    fold: np.ufunc,
    nothing: int,
    x: NDArray[Any],
    where: NDArray[np.intp],
    inside: NDArray[np.bool_],
    filters: NDArray[np.int8] | None,
) -> NDArray[np.int32]:
    """Folds the taps of each pixel into one word, int32 [block, pixel, P], wrapping; with filters [block, tap, P] each
    tap is first multiplied by its filter. Taps outside count as `nothing`."""
    blocks, taps, pixels = where.shape
    folds = np.full((blocks, pixels, x.shape[1]), nothing, np.int32)
    step = max(1, _CHUNK // (blocks * pixels))
    for at in range(0, taps, step):
        part = slice(at, at + step)
        words = x[where[:, part]].astype(np.int32)
        if filters is not None:
            words *= filters[:, part, None]
        if not inside[part].all():
            words[:, ~inside[part]] = nothing
        fold(folds, fold.reduce(words, axis=1), out=folds, casting="unsafe")
    return folds
