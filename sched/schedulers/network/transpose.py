"""Channels and pixels of a tensor change places: the vector unit's TRANSPOSE, a few blocks and P pixels at once.

A group of channels (`Layer.groups`) of x lies in words of its own. Its words [block][pixel] become
[P pixels][block * P + lane]; a lane without a channel makes a word of no pixel, which stays in VEC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Region, VectorOp, address
from meshloom.hw.spec.timing import VecShape, vec_occupancy

from ...ir import bodies
from ...ir.schedule import Box
from ...mapping.memory.placement import Stored
from ...mapping.nodes import Node
from ...mapping.tiling.problem import DoesNotFit
from ...mapping.tiling.tiles import Range, even
from ...workload.graph import Layer
from ...workload.stages import Lanes
from ...workload.words import channel_runs
from .pipeline import pipelined, shared

#: Tiles that are under way at a time on each core, if they have room.
SLOTS = 3
#: Cycles that each tile costs beside its words.
_EACH = 60
_VEC = INSTRUCTIONS[Opcode.VEC]


@dataclass(frozen=True)
class TransposeTask:
    """A transpose with the places of its tensors. `lanes`: of x; `result`: name of the result in boxes."""

    layer: Layer
    x: Stored
    y: Stored
    lanes: Lanes
    result: str


@dataclass(frozen=True)
class _Item:
    """A tile: blocks of a group, of which `channels` (numbers in the group) are in their lanes, x pixels."""

    group: int
    blocks: Range
    channels: Range
    pixels: Range


class _Emitter:
    def __init__(self, task: TransposeTask, chip: ChipConfig) -> None:
        self.task, self.chip = task, chip
        self.blocks = task.x.planes // task.layer.groups
        self.pixels = task.x.rows * task.x.width
        self.x, self.y = task.x.flattened(), task.y.flattened()
        self.slots, self.items = self._cut()

    def _cut(self) -> tuple[int, list[_Item]]:
        """How many tiles are under way, and all tiles. Raises DoesNotFit."""
        lanes, core, groups, cores = self.chip.lanes, self.chip.core, self.task.layer.groups, len(self.chip.cores)
        sheets, runs = ceil(self.pixels / lanes), channel_runs(self.task.lanes[: self.blocks * lanes], lanes)
        most = min(_VEC.most("in_w"), _VEC.most("pixels"), _VEC.most("x_plane"))
        best: tuple[float, int, int, int] | None = None
        for slots in range(SLOTS, 0, -1):
            for parts in range(1, sheets + 1):
                wide = ceil(sheets / parts) * lanes
                if wide > most:
                    continue
                room = min(core.a_words, core.vec_words) // slots // wide
                for deep in range(1, min(room, _VEC.most("blocks"), self.blocks) + 1):
                    tiles = groups * parts * sum(ceil((end - first) / deep) for (first, end), _ in runs)
                    cost = ceil(tiles / cores) * (deep * wide + lanes + _EACH)
                    if best is None or cost < best[0]:
                        best = cost, slots, parts, deep
            if best is not None:
                break
        if best is None:
            raise DoesNotFit(
                f"layer {self.task.layer.output}: A or VEC of a {self.chip.name} core is too small: a tile "
                f"to transpose has {lanes} words"
            )
        _, slots, parts, deep = best
        items: list[_Item] = []
        for group in range(groups):
            for (first, end), (channel, last) in runs:
                for blocks in even(first, end, ceil((end - first) / deep)):
                    begin = channel + (blocks[0] - first) * lanes
                    channels = begin, min(last, begin + (blocks[1] - blocks[0]) * lanes)
                    for low, high in even(0, sheets, parts):
                        items.append(_Item(group, blocks, channels, (low * lanes, min(high * lanes, self.pixels))))
        return slots, items

    # -- operations ---------------------------------------------------------------------------------------------------

    def emit(self) -> list[Node]:
        return shared(self.chip.cores, self.items, self._core)

    def _core(self, core: int, items: Sequence[_Item]) -> list[list[Node]]:
        x_slot = max(self._words(item)[0] for item in items)
        y_slot = max(self._words(item)[1] for item in items)

        def load(index: int) -> list[Node]:
            return self._load(core, items[index], index % self.slots * x_slot)

        def work(index: int) -> list[Node]:
            return self._work(core, items[index], index % self.slots * x_slot, index % self.slots * y_slot)

        return list(pipelined(len(items), self.slots, load, work))

    def _words(self, item: _Item) -> tuple[int, int]:
        """Words of A and of VEC."""
        blocks, pixels = item.blocks[1] - item.blocks[0], item.pixels[1] - item.pixels[0]
        return blocks * pixels, blocks * ceil(pixels / self.chip.lanes) * self.chip.lanes

    def _load(self, core: int, item: _Item, at: int) -> list[Node]:
        first = item.group * self.blocks
        label = f"x g{item.group} b{item.blocks[0]} p{item.pixels[0]}"
        planes = first + item.blocks[0], first + item.blocks[1]
        moves = self.x.transfers(planes, (*item.pixels, 1), (0, 1), core, address(Region.MAIN, at))
        return [t.load(core, label) for t in moves]

    def _work(self, core: int, item: _Item, x_at: int, y_at: int) -> list[Node]:
        lanes, blocks, pixels = self.chip.lanes, item.blocks[1] - item.blocks[0], item.pixels[1] - item.pixels[0]
        body = bodies.vec(
            op=VectorOp.TRANSPOSE, x_base=x_at, x_plane=pixels, in_w=pixels, blocks=blocks, out_w=pixels,
            pixels=pixels, dest_base=y_at,
        )  # fmt: skip
        first, sheets = item.group * ceil(self.pixels / lanes), ceil(pixels / lanes)
        planes = first + item.pixels[0] // lanes, first + item.pixels[0] // lanes + sheets
        box = Box(
            tensor=self.task.result, plane=planes[0], planes=sheets, row=0, rows=1, column=item.channels[0],
            columns=item.channels[1] - item.channels[0],
        )  # fmt: skip
        label = f"transpose g{item.group} b{item.blocks[0]} p{item.pixels[0]}"
        cycles = vec_occupancy(self.chip, VecShape.of(body))
        node = Node(core, [], label, fields=body, cycles=cycles, vec=True, result=box)
        source = address(Region.VEC, y_at)
        moves = self.y.transfers(planes, (*item.channels, 1), (0, 1), core, source, blocks * lanes)
        return [node, *(t.store(core, f"y {label}", [node]) for t in moves)]


def emit(task: TransposeTask, chip: ChipConfig) -> list[Node]:
    """All operations of a transpose. Raises DoesNotFit when its smallest tile does not fit a core."""
    return _Emitter(task, chip).emit()
