"""The mover of chips with ways to choose from: ROUTEs, virtual channels, source routes and births in heads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from meshloom.hw.spec.config import MOST_HOPS, ChipConfig, TileKind
from meshloom.hw.spec.isa import FETCH_TAG, INSTRUCTIONS, ROUTE_BODY, Cause, Opcode, Region, Unit, address
from meshloom.hw.spec.routes import Turn, encode

from .mover_bench import HERE, MOVE, Outcome, check_words, chip, move, packet_sizes, random_move, run
from .unit_bench import sometimes

SPM = TileKind.SPM
CHIP = chip(data_vcs=3, route_hops=5, arrivals=True)
#: From this tile to its left neighbour, round the other way.
DETOUR = (0x11, 0x01, 0x00, 0x10)
ROUTE_BITS = INSTRUCTIONS[Opcode.ROUTE]


def plain(**values: int) -> int:
    return move(**({"src": address(Region.MAIN, 5), "tag": 7} | values))


def way(channel: int = 0, path: Sequence[int] = ()) -> dict[str, int]:
    """Body of a ROUTE; unused entries are EJECT."""
    if not path:
        return {"channel": channel}
    turns = [*encode(path, 3, 2), *[int(Turn.EJECT)] * MOST_HOPS][: MOST_HOPS + 1]
    return {"channel": channel, "routed": 1, "turns": sum(turn << 2 * i for i, turn in enumerate(turns))}


def route(channel: int = 0, path: Sequence[int] = (), **header: int) -> int:
    return ROUTE_BITS.pack({"opcode": Opcode.ROUTE, "tag": 6} | header | way(channel, path))


def requested(code: int, channel: int = 0, path: Sequence[int] = ()) -> int:
    """A MOVE of another tile as the request queue offers it."""
    return code | ROUTE_BODY.pack(way(channel, path)) << 256


def ways_of(out: Outcome) -> list[tuple[int, tuple[int, ...] | None]]:
    """(virtual channel, route) of each packet."""
    return [(packet.vc, packet.route) for packet in out.packets]


# -- whom a ROUTE is for ------------------------------------------------------------------------------------------


def test_a_route_is_for_all_packets_of_the_next_move_and_no_other() -> None:
    codes = [plain(words=150), plain(words=2)]
    out = run(SPM, [route(3, DETOUR), *codes], config=CHIP, cycles=250)
    detour = (2, encode(DETOUR, 3, 2))
    assert CHIP.channel_of(0x10) == 0
    assert ways_of(out) == [detour, detour, detour, (0, None)]
    check_words(out, codes)


@pytest.mark.parametrize("kind", [SPM, TileKind.CORE, TileKind.DRAM])
def test_channel_and_route_are_chosen_apart(kind: TileKind) -> None:
    source = {"src": address(Region.OUT if kind is TileKind.CORE else Region.MAIN, 0), "dst_tile": 0x12}
    assert CHIP.channel_of(0x12) == 2
    codes = [route(2), move(**source), route(0, (0x11, 0x01, 0x02, 0x12)), move(**source), route(), move(**source)]
    out = run(kind, codes, config=CHIP)
    assert ways_of(out) == [(1, None), (2, encode((0x11, 0x01, 0x02, 0x12), 3, 2)), (2, None)]


def test_the_later_of_two_routes_counts() -> None:
    out = run(SPM, [route(3, DETOUR), route(2), plain()], config=CHIP)
    assert ways_of(out) == [(1, None)]


def test_a_forwarded_move_takes_its_route_along() -> None:
    """Once; a FETCH in between goes without and leaves it to the MOVE."""
    pull = move(src_tile=0x02, dst_tile=0x10, tag=5)
    fetch = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "tag": 3, "tile": 0x01, "count": 12})
    out = run(SPM, [route(3, (0x02, 0x01, 0x00, 0x10)), fetch, pull, pull, plain()], config=CHIP)
    ways = [ROUTE_BODY.unpack(request["route"]) for _, request in out.forward]
    assert [request["fetch"] for _, request in out.forward] == [1, 0, 0]
    none, own = dict.fromkeys(ROUTE_BODY.offsets, 0), ROUTE_BODY.pack(way(3, (0x02, 0x01, 0x00, 0x10)))
    assert ways == [none, ROUTE_BODY.unpack(own), none]
    assert ways_of(out) == [(0, None)], "nor is it left for the MOVE of one's own behind it"


def test_requests_have_their_own_ways() -> None:
    """They come between a ROUTE and its MOVE, and neither takes the other's."""
    remote = [requested(plain(tag=21, dst_tile=0x12), 1, (0x11, 0x01, 0x02, 0x12)), requested(plain(tag=22))]
    codes = [plain(tag=1, words=20), route(3, DETOUR), plain(tag=2), plain(tag=3)]
    out = run(SPM, codes, remote, config=CHIP)
    tags = [packet.arrival["tag"] for packet in out.packets if packet.arrival is not None]
    assert sorted(tags) == [1, 2, 3, 21, 22]
    assert dict(zip(tags, ways_of(out), strict=True)) == {
        1: (0, None), 2: (2, encode(DETOUR, 3, 2)), 3: (0, None),
        21: (0, encode((0x11, 0x01, 0x02, 0x12), 3, 2)), 22: (0, None),
    }  # fmt: skip


