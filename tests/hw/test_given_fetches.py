"""The request taker in chips on which programs come and go: every FETCH is shown to the tile, and pulls carry pages."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from meshloom.hw.noc.interface import RequestTaker
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import QUEUE_CYCLES, TAKER_CYCLES
from meshloom.hw.spec.isa import INSTRUCTIONS, Cause, Opcode, Unit

from .test_interface import Taken, fetch_packet, move_packet
from .unit_bench import Mood, Sink, Strobe, always, back_to_back, faults_of, simulate, sometimes

CHIP = ChipConfig.model_validate(
    {
        "name": "t",
        "lanes": 8,
        "floorplan": ["dram core host"],
        "dram": {"bytes_per_cycle": 4},
        "mover_queue": 2,
        "programs": 2,
    }
)
FETCH = INSTRUCTIONS[Opcode.FETCH]
RIGHTS = {"slot": 1, "cores": 1, "first_page": 3, "end_page": 5}


def take(
    packets: Sequence[Sequence[int]], units: int = 3, cycles: int = 60, move: Mood = always, offer: Mood = always
) -> tuple[Taken, Strobe]:
    unit = RequestTaker(CHIP, units)
    source = back_to_back(unit.flit, [flit for packet in packets for flit in packet], offer)
    moves, faults = Sink(unit.move, move), faults_of(unit.fault)
    starts = [Strobe(unit.start(i).valid, {"fetch": unit.start(i).fetch.as_value()}) for i in range(units)]
    given = Strobe(unit.given.valid, {"fetch": unit.given.fetch.as_value()})
    simulate(unit, cycles, [source], [moves], [faults, *starts, given])
    return Taken(source.taken, moves, starts, faults.seen), given


def code(unit: int, **values: int) -> int:
    return FETCH.pack({"opcode": Opcode.FETCH, "unit": unit, **values})


@pytest.mark.parametrize("unit", [0, 1, 2])
@pytest.mark.parametrize("clear", [0, 1])
def test_every_fetch_is_given_in_the_cycle_in_which_it_starts_its_unit(unit: int, clear: int) -> None:
    values = {"tag": 9, "addr": 4567, "count": 89, "clear": clear, **RIGHTS}
    taken, given = take([fetch_packet(unit, **values)])
    once = [(4 + TAKER_CYCLES, {"fetch": code(unit, **values)})]
    assert (given.seen, taken.starts[unit].seen, taken.faults) == (once, once, [])


@pytest.mark.parametrize("units", [1, 2, 3])
def test_a_fetch_for_no_unit_only_clears(units: int) -> None:
    taken, given = take([fetch_packet(Unit.NONE, tag=77, clear=1), move_packet(5)], units)
    assert given.seen == [(5, {"fetch": code(Unit.NONE, tag=77, clear=1)})]
    assert (taken.faults, taken.moves.payloads) == ([], [5])
    assert all(start.seen == [] for start in taken.starts)


@pytest.mark.parametrize(("unit", "clear"), [(Unit.NONE, 0), (Unit.VECTOR, 0), (Unit.VECTOR, 1)])
def test_a_fetch_for_a_unit_that_is_not_there_is_a_fault(unit: Unit, clear: int) -> None:
    taken, _ = take([fetch_packet(unit, tag=77, clear=clear), move_packet(5)], units=1)
    assert taken.faults == [(5, {"cause": Cause.DESTINATION, "tag": 77, "value": unit})]
    assert (taken.moves.payloads, taken.starts[0].seen) == ([5], [])


def test_pages_of_a_pull_are_no_fire_time() -> None:
    """It is offered at once, unchanged, however late or early that would be."""
    pulls = [INSTRUCTIONS[Opcode.MOVE].pack({"opcode": Opcode.MOVE, "fire_at": at}) for at in (1, 5000)]
    taken, given = take([move_packet(pull) for pull in pulls])
    there = TAKER_CYCLES + QUEUE_CYCLES
    assert taken.moves.got == [(4 + there, pulls[0]), (9 + there, pulls[1])]
    assert (taken.faults, given.seen) == ([], [])


def test_random_requests_in_order() -> None:
    rng = random.Random(5)
    codes, fetches = [rng.getrandbits(256) for _ in range(25)], 0
    packets = []
    for move in codes:
        packets.append(move_packet(move))
        if rng.random() < 0.4:
            packets.append(fetch_packet(rng.randrange(4), tag=fetches, clear=1, **RIGHTS))
            fetches += 1
    taken, given = take(packets, cycles=1200, move=sometimes(rng, 0.2), offer=sometimes(rng, 0.7))
    assert taken.moves.payloads == codes
    assert [FETCH.unpack(result["fetch"])["tag"] for result in given.values] == list(range(fetches))
    assert taken.faults == []
