"""Bits that flip in flight, on the RTL: each ends as a named fault, or else in words about who waits for what.

Heads, requests and posts have a parity bit, tails are where heads say, and posts are for whom they reach: so no flip
of a destination, a length or an address goes on unseen. Payload words are not protected: one that is an instruction may
make the program hang, and then the explanation has to name who.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.isa import DATA_HEAD, HEADER_FORMAT, POST, REQUEST_HEAD, Cause
from meshloom.tb.compare.explain import explain
from meshloom.tb.devices.interface import Run

from . import flips
from .flips import LAST, Flip, FlippingDevice
from .hand_made import CHIP, CORE, DRAM, HOST, SPM, product

#: What came of each flip, and those that have happened.
Runs = tuple[dict[Flip | None, Run], set[Flip | None]]
#: Cycles without progress after which a run is stopped here.
STALL = 500
CASE = product(2)
#: Where packets pass, one of each kind of place: from a tile to its router, between routers, to a tile.
DATA_PLACES = ((DRAM, "inject"), (DRAM, "east"), (CORE, "local"), (DRAM, "south"))
REQUEST_PLACES = ((HOST, "inject"), (CORE, "west"), (SPM, "north"), (DRAM, "local"))
POST_PLACES = ((CORE, "inject"), (CORE, "west"), (HOST, "local"), (DRAM, "east"))


def heads(plane: str, places: Sequence[tuple[int, str]], layout: dict[str, tuple[int, int]]) -> list[Flip]:
    """Lowest and highest bit of every field of the first head, at one place after another."""
    values = []
    for first, width in layout.values():
        for bit in sorted({first, first + width - 1}):
            tile, place = places[len(values) % len(places)]
            values.append(Flip(plane, tile, place, 0, 0, bit))
    return values


#: Nothing that a tile looks at can flip there unseen.
HEADS = [
    *heads("data", DATA_PLACES, DATA_HEAD.offsets),
    *heads("request", REQUEST_PLACES, REQUEST_HEAD.offsets),
    *heads("post", POST_PLACES, {name: POST.offsets[name] for name in ("dst_tile", "fault", "sem", "n", "parity")}),
    *(
        Flip("request", tile, place, 0, flit, bit)
        for (tile, place), flit, bit in zip(REQUEST_PLACES, (1, 2, 3, 4), (0, 63, 17, 30), strict=True)
    ),
    *(Flip("data", DRAM, place, 1, 0, bit) for place in ("inject", "east") for bit in range(8)),
]
#: The bit that ends a packet: too early in a head or a body, missing in a tail.
TAILS = [
    Flip("data", DRAM, "east", 0, 0, LAST),
    Flip("data", DRAM, "inject", 1, 2, LAST),
    Flip("data", CORE, "inject", 0, 4, LAST),
    Flip("request", HOST, "inject", 0, 1, LAST),
    Flip("request", DRAM, "local", 0, 4, LAST),
    Flip("post", CORE, "inject", 0, 0, LAST),
    Flip("post", HOST, "local", 0, 0, LAST),
]
#: Words of the core's streams on their way into the ring: (packet, instruction, field, bit of it), all seen in DRAM's
#: link to the core.
CODE = [
    Flip("data", DRAM, "east", packet, 1 + (32 * instruction * 8 + HEADER_FORMAT.offsets[name][0] + bit) // 32,
         (HEADER_FORMAT.offsets[name][0] + bit) % 32)
    for packet, instruction, name, bit in (
        (0, 2, "wait_n", 3), (0, 2, "wait_sem", 1), (0, 3, "wait_sem", 0), (1, 0, "wait_n", 5), (1, 0, "post_sem", 0),
        (1, 0, "post_n", 1),
    )
]  # fmt: skip
#: Any bit of any of the first flits.
ANY = sorted(
    {
        Flip(plane, *rng.choice(places), rng.randrange(2), rng.randrange(flits), rng.randrange(64))
        for rng in (Random(5),)
        for plane, places, flits in (("data", DATA_PLACES, 6), ("request", REQUEST_PLACES, 5), ("post", POST_PLACES, 1))
        for _ in range(8)
    }
    - {*HEADS, *TAILS, *CODE},
    key=str,
)
ALL = [None, *HEADS, *TAILS, *CODE, *ANY]


@pytest.fixture(scope="module")
def runs() -> Runs:
    """What came of each flip, and those that have happened."""
    device = FlippingDevice(flips.build(CHIP), flips=ALL)
    jobs = [replace(CASE.job, stall_limit=STALL)] * len(ALL)
    result = dict(zip(ALL, device.run(jobs, "flips"), strict=True))
    return result, {ALL[number] for number in device.flipped}


def test_every_flip_happens(runs: Runs) -> None:
    assert {*HEADS, *TAILS, *CODE} <= runs[1]
    assert len(runs[1] & set(ANY)) > 10


def test_without_a_flip_the_bytes_are_right(runs: Runs) -> None:
    run = runs[0][None]
    assert run.fault is None
    np.testing.assert_array_equal(run.memory[0], CASE.expected[0])


@pytest.mark.parametrize("flip", HEADS, ids=str)
def test_a_flipped_head_is_a_named_fault(flip: Flip, runs: Runs) -> None:
    fault = runs[0][flip].fault
    assert fault is not None
    causes = {Cause.PARITY}
    if flip.flit == 0 and flip.bit < 8:
        causes.add(Cause.DESTINATION)  # refused by the router of its tile
    assert fault.cause in causes


@pytest.mark.parametrize("flip", TAILS, ids=str)
def test_a_flipped_tail_is_a_named_fault(flip: Flip, runs: Runs) -> None:
    """Or, if nothing follows that could tell, the run is stopped and the text says where the rest is missing."""
    run = runs[0][flip]
    assert run.fault is not None
    if run.fault.cause is Cause.STALLED:
        assert "waits for the rest of a request" in explain(run, CASE.job.program, None, CHIP)
    else:
        assert run.fault.cause in (Cause.LENGTH, Cause.PARITY)


@pytest.mark.parametrize("flip", CODE, ids=str)
def test_a_flipped_instruction_hangs_in_words(flip: Flip, runs: Runs) -> None:
    run = runs[0][flip]
    assert run.fault is not None
    assert run.fault.cause in (Cause.STALLED, Cause.SEMAPHORE_RANGE)
    if run.fault.cause is Cause.STALLED:
        text = explain(run, CASE.job.program, None, CHIP)
        assert text.startswith("hang: the run was stopped")
        assert "core@(1,0) m" in text


@pytest.mark.parametrize("flip", ANY, ids=str)
def test_no_flip_hangs_without_words(flip: Flip, runs: Runs) -> None:
    run = runs[0][flip]
    if run.fault is None:
        if flip not in runs[1] or flip.plane != "data":  # it changed nothing that anybody looks at
            np.testing.assert_array_equal(run.memory[0], CASE.expected[0])
    elif run.fault.cause in (Cause.STALLED, Cause.WATCHDOG):
        assert flip in runs[1]
        assert "@(" in explain(run, CASE.job.program, None, CHIP)
    else:
        assert flip in runs[1]


def test_every_bit_that_is_looked_at_outside_of_data_is_protected(runs: Runs) -> None:
    """Each flip there that has happened is a fault, but for the bits of a request's head that mean nothing."""
    happened = [flip for flip in ANY if flip.plane != "data" and flip in runs[1]]
    idle = [flip for flip in happened if flip.plane == "request" and flip.flit == 0 and flip.bit >= REQUEST_HEAD.used]
    unnoticed = [flip for flip in happened if runs[0][flip].fault is None]
    assert set(unnoticed) <= set(idle)
    assert len(happened) - len(idle) >= 8
