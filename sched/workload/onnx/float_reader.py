"""Float ONNX models as `FloatNet`s: what each operator becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .activations import ABSORBED, ACTIVATIONS
from .attention import ATTENTION, Attention
from .errors import Refused
from .floats import FloatNet
from .load import check
from .lowering import ENDS
from .movement import MOVEMENT
from .patterns import together
from .sliding import SLIDING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def fold(model: ModelProto, name: str, *, normalised: bool) -> FloatNet:
    """The folded network of a float model. `name` is for messages and the network.

    `normalised`: per-channel arithmetic on an input (mean and deviation of pictures) is taken out of the network, to be
    done when the input is made (`FloatNet.normalise`); otherwise it becomes a layer. Raises UnsupportedError with all
    nodes that the chip cannot run, OnnxError as `load.check` does.
    """
    reader = _FloatReader(together(check(model, name, OPERATORS.keys() | ENDS)), normalised)
    reader.lower_nodes()
    return reader.net()


class _FloatReader(Attention):
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        found = {operator: getattr(self, method) for operator, method in OPERATORS.items()}
        return found | {operator: self.or_table(found[operator]) for operator in ABSORBED}

    # -- layers with weights ----------------------------------------------------------------------------------

    def gemm(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        w, bias = self.constant(node, 1, "weights"), self.optional(node, 2, "bias")
        if attributes.get("transA"):
            raise Refused("transA; only weights are transposed")
        w = (w if attributes.get("transB") else w.T) * attributes.get("alpha", 1.0)
        self.fully_connected(node, w, None if bias is None else bias * attributes.get("beta", 1.0))

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


#: Operators and the methods that read them.
OPERATORS = {
    **MOVEMENT,
    **SLIDING,
    **ACTIVATIONS,
    **ATTENTION,
    "BatchNormalization": "batch_normalisation",
    "DequantizeLinear": "quantised",
    "Gemm": "gemm",
    "QuantizeLinear": "quantised",
}
