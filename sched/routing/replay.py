"""What a controller does with a stored plan, compiled: ways found again between way-points, trains sent on them."""

from __future__ import annotations

from ..support.records import Table, layout
from .compiled import jit
from .fetch import occupy
from .search import UP, Space, find_route
from .tables import ONE, Array, first_busy, last_busy

#: Longest way, in tiles, that way-points are chosen for.
LONGEST = 64


class Part:
    """A tile of a way: into how few parts the way up to it can be cut, and the tile where the last of them begins."""

    least: int
    before: int


PART = layout(Part)


@jit
def _again(space: Space, ways: Array, at: int, first: int, last: int, departure: int, flits: int, goal: Array) -> bool:
    """Whether the search finds the part of a way from its tile `first` to its tile `last` as it is."""
    goal[0] = ways[at + first]
    if find_route(space, ways[at + last], departure + last + 1, flits, last - first, goal, ONE, UP) < 0:
        return False
    same = True
    for hop in range(last - first + 1):
        same = same and space.path[hop] == ways[at + first + hop]
    return same


@jit
def choose(
    space: Space,
    ways: Array,
    way: Array,
    hops: Array,
    departure: Array,
    flits: Array,
    points: Array,
    counts: Array,
    parts: Table[Part],
    goal: Array,
) -> None:
    """For each move in order the fewest way-points between which the search finds its way again; then reserves it.

    `points` [move, LONGEST]: their tiles; `counts` [move]. `parts` [LONGEST] and `goal` [1] are scratch.
    """
    for move in range(len(way)):
        at, length, leaves, long = way[move], hops[move], departure[move], flits[move]
        if _again(space, ways, at, 0, length, leaves, long, goal):
            counts[move] = 0
        else:
            # fewest parts that lead from the first tile to each other one
            parts[0].least = 0
            for last in range(1, length + 1):
                part = parts[last]
                part.least = LONGEST
                for first in range(last):
                    least = parts[first].least + 1
                    if least < part.least and _again(space, ways, at, first, last, leaves, long, goal):
                        part.least, part.before = least, first
            counts[move] = parts[length].least - 1
            last = length
            for point in range(counts[move] - 1, -1, -1):
                last = parts[last].before
                points[move, point] = ways[at + last]
        occupy(space, ways, at, length, leaves, long)


@jit
def rebuild(
    space: Space,
    source: Array,
    target: Array,
    hops: Array,
    departure: Array,
    flits: Array,
    points: Array,
    counts: Array,
    reached: Array,
    ways: Array,
    goal: Array,
) -> int:
    """Finds every way again from what is stored, in order, and reserves it; the first that cannot be found, or -1.

    `reached` [move, LONGEST]: hops of each way-point from the source, as the controller has to know when it is there.
    `ways` [move, LONGEST]: the tiles of each way.
    """
    for move in range(len(source)):
        here, so_far = source[move], 0
        for point in range(counts[move] + 1):
            there, then = target[move], hops[move]
            if point < counts[move]:
                there, then = points[move, point], reached[move, point]
            goal[0] = here
            if find_route(space, there, departure[move] + then + 1, flits[move], then - so_far, goal, ONE, UP) < 0:
                return move
            for hop in range(then - so_far + 1):
                ways[move, so_far + hop] = space.path[hop]
            here, so_far = there, then
        occupy(space, ways[move], 0, hops[move], departure[move], flits[move])
    return -1


@jit
def send(space: Space, way: Array, hops: int, after: int, flits: int, end: int) -> int:
    """Sends a train along a fixed way in the first cycle from `after` on in which all of it is free: its departure, or
    -1 if the tables end (at `end`) before."""
    departure = after
    gap = space.rules.gap
    while departure + hops + flits + gap + 1 < end:
        blocked = last_busy(space.busy, space.inject[way[0]], departure, departure + flits + gap)
        step = 0 if blocked < 0 else blocked + 1 - departure
        hop = 1
        while not step and hop <= hops:
            for turn in range(4):
                if space.near[way[hop], turn] == way[hop - 1]:
                    start = departure + hop
                    if first_busy(space.busy, space.into[way[hop], turn], start, start + flits) >= 0:
                        step = last_busy(space.busy, space.into[way[hop], turn], start, start + flits) + 1 - start
                    break
            hop += 1
        if not step:
            start = departure + hops + 1
            blocked = last_busy(space.busy, space.eject[way[hops]], start, start + flits)
            step = 0 if blocked < 0 else blocked + 1 - start
        if not step:
            occupy(space, way, 0, hops, departure, flits)
            return departure
        departure += step
    return -1
