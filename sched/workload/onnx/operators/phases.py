"""Matrices that resize one axis, as kernels that rows or columns of the result take in turn."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode


def is_identity(matrix: NDArray[np.float64]) -> bool:
    return matrix.shape[0] == matrix.shape[1] and np.allclose(matrix, np.eye(len(matrix)), atol=1e-6)


class Phase(NamedTuple):
    """Every so many rows of a result: weights of the rows that the first of them is made of, from row `first` on (there
    are copies of the first and last row beyond the edges); the next one's are `stride` rows further."""

    taps: NDArray[np.float64]
    first: int
    stride: int


def split_phases(matrix: NDArray[np.float64]) -> list[Phase]:
    """A matrix [rows of the result, rows] as few phases, as far as an instruction holds the stride between them; each
    row of the result is one by itself if they are not alike."""
    high, wide = matrix.shape
    whole = gcd(high, wide)
    count, stride = high // whole, wide // whole
    if stride <= INSTRUCTIONS[Opcode.VEC].most("stride_h"):
        found: list[Phase] = []
        for phase in range(count):
            rows = matrix[phase::count]
            best = int(np.count_nonzero(rows, axis=1).argmax())  # one that loses no taps at the edges, if there is any
            reach = _reach(rows[best])
            found.append(Phase(rows[best][reach], reach.start - best * stride, stride))
        if np.allclose(_unfold(found, high, wide), matrix, atol=1e-5):
            return found
    reaches = [_reach(row) for row in matrix]
    return [Phase(row[reach], reach.start, 1) for row, reach in zip(matrix, reaches, strict=True)]


def _reach(row: NDArray[np.float64]) -> slice:
    used = np.flatnonzero(row)
    return slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)


def _unfold(phases: Sequence[Phase], high: int, wide: int) -> NDArray[np.float64]:
    """The matrix that phases stand for."""
    found = np.zeros((high, wide))
    for row in range(high):
        turn, phase = divmod(row, len(phases))
        taps, first, stride = phases[phase]
        np.add.at(found[row], np.clip(first + turn * stride + np.arange(len(taps)), 0, wide - 1), taps)
    return found


def find_kernels(matrix: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], int, int, int] | None:
    """A matrix [rows of the result, rows] as one kernel for each phase of the result, where one is a multiple of the
    other: the kernels, all over the same rows, how many copies of the first and last row are needed, and the stride.
    None where that is not what it is."""
    high, wide = matrix.shape
    if high % wide and wide % high:
        return None
    phases = split_phases(matrix)
    if len(phases) != max(1, high // wide) or (step := phases[0].stride) != max(1, wide // high):
        return None
    low = min(phase.first for phase in phases)
    end = max(phase.first + len(phase.taps) for phase in phases)
    kernels = [np.pad(one.taps, (one.first - low, end - one.first - len(one.taps))) for one in phases]
    return kernels, max(0, -low), max(0, (high // len(phases) - 1) * step + end - wide), step
