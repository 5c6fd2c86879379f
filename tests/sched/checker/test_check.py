"""The program checker: accepts good programs, names what is wrong with bad ones, and is right in all timings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import FETCH_TAG, PAGE_WORDS, Opcode, Region, Unit
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.program.program import Instruction, Program
from meshloom.tb.verify.random_programs import random_program

from ...tiers import slow_but
from ..hand_made import (
    CORE,
    DRAM,
    HOST,
    LOADED,
    MATRIX,
    MOVER,
    SPM,
    TINY,
    at,
    fed,
    gemm,
    move,
    problems,
    program,
    sync,
)
from ..interleave import Hang, Interleaver, Overflow
from ..odd_chips import random_chip


def test_good_program() -> None:
    report = check(program(fed()), TINY, initial=[LOADED], outputs=[(DRAM, 32, 4)])
    assert (report.instructions, report.streams, report.peak, report.warnings) == (13, 4, 3, ())


@pytest.mark.parametrize("chip", ["tiny", "quad8", "quad16", "pe12x14", "mono32"])
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_pass(chip: str, seed: int) -> None:
    config = load(chip)
    report = check(random_program(Random(seed), config, 12, threads=1 + seed), config)
    assert report.warnings == ()


@pytest.mark.parametrize("seeds", slow_but([range(24), range(24, 400)], range(24)), ids=["some", "many"])
def test_random_programs_pass_on_every_chip_that_has_room_for_them(seeds: range) -> None:
    """A chip with too little room is refused with a reason."""
    refused: list[str] = []
    for seed in seeds:
        random = Random(seed)
        chip, operations, threads = random_chip(random), random.choice((2, 9)), random.randint(1, 3)
        try:
            one = random_program(random, chip, operations, threads)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert check(one, chip).warnings == ()
    reasons = re.compile(r"too few words|do not fit after the tensors|threads need \d+ semaphores")
    assert all(map(reasons.search, refused))
    assert len(refused) < 2 / 3 * len(seeds)


@pytest.mark.parametrize("words", [1, 2, 127, 128, 300])
def test_random_programs_use_no_more_of_a_scratchpad_than_there_is(words: int) -> None:
    chip = ChipConfig.model_validate(load("quad8").model_dump() | {"name": "small", "spm_words": words})
    for threads in (1, 2, 3):
        one = random_program(Random(words), chip, 8, threads)
        check(one, chip)
        spms = {i.fields["dst_tile"] for s in one.streams for i in s.instructions if i.opcode is Opcode.MOVE}
        assert bool(spms & {*chip.spms}) == (words >= threads)


# -- hangs ----------------------------------------------------------------------------------------------------


def test_missing_post() -> None:
    codes = fed()
    codes[CORE, MATRIX][0].fields["post_n"] = 0
    text = problems(program(codes))
    assert "core@(1,0) mover stream [0] MOVE tag" in text
    assert "semaphore 2 of core@(1,0) >= 1, which stays at 0 (1 missing)" in text
    assert "no remaining instruction posts it" in text
    assert "boot stream [3] SYNC" in text
    assert "next to post it: " in text


def test_wait_for_cycle() -> None:
    codes = {
        (CORE, MATRIX): [sync(wait_sem=1, wait_n=1), sync(tile=DRAM, sem=1, n=1)],
        (DRAM, MOVER): [sync(wait_sem=1, wait_n=1), sync(tile=CORE, sem=1, n=1)],
    }
    text = problems(program(codes))
    cycle = next(line for line in text.splitlines() if "wait-for cycle" in line)
    assert "core@(1,0) matrix stream [0]" in cycle
    assert "dram@(0,0) mover stream [0]" in cycle
    assert "boot stream" not in cycle


def test_the_cycle_names_who_would_post_what() -> None:
    """The post that is needed comes behind the instruction where its stream stands."""
    post = {"tile": CORE, "sem": 1, "n": 1}
    codes = {
        (CORE, MATRIX): [sync(post_sem=4, post_n=1), sync(wait_sem=1, wait_n=2), sync(tile=DRAM, sem=1, n=1)],
        (DRAM, MOVER): [sync(**post), sync(wait_sem=1, wait_n=1), sync(**post)],
    }
    text = problems(program(codes))
    (cycle,) = (line for line in text.splitlines() if "wait-for cycle" in line)
    assert (
        "core@(1,0) matrix stream [1] SYNC tag 102 waits for semaphore 1 of core@(1,0) (has 1, needs 2), "
        "which dram@(0,0) mover stream [2] SYNC tag 107 posts; "
        "dram@(0,0) mover stream [1] SYNC tag 106 waits for semaphore 1 of dram@(0,0) (has 0, needs 1), "
        "which core@(1,0) matrix stream [2] SYNC tag 103 posts, closing the cycle"
    ) in cycle


def test_a_stream_that_is_started_too_late_is_part_of_the_cycle() -> None:
    """The boot stream waits for the end of one stream before it starts the one that would let it end."""
    result = program({(CORE, MATRIX): [sync(wait_sem=1, wait_n=1)], (DRAM, MOVER): [sync(tile=CORE, sem=1, n=1)]})
    fetch = [i for i, instruction in enumerate(result.boot.instructions) if instruction.opcode is Opcode.FETCH]
    code = list(result.boot.instructions)
    late = code.pop(fetch[1])
    code.insert(-1, late)
    text = problems(replace(result, boot=replace(result.boot, instructions=tuple(code))))
    (cycle,) = (line for line in text.splitlines() if "wait-for cycle" in line)
    assert "waits to be started, which boot stream [2] FETCH" in cycle
    assert "boot stream [1] SYNC" in cycle
    assert "core@(1,0) matrix stream [0] SYNC" in cycle


def test_a_post_does_not_start_the_stream_that_waits_for_it() -> None:
    """What DRAM's stream posts is there; but the boot stream starts the core's only when both have ended."""
    result = program({(DRAM, MOVER): [sync(tile=CORE, sem=1, n=1)], (CORE, MATRIX): [sync(wait_sem=1, wait_n=1)]})
    check(result, TINY)
    first, second, *rest = result.boot.instructions
    late = replace(result, boot=replace(result.boot, instructions=(first, *rest[:-1], second, rest[-1])))
    text = problems(late)
    assert "boot stream [1] SYNC" in text
    assert "hangs: waits for semaphore 0 of host@(0,1) >= 2, which stays at 1 (1 missing)" in text


def test_own_posts_to_one_semaphore_go_one_way() -> None:
    """A header's post is made at once, one over the post plane later: whichever comes first, a wait could be meant for
    the other. Another tile's semaphore of that number has nothing to do with it."""
    both = [sync(post_sem=4, post_n=1), sync(tile=CORE, sem=4, n=1), sync(wait_sem=4, wait_n=2)]
    assert (
        "[1] SYNC tag 102: posts semaphore 4 of its own tile, which other SYNCs here post with other fields"
        in problems(program({(CORE, MATRIX): both}))
    )
    check(program({(CORE, MATRIX): [both[0], sync(post_sem=4, post_n=1), both[2]]}), TINY)
    apart = [both[0], sync(tile=SPM, sem=4, n=1), sync(wait_sem=4, wait_n=1)]
    check(program({(CORE, MATRIX): apart, (SPM, MOVER): [sync(wait_sem=4, wait_n=1)]}), TINY)


