"""Executes a Schedule in NumPy, one operation after the other, bit for bit, without hardware or time.

This defines the meaning of a schedule: however the chip runs it, its memories must end up like these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.hw.spec.isa import SCALED_BIAS_WORDS, Addend, Region, VectorOp

from ..workload.int4 import unpacked
from .functional_vec import multipliers, requantise, vector
from .schedule import Gemm, Move, Operation, Schedule, ScheduleError, Span, Tensor, Vec, memory_words

Bytes = NDArray[np.uint8]

_OFFSET = (1 << OFFSET_BITS) - 1


class Memories:
    """All data memories of a chip as uint8 [words, P], zero until written.

    ACC has four rows of P bytes for each accumulator word of P little-endian int32.
    """

    def __init__(self, chip: ChipConfig) -> None:
        self.chip = chip
        self._held: dict[tuple[int, int], Bytes] = {}

    def region(self, tile: int, region: int) -> Bytes:
        """The live array of one memory. Raises ScheduleError if the tile has no such memory."""
        memory = self._held.get((tile, region))
        if memory is None:
            words = memory_words(self.chip, tile, region)
            if not words:
                raise ScheduleError(f"tile {tile:#04x} of chip {self.chip.name} has no data memory {region}")
            memory = self._held[tile, region] = np.zeros((words, self.chip.lanes), np.uint8)
        return memory

    def acc(self, tile: int) -> NDArray[np.int32]:
        """The live accumulators of a core, int32 [acc_words, P]."""
        return self.region(tile, Region.ACC).view("<i4").reshape(-1, self.chip.lanes)

    def touched(self) -> dict[tuple[int, int], Bytes]:
        """(tile, region) to array, for the memories that have been accessed so far."""
        return dict(self._held)

    def write_tensor(self, tensor: Tensor, array: NDArray[Any]) -> None:
        """Packs an array into the DRAM pieces of a tensor. Raises LayoutError if it does not fit the layout."""
        packed = tensor.layout.pack(array, self.chip.lanes)
        for piece in tensor.pieces:
            start = piece.address & _OFFSET
            memory = self.region(piece.tile, piece.address >> OFFSET_BITS)
            memory[start : start + piece.words] = packed[piece.first : piece.first + piece.words]

    def read_tensor(self, tensor: Tensor) -> NDArray[Any]:
        """Unpacks the array of a tensor from its DRAM pieces."""
        packed = np.empty((tensor.words, self.chip.lanes), np.uint8)
        for piece in tensor.pieces:
            start = piece.address & _OFFSET
            memory = self.region(piece.tile, piece.address >> OFFSET_BITS)
            packed[piece.first : piece.first + piece.words] = memory[start : start + piece.words]
        return tensor.layout.unpack(packed)


def run(schedule: Schedule, chip: ChipConfig, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Writes the named input and constant tensors, executes, and returns the output tensors by name.

    Raises ScheduleError when an array is missing or is not an input.
    """
    inputs = {tensor.name for tensor in schedule.tensors if tensor.role != "output"}
    if inputs != set(arrays):
        odd = sorted(inputs ^ set(arrays))[0]
        raise ScheduleError(
            f"tensor {odd!r} has no array; give one" if odd in inputs else f"{odd!r} is not an input; leave it out"
        )
    memories = Memories(chip)
    for name, array in arrays.items():
        memories.write_tensor(schedule.tensor(name), array)
    execute(schedule.operations, memories)
    return {t.name: memories.read_tensor(t) for t in schedule.tensors if t.role == "output"}


def execute(
    operations: tuple[Operation, ...] | list[Operation],
    memories: Memories,
    watch: Callable[[int, Operation], None] | None = None,
) -> None:
    """Executes validated operations in list order. `watch` is called with index and operation after each."""
    for index, op in enumerate(operations):
        execute_one(op, memories)
        if watch is not None:
            watch(index, op)


def execute_one(op: Operation, memories: Memories) -> None:
    """Executes one operation on the memories."""
    if isinstance(op, Move):
        land(op, take(op, memories), memories)
    elif isinstance(op, Gemm):
        _gemm(op, memories)
    else:
        _vec(op, memories)


def take(op: Move, memories: Memories) -> Bytes:
    """The words that a move would send now, uint8 [words, P]; a copy."""
    return memories.region(op.src.tile, op.src.address >> OFFSET_BITS)[offsets(op.src, op.words)]


def land(op: Move, words: Bytes, memories: Memories) -> None:
    """Writes the words that `take` read."""
    for tile in op.receivers(memories.chip):
        _put(memories, op.dst.model_copy(update={"tile": tile}) if op.copies else op.dst, words)


