"""Float ONNX models as `FloatNet`s: what each operator becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .activations import ABSORBED, ACTIVATIONS
from .attention import ATTENTION, Attention
from .convolutions import CONVOLUTIONS
from .errors import Refused
from .floats import FloatLayer, FloatNet
from .load import check
from .lowering import ENDS
from .movement import MOVEMENT
from .patterns import together
from .pools import POOLS
from .reductions import REDUCTIONS
from .resizing import RESIZING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def fold(model: ModelProto, name: str, *, normalised: bool, generous: bool = False) -> FloatNet:
    """The folded network of a float model. `name` is for messages and the network.

    `normalised`: per-channel arithmetic on an input (mean and deviation of pictures) is taken out of the network, to be
    done when the input is made (`FloatNet.normalise`); otherwise it becomes a layer. `generous`: also what takes
    several layers that have no weights of the file (`constants`). Raises UnsupportedError with all nodes that the chip
    cannot run, OnnxError as `load.check` does.
    """
    reader = _FloatReader(together(check(model, name, OPERATORS.keys() | ENDS)), normalised)
    reader.generous = generous
    reader.lower_nodes()
    return reader.net()


class _FloatReader(Attention):
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        found = {operator: getattr(self, method) for operator, method in OPERATORS.items()}
        return found | {operator: self.or_table(found[operator]) for operator in ABSORBED}

    # -- layers with weights ----------------------------------------------------------------------------------

    def gemm(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        w, bias = self.constant(node, 1, "weights"), self.optional(node, 2, "bias")
        w = (w if attributes.get("transB") else w.T) * attributes.get("alpha", 1.0)
        bias = None if bias is None else bias * attributes.get("beta", 1.0)
        if attributes.get("transA"):
            self.only_if_generous("transA; only weights are transposed")
            view, turned = self.settled(node.input[0]), self.fresh(f"{node.output[0]}/turned")
            self.views[turned] = view.moved(np.ascontiguousarray(view.order.T))
            node = _between(node, [turned], node.output[0])
        if bias is None or bias.ndim < 2 or bias.shape[0] == 1:
            self.fully_connected(node, w, bias)
            return
        sums = self.fresh(f"{node.output[0]}/sums")
        self.fully_connected(_between(node, [node.input[0]], sums), w, None)
        view = self.views[sums]
        term = self.constant_like(bias, view, node.output[0])
        self.emit_like(FloatLayer("add", node.output[0], (view.value, term.value)), view)

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

    def quantised(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        raise Refused("the model is quantised already, around float layers; give the float model that it was made from")


def _between(node: NodeProto, inputs: list[str], output: str) -> NodeProto:
    """A node of the same operator between other tensors."""
    from onnx import helper

    return helper.make_node(node.op_type, inputs, [output], node.name)


#: Operators and the methods that read them.
OPERATORS = {
    **MOVEMENT,
    **CONVOLUTIONS,
    **POOLS,
    **REDUCTIONS,
    **RESIZING,
    **ACTIVATIONS,
    **ATTENTION,
    "BatchNormalization": "batch_normalisation",
    "DequantizeLinear": "quantised",
    "Gemm": "gemm",
    "QuantizeLinear": "quantised",
}
