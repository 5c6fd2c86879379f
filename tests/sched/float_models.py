"""Float ONNX models written down in a line per node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip


class FloatModel:
    """Builds a float model with one input `x`. Nodes are named `n_<output>`."""

    def __init__(self, shape: tuple[int | str, ...] = (1, 3, 8, 8), seed: int = 0, opset: int = 13) -> None:
        self.shape, self.opset, self.element = shape, opset, TensorProto.FLOAT
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initialisers: list[onnx.TensorProto] = []

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        """An initialiser with a name of its own."""
        name = f"constant{len(self.initialisers)}"
        self.initialisers.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def integers(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)

    def normal(self, *size: int, scale: float = 0.3) -> str:
        return self.constant(self.random.normal(0, scale, size))

    def node(self, operator: str, inputs: list[str] | str, output: str, **attributes: Any) -> str:
        inputs = [inputs] if isinstance(inputs, str) else inputs
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def conv(self, source: str, output: str, w: tuple[int, int, int, int], **attributes: Any) -> str:
        return self.node("Conv", [source, self.normal(*w), self.normal(w[0])], output, **attributes)

    def build(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        for value in results:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        source = helper.make_tensor_value_info("x", self.element, self.shape)
        graph = helper.make_graph(self.nodes, "model", [source], results, self.initialisers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def data(self, count: int = 4) -> list[NDArray[np.float32]]:
        """Normal inputs."""
        random, size = np.random.default_rng(9), [1 if isinstance(n, str) else n for n in self.shape]
        return [random.normal(0, 1, size).astype(np.float32) for _ in range(count)]


def run_float(model: onnx.ModelProto, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What ONNX Runtime makes of it, on every processor."""
    mixed = any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in model.graph.initializer)
    return run(session(model, "float", mixed_signs=mixed), {"x": x})


def integer_outputs(graph: Graph, x: np.ndarray) -> dict[str, np.ndarray]:
    """Real values that the int8 network makes of a real input."""
    (value,) = graph.inputs
    steps = np.clip(np.rint(x.reshape(value.shape) / value.step), -128, 127).astype(np.int8)
    result = run(session(to_onnx(graph), "int8"), {value.name: flip(steps)})
    return {name: unflip(array) * graph.value(name).step for name, array in result.items()}


def decibels(exact: np.ndarray, found: np.ndarray) -> float:
    return 10 * np.log10((exact**2).sum() / ((exact - found.reshape(exact.shape)) ** 2).sum())
