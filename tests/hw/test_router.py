# amaranth: UnusedElaboratable=no
"""One router: throughput, buffers, fairness, faults, and that ready and valid depend on registers only."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import pytest
from amaranth.sim import Simulator

from meshloom.hw.config import tile_address
from meshloom.hw.noc.router import LOCAL, TURNS, Flit, Router, ports_at

from .flit_traffic import Passed, Traffic, as_flits, drive, packets

BITS = 32
CENTRE = tile_address(1, 1)


def run(router: Router, sends: dict[str, list[list[int]]], cycles: int, **moods: object) -> Traffic:
    """Sends packets into the ports; ports of the record are numbered like `router.ports`."""
    bench, traffic = drive(
        [router.input(port) for port in router.ports],
        [router.output(port) for port in router.ports],
        [chain.from_iterable(as_flits(packet) for packet in sends.get(port, [])) for port in router.ports],
        cycles=cycles,
        faults=[(router.fault, router.fault_tile)],
        **moods,  # type: ignore[arg-type]
    )
    simulator = Simulator(router)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return traffic


def out(traffic: Traffic, router: Router, port: str) -> list[Passed]:
    return traffic.ejected[router.ports.index(port)]


def test_ports_exist_only_towards_neighbours() -> None:
    assert ports_at(0, 0, 1, 1) == (LOCAL,)
    assert set(ports_at(0, 0, 2, 2)) == {"east", "south", LOCAL}
    assert set(ports_at(1, 1, 3, 3)) == {"north", "east", "south", "west", LOCAL}
    assert set(ports_at(0, 2, 1, 4)) == {"north", "south", LOCAL}
    router = Router(1, 0, 2, 2, BITS, 2)
    here = {f"{port}_{way}" for port in ("west", "south", LOCAL) for way in ("in", "out")}
    assert set(router.signature.members) == here | {"fault", "fault_tile", "active"}


def test_turns_are_those_of_xy_routing() -> None:
    for port, targets in TURNS.items():
        assert port == LOCAL or port not in targets, "no packet goes back"
    assert not {"east", "west"} & {*TURNS["north"], *TURNS["south"]}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((2, 0, 2, 2, BITS, 2), "outside the 2x2 mesh"),
        ((0, 0, 17, 2, BITS, 2), "16x16"),
        ((0, 0, 2, 2, BITS, 1), "at least 2"),
        ((0, 0, 2, 2, 7, 2), "8-bit destination"),
    ],
)
def test_impossible_routers_are_refused(arguments: tuple[int, ...], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Router(*arguments)


def test_a_flit_is_data_and_last() -> None:
    layout = Flit(BITS)
    assert layout.size == BITS + 1
    assert layout["last"].offset == BITS


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_one_flit_per_cycle_and_no_bubble_between_packets(depth: int) -> None:
    router = Router(1, 1, 3, 3, BITS, depth)
    east, south = tile_address(2, 1), tile_address(1, 2)
    to_east = [[east | n << 8, *range(100, 100 + n)] for n in (0, 3, 1, 0, 0, 5, 2)]
    to_south = [[south | n << 8, *range(200, 200 + n)] for n in (4, 0, 0, 6, 0)]
    traffic = run(router, {"west": to_east, "north": to_south}, 40)
    for port, sent in (("east", to_east), ("south", to_south)):
        passed = out(traffic, router, port)
        assert packets(passed) == sent
        assert [flit.cycle for flit in passed] == list(range(1, 1 + len(passed))), "offered from cycle 1, no gaps"


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_a_stalled_input_holds_exactly_its_depth(depth: int) -> None:
    router = Router(1, 1, 3, 3, BITS, depth)
    packet = [CENTRE, *range(20)]
    traffic = run(router, {"east": [packet]}, 60, accept=lambda port, cycle: cycle >= 12)
    accepted = [flit.cycle for flit in traffic.accepted[router.ports.index("east")]]
    assert accepted[:depth] == list(range(depth))
    assert accepted[depth] == 13, "room is seen one cycle after the first flit has left"
    assert packets(out(traffic, router, LOCAL)) == [packet]
    assert [flit.cycle for flit in out(traffic, router, LOCAL)] == list(range(12, 12 + 21))


def test_inputs_take_turns_packet_by_packet() -> None:
    router = Router(1, 1, 3, 3, BITS, 4)
    sources = ("north", "east", "south", "west", LOCAL)
    sends = {
        port: [[CENTRE | source << 8, *([source] * (number % 3))] for number in range(12)]
        for source, port in enumerate(sources)
    }
    traffic = run(router, sends, 150)
    arrived = packets(out(traffic, router, LOCAL))
    order = [packet[0] >> 8 for packet in arrived]
    assert Counter(order) == dict.fromkeys(range(5), 12)
    for packet in arrived:
        assert set(packet[1:]) <= {packet[0] >> 8}, "flits of two packets are mixed"
    # All five always have a packet waiting: every window of five grants serves each of them.
    for start in range(len(order) - 4):
        assert len(set(order[start : start + 5])) == 5, f"unfair at grant {start}: {order}"
    cycles = [flit.cycle for flit in out(traffic, router, LOCAL)]
    assert cycles == list(range(1, 1 + len(cycles))), "a contended output never idles"


def test_an_offer_stays_while_others_arrive() -> None:
    # `drive` fails when an offer changes; here rivals arrive during a long stall of the offer.
    router = Router(1, 1, 3, 3, BITS, 2)
    sends = {port: [[CENTRE | number << 8]] for number, port in enumerate(("west", "north", "south", "east"))}
    ports = router.ports
    traffic = run(
        router,
        sends,
        30,
        offer=lambda port, cycle: cycle >= {"west": 0, "north": 4, "south": 5, "east": 6}.get(ports[port], 0),
        accept=lambda port, cycle: cycle >= 15,
    )
    first, *others = (flit.data >> 8 for flit in out(traffic, router, LOCAL))
    assert first == 0, "the first to be offered goes first"
    assert sorted(others) == [1, 2, 3]


@pytest.mark.parametrize("bad", [tile_address(3, 1), tile_address(1, 3), tile_address(15, 15), tile_address(0, 15)])
def test_a_destination_outside_the_mesh_is_dropped_with_a_fault(bad: int) -> None:
    router = Router(1, 1, 3, 3, BITS, 2)
    good = [[CENTRE | 7 << 8, 1, 2], [tile_address(2, 1), 3]]
    traffic = run(router, {LOCAL: [good[0], [bad, bad, CENTRE, bad], [bad], good[1]]}, 60)
    # The good packet of 3 flits, then the head of the bad one in cycle 4, and the one-flit packet after 4 flits.
    assert traffic.faults == [(4, 0, bad), (8, 0, bad)]
    assert packets(out(traffic, router, LOCAL)) == [good[0]]
    assert packets(out(traffic, router, "east")) == [good[1]]
    for port in ("north", "south", "west"):
        assert not out(traffic, router, port)


def test_no_input_can_be_blocked_by_a_head_that_it_cannot_route() -> None:
    router = Router(0, 0, 1, 2, BITS, 2)
    lost = [[tile_address(3, 0), 1], [tile_address(0, 0), 2]]
    traffic = run(router, {"south": lost}, 20)
    assert packets(out(traffic, router, LOCAL)) == lost


def test_ready_and_valid_depend_on_registers_only() -> None:
    router = Router(1, 1, 3, 3, BITS, 2)

    async def testbench(ctx: Any) -> None:
        def readys() -> list[int]:
            return [ctx.get(router.input(port).ready) for port in router.ports]

        def offers() -> list[tuple[int, int]]:
            found = [router.output(port) for port in router.ports]
            return [(ctx.get(port.valid), ctx.get(port.payload.as_value())) for port in found]

        routes = {"north": (1, 2), "east": (0, 1), "south": (1, 0), "west": (2, 1), LOCAL: (1, 1)}
        for cycle in range(8):
            for port in router.ports:
                destination = tile_address(*routes[port])
                ctx.set(router.input(port).payload, {"data": destination | cycle << 8, "last": cycle % 2})
                ctx.set(router.input(port).valid, (cycle + router.ports.index(port)) % 3 != 0)
            before = readys(), offers()
            for value in (1, 0):
                for port in router.ports:
                    ctx.set(router.output(port).ready, value)
                await ctx.delay(1e-8)
                assert (readys(), offers()) == before
            for port in router.ports:
                held = ctx.get(router.input(port).valid)
                ctx.set(router.input(port).valid, 1 - held)
                await ctx.delay(1e-8)
                assert (readys(), offers()) == before
                ctx.set(router.input(port).valid, held)
            if cycle == 3:
                assert all(valid for valid, _ in before[1]), "the checks see offers"
                assert not any(before[0]), "the checks see full buffers"
            for port in router.ports:
                ctx.set(router.output(port).ready, cycle > 3)
            await ctx.tick()

    simulator = Simulator(router)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
