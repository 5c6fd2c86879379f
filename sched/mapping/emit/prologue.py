"""A depthwise convolution in front of a 1x1 one: the vector unit makes its input tiles, which never leave the core.

      A (window of x) --> vector unit --> VEC --> MOVE within the core --> A (tile of the convolution's input)

By itself a depthwise layer writes its whole result to the scratchpad or DRAM, and the next layer reads it from there.
The window of x may itself be made by the convolution before, in OUT (`expansion.py`); then no map between three layers
is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, VectorOp, address
from meshloom.hw.spec.timing import VecShape, vec_occupancy

from ...ir import bodies
from ...ir.schedule import Box
from ...workload.graph import Window
from ..memory.block_constants import BlockConstants, place
from ..memory.placement import Allocator, Stored
from ..memory.tensors import Chunk
from ..nodes import Node, Run
from ..tiling.plan import CorePlan
from ..tiling.problem import MAX_IN_WIDTH, DoesNotFit
from ..tiling.tiles import MTile, Range
from .expansion import Expander, Expansion, Words, words_of
from .fields import bias_fields, bias_rows

#: Windows of x that A has room for, and results in VEC: one is filled while the other is used.
SLOTS = 2
#: Part of A that windows of x may take, and more if so many tiles of the layer's input fit beside them.
SHARE, TILES = 3, 2


@dataclass(frozen=True)
class Prologue:
    """What the vector unit makes the layer's input of. `name` of that input; `fixed`: scale, relu and clamp; `x`: what
    it reads, or what computes that."""

    name: str
    window: Window
    fixed: dict[str, int]
    x: Stored | Expansion

    @property
    def taps(self) -> int:
        """Words of weights of one channel block."""
        return self.window.kernel_h * self.window.kernel_w

    def place(self, dram: Allocator, chip: ChipConfig) -> dict[str, Stored]:
        """Its weights ("w") and biases ("bias"), in runs of channel blocks over all DRAM channels, and those of what
        makes its input ("expand w", "expand bias")."""
        own = place(dram, chip.drams, (self.x.planes, 1, self.taps), chip.drams[0], bias_rows(self.fixed))
        expand = self.x.place(dram, chip) if isinstance(self.x, Expansion) else {}
        return own | {f"expand {name}": stored for name, stored in expand.items()}

    def reach(self, rows: Range, columns: Range) -> tuple[Range, Range]:
        """Rows and columns of x that a box of the result is made of."""
        w = self.window

        def along(low: int, high: int, stride: int, pad: int, kernel: int, size: int) -> Range:
            last = (high - 1) * stride - pad + (kernel - 1) * w.dilation
            return max(0, low * stride - pad), min(size, last + 1)

        return (
            along(*rows, w.stride_h, w.pad_top, w.kernel_h, self.x.rows),
            along(*columns, w.stride_w, w.pad_left, w.kernel_w, self.x.width),
        )


@dataclass(frozen=True)
class Layout:
    """Words of a core that a prologue works in. `deep`: channel blocks that a VEC makes at most; `expansion`: the words
    of what makes its windows of x, which lie in OUT then.

    `*_base` in A (or OUT), B and ACC are those `after` a plan."""

    deep: int
    x_slot: int
    y_slot: int
    y_base: int
    x_base: int = 0
    w_base: int = 0
    bias_base: int = 0
    expansion: Words | None = None


def lay_out(
    prologue: Prologue, chip: ChipConfig, ms: Sequence[MTile], blocks: int, shares: bool, results: int = 1
) -> Layout:
    """The words that a prologue needs. `ms`: the layer's tiles, of `blocks` channel blocks, whose results have
    `results` blocks; `shares`: VEC is the layer's, too. Raises DoesNotFit."""
    core = chip.core
    boxes = {m: prologue.reach((m.r0, m.r1), (m.c0, m.c1)) for m in ms}
    y = max(m.pixels for m in ms)
    x = max((i1 - i0) * (j1 - j0) for (i0, i1), (j0, j1) in boxes.values())
    wide = max(m.c1 - m.c0 for m in ms), max(j1 - j0 for _, (j0, j1) in boxes.values())
    room = core.vec_words // 2 if shares else core.vec_words
    share = max(core.a_words // SHARE, core.a_words - TILES * blocks * y)
    expansion: Words | None = None
    if isinstance(prologue.x, Expansion):  # windows lie in OUT, beside two results of the layer or, for want of room, 1
        expansion = words_of(prologue.x, list(boxes.values()), core.a_words - blocks * y, chip)
        left = [core.out_words - slots * results * y for slots in (2, 1)]
        share = next((some for some in left if some >= SLOTS * x), 0)
    deep = min(blocks, room // SLOTS // y, share // SLOTS // x, 255)
    if not deep or max(wide) > MAX_IN_WIDTH:
        raise DoesNotFit(f"A, OUT or VEC of a {chip.name} core is too small for tiles of the depthwise layer before")
    return Layout(deep, x_slot=deep * x, y_slot=deep * y, y_base=core.vec_words - room, expansion=expansion)


def tallest(prologue: Prologue, chip: ChipConfig, width: int, blocks: int) -> int:
    """Rows of the tallest tile of `width` columns and `blocks` channel blocks that fits with its windows of x, of one
    block at a time: the taller, the fewer rows of x are read twice. 0 if none does."""
    core, window = chip.core, prologue.window
    rows = 0 if isinstance(prologue.x, Expansion) else core.vec_words // SLOTS // width
    while rows:
        x = ((rows - 1) * window.stride_h + (window.kernel_h - 1) * window.dilation + 1) * prologue.x.width
        if TILES * blocks * rows * width + SLOTS * x <= core.a_words:
            break
        rows -= 1
    return rows


def remaining(prologue: Prologue, chip: ChipConfig, layout: Layout) -> ChipConfig:
    """The chip with what a prologue leaves of a core's memories. Raises DoesNotFit."""
    core, planes = chip.core, prologue.x.planes
    left = {
        "a_words": core.a_words - SLOTS * layout.x_slot,
        "b_words": core.b_words - planes * prologue.taps,
        "acc_words": core.acc_words - planes * bias_rows(prologue.fixed),
        "out_words": core.out_words,
        "vec_words": layout.y_base or core.vec_words,
    }
    if layout.expansion and isinstance(prologue.x, Expansion):
        left["a_words"] = core.a_words - layout.expansion.slots * layout.expansion.slot
        left["b_words"] -= planes * prologue.x.block_words
        left["acc_words"] -= planes * bias_rows(prologue.x.fixed)
        left["out_words"] -= SLOTS * layout.x_slot
    if min(left.values()) < 1:
        raise DoesNotFit(f"A, B, ACC or OUT of a {chip.name} core is too small for the depthwise layer before")
    return chip.model_copy(update={"core": core.model_copy(update=left)})


def after(layout: Layout, plan: CorePlan, prologue: Prologue) -> Layout:
    """The layout in the words after those that the layer's plan uses."""
    a = plan.r_base if plan.r else (max(residency.slot for residency in plan.a) + 1) * plan.a_slot
    if plan.r:
        a += (max(residency.slot for residency in plan.r) + 1) * plan.out_slot
    sums = (max(step.sums for step in plan.steps) + 1) * plan.sums_slot
    w_base = (max(residency.slot for residency in plan.b) + 1) * plan.b_slot
    placed = replace(layout, x_base=a, w_base=w_base, bias_base=plan.sums_base + sums)
    if layout.expansion is None:
        return placed
    planes = prologue.x.planes  # the expansion's weights and biases lie behind those of the depthwise layer
    bias_base = placed.bias_base + planes * bias_rows(prologue.fixed)
    words = replace(layout.expansion, a_base=a, b_base=w_base + planes * prologue.taps, bias_base=bias_base)
    return replace(placed, x_base=plan.out_slots * plan.out_slot, expansion=words)


class Feeder:
    """Makes the operations that bring a core the tiles of its input."""

    def __init__(
        self, prologue: Prologue, chip: ChipConfig, core: int, layout: Layout, constants: dict[str, Stored]
    ) -> None:
        self._prologue, self._chip, self._core, self._layout = prologue, chip, core, layout
        self._constants = BlockConstants(constants, core, layout.w_base, layout.bias_base, "depthwise")
        self._turn = 0
        self._read: list[list[Node]] = [[] for _ in range(SLOTS)]  # VECs out of each slot of x
        self._moved: list[list[Node]] = [[] for _ in range(SLOTS)]  # MOVEs out of each slot of the result
        self._expander: Expander | None = None
        if layout.expansion and isinstance(prologue.x, Expansion):
            expanding = {name: constants[f"expand {name}"] for name in ("w", "bias")}
            self._expander = Expander(prologue.x, core, layout.expansion, expanding)

    def cycles(self, chunk: Chunk) -> int:
        """Cycles of the vector unit for a chunk, or of the array if it takes longer to make what that one reads."""
        groups = self._groups(chunk)
        vector = sum(vec_occupancy(self._chip, VecShape.of(self._fields(chunk, some, 0))) for some in groups)
        if not isinstance(self._prologue.x, Expansion):
            return vector
        (i0, i1), (j0, j1) = self._prologue.reach((chunk.rows[0], chunk.rows[1]), chunk.columns)
        planes = chunk.planes[1] - chunk.planes[0]
        return max(vector, self._prologue.x.cycles((i1 - i0) * (j1 - j0), planes))

    def make(self, chunk: Chunk, slot: int, after: list[Node]) -> tuple[list[Node], list[Node]]:
        """A chunk of the input to the tile at word `slot` of A, once the operations `after` are done with it. Returns
        all operations in order, and those of them that the chunk's readers wait for."""
        nodes: list[Node] = []
        landed: list[Node] = []
        held: list[Node] = []
        for some in self._groups(chunk):
            loads, rest = self._group(chunk, some, slot, after)
            nodes += loads + held  # the next window is asked for before the unit and the mover wait for this one
            held = rest
            landed.append(rest[-1])
        return nodes + held, landed

    def _groups(self, chunk: Chunk) -> list[Range]:
        """Channel blocks that one VEC makes."""
        low, high = chunk.planes
        count = ceil((high - low) / self._layout.deep)
        return [(low + (high - low) * n // count, low + (high - low) * (n + 1) // count) for n in range(count)]

    def _group(self, chunk: Chunk, planes: Range, slot: int, after: list[Node]) -> tuple[list[Node], list[Node]]:
        layout, core, turn = self._layout, self._core, self._turn
        self._turn = (turn + 1) % SLOTS
        rows, columns = self._prologue.reach((chunk.rows[0], chunk.rows[1]), chunk.columns)
        loads, constants = self._constants.bring(planes)
        x_at = layout.x_base + turn * layout.x_slot
        there: list[Node]  # what the VEC waits for
        if self._expander:
            expanded, gemm = self._expander.make(planes, rows, columns, x_at, self._read[turn])
            loads, there = loads + expanded, [*loads, gemm]
        else:
            assert isinstance(self._prologue.x, Stored)
            loads += [
                t.load(core, f"depthwise {chunk.label}", self._read[turn])
                for t in self._prologue.x.transfers(planes, (*rows, 1), columns, core, address(Region.MAIN, x_at))
            ]
            there = loads
        fields = self._fields(chunk, planes, turn)
        vec = Node(
            core,
            [*there, *constants, *self._moved[turn]],
            f"depthwise {chunk.label}",
            fields=fields,
            cycles=vec_occupancy(self._chip, VecShape.of(fields)),
            vec=True,
            result=Box(
                tensor=self._prologue.name,
                plane=planes[0],
                planes=planes[1] - planes[0],
                row=chunk.rows[0],
                rows=chunk.rows[1] - chunk.rows[0],
                column=chunk.columns[0],
                columns=chunk.columns[1] - chunk.columns[0],
            ),
        )
        plane, first = chunk.plane_words, (planes[0] - chunk.planes[0]) * chunk.plane
        words = plane * (planes[1] - planes[0])
        run, stride = (words, words) if plane in (words, chunk.plane) else (plane, chunk.plane)
        move = Node(
            core,
            [vec, *after],
            f"depthwise {chunk.label}",
            Run(core, address(Region.VEC, fields["dest_base"]), words, words),
            Run(core, slot + chunk.offset + first, run, stride),
            words,
        )
        self._read[turn], self._moved[turn] = [vec], [move]
        return loads, [vec, move]

    def _fields(self, chunk: Chunk, planes: Range, turn: int) -> dict[str, int]:
        layout, w = self._layout, self._prologue.window
        (r0, r1, _), (c0, c1) = chunk.rows, chunk.columns
        (i0, i1), (j0, j1) = self._prologue.reach((r0, r1), (c0, c1))
        fixed = self._prologue.fixed
        bias_at = layout.bias_base + planes[0] * bias_rows(fixed)
        body = bodies.vec(
            op=VectorOp.MAC,
            x_out=int(self._expander is not None),
            x_base=layout.x_base + turn * layout.x_slot,
            x_plane=(i1 - i0) * (j1 - j0),
            in_w=j1 - j0,
            blocks=planes[1] - planes[0],
            kernel_h=w.kernel_h,
            kernel_w=w.kernel_w,
            stride_h=w.stride_h,
            stride_w=w.stride_w,
            dilation=w.dilation,
            pad_top=max(0, w.pad_top - r0 * w.stride_h),
            pad_left=max(0, w.pad_left - c0 * w.stride_w),
            out_w=c1 - c0,
            pixels=(r1 - r0) * (c1 - c0),
            y_base=layout.w_base + planes[0] * self._prologue.taps,
            addend=1,
            dest_base=layout.y_base + turn * layout.y_slot,
        )
        return body | fixed | bias_fields(fixed, bias_at)
