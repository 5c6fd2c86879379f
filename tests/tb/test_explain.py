"""Why a run hangs, in words: deadlocks on the RTL by name, and every kind of report that a chip can make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from meshloom.hw.spec.isa import BlockedOn, Cause, Part, Region, Unit, address
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.schedule import Move, Schedule, Span
from meshloom.sched.program.program import Instruction, Program
from meshloom.tb.build.builder import build
from meshloom.tb.compare.explain import explain, patience
from meshloom.tb.devices.interface import BlockedStatus, Fault, Job, Run
from meshloom.tb.devices.simulated import SimulatedDevice, parse_states

from .hand_made import CHIP, CORE, DRAM, HOST, SPM, endless, finish, gemm, move, notify, program, sync

MAIN = Region.MAIN
STALL = 300
Streams = dict[tuple[int, Unit], Sequence[Instruction]]

#: The core's mover waits for the product, the product for operands that the mover would only fetch afterwards.
CROSSED: Streams = {
    (CORE, Unit.MOVER): [
        move(11, (DRAM, MAIN, 0), (CORE, MAIN, 0), 8, **notify(1, CORE)),
        move(12, (CORE, Region.OUT, 0), (DRAM, MAIN, 100), 8, wait_sem=2, wait_n=1),
        move(13, (DRAM, MAIN, 16), (CORE, Region.B, 0), 4, **notify(1, CORE)),
        finish(14),
    ],
    (CORE, Unit.MATRIX): [gemm(15, 8, 1, wait_sem=1, wait_n=2, post_sem=2, post_n=1), finish(16)],
}
#: Three tiles in a circle.
ROUND: Streams = {
    (SPM, Unit.MOVER): [sync(21, wait_sem=3, wait_n=1), sync(22, tile=DRAM, sem=4, n=1), finish(23)],
    (DRAM, Unit.MOVER): [sync(24, wait_sem=4, wait_n=1), sync(25, tile=CORE, sem=5, n=2), finish(26)],
    (CORE, Unit.VECTOR): [sync(27, wait_sem=5, wait_n=2), sync(28, tile=SPM, sem=3, n=1), finish(29)],
}
#: Two posts come, three are needed.
SHORT: Streams = {
    (SPM, Unit.MOVER): [
        move(1, (SPM, MAIN, 0), (CORE, MAIN, 0), 5, **notify(3, CORE)),
        sync(2, tile=CORE, sem=3, n=1),
        finish(3),
    ],
    (CORE, Unit.MATRIX): [sync(4, wait_sem=3, wait_n=3), finish(5)],
}
#: Works for longer than it is given.
LONG: Streams = {
    (SPM, Unit.MOVER): [*(move(tag, (SPM, MAIN, 0), (DRAM, MAIN, 0), 1000) for tag in range(1, 30)), finish(30)],
    (CORE, Unit.MOVER): [sync(31, fire_at=1_000_000), finish(32)],
}


def jobs() -> dict[str, Job]:
    result = {
        name: Job(program(streams), [], [], 60_000, STALL)
        for name, streams in (("crossed", CROSSED), ("round", ROUND), ("short", SHORT))
    }
    return result | {"long": Job(program(LONG), [], [], 2000, STALL), "nothing": endless(1500)}


@pytest.fixture(scope="module")
def hung() -> dict[str, tuple[Job, Run]]:
    result = jobs()
    device = SimulatedDevice(build(CHIP, "verilator"))
    return {
        name: (job, run) for (name, job), run in zip(result.items(), device.run(list(result.values())), strict=True)
    }


def text_of(pair: tuple[Job, Run]) -> str:
    job, run = pair
    text = explain(run, job.program, None, CHIP)
    assert "\n" not in text
    return text


def test_a_deadlock_is_stopped_and_its_circle_told(hung: dict[str, tuple[Job, Run]]) -> None:
    run = hung["crossed"][1]
    assert run.fault is not None
    assert (run.fault.cause, run.fault.tile, run.fault.value, run.quiet) == (Cause.STALLED, HOST, STALL, STALL)
    assert run.cycles < 2000
    text = text_of(hung["crossed"])
    circle = (
        "core@(1,0) mover stream [1] MOVE tag 12 waits for semaphore 2 of core@(1,0) (has 0, needs 1), "
        "which core@(1,0) matrix stream [0] GEMM tag 15 posts; "
        "core@(1,0) matrix stream [0] GEMM tag 15 waits for semaphore 1 of core@(1,0) (has 1, needs 2), "
        "which core@(1,0) mover stream [2] MOVE tag 13 posts, closing the cycle"
    )
    assert (
        text == f"deadlock: the run was stopped in cycle {run.cycles}, {STALL} cycles after the last movement; {circle}"
    )


@pytest.mark.parametrize("name", ["crossed", "round"])
def test_the_checker_finds_the_same_deadlock_beforehand(name: str, hung: dict[str, tuple[Job, Run]]) -> None:
    job, _ = hung[name]
    with pytest.raises(CheckError) as error:
        check(job.program, CHIP)
    (text,) = (problem.what for problem in error.value.problems if problem.where == "wait-for cycle")
    result = text_of(hung[name]).partition("last movement; ")[2]
    # the cycle may be entered elsewhere
    assert set(text.removesuffix(", closing the cycle").split("; ")) == set(
        result.removesuffix(", closing the cycle").split("; ")
    )


def test_a_cycle_over_three_tiles(hung: dict[str, tuple[Job, Run]]) -> None:
    text = text_of(hung["round"])
    spm, dram, core = "spm@(1,1) mover stream", "dram@(0,0) mover stream", "core@(1,0) vector stream"
    for who, semaphore, by in (
        (f"{spm} [0] SYNC tag 21", "3 of spm@(1,1) (has 0, needs 1)", f"{core} [1] SYNC tag 28"),
        (f"{dram} [0] SYNC tag 24", "4 of dram@(0,0) (has 0, needs 1)", f"{spm} [1] SYNC tag 22"),
        (f"{core} [0] SYNC tag 27", "5 of core@(1,0) (has 0, needs 2)", f"{dram} [1] SYNC tag 25"),
    ):
        assert f"{who} waits for semaphore {semaphore}, which {by} posts" in text
    assert "boot stream" not in text


def test_a_post_that_is_missing(hung: dict[str, tuple[Job, Run]]) -> None:
    text = text_of(hung["short"])
    assert text.startswith("hang: ")
    assert text.endswith(
        "core@(1,0) matrix stream [0] SYNC tag 4 waits for semaphore 3 of core@(1,0) (has 2, needs 3), "
        "and no instruction is left that posts it; 1 more part waits for these"
    )
    assert "semaphore 5 of spm@(1,1) (has 0, needs 1), and no instruction" in text_of(hung["nothing"])


def test_a_run_that_is_only_long_is_no_deadlock(hung: dict[str, tuple[Job, Run]]) -> None:
    _, run = hung["long"]
    assert run.fault is not None
    assert (run.fault.cause, run.quiet) == (Cause.WATCHDOG, 0)
    text = text_of(hung["long"])
    assert (
        "not deadlocked (core@(1,0) mover stream [0] SYNC tag 31 waits for cycle 1000000); give it more cycles" in text
    )


def test_operations_are_named() -> None:
    """The labels of the schedule."""
    span = Span(tile=SPM, address=0, run=8, stride=8)
    there = span.model_copy(update={"tile": DRAM})
    schedule = Schedule(
        chip=CHIP.name,
        chip_digest=CHIP.digest,
        workload="w",
        scheduler="s",
        operations=(Move(issuer=SPM, src=span, dst=there, words=8, label="conv3 w n0"),),
    )
    code = [move(1, (SPM, MAIN, 0), (DRAM, MAIN, 0), 8, wait_sem=5, wait_n=1), finish(2)]
    result = program({(SPM, Unit.MOVER): code})
    result = replace(result, operation_of_tag={1: 0})
    stands = BlockedStatus(SPM, Part.STREAM, Unit.MOVER, BlockedOn.SEMAPHORE, 1, sem=5, need=1, peer=2)
    text = explain(stopped(stands), result, schedule, CHIP)
    assert 'spm@(1,1) mover stream [0] MOVE tag 1 (operation 0 "conv3 w n0") waits for semaphore 5' in text


# -- reports that healthy gateware does not bring about ----------------------------------------------------------


def stopped(*blocked_status: BlockedStatus, cause: Cause = Cause.STALLED, quiet: int = 500) -> Run:
    fault = Fault(cause, HOST, Unit.NONE, 0, quiet)
    return Run(1000, fault, [], [], {}, 0.0, "none", blocked_status=blocked_status, quiet=quiet)


#: A pull from DRAM into the core, whose landing the matrix unit awaits; the mover's stream has gone on to its end.
PULLED: Streams = {
    (CORE, Unit.MOVER): [
        move(1, (DRAM, MAIN, 0), (CORE, MAIN, 0), 8, post_sem=9, post_n=1, **notify(1, CORE)),
        finish(2),
    ],
    (CORE, Unit.MATRIX): [sync(3, wait_sem=1, wait_n=1), finish(4)],
    (SPM, Unit.MOVER): [
        move(5, (SPM, MAIN, 0), (DRAM, MAIN, 0), 8, **notify(3, SPM)),
        sync(6, wait_sem=3, wait_n=1),
        finish(7),
    ],
}
MATRIX = BlockedStatus(CORE, Part.STREAM, Unit.MATRIX, BlockedOn.SEMAPHORE, 3, sem=1, need=1, peer=2)
SPM_WAITS = BlockedStatus(SPM, Part.STREAM, Unit.MOVER, BlockedOn.SEMAPHORE, 6, sem=3, need=1, peer=2)


def part(
    part: Part, tile: int, waits: BlockedOn, tag: int = 0, value: int = 0, *, has: int = 0, need: int = 0, peer: int = 0
) -> BlockedStatus:
    """A report that is not a stream's; `value`: the last four fields as one number, instead of these."""
    if value:
        return BlockedStatus(
            tile, part, Unit.NONE, waits, tag, value & 63, value >> 6 & 63, value >> 12 & 255, value >> 20
        )
    return BlockedStatus(tile, part, Unit.NONE, waits, tag, need=need, has=has, peer=peer)


