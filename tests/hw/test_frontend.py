"""The front end of a stream: fetch by half rings, latencies, waits, fire times, SYNC, and every fault."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from meshloom.hw.control.frontend import RING_REGION, FrontEnd
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import DECODE_CYCLES, ISSUE_CYCLES, OFFER_CYCLES, RING_CYCLES, START_CYCLES
from meshloom.hw.spec.isa import (
    ACCEPTS,
    FETCH_TAG,
    INSTRUCTIONS,
    POST,
    TRACE,
    BlockedOn,
    Cause,
    Opcode,
    Region,
    Unit,
    address,
    encode,
)
from meshloom.hw.wiring.signatures import BlockedStatus, Issue, Request, SemPost

from .unit_bench import Mood, Sink, Source, Strobe, always, faults_of, fields, never, simulate, sometimes

HERE, DRAM, PROGRAM = 0x21, 0x10, address(Region.MAIN, 0x123)
#: Cycle in which the instructions are in the ring and `go` rises, in tests that look at cycles.
GO = 60
#: What every semaphore says that it holds.
VALUE = 3


def chip(lanes: int = 16, ring: int = 8, vcs: int = 1, semaphores: int = 32, programs: int = 0) -> ChipConfig:
    return ChipConfig.model_validate(
        {
            "name": "t",
            "lanes": lanes,
            "floorplan": ["dram core host"],
            "dram": {"bytes_per_cycle": 4},
            "ring_instructions": ring,
            "controller_instructions": ring,
            "semaphores": semaphores,
            "noc": {"data_vcs": vcs},
            "programs": programs,
        }
    )


@dataclass
class Outcome:
    """What a run showed; streams as (cycle, fields)."""

    fetch: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    issue: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)  #: cycles in which an instruction was first offered to the unit
    send: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    post: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    record: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    faults: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    taken: list[tuple[int, int, int]] = field(default_factory=list)  #: cycle, semaphore, n of granted waits
    waited: int = 0  #: totals at the end
    blocked: int = 0
    blocked_status: list[dict[str, int]] = field(default_factory=list)  #: of every cycle, like what follows
    progress: list[int] = field(default_factory=list)


@dataclass
class Stalls:
    """When the neighbours of the front end are willing."""

    fetch: Mood = always
    issue: Mood = always
    send: Mood = always
    post: Mood = always
    record: Mood = always
    grant: Mood = always
    delivery: Mood = always


def run(
    code: Sequence[bytes],
    *,
    unit: Unit = Unit.MOVER,
    config: ChipConfig | None = None,
    go: int = 0,
    starts: Sequence[tuple[int, int, int]] | None = None,
    stalls: Stalls | None = None,
    cycles: int = 120,
    until_issued: int | None = None,
    counting: bool = True,
    gated: bool = False,
    ahead: bool = False,
    brought: Sequence[tuple[int, int, int]] = (),
    pushes: Sequence[tuple[int, bytes]] = (),
    clears: Collection[int] = (),
    rights: int = 0,
) -> Outcome:
    """Runs a stream whose code lies in DRAM from PROGRAM on. `go`: cycle from which the chip runs. `starts`: FETCHes as
    (cycle, first instruction, count); by default all of `code` at once. With `go` > 0 the chip also
    runs in cycles 0 to 3, which brings the first half ring, so that cycles are counted from `go`. `brought`: code
    that comes without being asked for, as (cycle, first instruction, count). `pushes`: (cycle, instruction).
    `clears`: cycles in which the stream is ended; `rights`: the stream's, a `Rights` (both: chips with programs)."""
    config = config or chip()
    stalls = stalls or Stalls()
    front = FrontEnd(config, unit, ahead)
    per = config.instruction_words
    width = 8 * min(32, config.lanes)
    words = [
        int.from_bytes(instruction, "little") >> (width * i) & ((1 << width) - 1)
        for instruction in code
        for i in range(per)
    ]
    out = Outcome()
    starts = [(2, 0, len(code))] if starts is None else starts
    arriving: deque[tuple[int, int]] = deque()  # (ring offset, word): served in order by DRAM and network
    ended = bool(clears)  # an offer of a stream that is ended is withdrawn
    fetch = Sink(front.fetch, stalls.fetch, ended)
    issue = Sink(front.issue, stalls.issue, ended)
    send, post = Sink(front.send, stalls.send, ended), Sink(front.post, stalls.post, ended)
    record = Sink(front.record, stalls.record, fickle=True)  # the end of a record moves with the clock
    faults: Strobe = faults_of(front.fault)
    seen = 0

    def before(cycle: int, context: Any) -> None:
        nonlocal seen
        context.set(front.go, cycle >= go or cycle < 4 < go)
        if config.programs:
            context.set(front.clear, cycle in clears)
            context.set(front.rights.as_value(), rights)
            context.set(front.host, config.host)
        starting = [(at, first, count) for at, first, count in starts if at == cycle]
        context.set(front.start.valid, bool(starting))
        for _, first, count in starting:
            fetched = {"tag": 77, "dram": DRAM, "addr": PROGRAM + first * per, "count": count}
            context.set(
                front.start.fetch.as_value(), INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, **fetched})
            )
        while seen < len(fetch.got):
            request = fields(Request, fetch.got[seen][1])
            move = INSTRUCTIONS[Opcode.MOVE].unpack(request["code"])
            at = move["src"] - PROGRAM
            ring = move["dst"] - address(RING_REGION[unit], 0)
            arriving.extend((ring + i, words[at + i]) for i in range(move["words"]))
            seen += 1
        for at, first, count in brought:
            if at == cycle:
                places = ((first + i // per) % config.ring_instructions * per + i % per for i in range(count * per))
                arriving.extend(zip(places, words[first * per :], strict=False))
        delivering = bool(arriving) and stalls.delivery(cycle)
        context.set(front.ring.valid, delivering)
        if delivering:
            offset, word = arriving.popleft()
            context.set(front.ring.offset, offset)
            context.set(front.ring.data, word)

    def after(cycle: int, context: Any) -> None:
        expected = context.get(front.take.valid)
        grant = bool(expected) and stalls.grant(cycle)
        context.set(front.take.grant, grant)
        if grant:
            out.taken.append((cycle, context.get(front.take.sem), context.get(front.take.n)))
        context.set(front.take.value, VALUE)
        out.blocked_status.append(fields(BlockedStatus, context.get(front.blocked_status.as_value())))
        out.progress.append(context.get(front.progress))
        out.waited, out.blocked = context.get(front.waited_total), context.get(front.blocked_total)

    pushed = Source(front.push, [(at, int.from_bytes(one, "little")) for at, one in pushes])
    simulate(
        front, cycles, [pushed], [fetch, issue, send, post, record], [faults],
        before, after, {"tile": HERE, "counting": counting},
        lambda: until_issued is not None and len(issue.got) >= until_issued,
        gated,
    )  # fmt: skip
    out.fetch = [(cycle, fields(Request, payload)) for cycle, payload in fetch.got]
    out.issue = [(cycle, fields(Issue, payload)) for cycle, payload in issue.got]
    out.shown = issue.shown
    out.send = [(cycle, fields(POST, payload)) for cycle, payload in send.got]
    out.post = [(cycle, fields(SemPost, payload)) for cycle, payload in post.got]
    out.record = [(cycle, fields(TRACE, payload)) for cycle, payload in record.got]
    out.faults = faults.seen
    return out


def move(tag: int = 1, **values: int) -> bytes:
    return encode(Opcode.MOVE, tag=tag, words=1, **values)


def sync(tag: int = 1, **values: int) -> bytes:
    return encode(Opcode.SYNC, tag=tag, **values)


# -- cycles -------------------------------------------------------------------------------------------------------


def test_one_instruction_every_three_cycles() -> None:
    """In the ring and nothing to wait for: offered 3 cycles after the one before was taken (load, wait, issue)."""
    out = run([move(tag) for tag in (1, 2, 3, 4)], go=GO)
    first = GO + DECODE_CYCLES + OFFER_CYCLES
    assert out.shown == [first + each * ISSUE_CYCLES for each in range(4)]
    assert [cycle for cycle, _ in out.issue] == out.shown
    assert [int(issue["waited"]) for _, issue in out.issue] == [0, 0, 0, 0]


def test_a_unit_that_is_busy_holds_up_by_as_much() -> None:
    out = run([move(1), move(2)], go=GO, stalls=Stalls(issue=lambda cycle: cycle >= GO + 20))
    assert out.shown == [GO + 2, GO + 20 + ISSUE_CYCLES]
    assert (out.waited, out.blocked) == (0, 18)


@pytest.mark.parametrize("opcode", [Opcode.MOVE, Opcode.SYNC])
def test_a_wait_that_is_granted_late(opcode: Opcode) -> None:
    """Granted in cycle g: offered in g + 1; `waited` counts the cycles before the grant."""
    code = encode(opcode, tag=5, wait_sem=9, wait_n=7)
    grant = GO + 30
    out = run([code], go=GO, gated=True, stalls=Stalls(grant=lambda cycle: cycle >= grant))
    assert out.taken == [(grant, 9, 7)]
    assert out.waited == 29
    if opcode is Opcode.MOVE:
        assert out.shown == [grant + OFFER_CYCLES]
        assert out.issue[0][1]["waited"] == 29
    else:
        _, record = out.record[0]
        assert (record["start"], record["end"], record["wait"]) == (grant + 1, grant + 2, 29)


def test_cycles_are_counted_only_on_demand() -> None:
    stalls = Stalls(grant=lambda cycle: cycle >= GO + 10, issue=lambda cycle: cycle >= GO + 30)
    out = run([move(1, wait_sem=3, wait_n=2)], go=GO, stalls=stalls, counting=False)
    assert (out.waited, out.blocked) == (0, 0)
    assert out.issue[0][1]["waited"] == 9  # records have it all the same


def test_a_wait_that_holds_at_once_costs_nothing() -> None:
    out = run([move(1, wait_sem=3, wait_n=2)], go=GO)
    assert out.taken == [(GO + DECODE_CYCLES, 3, 2)]
    assert out.shown == [GO + 2]
    assert out.issue[0][1]["waited"] == 0


@pytest.mark.parametrize("opcode", [Opcode.MOVE, Opcode.SYNC])
@pytest.mark.parametrize("early", [0, 1, 25])
def test_fire_at_is_honoured_to_the_cycle(opcode: Opcode, early: int) -> None:
    """Offered in cycle `fire_at` + 1, whatever the stream did before."""
    fire = GO + 1 + early  # the earliest that can be met: the instruction is looked at in GO + 1
    out = run([encode(opcode, tag=5, fire_at=fire)], go=GO, gated=bool(early))
    assert out.faults == []
    if opcode is Opcode.MOVE:
        assert out.shown == [fire + OFFER_CYCLES]
        assert out.issue[0][1]["waited"] == early
    else:
        assert out.record[0][1]["start"] == fire + 1
        assert out.record[0][1]["wait"] == early


@pytest.mark.parametrize("grant", [GO + 5, GO + 20])
def test_a_wait_and_a_fire_time_together(grant: int) -> None:
    """The semaphore is taken once, as soon as it holds, even if the fire time is still to come."""
    fire = GO + 20
    out = run([move(5, wait_sem=1, wait_n=1, fire_at=fire)], go=GO, stalls=Stalls(grant=lambda cycle: cycle >= grant))
    assert [cycle for cycle, _, _ in out.taken] == [grant]
    assert out.shown == [fire + 1]
    assert out.faults == []


def test_sync_takes_one_cycle_and_does_all_it_says() -> None:
    out = run([sync(4, tile=0x12, sem=33, n=5, post_sem=7, post_n=3), move(5)], go=GO)
    target = dict.fromkeys(POST.offsets, 0) | {"dst_tile": 0x12, "sem": 33, "n": 5}  # parity: see the tile
    assert out.send == [(GO + 2, target)]
    assert out.post == [(GO + 2, {"sem": 7, "n": 3})]
    record = {"tag": 4, "unit": 0, "opcode": 1, "wait": 0, "stall": 0, "start": GO + 2, "end": GO + 3}
    assert out.record == [(GO + 2, record)]
    assert out.shown == [GO + 5]


def test_sync_that_is_held_up_ends_with_the_last_of_its_duties() -> None:
    stalls = Stalls(
        send=lambda cycle: cycle >= GO + 9, post=lambda cycle: cycle >= GO + 14, record=lambda cycle: cycle >= GO + 5
    )
    out = run([sync(4, tile=1, sem=2, n=1, post_sem=3, post_n=1), move(5)], go=GO, stalls=stalls)
    assert [cycle for cycle, _ in out.send] == [GO + 9]
    assert [cycle for cycle, _ in out.post] == [GO + 14]
    assert [cycle for cycle, _ in out.record] == [GO + 5]
    assert out.shown == [GO + 17]


def test_sync_without_a_target_sends_nothing() -> None:
    out = run([sync(4)], go=GO)
    assert (out.send, out.post) == ([], [])
    assert len(out.record) == 1


# -- fetching -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("unit", list(ACCEPTS))
def test_long_programs_come_in_order_through_the_ring(lanes: int, unit: Unit) -> None:
    """Every neighbour stalls at random; 27 instructions, three and a half times round the ring. Registers may stop
    while the front end is not `active`: half of the cases do that."""
    gated = unit is Unit.MOVER
    rng = random.Random(lanes * 10 + unit)
    config = chip(lanes)
    opcode = ACCEPTS[unit][0]
    noise = {
        Unit.MOVER: {"dst": 28, "src_stride": 20},
        Unit.MATRIX: {"a_base": 16, "scale": 16},
        Unit.VECTOR: {"x_base": 16, "scale": 16},
    }[unit]
    code = [
        encode(opcode, tag=tag, **{name: rng.randrange(1 << width) for name, width in noise.items()})
        for tag in range(1, 28)
    ]
    moods = [sometimes(rng, 0.6) for _ in range(7)]
    out = run(code, unit=unit, config=config, stalls=Stalls(*moods), cycles=3000, until_issued=len(code), gated=gated)
    assert [issue["code"] for _, issue in out.issue] == [int.from_bytes(one, "little") for one in code]
    per, chunk = config.instruction_words, config.fetch_chunk
    assert len(out.fetch) == 7
    for number, (cycle, request) in enumerate(out.fetch):
        done = number * chunk
        size = min(chunk, len(code) - done)
        assert (request["dst_tile"], request["fetch"]) == (DRAM, 0)
        expected = {
            "opcode": Opcode.MOVE, "tag": FETCH_TAG, "words": size * per,
            "src_tile": DRAM, "src": PROGRAM + done * per, "src_run": size * per,
            "dst_tile": HERE, "dst": address(RING_REGION[unit], (done % config.ring_instructions) * per),
            "dst_run": size * per,
        }  # fmt: skip
        result = {name: value for name, value in INSTRUCTIONS[Opcode.MOVE].unpack(request["code"]).items() if value}
        assert result == {name: value for name, value in expected.items() if value}
        # never more in flight than the ring holds
        consumed = sum(taken < cycle for taken, _ in out.issue)
        assert done + size - consumed <= config.ring_instructions


def test_half_rings_are_asked_for_as_they_become_free() -> None:
    """8 instructions at once into a ring of 8, the next 4 in the cycle after the 4th of them was taken."""
    out = run([move(tag) for tag in range(1, 21)], stalls=Stalls(issue=lambda cycle: cycle >= 50), cycles=200)
    assert [cycle for cycle, _ in out.fetch][:2] == [2 + START_CYCLES, 3 + START_CYCLES]
    issued = [cycle for cycle, _ in out.issue]
    assert [cycle for cycle, _ in out.fetch][2:] == [issued[3] + 1, issued[7] + 1, issued[11] + 1]


def test_nothing_is_fetched_or_executed_while_the_chip_does_not_run() -> None:
    out = run([move(1)], go=200, starts=[(50, 0, 1)], cycles=150)
    assert (out.fetch, out.issue) == ([], [])


def test_a_stream_can_be_started_again() -> None:
    code = [move(tag) for tag in range(1, 12)]
    out = run(code, starts=[(2, 0, 5), (100, 5, 6)], cycles=300, gated=True)
    assert out.faults == []
    assert [INSTRUCTIONS[Opcode.MOVE].unpack(issue["code"])["tag"] for _, issue in out.issue] == list(range(1, 12))


# -- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "opcode"),
    [(Unit.MOVER, 0), (Unit.MOVER, 3), (Unit.MOVER, 4), (Unit.MOVER, 7), (Unit.MOVER, 15), (Unit.MATRIX, 2),
     (Unit.MATRIX, 5), (Unit.MATRIX, 6), (Unit.MATRIX, 0), (Unit.MATRIX, 7), (Unit.MATRIX, 4), (Unit.VECTOR, 3),
     (Unit.VECTOR, 2), (Unit.VECTOR, 0)],
)  # fmt: skip
def test_an_illegal_opcode_stops_the_stream(unit: Unit, opcode: int) -> None:
    bad = (opcode | 300 << 4).to_bytes(32, "little")
    out = run([bad, sync(2)], unit=unit, go=GO)
    assert out.faults == [(GO + 1, {"cause": Cause.ILLEGAL_OPCODE, "tag": 300, "value": opcode})]
    assert (out.issue, out.record, out.taken) == ([], [], [])


@pytest.mark.parametrize("opcode", list(Opcode))
def test_every_reserved_bit_is_a_fault(opcode: Opcode) -> None:
    """The lowest and the highest one of each instruction; of a MOVE the copies, too, which this chip cannot make."""
    unit = next((unit for unit, accepts in ACCEPTS.items() if opcode in accepts), Unit.MOVER)
    layout, copies = INSTRUCTIONS[opcode], range(249, 253) if opcode is Opcode.MOVE else ()
    for bit in {layout.used, layout.width - 1, *copies} if layout.used < layout.width else ():  # a VEC uses all
        word = layout.pack({"opcode": opcode, "tag": 12}) | 1 << bit
        out = run(
            [word.to_bytes(32, "little")],
            unit=unit,
            config=chip(vcs=2),
            go=GO,
            cycles=GO + 8,
            ahead=opcode is Opcode.ORDER,
        )
        assert out.faults == [(GO + 1, {"cause": Cause.RESERVED_BITS, "tag": 12, "value": 0})]
        assert (out.issue, out.record) == ([], [])


def test_copies_are_no_reserved_bits_where_routers_make_them() -> None:
    move = {"opcode": Opcode.MOVE, "tag": 12, "src_tile": 1, "dst_tile": 3, "copies": 15, "words": 4}
    word = INSTRUCTIONS[Opcode.MOVE].pack(move | {"src_run": 4, "dst_run": 4})
    for copied, faults in ((("east",), []), ((), [Cause.RESERVED_BITS])):
        config = chip()
        config = config.model_copy(update={"noc": config.noc.model_copy(update={"multicast": copied})})
        out = run([word.to_bytes(32, "little")], unit=Unit.MOVER, config=config, go=GO, cycles=GO + 8)
        assert [fault["cause"] for _, fault in out.faults] == faults


def test_fire_times_are_reserved_bits_where_there_are_none() -> None:
    config = chip().model_copy(update={"fire_times": False})
    out = run([move(8), move(9, fire_at=GO + 90)], go=GO, config=config)
    assert [fault for _, fault in out.faults] == [{"cause": Cause.RESERVED_BITS, "tag": 9, "value": 0}]
    assert len(out.issue) == 1


@pytest.mark.parametrize("semaphores", [8, 32, 63])
def test_a_wait_on_a_semaphore_that_is_not_there_is_a_fault(semaphores: int) -> None:
    """A tile has `semaphores` of them, from 0 on: the last one can be waited for, the next one is a fault."""
    config = chip(semaphores=semaphores)
    out = run([move(9, wait_sem=semaphores - 1, wait_n=1)], go=GO, config=config)
    assert out.taken == [(GO + 1, semaphores - 1, 1)]
    assert (out.faults, len(out.issue)) == ([], 1)
    for absent in (semaphores, 63):
        out = run([move(9, wait_sem=absent, wait_n=1)], go=GO, config=config)
        assert out.faults == [(GO + 1, {"cause": Cause.SEMAPHORE_RANGE, "tag": 9, "value": absent})]
        assert (out.issue, out.taken) == ([], [])
        assert run([move(9, wait_sem=absent)], go=GO, config=config).faults == []  # nothing is waited for


@pytest.mark.parametrize("late", [1, 40])
def test_a_fire_time_that_is_past_is_a_fault_with_its_slack(late: int) -> None:
    out = run([move(9, fire_at=GO + 1 - late)], go=GO)
    assert out.faults == [(GO + 1, {"cause": Cause.LATE, "tag": 9, "value": late})]
    assert out.issue == []


def test_a_wait_that_outlasts_the_fire_time_is_a_fault_too() -> None:
    out = run(
        [move(9, wait_n=1, fire_at=GO + 10)], go=GO, stalls=Stalls(grant=lambda cycle: cycle >= GO + 30), cycles=GO + 40
    )
    assert out.faults == [(GO + 11, {"cause": Cause.LATE, "tag": 9, "value": 1})]
    assert (out.issue, out.taken) == ([], [])


@pytest.mark.parametrize("when", [3, 8, 50])
def test_a_fetch_to_a_running_stream_is_a_fault(when: int) -> None:
    """Whether it still fetches or still executes."""
    out = run([move(1), move(2)], starts=[(2, 0, 2), (when, 1, 1)], stalls=Stalls(issue=lambda cycle: cycle > 60))
    value = PROGRAM + chip().instruction_words
    assert out.faults == [(when, {"cause": Cause.STREAM_BUSY, "tag": 77, "value": value})]
    assert len(out.issue) == 2  # the stream that runs is left alone


# -- what it waits for ------------------------------------------------------------------------------------------


def unread(count: int) -> dict[str, int]:
    """How `blocked_status` says how many instructions have not been taken."""
    return {"sem": count & 63, "need": count >> 6 & 63, "has": count >> 12 & 255}


def test_a_stream_that_was_never_started_says_so() -> None:
    out = run([move(1)], starts=[])
    assert {state["waits"] for state in out.blocked_status} == {BlockedOn.START}
    assert not any(out.progress)


def test_a_stream_that_has_ended_says_nothing() -> None:
    out = run([move(1), sync(2)], go=GO)
    assert out.blocked_status[-1]["waits"] == BlockedOn.NOTHING
    assert not any(out.progress[GO + 20 :])


def test_a_semaphore_that_stays_too_low() -> None:
    """Five instructions, the second waits: four are not taken. Nothing goes on from then on."""
    code = [move(1), move(2, wait_sem=9, wait_n=7), *(move(tag) for tag in (3, 4, 5))]
    out = run(code, go=GO, stalls=Stalls(grant=never))
    expected = {"waits": BlockedOn.SEMAPHORE, "tag": 2, "sem": 9, "need": 7, "has": VALUE, "peer": 4}
    assert out.blocked_status[-1] == expected
    assert not any(out.progress[GO + 10 :])


@pytest.mark.parametrize("words", [300, 70_000])
def test_how_many_instructions_are_left_of_a_long_stream(words: int) -> None:
    """The program says 300 or 70,000 instructions; its third one finds its unit busy."""
    out = run(
        [move(tag) for tag in range(1, 9)], go=GO, starts=[(2, 0, words)],
        stalls=Stalls(issue=lambda cycle: cycle < GO + 6),
    )  # fmt: skip
    assert out.blocked_status[-1] == {"waits": BlockedOn.UNIT, "tag": 3, "peer": 0} | unread(words - 2)


def test_a_fire_time_is_progress() -> None:
    fire = 0x1234567
    out = run([move(1, wait_sem=1, wait_n=1, fire_at=fire)], go=GO)
    expected = {"waits": BlockedOn.TIME, "tag": 1, "sem": fire & 63, "need": fire >> 6 & 63, "has": fire >> 12 & 255}
    assert out.blocked_status[-1] == expected | {"peer": fire >> 20}
    assert all(out.progress[GO:])


@pytest.mark.parametrize("asked", [True, False])
def test_code_that_does_not_come(asked: bool) -> None:
    """Either the request is not taken, or DRAM does not send."""
    stalls = Stalls(delivery=never) if asked else Stalls(fetch=never)
    out = run([move(tag) for tag in range(1, 7)], stalls=stalls)
    waits = BlockedOn.CODE if asked else BlockedOn.REQUEST_PLANE
    assert out.blocked_status[-1] == {"waits": waits, "tag": 0, "peer": DRAM} | unread(6)


def test_a_post_that_is_not_taken() -> None:
    out = run([sync(1), sync(2, tile=0x12, sem=3, n=1), sync(3)], go=GO, stalls=Stalls(send=never))
    assert out.blocked_status[-1] == {"waits": BlockedOn.POST_PLANE, "tag": 2, "peer": 0x12} | unread(2)
    assert not any(out.progress[GO + 10 :])
    out = run([sync(1, post_sem=3, post_n=1)], go=GO, stalls=Stalls(post=never))
    assert out.blocked_status[-1]["waits"] == BlockedOn.POSTS


def test_after_a_fault() -> None:
    out = run([move(1), encode(Opcode.GEMM, tag=2)], go=GO)
    assert out.blocked_status[-1] == {"waits": BlockedOn.FAULT, "tag": 2, "peer": 0} | unread(1)


def test_every_step_is_progress() -> None:
    """One instruction every three cycles: load, wait, issue, all of them progress."""
    out = run([move(tag) for tag in range(1, 5)], go=GO)
    assert out.progress[GO : GO + 12] == [1] * 12


# -- ahead of time --------------------------------------------------------------------------------------------------


def test_what_is_pushed_is_executed_like_what_was_fetched() -> None:
    gemms = [encode(Opcode.GEMM, tag=tag, fire_at=fire) for tag, fire in ((1, 30), (2, 40), (3, 0))]
    out = run([], unit=Unit.MATRIX, starts=[], pushes=[(5, gemms[0]), (6, gemms[1]), (20, gemms[2])])
    assert [(cycle, issued["code"] >> 4 & 0xFFFF) for cycle, issued in out.issue] == [(31, 1), (41, 2), (44, 3)]
    assert out.faults == out.fetch == []


def test_a_pushed_instruction_can_be_loaded_in_the_next_cycle() -> None:
    """Taken in cycle 9, loaded in 10, waited for nothing in 11, offered in 12."""
    offered = 9 + RING_CYCLES + DECODE_CYCLES + OFFER_CYCLES
    out = run([], unit=Unit.MATRIX, starts=[], pushes=[(9, encode(Opcode.GEMM, tag=1))])
    assert [cycle for cycle, _ in out.issue] == [offered]


def test_more_than_a_ring_of_pushed_instructions_is_a_fault() -> None:
    codes = [encode(Opcode.GEMM, tag=tag, fire_at=100) for tag in range(9)]
    out = run([], unit=Unit.MATRIX, starts=[], pushes=[(5 + tag, one) for tag, one in enumerate(codes)], cycles=60)
    assert out.faults == [(13, {"cause": Cause.STREAM_BUSY, "tag": 8, "value": 0})]


def test_a_controller_passes_fire_times_on_and_waits_only_for_its_own() -> None:
    code = [move(1, fire_at=5), encode(Opcode.GEMM, tag=2, fire_at=7), encode(Opcode.VEC, tag=3), sync(4, fire_at=90)]
    out = run([*code, encode(Opcode.ORDER, tag=5)], go=GO, ahead=True)
    assert [issued["code"] >> 4 & 0xFFFF for _, issued in out.issue] == [1, 2, 3, 5]
    assert [cycle - GO for cycle, _ in out.issue[:3]] == [2, 5, 8]
    assert [record["start"] for _, record in out.record] == [91]
    assert out.faults == []


@pytest.mark.parametrize("lanes", [8, 32])
def test_a_controller_with_a_code_channel_asks_for_all_of_its_code(lanes: int) -> None:
    """Half a ring of four at a time, whenever as much has been taken."""
    code = [move(tag) for tag in range(1, 23)]
    floorplan = ["dram core host", "spm dram dtt"]
    values = chip(lanes).model_dump() | {"floorplan": floorplan, "controller_channel": True}
    config = ChipConfig.model_validate(values)
    out = run(code, config=config, ahead=True, cycles=320)
    sizes = [INSTRUCTIONS[Opcode.MOVE].unpack(request["code"])["words"] for _, request in out.fetch]
    assert sizes == [words * config.instruction_words for words in (4, 4, 4, 4, 4, 2)]
    assert [issued["code"] >> 4 & 0xFFFF for _, issued in out.issue] == list(range(1, 23))
    for number, (cycle, _) in enumerate(out.fetch[2:], 1):
        assert cycle > out.issue[4 * number - 1][0]
    assert out.faults == []


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_a_controller_asks_for_the_first_ring_and_is_brought_the_rest(lanes: int) -> None:
    code = [move(tag) for tag in range(1, 23)]
    brought = [(100, 8, 4), (150, 12, 4), (200, 16, 6)]
    out = run(code, config=chip(lanes), ahead=True, brought=brought, cycles=320)
    assert [INSTRUCTIONS[Opcode.MOVE].unpack(request["code"])["words"] for _, request in out.fetch] == [
        4 * chip(lanes).instruction_words
    ] * 2
    assert [issued["code"] >> 4 & 0xFFFF for _, issued in out.issue] == list(range(1, 23))
    assert out.faults == []
    last = out.blocked_status[-1]
    assert (last["waits"], last["sem"]) == (BlockedOn.NOTHING, 0)  # nothing is left
