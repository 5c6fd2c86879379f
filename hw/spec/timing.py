"""Exact cycle counts of core and network, as plain arithmetic; the gateware is tested against them, 0 cycles off."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from .config import ChipConfig
from .contracts import (
    DELIVERED_CYCLES,
    EJECTION_CYCLES,
    GEMM_ISSUE_CYCLES,
    GEMM_PIPELINE,
    VEC_ISSUE_CYCLES,
    VEC_PIPELINE,
    WHOLE_DIVIDE_CYCLES,
    WHOLE_ROOT_CYCLES,
    WHOLE_SUBTRACT_CYCLES,
    WINDOW_TAPS,
)
from .isa import INT4_SCALES, TABLE_BYTES, WINDOWED, Pair, VectorOp, YWalk


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


def weight_words(windows: int, cols: int, int4: bool) -> int:
    """Words of B that `windows` windows of one n block take; with `int4` there are pairs of them."""
    return windows // 2 * (INT4_SCALES + cols) if int4 else windows * cols


def gemm_occupancy(config: ChipConfig, shape: GemmShape) -> int:
    """Cycles for which a GEMM keeps the operand readers: folds x K windows of `lanes` cycles."""
    return gemm_folds(config, shape) * shape.taps * config.lanes


def gemm_tail(config: ChipConfig, pixels: int) -> int:
    """Cycles from the last operand address slot of a GEMM to its end; the next GEMM's windows run meanwhile."""
    last_rows = (pixels - 1) % config.rows + 1
    return config.cols + last_rows + GEMM_PIPELINE


def gemm_cycles(config: ChipConfig, shape: GemmShape) -> int:
    """`end - start` of a GEMM: first operand address to the cycle after its last row was written."""
    return gemm_occupancy(config, shape) + gemm_tail(config, shape.pixels)


def gemm_bubble(config: ChipConfig, int4: bool, before: bool) -> int:
    """Cycles that the operand readers rest between two GEMMs of which the second has come early enough.

    One `int4` after one that is not: scales are read in the cycle before the first window, where the other reads a
    word of B if the array has a column for each cycle of a window.
    """
    return int(int4 and not before and config.cols == config.lanes)


def gemm_start(
    config: ChipConfig, accepted: int, previous_start: int | None, previous: GemmShape | None, bubble: int = 0
) -> int:
    """Start of a GEMM accepted in cycle `accepted`, after the GEMM `previous` that started at `previous_start`.

    It starts `GEMM_ISSUE_CYCLES` later, or as soon as the readers are free (and `bubble` cycles: `gemm_bubble`). So it
    follows the one before without a bubble if `accepted <= previous_start + gemm_occupancy(previous) -
    GEMM_ISSUE_CYCLES`.
    """
    earliest = accepted + GEMM_ISSUE_CYCLES
    if previous_start is None or previous is None:
        return earliest
    return max(earliest, previous_start + gemm_occupancy(config, previous) + bubble)


@dataclass(frozen=True)
class VecShape:
    """What the length of a VEC depends on; the fields are those of the instruction, counts all >= 1.

    `stride_w` to `pad_left` say whether windows slide (`slides`), and for how long. Raises ValueError on counts below
    1, and on a window other than 1x1 of an operation that has none.
    """

    op: VectorOp
    pixels: int
    blocks: int = 1
    kernel_h: int = 1
    kernel_w: int = 1
    stride_w: int = 1
    dilation: int = 1
    in_w: int = 1
    out_w: int = 1
    pad_left: int = 0
    pair: int = 0
    y_walk: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, int]) -> VecShape:
        """That of an instruction; fields that are left out are 0."""
        counts = (fields.get(field.name, 0) for field in dataclasses.fields(cls)[1:])
        return cls(VectorOp(fields.get("op", 0)), *counts)

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if field not in ("op", "pad_left", "pair", "y_walk") and value < 1:
                raise ValueError(f"VEC {field} = {value} must be at least 1")
        if self.op not in WINDOWED and self.taps != 1:
            raise ValueError(f"VEC {self.op.name} has no window: {self.kernel_h}x{self.kernel_w} must be 1x1")

    @property
    def taps(self) -> int:
        """Words of x for one result word."""
        return self.kernel_h * self.kernel_w

    @property
    def whole(self) -> bool:
        """Whether each block is walked over twice."""
        return self.op in WINDOWED and self.y_walk == YWalk.WHOLE


def slides(config: ChipConfig, shape: VecShape) -> bool:
    """Whether a VEC reads its input words once for all windows of a row that they are in (`core.vec_windows`)."""
    return (
        shape.op in WINDOWED
        and shape.dilation == 1
        and shape.stride_w < shape.kernel_w <= shape.stride_w * config.core.vec_windows
        and (shape.op is not VectorOp.MAC or shape.taps <= WINDOW_TAPS)
    )


