"""Labelled examples: those to train with, those to test with, and which of them a step takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layers import WorkloadError


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs int8 [N, C, H, W], real value of 1 = `step`, and their classes int64 [N]: to train with and to test."""

    x: NDArray[np.int8]
    labels: NDArray[np.int64]
    test_x: NDArray[np.int8]
    test_labels: NDArray[np.int64]
    step: float

    def batch(self, step: int, size: int, seed: int) -> NDArray[np.int64]:
        """The examples of training step `step`, counted from 0: every epoch goes through all whole batches in an order
        of its own. Raises WorkloadError if there are fewer than `size`."""
        count = len(self.labels) // size
        if not count:
            raise WorkloadError(f"batch = {size}: there are {len(self.labels)} examples to train with; take fewer")
        epoch, at = divmod(step, count)
        # RandomState's streams never change (NumPy's NEP 19)
        order = np.random.RandomState((seed, epoch)).permutation(len(self.labels))
        return order[at * size : (at + 1) * size].astype(np.int64)
