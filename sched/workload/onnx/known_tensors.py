"""Shapes, types and small constants of a model's tensors, found node by node.

ONNX's inference of a whole model ends the process where a size that has become negative is sliced; here such a tensor
has no shape, nor has what depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .constant_nodes import computable, computed, result_types, sizes, type_of
from .errors import Refused
from .nodes import attributes

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TypeProto

#: Elements up to which constants are computed here: shapes, indices, anchors. What is larger stays as it is.
_MOST = 1 << 16
#: Elements up to which whole numbers may be a shape, or the places or axes that one follows from.
_SHAPES = 1 << 10


class KnownTensors:
    """`types`, `constants`: what is known of tensors, of constants up to `_MOST` elements also what they are."""

    def __init__(self, graph: GraphProto, opset: int) -> None:
        from onnx import numpy_helper

        self._opset = opset
        self.types: dict[str, TypeProto] = {}
        self.constants: dict[str, NDArray[Any]] = {}
        self._read: dict[int, NodeProto] = {}
        for item in graph.initializer:
            self._type_of_dims(item.name, item.data_type, item.dims)
            if prod(item.dims) <= _MOST:
                self.constants[item.name] = numpy_helper.to_array(item)
        for value in graph.input:
            self.types.setdefault(value.name, _with_sizes_alone(value.type))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors of which every size is known."""
        shapes = {name: sizes(kind) for name, kind in self.types.items()}
        return {name: shape for name, shape in shapes.items() if shape is not None and min(shape, default=0) >= 0}

    @property
    def ranks(self) -> dict[str, int]:
        """Of the tensors of which it is known; their sizes may be open."""
        shaped = {name: kind.tensor_type for name, kind in self.types.items() if kind.tensor_type.HasField("shape")}
        return {name: len(kind.shape.dim) for name, kind in shaped.items()}

    @property
    def elements(self) -> dict[str, int]:
        """Types of elements (`TensorProto`)."""
        return {name: kind.tensor_type.elem_type for name, kind in self.types.items()}

    def read(self, nodes: Iterable[NodeProto]) -> None:
        """Notes what follows for the results of nodes, in their order; those of which all is known are left out."""
        for node in nodes:
            if id(node) in self._read and self._has_sizes(node.output):
                continue
            self._read[id(node)] = node
            if (known := self._shape_numbers(node)) is not None:
                self.note_constants(known)
            else:
                self.note(node)

    def note(self, node: NodeProto) -> None:
        """What follows from the operands' types for the results of a node; what a Constant is."""
        from onnx import numpy_helper

        if node.op_type == "Constant" and [item.name for item in node.attribute] == ["value"]:
            tensor = node.attribute[0].t
            self._type_of_dims(node.output[0], tensor.data_type, tensor.dims)
            if prod(tensor.dims) <= _MOST:
                self.constants[node.output[0]] = numpy_helper.to_array(tensor)
        elif node.op_type == "Constant":
            try:
                self.note_constants(computed(node, {}, self._opset))
            except Refused:
                return
        else:
            self.types |= self._types_of(node)

    def note_constants(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name, array in arrays.items():
            self.constants[name], self.types[name] = array, type_of(array)

    def results(self, node: NodeProto) -> dict[str, NDArray[Any]] | None:
        """The results of a node of known constants or sizes; None where they are not known, or too large."""
        names = [name for name in node.input if name]
        if not names or not computable(node):
            return None
        if node.op_type in ("Shape", "Size"):
            kind = self.types.get(names[0])
            size = None if kind is None else sizes(kind)
            if size is None:
                return None
            part = attributes(node)
            whole = np.array(size, np.int64)[slice(part.get("start"), part.get("end"))]
            return {node.output[0]: whole if node.op_type == "Shape" else np.array(prod(size), np.int64)}
        if any(name not in self.constants for name in names):
            return None
        types = self._types_of(node)
        known = [sizes(types[name]) if name in types else None for name in node.output]
        if any(size is None or prod(size) > _MOST for size in known):
            return None
        try:
            return computed(node, self.constants, self._opset)
        except Refused:
            return None  # whoever reads it says so

    def _shape_numbers(self, node: NodeProto) -> dict[str, NDArray[Any]] | None:
        """The results of a node, where they are whole numbers that a shape may follow from."""
        names = [name for name in node.input if name]
        if node.op_type not in ("Shape", "Size") and any(
            name not in self.constants or self.constants[name].size > _SHAPES or self.constants[name].dtype.kind == "f"
            for name in names
        ):
            return None
        return self.results(node)

    def _has_sizes(self, names: Iterable[str]) -> bool:
        return all(name in self.types and sizes(self.types[name]) is not None for name in names if name)

    def _types_of(self, node: NodeProto) -> dict[str, TypeProto]:
        return result_types(node, self.types, self.constants, self._opset)

    def _type_of_dims(self, name: str, element: int, dims: Iterable[int]) -> None:
        from onnx import helper

        self.types[name] = helper.make_tensor_type_proto(element, list(dims))


def _with_sizes_alone(kind: TypeProto) -> TypeProto:
    """The type of an input whose sizes below 1 are open."""
    copy = type(kind)()
    copy.CopyFrom(kind)
    for dim in copy.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value < 1:
            dim.ClearField("dim_value")
    return copy
