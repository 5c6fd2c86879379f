"""Every way in which a program can be wrong on the RTL ends by itself, with who, what and where. And fire times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import GEMM_ISSUE_CYCLES
from meshloom.hw.spec.isa import INSTRUCTIONS, Cause, Opcode, Region, Unit, address
from meshloom.hw.spec.routes import DIRECTIONS
from meshloom.sched.program.program import Instruction
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import Fault, Job, Run
from meshloom.tb.devices.simulated import SimulatedDevice

from ..tiers import slow_but
from .hand_made import CHIP, CORE, DRAM, HOST, SPM, Raw, endless, finish, gemm, move, notify, program, sync
from .ways import GAPS, WAYS, route

MAIN = Region.MAIN
NOWHERE = 0x22  # the floorplan is 2 x 2
BARE = 0x12  # of `GAPS`: a router without a tile
BOUND = 3000


@dataclass(frozen=True)
class Wrong:
    """A program and its fault. `line`: a part of what people read. `chip`: `CHIP`, `WAYS` or `GAPS`, which have
    their tiles in the same places."""

    streams: dict[tuple[int, Unit], Sequence[Instruction]]
    fault: Fault
    line: str
    chip: ChipConfig = CHIP


#: Waits for what never comes, so that the run cannot end before something goes wrong in a memory far away.
HOLD = sync(98, wait_sem=31, wait_n=1)


def spm(*code: Instruction) -> dict[tuple[int, Unit], Sequence[Instruction]]:
    return {(SPM, Unit.MOVER): [*code, HOLD, finish(99)]}


def core(*code: Instruction) -> dict[tuple[int, Unit], Sequence[Instruction]]:
    return {(CORE, Unit.MATRIX): [*code, HOLD, finish(99)]}


def raw(opcode: Opcode, word: int) -> Raw:
    return Raw(opcode, {}, word)


FETCH = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "tag": 7, "tile": NOWHERE, "count": 1})
BUSY = {"tag": 8, "tile": CORE, "unit": int(Unit.MATRIX), "dram": DRAM, "addr": 0x777, "count": 1}
RESERVED = INSTRUCTIONS[Opcode.MOVE].pack({"opcode": Opcode.MOVE, "tag": 7}) | 1 << 255
LOOSE = INSTRUCTIONS[Opcode.GEMM].pack({"opcode": Opcode.GEMM, "tag": 7}) | 1 << INSTRUCTIONS[Opcode.GEMM].used

#: The first entry of a route southwards: the floorplan ends there.
SOUTH = DIRECTIONS.index("south")

WRONG = {
    "illegal opcode": Wrong(
        spm(raw(Opcode.SYNC, 4 | 7 << 4)),
        Fault(Cause.ILLEGAL_OPCODE, SPM, Unit.MOVER, 7, 4),
        "ILLEGAL_OPCODE in spm@(1,1) mover, tag 7",
    ),
    "empty memory": Wrong(spm(raw(Opcode.SYNC, 0)), Fault(Cause.ILLEGAL_OPCODE, SPM, Unit.MOVER, 0, 0), "tag 0"),
    "move on the matrix unit": Wrong(
        core(move(7, (SPM, MAIN, 0), (CORE, MAIN, 0), 1)),
        Fault(Cause.ILLEGAL_OPCODE, CORE, Unit.MATRIX, 7, Opcode.MOVE),
        "ILLEGAL_OPCODE in core@(1,0) matrix",
    ),
    "reserved bits": Wrong(
        spm(raw(Opcode.SYNC, RESERVED)), Fault(Cause.RESERVED_BITS, SPM, Unit.MOVER, 7, 0), "RESERVED_BITS in spm@(1,1)"
    ),
    "reserved bits of a gemm": Wrong(
        core(raw(Opcode.GEMM, LOOSE)), Fault(Cause.RESERVED_BITS, CORE, Unit.MATRIX, 7, 0), "core@(1,0) matrix"
    ),
    "source past the bank": Wrong(
        spm(move(7, (SPM, MAIN, CHIP.spm_words - 3), (DRAM, MAIN, 0), 4)),
        Fault(Cause.ADDRESS, SPM, Unit.MOVER, 7, address(MAIN, CHIP.spm_words)),
        "ADDRESS in spm@(1,1) mover, tag 7, value 0x4000",
    ),
    # executed where the source is
    "source past dram": Wrong(
        spm(move(7, (DRAM, MAIN, CHIP.dram.words), (SPM, MAIN, 0), 4)),
        Fault(Cause.ADDRESS, DRAM, Unit.MOVER, 7, address(MAIN, CHIP.dram.words)),
        "ADDRESS in dram@(0,0) mover",
    ),
    "operands cannot be read back": Wrong(
        spm(move(7, (CORE, Region.B, 2), (SPM, MAIN, 0), 4)),
        Fault(Cause.ADDRESS, CORE, Unit.MOVER, 7, address(Region.B, 2)),
        "core@(1,0) mover",
    ),
    # found where the packet arrives: that tile does not know the tag
    "destination past the bank": Wrong(
        spm(move(7, (DRAM, MAIN, 0), (SPM, MAIN, CHIP.spm_words - 1), 2)),
        Fault(Cause.ADDRESS, SPM, Unit.NONE, 0, address(MAIN, CHIP.spm_words)),
        "ADDRESS in spm@(1,1), tag 0, value 0x4000",
    ),
    "destination past dram": Wrong(
        spm(move(7, (SPM, MAIN, 0), (DRAM, MAIN, CHIP.dram.words), 2)),
        Fault(Cause.ADDRESS, DRAM, Unit.NONE, 0, address(MAIN, CHIP.dram.words)),
        "dram@(0,0), tag 0",
    ),
    "a region that the tile does not have": Wrong(
        spm(move(7, (DRAM, MAIN, 0), (SPM, Region.OUT, 0), 2)),
        Fault(Cause.ADDRESS, SPM, Unit.NONE, 0, address(Region.OUT, 0)),
        "value 0x3000000",
    ),
    "destination outside the floorplan": Wrong(
        spm(move(7, (SPM, MAIN, 0), (NOWHERE, MAIN, 0), 2)),
        Fault(Cause.DESTINATION, SPM, Unit.MOVER, 7, NOWHERE),
        "DESTINATION in spm@(1,1) mover, tag 7, value 0x22",
    ),
    "notify outside the floorplan": Wrong(
        spm(move(7, (SPM, MAIN, 0), (DRAM, MAIN, 0), 2, **notify(1, NOWHERE))),
        Fault(Cause.DESTINATION, SPM, Unit.MOVER, 7, NOWHERE),
        "tag 7, value 0x22",
    ),
    "source outside the floorplan": Wrong(
        spm(move(7, (NOWHERE, MAIN, 0), (SPM, MAIN, 0), 2)),
        Fault(Cause.DESTINATION, SPM, Unit.MOVER, 7, NOWHERE),
        "tag 7, value 0x22",
    ),
    "fetch outside the floorplan": Wrong(
        spm(raw(Opcode.FETCH, FETCH)), Fault(Cause.DESTINATION, SPM, Unit.MOVER, 7, NOWHERE), "tag 7, value 0x22"
    ),
    "fetch for a unit that is not there": Wrong(
        spm(Instruction(Opcode.FETCH, {"tag": 7, "tile": SPM, "unit": int(Unit.MATRIX), "dram": DRAM, "count": 1})),
        Fault(Cause.DESTINATION, SPM, Unit.NONE, 7, Unit.MATRIX),
        "spm@(1,1), tag 7",
    ),
    "destination without a tile": Wrong(
        spm(move(7, (SPM, MAIN, 0), (BARE, MAIN, 0), 2)),
        Fault(Cause.DESTINATION, SPM, Unit.MOVER, 7, BARE),
        "DESTINATION in spm@(1,1) mover, tag 7, value 0x12",
        GAPS,
    ),
    "source without a tile": Wrong(
        spm(move(7, (BARE, MAIN, 0), (SPM, MAIN, 0), 2)),
        Fault(Cause.DESTINATION, SPM, Unit.MOVER, 7, BARE),
        "tag 7, value 0x12",
        GAPS,
    ),
    # refused by the router that it enters, which does not know the tag
    "sync where there is no tile": Wrong(
        spm(sync(7, tile=BARE, sem=1, n=1)), Fault(Cause.DESTINATION, SPM, Unit.NONE, 0, BARE), "value 0x12", GAPS
    ),
    "sync outside the floorplan": Wrong(
        spm(sync(7, tile=NOWHERE, sem=1, n=1)), Fault(Cause.DESTINATION, SPM, Unit.NONE, 0, NOWHERE), "value 0x22"
    ),
    "no words": Wrong(
        spm(move(7, (SPM, MAIN, 0), (DRAM, MAIN, 0), 0)),
        Fault(Cause.SHAPE, SPM, Unit.MOVER, 7, 0),
        "SHAPE in spm@(1,1)",
    ),
    "semaphore overflow": Wrong(
        spm(*(sync(tag, tile=CORE, sem=9, n=1) for tag in range(1, 257)), sync(300, wait_sem=1, wait_n=1)),
        Fault(Cause.SEMAPHORE_OVERFLOW, CORE, Unit.NONE, 0, 9),
        "SEMAPHORE_OVERFLOW in core@(1,0), tag 0, value 0x9",
    ),
    "post out of range": Wrong(
        spm(sync(7, tile=CORE, sem=CHIP.semaphores, n=1)),
        Fault(Cause.SEMAPHORE_RANGE, CORE, Unit.NONE, 0, CHIP.semaphores),
        "SEMAPHORE_RANGE in core@(1,0)",
    ),
    "own post out of range": Wrong(
        spm(sync(7, post_sem=63, post_n=1)), Fault(Cause.SEMAPHORE_RANGE, SPM, Unit.NONE, 0, 63), "value 0x3f"
    ),
    "notify out of range": Wrong(
        spm(move(7, (SPM, MAIN, 0), (DRAM, MAIN, 0), 2, **notify(40, SPM))),
        Fault(Cause.SEMAPHORE_RANGE, SPM, Unit.NONE, 0, 40),
        "value 0x28",
    ),
    # not an alias of semaphore 1, which holds enough
    "wait out of range": Wrong(
        spm(sync(1, post_sem=1, post_n=1), sync(7, wait_sem=CHIP.semaphores + 1, wait_n=1)),
        Fault(Cause.SEMAPHORE_RANGE, SPM, Unit.MOVER, 7, CHIP.semaphores + 1),
        "SEMAPHORE_RANGE in spm@(1,1) mover, tag 7, value 0x21",
    ),
    "gemm past A": Wrong(
        core(gemm(7, 8, 1, a_base=CHIP.core.a_words - 5)),
        Fault(Cause.ADDRESS, CORE, Unit.MATRIX, 7, address(MAIN, CHIP.core.a_words)),
        "ADDRESS in core@(1,0) matrix, tag 7",
    ),
    "gemm past B": Wrong(
        core(gemm(7, 8, 1, b_base=CHIP.core.b_words - 2)),
        Fault(Cause.ADDRESS, CORE, Unit.MATRIX, 7, address(Region.B, CHIP.core.b_words)),
        "tag 7, value 0x1001000",
    ),
    "gemm past OUT": Wrong(
        core(gemm(7, 8, 1, dest_base=CHIP.core.out_words - 3)),
        Fault(Cause.ADDRESS, CORE, Unit.MATRIX, 7, address(Region.OUT, CHIP.core.out_words)),
        "tag 7, value 0x3000800",
    ),
    "gemm without pixels": Wrong(
        core(gemm(7, 0, 1)), Fault(Cause.SHAPE, CORE, Unit.MATRIX, 7, 0), "SHAPE in core@(1,0) matrix"
    ),
    "gemm without kernel": Wrong(
        core(gemm(7, 8, 1, kernel_w=0)), Fault(Cause.SHAPE, CORE, Unit.MATRIX, 7, 0), "SHAPE in core@(1,0) matrix"
    ),
    "late": Wrong(
        spm(sync(1, wait_sem=1, wait_n=0), sync(7, fire_at=50)),
        Fault(Cause.LATE, SPM, Unit.MOVER, 7, -1),
        "LATE in spm",
    ),
    "a stream that still runs": Wrong(
        {
            (CORE, Unit.MATRIX): [sync(1, wait_sem=1, wait_n=1), finish(2)],
            (SPM, Unit.MOVER): [sync(3, fire_at=1000), Instruction(Opcode.FETCH, BUSY), finish(4)],
        },
        Fault(Cause.STREAM_BUSY, CORE, Unit.MATRIX, 8, 0x777),
        "STREAM_BUSY in core@(1,0) matrix, tag 8, value 0x777",
    ),
    "a virtual channel that is not there": Wrong(
        spm(Instruction(Opcode.ROUTE, {"tag": 7, "channel": 4}), move(8, (SPM, MAIN, 0), (DRAM, MAIN, 0), 2)),
        Fault(Cause.ROUTE, SPM, Unit.MOVER, 7, 4),
        "ROUTE in spm@(1,1) mover, tag 7, value 0x4",
        WAYS,
    ),
    "a route on a chip without ways": Wrong(
        spm(Instruction(Opcode.ROUTE, {"tag": 7, "channel": 1})),
        Fault(Cause.ILLEGAL_OPCODE, SPM, Unit.MOVER, 7, Opcode.ROUTE),
        "ILLEGAL_OPCODE in spm@(1,1) mover, tag 7, value 0x7",
    ),
    # refused by the router where it goes wrong
    "a route out of the mesh": Wrong(
        spm(
            Instruction(Opcode.ROUTE, {"tag": 7, "routed": 1, "turns": SOUTH}),
            move(8, (SPM, MAIN, 0), (DRAM, MAIN, 0), 2),
        ),
        Fault(Cause.DESTINATION, SPM, Unit.NONE, 0, DRAM),
        "DESTINATION in spm@(1,1)",
        WAYS,
    ),
    "a route that ends elsewhere": Wrong(
        spm(route(WAYS, 7, (SPM, HOST, DRAM)), move(8, (SPM, MAIN, 0), (CORE, MAIN, 0), 2)),
        Fault(Cause.DESTINATION, DRAM, Unit.NONE, 0, CORE),
        "DESTINATION in dram@(0,0), tag 0, value 0x1",
        WAYS,
    ),
    "a route longer than the chip's": Wrong(
        spm(
            route(WAYS, 7, (SPM, CORE, 0x02, 0x12, SPM, HOST, DRAM, CORE, SPM)),
            move(8, (SPM, MAIN, 0), (SPM, MAIN, 8), 2),
        ),
        Fault(Cause.DESTINATION, CORE, Unit.NONE, 0, SPM),
        "DESTINATION in core@(1,0)",
        WAYS,
    ),
    "a post that nobody makes": Wrong(
        {(SPM, Unit.MOVER): endless(BOUND).program.streams[0].instructions},
        Fault(Cause.WATCHDOG, HOST, Unit.NONE, 0, BOUND),
        "WATCHDOG in host@(0,1), tag 0, value 0xbb8",
    ),
}


@cache
def runs(name: str) -> dict[str, Run]:
    """All of a chip in one simulator process, each after the fault of the one before."""
    chip = {chip.name: chip for chip in (CHIP, WAYS, GAPS)}[name]
    mine = {name: wrong for name, wrong in WRONG.items() if wrong.chip is chip}
    jobs = [Job(program(wrong.streams, chip), [], [(DRAM, 0, 1)], BOUND) for wrong in mine.values()]
    return dict(zip(mine, SimulatedDevice(build(chip, "verilator")).run(jobs, "faults"), strict=True))


#: Those on a chip that nothing else in the first tier needs are left to the second.
NAMES = slow_but(WRONG, *(name for name, wrong in WRONG.items() if wrong.chip is not GAPS))


@pytest.mark.parametrize("name", NAMES)
def test_it_ends_by_itself_and_says_why(name: str) -> None:
    wrong = WRONG[name]
    run = runs(wrong.chip.name)[name]
    fault = run.fault
    assert fault is not None
    expected = wrong.fault
    if expected.value == -1:  # how late depends on what it did before
        assert 1 <= fault.value < run.cycles
        expected = Fault(expected.cause, expected.tile, expected.unit, expected.tag, fault.value)
    assert fault == expected
    line = fault.describe(wrong.chip)
    assert wrong.line in line
    assert "\n" not in line
    assert run.cycles <= BOUND + 1  # the cycle in which the watchdog bites is one, too
    assert (run.memory, run.records, run.counters) == ([], [], {})  # nothing half-done is handed out


def test_causes_that_a_program_can_bring_about_are_all_here() -> None:
    """BUS needs a broken DRAM (`test_dram_port.py` in tests/hw), LENGTH and PARITY a broken network (`test_flips.py`);
    STALLED: `test_explain.py`; RIGHTS needs programs that come and go: `test_serving.py`;
    UNREPORTED is any of them (`test_small_chip.py`)."""
    elsewhere = {Cause.NONE, Cause.BUS, Cause.LENGTH, Cause.PARITY, Cause.STALLED, Cause.RIGHTS, Cause.ECC}
    elsewhere |= {Cause.UNREPORTED}
    assert {wrong.fault.cause for wrong in WRONG.values()} == set(Cause) - elsewhere


@pytest.mark.parametrize("fire", [900, 901])
def test_fire_times_are_honoured_to_the_cycle(fire: int) -> None:
    """record.start - fire_at: SYNC and MOVE (own or forwarded) 1; GEMM 1 + GEMM_ISSUE_CYCLES, its first operand."""
    streams = {
        (SPM, Unit.MOVER): [sync(1, fire_at=fire), move(2, (SPM, MAIN, 0), (DRAM, MAIN, 0), 2, fire_at=fire + 40),
                            move(3, (DRAM, MAIN, 0), (SPM, MAIN, 0), 2, fire_at=fire + 80, **notify(1, SPM)),
                            sync(4, wait_sem=1, wait_n=1), finish(5)],
        (CORE, Unit.MATRIX): [gemm(6, 4, 1, fire_at=fire + 7), gemm(7, 4, 1, fire_at=fire + 100), finish(8)],
    }  # fmt: skip
    job = Job(program(streams), [], [], BOUND)
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run([job])
    assert run.fault is None
    start = {(record.tile, record.tag): record.start for record in run.records if record.tile in (SPM, CORE)}
    assert start[SPM, 1] == fire + 1
    assert start[SPM, 2] == fire + 40 + 1
    assert start[SPM, 3] == fire + 80 + 1
    assert start[CORE, 6] == fire + 7 + 1 + GEMM_ISSUE_CYCLES
    assert start[CORE, 7] == fire + 100 + 1 + GEMM_ISSUE_CYCLES
