"""A layer of the vector unit on a group of cores: depthwise convolutions, pools, additions and products, functions,
copies with and without repetition, and what takes whole maps.

Its tiles are some planes x some rows, with a few under way at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import cast

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Region, VectorOp, address
from meshloom.hw.spec.timing import VecShape, table_words, vec_occupancy

from ...ir import bodies
from ...ir.schedule import Operation, Vec
from ...mapping.memory.placement import Transfer
from ...mapping.tiling.problem import MAX_IN_WIDTH, DoesNotFit
from ...mapping.tiling.tiles import Range, even
from .memory import Striped, turned
from .plans import Tile, row_tiles, rows_read
from .schemes import LayerShape, Scheme, SubTile, split
from .steps import CoreVisit, OperationsAt, Ring, push, share_out, window_of

#: Tiles that are under way at a time, if memories have room for so many.
SLOTS = 4
#: Each core cuts its work into about so many tiles, if they are not smaller than `LEAST_WORDS` words.
TILES, LEAST_WORDS = 8, 64

_LAYOUT = INSTRUCTIONS[Opcode.VEC]
_MOST_BLOCKS, _MOST_PIXELS = _LAYOUT.most("blocks"), _LAYOUT.most("pixels")


@dataclass(frozen=True)
class VectorTask:
    """A layer with the places of its tensors. `w`, `bias`: of a depthwise convolution; `table`: of a function; `r`: the
    second operand of an addition or product, or (`broadcast`) a word of it for each plane of an image; `fixed`: `relu`,
    `clamp` and, where sums are requantised, `scale`; `extra`: other fields of its instructions."""

    shape: LayerShape
    op: VectorOp
    x: Striped
    y: Striped
    r: Striped | None
    w: Striped | None
    bias: Striped | None
    fixed: dict[str, int]
    table: Striped | None = None
    broadcast: bool = False
    extra: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class VectorTiling:
    """Rows and planes of a tile, words of its slots for input and result, and how many of each there are."""

    rows: int
    planes: int
    x_slot: int
    y_slot: int
    slots: int


def cut(shape: LayerShape, chip: ChipConfig, part: SubTile) -> VectorTiling:
    """How a core cuts its part. Raises DoesNotFit."""
    for slots in (SLOTS, 2, 1):
        tiling = _tiling(shape, chip, part, slots)
        if tiling is not None:
            return tiling
    problem, core = shape.problem, chip.core
    if shape.whole:
        raise DoesNotFit(
            f"no map of {problem.out_rows} pixels fits A of a {chip.name} core ({core.a_words} words), OUT and VEC "
            f"({core.out_words} and {core.vec_words})"
        )
    raise DoesNotFit(
        f"no tile of a {problem.kernel_h}x{problem.kernel_w} window over rows of {problem.in_w} words fits A or "
        f"VEC of a {chip.name} core"
    )


def _tiling(shape: LayerShape, chip: ChipConfig, part: SubTile, slots: int) -> VectorTiling | None:
    """The cheapest one with so many slots; None if no tile fits them."""
    problem, core = shape.problem, chip.core
    if not problem.flat and max(problem.in_w, problem.out_w * shape.repeat) > MAX_IN_WIDTH:
        return None
    planes, rows = part.n[1] - part.n[0], max(r1 - r0 for _, r0, r1 in part.segments)
    best: tuple[int, VectorTiling] | None = None
    planes, rows = part.n[1] - part.n[0], max(r1 - r0 for _, r0, r1 in part.segments)
    again = shape.repeat**2
    total = planes * part.pixels(problem) * again
    least = max(LEAST_WORDS, ceil(total / TILES))
    for high in [rows] if shape.whole else sorted({ceil(rows / parts) for parts in range(1, rows + 1)}):
        tiles = row_tiles(shape, part, high)
        x = max(r1 - r0 for (r0, r1), _ in (rows_read(shape, tile) for tile in tiles)) * problem.in_w
        y = max(r1 - r0 for _, r0, r1 in tiles) * problem.out_w * again
        room = min(core.a_words // (slots * x), min(core.vec_words, core.out_words) // (slots * y), _MOST_BLOCKS)
        if not room or y > _MOST_PIXELS:
            continue
        wide = min(planes, room, max(1, least // y))
        halo = sum(r1 - r0 for (r0, r1), _ in (rows_read(shape, tile) for tile in tiles)) * problem.in_w
        cost = halo * planes + 40 * len(tiles) * ceil(planes / wide) + 2 * wide * (x + y)
        if best is None or cost < best[0]:
            best = cost, VectorTiling(high, wide, wide * x, wide * y, slots)
    return None if best is None else best[1]


def occupancy(shape: LayerShape, chip: ChipConfig, tile: Tile, planes: int) -> int:
    """Cycles for which a tile keeps the vector unit, by its shape alone: windows of all operations slide alike."""
    problem = shape.problem
    pixels = (tile[2] - tile[1]) * problem.out_w * shape.repeat**2
    return vec_occupancy(
        chip,
        VecShape(
            VectorOp.MAX, pixels, planes, problem.kernel_h, problem.kernel_w, problem.stride_w, problem.dilation,
            problem.in_w, problem.out_w * shape.repeat, max(0, problem.pad_left),
        ),
    )  # fmt: skip


def estimate(task: VectorTask, chip: ChipConfig, scheme: Scheme) -> float:
    """About how many cycles the layer takes. Raises DoesNotFit."""
    problem = task.shape.problem
    parts = split(task.shape, scheme)
    part = max(parts, key=lambda part: part.pixels(problem) * (part.n[1] - part.n[0]))
    tiling = cut(task.shape, chip, part)
    tiles, planes = row_tiles(task.shape, part, tiling.rows), part.n[1] - part.n[0]
    work = sum(_cycles(task, chip, tile, planes) for tile in tiles)
    come = sum(r1 - r0 for (r0, r1), _ in (rows_read(task.shape, tile) for tile in tiles)) * problem.in_w * planes
    go = part.pixels(problem) * planes * task.shape.repeat**2
    come += go if task.r is not None and not task.broadcast else 0
    channels = len(chip.drams) * chip.dram.bytes_per_cycle / chip.lanes
    share = max(1.0, len(parts) / channels)
    moves = 2 * len(tiles) * ceil(planes / tiling.planes) * min(len(chip.drams), tiling.planes)
    edges = (tiling.x_slot + tiling.y_slot) * share
    return max(work, come, go, (come + go) * len(parts) / channels, 7 * moves) + edges + 300


def _cycles(task: VectorTask, chip: ChipConfig, tile: Tile, planes: int) -> int:
    return vec_occupancy(chip, VecShape.of(_fields(task, tile) | {"blocks": planes}))


def _fields(task: VectorTask, tile: Tile) -> dict[str, int]:
    """The body of a tile's VEC, without its blocks and addresses."""
    plane, extent = window_of(task.shape, tile)
    fields = bodies.vec(**extent, op=task.op, x_plane=plane) | task.fixed | task.extra
    again = task.shape.repeat
    return fields | {"out_w": fields["out_w"] * again, "pixels": fields["pixels"] * again**2}


