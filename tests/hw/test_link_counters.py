"""Counters of links: every strobe in its counter while they count, alone and behind the routers of a mesh."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from amaranth.hdl import Cat, Value

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.spec.routes import ports_at
from meshloom.hw.wiring.link_counters import OUTPUTS, LinkCounters, link_counts

from .unit_bench import simulate
from .vc_traffic import run

KINDS = ("busy", "blocked")


def read(context: Any, counts: Any) -> dict[tuple[str, str], int]:
    """(kind, output) to the number that is shown."""
    shown = context.get(counts.as_value() if hasattr(counts, "as_value") else counts)
    return {
        (kind, port): shown >> 32 * (k * len(OUTPUTS) + i) & 0xFFFFFFFF
        for (k, kind), (i, port) in product(enumerate(KINDS), enumerate(OUTPUTS))
    }


class Gated(LinkCounters):
    """Says when a register of it may change."""

    @property
    def active(self) -> Value:
        return Cat(strobe for port in self.ports for strobe in self.strobes(port)).any()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("ports", [ports_at(1, 1, 3, 3), ports_at(0, 0, 3, 3), ("south", "local"), ("local",)])
def test_every_strobe_counts_once_while_counting(ports: tuple[str, ...], gated: bool) -> None:
    """In the cycle after it; outputs that are not there stay 0. Gated: registers stop in cycles without a strobe."""
    unit, rng = Gated(ports), random.Random(len(ports))
    right = dict.fromkeys(product(KINDS, OUTPUTS), 0)
    assert link_counts().size == 2 * 32 * len(OUTPUTS)

    def before(cycle: int, context: Any) -> None:
        assert read(context, unit.counts) == right
        count = rng.random() < 0.7
        context.set(unit.count, count)
        for port in ports:
            for kind, signal in zip(KINDS, unit.strobes(port), strict=True):
                on = rng.random() < 0.4
                context.set(signal, on)
                right[kind, port] += on and count

    simulate(unit, 200, before=before, gated=gated)
    assert sum(right.values()) > 100
    assert {port for (_, port), number in right.items() if number} == set(ports)


@pytest.mark.parametrize("vcs", [1, 3])
def test_a_mesh_counts_what_its_strobes_show(vcs: int) -> None:
    """Random traffic; counting is switched on late and off early."""
    mesh = VcMesh(Plane(2, 2, 64, 2, vcs), counted=True)
    rng = random.Random(vcs)
    sends = {
        tile: {vc: [[rng.choice(mesh.tiles), *[0] * rng.randrange(6)] for _ in range(10)] for vc in range(vcs)}
        for tile in mesh.tiles
    }
    ports = {tile: ports_at(tile & 15, tile >> 4, 2, 2) for tile in mesh.tiles}
    strobes = {
        (tile, kind, port): mesh.counters(tile, port)[kind == "blocked"]
        for tile in mesh.tiles for port in ports[tile] for kind in KINDS
    }  # fmt: skip
    first, last = 20, 90
    shown: dict[int, dict[tuple[str, str], int]] = {}

    async def counting(context: Any) -> None:
        for cycle in range(150):
            context.set(mesh.count, first <= cycle < last)
            await context.tick()
        shown.update({tile: read(context, mesh.counts(tile)) for tile in mesh.tiles})

    traffic = run(
        mesh,
        {tile: mesh.inject(tile) for tile in mesh.tiles},
        {tile: mesh.eject(tile) for tile in mesh.tiles},
        sends,
        150,
        accept=lambda tile, vc, cycle: (cycle + tile) % 3 != 0,
        strobes=strobes,
        also=counting,
    )
    for tile, port, kind in product(mesh.tiles, OUTPUTS, KINDS):
        cycles = [cycle for cycle in traffic.strobes[tile, kind, port] if first <= cycle < last]
        assert shown[tile][kind, port] == len(cycles), (tile, port, kind)
    assert sum(shown[tile]["busy", "local"] for tile in mesh.tiles) > 30
    assert sum(shown[tile]["blocked", "local"] for tile in mesh.tiles) > 30


def test_what_leaves_by_an_output_is_counted_there() -> None:
    """One packet of 5 flits over two hops: 5 busy cycles in each router on its way, none elsewhere."""
    mesh = VcMesh(Plane(3, 1, 64, 2, 2), counted=True)
    seen: dict[int, dict[tuple[str, str], int]] = {}

    async def counting(context: Any) -> None:
        context.set(mesh.count, 1)
        for _ in range(30):
            await context.tick()
        seen.update({tile: read(context, mesh.counts(tile)) for tile in mesh.tiles})

    run(
        mesh,
        {tile: mesh.inject(tile) for tile in mesh.tiles},
        {tile: mesh.eject(tile) for tile in mesh.tiles},
        {0: {1: [[2, 1, 2, 3, 4]]}},
        30,
        also=counting,
    )
    result = {(tile, *key): number for tile, counts in seen.items() for key, number in counts.items() if number}
    assert result == {(0, "busy", "east"): 5, (1, "busy", "east"): 5, (2, "busy", "local"): 5}
