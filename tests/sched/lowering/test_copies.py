"""MOVEs that several tiles take: what they mean, what they must not be, who waits for them, and when they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.hw.spec.routes import RouteError
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Move, Operation, ScheduleError, Span
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.model.timeline import play
from meshloom.sched.program.disasm import listing
from meshloom.sched.program.program import Instruction, Program
from meshloom.sched.program.routes import copied_tiles, receivers
from meshloom.tb.compare.idle import idle_move
from meshloom.tb.verify.random_programs import copied_ways, random_program
from meshloom.tb.verify.random_schedules import random_operations, schedule_of


def chip(directions: tuple[str, ...] = ("east", "south"), **noc: Any) -> ChipConfig:
    return ChipConfig.model_validate(
        {"name": "copier", "lanes": 4, "spm_words": 512, "semaphores": 48, "trace_records": 1024}
        | {"floorplan": ["dram core core core", "host core spm  ."], "dram": {"words": 1 << 16}}
        | {"noc": {"multicast": list(directions), "arrivals": True} | noc}
    )


CHIP = chip()
DRAM, NEAR, MIDDLE, FAR, BELOW, SPM = 0x00, 0x01, 0x02, 0x03, 0x11, 0x12


def span(tile: int, offset: int = 0, region: Region = Region.MAIN, words: int = 4) -> Span:
    return Span(tile=tile, address=address(region, offset), run=words)


def checked(operations: list[Operation], config: ChipConfig = CHIP) -> Program:
    """The program of some operations, checked."""
    program = unchecked(schedule_of(operations, config), config)
    check(program, config)
    return program


def move(target: int, copies: int, words: int = 4, **fields: Any) -> Move:
    """From DRAM to A of a core, or to a scratchpad."""
    src, dst = span(DRAM, words=words), span(target, words=words)
    plain = Move(issuer=DRAM, src=src, dst=dst, words=words, copies=copies)
    return plain.model_copy(update=fields)


# -- what they mean ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "copies", "taking"),
    [(FAR, 0, (FAR,)), (FAR, 2, (FAR, NEAR, MIDDLE)), (FAR, 1, (FAR, MIDDLE)), (BELOW, 1, (BELOW, NEAR))],
)
def test_the_destination_and_so_many_tiles_before_it_take_the_words(
    target: int, copies: int, taking: tuple[int, ...]
) -> None:
    memories, words = Memories(CHIP), np.arange(16, dtype=np.uint8).reshape(4, 4) + 1
    memories.region(DRAM, Region.MAIN)[:4] = words
    execute([op := move(target, copies)], memories)
    assert op.receivers(CHIP) == taking
    for tile in CHIP.cores:
        assert np.array_equal(memories.region(tile, Region.MAIN)[:4], words if tile in taking else 0 * words)


@pytest.mark.parametrize(
    ("target", "copies", "config", "message"),
    [
        (FAR, 3, CHIP, "ends with 2 tiles in a straight line"),
        (FAR, 1, chip(("west",)), "the last hops lead east, and routers of copier copy to west only"),
        (FAR, 1, chip(()), "routers of copier copy nothing; set noc.multicast"),
        (SPM, 1, chip(data_routing="yx"), None),
        (SPM, 1, CHIP, None),
    ],
)
def test_copies_that_a_chip_cannot_make(target: int, copies: int, config: ChipConfig, message: str | None) -> None:
    if message is None:
        validate(schedule_of([move(target, copies)], config), config)
        return
    with pytest.raises(ScheduleError, match=f"copies = {copies}: .*{message}"):
        validate(schedule_of([move(target, copies)], config), config)


def test_only_cores_and_scratchpads_take_copies() -> None:
    mixed = ChipConfig.model_validate(CHIP.model_dump(mode="json") | {"floorplan": ["dram host core core"]})
    with pytest.raises(RouteError, match=r"tile \(1,0\) is neither core nor scratchpad, and no other takes copies"):
        copied_tiles(mixed, (0, 1, 2), 1)
    assert receivers(mixed, {"src_tile": 0, "dst_tile": 3, "copies": 1}) == (3, 2)


def test_each_tile_that_takes_them_has_room() -> None:
    small = chip()
    op = move(SPM, 1, words=300, src=span(DRAM, words=300), dst=span(SPM, 200, words=300))
    big = small.model_copy(update={"core": small.core.model_copy(update={"a_words": 256})})
    with pytest.raises(ScheduleError, match="copy's destination"):
        validate(schedule_of([op], big), big)


def test_a_listing_says_who_takes_them() -> None:
    text = " ".join(listing(checked([move(FAR, 2)]), CHIP))
    assert " and 2 tiles before it | notify s0 of dram@(0,0)" in text


# -- who waits for them ------------------------------------------------------------------------------------------------


def changed(program: Program, change: Callable[[Instruction], Instruction]) -> Program:
    return replace(
        program,
        streams=tuple(
            replace(stream, instructions=tuple(map(change, stream.instructions))) for stream in program.streams
        ),
    )


def out_and_back() -> list[Operation]:
    """Words come to ACC of two cores at once; the first of them sends them on, and both get others."""
    first = move(MIDDLE, 1, dst=span(MIDDLE, region=Region.ACC))
    back = Move(issuer=NEAR, src=span(NEAR, region=Region.ACC), dst=span(DRAM, 100), words=4)
    return [first, back, first.model_copy(update={"src": span(DRAM, 8)})]


def test_a_tile_on_the_way_waits_for_the_words_and_is_waited_for() -> None:
    program = checked(out_and_back())
    memories = Memories(CHIP)
    memories.region(DRAM, Region.MAIN)[:16] = np.arange(64, dtype=np.uint8).reshape(16, 4)
    execute(out_and_back(), memories)
    assert np.array_equal(memories.region(DRAM, Region.MAIN)[100:104], memories.region(DRAM, Region.MAIN)[:4])
    assert play(program, CHIP).cycles > 0


@pytest.mark.parametrize("waiting", [NEAR, DRAM])
def test_without_either_wait_the_checker_sees_a_race(waiting: int) -> None:
    """The core on the way reads before the words are there, or they are overwritten before it has read."""
    program = unchecked(schedule_of(out_and_back(), CHIP), CHIP)

    def late(code: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """The MOVE of the tile does not wait; what follows does."""
        fields = [dict(one.fields) for one in code]
        for own, after in pairwise(fields):
            if own.get("src_tile") == waiting and own.get("wait_n"):
                after |= {name: own.pop(name) for name in ("wait_sem", "wait_n")}
                break
        return tuple(Instruction(one.opcode, some) for one, some in zip(code, fields, strict=True))

    streams = tuple(replace(stream, instructions=late(stream.instructions)) for stream in program.streams)
    assert streams != program.streams
    wrong = replace(program, streams=streams)
    with pytest.raises(CheckError, match=r"races: (reads|writes) core@\(1,0\) ACC row 0, which"):
        check(wrong, CHIP)


@pytest.mark.parametrize(
    ("copies", "message"),
    [(3, "copies = 3: 3 copies on a way that ends with 2 tiles"), (2, None)],
)
def test_a_program_is_checked_like_its_schedule(copies: int, message: str | None) -> None:
    program = unchecked(schedule_of([move(FAR, 2)], CHIP), CHIP)
    moved = changed(
        program,
        lambda one: replace(one, fields=one.fields | {"copies": copies}) if one.opcode is Opcode.MOVE else one,
    )
    if message is None:
        check(moved, CHIP)
        return
    with pytest.raises(CheckError, match=message):
        check(moved, CHIP)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_random_schedules_with_copies_are_lowered_and_played(seed: int) -> None:
    operations = random_operations(Random(seed), CHIP, 24)
    assert any(op.copies for op in operations if isinstance(op, Move))
    program = unchecked(schedule_of(operations, CHIP), CHIP)
    assert play(program, CHIP).cycles > 0


def test_random_programs_have_copies_and_pass_the_checker() -> None:
    program = random_program(Random(3), CHIP, 12)
    counts = [one.fields.get("copies", 0) for stream in program.streams for one in stream.instructions]
    assert sum(counts) >= 3
    check(program, CHIP)
    assert copied_ways(chip(()), DRAM) == []


# -- when they arrive --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [1, 5, 64, 200])
@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("copies", range(3))
def test_alone_on_the_chip_a_move_takes_what_its_packets_take(words: int, depth: int, copies: int) -> None:
    """Each tile that takes a packet makes its head a cycle later; 0 cycles off."""
    config = chip(data_depth=depth)
    program = checked([move(FAR, copies, words)], config)
    (instruction,) = [one for stream in program.streams for one in stream.instructions if one.opcode is Opcode.MOVE]
    idle = idle_move(instruction.fields, config)
    executed = [entry for entry in play(program, config).executed if entry.opcode is Opcode.MOVE]
    (mover,) = [entry for entry in executed if entry.unit is Unit.MOVER]
    arrived = {
        tile: [entry for entry in executed if entry.tile == tile and entry.unit is Unit.NONE] for tile in CHIP.cores
    }
    assert mover.end - mover.start == idle.cycles
    assert [entry.end - entry.start for entry in arrived[FAR]] == [packet.latency for packet in idle.packets]
    for tile in (NEAR, MIDDLE, FAR)[2 - copies :]:
        assert [entry.wait for entry in arrived[tile]] == [packet.words for packet in idle.packets]
    assert not any(arrived[tile] for tile in (NEAR, MIDDLE)[: 2 - copies])
    for near, far in zip(arrived[MIDDLE], arrived[FAR], strict=False):
        assert near.end < far.end
