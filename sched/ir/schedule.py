"""The one intermediate form that all schedulers produce: operations in a total order, with all addresses explicit.

The meaning of a `Schedule` is its execution in list order. Dependences are not stored; they follow from the words that
each operation reads and writes (`reads`, `writes`). Two address ranges and the order of the list make double buffering;
the operations that one tile issues start in list order.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, Exact, TileKind
from meshloom.hw.spec.isa import (
    INSTRUCTIONS,
    REQUANTISING,
    SCALED_BIAS_WORDS,
    TABLE_BYTES,
    TWO_OPERANDS,
    WINDOWED,
    Addend,
    Opcode,
    Pair,
    Region,
    VectorOp,
    YWalk,
)
from meshloom.hw.spec.timing import weight_words

from ..program.routes import receivers
from ..support.files import write_atomically
from ..workload.layout import Layout

#: Version of the saved form.
VERSION = 1

_OFFSET = (1 << OFFSET_BITS) - 1
_HEADER = frozenset(INSTRUCTIONS[Opcode.END].offsets)
#: Names of the body fields of a GEMM and of a VEC.
GEMM_FIELDS = frozenset(INSTRUCTIONS[Opcode.GEMM].offsets) - _HEADER
VEC_FIELDS = frozenset(INSTRUCTIONS[Opcode.VEC].offsets) - _HEADER


class ScheduleError(ValueError):
    """A schedule that cannot run; the message names the operation or tensor and the fix."""


class _Frozen(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")


Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Span(_Frozen):
    """A strided set of words of one tile: word i is at `address + (i // run) * stride + i % run`.

    `address` is a 28-bit word address with the region in bits 27:24 (`hw.spec.isa.address`).
    """

    tile: Natural
    address: Natural
    run: Positive
    stride: Natural = 0


class Move(_Frozen):
    """Transfers `words` words from `src` to `dst`; the mover of `src.tile` reads them.

    A push if `issuer` is `src.tile`, otherwise a pull: the mover stream of `issuer` sends it as a request. The words
    visit the tiles of `route` (source and destination included), or take the chip's dimension order; they use virtual
    channel `channel`, or that of the destination (`ChipConfig.channel_of`). Neither changes the meaning of a move.

    `copies`: so many tiles before the destination, in a straight line with it on the way of the words, take them, too,
    at the same addresses (chips with `noc.multicast`).
    """

    kind: Literal["move"] = "move"
    issuer: Natural
    src: Span
    dst: Span
    words: Positive
    label: str = ""
    route: tuple[Natural, ...] | None = None
    channel: Natural | None = None
    copies: Natural = 0

    def receivers(self, chip: ChipConfig) -> tuple[int, ...]:
        """The tiles that take the words: the destination, then those before it. Raises RouteError for copies that the
        chip cannot make."""
        return receivers(chip, self.body) if self.copies else (self.dst.tile,)

    @property
    def body(self) -> dict[str, int]:
        """The body fields of the MOVE instruction, without notification."""
        src, dst = self.src, self.dst
        return {
            "src_tile": src.tile,
            "src": src.address,
            "src_run": src.run,
            "src_stride": src.stride,
            "dst_tile": dst.tile,
            "dst": dst.address,
            "dst_run": dst.run,
            "dst_stride": dst.stride,
            "words": self.words,
        } | ({"copies": self.copies} if self.copies else {})


class Box(_Frozen):
    """The part of an int8 tensor that an operation computes: planes (channel blocks) x rows x columns, in words.

    The words of the result are in the order `[plane][row][column]`.
    """

    tensor: str
    plane: Natural
    planes: Positive
    row: Natural
    rows: Positive
    column: Natural
    columns: Positive


class Gemm(_Frozen):
    """One GEMM instruction of a core. `fields` are its body fields as in `hw.spec.isa`; missing ones are 0.

    `result`: what the words that it writes to OUT are, for comparisons.
    """

    kind: Literal["gemm"] = "gemm"
    core: Natural
    fields: dict[str, int]
    label: str = ""
    result: Box | None = None

    @property
    def body(self) -> dict[str, int]:
        """The body fields of the GEMM instruction."""
        return self.fields

    def __getitem__(self, name: str) -> int:
        """One body field; KeyError on a name that GEMM does not have."""
        if name not in GEMM_FIELDS:
            raise KeyError(name)
        return self.fields.get(name, 0)

    @property
    def taps(self) -> int:
        """Words along K: channel blocks x kernel rows x kernel columns."""
        return self["k_blocks"] * self["kernel_h"] * self["kernel_w"]

    def weights(self, cols: int) -> int:
        """Words of B for a block of output channels, with `cols` columns of the array."""
        return weight_words(self.taps, cols, bool(self["int4"]))


class Vec(_Frozen):
    """One VEC instruction of a core. `fields` are its body fields as in `hw.spec.isa`; missing ones are 0."""

    kind: Literal["vec"] = "vec"
    core: Natural
    fields: dict[str, int]
    label: str = ""
    result: Box | None = None

    @property
    def body(self) -> dict[str, int]:
        """The body fields of the VEC instruction."""
        return self.fields

    def __getitem__(self, name: str) -> int:
        """One body field; KeyError on a name that VEC does not have."""
        if name not in VEC_FIELDS:
            raise KeyError(name)
        return self.fields.get(name, 0)

    @property
    def taps(self) -> int:
        """Words read for one output word."""
        return self["kernel_h"] * self["kernel_w"]

    @property
    def x_region(self) -> Region:
        """The memory that holds x."""
        if self["op"] == VectorOp.REQUANT:
            return Region.ACC
        return Region.OUT if self["x_out"] else Region.MAIN

    @property
    def requantises(self) -> bool:
        """Whether `scale` and `times16` count."""
        return self["op"] in REQUANTISING or (self["op"] == VectorOp.PAIR and self["pair"] == Pair.MUL)

    @property
    def whole(self) -> bool:
        """Whether y is what the operation makes of each whole block."""
        return self["op"] in WINDOWED and self["y_walk"] == YWalk.WHOLE

    def second(self, lanes: int) -> tuple[Region, int] | None:
        """Where y lies, and how many words it has from `y_base` on; None without y. `lanes`: P."""
        kind, blocks, pixels = self["op"], self["blocks"], self["pixels"]
        if self.whole:
            return None
        if kind == VectorOp.MAC:
            return Region.B, blocks * self.taps
        if kind == VectorOp.TABLE:
            return Region.B, TABLE_BYTES // lanes
        if kind in TWO_OPERANDS:
            words = {int(YWalk.BLOCK): blocks, int(YWalk.PIXEL): pixels}
            return Region.OUT, words.get(self["y_walk"], blocks * pixels)
        return None

    def results(self, lanes: int) -> int:
        """Words written: `[block][pixel]`, for TRANSPOSE `[pixel block][block * P + lane]`; P = `lanes`."""
        if self["op"] == VectorOp.TRANSPOSE:
            return -(-self["pixels"] // lanes) * lanes * self["blocks"]
        return self["blocks"] * self["pixels"]


Operation = Move | Gemm | Vec


class Piece(_Frozen):
    """Words `first` .. `first + words - 1` of a packed tensor are stored in DRAM `tile` from word `address` on."""

    tile: Natural
    address: Natural
    first: Natural
    words: Positive


class Tensor(_Frozen):
    """An array that the host writes ("input", "constant") or reads ("output"); single layers use x, w, bias, y."""

    name: str
    role: Literal["input", "constant", "output"]
    layout: Layout
    pieces: tuple[Piece, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        at = 0
        for index, piece in enumerate(self.pieces):
            if piece.first != at:
                raise ValueError(
                    f"tensor {self.name!r}: piece {index} begins with word {piece.first}, must be {at} "
                    "(pieces follow each other without gap or overlap)"
                )
            at += piece.words
        return self

    @property
    def words(self) -> int:
        """Words of all pieces together."""
        return sum(piece.words for piece in self.pieces)


class Prediction(_Frozen):
    """The prediction of the scheduler's model: cycles of the run, and start and end cycle of each operation."""

    cycles: Natural
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()


