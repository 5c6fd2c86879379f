"""Products over an axis as those of its parts, one by one."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ..instead import Instead
from ..load import CheckedModel, Node, attributes

#: Factors that are written down.
_MOST = 64


def multiply_parts(model: CheckedModel) -> CheckedModel:
    """The model with products of parts in place of ReduceProd over one axis whose size is known."""
    return model.with_nodes([other for node in model.nodes for other in _instead(model, node)])


def _instead(model: CheckedModel, node: Node) -> list[Node]:
    """The nodes that take the place of a node."""
    if node.op_type != "ReduceProd":
        return [node]
    shape, options = model.input_sizes.get(node.input[0]) or model.inferred.get(node.input[0]) or (), attributes(node)
    axes = np.array(options.get("axes", ()), np.int64)
    if len(node.input) > 1:
        axes = model.constants.get(node.input[1], axes)
    if axes.size != 1 or not shape or shape[int(axes[0])] > _MOST:
        return [node]
    axis, instead = int(axes[0]) % len(shape), Instead(node)
    parts = [instead.op("Gather", node.input[0], instead.integers(at), axis=axis) for at in range(shape[axis])]
    whole = reduce(lambda before, part: instead.op("Mul", before, part), parts)
    sizes = [size for index, size in enumerate(shape) if index != axis]
    kept = [*shape[:axis], 1, *shape[axis + 1 :]] if options.get("keepdims", 1) else sizes
    instead.reshape(whole, *kept, to=node.output[0])
    return instead.nodes
