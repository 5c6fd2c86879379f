# amaranth: UnusedElaboratable=no
"""A mesh with virtual channels: nothing lost, doubled, damaged or reordered, and the latency in closed form."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import chain, product
from typing import Any

import pytest

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.spec.config import tile_address, tile_position
from meshloom.hw.spec.routes import RouteField, Turn, dimension_ordered, encode
from meshloom.hw.spec.timing import noc_arrival

from ..tiers import slow_but
from .flit_traffic import moody
from .vc_traffic import Sends, Traffic, packets, run, run_mesh

BITS = 64
#: Heads: destination, 1 flag, 11 entries of a route, then the packet's number; other flits: number and position.
FIELD = RouteField(flag_bit=8, first_bit=9, turns=11)
NUMBER = 32


def flits(number: int, length: int, head: int) -> list[int]:
    """A packet whose number and positions can be seen in each flit."""
    return [head | number << NUMBER, *((number << NUMBER) + at for at in range(1, length))]


def hops(source: int, target: int) -> int:
    return sum(abs(a - b) for a, b in zip(tile_position(source), tile_position(target), strict=True))


@pytest.mark.parametrize(
    ("width", "height", "depth", "vcs", "routing", "allocate", "offer", "accept"),
    [
        (2, 2, 2, 1, "yx", "same", 0.9, 0.9),
        pytest.param(3, 3, 2, 1, "yx", "same", 1.0, 0.5, marks=pytest.mark.slow),
        (2, 2, 2, 2, "xy", "same", 0.9, 0.4),
        (2, 2, 3, 2, "yx", "same", 1.0, 1.0),
        pytest.param(2, 2, 2, 4, "xy", "same", 1.0, 0.5, marks=pytest.mark.slow),
        (3, 1, 4, 4, "yx", "same", 0.6, 0.9),
        pytest.param(1, 4, 2, 3, "xy", "same", 0.9, 0.5, marks=pytest.mark.slow),
        (4, 1, 4, 2, "yx", "same", 0.7, 0.7),
        (1, 1, 2, 4, "xy", "same", 0.9, 0.5),
        (2, 2, 2, 2, "yx", "free", 0.9, 0.5),
        pytest.param(2, 2, 2, 4, "xy", "free", 1.0, 0.6, marks=pytest.mark.slow),
    ],
)
def test_random_traffic_arrives_whole_and_in_order(
    width: int, height: int, depth: int, vcs: int, routing: str, allocate: str, offer: float, accept: float
) -> None:
    mesh = VcMesh(Plane(width, height, BITS, depth, vcs, routing, allocate))
    rng = random.Random(f"{width}{height}{depth}{vcs}")
    sends: dict[int, Sends] = {}
    sent: dict[tuple[int, int, int], list[list[int]]] = defaultdict(list)
    numbers = iter(range(1 << 30))
    for source in mesh.tiles:
        sends[source] = {vc: [] for vc in range(vcs)}
        for _ in range(16):
            vc, target, length = rng.randrange(vcs), rng.choice(mesh.tiles), rng.choice((1, 1, 2, 9))
            packet = flits(next(numbers), length, target | source << 8)
            sends[source] = {**sends[source], vc: [*sends[source][vc], packet]}
            sent[source, target, vc].append(packet)
    moods = moody(1, offer), moody(2, accept)
    traffic = run_mesh(mesh, sends, 450, offer=moods[0], accept=lambda tile, vc, cycle: moods[1](tile << 2 | vc, cycle))
    assert not traffic.faults
    arrived: dict[tuple[int, int, int], list[list[int]]] = defaultdict(list)
    for tile, passed in traffic.ejected.items():
        for vc, packet in packets(passed):
            arrived[packet[0] >> 8 & 0xFF, tile, vc].append(packet)
    if allocate == "same":
        assert arrived == sent
    else:
        assert sorted(chain(*arrived.values())) == sorted(chain(*sent.values()))
        assert all(packet[0] & 0xFF == tile for (_, tile, _), result in arrived.items() for packet in result)


def alone(mesh: VcMesh, journeys: list[tuple[int, int, int, int, int]], slot: int) -> Traffic:
    """One packet at a time; `journeys`: source, vc, head, length, and where it is to arrive; the n-th starts in cycle
    n * `slot`. The number of each is that of its journey."""
    sends: dict[int, dict[int, list[list[int]]]] = {tile: defaultdict(list) for tile in mesh.tiles}
    starts: dict[int, set[int]] = {tile: set() for tile in mesh.tiles}
    for turn, (source, vc, head, length, _) in enumerate(journeys):
        sends[source][vc].append(flits(turn, length, head))
        starts[source] |= {turn * slot + at for at in range(length)}
    return run_mesh(mesh, sends, slot * len(journeys), offer=lambda tile, cycle: cycle in starts[tile])


def check_arrivals(
    traffic: Traffic, journeys: list[tuple[int, int, int, int, int]], slot: int, ways: list[int]
) -> None:
    """Every flit of every journey has arrived where and when it should: 0 cycles off. `ways`: hops of each."""
    seen = set()
    for tile, passed in traffic.ejected.items():
        at = 0
        for flit in passed:
            turn = flit.data >> NUMBER
            _, vc, _, _, target = journeys[turn]
            assert (tile, flit.vc) == (target, vc)
            assert flit.cycle == turn * slot + noc_arrival(ways[turn], at + 1), (turn, at)
            seen.add((turn, at))
            at = 0 if flit.last else at + 1
    assert seen == {(turn, at) for turn, (*_, length, _) in enumerate(journeys) for at in range(length)}


@pytest.mark.parametrize(
    ("width", "height", "depth", "vcs", "routing"),
    [(3, 2, 2, 1, "xy"), (2, 2, 4, 2, "yx"), (2, 2, 2, 4, "xy"), (1, 4, 3, 4, "yx")],
)
def test_zero_load_latency_in_closed_form(width: int, height: int, depth: int, vcs: int, routing: str) -> None:
    """Over H hops a head injected in cycle t is offered in t + H + 1, the last of L flits in t + H + L."""
    mesh = VcMesh(Plane(width, height, BITS, depth, vcs, routing))
    slot = 3 + width + height + 2  # longest packet, longest way, slack: one packet at a time is under way
    # one channel for each source: a sender takes its channels in turns
    journeys = [
        (source, mesh.tiles.index(source) % vcs, target, length, target)
        for source, target in product(mesh.tiles, repeat=2)
        for length in (1, 3)
    ]
    traffic = alone(mesh, journeys, slot)
    check_arrivals(traffic, journeys, slot, [hops(source, target) for source, *_, target in journeys])


DETOURS = {
    "round the middle": (0x00, 0x10, 0x20, 0x21, 0x22, 0x12, 0x02, 0x01),
    "once round and on": (0x11, 0x01, 0x02, 0x12, 0x11, 0x10),
    "back home": (0x22, 0x21, 0x11, 0x12, 0x22),
    "yx of a mesh of xy": (0x20, 0x10, 0x00, 0x01, 0x02),
    "there and zigzag": (0x02, 0x01, 0x11, 0x10, 0x20),
    "the longest": (0x00, 0x01, 0x02, 0x12, 0x22, 0x21, 0x20, 0x10, 0x11, 0x12, 0x02),
}


@pytest.mark.parametrize("vcs", [1, 2])
def test_source_routes_go_where_they_say_in_closed_form(vcs: int) -> None:
    mesh = VcMesh(Plane(3, 3, BITS, 2, vcs, routes=FIELD))
    slot, paths = 18, list(DETOURS.values())
    # every shortest way of the other dimension order, too
    paths += [dimension_ordered(source, 0x20, "yx") for source in mesh.tiles if source != 0x20]
    heads = [FIELD.insert(path[-1], encode(path, 3, 3, FIELD)) for path in paths]
    journeys = [
        (path[0], mesh.tiles.index(path[0]) % vcs, head, 3, path[-1]) for path, head in zip(paths, heads, strict=True)
    ]
    traffic = alone(mesh, journeys, slot)
    assert not traffic.faults
    check_arrivals(traffic, journeys, slot, [len(path) - 1 for path in paths])
    for passed in traffic.ejected.values():
        for _, packet in packets(passed):
            assert FIELD.extract(packet[0]) is not None
            assert packet[0] >> FIELD.first_bit & 3 == Turn.EJECT, "what is left of the route is its end"


@pytest.mark.slow
def test_routed_and_unrouted_packets_mix_in_random_traffic() -> None:
    """Detours by west-first turns on one channel, dimension order on the other: no circle of waiting."""
    mesh = VcMesh(Plane(3, 3, BITS, 2, 2, routes=FIELD))
    rng = random.Random(5)
    sends: dict[int, dict[int, list[list[int]]]] = {}
    sent = []
    for source in mesh.tiles:
        sends[source] = {0: [], 1: []}
        for _ in range(4):
            target = rng.choice(mesh.tiles)
            sends[source][0].append(flits(len(sent), rng.choice((1, 3, 6)), target))
            sent.append((target, 0, sends[source][0][-1]))
        for _ in range(4):
            path = dimension_ordered(source, tile_address(0, source >> 4), "xy")  # west, then any way east
            while len(path) < 8 and (ways := eastwards(path)):
                path = (*path, rng.choice(ways))
            if len(path) > 1:
                head = FIELD.insert(path[-1], encode(path, 3, 3, FIELD))
                sends[source][1].append(flits(len(sent), rng.choice((1, 3, 6)), head))
                sent.append((path[-1], 1, sends[source][1][-1]))
    moods = moody(3, 0.9), moody(4, 0.7)
    traffic = run_mesh(mesh, sends, 320, offer=moods[0], accept=lambda tile, vc, cycle: moods[1](tile << 2 | vc, cycle))
    assert not traffic.faults
    mask = (1 << FIELD.first_bit) - 1 | -1 << NUMBER
    arrived = [
        (tile, vc, packet[0] & mask, packet[1:])
        for tile, result in traffic.ejected.items()
        for vc, packet in packets(result)
    ]
    assert sorted(arrived) == sorted((tile, vc, packet[0] & mask, packet[1:]) for tile, vc, packet in sent)


def eastwards(path: tuple[int, ...]) -> list[int]:
    """Tiles that may follow in a 3x3 mesh: east, north or south, not back."""
    x, y = tile_position(path[-1])
    if x == 0 and len(path) > 1 and tile_position(path[-2])[0] == 1:
        near = [(x, y - 1), (x, y + 1)]  # moving west: turning round is no turn
    else:
        near = [(x + 1, y), (x, y - 1), (x, y + 1)]
    result = [tile_address(*at) for at in near if 0 <= at[0] < 3 and 0 <= at[1] < 3]
    return [tile for tile in result if len(path) < 2 or tile != path[-2]]


@pytest.mark.parametrize("routing", slow_but(["xy", "yx"], "xy"))
@pytest.mark.parametrize("vcs", [1, 2])
def test_disjoint_streams_run_at_one_flit_per_cycle(vcs: int, routing: str) -> None:
    mesh = VcMesh(Plane(3, 3, BITS, 2, vcs, routing))
    # Row 0 eastwards, row 1 westwards, column 0 southwards from row 1: no link and no port is shared.
    pairs = {0x00: 0x02, 0x12: 0x11, 0x10: 0x20, 0x21: 0x22}
    sends = {source: {vcs - 1: [flits(n, 8, target) for n in range(4)]} for source, target in pairs.items()}
    traffic = run_mesh(mesh, sends, 45)
    for source, target in pairs.items():
        cycles = [flit.cycle for flit in traffic.ejected[target]]
        assert cycles == list(range(hops(source, target) + 1, hops(source, target) + 1 + 32))


@pytest.mark.parametrize("vcs", [2])
def test_a_sink_that_takes_nothing_on_one_channel_stalls_no_other(vcs: int) -> None:
    """With channel 0 full from its sources to their sink, channel 1 keeps the cycles that it has alone."""
    starts = {0x00: 22, 0x10: 24}
    records = []
    for stuck in (False, True):
        mesh = VcMesh(Plane(3, 2, BITS, 2, vcs))
        sends: dict[int, Sends] = {
            source: {1: [flits(n, 4, target) for n, target in enumerate((0x02, 0x12, 0x02))]} for source in starts
        }
        if stuck:
            sends |= {source: {0: [flits(90, 20, 0x02)]} for source in mesh.tiles if source not in starts}
        traffic = run_mesh(
            mesh,
            sends,
            60,
            offer=lambda tile, cycle: cycle >= starts.get(tile, 0),
            accept=lambda tile, vc, cycle: vc != 0,
        )
        records.append({tile: [flit for flit in passed if flit.vc == 1] for tile, passed in traffic.ejected.items()})
        held = [flit.cycle for passed in traffic.accepted.values() for flit in passed if flit.vc == 0]
        assert len(held) == (7 * 2 if stuck else 0), "all buffers of their ways are full"
        assert not held or max(held) < min(starts.values())
    assert records[0] == records[1]
    assert sum(map(len, records[0].values())) == 24


@pytest.mark.parametrize(("vcs", "allocate"), [(1, "same"), (2, "same"), (2, "free")])
def test_bad_destinations_fault_where_they_are_injected_and_disturb_nobody(vcs: int, allocate: str) -> None:
    mesh = VcMesh(Plane(2, 3, BITS, 2, vcs, allocate=allocate))
    bad = {0x00: 0x02, 0x11: 0x30, 0x21: 0xFF}
    sends: dict[int, Any] = {
        source: {vcs - 1: [[target | source << 8, *[0] * 3], [source ^ 0x01 | source << 8, 5, 6]]}
        for source, target in bad.items()
    }
    traffic = run_mesh(mesh, sends, 30)
    assert {(tile, value) for _, tile, value in traffic.faults} == set(bad.items())
    assert len(traffic.faults) == len(bad)
    arrived = [packet for passed in traffic.ejected.values() for _, packet in packets(passed)]
    assert sorted(arrived) == sorted(result[1] for channels in sends.values() for result in channels.values())


def test_a_bad_route_is_a_fault_where_it_goes_wrong_and_holds_up_nobody() -> None:
    mesh = VcMesh(Plane(3, 3, BITS, 2, 2, routes=RouteField(8, 9, 3)))
    field = mesh.plane.routes
    assert field is not None
    wrong = {
        0x01: (field.insert(0x12, (1, Turn.STRAIGHT)), 0x02),  # out of the mesh behind the next router
        0x20: (field.insert(0x22, (1, Turn.LEFT, Turn.STRAIGHT)), 0x01),  # exhausted
        0x12: (field.insert(0x10, (3, Turn.EJECT)), 0x11),  # ends before its destination
        0x22: (field.insert(0x12, (1, Turn.EJECT)), 0x22),  # out of the mesh at once
    }
    fine = {source: flits(7, 5, 0x00) for source in wrong}
    sends = {source: {1: [flits(source, 6, head), fine[source]]} for source, (head, _) in wrong.items()}
    traffic = run_mesh(mesh, sends, 60)
    assert sorted((tile, value) for _, tile, value in traffic.faults) == sorted(
        (tile, head & 0xFF) for head, tile in wrong.values()
    )
    assert [packet for _, packet in packets(traffic.ejected[0x00])] == list(fine.values())
    assert {tile for tile, passed in traffic.ejected.items() if passed} == {0x00}


@pytest.mark.parametrize(("vcs", "allocate"), [(1, "same"), (2, "same"), (2, "free")])
def test_a_crowded_corner_starves_nobody(vcs: int, allocate: str) -> None:
    mesh = VcMesh(Plane(2, 2, BITS, 2, vcs, allocate=allocate))
    each = 24 // vcs
    sends = {source: {vc: [[0x11 | source << 8, n] for n in range(each)] for vc in range(vcs)} for source in mesh.tiles}
    traffic = run_mesh(mesh, sends, 210)
    arrived = packets(traffic.ejected[0x11])
    assert len(arrived) == 4 * each * vcs
    # 0x11 takes turns between three inputs, and 0x01 between its own packets and those of 0x00.
    for source in mesh.tiles:
        places = [at for at, (_, packet) in enumerate(arrived) if packet[0] >> 8 & 0xFF == source]
        assert len([at for at in places if at < 48]) >= 6, (source, places)


def test_counters_of_each_output_stand_on_the_mesh() -> None:
    mesh = VcMesh(Plane(2, 1, BITS, 2, 2))
    strobes = {
        (kind, tile, port): mesh.counters(tile, port)[kind == "blocked"]
        for tile, ports in {0x00: ("east", "local"), 0x01: ("west", "local")}.items()
        for port in ports
        for kind in ("busy", "blocked")
    }
    traffic = run(
        mesh,
        {tile: mesh.inject(tile) for tile in mesh.tiles},
        {tile: mesh.eject(tile) for tile in mesh.tiles},
        {0x00: {1: [flits(0, 6, 0x01)]}},
        20,
        accept=lambda tile, vc, cycle: cycle >= 8,
        strobes=strobes,
    )
    # four flits are under way when the sink opens: two in each buffer
    assert traffic.strobes == {
        ("busy", 0x00, "east"): [1, 2, 9, 10, 11, 12],
        ("blocked", 0x00, "east"): [3, 4, 5, 6, 7, 8],
        ("busy", 0x01, "local"): [8, 9, 10, 11, 12, 13],
        ("blocked", 0x01, "local"): [2, 3, 4, 5, 6, 7],
    }
