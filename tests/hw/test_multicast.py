# amaranth: UnusedElaboratable=no
"""Routers that copy packets to the tiles that they pass: who takes what, when, and that nothing waits for ever."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from meshloom.hw.noc.data_receiver import DataReceiver
from meshloom.hw.noc.input_unit import RouteSelect
from meshloom.hw.noc.link import Plane, Position
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.spec.config import ChipConfig, tile_address
from meshloom.hw.spec.isa import (
    COPIES,
    DATA_HEAD,
    Cause,
    Region,
    address,
    copies_at,
    copy_field,
    data_flit_bits,
    with_parity,
)
from meshloom.hw.spec.routes import LOCAL, CopyField, RouteError, RouteField, copied_at, dimension_ordered, direction
from meshloom.hw.spec.timing import noc_arrival

from .flit_traffic import moody
from .test_router_parts import answers
from .test_vc_mesh import flits, hops
from .unit_bench import Sink, back_to_back, faults_of, fields, simulate
from .vc_traffic import Sends, packets, run_mesh

BITS = 64
FIRST, WIDTH = 8, 4
PLANE = Plane(4, 3, BITS, 2)
#: Where the tests note the source of a packet in its head.
SOURCE = 16


def field(*directions: str) -> CopyField:
    return CopyField(FIRST, WIDTH, directions)


def takers(source: int, target: int, copies: int, routing: str, directions: tuple[str, ...]) -> tuple[int, ...]:
    """The tiles that take a packet, in their order on its way; none of a packet that cannot be made."""
    way = dimension_ordered(source, target, routing)
    try:
        copied = copied_at(way, copies)
    except RouteError:
        return ()
    if copied and direction(way[-2], way[-1]) not in directions:
        return ()
    return (*copied, target)


@pytest.mark.parametrize(
    ("way", "copies", "copied"),
    [
        ((0x00,), 0, ()),
        ((0x00, 0x01, 0x02, 0x03), 0, ()),
        ((0x00, 0x01, 0x02, 0x03), 2, (0x01, 0x02)),
        ((0x00, 0x01, 0x02, 0x12, 0x22), 1, (0x12,)),
        ((0x00, 0x01, 0x02, 0x12, 0x22), 2, (0x02, 0x12)),
        ((0x22, 0x12, 0x02), 1, (0x12,)),
    ],
)
def test_the_last_tiles_before_the_destination_take_a_packet_too(
    way: tuple[int, ...], copies: int, copied: tuple[int, ...]
) -> None:
    assert copied_at(way, copies) == copied


@pytest.mark.parametrize(
    ("way", "copies", "most"),
    [
        ((0x00,), 1, 0),  # to itself
        ((0x00, 0x01), 1, 0),  # the sender takes none
        ((0x00, 0x01, 0x02, 0x03), 3, 2),
        ((0x00, 0x01, 0x02, 0x12, 0x22), 3, 2),  # those before the corner are not in line
    ],
)
def test_no_more_tiles_take_it_than_are_in_line(way: tuple[int, ...], copies: int, most: int) -> None:
    with pytest.raises(RouteError, match=f"ends with {most} tiles in a straight line before its destination"):
        copied_at(way, copies)


@pytest.mark.parametrize(
    ("directions", "routing"),
    [(("east", "south"), "xy"), (("west", "north"), "yx"), (("north",), "xy"), (("east", "north"), "yx")],
)
def test_a_router_takes_the_heads_of_which_its_tile_is_one_of_the_last(
    directions: tuple[str, ...], routing: str
) -> None:
    """Every source, destination and number of copies that there can be, at each router on its way."""
    plane = replace(PLANE, routing=routing, copies=field(*directions))
    heads: dict[tuple[int, str], list[tuple[int, str, bool]]] = defaultdict(list)
    tiles = [tile_address(x, y) for y in range(plane.height) for x in range(plane.width)]
    for source, target, copies in product(tiles, tiles, range(4)):
        if not (taken := takers(source, target, copies, routing, directions)):
            continue
        way, port = dimension_ordered(source, target, routing), LOCAL
        for at, tile in enumerate(way):
            to = direction(tile, way[at + 1]) if at + 1 < len(way) else LOCAL
            heads[tile, port].append((target | copies << FIRST, to, tile in taken and tile != target))
            port = {"east": "west", "west": "east", "north": "south", "south": "north", LOCAL: LOCAL}[to]
    assert sum(copied for wanted in heads.values() for *_, copied in wanted) > 20
    for (tile, port), wanted in heads.items():
        route = RouteSelect(Position(tile & 15, tile >> 4, plane), port)
        rows = answers(route, [{"flit": head} for head, *_ in wanted], "copied", *(f"to_{to}" for to in route.targets))
        for (head, to, copied), row in zip(wanted, rows, strict=True):
            assert row == (copied, *(int(name == to) for name in route.targets)), (tile, port, head)


def test_a_router_without_a_tile_takes_nothing() -> None:
    plane = replace(PLANE, copies=field("east"), gaps=(0x01,))
    (row,) = answers(RouteSelect(Position(1, 0, plane), "west"), [{"flit": 0x02 | 1 << FIRST}], "copied", "to_east")
    assert row == (0, 1)


def drawn(
    rng: random.Random, tiles: tuple[int, ...], routing: str, directions: tuple[str, ...], count: int
) -> dict[int, list[tuple[int, int, int]]]:
    """By source: destination, copies and length of random packets, as many with copies as without."""
    some: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for source in tiles:
        while len(some[source]) < count:
            target = rng.choice(tiles)
            lines = [copies for copies in range(1, 4) if takers(source, target, copies, routing, directions)]
            copies = rng.choice(lines) if lines and rng.random() < 0.8 else 0
            some[source].append((target, copies, rng.choice((1, 2, 3, 9))))
    return some


@pytest.mark.parametrize(
    ("width", "height", "depth", "routing", "directions", "offer", "accept"),
    [
        pytest.param(2, 3, 2, "xy", ("west", "south"), 1.0, 0.7, marks=pytest.mark.slow),
        (6, 1, 2, "xy", ("west",), 1.0, 0.6),
        pytest.param(4, 3, 2, "xy", ("east", "south"), 1.0, 1.0, marks=pytest.mark.slow),
        pytest.param(3, 4, 3, "yx", ("west", "north"), 1.0, 0.5, marks=pytest.mark.slow),
        pytest.param(4, 3, 2, "yx", ("east", "south"), 0.8, 0.3, marks=pytest.mark.slow),
        pytest.param(2, 5, 4, "xy", ("east", "north"), 0.9, 0.8, marks=pytest.mark.slow),
    ],
)
def test_each_tile_takes_what_is_for_it_whole_in_order_and_once(
    width: int, height: int, depth: int, routing: str, directions: tuple[str, ...], offer: float, accept: float
) -> None:
    """All sources send as much as they can, so packets wait for each other everywhere; all arrive."""
    mesh = VcMesh(Plane(width, height, BITS, depth, routing=routing, copies=field(*directions)))
    rng = random.Random(f"{width}{height}{routing}{directions}")
    sends: dict[int, Sends] = {}
    expected: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    number = copied = 0
    for source, some in drawn(rng, mesh.tiles, routing, directions, 16).items():
        own: list[list[int]] = []
        sends[source] = {0: own}
        for target, copies, length in some:
            packet = flits(number, length, target | copies << FIRST | source << SOURCE)
            own.append(packet)
            number, copied = number + 1, copied + copies
            for tile in takers(source, target, copies, routing, directions):
                expected[source, tile].append(packet)
    assert copied > 3 * len(mesh.tiles)
    moods = moody(3, offer), moody(4, accept)
    traffic = run_mesh(mesh, sends, 1600, offer=moods[0], accept=lambda tile, vc, cycle: moods[1](tile, cycle))
    assert not traffic.faults
    arrived: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for tile, passed in traffic.ejected.items():
        for _, packet in packets(passed):
            arrived[packet[0] >> SOURCE & 0xFF, tile].append(packet)
    assert arrived == expected


def test_a_head_is_a_cycle_later_for_each_tile_that_takes_it() -> None:
    """On an idle mesh: at the tile itself, and from there on; the flits behind it follow one a cycle."""
    mesh = VcMesh(replace(PLANE, depth=3, copies=field("east", "south")))  # 2 leave no room for who waits
    slot = 24
    journeys = [(0x00, 0x03, copies, length) for copies in range(3) for length in (1, 4)]
    journeys += [(0x00, 0x22, copies, 3) for copies in range(3)]
    sends = {0x00: {0: [flits(n, length, target | c << FIRST) for n, (_, target, c, length) in enumerate(journeys)]}}
    starts = {n * slot + at for n, (*_, length) in enumerate(journeys) for at in range(length)}
    traffic = run_mesh(mesh, sends, slot * len(journeys), offer=lambda tile, cycle: tile == 0 and cycle in starts)
    seen = defaultdict(list)
    for tile, passed in traffic.ejected.items():
        for flit in passed:
            seen[flit.data >> 32, tile].append(flit.cycle)
    for n, (source, target, copies, length) in enumerate(journeys):
        taken = takers(source, target, copies, "xy", ("east", "south"))
        for late, tile in enumerate(taken, 1):
            late = min(late, copies)  # the destination adds none
            first = n * slot + late
            assert seen.pop((n, tile)) == [first + noc_arrival(hops(source, tile), at + 1) for at in range(length)]
    assert not seen


def test_a_tile_has_every_flit_before_the_next_one() -> None:
    """That is why the destination alone says that all have a packet's words."""
    mesh = VcMesh(Plane(5, 1, BITS, 2, copies=field("east")))
    sends = {0: {0: [flits(n, 5, 4 | 3 << FIRST) for n in range(12)]}}
    accept = moody(9, 0.4)
    traffic = run_mesh(mesh, sends, 600, accept=lambda tile, vc, cycle: accept(tile, cycle))
    cycles = [[flit.cycle for flit in traffic.ejected[tile]] for tile in range(1, 5)]
    assert [len(some) for some in cycles] == [60] * 4
    for near, far in zip(cycles, cycles[1:], strict=False):
        assert all(a < b for a, b in zip(near, far, strict=True))