def emit(task: VectorTask, chip: ChipConfig, scheme: Scheme, cores: Sequence[int]) -> list[Operation]:
    """All operations of a layer on these cores, in order. Raises DoesNotFit."""
    return share_out(task.shape, chip, scheme, cores, partial(_Core, task, chip))


class _Core:
    def __init__(self, task: VectorTask, chip: ChipConfig, part: SubTile, core: int, index: int) -> None:
        self.task, self.chip, self.part, self.core, self.index = task, chip, part, core, index
        self.problem = task.shape.problem
        self.tiling = cut(task.shape, chip, part)
        self.taps = self.problem.taps
        groups = ceil((part.n[1] - part.n[0]) / self.tiling.planes)
        self.planes = turned(even(*part.n, groups), index)
        held = max(n1 - n0 for n0, n1 in self.planes) * self.taps
        self.w_slots = min(groups, chip.core.b_words // held) if task.w is not None else 0
        if task.w is not None and (not self.w_slots or part.n[1] - part.n[0] > chip.core.acc_words):
            raise DoesNotFit(f"weights or biases of {part.n[1] - part.n[0]} planes do not fit a {chip.name} core")
        self.w_slot = held
        if task.table is not None and table_words(chip) > chip.core.b_words:
            raise DoesNotFit(f"a table of {table_words(chip)} words does not fit B of a {chip.name} core")

    def rings(self) -> dict[str, Ring]:
        """The operands of the VECs."""
        rings: dict[str, Ring] = {}
        if self.task.w is not None:
            rings["bias"] = Ring(Region.ACC, 0, 4 * (self.part.n[1] - self.part.n[0]), 1, self._bias)
            rings["w"] = Ring(Region.B, 0, self.w_slot, self.w_slots, self._weights)
        if self.task.table is not None:
            rings["table"] = Ring(Region.B, 0, table_words(self.chip), 1, self._table)
        tiling = self.tiling
        rings["x"] = Ring(Region.MAIN, 0, tiling.x_slot, tiling.slots, self._inputs)
        if self.task.r is not None:
            rings["r"] = Ring(Region.OUT, 0, tiling.y_slot, tiling.slots, self._other)
        return rings

    def _table(self, _: Hashable, at: int) -> list[Transfer]:
        assert self.task.table is not None
        return list(self.task.table.transfers((0, 1), (0, 1, 1), self.core, at))

    def _bias(self, _: Hashable, at: int) -> list[Transfer]:
        assert self.task.bias is not None
        return list(self.task.bias.transfers((0, 1), (*self.part.n, 1), self.core, at))

    def _weights(self, key: Hashable, at: int) -> list[Transfer]:
        assert self.task.w is not None
        planes = cast("Range", key)
        return list(self.task.w.transfers((0, 1), (*planes, 1), self.core, at))

    def _rows(self, tile: Tile, rows: Range, per_image: int) -> tuple[int, int, int]:
        return rows[0] + tile[0] * per_image, rows[1] + tile[0] * per_image, 1

    def _results(self, tile: Tile) -> tuple[int, int, int]:
        """Rows of the result that a tile makes."""
        again = self.task.shape.repeat
        return self._rows(tile, (tile[1] * again, tile[2] * again), self.problem.out_rows * again)

    def _inputs(self, key: Hashable, at: int) -> list[Transfer]:
        tile, planes = cast("tuple[Tile, Range]", key)
        rows = self._rows(tile, rows_read(self.task.shape, tile)[0], self.problem.stored_rows)
        return list(self.task.x.transfers(planes, rows, self.core, at))

    def _other(self, key: Hashable, at: int) -> list[Transfer]:
        tile, planes = cast("tuple[Tile, Range]", key)
        assert self.task.r is not None
        rows = (tile[0], tile[0] + 1, 1) if self.task.broadcast else self._results(tile)
        return list(self.task.r.transfers(planes, rows, self.core, at))

    def steps(self) -> list[CoreVisit]:
        """Its VECs, planes outermost."""
        steps: list[CoreVisit] = []
        for planes in self.planes:
            for tile in row_tiles(self.task.shape, self.part, self.tiling.rows):
                uses: dict[str, Hashable] = {"x": (tile, planes)}
                if self.task.w is not None:
                    uses |= {"w": planes, "bias": self.part.n}
                if self.task.table is not None:
                    uses["table"] = "all"
                if self.task.r is not None:
                    uses["r"] = tile, planes
                cycles = _cycles(self.task, self.chip, tile, planes[1] - planes[0])
                steps.append(CoreVisit(len(steps), uses, cycles, self._make(tile, planes, len(steps))))
        return steps

    def _make(self, tile: Tile, planes: Range, number: int) -> OperationsAt:
        def make(at: dict[str, int]) -> tuple[list[Operation], list[Operation]]:
            base = number % self.tiling.slots * self.tiling.y_slot
            fields = _fields(self.task, tile) | {
                "x_base": at["x"] + max(0, -self.problem.pad_left),  # slices begin inside of a row
                "blocks": planes[1] - planes[0],
                "dest_base": base,
            }
            if self.task.r is not None:
                fields["y_base"] = at["r"]
            if self.task.w is not None:
                fields |= {"y_base": at["w"], "addend": 1, "addend_base": planes[0] - self.part.n[0]}
            label = f"i{tile[0]} y{tile[1]} b{planes[0]}"
            stores = list(self.task.y.transfers(planes, self._results(tile), self.core, address(Region.VEC, base)))
            return [Vec(core=self.core, fields=fields, label=label)], [
                push(self.core, t, f"y {label}") for t in turned(stores, self.index)
            ]

        return make