def _sliding_words(shape: VecShape) -> int:
    """Cycles of the walk over one block of sliding windows: `kernel_h` for each column of an output row, 1 for each
    that lies outside of the tile."""

    def row(pixels: int) -> int:
        columns = (pixels - 1) * shape.stride_w + shape.kernel_w
        inside = max(0, min(shape.in_w, columns - shape.pad_left))
        return inside * shape.kernel_h + columns - inside

    rows, rest = divmod(shape.pixels, shape.out_w)
    return rows * row(shape.out_w) + (row(rest) if rest else 0)


def vec_words(config: ChipConfig, shape: VecShape) -> int:
    """Cycles in which a VEC's walk advances, one word of x each, taps outside of the tile included.

    `blocks * pixels * taps`, fewer where windows slide, twice as many for `YWalk.WHOLE`; TRANSPOSE:
    `blocks * ceil(pixels / P) * P`, which is also how many words it writes.
    """
    if slides(config, shape):
        return shape.blocks * _sliding_words(shape)
    pixels = shape.pixels
    if shape.op is VectorOp.TRANSPOSE:
        pixels = -(-pixels // config.lanes) * config.lanes
    return shape.blocks * pixels * shape.taps * (2 if shape.whole else 1)


def table_words(config: ChipConfig) -> int:
    """Words of B that hold the table of a TABLE."""
    return TABLE_BYTES // config.lanes


def vec_occupancy(config: ChipConfig, shape: VecShape) -> int:
    """Cycles for which a VEC keeps the operand reader: its words, and for TRANSPOSE P more, in which the last group
    leaves the transposer (the results take the only write port of the memory, so nothing else could use them).

    A sliding MAC reads the weights of its first block before, a word a cycle, and those of the next one during each
    walk, which waits for them. A TABLE reads its table before, a word a cycle. Between the walks of `YWalk.WHOLE` the
    reader waits.
    """
    if shape.op is VectorOp.MAC and slides(config, shape):
        walk = _sliding_words(shape)
        return shape.taps + (shape.blocks - 1) * max(walk, shape.taps) + walk
    if shape.whole:
        divides = WHOLE_ROOT_CYCLES if shape.op is VectorOp.MAC else WHOLE_DIVIDE_CYCLES
        between = WHOLE_SUBTRACT_CYCLES if shape.pair == Pair.SUBTRACT else divides
        return vec_words(config, shape) + shape.blocks * between
    more = {VectorOp.TRANSPOSE: config.lanes, VectorOp.TABLE: table_words(config)}
    return vec_words(config, shape) + more.get(shape.op, 0)


def vec_tail() -> int:
    """Cycles from the end of a VEC's occupancy to its end; the next VEC's words are read meanwhile."""
    return VEC_PIPELINE


def vec_cycles(config: ChipConfig, shape: VecShape) -> int:
    """`end - start` of a VEC: first operand address to the cycle after its last result was written.

    words + 5, for TRANSPOSE words + P + 5, for TABLE words + 256 / P + 5, for a sliding MAC words + taps + 5 unless its
    walks are short; for `YWalk.WHOLE` twice the words, 2, 28 or 48 for each block, and 5.
    """
    return vec_occupancy(config, shape) + vec_tail()


def vec_start(config: ChipConfig, accepted: int, previous_start: int | None, previous: VecShape | None) -> int:
    """Start of a VEC accepted in cycle `accepted`, after the VEC `previous` that started at `previous_start`.

    It starts `VEC_ISSUE_CYCLES` later, or as soon as the reader is free: like `gemm_start`, without a bubble if
    `accepted <= previous_start + vec_occupancy(previous) - VEC_ISSUE_CYCLES`.
    """
    earliest = accepted + VEC_ISSUE_CYCLES
    if previous_start is None or previous is None:
        return earliest
    return max(earliest, previous_start + vec_occupancy(config, previous))


def noc_arrival(hops: int, flits: int) -> int:
    """Cycles from the injection of a packet's head to the offer of its last flit for ejection, on an idle mesh.

    `hops + flits`: one cycle per router passed and per flit, so `noc_arrival(hops, 1)` is that of the head. A packet to
    its own tile has 0 hops. Raises ValueError on negative `hops`, or `flits` below 1.
    """
    if hops < 0 or flits < 1:
        raise ValueError(f"a packet of {flits} flits over {hops} hops: give at least 1 flit, and 0 hops or more")
    return hops + flits


def ejection_cycles(config: ChipConfig) -> int:
    """Cycles that a flit spends in the ejection buffer of its virtual channel before its tile can take it
    (`noc.data_receiver`): `EJECTION_CYCLES`, or 0 on chips with one channel, which have no ejection buffer."""
    return EJECTION_CYCLES if config.noc.data_vcs > 1 else 0


def noc_landing(config: ChipConfig, hops: int, flits: int) -> int:
    """Cycles from the injection of a head to the one after the last of `flits` flits has been taken, on an idle mesh.

    `hops + flits + 1`, one more with an ejection buffer; what they carry can be read from then on. That is `end` less
    `start` of a record of arrival (`noc.arrivals`). Raises ValueError as `noc_arrival` does."""
    return noc_arrival(hops, flits) + ejection_cycles(config) + DELIVERED_CYCLES
