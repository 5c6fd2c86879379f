"""A layer as a mapping sees it: which rows and columns of its input its results read, by the definition."""

from __future__ import annotations

import random

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.workload.catalog import find

CHIP = load("tiny")


def read(first: int, last: int, stride: int, pad: int, kernel: int, size: int) -> tuple[set[int], int]:
    """What results from `first` to before `last` read along an axis, and how much of the padding lies before it."""
    every = [at * stride - pad + tap for at in range(first, last) for tap in range(kernel)]
    return {at for at in every if 0 <= at < size}, max(0, -min(every))


@pytest.mark.parametrize("seed", range(12))
def test_rows_and_columns_that_are_fetched_are_those_that_are_read(seed: int) -> None:
    rng = random.Random(seed)
    kernel = 1 if seed % 3 == 0 else rng.randint(2, 4)
    stride, pad = rng.randint(1, 3), rng.randint(0, kernel - 1)
    height, width, channels = rng.randint(kernel, 14), rng.randint(kernel, 14), rng.randint(1, 40)
    shape = find(f"conv:{height}x{width}x{channels}-8,k{kernel},s{stride},p{pad}")[0].shape
    problem = pose(shape, CHIP, packed=False, flatten=False)
    axes = [
        (problem.input_rows, problem.row_step, shape.out_h, height),
        (problem.input_columns, 1, shape.out_w, width),
    ]
    for reach, step, size, there in axes:
        for first in range(size):
            last = rng.randint(first + 1, size)
            low, high, before = reach(first, last)
            expected, zeros = read(first, last, stride, pad, kernel, there)
            fetched = {at * step for at in range(low, high)}
            assert expected <= fetched
            assert (min(fetched), max(fetched), before) == (min(expected), max(expected), zeros)
