"""Partitions that share each layer out among all cores: a few micro-ops a core, alike and cheap to feed.

A layer is cut into bands of rows and groups of output channels. Bands multiply weights that every core then needs,
groups inputs; both pass the DRAM channels and the one port of a core. What is left over when micro-ops do not divide by
cores, or pixels by rows of the array, is paid for in cycles of the units.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from meshloom.hw.config import ChipConfig

from .partition import Partition, fit
from .work import Extent, Work

#: What a turn of micro-ops costs besides its cycles: operands on their way, results on theirs.
TURN_CYCLES = 60
#: Part of the cycles of moving words that is not hidden behind computing.
BARED = 0.3
#: Part of a layer's cycles that it costs to do it in fewer turns than wanted: the next layer begins later.
COARSE = 0.02


def shared(works: Sequence[Work], chip: ChipConfig, turns: int) -> list[Partition]:
    """A partition for each stage: about `turns` micro-ops for each core. Raises DoesNotFit."""
    return [Partition.of(_best(work, chip, turns), chip) for work in works]


def _best(work: Work, chip: ChipConfig, turns: int) -> Extent:
    whole, cores = work.whole, len(chip.cores)
    most = 4 * cores * turns
    found: list[tuple[float, tuple[int, int], Extent]] = []
    for bands in _counts(whole.rows, most):
        for groups in _counts(whole.planes, most // bands):
            part = Extent(ceil(whole.rows / bands), whole.columns, ceil(whole.planes / groups), whole.depth)
            if not work.too_large(chip, part):
                found.append((_cost(work, chip, part, bands, groups, turns), (bands, groups), part))
    return min(found, key=lambda entry: entry[:2])[2] if found else fit(work, chip, whole)


def _counts(size: int, most: int) -> list[int]:
    """Into how many parts of equal size, but for the last one, a dimension can be cut."""
    return [count for count in range(1, min(size, most) + 1) if ceil(size / ceil(size / count)) == count]


def _cost(work: Work, chip: ChipConfig, part: Extent, bands: int, groups: int, turns: int) -> float:
    cores, matrix = len(chip.cores), work.op is None
    count = bands * groups
    in_turn = ceil(count / cores)
    cycles = in_turn * work.cycles(chip, part, (0, part.columns))
    weights = work.constants(chip, part, first=True) * groups * min(bands, cores)
    low, high = work.rows_read((0, part.rows))
    deep = part.depth * min(groups, cores) if matrix else part.planes * groups
    inputs = (high - low) * work.columns_read((0, part.columns))[1] * deep * bands
    moved = weights / len(chip.drams) + inputs / cores
    coarse = COARSE * cycles if in_turn < turns else 0.0
    return max(cycles, weights / len(chip.drams), inputs / cores) + BARED * moved + TURN_CYCLES * in_turn + coarse
