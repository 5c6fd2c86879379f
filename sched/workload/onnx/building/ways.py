"""In which steps channels and pixels change places, so that a tensor of several axes lies in another order.

A tensor has axes (heads, tokens, features); some are the channels of a value, the others its pixels. The chip can put
channels in any order (a convolution that selects them) and exchange channels and pixels in groups of channels (a
transpose). Heads that are beside tokens and must be beside features, say, take two or three of these. Which is
cheapest, is a shortest path through the orders of axes (Dijkstra 1959).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, permutations
from math import prod

import numpy as np
from numpy.typing import NDArray

from .views import Size

#: Axes that are put in another order; there are as many orders as their factorial.
_MOST_AXES = 6
#: Weights of a convolution that only selects.
_MOST_SELECTED = 1 << 20
#: Lanes of a word, multipliers of a core, and cycles of a layer besides its work, when ways are compared.
_LANES, _MULTIPLIERS, _LAYER = 16, 256, 400

#: Numbers of axes: those that are channels and those that are pixels, outermost first.
_Order = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _Axis:
    """`size` elements, each `step` behind the one before in the value; 0 if they are the same."""

    size: int
    step: int


@dataclass(frozen=True, eq=False)
class WayStep:
    """These channels are selected, then pixels and channels change places in so many groups; 0: they stay."""

    channels: NDArray[np.int64]
    groups: int


def find_way(index: NDArray[np.int64], size: Size) -> list[WayStep] | None:
    """The steps to a value with the elements `index` [channels, pixels] of a value of `size`; None if none are known:
    where they are no axes in another order, or are too many."""
    exchanged = _exchange(index, size)
    if exchanged is not None:
        return exchanged
    plane = size[1] * size[2]
    axes = _split_axes(index, plane)
    if axes is None or len(axes) > _MOST_AXES:
        return None
    behind = 0  # axes at the end that are the result's pixels
    while prod(axis.size for axis in axes[len(axes) - behind :]) < index.shape[1]:
        behind += 1
    numbers = tuple(range(len(axes)))
    goal: _Order = numbers[: len(axes) - behind], numbers[len(axes) - behind :]
    pixels = sorted((at for at in numbers if 0 < axes[at].step < plane), key=lambda at: -axes[at].step)
    rest = 1
    for at in reversed(pixels):  # all pixels, each once
        if axes[at].step != rest:
            return None
        rest *= axes[at].size
    if rest != plane:
        return None
    start: _Order = tuple(at for at in numbers if at not in pixels), tuple(pixels)
    path = _shortest(axes, start, goal, size[0])
    return None if path is None else _steps_of(axes, start[0], path, int(index[0, 0]) // plane, plane)


def _exchange(index: NDArray[np.int64], size: Size) -> list[WayStep] | None:
    """The way if each channel of the result is a pixel and each pixel a channel, in whatever order."""
    channel, pixel = np.divmod(index, size[1] * size[2])
    if np.any(channel != channel[:1]) or np.any(pixel != pixel[:, :1]):
        return None
    across = WayStep(channel[0], 1)
    weights = max(size[0] * index.shape[1], size[1] * size[2] * len(index))
    return [across, WayStep(pixel[:, 0], 0)] if weights <= _MOST_SELECTED else None


def _split_axes(index: NDArray[np.int64], plane: int) -> list[_Axis] | None:
    """The axes of a tensor, outermost first, cut where those of a value or the result's channels end."""
    axes: list[_Axis] = []
    flat = index.reshape(-1)
    for length, part in ((index.shape[1], flat[: index.shape[1]]), (len(index), index[:, 0])):
        inner: list[_Axis] = []
        while length > 1:
            step = int(part[1] - part[0])
            steps = np.flatnonzero(np.diff(part) != step)
            run = int(steps[0]) + 1 if len(steps) else length
            if length % run or step < 0:
                return None
            inner += _cut(run, step, plane)
            part, length = part[::run], length // run
        axes = inner[::-1] + axes
    sizes = [axis.size for axis in axes]
    places = sum(
        (np.arange(axis.size) * axis.step).reshape([-1 if at == other else 1 for other in range(len(axes))])
        for at, axis in enumerate(axes)
    )
    whole = np.broadcast_to(np.asarray(places), sizes).reshape(index.shape) + index[0, 0]
    fits = int(index[0, 0]) % plane == 0 and np.array_equal(whole, index)
    return axes if fits else None


