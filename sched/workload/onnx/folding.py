"""What lowering a float model knows and does, whatever the operator: views, constants, and what is folded into what.

The operators are in `float_reader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Window
from .constant_nodes import computable, computed
from .errors import OnnxError, Refused
from .floats import FloatLayer, FloatNet, PerChannel, Source
from .kernels import Kernels
from .load import CheckedModel, attributes
from .views import NO_PAD, Size, View, natural

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto


#: Operators that mean the same for integers and for the real numbers that these are.
_OF_INTEGERS = {"Cast", "Expand", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Tile", "Transpose"}
#: Operators before the first that mixes channels, which treat all axes alike.
_ALIKE = ("Add", "Cast", "Clip", "Div", "Identity", "Mul", "Relu", "Sub")


#: What is added to the name of an input that is an output, too.
COPY = "//copy"


class Folding(Kernels):
    def __init__(self, model: CheckedModel, normalised: bool) -> None:
        super().__init__(model)
        self.normalised = normalised
        self.inputs: dict[str, Source] = {}
        self.normalise: dict[str, PerChannel] = {}
        for value in model.inputs:
            self._check_type(value)
            view = _input(value.name, model.input_sizes[value.name], self._channels_last(value.name))
            self.inputs[value.name] = Source(view.size, view.shape, view.index)
            self.views[value.name] = view

    def is_empty(self) -> bool:
        return not self.layers

    def guess(self, name: str) -> View | None:
        shape = self.model.inferred.get(name)
        if shape is None or not shape or (len(shape) > 2 and shape[0] != 1):
            return None
        try:
            self.budget.spend("places of rearranged numbers", prod(shape))
        except Refused:
            return None
        return replace(_input(name, shape, False), single=False)

    def _check_type(self, value: ValueInfoProto) -> None:
        """Raises OnnxError for integers that the model computes with: only what moves them may be quantised."""
        from onnx import TensorProto

        kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type)
        readers = {node.op_type for node in self.model.nodes if value.name in node.input}
        if "FLOAT" in kind or kind == "DOUBLE" or (kind != "BOOL" and readers <= _OF_INTEGERS):
            return
        raise OnnxError(
            f"{self.model.name}: input {value.name!r} is {kind}; only models of floating point are quantised"
        )

    def _channels_last(self, name: str) -> bool:
        """Whether channels are the last axis of an input: where nodes first mix them, that is what they take."""
        reader = self._first_readers.get(name)
        while reader is not None and reader.op_type in _ALIKE:
            name = reader.output[0]
            reader = self._first_readers.get(name)
        if reader is None:
            return False
        if reader.op_type == "Transpose":
            perm = attributes(reader).get("perm", (3, 2, 1, 0))
            return len(perm) > 2 and perm[1] == len(perm) - 1
        if reader.op_type == "MatMul":
            return reader.input[0] == name
        if reader.op_type == "LayerNormalization":
            return attributes(reader).get("axis", -1) in (-1, len(self.model.input_sizes.get(name, ())) - 1)
        # a grey picture, whose one channel goes elsewhere
        return reader.op_type in ("Reshape", "Squeeze") and self.model.input_sizes.get(name, (0,))[-1] == 1

    @cached_property
    def _first_readers(self) -> dict[str, NodeProto]:
        """The first node that reads each tensor."""
        found: dict[str, NodeProto] = {}
        for node in self.model.nodes:
            for name in node.input:
                found.setdefault(name, node)
        return found

    def fold(self, node: NodeProto) -> bool:
        """Also computes nodes whose operands are all constants, and Shape."""
        if super().fold(node):
            return True
        if node.op_type == "Shape" and node.input[0] in self.views:
            self.constants[node.output[0]] = np.array(self.views[node.input[0]].shape, np.int64)[
                slice(attributes(node).get("start"), attributes(node).get("end"))
            ]
            return True
        names = [name for name in node.input if name]
        if not computable(node) or not all(name in self.constants for name in names):
            return False
        if not names and node.op_type != "Constant":
            return False
        for name, array in computed(node, self.constants, self.model.opset).items():
            self.budget.spend("numbers computed from constants", array.size)
            self.constants[name] = array
        return True

    # -- layers ---------------------------------------------------------------------------------------------

    def pass_on(self, node: NodeProto, **changes: Any) -> None:
        """The result is the operand, seen otherwise."""
        self.see(node, self.view(node.input[0]), **changes)

    def see(self, node: NodeProto, view: View, output: int = 0, **changes: Any) -> None:
        """Result `output` of a node is a view of what its first operand is."""
        single = view.single and self.used_once(node.input[0])
        self.views[node.output[output]] = replace(view, single=single, **changes)

    def rename(self, layer: FloatLayer, node: NodeProto) -> None:
        """The layer's result becomes the node's."""
        view = self.view(node.input[0]) if node.input[0] in self.views else self.view(node.input[1])
        del self.layers[layer.output]
        self.orders.pop(layer.output, None)
        layer.output = node.output[0]
        self.layers[layer.output] = layer
        self.sizes[layer.output] = view.size
        self.keep_view(layer.output, view)

    def keep_view(self, output: str, view: View) -> None:
        """A layer's result is seen as its operand was."""
        self.views[output] = replace(view, value=output, single=True)
        if not view.is_picture:
            self.orders[output] = view.order

    def emit_like(self, layer: FloatLayer, view: View) -> None:
        """A layer whose result has the size of what it reads, and is seen in the same way."""
        self.emit(layer, view.size)
        self.keep_view(layer.output, view)

    def clip_at(self, node: NodeProto, relu: bool, clamp: float) -> None:
        """Clamping, in the layer before if nothing else reads its result."""
        name = node.input[0]
        view = self.view(name)
        if layer := self.fusible(name, ("conv", "depthwise", "add", "mul", "max_pool", "average_pool")):
            layer.relu, layer.clamp = layer.relu or relu, min(layer.clamp, clamp)
            self.rename(layer, node)
            return
        if makers := self.makers(name):
            for layer in makers:
                layer.relu, layer.clamp = relu, clamp
            self.rename(self.layers[view.value], node)
            return
        # zeros around it stay zeros
        self.emit_like(FloatLayer("max_pool", node.output[0], (view.value,), relu=relu, clamp=clamp), view)

    def affine(self, node: NodeProto, name: str, gain: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
        """gain * x + offset, channel by channel: in the layer before, in the picture, or as a depthwise layer."""
        view = self.view(name)
        if not (np.all(np.isfinite(gain)) and np.all(np.isfinite(offset))):
            raise Refused("its constants are not finite")
        alike = bool(gain[0] > 0 and np.all(gain == gain[0]) and not np.any(offset))
        layer = self.fusible(name, ("product", "average_pool")) if alike else None
        if layer and (layer.kind == "product" or layer.gain != 1) and not layer.relu and layer.clamp == inf:
            layer.gain *= float(gain[0])  # of sums; averages stay what they are
            self.rename(layer, node)
            return
        if view.pad != NO_PAD:
            view = self.picture(name)
        if makers := self.makers(name):
            self._scaled(makers, gain, offset)
            self.rename(self.layers[view.value], node)
            return
        if self.normalised and view.value in self.inputs and view.single and self.used_once(name) and np.all(gain > 0):
            before = self.normalise.get(view.value, (np.ones(view.channels), np.zeros(view.channels)))
            self.normalise[view.value] = (before[0] * gain, before[1] * gain + offset)
            self.views[node.output[0]] = view
            return
        if alike and gain[0] == 1:
            self.see(node, view)
            return
        w = gain[:, None, None, None].copy()
        self.emit_like(FloatLayer("depthwise", node.output[0], (view.value,), w=w, bias=offset.copy()), view)

    def _scaled(self, makers: Sequence[FloatLayer], gain: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
        """What makes a tensor makes gain * x + offset instead: filters of one layer, of all phases, or of parts."""
        first, whole = 0, len(gain)
        for layer in makers:
            assert layer.w is not None
            assert layer.bias is not None
            count = len(layer.w)
            some = slice(first, first + count)
            layer.w, layer.moves = layer.w * gain[some, None, None, None], False
            layer.bias = layer.bias * gain[some] + offset[some]
            first = (first + count) % whole  # phases have all channels, parts some of them

    def per_channel(self, array: NDArray[Any], view: View) -> NDArray[np.float64]:
        """A constant operand of elementwise arithmetic as one number for each channel."""
        try:
            whole = np.broadcast_to(array.astype(np.float64), view.shape).ravel()
        except ValueError:
            raise Refused(f"a constant of shape {list(array.shape)} does not fit {list(view.shape)}") from None
        channel = view.channel_of.ravel()
        found = np.ones(view.channels)
        found[channel] = whole
        if np.any(found[channel] != whole):
            raise Refused("its constant differs from pixel to pixel; it may differ from channel to channel")
        return found

    def fully_connected(self, node: NodeProto, w: NDArray[Any], bias: NDArray[Any] | None) -> None:
        """`w` [outputs, features], for the last axis of the operand."""
        view = self.view(node.input[0])
        if view.pad != NO_PAD:
            view = self.picture(node.input[0])
        outputs, rows = len(w), view.shape[:-1]
        if w.shape[1] != view.shape[-1]:
            raise Refused(f"{w.shape[1]} features for an operand of shape {list(view.shape)}")
        if bias is None or bias.size in (1, outputs):
            bias = np.zeros(outputs) if bias is None else np.broadcast_to(bias.ravel(), (outputs,))
        else:
            raise Refused(f"a bias of shape {list(bias.shape)} for {outputs} outputs")
        layer = FloatLayer("conv", node.output[0], (view.value,), w=finite(w)[:, :, None, None], bias=finite(bias))
        if prod(rows) == 1:
            self.whole_map(layer, view, rows)
            return
        columns = view.order.reshape(1, 1, prod(rows), -1).transpose(0, 3, 1, 2)  # a picture of one row of vectors
        layer.inputs = (self.arrange(node.input[0], view.moved(columns)).value,)
        self.emit(layer, (outputs, 1, prod(rows)))
        made = self.views[layer.output]
        self.keep_view(layer.output, made.moved(made.order[0, :, 0].T.reshape(*rows, outputs)))

    def whole_map(self, layer: FloatLayer, view: View, rows: Sequence[int]) -> None:
        """A fully connected layer of a whole map: its kernel is the map, however its pixels are ordered."""
        assert layer.w is not None
        channels, height, width = view.size
        dense = scattered(layer.w[:, :, 0, 0], view.order.ravel(), prod(view.size))
        layer.w, layer.window = dense.reshape(-1, channels, height, width), Window(height, width)
        self.emit_conv(layer, view)
        self.views[layer.output] = replace(self.views[layer.output], shape=(*rows, len(layer.w)))

    def net(self) -> FloatNet:
        """The result."""
        outputs: list[str] = []
        origins: list[str] = []
        for name in self.model.outputs:
            if name not in self.views:
                raise OnnxError(f"{self.model.name}: output {name!r} is a constant; remove it")
            origin = self.before.get(name, name)
            view = self._result(origin)
            if view.value in self.inputs:
                view = self._copied(view)
            outputs.append(view.value)
            origins.append(origin)
            if not view.is_picture:
                self.orders[origin] = view.order
            elif view.value != origin:  # a picture made of a part of what a layer of that name makes
                self.orders.pop(origin, None)
        needed = set(outputs)
        for layer in reversed(self.layers.values()):
            if layer.output in needed:
                needed.update(layer.inputs)
        if unused := [name for name in self.inputs if name not in needed]:
            raise OnnxError(f"{self.model.name}: input {unused[0]!r} is not used; remove it")
        layers = [layer for layer in self.layers.values() if layer.output in needed]
        if all(layer.output.endswith(COPY) for layer in layers):
            raise OnnxError(f"{self.model.name}: nothing is left to compute; give a model with layers")
        shapes = {
            name: view.shape for name, view in self.views.items() if view.pad == NO_PAD and name not in self.before
        }
        notes = [*self.notes, *self.end_notes()]
        orders = {name: index for name, index in self.orders.items() if name in shapes}
        values = {name: view.value for name, view in self.views.items()}
        return FloatNet(
            self.model.name, self.inputs, layers, outputs, origins, self.normalise, notes, shapes, orders, self.sizes,
            values,
        )  # fmt: skip

    def _copied(self, view: View) -> View:
        """An input that is an output, too: moved by a layer."""
        if (copy := f"{view.value}{COPY}") not in self.layers:
            self.emit(FloatLayer("max_pool", copy, (view.value,)), view.size)
        return replace(view, value=copy)

    def _result(self, name: str) -> View:
        """A result of the network: a value with its axes in any order, or a picture made of some; if no picture can be
        made, all elements of a value in any order."""
        view = self.view(name)
        whole = view.order.size == prod(view.size) and bool(np.all(np.bincount(view.order.ravel()) == 1))
        if view.pad == NO_PAD and whole and (view.index is None or (natural(view) and view.value not in self.inputs)):
            return view
        if whole and view.value == name in self.orders:  # a layer's own result, in an order that is known
            return view
        self.turns = False  # whoever reads results knows their order
        try:
            return self.picture(name) if len(view.shape) > 2 else self._vectors(name, view)
        except Refused as refusal:
            if whole and view.value not in self.inputs:
                return view
            raise OnnxError(f"{self.model.name}: output {name!r} cannot be made: {refusal}") from refusal
        finally:
            self.turns = True

    def _vectors(self, name: str, view: View) -> View:
        """A result of one or two axes: the last is channels, the other columns."""
        rows = view.order.reshape(-1, view.shape[-1])
        made = self.arrange(name, view.moved(rows.T[None, :, None]))
        return made.moved(made.order[0, :, 0].T.reshape(view.shape))


def _input(name: str, shape: tuple[int, ...], channels_last: bool) -> View:
    """The value of a tensor: its axes after the first are channels, rows and columns, or channels and columns; two axes
    are vectors, several of them columns."""
    if len(shape) == 1:
        return View(name, (shape[0], 1, 1), shape)
    if len(shape) == 2 and shape[0] > 1:
        return View(name, (shape[1], 1, shape[0]), shape, np.arange(prod(shape)).reshape(shape[::-1]).T)
    if len(shape) > 4:  # what is behind the rows are columns
        whole = (shape[0], *shape[1:3], prod(shape[3:]))
        if shape[1] == 1 and not channels_last:
            whole = (shape[0], *shape[2:4], prod(shape[4:]))
        if channels_last:
            whole = (shape[0], shape[1], prod(shape[2:-1]), shape[-1])
        made = _input(name, whole, channels_last)
        return View(name, made.size, shape, None if made.index is None else made.index.reshape(shape))
    middle = (1,) if len(shape) == 3 else ()
    order = (1, *range(2, len(shape)))
    if channels_last and len(shape) > 2:
        order = (len(shape) - 1, *range(1, len(shape) - 1))
    sizes = [shape[axis] for axis in order]
    size: Size = tuple([sizes[0], *middle, *sizes[1:], 1, 1][:3])  # pyright: ignore[reportAssignmentType]  (three)
    index = None
    if channels_last and len(shape) > 2:
        index = np.arange(prod(size)).reshape(1, *sizes).transpose(0, *range(2, len(shape)), 1)
    return View(name, size, shape, index)


def scattered(w: NDArray[np.float64], places: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Weights [outputs, inputs, ...] for `count` inputs, of which those given are at `places`; 0 for the others."""
    found = np.zeros((count, len(w), *w.shape[2:]))
    np.add.at(found, places, w.swapaxes(0, 1))
    return found.swapaxes(0, 1)


def finite(array: NDArray[Any]) -> NDArray[np.float64]:
    """The array in double. Raises Refused when it is not finite."""
    if not np.all(np.isfinite(array)):
        raise Refused("its weights are not finite")
    return array.astype(np.float64)
