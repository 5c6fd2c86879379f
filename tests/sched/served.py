"""Chips that run several programs, small programs for parts of them, and a plain way to place these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS, Opcode, Unit
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.sched.schedulers.loop_order.scheduler import schedule
from meshloom.sched.workload.catalog import find

#: Words of the part of a window in which tests place a program's boot stream.
BOOT_WORDS = 64


def chip_of(*rows: str, **changes: object) -> ChipConfig:
    values: dict[str, object] = {"name": "served", "lanes": 8, "floorplan": rows, "programs": 8, "counters": True}
    return ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 8}} | changes)


#: Four cores between two channels.
FOUR = chip_of("dram core core", "host core core", "dram . .")
#: Two rows that share no link.
ROWS = chip_of("dram core core", "host . .", "dram core core")
#: Six cores, with virtual channels, slower memory, and arrivals in the trace.
SIX = chip_of(
    "dram core core dram", "host core core .", "dram core core .",
    dram={"bytes_per_cycle": 7, "latency": 30}, noc={"data_vcs": 4, "arrivals": True},
)  # fmt: skip


def part_of(chip: ChipConfig, tiles: Sequence[int]) -> ChipConfig:
    """The same chip with nothing but these tiles and the host."""
    kept = {*tiles, chip.host}
    rows = [
        " ".join(kind if 16 * y + x in kept else "." for x, kind in enumerate(row))
        for y, row in enumerate(chip.floorplan)
    ]
    return ChipConfig.model_validate(chip.model_dump() | {"floorplan": rows})


@cache
def _lowered(layer: str, part: str) -> Program:
    chip = ChipConfig.model_validate_json(part)
    (workload,) = find(layer)
    return lower(schedule(workload.shape, chip, 1 << 12, effort=0.1), chip)


def template(layer: str, chip: ChipConfig, cores: int, drams: Sequence[int] = ()) -> Program:
    """A layer for the first cores of a chip, with its tensors and code in some of its channels (none: all)."""
    return _lowered(layer, part_of(chip, (*chip.cores[:cores], *(drams or chip.drams))).model_dump_json())


@dataclass(frozen=True)
class Spot:
    """Where a program is placed: cores, first and end page of its window, slot."""

    cores: tuple[int, ...]
    first_page: int
    end_page: int
    slot: int


def pages(program: Program, chip: ChipConfig) -> int:
    """Pages of the window of a placed program: tensors and code, then the boot stream."""
    ends = [stream.address + len(stream.instructions) * chip.instruction_words for stream in program.streams]
    return -(-(max(ends) + 2 * BOOT_WORDS * chip.instruction_words) // PAGE_WORDS)


def relocate(program: Program, chip: ChipConfig, spot: Spot, clear: bool = True) -> Program:
    """The template on other cores, in another window, reporting to another slot."""
    mine = [tile for tile in chip.cores if tile in {stream.tile for stream in program.streams}]
    there = dict(zip(mine, spot.cores, strict=False))  # a template may leave cores idle
    base = spot.first_page * PAGE_WORDS
    streams = tuple(
        Stream(
            there[stream.tile], stream.unit, stream.dram_tile, base + stream.address,
            tuple(_moved(one, chip, there, base, spot.slot) for one in stream.instructions),
        )
        for stream in program.streams
    )  # fmt: skip
    rights = {
        "slot": spot.slot,
        "cores": sum(1 << chip.cores.index(core) for core in spot.cores),
        "first_page": spot.first_page,
        "end_page": spot.end_page,
    }
    seen: set[int] = set()
    boot: list[Instruction] = []
    for number, stream in enumerate(streams):
        fetch = {
            "tag": number + 1, "tile": stream.tile, "unit": int(stream.unit), "dram": stream.dram_tile,
            "addr": stream.address, "count": len(stream.instructions), "clear": int(clear and stream.tile not in seen),
        }  # fmt: skip
        seen.add(stream.tile)
        boot.append(Instruction(Opcode.FETCH, fetch | rights))
    address = spot.end_page * PAGE_WORDS - BOOT_WORDS * chip.instruction_words
    dram = program.boot.dram_tile
    return Program(chip.digest, streams, Stream(chip.host, Unit.MOVER, dram, address, tuple(boot)), {})


def _moved(
    instruction: Instruction, chip: ChipConfig, there: Mapping[int, int], base: int, slot: int
) -> Instruction:  # fmt: skip
    fields = dict(instruction.fields)
    if instruction.opcode is Opcode.MOVE:
        for tile, address in (("src_tile", "src"), ("dst_tile", "dst")):
            if fields[tile] in chip.drams:
                fields[address] += base
            else:
                fields[tile] = there[fields[tile]]
        fields["notify_tile"] = there[fields["notify_tile"]] if fields["notify"] else 0
    elif instruction.opcode is Opcode.SYNC and fields["n"]:
        if fields["tile"] == chip.host:
            fields["sem"] = slot
        else:
            fields["tile"] = there[fields["tile"]]
    return Instruction(instruction.opcode, fields)


def with_boot(program: Program, *more: Instruction) -> Program:
    """With further instructions at the end of the boot stream."""
    return replace(program, boot=replace(program.boot, instructions=(*program.boot.instructions, *more)))
