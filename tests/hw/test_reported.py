"""Of each tile one fault until it is taken and cleared: against sets, whatever comes when."""

from __future__ import annotations

import random
from typing import Any

import pytest

from meshloom.hw.host_link.reported import Reported
from meshloom.hw.spec.config import load

from .unit_bench import simulate

CHIP = load("lp9")
TILES = tuple(CHIP.tiles)
STRANGE = (0x0F, 0xFF)  # nowhere on the floorplan


@pytest.mark.parametrize("seed", range(4))
def test_each_tile_has_at_most_one_fault_in_the_queue(seed: int) -> None:
    rng = random.Random(seed)
    unit = Reported(CHIP)
    queued: set[int] = set()
    message: set[int] = set()
    fresh: list[int] = []
    most = 0

    def number(tile: int) -> int:
        return TILES.index(tile) if tile in TILES else len(TILES)

    def before(cycle: int, context: Any) -> None:
        nonlocal most
        some = rng.sample(TILES, 3 + seed) + list(STRANGE)
        strobes = {"fault": rng.choice(some), "cleared": rng.choice(some)}
        waiting = sorted(queued)
        if waiting:
            at = rng.choice(waiting)
            strobes["taken"] = TILES[at] if at < len(TILES) else rng.choice(STRANGE)
        on = {name: name in strobes and rng.random() < 0.6 for name in ("fault", "taken", "cleared")}
        begins = rng.random() < 0.01
        for name, valid in on.items():
            port = getattr(unit, name)
            context.set(port.valid, valid)
            context.set(port.tile, strobes.get(name, rng.randrange(256)))
        context.set(unit.clear_all, begins)
        expected = on["fault"] and number(strobes["fault"]) not in queued | message
        assert context.get(unit.fresh) == expected
        if on["taken"]:
            queued.discard(number(strobes["taken"]))
        if on["cleared"]:
            message.discard(number(strobes["cleared"]))
        if expected:
            fresh.append(number(strobes["fault"]))
            queued.add(fresh[-1])
            message.add(fresh[-1])
        if begins:
            queued.clear()
            message.clear()
        most = max(most, len(queued))

    simulate(unit, 3000, before=before)
    assert len(fresh) > 200
    assert set(fresh) == set(range(len(TILES) + 1))
    assert 3 < most <= len(TILES) + 1