def test_every_lost_post_hangs() -> None:
    original = random_program(Random(5), load("quad8"), 4, threads=2)
    lost = 0
    for number, stream in enumerate(original.streams):
        for position, instruction in enumerate(stream.instructions):
            for name in ("n", "notify", "post_n"):
                if instruction.fields.get(name):
                    changed = Instruction(instruction.opcode, instruction.fields | {name: 0})
                    assert "hangs" in problems(_with(original, number, position, changed), load("quad8"))
                    lost += 1
    assert lost > 20


def test_two_consumers() -> None:
    codes = fed()
    codes[CORE, MATRIX].insert(0, sync(wait_sem=3, wait_n=1))
    assert "ambiguous" in problems(program(codes))


def test_label_of_operation() -> None:
    @dataclass
    class Operation:
        label: str

    @dataclass
    class Schedule:
        operations: list[Operation]
        tensors: list[object]
        sites: tuple[str, ...] = ("line 7 of first\n.py",)

    codes = fed()
    codes[DRAM, MOVER][0].fields["words"] = 0
    text = problems(program(codes), schedule=Schedule([Operation("load x")], []))
    assert 'tag 101 (operation 0 "load x", line 7 of first\\n.py): words = 0; it must be at least 1' in text


# -- hazards --------------------------------------------------------------------------------------------------


def _with(found: Program, stream: int, position: int, instruction: Instruction) -> Program:
    old = found.streams[stream]
    code = (*old.instructions[:position], instruction, *old.instructions[position + 1 :])
    streams = (*found.streams[:stream], replace(old, instructions=code), *found.streams[stream + 1 :])
    return replace(found, streams=streams)


