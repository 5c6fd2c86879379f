"""A float network in the form of `workload.graph`: what is left of a float ONNX model when everything is folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import By, Layer, PastePlace, PlainKind, Window
from .pointwise import Function

#: Gain and offset for each channel.
PerChannel = tuple[NDArray[np.float64], NDArray[np.float64]]
#: The range of a layer that nothing but a clamp cuts off.
ANY = -inf, inf


@dataclass
class FloatLayer:
    """`workload.graph.Layer` in real numbers: `clamp` and weights are real, average pools are true averages.

    `w` float64 [O, C, KH, KW] (depthwise [C, 1, KH, KW]) and `bias` float64 [O] of conv and depthwise. `moves`: its
    weights are 0 and at most one 1 in each filter, so that its result is its operand moved, in integers too.
    `function`: of a table. `by`, `groups`, `rows`: of a normalise, a product, a transpose. `gain`: what the sums of a
    product and the means of an average pool are multiplied by. `epsilon`: what a root mean square has added to the mean
    of the squares. `gone`: its least numbers stand for scores that a mask takes out; no step has to reach them.
    `density`: as in `Layer`. `range`: what its integer tensor cannot go beyond, as the file's cannot, because of its
    step.
    """

    kind: PlainKind
    output: str
    inputs: tuple[str, ...]
    window: Window = field(default_factory=Window)
    relu: bool = False
    clamp: float = inf
    w: NDArray[np.float64] | None = None
    bias: NDArray[np.float64] | None = None
    places: tuple[PastePlace, ...] = ()
    moves: bool = False
    function: Function | None = None
    by: By | None = None
    groups: int = 1
    rows: int = 1
    gain: float = 1.0
    epsilon: float = 0.0
    gone: bool = False
    density: float = 1.0
    range: tuple[float, float] = ANY


def unit_of(layer: FloatLayer | Layer) -> str:
    """The field of a chip that says whether its cores can run a layer, as not all can; empty if they can."""
    if layer.by is not None:
        return "core.vec_whole"
    return "core.vec_table" if layer.kind == "table" else ""


@dataclass(frozen=True, eq=False)
class Source:
    """An input: its size as a value (channels, rows, columns), its shape in the model, and for each of its elements
    there the number in the value (None: the same order)."""

    size: tuple[int, int, int]
    shape: tuple[int, ...]
    index: NDArray[np.int64] | None = None

    def placed(self, array: NDArray[Any]) -> NDArray[Any] | None:
        """The value [1, C, H, W] of an array that is one already (of one pixel also [1, C]), or has the model's shape;
        None for others."""
        shape = (1, *self.size)
        if array.shape == shape or (array.shape == shape[:2] and shape[2:] == (1, 1)):
            return array.reshape(shape)
        return self.value(array) if array.shape == self.shape else None

    def value(self, array: NDArray[Any]) -> NDArray[Any]:
        """The value [1, C, H, W] of the model's array."""
        value = np.empty(self.size, array.dtype)
        value.reshape(-1)[slice(None) if self.index is None else self.index.ravel()] = array.ravel()
        return value[None]

    def array(self, value: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `value`."""
        flat = value.ravel()
        return (flat if self.index is None else flat[self.index]).reshape(self.shape)


@dataclass
class FloatNet:
    """Layers in an order in which every input is made before it is used.

    `inputs`: by name. `outputs` and the ONNX tensors that they were (`origins`), for
    comparison. `normalise`: for inputs that the model normalises itself, gain and offset of each channel; the network
    takes gain * x + offset where the model takes x. `shapes`: what the ONNX tensors were taken for, those without
    padding that is still to come, in the order of the nodes. `orders`: of ONNX tensors that hold a layer's result in
    another order, the number in the result of each element; `end_orders`: the same for `origins`, whose output may be
    another value than that of the layer that is called like it. `sizes`: channels, rows, columns of every layer's
    result. `values`: of ONNX tensors the value that they are elements of. `cuts`: of tensors that functions pass
    through, between which numbers they lie there. `end_notes`: those of the `notes` that say what is left out at the
    end. `turned`: tensors that have elements of a value in another order than the tensor of its name.
    """

    name: str
    inputs: dict[str, Source]
    layers: list[FloatLayer]
    outputs: list[str]
    origins: list[str]
    normalise: dict[str, PerChannel] = field(default_factory=dict[str, PerChannel])
    notes: list[str] = field(default_factory=list[str])
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    orders: dict[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])
    end_orders: dict[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    values: dict[str, str] = field(default_factory=dict[str, str])
    cuts: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    end_notes: tuple[str, ...] = ()
    turned: frozenset[str] = frozenset()

    def users(self, name: str) -> list[FloatLayer]:
        """The layers that read a tensor."""
        return [layer for layer in self.layers if name in layer.inputs]

    def feed(self, name: str, array: NDArray[np.floating]) -> NDArray[np.float32]:
        """The network's input for an input of the ONNX model, both [1, C, H, W]."""
        return normalised(self.normalise, name, array.reshape(1, *self.inputs[name].size))


def normalised(normalise: Mapping[str, PerChannel], name: str, array: NDArray[np.floating]) -> NDArray[np.float32]:
    """An input [1, C, H, W] with the gain and the offset of each channel, if it has any."""
    x = array.astype(np.float64)
    if name in normalise:
        gain, offset = (numbers[:, None, None] for numbers in normalise[name])
        x = gain * x + offset
    return x.astype(np.float32)
