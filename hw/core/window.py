"""The vector unit's operand reader: a VEC's walk over its input windows, one word of x per cycle."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import OFFSET_BITS, ChipConfig
from ..isa import INSTRUCTIONS, Cause, Opcode, Region, VectorOp
from .ports import address_bits, read_layout
from .readers import FAULT_LAYOUT

VEC_LAYOUT = INSTRUCTIONS[Opcode.VEC].layout()

_COUNTS = ("in_w", "blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels")


def result_layout(dest_bits: int) -> data.StructLayout:
    """What becomes of a finished word; with `last`, what the end of its VEC is to be reported with."""
    return data.StructLayout(
        {
            "write": 1,  # to `at` (not if the VEC was faulted at issue or the word lies past the memory)
            "at": dest_bits,
            "exact": 1,  # not scaled
            "scale": 16,
            "relu": 1,
            "clamp": 7,
            "last": 1,  # last result of its VEC
            "tag": 16,
            "post_sem": 6,
            "post_n": 4,
            "start": 32,
        }
    )


def step_layout(dest_bits: int) -> data.StructLayout:
    """What the datapath must know of one cycle of the walk."""
    return data.StructLayout(
        {
            "active": 1,
            "op": 3,
            "x": 1,  # a word of x is read (REQUANT: by `acc_read`), else the tap counts for nothing
            "x_out": 1,  # ... from OUT
            "y": 1,  # a word of y is read
            "addend": 1,  # what `acc_read` asks for, or zero if it does not, is the addend from here on
            "first": 1,  # first tap of a window
            "done": 1,  # a result is finished by this word
            "turn": 1,  # TRANSPOSE: last word of a group
            "result": result_layout(dest_bits),
        }
    )


class WindowReader(wiring.Component):
    """Executes the loops of VECs: blocks, output pixels, window rows, window columns.

    TRANSPOSE: blocks, groups of P pixels (the last one filled up with cycles that read nothing), then P cycles more:
    the results come P cycles after their operands.

    Latency: `hw.timing.VEC_ISSUE_CYCLES` from an accepted instruction to its first address when idle; two instructions
    are held at a time, so that the words of the next one follow without a bubble.

    - `issue`: instructions whose header has been honoured.
    - `a_read`, `b_read`, `out_read`, `acc_read`: words that this cycle asks for (`en`) and their addresses.
    - `step`: about the addresses of this cycle.
    - `fault`: registered strobe, at most one per instruction. Causes: ADDRESS (value = the word address; the access is
      not made, and the word counts for nothing: it is zero, for a maximum the least there is), SHAPE (a zero count, or
      a window larger than 1x1 where there is none), RESERVED_BITS (also for an unknown `op`, and for `x_out` and
      `addend` where they must be 0). SHAPE and RESERVED_BITS make the instruction void: it runs (counts at least 1),
      writes nothing, and retires.
    """

    issue: stream.Interface
    now: Signal
    a_read: data.View
    b_read: data.View
    out_read: data.View
    acc_read: data.View
    step: data.View
    fault: data.View
    busy: Signal

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        core = config.core

        super().__init__(
            {
                "issue": In(stream.Signature(VEC_LAYOUT)),
                "now": In(32),
                "a_read": Out(read_layout(core.a_words)),
                "b_read": Out(read_layout(core.b_words)),
                "out_read": Out(read_layout(core.out_words)),
                "acc_read": Out(read_layout(core.acc_words)),
                "step": Out(step_layout(address_bits(core.vec_words))),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core, lanes = self._config.core, self._config.lanes

        # The instruction after the one that runs.
        waiting, load = Signal(), Signal()
        after = Signal(VEC_LAYOUT)
        m.d.comb += self.issue.ready.eq(~waiting | load)
        with m.If(self.issue.valid & self.issue.ready):
            m.d.sync += [after.eq(self.issue.payload), waiting.eq(1)]
        with m.Elif(load):
            m.d.sync += waiting.eq(0)
        bad_shape, bad_bits, windowed = Signal(), Signal(), Signal()
        only_x, no_addend = Signal(), Signal()
        m.d.comb += [
            windowed.eq((after.op == VectorOp.MAC) | (after.op == VectorOp.SUM) | (after.op == VectorOp.MAX)),
            only_x.eq((after.op == VectorOp.ADD) | (after.op == VectorOp.REQUANT)),
            no_addend.eq((after.op != VectorOp.MAC) & (after.op != VectorOp.SUM)),
            bad_shape.eq(
                Cat(after[count] == 0 for count in _COUNTS).any()
                | (~windowed & ((after.kernel_h != 1) | (after.kernel_w != 1)))
            ),
            bad_bits.eq(
                after.reserved.any() | (after.op > max(VectorOp)) | (after.x_out & only_x) | (after.addend & no_addend)
            ),
        ]

        # The instruction that runs: constants ...
        active, flush, void = Signal(), Signal(), Signal()
        vec = Signal(VEC_LAYOUT)
        start = Signal(32)
        row_step, tap_step = Signal(13), Signal(13)  # words of x between output rows, between window rows
        tap_x0, tap_y0 = Signal(signed(5)), Signal(signed(15))
        group_step = Signal(15)  # TRANSPOSE: from the last result of a group to the first one of the next
        transposes = Signal()
        # ... and counters. Offsets x (columns) and y (words) of an input word are the sum of a pixel's and a tap's.
        kx, ky, block = Signal(5), Signal(5), Signal(8)
        tap_x, tap_y = Signal(signed(9)), Signal(signed(19))
        plane = Signal(25)  # word of the block's first row and column
        here = Signal(data.StructLayout({"ox": 10, "x": 13, "y": 28}))
        left = Signal(14)  # pixels of this block from this one on; 0: only filling a group up
        phase = Signal(range(lanes))  # TRANSPOSE: word of its group
        y_here, y_block = Signal(24), Signal(24)
        addend_at = Signal(15)
        dest_at, dest_block = Signal(24), Signal(24)
        primed, block_left = Signal(), Signal()  # TRANSPOSE: results come; they are of the last group of their block

        # Loop ends, from the inside out.
        kx_last, pixel_last, turn, block_last, walk_last = Signal(), Signal(), Signal(), Signal(), Signal()
        done, vec_last = Signal(), Signal()
        m.d.comb += [
            kx_last.eq(kx == vec.kernel_w - 1),
            pixel_last.eq(active & ~flush & kx_last & (ky == vec.kernel_h - 1)),
            turn.eq(active & transposes & (phase == lanes - 1)),
            block_last.eq(pixel_last & (left <= 1) & (~transposes | turn)),
            walk_last.eq(block_last & (block == vec.blocks - 1)),
            done.eq(Mux(transposes, active & primed, pixel_last)),
            vec_last.eq(Mux(transposes, turn & flush, walk_last)),
            load.eq(waiting & (~active | vec_last)),
        ]

        # x
        x, y, x_at = Signal(signed(15)), Signal(signed(30)), Signal(signed(32))
        x_wanted, x_past, of_acc, of_out = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            of_acc.eq(vec.op == VectorOp.REQUANT),
            of_out.eq(vec.x_out),
            x.eq(here.x + tap_x),
            y.eq(here.y + tap_y),
            x_at.eq(plane + y + x),
            x_wanted.eq(
                active & ~flush & (left != 0) & (x >= 0) & (x < vec.in_w) & (y >= 0) & (y < vec.x_plane)
            ),
            x_past.eq(x_wanted & (x_at >= Mux(of_acc, core.acc_words, Mux(of_out, core.out_words, core.a_words)))),
        ]  # fmt: skip
        x_read = Signal()
        m.d.comb += x_read.eq(x_wanted & ~x_past)
        # y
        of_b, of_sum = Signal(), Signal()
        y_wanted, y_past, y_read, y_next = Signal(), Signal(), Signal(), Signal(24)
        m.d.comb += [
            of_b.eq(vec.op == VectorOp.MAC),
            of_sum.eq(vec.op == VectorOp.ADD),
            y_wanted.eq(active & (of_b | of_sum)),
            y_past.eq(y_wanted & (y_here >= Mux(of_b, core.b_words, core.out_words))),
            y_read.eq(y_wanted & ~y_past),
            y_next.eq(y_here + 1),
        ]
        # addend: the bias, once per block
        block_first = Signal()
        bias_wanted, bias_past = Signal(), Signal()
        m.d.comb += [
            bias_wanted.eq(active & block_first & vec.addend & ~void),
            bias_past.eq(bias_wanted & (addend_at >= core.acc_words)),
        ]
        m.d.comb += [
            self.a_read.en.eq(x_read & ~of_acc & ~of_out),
            self.a_read.addr.eq(x_at),
            self.out_read.en.eq((x_read & of_out) | (y_read & of_sum)),
            self.out_read.addr.eq(Mux(of_sum, y_here, x_at)),
            self.b_read.en.eq(y_read & of_b),
            self.b_read.addr.eq(y_here),
            self.acc_read.en.eq((x_read & of_acc) | (bias_wanted & ~bias_past)),
            self.acc_read.addr.eq(Mux(of_acc, x_at, addend_at)),
        ]
        dest_past = Signal()
        m.d.comb += dest_past.eq(done & (dest_at >= core.vec_words))

        with m.If(active):
            m.d.sync += [phase.eq(phase + 1), kx.eq(kx + 1), tap_x.eq(tap_x + vec.dilation), y_here.eq(y_next)]
            m.d.sync += block_first.eq(block_last)
            with m.If(kx_last):
                m.d.sync += [kx.eq(0), tap_x.eq(tap_x0), ky.eq(ky + 1), tap_y.eq(tap_y + tap_step)]
        with m.If(pixel_last):
            m.d.sync += [ky.eq(0), tap_y.eq(tap_y0), left.eq(Mux(left == 0, 0, left - 1))]
            with m.If(of_b):
                m.d.sync += y_here.eq(y_block)
            with m.If(here.ox == vec.out_w - 1):
                m.d.sync += [here.ox.eq(0), here.x.eq(0), here.y.eq(here.y + row_step)]
            with m.Else():
                m.d.sync += [here.ox.eq(here.ox + 1), here.x.eq(here.x + vec.stride_w)]
        with m.If(block_last):
            m.d.sync += [
                block.eq(block + 1), plane.eq(plane + vec.x_plane), addend_at.eq(addend_at + 1), here.eq(0),
                left.eq(vec.pixels), y_here.eq(y_next), y_block.eq(y_next),
            ]  # fmt: skip
        with m.If(done):
            m.d.sync += dest_at.eq(dest_at + 1)
        with m.If(turn):
            m.d.sync += [primed.eq(1), block_left.eq(block_last)]
            with m.If(done & block_left):
                m.d.sync += [dest_at.eq(dest_block + lanes), dest_block.eq(dest_block + lanes)]
            with m.Elif(done):
                m.d.sync += dest_at.eq(dest_at + group_step)
        with m.If(walk_last & transposes):
            m.d.sync += flush.eq(1)
        with m.If(vec_last):
            m.d.sync += active.eq(0)
        with m.If(load):
            m.d.sync += [active.eq(1), vec.eq(after), void.eq(bad_shape | bad_bits), start.eq(self.now + 1)]
            for field in ("blocks", "kernel_h", "kernel_w", "out_w", "pixels"):
                # A count of zero has been faulted; as 1 it cannot hang the loops.
                m.d.sync += vec[field].eq(after[field] | (after[field] == 0))
            with m.If(~windowed):
                m.d.sync += [vec.kernel_h.eq(1), vec.kernel_w.eq(1)]
            m.d.sync += [
                transposes.eq(after.op == VectorOp.TRANSPOSE),
                row_step.eq(after.stride_h * after.in_w),
                tap_step.eq(after.dilation * after.in_w),
                tap_x0.eq(-after.pad_left),
                tap_x.eq(-after.pad_left),
                tap_y0.eq(-(after.pad_top * after.in_w)),
                tap_y.eq(-(after.pad_top * after.in_w)),
                group_step.eq(after.blocks * lanes - (lanes - 1)),
                plane.eq(after.x_base),
                left.eq(after.pixels | (after.pixels == 0)),
                y_here.eq(after.y_base),
                y_block.eq(after.y_base),
                addend_at.eq(after.addend_base),
                dest_at.eq(after.dest_base),
                dest_block.eq(after.dest_base),
                block_first.eq(1),
                Cat(flush, primed, block_left, phase, kx, ky, block, here).eq(0),
            ]

        result = self.step.result
        m.d.comb += [
            self.busy.eq(active | waiting),
            self.step.active.eq(active),
            self.step.op.eq(vec.op),
            self.step.x.eq(x_read),
            self.step.x_out.eq(of_out),
            self.step.y.eq(y_read),
            self.step.addend.eq(active & (block_first | of_acc)),
            self.step.first.eq(transposes | ((kx == 0) & (ky == 0))),
            self.step.done.eq(done),
            self.step.turn.eq(turn),
            result.write.eq(done & ~void & ~dest_past),
            result.at.eq(dest_at),
            result.exact.eq((vec.op == VectorOp.MAX) | (vec.op == VectorOp.ADD) | transposes),
            result.last.eq(vec_last),
            result.start.eq(start),
        ]
        for field in ("scale", "relu", "clamp", "tag", "post_sem", "post_n"):
            m.d.comb += result[field].eq(vec[field])

        x_region = Mux(of_acc, Region.ACC, Mux(of_out, Region.OUT, Region.MAIN))
        past = (
            (x_past, Mux(of_acc, x_at << 2, x_at), x_region),
            (y_past, y_here, Mux(of_b, Region.B, Region.OUT)),
            (bias_past, addend_at << 2, Region.ACC),
            (dest_past, dest_at, Region.VEC),
        )
        self._faults(m, load, after, bad_shape, bad_bits, vec, past)
        return m

    def _faults(
        self,
        m: Module,
        load: Signal,
        after: data.View,
        bad_shape: Signal,
        bad_bits: Signal,
        vec: data.View,
        past: Sequence[tuple[Signal, Value, Value | Region]],
    ) -> None:
        """`past`: access past its memory, offset (ACC: as MOVEs count it), region; the first one that holds is told."""
        reported = Signal()
        m.d.sync += self.fault.valid.eq(0)
        with m.If(Cat(wrong for wrong, _, _ in past).any() & ~reported):
            m.d.sync += [
                reported.eq(1),
                self.fault.valid.eq(1),
                self.fault.cause.eq(Cause.ADDRESS),
                self.fault.tag.eq(vec.tag),
            ]
            for wrong, offset, region in reversed(past):
                with m.If(wrong):
                    m.d.sync += [
                        self.fault.value[:OFFSET_BITS].eq(offset),
                        self.fault.value[OFFSET_BITS:].eq(region),
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
