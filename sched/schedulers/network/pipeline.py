"""Work of many cores on tiles, a few of which are under way at a time on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ...mapping.nodes import Node
from ...mapping.tiling.tiles import even

Item = TypeVar("Item")


def pipelined(
    count: int, slots: int, load: Callable[[int], list[Node]], work: Callable[[int], list[Node]]
) -> Iterator[list[Node]]:
    """Groups of operations of one core: what the first tiles need, then for each tile what one `slots` - 1 behind it
    needs, and what is done with it. `load`, `work`: of a tile, by its number; each is asked once, in order."""
    ahead = min(slots - 1, count)
    yield [node for index in range(ahead) for node in load(index)]
    for index in range(count):
        group = load(index + ahead) if index + ahead < count else []
        yield [*group, *work(index)]


def in_turns(streams: Sequence[Sequence[list[Node]]]) -> list[Node]:
    """The groups of all cores, one of each core after the other."""
    nodes: list[Node] = []
    for position in range(max((len(stream) for stream in streams), default=0)):
        for stream in streams:
            if position < len(stream):
                nodes += stream[position]
    return nodes


def shared(
    cores: Sequence[int], items: Sequence[Item], make: Callable[[int, Sequence[Item]], Sequence[list[Node]]]
) -> list[Node]:
    """`items` shared evenly by the cores, of which some stay idle if there are fewer: what `make` makes of each core's,
    in turns."""
    ranges = even(0, len(items), min(len(cores), len(items)))
    return in_turns([make(core, items[low:high]) for core, (low, high) in zip(cores, ranges, strict=False)])
