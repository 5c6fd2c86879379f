"""Cores that add to the same sums: who begins where, and from whom to whom the sums of a tile go.

Cores that share a layer by M all have products for each tile of dW, by N for each tile of dX (J. Kim et al., section
5). The array adds one addend to a product, so what several cores have summed by themselves cannot be added up: the sums
of a tile go from core to core instead, through DRAM as spilled ones do, and each adds its products to what the one
before has left. So that none waits for another, each core begins at another tile, and all go round from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...mapping.nodes import Node
from ...mapping.tiling.problem import DoesNotFit
from ...schedulers.training.orders import Key, TileProduct
from ...schedulers.training.pair import Part


def groups(some: Sequence[TileProduct], sums: str) -> list[int]:
    """The steps at which no sums of `sums` are open, and those of a tile begin."""
    last = {step.result: index for index, step in enumerate(some) if step.of == sums}
    result: list[int] = []
    closed = -1
    for index, step in enumerate(some):
        if step.of == sums:
            if index > closed:
                result.append(index)
            closed = max(closed, last[step.result])
    return result


def begun(some: list[TileProduct], part: Part) -> list[TileProduct]:
    """The same steps, from the tile on with which a part begins.

    Raises DoesNotFit if products of both results take turns and all sums are open from the first step to the last: each
    core would wait for the whole work of another.
    """
    if part.sums is None or not any(step.of == part.sums for step in some):
        return some
    starts = groups(some, part.sums)
    if len(starts) == 1 and any(step.of != part.sums for step in some):
        raise DoesNotFit(
            f"sums of {part.sums} are open from the first step to the last, so that no two cores can share"
        )
    cut = starts[part.number * len(starts) // part.of]
    if cut and some[cut - 1][1:] == some[cut][1:]:
        cut -= 1  # the other product of the same tiles
    return some[cut:] + some[:cut]


def links(some: Sequence[TileProduct], part: Part) -> dict[Key, tuple[int | None, int | None]]:
    """Of each tile whose sums the parts share: the part that adds to it before this one, and the one after, by number.
    `some`: its steps as `begun` gives them, of tiles that are named as in all parts."""
    if part.sums is None:
        return {}
    starts = groups(some, part.sums)
    count = len(starts)
    firsts = [number * count // part.of for number in range(part.of)]
    result: dict[Key, tuple[int | None, int | None]] = {}
    turn = -1
    beside: tuple[int | None, int | None] = None, None
    for index, step in enumerate(some):
        if step.of != part.sums:
            continue
        if turn + 1 < count and index == starts[turn + 1]:
            turn += 1
            tile = (firsts[part.number] + turn) % count
            order = sorted(range(part.of), key=lambda other: ((tile - firsts[other]) % count, other))
            at = order.index(part.number)
            beside = order[at - 1] if at else None, order[at + 1] if at + 1 < part.of else None
        result.setdefault(step.result, beside)
    return result


#: What is passed on: the sums of a tile, and the part that had them, by number.
Passed = tuple[Key, int]


def together(
    streams: Sequence[Sequence[Node]], gives: Sequence[dict[int, Passed]], takes: Sequence[dict[int, Passed]]
) -> list[Node]:
    """The operations of all cores as one list, by turns, so that none comes behind all of the others at the channels.

    `gives`: of the last operation with which a core passes on the sums of a tile, by its number, what that is; `takes`:
    of the first with which a core takes them over, which comes later in the list.
    """
    at = [0] * len(streams)
    passed: set[Passed] = set()
    order: list[Node] = []
    while len(order) < sum(map(len, streams)):
        before = len(order)
        for core, nodes in enumerate(streams):
            if at[core] == len(nodes):
                continue
            awaited = takes[core].get(at[core])
            if awaited is not None and awaited not in passed:
                continue
            order.append(nodes[at[core]])
            if (gave := gives[core].get(at[core])) is not None:
                passed.add(gave)
            at[core] += 1
        assert len(order) > before, "cores that wait for each other"
    return order
