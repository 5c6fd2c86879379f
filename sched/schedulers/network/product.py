"""Products of two tensors: the words of B are pixels of the second one.

In a group of channels, y[n, p] = sum of a[k, p] * b[k, n]. What a word of B holds for an output channel, a weight for
each input channel, is here a pixel of b as it lies in memory, so nothing has to be arranged anew: a block of `cols`
output channels takes as many pixels of b, channel block by channel block. Where b has fewer pixels left, words of zeros
take their place, and the lanes without a channel come out as 0.

Groups (the heads of an attention), blocks of pixels of b and parts of a's map are shared out among the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address

from ...ir import bodies
from ...ir.schedule import Box
from ...mapping.memory.placement import Allocator, Stored
from ...mapping.nodes import Node, Run
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
from ...workload.graph import Layer
from .pipeline import pipelined, shared

#: Tiles that are under way at a time on each core, if they have room.
SLOTS = 3
#: Cycles that each tile costs beside its work.
_EACH = 60


@dataclass(frozen=True)
class ProductTask:
    """A product with the places of its tensors; the planes of a group follow each other. `result`: its name in
    boxes."""

    layer: Layer
    a: Stored
    b: Stored
    y: Stored
    result: str


@dataclass(frozen=True)
class _Item:
    """A tile: `blocks` of output channels of a group x a part of the map."""

    group: int
    blocks: Range
    rows: Range
    columns: Range

    @property
    def pixels(self) -> int:
        return (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])


@dataclass
class ProductNodes:
    """The operations of a product, in order; `zeros`: words of zeros that it reads, if any."""

    nodes: list[Node]
    zeros: Stored | None


class _Emitter:
    def __init__(self, task: ProductTask, chip: ChipConfig, dram: Allocator) -> None:
        self.task, self.chip = task, chip
        groups, cols = task.layer.groups, chip.cols
        self.depth = task.a.planes // groups  # words along K
        self.filters = task.b.rows * task.b.width
        self.blocks = ceil(self.filters / cols)  # of output channels, in a group
        self.b = task.b.flattened()
        self.zeros: Stored | None = None
        missing = self.blocks * cols - self.filters
        if missing:
            home = chip.drams[0]
            self.zeros = Stored(dram, 1, 1, self.depth * missing, [], lambda _plane, _at: home)
        self.slots, self.items = self._cut(groups)

    # -- cutting ------------------------------------------------------------------------------------------------------

    def _cut(self, groups: int) -> tuple[int, list[_Item]]:
        """How many tiles are under way, and all tiles. Raises DoesNotFit."""
        rows, width, cores = self.task.y.rows, self.task.y.width, len(self.chip.cores)
        best: tuple[float, int, int, int, int] | None = None
        for slots in range(SLOTS, 0, -1):
            for down, right in [*((down, 1) for down in range(1, rows + 1)), *((rows, r) for r in range(2, width + 1))]:
                pixels = ceil(rows / down) * ceil(width / right)
                for parts in range(1, self.blocks + 1):
                    deep = ceil(self.blocks / parts)
                    if not self._fits(slots, pixels, deep):
                        continue
                    each = ceil(groups * down * right * parts / cores)
                    computes = each * deep * ceil(pixels / self.chip.rows) * self.depth * self.chip.lanes
                    words = each * (self.depth * (pixels + deep * self.chip.cols) + deep * pixels)
                    cost = max(computes, words) + 0.2 * min(computes, words) + each * _EACH
                    if best is None or cost < best[0]:
                        best = cost, slots, down, right, parts
            if best is not None:
                break
        if best is None:
            core = self.chip.core
            raise DoesNotFit(
                f"layer {self.task.layer.output}: a product over {self.depth * self.chip.lanes} channels needs "
                f"{self.depth} words of A and {self.depth * self.chip.cols} of B for its smallest tile; a "
                f"{self.chip.name} core has {core.a_words} and {core.b_words}, an instruction holds {MAX_K_BLOCKS} "
                "words of each"
            )
        _, slots, down, right, parts = best
        items = [
            _Item(group, blocks, some, columns)
            for group in range(groups)
            for blocks in even(0, self.blocks, parts)
            for some in even(0, rows, down)
            for columns in even(0, width, right)
        ]
        return slots, items

    def _fits(self, slots: int, pixels: int, deep: int) -> bool:
        core = self.chip.core
        return (
            slots * self.depth * pixels <= core.a_words
            and slots * self.depth * deep * self.chip.cols <= core.b_words
            and slots * deep * pixels <= core.out_words
            and self.depth <= MAX_K_BLOCKS
            and deep <= MAX_N_BLOCKS
            and pixels <= min(MAX_PIXELS, MAX_PLANE)
        )

    # -- operations ---------------------------------------------------------------------------------------------------

    def emit(self) -> list[Node]:
        return shared(self.chip.cores, self.items, self._core)

    def _core(self, core: int, items: Sequence[_Item]) -> list[list[Node]]:
        a_slot = self.depth * max(item.pixels for item in items)
        b_slot = self.depth * self.chip.cols * max(item.blocks[1] - item.blocks[0] for item in items)
        y_slot = max(item.pixels * (item.blocks[1] - item.blocks[0]) for item in items)
        filters: list[int] = []  # for each tile the number of its filters, which the next one may share

        def load(index: int) -> list[Node]:
            item = items[index]
            before = items[index - 1] if index else None
            same = before is not None and (before.group, before.blocks) == (item.group, item.blocks)
            filters.append(filters[-1] + (not same) if filters else 0)
            loads = self._load_a(core, item, index % self.slots * a_slot)
            return loads if same else [*self._load_b(core, item, filters[-1] % self.slots * b_slot), *loads]

        def work(index: int) -> list[Node]:
            slot = index % self.slots
            at = slot * a_slot, filters[index] % self.slots * b_slot, slot * y_slot
            return self._work(core, items[index], *at)

        return list(pipelined(len(items), self.slots, load, work))

    def _load_a(self, core: int, item: _Item, at: int) -> list[Node]:
        planes = item.group * self.depth, (item.group + 1) * self.depth
        label = f"a g{item.group} y{item.rows[0]} x{item.columns[0]}"
        moves = self.task.a.transfers(planes, (*item.rows, 1), item.columns, core, address(Region.MAIN, at))
        return [t.load(core, label) for t in moves]

    def _load_b(self, core: int, item: _Item, at: int) -> list[Node]:
        loads: list[Node] = []
        cols, planes = self.chip.cols, (item.group * self.depth, (item.group + 1) * self.depth)
        for block in range(*item.blocks):
            first, end = block * cols, min((block + 1) * cols, self.filters)
            label = f"b g{item.group} n{block}"
            moves = self.b.transfers(planes, (first, end, 1), (0, 1), core, address(Region.B, at), cols)
            loads += [t.load(core, label) for t in moves]
            missing = first + cols - end
            if missing:
                assert self.zeros is not None
                words = missing * self.depth
                home, start = self.zeros.word(0, 0, 0)
                target = Run(core, address(Region.B, at + end - first), missing, cols)
                if self.depth == 1:
                    target = Run(core, target.address, words, words)
                loads.append(Node(core, [], f"{label} zeros", Run(home, start, words, words), target, words))
            at += self.depth * cols
        return loads

    def _work(self, core: int, item: _Item, a_at: int, b_at: int, y_at: int) -> list[Node]:
        layer, pixels, blocks = self.task.layer, item.pixels, item.blocks[1] - item.blocks[0]
        wide = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
        body = bodies.gemm(
            a_base=a_at, a_plane=pixels, in_w=wide, k_blocks=self.depth, out_w=wide, pixels=pixels, b_base=b_at,
            n_blocks=blocks, dest_base=y_at, scale=layer.scale, relu=int(layer.relu), clamp=layer.clamp,
        )  # fmt: skip
        first = item.group * self.blocks
        planes = first + item.blocks[0], first + item.blocks[1]
        box = Box(
            tensor=self.task.result, plane=planes[0], planes=blocks, row=item.rows[0],
            rows=item.rows[1] - item.rows[0], column=item.columns[0], columns=item.columns[1] - item.columns[0],
        )  # fmt: skip
        label = f"product g{item.group} n{item.blocks[0]} y{item.rows[0]} x{item.columns[0]}"
        cycles = blocks * ceil(pixels / self.chip.rows) * self.depth * self.chip.lanes
        node = Node(core, [], label, fields=body, cycles=cycles, result=box)
        moves = self.task.y.transfers(planes, (*item.rows, 1), item.columns, core, address(Region.OUT, y_at))
        return [node, *(t.store(core, f"y {label}", [node]) for t in moves)]


def emit(task: ProductTask, chip: ChipConfig, dram: Allocator) -> ProductNodes:
    """All operations of a product. Raises DoesNotFit when its smallest tile does not fit a core."""
    emitter = _Emitter(task, chip, dram)
    return ProductNodes(emitter.emit(), emitter.zeros)
