"""All candidates of a layer on a chip, costed by the closed form as whole grids of tile sizes at a time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, CoreConfig, TileKind

from ..play.estimate import Loads, closed_form
from .problem import MAX_IN_WIDTH, MAX_K_BLOCKS, MAX_N_BLOCKS, MAX_PIXELS, MAX_PLANE, DoesNotFit, Problem
from .tiles import ORDERS, Candidate, Order, even, row_shares

Grid = NDArray[np.float64]
#: Of each core, ranges of rows: (image, first, end).
Shares = Sequence[Sequence[tuple[int, int, int]]]


def partitions(problem: Problem, cores: int) -> list[tuple[int, int]]:
    """(parts over rows of all images, parts over output blocks) that use most of the cores there is work for."""
    rows = problem.images * problem.out_rows
    pairs = [
        (m, n)
        for n in range(1, min(cores, problem.n_blocks) + 1)
        for m in {min(cores // n, rows)}
        if m * n == 1 or (m * n) * 2 > min(cores, rows * problem.n_blocks)
    ]
    return pairs or [(1, 1)]


def _sizes(limit: int, unit: int = 1) -> list[int]:
    """Sizes up to `limit` to try: one for each number of equal tiles, thinned out to about 24, in whole units."""
    sizes = {limit}
    count = 1
    while ceil(limit / count) > 1:
        size = ceil(limit / count)
        sizes |= {size, min(limit, ceil(size / unit) * unit)}
        count = max(count + 1, count * 8 // 7)
    return sorted(sizes | {1})


def _ratio(count: Grid, size: Grid) -> Grid:
    return np.ceil(count / size)


def _fetches(nest: list[tuple[Grid, bool]], slots: Grid) -> Grid:
    """Tiles fetched in a loop nest (trip count, whether the tile depends on it), innermost first, with `slots` slots.

    Going round once more over more tiles than there are slots fetches them again, but for those that stayed.
    """
    distinct = fetched = np.ones_like(slots)
    for trips, depends in nest:
        if depends:
            fetched, distinct = fetched * trips, distinct * trips
        else:
            resident = np.clip(slots - 1, 0, distinct)
            again = np.where(distinct <= slots, 0.0, fetched * (1 - resident / distinct))
            fetched = fetched + (trips - 1) * again
    return fetched


#: Where input and result of a layer lie.
Homes = tuple[TileKind, TileKind]
IN_DRAM: Homes = (TileKind.DRAM, TileKind.DRAM)


def explore(problem: Problem, chip: ChipConfig, columns: int, homes: Homes = IN_DRAM) -> tuple[Grid, list[Sizes]]:
    """Cycles of each candidate with tiles `columns` wide, and the candidates: a grid for each partition, order and
    route, one after the other in the cycles. All at once, since a grid alone is short."""
    core = chip.core
    total_rows = problem.images * problem.out_rows
    tile_columns = ceil(problem.out_w / ceil(problem.out_w / columns))
    column_tiles = ceil(problem.out_w / columns)
    spans = [problem.input_columns(c0, c1) for c0, c1 in even(0, problem.out_w, column_tiles)]
    in_w = max(j1 - j0 for j0, j1, _ in spans)
    if in_w > MAX_IN_WIDTH:
        return np.zeros(0), []
    depth = problem.k_blocks * problem.depth * problem.taps
    staging = [
        (x_spm, w_spm)
        for x_spm, w_spm in product((False, True), repeat=2)
        if not (((x_spm or w_spm) and not chip.spms) or (x_spm and homes[0] is TileKind.SPM))
    ]
    rows: list[tuple[Grid, ...]] = []
    sizes: list[list[Sizes]] = []
    for parts_m, parts_n in partitions(problem, len(chip.cores)):
        blocks = ceil(problem.n_blocks / parts_n)
        for snap in {False, problem.quantum > 1 and parts_m * problem.quantum <= total_rows}:
            shares = row_shares(problem, parts_m, snap)
            tiles = _tiles(problem, core, shares, blocks, tile_columns, in_w)
            if tiles is None:
                continue
            th, tn, tk, k_count = tiles.th, tiles.tn, tiles.tk, tiles.k_count
            a_tile, b_tile, out_tile = tiles.a_tile, tiles.b_tile, tiles.out_tile
            n_count = _ratio(np.full_like(tn, blocks), tn)
            m_count, groups = _most_work(problem, shares, th, tile_columns, column_tiles)
            sum_slots = np.where(k_count > 1, np.maximum(1, (core.acc_words - tn) // np.maximum(tiles.sums, 1)), 1e9)
            a_slots, b_slots = core.a_words // a_tile, core.b_words // b_tile
            same = (
                np.full_like(th, parts_m),
                np.full_like(th, parts_n),
                groups * blocks * depth * problem.lanes,
                m_count * n_count * k_count,
                np.ceil(tiles.pixels / problem.rows) * (tn * tk * problem.depth * problem.taps * problem.lanes),
                a_tile,
                b_tile,
                out_tile,
                a_slots,
                b_slots,
                core.out_words // out_tile,
                blocks * groups * problem.rows,
                m_count * k_count * a_tile,
                np.full_like(th, blocks * problem.k_blocks * problem.taps * problem.tap_words),
            )
            for order in ORDERS:
                if order.startswith("output") and not (k_count > 1).any():
                    continue
                a_nest, b_nest = _nests(order, m_count, n_count, k_count, sum_slots)
                rows.append((*same, _fetches(a_nest, a_slots), _fetches(b_nest, b_slots)))
                sizes.append(
                    [Sizes(parts_m, parts_n, snap, tile_columns, order, *spms, th, tn, tk) for spms in staging]
                )
    if not rows:
        return np.zeros(0), []
    (
        *shared, compute, gemms, gemm_cycles, a_tile, b_tile, out_tile, a_slots, b_slots, out_slots, out_words, x_words,
        w_words, a_fetch, b_fetch,
    ) = (np.concatenate(grids) for grids in zip(*rows, strict=True))  # fmt: skip
    loads = Loads(
        *shared,
        compute=compute,
        gemms=gemms,
        gemm_cycles=gemm_cycles,
        a_tile=a_tile,
        b_tile=b_tile,
        out_tile=out_tile,
        a_fetch=a_fetch,
        b_fetch=b_fetch,
        a_slots=a_slots,
        b_slots=b_slots,
        out_slots=out_slots,
        out_words=out_words,
        x_words=np.minimum(x_words, a_fetch * a_tile),
        w_words=w_words,
        x_spm=np.array([[x_spm] for x_spm, _ in staging]),
        w_spm=np.array([[w_spm] for _, w_spm in staging]),
        x_home=homes[0],
        y_home=homes[1],
    )
    ends = list(accumulate(len(grids[0]) for grids in rows))
    cycles = np.split(closed_form(loads, chip), ends[:-1], axis=1)
    return np.concatenate([grids.ravel() for grids in cycles]), [one for grids in sizes for one in grids]


class _Tiles(NamedTuple):
    """Sizes of tiles that fit a core, one entry for each: rows, blocks of outputs and of inputs, pixels, words in A, B
    and OUT, tiles along the inputs, and words of sums that wait for the next of these."""

    th: Grid
    tn: Grid
    tk: Grid
    pixels: Grid
    a_tile: Grid
    b_tile: Grid
    out_tile: Grid
    k_count: Grid
    sums: Grid


def _tiles(
    problem: Problem, core: CoreConfig, shares: Shares, blocks: int, tile_columns: int, in_w: int
) -> _Tiles | None:
    """All that fit; None if none does."""
    tallest = max(r1 - r0 for share in shares for _, r0, r1 in share)
    th, tn, tk = (
        axis.ravel()
        for axis in np.meshgrid(
            np.array(_sizes(tallest, problem.quantum), float),
            np.array([v for v in _sizes(blocks) if v <= MAX_N_BLOCKS], float),
            np.array([v for v in _sizes(problem.k_blocks) if v * problem.depth <= MAX_K_BLOCKS], float),
            indexing="ij",
        )
    )
    reach = (problem.kernel_h - 1) * problem.dilation + 1
    in_rows = np.minimum((th - 1) * problem.stride_h + reach, problem.in_rows)
    pixels = th * tile_columns
    plane = in_rows * in_w
    a_tile, b_tile, out_tile = tk * problem.depth * plane, tn * tk * problem.taps * problem.tap_words, tn * pixels
    k_count = _ratio(np.full_like(tk, problem.k_blocks), tk)
    sums = np.where(k_count > 1, out_tile, 0)
    fits = (a_tile <= core.a_words) & (b_tile <= core.b_words) & (out_tile <= core.out_words)
    fits &= (pixels <= MAX_PIXELS) & (plane <= MAX_PLANE) & (tn + sums <= core.acc_words)
    if not fits.any():
        return None
    return _Tiles(*(grid[fits] for grid in (th, tn, tk, pixels, a_tile, b_tile, out_tile, k_count, sums)))


def _most_work(problem: Problem, shares: Shares, th: Grid, tile_columns: int, column_tiles: int) -> tuple[Grid, Grid]:
    """Tiles along the pixels, and groups of pixels, of the share with most of them; tiles end with each segment."""
    m_count, groups = np.zeros_like(th), np.zeros_like(th)
    for share in shares:
        tiles, filled = np.zeros_like(th), np.zeros_like(th)
        for _, r0, r1 in share:
            whole, rest = np.divmod(float(r1 - r0), th)
            tiles += column_tiles * (whole + (rest > 0))
            filled += column_tiles * (
                whole * np.ceil(th * tile_columns / problem.rows) + np.ceil(rest * tile_columns / problem.rows)
            )
        m_count, groups = np.maximum(m_count, tiles), np.maximum(groups, filled)
    return m_count, groups


@dataclass(frozen=True, eq=False)
class Sizes:
    """The candidates of a grid, each put together when it is looked at: few of them are."""

    parts_m: int
    parts_n: int
    snap: bool
    columns: int
    order: Order
    x_spm: bool
    w_spm: bool
    th: Grid
    tn: Grid
    tk: Grid

    @cached_property
    def kind(self) -> tuple[Hashable, ...]:
        """What is the same in all of them, but for `snap` and the width of tiles."""
        return self.parts_m, self.parts_n, self.x_spm, self.w_spm, self.order

    def __getitem__(self, index: int) -> Candidate:
        th, tn, tk = int(self.th[index]), int(self.tn[index]), int(self.tk[index])
        parts, spms = (self.parts_m, self.parts_n), (self.x_spm, self.w_spm)
        return Candidate(*parts, self.snap, th, self.columns, tn, tk, self.order, *spms)


class EstimatedCandidate(NamedTuple):
    """A candidate of a grid, and the cycles that the closed form gives it."""

    grid: Sizes
    place: int
    cycles: float

    @property
    def candidate(self) -> Candidate:
        """The candidate itself."""
        return self.grid[self.place]


def _nests(
    order: Order, m: Grid, n: Grid, k: Grid, sums: Grid
) -> tuple[list[tuple[Grid, bool]], list[tuple[Grid, bool]]]:
    """Loop nests of a core, innermost first, as seen by input tiles and by weight tiles."""
    if order == "input":
        group = np.minimum(n, sums)
        nest = [(group, "n"), (k, "k"), (m, "m"), (n / group, "n")]
    elif order == "weight":
        group = np.minimum(m, sums)
        nest = [(group, "m"), (k, "k"), (n, "n"), (m / group, "m")]
    else:
        outer, inner = ((m, "m"), (n, "n")) if order == "output" else ((n, "n"), (m, "m"))
        nest = [(k, "k"), inner, outer]
    return [(trips, name in "mk") for trips, name in nest], [(trips, name in "nk") for trips, name in nest]


def best(
    problem: Problem, chip: ChipConfig, count: int, layer: str, homes: Homes = IN_DRAM
) -> tuple[list[EstimatedCandidate], int]:
    """The `count` best candidates by the closed form (best first), and how many there are.

    Raises DoesNotFit, with the memory that is too small for the smallest tile.
    """
    pieces = 1
    while True:
        columns = ceil(problem.out_w / pieces)
        cycles, grids = explore(problem, chip, columns, homes)
        if grids:
            break
        if columns == 1:
            raise _too_small(problem, chip, layer)
        pieces = ceil(problem.out_w / (columns - 1)) if columns > 2 else problem.out_w
    # One stable sort, so that equal ones stay in the order of the grids, and of those alone that can be among the best.
    most = min(count, len(cycles)) - 1
    last = np.partition(cycles, most)[most]
    places = np.flatnonzero(cycles <= last)
    places = places[np.argsort(cycles[places], kind="stable")][:count]
    starts = np.array([0, *accumulate(len(sizes.th) for sizes in grids)])
    numbers = starts.searchsorted(places, "right") - 1
    entries = zip(numbers.tolist(), (places - starts[numbers]).tolist(), cycles[places].tolist(), strict=True)
    pool = [EstimatedCandidate(grids[number], index, one) for number, index, one in entries]
    return pool, len(cycles)


def _too_small(problem: Problem, chip: ChipConfig, layer: str) -> DoesNotFit:
    reach_h = min((problem.kernel_h - 1) * problem.dilation + 1, problem.in_rows)
    reach_w = min((problem.kernel_w - 1) * problem.dilation + 1, problem.in_w)
    sums = 2 if problem.k_blocks > 1 else 1
    core = chip.core
    short = [
        f"{name} needs {need} words, has {have} ({need - have} too few)"
        for name, need, have in (
            ("A", reach_h * reach_w * problem.depth, core.a_words),
            ("B", problem.taps * problem.tap_words, core.b_words),
            ("ACC", sums, core.acc_words),
        )
        if need > have
    ]
    return DoesNotFit(
        f"layer {layer} fits no tiling on chip {chip.name}: for the smallest tile (1 pixel, 1 block in and out) "
        + "; ".join(short or ["the memories suffice one by one but not together"])
        + "; enlarge it in the chip's [core]"
    )
