"""Channels and pixels of an activation change places, on a group of cores: the vector unit's TRANSPOSE.

Each image, and each of its groups of channels, is turned by itself (see `schedulers.network.transpose`, which does the
same for a whole network). Tiles are some words of channels x some sheets of P pixels, a few under way at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import cast

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Region, VectorOp, address
from meshloom.hw.spec.timing import VecShape, vec_occupancy

from ...ir import bodies
from ...ir.schedule import Operation, Vec
from ...mapping.memory.placement import Transfer
from ...mapping.tiling.problem import DoesNotFit
from ...mapping.tiling.tiles import Range, even
from .memory import Striped, turned
from .schemes import LayerShape, Scheme, SubTile, groups_of
from .steps import CoreVisit, OperationsAt, Ring, push, share_out

#: Tiles that are under way at a time, if memories have room for so many.
SLOTS = 3
#: Cycles that each tile costs beside its words.
_EACH = 60
_VEC = INSTRUCTIONS[Opcode.VEC]


@dataclass(frozen=True)
class ServedTranspose:
    """A transpose with the places of its tensors, both seen as rows of one pixel. `shape`: its rows are the words of a
    group's channels, its output blocks the sheets of all `groups`; `pixels`: of x in an image; `runs`: words of a group
    that are full but for the last one, and the channels that they have."""

    shape: LayerShape
    x: Striped
    y: Striped
    groups: int
    pixels: int
    runs: tuple[tuple[Range, Range], ...]

    @property
    def sheets(self) -> int:
        """Words of pixels that a group makes of each channel."""
        return self.shape.problem.n_blocks // self.groups

    @property
    def fixed(self) -> dict[str, int]:
        """Nothing: no byte is changed."""
        return {}


@dataclass(frozen=True)
class TransposeTiling:
    """The most words of channels and sheets of a tile, and how many are under way."""

    deep: int
    sheets: int
    slots: int


@dataclass(frozen=True)
class _TransposeTile:
    image: int
    group: int
    words: Range
    channels: Range
    sheets: Range


def cut(task: ServedTranspose, chip: ChipConfig, part: SubTile) -> TransposeTiling:
    """How a core cuts its part. Raises DoesNotFit."""
    core, lanes = chip.core, chip.lanes
    most = min(_VEC.most("in_w"), _VEC.most("pixels"), _VEC.most("x_plane")) // lanes
    sheets = max(high - low for _, (low, high) in groups_of(part.n, task.sheets))
    longest = max(high - low for (low, high), _ in task.runs)
    for slots in range(SLOTS, 0, -1):
        best: tuple[int, TransposeTiling] | None = None
        for wide in sorted({ceil(sheets / parts) for parts in range(1, sheets + 1)}):
            room = min(min(core.a_words, core.vec_words) // slots // (wide * lanes), _VEC.most("blocks"), longest)
            if wide > most or not room:
                break
            for deep in range(1, room + 1):
                tiles = ceil(sheets / wide) * sum(ceil((high - low) / deep) for (low, high), _ in task.runs)
                cost = tiles * (deep * wide * lanes + lanes + _EACH)
                if best is None or cost < best[0]:
                    best = cost, TransposeTiling(deep, wide, slots)
        if best is not None:
            return best[1]
    raise DoesNotFit(f"A or VEC of a {chip.name} core is too small: a tile to transpose has {lanes} words")


def emit(task: ServedTranspose, chip: ChipConfig, scheme: Scheme, cores: Sequence[int]) -> list[Operation]:
    """All operations of a transpose on these cores, in order. Raises DoesNotFit."""
    return share_out(task.shape, chip, scheme, cores, partial(_TransposeCore, task, chip))


class _TransposeCore:
    def __init__(self, task: ServedTranspose, chip: ChipConfig, part: SubTile, core: int, index: int) -> None:
        self.task, self.chip, self.part, self.core, self.index = task, chip, part, core, index
        self.words = task.shape.problem.out_rows  # of a group's channels
        self.channels = max(last for _, (_, last) in task.runs)  # of a group: pixels of the result
        self.tiling = cut(task, chip, part)
        self.slot = self.tiling.deep * self.tiling.sheets * chip.lanes

    def rings(self) -> dict[str, Ring]:
        """The operands of the VECs."""
        return {"x": Ring(Region.MAIN, 0, self.slot, self.tiling.slots, self._inputs)}

    def _pixels(self, tile: _TransposeTile) -> Range:
        """Pixels of an image that a tile turns."""
        lanes = self.chip.lanes
        return tile.sheets[0] * lanes, min(tile.sheets[1] * lanes, self.task.pixels)

    def _inputs(self, key: Hashable, at: int) -> list[Transfer]:
        tile = cast("_TransposeTile", key)
        plane, row = tile.group * self.words, tile.image * self.task.pixels
        low, high = self._pixels(tile)
        planes = plane + tile.words[0], plane + tile.words[1]
        return list(self.task.x.transfers(planes, (row + low, row + high, 1), self.core, at))

    def steps(self) -> list[CoreVisit]:
        """Its VECs, images and groups outermost."""
        steps: list[CoreVisit] = []
        for tile in self._tiles():
            cycles = vec_occupancy(self.chip, VecShape.of(self._fields(tile)))
            steps.append(CoreVisit(len(steps), {"x": tile}, cycles, self._make(tile, len(steps))))
        return steps

    def _tiles(self) -> list[_TransposeTile]:
        tiling, lanes = self.tiling, self.chip.lanes
        tiles: list[_TransposeTile] = []
        for image, _, _ in self.part.segments:
            for group, (low, high) in groups_of(self.part.n, self.task.sheets):
                for (first, end), (channel, last) in self.task.runs:
                    for words in even(first, end, ceil((end - first) / tiling.deep)):
                        begin = channel + (words[0] - first) * lanes
                        channels = begin, min(last, begin + (words[1] - words[0]) * lanes)
                        for sheets in even(low, high, ceil((high - low) / tiling.sheets)):
                            tiles.append(_TransposeTile(image, group, words, channels, sheets))
        return tiles

    def _fields(self, tile: _TransposeTile) -> dict[str, int]:
        """The body of a tile's VEC, without its addresses."""
        low, high = self._pixels(tile)
        return bodies.vec(
            op=VectorOp.TRANSPOSE, x_plane=high - low, in_w=high - low, blocks=tile.words[1] - tile.words[0],
            out_w=high - low, pixels=high - low,
        )  # fmt: skip

    def _make(self, tile: _TransposeTile, number: int) -> OperationsAt:
        def make(at: dict[str, int]) -> tuple[list[Operation], list[Operation]]:
            base = number % self.tiling.slots * self.slot
            body = self._fields(tile) | {"x_base": at["x"], "dest_base": base}
            label = f"i{tile.image} g{tile.group} b{tile.words[0]} s{tile.sheets[0]}"
            first, row = tile.group * self.task.sheets, tile.image * self.channels
            planes = first + tile.sheets[0], first + tile.sheets[1]
            rows, stride = (row + tile.channels[0], row + tile.channels[1], 1), body["blocks"] * self.chip.lanes
            stores = list(self.task.y.transfers(planes, rows, self.core, address(Region.VEC, base), stride))
            return [Vec(core=self.core, fields=body, label=label)], [
                push(self.core, t, f"y {label}") for t in turned(stores, self.index)
            ]

        return make
