"""Layers of the vector unit: pooling, depthwise convolutions, additions that are not fused, functions of one or two
activations, slices, copies with and without repetition.

Every channel block is computed by itself. Blocks are shared out among the cores, and rows where there are fewer blocks
than cores; each core works through tiles of some blocks x some rows: pull, VEC, store, three tiles under way at a time,
fewer where memories are too small for three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Pair, Region, VectorOp, YWalk, address
from meshloom.hw.spec.timing import VecShape, table_words, vec_occupancy

from ...ir import bodies
from ...ir.bodies import VecFields
from ...ir.schedule import Box, Piece
from ...mapping.emit.fields import (
    WHOLE_OPS,
    bias_fields,
    bias_rows,
    check_map,
    operation_of,
    vector_fields,
    vector_window,
)
from ...mapping.memory.placement import Allocator, Placed, Stored
from ...mapping.nodes import Node
from ...mapping.tiling.problem import MAX_IN_WIDTH, DoesNotFit
from ...mapping.tiling.tiles import Range, even
from ...mapping.tiling.windows import check_window
from ...workload.graph import Layer
from ...workload.layers import NO_CLAMP

#: Tiles that are under way at a time on each core, if its memories have room for them.
SLOTS = 3
#: Each core cuts its work into about so many tiles at least, if they are not smaller than `LEAST_WORDS`.
LEAST_TILES, LEAST_WORDS = 6, 48

#: How much longer the busiest core may take for the sake of sharing out rows.
UNFAIR = 1.15


@dataclass(frozen=True)
class VectorTask:
    """A layer of the vector unit with the places of its tensors. `r`: second operand of an addition or product.

    `result`: name of its result in boxes; empty for copies, which are not compared. `rows_first`: its input is made by
    cores that share out rows, so it had better do the same: then all cores find finished rows from the beginning.
    """

    layer: Layer
    x: Stored
    y: Stored | Placed
    r: Stored | None
    result: str
    rows_first: bool = False


@dataclass(frozen=True)
class _Tile:
    blocks: Range
    rows: Range
    columns: Range


@dataclass
class VectorNodes:
    """The operations of a layer, in order, and where its constants lie (depthwise: "w" and "bias"; table: "table")."""

    nodes: list[Node]
    constants: dict[str, tuple[Piece, ...]]


class _Emitter:
    def __init__(self, task: VectorTask, chip: ChipConfig, dram: Allocator) -> None:
        self.task, self.chip = task, chip
        layer = task.layer
        check_window(layer)
        self.window = vector_window(layer)
        #: what is done with whole blocks, if it is that
        self.whole = WHOLE_OPS[layer.by] if layer.by is not None else None
        self.op = operation_of(layer, chip)
        self.repeat = layer.repeat
        #: r has one word for all pixels of a block
        self.broadcast = task.r is not None and (task.r.rows, task.r.width) != (task.y.rows, task.y.width)
        self.taps = self.window.kernel_h * self.window.kernel_w
        self.planes, self.rows, self.width = task.y.planes, task.y.rows, task.y.width
        self.slots = SLOTS
        self.constants: dict[str, Stored] = {}
        if layer.kind == "depthwise":
            turn = chip.drams
            self.constants = {
                "w": Stored(
                    dram, self.planes, 1, self.taps, [], lambda plane, _: turn[plane * len(turn) // self.planes]
                ),
                "bias": Stored(dram, 1, self.planes, 4 * bias_rows(layer.fixed), [], lambda _plane, _at: turn[0]),
            }
        if layer.kind == "table":
            home = chip.drams[0]
            self.constants = {"table": Stored(dram, 1, 1, table_words(chip), [], lambda _plane, _at: home)}

    # -- cutting --------------------------------------------------------------------------------------------------

    def _reach(self, low: int, high: int, stride: int, pad: int, kernel: int, size: int) -> Range:
        """Input rows or columns that outputs [low, high) read; `low` is a multiple of `repeat`."""
        low, high = low // self.repeat, ceil(high / self.repeat)
        first = low * stride - pad
        end = (high - 1) * stride - pad + (kernel - 1) * self.window.dilation + 1
        return max(first, 0), min(end, size)

    def input_rows(self, rows: Range) -> Range:
        w = self.window
        return self._reach(*rows, w.stride_h, w.pad_top, w.kernel_h, self.task.x.rows)

    def input_columns(self, columns: Range) -> Range:
        w = self.window
        return self._reach(*columns, w.stride_w, w.pad_left, w.kernel_w, self.task.x.width)

    def _even(self, low: int, high: int, parts: int) -> list[Range]:
        """Cuts a range of outputs into parts that begin at multiples of `repeat`, as both ends are."""
        cuts = even(low // self.repeat, high // self.repeat, parts)
        return [(begin * self.repeat, end * self.repeat) for begin, end in cuts]

    def _words(self, rows: Range, columns: Range) -> tuple[int, int]:
        """Words of one block of a tile: input and output."""
        (i0, i1), (j0, j1) = self.input_rows(rows), self.input_columns(columns)
        return (i1 - i0) * (j1 - j0), (rows[1] - rows[0]) * (columns[1] - columns[0])

    def shares(self) -> list[tuple[Range, Range]]:
        """(blocks, rows) of each core."""
        cores = len(self.chip.cores)
        over_blocks = min(cores, self.planes)
        # Blocks that do not divide leave cores idle; rows may divide better.
        options: list[tuple[int, int, int]] = []
        for n in range(1, over_blocks + 1):
            lines = 1 if self.whole else self.rows // self.repeat
            m = min(cores // n, lines)
            options.append((ceil(self.planes / n) * ceil(lines / m), m, n))
        least = min(options)[0]
        fair = [option for option in options if option[0] <= least * UNFAIR]
        _, m, n = max(fair, key=lambda option: option[1]) if self.task.rows_first else min(fair)
        return [(blocks, rows) for rows in self._even(0, self.rows, m) for blocks in even(0, self.planes, n)]

    def tiles(self, blocks: Range, rows: Range) -> Iterator[_Tile]:
        """The tiles of one core, rows outermost. Raises DoesNotFit if its memories have no room for `slots` of them."""
        core = self.chip.core
        room_x, room_y = core.a_words // self.slots, min(core.vec_words, core.out_words) // self.slots
        if self.whole:
            yield from self._whole_tiles(blocks)
            return
        pieces = 1
        while True:  # whole rows unless a single one is too long
            columns = self._even(0, self.width, pieces)
            widest = max(columns, key=lambda c: c[1] - c[0])
            # the widest window of x may belong to another piece: one with neighbours on both sides
            reach = max(columns, key=lambda c: self.input_columns(c)[1] - self.input_columns(c)[0])
            first = rows[0], rows[0] + self.repeat
            x, y = self._words(first, reach)[0], self._words(first, widest)[1]
            w = self.window
            across = self.input_columns(reach)[1] - self.input_columns(reach)[0]
            x = max(x, min(w.kernel_h, self.task.x.rows) * across)
            if x <= room_x and y <= room_y and max(across, y // self.repeat) <= MAX_IN_WIDTH:
                break
            if pieces == self.width // self.repeat:
                raise DoesNotFit(
                    f"layer {self.task.layer.output}: A or VEC of a {self.chip.name} core is too small: one output "
                    f"pixel needs {x} words of A, there are {room_x}"
                    + (f"; with those beside it {y} words of VEC, there are {room_y}" if self.repeat > 1 else "")
                )
            pieces += 1
        count, have = blocks[1] - blocks[0], rows[1] - rows[0]
        best: tuple[float, int, int] | None = None
        for high in range(self.repeat, have + 1, self.repeat):
            x = max(self._words(some, reach)[0] for some in self._even(*rows, ceil(have / high)))
            y = high * (widest[1] - widest[0])
            if x > room_x or y > room_y:
                break
            deep = min(count, room_x // x, room_y // y, 255)
            parts = ceil(have / high) * len(columns)
            tiles_each = ceil(LEAST_TILES / parts)
            deep = max(1, min(deep, max(ceil(count / tiles_each), ceil(LEAST_WORDS / y))))
            # Input words fetched (halos count again), and a cost for each tile.
            cost = parts * ceil(count / deep) * 40 + parts * count * x
            if best is None or cost < best[0]:
                best = cost, high, deep
        assert best is not None  # one row fits
        _, high, deep = best
        for some in self._even(*rows, ceil(have / high)):
            for block in even(*blocks, ceil(count / deep)):
                for column in columns:
                    yield _Tile(block, some, column)

    def _whole_tiles(self, blocks: Range) -> Iterator[_Tile]:
        """Tiles of whole blocks."""
        room = check_map(self.task.layer.output, self.rows, self.width, self.chip, self.slots)
        size, count = self.rows * self.width, blocks[1] - blocks[0]
        deep = max(1, min(room // size, ceil(count / LEAST_TILES)))
        for some in even(*blocks, ceil(count / deep)):
            yield _Tile(some, (0, self.rows), (0, self.width))

    # -- operations -----------------------------------------------------------------------------------------------

    def emit(self) -> list[Node]:
        """The operations of all cores, tile by tile. Raises DoesNotFit if a tile has no room even by itself."""
        shares = self.shares()
        tiles = self._cut(shares)
        streams = [
            list(self._core(core, some, blocks))
            for core, some, (blocks, _) in zip(self.chip.cores, tiles, shares, strict=False)
        ]
        nodes: list[Node] = []
        for position in range(max(len(stream) for stream in streams)):
            for stream in streams:
                if position < len(stream):
                    nodes += stream[position]
        return nodes

    def _cut(self, shares: Sequence[tuple[Range, Range]]) -> list[list[_Tile]]:
        """The tiles of each core: smaller ones rather than less time for transfers, but fewer `slots` than nothing."""
        for self.slots in range(SLOTS, 1, -1):
            try:
                return [list(self.tiles(blocks, rows)) for blocks, rows in shares]
            except DoesNotFit:
                pass
        self.slots = 1
        return [list(self.tiles(blocks, rows)) for blocks, rows in shares]

    def _core(self, core: int, tiles: list[_Tile], blocks: Range) -> Iterator[list[Node]]:
        """Groups of operations: what the first tiles need, then VEC, its stores and what a later tile needs."""
        x_slot = max(self._words(t.rows, t.columns)[0] * (t.blocks[1] - t.blocks[0]) for t in tiles)
        y_slot = max(self._words(t.rows, t.columns)[1] * (t.blocks[1] - t.blocks[0]) for t in tiles)
        vecs: list[Node] = []
        stores: list[list[Node]] = []
        constants: dict[Range, list[Node]] = {}
        loads: list[list[Node]] = []

        def load(index: int) -> list[Node]:
            tile, slot = tiles[index], index % self.slots
            after = [vecs[index - self.slots]] if index >= self.slots else []
            operand_loads = self._loads(core, tile, slot * x_slot, slot * y_slot, after)
            fresh: list[Node] = []
            mine = blocks if "table" in self.constants else tile.blocks
            if self.constants and mine not in constants:
                fresh = constants[mine] = self._constants(core, mine, blocks)
            loads.append([*operand_loads, *constants.get(mine, [])])
            return [*fresh, *operand_loads]

        ahead = min(self.slots - 1, len(tiles))
        yield [node for index in range(ahead) for node in load(index)]
        for index, tile in enumerate(tiles):
            slot = index % self.slots
            group = load(index + ahead) if index + ahead < len(tiles) else []
            after = [*loads[index], *(stores[index - self.slots] if index >= self.slots else [])]
            vec = self._vec(core, tile, slot * x_slot, slot * y_slot, blocks, after)
            vecs.append(vec)
            stores.append(self._stores(core, tile, slot * y_slot, vec))
            yield [*group, vec, *stores[-1]]

    def _loads(self, core: int, tile: _Tile, x_at: int, y_at: int, after: list[Node]) -> list[Node]:
        rows, columns = self.input_rows(tile.rows), self.input_columns(tile.columns)
        label = f"x b{tile.blocks[0]} y{rows[0]} x{columns[0]}"
        places = [(self.task.x, address(Region.MAIN, x_at), rows, columns)]
        if self.task.r is not None:
            some, wide = ((0, 1), (0, 1)) if self.broadcast else (tile.rows, tile.columns)
            places.append((self.task.r, address(Region.OUT, y_at), some, wide))
        return [
            t.load(core, label, after)
            for stored, at, some, wide in places
            for t in stored.transfers(tile.blocks, (*some, 1), wide, core, at)
        ]

    def _constants(self, core: int, blocks: Range, mine: Range) -> list[Node]:
        """Weights and biases of some blocks, or the table of all; they stay."""
        if "table" in self.constants:
            words = table_words(self.chip)
            if words > self.chip.core.b_words:
                raise DoesNotFit(f"layer {self.task.layer.output}: its table does not fit B of a {self.chip.name} core")
            table = self.constants["table"].transfers((0, 1), (0, 1, 1), (0, words), core, address(Region.B, 0))
            return [t.load(core, "table") for t in table]
        first = blocks[0] - mine[0]
        w, bias = self.constants["w"], self.constants["bias"]
        count, core_has = mine[1] - mine[0], self.chip.core
        if count * self.taps > core_has.b_words or count * bias.width > 4 * core_has.acc_words:
            raise DoesNotFit(
                f"layer {self.task.layer.output}: its weights do not fit B or ACC of a {self.chip.name} core"
            )
        moves = [
            *w.transfers(blocks, (0, 1, 1), (0, self.taps), core, address(Region.B, first * self.taps)),
            *bias.transfers((0, 1), (*blocks, 1), (0, bias.width), core, address(Region.ACC, bias.width * first)),
        ]
        return [t.load(core, f"w b{blocks[0]}") for t in moves]

    def _vec(self, core: int, tile: _Tile, x_at: int, y_at: int, mine: Range, after: list[Node]) -> Node:
        layer, read = self.task.layer, (self.input_rows(tile.rows), self.input_columns(tile.columns))
        out_h, out_w = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        blocks, first = tile.blocks[1] - tile.blocks[0], tile.blocks[0] - mine[0]
        fields: VecFields = {
            **vector_fields(self.window, (tile.rows, tile.columns), read, blocks),
            "op": self.op,
            "x_base": x_at,
            "dest_base": y_at,
            "relu": int(layer.relu),
            "clamp": layer.clamp if layer.kind != "slice" else NO_CLAMP,
            "repeat": max(1, self.repeat) - 1,
        }
        if self.task.r is not None:
            fields["y_base"] = y_at
        if self.broadcast:
            fields["y_walk"] = YWalk.BLOCK
        if self.whole:
            fields |= {"pair": self.whole[1], "y_walk": YWalk.WHOLE, "times16": int(layer.times16)}
        if self.op is VectorOp.PAIR:
            fields |= {"pair": Pair.MUL, "times16": int(layer.times16)}
        if self.op is VectorOp.MAC and not self.whole:
            fields |= {"y_base": first * self.taps, "addend": 1}
        body = bodies.vec(**fields)
        if self.op in (VectorOp.MAC, VectorOp.SUM, VectorOp.PAIR):
            body |= layer.fixed
        if self.op is VectorOp.MAC and not self.whole:
            body |= bias_fields(layer.fixed, bias_rows(layer.fixed) * first)
        box = None
        if self.task.result:
            box = Box(
                tensor=self.task.result,
                plane=tile.blocks[0],
                planes=blocks,
                row=tile.rows[0],
                rows=out_h,
                column=tile.columns[0],
                columns=out_w,
            )
        cycles = vec_occupancy(self.chip, VecShape.of(body))
        label = f"{layer.kind} b{tile.blocks[0]} y{tile.rows[0]} x{tile.columns[0]}"
        return Node(core, after, label, fields=body, cycles=cycles, vec=True, result=box)

    def _stores(self, core: int, tile: _Tile, y_at: int, vec: Node) -> list[Node]:
        return [
            t.store(core, f"y b{tile.blocks[0]} y{tile.rows[0]} x{tile.columns[0]}", [vec])
            for t in self.task.y.transfers(tile.blocks, (*tile.rows, 1), tile.columns, core, address(Region.VEC, y_at))
        ]


def emit(task: VectorTask, chip: ChipConfig, dram: Allocator) -> VectorNodes:
    """All operations of a layer. Raises DoesNotFit when its smallest tile does not fit a core."""
    emitter = _Emitter(task, chip, dram)
    nodes = emitter.emit()
    return VectorNodes(nodes, {name: stored.pieces() for name, stored in emitter.constants.items()})
