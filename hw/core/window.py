"""The vector unit's operand reader: walks over a VEC's input windows, one word of x per cycle."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, ChipConfig
from ..spec.contracts import WINDOW_TAPS
from ..spec.isa import TWO_OPERANDS, WHOLE_PAIRS, WINDOWED, Cause, Pair, Region, VectorOp, YWalk, vector_ops
from .ports import address_bits, read_layout
from .readers import FAULT_LAYOUT, PendingInstruction
from .tap_loader import FILL_LAYOUT, TapLoader
from .walk import VEC_LAYOUT, Access, LoopEnds, Walk, step_layout, table_layout

_COUNTS = ("in_w", "blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels")


def _any_of(op: Value, some: Sequence[VectorOp]) -> Value:
    return Cat(op == each for each in some).any() if some else Const(0)


class WindowReader(wiring.Component):
    """Executes the loops of VECs: blocks, output pixels, window rows, window columns.

    Windows that overlap, and of which no more than `core.vec_windows` do, slide: blocks, output rows, input columns,
    window rows. So each input word is read once for all windows of an output row. A column outside of the tile takes
    one cycle. The weights of each block are read before its walk, those of the first while nothing else happens; a
    walk of fewer cycles than weights waits for the next block's.

    TRANSPOSE: blocks, groups of P pixels (the last one padded with cycles that read nothing), then P more cycles:
    results follow P cycles after their operands. TABLE: the words of its table, then blocks and pixels. With
    `YWalk.WHOLE` each block is walked over twice, with a rest in between.

    Latency: `hw.spec.timing.VEC_ISSUE_CYCLES` from an accepted instruction to its first address when idle; two
    instructions are held at a time, so that the words of the next one follow without a bubble.

    - `issue`: instructions whose header has been satisfied.
    - `a_read`, `b_read`, `out_read`, `acc_read`: words that this cycle requests (`en`) and their addresses.
    - `step`: describes the addresses of this cycle.
    - `fill`: where in the tap memory the word of `b_read` goes. `table`: where in the table.
    - `reading`: a VEC reads operands in this cycle, the loader's included.
    - `fault`: registered strobe, at most one per instruction. Causes: ADDRESS (value = the word address; the access is
      suppressed and the word does not contribute: it is zero, or for a maximum the least value), SHAPE (a zero count,
      a window larger than 1x1 for an operation without windows or with `repeat`, or one of 1x1 `by_channel`, whose
      blocks may have no second step to read multipliers in), RESERVED_BITS (also for an operation that the unit does
      not have (`hw.spec.isa.vector_ops`), WHOLE on a chip without `core.vec_whole` or where there is none, `by_channel`
      on one without `core.channel_scales` or without a bias, and for fields that must be 0 with this `op`). SHAPE and
      RESERVED_BITS make the instruction void: it runs (counts at least 1), writes nothing, and retires.
    """

    issue: stream.Interface
    now: Signal
    a_read: data.View
    b_read: data.View
    out_read: data.View
    acc_read: data.View
    step: data.View
    fill: data.View
    table: data.View
    reading: Signal
    fault: data.View
    busy: Signal

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        self._windows = config.core.vec_windows
        core = config.core

        super().__init__(
            {
                "issue": In(stream.Signature(VEC_LAYOUT)),
                "now": In(32),
                "a_read": Out(read_layout(core.a_words)),
                "b_read": Out(read_layout(core.b_words)),
                "out_read": Out(read_layout(core.out_words)),
                "acc_read": Out(read_layout(core.acc_words)),
                "step": Out(step_layout(address_bits(core.vec_words), core.vec_windows)),
                "fill": Out(FILL_LAYOUT),
                "table": Out(table_layout(config.lanes)),
                "reading": Out(1),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pending = PendingInstruction(m, self.issue, VEC_LAYOUT)
        windowed, whole = self._check(m, pending)
        walk = Walk(self._config)
        slides, loader = self._slide(m, walk, pending, windowed)
        ends = walk.loop_ends(m, pending)
        if loader is not None:
            m.d.comb += loader.take.eq(walk.fills & ends.block_last)
        x, y, bias = self._address_x(m, walk), self._address_y(m, walk, loader), self._address_bias(m, walk)
        scales = self._address_scales(m, walk)
        self._read(m, walk, x, y, bias, scales)
        dest = self._address_dest(m, walk, ends)
        walk.advance(m, ends)
        walk.load(m, pending, self.now, windowed, slides, whole)
        m.d.comb += [self.busy.eq(walk.active | pending.waiting), self.reading.eq(walk.active)]
        self._describe(m, walk, ends, loader, x, y, dest)
        self._faults(m, pending, walk.vec, (x, y, bias, scales, dest))
        return m

    def _check(self, m: Module, pending: PendingInstruction) -> tuple[Signal, Signal]:
        """Checks the pending instruction; returns whether its operation has windows, and whether it is of whole
        blocks."""
        after, core = pending.code, self._config.core
        windowed = Signal()
        summed = Signal()
        second = Signal()
        paired = Signal()
        scaled = Signal()
        whole = Signal()
        known = [(after.op == op) & (after.pair == pair) for op, pair in WHOLE_PAIRS]
        m.d.comb += [
            whole.eq((after.y_walk == YWalk.WHOLE) & windowed & core.vec_whole),
            windowed.eq(_any_of(after.op, [op for op in WINDOWED if op in vector_ops(core)])),
            summed.eq((after.op == VectorOp.MAC) | (after.op == VectorOp.SUM)),
            second.eq(_any_of(after.op, TWO_OPERANDS)),
            paired.eq(after.op == VectorOp.PAIR),
            scaled.eq(summed | (after.op == VectorOp.REQUANT) | (paired & (after.pair == Pair.MUL))),
            pending.bad_shape.eq(
                Cat(after[count] == 0 for count in _COUNTS).any()
                | ((~windowed | whole | after.repeat.any()) & ((after.kernel_h != 1) | (after.kernel_w != 1)))
                | (whole & after.repeat.any())
                | (after.by_channel & (after.kernel_h == 1) & (after.kernel_w == 1))
            ),
            pending.bad_bits.eq(
                (after.x_out & (second | (after.op == VectorOp.REQUANT)))
                | (after.addend & (~summed | whole))
                | (after.pair.any() & ~paired & ~whole)
                | (after.y_walk.any() & ~second & ~whole)
                | ((after.y_walk == YWalk.WHOLE) & second)
                | (whole & ~Cat(known).any())
                | (after.times16 & ~scaled)
                | _any_of(after.op, [op for op in VectorOp if op not in vector_ops(core)])
                | (after.by_channel & ((after.op != VectorOp.MAC) | ~after.addend | whole | (not core.channel_scales)))
            ),
        ]
        return windowed, whole

    def _slide(
        self, m: Module, walk: Walk, pending: PendingInstruction, windowed: Signal
    ) -> tuple[Signal, TapLoader | None]:
        """Decides whether the pending instruction's windows slide, and when the running one advances. Returns that and
        the loader of weights, None in units whose windows never do."""
        slides = Signal()
        if self._windows == 1:
            m.d.comb += [walk.step.eq(walk.active & ~walk.fetches & (walk.rest == 0)), self.fill.eq(0)]
            return slides, None
        m.submodules.loader = loader = TapLoader()
        after, taps = pending.code, Signal(10)
        weighs = after.op == VectorOp.MAC
        m.d.comb += [
            taps.eq(after.kernel_h * after.kernel_w),
            slides.eq(
                windowed
                & ~pending.bad_shape
                & (after.dilation == 1)
                & (after.kernel_w > after.stride_w)
                & (after.kernel_w <= after.stride_w * self._windows)
                & ~(weighs & (taps > WINDOW_TAPS))
            ),
            loader.start.eq(pending.load & slides & weighs),
            loader.taps.eq(taps),
            loader.blocks.eq(after.blocks),
            loader.base.eq(after.y_base),
            walk.step.eq(walk.active & ~walk.fetches & (walk.rest == 0) & (~walk.fills | loader.ready)),
        ]
        return slides, loader

    def _address_x(self, m: Module, walk: Walk) -> Access:
        """x: a word of A, OUT or (REQUANT) ACC. Taps outside the input tile are not read."""
        core, vec = self._config.core, walk.vec
        x = walk.x
        y = Signal(signed(30))
        x_at = Signal(signed(32))
        x_wanted = Signal()
        x_past = Signal()
        of_acc, of_out = walk.of_acc, walk.of_out
        m.d.comb += [
            of_acc.eq(vec.op == VectorOp.REQUANT),
            of_out.eq(vec.x_out),
            y.eq(walk.here.y + walk.tap_y),
            x_at.eq(walk.plane + y + x),
            x_wanted.eq(
                walk.step & ~walk.flush & (walk.left != 0) & (x >= 0) & (x < vec.in_w) & (y >= 0) & (y < vec.x_plane)
            ),
            x_past.eq(x_wanted & (x_at >= Mux(of_acc, core.acc_words, Mux(of_out, core.out_words, core.a_words)))),
        ]
        x_read = Signal()
        m.d.comb += x_read.eq(x_wanted & ~x_past)
        region = Mux(of_acc, Region.ACC, Mux(of_out, Region.OUT, Region.MAIN))
        return Access(x_read, x_past, x_at, Mux(of_acc, x_at << 2, x_at), region)

    def _address_y(self, m: Module, walk: Walk, loader: TapLoader | None) -> Access:
        """y: a word of B (MAC, TABLE) or OUT (ADD, PAIR), the next one in each cycle unless `y_walk` differs. For
        sliding windows what the loader wants; TABLE: its table, before the walk."""
        core, vec = self._config.core, walk.vec
        y_wanted = Signal()
        y_past = Signal()
        y_read = Signal()
        of_b, of_second = walk.of_b, walk.of_second
        at, wanted = Signal(24), Mux(walk.of_table, walk.fetches, walk.step & (of_b | of_second))
        m.d.comb += at.eq(walk.y_here)
        if loader is not None:
            wanted = Mux(walk.fills, loader.active, wanted)
            with m.If(walk.fills):
                m.d.comb += at.eq(loader.at)
        m.d.comb += [
            of_b.eq(((vec.op == VectorOp.MAC) & ~walk.whole) | walk.of_table),
            of_second.eq(_any_of(vec.op, TWO_OPERANDS)),
            walk.of_table.eq(vec.op == VectorOp.TABLE),
            y_wanted.eq(wanted),
            y_past.eq(y_wanted & (at >= Mux(of_b, core.b_words, core.out_words))),
            y_read.eq(y_wanted & ~y_past),
            walk.y_next.eq(walk.y_here + 1),
            self.table.valid.eq(walk.fetches),
            self.table.made.eq(y_read),
            self.table.place.eq(walk.table_at),
        ]
        if loader is not None:
            m.d.comb += [self.fill.valid.eq(loader.active), self.fill.made.eq(y_read), self.fill.place.eq(loader.place)]
        return Access(y_read, y_past, at, at, Mux(of_b, Region.B, Region.OUT))

    def _address_bias(self, m: Module, walk: Walk) -> Access:
        """The addend: the bias, a word of ACC in the first cycle of each block."""
        bias_wanted = Signal()
        bias_past = Signal()
        m.d.comb += [
            bias_wanted.eq(walk.step & walk.block_first & walk.vec.addend & ~walk.void),
            bias_past.eq(bias_wanted & (walk.addend_at >= self._config.core.acc_words)),
        ]
        return Access(bias_wanted & ~bias_past, bias_past, walk.addend_at, walk.addend_at << 2, Region.ACC)

    def _address_scales(self, m: Module, walk: Walk) -> Access:
        """Multipliers: a word of ACC in the second step of each block `by_channel`, which has one: its windows have
        several taps."""
        wanted, past = Signal(), Signal()
        if self._config.core.channel_scales:
            m.d.comb += [
                wanted.eq(walk.step & walk.block_second & walk.vec.by_channel & ~walk.void),
                past.eq(wanted & (walk.scale_at >= self._config.core.acc_words)),
            ]
            with m.If(walk.step):
                m.d.sync += walk.block_second.eq(walk.block_first)
        m.d.comb += self.step.scales.eq(wanted)
        return Access(wanted & ~past, past, walk.scale_at, walk.scale_at << 2, Region.ACC)

    def _address_dest(self, m: Module, walk: Walk, ends: LoopEnds) -> Access:
        """The result: a word of VEC, if this cycle finishes one."""
        dest_past = Signal()
        m.d.comb += dest_past.eq(ends.done & (walk.dest_at >= self._config.core.vec_words))
        return Access(ends.done & ~walk.void & ~dest_past, dest_past, walk.dest_at, walk.dest_at, Region.VEC)

    def _read(self, m: Module, walk: Walk, x: Access, y: Access, bias: Access, scales: Access) -> None:
        """Drives the read ports. No VEC needs a port for two operands in one cycle."""
        of_acc, of_out, of_second = walk.of_acc, walk.of_out, walk.of_second
        m.d.comb += [
            self.a_read.en.eq(x.made & ~of_acc & ~of_out),
            self.a_read.addr.eq(x.at),
            self.out_read.en.eq((x.made & of_out) | (y.made & of_second)),
            self.out_read.addr.eq(Mux(of_second, y.at, x.at)),
            self.b_read.en.eq(y.made & walk.of_b),
            self.b_read.addr.eq(y.at),
            self.acc_read.en.eq((x.made & of_acc) | bias.made | scales.made),
            self.acc_read.addr.eq(Mux(of_acc, x.at, Mux(scales.made, scales.at, bias.at))),
        ]

    def _describe(
        self, m: Module, walk: Walk, ends: LoopEnds, loader: TapLoader | None, x: Access, y: Access, dest: Access
    ) -> None:
        """Drives `step`, in the cycle of the addresses."""
        vec, step, result = walk.vec, self.step, self.step.result
        measures = walk.whole & ~walk.second
        again = walk.whole & walk.second
        divides = walk.whole & (vec.pair == Pair.MUL)
        m.d.comb += [
            result.keep.eq(ends.measured),
            result.divides.eq(divides),
            result.root.eq(divides & (vec.op == VectorOp.MAC)),
            step.active.eq(walk.step),
            step.op.eq(vec.op),
            step.pair.eq(vec.pair),
            step.x.eq(x.made),
            step.x_out.eq(walk.of_out),
            step.y.eq(y.made),
            step.addend.eq(walk.step & (walk.block_first | walk.of_acc)),
            step.first_walk.eq(measures),
            step.second_walk.eq(again),
            step.first.eq(
                walk.transposes
                | Mux(walk.slides, walk.row_first, (walk.kx == 0) & (walk.ky == 0) & (~measures | walk.block_first))
            ),
            step.slides.eq(walk.slides),
            step.shift.eq(walk.shift),
            step.done.eq(ends.done | ends.measured),
            step.turn.eq(ends.turn),
            result.write.eq(dest.made),
            result.at.eq(dest.at),
            result.exact.eq(
                (vec.op == VectorOp.MAX)
                | (vec.op == VectorOp.ADD)
                | walk.transposes
                | walk.of_table
                | ((vec.op == VectorOp.PAIR) & (vec.pair != Pair.MUL))
                | (again & ~divides)
            ),
            result.relu.eq(vec.relu & ~measures),
            result.clamp.eq(Mux(measures, 127, vec.clamp)),
            result.last.eq(ends.vec_last),
            result.start.eq(walk.start),
        ]
        for field in ("scale", "by_channel", "times16", "tag", "post_sem", "post_n"):
            m.d.comb += result[field].eq(vec[field])
        if loader is not None:
            for window in range(self._windows):
                lag = vec.stride_w * window
                m.d.comb += [
                    step.uses[window].eq(walk.kx >= lag if window else 1),
                    step.weights[window].eq(Cat((walk.tap - lag)[: address_bits(WINDOW_TAPS)], loader.half)),
                ]

    def _faults(self, m: Module, pending: PendingInstruction, vec: data.View, accesses: Sequence[Access]) -> None:
        """Drives `fault` one cycle later. Of several accesses past a memory the first in `accesses` is reported."""
        reported = Signal()
        m.d.sync += self.fault.valid.eq(0)
        with m.If(Cat(access.past for access in accesses).any() & ~reported):
            m.d.sync += [
                reported.eq(1),
                self.fault.valid.eq(1),
                self.fault.cause.eq(Cause.ADDRESS),
                self.fault.tag.eq(vec.tag),
            ]
            for access in reversed(accesses):
                with m.If(access.past):
                    m.d.sync += [
                        self.fault.value[:OFFSET_BITS].eq(access.offset),
                        self.fault.value[OFFSET_BITS:].eq(access.region),
                    ]
        pending.report(m, self.fault, reported)
