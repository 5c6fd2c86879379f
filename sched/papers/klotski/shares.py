"""Partitions that share each layer out among all cores: micro-ops that add up to the same on each, and cheap to feed.

A layer is cut into bands of rows and groups of output channels. A core does a run of them, band after band: it needs
the inputs of its bands and, for each, the weights of all groups or, if it does less than a band, of its own. An
addition is cut like the convolution whose result it takes up, so that this result need not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from meshloom.hw.spec.config import ChipConfig

from ...workload.graph import Layer
from .packing import pack
from .partition import Partition, fit
from .work import Extent, StageWork

#: What a micro-op costs a core besides its cycles: operands on their way, results on theirs.
EACH_CYCLES = 60
#: Part of the cycles of moving words that is not hidden behind computing, unless it is said.
BARED = 0.3
#: Part of a micro-op's cycles for which others wait for its result.
LATE = 0.3


def shared(
    works: Sequence[StageWork], chip: ChipConfig, fineness: float = 1.0, bared: float = BARED
) -> list[Partition]:
    """A partition for each stage. `fineness`: how much it counts that results come early; `bared`: part of the cycles
    of moving words that is not hidden behind computing. Raises DoesNotFit."""
    extents: dict[object, Extent] = {}
    parts: list[Extent] = []
    stage_of: dict[str, int] = {}
    for number, work in enumerate(works):
        key = work.problem, work.op, work.whole, work.weighted
        other = _taken_up(work.stage.layer, works, stage_of)
        if other is not None and not work.too_large(chip, like := _like(parts[other], work)):
            parts.append(like)
        else:
            if key not in extents:
                extents[key] = _best(work, chip, fineness, bared)
            parts.append(extents[key])
        stage_of[work.stage.y] = number
    return [Partition.of(part, chip) for part in parts]


def _taken_up(layer: Layer, works: Sequence[StageWork], stage_of: dict[str, int]) -> int | None:
    """The stage of the convolution whose result an addition takes up: the later of its operands."""
    stages = [stage_of[name] for name in layer.inputs if name in stage_of] if layer.kind == "add" else []
    last = max(stages, default=-1)
    return last if last >= 0 and works[last].op is None else None


def _like(part: Extent, work: StageWork) -> Extent:
    return Extent(part.rows, part.columns, part.planes, work.whole.depth)


def _best(work: StageWork, chip: ChipConfig, fineness: float, bared: float) -> Extent:
    whole, cores = work.whole, len(chip.cores)
    most = 16 * cores
    candidates: list[tuple[float, tuple[int, int], Extent]] = []
    for rows in _sizes(whole.rows):
        bands = ceil(whole.rows / rows)
        for planes in _sizes(whole.planes):
            part = Extent(rows, whole.columns, planes, whole.depth)
            if bands * ceil(whole.planes / planes) <= most and not work.too_large(chip, part):
                candidates.append((_cost(work, chip, part, fineness, bared), (bands, planes), part))
    return min(candidates, key=lambda entry: entry[:2])[2] if candidates else fit(work, chip, whole)


def _sizes(whole: int) -> list[int]:
    """Sizes of parts that differ in the number of parts, and the small ones, whose remainders differ."""
    return sorted({ceil(whole / count) for count in range(1, whole + 1)} | set(range(1, min(whole, 16) + 1)))


def _cost(work: StageWork, chip: ChipConfig, part: Extent, fineness: float, bared: float) -> float:
    """About how many cycles a layer takes, if nothing else is under way."""
    whole, cores, matrix = work.whole, len(chip.cores), work.op is None
    rows, planes = _cuts(whole.rows, part.rows), _cuts(whole.planes, part.planes)
    each = {
        (high, deep): work.cycles(chip, Extent(high, part.columns, deep, part.depth), (0, part.columns))
        for high in {*rows}
        for deep in {*planes}
    }
    sizes = [each[high, deep] + EACH_CYCLES for high in rows for deep in planes]
    if sum(sizes) > cores * max(sizes) * 8:
        cycles = ceil(sum(sizes) / cores) + max(sizes) // 8  # so many that they are even anyway
    else:
        ends = [0] * cores
        for size, share in zip(sizes, pack(sizes, ends), strict=True):
            ends[share] += size
        cycles = max(ends)
    mine = len(sizes) / cores  # micro-ops of a core
    groups = min(len(planes), mine)
    low, high = work.rows_read((0, part.rows))
    band = (high - low) * work.columns_read((0, part.columns))[1] * (part.depth if matrix else part.planes * groups)
    inputs = band * min(len(rows), mine / len(planes) + 1)
    weights = work.constants(chip, part, first=True) * groups
    moved = inputs + max(weights, weights * cores / len(chip.drams))
    late = LATE * fineness * max(sizes)
    return max(cycles, moved) + bared * moved + late


def _cuts(whole: int, part: int) -> list[int]:
    """Sizes of the parts of a dimension."""
    return [min(part, whole - low) for low in range(0, whole, part)]