@pytest.mark.parametrize("vcs", [2, 3, 4])
@pytest.mark.parametrize("asked", [False, True])
def test_without_a_route_the_channel_is_that_of_the_destination(vcs: int, asked: bool) -> None:
    config = chip(data_vcs=vcs)
    codes = [plain(dst_tile=tile) for tile in config.tiles]
    out = run(SPM, [] if asked else codes, codes if asked else [], config=config)
    assert [packet.vc for packet in out.packets] == [config.channel_of(tile) for tile in config.tiles]
    assert len({packet.vc for packet in out.packets}) == vcs


def test_a_route_longer_than_the_chip_knows_is_cut() -> None:
    """Where it then ends is for a router to judge."""
    long = (0x11, 0x01, 0x02, 0x12, 0x11, 0x10)
    out = run(SPM, [route(1, long), plain()], config=chip(data_vcs=1, route_hops=3))
    assert out.packets[0].route == encode(long, 3, 2)[:4]


# -- cycles -------------------------------------------------------------------------------------------------------


def test_a_route_is_taken_at_once_and_leaves_a_record() -> None:
    out = run(SPM, [route(2, tag=9), plain()], starts=[20, 23], config=CHIP, waited=5)
    assert out.own == [20, 23]
    kept = {"tag": 9, "unit": Unit.MOVER, "opcode": Opcode.ROUTE, "wait": 5, "stall": 0, "start": 20, "end": 21}
    assert out.record[0] == (21, kept)
    assert out.packets[0].shown == 26, "and the MOVE is no later for it"
    assert len(out.record) == 2


def test_a_route_waits_for_the_record_before_it_and_says_so() -> None:
    """The record of the one before is not taken: `start` is when this one was offered, `end` when it was taken."""
    out = run(SPM, [route(2, tag=8), route(1, tag=9)], starts=[20, 23], config=CHIP, record=lambda cycle: cycle >= 40)
    assert out.own == [20, 41]
    records = [record for _, record in out.record]
    assert [(record["tag"], record["start"], record["end"]) for record in records] == [(8, 20, 21), (9, 23, 42)]


def test_the_birth_is_the_cycle_of_the_first_offer() -> None:
    """However long the network does not take the head, whichever its channel; tags of all MOVEs stand in heads."""
    rng = random.Random(4)
    rooms = [sometimes(rng, chance) for chance in (0.5, 0.04, 0.9)]
    codes = [plain(tag=n, words=rng.choice((1, 3, 70)), dst_tile=rng.choice((0x00, 0x01, 0x12))) for n in range(12)]
    codes.append(plain(tag=FETCH_TAG))
    out = run(SPM, [], codes, config=CHIP, cycles=6000, until_records=12, now=0x1_FFC0,
              data=lambda cycle: sum(room(cycle) << vc for vc, room in enumerate(rooms)))  # fmt: skip
    out_tags = [tag for code in codes for tag in [MOVE.unpack(code)["tag"]] * len(packet_sizes(code))]
    result = [packet.arrival for packet in out.packets if packet.arrival is not None]
    assert [arrival["tag"] for arrival in result] == out_tags[: len(result)]
    assert len(result) >= len(out_tags) - 1
    assert [arrival["injected_at"] for arrival in result] == [
        (0x1_FFC0 + packet.shown) & 0xFFFF for packet in out.packets
    ]
    assert max(packet.first - packet.shown for packet in out.packets) > 10
    assert min(packet.first - packet.shown for packet in out.packets) == 0


def test_a_packet_waits_for_its_own_channel_only() -> None:
    """Room on the others does not help it, lack of it there does not hurt it."""
    codes = [route(2), plain(words=5), route(3), plain(words=5)]
    blocked = run(SPM, codes, config=CHIP, data=lambda cycle: 0b101 if cycle < 40 else 0b111)
    assert blocked.packets[0].first == 40
    free = run(SPM, codes, config=CHIP, data=lambda cycle: 0b110)
    assert [packet.first - packet.shown for packet in free.packets] == [0, 0]
    stalls = [record["stall"] for _, record in blocked.record if record["opcode"] == Opcode.MOVE]
    assert stalls[0] == 1 + 40 - blocked.packets[0].shown
    assert blocked.counts["net_stall"] == 40 - blocked.packets[0].shown