def _cut(size: int, step: int, plane: int) -> list[_Axis]:
    """An axis, innermost part first: what is within a channel, and over channels."""
    if 0 < step < plane < step * size and plane % step == 0 and size % (plane // step) == 0:
        return [_Axis(plane // step, step), _Axis(size * step // plane, plane)]
    return [_Axis(size, step)]


def _shortest(axes: Sequence[_Axis], start: _Order, goal: _Order, channels: int) -> list[_Order] | None:
    """The orders of axes on the way, each with the order of channels that is selected before: what a transpose turns,
    then what it makes; the last is only selected."""
    waiting: list[tuple[int, int, _Order, list[_Order]]] = [(0, 0, start, [])]
    number, done = count(1), set[_Order]()
    while waiting:
        cost, _, order, path = heappop(waiting)
        if (frozenset(order[0]), order[1]) == (frozenset(goal[0]), goal[1]):
            return [*path, goal]
        key = (tuple(sorted(order[0])), order[1])
        if key in done:
            continue
        done.add(key)
        before = channels if not path else _count(axes, order[0])
        for groups, inner in _turns_of(order[0]):
            after = (*groups, *order[1]), inner
            more = _cost(axes, before, groups, inner, order[1])
            if more is not None:
                heappush(waiting, (cost + more, next(number), after, [*path, ((*groups, *inner), order[1]), after]))
    return None


def _turns_of(channels: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The axes that stay channels, and those that become pixels, in any order."""
    for some in range(1, len(channels) + 1):
        for inner in permutations(channels, some):
            yield tuple(sorted(set(channels) - set(inner))), inner


def _count(axes: Sequence[_Axis], some: Sequence[int]) -> int:
    return prod(axes[at].size for at in some)


def _cost(
    axes: Sequence[_Axis], before: int, groups: Sequence[int], inner: Sequence[int], pixels: Sequence[int]
) -> int | None:
    """Cycles of a selection and a transpose, about; None if it takes too many weights."""
    outer, depth, width = (_count(axes, each) for each in (groups, inner, pixels))
    if before * outer * depth > _MOST_SELECTED:
        return None
    lanes = outer * (-(-depth // _LANES) * _LANES)
    turned = outer * (-(-width // _LANES) * _LANES) * depth
    return before * lanes * width // _MULTIPLIERS + (lanes * width + turned) // _LANES * 4 + 2 * _LAYER


def _steps_of(
    axes: Sequence[_Axis], channels: Sequence[int], path: Sequence[_Order], first: int, plane: int
) -> list[WayStep]:
    """`channels`: of the value, which are selected by their places; `first`: of the channels."""
    steps: list[WayStep] = []
    places: NDArray[np.int64] = np.full((1,), first, np.int64)
    for at in channels:
        places = places[..., None] + np.arange(axes[at].size) * (axes[at].step // plane)
    places = places.reshape([axes[at].size for at in channels])
    have = list(channels)
    for before, after in zip(path[:-1:2], path[1::2], strict=True):
        order = [have.index(at) for at in before[0]]
        groups = _count(axes, [at for at in before[0] if at in after[0]])
        steps.append(WayStep(places.transpose(order).reshape(-1), groups))
        have = list(after[0])
        places = np.arange(_count(axes, have)).reshape([axes[at].size for at in have])
    order = [have.index(at) for at in path[-1][0]]
    steps.append(WayStep(places.transpose(order).reshape(-1), 0))
    return steps