def test_reads_too_early() -> None:
    codes = fed()
    codes[CORE, MATRIX][0].fields["wait_n"] = 1  # A has surely delivered (in order), B perhaps not
    text = problems(program(codes))
    assert "races: reads core@(1,0) B words 0..3" in text
    assert "dram@(0,0) mover stream [1]" in text
    assert "MAIN" not in text.split("races")[1].split("\n")[0]


def test_sync_does_not_wait_for_the_unit() -> None:
    codes = fed()
    codes[CORE, MATRIX] = [gemm(wait_sem=1, wait_n=2), sync(post_sem=2, post_n=1)]
    assert "races: reads core@(1,0) OUT words 0..3" in problems(program(codes))


def test_sent_is_not_landed() -> None:
    codes = fed()
    for position in (0, 1):  # posts when read, by SYNC to the core, instead of notifying
        codes[DRAM, MOVER][position].fields.update(notify=0, post_sem=1, post_n=1)
    codes[DRAM, MOVER].append(sync(wait_sem=1, wait_n=2, tile=CORE, sem=1, n=2))
    assert "races: reads core@(1,0) A words 0..3" in problems(program(codes))


def test_overwrites_too_early() -> None:
    codes = fed()
    codes[DRAM, MOVER].append(move(DRAM, 16, CORE, at(Region.MAIN)))
    text = problems(program(codes))
    assert "races: reads core@(1,0) A words 0..3, which dram@(0,0) mover stream [2] MOVE" in text
    assert "END does not wait until its words have been delivered" in text


def test_pull_posts_where_it_executes() -> None:
    """A forwarded MOVE's header post fires at the source's tile when it has been read; then it may be overwritten."""
    codes = {
        (CORE, MOVER): [
            move(DRAM, 0, CORE, at(Region.MAIN), post_sem=5, post_n=1, notify=1, notify_tile=CORE, notify_sem=1),
            sync(wait_sem=1, wait_n=1),
        ],
        (SPM, MOVER): [move(DRAM, 8, SPM, 0, notify=1, notify_tile=DRAM, notify_sem=6)],
        (DRAM, MOVER): [
            sync(wait_sem=6, wait_n=1, tile=SPM, sem=7, n=1),
        ],
    }
    back = move(SPM, 0, DRAM, 0, wait_sem=7, wait_n=1, notify=1, notify_tile=SPM, notify_sem=7)
    codes[SPM, MOVER] += [back, sync(wait_sem=7, wait_n=1)]
    text = problems(program(codes), initial=[LOADED])
    assert "races: reads dram@(0,0) words 0..7, which spm@(1,1) mover stream [1] MOVE" in text
    codes[DRAM, MOVER].insert(1, sync())
    codes[DRAM, MOVER][0].fields["n"] = 0
    codes[DRAM, MOVER][1].fields.update(wait_sem=5, wait_n=1, tile=SPM, sem=7, n=1)
    check(program(codes), TINY, initial=[LOADED])


def test_in_order_landings_need_no_wait() -> None:
    codes = fed()
    codes[DRAM, MOVER].insert(0, move(DRAM, 16, CORE, at(Region.MAIN)))
    check(program(codes), TINY, initial=[LOADED])


def test_unwritten_words() -> None:
    text = problems(program(fed()), initial=[(DRAM, 0, 15)])
    assert "reads dram@(0,0) word 15, which nothing has written" in text
    codes = fed()
    codes[CORE, MATRIX][0].fields["addend"] = 1
    assert "reads core@(1,0) ACC row 0, which nothing has written" in problems(program(codes))
    codes = fed()
    codes[CORE, MOVER][0].fields.update(words=5, src_run=5, dst_run=5)
    assert "reads core@(1,0) OUT word 4, which nothing has written" in problems(program(codes))


def test_padding_is_not_read() -> None:
    """Rows of A that no window covers need not be written."""
    codes = fed()
    codes[CORE, MATRIX][0].fields.update(a_plane=64, stride_h=2, out_w=4, pixels=4)
    check(program(codes), TINY, initial=[LOADED])
    codes[CORE, MATRIX][0].fields.update(pixels=8)  # the second output row begins at word 8
    assert "reads core@(1,0) A words 8..11, which nothing" in problems(program(codes), initial=[LOADED])


def test_missing_output() -> None:
    text = problems(program(fed()), outputs=[(DRAM, 32, 5)])
    assert "output dram@(0,0) word 36 is never written" in text


