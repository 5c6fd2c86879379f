"""How far a network's results may be from those of its file where both are right."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import MOVED
from .floats import FloatLayer, FloatNet
from .pins import Rounded, Rounding
from .pointwise import Function

#: Layers that multiply two tensors.
_OF_TWO = ("mul", "product")
#: Places at which functions are looked at whose arguments nobody knows; at most where they are known; around each.
_PLACES, _MOST_PLACES, _AROUND = 257, 4096, 17

Arrays = Mapping[str, NDArray[Any]]


class Deviations:
    """Those of one network, whose file rounds tensors."""

    def __init__(self, net: FloatNet, rounding: Rounding) -> None:
        self.net, self.rounding = net, rounding
        self._most = {layer.output: _most(layer) for layer in net.layers}
        self._tensors: dict[str, list[str]] = {}  # of the file, by the value that they are elements of
        for tensor, value in net.values.items():
            self._tensors.setdefault(value, []).append(tensor)
        self._movers = {layer.output: layer.inputs[0] for layer in net.layers if layer.moves or layer.kind in MOVED}

    def of(
        self, operands: Arrays, theirs: Arrays, ours: Arrays, alike: Collection[str]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Of each layer's result the largest sum of products in it, without their signs, and by how much it may differ
        because its operands do. Where a sum is made by several layers, and the file has nothing in between, those of
        all of them. `operands`: what the file has of the network's values; `ours`: what its layers make of them;
        `alike`: results that are compared."""
        largest = {name: float(np.abs(array).max()) for name, array in operands.items()}
        for value, tensors in self._tensors.items():
            sizes = [float(np.abs(theirs[tensor]).max(initial=0.0)) for tensor in tensors if tensor in theirs]
            if sizes:
                largest.setdefault(value, max(sizes))
        off, sums, slack = self._rounded(theirs, ours, alike), dict[str, float](), dict[str, float]()
        for layer in self.net.layers:
            output = layer.output
            size, less = ([numbers.get(name, 0.0) for name in layer.inputs] for numbers in (largest, off))
            if layer.kind in _OF_TWO:
                terms = self._terms(layer)
                sums[output] = terms * size[0] * size[-1]
                slack[output] = terms * (less[0] * size[-1] + less[-1] * size[0] + less[0] * less[-1])
            else:
                most, bias = self._most[output]
                joined = sum if layer.kind == "add" else max
                sums[output], slack[output] = most * joined(size) + bias, most * joined(less)
            if output not in alike and layer.function is not None:
                slack[output] = 0.0
                if less[0]:
                    places = operands.get(layer.inputs[0])
                    places = np.linspace(-size[0], size[0], _PLACES) if places is None else places
                    slack[output] = _shift(layer.function, places, less[0])
                off[output] = max(off.get(output, 0.0), slack[output])
            elif output not in alike and _is_sum(layer):
                largest.setdefault(output, sums[output])
                off[output] = max(off.get(output, 0.0), slack[output])
        return sums, slack

    def _rounded(self, theirs: Arrays, ours: Arrays, alike: Collection[str]) -> dict[str, float]:
        """By how much who reads a value may read other numbers than those that it is compared with: the file has
        rounded and cut off a part of it, or what it is made of, under a name of its own."""
        off: dict[str, float] = {}
        for tensor, own in self.rounding.tensors.items():
            value = self.net.values.get(tensor)
            if value is None:
                continue
            # in another order it is not what `read` says; zeros around it that are still to come are in no array
            if value not in alike or tensor not in theirs or not self._is_as(value, tensor, theirs):
                names = [*self._moved(value, alike)]
                tensors = [each for name in names for each in self._tensors.get(name, ()) if each != tensor]
                before = [theirs[each] for each in tensors if each in theirs]
                if not before and value in ours and tensor in theirs and own.cut(theirs[tensor]).any():
                    before = [ours[value]]  # the file has it after that alone
                less = own.off + max((_beyond(own, each) for each in before), default=0.0)
                for name in names:
                    off[name] = max(off.get(name, 0.0), less)
        return off

    def cut_off(self, operands: Arrays, alike: Collection[str]) -> Arrays:
        """The operands as they are where the file cuts off all that it cuts off of parts of them."""
        cut = dict(operands)
        for tensor, own in self.rounding.tensors.items():
            value = self.net.values.get(tensor)
            for name in self._moved(value, alike) if value is not None else ():
                if name in cut:
                    cut[name] = np.clip(cut[name], own.low, own.high)
        return cut

    def _moved(self, value: str, alike: Collection[str]) -> Iterator[str]:
        """A value and those of which it has been moved together, of which others may be moved as well."""
        yield value
        while value not in alike and value in self._movers:
            value = self._movers[value]
            yield value

    def _terms(self, layer: FloatLayer) -> float:
        """How many products of two tensors a result is the sum of, times its gain."""
        if layer.kind != "product":
            return 1.0
        name = layer.inputs[0]
        channels = (self.net.inputs[name].size if name in self.net.inputs else self.net.sizes[name])[0]
        return channels // layer.groups * abs(layer.gain)

    def read(self, name: str, theirs: Arrays) -> str:
        """The tensor of the file that readers of a layer's result read: that result, as the file rounds it last."""
        same = [
            tensor
            for tensor in self.rounding.tensors
            if self.net.values.get(tensor) == name and tensor in theirs and self._is_as(name, tensor, theirs)
        ]
        return [name, *same][-1]

    def _is_as(self, value: str, tensor: str, theirs: Arrays) -> bool:
        """Whether a tensor of the file has the elements of another one in the same order: squares may be turned."""
        return theirs[value].shape == theirs[tensor].shape and tensor not in self.net.turned


def _beyond(rounded: Rounded, before: NDArray[Any]) -> float:
    """How much the file cuts off at most. `before`: the numbers that it rounds."""
    if not before.size:
        return 0.0
    return max(0.0, float(before.max()) - rounded.high, rounded.low - float(before.min()))


def _most(layer: FloatLayer) -> tuple[float, float]:
    """The largest sum of a filter's weights, without signs, and the largest bias; the gain and 0 if it has none."""
    if layer.kind == "normalise":  # where all numbers are alike, what is left of their digits is divided by little
        return {"mean": 2.0, "max": 2.0}.get(layer.by or "", layer.epsilon**-0.5 if layer.epsilon > 0 else 1.0), 0.0
    if layer.w is None or layer.bias is None:
        return layer.gain if layer.kind == "average_pool" else 1.0, 0.0
    return float(np.abs(layer.w).sum(axis=(1, 2, 3)).max()), float(np.abs(layer.bias).max())


def _shift(function: Function, places: NDArray[Any], less: float) -> float:
    """By how much a function's result differs at most where its argument differs by up to `less` from one of `places`,
    where it has results. Looked at around these places alone: between others it may have a pole."""
    around = np.unique(places)[:: -(-places.size // _MOST_PLACES)]
    results = function(around[:, None] + less * np.linspace(-1, 1, _AROUND))
    with np.errstate(invalid="ignore"):  # infinite at a pole and around it
        differences = np.abs(results - results[:, [_AROUND // 2]])
    return float(differences[np.isfinite(differences)].max(initial=0.0))


def _is_sum(layer: FloatLayer) -> bool:
    """Whether a layer's results are sums of its operands' numbers, or some of these."""
    if layer.kind == "normalise":
        return layer.by in ("mean", "max")
    return layer.w is not None or layer.kind in ("add", "average_pool", "max_pool", *_OF_TWO, *MOVED)
