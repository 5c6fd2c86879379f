"""How a layer is cut into tiled operations, and what each of them costs.

A tile of pixels, of output blocks and of input blocks is one operation: `OT[m, n] += IN[m, k] * WT[n, k]`. Tiles of a
kind follow each other with equal steps and the last one is what remains, as in the paper's Figure 3 (b).
Source: H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023), section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import (
    MAX_IN_WIDTH,
    MAX_K_BLOCKS,
    MAX_N_BLOCKS,
    MAX_PIXELS,
    MAX_PLANE,
    DoesNotFit,
    Problem,
)
from ...mapping.tiling.tiles import MTile, Range

Ints = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Tiling:
    """Tiles of `rows` x `columns` pixels, `n` output blocks and `k` input blocks."""

    rows: int
    columns: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} n{self.n} k{self.k}"


def steps(size: int, step: int) -> list[Range]:
    """[0, size) in ranges of `step`; the last one is what remains."""
    return [(at, min(at + step, size)) for at in range(0, size, step)]


def split(low: int, high: int, parts: int) -> list[Range]:
    """[low, high) in at most `parts` ranges that are not empty, as equal as can be, the larger ones first."""
    cuts = [high - (high - low) * (parts - index) // parts for index in range(parts + 1)]
    return [(first, end) for first, end in zip(cuts[:-1], cuts[1:], strict=True) if first < end]


class Tiles:
    """The tiles of one tiling of a layer: their sizes in words, and the cycles of their operations.

    `in_words` [M, K], `wt_words` [N, K], `sum_words` and `out_words` [M, N] (partial sums: four words for each word of
    results), `cycles` [M, N, K] of the array.
    """

    def __init__(self, problem: Problem, tiling: Tiling) -> None:
        self.problem, self.tiling = problem, tiling
        self.m = [
            MTile(image, r0, r1, c0, c1)
            for image in range(problem.images)
            for r0, r1 in steps(problem.out_rows, tiling.rows)
            for c0, c1 in steps(problem.out_w, tiling.columns)
        ]
        self.n = steps(problem.n_blocks, tiling.n)
        self.k = steps(problem.k_blocks, tiling.k)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Tiles of pixels, of output blocks, of input blocks."""
        return len(self.m), len(self.n), len(self.k)

    @property
    def operations(self) -> int:
        """Tiled convolutions of the layer."""
        return len(self.m) * len(self.n) * len(self.k)

    def box(self, index: int) -> tuple[Range, Range, int, int]:
        """Input rows, input columns, zero rows above and zero columns left of tile `index` of pixels."""
        tile = self.m[index]
        i0, i1, top = self.problem.input_rows(tile.r0, tile.r1)
        j0, j1, left = self.problem.input_columns(tile.c0, tile.c1)
        return (i0, i1), (j0, j1), top, left

    @cached_property
    def extent(self) -> Ints:
        """Input rows and columns of each tile of pixels, [M, 2]."""
        boxes = [self.box(index)[:2] for index in range(len(self.m))]
        return np.array([(i1 - i0, j1 - j0) for (i0, i1), (j0, j1) in boxes], np.int64)

    @cached_property
    def pixels(self) -> Ints:
        return np.array([tile.pixels for tile in self.m], np.int64)

    @property
    def m_most(self) -> int:
        """Pixels of the largest tile."""
        return int(self.pixels.max())

    @property
    def n_most(self) -> int:
        """Output blocks of the largest tile."""
        return min(self.tiling.n, self.problem.n_blocks)

    @property
    def k_most(self) -> int:
        """Input blocks of the largest tile."""
        return min(self.tiling.k, self.problem.k_blocks)

    @cached_property
    def n_size(self) -> Ints:
        return np.array([high - low for low, high in self.n], np.int64)

    @cached_property
    def k_size(self) -> Ints:
        return np.array([high - low for low, high in self.k], np.int64)

    @cached_property
    def in_words(self) -> Ints:
        return self.extent.prod(1)[:, None] * self.k_size

    @cached_property
    def wt_words(self) -> Ints:
        return self.n_size[:, None] * self.k_size * (self.problem.taps * self.problem.cols)

    @cached_property
    def out_words(self) -> Ints:
        return self.pixels[:, None] * self.n_size

    @cached_property
    def sum_words(self) -> Ints:
        return 4 * self.out_words if len(self.k) > 1 else np.zeros_like(self.out_words)

    def heights(self, banks: int) -> tuple[Ints, Ints, Ints]:
        """Words of the fullest bank for each input, weight and sum tile, cut as `Places` does."""
        rows, columns = self.extent[:, 0, None], self.extent[:, 1, None]
        k = self.k_size[None, :]
        inputs = np.where(k >= banks, -(-k // banks) * rows * columns, k * -(-rows // banks) * columns)
        weights = _weight_rows(self.n_size[:, None], k, self.problem, banks)
        return inputs, weights, 4 * -(-self.sum_words // (4 * banks))

    @cached_property
    def cycles(self) -> Ints:
        folds = -(-self.pixels // self.problem.rows)
        deep = self.k_size * (self.problem.taps * self.problem.lanes)
        return folds[:, None, None] * self.n_size[:, None] * deep


def _weight_rows(n: Ints, k: Ints, problem: Problem, banks: int) -> Ints:
    """Words of the fullest bank for weight tiles of `n` output and `k` input blocks, cut as `Places` does."""
    windows = k * problem.taps
    return np.where(windows >= banks, n * -(-windows // banks), -(-n // banks) * windows) * problem.cols


def _sizes(limit: int, unit: int, most: int) -> list[int]:
    """Tile sizes to try: the smallest for each number of tiles, and these rounded up to whole units."""
    sizes: set[int] = set()
    count = 1
    while True:
        size = ceil(limit / count)
        sizes |= {size, min(limit, ceil(size / unit) * unit)}
        if size == 1:
            break
        count = ceil(limit / (size - 1))
    return sorted(size for size in sizes if size <= most)


@dataclass(frozen=True)
class TilingSpace:
    """All viable tilings of a layer on a chip as columns of one table (see `Tiles` for the units).

    `k_tiles`: tiles of input blocks; `cycles`: of all operations on one array; `in_words`, `wt_words`, `out_words`:
    of all tiles, each counted once; `first`: words of the smallest operands of an operation; `last`: cycles of the
    shortest operation; `serial`: words of tiles, each counted once, that a core cannot pull while it computes, because
    its memory for them has room for one such tile only.
    """

    tilings: NDArray[np.int64]
    operations: Ints
    k_tiles: Ints
    cycles: Ints
    in_words: Ints
    wt_words: Ints
    out_words: Ints
    first: Ints
    last: Ints
    serial: Ints

    def __len__(self) -> int:
        return len(self.tilings)

    def tiling(self, index: int) -> Tiling:
        """One of them."""
        rows, columns, n, k = (int(value) for value in self.tilings[index])
        return Tiling(rows, columns, n, k)


def viable(problem: Problem, chip: ChipConfig, layer: str) -> TilingSpace:
    """Every tiling whose largest operation fits a core's memories and the scratchpad.

    Raises DoesNotFit naming the memory that is too small for the smallest tile, or that there is no scratchpad.
    """
    if not chip.spms:
        raise DoesNotFit(f"chip {chip.name} has no spm tile, in which all tiles are kept; add one to its floorplan")
    core = chip.core
    widths = _sizes(problem.out_w, 1, problem.out_w)
    heights = _sizes(problem.out_rows, problem.quantum, problem.out_rows)

    def reached(
        size: int, sizes: list[int], inputs: Callable[[int, int], tuple[int, int, int]]
    ) -> dict[int, tuple[int, int]]:
        """Inputs of all tiles together, and of the largest, for each tile size."""
        spans = {step: [inputs(low, high) for low, high in steps(size, step)] for step in sizes}
        return {s: (sum(b - a for a, b, _ in some), max(b - a for a, b, _ in some)) for s, some in spans.items()}

    rows_in = reached(problem.out_rows, heights, problem.input_rows)
    columns_in = reached(problem.out_w, widths, problem.input_columns)
    axes = (heights, widths, _sizes(problem.n_blocks, 1, MAX_N_BLOCKS), _sizes(problem.k_blocks, 1, MAX_K_BLOCKS))
    th, tw, tn, tk = (axis.ravel() for axis in np.meshgrid(*map(np.array, axes), indexing="ij"))
    look = {name: np.array([table[int(s)] for s in steps_]) for name, table, steps_ in (
        ("rows", rows_in, th), ("columns", columns_in, tw))}  # fmt: skip
    plane = look["rows"][:, 1] * look["columns"][:, 1]
    pixels = th * tw
    in_tile, wt_tile, out_tile = plane * tk, tn * tk * problem.taps * problem.cols, pixels * tn
    sums = np.where(tk < problem.k_blocks, out_tile, 0)
    banks = len(chip.spms)
    in_tall = np.where(
        tk >= banks, -(-tk // banks) * plane, tk * -(-look["rows"][:, 1] // banks) * look["columns"][:, 1]
    )
    tall = in_tall + _weight_rows(tn, tk, problem, banks) + 4 * -(-sums // banks)
    # what a tile takes of each memory, and how many words that has
    needs = {
        "A: one input tile": (in_tile, core.a_words),
        "B: one weight tile": (wt_tile, core.b_words),
        "OUT: one result tile": (out_tile, core.out_words),
        "ACC: biases and partial sums of one tile": (tn + sums, core.acc_words),
        "SPM: input, weight and sums of one operation, in each bank,": (tall, chip.spm_words),
    }
    expressed = (pixels <= MAX_PIXELS) & (look["columns"][:, 1] <= MAX_IN_WIDTH) & (plane <= MAX_PLANE)
    fits = np.logical_and.reduce([expressed, *(words <= most for words, most in needs.values())])
    if not fits.any():
        never = [
            f"{name} takes {words.min()} words, {most} are there"
            for name, (words, most) in needs.items()
            if words.min() > most
        ]
        if not expressed.any():
            never.append("the GEMM instruction cannot have its pixels, columns and plane")
        raise DoesNotFit(
            f"layer {layer} fits no tiling on chip {chip.name}: "
            + (f"even the smallest tile is too large: {'; '.join(never)}" if never else
               "its memories suffice one by one but not together")
            + "; enlarge it in the chip's [core] or spm_words"
        )  # fmt: skip
    keep = np.flatnonzero(fits)
    th, tw, tn, tk = th[keep], tw[keep], tn[keep], tk[keep]
    rows_total, columns_total = look["rows"][keep, 0], look["columns"][keep, 0]
    m_rows, m_columns = -(-problem.out_rows // th), -(-problem.out_w // tw)
    n_count, k_count = -(-problem.n_blocks // tn), -(-problem.k_blocks // tk)
    last_h = problem.out_rows - (m_rows - 1) * th
    last_w = problem.out_w - (m_columns - 1) * tw

    def folds(h: Ints, w: Ints) -> Ints:
        return -(-(h * w) // problem.rows)

    all_folds = (m_rows - 1) * (m_columns - 1) * folds(th, tw) + (m_rows - 1) * folds(th, last_w)
    all_folds += (m_columns - 1) * folds(last_h, tw) + folds(last_h, last_w)
    deep = problem.taps * problem.lanes
    in_words = problem.images * rows_total * columns_total * problem.k_blocks
    wt_words = np.full_like(th, problem.n_blocks * problem.k_blocks * problem.taps * problem.cols)
    alone = 2 * in_tile[keep] > core.a_words, 2 * wt_tile[keep] > core.b_words
    least_n = problem.n_blocks - (n_count - 1) * tn
    least_k = problem.k_blocks - (k_count - 1) * tk
    return TilingSpace(
        tilings=np.stack([th, tw, tn, tk], 1),
        operations=problem.images * m_rows * m_columns * n_count * k_count,
        k_tiles=k_count,
        cycles=problem.images * all_folds * problem.n_blocks * problem.k_blocks * deep,
        in_words=in_words,
        wt_words=wt_words,
        out_words=np.full_like(th, problem.images * problem.out_rows * problem.out_w * problem.n_blocks),
        first=least_n * least_k * problem.taps * problem.cols,
        last=folds(last_h, last_w) * least_n * least_k * deep,
        serial=np.where(alone[0], in_words, 0) + np.where(alone[1], wt_words, 0),
    )
