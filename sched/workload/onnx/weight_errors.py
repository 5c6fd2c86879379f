"""Weights as whole numbers of steps, and what they lose by that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of so many weights, the largest, it is known at once what they lose where they are clipped.
_LARGEST = 32
#: Weights that are looked at together, by whole filters: what a processor's cache holds of them and of their errors.
_BLOCK = 1 << 16


def blocks_of(w: NDArray[Any]) -> Iterator[slice]:
    """Filters, as many at a time as `_BLOCK` weights have, but one at least: a large layer needs no more memory."""
    filters = max(1, _BLOCK // max(1, w[0].size))
    return (slice(first, first + filters) for first in range(0, len(w), filters))


class WeightBlock:
    """Some filters of a layer, without the input channels that none of them reads, as those of other groups: what is 0
    stays 0 at any step. `filters`: which; `read`: their channels (all: a slice); `w`, `power` [F, R, KH, KW]: these
    weights, and the power of what each multiplies."""

    __slots__ = ("_rows", "filters", "power", "read", "w")

    def __init__(self, filters: slice, w: NDArray[np.floating], power: NDArray[np.floating]) -> None:
        read = np.flatnonzero(w.any(axis=(0, 2, 3)))
        self.filters = filters
        self.read: slice | NDArray[np.intp] = slice(None) if 2 * len(read) > w.shape[1] else read
        self.w, self.power = w[:, self.read], power[:, self.read]
        self._rows: Clipped | None = None

    @property
    def rows(self) -> Clipped:
        """The bound of the error of each filter."""
        if self._rows is None:
            count = len(self.w)
            self._rows = Clipped([(self.w.reshape(count, -1), self.power.reshape(count, -1))])
        return self._rows

    def put(self, whole: NDArray[Any], values: NDArray[Any]) -> None:
        """Puts [F, R, ...] where these weights are in something of the whole layer, [O, C, ...]."""
        whole[self.filters][:, self.read] = values

    def of(self, whole: NDArray[Any]) -> NDArray[Any]:
        """The same, taken out of that."""
        return whole[self.filters][:, self.read]


class LayerWeights:
    """A layer's weights w, [O, C, KH, KW], in blocks, with what every way to round them asks for. `power`: of what
    each multiplies, which broadcasts to them; `largest`: each filter's largest, whatever its sign, [O]."""

    def __init__(self, w: NDArray[np.floating], power: NDArray[np.floating]) -> None:
        powers = np.broadcast_to(power, w.shape)
        self.blocks = [WeightBlock(some, w[some], powers[some]) for some in blocks_of(w)]
        self.largest = np.zeros(len(w))
        for block in self.blocks:
            self.largest[block.filters] = np.abs(block.w).max(axis=(1, 2, 3), initial=0.0)
        self._whole: Clipped | None = None

    @property
    def whole(self) -> Clipped:
        """The bound of the error of all filters together."""
        if self._whole is None:
            self._whole = Clipped([(block.w.reshape(1, -1), block.power.reshape(1, -1)) for block in self.blocks])
        return self._whole


class Clipped:
    """A bound of the error of rows of weights, in blocks of [R, N], whose squares count by powers of the same shape:
    what the largest of each block lose because they are clipped. It grows where steps shrink."""

    def __init__(self, blocks: Sequence[tuple[NDArray[np.floating], NDArray[np.floating]]]) -> None:
        sizes: list[NDArray[np.floating]] = []
        powers: list[NDArray[np.floating]] = []
        for w, power in blocks:
            size, rest = np.abs(w), max(0, w.shape[1] - _LARGEST)
            at = np.argpartition(size, rest, axis=1)[:, rest:] if rest else np.indices(w.shape)[1]
            sizes.append(np.take_along_axis(size, at, 1))
            powers.append(np.take_along_axis(power, at, 1))
        self._sizes = np.concatenate(sizes, axis=1, dtype=np.float64)
        self._powers = np.concatenate(powers, axis=1, dtype=np.float64)

    def least(self, step: NDArray[np.floating], levels: int) -> NDArray[np.float64]:
        """Of each row, with a step [R] of which a weight may be so many, whatever its sign."""
        lost = np.maximum(self._sizes - (step * levels)[:, None], 0)
        return (1 - 1e-9) * (lost * lost * self._powers).sum(axis=1)


def rounded_weights(w: NDArray[np.floating], step: float | NDArray[np.floating], least: int) -> NDArray[np.float64]:
    """Weights as whole numbers of steps, `least` .. 127. Works in place, for large layers."""
    result = np.divide(w, step, dtype=np.float64)
    np.rint(result, out=result)
    return np.clip(result, least, 127, out=result)


def squared_errors(
    w: NDArray[np.floating],
    rounded: NDArray[np.float64],
    step: float | NDArray[np.floating],
    power: NDArray[np.floating],
) -> NDArray[np.float64]:
    """The squared error of each weight, times the power of what it multiplies. Likewise."""
    result = np.multiply(rounded, step)
    result -= w
    result *= result
    result *= power
    return result
