"""Programs that fail on the RTL beside others: the fault is told, the others end right, the cores are used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.spec.contracts import COMPLETIONS
from meshloom.hw.spec.isa import PAGE_WORDS, Cause, Opcode, Region, Unit, address
from meshloom.hw.spec.registers import Register
from meshloom.sched.model.session import Completion, Launch
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.tb.build.builder import build
from meshloom.tb.devices.serving import ServedChip
from meshloom.tb.runs.online.rtl_session import RtlSession

from .hand_made import move, notify, sync
from .served_chip import CHIP
from .test_serving import COPIED, copier, data

#: Of the instruction that fails.
TAG = 40
#: Where the boot stream of a program lies in its first page, behind its code.
BOOT = 900


def program(streams: Sequence[Stream], slot: int, page: int) -> Program:
    """Streams in one page, with the rights to that and their cores."""
    cores = [stream.tile for stream in streams]
    rights = {"slot": slot, "cores": sum(1 << CHIP.cores.index(core) for core in set(cores))}
    rights |= {"first_page": page, "end_page": page + 1}
    boot = tuple(
        Instruction(
            Opcode.FETCH,
            {"tag": 1 + number, "tile": one.tile, "unit": int(one.unit), "dram": one.dram_tile, "addr": one.address}
            | {"count": len(one.instructions), "clear": int(cores.index(one.tile) == number)}
            | rights,
        )
        for number, one in enumerate(streams)
    )
    start = Stream(CHIP.host, Unit.MOVER, CHIP.drams[0], page * PAGE_WORDS + BOOT, boot)
    return Program(CHIP.digest, tuple(streams), start, {})


class Server:
    """A session, and what it is told to copy."""

    def __init__(self, served: ServedChip) -> None:
        self.session = RtlSession(served)
        self.served = served

    def launch(self, streams: Sequence[Stream], slot: int, page: int, at: int) -> None:
        self.session.launch(Launch(slot, program(streams, slot, page)), at)

    def copy(self, core: int, slot: int, page: int, at: int) -> None:
        self.session.load([(CHIP.drams[0], page * PAGE_WORDS, data(page))])
        self.launch([copier(core, page, slot)], slot, page, at)

    def follow(self, streams: Sequence[Stream], slot: int, page: int, at: int) -> None:
        """Launches a successor."""
        self.session.launch(Launch(slot, program(streams, slot, page), follows=True), at)

    def copied(self, page: int) -> None:
        (words,) = self.session.dump([(CHIP.drams[0], page * PAGE_WORDS + 256, COPIED)])
        np.testing.assert_array_equal(words, data(page))

    def later(self, cycles: int = 600) -> int:
        """A cycle that the chip has not reached."""
        (now,) = self.served.read(Register.CYCLES)
        return now + cycles

    def wait(self, count: int) -> dict[int, Completion]:
        """The next `count` completions by slot."""
        completions: dict[int, Completion] = {}
        while len(completions) < count:
            completions |= {done.slot: done for done in self.session.advance(self.later(40_000))}
            assert self.session.now < 1_000_000
        return completions


@pytest.fixture
def server(fresh: ServedChip) -> Server:
    return Server(fresh)


CORE, OTHER = CHIP.cores[:2]
#: The offender's slot, page, and page of its successor.
SLOT, PAGE, AGAIN = 1, 3, 9
BASE = PAGE * PAGE_WORDS
GEMM = {"a_plane": 1, "in_w": 1, "k_blocks": 1, "kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1}
GEMM |= {"dilation": 1, "out_w": 1, "pixels": 1, "n_blocks": 1, "scale": 1}


def end(tag: int = 60) -> Instruction:
    return sync(tag, tile=CHIP.host, sem=SLOT, n=1)


def stream(*code: Instruction, unit: Unit = Unit.MOVER, core: int = CORE, at: int = 512) -> Stream:
    return Stream(core, unit, CHIP.drams[0], BASE + at, (*code, end()))


def pull(**changed: int) -> Instruction:
    instruction = move(TAG, (CHIP.drams[0], Region.MAIN, BASE), (CORE, Region.OUT, 0), 9, **notify(1, CORE))
    return Instruction(instruction.opcode, instruction.fields | changed)


def push(**changed: int) -> Instruction:
    instruction = move(TAG, (CORE, Region.OUT, 0), (CORE, Region.OUT, 0), 9)
    return Instruction(instruction.opcode, instruction.fields | changed)


def gemm(**changed: int) -> Instruction:
    return Instruction(Opcode.GEMM, GEMM | {"tag": TAG} | changed)


WAIT = sync(2, wait_sem=1, wait_n=1)
#: The last three words of the memory for results.
LAST = address(Region.OUT, CHIP.core.out_words - 3)
FAULTS: dict[str, tuple[Stream, Cause]] = {
    "RIGHTS": (stream(pull(src=0), WAIT), Cause.RIGHTS),
    "posts to DRAM": (stream(pull(post_sem=1, post_n=1)), Cause.RIGHTS),
    "SHAPE of a pull": (stream(pull(words=0), WAIT), Cause.SHAPE),
    "SHAPE of a GEMM": (stream(gemm(k_blocks=0), unit=Unit.MATRIX), Cause.SHAPE),
    "ILLEGAL_OPCODE": (stream(gemm()), Cause.ILLEGAL_OPCODE),
    "SEMAPHORE_OVERFLOW": (stream(*(sync(TAG, post_sem=5, post_n=15) for _ in range(18))), Cause.SEMAPHORE_OVERFLOW),
    "reads past a memory": (
        stream(push(src=LAST, dst=address(Region.MAIN, BASE), dst_tile=CHIP.drams[1], **notify(1, CORE)), WAIT),
        Cause.ADDRESS,
    ),
    "writes past a memory": (stream(push(dst=LAST, **notify(1, CORE)), WAIT), Cause.ADDRESS),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_one_of_four_programs_fails(server: Server, name: str) -> None:
    failing, cause = FAULTS[name]
    at = server.later()
    server.launch([failing], SLOT, PAGE, at)
    others = {0: (CHIP.cores[1], 1), 2: (CHIP.cores[2], 5), 3: (CHIP.cores[-1], 7)}
    for slot, (core, page) in others.items():
        server.copy(core, slot, page, at)
    done = server.wait(4)
    assert {slot: one.fault is not None for slot, one in done.items()} == {0: False, SLOT: True, 2: False, 3: False}
    fault = done[SLOT].fault
    assert fault is not None
    assert (fault.cause, fault.tile) == (cause, CORE)
    if cause is not Cause.SEMAPHORE_OVERFLOW and name != "writes past a memory":  # raised by no instruction
        assert (fault.tag, fault.unit) == (TAG, failing.unit)
    for _, page in others.values():
        server.copied(page)
    server.copy(CORE, SLOT, AGAIN, server.later())
    assert server.wait(1)[SLOT].fault is None
    server.copied(AGAIN)
    assert not server.session.strays


def test_two_programs_fail_at_once(server: Server) -> None:
    at = server.later()
    server.launch([FAULTS["SHAPE of a pull"][0]], SLOT, PAGE, at)
    page = 1
    server.launch([copier(OTHER, page, 2, src=9 * PAGE_WORDS)], 2, page, at)
    server.copy(CHIP.cores[2], 0, 5, at)
    done = server.wait(3)
    assert {slot: one.fault and one.fault.cause for slot, one in done.items()} == {
        0: None,
        SLOT: Cause.SHAPE,
        2: Cause.RIGHTS,
    }
    server.copied(5)
    at = server.later()
    server.copy(CORE, 0, 7, at)
    server.copy(OTHER, 3, 9, at)
    assert [one.fault for one in server.wait(2).values()] == [None, None]
    server.copied(7)
    server.copied(9)
    assert not server.session.strays


def test_one_core_of_a_program_fails_and_another_waits_for_it(server: Server) -> None:
    at = server.later()
    waiting = stream(sync(2, wait_sem=3, wait_n=1), core=OTHER, at=640)
    server.launch(
        [stream(pull(src=0), sync(2, wait_sem=1, wait_n=1), sync(3, tile=OTHER, sem=3, n=0)), waiting], SLOT, PAGE, at
    )
    server.copy(CHIP.cores[2], 0, 5, at)
    done = server.wait(2)
    assert done[0].fault is None
    assert done[SLOT].fault is not None
    server.copied(5)
    at = server.later()
    server.copy(CORE, 0, 7, at)
    server.copy(OTHER, SLOT, 9, at)
    assert [one.fault for one in server.wait(2).values()] == [None, None]
    server.copied(7)
    server.copied(9)


def test_a_flood_of_faults_drowns_nothing(server: Server) -> None:
    """Two programs of hundreds of forbidden pulls each; a third ends right and all are told apart."""
    at = server.later()
    code = [pull(src=0, words=1, src_run=1, dst_run=1) for _ in range(45)]
    for number, core in enumerate((CORE, OTHER)):
        mine = [Instruction(one.opcode, one.fields | {"dst_tile": core, "notify_tile": core}) for one in code]
        page = PAGE + 2 * number
        base = page * PAGE_WORDS + 512
        finish = sync(60, tile=CHIP.host, sem=1 + number, n=1)
        server.launch(
            [Stream(core, Unit.MOVER, CHIP.drams[0], base, (*mine, sync(59, wait_sem=1, wait_n=45), finish))],
            1 + number,
            page,
            at,
        )
    server.copy(CHIP.cores[2], 0, 9, at)
    done = server.wait(3)
    assert {slot: one.fault is not None for slot, one in done.items()} == {0: False, 1: True, 2: True}
    server.copied(9)


def test_a_flood_that_nobody_reads_loses_nothing(server: Server) -> None:
    """Four programs, with more forbidden pulls than the queue holds completions, end before any is taken: there are
    one fault and one end of each. The cores are used again, and told of again."""
    at = server.later()
    pulls = COMPLETIONS // 4 + 20
    for slot, core in enumerate(CHIP.cores[:4]):
        page = 1 + 2 * slot
        floods = [pull(src=0, words=1, src_run=1, dst_run=1, dst_tile=core, notify_tile=core) for _ in range(pulls)]
        finish = sync(60, tile=CHIP.host, sem=slot, n=1)
        halves = [sync(58, wait_sem=1, wait_n=pulls // 2), sync(59, wait_sem=1, wait_n=pulls - pulls // 2)]
        code = (*floods, *halves, finish)
        server.launch([Stream(core, Unit.MOVER, CHIP.drams[0], page * PAGE_WORDS, code)], slot, page, at)
    count = 0
    while server.later(0) < at + 20_000:
        (count,) = server.served.read(*[Register.CYCLES] * 300, Register.DONE_COUNT)[-1:]
    assert count == 8
    done = server.wait(4)
    assert {slot: one.fault and one.fault.cause for slot, one in done.items()} == dict.fromkeys(range(4), Cause.RIGHTS)
    at = server.later()
    server.copy(CHIP.cores[0], 0, 9, at)
    core = CHIP.cores[1]
    again = (pull(src=0, dst_tile=core, notify_tile=core), WAIT, sync(60, tile=CHIP.host, sem=1, n=1))
    server.launch([Stream(core, Unit.MOVER, CHIP.drams[0], 11 * PAGE_WORDS, again)], 1, 11, at)
    assert {slot: one.fault and one.fault.cause for slot, one in server.wait(2).items()} == {0: None, 1: Cause.RIGHTS}
    server.copied(9)
    assert not server.session.strays


def test_late_writes_reach_nothing_of_the_host(server: Server) -> None:
    """A program that is given up while its words still rain on its own page, where it might hit the code that follows
    it."""
    at = server.later()
    rain = [
        move(41 + n % 8, (CORE, Region.OUT, 0), (CHIP.drams[0], Region.MAIN, BASE + 64 * (n % 8)), 64)
        for n in range(40)
    ]
    server.launch([stream(pull(src=0), *rain)], SLOT, PAGE, at)
    server.copy(OTHER, 0, 1, at)
    done = server.wait(2)
    fault = done[SLOT].fault
    assert fault is not None
    assert fault.cause is Cause.RIGHTS
    server.copied(1)
    server.copy(CORE, SLOT, AGAIN, server.later())
    assert server.wait(1)[SLOT].fault is None
    server.copied(AGAIN)


def serve_three(simulator: str) -> list[tuple[int, int, bool]]:
    """Slot, cycle, and whether it failed, of three programs."""
    with ServedChip(build(CHIP, simulator)) as chip:
        server = Server(chip)
        server.launch([FAULTS["SHAPE of a pull"][0]], SLOT, PAGE, 700)
        server.copy(OTHER, 0, 1, 700)
        server.copy(CHIP.cores[2], 2, 5, 900)
        done = server.wait(3)
        server.copied(1)
        server.copied(5)
    return [(slot, one.cycle, one.fault is not None) for slot, one in done.items()]


@pytest.mark.slow
def test_icarus_serves_as_verilator_does() -> None:
    assert serve_three("icarus") == serve_three("verilator")


def test_a_program_that_never_ends_is_given_up(server: Server) -> None:
    """It waits for a post that nobody makes; the one beside it ends as if nothing were."""
    server.session.patience = 5_000
    at = server.later()
    server.launch([stream(WAIT)], SLOT, PAGE, at)
    server.copy(OTHER, 0, 5, at)
    done = server.wait(2)
    assert done[0].fault is None
    fault = done[SLOT].fault
    assert fault is not None
    assert (fault.cause, fault.tile, fault.value) == (Cause.STALLED, CORE, 5_000)
    assert 5_000 < done[SLOT].cycle - at < 7_000
    server.copied(5)
    server.copy(CORE, SLOT, AGAIN, server.later())
    assert server.wait(1)[SLOT].fault is None
    server.copied(AGAIN)


@pytest.mark.parametrize("name", list(FAULTS))
def test_nothing_follows_a_program_that_fails(server: Server, name: str) -> None:
    """Its successor, on its core and one that is free, never begins; another program's does. All cores can be used."""
    failing, cause = FAULTS[name]
    at, third = server.later(), CHIP.cores[2]
    server.session.load([(CHIP.drams[0], AGAIN * PAGE_WORDS, data(AGAIN))])
    server.launch([failing], SLOT, PAGE, at)
    beside = replace(copier(OTHER, AGAIN, SLOT), address=AGAIN * PAGE_WORDS + 700)
    server.follow([copier(CORE, AGAIN, SLOT), beside], SLOT, AGAIN, at)
    server.copy(third, 0, 5, at)
    server.session.load([(CHIP.drams[0], 7 * PAGE_WORDS, data(7))])
    server.follow([copier(third, 7, 0)], 0, 7, at)
    completions: list[Completion] = []
    while server.session.running:
        completions += server.session.advance(server.later(40_000))
    assert sorted((one.slot, one.fault and one.fault.cause) for one in completions) == [
        (0, None),
        (0, None),
        (SLOT, cause),
    ]
    server.copied(5)
    server.copied(7)
    (words,) = server.session.dump([(CHIP.drams[0], AGAIN * PAGE_WORDS + 256, COPIED)])
    assert not np.array_equal(words, data(AGAIN))
    at = server.later()
    server.copy(CORE, SLOT, 9, at)
    server.copy(OTHER, 2, 11, at)
    assert [one.fault for one in server.wait(2).values()] == [None, None]
    server.copied(9)
    server.copied(11)
    assert not server.session.strays


def test_a_successor_fails_after_a_program_that_ended_well(server: Server) -> None:
    at = server.later()
    server.copy(CORE, SLOT, AGAIN, at)
    server.follow([FAULTS["SHAPE of a pull"][0]], SLOT, PAGE, at)
    completions: list[Completion] = []
    while server.session.running:
        completions += server.session.advance(server.later(40_000))
    assert [one.fault and one.fault.cause for one in completions] == [None, Cause.SHAPE]
    server.copied(AGAIN)
    server.copy(CORE, SLOT, 11, server.later())
    assert server.wait(1)[SLOT].fault is None
    server.copied(11)


def test_a_program_is_given_up_while_launches_wait_for_their_cycle(server: Server) -> None:
    """Clearing up does not wait behind them."""
    at = server.later()
    server.launch([FAULTS["SHAPE of a pull"][0]], SLOT, PAGE, at)
    server.copy(OTHER, 0, 5, at + 30_000)
    done = server.wait(2)
    assert done[SLOT].fault is not None
    assert done[SLOT].cycle < at + 5_000 < at + 30_000 < done[0].cycle
    server.copied(5)