# -- the tile that takes them ------------------------------------------------------------------------------------------

CHIP = ChipConfig.model_validate(
    {"name": "copier", "lanes": 8, "floorplan": ["dram core core", "host core core"]}
    | {"noc": {"multicast": ["east", "south"]}}
)
HERE = 0x01


def head(target: int, copies: int, words: int, notify: bool = True, flip: int = 0) -> int:
    names = {"dst_tile": target, "addr": address(Region.OUT, 3), "words": words, "notify_tile": 0x11, "notify_sem": 7}
    packed = with_parity(DATA_HEAD, DATA_HEAD.pack(names | {"notify": int(notify)}))
    return packed | (with_parity(COPIES, COPIES.pack({"copies": copies})) ^ flip) << copies_at(CHIP)


@pytest.mark.parametrize(("target", "told"), [(HERE, 1), (0x02, 0)])
def test_the_destination_alone_notifies(target: int, told: int) -> None:
    seen = reception(head(target, 1, 2))
    assert (seen["written"], seen["told"], seen["faults"]) == ([3, 4], told, [])


def test_a_flipped_number_of_copies_is_a_fault() -> None:
    seen = reception(head(HERE, 1, 2, flip=2))
    assert (seen["written"], seen["told"], seen["faults"]) == ([], 0, [int(Cause.PARITY)])