class ClaimPhase(_Frozen):
    """A part of the time that a tool claims, `onload`, `compute` or `offload`, in cycles."""

    name: Literal["onload", "compute", "offload"]
    cycles: Natural


class ClaimTransfer(_Frozen):
    """When a tool plans the first transfer of a tensor (`x`, `w` or `y`), the cycles that one takes, and its bytes."""

    tensor: Literal["x", "w", "y"]
    begin: Natural
    cycles: Natural
    bytes: Natural


class ToolClaim(_Frozen):
    """What the tool that made a layer's mapping says of it: `cycles`, bytes from and to DRAM, `picojoules` (null: it
    does not say), for an `array` of such sizes: rows, columns and cores (empty: unknown). `phases`: the parts of these
    cycles, one after the other (empty: it says only their sum); `transfers`: of each tensor (empty: it does not say).
    `changes`: what the schedule does otherwise than the mapping, because the chip cannot do it. `remark`: why the claim
    is not of this chip."""

    tool: str
    cycles: Natural | None = None
    phases: tuple[ClaimPhase, ...] = ()
    transfers: tuple[ClaimTransfer, ...] = ()
    dram_bytes: Natural | None = None
    picojoules: float | None = None
    array: tuple[Positive, ...] = ()
    changes: tuple[str, ...] = ()
    remark: str = ""


