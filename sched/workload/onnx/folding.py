"""What lowering a float model knows and does, whatever the operator: views, constants, and what is folded into what.

The operators are in `float_reader`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Window
from .errors import OnnxError, Refused, operator_name
from .floats import FloatLayer, FloatNet, PerChannel
from .load import CheckedModel, attributes
from .lowering import Lowering
from .windows import check_window

if TYPE_CHECKING:
    from onnx import NodeProto

NO_PAD = (0, 0, 0, 0)


@dataclass(frozen=True)
class View:
    """An ONNX tensor of shape `shape` that holds value `value`, of `size` channels, rows, columns, in that order.

    `pad`: zeros around it (top, left, bottom, right) that the next window will take in. `single`: nothing else reads
    the value through another tensor.
    """

    value: str
    size: tuple[int, int, int]
    shape: tuple[int, ...]
    pad: tuple[int, int, int, int] = NO_PAD
    single: bool = True

    @property
    def channels(self) -> int:
        return self.size[0]


class Folding(Lowering[View]):
    def __init__(self, model: CheckedModel, normalised: bool) -> None:
        super().__init__(model)
        self.normalised = normalised
        self.layers: dict[str, FloatLayer] = {}
        self.inputs: dict[str, tuple[int, int, int]] = {}
        self.normalise: dict[str, PerChannel] = {}
        self.notes: list[str] = []
        for value in model.inputs:
            shape = model.input_sizes[value.name]
            size = (*shape[1:], 1, 1)[:3]
            self.inputs[value.name] = (size[0], size[1], size[2])
            self.views[value.name] = View(value.name, self.inputs[value.name], shape)

    def guess(self, name: str) -> View | None:
        shape = self.model.inferred.get(name)
        if shape is None or len(shape) not in (2, 4) or shape[0] != 1:
            return None
        size = (*shape[1:], 1, 1)[:3]
        return View(name, (size[0], size[1], size[2]), shape, single=False)

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
        if node.domain not in ("", "ai.onnx") or not all(name in self.constants for name in names):
            return False
        if not names and node.op_type != "Constant":  # random generators
            return False
        self.constants |= self._compute(node, names)
        return True

    def _compute(self, node: NodeProto, names: list[str]) -> dict[str, NDArray[Any]]:
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        feeds = {name: self.constants[name] for name in names}
        types = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "constant", types, results)
        opset = helper.make_opsetid("", self.model.opset)
        try:
            reference: Any = ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset]))
            computed = reference.run(None, feeds)
        except Exception as error:  # whatever the reference implementation stumbles over
            raise OnnxError(
                f"{self.model.name}: {operator_name(node)} of constants cannot be computed ({error}); simplify the "
                "model first"
            ) from error
        return dict(zip(node.output, (np.asarray(array) for array in computed), strict=True))

    # -- layers ---------------------------------------------------------------------------------------------

    def emit(self, layer: FloatLayer, size: tuple[int, int, int], shape: tuple[int, ...] | None = None) -> None:
        check_window(layer.kind, layer.window)
        if min(size) < 1:
            raise Refused("its window does not fit the input")
        self.layers[layer.output] = layer
        self.views[layer.output] = View(layer.output, size, shape or (1, *size))

    def picture(self, name: str, *, padded: bool = False) -> View:
        """An operand that must be [1, channels, rows, columns]."""
        view = self.view(name)
        if view.shape != (1, *view.size):
            raise Refused(f"its operand has shape {list(view.shape)}, must be {[1, *view.size]}")
        if view.pad != NO_PAD and not padded:
            raise Refused("its operand is padded; only convolutions and pools take padding in")
        return view

    def pass_on(self, node: NodeProto, **changes: Any) -> None:
        """The result is the operand, seen otherwise."""
        view, name = self.view(node.input[0]), node.input[0]
        self.views[node.output[0]] = replace(view, single=view.single and self.used_once(name), **changes)

    def fusible(self, name: str, kinds: tuple[str, ...]) -> FloatLayer | None:
        """The layer after a tensor, if its result is used here alone and it is of one of these kinds."""
        view = self.view(name)
        layer = self.layers.get(view.value)
        return layer if layer and view.single and self.used_once(name) and layer.kind in kinds else None

    def rename(self, layer: FloatLayer, node: NodeProto) -> None:
        """The layer's result becomes the node's."""
        view = self.view(node.input[0]) if node.input[0] in self.views else self.view(node.input[1])
        del self.layers[layer.output]
        layer.output = node.output[0]
        self.layers[layer.output] = layer
        self.views[layer.output] = replace(view, value=layer.output)

    def clip_at(self, node: NodeProto, relu: bool, clamp: float) -> None:
        """Clamping, in the layer before if nothing else reads its result."""
        name = node.input[0]
        view = self.view(name)
        if layer := self.fusible(name, ("conv", "depthwise", "add", "max_pool", "average_pool")):
            layer.relu, layer.clamp = layer.relu or relu, min(layer.clamp, clamp)
            self.rename(layer, node)
            return
        self.emit(FloatLayer("max_pool", node.output[0], (view.value,), relu=relu, clamp=clamp), view.size, view.shape)
        self.views[node.output[0]] = replace(self.views[node.output[0]], pad=view.pad)  # zeros stay zeros

    def affine(self, node: NodeProto, name: str, gain: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
        """gain * x + offset, channel by channel: in the layer before, in the picture, or as a depthwise layer."""
        view = self.view(name)
        if not (np.all(np.isfinite(gain)) and np.all(np.isfinite(offset))):
            raise Refused("its constants are not finite")
        if view.pad != NO_PAD:
            raise Refused("its operand is padded; put the Pad after it")
        layer = self.fusible(name, ("conv", "depthwise"))
        if layer and layer.w is not None and layer.bias is not None and not layer.relu and layer.clamp == inf:
            layer.w = layer.w * gain[:, None, None, None]
            layer.bias = layer.bias * gain + offset
            self.rename(layer, node)
            return
        if self.normalised and view.value in self.inputs and view.single and self.used_once(name) and np.all(gain > 0):
            before = self.normalise.get(view.value, (np.ones(view.channels), np.zeros(view.channels)))
            self.normalise[view.value] = (before[0] * gain, before[1] * gain + offset)
            self.views[node.output[0]] = view
            return
        w = gain[:, None, None, None].copy()
        layer = FloatLayer("depthwise", node.output[0], (view.value,), w=w, bias=offset.copy())
        self.emit(layer, view.size, view.shape)

    def per_channel(self, array: NDArray[Any], view: View) -> NDArray[np.float64]:
        """A constant operand of elementwise arithmetic as one number for each channel."""
        try:
            whole = np.broadcast_to(array.astype(np.float64), view.shape).reshape(view.channels, -1)
        except ValueError:
            raise Refused(f"a constant of shape {list(array.shape)} does not fit {list(view.shape)}") from None
        if np.any(whole != whole[:, :1]):
            raise Refused("its constant differs from pixel to pixel; it may differ from channel to channel")
        return whole[:, 0].copy()

    def fully_connected(self, node: NodeProto, w: NDArray[Any], bias: NDArray[Any] | None) -> None:
        """`w` [outputs, features]; the kernel of the convolution is its whole input."""
        view = self.view(node.input[0])
        channels, height, width = view.size
        if view.shape not in ((1, prod(view.size)), (1, prod(view.size), 1, 1)) or view.pad != NO_PAD:
            raise Refused(f"its operand has shape {list(view.shape)}, must be [1, features]")
        if w.shape[1] != prod(view.size):
            raise Refused(f"{w.shape[1]} features for an operand of {prod(view.size)}")
        outputs = len(w)
        bias = np.zeros(outputs) if bias is None else np.broadcast_to(bias.astype(np.float64).ravel(), (outputs,))
        layer = FloatLayer(
            "conv",
            node.output[0],
            (view.value,),
            Window(height, width),
            w=finite(w).reshape(outputs, channels, height, width),
            bias=finite(bias),
        )
        self.emit(layer, (outputs, 1, 1), (1, outputs) if len(view.shape) == 2 else None)

    def net(self) -> FloatNet:
        """The result."""
        outputs: list[str] = []
        origins: list[str] = []
        for name in self.model.outputs:
            if name not in self.views or self.views[name].pad != NO_PAD:
                raise OnnxError(f"{self.model.name}: output {name!r} is a constant or padded; remove it")
            outputs.append(self.views[name].value)
            origins.append(self.before.get(name, name))
        needed = set(outputs)
        for layer in reversed(self.layers.values()):
            if layer.output in needed:
                needed.update(layer.inputs)
        if unused := [name for name in self.inputs if name not in needed]:
            raise OnnxError(f"{self.model.name}: input {unused[0]!r} is not used; remove it")
        layers = [layer for layer in self.layers.values() if layer.output in needed]
        if not layers:
            raise OnnxError(f"{self.model.name}: nothing is left to compute; give a model with layers")
        shapes = {
            name: view.shape for name, view in self.views.items() if view.pad == NO_PAD and name not in self.before
        }
        notes = [*self.notes, *self.end_notes()]
        return FloatNet(self.model.name, self.inputs, layers, outputs, origins, self.normalise, notes, shapes)


def finite(array: NDArray[Any]) -> NDArray[np.float64]:
    """The array in double. Raises Refused when it is not finite."""
    if not np.all(np.isfinite(array)):
        raise Refused("its weights are not finite")
    return array.astype(np.float64)
