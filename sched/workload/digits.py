"""The pictures of handwritten digits that scikit-learn ships, and the small network that learns them.

1,797 pictures of 8x8 pixels (E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, Layer, Value, Window
from .training_examples import Examples

#: Pictures kept for the test.
TESTED = 360
#: A pixel, 0..16, as int8: 4 steps of 1/64 for each sixteenth.
_STEPS, _STEP = 4, 1 / 64


@cache
def digits() -> Examples:
    """All pictures, in one fixed random order; the last `TESTED` are for the test."""
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    # RandomState's streams never change (NumPy's NEP 19)
    order = np.random.RandomState(0).permutation(len(labels))
    x = (np.asarray(pictures)[order].reshape(-1, 1, 8, 8) * _STEPS).astype(np.int8)
    y: NDArray[np.int64] = np.asarray(labels)[order].astype(np.int64)
    return Examples(x[:-TESTED], y[:-TESTED], x[-TESTED:], y[-TESTED:], _STEP)


def network() -> Graph:
    """3x3 convolution to 16 channels, 2x2 max pool, 3x3 convolution to 32, 2x2 max pool, fully connected to 10; ReLU
    behind both convolutions, no biases. Its weights are zeros: training begins with others."""

    def conv(output: str, source: str, outputs: int, inputs: int, size: int, pad: int) -> Layer:
        w, bias = np.zeros((outputs, inputs, size, size), np.int8), np.zeros(outputs, np.int32)
        window = Window(size, size, 1, 1, pad, pad, pad, pad)
        return Layer("conv", output, (source,), window, relu=pad > 0, scale=1, w=w, bias=bias)

    pool = Window(2, 2, 2, 2)
    layers = (
        conv("conv1", "picture", 16, 1, 3, 1),
        Layer("max_pool", "pool1", ("conv1",), pool),
        conv("conv2", "pool1", 32, 16, 3, 1),
        Layer("max_pool", "pool2", ("conv2",), pool),
        conv("fc", "pool2", 10, 32, 2, 0),
    )
    return Graph("digits", (Value("picture", 1, 8, 8, _STEP),), layers, ("fc",))