def test_move_onto_itself() -> None:
    copy = move(DRAM, 0, DRAM, 4, notify=1, notify_tile=DRAM, notify_sem=1)
    codes = {(DRAM, MOVER): [copy, sync(wait_sem=1, wait_n=1)]}
    assert "reads and overwrites dram@(0,0) words 4..7" in problems(program(codes))


def test_shared_semaphore_is_ambiguous_in_time() -> None:
    """Two producers on one semaphore: the second load may overtake the first unless the sum says otherwise."""
    delivered = {"notify": 1, "notify_tile": CORE, "notify_sem": 1}
    codes = {
        (DRAM, MOVER): [
            move(DRAM, 0, CORE, at(Region.MAIN), **delivered),
            move(DRAM, 0, CORE, at(Region.MAIN, 8), **delivered),
        ],
        (SPM, MOVER): [
            move(DRAM, 8, CORE, at(Region.B), **delivered),
            move(DRAM, 8, CORE, at(Region.B, 8), **delivered),
        ],
        (CORE, MATRIX): [
            gemm(wait_sem=1, wait_n=2),
            gemm(wait_sem=1, wait_n=2, a_base=8, b_base=8, dest_base=4, post_sem=2, post_n=1),
            sync(wait_sem=2, wait_n=1),
        ],
    }
    text = problems(program(codes))
    assert "core@(1,0) matrix stream [0]" in text
    assert "matrix stream [1]" not in text
    codes[CORE, MATRIX][0].fields["wait_n"] = 3  # three of four: surely one of each
    codes[CORE, MATRIX][1].fields["wait_n"] = 1
    check(program(codes), TINY)


def test_semaphore_overflow() -> None:
    codes = {
        (DRAM, MOVER): [sync(tile=CORE, sem=1, n=15) for _ in range(18)],
        (CORE, MATRIX): [sync(wait_sem=1, wait_n=45) for _ in range(6)],
    }
    text = problems(program(codes))
    assert "semaphore 1 of core@(1,0): can reach 270 before core@(1,0) matrix stream [0]" in text
    ahead = codes[DRAM, MOVER]
    codes[DRAM, MOVER] = ahead[:9] + [sync(wait_sem=1, wait_n=1)] + ahead[9:]
    codes[CORE, MATRIX][1].fields.update(tile=DRAM, sem=1, n=1)
    assert check(program(codes), TINY).peak <= 255


def test_leftover_warning() -> None:
    codes = fed()
    codes[CORE, MATRIX][0].fields["post_n"] = 2
    (warning,) = check(program(codes), TINY).warnings
    assert "semaphore 2 of core@(1,0) ends at 1" in warning


# -- fields, code and boot ------------------------------------------------------------------------------------

BAD_FIELDS = [
    ((DRAM, MOVER), {"dst_tile": 0x99}, "writes nothing@(9,9)"),
    ((DRAM, MOVER), {"src_tile": 0x99}, "src_tile is nothing@(9,9)"),
    ((DRAM, MOVER), {"dst": at(Region.MAIN, 4090)}, "writes up to core@(1,0) A word 4097; the memory has 4096"),
    ((DRAM, MOVER), {"dst": at(Region.RING_MOVER)}, "core@(1,0) RING_MOVER; the tile has no such region"),
    ((DRAM, MOVER), {"dst": 7 << 24}, "region 7"),
    ((DRAM, MOVER), {"dst_tile": HOST, "dst": 0}, "host@(0,1) MAIN; the tile has no such region"),
    ((DRAM, MOVER), {"src": (1 << 20) - 4}, "the memory has 1048576 words"),
    ((DRAM, MOVER), {"src_tile": CORE, "src": at(Region.B)}, "no such region that a MOVE can read"),
    ((DRAM, MOVER), {"dst_run": 0}, "dst_run = 0"),
    ((DRAM, MOVER), {"notify_sem": 40}, "notify_sem = 40; tiny has semaphores 0..31"),
    ((DRAM, MOVER), {"notify_tile": 0x77}, "notify_sem names tile nothing@(7,7)"),
    ((DRAM, MOVER), {"wait_sem": 63, "wait_n": 1}, "wait_sem = 63"),
    ((DRAM, MOVER), {"words": 1 << 16}, "does not encode: MOVE.words = 65536 does not fit 16 bits"),
    ((DRAM, MOVER), {"colour": 1}, "does not encode: MOVE has no field 'colour'"),
    ((DRAM, MOVER), {"tag": FETCH_TAG}, "tag 0xffff belongs to instruction fetch"),
    ((DRAM, MOVER), {"dst_tile": DRAM, "dst": 1030}, "code of the dram@(0,0) mover stream"),
    ((CORE, MATRIX), {"kernel_h": 0}, "kernel_h = 0"),
    ((CORE, MATRIX), {"in_w": 0}, "in_w = 0"),
    ((CORE, MATRIX), {"post_sem": 33}, "post_sem = 33"),
    ((CORE, MATRIX), {"addend": 3}, "addend = 3"),
    ((CORE, MATRIX), {"a_base": 4093}, "reads up to core@(1,0) A word 4096"),
    ((CORE, MATRIX), {"b_base": 4093}, "reads up to core@(1,0) B word 4096"),
    ((CORE, MATRIX), {"dest_base": 2045}, "writes up to core@(1,0) OUT word 2048"),
    ((CORE, MATRIX), {"dest_base": 1021, "to_acc": 1}, "writes up to core@(1,0) ACC word 4099"),
    ((CORE, MATRIX), {"addend": 2, "addend_base": 1021}, "reads up to core@(1,0) ACC word 4099"),
    ((CORE, MATRIX), {"addend": 2, "addend_base": 1, "to_acc": 1}, "its addend ACC 1..4 overlaps its result ACC 0..3"),
    ((CORE, MATRIX), {"addend": 1, "addend_base": 3, "to_acc": 1}, "its addend ACC 3..3 overlaps its result ACC 0..3"),
    ((CORE, MATRIX), {"addend": 1, "to_acc": 1, "n_blocks": 2, "dest_base": 1},
     "its addend ACC 0..1 overlaps its result ACC 1..8"),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "fields", "message"), BAD_FIELDS)
