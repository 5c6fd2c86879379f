"""Stages cut into grids of micro-ops, and which of them need what of each other: all of it in arrays, so that a search
can cut a network with thousands of micro-ops many times.

Along each dimension (rows, columns, planes) a consumer reads an interval for each of its cuts, and these meet the cuts
of its producer by themselves: so what two stages hand to each other is the product of three short lists of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...workload.stages import Stages
from .muops import Range
from .work import Extent, StageWork

Ints = NDArray[np.int64]
#: (interval, tile, first, end): what intervals have in common with tiles.
_Pairs = tuple[Ints, Ints, Ints, Ints]


def _every(size: int, step: int) -> Ints:
    """[0, size) cut every `step`, with both ends."""
    return np.array([*range(0, size, step), size])


@dataclass(frozen=True, eq=False)
class Grid:
    """A stage cut into micro-ops of size `part`; along each dimension what remains is behind the last whole one.

    `first`: number of its first micro-op. They are numbered by rows, columns, planes and then depth, so that those
    that add up the same sums follow one another.
    """

    work: StageWork
    first: int
    part: Extent

    @cached_property
    def cuts(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Where rows, columns, planes and depth are cut, with both ends."""
        whole, part = self.work.whole, self.part
        return (
            _every(whole.rows, part.rows),
            _every(whole.columns, part.columns),
            _every(whole.planes, part.planes),
            _every(whole.depth, part.depth),
        )

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of cuts along each dimension."""
        rows, columns, planes, depth = (len(cuts) - 1 for cuts in self.cuts)
        return rows, columns, planes, depth

    @property
    def count(self) -> int:
        """Number of micro-ops."""
        return int(np.prod(self.shape))

    @cached_property
    def kinds(self) -> Ints:
        """Which of at most 16 shapes each micro-op has: a bit for each dimension along which it is a remainder."""
        kinds = np.zeros(self.shape, np.int64)
        for axis, (size, step) in enumerate(zip(vars(self.work.whole).values(), vars(self.part).values(), strict=True)):
            if size % step and size > step:
                last = tuple(slice(-1, None) if axis == other else slice(None) for other in range(4))
                kinds[last] += 1 << axis
        return kinds.reshape(-1)

    def _each(self, chip: ChipConfig, what: str) -> Ints:
        """Cycles ("cycles") or words of constants ("constants") of each micro-op; what is alike is computed once."""
        rows, columns, planes, depth = (np.diff(cuts).tolist() for cuts in self.cuts)
        counts = np.zeros(self.shape, np.int64)
        across = self.cuts[1].tolist()
        for c, width in enumerate(columns):
            if c and self.work.op is None and c < len(columns) - 1:
                counts[:, c] = counts[:, 0]
                continue
            for r in {0, len(rows) - 1}:
                for n in {0, len(planes) - 1}:
                    for k in {0, min(1, len(depth) - 1), len(depth) - 1}:
                        part = Extent(rows[r], width, planes[n], depth[k])
                        if what == "cycles":
                            value = self.work.cycles(chip, part, (across[c], across[c + 1]))
                        else:
                            value = self.work.constants(chip, part, first=k == 0)
                        counts[r, c, n, k] = value
            # all but the last have the size of the first; of the depth, the first has biases
            counts[:, c, :, 1:-1] = counts[:, c, :, 1:2]
            counts[:, c, 1:-1] = counts[:, c, :1]
            counts[1:-1, c] = counts[:1, c]
        return counts.reshape(-1)

    def cycles(self, chip: ChipConfig) -> Ints:
        """Cycles of each micro-op on its unit."""
        return self._each(chip, "cycles")

    def constants(self, chip: ChipConfig) -> Ints:
        """Words of weights and biases of each."""
        return self._each(chip, "constants")

    @cached_property
    def sizes(self) -> Ints:
        """Words of int8 of the part of the result that each is about."""
        rows, columns, planes, depth = (np.diff(cuts) for cuts in self.cuts)
        areas = rows[:, None, None, None] * columns[None, :, None, None] * planes[None, None, :, None]
        return np.broadcast_to(areas, (*self.shape[:3], len(depth))).reshape(-1)

    @cached_property
    def same(self) -> Ints:
        """The first micro-op with the same weights."""
        numbers = np.arange(self.count).reshape(self.shape)
        return np.broadcast_to(numbers[:1, :1], self.shape).reshape(-1) + self.first

    @cached_property
    def words_read(self) -> Ints:
        """Words of all operands of each."""
        words = np.zeros(self.shape, np.int64)
        for operand in range(len(self.work.reads)):
            r0, r1, c0, c1, p0, p1 = self.reads(operand)
            planes = p1 - p0
            by = planes[None, None, None, :] if self.work.op is None else planes[None, None, :, None]
            words += (r1 - r0)[:, None, None, None] * (c1 - c0)[None, :, None, None] * by
        return words.reshape(-1)

    def reads(self, operand: int) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """First and end of what is read of an operand: rows by row cut, columns by column cut, planes by depth cut of
        the array, else by plane cut."""
        rows, columns, planes, depth = self.cuts
        by = depth if self.work.op is None else planes
        if operand:
            return rows[:-1], rows[1:], columns[:-1], columns[1:], by[:-1], by[1:]
        tall = np.array([self.work.rows_read(cut) for cut in ranges(rows)])
        wide = np.array([self.work.columns_read(cut) for cut in ranges(columns)])
        return tall[:, 0], tall[:, 1], wide[:, 0], wide[:, 1], by[:-1], by[1:]


def ranges(cuts: Ints) -> list[Range]:
    """What lies between cuts."""
    listed: list[int] = cuts.tolist()
    return list(pairwise(listed))


@dataclass(frozen=True, eq=False)
class Links:
    """What micro-ops hand on, by consumers and then producers. `operand`: of the consumer, -1: partial sums. `regions`:
    int [links, 6], first and end of planes, rows, columns in the producer's tensor. `words`: of P bytes."""

    producer: Ints
    consumer: Ints
    operand: Ints
    regions: Ints
    words: Ints


