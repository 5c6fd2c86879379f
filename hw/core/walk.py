"""The walk of the vector unit over a VEC's windows: its registers, and what they say to the datapath in each cycle."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from ..spec.config import ChipConfig
from ..spec.contracts import WHOLE_DIVIDE_CYCLES, WHOLE_ROOT_CYCLES, WHOLE_SUBTRACT_CYCLES, WINDOW_TAPS
from ..spec.isa import (
    INSTRUCTIONS,
    SCALED_BIAS_WORDS,
    TABLE_BYTES,
    WINDOWED,
    Opcode,
    Pair,
    Region,
    VectorOp,
    YWalk,
    vector_ops,
)
from .ports import address_bits
from .readers import PendingInstruction

VEC = INSTRUCTIONS[Opcode.VEC]
VEC_LAYOUT = VEC.layout()


def result_layout(dest_bits: int) -> data.StructLayout:
    """What happens to a finished word; with `last`, the fields that report the end of its VEC."""
    return data.StructLayout(
        {
            "write": 1,  # to `at` (not if the VEC was faulted at issue or the word is past the memory)
            "at": dest_bits,
            "exact": 1,  # not scaled
            "keep": 1,  # of a whole block: y of its second walk, not a result
            "divides": 1,  # ... it divides; in the second walk: x is multiplied by the quotient
            "root": 1,  # ... by the root of a sum of squares
            "times16": 1,
            **VEC.members("scale", "by_channel", "relu", "clamp"),
            "last": 1,  # last result of its VEC
            **VEC.members("tag", "post_sem", "post_n"),
            "start": 32,
        }
    )


def table_layout(lanes: int) -> data.StructLayout:
    """What becomes of a word of B that is requested in this cycle: `place` in the table; zero unless it was `made`."""
    return data.StructLayout({"valid": 1, "made": 1, "place": address_bits(TABLE_BYTES // lanes)})


def step_layout(dest_bits: int, windows: int) -> data.StructLayout:
    """The control that the datapath needs for one cycle of the walk, with `windows` accumulators."""
    return data.StructLayout(
        {
            "active": 1,
            **VEC.members("op", "pair"),
            "first_walk": 1,  # over a whole block, the first of two
            "second_walk": 1,
            "x": 1,  # a word of x is read (REQUANT: by `acc_read`); otherwise the tap does not contribute
            "x_out": 1,  # ... from OUT
            "y": 1,  # a word of y is read
            "addend": 1,  # from here on the addend is the word that `acc_read` requests, or zero without a request
            "scales": 1,  # the word that `acc_read` requests has the multipliers of the block, 0 without a request
            "first": 1,  # accumulators begin anew: first tap of a window, or of a row of sliding ones
            "slides": 1,  # x counts for several windows; the weights are in the tap memory
            "shift": 1,  # the word before finished the oldest window: accumulators move down by one
            "uses": windows,  # windows for which x counts, the oldest first
            "weights": data.ArrayLayout(address_bits(2 * WINDOW_TAPS), windows),  # ... and their weights there
            "done": 1,  # this word finishes a result
            "turn": 1,  # TRANSPOSE: last word of a group
            "result": result_layout(dest_bits),
        }
    )


class LoopEnds(NamedTuple):
    """Which loops end in this cycle. `turn`: a group of TRANSPOSE; `done`: a result is finished;
    `measured`: the first walk over a whole block ends.

    `column_last`: a column of sliding windows, `row_last` one of their rows."""

    kx_last: Signal
    column_last: Signal
    row_last: Signal
    pixel_last: Signal
    turn: Signal
    measured: Signal
    block_last: Signal
    walk_last: Signal
    done: Signal
    vec_last: Signal


class Walk:
    """Registers of the running VEC, which it loads and advances, and the flags decoded from it for all operands.

    The x (columns) and y (words) offsets of an input word are the sum of a pixel's (`here`) and a tap's. The reader
    drives `step` and the flags.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config, lanes = config, config.lanes
        # Constants of the VEC.
        self.active = Signal()
        self.step = Signal()  # ... and it advances in this cycle (it waits for the weights of a block)
        self.flush = Signal()
        self.void = Signal()
        self.vec = Signal(VEC_LAYOUT)
        self.slides = Signal()
        self.fills = Signal()  # ... with weights from the tap memory
        self.start = Signal(32)
        self.row_step = Signal(13)  # words of x between output rows
        self.tap_step = Signal(13)  # words of x between window rows
        self.tap_x0 = Signal(signed(5))
        self.tap_y0 = Signal(signed(15))
        self.group_step = Signal(15)  # TRANSPOSE: from the last result of a group to the first one of the next
        self.transposes = Signal()
        self.whole = Signal()  # each block is walked over twice
        self.second = Signal()  # ... and this is the second time
        self.rest = Signal(range(WHOLE_ROOT_CYCLES + 1))  # ... which begins after so many cycles
        self.fetches = Signal()  # TABLE: the table is still being read; the walk waits
        # Counters.
        self.kx = Signal(5)
        self.ky = Signal(5)
        self.block = Signal(8)
        self.tap_x = Signal(signed(9))
        self.tap_y = Signal(signed(19))
        self.plane = Signal(25)  # word of the block's first row and column
        self.here = Signal(data.StructLayout({"ox": 10, "x": 13, "y": 28}))
        self.left = Signal(14)  # pixels of this block from this one on; 0: padding the last group
        self.phase = Signal(range(lanes))  # TRANSPOSE: index of the word in its group
        self.y_here = Signal(24)
        self.y_block = Signal(24)
        self.table_at = Signal(range(TABLE_BYTES // lanes))  # TABLE: word of the table
        self.row_turn = Signal(2)  # how often the row of x has been repeated
        self.column_turn = Signal(2)
        self.addend_at = Signal(15)
        self.scale_at = Signal(17)  # of the multipliers of this block
        self.dest_at = Signal(24)
        self.dest_block = Signal(24)
        self.tap = Signal(range(WINDOW_TAPS))  # sliding: number of the oldest window's tap
        self.row_first = Signal()  # sliding: first cycle of an output row
        self.shift = Signal()
        self.primed = Signal()  # TRANSPOSE: results are being output
        self.block_left = Signal()  # ... and they belong to the last group of their block
        # Decoded.
        self.x = Signal(signed(15))  # column of the input word
        self.block_first = Signal()
        self.block_second = Signal()  # the step after that
        self.of_acc = Signal()  # x is in ACC
        self.of_out = Signal()  # x is in OUT, otherwise in A
        self.of_b = Signal()  # y is in B
        self.of_second = Signal()  # y is in OUT
        self.of_table = Signal()  # y is in B, for the table
        self.y_next = Signal(24)

    def loop_ends(self, m: Module, pending: PendingInstruction) -> LoopEnds:
        """Loop ends, innermost first; the pending instruction is loaded at the last of them."""
        vec, lanes = self.vec, self._config.lanes
        windows = any(op in vector_ops(self._config.core) for op in WINDOWED)  # otherwise all are 1x1
        kx_last = Signal()
        ky_last = Signal()
        column_last = Signal()
        row_last = Signal()
        pixel_last = Signal()
        turn = Signal()
        plane_last = Signal()
        measured = Signal()
        block_last = Signal()
        walk_last = Signal()
        done = Signal()
        vec_last = Signal()
        m.d.comb += [
            self.x.eq(self.here.x + self.tap_x),
            kx_last.eq((self.kx == vec.kernel_w - 1) if windows else 1),
            ky_last.eq((self.ky == vec.kernel_h - 1) if windows else 1),
            # nothing is to be read in a column outside of the tile
            column_last.eq(ky_last | (self.slides & ((self.x < 0) | (self.x >= vec.in_w)))),
            pixel_last.eq(self.step & ~self.flush & kx_last & column_last),
            row_last.eq(pixel_last & (self.here.ox == vec.out_w - 1)),
            turn.eq(self.step & self.transposes & (self.phase == lanes - 1)),
            plane_last.eq(pixel_last & (self.left <= 1) & (~self.transposes | turn)),
            measured.eq(plane_last & self.whole & ~self.second),
            block_last.eq(plane_last & ~measured),
            walk_last.eq(block_last & (self.block == vec.blocks - 1)),
            done.eq(Mux(self.transposes, self.step & self.primed, pixel_last & (~self.whole | self.second))),
            vec_last.eq(Mux(self.transposes, turn & self.flush, walk_last)),
            pending.load.eq(pending.waiting & (~self.active | vec_last)),
        ]
        return LoopEnds(
            kx_last, column_last, row_last, pixel_last, turn, measured, block_last, walk_last, done, vec_last
        )

    def advance(self, m: Module, ends: LoopEnds) -> None:
        """Advances the loops by one cycle, innermost first."""
        vec, here, lanes = self.vec, self.here, self._config.lanes
        with m.If(self.fetches):
            m.d.sync += [
                self.y_here.eq(self.y_next),
                self.table_at.eq(self.table_at + 1),
                self.fetches.eq(~self.table_at.all()),
            ]
        with m.If(self.step):
            m.d.sync += [self.phase.eq(self.phase + 1), self.block_first.eq(ends.block_last)]
            with m.If(vec.y_walk != YWalk.BLOCK):
                m.d.sync += self.y_here.eq(self.y_next)
            with m.If(self.slides):
                self._advance_column(m, ends)
            with m.Else():
                m.d.sync += [self.kx.eq(self.kx + 1), self.tap_x.eq(self.tap_x + vec.dilation)]
                with m.If(ends.kx_last):
                    m.d.sync += [
                        self.kx.eq(0),
                        self.tap_x.eq(self.tap_x0),
                        self.ky.eq(self.ky + 1),
                        self.tap_y.eq(self.tap_y + self.tap_step),
                    ]
        self._advance_pixel(m, ends)
        with m.If(self.slides & (ends.row_last | ends.block_last)):
            m.d.sync += [self.tap_x.eq(self.tap_x0), self.kx.eq(0), self.tap.eq(0), self.row_first.eq(1)]
        if self._config.core.vec_whole:
            self._advance_block(m, ends)
        with m.If(ends.block_last):
            m.d.sync += [
                self.block.eq(self.block + 1),
                self.plane.eq(self.plane + vec.x_plane),
                self.addend_at.eq(self.addend_at + Mux(vec.by_channel, SCALED_BIAS_WORDS, 1)),
                self.scale_at.eq(self.scale_at + SCALED_BIAS_WORDS),
                Cat(here, self.row_turn, self.column_turn).eq(0),
                self.left.eq(vec.pixels),
                self.y_here.eq(Mux(vec.y_walk == YWalk.PIXEL, vec.y_base, self.y_next)),
                self.y_block.eq(self.y_next),
            ]
        with m.If(ends.done):
            m.d.sync += self.dest_at.eq(self.dest_at + 1)
        with m.If(ends.turn):
            m.d.sync += [self.primed.eq(1), self.block_left.eq(ends.block_last)]
            with m.If(ends.done & self.block_left):
                m.d.sync += [self.dest_at.eq(self.dest_block + lanes), self.dest_block.eq(self.dest_block + lanes)]
            with m.Elif(ends.done):
                m.d.sync += self.dest_at.eq(self.dest_at + self.group_step)
        with m.If(ends.walk_last & self.transposes):
            m.d.sync += self.flush.eq(1)
        with m.If(ends.vec_last):
            m.d.sync += self.active.eq(0)

    def _advance_pixel(self, m: Module, ends: LoopEnds) -> None:
        """To the next pixel, behind the last of a row to the next row."""
        vec, here = self.vec, self.here
        with m.If(ends.pixel_last):
            m.d.sync += [
                self.ky.eq(0),
                self.tap_y.eq(self.tap_y0),
                self.left.eq(Mux(self.left == 0, 0, self.left - 1)),
            ]
            with m.If(self.of_b):
                m.d.sync += self.y_here.eq(self.y_block)
            with m.If(ends.row_last):
                m.d.sync += [here.ox.eq(0), here.x.eq(0), self.column_turn.eq(0), self.row_turn.eq(self.row_turn + 1)]
                with m.If(self.row_turn == vec.repeat):
                    m.d.sync += [self.row_turn.eq(0), here.y.eq(here.y + self.row_step)]
            with m.Else():
                m.d.sync += [here.ox.eq(here.ox + 1), self.column_turn.eq(self.column_turn + 1)]
                with m.If(self.column_turn == vec.repeat):
                    m.d.sync += [self.column_turn.eq(0), here.x.eq(here.x + Mux(self.slides, 0, vec.stride_w))]

    def _advance_block(self, m: Module, ends: LoopEnds) -> None:
        """Whole blocks: the second walk over one begins where the first did, when y is there."""
        divides = Mux(self.vec.op == VectorOp.MAC, WHOLE_ROOT_CYCLES, WHOLE_DIVIDE_CYCLES)
        with m.If(self.rest != 0):
            m.d.sync += self.rest.eq(self.rest - 1)
        with m.If(ends.measured):
            m.d.sync += [
                self.second.eq(1),
                self.rest.eq(Mux(self.vec.pair == Pair.SUBTRACT, WHOLE_SUBTRACT_CYCLES, divides)),
                self.here.eq(0),
                self.left.eq(self.vec.pixels),
            ]
        with m.If(ends.block_last):
            m.d.sync += self.second.eq(0)

    def _advance_column(self, m: Module, ends: LoopEnds) -> None:
        """Sliding windows: down the column, then to the next one. `kx` is that column's number in the oldest window."""
        vec = self.vec
        m.d.sync += [
            self.ky.eq(self.ky + 1),
            self.tap_y.eq(self.tap_y + self.tap_step),
            self.tap.eq(self.tap + vec.kernel_w),
            self.row_first.eq(0),
            self.shift.eq(ends.pixel_last),
        ]
        with m.If(ends.column_last):
            kx = Signal.like(self.kx, name="kx_next")
            m.d.comb += kx.eq(Mux(ends.kx_last, vec.kernel_w - vec.stride_w, self.kx + 1))
            m.d.sync += [
                self.ky.eq(0),
                self.tap_y.eq(self.tap_y0),
                self.tap_x.eq(self.tap_x + 1),
                self.kx.eq(kx),
                self.tap.eq(kx),
            ]

    def load(
        self, m: Module, pending: PendingInstruction, now: Signal, windowed: Signal, slides: Signal, whole: Signal
    ) -> None:
        """Starts the pending instruction; its first address is that of the next cycle."""
        after, vec, lanes = pending.code, self.vec, self._config.lanes
        turns = VectorOp.TRANSPOSE in vector_ops(self._config.core)
        with m.If(pending.load):
            m.d.sync += [self.active.eq(1), vec.eq(after), self.void.eq(pending.bad), self.start.eq(now + 1)]
            for field in ("blocks", "kernel_h", "kernel_w", "out_w", "pixels"):
                # A zero count has raised a fault; as 1 it cannot hang the loops.
                m.d.sync += vec[field].eq(after[field] | (after[field] == 0))
            with m.If(~windowed):
                m.d.sync += [vec.kernel_h.eq(1), vec.kernel_w.eq(1)]
            m.d.sync += [
                self.transposes.eq((after.op == VectorOp.TRANSPOSE) if turns else 0),
                self.fetches.eq((after.op == VectorOp.TABLE) & self._config.core.vec_table),
                self.whole.eq(whole & ~pending.bad),
                Cat(self.second, self.rest).eq(0),
                self.slides.eq(slides),
                self.fills.eq(slides & (after.op == VectorOp.MAC)),
                self.row_step.eq(after.stride_h * after.in_w),
                self.tap_step.eq(after.dilation * after.in_w),
                self.tap_x0.eq(-after.pad_left),
                self.tap_x.eq(-after.pad_left),
                self.tap_y0.eq(-(after.pad_top * after.in_w)),
                self.tap_y.eq(-(after.pad_top * after.in_w)),
                self.group_step.eq(after.blocks * lanes - (lanes - 1)),
                self.plane.eq(after.x_base),
                self.left.eq(after.pixels | (after.pixels == 0)),
                self.y_here.eq(after.y_base),
                self.y_block.eq(after.y_base),
                self.addend_at.eq(after.addend_base),
                self.scale_at.eq(after.scale),
                self.block_second.eq(0),
                self.dest_at.eq(after.dest_base),
                self.dest_block.eq(after.dest_base),
                self.block_first.eq(1),
                self.row_first.eq(1),
                Cat(self.flush, self.primed, self.block_left, self.phase, self.kx, self.ky, self.block, self.here).eq(
                    0
                ),
                Cat(self.tap, self.shift, self.row_turn, self.column_turn, self.table_at).eq(0),
            ]


class Access(NamedTuple):
    """An access to word `at` of a region: it is `made` in this cycle, or suppressed because it is `past` its memory.

    `offset`: as a MOVE counts words, four for each word of ACC.
    """

    made: Value
    past: Signal
    at: Signal
    offset: Value
    region: Value | Region
