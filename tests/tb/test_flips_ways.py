"""Bits that flip in flight on a chip with virtual channels, source routes and arrivals: each ends as a named fault, or
in the right bytes where the packet gets there all the same; and no run hangs without words."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.isa import ARRIVAL, DATA_HEAD, REQUEST_HEAD, Cause, route_field
from meshloom.hw.spec.routes import TURN_BITS
from meshloom.tb.build.builder import build
from meshloom.tb.compare.explain import explain
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.simulated import SimulatedDevice

from . import flips
from .flips import CHANNEL, LAST, Flip, FlippingDevice
from .hand_made import Case, move, notify, random_words, sync
from .ways import MAIN, WAYS, movers, route

STALL = 200
DRAM, HOST, SPM, FAR = 0x00, 0x10, 0x11, 0x02
FIELD = route_field(WAYS)
assert FIELD is not None
#: Ways of the two MOVEs of the scratchpad's stream, both with turns to either side.
THERE, BACK = (0x00, 0x10, 0x11), (0x11, 0x12, 0x02, 0x01, 0x00)
#: Outputs of the second one's way, where its head is the first packet on channel 1 or the only one.
LINKS = ((0x11, "inject"), (0x11, "east"), (0x12, "north"), (0x02, "west"), (0x01, "west"), (0x00, "local"))


def journey(words: int = 20) -> Case:
    """DRAM -> scratchpad -> DRAM, on virtual channels 2 and 1."""
    source = random_words(np.random.default_rng(5), words)
    code = [
        route(WAYS, 1, THERE, 2),
        move(2, (DRAM, MAIN, 0), (SPM, MAIN, 0), words, **notify(2, SPM)),
        route(WAYS, 3, BACK, 1, wait_sem=2, wait_n=1),
        move(4, (SPM, MAIN, 0), (DRAM, MAIN, 512), words, **notify(2, SPM)),
        sync(5, wait_sem=2, wait_n=1),
    ]
    return Case(Job(movers(WAYS, {SPM: code}), [(DRAM, 0, source)], [(DRAM, 512, words)], 20_000, STALL), [source])


CASE = journey()


def ends(first: int, width: int) -> list[int]:
    return sorted({first, first + width - 1})


#: What a tile looks at in a head, at one link of its way after another.
HEADS = [
    Flip("data", *LINKS[number % len(LINKS)], 0, 0, base + bit)
    for number, (base, bit) in enumerate(
        (base, bit)
        for base, layout in ((0, DATA_HEAD), (DATA_HEAD.used, ARRIVAL))
        for first, width in layout.offsets.values()
        for bit in ends(first, width)
    )
]
#: Whether there is a route, and bits of its turns: those that it needs and one behind its end where the head enters,
#: some where part of it is used up.
USED, END = FIELD.first_bit + TURN_BITS * len(BACK), FIELD.end
TURN_FLIPS = [
    *(Flip("data", *LINKS[0], 0, 0, bit) for bit in (FIELD.flag_bit, *range(FIELD.first_bit, USED), END - 2)),
    *(Flip("data", *LINKS[3], 0, 0, bit) for bit in (FIELD.flag_bit, FIELD.first_bit, FIELD.first_bit + 3, END - 1)),
]
#: Of a request: channel, flag and turns of the way that it asks for.
REQUESTS = [
    Flip("request", *place, 0, 0, bit)
    for place, name in (((SPM, "inject"), "channel"), ((SPM, "west"), "routed"), ((HOST, "north"), "turns"))
    for bit in ends(*REQUEST_HEAD.offsets[name])
]
#: The virtual channel of a head, a word and the tail; and where the packet ends.
CHANNELS = [
    Flip("data", *place, 0, flit, CHANNEL + (number + flit) % 2)
    for number, place in enumerate(LINKS)
    for flit in (0, 7, 20)
]
TAILS = [Flip("data", *LINKS[number % 6], 0, flit, LAST) for number, flit in enumerate((0, 9, 20, 20, 0, 9, 9, 20, 0))]
ANY = sorted(
    {
        Flip("data", *rng.choice(LINKS), 0, rng.randrange(21), rng.randrange(FIELD.end))
        for rng in (Random(7),)
        for _ in range(5)
    }
    - {*HEADS, *TURN_FLIPS},
    key=str,
)
ALL = [None, *HEADS, *TURN_FLIPS, *REQUESTS, *CHANNELS, *TAILS, *ANY]
HUNG = (Cause.STALLED, Cause.WATCHDOG)


@pytest.fixture(scope="module")
def runs() -> tuple[dict[Flip | None, Run], set[Flip | None]]:
    """What came of each flip, and those that have happened."""
    device = FlippingDevice(flips.build(WAYS), flips=ALL)
    result = dict(zip(ALL, device.run([replace(CASE.job)] * len(ALL), "flips"), strict=True))
    return result, {ALL[number] for number in device.flipped}


Runs = tuple[dict[Flip | None, Run], set[Flip | None]]


def right(run: Run) -> bool:
    return run.fault is None and bool((run.memory[0] == CASE.expected[0]).all())


def test_the_journey_ends_right_on_the_chip_as_it_ships() -> None:
    (run,) = SimulatedDevice(build(WAYS, "verilator")).run([CASE.job])
    assert right(run)


@pytest.mark.slow
def test_every_flip_happens_and_without_one_the_bytes_are_right(runs: Runs) -> None:
    assert set(ALL) - {None} == runs[1]
    assert right(runs[0][None])


@pytest.mark.slow
@pytest.mark.parametrize("flip", HEADS, ids=str)
def test_a_flipped_head_is_a_named_fault(flip: Flip, runs: Runs) -> None:
    fault = runs[0][flip].fault
    assert fault is not None
    # a route that does not end where the head says is refused by a router
    assert fault.cause in ((Cause.PARITY, Cause.DESTINATION) if flip.bit < 8 else (Cause.PARITY,))


@pytest.mark.slow
@pytest.mark.parametrize("flip", TURN_FLIPS, ids=str)
def test_a_flipped_turn_leads_astray_or_there_all_the_same(flip: Flip, runs: Runs) -> None:
    run = runs[0][flip]
    if run.fault is None:
        assert right(run)
    else:
        assert run.fault.cause is Cause.DESTINATION


@pytest.mark.slow
def test_both_kinds_of_flipped_turns_are_there(runs: Runs) -> None:
    """Most lead astray; entries behind the end do not, nor does a flag that is lost before the first turn."""
    came = {flip: right(runs[0][flip]) for flip in TURN_FLIPS}
    assert sum(not there for there in came.values()) >= 8
    assert came[TURN_FLIPS[0]]
    assert all(came[flip] for flip in TURN_FLIPS if flip.bit >= END - TURN_BITS)


@pytest.mark.slow
@pytest.mark.parametrize("flip", REQUESTS, ids=str)
def test_a_flipped_way_in_a_request_is_a_named_fault(flip: Flip, runs: Runs) -> None:
    fault = runs[0][flip].fault
    assert fault is not None
    assert fault.cause is Cause.PARITY


@pytest.mark.slow
@pytest.mark.parametrize("flip", [*CHANNELS, *TAILS, *ANY], ids=str)
def test_other_flips_end_in_a_fault_in_words_or_in_words_of_data(flip: Flip, runs: Runs) -> None:
    """A flit on another channel is taken for a head there; one on a channel that does not exist is lost."""
    run = runs[0][flip]
    if run.fault is None:
        # a word's bit is data; nothing else may change unseen
        assert right(run) or (flip.flit > 0 and flip.bit < WAYS.word_bits)
    elif run.fault.cause in HUNG:
        text = explain(run, CASE.job.program, None, WAYS)
        assert text.startswith(("hang: ", "deadlock: "))
        assert "@(" in text
    else:
        assert run.fault.cause in (Cause.PARITY, Cause.DESTINATION, Cause.LENGTH, Cause.ADDRESS)


@pytest.mark.slow
def test_what_hangs_names_the_words_that_are_missing(runs: Runs) -> None:
    """A tail that is lost on its way leaves a packet without an end: the tile where it should come says so."""
    hung = {flip: run for flip, run in runs[0].items() if run.fault is not None and run.fault.cause in HUNG}
    texts = {flip: explain(run, CASE.job.program, None, WAYS) for flip, run in hung.items()}
    for flip, text in texts.items():
        assert "dram@(0,0)" in text or "spm@(1,1)" in text, (flip, text)
    assert any("waits for its last 1 words" in text for text in texts.values())
