# amaranth: UnusedElaboratable=no
"""One router with virtual channels: throughput, buffers, turns, and what ready and valid depend on."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from amaranth.hdl import EnableInserter, Module
from amaranth.lib import stream, wiring
from amaranth.sim import Simulator

from meshloom.hw.noc.link import Flit, Link, Plane, VcFlit
from meshloom.hw.noc.router import Router
from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.routes import LOCAL, RouteField

from .flit_traffic import moody
from .vc_traffic import KINDS, Traffic, packets, run, run_router

BITS = 40
CENTRE = tile_address(1, 1)
EAST, SOUTH = tile_address(2, 1), tile_address(1, 2)
VCS = (1, 2, 4)
FIELD = RouteField(flag_bit=8, first_bit=9, turns=5)
ORDER = ("north", "east", "south", "west", LOCAL)
NUMBER = 24  # bit from which packets of these tests carry what they like

kinds = pytest.mark.parametrize(
    ("vcs", "routing", "allocate"),
    [(1, "xy", "same"), (2, "yx", "same"), (4, "xy", "same"), (2, "xy", "free"), (4, "yx", "free")],
)


def centre(depth: int, vcs: int, **more: Any) -> Router:
    return Router(1, 1, Plane(3, 3, BITS, depth, vcs, **more))


def out(traffic: Traffic, port: str) -> list[list[int]]:
    return [packet for _, packet in packets(traffic.ejected[port])]


def test_ports_exist_only_towards_neighbours() -> None:
    router = Router(1, 0, Plane(2, 2, BITS, 2))
    links = {f"{port}_{way}" for port in ("west", "south", LOCAL) for way in ("in", "out")}
    strobes = {f"{kind}_{port}" for port in ("west", "south", LOCAL) for kind in KINDS}
    assert set(router.signature.members) == links | strobes | {"fault", "fault_tile", "active"}


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"width": 17}, "16x16"),
        ({"depth": 1}, "at least 2"),
        ({"vcs": 0}, "use 1 to 4"),
        ({"vcs": 5}, "use 1 to 4"),
        ({"bits": 7}, "8-bit destination"),
        ({"routing": "zz"}, "use xy or yx"),
        ({"allocate": "any"}, "use same or free"),
        ({"routes": RouteField(8, 9, 16)}, "use at least 41"),
        ({"routes": RouteField(40, 9, 4)}, "use at least 41"),
    ],
)
def test_impossible_planes_are_refused(changed: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Plane(**{"width": 3, "height": 3, "bits": BITS, "depth": 2, **changed})


def test_a_router_outside_the_mesh_is_refused() -> None:
    with pytest.raises(ValueError, match="outside the 2x2 mesh"):
        Router(2, 0, Plane(2, 2, BITS, 2))


def test_a_link_of_one_channel_is_a_stream() -> None:
    assert VcFlit(BITS, 1).size == BITS + 1
    assert [VcFlit(BITS, vcs)["vc"].width for vcs in (1, 2, 3, 4)] == [0, 1, 2, 2]
    plain = stream.Signature(Flit(BITS)).members.flatten()
    assert {path for path, _ in plain} == {path for path, _ in Link(BITS, 1).members.flatten()}


@kinds
@pytest.mark.parametrize("depth", [2, 3])
def test_one_flit_per_cycle_and_no_bubble_between_packets(depth: int, vcs: int, routing: str, allocate: str) -> None:
    router = centre(depth, vcs, routing=routing, allocate=allocate)
    to_east = [[EAST | n << NUMBER, *range(100, 100 + n)] for n in (0, 3, 1, 0, 0, 5, 2)]
    to_south = [[SOUTH | n << NUMBER, *range(200, 200 + n)] for n in (4, 0, 0, 6, 0)]
    traffic = run_router(router, {"west": {vcs - 1: to_east}, "north": {0: to_south}}, 30)
    for port, sent in (("east", to_east), ("south", to_south)):
        passed = traffic.ejected[port]
        assert out(traffic, port) == sent
        assert [flit.cycle for flit in passed] == list(range(1, 1 + len(passed))), "offered from cycle 1, no gaps"
        assert traffic.strobes["busy", port] == [flit.cycle for flit in passed]
        if allocate == "same":
            assert {flit.vc for flit in passed} == {vcs - 1 if port == "east" else 0}


@pytest.mark.parametrize("vcs", VCS)
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_stalled_channel_holds_exactly_its_depth(depth: int, vcs: int) -> None:
    router = centre(depth, vcs)
    packet = [CENTRE, *range(20)]
    vc = vcs // 2
    traffic = run_router(router, {"east": {vc: [packet]}}, 50, accept=lambda port, vc, cycle: cycle >= 12)
    accepted = [flit.cycle for flit in traffic.accepted["east"]]
    assert accepted[:depth] == list(range(depth))
    assert accepted[depth] == 13, "room is seen one cycle after the first flit has left"
    assert packets(traffic.ejected[LOCAL]) == [(vc, packet)]
    assert [flit.cycle for flit in traffic.ejected[LOCAL]] == list(range(12, 12 + 21))
    assert traffic.strobes["blocked", LOCAL] == list(range(1, 12))
    assert not [port for kind, port in traffic.strobes if port != LOCAL]


def test_an_output_is_blocked_by_a_packet_that_does_not_come_and_by_a_link_that_takes_nothing() -> None:
    """The west's packet holds the output while its second flit is late and the north's head waits; then all flits but
    heads have gone, and the link takes none for a while."""
    router = centre(4, 1)
    sends = {"west": {0: [[CENTRE, 1, 2, 3]]}, "north": {0: [[CENTRE | 1 << NUMBER]]}}
    offers = {"west": (0, 10, 11, 12), "north": (3,)}
    traffic = run_router(
        router, sends, 30, offer=lambda port, cycle: cycle in offers.get(port, ()),
        accept=lambda port, vc, cycle: cycle not in (13, 14),
    )  # fmt: skip
    assert [flit.cycle for flit in traffic.ejected[LOCAL]] == [1, 11, 12, 15, 16]
    assert traffic.strobes["busy", LOCAL] == [1, 11, 12, 15, 16]
    assert traffic.strobes["blocked", LOCAL] == [*range(4, 11), 13, 14]
    traffic = run_router(
        centre(4, 1), {"west": {0: [[CENTRE, 1, 2]]}}, 20, accept=lambda port, vc, cycle: cycle not in (3, 4, 5)
    )
    assert traffic.strobes["blocked", LOCAL] == [3, 4, 5], "no head waits, and it is blocked all the same"


@kinds
def test_strobes_tell_of_every_flit_that_leaves_or_stands_at_the_front(vcs: int, routing: str, allocate: str) -> None:
    """Random traffic. A flit stands at the front of its queue from the cycle after its acceptance, or after the one
    before it has left, and is gone in the cycle in which it leaves: busy where one leaves, blocked where only others
    stand."""
    router, rng = centre(3, vcs, routing=routing, allocate=allocate), random.Random(vcs)
    targets = {"xy": {"north": ("south", LOCAL), "west": ("east", "north", LOCAL)},
               "yx": {"north": ("south", "west", LOCAL), "west": ("east", LOCAL)}}[routing]  # fmt: skip
    there = {"north": 0x01, "east": EAST, "south": SOUTH, "west": 0x10, LOCAL: CENTRE}
    numbers = iter(range(1, 1 << 15))
    sends = {
        port: {
            vc: [
                [there[rng.choice(ways)] | next(numbers) << NUMBER, *(next(numbers) << NUMBER for _ in range(size))]
                for size in (0, 3, 1, 6, 2)
            ]
            for vc in range(vcs)
        }
        for port, ways in (targets | {LOCAL: ("north", "east", "south", "west", LOCAL)}).items()
    }
    offers, accepts = moody(vcs, 0.5), moody(vcs + 10, 0.6)
    traffic = run_router(
        router, sends, 400, offer=lambda port, cycle: offers(ORDER.index(port), cycle),
        accept=lambda port, vc, cycle: accepts(ORDER.index(port) << 2 | vc, cycle),
    )  # fmt: skip
    left = {flit.data: (flit.cycle, port) for port in ORDER for flit in traffic.ejected[port]}
    assert len(left) == 3 * vcs * (5 + 12), "all have arrived"
    stands: dict[str, set[int]] = {port: set() for port in ORDER}
    for port in sends:
        for vc in range(vcs):
            gone = -1
            for flit in (flit for flit in traffic.accepted[port] if flit.vc == vc):
                since, (gone, way) = max(flit.cycle, gone) + 1, left[flit.data]
                stands[way] |= {*range(since, gone + 1)}
    for port in ORDER:
        busy = {flit.cycle for flit in traffic.ejected[port]}
        assert traffic.strobes["busy", port] == sorted(busy)
        assert traffic.strobes["blocked", port] == sorted(stands[port] - busy)


@pytest.mark.parametrize("vcs", VCS)
def test_inputs_take_turns_packet_by_packet_in_each_channel(vcs: int) -> None:
    router = centre(4, vcs)
    sends = {
        port: {
            vc: [[CENTRE | source << NUMBER, *([source] * (number % 3))] for number in range(6)] for vc in range(vcs)
        }
        for source, port in enumerate(ORDER)
    }
    traffic = run_router(router, sends, 70 * vcs)
    arrived = packets(traffic.ejected[LOCAL])
    cycles = [flit.cycle for flit in traffic.ejected[LOCAL]]
    assert cycles == list(range(1, 1 + 60 * vcs)), "the link never rests"
    for vc in range(vcs):
        order = [packet[0] >> NUMBER for channel, packet in arrived if channel == vc]
        assert Counter(order) == dict.fromkeys(range(5), 6)
        for number in range(0, 30, 5):
            assert {*order[number : number + 5]} == {*range(5)}, "each once in five"
    for _, packet in arrived:
        assert {*packet[1:]} <= {packet[0] >> NUMBER}, "no flit of another packet"


@pytest.mark.parametrize("vcs", [2, 3, 4])
def test_channels_share_a_link_flit_by_flit(vcs: int) -> None:
    """Whatever the inputs, a flit that has room waits for at most one flit of each other channel."""
    router = centre(4, vcs)
    inputs = ("west", "west", "north", LOCAL)
    sends: dict[str, dict[int, list[list[int]]]] = {}
    for vc, port in zip(range(vcs), inputs, strict=False):
        sends.setdefault(port, {})[vc] = [[SOUTH, *[vc] * 23]]
    traffic = run_router(router, sends, 24 * vcs + 10)
    passed = traffic.ejected["south"]
    steady = [flit for flit in passed if 10 < flit.cycle < 10 + 12 * vcs]
    assert Counter(flit.vc for flit in steady).keys() == {*range(vcs)}
    for vc in range(vcs):
        gaps = {b.cycle - a.cycle for a, b in pairwise(flit for flit in steady if flit.vc == vc)}
        # two channels come in over one link, which gives each only every other cycle
        assert max(gaps) <= vcs, gaps
    assert len(steady) == 12 * vcs - 1, "the link never rests"


@pytest.mark.parametrize("vcs", [2, 4])
@pytest.mark.parametrize("routing", ["xy", "yx"])
def test_a_channel_without_room_stalls_no_other(routing: str, vcs: int) -> None:
    router = centre(2, vcs, routing=routing)
    stuck = [[CENTRE, 1, 2, 3, 4, 5]]
    free = [[CENTRE | n << NUMBER, *range(30)] for n in range(2)]
    # the stuck packets have filled their buffers, also that of the input by which the others come
    traffic = run_router(
        router,
        {"north": {0: stuck}, "east": {0: stuck}, "west": {0: stuck, 1: free}},
        90,
        accept=lambda port, vc, cycle: vc != 0,
    )
    passed = traffic.ejected[LOCAL]
    assert packets(passed) == [(1, packet) for packet in free]
    assert len([flit for flit in traffic.accepted["west"] if flit.vc == 0]) == 2
    # while the stuck channel still takes flits in, the sender gives it every other cycle
    assert [flit.cycle for flit in passed[4:]] == list(range(7, 7 + 58)), "then one flit a cycle"


@pytest.mark.parametrize("vcs", [2, 4])
def test_heads_without_a_free_channel_stall_no_packet_under_way(vcs: int) -> None:
    router = centre(2, vcs, allocate="free")
    long = [CENTRE | 1 << NUMBER, *range(30)]
    late = [[CENTRE | 2 << NUMBER, 1]]
    traffic = run_router(
        router,
        {"west": {1: [long]}, "north": {0: late}, "east": {0: late}, LOCAL: {1: late}},
        60,
        offer=lambda port, cycle: cycle >= 10 or port == "west",
        accept=lambda port, vc, cycle: vc == vcs - 1,  # the only channel with room has an owner
    )
    passed = traffic.ejected[LOCAL]
    assert [flit.data for flit in passed[:31]] == long
    assert [flit.cycle for flit in passed] == list(range(1, 1 + 31 + 3 * 2)), "one flit a cycle, the others then"


def test_an_offer_of_the_only_channel_stays_while_others_arrive() -> None:
    # `run` fails when an offer changes; here rivals arrive during a long stall of the offer.
    router = centre(2, 1)
    starts = {"west": 0, "north": 4, "south": 5, "east": 6}
    sends = {port: {0: [[CENTRE | number << NUMBER]]} for number, port in enumerate(starts)}
    traffic = run_router(
        router, sends, 30, offer=lambda port, cycle: cycle >= starts[port], accept=lambda port, vc, cycle: cycle >= 15
    )
    first, *others = (packet[0] >> NUMBER for packet in out(traffic, LOCAL))
    assert first == 0, "the first to be offered goes first"
    assert sorted(others) == [1, 2, 3]


@pytest.mark.parametrize("vcs", [2, 4])
def test_free_channels_are_given_to_heads_in_turns(vcs: int) -> None:
    """Packets that come on one channel spread over all, whole; every input gets its share."""
    router = centre(2, vcs, allocate="free")
    sends = {
        port: {0: [[CENTRE | source << NUMBER, *[source] * 4] for _ in range(8)]} for source, port in enumerate(ORDER)
    }
    traffic = run_router(router, sends, 230)
    passed = traffic.ejected[LOCAL]
    assert [flit.cycle for flit in passed] == list(range(1, 201)), "the link never rests"
    arrived = packets(passed)
    assert {vc for vc, _ in arrived} == {*range(vcs)}
    order = [packet[0] >> NUMBER for _, packet in arrived]
    assert Counter(order) == dict.fromkeys(range(5), 8)
    for _, packet in arrived:
        assert packet[1:] == [packet[0] >> NUMBER] * 4
    for at in range(0, 36, 5):
        assert {*order[at : at + 5 + vcs]} == {*range(5)}, (at, order)


@pytest.mark.parametrize(("vcs", "routing", "allocate"), [(1, "xy", "same"), (3, "yx", "same"), (2, "xy", "free")])
def test_when_it_is_not_active_nothing_changes(vcs: int, routing: str, allocate: str) -> None:
    """With its registers stopped whenever `active` is 0, the router does the same in the same cycles."""
    records = []
    for gated in (False, True):
        router = centre(2, vcs, routing=routing, allocate=allocate, routes=FIELD)
        ports = {"faults": {"fault": (router.fault, router.fault_tile)}, "offer": moody(1, 0.15)}
        ways = {"north": (0x11, 0x21), "west": (0x12, 0x11), LOCAL: (0x01, 0x12, 0x21, 0x10, 0x11, 0x31)}
        sends = {
            port: {
                vc: [[there[(n + vc) % len(there)] | n << NUMBER, *[n] * (n % 3)] for n in range(12 // vcs)]
                for vc in range(vcs)
            }
            for port, there in ways.items()
        }
        accept = moody(4, 0.6)
        design: Any = EnableInserter(router.active)(router) if gated else router
        records.append(
            run(
                design,
                {port: router.input(port) for port in router.ports},
                {port: router.output(port) for port in router.ports},
                sends,
                180,
                accept=lambda port, vc, cycle, accept=accept: accept(ORDER.index(port) << 2 | vc, cycle),
                strobes={"active": router.active},
                **ports,
            )
        )
    assert records[0] == records[1]
    assert 30 < len(records[0].strobes["active"]) < 170
    assert len(records[0].ejected[LOCAL]) > 5


@kinds
def test_ready_depends_on_registers_only_and_valid_never_on_what_arrives(vcs: int, routing: str, allocate: str) -> None:
    router = centre(2, vcs, routing=routing, allocate=allocate)
    routes = {"north": (1, 2), "east": (0, 1), "south": (1, 0), "west": (2, 1), LOCAL: (1, 1)}
    seen: dict[str, set[int]] = {"offers": set(), "ready": set()}

    async def testbench(ctx: Any) -> None:
        def readys() -> list[int]:
            return [ctx.get(router.input(port).ready) for port in router.ports]

        def offers() -> list[tuple[int, int]]:
            result = [router.output(port) for port in router.ports]
            return [(ctx.get(port.valid), ctx.get(port.payload.as_value())) for port in result]

        for cycle in range(4 + 4 * vcs):
            for port in router.ports:
                flit = {"data": tile_address(*routes[port]) | cycle << NUMBER, "last": cycle % 2}
                ctx.set(router.input(port).payload, flit | ({"vc": cycle % vcs} if vcs > 1 else {}))
                ctx.set(router.input(port).valid, (cycle + router.ports.index(port)) % 3 != 0)
            for value in ((1 << vcs) - 1, 1, 0):
                for port in router.ports:
                    ctx.set(router.output(port).ready, value)
                await ctx.delay(1e-8)
                before = readys(), offers()
                seen["offers"].add(sum(valid for valid, _ in before[1]))
                seen["ready"] |= {*before[0]}
                if vcs > 1 and not value:
                    assert not any(valid for valid, _ in before[1]), "an offer on a channel without room"
                for port in router.ports:
                    held = ctx.get(router.input(port).valid)
                    ctx.set(router.input(port).valid, 1 - held)
                    await ctx.delay(1e-8)
                    assert (readys(), offers()) == before
                    ctx.set(router.input(port).valid, held)
                if value == (1 << vcs) - 1:
                    full = before
                assert readys() == full[0]
                assert vcs > 1 or offers() == full[1], "with one channel an offer does not depend on ready"
            for port in router.ports:
                ctx.set(router.output(port).ready, (1 << vcs) - 1 if cycle > 3 * vcs else 0)
            await ctx.tick()

    simulator = Simulator(router)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert {0, 5} <= seen["offers"], "the checks see offers"
    assert {0, (1 << vcs) - 1} <= seen["ready"], "the checks see full and empty buffers"


def test_the_plain_interface_connects_to_one_channel() -> None:
    link, plain = wiring.flipped(Link(BITS, 1).create()), stream.Signature(Flit(BITS)).create()
    wiring.connect(Module(), plain, link)
