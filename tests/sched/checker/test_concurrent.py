"""The checker of programs that may run at the same time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, PAGE_WORDS, Opcode, Unit, address
from meshloom.hw.spec.isa import Region as R
from meshloom.sched.checker.accesses import Access, move_accesses
from meshloom.sched.checker.check import CheckError
from meshloom.sched.checker.concurrent import Grant, Placed, _span, check_concurrent
from meshloom.sched.program.program import Instruction, Program, Stream

from ..served import FOUR, SIX, Spot, chip_of, pages, relocate, template, with_boot

CONV = "conv:6x6x8-8,k3,p1,relu"
#: Three cores, their channels, a scratchpad that nobody is granted.
CHIP = chip_of("dram core core", "host core dram", "spm . .")
A, B, C = CHIP.cores
(D0, D1), (SPM,), HOST = CHIP.drams, CHIP.spms, CHIP.host
FIRST, END = 40, 43
BASE, LIMIT = FIRST * PAGE_WORDS, END * PAGE_WORDS


def placed(chip: ChipConfig, layer: str, cores: tuple[int, ...], slot: int, page: int) -> Placed:
    result = template(layer, chip, len(cores))
    spot = Spot(cores, page, page + pages(result, chip), slot)
    grant = Grant(slot, cores, spot.first_page, spot.end_page)
    return Placed(f"{layer} in slot {slot}", relocate(result, chip, spot), grant)


@pytest.mark.parametrize("chip", [FOUR, SIX], ids=["four", "six"])
def test_programs_with_disjoint_grants_may_run_at_the_same_time(chip: ChipConfig) -> None:
    one = placed(chip, CONV, chip.cores[1:3], 3, 5)
    other = placed(chip, "gemm:24x24x24", (chip.cores[3], chip.cores[0]), 0, one.grant.end_page)
    check_concurrent([one, other], chip)
    check_concurrent([], chip)


def found(placed: list[Placed], chip: ChipConfig) -> str:
    with pytest.raises(CheckError) as error:
        check_concurrent(placed, chip)
    return str(error.value)


def test_beside_running_programs_only_what_is_shared_is_proved() -> None:
    """Each of them was proved by itself when it was placed."""
    chip = FOUR
    one = placed(chip, CONV, chip.cores[:2], 3, 5)
    running = placed(chip, CONV, chip.cores[2:], 4, one.grant.end_page)
    bare = replace(running, program=replace(running.program, boot=replace(running.program.boot, instructions=())))
    check_concurrent([one], chip, [bare])
    with pytest.raises(CheckError, match="is never started"):
        check_concurrent([bare], chip, [one])
    with pytest.raises(CheckError, match=f"{one.name}: has slot 4, as {running.name} has"):
        check_concurrent([replace(one, grant=replace(one.grant, slot=4))], chip, [bare])


def test_a_program_and_its_successor_share_what_nobody_else_may() -> None:
    """Its cores, its slot and its window; what is launched beside them has others."""
    chip = FOUR
    one = placed(chip, CONV, chip.cores[:2], 3, 5)
    after = replace(one, name="after", grant=replace(one.grant, cores=chip.cores[:3]))
    beside = placed(chip, CONV, chip.cores[3:], 4, one.grant.end_page)
    check_concurrent([beside], chip, [one, after])
    for grant, why in (
        (replace(beside.grant, slot=3), "has slot 3, as"),
        (replace(beside.grant, cores=chip.cores[2:3]), f"{beside.name}: has core@(1,1), as after has"),
        (replace(beside.grant, first_page=one.grant.end_page - 1), f"{beside.name}: has pages"),
    ):
        with pytest.raises(CheckError) as raised:
            check_concurrent([replace(beside, grant=grant)], chip, [one, after])
        assert why in str(raised.value)


def test_what_is_granted_twice_is_named() -> None:
    chip = FOUR
    one = placed(chip, CONV, chip.cores[:2], 3, 5)
    beside = placed(chip, CONV, chip.cores[2:], 4, 5 + 2)
    for grant, why in (
        (replace(one.grant, slot=4), f"{one.name}: has slot 4, as {beside.name} has"),
        (replace(one.grant, cores=chip.cores[:3]), f"{one.name}: has core@(1,1), as {beside.name} has"),
        (replace(one.grant, end_page=9), f"{beside.name}: has pages 7.."),
    ):
        assert why in found([beside, replace(one, grant=grant)], chip)


def test_a_window_inside_another_is_found_behind_a_short_one() -> None:
    """The window that ends last counts, not the one that begins last."""
    grants = [Grant(0, (A,), 0, 90), Grant(1, (B,), 1, 2), Grant(2, (C,), 50, 60)]
    both = [replace(valid(), name=f"p{grant.slot}", grant=grant) for grant in grants]
    text = found(both, CHIP)
    assert "p1: has pages 1..1, and p0 has 0..89" in text
    assert "p2: has pages 50..59, and p0 has 0..89" in text


@pytest.mark.parametrize(
    ("grant", "why"),
    [
        (Grant(8, (A,), 0, 1), "slot 8"),
        (Grant(0, (), 0, 1), "its cores are none"),
        (Grant(0, (A, A), 0, 1), "grant distinct cores"),
        (Grant(0, (A, D0), 0, 1), "grant distinct cores"),
        (Grant(0, (A,), 3, 3), "its window is pages 3..2"),
        (Grant(0, (A,), -1, 3), "its window is pages"),
        (Grant(0, (A,), 1023, 1025), "a channel has pages 0..1023"),
    ],
)
def test_grants_that_no_chip_can_give(grant: Grant, why: str) -> None:
    assert why in found([replace(valid(), grant=grant)], CHIP)


# -- mutants of a program that uses everything it may ------------------------------------------------------------------


def move(src_tile: int, src: int, dst_tile: int, dst: int, **fields: int) -> Instruction:
    body = {"src_tile": src_tile, "src": src, "src_run": 8, "dst_tile": dst_tile, "dst": dst, "dst_run": 8, "words": 8}
    return Instruction(Opcode.MOVE, body | fields)


def report(**fields: int) -> Instruction:
    return Instruction(Opcode.SYNC, {"tile": HOST, "sem": 2, "n": 1} | fields)


def valid() -> Placed:
    """A program on two cores, at the very ends of its window."""
    codes = {
        (A, Unit.MOVER): (
            move(D0, BASE, A, 0, notify=1, notify_tile=A, notify_sem=1),
            move(D1, LIMIT - 30, A, 8, src_run=10, src_stride=20, words=20, dst_run=20, notify=1, notify_tile=B),
            move(A, address(R.OUT, 0), D1, LIMIT - 8, post_sem=3, post_n=1),
            move(A, address(R.OUT, 8), B, 5, notify=1, notify_tile=A),
            move(B, address(R.OUT, 8), A, 5, post_sem=3, post_n=1, notify=1, notify_tile=B),
            Instruction(Opcode.SYNC, {"tile": B, "sem": 2, "n": 1}),
            Instruction(Opcode.SYNC, {"post_sem": 5, "post_n": 1}),
            report(),
        ),
        (B, Unit.MOVER): (move(D0, BASE + 9, B, 0), report()),
        (B, Unit.MATRIX): (Instruction(Opcode.GEMM, {"pixels": 1}), report()),
    }
    grant = Grant(2, (A, B), FIRST, END)
    rights = {"slot": 2, "cores": 0b011, "first_page": FIRST, "end_page": END}
    streams, boot = [], []
    cleared: set[int] = set()
    for number, ((tile, unit), code) in enumerate(codes.items()):
        stream_at = BASE + 1024 + 64 * number
        streams.append((tile, unit, stream_at, code))
        fetch = {"tile": tile, "unit": int(unit), "dram": D0, "addr": stream_at, "count": len(code)}
        boot.append(Instruction(Opcode.FETCH, fetch | rights | {"clear": int(tile not in cleared)}))
        cleared.add(tile)
    result = tuple(Stream(tile, unit, D0, at, code) for tile, unit, at, code in streams)
    return Placed("p", Program(CHIP.digest, result, Stream(HOST, Unit.MOVER, D1, LIMIT - 12, tuple(boot)), {}), grant)


def changed(stream: int, position: int, **fields: int) -> Placed:
    """With other fields in one instruction; stream 0 is the boot stream."""
    one = valid()
    streams = [one.program.boot, *one.program.streams]
    code = list(streams[stream].instructions)
    code[position] = replace(code[position], fields=code[position].fields | fields)
    return with_streams(one, stream, tuple(code))


def with_streams(one: Placed, stream: int, code: tuple[Instruction, ...], **changes: int) -> Placed:
    streams = [one.program.boot, *one.program.streams]
    streams[stream] = replace(streams[stream], instructions=code, **changes)
    return replace(one, program=replace(one.program, boot=streams[0], streams=tuple(streams[1:])))


def test_it_may_use_all_that_it_is_granted() -> None:
    check_concurrent([valid()], CHIP)


@pytest.mark.parametrize(
    ("stream", "position", "fields", "why"),
    [
        (1, 0, {"src": BASE - 1}, f"reads dram@(0,0) words {BASE - 1}.."),
        (1, 0, {"src": LIMIT - 7}, "reads dram@(0,0)"),
        (1, 0, {"src": address(R.TRACE, BASE)}, "reads dram@(0,0) TRACE"),
        (1, 1, {"src": LIMIT - 29}, "reads dram@(2,1)"),
        (1, 1, {"src_stride": 21}, f"reads dram@(2,1) words {LIMIT - 30}..{LIMIT}"),
        (1, 1, {"words": 21, "src_run": 10}, "reads dram@(2,1)"),
        (1, 1, {"src_run": 31, "words": 32}, "reads dram@(2,1)"),
        (1, 2, {"dst": LIMIT - 7}, "writes dram@(2,1)"),
        (1, 2, {"dst_run": 4, "dst_stride": 5}, "writes dram@(2,1)"),
        (1, 2, {"dst": address(R.B, BASE)}, "writes dram@(2,1) B"),
        (1, 2, {"dst_tile": SPM}, "writes spm@(0,2)"),
        (1, 2, {"dst_tile": HOST}, "writes host@(0,1)"),
        (1, 3, {"dst_tile": C}, "writes core@(1,1)"),
        (1, 4, {"src_tile": C}, "reads core@(1,1)"),
        (1, 4, {"src_tile": SPM}, "reads spm@(0,2)"),
        (1, 4, {"src_tile": 0x77}, "reads nothing@(7,7)"),
        (1, 0, {"dst_tile": B}, "pulls to core@(2,0)"),
        (1, 0, {"post_n": 1}, "posts to a semaphore of dram@(0,0)"),
        (1, 0, {"notify_tile": C}, "notifies core@(1,1)"),
        (1, 0, {"notify_tile": D0}, "notifies dram@(0,0)"),
        (1, 0, {"notify_tile": HOST, "notify_sem": 2}, "notifies host@(0,1)"),
        (1, 0, {"words": 0}, "words = 0"),
        (1, 0, {"src_run": 0}, "src_run = 0"),
        (1, 0, {"dst_run": 0}, "dst_run = 0"),
        (1, 5, {"tile": C}, "adds 1 to semaphore 2 of core@(1,1)"),
        (1, 5, {"tile": HOST}, "adds 1 to semaphore 2 of host@(0,1)"),
        (1, 7, {"sem": 1}, "adds 1 to semaphore 1 of host@(0,1)"),
        (1, 7, {"n": 2}, "adds 2 to semaphore 2 of host@(0,1)"),
        (1, 7, {"n": 0}, "core@(1,0) mover stream: does not report its end"),
        (3, 1, {"tile": B}, "core@(2,0) matrix stream: does not report its end"),
        (0, 0, {"slot": 1}, "slot = 0x1"),
        (0, 1, {"cores": 0b111}, "cores = 0x7"),
        (0, 1, {"cores": 0}, "cores = 0x0"),
        (0, 2, {"first_page": FIRST - 1}, "first_page = "),
        (0, 2, {"end_page": END + 1}, "end_page = "),
        (0, 0, {"clear": 0}, "clear = 0"),
        (0, 2, {"clear": 1}, "clear = 1"),
        (0, 1, {"tile": C}, "starts core@(1,1) mover"),
        (0, 1, {"tile": A}, "starts core@(1,0) mover"),
        (0, 1, {"unit": 3}, "starts core@(2,0) none"),
        (0, 1, {"addr": BASE + 1024}, "fetches 2 instructions"),
        (0, 1, {"count": 3}, "fetches 3 instructions"),
        (0, 1, {"dram": D1}, "fetches 2 instructions from dram@(2,1)"),
        (0, 0, {"wait_n": 1}, "wait_n = 1"),
        (0, 0, {"post_n": 1}, "post_n = 1"),
        (0, 0, {"fire_at": 100}, "fire_at = 100"),
    ],
)
def test_mutants_die(stream: int, position: int, fields: dict[str, int], why: str) -> None:
    assert why in found([changed(stream, position, **fields)], CHIP)


def test_mutants_of_code_die() -> None:
    one = valid()
    mover = one.program.streams[0].instructions
    for code, why in (
        (mover[:-1], "does not report its end"),
        ((report(), *mover), "adds 1 to semaphore 2 of host@(0,1)"),
        ((Instruction(Opcode.FETCH, one.program.boot.instructions[0].fields), *mover), "is FETCH in a mover stream"),
        ((Instruction(Opcode.END), *mover), "is END in a mover stream"),
        ((Instruction(Opcode.GEMM), *mover), "is GEMM in a mover stream"),
        ((Instruction(Opcode.ROUTE, {"routed": 1}), *mover), "sets a source route"),
    ):
        assert why in found([with_streams(one, 1, code)], CHIP), why
    check_concurrent([with_code_of(one, (Instruction(Opcode.ROUTE, {"channel": 1}), *mover))], CHIP)
    for stream, changes, why in (
        (1, {"address": LIMIT - 7}, "its code is words"),
        (1, {"address": BASE - 1}, "its code is words"),
        (0, {"address": LIMIT - 11}, "boot stream: its code is words"),
        (1, {"dram_tile": SPM}, "its code lies in spm@(0,2)"),
        (1, {"tile": C}, "runs on a tile that is not granted"),
        (1, {"tile": B}, "its unit has another stream"),
        (0, {"tile": A}, "boot stream: runs on core@(1,0)"),
    ):
        code = [one.program.boot, *one.program.streams][stream].instructions
        assert why in found([with_streams(one, stream, code, **changes)], CHIP), why
    fewer = replace(one, program=with_boot(replace(one.program, boot=replace(one.program.boot, instructions=()))))
    assert "is never started" in found([fewer], CHIP)
    waits = replace(one, program=with_boot(one.program, Instruction(Opcode.SYNC)))
    assert "is no FETCH" in found([waits], CHIP)


def with_code_of(one: Placed, code: tuple[Instruction, ...]) -> Placed:
    """With other code in the first stream, and a boot stream that fetches all of it."""
    fetch, *others = one.program.boot.instructions
    fetch = replace(fetch, fields=fetch.fields | {"count": len(code)})
    return with_streams(with_streams(one, 1, code), 0, (fetch, *others))


def test_every_word_of_a_walk_counts() -> None:
    random = Random(3)
    walks = [
        (random.randrange(1000), random.randint(1, 9), random.randrange(12), random.randint(1, 40)) for _ in range(500)
    ]
    first, last = _span(*(np.array(column, np.int64) for column in zip(*walks, strict=True)))
    for at, (start, run, stride, words) in enumerate(walks):
        touched = [start + i // run * stride + i % run for i in range(words)]
        assert (first[at], last[at]) == (min(touched), max(touched))


# -- random mutants, against a plain account of every word ------------------------------------------------------------


def may(one: Placed, chip: ChipConfig) -> bool:
    """Whether all MOVEs and SYNCs of a program stay inside its grant."""
    grant = one.grant
    begin, end = grant.first_page * PAGE_WORDS, grant.end_page * PAGE_WORDS

    def inside(access: Access) -> bool:
        if access.tile in chip.drams:
            return access.region == R.MAIN and begin <= int(access.begins.min()) and int(access.ends.max()) <= end
        return access.tile in grant.cores

    for stream in one.program.streams:
        for position, instruction in enumerate(stream.instructions):
            last, fields = position == len(stream.instructions) - 1, instruction.fields
            if instruction.opcode is Opcode.SYNC:
                home = (fields["tile"], fields["sem"], fields["n"]) == (chip.host, grant.slot, 1)
                if last != home or (fields["n"] and not home and fields["tile"] not in grant.cores):
                    return False
            elif instruction.opcode is Opcode.MOVE:
                if not fields["words"] * fields["src_run"] * fields["dst_run"]:
                    return False
                if not all(map(inside, move_accesses(fields))):
                    return False
                if fields["src_tile"] != stream.tile != fields["dst_tile"]:
                    return False
                if fields["post_n"] and fields["src_tile"] not in grant.cores:
                    return False
                if fields["notify"] and fields["notify_tile"] not in grant.cores:
                    return False
    return True


def mutated(one: Placed, random: Random, chip: ChipConfig) -> Placed:
    """With another value in one field of one MOVE or SYNC: a neighbour, another tile, or any."""
    streams = list(one.program.streams)
    number = random.randrange(len(streams))
    code = list(streams[number].instructions)
    position = random.choice([at for at, each in enumerate(code) if each.opcode in (Opcode.MOVE, Opcode.SYNC)])
    instruction = code[position]
    names = {
        Opcode.MOVE: ("src", "dst", "src_run", "dst_run", "src_stride", "dst_stride", "words", "src_tile", "dst_tile",
                      "notify_tile", "notify", "post_n"),
        Opcode.SYNC: ("tile", "sem", "n"),
    }  # fmt: skip
    name = random.choice(names[instruction.opcode])
    most, old = INSTRUCTIONS[instruction.opcode].most(name), instruction.fields[name]
    if name.endswith("tile"):
        new = random.choice((*chip.tiles, 0x77))
    else:
        new = random.choice((old + 1, old - 1, old + PAGE_WORDS, old - PAGE_WORDS, old * 2, random.randint(0, most)))
    code[position] = replace(instruction, fields=instruction.fields | {name: min(max(new, 0), most)})
    streams[number] = replace(streams[number], instructions=tuple(code))
    return replace(one, program=replace(one.program, streams=tuple(streams)))


@pytest.mark.parametrize("seed", range(3))
def test_random_mutants_are_judged_as_by_a_plain_account(seed: int) -> None:
    random = Random(seed)
    one = valid() if seed == 0 else placed(FOUR, CONV, FOUR.cores[1:3], 3, 5)
    chip = CHIP if seed == 0 else FOUR
    message = {True: 0, False: 0}
    for _ in range(400):
        mutant = mutated(one, random, chip)
        try:
            check_concurrent([mutant], chip)
            found = True
        except CheckError:
            found = False
        assert found == may(mutant, chip), mutant.program
        message[found] += 1
    assert min(message.values()) > 40
