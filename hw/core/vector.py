"""The vector unit of a core: pooling, depthwise convolution, functions of one and two activations, requantising,
transposing.

      A, OUT ----> x ---+--> x * y | x + y | x ... --+--> accumulator (sum or maximum) --> requantise --> VEC
      B, OUT ----> y ---+                            |           ^
                   +--> table, transposer -----------+    bias or x from ACC

Everything is done lane by lane, P lanes wide, for one word of x per cycle. With `core.vec_windows` of more than 1 there
are as many multipliers and accumulators for each lane: a word of x counts for all windows of an output row that it is
in, each with its own tap from a small memory of weights. With `core.vec_table` a TABLE first reads 256 bytes of B into
a memory that all lanes look up at once. With `core.vec_whole` it can go over a block twice: once for its maximum, sum
or sum of squares in each lane, and again to subtract it or to divide by it or its root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, ChipConfig
from ..spec.contracts import WINDOW_TAPS
from ..spec.isa import REQUANTISING, SCALE_SHIFT, TABLE_BYTES, TWO_OPERANDS, Pair, VectorOp, vector_ops
from ..wiring.ecc import Code, coded_data, error_ports, show_errors, word_memory
from .divider import Divider
from .drain import RETIRE_LAYOUT
from .ports import OperandPort, OperandPorts, address_bits, write_layout
from .readers import FAULT_LAYOUT
from .requantiser import PRODUCT_BITS, SCALE_BITS, requantise
from .transposer import Transposer
from .walk import VEC_LAYOUT, result_layout, step_layout
from .window import WindowReader

#: Operations that may scale what they compute.
_SCALED = (*REQUANTISING, VectorOp.PAIR)


class _Terms(NamedTuple):
    """One term of each lane's sum or maximum, for each window that is open (by number: the oldest is 0).

    `first`, `finished`: ends of the oldest window; `shift`: it is the next one now; `uses`: windows that have a term.
    `largest`: a maximum. `lowered`: y of a whole block is subtracted."""

    valid: Signal
    terms: Sequence[Sequence[Signal]]
    addends: Sequence[Signal]
    first: Signal
    shift: Signal
    uses: Signal
    largest: Signal
    finished: Signal
    lowered: Signal
    result: data.View


class _Totals(NamedTuple):
    """The accumulators of all lanes, with the fate of their word; `valid` when the window is complete."""

    valid: Signal
    totals: Sequence[Signal]
    result: data.View


def _paired(pair: Value, x: Signal, y: Signal, product: Signal) -> Value:
    """One lane of a PAIR, 16 bits signed."""
    kinds = {
        Pair.MUL: product,
        Pair.MASK: Mux(y > 0, x, 0),
        Pair.EQUAL: x == y,
        Pair.SUBTRACT: x - y,
    }
    return Array(kinds[each] for each in Pair)[pair]


class VectorUnit(wiring.Component):
    """Executes VECs on the memories of the matrix unit; writes results to its own memory, which the mover reads.

    - `issue`: VECs whose header has been satisfied. One is held while another runs.
    - `retire`: strobe, one per VEC, in order, in the cycle of its last write; `start` = cycle of the first operand
      address, `end` = the cycle after the last write. Timing is exactly that of `hw.spec.timing`: start = acceptance +
      2 when idle, end - start = `vec_cycles`, and the words of a pending instruction follow without a bubble. A VEC
      never stalls: it has all its ports to itself.
    - `now`: the current cycle.
    - `operands`: see `OperandPorts`. A, B and OUT are read in the cycle of the walk, ACC one cycle later.
    - `read`: a word of VEC; requested in cycle t, it is on `read_data` in cycle t + 1.
    - `write`: the word written to VEC in this cycle (for observers).
    - `fault`: strobe, at most one per VEC, see `WindowReader`.
    - `busy`: a VEC is in the unit. `reading`: operands are read in this cycle.
    In cycles without `busy`, `issue.valid` and `read.en` no register changes.

    A window without any tap inside the tile is 0, or -128 for MAX, before relu and clamp; so an x of PAIR or TABLE
    outside of it is 0.

    Pipeline: addresses; words from the memories; product or sum (and ACC's word); accumulator; scaling; rounding and
    the write. Sums wrap at 32 bits. Costs on an FPGA, besides P x (8x8 and 32x16) multipliers and the P^2 bytes of the
    transposer: a memory with one write and two read ports takes two block RAMs with one read port each, so a vector
    unit doubles the block RAM of A, B, ACC and OUT. The table's memory has a read port for each lane: P copies of 256
    bytes where memories have only one.
    """

    issue: stream.Interface
    retire: data.View
    now: Signal
    operands: OperandPort
    read: data.View
    read_data: Signal
    write: data.View
    corrected: Signal  # with `ecc` only, like `lost`
    lost: Signal
    fault: data.View
    busy: Signal
    reading: Signal

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        self._at = address_bits(config.core.vec_words)
        self._windows = config.core.vec_windows
        self._ops = vector_ops(config.core)
        super().__init__(
            {
                "issue": In(stream.Signature(VEC_LAYOUT)),
                "retire": Out(RETIRE_LAYOUT),
                "now": In(32),
                "operands": Out(OperandPorts(config)),
                "read": In(data.StructLayout({"en": 1, "offset": OFFSET_BITS})),
                "read_data": Out(config.coded_bits),
                "write": Out(write_layout(config.core.vec_words, config.word_bits)),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
                "reading": Out(1),
            }
            | error_ports(config)
        )

    def _is(self, op: Value, *some: VectorOp) -> Value:
        """Whether an operation is one of some, of which the unit may lack a few."""
        present = [each for each in some if each in self._ops]
        return Cat(op == each for each in present).any() if present else Const(0)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operands = self._config, self.operands
        m.submodules.reader = reader = WindowReader(config)
        m.submodules.memory = memory = word_memory(config.word_bits, config.core.vec_words, config.ecc)
        port, write = memory.read_port(), memory.write_port()
        show_errors(m, self, memory)
        m.d.comb += [
            port.en.eq(self.read.en),
            port.addr.eq(self.read.offset),
            self.read_data.eq(coded_data(port)),
            write.en.eq(self.write.en),
            write.addr.eq(self.write.addr),
            write.data.eq(Code(config.word_bits, config.ecc).encode(self.write.data)),
        ]
        wiring.connect(m, wiring.flipped(self.issue), reader.issue)
        m.d.comb += [
            reader.now.eq(self.now),
            self.fault.eq(reader.fault),
            self.reading.eq(reader.reading),
            operands.a.eq(reader.a_read),
            operands.b.eq(reader.b_read),
            operands.out.eq(reader.out_read),
        ]
        if config.core.operand_sources:
            m.d.comb += operands.walking.eq(reader.reading)

        # Control that travels with the words: `fetched` one cycle after the addresses, `operand` two.
        walk = step_layout(self._at, self._windows)
        fetched = Signal(walk)
        operand = Signal(walk)
        added = Signal()
        m.d.sync += [fetched.active.eq(reader.step.active), operand.active.eq(fetched.active)]
        with m.If(reader.step.active):
            m.d.sync += [fetched.eq(reader.step), operands.acc.addr.eq(reader.acc_read.addr)]
        m.d.sync += [operands.acc.en.eq(reader.acc_read.en), added.eq(operands.acc.en)]

        arriving, x, y = self._fetch(m, fetched, operand)
        entries = self._look_up(m, reader.table, fetched, arriving, x)
        scales = self._scales(m, operand, added)
        terms = self._compute(m, operand, added, x, self._weights(m, reader.fill, fetched, operand, y), entries)
        block_values = [Signal(signed(8), name=f"kept_{lane}", reset_less=True) for lane in range(config.lanes)]
        totals = self._accumulate(m, terms, block_values)
        writing = self._write(m, totals, block_values, scales)
        m.d.comb += self.busy.eq(reader.busy | fetched.active | operand.active | terms.valid | totals.valid | writing)
        return m

    def _fetch(self, m: Module, fetched: data.View, operand: data.View) -> tuple[Signal, Signal, Signal]:
        """Words from the memories. Returns x as it comes with `fetched`, then x and y, valid with `operand`, one cycle
        later."""
        config, operands = self._config, self.operands
        arriving = Signal(config.word_bits)
        x = Signal(config.word_bits)
        y = Signal(config.word_bits)
        with m.If(fetched.active):
            m.d.sync += operand.eq(fetched)
            word = Mux(fetched.x_out, operands.out_data, operands.a_data)
            # A tap that does not contribute is zero, or for a maximum the least value.
            nothing = Mux(self._is(fetched.op, VectorOp.MAX), Const(0x80, 8).replicate(config.lanes), 0)
            m.d.comb += arriving.eq(Mux(fetched.x & ~self._is(fetched.op, VectorOp.REQUANT), word, nothing))
            m.d.sync += x.eq(arriving)
            with m.If(self._is(fetched.op, VectorOp.MAC)):
                m.d.sync += y.eq(Mux(fetched.first_walk, arriving, Mux(fetched.y, operands.b_data, 0)))
            with m.If(self._is(fetched.op, *TWO_OPERANDS)):
                m.d.sync += y.eq(Mux(fetched.y, operands.out_data, 0))
        return arriving, x, y

    def _look_up(self, m: Module, table: data.View, fetched: data.View, arriving: Signal, x: Signal) -> list[Value]:
        """The table, and what it says of each lane of x, valid with x; nothing in units without one."""
        if not self._config.core.vec_table:
            return []
        lanes, low = self._config.lanes, address_bits(self._config.lanes)
        m.submodules.table = memory = Memory(shape=8 * lanes, depth=TABLE_BYTES // lanes, init=[])
        write, filled = memory.write_port(), Signal.like(table)
        m.d.sync += filled.valid.eq(table.valid)
        with m.If(table.valid):
            m.d.sync += filled.eq(table)
        m.d.comb += [
            write.en.eq(filled.valid),
            write.addr.eq(filled.place),
            write.data.eq(Mux(filled.made, self.operands.b_data, 0)),
        ]
        entries: list[Value] = []
        for lane in range(lanes):
            port = memory.read_port()
            # byte x + 128: the top bit flips
            m.d.comb += [
                port.en.eq(fetched.active & (fetched.op == VectorOp.TABLE)),
                port.addr.eq(Cat(arriving.word_select(lane, 8)[low:7], ~arriving.word_select(lane, 8)[7])),
            ]
            entries.append(port.data.word_select(x.word_select(lane, 8)[:low], 8))
        return entries

    def _weights(self, m: Module, fill: data.View, fetched: data.View, operand: data.View, y: Signal) -> list[Value]:
        """y of each window: the taps of sliding ones are in a memory, which is read in the cycle of `fetched`."""
        if self._windows == 1:
            return [y]
        bits = self._config.word_bits
        m.submodules.taps = taps = Memory(shape=bits, depth=2 * WINDOW_TAPS, init=[])
        write, filled = taps.write_port(), Signal.like(fill)
        m.d.sync += filled.valid.eq(fill.valid)
        with m.If(fill.valid):
            m.d.sync += filled.eq(fill)
        m.d.comb += [
            write.en.eq(filled.valid),
            write.addr.eq(filled.place),
            write.data.eq(Mux(filled.made, self.operands.b_data, 0)),
        ]
        weights: list[Value] = []
        for window in range(self._windows):
            port = taps.read_port()
            m.d.comb += [port.en.eq(fetched.active & fetched.slides), port.addr.eq(fetched.weights[window])]
            weights.append(Mux(operand.slides, port.data, y) if window == 0 else port.data)
        return weights

    def _compute(
        self, m: Module, operand: data.View, added: Signal, x: Signal, y: Sequence[Value], entries: Sequence[Value]
    ) -> _Terms:
        """Product, sum or word, one cycle after `operand`; the transposer's result follows P steps later. ACC's word is
        taken in the same cycle, replaced by zero unless it was `added`. `y`: of each window; `entries`: of the table.
        """
        lanes = self._config.lanes
        turned = self._transposed(m, operand, x)
        terms = [
            [Signal(signed(16), name=f"term_{window}_{lane}", reset_less=True) for lane in range(lanes)]
            for window in range(self._windows)
        ]
        addends = [Signal(signed(32), name=f"addend_{lane}", reset_less=True) for lane in range(lanes)]
        adding = Signal()
        first = Signal()
        shift = Signal()
        uses = Signal(self._windows)
        largest = Signal()
        finished = Signal()
        lowered = Signal()
        third = Signal(result_layout(self._at))
        m.d.sync += adding.eq(operand.active)
        with m.If(operand.active):
            m.d.sync += [shift.eq(operand.shift), uses.eq(Mux(operand.slides, operand.uses, 1))]
            m.d.sync += [
                first.eq(operand.first),
                largest.eq(self._is(operand.op, VectorOp.MAX) & ~operand.second_walk),
                finished.eq(operand.done),
                lowered.eq(operand.second_walk & ~operand.result.divides),
            ]
            with m.If(operand.done):
                m.d.sync += third.eq(operand.result)
            with m.If(operand.addend & any(op in self._ops for op in REQUANTISING)):
                for lane, addend in enumerate(addends):
                    m.d.sync += addend.eq(Mux(added, self.operands.acc_data.word_select(lane, 32), 0))
            for lane, term in enumerate(terms[0]):
                a, b = (Signal(signed(8), name=f"{name}_{lane}") for name in ("x", "y"))
                product = Signal(signed(16), name=f"x_y_{lane}")
                m.d.comb += [a.eq(x.word_select(lane, 8)), b.eq(y[0].word_select(lane, 8)), product.eq(a * b)]
                by_op: dict[VectorOp, Value] = {
                    VectorOp.MAC: Mux(operand.second_walk, a, product),
                    VectorOp.PAIR: _paired(operand.pair, a, b, product),
                    VectorOp.ADD: a + b,
                }
                if entries:
                    by_op[VectorOp.TABLE] = entries[lane].as_signed()
                if turned is not None:
                    by_op[VectorOp.TRANSPOSE] = turned.word_select(lane, 8).as_signed()
                with m.Switch(operand.op):
                    for op, value in by_op.items():
                        if op in self._ops:
                            with m.Case(op):
                                m.d.sync += term.eq(value)
                    with m.Default():
                        m.d.sync += term.eq(a)
        with m.If(operand.active & operand.slides):
            for window in range(1, self._windows):
                for lane, term in enumerate(terms[window]):
                    a, b = x.word_select(lane, 8).as_signed(), y[window].word_select(lane, 8).as_signed()
                    m.d.sync += term.eq(Mux(self._is(operand.op, VectorOp.MAC), a * b, a))
        return _Terms(adding, terms, addends, first, shift, uses, largest, finished, lowered, third)

    def _transposed(self, m: Module, operand: data.View, x: Signal) -> Signal | None:
        """The transposer's word; nothing in units without one."""
        if VectorOp.TRANSPOSE not in self._ops:
            return None
        m.submodules.transposer = transposer = Transposer(self._config.lanes)
        m.d.comb += [
            transposer.step.eq(operand.active & (operand.op == VectorOp.TRANSPOSE)),
            transposer.turn.eq(operand.turn),
            transposer.word.eq(x),
        ]
        return transposer.result

    def _accumulate(self, m: Module, terms: _Terms, block_values: Sequence[Signal]) -> _Totals:
        """Sum or maximum over the taps of a window or over a whole block, one cycle after the terms. Returns those of
        the oldest window. `block_values`: what is subtracted where terms are `lowered`."""
        totals = [
            [Signal(signed(32), name=f"total_{window}_{lane}", reset_less=True) for lane in range(self._config.lanes)]
            for window in range(self._windows)
        ]
        scaling = Signal()
        fourth = Signal(result_layout(self._at))
        m.d.sync += scaling.eq(terms.valid & terms.finished)
        with m.If(terms.valid):
            with m.If(terms.finished):
                m.d.sync += fourth.eq(terms.result)
            for lane, addend in enumerate(terms.addends):
                empty = Signal(signed(32), name=f"empty_{lane}")
                nothing = Mux(terms.lowered, -block_values[lane], addend) if self._config.core.vec_whole else addend
                m.d.comb += empty.eq(Mux(terms.largest, -128, nothing))
                chain = [total[lane] for total in totals]
                for window, (total, later) in enumerate(zip(chain, [*chain[1:], empty], strict=True)):
                    term = terms.terms[window][lane]
                    before = Signal(signed(32), name=f"before_{window}_{lane}")
                    m.d.comb += before.eq(Mux(terms.first, empty, Mux(terms.shift, later, total)))
                    with m.If(~terms.uses[window]):
                        m.d.sync += total.eq(before)
                    with m.Elif(~terms.largest):
                        m.d.sync += total.eq(before + term)
                    with m.Else():
                        m.d.sync += total.eq(Mux(term > before, term, before))
        return _Totals(scaling, totals[0], fourth)

    def _scales(self, m: Module, operand: data.View, added: Signal) -> Sequence[Signal]:
        """The multiplier of each lane in the current block, from two cycles before the product of the first result that
        it is for, and one cycle after that of the block before; nothing in units without. `added`: ACC was read."""
        if not self._config.core.channel_scales:
            return []
        scales = [Signal(SCALE_BITS, name=f"scale_{lane}", reset_less=True) for lane in range(self._config.lanes)]
        with m.If(operand.active & operand.scales):
            for lane, scale in enumerate(scales):
                m.d.sync += scale.eq(Mux(added, self.operands.acc_data.word_select(lane, 32)[:SCALE_BITS], 0))
        return scales

    def _divide(self, m: Module, totals: _Totals) -> Sequence[Value]:
        """What each lane of the second walk over a whole block is multiplied by."""
        m.submodules.divider = divider = Divider(self._config.lanes)
        m.d.comb += [
            divider.start.eq(totals.valid & totals.result.keep & totals.result.divides),
            divider.root.eq(totals.result.root),
            divider.scale.eq(totals.result.scale),
            divider.sums.eq(Cat(totals.totals)),
        ]
        return [divider.quotients.word_select(lane, 16) for lane in range(self._config.lanes)]

    def _write(self, m: Module, totals: _Totals, block_values: Sequence[Signal], scales: Sequence[Signal]) -> Signal:
        """Scaling; rounding and the write, one cycle after that. Returns whether this is the cycle of a write.
        `block_values` gets the results of a first walk; `scales`: of each lane, if it may have its own."""
        writing = Signal()
        m.d.sync += writing.eq(totals.valid)
        products = [
            Signal(signed(PRODUCT_BITS), name=f"product_{lane}", reset_less=True) for lane in range(self._config.lanes)
        ]
        fourth, fifth = totals.result, Signal(result_layout(self._at), name="fifth")
        quotients: Sequence[Value] = self._divide(m, totals) if self._config.core.vec_whole else []
        with m.If(totals.valid):
            m.d.sync += fifth.eq(fourth)
            for lane, (product, total) in enumerate(zip(products, totals.totals, strict=True)):
                factor = Signal(signed(32), name=f"factor_{lane}")
                m.d.comb += factor.eq(Mux(fourth.times16, total << 4, total))
                scale = Mux(fourth.divides, quotients[lane], fourth.scale) if quotients else fourth.scale
                scale = Mux(fourth.by_channel, scales[lane], scale) if scales else scale
                exact = Const(1) if not any(op in self._ops for op in _SCALED) else fourth.exact
                m.d.sync += product.eq(Mux(exact, total << SCALE_SHIFT, factor * scale))
        rounds = Signal()
        rounded = [requantise(m, rounds, product, fifth.relu, fifth.clamp) for product in products]
        if quotients:
            with m.If(writing & fifth.keep):
                m.d.sync += [old.eq(new) for old, new in zip(block_values, rounded, strict=True)]
        m.d.comb += [
            rounds.eq(self.write.en | (writing & fifth.keep)),
            self.write.en.eq(writing & fifth.write),
            self.write.addr.eq(fifth.at),
            self.write.data.eq(Cat(rounded)),
            self.retire.valid.eq(writing & fifth.last),
            self.retire.end.eq(self.now + 1),
        ]
        for field in ("tag", "post_sem", "post_n", "start"):
            m.d.comb += self.retire[field].eq(fifth[field])
        return writing
