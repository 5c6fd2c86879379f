"""A core's part of a chain of layers in training: what it holds, and its operations on tensors in DRAM."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Pair, VectorOp

from ...ir.schedule import Operation
from ...mapping.memory.placement import Stored
from ...mapping.tiling.problem import MAX_IN_WIDTH
from ...mapping.tiling.tiles import Range
from ...schedulers.training.core import CoreOperations


class ChainCore(CoreOperations):
    """A core. Where things lie: `dy` of each layer; pieces of it with pixels as lanes, `dyt`; Wᵀ, `wt`; tiles of `w`
    that an update will need, of `resident` words in all; X of what is masked, `signs`; `sums` of pieces of dW that are
    not complete. `zeros`: whether the first words of VEC are; `load`: how much it has to do; `dram_words`: to and from
    DRAM."""

    def __init__(self, chip: ChipConfig, tile: int, operations: list[Operation]) -> None:
        super().__init__(chip, tile, operations, below=chip.lanes)
        self.dy: dict[int, int] = {}
        self.dyt: dict[tuple[int, Range], int] = {}
        self.wt: dict[tuple[int, Range], int] = {}
        self.sums: dict[tuple[int, Range, Range], int] = {}
        self.w: dict[tuple[int, Range, Range], int] = {}
        self.signs: dict[tuple[int, Range], int] = {}
        self.resident = self.load = self.dram_words = 0
        self.zeros = False

    def pair(self, label: str, what: Pair, x: int, y: int, dest: int, words: int) -> None:
        """A PAIR of x in A and y in OUT to VEC."""
        width = next(width for width in range(min(words, MAX_IN_WIDTH), 0, -1) if words % width == 0)
        self.vector(label, VectorOp.PAIR, {
            "x_base": x, "y_base": y, "dest_base": dest, "pair": what, "x_plane": words, "in_w": width, "out_w": width,
            "pixels": words,
        })  # fmt: skip

    def fetch(self, label: str, stored: Stored, planes: Range, pixels: Range, place: int) -> None:
        """Planes and pixels of a tensor to an address of the core."""
        for t in stored.transfers(planes, (*pixels, 1), (0, 1), self.tile, place):
            self.dram_words += t.words
            # issued by the DRAM tile, whose stream waits for nothing but room
            self.operations.append(t.load(t.dram.tile, label).operation())

    def store(self, label: str, stored: Stored, planes: Range, pixels: Range, place: int) -> None:
        """The same the other way."""
        for t in stored.transfers(planes, (*pixels, 1), (0, 1), self.tile, place):
            self.dram_words += t.words
            self.operations.append(t.store(self.tile, label).operation())
