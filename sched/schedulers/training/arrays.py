"""The arrays of a batch as the tensors of the step's schedules, which belong to cores, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import Geometry
from .step import TrainingStep


def shared(step: TrainingStep, name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """A map of the whole batch, [images, ...], as the cores' tensors."""
    return {f"{name}@{core}": array[first:end] for core, (first, end) in enumerate(step.shares)}


def joined(step: TrainingStep, name: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The map of the whole batch from the cores' tensors."""
    return np.concatenate([arrays[f"{name}@{core}"] for core in range(len(step.shares))])


def scores(step: TrainingStep, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int32]:
    """The last layer's sums, int32 [images, classes], of the tensors `sums`."""
    last = step.layers[-1]
    parts = [
        arrays[f"sums@{core}"].reshape(last.nb, end - first, last.cols).transpose(1, 0, 2).reshape(end - first, -1)
        for core, (first, end) in enumerate(step.shares)
    ]
    return np.concatenate(parts)[:, : step.net.classes]


def score_rows(step: TrainingStep, sums: NDArray[np.int32]) -> dict[str, NDArray[np.int32]]:
    """The tensors `sums` that hold these scores; columns without a class are zero."""
    last = step.layers[-1]
    full = np.zeros((len(sums), last.nb * last.cols), np.int32)
    full[:, : step.net.classes] = sums
    return {
        f"sums@{core}": full[first:end].reshape(end - first, last.nb, last.cols).transpose(1, 0, 2).reshape(-1)
        for core, (first, end) in enumerate(step.shares)
    }


def gradient(layer: Geometry, rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """dW of a layer, int32 [outputs, inputs, kernel rows, kernel columns], from a tensor `dw:` (`Geometry.sums`)."""
    s, cols = layer.layer.shape, layer.cols
    if layer.flat:
        full = rows.reshape(layer.nb, -1, s.in_h, s.in_w, cols, cols).transpose(0, 5, 1, 4, 2, 3)
        full = full.reshape(layer.nb * cols, -1, s.in_h, s.in_w)
    else:
        full = rows.reshape(s.in_channels, layer.nb, s.kernel_h, s.kernel_w, cols).transpose(1, 4, 0, 2, 3)
        full = full.reshape(layer.nb * cols, s.in_channels, s.kernel_h, s.kernel_w)
    return np.ascontiguousarray(full[: s.out_channels, : s.in_channels])


def weight_rows(layer: Geometry, w: NDArray[np.int8]) -> NDArray[np.int8]:
    """Weights in the rows of their gradients, as a tensor `v:` or `w':`: int8 [1, columns, 1, rows]."""
    rows = gradient_rows(layer, w.astype(np.int32)).astype(np.int8).reshape(-1, layer.cols)
    return np.ascontiguousarray(rows.T)[None, :, None, :]


def weights_in(layer: Geometry, rows: NDArray[np.int8]) -> NDArray[np.int8]:
    """Weights from such a tensor."""
    return gradient(layer, rows[0, :, 0].T.astype(np.int32).reshape(-1)).astype(np.int8)


def gradient_rows(layer: Geometry, dw: NDArray[np.int32]) -> NDArray[np.int32]:
    """The tensor `dw:` that holds a gradient; lanes without a channel are zero."""
    s, cols = layer.layer.shape, layer.cols
    inputs = layer.kb // (s.in_h * s.in_w) * cols if layer.flat else s.in_channels
    full = np.zeros((layer.nb * cols, inputs, s.kernel_h, s.kernel_w), np.int32)
    full[: s.out_channels, : s.in_channels] = dw
    if layer.flat:
        parts = full.reshape(layer.nb, cols, -1, cols, s.in_h, s.in_w).transpose(0, 2, 4, 5, 3, 1)
    else:
        parts = full.reshape(layer.nb, cols, inputs, s.kernel_h, s.kernel_w).transpose(2, 0, 3, 4, 1)
    return np.ascontiguousarray(parts).reshape(-1)