@dataclass(frozen=True)
class Status:
    blocked_status: tuple[BlockedStatus, ...]
    text: tuple[str, ...]


STATUS = {
    "the pull waits in the queue of DRAM": Status(
        (
            MATRIX,
            part(Part.QUEUE, DRAM, BlockedOn.UNIT, 1, has=2),
            part(Part.MOVER, DRAM, BlockedOn.DRAM, 40, peer=CORE),
        ),
        ("dram@(0,0) mover with MOVE tag 40 waits for DRAM, which sends no word", "2 more parts wait for these"),
    ),
    "the pull is being sent and DRAM is silent": Status(
        (MATRIX, part(Part.MOVER, DRAM, BlockedOn.DRAM, 1, peer=CORE)),
        ("dram@(0,0) mover with core@(1,0) mover stream [0] MOVE tag 1 waits for DRAM",),
    ),
    "a packet half-way": Status(
        (MATRIX, part(Part.DELIVERY, CORE, BlockedOn.FLITS, 3, address(Region.B, 5))),
        ("core@(1,0) with a packet for B+0x5 waits for its last 3 words, which no mover has: they are lost",),
    ),
    "a packet that has to sink": Status(
        (part(Part.DELIVERY, CORE, BlockedOn.FLITS, 0, address(Region.B, 5)),),
        ("waits for its tail, which no mover has",),
    ),
    "a packet held up by its sender": Status(
        (part(Part.DELIVERY, CORE, BlockedOn.FLITS, 3, 5), part(Part.MOVER, DRAM, BlockedOn.MEMORY, 1, peer=CORE)),
        ("hang: ", "gives no word", "1 more part waits for these"),
    ),
    "mover, network and delivery": Status(
        (part(Part.MOVER, SPM, BlockedOn.DATA_PLANE, 5, peer=DRAM), part(Part.DELIVERY, DRAM, BlockedOn.DRAM, 6, 0x40),
         part(Part.DRAM, DRAM, BlockedOn.DRAM, 16, 0x30)),
        ("dram@(0,0) with 16 bursts written from word 0x30 waits for the memory to answer",
         "2 more parts wait for these"),
    ),
    "words that have been written and not answered": Status(
        (SPM_WAITS, part(Part.DRAM, DRAM, BlockedOn.DRAM, 1, 0x30)),
        ("dram@(0,0) with 1 bursts written", "1 more part waits for these"),
    ),
    "words that are lost": Status(
        (SPM_WAITS,),
        ("spm@(1,1) mover stream [1] SYNC tag 6 waits for semaphore 3 of spm@(1,1) (has 0, needs 1), "
         "whose post has been lost: "
         "spm@(1,1) mover stream [0] MOVE tag 5 has been issued, but its words have not been delivered to dram@(0,0)",),
    ),
    "a circle through a mover": Status(
        (BlockedStatus(SPM, Part.STREAM, Unit.MOVER, BlockedOn.UNIT, 5, sem=3),
         part(Part.MOVER, SPM, BlockedOn.DATA_PLANE, 9, peer=DRAM),
         part(Part.DELIVERY, DRAM, BlockedOn.FLITS, 2, 0x40),
         part(Part.MOVER, CORE, BlockedOn.DATA_PLANE, 8, peer=DRAM)),
        ("deadlock: ", "spm@(1,1) mover with MOVE tag 9 waits for the data plane to take a flit for dram@(0,0), "
         "where another packet is in front; dram@(0,0) with a packet for MAIN+0x40 waits for its last 2 words, "
         "whose mover has to send them, closing the cycle"),
    ),
    "a request that is not taken": Status(
        (BlockedStatus(CORE, Part.STREAM, Unit.MOVER, BlockedOn.REQUEST_PLANE, 1, sem=2, peer=DRAM),
         part(Part.QUEUE, DRAM, BlockedOn.UNIT, 50, need=1, has=8)),
        ("dram@(0,0) queue of 8 requested MOVEs, first MOVE tag 50 waits for its mover", "1 more part waits for these"),
    ),
    "code that does not come": Status(
        (BlockedStatus(CORE, Part.STREAM, Unit.MATRIX, BlockedOn.CODE, 0, sem=1, peer=DRAM),),
        ("the core@(1,0) matrix stream waits for its next code from dram@(0,0)",),
    ),
    "half a request": Status(
        (part(Part.QUEUE, DRAM, BlockedOn.FLITS),), ("dram@(0,0) request queue waits for the rest of a request",)
    ),
    "a FETCH that got lost": Status(
        (BlockedStatus(CORE, Part.STREAM, Unit.MATRIX, BlockedOn.START, 0),),
        ("the core@(1,0) matrix stream was never started, although boot stream [1] FETCH tag 2 has been sent",),
    ),
    "a stream that was not started yet": Status(
        (BlockedStatus(CORE, Part.STREAM, Unit.MATRIX, BlockedOn.START, 0),
         BlockedStatus(HOST, Part.STREAM, Unit.MOVER, BlockedOn.REQUEST_PLANE, 1, sem=5, peer=CORE)),
        ("boot stream [0] FETCH tag 1 cannot send its request to core@(1,0)", "1 more part waits for these"),
    ),
    "units that the program does not use": Status(
        (
            MATRIX,
            part(Part.MOVER, DRAM, BlockedOn.DRAM, 1),
            BlockedStatus(CORE, Part.STREAM, Unit.VECTOR, BlockedOn.START, 0),
        ),
        ("waits for DRAM", "1 more part waits for these"),
    ),
    "a fault that nobody heard of": Status(
        (replace(part(Part.FAULT, SPM, BlockedOn.FAULT, 5, address(MAIN, 0x4000)), cause=Cause.ADDRESS),),
        ("spm@(1,1) has raised ADDRESS (tag 5, value 0x4000), which has not reached the host",),
    ),
    "a damaged instruction": Status(
        (replace(MATRIX, need=33),), ("(has 0, needs 33; the program says 1 of semaphore 1)",)
    ),
    "a post that is not taken": Status(
        (BlockedStatus(CORE, Part.STREAM, Unit.MATRIX, BlockedOn.POST_PLANE, 4, sem=1, peer=HOST),),
        ("core@(1,0) matrix stream [1] SYNC tag 4 cannot send its post to host@(0,1)",),
    ),
    "a memory that takes no word": Status(
        (part(Part.DELIVERY, SPM, BlockedOn.MEMORY, 4, 0x40),),
        ("spm@(1,1) with a packet for MAIN+0x40 waits for its memory",),
    ),
    "nothing at all": Status((), ("no part of the chip reports that it waits: a packet in flight was lost",)),
}  # fmt: skip


