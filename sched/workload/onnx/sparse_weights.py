"""Weights of which a file has only those that are not 0, as whole tensors: the chip multiplies zeros, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .bounds import check_size
from .errors import OnnxError, Refused
from .subgraphs import bodies, nodes_within

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto


def fill_sparse_weights(model: ModelProto, name: str) -> None:
    """Puts whole tensors in the place of sparse ones. `name` is for messages. Raises OnnxError for one that is too
    large, or whose places are none."""
    nodes = [inner for outer in model.graph.node for inner in nodes_within(outer)]
    nodes += [inner for function in model.functions for outer in function.node for inner in nodes_within(outer)]
    for graph in (model.graph, *(body for node in nodes for body in bodies(node))):
        _fill(graph, name)
    for node in nodes:
        for item in node.attribute:
            if node.op_type == "Constant" and item.name == "sparse_value":
                whole = _whole(item.sparse_tensor, node.output[0], name)
                item.Clear()
                item.name, item.type = "value", item.TENSOR
                item.t.CopyFrom(whole)


def _fill(graph: GraphProto, name: str) -> None:
    graph.initializer.extend(_whole(item, item.values.name, name) for item in graph.sparse_initializer)
    del graph.sparse_initializer[:]


def _whole(sparse: SparseTensorProto, tensor: str, name: str) -> TensorProto:
    from onnx import numpy_helper

    where = f"{name}: sparse tensor {tensor!r} of shape {list(sparse.dims)}"
    try:
        check_size(sparse.dims, "as a whole it")
        values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
        whole = np.zeros(tuple(sparse.dims), values.dtype)
        if places.ndim == 1:
            whole.ravel()[places] = values  # a view: what is new lies in one piece
        else:
            whole[tuple(places.T)] = values
    except Refused as refusal:
        raise OnnxError(f"{where}: {refusal}") from refusal
    except (IndexError, ValueError, TypeError) as error:
        raise OnnxError(f"{where}: its values have places that it has not ({error}); export it again") from error
    return numpy_helper.from_array(whole, tensor)