@dataclass(frozen=True, eq=False)
class Cutting:
    """A network cut into micro-ops, in arrays of int64 for each. `weights`: words of weights and biases; `same`: those
    with the same number need the same; `fetched`: words of operands that no micro-op makes, which lie in DRAM."""

    stages: Stages
    grids: tuple[Grid, ...]
    links: Links
    cycles: Ints
    weights: Ints
    same: Ints
    fetched: Ints

    @property
    def count(self) -> int:
        """Number of micro-ops."""
        return len(self.cycles)

    @cached_property
    def stage(self) -> Ints:
        """The number of the stage of each."""
        return np.repeat(np.arange(len(self.grids)), [grid.count for grid in self.grids])


def lay_grids(all_works: Sequence[StageWork], parts: Sequence[Extent]) -> tuple[Grid, ...]:
    """The grids of all stages, numbered one after the other."""
    grids: list[Grid] = []
    first = 0
    for work, part in zip(all_works, parts, strict=True):
        grids.append(Grid(work, first, part))
        first += grids[-1].count
    return tuple(grids)


def cut_up(stages: Stages, all_works: Sequence[StageWork], parts: Sequence[Extent], chip: ChipConfig) -> Cutting:
    """The network with each stage in parts of its size."""
    grids = lay_grids(all_works, parts)
    links = link(stages, grids)
    cycles, weights, same, read = (
        np.concatenate(each)
        for each in zip(
            *((grid.cycles(chip), grid.constants(chip), grid.same, grid.words_read) for grid in grids), strict=True
        )
    )
    handed = np.bincount(links.consumer, links.words * (links.operand >= 0), len(read)).astype(np.int64)
    return Cutting(stages, grids, links, cycles, weights, same, read - handed)


