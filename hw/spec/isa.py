"""The formats that hardware and software share: instructions, packets, trace records, faults.

This is their only definition. The RTL decoder, the assembler and disassembler, the reference tables in the
documentation and the random program generator are all derived from the tables below. `Format.pack` refuses a value
that does not fit its field; nothing is ever truncated.

An instruction is 256 bits, little-endian in memory, the first field in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from .config import INSTRUCTION_BYTES, MOST_HOPS, MOST_POINTS, OFFSET_BITS, ChipConfig, CoreConfig, TileKind
from .routes import TURN_BITS, CopyField, RouteField

if TYPE_CHECKING:  # the gateware library is slow to import and only the gateware needs it
    from amaranth.lib import data  # pyright: ignore[reportMissingTypeStubs]  (the stubs leave it out)

#: Tag of the moves that instruction fetch makes by itself; they leave no trace record.
FETCH_TAG = 0xFFFF
#: Words of a page of DRAM, the grain in which programs that run at the same time are given memory.
PAGE_WORDS = 1 << 10
#: Bits of a page's number.
PAGE_BITS = OFFSET_BITS - 10
#: Bits of the number of a program's slot (`ChipConfig.programs`).
SLOT_BITS = 5
#: Requantisation divides by 2**SCALE_SHIFT.
SCALE_SHIFT = 17
#: With `by_channel`, words of ACC for each block of output channels: its biases, then its multipliers (int32 each, of
#: which the low 16 bits count).
SCALED_BIAS_WORDS = 2
#: With `int4`, two windows that follow each other in [channel block][kernel row][kernel column] share words of B: first
#: INT4_SCALES words of scales, byte c for column c, then a word for each column. Of all these bytes the low four bits
#: are for the first of the two windows, the high four for the second. A weight is its four bits, as -8..7, times its
#: column's scale for that window, 0..15. So a group of P weights (four bits each) has a scale (QServe: Lin et al.,
#: 2024, has such scales in integers below the usual ones, too).
INT4_SCALES = 1
#: With `YWalk.WHOLE`, a quotient is scale * 2**DIVIDEND_SHIFT over the sum, or over the root of 2**ROOT_SHIFT times the
#: sum of squares, rounded down, at most MOST_QUOTIENT.
DIVIDEND_SHIFT = 12
ROOT_SHIFT = 8
MOST_QUOTIENT = (1 << 16) - 1
#: Bytes of the table of `VectorOp.TABLE`.
TABLE_BYTES = 256


class IsaError(ValueError):
    """A value that does not fit its field, or bits that are no instruction."""


class Opcode(IntEnum):
    """What an instruction does. Zero is illegal, so that running into empty memory is a fault."""

    SYNC = 1
    MOVE = 2
    GEMM = 3
    VEC = 4
    FETCH = 5
    END = 6
    ROUTE = 7
    ORDER = 8


class Unit(IntEnum):
    """The units of a tile, each with one instruction stream."""

    MOVER = 0
    MATRIX = 1
    VECTOR = 2
    NONE = 3


#: What each unit of a core computes with.
COMPUTES: dict[Unit, Opcode] = {Unit.MATRIX: Opcode.GEMM, Unit.VECTOR: Opcode.VEC}
#: Which instructions the stream of each unit understands, besides SYNC, which all do (END: the boot stream's last).
ACCEPTS: dict[Unit, tuple[Opcode, ...]] = {
    Unit.MOVER: (Opcode.MOVE, Opcode.FETCH, Opcode.ROUTE, Opcode.END),
    **{unit: (opcode,) for unit, opcode in COMPUTES.items()},
}
#: The same of the stream of an ahead-of-time controller, which sends them elsewhere.
AHEAD_ACCEPTS = (Opcode.MOVE, *COMPUTES.values(), Opcode.ORDER)


def units_of(config: ChipConfig, kind: TileKind) -> tuple[Unit, ...]:
    """The units of a tile of this kind that have streams of their own."""
    if kind is TileKind.CORE:
        return (Unit.MOVER, Unit.MATRIX, Unit.VECTOR) if config.core.has_vector else (Unit.MOVER, Unit.MATRIX)
    return () if kind in (TileKind.DRAM, TileKind.SPM) and not config.memory_streams else (Unit.MOVER,)


class Region(IntEnum):
    """Bits [27:24] of a word address: which memory of the tile. Offsets inside a region count words of P bytes."""

    MAIN = 0  #: core: operand memory A; spm: the bank; dram: the channel
    B = 1  #: core: operand memory B
    ACC = 2  #: core: partial sums; four words of P bytes for each word of P int32
    OUT = 3  #: core: requantised results of the matrix unit
    VEC = 4  #: core: results of the vector unit
    RING_MOVER = 8  #: instruction ring of the mover's stream
    RING_MATRIX = 9
    RING_VECTOR = 10
    TRACE = 12  #: trace records, oldest first
    STATS = 13  #: cycle counters


class Cause(IntEnum):
    """Why a fault was raised."""

    NONE = 0
    ILLEGAL_OPCODE = 1  #: value = opcode
    RESERVED_BITS = 2  #: a bit that must be zero is set
    ADDRESS = 3  #: value = the address that lies past its memory
    DESTINATION = 4  #: value = the tile address outside the floorplan
    SEMAPHORE_OVERFLOW = 5  #: value = the semaphore
    SEMAPHORE_RANGE = 6  #: value = a semaphore number this tile does not have
    LATE = 7  #: fire_at already past; value = cycles too late
    SHAPE = 8  #: a zero count or run where at least one is needed
    WATCHDOG = 9  #: the run exceeded its cycle bound; value = the bound's low bits
    BUS = 10  #: the DRAM answered with an AXI error; value = first word of the burst, bit 24 set for a write
    STREAM_BUSY = 11  #: a FETCH for a stream that is still running; value = its program address
    LENGTH = 12  #: a packet whose tail is not where it should be; value = a data packet's address
    STALLED = 13  #: nothing moved anywhere for as long as the host allows; value = that many cycles, low bits
    PARITY = 14  #: a bit of a head, request or post was flipped on its way; value = what it says (address, semaphore)
    ROUTE = 15  #: a source route or virtual channel that this chip does not have; value = `channel`, or a tile
    RIGHTS = 16  #: a tile, semaphore or page of DRAM that the program was not given; value = a tile, or an address
    ECC = 17  #: two bits of a word are wrong; value = an address in its memory, or that of the packet it came with
    UNREPORTED = 18  #: in chips without `reports`: a tile has raised any of these; tag and value = 0


class Part(IntEnum):
    """What a `STATE` is about: the parts of a tile that can stand still."""

    STREAM = 0  #: the front end of the unit's stream; tag = the instruction whose turn it is
    MOVER = 1  #: a MOVE that the mover sends (for whichever stream); tag = its tag
    QUEUE = 2  #: MOVEs that other tiles have requested; tag = of the first one
    DELIVERY = 3  #: a packet that is being written; tag = words still to come
    DRAM = 4  #: bursts written to DRAM and not answered yet; tag = how many
    FAULT = 5  #: a fault that this tile has raised without the host hearing of it; `waits` is its `Cause`


class BlockedOn(IntEnum):
    """What a part of a tile waits for. In brackets: what fields of `STATE` mean then. Of a STREAM, sem, need and has
    together are how many instructions it has not taken, low bits, unless said otherwise."""

    NOTHING = 0  #: not reported
    START = 1  #: a FETCH, which has never come
    CODE = 2  #: its next instruction, which has been requested (peer = the DRAM tile)
    SEMAPHORE = 3  #: a semaphore (sem, need, has as they say; peer = instructions not taken, low bits)
    TIME = 4  #: its fire time (sem, need, has, peer: its low 28 bits, sem lowest)
    UNIT = 5  #: a unit that does not take it (QUEUE: has = waiting MOVEs, need = 1 if more wait in the network)
    REQUEST_PLANE = 6  #: the request plane does not take it (peer = where it is to go)
    DATA_PLANE = 7  #: the data plane does not take its flit (peer = where it is to go)
    POST_PLANE = 8  #: the post plane does not take it (peer = where it is to go)
    MEMORY = 9  #: the tile's memory does not give or take a word (DELIVERY: sem, need, has, peer: its address)
    DRAM = 10  #: DRAM does not give or take a word, or an answer (DELIVERY, DRAM: sem, need, has, peer: its address)
    FLITS = 11  #: the rest of its packet (DELIVERY: sem, need, has, peer: address of the next word)
    POSTS = 12  #: the semaphores or the trace memory do not take what the instruction before has left
    FAULT = 13  #: it has raised a fault


@dataclass(frozen=True)
class Field:
    """One field: name, width in bits, meaning (with its unit), and the least value that a program may give it."""

    name: str
    width: int
    doc: str
    least: int = 0


@dataclass(frozen=True)
class Format:
    """A packed record, first field in the lowest bits; bits past the last field up to `width` must be zero."""

    name: str
    fields: tuple[Field, ...]
    width: int

    def __post_init__(self) -> None:
        if self.used > self.width:
            raise IsaError(f"{self.name}: fields take {self.used} bits, the format has {self.width}")

    @property
    def used(self) -> int:
        """Bits taken by fields."""
        return sum(field.width for field in self.fields)

    @cached_property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """Field name to (lowest bit, width)."""
        ends = accumulate((field.width for field in self.fields), initial=0)
        return {field.name: (at, field.width) for field, at in zip(self.fields, ends, strict=False)}

    def bits(self, name: str) -> int:
        """The width of a field. Raises KeyError if the format has none of that name."""
        return self.offsets[name][1]

    def members(self, *names: str) -> dict[str, int]:
        """Fields with their widths, for layouts that hold some of them. Raises KeyError as `bits`."""
        return {name: self.bits(name) for name in names}

    @cached_property
    def least(self) -> dict[str, int]:
        """Least values of the fields that may not be 0."""
        return {field.name: field.least for field in self.fields if field.least}

    def most(self, name: str) -> int:
        """The largest value of a field. Raises KeyError if the format has none of that name."""
        return (1 << self.bits(name)) - 1

    def layout(self) -> data.StructLayout:
        """The amaranth layout, with a `reserved` member for the unused high bits (if there are any)."""
        from amaranth.lib import data  # pyright: ignore[reportMissingTypeStubs]

        members: dict[str, int] = {field.name: field.width for field in self.fields}
        if self.used < self.width:
            members["reserved"] = self.width - self.used
        return data.StructLayout(members)

    def pack(self, values: Mapping[str, int]) -> int:
        """The record as an integer. Missing fields are 0. Raises IsaError on unknown names and misfits."""
        word = 0
        for name, value in values.items():
            place = self.offsets.get(name)
            if place is None:
                raise IsaError(f"{self.name} has no field {name!r}; it has {', '.join(self.offsets)}")
            at, width = place
            if not 0 <= value < 1 << width:
                raise IsaError(f"{self.name}.{name} = {value} does not fit {width} bits (0..{(1 << width) - 1})")
            word |= int(value) << at
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """The fields of a record. Raises IsaError when a reserved bit is set."""
        if not 0 <= word < 1 << self.width or word >> self.used:
            raise IsaError(f"{self.name}: reserved bits are set in {word:#x}")
        return {name: (word >> at) & ((1 << width) - 1) for name, (at, width) in self.offsets.items()}


#: A word address inside a tile.
ADDRESS = Format(
    "ADDRESS",
    (
        Field("offset", OFFSET_BITS, "word of the region"),
        Field("region", 4, "memory of the tile (`Region`)"),
    ),
    OFFSET_BITS + 4,
)

HEADER = (
    Field("opcode", 4, "operation (`Opcode`)"),
    Field("tag", 16, "names the instruction in traces, faults and the schedule"),
    Field("wait_sem", 6, "semaphore of this tile to wait on"),
    Field("wait_n", 6, "wait until the semaphore is at least this, then subtract it; 0 = no wait"),
    Field("post_sem", 6, "semaphore of the executing tile to add to when the instruction is complete"),
    Field("post_n", 4, "how much to add; 0 = no post"),
    Field("fire_at", 32, "cycle at which to start; 0 = as soon as the wait holds; already past = fault LATE"),
)

#: A mesh has 16 x 16 tiles, so at most 15 lie before a destination in its row or column.
COPIES_BITS = 4

_BODIES: dict[Opcode, tuple[Field, ...]] = {
    Opcode.SYNC: (
        Field("tile", 8, "tile whose semaphore to add to"),
        Field("sem", 6, "semaphore of that tile"),
        Field("n", 4, "how much to add; 0 = nothing is sent"),
    ),
    Opcode.MOVE: (
        Field("src_tile", 8, "tile whose mover executes; not the stream's own = a pull, sent as a request"),
        Field("src", ADDRESS.width, "source word address (`Region` in bits 27:24)"),
        Field("src_run", 16, "contiguous source words, >= 1", 1),
        Field("src_stride", 20, "words from the start of one source run to the next"),
        Field("dst_tile", 8, "tile that receives"),
        Field("dst", ADDRESS.width, "destination word address"),
        Field("dst_run", 16, "contiguous destination words, >= 1", 1),
        Field("dst_stride", 20, "words from the start of one destination run to the next"),
        Field("words", 16, "words in all, >= 1", 1),
        Field("notify_tile", 8, "tile whose semaphore is added to (by 1) when the last word has been delivered"),
        Field("notify_sem", 6, "semaphore of that tile"),
        Field("notify", 1, "1 = notify"),
        Field(
            "copies", COPIES_BITS, "so many tiles before `dst_tile` receive the words, too; without `noc.multicast` 0"
        ),
    ),
    Opcode.GEMM: (
        Field("a_base", 16, "A: word of channel block 0, row 0, column 0 of the input tile"),
        Field("a_plane", 16, "A: words of one channel block = input rows x input columns", 1),
        Field("in_w", 10, "A: words of one input row", 1),
        Field("k_blocks", 8, "channel blocks (words along the channels), >= 1", 1),
        Field("kernel_h", 4, "kernel rows, >= 1", 1),
        Field("kernel_w", 4, "kernel columns, >= 1", 1),
        Field("stride_h", 3, "rows between outputs, >= 1", 1),
        Field("stride_w", 3, "columns between outputs, >= 1", 1),
        Field("dilation", 3, "distance between kernel taps (dilation), >= 1", 1),
        Field("pad_top", 4, "zero rows above the tile; rows past its end are zero too"),
        Field("pad_left", 4, "zero columns left of the tile; columns past its end are zero too"),
        Field("out_w", 10, "output columns, >= 1", 1),
        Field("pixels", 14, "output pixels (rows x columns), >= 1", 1),
        Field("b_base", 16, "B: words [n block][channel block][kernel row][kernel column][array column]"),
        Field("n_blocks", 6, "output channel blocks, >= 1", 1),
        Field("addend", 2, "what is added to each accumulator row (`Addend`)"),
        Field("addend_base", 14, "ACC: first word of the addend"),
        Field("to_acc", 1, "1 = the sums go to ACC as int32; 0 = requantised to OUT"),
        Field("dest_base", 14, "ACC or OUT: first word of the result, [n block][pixel]"),
        Field("scale", 16, "m of y = sat8(RNE(acc * m / 2^17)); with `by_channel` ACC: word of the m of n block 0"),
        Field("relu", 1, "1 = clamp below at 0"),
        Field("clamp", 7, "clamp above at this; 127 = no clamp"),
        Field(
            "by_channel",
            1,
            "1 = m of column c of n block b is lane c of ACC[scale + 2 b], its bias that of ACC[addend_base + 2 b]",
        ),
        Field("int4", 1, "1 = B: pairs of windows with weights of four bits, a word of scales before each"),
    ),
    Opcode.VEC: (
        Field("op", 3, "what is done (`VectorOp`)"),
        Field("x_out", 1, "MAC, SUM, MAX, TRANSPOSE, TABLE: x lies in 0 = A, 1 = OUT; must be 0 otherwise"),
        Field("x_base", 16, "x: word of block 0, row 0, column 0 (A or OUT; REQUANT: an ACC word of P int32)"),
        Field("x_plane", 16, "x: words of one block = input rows x input columns", 1),
        Field("in_w", 10, "x: words of one input row, >= 1", 1),
        Field("blocks", 8, "channel blocks, each computed by itself, >= 1", 1),
        Field("kernel_h", 5, "window rows, >= 1; 1 unless MAC, SUM, MAX; 1 with `repeat`", 1),
        Field("kernel_w", 5, "window columns, >= 1; 1 unless MAC, SUM, MAX; 1 with `repeat`", 1),
        Field("stride_h", 3, "rows between outputs, >= 1", 1),
        Field("stride_w", 3, "columns between outputs, >= 1", 1),
        Field("dilation", 3, "distance between window taps (dilation), >= 1", 1),
        Field("pad_top", 4, "padding rows above the tile; taps there, and in rows past its end, are ignored"),
        Field("pad_left", 4, "padding columns left of the tile; taps there, and in columns past its end, are ignored"),
        Field("out_w", 10, "output columns, >= 1", 1),
        Field("pixels", 14, "output pixels of a block (rows x columns), >= 1", 1),
        Field(
            "y_base",
            16,
            "MAC: B words [block][window row][window column]; ADD, PAIR: OUT words (`y_walk`); TABLE: B, 256 bytes",
        ),
        Field("addend", 1, "MAC, SUM: 1 = add the bias word ACC[addend_base + block]; must be 0 otherwise"),
        Field("addend_base", 14, "ACC: word of the bias of block 0"),
        Field("dest_base", 14, "VEC: first word of the result, [block][pixel] (TRANSPOSE: see `VectorOp`)"),
        Field("scale", 16, "MAC, SUM, REQUANT, `Pair.MUL`: m of y = sat8(RNE(acc * m / 2^17))"),
        Field("relu", 1, "1 = clamp below at 0"),
        Field("clamp", 7, "clamp above at this; 127 = no clamp"),
        Field("pair", 2, "PAIR, `YWalk.WHOLE`: what is done (`Pair`); must be 0 otherwise"),
        Field("y_walk", 2, "ADD, PAIR: which word of OUT is y; MAC, SUM, MAX: see `YWalk.WHOLE`; must be 0 otherwise"),
        Field("repeat", 2, "each word of x serves this many output rows and columns more than 1: 0..3"),
        Field("times16", 1, "MAC, SUM, REQUANT, `Pair.MUL`: 1 = m / 2^13; acc * 16 wraps at 32 bits; otherwise 0"),
        Field("by_channel", 1, "MAC with a bias and a window of several taps: as in a GEMM; otherwise 0"),
    ),
    Opcode.FETCH: (
        Field("tile", 8, "tile whose stream to start"),
        Field("unit", 2, "unit whose stream to start (`Unit`)"),
        Field("dram", 8, "tile that holds the program"),
        Field("addr", ADDRESS.width, "word address of the first instruction there"),
        Field("count", 24, "instructions", 1),
        Field("clear", 1, "1 = first end all streams of that tile and clear its semaphores; unit NONE: nothing else"),
        Field("slot", SLOT_BITS, "of the program that starts: the host's semaphore that its streams may add to"),
        Field("cores", 32, "cores that it may send to, one bit each in floorplan order; 0 = it may do everything"),
        Field("first_page", PAGE_BITS, "first page of every dram tile that it may read and write"),
        Field("end_page", PAGE_BITS + 1, "page after the last one"),
    ),
    Opcode.END: (),
    Opcode.ROUTE: (
        Field("channel", 3, "0: the virtual channel of the destination (`chip.channel_of`); n: virtual channel n - 1"),
        Field("routed", 1, "1 = the data follows `turns`, 0 = dimension order"),
        Field("turns", TURN_BITS * (MOST_HOPS + 1), "source route (`noc.routes`), first entry lowest"),
    ),
    Opcode.ORDER: (
        Field("tile", 8, "GEMM, VEC: the core that executes the next instruction"),
        Field("channel", 3, "MOVE: as in ROUTE"),
        Field("count", 4, "MOVE: waypoints of its data; 0 = dimension order all the way"),
        Field("points", 8 * MOST_POINTS, "MOVE: waypoints (tiles), first lowest; dimension order between them"),
    ),
}

INSTRUCTION_BITS = 8 * INSTRUCTION_BYTES

#: Layout of every instruction.
INSTRUCTIONS: dict[Opcode, Format] = {
    opcode: Format(opcode.name, HEADER + body, INSTRUCTION_BITS) for opcode, body in _BODIES.items()
}
#: Just the header, for what all units decode alike.
HEADER_FORMAT = Format("HEADER", HEADER, INSTRUCTION_BITS)


class Addend(IntEnum):
    """What the drain path adds to each row of accumulators."""

    NONE = 0
    BIAS = 1  #: ACC[addend_base + n block]: the same word for every pixel
    PARTIAL = 2  #: ACC[addend_base + n block * pixels + pixel]: partial sums of an earlier pass


class VectorOp(IntEnum):
    """What a VEC does, lane by lane, for block b and output pixel p = (oy, ox).

    x[b, iy, ix] is the word `x_base + b * x_plane + iy * in_w + ix`, with iy, ix as for a GEMM; taps outside of
    0 <= ix < in_w, 0 <= iy * in_w < x_plane are left out. With `repeat` they are those of output pixel
    (oy // (repeat + 1), ox // (repeat + 1)). relu and clamp apply to every operation's result.
    """

    MAC = 0  #: depthwise convolution: requantised (sum of x[b, iy, ix] * y[b, ky, kx], y words of B, + bias)
    SUM = 1  #: average pooling: requantised (sum of x[b, iy, ix] + bias)
    MAX = 2  #: max pooling; with a 1x1 window a copy, every stride-th word
    ADD = 3  #: residual addition: sat8(x[b, oy, ox] + y[b, p]), x in A, y in OUT at y_base + b * pixels + p
    REQUANT = 4  #: requantised x[b, oy, ox], an int32 word of ACC
    TRANSPOSE = (
        5  #: [block][pixel][lane] to [pixel block][block * P + lane][pixel]: groups of P pixels, zero past the last
    )
    TABLE = 6  #: y[x + 128]: any function of a byte, 256 bytes from B, the first in the lowest lane; chips with a table
    PAIR = 7  #: a function of x[b, oy, ox] in A and y in OUT: `pair`


#: Operations of the vector unit that have windows: all others take one word of x for each result.
WINDOWED = (VectorOp.MAC, VectorOp.SUM, VectorOp.MAX)
#: Operations with a second operand in OUT.
TWO_OPERANDS = (VectorOp.ADD, VectorOp.PAIR)
#: Operations that requantise whatever `pair` says.
REQUANTISING = (VectorOp.MAC, VectorOp.SUM, VectorOp.REQUANT)


def vector_ops(core: CoreConfig) -> tuple[VectorOp, ...]:
    """The operations that vector units of such cores have; none: there is no vector unit."""
    named = {op.name for op in core.vec_ops}
    return tuple(op for op in VectorOp if op.name in named or (op is VectorOp.TABLE and core.vec_table))


class Pair(IntEnum):
    """What a PAIR computes from x in A and y in OUT, lane by lane."""

    MUL = 0  #: requantised x * y
    MASK = 1  #: x where y > 0, otherwise 0: the gradient of a rectifier
    EQUAL = 2  #: 1 where x = y, otherwise 0: which positions of a window hold its maximum
    SUBTRACT = 3  #: sat8(x - y)


class YWalk(IntEnum):
    """Which word of OUT is the y of block b and output pixel p in an ADD or PAIR.

    WHOLE is for MAC, SUM and MAX, in chips with `core.vec_whole`, with a 1x1 window and without bias or `repeat`: y is
    what the operation makes of all x of block b, lane by lane, and `pair` what is done with each x and that:

    - MAX, SUBTRACT: sat8(x - the maximum).
    - SUM, SUBTRACT: sat8(x - the requantised sum): less the mean, if `scale` is 2^17 over the number of pixels.
    - SUM, MUL: requantised x with, for `scale`, min(MOST_QUOTIENT, scale * 2^DIVIDEND_SHIFT / sum rounded down), or
      MOST_QUOTIENT for a sum that is not above 0.
    - MAC, MUL: the same with the root of 2^ROOT_SHIFT times the sum of squares, rounded down; no y is read from B.
    """

    EACH = 0  #: y_base + b * pixels + p
    BLOCK = 1  #: y_base + b: a word for all pixels of a block, as a number for each channel
    PIXEL = 2  #: y_base + p: a word for all blocks of a pixel
    WHOLE = 3  #: no word: what `op` makes of the whole block


#: What y of ADD and PAIR may be.
OPERAND_WALKS = (YWalk.EACH, YWalk.BLOCK, YWalk.PIXEL)
#: What a `YWalk.WHOLE` may do.
WHOLE_PAIRS = (
    (VectorOp.MAX, Pair.SUBTRACT),
    (VectorOp.SUM, Pair.SUBTRACT),
    (VectorOp.SUM, Pair.MUL),
    (VectorOp.MAC, Pair.MUL),
)


DATA_HEAD = Format(
    "DATA_HEAD",
    (
        Field("dst_tile", 8, "tile that receives; routers look at this, at a source route and at `COPIES`"),
        Field("addr", ADDRESS.width, "word address of the first payload word; the rest follow contiguously"),
        Field("words", 7, "payload words that follow, 1..64; of 128 bytes 1..32"),
        Field("notify_tile", 8, "tile to post to when the tail has been delivered"),
        Field("notify_sem", 6, "semaphore there"),
        Field("notify", 1, "1 = post"),
        Field("parity", 1, "makes the number of ones in these fields even"),
    ),
    64,
)
#: The route of a MOVE's data: the fields of ROUTE, also part of a request's head.
ROUTE_BODY = Format("ROUTE_BODY", _BODIES[Opcode.ROUTE], 52)
#: What follows `DATA_HEAD` in the heads of chips with `noc.arrivals`. In chips with `noc.route_hops` the source route
#: comes last (`route_field`).
ARRIVAL = Format(
    "ARRIVAL",
    (
        Field("tag", 16, "tag of the MOVE"),
        Field("injected_at", 16, "low bits of the cycle from which the head was offered to the network"),
        Field("parity", 1, "makes the number of ones in these fields even"),
    ),
    33,
)
#: What follows in the heads of chips with `noc.multicast`.
COPIES = Format(
    "COPIES",
    (
        Field("copies", COPIES_BITS, "of the last tiles before the destination so many take the packet, too"),
        Field("parity", 1, "makes the number of ones in these fields even"),
    ),
    COPIES_BITS + 1,
)
REQUEST_HEAD = Format(
    "REQUEST_HEAD",
    (
        Field("dst_tile", 8, "tile that receives"),
        Field("unit", 2, "the unit whose stream a FETCH starts, or gets the instruction; of a MOVE: the mover"),
        Field("fetch", 1, "1 = a FETCH for that unit's stream; 0 = an instruction"),
        Field("parity", 1, "makes the number of ones in the whole request even"),
        *_BODIES[Opcode.ROUTE],
    ),
    64,
)
#: Flits of a request packet: the head, then the instruction, low bits first.
REQUEST_FLIT_BITS = 64
REQUEST_FLITS = 1 + INSTRUCTION_BITS // REQUEST_FLIT_BITS

POST = Format(
    "POST",
    (
        Field("dst_tile", 8, "tile that receives"),
        Field("fault", 1, "1 = this is a fault report for the host tile"),
        Field("sem", 6, "semaphore to add to"),
        Field("n", 4, "how much"),
        Field("cause", 5, "fault: `Cause`"),
        Field("tile", 8, "fault: tile that raised it"),
        Field("unit", 2, "fault: `Unit`"),
        Field("tag", 16, "fault: tag of the instruction"),
        Field("value", ADDRESS.width, "fault: the offending value"),
        Field("parity", 1, "makes the number of ones even"),
    ),
    79,
)
#: A post in chips without `reports`: a fault has the cause UNREPORTED and the unit NONE, and neither tag nor value.
SHORT_POST = Format(
    "SHORT_POST",
    tuple(field for field in POST.fields if field.name in ("dst_tile", "fault", "sem", "n", "tile", "parity")),
    28,
)
#: What each part of a tile reports when the host asks why nothing moves: a fault report without a cause.
STATE = Format(
    "STATE",
    (
        Field("dst_tile", 8, "the host tile"),
        Field("fault", 1, "1"),
        Field("part", 4, "the part that reports (`Part`)"),
        Field("waits", 6, "what it waits for (`BlockedOn`)"),
        Field("cause", 5, "0, which distinguishes it from a fault report"),
        Field("tile", 8, "tile of the part"),
        Field("unit", 2, "STREAM, FAULT: `Unit`"),
        Field("tag", 16, "tag of the instruction (see `Part`)"),
        Field("sem", 6, "semaphore of this tile; this field and the next ones: see `BlockedOn`"),
        Field("need", 6, "the value that it must reach"),
        Field("has", 8, "its value"),
        Field("peer", 8, "another tile"),
        Field("parity", 1, "makes the number of ones even"),
    ),
    79,
)
TRACE = Format(
    "TRACE",
    (
        Field("tag", 16, "tag of the instruction"),
        Field("unit", 2, "unit that executed it"),
        Field("opcode", 4, "its opcode"),
        Field("wait", 21, "cycles it waited for its semaphore or fire time (saturating)"),
        Field("stall", 21, "cycles it was held up by the network or the memory (saturating)"),
        Field("start", 32, "cycle of its first action"),
        Field("end", 32, "cycle after its last action"),
    ),
    128,
)


def post_format(config: ChipConfig) -> Format:
    """What posts look like on their way."""
    return POST if config.reports else SHORT_POST


def used_bits(config: ChipConfig, opcode: Opcode) -> int:
    """Bits of an instruction that mean something on a chip; those above must be zero."""
    layout = INSTRUCTIONS[opcode]
    return layout.used if config.noc.multicast or "copies" not in layout.offsets else layout.offsets["copies"][0]


def copies_at(config: ChipConfig) -> int:
    """The bit of the heads of data packets at which `COPIES` begins in chips with `noc.multicast`."""
    return DATA_HEAD.used + (ARRIVAL.used if config.noc.arrivals else 0)


def copy_field(config: ChipConfig) -> CopyField | None:
    """Where heads of data packets say which tiles on their way take them, too; None if the chip has no multicast."""
    directions = config.noc.multicast
    return CopyField(copies_at(config), COPIES_BITS, tuple(directions)) if directions else None


def route_field(config: ChipConfig) -> RouteField | None:
    """Where heads of data packets hold a source route; None if the chip has none. Routers change it on the way, so it
    has no parity: a misrouted packet ends as a fault."""
    if not config.noc.route_hops:
        return None
    flag = DATA_HEAD.used + (ARRIVAL.used if config.noc.arrivals else 0)
    return RouteField(flag_bit=flag, first_bit=flag + 1, turns=config.noc.route_hops + 1)


def plain_flit_bits(config: ChipConfig) -> int:
    """Data bits of a flit of the data plane without check bits: a word or, if that is larger, a head."""
    route = route_field(config)
    used = copies_at(config) + (COPIES.used if config.noc.multicast else 0)
    return max(DATA_HEAD.width, config.word_bits, used if route is None else route.end)


def data_flit_bits(config: ChipConfig) -> int:
    """Data bits of a flit of the data plane: a word or a head (`plain_flit_bits`), and the word's check bits in chips
    with `ecc`. Heads have parity bits instead, since routers change them."""
    return plain_flit_bits(config) + config.coded_bits - config.word_bits


def with_parity(layout: Format, word: int) -> int:
    """A packed record with its field `parity` (given as 0) such that the number of ones is even."""
    return word | (word.bit_count() & 1) << layout.offsets["parity"][0]


def address(region: Region, offset: int) -> int:
    """A word address inside a tile. Raises IsaError when the offset does not fit."""
    if not 0 <= offset < 1 << OFFSET_BITS:
        raise IsaError(f"offset {offset} does not fit {OFFSET_BITS} bits")
    return (region << OFFSET_BITS) | offset


def split_address(word_address: int) -> tuple[int, int]:
    """(region number, offset) of a word address."""
    return word_address >> OFFSET_BITS, word_address & ((1 << OFFSET_BITS) - 1)


def encode(opcode: Opcode, **fields: int) -> bytes:
    """Assembles one instruction (32 bytes). Raises IsaError on unknown fields and values out of range."""
    return INSTRUCTIONS[opcode].pack({"opcode": int(opcode), **fields}).to_bytes(INSTRUCTION_BYTES, "little")


def decode(code: bytes) -> tuple[Opcode, dict[str, int]]:
    """Disassembles one instruction: its opcode and all other fields. Raises IsaError when it is none."""
    if len(code) != INSTRUCTION_BYTES:
        raise IsaError(f"an instruction has {INSTRUCTION_BYTES} bytes, not {len(code)}")
    word = int.from_bytes(code, "little")
    number = word & 0xF
    try:
        opcode = Opcode(number)
    except ValueError:
        raise IsaError(f"illegal opcode {number}") from None
    fields = INSTRUCTIONS[opcode].unpack(word)
    del fields["opcode"]
    return opcode, fields
