"""Files with QuantizeLinear and DequantizeLinear around one layer, in the forms that exporting programs write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_ELEMENTS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
#: Of each operator: shapes of its operand and of its weights, and the axis of these along which its outputs lie.
_SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "Conv": ((1, 3, 6, 6), (4, 3, 3, 3), 0),
    "ConvTranspose": ((1, 3, 5, 5), (3, 4, 3, 3), 1),
    "Gemm": ((1, 12), (5, 12), 0),
    "MatMul": ((1, 12), (12, 5), 1),
}


@dataclass
class QdqFile:
    """`operator` between 8 bits of type `kind`, with weights of type `weights`.

    `bytes_in`: the input has 8 bits itself; `bytes_out`: so has the output. `rounds_weights`: weights are real numbers
    that the file quantises. `per_channel`: weights have a scale and a zero point for each output; `zeros`: zero points
    are any. `bias`: "", "float" or "int32".
    """

    operator: str = "Conv"
    opset: int = 13
    kind: type = np.uint8
    weights: type = np.int8
    bytes_in: bool = False
    bytes_out: bool = False
    rounds_weights: bool = False
    per_channel: bool = False
    zeros: bool = False
    bias: str = "int32"
    seed: int = 0
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])

    def build(self) -> onnx.ModelProto:
        self.random = np.random.default_rng(self.seed)
        shape, w_shape, axis = _SHAPES[self.operator]
        count = w_shape[axis]
        self.arrays |= {"xs": np.array(0.02, np.float32), "xz": self._bytes(self.kind, ())}
        self.arrays |= {"ys": np.array(0.3, np.float32), "yz": self._bytes(self.kind, ())}
        if not self.bytes_in:
            self._node("QuantizeLinear", ["x", "xs", "xz"], "xq")
        self._node("DequantizeLinear", ["x" if self.bytes_in else "xq", "xs", "xz"], "real")
        self._weights(w_shape, axis)
        operands = ["real", "w"] + ([self._bias(count)] if self.bias else [])
        self._node(self.operator, operands, "sums", **({"transB": 1} if self.operator == "Gemm" else {}))
        self._node("QuantizeLinear", ["sums", "ys", "yz"], "y" if self.bytes_out else "yq")
        if not self.bytes_out:
            self._node("DequantizeLinear", ["yq", "ys", "yz"], "y")
        element = _ELEMENTS[self.kind]
        ends = [element if end else TensorProto.FLOAT for end in (self.bytes_in, self.bytes_out)]
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", ends[0], shape)],
            [helper.make_tensor_value_info("y", ends[1], None)],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))

    def x(self) -> NDArray[Any]:
        """An input of the built file, of which nothing is cut off."""
        range_ = np.iinfo(self.kind)
        shape = _SHAPES[self.operator][0]
        bytes_ = np.random.default_rng(self.seed + 1).integers(range_.min, range_.max + 1, shape)
        return bytes_.astype(self.kind) if self.bytes_in else self.real(bytes_)

    def real(self, bytes_: NDArray[Any]) -> NDArray[np.float32]:
        """What bytes of the input stand for."""
        zero, scale = (self.arrays[name].astype(np.float64) for name in ("xz", "xs"))
        return ((bytes_ - zero) * scale).astype(np.float32)

    def _bytes(self, kind: type, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.asarray(self.random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape)).astype(kind)

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], f"n_{output}", **attributes))
        return output

    def _weights(self, shape: tuple[int, ...], axis: int) -> None:
        each = (shape[axis],) if self.per_channel else ()
        along = {"axis": axis} if self.per_channel else {}
        middle = np.full(each, 128 if self.weights is np.uint8 else 0, self.weights)
        self.arrays["ws"] = np.asarray(self.random.uniform(0.005, 0.02, each)).astype(np.float32)
        self.arrays["wz"] = self._bytes(self.weights, each) if self.zeros else middle
        if self.rounds_weights:
            self.arrays["numbers"] = self.random.normal(0, 0.5, shape).astype(np.float32)
            self._node("QuantizeLinear", ["numbers", "ws", "wz"], "wq", **along)
        else:
            self.arrays["wq"] = self._bytes(self.weights, shape)
        self._node("DequantizeLinear", ["wq", "ws", "wz"], "w", **along)

    def _bias(self, count: int) -> str:
        if self.bias == "float":
            self.arrays["b"] = self.random.normal(0, 1, count).astype(np.float32)
            return "b"
        self.arrays |= {"bq": self.random.integers(-5000, 5000, count).astype(np.int32)}
        self.arrays |= {"bs": np.asarray(self.arrays["ws"] * np.float32(0.02))}
        return self._node("DequantizeLinear", ["bq", "bs"], "b", **({"axis": 0} if self.per_channel else {}))
