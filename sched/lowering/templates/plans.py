"""How the cores of a group cut their parts of a matrix layer into tiles: every way by arithmetic, the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
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
from ...mapping.tiling.tiles import Range, even
from .schemes import LayerShape, Scheme, SubTile, split

#: Result tiles that OUT and VEC are divided into at most, and tiles of the other operand of an addition in A.
OUT_SLOTS, RESIDUAL_SLOTS = 4, 2
#: Cycles from a request for a tile to its first word, about.
LATENCY = 120
#: Cycles that a core's mover stream needs for each request.
REQUEST = 7
#: Numbers of parts that each loop is tried with.
CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
#: GEMMs of a core, roughly, above which a plan is not worth its instructions.
MOST_STEPS = 1024

Segments = tuple[tuple[int, int, int], ...]
Ints = NDArray[np.int64]
Tile = tuple[int, int, int]


@dataclass(frozen=True)
class TemplateTiling:
    """How each core cuts its part: rows of a tile, output blocks of a tile, pieces of K; `rows_outer`: the loop over
    row tiles is the outer one. `cycles`: what the closed form below says of the slowest core."""

    rows: int
    blocks: int
    pieces: int
    rows_outer: bool
    cycles: float = 0.0


def row_tiles(shape: LayerShape, part: SubTile, rows: int) -> tuple[Tile, ...]:
    """(image, first, end) of the tiles of a part, at most `rows` rows each; flat ones end at full arrays, and whole
    maps are tiles."""
    return part.segments if shape.whole else _row_tiles(shape.problem, part.segments, rows)


@lru_cache(maxsize=4096)
def _row_tiles(problem: Problem, segments: Segments, rows: int) -> tuple[Tile, ...]:
    tiles: list[Tile] = []
    for image, first, end in segments:
        unit = problem.quantum if problem.quantum <= rows else 1
        units = ceil((end - first) / unit)
        for low, high in even(0, units, ceil(units / max(1, rows // unit))):
            tiles.append((image, first + low * unit, min(first + high * unit, end)))
    return tuple(tiles)


def rows_read(shape: LayerShape, tile: Tile) -> tuple[Range, int]:
    """Rows that a tile reads, of those that are fetched of an image, and zero rows above."""
    problem = shape.problem
    if problem.flat:
        return (tile[1], tile[2]), 0
    i0, i1, top = problem.input_rows(tile[1], tile[2])
    return (i0, i1), top


@dataclass(frozen=True)
class Sizes:
    """Words of the slots of a plan, and how many of each a core has room for."""

    a: int
    b: int
    out: int
    a_slots: int
    b_slots: int
    out_slots: int
    bias: int
    sums: int
    sum_slots: int
    r_slots: int


@dataclass(frozen=True)
class _Rows:
    """A share of rows in tiles: how many tiles there are, rows of the largest, rows that the one reads that reads most;
    and of all together: rows, rows that they read, arrays that their pixels fill."""

    tiles: int
    most: int
    most_read: int
    rows: int
    read: int
    folds: int


@lru_cache(maxsize=4096)
def _rows(shape: LayerShape, segments: Segments, rows: int) -> _Rows:
    problem = shape.problem
    tiles = _row_tiles(problem, segments, rows)
    first, end = (np.array([tile[index] for tile in tiles]) for index in (1, 2))
    size = end - first
    read = size
    if not problem.flat:  # as `rows_read`
        below = (end - 1) * problem.stride_h - problem.pad_top + (problem.kernel_h - 1) * problem.dilation + 1
        read = np.minimum(below, problem.in_rows) - np.maximum(first * problem.stride_h - problem.pad_top, 0)
    folds = -(-size * problem.out_w // problem.rows)
    return _Rows(len(tiles), int(size.max()), int(read.max()), int(size.sum()), int(read.sum()), int(folds.sum()))


@dataclass(frozen=True)
class _Plans:
    """Plans side by side, as arrays [pieces, blocks, rows] of every combination (with 1 where a property does not
    depend on an index). `tiles`: of the core that computes most; `most`, `most_read`: of all cores."""

    pieces: Ints
    blocks: Ints
    tiles: Ints
    rows: Ints
    read: Ints
    folds: Ints
    most: Ints
    most_read: Ints

    @classmethod
    def of(
        cls, shape: LayerShape, parts: Sequence[SubTile], pieces: Sequence[int], blocks: Sequence[int],
        rows: Sequence[int],
    ) -> _Plans:  # fmt: skip
        """The combinations of these numbers of pieces, blocks and rows."""
        most_work = largest(shape, parts).segments
        shares = dict.fromkeys(part.segments for part in parts)
        own = np.array([astuple(_rows(shape, most_work, high)) for high in rows]).T
        all_of = [[_rows(shape, segments, high) for segments in shares] for high in rows]
        most = np.array([[max(one.most for one in each), max(one.most_read for one in each)] for each in all_of]).T
        return cls(
            np.array(pieces)[:, None, None], np.array(blocks)[None, :, None],
            tiles=own[0], rows=own[3], read=own[4], folds=own[5], most=most[0], most_read=most[1],
        )  # fmt: skip


def largest(shape: LayerShape, parts: Sequence[SubTile]) -> SubTile:
    """The part that computes most."""
    return max(parts, key=lambda part: part.pixels(shape.problem) * (part.n[1] - part.n[0]) * (part.k[1] - part.k[0]))


@dataclass(frozen=True)
class _Room:
    """`Sizes` of plans side by side, and whether they fit."""

    a: Ints
    b: Ints
    out: Ints
    a_slots: Ints
    b_slots: Ints
    out_slots: Ints
    sums: Ints
    sum_slots: Ints
    fits: NDArray[np.bool_]


def _room(shape: LayerShape, chip: ChipConfig, parts: Sequence[SubTile], plans: _Plans, links: int) -> _Room:
    problem, core = shape.problem, chip.core
    rows, pixels = plans.most_read, plans.most * problem.out_w
    deep = -(-max(part.k[1] - part.k[0] for part in parts) // plans.pieces)
    extents = {part.n[1] - part.n[0] for part in parts}
    wide = np.maximum.reduce([-(-extent // -(-extent // plans.blocks)) for extent in sorted(extents)])
    a, b, out = deep * rows * problem.in_w, wide * deep * problem.taps * problem.cols, wide * pixels
    fits = (pixels <= MAX_PIXELS) & (rows * problem.in_w <= MAX_PLANE) & (wide <= MAX_N_BLOCKS)
    fits = fits & (deep <= MAX_K_BLOCKS)
    if not problem.flat and max(problem.in_w, problem.out_w) > MAX_IN_WIDTH:
        fits = np.zeros_like(fits)
    r_slots = RESIDUAL_SLOTS if shape.residual else 0
    a_slots = np.maximum(0, core.a_words - r_slots * out) // a
    b_slots = core.b_words // b
    out_slots = np.minimum(OUT_SLOTS, core.out_words // out)
    if shape.residual:
        out_slots = np.minimum(out_slots, core.vec_words // out)
    sums = out * ((plans.pieces > 1) | (links > 1))
    room = core.acc_words - max(extents)
    sum_slots = np.where(sums > 0, room // np.maximum(1, sums), 1)
    least = 3 if links > 1 else 1
    fits = fits & (room >= 0) & (np.minimum(np.minimum(a_slots, b_slots), out_slots) >= 1) & (sum_slots >= least)
    return _Room(a, b, out, a_slots, b_slots, out_slots, sums, sum_slots, fits)


def sizes_of(
    shape: LayerShape, chip: ChipConfig, parts: Sequence[SubTile], plan: TemplateTiling, links: int
) -> Sizes | None:
    """Where everything goes; None if a tile is too large."""
    one = _room(shape, chip, parts, _Plans.of(shape, parts, [plan.pieces], [plan.blocks], [plan.rows]), links)
    if not one.fits.all():
        return None
    return Sizes(
        **{name: int(value.max()) for name, value in vars(one).items() if name != "fits"},
        bias=max(part.n[1] - part.n[0] for part in parts),
        r_slots=RESIDUAL_SLOTS if shape.residual else 0,
    )


def _estimates(
    shape: LayerShape, chip: ChipConfig, parts: Sequence[SubTile], plans: _Plans, links: int
) -> NDArray[np.float64]:
    """About how many cycles plans take, by the part that computes most, [pieces, blocks, rows, (rows outer, blocks
    outer)]; infinity for those that fit no core.

    The largest of computing, of what comes and goes over the core's link, of its share of the channels and of its
    requests; before that the first tile, behind it the last results.
    """
    room, problem = _room(shape, chip, parts, plans, links), shape.problem
    part = largest(shape, parts)
    blocks, deep = part.n[1] - part.n[0], part.k[1] - part.k[0]
    n_tiles = -(-blocks // plans.blocks)
    visits = plans.tiles * n_tiles
    work = blocks * plans.folds * deep * problem.taps * problem.lanes
    if links > 1:
        work = work * -(-visits // links) * links / visits
    x = plans.read * problem.in_w * deep
    w = blocks * deep * problem.taps * problem.cols
    x_stays, w_stays = room.a_slots >= plans.tiles * plans.pieces, room.b_slots >= n_tiles * plans.pieces
    again_x = np.stack(np.broadcast_arrays(1, np.where(x_stays, 1, n_tiles)), axis=-1)
    again_w = np.stack(np.broadcast_arrays(np.where(w_stays, 1, plans.tiles), 1), axis=-1)
    work = np.asarray(work)[..., None]
    visits, x, n_tiles, tiles, pieces, wide = (
        each[..., None] for each in (visits, x, n_tiles, plans.tiles, plans.pieces, plans.blocks)
    )
    y = plans.rows[:, None] * problem.out_w * blocks / links
    come = x * again_x + w * again_w + (y if shape.residual else 0) + 4 * y * (links - 1)
    go = y + 4 * y * (links - 1)
    memory = (x * again_x + w * again_w + y * (2 if shape.residual else 1)) * len(parts)
    channels = len(chip.drams) * chip.dram.bytes_per_cycle / chip.lanes
    stores = _moves(chip, np.minimum(wide, blocks))
    moves = _moves(chip, -(-deep // pieces)) * tiles * pieces * again_x
    moves = moves + stores * n_tiles * pieces * again_w
    moves = moves + stores * visits * (2 if shape.residual else 1)
    share = max(1.0, len(parts) / channels)
    first = (room.a + room.b)[..., None] * share + LATENCY
    last = room.out[..., None] * share + 3 * problem.rows + 6 * visits * pieces
    final = work / np.maximum(1, visits * pieces)  # whatever comes last is computed after that
    single = LATENCY * ((room.a_slots == 1) | (room.b_slots == 1))[..., None] * visits * pieces
    flow = np.maximum(np.maximum(np.maximum(come, go), memory / channels), moves * REQUEST)
    cycles = first + np.maximum(work, flow + final) + last + single
    return np.where(room.fits[..., None] & (visits * pieces <= MOST_STEPS), cycles, np.inf)


def _moves(chip: ChipConfig, planes: Ints) -> Ints:
    """Moves that carry a tile of so many planes."""
    return np.where(planes >= len(chip.drams), len(chip.drams), np.maximum(planes, 2))


def best_plan(shape: LayerShape, chip: ChipConfig, scheme: Scheme) -> TemplateTiling:
    """The plan with the shortest estimate. Raises DoesNotFit when none fits the cores."""
    parts = split(shape, scheme)
    rows = max(r1 - r0 for part in parts for _, r0, r1 in part.segments)
    blocks = max(part.n[1] - part.n[0] for part in parts)
    deep = min(part.k[1] - part.k[0] for part in parts)
    pieces = sorted({min(deep, cut) for cut in CUTS[:9]})
    wide = sorted({ceil(blocks / cut) for cut in CUTS if cut <= blocks})
    high = sorted({ceil(rows / cut) for cut in CUTS if cut <= rows})
    cycles = _estimates(shape, chip, parts, _Plans.of(shape, parts, pieces, wide, high), scheme.input)
    at = int(np.argmin(cycles))
    if np.isinf(cycles.flat[at]):
        raise DoesNotFit(
            f"scheme {scheme}: no tile of a {shape.problem.kernel_h}x{shape.problem.kernel_w} layer with maps of "
            f"{shape.problem.in_rows}x{shape.problem.in_w} fits the memories of a {chip.name} core; cut it finer"
        )
    k, n, m, order = (int(index) for index in np.unravel_index(at, cycles.shape))
    return TemplateTiling(high[m], wide[n], pieces[k], not order, float(cycles.flat[at]))