class Execution(StrEnum):
    """What starts the operations of a schedule."""

    TRIGGERED = "triggered"  #: semaphores: an operation starts when its inputs are available
    TIMED = "timed"  #: cycles planned ahead of time, on chips with a controller


class Schedule(_Frozen):
    """Operations in a total program order on one chip, and the tensors they work on.

    `execution`: what starts them; the default is triggered. `fences`: places in the list, rising: no operation from
    there on begins before all operations before it have ended (triggered schedules only; without fences, operations
    wait for the words that they share and for nothing else). `scheduler`: who made the schedule; it has no effect.
    `sites`: for messages, where its author adds each operation, such as `line 12 of first.py`; empty if nobody knows.
    `claim`: of a layer whose loops are another tool's, what that says of them.
    `validate` checks it against the chip. Raises pydantic's ValidationError on contradictory content.
    """

    version: Literal[1] = VERSION
    chip: str
    chip_digest: str
    workload: str
    scheduler: str
    execution: Execution = Execution.TRIGGERED
    operations: tuple[Annotated[Move | Gemm | Vec, Field(discriminator="kind")], ...]
    fences: tuple[Positive, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    predicted: Prediction | None = None
    sites: tuple[str, ...] | None = None
    claim: ToolClaim | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sites is not None and len(self.sites) != len(self.operations):
            raise ValueError(
                f"sites has {len(self.sites)} entries for {len(self.operations)} operations; give one for each, or none"
            )
        if self.fences:
            if any(one >= other for one, other in zip(self.fences, self.fences[1:], strict=False)):
                raise ValueError(
                    f"fences {', '.join(map(str, self.fences))} do not rise; list each place once, in order"
                )
            if self.fences[-1] >= len(self.operations):
                raise ValueError(
                    f"fence {self.fences[-1]} has no operation behind it: there are {len(self.operations)}, from 0 on"
                )
            if self.execution is not Execution.TRIGGERED:
                raise ValueError(f"a {self.execution} schedule has no fences; its cycles say what begins when")
        names = [tensor.name for tensor in self.tensors]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"tensor {twice[0]!r} is listed twice; names must differ")
        if self.predicted is not None:
            for name, times in (("start", self.predicted.start), ("end", self.predicted.end)):
                if times and len(times) != len(self.operations):
                    raise ValueError(
                        f"predicted.{name} has {len(times)} entries for {len(self.operations)} operations; give one "
                        "for each"
                    )
        return self

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name. Raises ScheduleError with the existing names."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        there = ", ".join(repr(tensor.name) for tensor in self.tensors) or "none"
        raise ScheduleError(f"schedule of {self.workload} has no tensor {name!r}; it has {there}")

    def save(self, path: str | Path) -> None:
        """Writes JSON. Raises WriteError; an existing file is left then."""
        write_atomically(Path(path), self.text)

    @property
    def text(self) -> str:
        """The JSON of a file."""
        return self.model_dump_json(exclude_none=True) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Schedule:
        """Reads what `save` wrote. Raises ScheduleError naming file, location and fix."""
        path = Path(path)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ScheduleError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "file"
            message = first["msg"].removeprefix("Value error, ")
            raise ScheduleError(f"{path}: {where}: {message}; save the schedule again") from error


# -- accesses of operations -----------------------------------------------------------------------------------


class Access(NamedTuple):
    """Words of one memory: sorted, disjoint intervals [start, stop) of word offsets.

    ACC counts words of P bytes, four for each accumulator word.
    """

    tile: int
    region: Region
    intervals: list[tuple[int, int]]


_REGIONS: dict[int, Region] = {region.value: region for region in Region}


def memory_words(chip: ChipConfig, tile: int, region: int) -> int:
    """Words of P bytes in a region of a tile; 0 if the tile has no such data memory."""
    kind = chip.tiles.get(tile)
    if kind is TileKind.CORE:
        core = chip.core
        rooms: dict[int, int] = {
            Region.MAIN: core.a_words,
            Region.B: core.b_words,
            Region.ACC: 4 * core.acc_words,
            Region.OUT: core.out_words,
            Region.VEC: core.vec_words * core.has_vector,
        }
        return rooms.get(region, 0)
    if region != Region.MAIN:
        return 0
    return {TileKind.SPM: chip.spm_words, TileKind.DRAM: chip.dram.words}.get(kind, 0) if kind else 0


