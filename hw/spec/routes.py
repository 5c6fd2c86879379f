"""Routes through a mesh: directions, the dimension-ordered path, and routes that the sender of a packet chooses.

A source route is a list of 2-bit entries in the head flit, the next one in the lowest bits. The first entry is the
direction in which the packet leaves its source; each router on the path takes one turn, relative to how the packet
moves; EJECT ends the route. A route cannot turn back, and a packet to its own tile needs none. A route over H hops has
H + 1 entries.

Software and gateware share this: no gateware library is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from .config import tile_address, tile_position

#: The four neighbours of a tile as (x, y) steps; y grows downwards.
NEIGHBOURS: Mapping[str, tuple[int, int]] = {"north": (0, -1), "east": (1, 0), "south": (0, 1), "west": (-1, 0)}
OPPOSITE: Mapping[str, str] = {"north": "south", "east": "west", "south": "north", "west": "east"}
LOCAL = "local"
#: Directions clockwise: the first entry of a route is an index into it, and a right turn is one further.
DIRECTIONS: tuple[str, ...] = tuple(NEIGHBOURS)

#: Dimension orders, and where a packet that came in through a port may leave. A packet that has begun to move along the
#: second dimension never turns back to the first, and never goes back where it came from; with that the channels
#: depend on each other without a cycle.
ROUTINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "xy": {
        "north": ("south", LOCAL),
        "east": ("west", "north", "south", LOCAL),
        "south": ("north", LOCAL),
        "west": ("east", "north", "south", LOCAL),
        LOCAL: ("east", "west", "north", "south", LOCAL),
    },
    "yx": {
        "north": ("south", "east", "west", LOCAL),
        "east": ("west", LOCAL),
        "south": ("north", "east", "west", LOCAL),
        "west": ("east", LOCAL),
        LOCAL: ("north", "south", "east", "west", LOCAL),
    },
}
#: Bits of the destination tile, the lowest of every head.
DESTINATION_BITS = 8
#: Bits of one entry of a route.
TURN_BITS = 2


class Turn(IntEnum):
    """What a router on the route does with a packet."""

    STRAIGHT = 0
    LEFT = 1
    RIGHT = 2
    EJECT = 3


class RouteError(ValueError):
    """A route that no packet can follow; the message names the tile or entry and what would be legal."""


@dataclass(frozen=True)
class RouteField:
    """Where a head flit holds a source route: `turns` entries from `first_bit` on, used if `flag_bit` is set.

    Raises ValueError when the two overlap, or reach into the destination.
    """

    flag_bit: int
    first_bit: int
    turns: int

    def __post_init__(self) -> None:
        if self.turns < 2:
            raise ValueError(f"a route of {self.turns} entries reaches no other tile; use at least 2")
        for name in ("flag_bit", "first_bit"):
            if (bit := getattr(self, name)) < DESTINATION_BITS:
                raise ValueError(f"{name} = {bit} lies in the destination; use at least {DESTINATION_BITS}")
        if self.first_bit <= self.flag_bit < self.end:
            raise ValueError(f"flag_bit = {self.flag_bit} lies in the list, bits {self.first_bit}..{self.end - 1}")

    @property
    def end(self) -> int:
        """The bit after the list."""
        return self.first_bit + TURN_BITS * self.turns

    @property
    def longest(self) -> int:
        """Hops that a route can go over."""
        return self.turns - 1

    def insert(self, head: int, route: Sequence[int]) -> int:
        """`head` with `route` (of `encode`) in it and the flag set. Raises RouteError if it is too long."""
        if len(route) > self.turns:
            raise RouteError(
                f"a route of {len(route) - 1} hops is too long: the head holds {self.turns} entries, "
                f"{self.longest} hops and the end"
            )
        # what is beyond the end reads EJECT, as in the head that a router passes on
        filled = [*route, *[Turn.EJECT] * (self.turns - len(route))]
        field = sum(entry << TURN_BITS * at for at, entry in enumerate(filled))
        return head & ~self._mask | field << self.first_bit | 1 << self.flag_bit

    def extract(self, head: int) -> tuple[int, ...] | None:
        """The entries in `head` up to the first EJECT (all of them if there is none), or None without the flag.

        The first is a direction in a head that has not entered the network; it is never taken for the end.
        """
        if not head >> self.flag_bit & 1:
            return None
        entries = [head >> self.first_bit + TURN_BITS * at & 3 for at in range(self.turns)]
        end = next((at for at in range(1, self.turns) if entries[at] == Turn.EJECT), self.turns - 1)
        return tuple(entries[: end + 1])

    @property
    def _mask(self) -> int:
        return (1 << self.end) - (1 << self.first_bit) | 1 << self.flag_bit


@dataclass(frozen=True)
class CopyField:
    """Where a head flit says how many tiles before its destination take the packet, too: `bits` bits from `first_bit`
    on. Those are the last ones before it on the straight part of the way that ends there, if it leads to one of
    `directions`; never the one that sends.

    Raises ValueError when the field reaches into the destination, or for directions that are opposite.
    """

    first_bit: int
    bits: int
    directions: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.first_bit < DESTINATION_BITS:
            raise ValueError(f"first_bit = {self.first_bit} lies in the destination; use at least {DESTINATION_BITS}")
        if not self.directions or any(OPPOSITE[one] in self.directions for one in self.directions):
            raise ValueError(f"copies to {self.directions}: use one direction, or one of each dimension")

    @property
    def end(self) -> int:
        """The bit after the field."""
        return self.first_bit + self.bits


def copied_at(tiles: Sequence[int], copies: int) -> tuple[int, ...]:
    """The tiles before the destination that take a packet with `copies`, too, in their order on the way. `tiles`: those
    of its way, from source to destination.

    Raises RouteError if the way ends with fewer tiles in a straight line.
    """
    if not copies:
        return ()
    straight = 0  # hops at the end of the way that lead to the same direction
    for before, after in pairwise(reversed(tiles)):
        if before - after != tiles[-1] - tiles[-2]:
            break
        straight += 1
    most = min(straight, len(tiles) - 2)  # not the sender
    if copies > most:
        raise RouteError(
            f"{copies} copies on a way that ends with {max(most, 0)} tiles in a straight line before its destination; "
            "name fewer, or send what is left by itself"
        )
    return tuple(tiles[-1 - copies : -1])


def ports_at(x: int, y: int, width: int, height: int) -> tuple[str, ...]:
    """The ports of the router at (x, y) of a `width` x `height` mesh: its neighbours' directions, then the tile's."""
    there = [name for name, (dx, dy) in NEIGHBOURS.items() if 0 <= x + dx < width and 0 <= y + dy < height]
    return (*there, LOCAL)


def heading_after(heading: str, turn: int) -> str:
    """The direction in which a packet that moves to `heading` leaves a router by STRAIGHT, LEFT or RIGHT."""
    steps = {Turn.STRAIGHT: 0, Turn.LEFT: -1, Turn.RIGHT: 1}[Turn(turn)]
    return DIRECTIONS[(DIRECTIONS.index(heading) + steps) % len(DIRECTIONS)]


def dimension_ordered(source: int, target: int, routing: str = "xy") -> tuple[int, ...]:
    """The tiles that an unrouted packet visits, `source` and `target` included; `routing` as in `ROUTINGS`."""
    (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
    along_x = [(at, y if routing == "xy" else to_y) for at in _between(x, to_x)]
    along_y = [(x if routing == "yx" else to_x, at) for at in _between(y, to_y)]
    legs = {"xy": along_x + along_y, "yx": along_y + along_x}[routing]
    return (source, *(tile_address(*place) for place in legs))


def _between(start: int, end: int) -> range:
    """From the place after `start` to `end`."""
    step = 1 if end >= start else -1
    return range(start + step, end + step, step)


def encode(path: Sequence[int], width: int, height: int, field: RouteField | None = None) -> tuple[int, ...]:
    """The route along `path` (tile addresses from source to target) through a `width` x `height` mesh.

    `path` may visit a tile twice. Raises RouteError for a path that leaves the mesh, jumps, turns back, goes nowhere,
    or has more hops than `field` (if given) holds.
    """
    for tile in path:
        _check_inside(tile, width, height)
    if len(path) < 2:
        raise RouteError("a route needs two different tiles; a packet to its own tile is sent without one")
    headings = [direction(before, after) for before, after in pairwise(path)]
    route = [DIRECTIONS.index(headings[0])]
    for at, (before, after) in enumerate(pairwise(headings), 1):
        turns = [turn for turn in Turn if turn is not Turn.EJECT and heading_after(before, turn) == after]
        if not turns:
            raise RouteError(f"the path turns back in tile {path[at]:#04x}; take a detour, or shorten it")
        route.append(turns[0])
    route.append(Turn.EJECT)
    if field is not None:
        field.insert(0, route)
    return tuple(map(int, route))


def decode(route: Sequence[int], source: int, width: int, height: int) -> tuple[int, ...]:
    """The tiles that a packet from `source` visits with `route`; what follows its EJECT is not looked at.

    Raises RouteError where the packet would be a fault: it leaves the mesh, or the route ends without EJECT.
    """
    _check_inside(source, width, height)
    if any(not 0 <= entry <= Turn.EJECT for entry in route):
        raise RouteError(f"route {tuple(route)} has an entry that is not 0..3")
    path, heading = [source], ""
    for at, entry in enumerate(route):
        if at and entry == Turn.EJECT:
            return tuple(path)
        heading = heading_after(heading, entry) if at else DIRECTIONS[entry]
        (x, y), (dx, dy) = tile_position(path[-1]), NEIGHBOURS[heading]
        if not (0 <= x + dx < width and 0 <= y + dy < height):
            raise RouteError(
                f"entry {at} leads {heading} from tile {path[-1]:#04x}, out of the {width}x{height} mesh; "
                f"its neighbours are {', '.join(ports_at(x, y, width, height)[:-1]) or 'none'}"
            )
        path.append(tile_address(x + dx, y + dy))
    raise RouteError(f"the route ends in tile {path[-1]:#04x} without EJECT; append {Turn.EJECT}")


def _check_inside(tile: int, width: int, height: int) -> None:
    x, y = tile_position(tile)
    if not (0 <= x < width and 0 <= y < height):
        raise RouteError(f"tile {tile:#04x} is outside the {width}x{height} mesh; use y * 16 + x of one inside")


def direction(before: int, after: int) -> str:
    """Where a packet goes from a tile to its neighbour. Raises RouteError for tiles that are none."""
    (x, y), (to_x, to_y) = tile_position(before), tile_position(after)
    for name, step in NEIGHBOURS.items():
        if step == (to_x - x, to_y - y):
            return name
    raise RouteError(f"tiles {before:#04x} and {after:#04x} are not neighbours; a path lists every tile that it passes")