def reception(first: int) -> dict[str, Any]:
    """What a tile does with a packet of two words."""
    unit, last = DataReceiver(CHIP, {Region.OUT: 64}), 1 << data_flit_bits(CHIP)
    writes, notices, faults = Sink(unit.write), Sink(unit.delivered), faults_of(unit.fault)
    source = back_to_back(unit.flit, [first, 10, 11 | last])
    simulate(unit, 12, [source], [writes, notices], [faults], constant={"tile": HERE})
    written = [fields(unit.write.payload.shape(), payload)["offset"] for payload in writes.payloads]
    return {"written": written, "told": len(notices.got), "faults": [seen["cause"] for seen in faults.values]}


# -- what there cannot be ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CopyField(4, 4, ("east",)), "first_bit = 4 lies in the destination; use at least 8"),
        (lambda: CopyField(8, 4, ()), "use one direction, or one of each dimension"),
        (lambda: CopyField(8, 4, ("east", "west")), "use one direction, or one of each dimension"),
        (lambda: replace(PLANE, vcs=2, copies=field("east")), "copies with 2 virtual channels"),
        (lambda: replace(PLANE, routes=RouteField(20, 21, 4), copies=field("east")), "use 1 and None"),
        (lambda: replace(PLANE, bits=11, copies=field("east")), "use at least 12"),
    ],
)
def test_planes_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noc": {"multicast": ["east", "west"]}}, "two packets that meet could wait for each other for ever"),
        ({"noc": {"multicast": ["south", "north"]}}, "multicast both north and south: two packets that meet"),
        ({"noc": {"multicast": ["east", "east"]}}, "names a direction twice"),
        ({"noc": {"multicast": ["east"], "data_vcs": 2}}, "packets are copied on one channel; set 1"),
        ({"noc": {"multicast": ["east"], "route_hops": 3}}, "are copied without danger of deadlock"),
        ({"noc": {"multicast": ["up"]}}, "north"),
        ({"programs": 2}, "rights name the tiles that a program may write"),
        ({"floorplan": ["dram core core", "host dtt core"]}, "plans packets for one tile each"),
    ],
)
def test_chips_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ChipConfig.model_validate(CHIP.model_dump(mode="json") | changes)


def test_chips_without_multicast_have_heads_as_before() -> None:
    plain = ChipConfig.model_validate(CHIP.model_dump(mode="json") | {"noc": {}})
    assert copy_field(plain) is None
    assert copy_field(CHIP) == CopyField(DATA_HEAD.used, 4, ("east", "south"))


@pytest.mark.parametrize("arrivals", [False, True])
def test_flits_have_room_for_heads_with_copies(arrivals: bool) -> None:
    """Where words are short, heads decide: the copies and their parity come behind what is recorded of an arrival."""
    noc = {"multicast": ["east"], "arrivals": arrivals}
    chip = ChipConfig.model_validate(CHIP.model_dump(mode="json") | {"lanes": 4, "rows": 4, "cols": 4, "noc": noc})
    assert data_flit_bits(chip) == max(DATA_HEAD.width, copies_at(chip) + COPIES.used)


def test_the_order_of_directions_makes_no_other_chip() -> None:
    turned = ChipConfig.model_validate(CHIP.model_dump(mode="json") | {"noc": {"multicast": ["south", "east"]}})
    assert (turned, turned.digest) == (CHIP, CHIP.digest)
