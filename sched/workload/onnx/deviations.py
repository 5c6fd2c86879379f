"""How far a network's results may be from those of its file where both are right."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import MOVED
from .floats import FloatLayer, FloatNet
from .pins import Rounding

Arrays = Mapping[str, NDArray[Any]]


class Deviations:
    """Those of one network, whose file rounds tensors."""

    def __init__(self, net: FloatNet, rounding: Rounding) -> None:
        self.net, self.rounding = net, rounding
        self._most = {layer.output: _most(layer) for layer in net.layers}

    def sums(self, operands: Arrays) -> dict[str, float]:
        """The largest sum of products in each layer's result, without their signs, by the largest operand that the file
        has: where a sum is made by several layers, and the file has nothing in between, that of all of them."""
        known = {name: float(np.abs(array).max()) for name, array in operands.items()}
        sums: dict[str, float] = {}
        for layer in self.net.layers:
            sums[layer.output] = self.passed_on(layer, known) + self._most[layer.output][1]
            if layer.output not in known and _is_sum(layer):
                known[layer.output] = sums[layer.output]
        return sums

    def slack(self, theirs: Arrays, alike: Collection[str]) -> dict[str, float]:
        """By how much who reads a value may read other numbers than those that it is compared with: the file has
        rounded a part of it, or what it is made of, under a name of its own."""
        slack: dict[str, float] = {}
        for tensor, own in self.rounding.tensors.items():
            value = self.net.values.get(tensor)
            if value is None:
                continue
            # in another shape it is not what `read` says; zeros around it that are still to come are in no array
            if value not in alike or tensor not in theirs or theirs[value].shape != theirs[tensor].shape:
                slack[value] = max(slack.get(value, 0.0), own.off)
        for layer in self.net.layers:  # sums on the way hand it on
            if layer.output not in alike and _is_sum(layer):
                slack[layer.output] = max(slack.get(layer.output, 0.0), self.passed_on(layer, slack))
        return slack

    def passed_on(self, layer: FloatLayer, numbers: Mapping[str, float]) -> float:
        """How large a layer's result is because of what its operands are."""
        each = [numbers.get(name, 0.0) for name in layer.inputs]
        return self._most[layer.output][0] * (sum(each) if layer.kind == "add" else max(each, default=0.0))

    def read(self, name: str, theirs: Arrays) -> str:
        """The tensor of the file that readers of a layer's result read: that result, as the file rounds it last."""
        same = [
            tensor
            for tensor in self.rounding.tensors
            if self.net.values.get(tensor) == name and tensor in theirs and theirs[tensor].shape == theirs[name].shape
        ]
        return [name, *same][-1]


def _most(layer: FloatLayer) -> tuple[float, float]:
    """The largest sum of a filter's weights, without signs, and the largest bias; the gain and 0 if it has none."""
    if layer.w is None or layer.bias is None:
        return layer.gain if layer.kind == "average_pool" else 1.0, 0.0
    return float(np.abs(layer.w).sum(axis=(1, 2, 3)).max()), float(np.abs(layer.bias).max())


def _is_sum(layer: FloatLayer) -> bool:
    """Whether a layer's results are sums of its operands' numbers, or some of these."""
    return layer.w is not None or layer.kind in ("add", "average_pool", "max_pool", *MOVED)