def intervals(span: Span, words: int) -> list[tuple[int, int]]:
    """Offsets of the first `words` words of a span as sorted, disjoint intervals [start, stop)."""
    start, run, stride = span.address & _OFFSET, span.run, span.stride
    runs = -(-words // run)
    if runs == 1:
        return [(start, start + words)]
    last = words - (runs - 1) * run
    if stride <= run:  # the runs touch or overlap
        return [(start, start + max((runs - 2) * stride + run, (runs - 1) * stride + last))]
    result = [(at, at + run) for at in range(start, start + (runs - 1) * stride, stride)]
    result.append((start + (runs - 1) * stride, start + (runs - 1) * stride + last))
    return result


def span_access(span: Span, words: int) -> Access:
    """The first `words` words of a span as an Access. Raises ValueError on an unknown region number."""
    number = span.address >> OFFSET_BITS
    region = _REGIONS.get(number)  # MAIN is 0
    return Access(span.tile, Region(number) if region is None else region, intervals(span, words))


def reads(op: Operation, chip: ChipConfig) -> list[Access]:
    """Words that an operation reads. Exact for moves; a GEMM counts as reading all of its input tile, a VEC as reading
    each block up to the end of its last window."""
    if isinstance(op, Move):
        return [span_access(op.src, op.words)]
    if isinstance(op, Vec):
        return _vec_reads(op, chip)
    a, b = op["a_base"], op["b_base"]
    accesses = [
        Access(op.core, Region.MAIN, [(a, a + op["a_plane"] * op["k_blocks"])]),
        Access(op.core, Region.B, [(b, b + op["n_blocks"] * op.weights(chip.cols))]),
    ]
    if op["addend"] != Addend.NONE:
        if op["addend"] == Addend.PARTIAL:
            words = [(op["addend_base"], op["addend_base"] + op["n_blocks"] * op["pixels"])]
        else:
            words = _of_blocks(op, op["addend_base"], op["n_blocks"])
        accesses.append(Access(op.core, Region.ACC, [(4 * low, 4 * high) for low, high in words]))
    if op["by_channel"] and not op["to_acc"]:
        scales = _of_blocks(op, op["scale"], op["n_blocks"])
        accesses.append(Access(op.core, Region.ACC, [(4 * low, 4 * high) for low, high in scales]))
    return accesses


def _of_blocks(op: Gemm | Vec, base: int, blocks: int) -> list[tuple[int, int]]:
    """The words of ACC from `base` on that hold a number for each channel of so many blocks: biases or multipliers."""
    if not op["by_channel"]:
        return [(base, base + blocks)]
    return [(at, at + 1) for at in range(base, base + SCALED_BIAS_WORDS * blocks, SCALED_BIAS_WORDS)]


def _vec_reads(op: Vec, chip: ChipConfig) -> list[Access]:
    kind, blocks = op["op"], op["blocks"]
    accesses: list[Access] = []
    if reach := _vec_reach(op):
        base, plane = op["x_base"], op["x_plane"]
        unit = 4 if kind == VectorOp.REQUANT else 1
        if reach == plane:
            tiles = [(unit * base, unit * (base + blocks * plane))]
        else:
            tiles = [(unit * at, unit * (at + reach)) for at in range(base, base + blocks * plane, plane)]
        accesses.append(Access(op.core, op.x_region, tiles))
    if second := op.second(chip.lanes):
        region, words = second
        accesses.append(Access(op.core, region, [(op["y_base"], op["y_base"] + words)]))
    for base in [op["addend_base"]] * op["addend"] + [op["scale"]] * op["by_channel"]:
        words = _of_blocks(op, base, blocks)
        accesses.append(Access(op.core, Region.ACC, [(4 * low, 4 * high) for low, high in words]))
    return accesses


def _vec_reach(op: Vec) -> int:
    """Words of each block from its first to the last one under a window; 0 if all windows are outside."""
    in_w, times = op["in_w"], op["repeat"] + 1
    columns, rows = (min(op["out_w"], op["pixels"]) - 1) // times, (op["pixels"] - 1) // op["out_w"] // times
    down = rows * op["stride_h"] + (op["kernel_h"] - 1) * op["dilation"] - op["pad_top"]
    right = columns * op["stride_w"] + (op["kernel_w"] - 1) * op["dilation"] - op["pad_left"]
    if down < 0 or right < 0:
        return 0
    return min(op["x_plane"], min(down, (op["x_plane"] - 1) // in_w) * in_w + min(right, in_w - 1) + 1)


def writes(op: Operation, chip: ChipConfig) -> list[Access]:
    """Words that an operation writes, exactly."""
    if isinstance(op, Move):
        written = span_access(op.dst, op.words)
        return [written._replace(tile=tile) for tile in op.receivers(chip)] if op.copies else [written]
    if isinstance(op, Vec):
        return [Access(op.core, Region.VEC, [(op["dest_base"], op["dest_base"] + op.results(chip.lanes))])]
    base, rows = op["dest_base"], op["n_blocks"] * op["pixels"]
    if op["to_acc"]:
        return [Access(op.core, Region.ACC, [(4 * base, 4 * (base + rows))])]
    return [Access(op.core, Region.OUT, [(base, base + rows)])]
