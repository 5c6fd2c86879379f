"""The front end in chips on which programs come and go: streams that are ended at any time, and what they may reach."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import DECODE_CYCLES, ISSUE_CYCLES, START_CYCLES
from meshloom.hw.spec.isa import INSTRUCTIONS, BlockedOn, Cause, Opcode, Unit, encode
from meshloom.hw.wiring.rights import Pages, Rights

from .test_frontend import GO, Outcome, Stalls, chip, move, run, sync
from .unit_bench import bits, never, sometimes

CHIP = ChipConfig.model_validate(
    {
        "name": "t",
        "lanes": 16,
        "floorplan": ["dram core core", "host core dram"],
        "dram": {"bytes_per_cycle": 4},
        "programs": 3,
    }
)
#: Cycle in which the stream of most tests is ended.
END = 40
#: First and last tag of the stream that follows it.
NEXT = (100, 105)
FOLLOWING = [move(NEXT[0], wait_sem=9, wait_n=1), *(move(tag) for tag in range(NEXT[0] + 1, NEXT[1] + 1))]
NOTHING = encode(Opcode.GEMM, tag=1)


def tags(out: Outcome) -> list[int]:
    return [INSTRUCTIONS[Opcode.MOVE].unpack(issue["code"])["tag"] for _, issue in out.issue]


#: What a stream does when it is ended: its first instructions and who is not willing then.
STATES: dict[str, tuple[list[bytes], Stalls, BlockedOn]] = {
    "asks for code": ([move(1)], Stalls(fetch=lambda cycle: cycle >= END), BlockedOn.REQUEST_PLANE),
    "has no code": ([move(1)], Stalls(delivery=lambda cycle: cycle >= END), BlockedOn.CODE),
    "waits for a semaphore": (
        [move(1, wait_sem=3, wait_n=1)], Stalls(grant=lambda cycle: cycle >= END), BlockedOn.SEMAPHORE
    ),
    "waits for a time": ([move(1, fire_at=1000)], Stalls(), BlockedOn.TIME),
    "has taken a semaphore and waits for a time": (
        [move(1, wait_sem=3, wait_n=1, fire_at=1000)], Stalls(), BlockedOn.TIME
    ),
    "waits for its unit": ([move(1)], Stalls(issue=lambda cycle: cycle > END), BlockedOn.UNIT),
    "sends a post": ([sync(1, tile=0x11, n=1)], Stalls(send=lambda cycle: cycle > END), BlockedOn.POST_PLANE),
    "posts": ([sync(1, post_n=1)], Stalls(post=lambda cycle: cycle > END), BlockedOn.POSTS),
    "has failed": ([NOTHING], Stalls(), BlockedOn.FAULT),
    "has ended": ([move(1)], Stalls(), BlockedOn.NOTHING),
}  # fmt: skip


@pytest.mark.parametrize(("later", "gated"), [(0, False), (1, True), (20, True)])
@pytest.mark.parametrize("name", STATES)
def test_a_stream_can_be_ended_in_every_state(name: str, later: int, gated: bool) -> None:
    """Nothing of it is left, and the next one, which starts at once or later, runs as if there had been none."""
    first, stalls, state = STATES[name]
    first = [*first, move(2), move(3)] if state is not BlockedOn.NOTHING else first
    code = [*first, *FOLLOWING]
    starts = [(2, 0, len(first)), (END + later, len(first), len(FOLLOWING))]
    out = run(code, config=CHIP, starts=starts, stalls=stalls, clears=[END], cycles=200, gated=gated)
    assert out.blocked_status[END - 1]["waits"] == state
    started = [cycle for cycle, _ in out.issue if cycle >= END]
    assert tags(out)[-len(started) :] == list(range(NEXT[0], NEXT[1] + 1))
    assert [cycle for cycle, _ in out.faults if cycle >= END] == []
    assert [cycle for cycle, _ in (*out.send, *out.post) if cycle >= END] == []
    assert [semaphore for cycle, semaphore, _ in out.taken if cycle > END] == [9]
    request = next(cycle for cycle, _ in out.fetch if cycle >= END)
    if state is BlockedOn.CODE:  # swallows three instructions first, a word a cycle
        assert request == max(END + later + START_CYCLES, END + 3 * CHIP.instruction_words)
    else:
        assert request == END + later + START_CYCLES
    assert out.blocked_status[-1]["waits"] == BlockedOn.NOTHING


def test_a_stream_that_is_ended_and_not_followed_is_idle() -> None:
    """It says nothing, asks for nothing, and takes a FETCH."""
    for name, (first, stalls, _) in STATES.items():
        code = [*first, move(2), move(3), move(4), move(5), move(6)]
        out = run(code, config=CHIP, stalls=stalls, clears=[END], cycles=90)
        after = [cycle for cycle, _ in (*out.fetch, *out.issue, *out.send, *out.post, *out.faults) if cycle > END]
        assert after == [], name
        assert out.blocked_status[-1]["waits"] == BlockedOn.NOTHING, name


def test_what_is_handed_over_in_the_cycle_of_the_end_has_been_handed_over() -> None:
    """And nothing else is, also not the instruction after it."""
    code = [*(move(tag) for tag in range(1, 9)), *FOLLOWING]
    out = run(
        code,
        config=CHIP,
        starts=[(2, 0, 8), (END, 8, 6)],
        stalls=Stalls(issue=lambda cycle: cycle >= END),
        clears=[END],
        cycles=120,
    )
    assert tags(out) == [1, *range(NEXT[0], NEXT[1] + 1)]
    assert out.issue[0][0] == END


def test_a_request_that_is_offered_is_withdrawn_at_once() -> None:
    """So no code is on its way that the stream does not know of."""
    code = [move(1), *FOLLOWING]
    out = run(code, config=CHIP, starts=[(2, 0, 1)], stalls=Stalls(fetch=lambda cycle: cycle >= END), clears=[END])
    assert out.fetch == []


@pytest.mark.parametrize("arriving", [False, True])
def test_code_on_its_way_is_swallowed_to_the_word(arriving: bool) -> None:
    """Whether or not one of its words arrives in the very cycle of the end."""
    words = CHIP.instruction_words
    held = END + (0 if arriving else 1)
    code = [*(move(tag, wait_sem=1, wait_n=1) for tag in range(1, 5)), *FOLLOWING]
    stalls = Stalls(delivery=lambda cycle: cycle < 8 or cycle >= held, grant=lambda cycle: cycle >= END)
    out = run(code, config=CHIP, starts=[(2, 0, 4), (END, 4, 6)], stalls=stalls, clears=[END], cycles=160)
    came = 8 - next(cycle for cycle, _ in out.fetch) - 1
    assert 0 < came < 4 * words
    request = next(cycle for cycle, _ in out.fetch if cycle > 10)
    assert request == held + 4 * words - came
    assert tags(out) == list(range(NEXT[0], NEXT[1] + 1))


def test_a_stream_that_is_ended_twice_swallows_its_code_once() -> None:
    """The second of three streams ends before its code could even be asked for."""
    first = [move(tag) for tag in range(1, 5)]
    code = [*first, move(50), *FOLLOWING]
    stalls = Stalls(delivery=lambda cycle: cycle >= END + 8)
    starts = [(2, 0, 4), (END, 4, 1), (END + 12, 5, 6)]
    out = run(code, config=CHIP, starts=starts, stalls=stalls, clears=[END, END + 3, END + 12], cycles=160)
    assert tags(out) == list(range(NEXT[0], NEXT[1] + 1))
    assert [request["code"] for _, request in out.fetch][1:]
    assert out.fetch[1][0] == END + 8 + 4 * CHIP.instruction_words


def test_a_fetch_without_clear_to_a_running_stream_is_still_a_fault() -> None:
    code = [move(1, wait_sem=1, wait_n=1), *FOLLOWING]
    out = run(code, config=CHIP, starts=[(2, 0, 1), (END, 1, 6)], stalls=Stalls(grant=never), clears=[1])
    assert [(cycle, fault["cause"]) for cycle, fault in out.faults] == [(END, Cause.STREAM_BUSY)]


@pytest.mark.parametrize(
    ("lanes", "unit", "seed"),
    [
        (4, Unit.MOVER, 1),
        pytest.param(16, Unit.MATRIX, 2, marks=pytest.mark.slow),
        (64, Unit.VECTOR, 3),
        pytest.param(8, Unit.MOVER, 4, marks=pytest.mark.slow),
    ],
)
def test_streams_that_are_ended_at_random(lanes: int, unit: Unit, seed: int) -> None:
    """Sixty streams one after another, each ended by the next. What each has issued until then are its own first
    instructions. With even seeds registers stop while the front end is not `active`."""
    rng = random.Random(seed)
    config = chip(lanes, programs=2)
    opcode = {Unit.MOVER: Opcode.MOVE, Unit.MATRIX: Opcode.GEMM, Unit.VECTOR: Opcode.VEC}[unit]
    code: list[bytes] = []
    starts: list[tuple[int, int, int]] = []
    clears: list[int] = []
    at = 2
    for _ in range(60):
        count = rng.randrange(1, 14)
        clears.append(at)
        if rng.random() < 0.3:
            at += rng.randrange(1, 9)
        starts.append((at, len(code), count))
        for _ in range(count):
            wait = {"wait_sem": 1, "wait_n": rng.randrange(2)}
            if rng.random() < 0.3:
                code.append(sync(len(code), n=rng.randrange(2), post_n=rng.randrange(2), **wait))
            elif rng.random() < 0.05:
                code.append(encode(Opcode.ORDER, tag=len(code)))
            else:
                code.append(encode(opcode, tag=len(code), **wait))
        at += rng.randrange(1, 150)
    moods = Stalls(*(sometimes(rng, 0.6) for _ in range(7)))
    # the last one has all the time that it needs and no fault
    clears.append(at)
    starts.append((at, len(code), 20))
    code += [encode(opcode, tag=len(code) + i) for i in range(20)]
    out = run(
        code, unit=unit, config=config, starts=starts, stalls=moods, clears=clears, cycles=at + 600, gated=seed % 2 == 0
    )
    codes = [int.from_bytes(one, "little") for one in code]
    result = [(cycle, codes.index(issue["code"])) for cycle, issue in out.issue]
    executed = 0
    for (begin, first, count), (end, *_) in zip(starts, [*starts[1:], (at + 600,)], strict=True):
        mine = [number for cycle, number in result if begin < cycle <= end]
        units = [n for n in range(first, first + count) if code[n][0] & 0xF not in (Opcode.SYNC, Opcode.ORDER)]
        assert mine == units[: len(mine)]
        executed += len(mine)
    assert executed == len(result) > 80
    assert [number for cycle, number in result if cycle > at] == list(range(len(code) - 20, len(code)))
    assert {fault["cause"] for _, fault in out.faults} <= {Cause.ILLEGAL_OPCODE}


# -- rights -----------------------------------------------------------------------------------------------------------

ONE, TWO, THREE = CHIP.cores
SLOT = 2


def rights(**values: int) -> int:
    """Of a program on the first two cores."""
    pages = bits(Pages, first_page=5, end_page=9)
    return bits(Rights, **({"cores": 0b011, "slot": SLOT, "pages": pages} | values))


def said(code: bytes, rights: int, unit: Unit = Unit.MOVER) -> list[tuple[int, int, int]]:
    """Faults of an instruction that is in the ring from cycle GO on: cycles after that, cause, value."""
    out = run([code, sync(7)], unit=unit, config=CHIP, go=GO, rights=rights)
    assert (7 in {record["tag"] for _, record in out.record}) != bool(out.faults), "a fault stops the stream"
    for _, fault in out.faults:
        assert fault["tag"] == 3
        assert (out.send, out.post, out.taken) == ([], [], [])
    return [(cycle - GO, fault["cause"], fault["value"]) for cycle, fault in out.faults]


ALLOWED = {
    "its own core": sync(3, tile=ONE, sem=3, n=1),
    "its other core": sync(3, tile=TWO, sem=63, n=15),
    "the host's semaphore of its slot": sync(3, tile=CHIP.host, sem=SLOT, n=1),
    "nobody, whatever the tile": sync(3, tile=THREE, sem=1, n=0, post_sem=1, post_n=1),
}
FORBIDDEN = {
    "another core": (sync(3, tile=THREE, sem=3, n=1), THREE),
    "a dram tile": (sync(3, tile=CHIP.drams[0], sem=3, n=1), CHIP.drams[0]),
    "another slot": (sync(3, tile=CHIP.host, sem=SLOT + 1, n=1), CHIP.host),
    "a semaphore with the low bits of its slot": (sync(3, tile=CHIP.host, sem=SLOT + 32, n=1), CHIP.host),
    "no tile": (sync(3, tile=0xEE, sem=SLOT, n=1), 0xEE),
    "its own core's stream": (encode(Opcode.FETCH, tag=3, tile=ONE, count=1), ONE),
    "another core's stream": (encode(Opcode.FETCH, tag=3, tile=THREE, count=1), THREE),
    "the host's stream": (encode(Opcode.FETCH, tag=3, tile=CHIP.host, unit=0, count=1), CHIP.host),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_stream_may_send_to(name: str) -> None:
    assert said(ALLOWED[name], rights()) == []


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_stream_may_not_send_to(name: str) -> None:
    """A fault as soon as the instruction is looked at, although it may have to wait."""
    code, value = FORBIDDEN[name]
    assert said(code, rights()) == [(DECODE_CYCLES, Cause.RIGHTS, value)]
    waiting = (int.from_bytes(code, "little") | INSTRUCTIONS[Opcode.SYNC].pack({"wait_n": 5})).to_bytes(32, "little")
    assert said(waiting, rights()) == [(DECODE_CYCLES, Cause.RIGHTS, value)]


@pytest.mark.parametrize("unit", [Unit.MATRIX, Unit.VECTOR])
def test_rights_hold_for_all_units(unit: Unit) -> None:
    code, value = FORBIDDEN["another core"]
    assert said(code, rights(), unit) == [(DECODE_CYCLES, Cause.RIGHTS, value)]
    assert said(ALLOWED["its other core"], rights(), unit) == []


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_stream_of_the_host_may_send_to_everything(name: str) -> None:
    """Rights without cores limit nothing, whatever else they say."""
    assert said(FORBIDDEN[name][0], 0) == []
    assert said(FORBIDDEN[name][0], rights(cores=0)) == []


@pytest.mark.parametrize("cores", [0b001, 0b010, 0b100, 0b101, 1 << 31])
def test_each_bit_stands_for_a_core(cores: int) -> None:
    for number, core in enumerate(CHIP.cores):
        expected = [] if cores >> number & 1 else [(DECODE_CYCLES, Cause.RIGHTS, core)]
        assert said(sync(3, tile=core, sem=3, n=1), rights(cores=cores)) == expected


def test_instructions_that_name_no_tile_need_no_rights() -> None:
    """Their bits are others than a tile: a MOVE's are checked by the mover, a GEMM names none."""
    assert said(move(3, src_tile=THREE, dst_tile=THREE), rights()) == []
    out = run([encode(Opcode.GEMM, tag=3, a_base=0xFFFF)], unit=Unit.MATRIX, config=CHIP, go=GO, rights=rights())
    assert (len(out.issue), out.faults) == (1, [])


@pytest.mark.parametrize("limited", [True, False])
def test_requests_for_code_say_which_pages_are_the_programs(limited: bool) -> None:
    code: Sequence[bytes] = [move(tag) for tag in range(10)]
    out = run(code, config=CHIP, rights=rights(**({} if limited else {"cores": 0})))
    result = {INSTRUCTIONS[Opcode.MOVE].unpack(request["code"])["fire_at"] for _, request in out.fetch}
    assert result == {bits(Pages, first_page=5, end_page=9) if limited else 0}
    assert len(out.issue) == 10
    assert out.shown[1] - out.shown[0] == ISSUE_CYCLES