def test_bad_field(unit: tuple[int, Unit], fields: dict[str, int], message: str) -> None:
    codes = fed()
    codes[unit][0].fields.update(fields)
    text = problems(program(codes))
    assert message in text
    assert text.splitlines()[0].endswith("has 1 problem:")
    assert "stream [0]" in text


def test_wrong_unit() -> None:
    codes = fed()
    codes[DRAM, MOVER].append(gemm())
    assert "the mover does not execute GEMM" in problems(program(codes))
    assert "a spm tile has no matrix unit" in problems(program({(SPM, MATRIX): [gemm()]}))
    codes = fed()
    codes[DRAM, MOVER].insert(0, Instruction(Opcode.END))
    assert "END ends the whole run" in problems(program(codes))


def test_boot() -> None:
    good = program(fed())
    boot = good.boot
    without = replace(good, boot=replace(boot, instructions=boot.instructions[1:]))
    assert "dram@(0,0) mover stream: is never started" in problems(without)
    fetch = boot.instructions[0]
    twice = replace(good, boot=replace(boot, instructions=(fetch, *boot.instructions)))
    assert "again" in problems(twice)
    short = Instruction(Opcode.FETCH, fetch.fields | {"count": 1})
    wrong = replace(good, boot=replace(boot, instructions=(short, *boot.instructions[1:])))
    assert "fetches 1 instructions" in problems(wrong)
    assert "has 3 in dram@(0,0)" in problems(wrong)
    no_end = replace(good, boot=replace(boot, instructions=boot.instructions[:-1]))
    assert "does not finish with END" in problems(no_end)
    hasty = replace(good, boot=replace(boot, instructions=(*boot.instructions[:3], boot.instructions[-1])))
    assert "END does not wait for the stream's end" in problems(hasty)
    nobody = Instruction(Opcode.FETCH, {"tile": SPM, "unit": 0, "dram": DRAM, "count": 1})
    stray = replace(good, boot=replace(boot, instructions=(nobody, *boot.instructions)))
    assert "spm@(1,1) mover, which has no stream" in problems(stray)


SEVERAL = ChipConfig.model_validate(TINY.model_dump() | {"programs": 2})
PAGES = SEVERAL.dram.words // PAGE_WORDS
RIGHTS = {"slot": 1, "cores": 1, "first_page": 0, "end_page": PAGES}


def rights(chip: ChipConfig, **changed: int) -> str:
    """What is said of a program whose first FETCH is changed so; nothing if it is accepted."""
    good = replace(program(fed()), chip_digest=chip.digest)
    fetch, *rest = good.boot.instructions
    first = Instruction(Opcode.FETCH, fetch.fields | changed)
    try:
        check(replace(good, boot=replace(good.boot, instructions=(first, *rest))), chip, initial=[LOADED])
    except CheckError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["clear", "slot", "cores", "first_page", "end_page"])
