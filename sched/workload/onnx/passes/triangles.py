"""Triangles of computed tensors are products with ones and zeros."""

from __future__ import annotations

import numpy as np

from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes

#: Of longer axes the constant would take more room than the tensors.
_LONGEST = 4096


def multiply_by_triangles(model: CheckedModel) -> CheckedModel:
    """The model with products in place of Trilu, where the sizes of the axes are known."""
    return model.with_nodes([other for node in model.nodes for other in _instead(model, node)])


def _instead(model: CheckedModel, node: Node) -> list[Node]:
    """The nodes that take the place of a node."""
    if node.op_type != "Trilu" or node.input[0] in model.constants:
        return [node]
    shape = model.shapes.get(node.input[0], ())
    shift = model.constants.get(node.input[1]) if len(node.input) > 1 and node.input[1] else np.zeros(1)
    if shift is None or len(shape) < 2 or max(shape[-2:]) > _LONGEST:
        return [node]
    cut = np.triu if attributes(node).get("upper", 1) else np.tril
    instead = Instead(node)
    stays = instead.array(cut(np.ones(shape[-2:], np.float32), int(shift.ravel()[0])))
    instead.op("Mul", node.input[0], stays, to=node.output[0])
    return instead.nodes
