# amaranth: UnusedElaboratable=no
"""What one router with virtual channels does with source routes, and with packets that cannot go on."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.router import Router
from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import LOCAL, RouteField, Turn

from .vc_traffic import Traffic, packets, run_router

BITS = 40
CENTRE = tile_address(1, 1)
EAST = tile_address(2, 1)
VCS = (1, 2, 4)
FIELD = RouteField(flag_bit=8, first_bit=9, turns=5)
NUMBER = 24  # bit from which packets of these tests carry what they like

kinds = pytest.mark.parametrize(
    ("vcs", "routing", "allocate"),
    [(1, "xy", "same"), (2, "yx", "same"), (4, "xy", "same"), (2, "xy", "free"), (4, "yx", "free")],
)


def centre(depth: int, vcs: int, **more: Any) -> Router:
    return Router(1, 1, Plane(3, 3, BITS, depth, vcs, **more))


def out(traffic: Traffic, port: str) -> list[list[int]]:
    return [packet for _, packet in packets(traffic.ejected[port])]


@kinds
def test_a_destination_outside_the_mesh_is_dropped_with_a_fault(vcs: int, routing: str, allocate: str) -> None:
    router = centre(2, vcs, routing=routing, allocate=allocate)
    bad = [tile_address(*at) for at in ((3, 1), (1, 3), (15, 15), (0, 15), (8, 1), (2, 8))]
    good = [[CENTRE | 7 << NUMBER, 1, 2], [EAST, 3], [tile_address(1, 2), 4]]  # the last row is inside
    sends = {LOCAL: {vcs - 1: [good[0], [bad[0], EAST, CENTRE, bad[0]], *([other] for other in bad[1:]), *good[1:]]}}
    traffic = run_router(router, sends, 20)
    # The good packet of 3 flits, then the head of the bad one in cycle 4, and the one-flit packets after 4 flits.
    assert traffic.faults == [(cycle, "fault", value) for cycle, value in zip((4, 8, 9, 10, 11, 12), bad, strict=True)]
    assert out(traffic, LOCAL) == [good[0]]
    assert out(traffic, "east") == [good[1]]
    assert out(traffic, "south") == [good[2]]
    assert {port for port, passed in traffic.ejected.items() if passed} == {LOCAL, "east", "south"}


@kinds
def test_a_destination_without_a_tile_is_dropped_where_it_is_injected(vcs: int, routing: str, allocate: str) -> None:
    """Two places have a router and no tile, one of them next door: packets that go through it go on, and so does
    whatever has been let in elsewhere."""
    gaps = (EAST, tile_address(0, 2))
    beyond = tile_address(3, 1)
    router = Router(1, 1, Plane(4, 3, BITS, 2, vcs, routing=routing, allocate=allocate, gaps=gaps))
    sends = {LOCAL: {vcs - 1: [[EAST, 1, 2], [beyond, 3], [gaps[1]], [CENTRE, 4]]}, "west": {0: [[EAST, 5]]}}
    traffic = run_router(router, sends, 20)
    assert traffic.faults == [(1, "fault", EAST), (6, "fault", gaps[1])]
    assert (out(traffic, "east"), out(traffic, LOCAL)) == ([[EAST, 5], [beyond, 3]], [[CENTRE, 4]])
    assert {port for port, passed in traffic.ejected.items() if passed} == {LOCAL, "east"}


@pytest.mark.parametrize("vcs", VCS)
@pytest.mark.parametrize(
    ("routing", "port", "destination"),
    [
        ("xy", "north", tile_address(2, 1)),  # a turn back to x
        ("xy", "south", tile_address(0, 0)),
        ("xy", "north", tile_address(1, 0)),  # back where it came from
        ("xy", "west", tile_address(0, 1)),
        ("yx", "west", tile_address(1, 2)),  # a turn back to y
        ("yx", "east", tile_address(2, 2)),
        ("yx", "south", tile_address(1, 2)),
    ],
)
def test_a_packet_on_a_way_that_it_cannot_have_come_is_a_fault(
    routing: str, port: str, destination: int, vcs: int
) -> None:
    router = centre(2, vcs, routing=routing)
    fine = [CENTRE, 1, 2]
    traffic = run_router(router, {port: {vcs - 1: [[destination, 5, 6, 7], fine]}}, 20)
    assert traffic.faults == [(1, "fault", destination)]
    assert out(traffic, LOCAL) == [fine]
    assert {name for name, passed in traffic.ejected.items() if passed} == {LOCAL}


def test_at_the_edge_a_destination_beyond_it_is_a_fault_in_transit() -> None:
    router = Router(2, 1, Plane(3, 3, BITS, 2, 2))
    sends = {"west": {0: [[tile_address(3, 1), 9]], 1: [[tile_address(2, 1), 8]]}}
    traffic = run_router(router, sends, 12)
    assert [value for *_, value in traffic.faults] == [tile_address(3, 1)]
    assert out(traffic, LOCAL) == [[tile_address(2, 1), 8]]


def test_of_faults_in_one_cycle_the_tile_s_own_is_told() -> None:
    router = centre(2, 2)
    sends = {port: {0: [[tile_address(3, at), 1, 2]]} for at, port in enumerate(("north", LOCAL, "south"))}
    traffic = run_router(router, sends, 12)
    assert traffic.faults == [(1, "fault", tile_address(3, 1))]
    assert not any(traffic.ejected.values()), "all are dropped"


def routed(destination: int, *entries: int, fill: int = Turn.EJECT) -> int:
    """A head with a list of entries; `fill` in the rest."""
    return FIELD.insert(destination, (*entries, *[fill] * (FIELD.turns - len(entries))))


@pytest.mark.parametrize(("vcs", "routing"), [(1, "xy"), (1, "yx"), (4, "xy")])
def test_a_source_route_loses_its_first_entry(vcs: int, routing: str) -> None:
    router = centre(2, vcs, routes=FIELD, routing=routing)
    leaves = {
        LOCAL: ("north", "east", "south", "west"),
        "west": ("east", "north", "south"),
        "south": ("north", "west", "east"),
        "east": ("west", "south", "north"),
        "north": ("south", "east", "west"),
    }
    sends: dict[str, dict[int, list[list[int]]]] = {}
    expected: dict[str, list[list[int]]] = {port: [] for port in router.ports}
    body = [(1 << BITS) - 1, 0x1234567]  # looks like a head with a route, and must not be touched
    for number, (port, ways) in enumerate(leaves.items()):
        sends[port] = {vcs - 1: []}
        for entry, way in enumerate(ways):
            mark = number << NUMBER
            sends[port][vcs - 1].append([routed(0x22, entry, 1, 2, 0, 3) | mark, *body, number])
            expected[way].append([routed(0x22, 1, 2, 0, 3) | mark, *body, number])
    traffic = run_router(router, sends, 70)
    assert {port: sorted(out(traffic, port)) for port in router.ports} == {
        port: sorted(result) for port, result in expected.items()
    }
    assert not traffic.faults


def test_unrouted_packets_of_a_plane_with_routes_go_by_dimension_order() -> None:
    router = centre(2, 2, routes=FIELD)
    head = EAST | FIELD.insert(0, (0, 0, 0)) & ~(1 << FIELD.flag_bit)
    traffic = run_router(router, {LOCAL: {1: [[head, 1]]}, "north": {0: [[EAST, 2]]}}, 8)
    assert out(traffic, "east") == [[head, 1]]
    assert traffic.faults == [(1, "fault", EAST)], "dimension order binds packets without a route"


@pytest.mark.parametrize("vcs", [1, 4])
@pytest.mark.parametrize(
    ("place", "port", "head"),
    [
        ((1, 0), LOCAL, routed(0x22, 0, 3)),  # out of the mesh from where it is injected
        ((1, 0), "south", routed(0x22, 0, 3)),  # and on the way: straight,
        ((1, 0), "west", routed(0x22, 1, 3)),  # left
        ((0, 1), "north", routed(0x22, 2, 3)),  # right
        ((1, 1), "west", routed(0x22, 3)),  # the end, but not there
        ((1, 1), LOCAL, routed(0x44, 0, 3)),  # destination outside the mesh
    ],
)
def test_illegal_routes_are_faults(place: tuple[int, int], port: str, head: int, vcs: int) -> None:
    router = Router(*place, Plane(3, 3, BITS, 2, vcs, routes=FIELD))
    fine = [tile_address(*place), 1, 2]
    traffic = run_router(router, {port: {vcs - 1: [[head, 5, 6], fine]}}, 16)
    assert traffic.faults == [(1, "fault", head & 0xFF)]
    assert packets(traffic.ejected[LOCAL]) == [(vcs - 1, fine)]
    assert {name for name, passed in traffic.ejected.items() if passed} == {LOCAL}