# -- all of it at random ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "noc", "gated"),
    [
        (TileKind.SPM, {"data_vcs": 2}, False),
        (TileKind.CORE, {"data_vcs": 3, "route_hops": 4, "arrivals": True}, True),
        (TileKind.DRAM, {"data_vcs": 4, "arrivals": True}, True),
        (TileKind.DRAM, {"route_hops": 7}, False),
        (TileKind.SPM, {"arrivals": True}, True),
    ],
)
def test_random_ways_with_random_stalls(kind: TileKind, noc: dict[str, Any], gated: bool) -> None:
    config = chip(**noc)
    rng = random.Random(str((kind, noc)))
    steered = config.noc.data_vcs > 1 or config.noc.route_hops > 0
    own: list[int] = []
    moves: dict[int, tuple[int, int, int]] = {}  # tag to MOVE, channel, turns
    remote: list[int] = []
    for tag in range(1, 13):
        code = random_move(rng, kind, tag)
        request = way(rng.randrange(config.noc.data_vcs + 1)) if steered and rng.random() < 0.7 else {}
        if request and config.noc.route_hops and rng.random() < 0.7:
            request |= {"routed": 1, "turns": rng.getrandbits(ROUTE_BODY.offsets["turns"][1])}
        moves[tag] = code, request.get("channel", 0), request.get("turns", 0) if request.get("routed") else -1
        if tag % 2:
            own += [ROUTE_BITS.pack({"opcode": Opcode.ROUTE, "tag": 100 + tag} | request)] if request else []
            own.append(code)
        else:
            remote.append(code | ROUTE_BODY.pack(request) << 256)
    moods: dict[str, Any] = {name: sometimes(rng, 0.7) for name in ("offer", "post", "record", "read", "burst")}
    rooms = [sometimes(rng, 0.6) for _ in range(config.noc.data_vcs)]
    records = len(own) + len(remote)
    out = run(
        kind, own, remote, cycles=8000, until_records=records, gated=gated, config=config,
        data=lambda cycle: sum(room(cycle) << vc for vc, room in enumerate(rooms)),
        latency=lambda: rng.randint(1, 30), **moods,
    )  # fmt: skip
    assert out.faults == []
    done = [record["tag"] for _, record in out.record if record["opcode"] == Opcode.MOVE]
    assert sorted(done) == list(moves)
    check_words(out, [moves[tag][0] for tag in done])
    packets = iter(out.packets)
    for tag in done:
        code, channel, turns = moves[tag]
        for _ in packet_sizes(code):
            packet = next(packets)
            assert packet.vc == (channel - 1 if channel else config.channel_of(packet.head["dst_tile"]))
            assert packet.route == route_in(config, turns)
            if packet.arrival is not None:
                assert (packet.arrival["tag"], packet.arrival["injected_at"]) == (tag, packet.shown & 0xFFFF)
    routes = [record for _, record in out.record if record["opcode"] == Opcode.ROUTE]
    assert [record["tag"] for record in routes] == [
        ROUTE_BITS.unpack(code)["tag"] for code in own if code & 0xF == Opcode.ROUTE
    ]


def route_in(config: ChipConfig, turns: int) -> tuple[int, ...] | None:
    """The entries that a head of the chip shows of `turns` (-1: no route): up to the first EJECT behind the first."""
    if turns < 0:
        return None
    entries = [turns >> 2 * i & 3 for i in range(config.noc.route_hops + 1)]
    end = next((i for i in range(1, len(entries)) if entries[i] == Turn.EJECT), len(entries) - 1)
    return tuple(entries[: end + 1])


# -- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noc", "code", "value"),
    [
        ({"data_vcs": 3, "route_hops": 3}, route(4, tag=9), 4),
        ({"data_vcs": 2}, route(3, tag=9), 3),
        ({"data_vcs": 2}, route(1, DETOUR, tag=9), 1),
        ({"data_vcs": 2}, route(0, DETOUR, tag=9), 0),
        ({"route_hops": 3}, route(2, tag=9), 2),
        ({"data_vcs": 4}, route(7, tag=9), 7),
    ],
)
def test_a_route_that_the_chip_does_not_have(noc: dict[str, Any], code: int, value: int) -> None:
    """It is not taken, so nothing behind it runs; requests of others go on."""
    config = chip(**noc)
    out = run(SPM, [code, plain()], [requested(plain(tag=3))], starts=[20, 21], config=config)
    assert out.faults[0] == (20, {"cause": Cause.ROUTE, "tag": 9, "value": value})
    assert {fault["cause"] for _, fault in out.faults} == {Cause.ROUTE}
    assert out.own == []
    assert [record["tag"] for _, record in out.record] == [3]


@pytest.mark.parametrize("noc", [{"data_vcs": 4}, {"route_hops": 3}, {"data_vcs": 2, "route_hops": 3}])
def test_the_last_channel_and_every_route_of_a_chip_are_no_faults(noc: dict[str, Any]) -> None:
    config = chip(**noc)
    channels = range(config.noc.data_vcs + 1)
    codes = [code for n in channels for code in (route(n, DETOUR if config.noc.route_hops else ()), plain())]
    out = run(SPM, codes, config=config)
    assert out.faults == []
    assert [packet.vc for packet in out.packets] == [config.channel_of(0x10), *channels[:-1]]
    assert DETOUR[0] == HERE
