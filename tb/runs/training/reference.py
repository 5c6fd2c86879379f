"""The same training in floating point: same network, examples, first weights and rates; what int8 is measured by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.training_examples import Examples
from meshloom.sched.workload.training_net import TrainedLayer, TrainingNet

from .numbers import Reals, loss_and_gradient


def _windows(x: Reals, layer: TrainedLayer) -> Reals:
    """An input [images, C, H, W] unfolded: [pixels of all images, C * kernel rows * kernel columns]."""
    s = layer.shape
    padded = np.pad(x, ((0, 0), (0, 0), (s.pad_top, s.pad_bottom), (s.pad_left, s.pad_right)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (s.kernel_h, s.kernel_w), axis=(2, 3))
    seen = seen[:, :, :: s.stride_h, :: s.stride_w]
    return seen.transpose(0, 2, 3, 1, 4, 5).reshape(-1, s.depth)


def _maps(rows: Reals, layer: TrainedLayer) -> Reals:
    """A matrix [pixels of all images, channels] as maps of the layer's result."""
    channels, height, width = layer.y_shape
    return rows.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)


def scores(net: TrainingNet, weights: dict[str, Reals], x: Reals) -> tuple[Reals, list[tuple[Reals, Reals]]]:
    """The scores [images, classes] of inputs [images, C, H, W], and for each layer its input and what it makes."""
    pairs: list[tuple[Reals, Reals]] = []
    for layer in net.layers:
        y = _maps(_windows(x, layer) @ weights[layer.name].reshape(layer.shape.out_channels, -1).T, layer)
        if layer.shape.relu:
            y = np.maximum(y, 0.0)
        pairs.append((x, y))
        images, channels, height, width = y.shape
        side = layer.pool
        x = y.reshape(images, channels, height // side, side, width // side, side).max(axis=(3, 5))
    return x[:, :, 0, 0], pairs


def _gradients(
    net: TrainingNet, weights: dict[str, Reals], pairs: list[tuple[Reals, Reals]], dy: Reals
) -> dict[str, Reals]:
    """Of all weights, `dy` [images, classes, 1, 1] being that of the scores."""
    arrays: dict[str, Reals] = {}
    for index in range(len(net.layers) - 1, -1, -1):
        layer, (x, y) = net.layers[index], pairs[index]
        s = layer.shape
        rows = dy.transpose(0, 2, 3, 1).reshape(-1, s.out_channels)
        arrays[layer.name] = (rows.T @ _windows(x, layer)).reshape(s.w_shape)
        if not index:
            break
        parts = rows @ weights[layer.name].reshape(s.out_channels, -1)
        parts = parts.reshape(-1, s.out_h, s.out_w, s.in_channels, s.kernel_h, s.kernel_w).transpose(0, 3, 4, 5, 1, 2)
        full = np.zeros((len(x), s.in_channels, s.in_h + s.pad_top + s.pad_bottom, s.in_w + s.pad_left + s.pad_right))
        for ky in range(s.kernel_h):
            for kx in range(s.kernel_w):
                full[:, :, ky : ky + s.out_h, kx : kx + s.out_w] += parts[:, :, ky, kx]
        dx = full[:, :, s.pad_top : s.pad_top + s.in_h, s.pad_left : s.pad_left + s.in_w]
        side, y = net.layers[index - 1].pool, pairs[index - 1][1]
        most = x.repeat(side, axis=2).repeat(side, axis=3)
        dy = np.where((y == most) & (y > 0), dx.repeat(side, axis=2).repeat(side, axis=3), 0.0)
    return arrays


def trained(
    net: TrainingNet, weights: dict[str, Reals], batches: Callable[[int], tuple[NDArray[np.int8], NDArray[np.int64]]],
    steps: int, rates: tuple[float, float], step: float,
) -> dict[str, Reals]:  # fmt: skip
    """The weights after some steps from `weights`. `batches(n)`: inputs and classes of a step; `rates`: learning rate
    and momentum; `step`: real value of 1 in an input."""
    weights = dict(weights)
    velocity = {name: np.zeros_like(w) for name, w in weights.items()}
    for number in range(steps):
        x, labels = batches(number)
        array, pairs = scores(net, weights, x.astype(np.float64) * step)
        _, gradient = loss_and_gradient(array, labels)
        for name, dw in _gradients(net, weights, pairs, gradient[:, :, None, None]).items():
            velocity[name] = rates[1] * velocity[name] + dw
            weights[name] = weights[name] - rates[0] * velocity[name]
    return weights


def accuracy(net: TrainingNet, weights: dict[str, Reals], examples: Examples) -> float:
    """The part of the test examples whose class has the highest score."""
    array, _ = scores(net, weights, examples.test_x.astype(np.float64) * examples.step)
    return int(np.count_nonzero(array.argmax(axis=1) == examples.test_labels)) / len(examples.test_labels)
