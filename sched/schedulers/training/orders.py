"""The orders in which the tiles of a pair are computed (J. Kim et al., section 4, figures 8 and 10, algorithm 1).

A step multiplies one tile: of dX, dX[m, k] += dY[m, n]·W[k, n]ᵀ, or of dW, dW[k, n] += X[m, k]ᵀ·dY[m, n].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, permutations
from typing import Literal, NamedTuple, Protocol

from ...mapping.tiling.tiles import Range
from .pair import Tiling, cut

#: What lies somewhere: the name of a tensor, channels, pixels.
Key = tuple[str, Range, Range]


class Order(StrEnum):
    """How dX and dW share the time."""

    SEQUENTIAL = "sequential"  #: one product after the other, each with the best tiles and loops
    PLAIN = "plain"  #: the paper's baseline: dX, then dW, tiles as in the interleaved orders
    INTERLEAVED = "interleaved"  #: plain, alternating step by step (figure 8b, 10a)
    DX_MAJOR = "dx_major"  #: both along the rows of dY (figure 10b): partial sums of dW
    DW_MAJOR = "dw_major"  #: both along the columns of dY (figure 10c): partial sums of dX
    K_MAJOR = "k_major"  #: both along the columns of X: dY is read again, sums of one range of k at a time


class Sized(Protocol):
    """What has the sizes of a pair, in the units of its tiles."""

    @property
    def m(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def n(self) -> int: ...


class TileProduct(NamedTuple):
    """One product of tiles. `of`: the result."""

    of: Literal["dx", "dw"]
    m: Range
    k: Range
    n: Range

    @property
    def result(self) -> Key:
        """The tile of the result: its name, its columns k, its pixels."""
        return self.of, self.k, self.m if self.of == "dx" else self.n


@dataclass(frozen=True)
class Nest:
    """Three loops over tiles, outermost first. `snake`: inner loops turn back where they end, which reuses a tile."""

    tiling: Tiling
    loops: str = "mkn"
    snake: bool = False

    def walked(self, pair: Sized) -> Nest:
        """The first of all nests that visit the tiles of a pair in this order: loops of one trip are last, and it only
        turns back if two loops have more."""
        ends, steps = {"m": pair.m, "k": pair.k, "n": pair.n}, vars(self.tiling)
        many = [name for name in self.loops if ends[name] > steps[name]]
        once = [name for name in "mkn" if ends[name] <= steps[name]]
        return Nest(self.tiling, "".join(many + once), self.snake and len(many) > 1)

    def __str__(self) -> str:
        return f"{self.loops}{'~' if self.snake else ''} {self.tiling.m}x{self.tiling.k}x{self.tiling.n}"


#: All orders of three loops.
LOOPS = tuple("".join(loops) for loops in permutations("mkn"))


def _walk(pair: Sized, nest: Nest) -> Iterator[tuple[Range, Range, Range]]:
    """Tiles (m, k, n) in the order of a nest."""
    ends, steps = {"m": pair.m, "k": pair.k, "n": pair.n}, vars(nest.tiling)
    tiles = [cut(ends[name], steps[name]) for name in nest.loops]
    inner = 0
    for outer, first in enumerate(tiles[0]):
        for second in reversed(tiles[1]) if nest.snake and outer % 2 else tiles[1]:
            for third in reversed(tiles[2]) if nest.snake and inner % 2 else tiles[2]:
                at = dict(zip(nest.loops, (first, second, third), strict=True))
                yield at["m"], at["k"], at["n"]
            inner += 1


def alone(pair: Sized, of: Literal["dx", "dw"], nest: Nest) -> list[TileProduct]:
    """One product by itself."""
    return [TileProduct(of, *tile) for tile in _walk(pair, nest)]


def fused(pair: Sized, nest: Nest) -> list[TileProduct]:
    """Both products in the same three loops: every tile of dY serves both while it is there."""
    return [TileProduct(of, *tile) for tile in _walk(pair, nest) for of in ("dx", "dw")]


def steps(
    pair: Sized, order: Order, nest: Nest, begun: Callable[[list[TileProduct]], list[TileProduct]] = lambda some: some
) -> list[TileProduct]:
    """The steps of a pair in every order but `SEQUENTIAL`, which has a nest for each product. `nest.loops` counts for
    none but the `*_MAJOR` orders: its first loop must be theirs. `begun`: lets a walk begin elsewhere (`sharing`)."""
    if order in (Order.PLAIN, Order.INTERLEAVED):
        # traditional products: the sums of a tile of the result stay until they are complete
        rows = begun(alone(pair, "dx", Nest(nest.tiling, "mkn", nest.snake)))
        columns = begun(alone(pair, "dw", Nest(nest.tiling, "nkm", nest.snake)))
        if order is Order.PLAIN:
            return rows + columns
        return list(chain.from_iterable(zip(rows, columns, strict=True)))
    return begun(fused(pair, nest))


def moved(some: list[TileProduct], by: tuple[int, int, int]) -> list[TileProduct]:
    """Steps of a part of a pair that begins at row, column of X and column of W `by`."""
    if by == (0, 0, 0):
        return some
    m, k, n = by
    return [
        TileProduct(of, (ms[0] + m, ms[1] + m), (ks[0] + k, ks[1] + k), (ns[0] + n, ns[1] + n))
        for of, ms, ks, ns in some
    ]


def nests(order: Order, tiling: Tiling) -> list[Nest]:
    """The nests that an order allows for."""
    if order in (Order.PLAIN, Order.INTERLEAVED):
        return [Nest(tiling)]
    outer = {Order.DX_MAJOR: "m", Order.DW_MAJOR: "n", Order.K_MAJOR: "k"}[order]
    return [Nest(tiling, loops, snake) for loops in LOOPS if loops[0] == outer for snake in (False, True)]


def selected(m: int, k: int, n: int) -> Order:
    """The order that algorithm 1 selects by the sizes of a layer.

    The text of section 4.3 prefers dX-major where dX is larger than dW (M > N); the algorithm, as here, asks for K.
    """
    if max(m, k, n) < 4 * min(m, k, n):
        return Order.INTERLEAVED
    return Order.DW_MAJOR if k > n and k > m else Order.DX_MAJOR
