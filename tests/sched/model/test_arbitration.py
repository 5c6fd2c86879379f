"""The model's queues of requests for DRAM by tile, which skip cycles, against those that count every cycle."""

from __future__ import annotations

from random import Random

import pytest

from meshloom.sched.model.arbitration import NONE, Turns
from meshloom.sched.model.flow import FOREVER

from ...hw.turns import CHIPS, Reference, traffic


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CHIPS)
def test_turns_that_skip_cycles_are_those_of_every_cycle(name: str, seed: int) -> None:
    chip, random = CHIPS[name], Random(seed)
    reference, turns = Reference(chip), Turns(chip)
    tiles, left = list(chip.tiles), traffic(random, chip, 150)
    read = looked = 0
    comes, goes = random.choice((0.01, 0.1, 0.8)), random.choice((0.01, 0.05, 0.5))
    promise = None  # the cycle in which a request is to be offered if none comes
    for now in range(4000):
        coming = left[0] if left and random.random() < comes else None
        tile, taking = reference.chosen(), random.random() < goes
        if promise is not None:
            assert (tile is not None) == (now >= promise), now
        if taking or (promise is None and random.random() < 0.1):
            looked += 1
            number = turns.next(now)
            assert (None if number == NONE else tiles[number]) == tile
            promise = turns.offered(now)
            assert (promise == now) == (tile is not None)
            if tile is None and not any(reference.queues.values()):
                assert promise == FOREVER
            if taking and tile is not None:
                assert turns.take(number, now)["tag"] == reference.queues[tile][0][0]
                read, promise = read + 1, None
        enters = None
        if coming is not None:
            assert turns.room(coming[0]) == (reference.room(coming[0]) or (taking and coming[0] == tile))
            if reference.room(coming[0]) and not (taking and coming[0] == tile):
                enters = left.pop(0)
        reference.step(enters, taking)
        if enters is not None:
            turns.expect(enters[0])
            turns.enter(enters[0], {"tag": enters[1], "words": enters[2]}, now + 1)
            promise = None
    assert read > 5
    assert looked > 20
