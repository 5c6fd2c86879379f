"""Partition of a network into micro-ops (C. Bai et al., "Klotski", ICCAD 2023, section III-B and Figure 5).

s(h, w, ic, oc) cuts the result of a stage into tiles of h rows, w columns and oc channels, and the channels that are
summed up for it into pieces of ic. What remains along a dimension is cut to a smaller size, which makes at most 16
kinds. Pieces of one tile form a chain: each adds its products to the sums of the one before, and the last requantises.

Channels are those of words: a word of the array's result has `cols` of them, so oc is a multiple of `cols` (14 of a
core with 12 x 14 processing elements), and the array takes words of `lanes` lanes in turn, however many of them carry a
channel, so ic is a multiple of `lanes` (16). The paper's multiples (of m and n of an m x n array) are the same rule for
an array whose rows are input channels; here its rows are pixels, of which tiles should have a multiple of `rows` (12).
A layer of the vector unit has no ic, and its tiles have as many words of channels as oc gives those of the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import DoesNotFit
from ...workload.stages import Stages
from .cutting import Cutting, Grid, cut_up, ranges
from .muops import Edge, MuGraph, MuOp, Region
from .work import Extent, StageWork, works


@dataclass(frozen=True, order=True)
class Partition:
    """s(h, w, ic, oc): rows, columns, input channels (multiple of the chip's `lanes`) and output channels (multiple of
    `cols`) of a micro-op, all at least 1; what is more than a stage has means all of it."""

    h: int
    w: int
    ic: int
    oc: int

    def __str__(self) -> str:
        return f"s({self.h}, {self.w}, {self.ic}, {self.oc})"

    def extent(self, work: StageWork, chip: ChipConfig) -> Extent:
        """The size of a micro-op of a stage. Raises ValueError when it is no multiple of the array."""
        if min(self.h, self.w, self.ic, self.oc) < 1 or self.ic % chip.lanes or self.oc % chip.cols:
            raise ValueError(
                f"partition {self}: give rows and columns of at least 1, ic as a multiple of {chip.lanes} (lanes) and "
                f"oc of {chip.cols} (columns of the array of {chip.name})"
            )
        whole = work.whole
        planes, depth = self.oc // chip.cols, self.ic // chip.lanes
        return Extent(min(self.h, whole.rows), min(self.w, whole.columns), min(planes, whole.planes),
                      min(depth, whole.depth))  # fmt: skip

    @classmethod
    def of(cls, extent: Extent, chip: ChipConfig) -> Partition:
        """The partition with micro-ops of that size."""
        return cls(extent.rows, extent.columns, extent.depth * chip.lanes, extent.planes * chip.cols)


def fit(work: StageWork, chip: ChipConfig, extent_of_plan: Extent) -> Extent:
    """The size nearest to the wanted one that fits a core: the fewest halvings of its dimensions, of equal ones the
    largest. A part fits if half of each memory holds what it reads and makes, so that the next one's operands can come
    meanwhile. Raises DoesNotFit, naming the layer, when not even one word of the result does."""
    for times in range(sum((size - 1).bit_length() for size in vars(extent_of_plan).values()) + 1):
        fitting = [extent for extent in _halved(extent_of_plan, times) if not work.too_large(chip, extent)]
        if fitting:
            return max(fitting, key=lambda e: (e.pixels * e.planes * e.depth, e.depth, e.rows, e.columns, e.planes))
    least = Extent(1, 1, 1, 1)
    ample = work.ample(chip, least)
    raise DoesNotFit(
        f"layer {work.stage.layer.output}: no part of it fits a core of chip {chip.name} with room for the next one: "
        f"one pixel of one block of channels takes {work.too_large(chip, least)}; {ample}{', or ' * bool(ample)}take "
        "scheduler loop_order, which needs no room for the next one"
    )


def _halved(extent: Extent, times: int) -> Iterator[Extent]:
    """All sizes that come of halving dimensions (rounded up) so many times in all, none of them below 1."""
    sizes = tuple(vars(extent).values())
    most = [min((size - 1).bit_length(), times) for size in sizes]
    for halvings in product(*(range(count + 1) for count in most)):
        if sum(halvings) == times:
            yield Extent(*(-(-size >> count) for size, count in zip(sizes, halvings, strict=True)))


def fitted(
    all_works: Sequence[StageWork], chip: ChipConfig, partitions: Partition | Sequence[Partition]
) -> list[Extent]:
    """The sizes of the micro-ops of each stage: those of one partition for all of them, or of one for each, or the
    nearest that fit. Raises DoesNotFit, and ValueError when there are more or fewer partitions than stages."""
    extents = [partitions] * len(all_works) if isinstance(partitions, Partition) else list(partitions)
    if len(extents) != len(all_works):
        raise ValueError(f"{len(extents)} partitions for {len(all_works)} stages: give one for each, or one for all")
    return [fit(work, chip, each.extent(work, chip)) for work, each in zip(all_works, extents, strict=True)]


def cutting(stages: Stages, chip: ChipConfig, partitions: Partition | Sequence[Partition]) -> Cutting:
    """The network in micro-ops, in arrays. Raises DoesNotFit and ValueError as `works` and `fitted` do."""
    all_works = works(stages, chip)
    return cut_up(stages, all_works, fitted(all_works, chip, partitions), chip)


def micro_ops(stages: Stages, chip: ChipConfig, partitions: Partition | Sequence[Partition]) -> MuGraph:
    """A network (of `work.stages_of`) in micro-ops of these sizes, or the nearest that fit; one for each stage, or one
    for all.

    An edge's tensor and region are those of its producer; an operand that is part of a concatenation begins at another
    plane of what the consumer reads (`Stages.roots`). Who reads one tensor twice has two edges. Raises DoesNotFit for a
    layer that no instruction computes or no part of which fits a core, and ValueError for partitions that are no
    multiples of the array or not as many as there are stages.
    """
    return listed(cutting(stages, chip, partitions), chip)


def listed(cutting: Cutting, chip: ChipConfig) -> MuGraph:
    """The micro-ops and edges of a cutting, one by one."""
    ops: list[MuOp] = []
    for grid in cutting.grids:
        ops += _ops(grid, chip)
    links = cutting.links
    names = [cutting.grids[op.stage].work.stage.y for op in ops]
    columns = (links.producer, links.consumer, links.operand, *links.regions.T)
    edges: list[Edge] = []
    rows: Iterator[list[int]] = map(list, zip(*(column.tolist() for column in columns), strict=True))
    for producer, consumer, operand, *bounds in rows:
        edges.append(Edge(producer, consumer, names[producer], _region(bounds), operand < 0))
    return MuGraph(cutting.stages, tuple(ops), tuple(edges))


def _ops(grid: Grid, chip: ChipConfig) -> Iterator[MuOp]:
    """The micro-ops of a stage."""
    work = grid.work
    rows, columns, planes, depth = (ranges(cuts) for cuts in grid.cuts)
    numbers = zip(grid.kinds.tolist(), grid.cycles(chip).tolist(), grid.constants(chip).tolist(), strict=True)
    places = product(*(range(count) for count in grid.shape))
    for index, ((r, c, n, k), (kind, cycles, constants)) in enumerate(zip(places, numbers, strict=True)):
        number, result = grid.first + index, Region(planes[n], rows[r], columns[c])
        channels = depth[k] if work.op is None else planes[n]
        read = Region(channels, work.rows_read(rows[r]), work.columns_read(columns[c]))
        yield MuOp(
            number=number, stage=work.number, kind=kind, unit=work.unit, result=result,
            reads=tuple((name, result if operand else read) for operand, name in enumerate(work.reads)),
            channels=channels, sums=number - 1 if k else None, last=k == len(depth) - 1, cycles=cycles,
            constants=constants,
        )  # fmt: skip


def _region(bounds: Sequence[int]) -> Region:
    p0, p1, r0, r1, c0, c1 = bounds
    return Region((p0, p1), (r0, r1), (c0, c1))
