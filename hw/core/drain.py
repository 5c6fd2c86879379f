"""The drain path: adds the addend to finished rows of sums and writes them to ACC, or requantised to OUT."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, ChipConfig
from ..spec.isa import HEADER_FORMAT, SCALED_BIAS_WORDS, Addend, Cause, Region
from .readers import FAULT_LAYOUT, fold_layout
from .requantiser import PRODUCT_BITS, SCALE_BITS, requantise

RETIRE_LAYOUT = data.StructLayout(
    {"valid": 1, **HEADER_FORMAT.members("tag", "post_sem", "post_n"), "start": 32, "end": 32}
)

#: Folds described but not yet draining. A fold is described at its last operand address, and its drain begins
#: cols + 2 cycles later, which is at most P + 2 < 2 P; folds are at least P cycles apart. So at
#: most two wait at once, whatever the lengths of the GEMMs, and nothing ever has to stall.
FOLD_QUEUE = 2


class Drain(wiring.Component):
    """Drains one row of a fold per cycle.

    - `fold`, taken with `fold_valid`: describes a fold; up to `FOLD_QUEUE` of them are held.
    - `begin`: one cycle later, row 0 of the oldest fold is at the stage that reads its addend; row i follows i
      cycles later. `begin` strobes are at least `rows` cycles apart.
    - `row`: the row whose sums must be on `sums`, two cycles after `begin` for row 0.
    - `acc_read`: ACC's port for addends, data one cycle later. `acc_write`, `out_write`: write ports. All three have
      registered addresses and cannot be refused.
    - `retire`: with the last row's write (a result in ACC has been written two cycles earlier; all results retire at
      the same distance, hence in order). `end` is the cycle after.
    - `fault`: strobe, ADDRESS: an addend, multiplier or result past its memory; the access is suppressed (multipliers
      are 0 then). At most one per GEMM.

    Latency: from `begin` to the read of row i's addend, if the GEMM has one: 1 + i cycles; to the row's write: 2 + i
    cycles to ACC, 4 + i cycles to OUT. A row's addend may be the word written by the row before it. A bias is read
    again for every row, like a partial sum.

    `by_channel` (chips with `core.channel_scales`): a bias is read for row 0 alone and kept for the others of the fold,
    and their multipliers in the cycle after it, from where they go straight to the products of row 0. With partial
    sums, which need all those cycles, multipliers are read in the cycle of `begin`: a GEMM whose folds take a single
    window is refused (`OperandReader`), so no row of the fold before needs that one.
    """

    fold: data.View
    fold_valid: Signal
    begin: Signal
    row: Signal
    sums: list[Signal]
    now: Signal
    acc_read: data.View
    acc_data: Signal
    acc_write: data.View
    out_write: data.View
    retire: data.View
    fault: data.View
    busy: Signal

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        core = config.core
        acc_bits = max(1, (core.acc_words - 1).bit_length())
        out_bits = max(1, (core.out_words - 1).bit_length())
        super().__init__(
            {
                "fold": In(fold_layout(config.rows)),
                "fold_valid": In(1),
                "begin": In(1),
                "row": Out(range(config.rows)),
                "sums": In(signed(32)).array(config.cols),
                "now": In(32),
                "acc_read": Out(data.StructLayout({"en": 1, "addr": acc_bits})),
                "acc_data": In(32 * config.lanes),
                "acc_write": Out(data.StructLayout({"en": 1, "addr": acc_bits, "data": 32 * config.lanes})),
                "out_write": Out(data.StructLayout({"en": 1, "addr": out_bits, "data": 8 * config.lanes})),
                "retire": Out(RETIRE_LAYOUT),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core, cols = self._config.core, self._config.cols
        layout = fold_layout(self._config.rows)

        queue = Array(Signal(layout, name=f"fold_{index}") for index in range(FOLD_QUEUE))
        put = Signal(range(FOLD_QUEUE))
        take = Signal(range(FOLD_QUEUE))
        with m.If(self.fold_valid):
            m.d.sync += [queue[put].eq(self.fold), put.eq(put + 1)]

        # Stage 1: read of the addend.
        oldest = Signal(layout)
        gemm = Signal(layout)  # the GEMM whose fold is being drained (its constants)
        reading = Signal()
        row = Signal(range(self._config.rows))
        left = Signal(range(self._config.rows + 1))
        addend_at = Signal(21)
        dest_at = Signal(21)
        adds = Signal()
        paired = Signal()  # the bias lies beside multipliers
        keeps = Signal()  # the row has the bias of the row before it
        m.d.comb += [oldest.eq(queue[take]), adds.eq(gemm.addend != Addend.NONE)]
        if core.channel_scales:
            m.d.comb += [paired.eq(gemm.by_channel & (gemm.addend == Addend.BIAS)), keeps.eq(paired & (row != 0))]
        with m.If(reading):
            m.d.sync += [row.eq(row + 1), left.eq(left - 1), dest_at.eq(dest_at + 1)]
            with m.If((gemm.addend == Addend.PARTIAL) | ((left == 1) & gemm.block_last)):
                m.d.sync += addend_at.eq(addend_at + Mux(paired, SCALED_BIAS_WORDS, 1))
            with m.If(left == 1):
                m.d.sync += reading.eq(0)
        with m.If(self.begin):
            m.d.sync += [take.eq(take + 1), reading.eq(1), row.eq(0), left.eq(oldest.rows), gemm.eq(oldest)]
            with m.If(oldest.first):
                m.d.sync += [addend_at.eq(oldest.addend_base), dest_at.eq(oldest.dest_base)]

        addend_past = Signal()
        dest_past = Signal()
        void = Signal()
        m.d.comb += [
            addend_past.eq(adds & (addend_at >= core.acc_words)),
            dest_past.eq(dest_at >= Mux(gemm.to_acc, core.acc_words, core.out_words)),
            void.eq(gemm.void | dest_past),
        ]
        scale_past, scale_at, wanted, wanted_at = self._multipliers(m, oldest, gemm, reading, row, left)
        reads = reading & adds & ~keeps & ~addend_past
        m.d.comb += [
            self.acc_read.en.eq(reads | (wanted & (wanted_at < core.acc_words))),
            self.acc_read.addr.eq(Mux(wanted, wanted_at, addend_at)),
        ]
        past = (addend_past, addend_at), (scale_past, scale_at), (dest_past, dest_at)
        self._faults(m, oldest.first, reading, gemm, *past)

        # Stage 2: addition; the write to ACC.
        end = data.StructLayout(
            {"last": 1, "to_out": 1, "at": 14, "tag": 16, "post_sem": 6, "post_n": 4, "start": 32, "scale": 16,
             "by_channel": 1, "relu": 1, "clamp": 7}
        )  # fmt: skip
        adding = Signal()
        to_acc = Signal()
        added = Signal()
        forward = Signal()
        kept = Signal()
        second = Signal(end)
        third = Signal(end)
        m.d.sync += [adding.eq(reading), to_acc.eq(reading & gemm.to_acc & ~void)]
        with m.If(reading):
            m.d.sync += [
                self.row.eq(row),
                added.eq(Mux(keeps, added, reads)),
                kept.eq(keeps),
                forward.eq(self.acc_write.en & (self.acc_write.addr == addend_at)),
                second.last.eq(gemm.last & (left == 1)),
                second.to_out.eq(~gemm.to_acc & ~void),
                second.at.eq(dest_at),
            ]
            for field in ("tag", "post_sem", "post_n", "start", "scale", "by_channel", "relu", "clamp"):
                m.d.sync += second[field].eq(gemm[field])
        sums = [Signal(signed(32), name=f"sum_{lane}") for lane in range(cols)]
        stored = [Signal(signed(32), name=f"stored_{lane}", reset_less=True) for lane in range(cols)]
        with m.If(adding):
            m.d.sync += third.eq(second)
            for lane in range(cols):
                # For a word written in the cycle of its read the memory returned the old value.
                word = Mux(forward, stored[lane], self.acc_data.word_select(lane, 32))
                if core.channel_scales:
                    bias = Signal(32, name=f"bias_{lane}", reset_less=True)
                    with m.If(~kept):
                        m.d.sync += bias.eq(word)
                    word = Mux(kept, bias, word)
                m.d.comb += sums[lane].eq(self.sums[lane] + Mux(added, word, 0))
                m.d.sync += stored[lane].eq(sums[lane])
        m.d.comb += [
            self.acc_write.en.eq(to_acc),
            self.acc_write.addr.eq(second.at),
            self.acc_write.data.eq(Cat(*sums)),
        ]

        scaling, writing = self._requantise(m, adding, third, stored, self._scales(m, wanted, wanted_at))
        m.d.comb += self.busy.eq(reading | adding | scaling | writing)
        return m

    def _multipliers(
        self, m: Module, oldest: data.View, gemm: data.View, reading: Signal, row: Signal, left: Signal
    ) -> tuple[Signal, Signal, Signal, Signal]:
        """Where the multipliers of the fold that is being drained lie, and whether that is past ACC; whether a word of
        them is wanted in this cycle, and which. Never, in units without."""
        past, at, wanted, wanted_at = Signal(), Signal(21), Signal(), Signal(21)
        if not self._config.core.channel_scales:
            return past, at, wanted, wanted_at
        behind, behind_at = Signal(), Signal(21)  # the cycle after the bias was read
        early = Signal()
        m.d.comb += [
            past.eq(gemm.by_channel & ~gemm.to_acc & (at >= self._config.core.acc_words)),
            early.eq(
                self.begin & oldest.by_channel & ~oldest.to_acc & ~oldest.void & (oldest.addend == Addend.PARTIAL)
            ),
            wanted.eq(early | behind),
            wanted_at.eq(Mux(behind, behind_at, Mux(oldest.first, oldest.scale, at))),
        ]
        biased = gemm.by_channel & ~gemm.to_acc & ~gemm.void & (gemm.addend == Addend.BIAS)
        m.d.sync += [behind.eq(reading & (row == 0) & biased), behind_at.eq(at)]
        with m.If(reading & (left == 1) & gemm.block_last):
            m.d.sync += at.eq(at + SCALED_BIAS_WORDS)
        with m.If(self.begin & oldest.first):
            m.d.sync += at.eq(oldest.scale)
        return past, at, wanted, wanted_at

    def _scales(self, m: Module, wanted: Signal, wanted_at: Signal) -> Sequence[Value]:
        """The multiplier of each column, from the cycle on in which ACC gives the word that was `wanted`; nothing in
        units without."""
        core = self._config.core
        if not core.channel_scales:
            return []
        arrives, there = Signal(), Signal()
        m.d.sync += arrives.eq(wanted)
        with m.If(wanted):
            m.d.sync += there.eq(wanted_at < core.acc_words)
        scales: list[Value] = []
        for column in range(self._config.cols):
            kept = Signal(SCALE_BITS, name=f"scale_{column}", reset_less=True)
            now = Mux(there, self.acc_data.word_select(column, 32)[:SCALE_BITS], 0)
            with m.If(arrives):
                m.d.sync += kept.eq(now)
            scales.append(Mux(arrives, now, kept))
        return scales

    def _requantise(
        self, m: Module, adding: Signal, third: data.View, stored: Sequence[Signal], scales: Sequence[Value]
    ) -> tuple[Signal, Signal]:
        """Stage 3: multiplication. Stage 4: rounding and the write to OUT. Returns which of the two stages hold a row.
        The row is `stored` with `third`, in the cycle after `adding`. `scales`: of each column, if it may have its
        own."""
        scaling = Signal()
        writing = Signal()
        fourth = Signal.like(third, name="fourth")
        m.d.sync += [scaling.eq(adding), writing.eq(scaling)]
        products = [
            Signal(signed(PRODUCT_BITS), name=f"product_{lane}", reset_less=True) for lane in range(self._config.cols)
        ]
        with m.If(scaling):
            m.d.sync += fourth.eq(third)
            with m.If(third.to_out):
                for column, (product, value) in enumerate(zip(products, stored, strict=True)):
                    scale = Mux(third.by_channel, scales[column], third.scale) if scales else third.scale
                    m.d.sync += product.eq(value * scale)
        m.d.comb += [
            self.out_write.en.eq(writing & fourth.to_out),
            self.out_write.addr.eq(fourth.at),
            self.out_write.data.eq(
                Cat(requantise(m, self.out_write.en, product, fourth.relu, fourth.clamp) for product in products)
            ),
            self.retire.valid.eq(writing & fourth.last),
            self.retire.tag.eq(fourth.tag),
            self.retire.post_sem.eq(fourth.post_sem),
            self.retire.post_n.eq(fourth.post_n),
            self.retire.start.eq(fourth.start),
            self.retire.end.eq(self.now + 1),
        ]
        return scaling, writing

    def _faults(
        self,
        m: Module,
        first: Signal,
        reading: Signal,
        gemm: data.View,
        addend: tuple[Signal, Signal],
        scale: tuple[Signal, Signal],
        dest: tuple[Signal, Signal],
    ) -> None:
        reported = Signal()
        m.d.sync += self.fault.valid.eq(0)
        with m.If(self.begin & first):
            m.d.sync += reported.eq(0)
        with m.If(reading & ~gemm.void & ~reported & (addend[0] | scale[0] | dest[0])):
            at = Mux(addend[0], addend[1], Mux(scale[0], scale[1], dest[1]))
            in_acc = addend[0] | scale[0] | gemm.to_acc
            m.d.sync += [
                reported.eq(1),
                self.fault.valid.eq(1),
                self.fault.cause.eq(Cause.ADDRESS),
                self.fault.tag.eq(gemm.tag),
                # MOVEs count four words for each word of ACC.
                self.fault.value.eq(
                    Mux(
                        in_acc,
                        Cat(Const(0, 2), at, Const(0, OFFSET_BITS - 2 - len(at)), Const(Region.ACC, 4)),
                        Cat(at, Const(0, OFFSET_BITS - len(at)), Const(Region.OUT, 4)),
                    )
                ),
            ]
