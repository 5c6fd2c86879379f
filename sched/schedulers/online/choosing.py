"""What schedulers share: which of the free cores to take."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.config import tile_position


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
    places = [tile_position(tile) for tile in free]
    best: tuple[int, list[int]] | None = None
    for x, y in places:
        near = sorted((abs(x - u) + abs(y - v), index) for index, (u, v) in enumerate(places))[:count]
        spread = sum(distance for distance, _ in near)
        if best is None or spread < best[0]:
            best = spread, [index for _, index in near]
    assert best is not None
    return tuple(free[index] for index in sorted(best[1]))
