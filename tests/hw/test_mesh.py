"""A mesh: nothing lost, doubled, reordered or damaged under random traffic, and the latency in closed form."""

from __future__ import annotations

import random
from itertools import chain, product

import pytest
from amaranth.sim import Simulator

from meshloom.hw.config import tile_position
from meshloom.hw.noc.mesh import Mesh

from .flit_traffic import Traffic, as_flits, drive, moody, packets

BITS = 48


def run(mesh: Mesh, sends: dict[int, list[list[int]]], cycles: int, **moods: object) -> Traffic:
    """Sends packets from the tiles; ports of the record are numbered like `mesh.tiles`."""
    bench, traffic = drive(
        [mesh.inject(tile) for tile in mesh.tiles],
        [mesh.eject(tile) for tile in mesh.tiles],
        [chain.from_iterable(as_flits(packet) for packet in sends.get(tile, [])) for tile in mesh.tiles],
        cycles=cycles,
        faults=[mesh.fault(tile) for tile in mesh.tiles],
        **moods,  # type: ignore[arg-type]
    )
    simulator = Simulator(mesh)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return traffic


def random_packets(mesh: Mesh, rng: random.Random, count: int, longest: int) -> dict[int, list[list[int]]]:
    """`count` packets of each tile. Each flit tells destination, source, number and position."""
    sends: dict[int, list[list[int]]] = {}
    for source in mesh.tiles:
        sends[source] = []
        for number in range(count):
            target = rng.choice(mesh.tiles)
            length = rng.choice((1, 1, 2, longest))
            flits = range(length)
            sends[source].append([target | source << 8 | number << 16 | at << 32 for at in flits])
    return sends


@pytest.mark.parametrize(
    ("width", "height", "depth", "offer", "accept"),
    [
        (2, 2, 2, 0.9, 0.9),
        (2, 2, 3, 0.4, 0.9),
        (3, 3, 2, 1.0, 0.5),
        (3, 3, 4, 1.0, 1.0),
        (1, 4, 2, 0.9, 0.4),
        (4, 1, 4, 0.7, 0.7),
        (1, 1, 2, 0.8, 0.8),
    ],
)
def test_random_traffic_arrives_whole_and_in_order(
    width: int, height: int, depth: int, offer: float, accept: float
) -> None:
    mesh = Mesh(width, height, BITS, depth)
    sends = random_packets(mesh, random.Random(f"{width}{height}{depth}"), 20, 9)
    traffic = run(mesh, sends, 700, offer=moody(1, offer), accept=moody(2, accept))
    assert not traffic.faults
    sent = {pair: [] for pair in product(mesh.tiles, repeat=2)}
    for source, list_ in sends.items():
        for packet in list_:
            sent[source, packet[0] & 0xFF].append(packet)
    arrived = {pair: [] for pair in product(mesh.tiles, repeat=2)}
    for tile, passed in zip(mesh.tiles, traffic.ejected, strict=True):
        for packet in packets(passed):
            arrived[packet[0] >> 8 & 0xFF, tile].append(packet)
    assert arrived == sent


@pytest.mark.parametrize(("width", "height", "depth"), [(3, 2, 2), (1, 4, 3), (2, 3, 4)])
def test_zero_load_latency_in_closed_form(width: int, height: int, depth: int) -> None:
    """Over H hops a head injected in cycle t is ejected in t + H + 1, the last of L flits in t + H + L."""
    mesh = Mesh(width, height, BITS, depth)
    slot = 3 + width + height + 3  # longest packet, longest way, slack: one packet at a time is under way
    journeys = [(source, target, length) for source, target in product(mesh.tiles, repeat=2) for length in (1, 3)]
    sends: dict[int, list[list[int]]] = {tile: [] for tile in mesh.tiles}
    starts: dict[int, set[int]] = {number: set() for number in range(len(mesh.tiles))}
    for turn, (source, target, length) in enumerate(journeys):
        sends[source].append([target | turn << 8 | at << 32 for at in range(length)])
        starts[mesh.tiles.index(source)] |= {turn * slot + at for at in range(length)}
    traffic = run(mesh, sends, slot * len(journeys), offer=lambda port, cycle: cycle in starts[port])
    for tile, passed in zip(mesh.tiles, traffic.ejected, strict=True):
        x, y = tile_position(tile)
        for flit in passed:
            turn, at = flit.data >> 8 & 0xFFFFFF, flit.data >> 32
            source, target, length = journeys[turn]
            source_x, source_y = tile_position(source)
            assert target == tile
            hops = abs(x - source_x) + abs(y - source_y)
            assert flit.cycle == turn * slot + hops + 1 + at, (source, target, length, at)
    assert sum(map(len, traffic.ejected)) == sum(length for *_, length in journeys)


def test_disjoint_streams_run_at_one_flit_per_cycle() -> None:
    mesh = Mesh(3, 3, BITS, 2)
    # Row 0 eastwards, row 1 westwards, column 0 southwards from row 1: no link and no port is shared.
    pairs = {0x00: 0x02, 0x12: 0x11, 0x10: 0x20, 0x21: 0x22}
    sends = {
        source: [[target | n << 8 | at << 32 for at in range(8)] for n in range(6)] for source, target in pairs.items()
    }
    traffic = run(mesh, sends, 70)
    for source, target in pairs.items():
        cycles = [flit.cycle for flit in traffic.ejected[mesh.tiles.index(target)]]
        hops = sum(abs(a - b) for a, b in zip(tile_position(source), tile_position(target), strict=True))
        assert cycles == list(range(hops + 1, hops + 1 + 48))


def test_bad_destinations_fault_where_they_are_injected_and_disturb_nobody() -> None:
    mesh = Mesh(2, 3, BITS, 2)
    bad = {0x00: 0x02, 0x11: 0x30, 0x21: 0xFF}
    sends = {
        source: [[target | source << 8, *[0] * 3], [source ^ 0x01 | source << 8, 5, 6]]
        for source, target in bad.items()
    }
    traffic = run(mesh, sends, 40)
    assert {(mesh.tiles[number], value) for _, number, value in traffic.faults} == set(bad.items())
    assert len(traffic.faults) == len(bad)
    arrived = list(chain.from_iterable(packets(passed) for passed in traffic.ejected))
    assert sorted(arrived) == sorted(packets_[1] for packets_ in sends.values())


def test_a_crowded_corner_starves_nobody() -> None:
    mesh = Mesh(2, 2, BITS, 2)
    sends = {source: [[0x11 | source << 8, n] for n in range(40)] for source in mesh.tiles}
    traffic = run(mesh, sends, 340)
    arrived = [packet[0] >> 8 & 0xFF for packet in packets(traffic.ejected[mesh.tiles.index(0x11)])]
    # 0x11 takes turns between three inputs, and 0x01 between its own packets and those of 0x00.
    for source in mesh.tiles:
        places = [at for at, found in enumerate(arrived) if found == source]
        assert len(places) == 40
        first_half = [at for at in places if at < 80]
        assert len(first_half) >= 10, (source, arrived)
