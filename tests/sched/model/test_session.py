"""Sessions on the timeline model: programs that come and go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import LAUNCH_CYCLES
from meshloom.hw.spec.isa import Opcode
from meshloom.sched.model import native
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.model.records import Executed
from meshloom.sched.model.session import Completion, Launch, Session, SessionError
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Instruction, Program

from ..processes import python
from ..served import FOUR, ROWS, SIX, Spot, pages, relocate, template, with_boot
from ..sessions import serve, serve_again, serve_chains

CONV = "conv:6x6x8-8,k3,p1,relu"
GEMM = "gemm:32x32x32"


def placed(chip: ChipConfig, layer: str, cores: tuple[int, ...], slot: int, page: int = 0, drams: Sequence[int] = (),
           clear: bool = True) -> Program:  # fmt: skip
    result = template(layer, chip, len(cores), drams)
    return relocate(result, chip, Spot(cores, page, page + pages(result, chip), slot), clear)


def shifted(log: Sequence[Executed], cycles: int) -> list[Executed]:
    return [one._replace(start=one.start - cycles, end=one.end - cycles) for one in log]


# -- one program ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", [FOUR, SIX], ids=["flows", "flits"])
@pytest.mark.parametrize("layer", [CONV, GEMM])
def test_a_single_program_runs_as_in_play(chip: ChipConfig, layer: str) -> None:
    """With a boot stream of the same length, every instruction of its streams has the same cycles."""
    program = placed(chip, layer, chip.cores[1:4], 0, clear=False)
    left = len(program.streams)
    waits = Instruction(Opcode.SYNC, {"wait_sem": 0, "wait_n": left}), Instruction(Opcode.END)
    alone = play(with_boot(program, *waits), chip)
    session, log = ModelSession(chip), []
    start = 1234
    nothing = Instruction(Opcode.SYNC)
    session.launch(Launch(0, with_boot(program, nothing, nothing)), start - LAUNCH_CYCLES, log)
    (done,) = session.advance(None)
    assert done.slot == 0
    mine = [one for one in alone.executed if one.tile != chip.host]
    assert shifted([one for one in log if one.tile != chip.host], start) == mine
    assert len(mine) > 20
    # the END comes three cycles of issue and one for the take after the last post
    assert session.now == done.cycle
    assert alone.cycles > done.cycle - start > alone.cycles - 20


def test_clearing_semaphores_delays_only_who_needs_them() -> None:
    chip = FOUR
    ends = {}
    for count in (8, 64):
        some = chip.model_copy(update={"semaphores": count})
        for clear in (False, True):
            session = ModelSession(some)
            session.launch(Launch(3, placed(some, CONV, chip.cores[:1], 3, clear=clear)), 1)
            ends[count, clear] = session.advance(None)[0].cycle
    assert ends[8, False] == ends[64, False] == ends[8, True]  # over before the code has arrived
    assert ends[64, True] - ends[64, False] in range(65)


def test_semaphores_start_from_zero() -> None:
    """A program that leaves a semaphore above zero does not disturb the next one on its core."""
    chip, core = FOUR, FOUR.cores[0]
    clean = placed(chip, CONV, (core,), 0)
    ends = {}
    for clear in (True, False):
        dirty = placed(chip, CONV, (core,), 0)
        first, *others = dirty.streams
        posts = tuple(Instruction(Opcode.SYNC, {"post_sem": at, "post_n": 5}) for at in range(6))
        dirty = replace(dirty, streams=(replace(first, instructions=(*posts, *first.instructions)), *others))
        fetches = clean.boot.instructions
        if not clear:
            fetches = tuple(replace(one, fields=one.fields | {"clear": 0}) for one in fetches)
        again = replace(clean, boot=replace(clean.boot, instructions=fetches))
        session = ModelSession(chip)
        session.launch(Launch(0, dirty), 1)
        (done,) = session.advance(None)
        session.launch(Launch(0, again), done.cycle + 1000)
        ends[clear] = session.advance(None)[0].cycle - done.cycle - 1000
    fresh = ModelSession(chip)
    fresh.launch(Launch(0, clean), 1000)
    assert ends[True] == fresh.advance(None)[0].cycle - 1000
    assert ends[False] < ends[True]  # waits are satisfied too early


def recorded(program: Program) -> int:
    """Records of a program and its boot stream: a pull leaves one where it is issued and one where it is executed."""
    pulls = sum(
        one.opcode is Opcode.MOVE and one.fields["src_tile"] != stream.tile
        for stream in program.streams
        for one in stream.instructions
    )
    return program.instructions + len(program.boot.instructions) + pulls


# -- several programs -----------------------------------------------------------------------------------------------


def alone_and_beside(
    chip: ChipConfig, mine: Program, other: Program, at: int
) -> tuple[list[Executed], list[Executed], list[Completion]]:
    """What `mine`, launched in cycle 1, executes alone, and beside `other`, launched in `at`; the completions."""
    logs: list[list[Executed]] = []
    done: list[Completion] = []
    for beside in (False, True):
        session = ModelSession(chip)
        log: list[Executed] = []
        session.launch(Launch(0, mine), 1, log)
        if beside:
            session.launch(Launch(1, other), at)
        while session.running:
            done += session.advance(None)
        logs.append(log)
    return logs[0], logs[1], done[1:]


def test_programs_that_share_nothing_do_not_disturb_each_other() -> None:
    upper = placed(ROWS, GEMM, ROWS.cores[:2], 0, drams=ROWS.drams[:1])
    result = template(GEMM, ROWS, 2, ROWS.drams[1:])
    lower = relocate(result, ROWS, Spot(ROWS.cores[2:], 40, 40 + pages(result, ROWS), 1))
    for at in (1, 100, 333, 700):
        alone, beside, done = alone_and_beside(ROWS, upper, lower, at)
        assert alone == beside
        assert [one.slot for one in done] == [0, 1]


def test_programs_on_the_same_channel_disturb_each_other() -> None:
    upper = placed(ROWS, GEMM, ROWS.cores[:1], 0, drams=ROWS.drams[:1])
    for core in (ROWS.cores[1], ROWS.cores[3]):
        beside = placed(ROWS, GEMM, (core,), 1, 40, drams=ROWS.drams[:1])
        first, then, done = alone_and_beside(ROWS, upper, beside, 50)
        assert max(one.end for one in then) > max(one.end for one in first)
        assert len(then) == len(first)
        assert sorted(one.slot for one in done) == [0, 1]


def test_a_program_is_launched_in_the_middle_of_another() -> None:
    chip = FOUR
    session = ModelSession(chip)
    logs: tuple[list[Executed], list[Executed]] = ([], [])
    long = placed(chip, "gemm:64x64x64", chip.cores[:2], 4)
    short = placed(chip, CONV, chip.cores[2:3], 2, 40)
    session.launch(Launch(4, long), 7, logs[0])
    assert session.advance(900) == ()
    assert session.now == 900
    session.launch(Launch(2, short), 901, logs[1])
    (done,) = session.advance(None)
    assert done.slot == 2
    assert {one.tile for one in logs[1]} <= {chip.host, chip.cores[2], *chip.drams}
    assert min(one.start for one in logs[1]) > 901
    assert session.running == 1
    (last,) = session.advance(10**6)
    assert last.slot == 4
    assert last.cycle > done.cycle
    assert [len(log) for log in logs] == [recorded(long), recorded(short)]


def test_boot_streams_run_one_after_the_other() -> None:
    chip = FOUR
    session = ModelSession(chip)
    logs: list[list[Executed]] = [[] for _ in chip.cores]
    for slot, core in enumerate(chip.cores):
        session.launch(Launch(slot, placed(chip, CONV, (core,), slot, 10 * slot)), 5, logs[slot])
    ended = [session.advance(None)[0].slot for _ in chip.cores]
    assert sorted(ended) == [0, 1, 2, 3]
    boots = [[one for one in log if one.tile == chip.host] for log in logs]
    for one, other in zip(boots, boots[1:], strict=False):
        assert one[-1].end < other[0].start


# -- many programs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", [FOUR, SIX], ids=["flows", "flits"])
def test_no_program_is_lost_however_the_run_is_cut_into_pieces(chip: ChipConfig) -> None:
    """200 programs; again with every launch made in the last moment, and a pause in every cycle."""
    script = serve(chip, 200, seed=chip.width)
    assert sorted(one.number for one in script) == list(range(200))
    order = [one.number for one in sorted(script, key=lambda one: one.end)]
    assert order != sorted(order)
    assert len({one.end for one in script}) == 200
    assert serve_again(chip, script, step=1) == script
    assert serve_again(chip, script, step=97) == script


@pytest.mark.parametrize("chip", [FOUR, SIX], ids=["flows", "flits"])
def test_chains_of_programs_however_the_run_is_cut_into_pieces(chip: ChipConfig) -> None:
    """A successor begins after the program before it, and in the cycle that was asked for, launched early or late."""
    script = serve_chains(chip, 150, seed=chip.width)
    assert sorted(one.number for one in script) == list(range(150))
    assert sum(one.follows for one in script) > 60
    assert serve_again(chip, script, step=1) == script
    assert serve_again(chip, script, step=97) == script


def test_a_successor_begins_when_its_slot_is_free() -> None:
    chip = FOUR
    first, second = placed(chip, GEMM, chip.cores[:2], 3), placed(chip, CONV, chip.cores[1:3], 3, 40)
    alone = ModelSession(chip)
    alone.launch(Launch(3, first), 5)
    (end,) = alone.advance(None)
    for at in (6, end.cycle, end.cycle + 300):
        session, log, again, late = ModelSession(chip), [], ModelSession(chip), []
        session.launch(Launch(3, first), 5)
        session.launch(Launch(3, second, follows=True), at, log)
        assert session.running == 2
        assert session.advance(None) == (end,)
        (done,) = session.advance(None)
        again.launch(Launch(3, first), 5)
        again.advance(None)
        again.launch(Launch(3, second), max(at, end.cycle + 1), late)
        (usual,) = again.advance(None)
        # a launch needs a cycle in which it is written
        early = int(at <= end.cycle)
        assert (done.slot, done.cycle) == (3, usual.cycle - early)
        assert log == shifted(late, early)
        assert session.running == 0


def test_successors_that_cannot_be_say_why() -> None:
    chip = FOUR
    session = ModelSession(chip)
    session.launch(Launch(0, placed(chip, CONV, chip.cores[:1], 0)), 10)
    session.launch(Launch(1, placed(chip, CONV, chip.cores[1:2], 1, 20)), 10)
    other = placed(chip, CONV, chip.cores[1:2], 0, 40)
    with pytest.raises(SessionError, match="core 0x02 runs the program in slot 1"):
        session.launch(Launch(0, other, follows=True), 11)
    session.launch(Launch(0, placed(chip, CONV, chip.cores[:1], 0, 40), follows=True), 3)  # beside the queue: no order
    with pytest.raises(SessionError, match="has a successor"):
        session.launch(Launch(0, placed(chip, CONV, chip.cores[:1], 0, 60), follows=True), 11)
    with pytest.raises(SessionError, match="core 0x01 runs the program in slot 0"):
        session.launch(Launch(2, placed(chip, CONV, chip.cores[:1], 2, 60)), 11)
    assert [len(session.advance(None)) for _ in range(2)] == [1, 1]
    assert session.running == 1


def test_compiled_and_python_say_the_same() -> None:
    native.build()
    message = {}
    for pure in ("0", "1"):
        ran = python(str(Path(__file__).parents[1] / "sessions.py"), **{native.PURE: pure})
        assert ran.returncode == 0, ran.stderr
        message[pure] = json.loads(ran.stdout)
    assert message["0"]["compiled"]
    assert not message["1"]["compiled"]
    assert message["0"]["served"] == message["1"]["served"]


def test_memory_does_not_grow() -> None:
    """Nothing is left of a program that has ended: no event, no record."""
    session = ModelSession(FOUR)
    program = placed(FOUR, CONV, FOUR.cores[:1], 0)
    for _ in range(30):
        session.launch(Launch(0, program), session.now + 1)
        session.advance(None)
        assert session.advance(session.now + 500) == ()
        assert session._machine.idle
        assert not session._machine.executed


# -- what cannot be -------------------------------------------------------------------------------------------------


def test_launches_that_cannot_be_say_why() -> None:
    chip = FOUR
    session: Session = ModelSession(chip)
    one = placed(chip, CONV, chip.cores[:1], 0)
    session.launch(Launch(0, one), 10)
    for launch, at, why in (
        (Launch(0, placed(chip, CONV, chip.cores[1:2], 0)), 11, "slot's program has not completed"),
        (Launch(1, one), 11, "core 0x01 runs the program in slot 0"),
        (Launch(8, one), 11, r"has slots 0\.\.7"),
        (Launch(1, one), 9, "launch in cycle 10 or later"),
        (Launch(1, replace(one, streams=())), 11, "starts no stream"),
        (Launch(1, replace(one, boot=one.streams[0])), 11, "must run on the host's mover"),
        (Launch(1, replace(one, streams=(replace(one.streams[0], tile=0x00),))), 11, "run on cores only"),
    ):
        with pytest.raises(SessionError, match=why):
            session.launch(launch, at)
    session.advance(None)
    with pytest.raises(SessionError, match="no program is running"):
        session.advance(None)
    with pytest.raises(SessionError, match="name a later cycle"):
        session.advance(session.now - 1)
    with pytest.raises(SessionError, match="runs one program at a time"):
        ModelSession(chip.model_copy(update={"programs": 0}))


def test_a_program_that_waits_for_ever_is_named() -> None:
    chip = FOUR
    stuck = placed(chip, CONV, chip.cores[:1], 5)
    first, *others = stuck.streams
    waits = Instruction(Opcode.SYNC, {"wait_sem": 7, "wait_n": 1})
    stuck = replace(stuck, streams=(replace(first, instructions=(waits, *first.instructions)), *others))
    session = ModelSession(chip)
    session.launch(Launch(5, stuck), 1)
    session.launch(Launch(2, placed(chip, CONV, chip.cores[1:3], 2, 40)), 2)
    assert [one.slot for one in session.advance(None)] == [2]
    assert session.advance(100_000) == ()
    with pytest.raises(SessionError, match="the program in slot 5 will never complete"):
        session.advance(None)
