"""Ways of data packets through the mesh: the tiles that they visit, and the virtual channel on which they travel.

Packets on the same route stay in order; packets between the same two tiles on different routes may overtake each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from meshloom.hw.spec.config import MOST_HOPS, ChipConfig, TileKind, tile_position
from meshloom.hw.spec.routes import (
    TURN_BITS,
    RouteError,
    Turn,
    copied_at,
    decode,
    dimension_ordered,
    direction,
    encode,
)


class Route(NamedTuple):
    """`channel`: virtual channel, from 0 on. `tiles`: tile addresses from source to destination, both included."""

    channel: int
    tiles: tuple[int, ...]

    @property
    def hops(self) -> int:
        """Number of links between routers."""
        return len(self.tiles) - 1


def default_route(chip: ChipConfig, source: int, target: int) -> Route:
    """The route of packets without a ROUTE."""
    return Route(chip.channel_of(target), _usual(source, target, chip.noc.data_routing))


@lru_cache(1 << 14)
def _usual(source: int, target: int, routing: str) -> tuple[int, ...]:
    """`dimension_ordered`, kept: every MOVE of a program needs it."""
    return dimension_ordered(source, target, routing)


def copied_tiles(chip: ChipConfig, tiles: Sequence[int], copies: int) -> tuple[int, ...]:
    """The tiles before the destination that take a packet with `copies`, too, in their order on the way. `tiles`: those
    of its way, from source to destination.

    Raises RouteError for copies that the chip cannot make, or where there is no memory of a core or scratchpad.
    """
    ways = chip.noc.multicast
    if not ways:
        raise RouteError(f"routers of {chip.name} copy nothing; set noc.multicast")
    copied = copied_at(tiles, copies)
    way = direction(tiles[-2], tiles[-1])
    if way not in ways:
        raise RouteError(f"the last hops lead {way}, and routers of {chip.name} copy to {' and '.join(ways)} only")
    for tile in (*copied, tiles[-1]):
        if chip.tiles.get(tile) not in (TileKind.CORE, TileKind.SPM):
            x, y = tile_position(tile)
            raise RouteError(f"tile ({x},{y}) is neither core nor scratchpad, and no other takes copies")
    return copied


def receivers(chip: ChipConfig, fields: Mapping[str, int]) -> tuple[int, ...]:
    """The tiles that take the words of a MOVE with these body fields (missing ones are 0): the destination, then those
    before it. Raises RouteError for copies that the chip cannot make."""
    target, copies = fields.get("dst_tile", 0), fields.get("copies", 0)
    if not copies:
        return (target,)
    return (target, *copied_tiles(chip, _usual(fields.get("src_tile", 0), target, chip.noc.data_routing), copies))


def route_of(chip: ChipConfig, source: int, target: int, route: Mapping[str, int] | None = None) -> Route:
    """The route of a MOVE's data packets between two tiles of the floorplan, given the body fields of the preceding
    ROUTE, if any (missing ones are 0).

    Raises RouteError for a virtual channel or a source route that the chip does not have, and for a route that leaves
    the mesh or does not end at `target`.
    """
    if route is None:
        return default_route(chip, source, target)
    noc, number = chip.noc, route.get("channel", 0)
    if number > noc.data_vcs:
        raise RouteError(
            f"channel = {number} names virtual channel {number - 1}, but {chip.name} has {noc.data_vcs}: use "
            f"1..{noc.data_vcs}, or 0 for that of the destination"
        )
    channel = number - 1 if number else chip.channel_of(target)
    if not route.get("routed", 0):
        return Route(channel, dimension_ordered(source, target, noc.data_routing))
    if not noc.route_hops:
        raise RouteError(f"{chip.name} has no source routes; set noc.route_hops, or leave the route out")
    turns = route.get("turns", 0)
    tiles = decode([turns >> TURN_BITS * at & 3 for at in range(noc.route_hops + 1)], source, chip.width, chip.height)
    if tiles[-1] != target:
        raise RouteError(f"its route ends in tile {tiles[-1]:#04x}, not in the destination {target:#04x}; end it there")
    return Route(channel, tiles)


def check_route(chip: ChipConfig, source: int, target: int, path: Sequence[int] | None, channel: int | None) -> None:
    """Checks that a transfer between two tiles may take `path` (None: dimension order) on virtual channel `channel`
    (None: that of the destination). Raises RouteError with the fix if not."""
    noc = chip.noc
    if channel is not None and not 0 <= channel < noc.data_vcs:
        raise RouteError(
            f"virtual channel {channel} does not exist: {chip.name} has {noc.data_vcs}, 0..{noc.data_vcs - 1}; use one "
            "of them, or set noc.data_vcs"
        )
    if path is None:
        return
    if not noc.route_hops:
        raise RouteError(f"{chip.name} has no source routes; set noc.route_hops, or leave the route out")
    encode(path, chip.width, chip.height)
    if (path[0], path[-1]) != (source, target):
        raise RouteError(
            f"the route leads from tile {path[0]:#04x} to {path[-1]:#04x}, the words go from {source:#04x} to "
            f"{target:#04x}; begin and end it there"
        )
    if len(path) - 1 > noc.route_hops:
        raise RouteError(
            f"a route of {len(path) - 1} hops is too long: {chip.name} has noc.route_hops = {noc.route_hops}; use a "
            "shorter one, or more hops"
        )


def route_fields(chip: ChipConfig, path: Sequence[int] | None, channel: int | None) -> dict[str, int]:
    """Body fields of the ROUTE that sends the next MOVE of its stream along `path` on virtual channel `channel`.

    `path`: tile addresses, or None for dimension order; `channel`: None for that of the destination. Unused entries are
    EJECT. Raises RouteError for a path that no route can encode.
    """
    fields = {} if channel is None else {"channel": channel + 1}
    if path is None:
        return fields
    route = encode(path, chip.width, chip.height)
    if len(route) > MOST_HOPS + 1:
        raise RouteError(f"a route of {len(path) - 1} hops is too long: an instruction holds {MOST_HOPS}")
    entries = [*route, *[int(Turn.EJECT)] * (MOST_HOPS + 1 - len(route))]
    return fields | {"routed": 1, "turns": sum(entry << TURN_BITS * at for at, entry in enumerate(entries))}
