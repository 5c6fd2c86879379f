"""The numbers of a layer's two gradients: random operands, the same on every machine, and how results are rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layers import LayerData, gemm_shape, random_data, random_scale
from .training import TrainingLayer


@dataclass(frozen=True)
class Scales:
    """The multipliers m, 0..65535, with which gradients become int8: y = sat8(RNE(sum * m / 2^17))."""

    dx: int
    dw: int


def scales_of(layer: TrainingLayer) -> Scales:
    """Those of `random_gradients`: they follow from the shape alone."""
    dx, dw = gemm_shape("dx", layer.m, layer.k, layer.n), gemm_shape("dw", layer.k, layer.n, layer.m)
    return Scales(random_scale(dx), random_scale(dw))


@dataclass(frozen=True, eq=False)
class GradientData:
    """The operands of a pair: `x` int8 [M, K], `w` int8 [K, N], `dy` int8 [M, N]."""

    layer: TrainingLayer
    x: NDArray[np.int8]
    w: NDArray[np.int8]
    dy: NDArray[np.int8]
    scales: Scales

    def arrays(self) -> dict[str, NDArray[np.int8]]:
        """The operands as the tensors of a schedule: int8 [1, channels, 1, pixels]."""
        return {name: _picture(array) for name, array in (("x", self.x), ("w", self.w.T), ("dy", self.dy))}

    def products(self) -> dict[str, LayerData]:
        """The two gradients, each as the layer whose output it is: "dw" and, unless the layer is the first, "dx", both
        int8 [1, K, 1, pixels] with N or M pixels."""
        name, m, k, n = self.layer.name, self.layer.m, self.layer.k, self.layer.n
        zero = np.zeros(k, np.int32)
        shape = gemm_shape(f"{name} dw", n, k, m)
        layers = {"dw": LayerData(shape, _picture(self.dy.T), self.x.T.reshape(k, m, 1, 1), zero, self.scales.dw)}
        if not self.layer.first:
            shape = gemm_shape(f"{name} dx", m, k, n)
            layers["dx"] = LayerData(shape, _picture(self.dy), self.w.reshape(k, n, 1, 1), zero, self.scales.dx)
        return layers


def _picture(array: NDArray[np.int8]) -> NDArray[np.int8]:
    """[pixel, channel] as [1, channel, 1, pixel]."""
    return np.ascontiguousarray(array.T)[None, :, None, :]


def random_gradients(layer: TrainingLayer) -> GradientData:
    """Operands over the full int8 range, seeded by the layer's name; X is a random input, unfolded."""
    forward = random_data(layer.shape)
    seed = gemm_shape(f"{layer.name} dy", layer.m, 1, layer.n)
    dy = random_data(seed).x[0, :, 0].T
    w = forward.w.reshape(layer.n, layer.k).T
    return GradientData(layer, unfolded(layer, forward.x), np.ascontiguousarray(w), dy, scales_of(layer))


def unfolded(layer: TrainingLayer, x: NDArray[np.int8]) -> NDArray[np.int8]:
    """The input int8 [B, C, H, W] of a layer as X, int8 [M, K] (im2col): a row for each output pixel, image by image,
    in it the taps of each channel, kernel row by kernel row."""
    s = layer.shape
    padded = np.pad(x, ((0, 0), (0, 0), (s.pad_top, s.pad_bottom), (s.pad_left, s.pad_right)))
    reach_h, reach_w = (s.out_h - 1) * s.stride_h + 1, (s.out_w - 1) * s.stride_w + 1
    taps = [
        padded[:, :, ky : ky + reach_h : s.stride_h, kx : kx + reach_w : s.stride_w]
        for ky in range(0, s.kernel_h * s.dilation, s.dilation)
        for kx in range(0, s.kernel_w * s.dilation, s.dilation)
    ]
    return np.ascontiguousarray(np.stack(taps, axis=2).transpose(0, 3, 4, 1, 2).reshape(layer.m, layer.k))
