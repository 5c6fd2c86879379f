"""Whether a schedule can run on a chip: tiles, memories, extents, field widths, digest."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position
from meshloom.hw.spec.isa import (
    ADDRESS,
    INSTRUCTIONS,
    OPERAND_WALKS,
    TWO_OPERANDS,
    WHOLE_PAIRS,
    WINDOWED,
    Addend,
    IsaError,
    Opcode,
    Pair,
    Region,
    VectorOp,
    YWalk,
    split_address,
    units_of,
    vector_ops,
)
from meshloom.hw.spec.routes import RouteError

from ..program.routes import check_route
from .schedule import (
    GEMM_FIELDS,
    VEC_FIELDS,
    Access,
    Execution,
    Gemm,
    Move,
    Schedule,
    ScheduleError,
    Span,
    Tensor,
    Vec,
    memory_words,
    reads,
    span_access,
    writes,
)

#: Tiles whose movers have a stream of MOVEs: the host's stream boots the chip, a controller's is executed elsewhere.
_ISSUERS = (TileKind.CORE, TileKind.SPM, TileKind.DRAM)
_WINDOW = ("in_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels")
#: Fields that must be at least 1.
_COUNTS = {Opcode.GEMM: ("a_plane", "k_blocks", "n_blocks", *_WINDOW), Opcode.VEC: ("x_plane", "blocks", *_WINDOW)}
_FIELDS = {Opcode.GEMM: GEMM_FIELDS, Opcode.VEC: VEC_FIELDS}


def validate(schedule: Schedule, chip: ChipConfig) -> None:
    """Checks that a schedule can run on a chip: tiles, memories, extents, field widths, execution, digest.

    Raises ScheduleError with the first fault found: operation index, label, line of its author's and fix.
    """
    if schedule.chip_digest != chip.digest:
        raise ScheduleError(
            f"schedule of {schedule.workload} was made for chip {schedule.chip} ({schedule.chip_digest[:12]}), "
            f"not for {chip.name} ({chip.digest[:12]}); schedule the workload again for this chip"
        )
    if schedule.execution not in set(Execution):  # `model_copy` does not validate
        raise ScheduleError(f"execution {schedule.execution!r} is not one of {', '.join(Execution)}")
    if schedule.execution == Execution.TIMED and chip.dtt is None:
        raise ScheduleError(
            f"schedule of {schedule.workload} is timed, and chip {chip.name} has no controller to time it; draw a "
            '"dtt" tile into its floorplan, or set its execution to "triggered"'
        )
    for tensor in schedule.tensors:
        _check_tensor(tensor, chip)
    _check_disjoint(schedule.tensors)
    for index, op in enumerate(schedule.operations):
        try:
            if isinstance(op, Move):
                _check_move(op, chip)
            elif isinstance(op, Gemm):
                _check_gemm(op, chip)
            else:
                _check_vec(op, chip)
        except (ScheduleError, IsaError, RouteError) as error:
            site = schedule.sites[index] if schedule.sites and index < len(schedule.sites) else ""
            named = ", ".join(filter(None, (op.label, site)))
            raise ScheduleError(f"operation {index}{f' ({named})' if named else ''}: {error}") from error


def _name(tile: int) -> str:
    return "tile ({}, {})".format(*tile_position(tile))


def _check_tensor(tensor: Tensor, chip: ChipConfig) -> None:
    words = tensor.layout.words(chip.lanes)
    if tensor.words != words:
        raise ScheduleError(f"tensor {tensor.name!r}: pieces hold {tensor.words} words, its layout takes {words}")
    for piece in tensor.pieces:
        if chip.tiles.get(piece.tile) is not TileKind.DRAM:
            raise ScheduleError(f"tensor {tensor.name!r}: {_name(piece.tile)} is not a DRAM tile; tensors live in DRAM")
        if piece.address + piece.words > chip.dram.words:
            raise ScheduleError(
                f"tensor {tensor.name!r}: words {piece.address}..{piece.address + piece.words - 1} end past the "
                f"{chip.dram.words} words of the DRAM at {_name(piece.tile)}; raise dram.words to "
                f"{piece.address + piece.words}, or spread the tensor"
            )


def _check_disjoint(tensors: Iterable[Tensor]) -> None:
    # Outputs may reuse the space of inputs that are no longer needed; what the host writes must not overlap.
    for roles in (("input", "constant"), ("output",)):
        held = sorted((p.tile, p.address, p.words, t.name) for t in tensors if t.role in roles for p in t.pieces)
        for (tile, address, words, name), (other_tile, other, _, other_name) in pairwise(held):
            if tile == other_tile and address + words > other:
                raise ScheduleError(
                    f"tensors {name!r} and {other_name!r} both claim word {other} of the DRAM at {_name(tile)}; "
                    "place them apart"
                )


def _check_span(span: Span, words: int, what: str, chip: ChipConfig) -> Access:
    kind = chip.tiles.get(span.tile)
    if kind is None:
        raise ScheduleError(f"{what} {_name(span.tile)} lies outside the floorplan of {chip.name}")
    region, _ = split_address(span.address)
    if span.address >> ADDRESS.width:
        raise ScheduleError(f"{what} has address {span.address}, out of range: addresses have {ADDRESS.width} bits")
    room = memory_words(chip, span.tile, region)
    if not room:
        name = next((member.name for member in Region if member == region), f"region {region}")
        raise ScheduleError(
            f"{what} is {name} of a {kind} tile; MAIN lies in core, spm and dram tiles, B, ACC, OUT and VEC in cores"
        )
    access = span_access(span, words)
    if access.intervals[-1][1] > room:
        raise ScheduleError(
            f"{what} words {access.intervals[0][0]}..{access.intervals[-1][1] - 1} end past {access.region.name} of "
            f"the {kind} at {_name(span.tile)}, which has {room}; use a lower address or smaller tiles"
        )
    return access


def _check_move(op: Move, chip: ChipConfig) -> None:
    if chip.tiles.get(op.issuer) not in _ISSUERS:
        raise ScheduleError(f"issuer {_name(op.issuer)} has no mover stream; let a core, spm or dram tile issue it")
    if not units_of(chip, chip.tiles[op.issuer]):
        raise ScheduleError(
            f"issuer {_name(op.issuer)} has no mover stream on {chip.name}, where memories do what cores ask of them; "
            "let a core issue it, or set memory_streams = true in its file"
        )
    src = _check_span(op.src, op.words, "source", chip)
    barred = () if chip.core.operand_sources else (Region.MAIN, Region.B)
    if chip.tiles[op.src.tile] is TileKind.CORE and src.region in barred:
        raise ScheduleError(
            f"source is operand memory {'A' if src.region is Region.MAIN else 'B'} of a core, which no mover reads "
            f"without core.operand_sources = true in {chip.name}; keep a copy elsewhere or move from ACC, OUT or VEC"
        )
    dst = _check_span(op.dst, op.words, "destination", chip)
    if dst.region is Region.VEC:
        raise ScheduleError("destination is VEC, which only the vector unit writes; move to A, B, ACC or OUT")
    if op.words > op.dst.run > op.dst.stride:
        raise ScheduleError(
            f"destination runs of {op.dst.run} words overlap at stride {op.dst.stride}; use a stride >= the run"
        )
    if src[:2] == dst[:2] and (word := _common(src.intervals, dst.intervals)) is not None:
        raise ScheduleError(f"source and destination share word {word} of one memory; use separate ranges")
    INSTRUCTIONS[Opcode.MOVE].pack(op.body)
    check_route(chip, op.src.tile, op.dst.tile, op.route, op.channel)
    if op.copies:
        _check_copies(op, chip)


def _check_copies(op: Move, chip: ChipConfig) -> None:
    """Every tile that takes the words has room for them, and none of them sends them."""
    try:
        receivers = op.receivers(chip)
    except RouteError as error:
        raise ScheduleError(f"copies = {op.copies}: {error}") from error
    for tile in receivers[1:]:
        _check_span(op.dst.model_copy(update={"tile": tile}), op.words, "copy's destination", chip)


def _common(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> int | None:
    """A word in both interval lists, or None."""
    i = j = 0
    while i < len(left) and j < len(right):
        if (word := max(left[i][0], right[j][0])) < min(left[i][1], right[j][1]):
            return word
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return None


def _check_compute(op: Gemm | Vec, opcode: Opcode, chip: ChipConfig) -> None:
    name = opcode.name
    if chip.tiles.get(op.core) is not TileKind.CORE:
        raise ScheduleError(f"{_name(op.core)} is not a core; a {name} needs one")
    if unknown := op.fields.keys() - _FIELDS[opcode]:
        names = ", ".join(sorted(_FIELDS[opcode]))
        raise ScheduleError(f"{name} has no body field {min(unknown)!r}; it has {names}")
    INSTRUCTIONS[opcode].pack(op.fields)
    for field in _COUNTS[opcode]:
        if op[field] < 1:
            raise ScheduleError(f"{name}.{field} = {op[field]} must be at least 1")
    plane = "a_plane" if opcode is Opcode.GEMM else "x_plane"
    if op[plane] % op["in_w"]:
        raise ScheduleError(f"{name}.{plane} = {op[plane]} must be whole rows of in_w = {op['in_w']} words")


def _check_extents(op: Gemm | Vec, name: str, accesses: Iterable[Access], chip: ChipConfig) -> None:
    for access in accesses:
        room = memory_words(chip, op.core, access.region)
        if access.intervals[-1][1] > room:
            raise ScheduleError(
                f"{name} uses words {access.intervals[0][0]}..{access.intervals[-1][1] - 1} of {access.region.name}, "
                f"which has {room}; use a lower base or smaller tiles"
            )


def _check_gemm(op: Gemm, chip: ChipConfig) -> None:
    _check_compute(op, Opcode.GEMM, chip)
    if op["addend"] not in tuple(Addend):
        raise ScheduleError(
            f"GEMM.addend = {op['addend']} is none of {', '.join(f'{a.value} {a.name}' for a in Addend)}"
        )
    if op["by_channel"]:
        _check_scaled(op, "GEMM", chip)
        if op["addend"] == Addend.PARTIAL and not op["to_acc"] and op["k_blocks"] * op.taps == 1:
            raise ScheduleError(
                "GEMM has by_channel = 1 with partial sums and a single window, in whose cycles no multipliers can be "
                "read; cut K so that the last part has two or more"
            )
    if op["int4"] and not chip.core.int4:
        raise ScheduleError(
            f"GEMM has int4 = 1: cores of {chip.name} have no weights of four bits; set core.int4 = true in its file"
        )
    if op["int4"] and op.taps % 2:
        raise ScheduleError(
            f"GEMM has int4 = 1 with {op.taps} windows; weights of four bits lie in pairs of windows: give it an even "
            "number"
        )
    read, written = reads(op, chip), writes(op, chip)
    _check_extents(op, "GEMM", (*read, *written), chip)
    if op["to_acc"] and op["addend"] != Addend.NONE:
        addend, dest = read[-1].intervals, written[0].intervals
        word = None if op["addend"] == Addend.PARTIAL and addend == dest else _common(addend, dest)
        if word is not None:
            raise ScheduleError(
                f"GEMM writes ACC word {word // 4}, which is also an addend of another row; only partial sums with "
                "addend_base = dest_base may be updated in place"
            )


def _check_scaled(op: Gemm | Vec, name: str, chip: ChipConfig) -> None:
    """That an operation may have multipliers by channel."""
    if not chip.core.channel_scales:
        raise ScheduleError(
            f"{name} has by_channel = 1: the cores of {chip.name} have one multiplier for all channels; set "
            "core.channel_scales = true in its file"
        )
    if not op["addend"]:
        raise ScheduleError(f"{name} has by_channel = 1 without a bias; it must be 0")


def _check_whole(op: Vec, name: str, chip: ChipConfig) -> None:
    """That a VEC of whole blocks is one that there is."""
    if not chip.core.vec_whole:
        raise ScheduleError(
            f"VEC {name} of whole blocks: the cores of {chip.name} have none; set core.vec_whole = true in its file"
        )
    if (op["op"], op["pair"]) not in WHOLE_PAIRS:
        pairs = ", ".join(f"{kind.name} with {pair.name}" for kind, pair in WHOLE_PAIRS)
        raise ScheduleError(f"VEC {name} of whole blocks has pair = {op['pair']}; there are {pairs}")
    if op["addend"] or op["repeat"] or op.taps != 1:
        raise ScheduleError(f"VEC {name} of whole blocks has an addend, repeat or a window; it must have none")


def _check_vec(op: Vec, chip: ChipConfig) -> None:
    _check_compute(op, Opcode.VEC, chip)
    kind = op["op"]
    name = VectorOp(kind).name
    if kind == VectorOp.TABLE and not chip.core.vec_table:
        raise ScheduleError(f"VEC TABLE: the cores of {chip.name} have no table; set core.vec_table = true in its file")
    if kind != VectorOp.TABLE and kind not in vector_ops(chip.core):
        raise ScheduleError(
            f"VEC {name}: the cores of {chip.name} have no such operation; add {name.lower()!r} to core.vec_ops in its "
            "file"
        )
    if kind not in WINDOWED and op.taps != 1:
        raise ScheduleError(f"VEC {name} has a window of {op['kernel_h']}x{op['kernel_w']}; it must be 1x1")
    if op["repeat"] and op.taps != 1:
        raise ScheduleError(f"VEC {name} has repeat = {op['repeat']} with a window; one of them must go")
    if op.whole:
        _check_whole(op, name, chip)
    if op["pair"] and kind != VectorOp.PAIR and not op.whole:
        raise ScheduleError(f"VEC {name} has pair = {op['pair']} ({Pair(op['pair']).name}); it must be 0")
    if op["y_walk"] not in (OPERAND_WALKS if kind in TWO_OPERANDS else (YWalk.EACH,)) and not op.whole:
        raise ScheduleError(
            f"VEC {name} has y_walk = {op['y_walk']}; only ADD and PAIR have 1 BLOCK and 2 PIXEL, and MAC, SUM and MAX "
            "3 WHOLE"
        )
    if op["times16"] and not op.requantises:
        raise ScheduleError(f"VEC {name} has times16 = 1, but no scale; it must be 0")
    if op["x_out"] and kind in (*TWO_OPERANDS, VectorOp.REQUANT):
        place = "A" if kind in TWO_OPERANDS else "ACC"
        raise ScheduleError(f"VEC {name} has x_out = 1, but its x lies in {place}; x_out must be 0")
    if op["addend"] and kind not in (VectorOp.MAC, VectorOp.SUM):
        raise ScheduleError(f"VEC {name} has addend = 1; only MAC and SUM add a bias, so addend must be 0")
    if op["by_channel"]:
        _check_scaled(op, f"VEC {name}", chip)
        if kind != VectorOp.MAC or op.whole or op.taps == 1:
            raise ScheduleError(f"VEC {name} has by_channel = 1; only a MAC with a window of several taps may")
    _check_extents(op, f"VEC {name}", (*reads(op, chip), *writes(op, chip)), chip)
