"""Models in bfloat16 or float64 in float32, for which ONNX Runtime has all operators, on any processor.

Numbers of bfloat16 are the same ones there. Those of float64 have more digits than 8 bits can tell apart; where only
some tensors have it, sizes may depend on them, and they stay.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np

from .subgraphs import bodies

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


def make_floats_single(model: ModelProto) -> None:
    """Changes a model so that all of its bfloat16 is float32: constants, inputs, outputs, what casts make. So is all of
    its float64 where an input has it."""
    from onnx import TensorProto

    constants = {item.name for item in model.graph.initializer}
    inputs = {value.type.tensor_type.elem_type for value in model.graph.input if value.name not in constants}
    _change(model.graph, {TensorProto.BFLOAT16, *({TensorProto.DOUBLE} & inputs)})


def _change(graph: GraphProto, kinds: Container[int]) -> None:
    from onnx import TensorProto, numpy_helper

    single = TensorProto.FLOAT

    def change(tensor: TensorProto) -> None:
        if tensor.data_type not in kinds:
            return
        if not (tensor.raw_data or tensor.int32_data or tensor.double_data):
            tensor.data_type = single  # a file of shapes alone
        else:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))

    for tensor in graph.initializer:
        change(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in kinds:
            value.type.tensor_type.elem_type = single
    for node in graph.node:
        for item in node.attribute:
            if item.HasField("t"):
                change(item.t)
            if item.name in ("to", "dtype", "output_dtype", "stash_type") and item.i in kinds:
                item.i = single
        for body in bodies(node):
            _change(body, kinds)
