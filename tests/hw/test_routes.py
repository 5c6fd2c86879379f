"""Routes as software sees them: paths to turns and back, and what is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshloom.hw.spec.config import tile_address, tile_position
from meshloom.hw.spec.routes import (
    LOCAL,
    NEIGHBOURS,
    ROUTINGS,
    RouteError,
    RouteField,
    Turn,
    decode,
    dimension_ordered,
    encode,
)

FIELD = RouteField(flag_bit=8, first_bit=9, turns=8)


def walk(rng: random.Random, width: int, height: int, hops: int) -> tuple[int, ...]:
    """A path of up to `hops` hops that never turns back; it may cross itself."""
    path = [tile_address(rng.randrange(width), rng.randrange(height))]
    while len(path) <= hops:
        x, y = tile_position(path[-1])
        around = [(x + dx, y + dy) for dx, dy in NEIGHBOURS.values()]
        ways = [tile_address(*at) for at in around if 0 <= at[0] < width and 0 <= at[1] < height]
        ways = [tile for tile in ways if len(path) < 2 or tile != path[-2]]
        if not ways:
            break
        path.append(rng.choice(ways))
    return tuple(path)


def test_turns_are_seen_by_one_who_moves() -> None:
    # south-east of a 3x3 mesh: east, right (south), left (east), right (south)
    path = (0x00, 0x01, 0x11, 0x12, 0x22)
    assert encode(path, 3, 3) == (1, Turn.RIGHT, Turn.LEFT, Turn.RIGHT, Turn.EJECT)
    assert encode((0x22, 0x12, 0x11, 0x10), 3, 3) == (0, Turn.LEFT, Turn.STRAIGHT, Turn.EJECT)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6), st.integers(1, 20))
def test_what_was_encoded_is_decoded(seed: int, width: int, height: int, hops: int) -> None:
    path = walk(random.Random(seed), width, height, hops)
    if len(path) < 2:
        return
    route = encode(path, width, height)
    assert len(route) == len(path)
    assert decode(route, path[0], width, height) == path
    field = RouteField(63, 8, 27)
    assert field.extract(field.insert(0x55, route)) == route
    assert field.insert(0x55, route) & 0xFF == 0x55


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ((), "a route needs two different tiles"),
        ((0x11,), "without one"),
        ((0x00, 0x01, 0x00), "turns back in tile 0x01"),
        ((0x01, 0x02, 0x03), "0x03 is outside the 3x3 mesh"),
        ((0x00, 0x11), "not neighbours"),
        ((0x00, 0x02), "not neighbours"),
        ((0x00, 0x00), "not neighbours"),
        ((0x00, 0x01, 0x02, 0x12, 0x22, 0x21, 0x20, 0x10, 0x00), "8 hops is too long: the head holds 8 entries, 7"),
    ],
)
def test_paths_that_no_packet_can_follow(path: tuple[int, ...], part: str) -> None:
    with pytest.raises(RouteError, match=part):
        encode(path, 3, 3, FIELD)


@pytest.mark.parametrize(
    ("route", "part"),
    [
        (
            (0, Turn.EJECT),
            "entry 0 leads north from tile 0x01, out of the 3x2 mesh; its neighbours are east, south, west",
        ),
        ((1, Turn.LEFT, Turn.EJECT), "entry 1 leads north from tile 0x02"),
        ((2, Turn.STRAIGHT, Turn.EJECT), "entry 1 leads south from tile 0x11"),
        ((1,), "ends in tile 0x02 without EJECT"),
        ((), "ends in tile 0x01 without EJECT"),
        ((1, 4), "not 0..3"),
    ],
)
def test_routes_that_no_packet_can_follow(route: tuple[int, ...], part: str) -> None:
    with pytest.raises(RouteError, match=part):
        decode(route, 0x01, 3, 2)


def test_the_field_in_a_head() -> None:
    head = FIELD.insert(0xFFFF_FFFF, (2, 1, 3))
    assert head == 0xFE00_01FF | (2 | 1 << 2 | 0x3FFF << 4 & 0xFFFF) << 9
    assert FIELD.extract(head) == (2, 1, 3)
    assert FIELD.extract(head & ~(1 << 8)) is None
    assert FIELD.extract(FIELD.insert(0, (3, 0, 3))) == (3, 0, 3), "the first entry is a direction"
    assert FIELD.extract(1 << 8) == (0,) * 8, "a list without an end"
    with pytest.raises(RouteError, match="too long"):
        FIELD.insert(0, (0,) * 9)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((7, 8, 4), "flag_bit = 7"),
        ((8, 7, 4), "first_bit = 7"),
        ((12, 9, 4), "lies in the list"),
        ((8, 9, 1), "least 2"),
    ],
)
def test_impossible_fields(arguments: tuple[int, int, int], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        RouteField(*arguments)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_dimension_ordered_paths_are_shortest_and_use_allowed_turns(routing: str) -> None:
    tiles = [tile_address(x, y) for x in range(4) for y in range(3)]
    for source, target in product(tiles, repeat=2):
        path = dimension_ordered(source, target, routing)
        (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
        assert (path[0], path[-1], len(path)) == (source, target, 1 + abs(x - to_x) + abs(y - to_y))
        came = LOCAL
        for before, after in pairwise(path):
            step = tuple(b - a for a, b in zip(tile_position(before), tile_position(after), strict=True))
            leaves = next(name for name, result in NEIGHBOURS.items() if result == step)
            assert leaves in ROUTINGS[routing][came]
            came = {"north": "south", "south": "north", "east": "west", "west": "east"}[leaves]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_turns_of_a_dimension_order(routing: str) -> None:
    first = {"xy": {"east", "west"}, "yx": {"north", "south"}}[routing]
    for port, targets in ROUTINGS[routing].items():
        assert port == LOCAL or port not in targets, "no packet goes back"
        if port not in first and port != LOCAL:
            assert not first & {*targets}, "no packet turns back to the first dimension"


def test_software_can_use_routes_without_the_gateware_library() -> None:
    code = "import sys, meshloom.hw.spec.routes; sys.exit('amaranth' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
