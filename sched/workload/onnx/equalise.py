"""Cross-layer equalisation: channels of two layers in a row made alike, so that one step suits all of them.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.1:
channel c of the first layer's result is multiplied by f and the weights of the second that read it are divided by f,
which changes nothing in real numbers after linear layers and ReLU. After a ReLU that is clamped above (ReLU6) it
would, where a channel reaches the clamp; so channels that do on the calibration data keep f = 1, and the others are not
made larger than the clamp. (The paper replaces ReLU6 by ReLU instead, which changes the network.) Channels of tensors
that additions and pools join share a factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from .calibrate import Statistics
from .floats import ANY, FloatLayer, FloatNet

#: Rounds over all pairs of layers at most, and the change of a factor at which they are done.
ROUNDS, DONE = 40, 0.01
#: Factors of a channel in one round: nearly dead channels are not blown up without bound.
LIMIT = 1e3


@dataclass(frozen=True)
class _Channels:
    """Tensors whose channels must be scaled alike, because additions and pools join them: the layers that make and
    that read them, and how much larger each channel may become (exactly 1: it must stay as it is)."""

    makers: tuple[str, ...]
    readers: tuple[str, ...]
    room: NDArray[np.float64]


def equalised(net: FloatNet, statistics: Mapping[str, Statistics], strength: float) -> FloatNet:
    """A network that computes the same, with the ranges of channels made alike.

    `strength`: exponent of the factors, 1 as in the paper, less to spare the ranges of activations.
    """
    groups = _groups(net, statistics)
    # the largest of a filter's weights for an input channel stands for all of them: they are scaled alike
    trial = {layer.output: replace(layer, w=_largest(layer.w)) for layer in net.layers}
    total = [np.ones(len(group.room)) for group in groups]
    for _ in range(ROUNDS):
        most = 0.0
        for index, group in enumerate(groups):
            factor = _factors(trial, group, group.room / total[index])
            _scale(trial, group, factor)
            total[index] = total[index] * factor
            most = max(most, float(np.abs(np.log(factor)).max()))
        if most < DONE:
            break
    result = {layer.output: replace(layer) for layer in net.layers}
    for group, factor in zip(groups, total, strict=True):
        _scale(result, group, factor**strength)
    return replace(net, layers=list(result.values()))


def _largest(w: NDArray[np.floating] | None) -> NDArray[np.floating] | None:
    return w if w is None else np.abs(w).max(axis=(2, 3), keepdims=True)


def _groups(net: FloatNet, statistics: Mapping[str, Statistics]) -> list[_Channels]:
    """All groups that can be scaled: made and read by layers with weights alone, not by the outside or a concat."""
    parent = {name: name for name in statistics}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for layer in net.layers:
        if layer.kind in ("add", "max_pool", "average_pool", "slice", "paste"):
            for name in layer.inputs:
                parent[root(name)] = root(layer.output)
    held = {root(name) for name in (*net.inputs, *net.outputs)}
    held |= {
        root(name)
        for layer in net.layers
        if layer.kind in ("concat", "table", "mul", "normalise", "product", "transpose")
        or layer.moves
        or layer.range != ANY
        for name in (layer.output, *layer.inputs)
    }
    makers: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    room: dict[str, NDArray[np.float64]] = {}
    for layer in net.layers:
        group = root(layer.output)
        free = np.full(len(statistics[layer.output].largest), inf)
        room[group] = np.minimum(room.get(group, free), _room(layer, statistics[layer.output]))
        if layer.w is not None:
            makers.setdefault(group, []).append(layer.output)
            readers.setdefault(root(layer.inputs[0]), []).append(layer.output)
    return [
        _Channels(tuple(makers[group]), tuple(readers[group]), room[group])
        for group in room
        if group not in held and group in makers and group in readers
    ]


def _room(layer: FloatLayer, statistics: Statistics) -> NDArray[np.float64]:
    if layer.clamp == inf:
        return np.full(len(statistics.largest), inf)
    largest = np.maximum(statistics.largest, 1e-9)
    return np.where(largest >= layer.clamp * (1 - 1e-6), 1.0, layer.clamp / largest)


def _factors(layers: Mapping[str, FloatLayer], group: _Channels, room: NDArray[np.float64]) -> NDArray[np.float64]:
    """Geometric mean of what the makers and the readers of each channel ask for."""
    ours = np.max([_ranges(layers[name], of_results=True) for name in group.makers], axis=0)
    theirs = np.max([_ranges(layers[name], of_results=False) for name in group.readers], axis=0)
    alive = (ours > 0) & (theirs > 0) & (group.room != 1)
    factor = np.ones(len(ours))
    factor[alive] = np.clip((theirs[alive] / ours[alive]) ** 0.5, 1 / LIMIT, LIMIT)
    return np.minimum(factor, room)


def _ranges(layer: FloatLayer, *, of_results: bool) -> NDArray[np.float64]:
    """Largest weight of each output channel (`of_results`) or input channel, as a share of the layer's largest."""
    assert layer.w is not None
    weights = np.abs(layer.w)
    by_filter = of_results or layer.kind == "depthwise"
    return weights.max(axis=(1, 2, 3) if by_filter else (0, 2, 3)) / (weights.max() or 1.0)


def _scale(layers: Mapping[str, FloatLayer], group: _Channels, factor: NDArray[np.float64]) -> None:
    for name in group.makers:
        layer = layers[name]
        assert layer.w is not None
        assert layer.bias is not None
        layer.w = layer.w * factor[:, None, None, None]
        layer.bias = layer.bias * factor
    for name in group.readers:
        layer = layers[name]
        assert layer.w is not None
        layer.w = layer.w / factor.reshape((-1, 1, 1, 1) if layer.kind == "depthwise" else (1, -1, 1, 1))
