"""Float ONNX models as `FloatNet`s: what each operator becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import Refused
from .floats import FloatLayer, FloatNet, PerChannel
from .load import check
from .lowering import ENDS
from .movement import MOVEMENT
from .sliding import SLIDING, Sliding

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Gain and offset, channel by channel, that stand for an operator with a constant.
_Affine = Callable[[NDArray[np.float64]], PerChannel]


def fold(model: ModelProto, name: str, *, normalised: bool) -> FloatNet:
    """The folded network of a float model. `name` is for messages and the network.

    `normalised`: per-channel arithmetic on an input (mean and deviation of pictures) is taken out of the network, to be
    done when the input is made (`FloatNet.normalise`); otherwise it becomes a layer. Raises UnsupportedError with all
    nodes that the chip cannot run, OnnxError as `load.check` does.
    """
    reader = _FloatReader(check(model, name, OPERATORS.keys() | ENDS), normalised)
    reader.lower_nodes()
    return reader.net()


class _FloatReader(Sliding):
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        return {operator: getattr(self, method) for operator, method in OPERATORS.items()}

    # -- layers with weights ----------------------------------------------------------------------------------

    def gemm(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        w, bias = self.constant(node, 1, "weights"), self.optional(node, 2, "bias")
        if attributes.get("transA"):
            raise Refused("transA; only weights are transposed")
        w = (w if attributes.get("transB") else w.T) * attributes.get("alpha", 1.0)
        self.fully_connected(node, w, None if bias is None else bias * attributes.get("beta", 1.0))

    def matmul(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.view(node.input[0])
        w = self.constant(node, 1, "second factor")
        if w.ndim != 2:
            raise Refused(f"weights have shape {list(w.shape)}, must be [inputs, outputs]")
        self.fully_connected(node, w.T, None)

    def batch_normalisation(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if attributes.get("training_mode") or len([name for name in node.output if name]) > 1:
            raise Refused("training_mode; export the model for inference")
        names = ("scale", "bias", "mean", "variance")
        gain, offset, mean, variance = (
            self.constant(node, index, what).astype(np.float64) for index, what in enumerate(names, start=1)
        )
        view = self.view(node.input[0])
        if len(view.shape) < 2 or view.shape[1] != len(gain):
            raise Refused(f"{len(gain)} channels for an operand of shape {list(view.shape)}")
        gain = gain / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        along = (-1, *(1 for _ in view.shape[2:]))
        numbers = (self.per_channel(array.reshape(along), view) for array in (gain, offset - gain * mean))
        self.affine(node, node.input[0], *numbers)

    # -- elementwise ------------------------------------------------------------------------------------------

    def add(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if any(name in self.constants for name in node.input):
            self._arithmetic(node, lambda x: (np.ones_like(x), x), lambda x: (np.ones_like(x), x))
            return
        if len(node.input) != 2:
            raise Refused(f"adds {len(node.input)} tensors; an addition has two")
        a, b = self.settled(node.input[0]), self.settled(node.input[1])
        if a.shape != b.shape:
            raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}, must be alike")
        if a.size != b.size or not np.array_equal(a.order, b.order):
            a, b = self.picture(node.input[0]), self.picture(node.input[1])
            self.emit(FloatLayer("add", node.output[0], (a.value, b.value)), a.size)
            self.views[node.output[0]] = replace(self.views[node.output[0]], shape=self.view(node.input[0]).shape)
            return
        self.emit_like(FloatLayer("add", node.output[0], (a.value, b.value)), a)

    def negate(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        channels = self.view(node.input[0]).channels
        self.affine(node, node.input[0], -np.ones(channels), np.zeros(channels))

    def subtract(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._arithmetic(node, lambda x: (np.ones_like(x), -x), lambda x: (-np.ones_like(x), x))

    def multiply(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._arithmetic(node, lambda x: (x, np.zeros_like(x)), lambda x: (x, np.zeros_like(x)))

    def divide(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if node.input[0] in self.constants:
            raise Refused("divides by a tensor")
        if not np.all(self.constant(node, 1, "divisor")):
            raise Refused("divides by zero")
        self._arithmetic(node, lambda x: (1 / x, np.zeros_like(x)), lambda x: (1 / x, np.zeros_like(x)))

    def _arithmetic(self, node: NodeProto, right: _Affine, left: _Affine) -> None:
        """`right`, `left`: gain and offset for a constant on that side of the operator."""
        which = next((index for index in (1, 0) if node.input[index] in self.constants), None)
        if which is None:
            raise Refused("of two tensors; one must be a constant")
        name = node.input[1 - which]
        view = self.view(name)
        gain, offset = (right if which else left)(self.per_channel(self.constants[node.input[which]], view))
        self.affine(node, name, gain, offset)

    def relu(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.clip_at(node, True, inf)

    def clip(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if self.model.opset < 11:
            low, high = attributes.get("min", -inf), attributes.get("max", inf)
        else:
            bounds = (self.optional(node, index, what) for index, what in ((1, "minimum"), (2, "maximum")))
            low, high = (
                default if bound is None else float(bound.flat[0])
                for bound, default in zip(bounds, (-inf, inf), strict=True)
            )
        low, high = (-inf if low < -3e38 else low), (inf if high > 3e38 else high)  # the largest float means none
        if low not in (0.0, -inf) or not high >= 0:
            raise Refused(f"clips at {low:g} and {high:g}; the lower bound must be 0 or absent, the upper 0 or more")
        if low == -inf and high == inf:
            self.pass_on(node)
        else:
            self.clip_at(node, low == 0, high)

    def quantised(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        raise Refused("the model is quantised already, around float layers; give the float model that it was made from")


#: Operators and the methods that read them.
OPERATORS = {
    **MOVEMENT,
    **SLIDING,
    "Add": "add",
    "BatchNormalization": "batch_normalisation",
    "Clip": "clip",
    "DequantizeLinear": "quantised",
    "Div": "divide",
    "Gemm": "gemm",
    "MatMul": "matmul",
    "Mul": "multiply",
    "Neg": "negate",
    "QuantizeLinear": "quantised",
    "Relu": "relu",
    "Sub": "subtract",
    "Sum": "add",
}
