"""The operand readers: walk over A and B for a GEMM, one address of each per cycle."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, ChipConfig
from ..spec.isa import INSTRUCTIONS, INT4_SCALES, POST, Addend, Cause, Opcode, Region

GEMM = INSTRUCTIONS[Opcode.GEMM]
GEMM_LAYOUT = GEMM.layout()

_COUNTS = (
    "k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels", "n_blocks",
)  # fmt: skip

FAULT_LAYOUT = data.StructLayout({"valid": 1, "cause": 4, **POST.members("tag", "value")})


#: Bits of a word of B, and of what is past all of B, from where nothing is counted on.
_B_BITS = 18


def fold_layout(rows: int) -> data.StructLayout:
    """What the drain path must know about a fold: its rows, its place in the GEMM, and (with `first`) the GEMM."""
    return data.StructLayout(
        {
            "rows": range(rows + 1),  # valid rows, >= 1
            "first": 1,  # first fold of its GEMM
            "block_last": 1,  # last fold of its n block
            "last": 1,  # last fold of its GEMM
            "void": 1,  # the GEMM was faulted at issue: write nothing
            **GEMM.members("tag", "post_sem", "post_n"),
            "start": 32,
            **GEMM.members("addend", "addend_base", "by_channel", "to_acc", "dest_base", "scale", "relu", "clamp"),
        }
    )


class PendingInstruction:
    """The instruction after the running one: taken from `issue` when the slot is empty, or is being loaded.

    The reader drives `load`, a strobe in the last cycle of the running instruction, and sets `bad_shape` and `bad_bits`
    if `code` is wrong. Latency: an instruction taken in cycle t can be loaded from t + 1 on.
    """

    def __init__(self, m: Module, issue: stream.Interface, layout: data.StructLayout) -> None:
        self.waiting = Signal()
        self.code: data.View = Signal(layout, name="after")
        self.load = Signal()
        self.bad_shape = Signal()
        self.bad_bits = Signal()
        m.d.comb += issue.ready.eq(~self.waiting | self.load)
        with m.If(issue.valid & issue.ready):
            m.d.sync += [self.code.eq(issue.payload), self.waiting.eq(1)]
        with m.Elif(self.load):
            m.d.sync += self.waiting.eq(0)

    @property
    def bad(self) -> Value:
        """The instruction is void."""
        return self.bad_shape | self.bad_bits

    def report(self, m: Module, fault: data.View, reported: Signal) -> None:
        """Sets `fault` and `reported` when a void instruction is loaded, and clears `reported` otherwise."""
        with m.If(self.load):
            m.d.sync += reported.eq(self.bad)
            with m.If(self.bad):
                m.d.sync += [
                    fault.valid.eq(1),
                    fault.cause.eq(Mux(self.bad_bits, Cause.RESERVED_BITS, Cause.SHAPE)),
                    fault.tag.eq(self.code.tag),
                    fault.value.eq(0),
                ]


def _place() -> data.StructLayout:
    """Where a word of A is in its channel block: its column `x` and the first word `y` of its row; `ox`: the output's
    column. Columns and rows past all that a tile can have are not counted on (`_on`), so few bits are enough."""
    return data.StructLayout({"ox": 10, "x": signed(12), "y": signed(18)})


def _on(place: Signal, step: Value) -> Value:
    """The column or row `step` further on, unless it is past all tiles already. The next bit has room for a step."""
    return Mux(place[-2] & ~place[-1], place, place + step)


class _Walk:
    """Registers of the running GEMM. Columns and rows of places are those of a pixel and a tap together."""

    def __init__(self, lanes: int) -> None:
        # Constants of the GEMM.
        self.active = Signal()
        self.gemm: data.View = Signal(GEMM_LAYOUT)
        self.void = Signal()
        self.start = Signal(32)
        self.row_step = Signal(13)  # words of A between output rows
        self.tap_step = Signal(13)  # words of A between kernel rows
        self.x_first = Signal(signed(5))  # of the first pixel at the first tap
        self.y_first = Signal(signed(15))
        # Counters.
        self.phase = Signal(range(lanes))
        self.kx = Signal(4)
        self.ky = Signal(4)
        self.kb = Signal(8)
        self.block = Signal(6)
        self.edge = Signal(signed(8))  # column of an output row's first pixel at this tap
        self.plane = Signal(24)  # word of the channel block's first row and column
        self.here: data.View = Signal(_place())  # of the pixel of this cycle's row
        self.beyond: data.View = Signal(_place())  # of the pixel after it
        self.next_here: data.View = Signal(_place())  # of the next window's first pixel, from phase 2 on
        self.group: data.View = Signal(_place())  # of the group's first pixel at the first tap
        self.next_group: data.View = Signal(_place())  # of the next group's, once the first window has ended
        self.left = Signal(14)  # pixels from this group on
        self.b_here = Signal(_B_BITS)
        self.b_beyond = Signal(_B_BITS)
        self.b_block = Signal(_B_BITS)
        self.scales_at = Signal(_B_BITS)
        self.high = Signal()  # of an int4 GEMM: the second window of a pair


class _LoopEnds(NamedTuple):
    """Which loops end in this cycle: kernel columns, rows and all taps (`taps_last`) only with `window_last`, n blocks
    with `fold_last`. `taps_first`: this window is the first of its fold.

    But for `taps_first` they come from registers, which are right from the second cycle of a window on: nothing ends
    before its last one."""

    window_last: Signal
    kx_last: Signal
    ky_last: Signal
    taps_first: Signal
    taps_last: Signal
    fold_last: Signal
    block_last: Signal
    gemm_last: Signal


class _Access(NamedTuple):
    """A read that would be `past` its memory, at word `at`."""

    past: Signal
    at: Signal


class OperandReader(wiring.Component):
    """Executes the loops of GEMMs: n blocks, groups of `rows` pixels, taps (channel block, kernel row, kernel column),
    and in each window of P cycles the words of the rows (A) and of the columns (B).

    Latency: `hw.spec.timing.GEMM_ISSUE_CYCLES` from an accepted instruction to its first address when idle; two
    instructions are held at a time, so that the windows of the next one follow without a bubble, but for
    `hw.spec.timing.gemm_bubble`.

    - `issue`: instructions whose header has been satisfied.
    - `a_read`, `b_read`: read port enables and addresses. `taken`: the port is the reader's in this cycle, although
      it does not read a word past the memory; known early in the cycle, like the lower bits of the address.
    - `step`: describes the addresses of this cycle: whether it belongs to a window (`active`), its index in the window
      (`phase`), whether the A word is padding (`a_zero`), first cycle of a window (`window_first`), first and last
      cycle of a fold (`fold_first`, `fold_last`). In a window of an `int4` GEMM `int4` is set, in the second of a pair
      `high`, too: B is not read then, but for the scales of the next pair in its last cycle. `scales`: what `b_read`
      asks for are scales, in the cycle before the first window of each pair.
    - `fold`: valid with `step.fold_last`.
    - `fault`: registered strobe, at most one per instruction. Causes: ADDRESS (the read is suppressed; A words count as
      zero), SHAPE (a zero count counts as 1; also for partial sums `by_channel` to OUT after a single window, whose
      drain may leave no cycle to read multipliers in, and for an odd number of `int4` windows), RESERVED_BITS (also
      for `addend` = 3, for `by_channel` without an addend or on a chip without `core.channel_scales`, and for `int4`
      on a chip without `core.int4`). SHAPE and RESERVED_BITS make the instruction void:
      it runs, writes nothing, and retires.
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
                "int4": 1,
                "high": 1,
                "scales": 1,
            }
        )
        super().__init__(
            {
                "issue": In(stream.Signature(GEMM_LAYOUT)),
                "now": In(32),
                "a_read": Out(data.StructLayout({"taken": 1, "en": 1, "addr": self._a_bits})),
                "b_read": Out(data.StructLayout({"taken": 1, "en": 1, "addr": self._b_bits})),
                "step": Out(self._step),
                "fold": Out(fold_layout(config.rows)),
                "fault": Out(FAULT_LAYOUT),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pending = PendingInstruction(m, self.issue, GEMM_LAYOUT)
        self._check(m, pending)
        walk = _Walk(self._config.lanes)
        a, b = self._read_a(m, walk), self._read_b(m, walk)
        ends = self._loop_ends(m, walk, pending)
        self._advance(m, walk, ends)
        self._foresee(m, walk, ends)
        self._load(m, walk, pending)
        if self._config.core.int4:
            self._read_scales(m, walk, pending, ends)
        m.d.comb += self.busy.eq(walk.active | pending.waiting)
        self._describe(m, walk, ends)
        self._faults(m, pending, walk.gemm, a, b)
        return m

    def _check(self, m: Module, pending: PendingInstruction) -> None:
        """Checks the pending instruction."""
        after = pending.code
        single = (after.k_blocks == 1) & (after.kernel_h == 1) & (after.kernel_w == 1)
        scaled = after.by_channel & ~after.to_acc
        m.d.comb += [
            pending.bad_shape.eq(
                Cat(after[count] == 0 for count in _COUNTS).any()
                | (scaled & (after.addend == Addend.PARTIAL) & single)
                | (after.int4 & after.k_blocks[0] & after.kernel_h[0] & after.kernel_w[0])
            ),
            pending.bad_bits.eq(
                after.reserved.any()
                | (after.addend > max(Addend))
                | (after.int4 & (not self._config.core.int4))
                | (after.by_channel & ((after.addend == Addend.NONE) | (not self._config.core.channel_scales)))
            ),
        ]

    def _read_a(self, m: Module, walk: _Walk) -> _Access:
        """Drives `a_read`: in each of the first `rows` cycles of a window, the word of one row's pixel unless that is
        padding. Steps from pixel to pixel."""
        core, rows, gemm, here, beyond = self._config.core, self._config.rows, walk.gemm, walk.here, walk.beyond
        row_valid = Signal()
        a_at = Signal(25)
        a_wanted = Signal()
        a_past = Signal()
        row_last = Signal()
        m.d.comb += [
            row_valid.eq((walk.phase < rows) & (walk.phase < walk.left)),
            a_at.eq(walk.plane + here.y + here.x),
            # unsigned, what is below 0 is far above
            a_wanted.eq(
                walk.active & row_valid & (here.x.as_unsigned() < gemm.in_w) & (here.y.as_unsigned() < gemm.a_plane)
            ),
            a_past.eq(a_wanted & (a_at >= core.a_words)),
            self.a_read.taken.eq(a_wanted),
            self.a_read.en.eq(a_wanted & ~a_past),
            self.a_read.addr.eq(a_at),
            row_last.eq(here.ox == gemm.out_w - 1),
            beyond.ox.eq(Mux(row_last, 0, here.ox + 1)),
            beyond.x.eq(Mux(row_last, walk.edge, _on(here.x, gemm.stride_w))),
            beyond.y.eq(Mux(row_last, _on(here.y, walk.row_step), here.y)),
        ]
        return _Access(a_past, a_at)

    def _read_b(self, m: Module, walk: _Walk) -> _Access:
        """Drives `b_read`: the next word in each of the first `cols` cycles of a window."""
        core, cols = self._config.core, self._config.cols
        b_wanted = Signal()
        b_past = Signal()
        m.d.comb += [
            b_wanted.eq(walk.active & (walk.phase < cols) & ~walk.high),
            b_past.eq(b_wanted & (walk.b_here >= core.b_words)),
            self.b_read.taken.eq(b_wanted),
            self.b_read.en.eq(b_wanted & ~b_past),
            self.b_read.addr.eq(walk.b_here),
            walk.b_beyond.eq(walk.b_here + (b_wanted & ~b_past)),
        ]
        return _Access(b_past, walk.b_here)

    def _read_scales(self, m: Module, walk: _Walk, pending: PendingInstruction, ends: _LoopEnds) -> None:
        """Drives `b_read` in the cycle before each pair of windows of an int4 GEMM: the word of scales, `scales_at`. If
        it is past B, so are the words behind it, and their read is the fault."""
        core, int4 = self._config.core, walk.gemm.int4
        begins = Signal()
        m.d.comb += [
            begins.eq(pending.load & pending.code.int4),
            self.step.scales.eq(begins | (ends.window_last & int4 & walk.high & ~ends.gemm_last)),
            walk.scales_at.eq(
                Mux(begins, pending.code.b_base, Mux(ends.fold_last & ~ends.block_last, walk.b_block, walk.b_here))
            ),
        ]
        with m.If(self.step.scales):
            m.d.comb += [
                self.b_read.taken.eq(1),
                self.b_read.en.eq(walk.scales_at < core.b_words),
                self.b_read.addr.eq(walk.scales_at),
            ]
            m.d.sync += walk.b_here.eq(Mux(walk.scales_at[-1], walk.scales_at, walk.scales_at + INT4_SCALES))
        with m.If(pending.load):
            m.d.sync += walk.high.eq(0)
        with m.Elif(ends.window_last & int4):
            m.d.sync += walk.high.eq(~walk.high)

    def _loop_ends(self, m: Module, walk: _Walk, pending: PendingInstruction) -> _LoopEnds:
        """Loop ends, innermost first; the pending instruction is loaded at the last of them."""
        gemm, lanes, rows = walk.gemm, self._config.lanes, self._config.rows
        window_last = Signal()
        kx_last = Signal()
        ky_last = Signal()
        taps_first = Signal()
        taps_last = Signal()
        fold_last = Signal()
        block_last = Signal()
        blocks_last = Signal()
        gemm_last = Signal()
        rests = Signal()  # the word of scales waits for the port
        if self._config.core.int4 and self._config.cols == lanes:
            m.d.comb += rests.eq(pending.code.int4 & ~gemm.int4)
        kx_end, ky_end = walk.kx == gemm.kernel_w - 1, walk.ky == gemm.kernel_h - 1
        m.d.sync += [
            window_last.eq(walk.active & (walk.phase == lanes - 2)),
            kx_last.eq(kx_end),
            ky_last.eq(ky_end),
            taps_last.eq(kx_end & ky_end & (walk.kb == gemm.k_blocks - 1)),
            block_last.eq(walk.left <= rows),
            blocks_last.eq((walk.left <= rows) & (walk.block == gemm.n_blocks - 1)),
        ]
        m.d.comb += [
            taps_first.eq((walk.kx == 0) & (walk.ky == 0) & (walk.kb == 0)),
            fold_last.eq(window_last & taps_last),
            gemm_last.eq(fold_last & blocks_last),
            pending.load.eq(pending.waiting & (~walk.active | (gemm_last & ~rests))),
        ]
        return _LoopEnds(window_last, kx_last, ky_last, taps_first, taps_last, fold_last, block_last, gemm_last)

    def _advance(self, m: Module, walk: _Walk, ends: _LoopEnds) -> None:
        """Advances the loops by one cycle, innermost first."""
        gemm, rows = walk.gemm, self._config.rows
        with m.If(walk.active):
            m.d.sync += [walk.phase.eq(walk.phase + 1), walk.b_here.eq(walk.b_beyond)]
            with m.If(walk.phase < rows):
                m.d.sync += walk.here.eq(walk.beyond)
        with m.If(ends.window_last):
            # The group after a fold of one window begins where that ends.
            with m.If(~ends.taps_first | ~ends.taps_last | ends.block_last):
                m.d.sync += walk.here.eq(walk.next_here)
            m.d.sync += [walk.kx.eq(walk.kx + 1), walk.edge.eq(walk.edge + gemm.dilation)]
            with m.If(ends.kx_last):
                m.d.sync += [walk.kx.eq(0), walk.edge.eq(walk.x_first), walk.ky.eq(walk.ky + 1)]
                with m.If(ends.ky_last):
                    m.d.sync += [
                        walk.ky.eq(0),
                        walk.kb.eq(walk.kb + 1),
                        walk.plane.eq(walk.plane + gemm.a_plane),
                    ]
        with m.If(ends.fold_last):
            m.d.sync += [walk.kb.eq(0), walk.plane.eq(gemm.a_base)]
            with m.If(ends.block_last):
                m.d.sync += [
                    walk.block.eq(walk.block + 1),
                    walk.left.eq(gemm.pixels),
                    walk.b_block.eq(walk.b_beyond),
                ]
            with m.Else():
                m.d.sync += [walk.left.eq(walk.left - rows), walk.b_here.eq(walk.b_block)]
        with m.If(ends.gemm_last):
            m.d.sync += walk.active.eq(0)

    def _foresee(self, m: Module, walk: _Walk, ends: _LoopEnds) -> None:
        """Where the next window and the next group begin, while the window is read."""
        gemm, turn = walk.gemm, walk.next_here
        with m.If(walk.phase == 0):
            m.d.sync += turn.eq(walk.here)
            with m.If(ends.taps_first):
                m.d.sync += walk.group.eq(walk.here)
        with m.If(walk.phase == 1):
            with m.If(~ends.kx_last):
                m.d.sync += turn.x.eq(_on(turn.x, gemm.dilation))
            with m.Elif(~ends.taps_last):
                m.d.sync += [turn.x.eq(walk.group.x), turn.y.eq(_on(turn.y, walk.tap_step))]
                with m.If(ends.ky_last):
                    m.d.sync += turn.y.eq(walk.group.y)
            with m.Elif(ends.block_last):
                m.d.sync += [turn.ox.eq(0), turn.x.eq(walk.x_first), turn.y.eq(walk.y_first)]
            with m.Else():
                m.d.sync += turn.eq(walk.next_group)
        with m.If((walk.phase == self._config.rows - 1) & ends.taps_first):
            m.d.sync += walk.next_group.eq(walk.beyond)

    def _load(self, m: Module, walk: _Walk, pending: PendingInstruction) -> None:
        """Starts the pending instruction; its first addresses are those of the next cycle."""
        after, gemm = pending.code, walk.gemm
        with m.If(pending.load):
            m.d.sync += [walk.active.eq(1), gemm.eq(after), walk.void.eq(pending.bad), walk.start.eq(self.now + 1)]
            for field in ("k_blocks", "kernel_h", "kernel_w", "out_w", "pixels", "n_blocks"):
                # A zero count has raised a fault; as 1 it cannot hang the loops.
                m.d.sync += gemm[field].eq(after[field] | (after[field] == 0))
            m.d.sync += [
                walk.row_step.eq(after.stride_h * after.in_w),
                walk.tap_step.eq(after.dilation * after.in_w),
                *(x.eq(-after.pad_left) for x in (walk.x_first, walk.edge, walk.here.x)),
                *(y.eq(-(after.pad_top * after.in_w)) for y in (walk.y_first, walk.here.y)),
                walk.plane.eq(after.a_base),
                walk.left.eq(after.pixels | (after.pixels == 0)),
                walk.b_here.eq(after.b_base),
                walk.b_block.eq(after.b_base),
                Cat(walk.phase, walk.kx, walk.ky, walk.kb, walk.block, walk.here.ox).eq(0),
            ]

    def _describe(self, m: Module, walk: _Walk, ends: _LoopEnds) -> None:
        """Drives `step` and `fold`, in the cycle of the addresses."""
        gemm, rows, step, fold = walk.gemm, self._config.rows, self.step, self.fold
        m.d.comb += [
            step.active.eq(walk.active),
            step.phase.eq(walk.phase),
            step.a_zero.eq(~self.a_read.en),
            step.window_first.eq(walk.active & (walk.phase == 0)),
            step.fold_first.eq(step.window_first & ends.taps_first),
            step.fold_last.eq(ends.fold_last),
            step.int4.eq(gemm.int4),
            step.high.eq(walk.high),
            fold.rows.eq(Mux(ends.block_last, walk.left, rows)),
            fold.first.eq((walk.block == 0) & (walk.left == gemm.pixels)),
            fold.block_last.eq(ends.block_last),
            fold.last.eq(ends.gemm_last),
            fold.void.eq(walk.void),
            fold.start.eq(walk.start),
        ]
        for field in ("tag", "post_sem", "post_n", "addend", "addend_base", "by_channel", "to_acc", "dest_base",
                      "scale", "relu", "clamp"):  # fmt: skip
            m.d.comb += fold[field].eq(gemm[field])

    def _faults(self, m: Module, pending: PendingInstruction, gemm: data.View, a: _Access, b: _Access) -> None:
        """Drives `fault` one cycle later. Of two reads past their memories, that of A is reported."""
        reported = Signal()
        m.d.sync += self.fault.valid.eq(0)
        with m.If((a.past | b.past) & ~reported):
            m.d.sync += [
                reported.eq(1),
                self.fault.valid.eq(1),
                self.fault.cause.eq(Cause.ADDRESS),
                self.fault.tag.eq(gemm.tag),
                self.fault.value.eq(
                    Mux(
                        a.past,
                        Cat(a.at[:OFFSET_BITS], Const(Region.MAIN, 4)),
                        Cat(b.at, Const(0, OFFSET_BITS - _B_BITS), Const(Region.B, 4)),
                    )
                ),
            ]
        pending.report(m, self.fault, reported)
