"""A convolution in front of a depthwise one in front of a 1x1 one: an inverted residual whose wide map is nowhere.

    A (tile of x) --> array --> OUT (window) --> vector unit --> VEC --> MOVE within the core --> A (tile for the 1x1)

The wide map is six times as large as what it is made of and what becomes of it (MobileNetV2: Inverted Residuals and
Linear Bottlenecks, Sandler et al., 2018, section 3.3), so it does not fit the scratchpad where maps are large, and it
is computed quicker than it is moved. The price: rows that the windows of two tiles share are computed for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Addend, Region, address

from ...ir import bodies
from ...ir.schedule import Box
from ..memory.block_constants import BlockConstants, place
from ..memory.placement import Allocator, Stored
from ..nodes import Node
from ..tiling.plan import box, gemm_cycles
from ..tiling.problem import MAX_K_BLOCKS, MAX_PIXELS, DoesNotFit, Problem
from ..tiling.tiles import MTile, Range
from .fields import bias_fields, bias_rows, window_fields

#: Tiles of x that A has room for, if they fit: one arrives while the other is used.
SLOTS = 2


@dataclass(frozen=True)
class Expansion:
    """What the matrix unit makes a depthwise convolution's input of. `name` of that input; `problem`: its convolution,
    with rows and columns (not flattened); `fixed`: scale, relu and clamp; `x`: what it reads."""

    name: str
    problem: Problem
    fixed: dict[str, int]
    x: Stored

    @property
    def planes(self) -> int:
        return self.problem.n_blocks

    @property
    def rows(self) -> int:
        return self.problem.out_rows

    @property
    def width(self) -> int:
        return self.problem.out_w

    @property
    def block_words(self) -> int:
        """Words of the weights of one block of its channels."""
        return self.problem.k_blocks * self.problem.taps * self.problem.cols

    def place(self, dram: Allocator, chip: ChipConfig) -> dict[str, Stored]:
        """Its weights ("w") and biases ("bias"), in runs of channel blocks over all DRAM channels."""
        windows = self.problem.k_blocks * self.problem.taps
        size = self.planes, windows, self.problem.cols
        return place(dram, chip.drams, size, chip.drams[-1], bias_rows(self.fixed))

    def input_words(self, rows: Range, columns: Range) -> int:
        """Words of A for what a window of the result is made of."""
        (i0, i1), (j0, j1), _, _ = box(self.problem, MTile(0, *rows, *columns))
        return (i1 - i0) * (j1 - j0) * self.problem.k_blocks

    def cycles(self, pixels: int, planes: int) -> int:
        """Cycles of the array for so many pixels of so many channel blocks."""
        return gemm_cycles(self.problem, planes, pixels, self.problem.k_blocks * self.problem.taps)


@dataclass(frozen=True)
class Words:
    """Where a core has what an expansion works with. `slot`: words of a tile of x, of which A holds `slots`."""

    slot: int
    slots: int
    a_base: int = 0
    b_base: int = 0
    bias_base: int = 0


def words_of(expansion: Expansion, windows: Sequence[tuple[Range, Range]], room: int, chip: ChipConfig) -> Words:
    """The words of A for tiles of x, of which `room` may be used; `windows`: rows and columns of the result that are
    made at a time. Raises DoesNotFit."""
    slot = max(expansion.input_words(*window) for window in windows)
    pixels = max((i1 - i0) * (j1 - j0) for (i0, i1), (j0, j1) in windows)
    if slot > room or pixels > MAX_PIXELS or expansion.problem.k_blocks > MAX_K_BLOCKS:
        raise DoesNotFit(f"A of a {chip.name} core is too small for tiles of {expansion.name}")
    return Words(slot, min(SLOTS, room // slot))


class Expander:
    """Makes the operations that compute windows of an expansion's result in OUT of a core."""

    def __init__(self, expansion: Expansion, core: int, words: Words, constants: dict[str, Stored]) -> None:
        self._expansion, self._core, self._words = expansion, core, words
        self._constants = BlockConstants(constants, core, words.b_base, words.bias_base, expansion.name)
        self._held: list[tuple[tuple[Range, Range], list[Node], list[Node]]] = []  # tiles of x: MOVEs, readers
        self._turn = 0

    def make(self, planes: Range, rows: Range, columns: Range, out: int, after: list[Node]) -> tuple[list[Node], Node]:
        """Channel blocks `planes` of a window of the result to word `out` of OUT, once the operations `after` are done
        with it: all operations in order, and the GEMM that is the last of them."""
        expansion, problem = self._expansion, self._expansion.problem
        tile = MTile(0, *rows, *columns)
        nodes, constants = self._constants.bring(planes)
        loads, more, readers, at = self._tile(tile)
        nodes += more
        count = planes[1] - planes[0]
        fields = window_fields(
            problem, tile, at, self._words.b_base + planes[0] * expansion.block_words, count, problem.k_blocks
        )
        bias_at = self._words.bias_base + planes[0] * bias_rows(expansion.fixed)
        body = bodies.gemm(**fields, addend=Addend.BIAS, dest_base=out) | expansion.fixed
        body |= bias_fields(expansion.fixed, bias_at)
        node = Node(
            self._core,
            [*loads, *constants, *after],
            f"y{rows[0]} x{columns[0]} n{planes[0]}",
            fields=body,
            cycles=expansion.cycles(tile.pixels, count),
            result=Box(
                tensor=expansion.name, plane=planes[0], planes=count, row=rows[0], rows=rows[1] - rows[0],
                column=columns[0], columns=columns[1] - columns[0],
            ),
        )  # fmt: skip
        readers.append(node)
        return [*nodes, node], node

    def _tile(self, tile: MTile) -> tuple[list[Node], list[Node], list[Node], int]:
        """What brings the inputs of a tile, the operations for it that are new, those that read it, and its place."""
        key = (tile.r0, tile.r1), (tile.c0, tile.c1)
        for slot, (have, loads, readers) in enumerate(self._held):
            if have == key:
                return loads, [], readers, self._words.a_base + slot * self._words.slot
        problem, words = self._expansion.problem, self._words
        slot, self._turn = self._turn, (self._turn + 1) % words.slots
        before = self._held[slot][2] if slot < len(self._held) else []
        at = words.a_base + slot * words.slot
        (i0, i1), columns, _, _ = box(problem, tile)
        rows = i0 * problem.row_step, (i1 - 1) * problem.row_step + 1, problem.row_step
        loads = [
            t.load(self._core, f"{self._expansion.name} x y{i0}", before)
            for t in self._expansion.x.transfers(
                (0, problem.k_blocks), rows, columns, self._core, address(Region.MAIN, at)
            )
        ]
        entry: tuple[tuple[Range, Range], list[Node], list[Node]] = (key, loads, [])
        self._held[slot : slot + 1] = [entry]
        return loads, list(loads), entry[2], at
