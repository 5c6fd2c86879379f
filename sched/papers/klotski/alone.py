"""The best size of micro-ops for one layer by itself, if the layers around it did not matter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil

from meshloom.hw.spec.config import ChipConfig

from .partition import fit
from .playing import Cores
from .work import Extent, StageWork

#: Turns of all cores that a layer may take, if more are not asked for; more of them only cost more operands.
_TURNS = 4
#: Into how many parts columns and depth are cut, which costs halos and partial sums.
_COLUMNS, _DEPTH = (1, 2, 4), (1, 2)


def alone(work: StageWork, chip: ChipConfig, cores: Cores, turns: int = 1) -> Extent:
    """The size with which a layer takes the fewest cycles when its operands are there: as many turns as cores need for
    its micro-ops, each as long as its unit computes or its words come (weights from DRAM, the rest from cores). There
    are at least `turns` of them, if it can be cut so: then layers can overlap. Raises DoesNotFit."""
    best: tuple[bool, float, int, Extent] | None = None
    for extent, count in _sizes(work, max(_TURNS, 2 * turns) * len(cores)):
        if work.too_large(chip, extent):
            continue
        rounds = ceil(count / len(cores))
        entry = rounds < turns, rounds * _turn(work, chip, cores, extent), count, extent
        if best is None or entry[:3] < best[:3]:
            best = entry
    return best[3] if best else fit(work, chip, work.whole)


def _sizes(work: StageWork, most: int) -> Iterator[tuple[Extent, int]]:
    """Sizes that cut a layer into no more than so many micro-ops, and how many these are."""
    whole = work.whole
    choices = (
        _steps(whole.rows, range(1, most + 1)),
        _steps(whole.columns, _COLUMNS),
        _steps(whole.planes, range(1, most + 1)),
        _steps(whole.depth, _DEPTH),
    )
    for rows, columns, planes, depth in product(*choices):
        count = rows[1] * columns[1] * planes[1] * depth[1]
        if count <= most:
            yield Extent(rows[0], columns[0], planes[0], depth[0]), count


def _steps(size: int, parts: range | tuple[int, ...]) -> list[tuple[int, int]]:
    """Steps that cut a dimension into so many parts, each with the number that there are then."""
    steps = dict.fromkeys(ceil(size / count) for count in parts if count <= size)
    return [(step, ceil(size / step)) for step in steps]


def _turn(work: StageWork, chip: ChipConfig, cores: Cores, extent: Extent) -> float:
    columns = (0, extent.columns)
    (r0, r1), (c0, c1) = work.rows_read((0, extent.rows)), work.columns_read(columns)
    deep = extent.depth if work.op is None else extent.planes
    words = (r1 - r0) * (c1 - c0) * deep * len(work.reads) + 4 * extent.pixels * extent.planes * (
        extent.depth < work.whole.depth
    )
    weights = work.constants(chip, extent, first=True)
    return max(work.cycles(chip, extent, columns), words + weights * cores.share)
