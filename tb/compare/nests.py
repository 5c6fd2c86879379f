"""The loop nest that a sequence of GEMMs follows, if it follows one: found from their tiles alone.

The outermost loop is over the dimension whose tiles come in groups, one after the other, none of which comes back; the
others are found the same way within each group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ..results.nests import GemmTile, Load, Loop, Nest

#: Dimensions: output pixels, output channels, parts of the sums.
DIMENSIONS = ("p", "n", "k")


#: Part of an operand's words that may come elsewhere: at edges, ahead of time.
_FEW = 0.25


_Shape = tuple[tuple[tuple[str, ...], int], ...]


def nest_of(gemms: Sequence[GemmTile]) -> Nest | None:
    """The nest of a layer, by the core with the most GEMMs; None without any."""
    by_core: defaultdict[int, list[GemmTile]] = defaultdict(list)
    for each in gemms:
        by_core[each.core].append(each)
    if not by_core:
        return None
    longest = max(by_core.values(), key=len)
    walk = _Nesting(longest)
    shape = walk.shape(0, len(longest), 0)
    before, *loads = walk.loads(len(shape))
    loops = tuple(
        Loop(dimensions, count, loads[depth], depth in walk.reversed) for depth, (dimensions, count) in enumerate(shape)
    )
    return Nest(loops, before, _typical(longest), walk.share(shape), _parts(by_core), len(by_core))


def _typical(gemms: Sequence[GemmTile]) -> GemmTile:
    """A GEMM of the most frequent size."""
    sizes = Counter((each.pixels, each.channels, each.depth) for each in gemms)
    return max(gemms, key=lambda each: sizes[each.pixels, each.channels, each.depth])


def _parts(by_core: dict[int, list[GemmTile]]) -> dict[str, int]:
    """Into how many parts cores divide each dimension: those that have no tile in common with one another."""
    parts: dict[str, int] = {}
    for dimension in DIMENSIONS:
        sets = {frozenset(getattr(each, dimension) for each in those) for those in by_core.values()}
        tiles = [tile for members in sets for tile in members]
        parts[dimension] = len(sets) if len(tiles) == len(set(tiles)) else 1
    return parts


class _Nesting:
    """Divides a core's GEMMs into loops. `depths`: of each GEMM, the depth of the outermost loop that has gone on since
    the one before (-1: the first GEMM of all); `places`: the iteration of each loop that it is in, outermost first."""

    def __init__(self, gemms: Sequence[GemmTile]) -> None:
        self.gemms = gemms
        self.depths = [-1] * len(gemms)
        self.places: list[list[int]] = [[] for _ in gemms]
        self.reversed: set[int] = set()
        self._orders: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)

    def shape(self, start: int, stop: int, depth: int) -> _Shape:
        """The loops of a part of the GEMMs, each with its iterations; of several inner ones the commonest."""
        if stop - start < 2:
            return ()
        borders = {name: self._borders(name, start, stop) for name in DIMENSIONS}
        most = max(borders.values(), key=len)
        if len(most) < 2:
            self.depths[start + 1 : stop] = [depth] * (stop - start - 1)
            return (((), stop - start),)
        names = tuple(name for name in DIMENSIONS if borders[name] == most)
        inner = Counter[_Shape]()
        for index, (first, last) in enumerate(zip(most, [*most[1:], stop], strict=True)):
            if index:
                self.depths[first] = depth
            for places in self.places[first:last]:
                places.append(index)
            inner[self.shape(first, last, depth + 1)] += 1
        order = tuple(getattr(self.gemms[first], names[0]) for first in most)
        if any(order == before[::-1] for before in self._orders[depth]) and order != order[::-1]:
            self.reversed.add(depth)
        self._orders[depth] = [order]
        (common, _), *_ = inner.most_common(1)
        return ((names, len(most)), *common)

    def _borders(self, name: str, start: int, stop: int) -> list[int]:
        """Where groups of tiles begin that do not come back after them."""
        last: dict[int, int] = {}
        for index in range(start, stop):
            last[getattr(self.gemms[index], name)] = index
        borders, reach = [start], start
        for index in range(start, stop):
            if index > reach:
                borders.append(index)
            reach = max(reach, last[getattr(self.gemms[index], name)])
        return borders

    def loads(self, loops: int) -> list[tuple[Load, ...]]:
        """What comes before all loops, and then for each loop what its iterations bring: an operand is said to come in
        the outermost one that accounts for all but `_FEW` of its words."""
        loads: list[list[Load]] = [[] for _ in range(loops + 1)]
        for operand, memory in enumerate(("A", "B")):
            words = [each.fresh[operand] for each in self.gemms]
            least = (1 - _FEW) * sum(words)
            if not least:
                continue
            depths = [min(depth, loops - 1) for depth in self.depths]
            sums = [sum(w for w, at in zip(words, depths, strict=True) if at <= depth) for depth in range(-1, loops)]
            inner = next(depth for depth, number in enumerate(sums, -1) if number >= least)
            once = [d for d in range(inner) if self._within_first(words, d) >= least]
            steps = (
                at <= inner and not any(places[d : d + 1] > [0] for d in once)
                for at, places in zip(depths, self.places, strict=True)
            )
            loads[inner + 1].append(Load(memory, sum(words) / sum(steps), tuple(once)))
        return [tuple(each) for each in loads]

    def _within_first(self, words: Sequence[int], depth: int) -> int:
        """Words that come while the loop at a depth is in its first iteration."""
        return sum(count for count, places in zip(words, self.places, strict=True) if places[depth : depth + 1] <= [0])

    def share(self, shape: _Shape) -> float:
        """The part of the GEMMs that a full nest of these loops would have, of those that there are."""
        count = 1
        for _, times in shape:
            count *= times
        regular = all(names for names, _ in shape)
        return min(count, len(self.gemms)) / max(count, len(self.gemms)) if regular else 0.0
