"""MOVEs of the same words to the same addresses of several cores become one, whose packets routers copy.

Cores that share a layer's work read many words alike: the weights of the same channels, the rows that their parts have
in common. Where routers copy packets to the tiles that they pass (`noc.multicast`), one MOVE brings them to all cores
in a line: DRAM is read once, and each link carries them once. The price is that all of these cores must have room at
the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import floor, inf

from meshloom.hw.spec.config import ChipConfig

from ...ir.dependences import Depends
from ...ir.schedule import Move, Operation
from ...program.routes import RouteError, receivers


class _Places:
    """Where operations stand in a list, as numbers that rise along it, while some are moved."""

    def __init__(self, order: Sequence[int], depends: Depends) -> None:
        self.at = [0.0] * len(order)
        for place, index in enumerate(order):
            self.at[index] = float(place)
        self._before = [depends.data[index] | depends.room[index] for index in range(len(order))]
        self._after: list[list[int]] = [[] for _ in order]
        for index, before in enumerate(self._before):
            for other in before:
                self._after[other].append(index)

    def between(self, some: Collection[int]) -> tuple[float, float]:
        """The places of what some operations wait for, the latest, and of what waits for them, the earliest."""
        latest = max((self.at[other] for index in some for other in self._before[index]), default=-1.0)
        earliest = min((self.at[other] for index in some for other in self._after[index]), default=inf)
        return latest, earliest

    def join(self, some: Collection[int]) -> None:
        """Puts operations where the first of them stands, or behind what the others wait for."""
        latest, earliest = self.between(some)
        first = min(self.at[index] for index in some)
        place = first if first > latest else (latest + min(earliest, floor(latest) + 1.0)) / 2
        assert latest < place < earliest, "no room between what they wait for and what waits for them"
        for index in some:
            self.at[index] = place


def merged(
    operations: Sequence[Operation], order: Sequence[int], depends: Depends, chip: ChipConfig, some: Collection[int]
) -> tuple[list[int], dict[int, int]]:
    """The order of a list in which MOVEs of `some` operations have become copies of others, and how many tiles take
    the words of each of these besides its destination.

    `operations`, `depends`: as they were first listed; `order`: of that list's numbers, one that keeps what each waits
    for, as the new one does. MOVEs become one if all cores that take it can at some place in the list.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index in order:
        op = operations[index]
        if index in some and isinstance(op, Move) and op.dst.tile in chip.cores and op.route is None:
            dst = op.dst
            groups.setdefault((op.src, op.words, dst.address, dst.run, dst.stride), []).append(index)
    places = _Places(order, depends)
    copies: dict[int, int] = {}
    copied: set[int] = set()
    for group in groups.values():
        while len(group) > 1:
            line = _line(operations, group, places, chip)
            if line:
                places.join(line)
                copies[line[0]] = len(line) - 1
                copied.update(line[1:])
            group = [index for index in group[1:] if index not in line]
    left = [index for index in order if index not in copied]
    return sorted(left, key=places.at.__getitem__), copies


def _line(operations: Sequence[Operation], group: Sequence[int], places: _Places, chip: ChipConfig) -> list[int]:
    """The first of some MOVEs of the same words, and as many others as can become one with it: that to the farthest
    tile, then those to the tiles that it passes; none, if there are no others. MOVEs with one source and different
    targets never wait for each other directly, so what all wait for tells whether they can."""
    together: dict[int, int] = {}  # by tile
    for index in group:
        op = operations[index]
        assert isinstance(op, Move)
        latest, earliest = places.between([*together.values(), index])
        if op.dst.tile not in together and latest < earliest:
            together[op.dst.tile] = index
    best: tuple[int, ...] = ()
    first = operations[group[0]]
    assert isinstance(first, Move)
    for index in together.values():
        op = operations[index]
        assert isinstance(op, Move)
        for count in range(1, len(together)):
            try:
                line = receivers(chip, op.body | {"copies": count})
            except RouteError:
                break
            if not together.keys() >= set(line):
                break
            if first.dst.tile in line and len(line) > len(best):
                best = line
    return [together[tile] for tile in best]
