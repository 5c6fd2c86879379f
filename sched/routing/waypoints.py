"""Way-points: what has to be stored of a plan so that a controller finds every way again.

With dimension order between way-points a controller needs no search and knows no reservations; every detour costs
way-points. With the compiler's own search between them, over the same reservations in the same order, under the same
tie rule, it needs none: the departure and the number of hops pin the way down. Whatever is stored, the ways are rebuilt
from it and compared before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING, Literal

import numpy as np

from meshloom.hw.spec.routes import TURN_BITS, dimension_ordered

from .hardware import DttError
from .plan import Carry, Plan
from .planner import mesh_space

if TYPE_CHECKING:
    from .search import Space

#: How ways are found between way-points.
Between = Literal["xy", "yx", "search"]
#: Bits of a cycle number, as `fire_at` of an instruction.
CYCLE_BITS = 32


@dataclass(frozen=True)
class Stored:
    """What is stored of a move besides its instruction, which names source and destination. `extra`: hops more than the
    fewest; `points`: (tile address, hops from the source). Dimension order between them needs neither kind of hops."""

    departure: int
    extra: int
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Compressed:
    """The stored form of a plan; bits are those of all moves.

    `listed_bits`: of the list of movements that the search puts out, (tile, cycle) for each hop; `route_bits`: of a
    departure and a source route for each move; `stored_bits`: of what is stored. Each also without departures.
    """

    between: Between
    moves: tuple[Stored, ...]
    listed_bits: int
    route_bits: int
    stored_bits: int

    @property
    def points(self) -> int:
        """Way-points of all moves."""
        return sum(len(move.points) for move in self.moves)

    @property
    def most_points(self) -> int:
        """Way-points of the move that needs most."""
        return max((len(move.points) for move in self.moves), default=0)

    @property
    def turn_bits(self) -> int:
        """Bits of the source routes alone."""
        return self.route_bits - CYCLE_BITS * len(self.moves)

    @property
    def point_bits(self) -> int:
        """Bits that are stored besides departures."""
        return self.stored_bits - CYCLE_BITS * len(self.moves)


def compress(plan: Plan, between: Between) -> Compressed:
    """Stores a plan with as few way-points as can be. Raises DttError if a rebuilt way is not the planned one."""
    carries = plan.carries
    if between == "search":
        moves = _by_search(plan)
    else:
        moves = tuple(Stored(carry.departure, 0, _corners(carry.path, between)) for carry in carries)
    for carry, path in zip(carries, rebuild(plan, moves, between), strict=True):
        if path != carry.path:
            raise DttError(
                f"move {carry.number} in cycle {carry.departure}: rebuilt by {between} it goes over "
                f"{_text(path)}, planned was {_text(carry.path)}"
            )
    tile_bits = max(1, ceil(log2(len(plan.program.mesh.tiles))))
    hops = sum(carry.hops for carry in carries)
    most = max((len(move.points) for move in moves), default=0)
    extra = max((move.extra for move in moves), default=0)
    hop_bits = ceil(log2(1 + max((carry.hops for carry in carries), default=0))) if between == "search" else 0
    each = CYCLE_BITS + ceil(log2(most + 1)) + ceil(log2(extra // 2 + 1))  # detours come in pairs of hops
    return Compressed(
        between,
        moves,
        listed_bits=(hops + len(carries)) * (tile_bits + CYCLE_BITS),
        route_bits=sum(CYCLE_BITS + TURN_BITS * (carry.hops + 1) for carry in carries),
        stored_bits=len(moves) * each + sum(len(move.points) for move in moves) * (tile_bits + hop_bits),
    )


def rebuild(plan: Plan, moves: Sequence[Stored], between: Between) -> list[tuple[int, ...]]:
    """The ways that a controller finds from what is stored and from the moves' sources, destinations and lengths.

    Raises DttError naming the move for which the search finds none.
    """
    if between == "search":
        return _search_again(plan, moves)
    ways: list[tuple[int, ...]] = []
    for carry, move in zip(plan.carries, moves, strict=True):
        path = [carry.path[0]]
        for tile in (*(point for point, _ in move.points), carry.path[-1]):
            path += dimension_ordered(path[-1], tile, between)[1:]
        ways.append(tuple(path))
    return ways


def _corners(path: tuple[int, ...], routing: str) -> tuple[tuple[int, int], ...]:
    """The fewest tiles of a path between which dimension order leads along it.

    Parts of a dimension-ordered path are dimension-ordered, so that going on as far as can be is best.
    """
    points: list[tuple[int, int]] = []
    first = 0
    for last in range(1, len(path)):
        if dimension_ordered(path[first], path[last], routing) != path[first : last + 1]:
            first = last - 1
            points.append((path[first], first))
    return tuple(points)


def _arrays(plan: Plan) -> tuple[list[Carry], np.ndarray, np.ndarray, np.ndarray]:
    carries = list(plan.carries)
    hops = np.array([carry.hops for carry in carries], np.int64)
    departure = np.array([carry.departure for carry in carries], np.int64)
    flits = np.array([plan.program.pages[carry.page].flits for carry in carries], np.int64)
    return carries, hops, departure, flits


def _cycles(plan: Plan) -> int:
    longest = max((page.flits for page in plan.program.pages), default=0)
    return plan.cycles + longest + plan.program.mesh.gap + 256


def _by_search(plan: Plan) -> tuple[Stored, ...]:
    from . import replay

    mesh = plan.program.mesh
    space = mesh_space(mesh, plan.settings, _cycles(plan))
    carries, hops, departure, flits = _arrays(plan)
    _check_lengths(hops, space)
    ways = np.array([mesh.number(tile) for carry in carries for tile in carry.path], np.int64)
    way = np.zeros(len(carries), np.int64)
    np.cumsum(hops[:-1] + 1, out=way[1:])
    points = np.zeros((len(carries), replay.LONGEST), np.int64)
    counts = np.zeros(len(carries), np.int64)
    parts, goal = np.zeros(replay.LONGEST, replay.PART), np.zeros(1, np.int64)
    replay.choose(space, ways, way, hops, departure, flits, points, counts, parts, goal)
    moves: list[Stored] = []
    for number, carry in enumerate(carries):
        numbers: list[int] = points[number, : counts[number]].tolist()
        tiles = [mesh.tiles[point] for point in numbers]
        extra = carry.hops - mesh.distance(carry.path[0], carry.path[-1])
        moves.append(Stored(carry.departure, extra, tuple((tile, carry.path.index(tile)) for tile in tiles)))
    return tuple(moves)


def _check_lengths(hops: np.ndarray, space: Space) -> None:
    """Compiled code looks at no bounds. Raises DttError if the tables of the search or of way-points are too short."""
    from . import replay

    most = min(replay.LONGEST, len(space.path)) - 1
    if len(hops) and int(hops.max()) > most:
        raise DttError(f"a way of {hops.max()} hops is too long for way-points; {most} is the most")


def _search_again(plan: Plan, moves: Sequence[Stored]) -> list[tuple[int, ...]]:
    from . import replay

    mesh = plan.program.mesh
    space = mesh_space(mesh, plan.settings, _cycles(plan))
    carries, _, _, flits = _arrays(plan)
    source = np.array([mesh.number(carry.path[0]) for carry in carries], np.int64)
    target = np.array([mesh.number(carry.path[-1]) for carry in carries], np.int64)
    departure = np.array([move.departure for move in moves], np.int64)
    apart = [mesh.distance(carry.path[0], carry.path[-1]) for carry in carries]
    hops = np.array([least + move.extra for least, move in zip(apart, moves, strict=True)], np.int64)
    _check_lengths(hops, space)
    counts = np.array([len(move.points) for move in moves], np.int64)
    points, reached = (np.zeros((len(moves), replay.LONGEST), np.int64) for _ in range(2))
    for number, move in enumerate(moves):
        for at, (tile, hop) in enumerate(move.points):
            points[number, at], reached[number, at] = mesh.number(tile), hop
    ways = np.zeros((len(moves), replay.LONGEST), np.int64)
    goal = np.zeros(1, np.int64)
    lost = replay.rebuild(space, source, target, hops, departure, flits, points, counts, reached, ways, goal)
    if lost >= 0:
        carry = carries[lost]
        raise DttError(
            f"move {carry.number} in cycle {carry.departure}: the search finds no way over {hops[lost]} hops from "
            f"{carry.path[0]:#04x} to {carry.path[-1]:#04x}; reservations are not the planned ones"
        )
    return [tuple(mesh.tiles[int(tile)] for tile in ways[number, : hops[number] + 1]) for number in range(len(moves))]


def _text(path: Sequence[int]) -> str:
    return " ".join(f"{tile:#04x}" for tile in path)
