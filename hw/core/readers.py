"""The operand readers: a GEMM's walk over A and B, one address of each per cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import OFFSET_BITS, ChipConfig
from ..isa import INSTRUCTIONS, Addend, Cause, Opcode, Region

GEMM_LAYOUT = INSTRUCTIONS[Opcode.GEMM].layout()

FAULT_LAYOUT = data.StructLayout({"valid": 1, "cause": 4, "tag": 16, "value": OFFSET_BITS + 4})


def fold_layout(rows: int) -> data.StructLayout:
    """What the drain path must know of a fold: its rows, its place in the GEMM, and (with `first`) the GEMM."""
    return data.StructLayout(
        {
            "rows": range(rows + 1),  # valid rows, >= 1
            "first": 1,  # first fold of its GEMM
            "block_last": 1,  # last fold of its n block
            "last": 1,  # last fold of its GEMM
            "void": 1,  # the GEMM was faulted at issue: write nothing
            "tag": 16,
            "post_sem": 6,
            "post_n": 4,
            "start": 32,
            "addend": 2,
            "addend_base": 14,
            "to_acc": 1,
            "dest_base": 14,
            "scale": 16,
            "relu": 1,
            "clamp": 7,
        }
    )


class OperandReader(wiring.Component):
    """Executes the loops of GEMMs: n blocks, groups of `rows` pixels, taps (channel block, kernel row, kernel column),
    and in each window of P cycles the words of the rows (A) and of the columns (B).

    Latency: `hw.timing.GEMM_ISSUE_CYCLES` from an accepted instruction to its first address when idle; two
    instructions are held at a time, so that the windows of the next one follow without a bubble.

    - `issue`: instructions whose header has been honoured.
    - `a_read`, `b_read`: read port enables and addresses.
    - `step`: about the addresses of this cycle: it belongs to a window (`active`), which cycle of it (`phase`), the A
      word is padding (`a_zero`), first and last cycle of a window (`window_first`) and of a fold (`fold_first`,
      `fold_last`).
    - `fold`: valid with `step.fold_last`.
    - `fault`: registered strobe, at most one per instruction. Causes: ADDRESS (the read is not made, A words count as
      zero), SHAPE (a zero count counts as 1), RESERVED_BITS (also for `addend` = 3). SHAPE and RESERVED_BITS make the
      instruction void: it runs, writes nothing, and retires.
    """

    issue: stream.Interface
    now: Signal
    a_read: data.View
    b_read: data.View
    step: data.View
    fold: data.View
    fault: data.View
    busy: Signal

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        self._a_bits = max(1, (config.core.a_words - 1).bit_length())
        self._b_bits = max(1, (config.core.b_words - 1).bit_length())
        self._step = data.StructLayout(
            {
                "active": 1,
                "phase": (config.lanes - 1).bit_length(),
                "a_zero": 1,
                "window_first": 1,
                "fold_first": 1,
                "fold_last": 1,
            }
        )
        super().__init__(
            {
                "issue": In(stream.Signature(GEMM_LAYOUT)),
                "now": In(32),
                "a_read": Out(data.StructLayout({"en": 1, "addr": self._a_bits})),
                "b_read": Out(data.StructLayout({"en": 1, "addr": self._b_bits})),
                "step": Out(self._step),
                "fold": Out(fold_layout(config.rows)),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core, lanes, rows, cols = self._config.core, self._config.lanes, self._config.rows, self._config.cols

        # The instruction after the one that runs.
        waiting = Signal()
        after = Signal(GEMM_LAYOUT)
        load = Signal()
        m.d.comb += self.issue.ready.eq(~waiting | load)
        with m.If(self.issue.valid & self.issue.ready):
            m.d.sync += [after.eq(self.issue.payload), waiting.eq(1)]
        with m.Elif(load):
            m.d.sync += waiting.eq(0)
        counts = (
            after.k_blocks, after.kernel_h, after.kernel_w, after.stride_h, after.stride_w, after.dilation,
            after.out_w, after.pixels, after.n_blocks,
        )  # fmt: skip
        bad_shape, bad_bits = Signal(), Signal()
        m.d.comb += [
            bad_shape.eq(Cat(count == 0 for count in counts).any()),
            bad_bits.eq(after.reserved.any() | (after.addend > max(Addend))),
        ]

        # The instruction that runs: constants ...
        active = Signal()
        gemm = Signal(GEMM_LAYOUT)
        void = Signal()
        start = Signal(32)
        row_step, tap_step = Signal(13), Signal(13)  # words of A between output rows, between kernel rows
        tap_x0, tap_y0 = Signal(signed(5)), Signal(signed(15))
        # ... and counters. Offsets x (columns) and y (words) of an input word are the sum of a pixel's and a tap's.
        phase = Signal(range(lanes))
        kx, ky, kb, block = Signal(4), Signal(4), Signal(8), Signal(6)
        tap_x, tap_y = Signal(signed(8)), Signal(signed(18))
        plane = Signal(25)  # word of the channel block's first row and column
        pixel = data.StructLayout({"ox": 10, "x": 13, "y": 28})
        here, group = Signal(pixel), Signal(pixel)  # the row's pixel; the first one of the group
        left = Signal(14)  # pixels from this group on
        b_here, b_block = Signal(24), Signal(24)

        # A
        row_valid = Signal()
        x, y, a_at = Signal(signed(15)), Signal(signed(30)), Signal(signed(32))
        a_wanted, a_past = Signal(), Signal()
        m.d.comb += [
            row_valid.eq((phase < rows) & (phase < left)),
            x.eq(here.x + tap_x),
            y.eq(here.y + tap_y),
            a_at.eq(plane + y + x),
            a_wanted.eq(active & row_valid & (x >= 0) & (x < gemm.in_w) & (y >= 0) & (y < gemm.a_plane)),
            a_past.eq(a_wanted & (a_at >= core.a_words)),
            self.a_read.en.eq(a_wanted & ~a_past),
            self.a_read.addr.eq(a_at),
        ]
        beyond = Signal(pixel)  # the pixel after `here`, if this cycle has a row
        m.d.comb += beyond.eq(here)
        with m.If(phase < rows):
            with m.If(here.ox == gemm.out_w - 1):
                m.d.comb += [beyond.ox.eq(0), beyond.x.eq(0), beyond.y.eq(here.y + row_step)]
            with m.Else():
                m.d.comb += [beyond.ox.eq(here.ox + 1), beyond.x.eq(here.x + gemm.stride_w)]

        # B
        b_wanted, b_past, b_beyond = Signal(), Signal(), Signal(24)
        m.d.comb += [
            b_wanted.eq(active & (phase < cols)),
            b_past.eq(b_wanted & (b_here >= core.b_words)),
            self.b_read.en.eq(b_wanted & ~b_past),
            self.b_read.addr.eq(b_here),
            b_beyond.eq(b_here + (phase < cols)),
        ]

        # Loop ends, from the inside out.
        window_last, kx_last, ky_last, kb_last = Signal(), Signal(), Signal(), Signal()
        fold_last, block_last, gemm_last = Signal(), Signal(), Signal()
        m.d.comb += [
            window_last.eq(active & (phase == lanes - 1)),
            kx_last.eq(kx == gemm.kernel_w - 1),
            ky_last.eq(ky == gemm.kernel_h - 1),
            kb_last.eq(kb == gemm.k_blocks - 1),
            fold_last.eq(window_last & kx_last & ky_last & kb_last),
            block_last.eq(left <= rows),
            gemm_last.eq(fold_last & block_last & (block == gemm.n_blocks - 1)),
            load.eq(waiting & (~active | gemm_last)),
        ]
        with m.If(active):
            m.d.sync += [phase.eq(phase + 1), here.eq(beyond), b_here.eq(b_beyond)]
        with m.If(window_last):
            m.d.sync += [here.eq(group), kx.eq(kx + 1), tap_x.eq(tap_x + gemm.dilation)]
            with m.If(kx_last):
                m.d.sync += [kx.eq(0), tap_x.eq(tap_x0), ky.eq(ky + 1), tap_y.eq(tap_y + tap_step)]
                with m.If(ky_last):
                    m.d.sync += [ky.eq(0), tap_y.eq(tap_y0), kb.eq(kb + 1), plane.eq(plane + gemm.a_plane)]
        with m.If(fold_last):
            m.d.sync += [kb.eq(0), plane.eq(gemm.a_base)]
            with m.If(block_last):
                m.d.sync += [
                    block.eq(block + 1), here.eq(0), group.eq(0), left.eq(gemm.pixels), b_block.eq(b_beyond),
                ]  # fmt: skip
            with m.Else():
                m.d.sync += [here.eq(beyond), group.eq(beyond), left.eq(left - rows), b_here.eq(b_block)]
        with m.If(gemm_last):
            m.d.sync += active.eq(0)
        with m.If(load):
            m.d.sync += [active.eq(1), gemm.eq(after), void.eq(bad_shape | bad_bits), start.eq(self.now + 1)]
            for field in ("k_blocks", "kernel_h", "kernel_w", "out_w", "pixels", "n_blocks"):
                # A count of zero has been faulted; as 1 it cannot hang the loops.
                m.d.sync += gemm[field].eq(after[field] | (after[field] == 0))
            m.d.sync += [
                row_step.eq(after.stride_h * after.in_w),
                tap_step.eq(after.dilation * after.in_w),
                tap_x0.eq(-after.pad_left),
                tap_x.eq(-after.pad_left),
                tap_y0.eq(-(after.pad_top * after.in_w)),
                tap_y.eq(-(after.pad_top * after.in_w)),
                plane.eq(after.a_base),
                left.eq(after.pixels | (after.pixels == 0)),
                b_here.eq(after.b_base),
                b_block.eq(after.b_base),
                Cat(phase, kx, ky, kb, block, here, group).eq(0),
            ]

        m.d.comb += [
            self.busy.eq(active | waiting),
            self.step.active.eq(active),
            self.step.phase.eq(phase),
            self.step.a_zero.eq(~self.a_read.en),
            self.step.window_first.eq(active & (phase == 0)),
            self.step.fold_first.eq(self.step.window_first & (kx == 0) & (ky == 0) & (kb == 0)),
            self.step.fold_last.eq(fold_last),
            self.fold.rows.eq(Mux(block_last, left, rows)),
            self.fold.first.eq((block == 0) & (left == gemm.pixels)),
            self.fold.block_last.eq(block_last),
            self.fold.last.eq(gemm_last),
            self.fold.void.eq(void),
            self.fold.start.eq(start),
        ]
        for field in ("tag", "post_sem", "post_n", "addend", "addend_base", "to_acc", "dest_base", "scale", "relu",
                      "clamp"):  # fmt: skip
            m.d.comb += self.fold[field].eq(gemm[field])

        self._faults(m, load, after, bad_shape, bad_bits, gemm, (a_past, a_at), (b_past, b_here))
        return m

    def _faults(
        self,
        m: Module,
        load: Signal,
        after: data.View,
        bad_shape: Signal,
        bad_bits: Signal,
        gemm: data.View,
        a: tuple[Signal, Signal],
        b: tuple[Signal, Signal],
    ) -> None:
        reported = Signal()
        m.d.sync += self.fault.valid.eq(0)
        with m.If((a[0] | b[0]) & ~reported):
            m.d.sync += [
                reported.eq(1),
                self.fault.valid.eq(1),
                self.fault.cause.eq(Cause.ADDRESS),
                self.fault.tag.eq(gemm.tag),
                self.fault.value.eq(
                    Mux(
                        a[0],
                        Cat(a[1][:OFFSET_BITS], Const(Region.MAIN, 4)),
                        Cat(b[1][:OFFSET_BITS], Const(Region.B, 4)),
                    )
                ),
            ]
        with m.If(load):
            m.d.sync += reported.eq(bad_shape | bad_bits)
            with m.If(bad_shape | bad_bits):
                m.d.sync += [
                    self.fault.valid.eq(1),
                    self.fault.cause.eq(Mux(bad_bits, Cause.RESERVED_BITS, Cause.SHAPE)),
                    self.fault.tag.eq(after.tag),
                    self.fault.value.eq(0),
                ]
