"""Every tensor of a training step, computed another way than the chip does it.

Forwards by ONNX Runtime's convolutions (`layer`). The gradients are the products of the paper: X is unfolded (im2col),
dW = Xᵀ·dY and dX = dY·Wᵀ by MatMulInteger, and dX is folded back; the chip, which unfolds nothing, computes both as
convolutions. Pools and masks are NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT
from meshloom.sched.workload.layers import ConvShape, LayerData
from meshloom.sched.workload.training import TrainingLayer
from meshloom.sched.workload.training_data import unfolded
from meshloom.sched.workload.training_net import TrainedLayer, TrainingNet

from .layer import golden, golden_int32
from .products import product

Maps = dict[str, NDArray[np.int8]]


@dataclass(frozen=True, eq=False)
class GoldenForward:
    """`maps`: int8 [images, C, H, W], `x:` the input of each layer by name, `y:` what it makes (of all but the last),
    `p:` the same behind its pool. `scores`: int32 [images, classes]."""

    maps: Maps
    scores: NDArray[np.int32]


def forward(
    net: TrainingNet, x: NDArray[np.int8], weights: Mapping[str, NDArray[np.int8]], multipliers: Mapping[str, int]
) -> GoldenForward:
    """The forward pass on a batch int8 [images, C, H, W]. `multipliers`: `y:` and the layer's name. Raises GoldenError
    when a sum might leave int32."""
    maps: Maps = {}
    for layer in net.layers[:-1]:
        maps[f"x:{layer.name}"] = x
        x = maps[f"y:{layer.name}"] = golden(_data(layer, x, weights, multipliers[f"y:{layer.name}"]))
        if layer.pool > 1:
            x = maps[f"p:{layer.name}"] = _windows(x, layer.pool).max(axis=(3, 5))
    last = net.layers[-1]
    maps[f"x:{last.name}"] = x
    return GoldenForward(maps, golden_int32(_data(last, x, weights, 0))[:, :, 0, 0])


def _data(layer: TrainedLayer, x: NDArray[np.int8], weights: Mapping[str, NDArray[np.int8]], scale: int) -> LayerData:
    shape = replace(layer.shape, batch=len(x))
    return LayerData(shape, x, weights[layer.name], np.zeros(shape.out_channels, np.int32), scale)


def _windows(array: NDArray[np.int8], side: int) -> NDArray[np.int8]:
    """[images, C, H, W] as [images, C, H / side, side, W / side, side]."""
    images, channels, height, width = array.shape
    return array.reshape(images, channels, height // side, side, width // side, side)


@dataclass(frozen=True, eq=False)
class GoldenBackward:
    """`maps`: int8 [images, C, H, W], `dx:` the gradient at each layer's input but the first one's, `g:` at the sums of
    each layer but the last. `dw`: int32 [O, C, KH, KW] for each layer and each share of the images."""

    maps: Maps
    dw: dict[str, list[NDArray[np.int32]]]


def backward(
    net: TrainingNet, maps: Maps, dy: NDArray[np.int8], weights: Mapping[str, NDArray[np.int8]],
    multipliers: Mapping[str, int], shares: tuple[tuple[int, int], ...],
) -> GoldenBackward:  # fmt: skip
    """All gradients. `maps`: of the forward pass; `dy`: int8 [images, classes, 1, 1]; `multipliers`: `dx:` and the
    layer's name; `shares`: of the images. Raises GoldenError when a sum might leave int32."""
    arrays: Maps = {}
    dw: dict[str, list[NDArray[np.int32]]] = {}
    for index in range(len(net.layers) - 1, -1, -1):
        layer = net.layers[index]
        x = maps[f"x:{layer.name}"]
        dw[layer.name] = [_dw(layer, x[first:end], dy[first:end]) for first, end in shares]
        if not index:
            break
        sums = _dx(layer, dy, weights[layer.name])
        dx = arrays[f"dx:{layer.name}"] = requantised(sums, multipliers[f"dx:{layer.name}"])
        before = net.layers[index - 1]
        y, side = maps[f"y:{before.name}"], before.pool
        # every position that is equal to the maximum has the whole gradient; a maximum of 0 has none
        wide = dx.repeat(side, axis=2).repeat(side, axis=3)
        most = x.repeat(side, axis=2).repeat(side, axis=3)
        dy = arrays[f"g:{before.name}"] = np.where((y == most) & (y > 0), wide, np.int8(0))
    return GoldenBackward(arrays, dw)


def requantised(sums: NDArray[np.int64], multiplier: int) -> NDArray[np.int8]:
    """sat8(RNE(sums * m / 2^17)): exact in double, half to even."""
    return np.clip(np.rint(sums * float(multiplier) / 2**SCALE_SHIFT), -128, 127).astype(np.int8)


def updated(w: NDArray[np.int8], sums: NDArray[np.int64], multiplier: int) -> NDArray[np.int8]:
    """sat8(w - sat8(RNE(sums * m / 2^17))): the update of weights that are int8 alone."""
    return np.clip(w.astype(np.int16) - requantised(sums, multiplier), -128, 127).astype(np.int8)


def _rows(dy: NDArray[np.int8]) -> NDArray[np.int8]:
    """dY as a matrix [pixels of all images, channels]."""
    return np.ascontiguousarray(dy.transpose(0, 2, 3, 1).reshape(-1, dy.shape[1]))


def _dw(layer: TrainedLayer, x: NDArray[np.int8], dy: NDArray[np.int8]) -> NDArray[np.int32]:
    shape = replace(layer.shape, batch=len(x))
    columns = unfolded(TrainingLayer(shape), x)
    return product(np.ascontiguousarray(columns.T), _rows(dy)).T.reshape(shape.w_shape)


def _dx(layer: TrainedLayer, dy: NDArray[np.int8], w: NDArray[np.int8]) -> NDArray[np.int64]:
    """dY·Wᵀ, folded: each element of X has the sum of its gradients in all windows, int64 [images, C, H, W]."""
    shape = replace(layer.shape, batch=len(dy))
    columns = product(_rows(dy), np.ascontiguousarray(w.reshape(len(w), -1)))
    return folded(shape, columns)


def folded(s: ConvShape, columns: NDArray[np.int32]) -> NDArray[np.int64]:
    """The sum of unfolded gradients, int32 [pixels, C * KH * KW], at each element of the input (col2im)."""
    parts = columns.reshape(s.batch, s.out_h, s.out_w, s.in_channels, s.kernel_h, s.kernel_w).transpose(
        0, 3, 4, 5, 1, 2
    )
    high, wide = s.in_h + s.pad_top + s.pad_bottom, s.in_w + s.pad_left + s.pad_right
    full = np.zeros((s.batch, s.in_channels, high, wide), np.int64)
    for ky in range(s.kernel_h):
        for kx in range(s.kernel_w):
            rows = slice(ky, ky + s.out_h * s.stride_h, s.stride_h)
            full[:, :, rows, kx : kx + s.out_w * s.stride_w : s.stride_w] += parts[:, :, ky, kx]
    return full[:, :, s.pad_top : s.pad_top + s.in_h, s.pad_left : s.pad_left + s.in_w]
