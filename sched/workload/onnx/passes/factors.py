"""Products over an axis as those of its parts, one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..load import CheckedModel, Node, attributes

#: Factors that are written down.
_MOST = 64


def multiply_parts(model: CheckedModel) -> CheckedModel:
    """The model with products of parts in place of ReduceProd over one axis whose size is known."""
    return model.with_nodes([other for node in model.nodes for other in _instead(model, node)])


def _instead(model: CheckedModel, node: Node) -> Iterator[Node]:
    """The nodes that take the place of a node."""
    from onnx import helper, numpy_helper

    if node.op_type != "ReduceProd":
        yield node
        return
    shape, options = model.input_sizes.get(node.input[0]) or model.inferred.get(node.input[0]) or (), attributes(node)
    axes = np.array(options.get("axes", ()), np.int64)
    if len(node.input) > 1:
        axes = model.constants.get(node.input[1], axes)
    if axes.size != 1 or not shape or shape[int(axes[0])] > _MOST:
        yield node
        return
    axis, result = int(axes[0]) % len(shape), node.output[0]

    def constant(array: NDArray[np.int64], name: str) -> Node:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))

    def name(at: int) -> str:
        return f"{result}//product{at}"

    for at in range(shape[axis]):
        yield constant(np.array([at], np.int64), f"{result}//{at}")
        yield helper.make_node("Gather", [node.input[0], f"{result}//{at}"], [f"{result}//part{at}"], axis=axis)
        factors = [f"{result}//part{at}"] if not at else [name(at - 1), f"{result}//part{at}"]
        yield helper.make_node("Mul" if at else "Identity", factors, [name(at)], node.name)
    sizes = [size for index, size in enumerate(shape) if index != axis]
    kept = [*shape[:axis], 1, *shape[axis + 1 :]] if options.get("keepdims", 1) else sizes
    yield constant(np.array(kept, np.int64), f"{result}//sizes")
    yield helper.make_node("Reshape", [name(shape[axis] - 1), f"{result}//sizes"], [result], node.name)
