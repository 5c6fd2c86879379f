"""Models in bfloat16: in float32 they are the same numbers, which ONNX Runtime computes with on any processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .subgraphs import bodies

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


def widen_brain_floats(model: ModelProto) -> None:
    """Changes a model so that all of its bfloat16 is float32: constants, inputs, outputs, what casts make."""
    _widen(model.graph)


def _widen(graph: GraphProto) -> None:
    from onnx import TensorProto, numpy_helper

    narrow, wide = TensorProto.BFLOAT16, TensorProto.FLOAT

    def widened(tensor: TensorProto) -> None:
        if tensor.data_type == narrow and not (tensor.raw_data or tensor.int32_data):
            tensor.data_type = wide  # a file of shapes alone
        elif tensor.data_type == narrow:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))

    for tensor in graph.initializer:
        widened(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == narrow:
            value.type.tensor_type.elem_type = wide
    for node in graph.node:
        for item in node.attribute:
            if item.HasField("t"):
                widened(item.t)
            if item.name in ("to", "dtype", "output_dtype", "stash_type") and item.i == narrow:
                item.i = wide
        for body in bodies(node):
            _widen(body)