@pytest.mark.parametrize("name", STATUS)
def test_every_kind_of_report_is_told(name: str) -> None:
    state = STATUS[name]
    text = explain(stopped(*state.blocked_status), program(PULLED), None, CHIP)
    for piece in state.text:
        assert piece in text


def test_other_ends_need_no_words() -> None:
    result = program(PULLED)
    assert explain(stopped(MATRIX, cause=Cause.ADDRESS), result, None, CHIP) == ""
    assert explain(replace(stopped(MATRIX), fault=None), result, None, CHIP) == ""


@pytest.mark.parametrize(("more", "slow"), [(0, True), (1, False)])
def test_a_bound_that_is_reached_while_things_move(more: int, slow: bool) -> None:
    run = stopped(MATRIX, cause=Cause.WATCHDOG, quiet=patience(CHIP) + more)
    assert ("it is slow" in explain(run, program(PULLED), None, CHIP)) is slow


def test_tags_that_come_again_are_told_apart_by_what_is_left() -> None:
    """Three instructions with one tag: the report says how many are left."""
    same = [sync(5, wait_sem=2, wait_n=1) for _ in range(3)]
    result: Program = program({(SPM, Unit.MOVER): [*same, finish(6)]})
    for place in range(3):
        stands = BlockedStatus(SPM, Part.STREAM, Unit.MOVER, BlockedOn.SEMAPHORE, 5, sem=2, need=1, peer=4 - place)
        assert f"spm@(1,1) mover stream [{place}] SYNC tag 5 waits" in explain(stopped(stands), result, None, CHIP)


def test_states_as_the_bench_writes_them() -> None:
    high = BlockedOn.SEMAPHORE | Unit.VECTOR << 6 | CORE << 8 | 0xBEEF << 16
    low = 5 | 7 << 6 | 200 << 12 | 0x21 << 20 | Part.STREAM << 28
    fault = Cause.LATE | Unit.MOVER << 6 | SPM << 8 | 9 << 16
    lines = f"{high:08x}{low:08x}\n{fault:08x}{0x1000 | Part.FAULT << 28:08x}\n"
    one, other = parse_states(lines)
    assert one == BlockedStatus(CORE, Part.STREAM, Unit.VECTOR, BlockedOn.SEMAPHORE, 0xBEEF, 5, 7, 200, 0x21)
    assert one.detail == low & (1 << 28) - 1
    assert other == BlockedStatus(SPM, Part.FAULT, Unit.MOVER, BlockedOn.FAULT, 9, has=1, cause=Cause.LATE)