def test_a_chip_of_one_program_gives_no_rights(name: str) -> None:
    assert f"boot stream [0] FETCH tag 1: {name} = 0x1; it must be 0: tiny runs one program at a time" in rights(
        TINY, **{name: 1}
    )


def test_rights_that_a_chip_can_give() -> None:
    for changed in ({}, RIGHTS, RIGHTS | {"clear": 1}, {"clear": 1}, {"slot": 2}):
        assert rights(SEVERAL, **changed) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"slot": 3}, "slot = 3; tiny has slots 0..1, and one to clear up"),
        ({"cores": 2}, "cores = 0x2; tiny has 1 cores, a bit for each"),
        ({"end_page": PAGES + 1}, f"first_page = 0, end_page = {PAGES + 1}; a channel has pages 0..{PAGES - 1}"),
        ({"first_page": 3, "end_page": 3}, "first_page = 3, end_page = 3; a channel has pages"),
        ({"end_page": 0}, "first_page = 0, end_page = 0; a channel has pages"),
        ({"cores": 0}, "cores = 0 with pages; rights without cores limit nothing"),
    ],
)
def test_rights_that_no_chip_can_give(changed: dict[str, int], said: str) -> None:
    assert f"boot stream [0] FETCH tag 1: {said}" in rights(SEVERAL, **(RIGHTS | changed))


def test_a_unit_has_one_stream_and_no_stream_is_empty() -> None:
    good = program(fed())
    again = replace(good.streams[0], address=2048)
    text = problems(replace(good, streams=(*good.streams, again)))
    assert "the unit already has another stream (dram@(0,0) mover stream)" in text
    text = problems(replace(good, boot=replace(good.boot, instructions=())))
    assert "boot stream: holds no instruction" in text
    assert "boot stream: does not finish with END" in text
    empty = replace(good.streams[0], instructions=())
    assert "dram@(0,0) mover stream: holds no instruction" in problems(
        replace(good, streams=(empty, *good.streams[1:]))
    )


def test_code_placement() -> None:
    good = program(fed())
    one, two, three = good.streams
    overlap = replace(good, streams=(one, replace(two, address=one.address + 8), three))
    assert "overlaps that of the dram@(0,0) mover stream" in problems(overlap)
    outside = replace(good, streams=(replace(one, address=TINY.dram.words - 8), two, three))
    assert "ends past the DRAM" in problems(outside)
    nowhere = replace(good, streams=(replace(one, dram_tile=SPM), two, three))
    assert "code must lie in a dram tile" in problems(nowhere)
    assert "its code overlaps a tensor" in problems(good, initial=[(DRAM, 0, 1025)])
    assert "another chip" in problems(replace(good, chip_digest=load("quad8").digest))


# -- the second opinion ---------------------------------------------------------------------------------------


def outcomes(found: Program, chip: ChipConfig, timings: int) -> set[object]:
    """What happens in some random timings: final memories, hangs, overflows."""
    seen: set[object] = set()
    for seed in range(timings):
        try:
            seen.add(frozenset(Interleaver(found, chip, Random(seed)).run().items()))
        except (Hang, Overflow) as error:
            seen.add(type(error))
    return seen


def test_accepted_programs_are_deterministic() -> None:
    """Programs with fields changed at random: if two timings differ, or one hangs, the checker must have said so."""
    random = Random(11)
    accepted = refused = told_apart = 0
    for seed in range(60):
        original = random_program(Random(seed), TINY, 3, threads=1 + seed % 3)
        number = random.randrange(len(original.streams))
        stream = original.streams[number]
        position = random.randrange(len(stream.instructions))
        instruction = stream.instructions[position]
        name = random.choice([n for n in ("wait_n", "wait_sem", "notify", "notify_sem", "post_sem", "sem", "src", "dst")
                              if n in instruction.fields] or ["tag"])  # fmt: skip
        value = random.choice([0, 1, 2, instruction.fields[name] ^ 1])
        changed = _with(original, number, position, Instruction(instruction.opcode, instruction.fields | {name: value}))
        try:
            check(changed, TINY)
        except CheckError:
            refused += 1
            seen = outcomes(changed, TINY, 4)
            told_apart += len(seen) > 1 or not isinstance(next(iter(seen)), frozenset)
            continue
        accepted += 1
        (only,) = outcomes(changed, TINY, 4)
        assert isinstance(only, frozenset)
    assert min(accepted, refused, told_apart) >= 10
