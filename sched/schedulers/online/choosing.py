"""What schedulers share: which of the free cores to take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from meshloom.hw.spec.config import tile_position

#: Tile addresses, and bits of an index into a list of tiles.
TILES, _INDEX = 256, 8


def together(free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the free tiles that lie close together, in the order of `free`.

    Around each free tile the nearest ones (Manhattan distance, then order) are a candidate; the one with the smallest
    sum wins, the first of equals. Raises ValueError when there are too few.
    """
    if count > len(free):
        raise ValueError(f"{count} cores of {len(free)} free ones")
    if count == len(free):
        return tuple(free)
    if count == 1:
        return (free[0],)
    best, chosen = -1, list[int]()
    for origin in free:
        distances = _distances(origin)
        near = sorted([distances[tile] + index for index, tile in enumerate(free)])[:count]
        spread = sum([each >> _INDEX for each in near])
        if best < 0 or spread < best:
            best, chosen = spread, near
    return tuple(free[index] for index in sorted(each & (1 << _INDEX) - 1 for each in chosen))


@cache
def _distances(origin: int) -> tuple[int, ...]:
    """Of each tile address, its distance from a tile, above the bits of an index: such numbers are quickly sorted."""
    x, y = tile_position(origin)
    places = (tile_position(tile) for tile in range(TILES))
    return tuple(abs(x - u) + abs(y - v) << _INDEX for u, v in places)
