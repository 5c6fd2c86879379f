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


def powers_of(w: NDArray[Any], power: NDArray[np.floating]) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    """The blocks of some weights, and the power of what each of them multiplies, which `power` broadcasts to."""
    whole = np.broadcast_to(power, w.shape)
    return ((some, whole[some]) for some in blocks_of(w))


def without_zeros(
    w: NDArray[np.floating], power: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Filters and powers without the input channels that none of these filters reads, as those of other groups: what
    is 0 stays 0 at any step."""
    read = np.flatnonzero(w.any(axis=(0, 2, 3)))
    return (w, power) if 2 * len(read) > w.shape[1] else (w[:, read], power[:, read])


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
