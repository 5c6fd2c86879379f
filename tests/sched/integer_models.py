"""Integer ONNX models written down in a line per node."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class IntegerModel:
    """Builds an ONNX model; `m` is the multiplier of all its convolutions."""

    def __init__(self, element: int = TensorProto.UINT8, shape: tuple = (1, 2, 5, 5)) -> None:
        self.element, self.shape = element, shape
        self.nodes, self.initialisers = [], []
        self.zero = self.array("zero", np.array(128 if self.dtype == np.uint8 else 0, self.dtype))

    @property
    def dtype(self) -> np.dtype:
        return helper.tensor_dtype_to_np_dtype(self.element)

    def array(self, name: str, array: np.ndarray) -> str:
        self.initialisers.append(numpy_helper.from_array(array, name))
        return name

    def scale(self, name: str, value: float) -> str:
        return self.array(name, np.array(value, np.float32))

    def node(self, operator: str, inputs: list[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def conv(self, source: str, output: str, w: np.ndarray, scales=(1.0, 2.0**-8, 1.0), **attributes) -> str:
        names = [self.scale(f"{output}_s{index}", value) for index, value in enumerate(scales)]
        raw = (w.astype(np.int16) + (128 if self.dtype == np.uint8 else 0)).astype(self.dtype)
        operands = [
            source,
            names[0],
            self.zero,
            self.array(f"{output}_w", raw),
            names[1],
            self.zero,
            names[2],
            self.zero,
        ]
        return self.node("QLinearConv", operands, output, **attributes)

    def build(self, *outputs: str, opset: int = 13, element: int | None = None) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("x", self.element if element is None else element, self.shape)],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.initialisers,
        )
        for value in graph.output:
            value.type.tensor_type.elem_type = self.element
        opsets = [helper.make_opsetid("", opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "com.example")]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)
