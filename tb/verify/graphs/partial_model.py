"""A model while it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Values of a tensor, at most.
_LARGEST = 6000

#: The first opset that has an operator.
_SINCE = {
    "Celu": 12, "HardSwish": 14, "Mish": 18, "Gelu": 20, "Round": 11, "LayerNormalization": 17, "Einsum": 12,
    "GatherElements": 11,
}  # fmt: skip


class UnfitError(Exception):
    """A node that does not fit the tensors there are, or an operator that the opset does not have."""


@dataclass
class Drawing:
    """A model while it is drawn: `shapes` of its tensors, of which `unread` are those that nothing reads yet."""

    random: Random
    opset: int
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initialisers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    inputs: list[str] = field(default_factory=list[str])

    def tensor(self, ranks: Sequence[int] = (2, 3, 4)) -> str:
        """One of the last tensors of these ranks."""
        fitting = [name for name, shape in self.shapes.items() if len(shape) in ranks]
        if not fitting:
            raise UnfitError
        return self.random.choice(fitting[-3:])

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        """An initialiser, or the result of a Constant."""
        name = f"c{len(self.initialisers) + len(self.nodes)}"
        value = numpy_helper.from_array(np.array(array, np.dtype(dtype)), name)
        if self.random.random() < 0.2:
            self.nodes.append(helper.make_node("Constant", [], [name], value=value))
        else:
            self.initialisers.append(value)
        return name

    def normal(self, *size: int, scale: float = 1.0) -> str:
        """Values around 0."""
        return self.constant(self._generator().normal(0, scale, size))

    def positive(self, *size: int) -> str:
        """Values between a half and two."""
        return self.constant(self._generator().uniform(0.5, 2, size))

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.random.getrandbits(32))

    def hidden_node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Adds a node inside a pattern: no node that is drawn later reads its output."""
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"n{len(self.nodes)}", **attributes))

    def sizes(self, output: str) -> tuple[int, ...]:
        """The shape of such an output. Raises UnfitError if what leads there does not fit."""
        return self._inferred([output])[output]

    def node(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        """Adds a node. Raises UnfitError if its shapes do not fit or are too large."""
        if self.opset < _SINCE.get(operator, 1):
            raise UnfitError
        names = [f"t{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        shapes = self._inferred(names)
        if any(not shape or min(shape) < 1 or prod(shape) > _LARGEST for shape in shapes.values()):
            raise UnfitError
        self.shapes |= shapes

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model with these outputs."""
        read, made = (
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes.get(name)) for name in names]
            for names in (self.inputs, outputs)
        )
        graph = helper.make_graph(self.nodes, "drawn", read, made, self.initialisers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def _inferred(self, names: list[str]) -> dict[str, tuple[int, ...]]:
        model = self.model([])
        for name in names:
            model.graph.output.append(helper.make_empty_tensor_value_info(name))
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
            raise UnfitError from None
        return {
            value.name: tuple(int(size.dim_value) for size in value.type.tensor_type.shape.dim)
            for value in inferred.graph.output
        }
