"""A product of two activations on a group of cores: the words of B are pixels of the second one.

Each image, and each of its groups of channels, has a product of its own (see `schedulers.network.product`, which does
the same for a whole network). Its tiles are some blocks of output channels x some pixels, a few under way at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import cast

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy

from ...ir import bodies
from ...ir.schedule import Gemm, Operation
from ...mapping.memory.placement import Transfer
from ...mapping.nodes import Run
from ...mapping.tiling.problem import (
    FLAT_WIDTH,
    MAX_IN_WIDTH,
    MAX_K_BLOCKS,
    MAX_N_BLOCKS,
    MAX_PIXELS,
    MAX_PLANE,
    DoesNotFit,
)
from ...mapping.tiling.tiles import Range, even
from .memory import Striped, turned
from .schemes import LayerShape, Scheme, SubTile, groups_of
from .steps import CoreVisit, OperationsAt, Ring, push, share_out

#: Tiles that are under way at a time, if memories have room for so many.
SLOTS = 3
#: Cycles that each tile costs beside its work.
_EACH = 60


@dataclass(frozen=True)
class ServedProduct:
    """A product with the places of its tensors, all seen as rows of one pixel. `shape`: its rows are pixels of `a`, its
    input blocks those of a group, its output blocks those of all `groups`; `filters`: pixels of `b` in an image;
    `zeros`: words that stand for those that its last block lacks, if any."""

    shape: LayerShape
    a: Striped
    b: Striped
    y: Striped
    zeros: Striped | None
    groups: int
    filters: int
    fixed: dict[str, int]

    @property
    def blocks(self) -> int:
        """Blocks of output channels of a group."""
        return self.shape.problem.n_blocks // self.groups


@dataclass(frozen=True)
class ProductTiling:
    """The most output blocks and pixels of a tile, and how many are under way."""

    blocks: int
    pixels: int
    slots: int


@dataclass(frozen=True)
class _ProductTile:
    image: int
    group: int
    blocks: Range
    pixels: Range


def cut(task: ServedProduct, chip: ChipConfig, part: SubTile) -> ProductTiling:
    """How a core cuts its part. Raises DoesNotFit."""
    depth, core = task.shape.problem.k_blocks, chip.core
    rows = max(r1 - r0 for _, r0, r1 in part.segments)
    wide = max(high - low for _, (low, high) in groups_of(part.n, task.blocks))
    for slots in range(SLOTS, 0, -1):
        best: tuple[float, ProductTiling] | None = None
        for pixels in sorted({ceil(rows / parts) for parts in range(1, rows + 1)}):
            if pixels > min(MAX_PIXELS, MAX_PLANE) or slots * depth * pixels > core.a_words:
                break
            for deep in sorted({ceil(wide / parts) for parts in range(1, wide + 1)}):
                if deep > MAX_N_BLOCKS or slots * depth * deep * chip.cols > core.b_words:
                    break
                if slots * deep * pixels > core.out_words:
                    break
                tiles = ceil(rows / pixels) * ceil(wide / deep)
                computes = tiles * deep * ceil(pixels / chip.rows) * depth * chip.lanes
                words = tiles * (depth * (pixels + deep * chip.cols) + deep * pixels)
                cost = max(computes, words) + 0.2 * min(computes, words) + tiles * _EACH
                if best is None or cost < best[0]:
                    best = cost, ProductTiling(deep, pixels, slots)
        if best is not None and depth <= MAX_K_BLOCKS:
            return best[1]
    raise DoesNotFit(
        f"a product over {depth * chip.lanes} channels needs {depth} words of A and {depth * chip.cols} of B for its "
        f"smallest tile; a {chip.name} core has {core.a_words} and {core.b_words}, an instruction holds "
        f"{MAX_K_BLOCKS} words of each"
    )


def emit(task: ServedProduct, chip: ChipConfig, scheme: Scheme, cores: Sequence[int]) -> list[Operation]:
    """All operations of a product on these cores, in order. Raises DoesNotFit."""
    return share_out(task.shape, chip, scheme, cores, partial(_ProductCore, task, chip))


class _ProductCore:
    def __init__(self, task: ServedProduct, chip: ChipConfig, part: SubTile, core: int, index: int) -> None:
        self.task, self.chip, self.part, self.core, self.index = task, chip, part, core, index
        self.depth, self.map = task.shape.problem.k_blocks, task.shape.problem.out_rows
        self.tiling = cut(task, chip, part)
        self.y_slot = self.tiling.blocks * self.tiling.pixels

    def rings(self) -> dict[str, Ring]:
        """The operands of the GEMMs."""
        tiling = self.tiling
        return {
            "b": Ring(Region.B, 0, self.depth * self.chip.cols * tiling.blocks, tiling.slots, self._filters),
            "a": Ring(Region.MAIN, 0, self.depth * tiling.pixels, tiling.slots, self._inputs),
        }

    def _planes(self, group: int) -> Range:
        return group * self.depth, (group + 1) * self.depth

    def _inputs(self, key: Hashable, at: int) -> list[Transfer]:
        image, group, pixels = cast("tuple[int, int, Range]", key)
        first = image * self.map
        return list(
            self.task.a.transfers(self._planes(group), (first + pixels[0], first + pixels[1], 1), self.core, at)
        )

    def _filters(self, key: Hashable, at: int) -> list[Transfer]:
        image, group, blocks = cast("tuple[int, int, Range]", key)
        cols, first = self.chip.cols, image * self.task.filters
        moves: list[Transfer] = []
        for block in range(*blocks):
            low, high = block * cols, min((block + 1) * cols, self.task.filters)
            moves += self.task.b.transfers(self._planes(group), (first + low, first + high, 1), self.core, at, cols)
            if missing := low + cols - high:
                moves.append(self._zeros(missing, at + high - low))
            at += self.depth * cols
        return moves

    def _zeros(self, missing: int, at: int) -> Transfer:
        """Words of zeros behind the pixels of each plane."""
        assert self.task.zeros is not None
        piece, words = self.task.zeros.pieces()[0], missing * self.depth
        run = (missing, self.chip.cols) if self.depth > 1 else (words, words)
        return Transfer(Run(piece.tile, piece.address, words, words), Run(self.core, at, *run), words)

    def steps(self) -> list[CoreVisit]:
        """Its GEMMs, images and groups outermost."""
        steps: list[CoreVisit] = []
        tiling = self.tiling
        for image, r0, r1 in self.part.segments:
            for group, (low, high) in groups_of(self.part.n, self.task.blocks):
                for blocks in even(low, high, ceil((high - low) / tiling.blocks)):
                    for pixels in even(r0, r1, ceil((r1 - r0) / tiling.pixels)):
                        tile = _ProductTile(image, group, blocks, pixels)
                        uses: dict[str, Hashable] = {"a": (image, group, pixels), "b": (image, group, blocks)}
                        shape = GemmShape(pixels[1] - pixels[0], blocks[1] - blocks[0], self.depth, 1, 1)
                        cycles = gemm_occupancy(self.chip, shape)
                        steps.append(CoreVisit(len(steps), uses, cycles, self._make(tile, len(steps))))
        return steps

    def _make(self, tile: _ProductTile, number: int) -> OperationsAt:
        def make(at: dict[str, int]) -> tuple[list[Operation], list[Operation]]:
            base = number % self.tiling.slots * self.y_slot
            pixels, blocks = tile.pixels[1] - tile.pixels[0], tile.blocks[1] - tile.blocks[0]
            wide = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
            body = bodies.gemm(
                a_base=at["a"], a_plane=pixels, in_w=wide, k_blocks=self.depth, out_w=wide, pixels=pixels,
                b_base=at["b"], n_blocks=blocks, dest_base=base,
            ) | self.task.fixed  # fmt: skip
            label = f"i{tile.image} g{tile.group} n{tile.blocks[0]} p{tile.pixels[0]}"
            first, row = tile.group * self.task.blocks, tile.image * self.map
            planes = first + tile.blocks[0], first + tile.blocks[1]
            rows = row + tile.pixels[0], row + tile.pixels[1], 1
            stores = list(self.task.y.transfers(planes, rows, self.core, address(Region.OUT, base)))
            return [Gemm(core=self.core, fields=body, label=label)], [
                push(self.core, t, f"y {label}") for t in turned(stores, self.index)
            ]

        return make