def offsets(span: Span, words: int) -> NDArray[np.intp]:
    """Word offset of each of the first `words` words of a span."""
    run, rest = np.divmod(np.arange(words), span.run)
    return (span.address & _OFFSET) + run * span.stride + rest


def _put(memories: Memories, span: Span, words: Bytes) -> None:
    memories.region(span.tile, span.address >> OFFSET_BITS)[offsets(span, len(words))] = words


def _gemm(op: Gemm, memories: Memories) -> None:
    chip = memories.chip
    sums = convolve(op, memories.region(op.core, Region.MAIN), memories.region(op.core, Region.B), chip.cols)
    n_blocks, pixels, _ = sums.shape
    addend, base = op["addend"], op["addend_base"]
    acc = memories.acc(op.core)
    step = SCALED_BIAS_WORDS if op["by_channel"] else 1
    if addend == Addend.BIAS:
        sums += acc[base : base + step * n_blocks : step, None, : chip.cols]
    elif addend == Addend.PARTIAL:
        sums += acc[base : base + n_blocks * pixels, : chip.cols].reshape(sums.shape)
    dest = slice(op["dest_base"], op["dest_base"] + n_blocks * pixels)
    flat = sums.reshape(n_blocks * pixels, chip.cols)
    if op["to_acc"]:
        acc[dest, : chip.cols] = flat
        acc[dest, chip.cols :] = 0
    else:
        out = memories.region(op.core, Region.OUT)
        scale: int | NDArray[np.int64] = op["scale"]
        if op["by_channel"]:
            factors = acc[op["scale"] : op["scale"] + step * n_blocks : step, : chip.cols]
            scale = multipliers(factors).repeat(pixels, axis=0)
        out[dest, : chip.cols] = requantise(flat, scale, op["relu"], op["clamp"]).view(np.uint8)
        out[dest, chip.cols :] = 0


def _vec(op: Vec, memories: Memories) -> None:
    kind, blocks = op["op"], op["blocks"]
    x = memories.acc(op.core) if kind == VectorOp.REQUANT else memories.region(op.core, op.x_region).view(np.int8)
    y, bias, scales = None, None, None
    if second := op.second(x.shape[1]):
        region, words = second
        y = memories.region(op.core, region)[op["y_base"] : op["y_base"] + words].view(np.int8)
    if op["addend"]:
        step = SCALED_BIAS_WORDS if op["by_channel"] else 1
        acc = memories.acc(op.core)
        bias = acc[op["addend_base"] : op["addend_base"] + step * blocks : step]
        if op["by_channel"]:
            scales = multipliers(acc[op["scale"] : op["scale"] + step * blocks : step])
    result = vector(op, x, y, bias, scales)
    memories.region(op.core, Region.VEC)[op["dest_base"] : op["dest_base"] + len(result)] = result.view(np.uint8)


def convolve(op: Gemm, a: Bytes, b: Bytes, cols: int) -> NDArray[np.int32]:
    """The sums of a GEMM, int32 [n_blocks, pixels, cols], wrapping, from A and B memories uint8 [words, P]."""
    lanes = a.shape[1]
    n_blocks, pixels, taps, in_w, plane = op["n_blocks"], op["pixels"], op.taps, op["in_w"], op["a_plane"]
    weights = b[op["b_base"] : op["b_base"] + n_blocks * op.weights(cols)].view(np.int8)
    if op["int4"]:
        weights = unpacked(weights, cols)
    weights = weights.reshape(n_blocks, taps, cols, lanes)
    k = np.arange(taps)
    kb, within = np.divmod(k, op["kernel_h"] * op["kernel_w"])
    ky, kx = np.divmod(within, op["kernel_w"])
    oy, ox = np.divmod(np.arange(pixels)[:, None], op["out_w"])
    sums = np.zeros((n_blocks, pixels, cols), np.int32)
    step = max(1, 1024 // lanes)  # a sum of 1024 int8 products is exact in float32, for which BLAS is fast
    for at in range(0, taps, step):
        part = slice(at, at + step)
        iy = oy * op["stride_h"] + ky[part] * op["dilation"] - op["pad_top"]
        ix = ox * op["stride_w"] + kx[part] * op["dilation"] - op["pad_left"]
        inside = (ix >= 0) & (ix < in_w) & (iy >= 0) & (iy * in_w < plane)
        where = op["a_base"] + kb[part] * plane + np.where(inside, iy * in_w + ix, 0)
        window = a[where].view(np.int8).astype(np.float32)
        window[~inside] = 0
        filters = weights[:, part].transpose(0, 2, 1, 3).reshape(n_blocks * cols, -1).astype(np.float32)
        products = (window.reshape(pixels, -1) @ filters.T).astype(np.int32)
        sums += products.reshape(pixels, n_blocks, cols).transpose(1, 0, 2)
    return sums
