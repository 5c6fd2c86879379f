"""How the cores of a group cut their parts of a matrix layer into tiles: every way by arithmetic, the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from meshloom.hw.config import ChipConfig

from ..mapping.problem import MAX_IN_WIDTH, MAX_K_BLOCKS, MAX_N_BLOCKS, MAX_PIXELS, MAX_PLANE, DoesNotFit
from ..mapping.tiling import Range, even
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

Tile = tuple[int, int, int]


@dataclass(frozen=True)
class Plan:
    """How each core cuts its part: rows of a tile, output blocks of a tile, pieces of K; `rows_outer`: the loop over
    row tiles is the outer one. `cycles`: what the closed form below says of the slowest core."""

    rows: int
    blocks: int
    pieces: int
    rows_outer: bool
    cycles: float = 0.0


def row_tiles(shape: LayerShape, part: SubTile, rows: int) -> list[Tile]:
    """(image, first, end) of the tiles of a part, at most `rows` rows each; flat ones end at full arrays."""
    problem = shape.problem
    found: list[Tile] = []
    for image, first, end in part.segments:
        unit = problem.quantum if problem.quantum <= rows else 1
        units = ceil((end - first) / unit)
        for low, high in even(0, units, ceil(units / max(1, rows // unit))):
            found.append((image, first + low * unit, min(first + high * unit, end)))
    return found


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


def sizes_of(shape: LayerShape, chip: ChipConfig, parts: Sequence[SubTile], plan: Plan, links: int) -> Sizes | None:
    """Where everything goes; None if a tile is too large."""
    problem, core = shape.problem, chip.core
    tiles = [tile for part in parts for tile in row_tiles(shape, part, plan.rows)]
    rows = max(rows_read(shape, tile)[0][1] - rows_read(shape, tile)[0][0] for tile in tiles)
    pixels = max(tile[2] - tile[1] for tile in tiles) * problem.out_w
    deep = max(ceil((part.k[1] - part.k[0]) / plan.pieces) for part in parts)
    wide = max(ceil((part.n[1] - part.n[0]) / ceil((part.n[1] - part.n[0]) / plan.blocks)) for part in parts)
    blocks = max(part.n[1] - part.n[0] for part in parts)
    a, b, out = deep * rows * problem.in_w, wide * deep * problem.taps * problem.cols, wide * pixels
    if pixels > MAX_PIXELS or rows * problem.in_w > MAX_PLANE or wide > MAX_N_BLOCKS or deep > MAX_K_BLOCKS:
        return None
    if not problem.flat and max(problem.in_w, problem.out_w) > MAX_IN_WIDTH:
        return None
    r_slots = RESIDUAL_SLOTS if shape.residual else 0
    sums = out if plan.pieces > 1 or links > 1 else 0
    room = core.acc_words - blocks
    found = Sizes(
        a=a, b=b, out=out,
        a_slots=max(0, core.a_words - r_slots * out) // a,
        b_slots=core.b_words // b,
        out_slots=min(OUT_SLOTS, core.out_words // out, core.vec_words // out if shape.residual else OUT_SLOTS),
        bias=blocks,
        sums=sums,
        sum_slots=room // sums if sums else 1,
        r_slots=r_slots,
    )  # fmt: skip
    least = 3 if links > 1 else 1
    return found if min(found.a_slots, found.b_slots, found.out_slots) >= 1 and found.sum_slots >= least else None


def estimate(shape: LayerShape, chip: ChipConfig, parts: Sequence[SubTile], plan: Plan, links: int) -> float | None:
    """About how many cycles a plan takes, by the part that computes most; None if it fits no core.

    The largest of computing, of what comes and goes over the core's link, of its share of the channels and of its
    requests; before that the first tile, behind it the last results.
    """
    sizes = sizes_of(shape, chip, parts, plan, links)
    if sizes is None:
        return None
    problem = shape.problem
    part = max(parts, key=lambda part: part.pixels(problem) * (part.n[1] - part.n[0]) * (part.k[1] - part.k[0]))
    tiles = row_tiles(shape, part, plan.rows)
    n_tiles = ceil((part.n[1] - part.n[0]) / plan.blocks)
    visits = len(tiles) * n_tiles
    if visits * plan.pieces > MOST_STEPS:
        return None
    blocks, deep = part.n[1] - part.n[0], part.k[1] - part.k[0]
    folds = sum(ceil((r1 - r0) * problem.out_w / problem.rows) for _, r0, r1 in tiles)
    work = blocks * folds * deep * problem.taps * problem.lanes
    if links > 1:
        work = work * ceil(visits / links) * links / visits
    x = sum(rows_read(shape, tile)[0][1] - rows_read(shape, tile)[0][0] for tile in tiles) * problem.in_w * deep
    w = blocks * deep * problem.taps * problem.cols
    again_x = 1 if plan.rows_outer or sizes.a_slots >= len(tiles) * plan.pieces else n_tiles
    again_w = 1 if not plan.rows_outer or sizes.b_slots >= n_tiles * plan.pieces else len(tiles)
    pixels = sum(r1 - r0 for _, r0, r1 in tiles) * problem.out_w
    y = pixels * blocks / links
    come = x * again_x + w * again_w + (y if shape.residual else 0) + 4 * y * (links - 1)
    go = y + 4 * y * (links - 1)
    memory = (x * again_x + w * again_w + y * (2 if shape.residual else 1)) * len(parts)
    channels = len(chip.drams) * chip.dram.bytes_per_cycle / chip.lanes
    moves = _moves(chip, ceil(deep / plan.pieces)) * len(tiles) * plan.pieces * again_x
    moves += _moves(chip, min(plan.blocks, blocks)) * n_tiles * plan.pieces * again_w
    moves += _moves(chip, min(plan.blocks, blocks)) * visits * (2 if shape.residual else 1)
    first = (sizes.a + sizes.b) * max(1.0, len(parts) / channels) + LATENCY
    last = sizes.out * max(1.0, len(parts) / channels) + 3 * problem.rows + 6 * visits * plan.pieces
    final = work / max(1, visits * plan.pieces)  # whatever comes last is computed after that
    single = LATENCY * (sizes.a_slots == 1 or sizes.b_slots == 1) * visits * plan.pieces
    return first + max(work, max(come, go, memory / channels, moves * REQUEST) + final) + last + single


def _moves(chip: ChipConfig, planes: int) -> int:
    """Moves that carry a tile of so many planes."""
    return len(chip.drams) if planes >= len(chip.drams) else max(planes, 2)


def best_plan(shape: LayerShape, chip: ChipConfig, scheme: Scheme) -> Plan:
    """The plan with the shortest estimate. Raises DoesNotFit when none fits the cores."""
    parts = split(shape, scheme)
    rows = max(r1 - r0 for part in parts for _, r0, r1 in part.segments)
    blocks = max(part.n[1] - part.n[0] for part in parts)
    deep = min(part.k[1] - part.k[0] for part in parts)
    best: Plan | None = None
    for pieces in sorted({min(deep, cut) for cut in CUTS[:9]}):
        for wide in sorted({ceil(blocks / cut) for cut in CUTS if cut <= blocks}):
            for high in sorted({ceil(rows / cut) for cut in CUTS if cut <= rows}):
                for outer in (True, False):
                    plan = Plan(high, wide, pieces, outer)
                    cycles = estimate(shape, chip, parts, plan, scheme.input)
                    if cycles is not None and (best is None or cycles < best.cycles):
                        best = Plan(high, wide, pieces, outer, cycles)
    if best is None:
        raise DoesNotFit(
            f"scheme {scheme}: no tile of a {shape.problem.kernel_h}x{shape.problem.kernel_w} layer with maps of "
            f"{shape.problem.in_rows}x{shape.problem.in_w} fits the memories of a {chip.name} core; cut it finer"
        )
    return best
