"""The output-stationary int8 array: blocks of processing elements, and the grid that builds large arrays from them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from amaranth.hdl import (
    Cat,
    ClockSignal,
    Instance,
    Module,
    Mux,
    ResetSignal,
    Signal,
    ValueLike,
    signed,
)
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from .edge import choose

#: Most rows and columns of one block. A block is converted once per shape; larger modules simulate slower.
BLOCK_SIZE = 16


def split(count: int, limit: int = BLOCK_SIZE) -> list[int]:
    """The fewest parts of `count` that are no larger than `limit`; their sizes are as equal as possible."""
    parts = -(-count // limit)
    return [count // parts + (index < count % parts) for index in range(parts)]


def sum_bits(config: ChipConfig) -> int:
    """Bits of an accumulator: as many as the longest sum can take, int32 at most. A window of P products in each PE
    needs a word of B for each column, as two windows of `int4` weights do; and B has only so many."""
    windows = max(1, config.core.b_words // config.cols) * (2 if config.core.int4 else 1)
    return min(32, (windows * config.lanes << 14).bit_length() + 1)


def _block_name(rows: int, cols: int) -> str:
    return f"array_{rows}x{cols}"


def _block_ports(rows: int, cols: int) -> wiring.Signature:
    return wiring.Signature(
        {
            "a": In(signed(8)).array(rows),
            "b": In(signed(8)).array(cols),
            "a_out": Out(signed(8)).array(rows),
            "b_out": Out(signed(8)).array(cols),
            "valid": In(1),
            "first": In(1),
            "done": In(1),
            "valid_right": Out(1),
            "first_right": Out(1),
            "done_right": Out(1),
            "valid_below": Out(1),
            "first_below": Out(1),
            "done_below": Out(1),
            "row": In(range(rows)),
            "result": Out(signed(32)).array(cols),
        }
    )


class ArrayBlock(wiring.Component):
    """`rows` x `cols` processing elements (PE) and the store that turns their skewed results into rows.

    All timing is relative to the corner, PE(0, 0); PE(m, n) does the same m + n cycles later.

    - `a[m]`, `b[n]`: operands for the left column and the top row, skewed by m and n; the PE in the corner multiplies
      them in the same cycle. They leave at `a_out`, `b_out` after `cols` and `rows` cycles.
    - `valid`: the corner has operands. While no PE can have any, nothing in the block toggles.
    - `first`: with the corner's first product of a fold *at its accumulator* (one cycle after the operands if
      `product_register`): the product overwrites the accumulator.
    - `done`: with the last product of a fold at the corner's accumulator. The sum is stored one cycle later, in which
      the next fold's `first` may already be set. Two `done` are at least `rows` cycles apart.
    - `result`: int32 sums of the row selected by `row`, combinational. The sum of PE(m, n) can be read from 2 + m + n
      cycles after `done`, and until 1 + m + n cycles after the following `done`.
    - `valid_right`, `first_right`, `done_right` and the same `_below`: the flags for the neighbours' corners.

    Throughput: one multiply-accumulate per PE and cycle. Sums have `bits` (`sum_bits`).
    """

    a: list[Signal]
    b: list[Signal]
    a_out: list[Signal]
    b_out: list[Signal]
    valid: Signal
    first: Signal
    done: Signal
    valid_right: Signal
    first_right: Signal
    done_right: Signal
    valid_below: Signal
    first_below: Signal
    done_below: Signal
    row: Signal
    result: list[Signal]

    def __init__(self, rows: int, cols: int, product_register: bool, bits: int = 32) -> None:
        self._rows, self._cols, self._product_register, self._bits = rows, cols, product_register, bits
        self.module_name = _block_name(rows, cols)
        super().__init__(_block_ports(rows, cols))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows, cols = self._rows, self._cols

        # Element d of a chain is the flag at anti-diagonal d.
        reach = max(rows + cols - 1, rows + 1, cols + 1)
        flags: dict[str, Signal] = {}
        for name, flag in (("valid", self.valid), ("first", self.first), ("done", self.done)):
            later = Signal(reach, name=f"{name}_later")
            m.d.sync += later.eq(Cat(flag, later))
            flags[name] = chain = Signal(reach + 1, name=f"{name}_chain")
            m.d.comb += chain.eq(Cat(flag, later))
        m.d.comb += [
            self.valid_right.eq(flags["valid"][cols]),
            self.first_right.eq(flags["first"][cols]),
            self.done_right.eq(flags["done"][cols]),
            self.valid_below.eq(flags["valid"][rows]),
            self.first_below.eq(flags["first"][rows]),
            self.done_below.eq(flags["done"][rows]),
        ]

        # One enable for all: garbage summed before `first` or after the sum was stored is never read.
        moving = Signal()
        m.d.comb += moving.eq(flags["valid"].any())

        # Named by anti-diagonal and row, because netlists sort by name: what moves in one step is then adjacent in a
        # simulator's memory, and compilers vectorise it.
        a = {(y, 0): self.a[y] for y in range(rows)}
        b = {(0, x): self.b[x] for x in range(cols)}
        acc: dict[tuple[int, int], Signal] = {}
        with m.If(moving):
            for d in range(rows + cols - 1):
                for y in range(max(0, d - cols + 1), min(d + 1, rows)):
                    x = d - y
                    a[y, x + 1] = Signal(signed(8), name=f"a_{d + 1:02}_{y:02}", reset_less=True)
                    b[y + 1, x] = Signal(signed(8), name=f"b_{d + 1:02}_{y + 1:02}", reset_less=True)
                    acc[y, x] = total = Signal(signed(self._bits), name=f"acc_{d:02}_{y:02}", reset_less=True)
                    product: ValueLike = a[y, x] * b[y, x]
                    if self._product_register:
                        register = Signal(signed(16), name=f"product_{d:02}_{y:02}", reset_less=True)
                        m.d.sync += register.eq(product)
                        product = register
                    m.d.sync += [
                        total.eq(Mux(flags["first"][d], 0, total) + product),
                        a[y, x + 1].eq(a[y, x]),
                        b[y + 1, x].eq(b[y, x]),
                    ]
        m.d.comb += [out.eq(a[y, cols]) for y, out in enumerate(self.a_out)]
        m.d.comb += [out.eq(b[rows, x]) for x, out in enumerate(self.b_out)]

        self._store(m, acc)
        return m

    def _store(self, m: Module, acc: dict[tuple[int, int], Signal]) -> None:
        """Column x stores the finished sums of its rows, one a cycle, x cycles after column 0."""
        rows, cols = self._rows, self._cols
        bits = max(1, (rows - 1).bit_length())
        storing = Signal(cols)
        index = Signal(bits * cols)
        run = Signal()
        count = Signal(bits)
        m.d.comb += [run.eq(storing[0]), count.eq(index[:bits])]
        next_run = Signal()
        next_count = Signal(bits)
        with m.If(self.done):
            m.d.comb += [next_run.eq(1), next_count.eq(0)]
        with m.Else():
            m.d.comb += [next_run.eq(run & (count != rows - 1)), next_count.eq(count + 1)]
        m.d.sync += storing.eq(Cat(next_run, storing))
        with m.If(self.done | storing.any()):
            m.d.sync += index.eq(Cat(next_count, index))
        for x in range(cols):
            at = Signal(bits, name=f"at_{x}")
            m.d.comb += at.eq(index.word_select(x, bits))
            m.submodules[f"store_{x}"] = memory = Memory(shape=signed(self._bits), depth=rows, init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(at),
                write.data.eq(choose(at, [acc[y, x] for y in range(rows)])),
                write.en.eq(storing[x]),
                read.addr.eq(self.row),
                self.result[x].eq(read.data),
            ]


class ArrayForm(Enum):
    """How the array stands in the chip: its blocks as submodules, for Amaranth's simulator; as instances of modules
    that are converted separately (`blocks`), each kind once, however often it is instantiated; or all of it, with its
    edges (`FedArray`), as an instance of the module that `array_loops` writes, for a compiled simulator."""

    SUBMODULES = "submodules"
    INSTANCES = "instances"
    LOOPS = "loops"


class SystolicArray(wiring.Component):
    """`config.rows` x `config.cols` PEs, one block or a grid of blocks; the ports are those of `ArrayBlock`.

    `row` counts over the whole array. Block corners are as far apart in time as in space, so the timing is that of one
    large block.
    """

    a: list[Signal]
    b: list[Signal]
    valid: Signal
    first: Signal
    done: Signal
    row: Signal
    result: list[Signal]

    def __init__(self, config: ChipConfig, form: ArrayForm = ArrayForm.SUBMODULES) -> None:
        self._config, self._form = config, form
        super().__init__(
            {
                "a": In(signed(8)).array(config.rows),
                "b": In(signed(8)).array(config.cols),
                "valid": In(1),
                "first": In(1),
                "done": In(1),
                "row": In(range(config.rows)),
                "result": Out(signed(32)).array(config.cols),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        heights, widths = split(self._config.rows), split(self._config.cols)
        tops = [sum(heights[:index]) for index in range(len(heights))]
        lefts = [sum(widths[:index]) for index in range(len(widths))]
        blocks: dict[tuple[int, int], Any] = {}
        for j, height in enumerate(heights):
            for i, width in enumerate(widths):
                block = blocks[j, i] = self._block(m, f"block_{j}_{i}", height, width)
                left, above = blocks.get((j, i - 1)), blocks.get((j - 1, i))
                for y in range(height):
                    m.d.comb += block.a[y].eq(left.a_out[y] if left else self.a[tops[j] + y])
                for x in range(width):
                    m.d.comb += block.b[x].eq(above.b_out[x] if above else self.b[lefts[i] + x])
                if left:
                    flags = left.valid_right, left.first_right, left.done_right
                elif above:
                    flags = above.valid_below, above.first_below, above.done_below
                else:
                    flags = self.valid, self.first, self.done
                m.d.comb += [block.valid.eq(flags[0]), block.first.eq(flags[1]), block.done.eq(flags[2])]
                m.d.comb += block.row.eq(self.row - tops[j])
        for i, width in enumerate(widths):
            for x in range(width):
                value: ValueLike = blocks[0, i].result[x]
                for j in range(1, len(heights)):
                    value = Mux(self.row >= tops[j], blocks[j, i].result[x], value)
                m.d.comb += self.result[lefts[i] + x].eq(value)
        return m

    def _block(self, m: Module, name: str, rows: int, cols: int) -> Any:
        """Adds a block; returns an object with its ports."""
        if self._form is ArrayForm.SUBMODULES:
            m.submodules[name] = block = ArrayBlock(rows, cols, self._config.product_register, sum_bits(self._config))
            return block
        signature = _block_ports(rows, cols)
        wires = signature.create(path=(name,))
        m.submodules[name] = Instance(_block_name(rows, cols), **_pins(signature, wires))
        return wires


def _pins(signature: Any, wires: Any) -> dict[str, Any]:
    """The ports of an instance with this signature; one without bits has none."""
    flat: Any = signature.flatten(wires)  # the stubs confuse a member with its flow
    return {"i_clk": ClockSignal(), "i_rst": ResetSignal()} | {
        f"{'o' if member.flow is Out else 'i'}_{'__'.join(map(str, path))}": value
        for path, member, value in flat
        if len(value)
    }


def blocks(config: ChipConfig) -> dict[str, ArrayBlock]:
    """Module name to block, one of each kind that this chip's array instantiates (`ArrayForm.INSTANCES`)."""
    kinds = [
        ArrayBlock(height, width, config.product_register, sum_bits(config))
        for height in sorted(set(split(config.rows)))
        for width in sorted(set(split(config.cols)))
    ]
    return {block.module_name: block for block in kinds}
