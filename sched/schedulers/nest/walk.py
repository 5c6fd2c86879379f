"""The GEMMs of a core in the order of its loops, and which tile of each operand each of them uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from ...mapping.emit.task import LayerTask, ranges
from ...mapping.tiling.plan import gemm_cycles
from ...mapping.tiling.problem import Taps
from ...mapping.tiling.tiles import MTile, Range
from ...workload.layers import ConvShape
from .fit import CoreNest
from .mapping import REDUCTIONS, RELEVANT, Dimension, Operand

#: GEMMs of a layer at most: more would take minutes to plan.
MOST_GEMMS = 200_000
#: Cycles that a GEMM of a first or last visit takes at least: the first one begins early, the last store is short.
LEAST_CYCLES = 1024


@dataclass(frozen=True)
class NestVisit:
    """What the core's loops have come to: ranges of the dimensions, how often the tiles of inputs and weights have
    changed so far, and the count of each loop, innermost first."""

    at: dict[Dimension, Range]
    inputs: int
    weights: int
    counts: tuple[int, ...]


@dataclass(frozen=True)
class NestStep:
    """One GEMM: pixels, output blocks, input blocks, the part of the kernel (None: all). `inputs`, `weights`: see
    `NestVisit`."""

    tile: MTile
    n: Range
    k: Range
    inputs: int
    weights: int
    taps: Taps | None = None


def visits(nest: CoreNest, sizes: dict[Dimension, int], core: int) -> Iterator[NestVisit]:
    """What core number `core` visits, in order."""
    bounds = {dimension: (0, sizes.get(dimension, 1)) for dimension in Dimension}
    for factor in nest.cores:
        core, part = divmod(core, factor.size)
        share = ceil(nest.reach(factor.dimension))
        bounds[factor.dimension] = part * share, min((part + 1) * share, sizes[factor.dimension])
    loops = nest.loops[nest.inner :]
    steps = [nest.reach(factor.dimension, nest.inner + index) for index, factor in enumerate(loops)]
    outer = {
        operand: [
            i
            for i, f in enumerate(loops)
            if i + nest.inner >= nest.inside[operand] and f.dimension in RELEVANT[operand]
        ]
        for operand in (Operand.INPUT, Operand.WEIGHT)
    }
    latest: dict[Operand, tuple[int, ...]] = {}
    changes = {Operand.INPUT: 0, Operand.WEIGHT: 0}
    for counts in product(*(range(factor.size) for factor in reversed(loops))):
        numbers = counts[::-1]
        starts = {dimension: low for dimension, (low, _) in bounds.items()}
        for factor, number, step in zip(loops, numbers, steps, strict=True):
            starts[factor.dimension] += number * step
        at = {d: (start, min(start + nest.at_once[d], bounds[d][1])) for d, start in starts.items()}
        if any(first >= end for first, end in at.values()):
            continue  # beyond the layer, whose sizes are no multiples
        for operand, indices in outer.items():
            tile = tuple(numbers[index] for index in indices)
            if latest.setdefault(operand, tile) != tile:
                changes[operand] += 1
                latest[operand] = tile
        yield NestVisit(at, changes[Operand.INPUT], changes[Operand.WEIGHT], numbers)


def count_visits(nest: CoreNest) -> int:
    """How many visits a core makes, at most."""
    return prod(factor.size for factor in nest.loops[nest.inner :])


def is_flat(nest: CoreNest, shape: ConvShape) -> bool:
    """Whether tiles of pixels are runs of a map without rows: whole rows, or parts of one."""
    return nest.at_once[Dimension.OX] >= shape.out_w or nest.at_once[Dimension.OY] == 1


def steps(nest: CoreNest, sizes: dict[Dimension, int], core: int, task: LayerTask) -> list[NestStep]:
    """The GEMMs of core number `core`. Its first and its last visit are cut finely, unless other visits use the same
    weights or sums, which come in the same pieces for all."""
    visited = list(visits(nest, sizes, core))
    users = Counter(visit.weights for visit in visited)
    summed = all(nest.at_once[dimension] >= sizes[dimension] for dimension in REDUCTIONS)
    ends = (0, len(visited) - 1)
    result: list[NestStep] = []
    for index, visit in enumerate(visited):
        fine = summed and index in ends and users[visit.weights] == 1
        result += steps_of(visit, task, LEAST_CYCLES if fine else None)
    return result


def steps_of(visit: NestVisit, task: LayerTask, least: int | None = None) -> Iterator[NestStep]:
    """The GEMMs of a visit, as large as an instruction and half of OUT and B allow, or of `least` cycles or a little
    more. They are cut between output blocks rather than between pixels, whose remainders would leave rows of the array
    idle."""
    problem, chip = task.problem, task.chip
    (n0, n1), (k0, k1) = visit.at[Dimension.K], visit.at[Dimension.C]
    n = n0 // chip.cols, ceil(n1 / chip.cols)
    k = (0, problem.k_blocks) if problem.packed else (k0 // chip.lanes, ceil(k1 / chip.lanes))
    taps = visit.at[Dimension.FY], visit.at[Dimension.FX]
    part = None if taps == ((0, problem.kernel_h), (0, problem.kernel_w)) or problem.packed else taps
    rows, columns = visit.at[Dimension.OY], visit.at[Dimension.OX]
    if problem.flat:
        wide = task.shape.out_w
        rows = (rows[0] * wide + columns[0], (rows[1] - 1) * wide + columns[1])
        columns = (0, 1)
    room = max(1, chip.core.out_words // 2)
    for image in range(*visit.at[Dimension.B]):
        for tile in _tiles(MTile(image, *rows, *columns), task, room, part):
            deep = _deepest(tile, task, k)
            most = room // tile.pixels
            if least is not None:
                most = min(most, ceil(least / gemm_cycles(problem, 1, tile.pixels, deep * problem.taps)))
            for blocks in _parts(n, max(1, most), tile, task, deep):
                for depth in ranges(k[1] - k[0], deep):
                    some = k[0] + depth[0], k[0] + depth[1]
                    yield NestStep(tile, blocks, some, visit.inputs, visit.weights, part)


def _tiles(whole: MTile, task: LayerTask, room: int, taps: Taps | None) -> Iterator[MTile]:
    """The tiles of a visit's pixels in an image: rows, and columns where one row is too much."""
    height, width, array = whole.r1 - whole.r0, whole.c1 - whole.c0, task.chip.rows

    def fits(rows: int, columns: int) -> bool:
        tile = whole._replace(r1=whole.r0 + rows, c1=whole.c0 + columns)
        return rows * columns <= room and task.fits_gemm(tile, (0, 1), (0, 1), taps)

    while not fits(height, width):
        if height > 1:
            half = ceil(height / 2)
            height = ceil(half / array) * array if width == 1 and half > array else half
        elif width > 1:
            width = ceil(width / 2)
        else:
            break
    for r0, r1 in ranges(whole.r1 - whole.r0, height):
        for c0, c1 in ranges(whole.c1 - whole.c0, width):
            yield MTile(whole.image, whole.r0 + r0, whole.r0 + r1, whole.c0 + c0, whole.c0 + c1)


def _parts(n: Range, most: int, tile: MTile, task: LayerTask, deep: int) -> Iterator[Range]:
    """Ranges of output blocks, as many at once as half of OUT, half of B and an instruction hold."""
    most, half = min(most, n[1] - n[0]), task.chip.core.b_words // 2
    while most > 1 and (not task.fits_gemm(tile, (0, most), (0, 1)) or task.weight_words((0, most), (0, deep)) > half):
        most = ceil(most / 2)
    for first, end in ranges(n[1] - n[0], most):
        yield n[0] + first, n[0] + end


def _deepest(tile: MTile, task: LayerTask, k: Range) -> int:
    """How many input blocks one GEMM sums."""
    depth = k[1] - k[0]
    while depth > 1 and not task.fits_gemm(tile, (0, 1), (0, depth)):
        depth = ceil(depth / 2)
    return depth
