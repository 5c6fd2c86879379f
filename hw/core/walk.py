"""The walk of the vector unit over a VEC's windows: its registers, and what they say to the datapath in each cycle."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Signal, Value, signed
from amaranth.lib import data

from ..spec.contracts import WHOLE_ROOT_CYCLES, WINDOW_TAPS
from ..spec.isa import INSTRUCTIONS, TABLE_BYTES, Opcode, Region
from .ports import address_bits

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


class Walk:
    """Registers of the running VEC, and the flags decoded from it for all operands.

    The x (columns) and y (words) offsets of an input word are the sum of a pixel's (`here`) and a tap's.
    """

    def __init__(self, lanes: int) -> None:
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


class Access(NamedTuple):
    """An access to word `at` of a region: it is `made` in this cycle, or suppressed because it is `past` its memory.

    `offset`: as a MOVE counts words, four for each word of ACC.
    """

    made: Value
    past: Signal
    at: Signal
    offset: Value
    region: Value | Region
