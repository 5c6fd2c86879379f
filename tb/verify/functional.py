"""Functional coverage: which forms of instructions, causes of waiting, pairs of units and faults random programs bring
about, and which they could.

A bin is a thing that can happen on a chip. What happens is read from programs that ran as predicted, so it is judged as
well as reached. What the instruction set excludes is no bin; what random programs can't bring about is waived by name
and reason (`WAIVED`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from random import Random

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import (
    COMPUTES,
    OPERAND_WALKS,
    REQUANTISING,
    TWO_OPERANDS,
    WHOLE_PAIRS,
    WINDOWED,
    Addend,
    Cause,
    Opcode,
    Pair,
    Region,
    VectorOp,
    YWalk,
    split_address,
    units_of,
    vector_ops,
)
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.program.program import Instruction, Program

from ..compare.causes import Activity, Causes
from ..compare.records import Timed, locate
from ..devices.interface import Fault
from .damage import damaged
from .random_programs import random_program

#: Groups of bins, and what one of each is.
GROUPS: Mapping[str, str] = {
    "GEMM": "two properties of a GEMM at once",
    "VEC": "an operation of the vector unit and a property",
    "MOVE": "from which memory to which, and who asks",
    "notes": "whom a MOVE or SYNC tells, and how its data are led",
    "waiting": "an instruction and what it waited for",
    "units": "a unit that waited, and the one that ended it",
    "faults": "a fault and the kind of tile that raised it",
}
#: Bins of a group that random programs cannot bring about, by how they begin, and why.
WAIVED: Mapping[str, Mapping[str, str]] = {
    "faults": {
        Cause.BUS.name: "needs a DRAM that answers with an error: tests/hw/test_dram_port_faults.py",
        Cause.PARITY.name: "needs a bit that flips on a wire: tests/tb/test_flips.py",
        Cause.LENGTH.name: "needs a bit that flips on a wire: tests/tb/test_flips.py",
        Cause.ECC.name: "needs two bits of a word that flip: tests/tb/test_ecc.py",
        Cause.RIGHTS.name: "needs programs that come and go: tests/tb/test_serving_faults.py",
    },
}
#: Kinds of tiles whose units have streams in random programs.
_KINDS = (TileKind.CORE, TileKind.DRAM, TileKind.SPM)

#: What can end just before the post that an instruction waited for.
_POSTS = (
    Activity.PIPELINE, Activity.VECTOR, Activity.FLIGHT, Activity.POST, Activity.ISSUE, Activity.HELD_UP,
)  # fmt: skip


@dataclass(frozen=True)
class FunctionalCoverage:
    """`bins`: by group, how often each of its bins was reached; `programs` that were judged, `refused` ones that ran
    to see how they end, of which `faults` ended in one."""

    programs: int
    refused: int
    faults: int
    bins: dict[str, dict[str, int]]


# -- what instructions are ---------------------------------------------------------------------------------------------


def gemm_properties(fields: Mapping[str, int]) -> dict[str, str]:
    """The properties of a GEMM by name."""
    return {
        "adds": Addend(fields["addend"]).name,
        "to": "ACC" if fields["to_acc"] else "OUT",
        "scales": "of channels" if fields["by_channel"] else "one",
        "weights": "four bits" if fields["int4"] else "bytes",
        "taps": _many(fields["kernel_h"] * fields["kernel_w"]),
        "input blocks": _many(fields["k_blocks"]),
        "output blocks": _many(fields["n_blocks"]),
        "stride": _many(max(fields["stride_h"], fields["stride_w"])),
        "dilation": _many(fields["dilation"]),
        "padding": "some" if fields["pad_top"] or fields["pad_left"] else "none",
        "relu": str(bool(fields["relu"])),
        "clamp": str(fields["clamp"] != _NO_CLAMP),
    }


_NO_CLAMP = 127
_VALUES: Mapping[str, tuple[str, ...]] = {
    "adds": tuple(each.name for each in Addend), "to": ("ACC", "OUT"), "scales": ("one", "of channels"),
    "weights": ("bytes", "four bits"),
    **dict.fromkeys(("taps", "input blocks", "output blocks", "stride", "dilation"), ("one", "several")),
    "padding": ("none", "some"), "relu": ("False", "True"), "clamp": ("False", "True"),
}  # fmt: skip


def _many(count: int) -> str:
    return "one" if count == 1 else "several"


def _pairs(properties: Mapping[str, str]) -> Iterator[str]:
    for (one, value), (other, second) in combinations(properties.items(), 2):
        yield f"{one} {value}, {other} {second}"


def _no_gemm(properties: Mapping[str, str]) -> bool:
    """Whether the instruction set excludes both properties together."""
    return properties.get("adds") == Addend.NONE.name and properties.get("scales") == "of channels"


def _gemm_bins(chip: ChipConfig) -> Iterator[str]:
    for (one, values), (other, seconds) in combinations(_VALUES.items(), 2):
        for value, second in product(values, seconds):
            pair = {one: value, other: second}
            scaled, halved = pair.get("scales") == "of channels", pair.get("weights") == "four bits"
            if not _no_gemm(pair) and chip.core.channel_scales >= scaled and chip.core.int4 >= halved:
                yield f"{one} {value}, {other} {second}"


def vec_properties(fields: Mapping[str, int]) -> Iterator[str]:
    """What a VEC does, and each property that it has besides."""
    op = VectorOp(fields["op"])
    name, walk = op.name, YWalk(fields["y_walk"])
    if op in TWO_OPERANDS:
        yield f"{name}, y {walk.name}"
    if op is VectorOp.PAIR:
        yield f"{name} {Pair(fields['pair']).name}"
    if walk is YWalk.WHOLE:
        yield f"{name}, whole block, {Pair(fields['pair']).name}"
        return
    has = {
        "x in OUT": fields["x_out"], "window": fields["kernel_h"] * fields["kernel_w"] > 1,
        "stride": max(fields["stride_h"], fields["stride_w"]) > 1, "padding": fields["pad_top"] or fields["pad_left"],
        "bias": fields["addend"], "relu": fields["relu"], "clamp": fields["clamp"] != _NO_CLAMP,
        "repeat": fields["repeat"], "16 times": fields["times16"], "scales of channels": fields["by_channel"],
        "several blocks": fields["blocks"] > 1,
    }  # fmt: skip
    yield from (f"{name}, {what}" for what, is_so in has.items() if is_so)


def _vec_bins(chip: ChipConfig) -> Iterator[str]:
    for op in vector_ops(chip.core):
        allowed = {
            "x in OUT": op not in TWO_OPERANDS and op is not VectorOp.REQUANT, "window": op in WINDOWED, "stride": True,
            "padding": True, "bias": op in (VectorOp.MAC, VectorOp.SUM), "relu": True, "clamp": True, "repeat": True,
            "16 times": op in REQUANTISING or op is VectorOp.PAIR,
            "scales of channels": op is VectorOp.MAC and chip.core.channel_scales, "several blocks": True,
        }  # fmt: skip
        yield from (f"{op.name}, {what}" for what, is_so in allowed.items() if is_so)
        if op in TWO_OPERANDS:
            yield from (f"{op.name}, y {walk.name}" for walk in OPERAND_WALKS)
        if op is VectorOp.PAIR:
            yield from (f"{op.name} {pair.name}" for pair in Pair)
    if chip.core.vec_whole:
        yield from (f"{op.name}, whole block, {pair.name}" for op, pair in WHOLE_PAIRS)


def _memory(chip: ChipConfig, tile: int, word: int) -> str:
    kind, region = chip.tiles[tile], Region(split_address(word)[0])
    return f"core {'A' if region is Region.MAIN else region.name}" if kind is TileKind.CORE else kind.value


def _move_bins(chip: ChipConfig) -> Iterator[str]:
    outside = [kind.value for kind in (TileKind.DRAM, TileKind.SPM) if kind in chip.tiles.values()]
    operands = ["core A", "core B"] if chip.core.operand_sources else []
    cores = [*operands, "core ACC", "core OUT", *["core VEC"] * chip.core.has_vector]
    sources = [*outside, *cores]
    for source, target in product(sources, [*outside, "core A", "core B", "core ACC", "core OUT"]):
        asks = source in cores or chip.memory_streams
        yield from (f"{source} to {target}, asked by {who}" for who in [*["its source"] * asks, "another tile"])


def _note_bins(chip: ChipConfig) -> Iterator[str]:
    yield from ("MOVE tells its own tile", "MOVE tells another tile", "MOVE tells nobody")
    yield from ("SYNC tells its own tile", "SYNC tells another tile", "SYNC tells nobody")
    yield from (f"MOVE, {side} {how}" for side in ("source", "destination") for how in ("in a row", "with gaps"))
    if chip.noc.data_vcs > 1 or chip.noc.route_hops:  # where there is a ROUTE it may name the only channel
        yield "ROUTE on a channel"
    if chip.noc.route_hops:
        yield from ("ROUTE along a path", "ROUTE along a path on a channel")


def _notes(tile: int, instruction: Instruction) -> Iterator[str]:
    fields = instruction.fields
    match instruction.opcode:
        case Opcode.MOVE:
            target = fields["notify_tile"] if fields["notify"] else None
            yield f"MOVE tells {_whom(tile, target)}"
            for side, name in (("source", "src"), ("destination", "dst")):
                gaps = fields["words"] > fields[f"{name}_run"] != fields[f"{name}_stride"]
                yield f"MOVE, {side} {'with gaps' if gaps else 'in a row'}"
        case Opcode.SYNC:
            yield f"SYNC tells {_whom(tile, fields['tile'] if fields['n'] else None)}"
        case Opcode.ROUTE:
            how = [" along a path"] * fields["routed"] + [" on a channel"] * bool(fields["channel"])
            if how:
                yield f"ROUTE{''.join(how)}"
        case _:
            return


def _whom(tile: int, target: int | None) -> str:
    return "nobody" if target is None else "its own tile" if target == tile else "another tile"


# -- what happens ------------------------------------------------------------------------------------------------------


def reached(program: Program, records: Iterable[Timed], chip: ChipConfig) -> Counter[tuple[str, str]]:
    """The bins that a program reaches, by group and name, of which these are the records. Raises CompareError,
    AttributionError if they are not."""
    result = Counter[tuple[str, str]]()
    causes = Causes(program, locate(list(records), program), chip)
    for place, record in causes.records.items():
        if place.remote:
            continue
        instruction, tile = causes.instruction(place), place.tile
        fields = instruction.fields
        match instruction.opcode:
            case Opcode.GEMM:
                result.update(("GEMM", each) for each in _pairs(gemm_properties(fields)))
            case Opcode.VEC:
                result.update(("VEC", each) for each in vec_properties(fields))
            case Opcode.MOVE:
                source, target = (_memory(chip, fields[f"{side}_tile"], fields[side]) for side in ("src", "dst"))
                asked = "its source" if fields["src_tile"] == tile else "another tile"
                result["MOVE", f"{source} to {target}, asked by {asked}"] += 1
            case _:
                pass
        result.update(("notes", each) for each in _notes(tile, instruction))
        if chip.tiles[tile] not in _KINDS or place.unit not in units_of(chip, chip.tiles[tile]):
            continue  # the stream that starts all, a controller's
        if fields["fire_at"]:
            result["waiting", f"{instruction.opcode.name} for its fire time"] += 1
        if record.wait:
            activity = next(causes.walk(place)).activity
            if activity is not Activity.START:  # nothing that ended it
                result["waiting", f"{instruction.opcode.name} for a post after: {activity.value}"] += 1
        elif fields["wait_n"]:
            result["waiting", f"{instruction.opcode.name} for a post that was there"] += 1
        if (post := causes.critical.get(place)) is not None:
            by = f"{chip.tiles[post.place.tile].value} {post.place.unit.name.lower()}"
            result["units", f"{chip.tiles[tile].value} {place.unit.name.lower()} for {by}"] += 1
    return result


def raised(fault: Fault, chip: ChipConfig) -> tuple[str, str]:
    """The bin of a fault."""
    return "faults", f"{fault.cause.name} in {chip.tiles[fault.tile].value}"


def bins(chip: ChipConfig) -> dict[str, list[str]]:
    """All bins of a chip by group."""
    kinds = [kind for kind in _KINDS if kind in chip.tiles.values()]
    units = [f"{kind.value} {unit.name.lower()}" for kind in kinds for unit in units_of(chip, kind)]
    causes = [cause for cause in Cause if cause is not Cause.NONE and (cause is Cause.UNREPORTED) is not chip.reports]
    steered = chip.noc.data_vcs > 1 or chip.noc.route_hops
    computes = [COMPUTES[unit] for unit in units_of(chip, TileKind.CORE)[1:]]
    opcodes = [Opcode.MOVE, *computes, Opcode.SYNC, *[Opcode.ROUTE] * bool(steered)]
    whats = [*["its fire time"] * chip.fire_times, "a post that was there"]
    waiting = [
        *(f"{opcode.name} for {what}" for opcode in opcodes for what in whats),
        *(f"{opcode.name} for a post after: {activity.value}" for opcode in opcodes for activity in _POSTS),
        f"{Opcode.GEMM.name} for a post after: {Activity.COMPUTE.value}",
    ]
    return {
        "GEMM": list(_gemm_bins(chip)),
        "VEC": list(_vec_bins(chip)),
        "MOVE": list(_move_bins(chip)),
        "notes": list(_note_bins(chip)),
        "waiting": waiting,
        "units": [f"{one} for {other}" for one, other in product(units, units)],
        "faults": [f"{cause.name} in {kind.value}" for cause in causes for kind in kinds],
    }


def wrong_programs(seed: str, chip: ChipConfig, count: int) -> Iterator[Program]:
    """So many random programs with a changed field, of which the checker refuses each."""
    random, number = Random(seed), 0
    while number < count:
        program = damaged(random, random_program(random, chip, random.randint(1, 6), threads=1))
        try:
            check(program, chip)
        except CheckError:
            number += 1
            yield program


def waiver(group: str, name: str) -> str:
    """Why a bin need not be reached; empty if it has to be."""
    return next((why for begin, why in WAIVED.get(group, {}).items() if name.startswith(begin)), "")


def together(some: Iterable[FunctionalCoverage]) -> dict[str, dict[str, int]]:
    """The bins of several chips, by group."""
    result: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
    for each in some:
        for group, counts in each.bins.items():
            result[group].update(counts)
    return {group: dict(counts) for group, counts in result.items()}
