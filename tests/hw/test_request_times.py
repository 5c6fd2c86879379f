"""RequestTaker: MOVEs of other tiles wait for their fire times, and keep the ways that their ROUTEs gave them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from meshloom.hw.noc.interface import RequestTaker
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import OFFER_CYCLES, QUEUE_CYCLES, TAKER_CYCLES
from meshloom.hw.spec.isa import INSTRUCTIONS, REQUEST_HEAD, ROUTE_BODY, BlockedOn, Cause, Opcode
from meshloom.hw.wiring.signatures import BlockedStatus, Request

from .unit_bench import Mood, Sink, Strobe, always, back_to_back, bits, faults_of, fields, simulate, sometimes

MOVE = INSTRUCTIONS[Opcode.MOVE]


def chip(mover_queue: int = 4, **noc: Any) -> ChipConfig:
    values = {"name": "t", "lanes": 4, "floorplan": ["dram core host"], "mover_queue": mover_queue, "noc": noc}
    return ChipConfig.model_validate(values)


def request(code: int, way: int = 0) -> list[int]:
    """The five flits of a requested MOVE; bit 64 is `last`."""
    payload = bits(Request, dst_tile=1, code=code, route=way)
    head = REQUEST_HEAD.pack({"dst_tile": 1} | ROUTE_BODY.unpack(way))
    head |= (payload.bit_count() & 1) << REQUEST_HEAD.offsets["parity"][0]
    words = [code >> 64 * i & (1 << 64) - 1 for i in range(4)]
    return [head, *words[:3], words[3] | 1 << 64]


def move(tag: int, fire_at: int = 0, **values: int) -> int:
    return MOVE.pack({"opcode": Opcode.MOVE, "tag": tag, "fire_at": fire_at, **values})


class Taken:
    """MOVEs offered and taken, faults, cycles in which the first one waited for its time, and what it said of it."""

    def __init__(
        self,
        packets: Sequence[Sequence[int]],
        config: ChipConfig,
        cycles: int = 80,
        ready: Mood = always,
        offer: Mood = always,
        gated: bool = False,
    ) -> None:
        unit = RequestTaker(config, 1)
        source = back_to_back(unit.flit, [flit for packet in packets for flit in packet], offer)
        moves = Sink(unit.move, ready)
        faults, timed = faults_of(unit.fault), Strobe(unit.timed, {})
        self.blocked_status: list[dict[str, int]] = []

        def look(_: int, context: Any) -> None:
            self.blocked_status.append(fields(BlockedStatus, context.get(unit.blocked_status.as_value())))

        simulate(unit, cycles, [source], [moves], [faults, timed], after=look, gated=gated)
        self.shown, self.cycles, self.payloads = moves.shown, moves.cycles, moves.payloads
        self.tags = [MOVE.unpack(payload & (1 << 256) - 1)["tag"] for payload in self.payloads]
        self.faults, self.timed = faults.seen, [cycle for cycle, _ in timed.seen]


#: A single request is first in the queue from this cycle on: its last flit is taken in cycle 4.
FIRST = 4 + TAKER_CYCLES + QUEUE_CYCLES


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("fire", [FIRST, FIRST + 1, 20, 33])
def test_a_move_is_offered_in_the_cycle_after_its_fire_time(fire: int, gated: bool) -> None:
    taken = Taken([request(move(7, fire))], chip(), gated=gated)
    assert (taken.shown, taken.cycles) == ([fire + OFFER_CYCLES], [fire + OFFER_CYCLES])
    assert taken.payloads == [move(7, fire)]
    assert taken.timed == list(range(FIRST, fire + 1))
    assert taken.faults == []


def test_it_stays_until_the_mover_takes_it() -> None:
    taken = Taken([request(move(7, 20)), request(move(8))], chip(), ready=lambda cycle: cycle >= 50)
    assert (taken.shown, taken.cycles, taken.tags) == ([21, 51], [50, 51], [7, 8])
    assert taken.faults == []


@pytest.mark.parametrize("slack", [1, 2, FIRST - 1])
def test_a_fire_time_that_is_past_is_a_fault_that_says_by_how_much(slack: int) -> None:
    taken = Taken([request(move(7, FIRST - slack)), request(move(8))], chip(), cycles=40)
    assert taken.faults[0] == (FIRST, {"cause": Cause.LATE, "tag": 7, "value": slack})
    assert {(fault["cause"], fault["tag"]) for _, fault in taken.faults} == {(Cause.LATE, 7)}
    assert (taken.payloads, taken.timed) == ([], [])


def test_a_move_behind_another_can_be_too_late_for_its_time() -> None:
    """It is first in the queue when the one before has been taken, in cycle 30."""
    late = Taken([request(move(7, 25)), request(move(8, 28))], chip(), ready=lambda cycle: cycle >= 30)
    assert late.tags == [7]
    assert late.faults[0] == (31, {"cause": Cause.LATE, "tag": 8, "value": 3})
    just = Taken([request(move(7, 25)), request(move(8, 31))], chip(), ready=lambda cycle: cycle >= 30)
    assert (just.tags, just.cycles, just.faults) == ([7, 8], [30, 32], [])


def test_each_waits_for_its_own_time() -> None:
    """With and without times, in the order in which they came: later ones wait behind."""
    codes = [move(1, 40), move(2), move(3, 50), move(4, 52), move(5, 60), move(6)]
    taken = Taken([request(code) for code in codes], chip(8))
    assert taken.payloads == codes
    assert taken.cycles == [41, 42, 51, 53, 61, 62]
    assert taken.faults == []


def test_who_waits_for_its_time_says_so() -> None:
    taken = Taken([request(move(7, 30, dst_tile=2)), request(move(8))], chip())
    assert taken.blocked_status[20] == {"waits": BlockedOn.TIME, "tag": 7, "sem": 0, "need": 0, "has": 2, "peer": 2}
    stuck = Taken([request(move(7, 20, dst_tile=2))], chip(), ready=lambda cycle: False)
    assert stuck.blocked_status[-1] == {"waits": BlockedOn.UNIT, "tag": 7, "sem": 0, "need": 0, "has": 1, "peer": 2}


@pytest.mark.parametrize("noc", [{"data_vcs": 2}, {"route_hops": 4}, {"data_vcs": 4, "route_hops": 23}])
def test_ways_arrive_with_their_moves(noc: dict[str, int]) -> None:
    rng = random.Random(2)
    items = [(move(tag), rng.choice((0, rng.getrandbits(ROUTE_BODY.used)))) for tag in range(1, 13)]
    taken = Taken([request(code, way) for code, way in items], chip(2, **noc), 400, sometimes(rng, 0.1), gated=True)
    assert [(payload & (1 << 256) - 1, payload >> 256) for payload in taken.payloads] == items
    assert any(way for _, way in items)
    assert taken.faults == []


def test_chips_without_ways_take_none() -> None:
    taken = Taken([request(move(1)), request(move(2), ROUTE_BODY.pack({"channel": 1}))], chip())
    assert taken.payloads == [move(1), move(2)]


@pytest.mark.parametrize("field", [*ROUTE_BODY.offsets, "parity"])
def test_no_bit_of_a_way_can_flip_unseen(field: str) -> None:
    first, width = REQUEST_HEAD.offsets[field]
    for bit in sorted({first, first + width // 2, first + width - 1}):
        flits = request(move(7), ROUTE_BODY.pack({"channel": 2, "routed": 1, "turns": 0x1234}))
        flits[0] ^= 1 << bit
        taken = Taken([flits, request(move(8))], chip(data_vcs=3, route_hops=5), cycles=30)
        assert [fault["cause"] for _, fault in taken.faults] == [Cause.PARITY]
        assert taken.tags == [8]


@pytest.mark.parametrize("gated", [False, True])
def test_random_times_and_stalls(gated: bool) -> None:
    """Times in rising order, two cycles apart at least: nobody is late or early, whatever the plane does."""
    rng = random.Random(3)
    codes, fire = [], 200
    for tag in range(1, 25):
        fire += rng.choice((2, 3, 9, 30))
        codes.append(move(tag, fire if rng.random() < 0.7 else 0))
    config = chip(24, data_vcs=2)
    taken = Taken([request(code) for code in codes], config, 700, offer=sometimes(rng, 0.9), gated=gated)
    assert taken.payloads == codes
    dues = [MOVE.unpack(code)["fire_at"] for code in codes]
    assert [cycle for cycle, due in zip(taken.cycles, dues, strict=True) if due] == [due + 1 for due in dues if due]
    # all have come by cycle 200: those without a time go right behind the one before
    gaps = [cycle - previous for previous, cycle, due in zip(taken.cycles, taken.cycles[1:], dues[1:], strict=False)
              if previous > 200 and not due]  # fmt: skip
    assert gaps
    assert set(gaps) == {1}
    assert taken.faults == []