def link(stages: Stages, grids: Sequence[Grid]) -> Links:
    """What the micro-ops of all stages hand to each other. What no stage makes comes from DRAM, and is no link."""
    producers: dict[str, list[tuple[int, Grid]]] = {}  # root -> planes from which on a stage makes it
    for grid in grids:
        root, first = stages.roots[grid.work.stage.y]
        producers.setdefault(root, []).append((first, grid))
    pieces: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    for grid in grids:
        for operand, name in enumerate(grid.work.reads):
            if name not in stages.roots:
                continue  # packed by the host
            root, offset = stages.roots[name]
            for first, producer in producers.get(root, ()):
                part = _handed(grid, operand, offset - first, producer)
                if part is not None:
                    pieces.append(part)
        if grid.shape[3] > 1:
            pieces.append(_chain(grid))
    if not pieces:
        empty = np.zeros(0, np.int64)
        return Links(empty, empty, empty, np.zeros((0, 6), np.int64), empty)
    producer, consumer, operand, regions, words = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.lexsort((operand, producer, consumer))
    return Links(producer[order], consumer[order], operand[order], regions[order], words[order])


def _pairs(low: Ints, high: Ints, cuts: Ints) -> _Pairs:
    """What each interval [low, high) has in common with each tile between cuts."""
    low, high = np.maximum(low, 0), np.minimum(high, cuts[-1])
    first = np.searchsorted(cuts, low, "right") - 1
    count = np.maximum(np.searchsorted(cuts, high, "left") - first, 0)
    count[low >= high] = 0
    interval = np.repeat(np.arange(len(low)), count)
    tile = np.arange(len(interval)) - np.repeat(np.cumsum(count) - count, count) + first[interval]
    return interval, tile, np.maximum(low[interval], cuts[tile]), np.minimum(high[interval], cuts[tile + 1])


def _handed(grid: Grid, operand: int, offset: int, producer: Grid) -> tuple[Ints, Ints, Ints, Ints, Ints] | None:
    """Links of one operand to a stage that makes part of it, whose planes begin `offset` before the operand's."""
    r0, r1, c0, c1, p0, p1 = grid.reads(operand)
    rows = _pairs(r0, r1, producer.cuts[0])
    columns = _pairs(c0, c1, producer.cuts[1])
    planes = _pairs(p0 + offset, p1 + offset, producer.cuts[2])
    if not len(planes[0]):
        return None
    matrix = grid.work.op is None
    repeats = np.arange(grid.shape[2]) if matrix else np.zeros(1, np.int64)  # each output plane reads the same
    size = len(rows[0]), len(columns[0]), len(planes[0]), len(repeats)

    def spread(values: Ints, axis: int) -> Ints:
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        return np.broadcast_to(values.reshape(shape), size).reshape(-1)

    _, wide, deep, sums = grid.shape
    n, k = (spread(repeats, 3), spread(planes[0], 2)) if matrix else (spread(planes[0], 2), spread(repeats, 3))
    consumers = ((spread(rows[0], 0) * wide + spread(columns[0], 1)) * deep + n) * sums + k
    _, wide, deep, sums = producer.shape
    producers = (spread(rows[1], 0) * wide + spread(columns[1], 1)) * deep + spread(planes[1], 2)
    producers = producers * sums + sums - 1  # the one that completes the sums
    bounds = [spread(axis[end], number) for number, axis in ((2, planes), (0, rows), (1, columns)) for end in (2, 3)]
    regions = np.stack(bounds, axis=1)
    words = np.prod(regions[:, 1::2] - regions[:, ::2], axis=1)
    return producers + producer.first, consumers + grid.first, np.full_like(consumers, operand), regions, words


def _chain(grid: Grid) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Links of partial sums: words of int32, four of int8 each."""
    rows, columns, planes, _ = grid.cuts
    numbers = np.arange(grid.count).reshape(grid.shape)
    producers, consumers = numbers[..., :-1].reshape(-1), numbers[..., 1:].reshape(-1)
    r, c, n, _ = np.unravel_index(consumers, grid.shape)
    regions = np.stack([planes[n], planes[n + 1], rows[r], rows[r + 1], columns[c], columns[c + 1]], axis=1)
    words = 4 * grid.sizes[consumers]
    return producers + grid.first, consumers + grid.first, np.full_like(consumers, -1), regions, words
