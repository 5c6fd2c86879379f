"""Resizes of maps whose channels are the last axis, as TensorFlow has them: those of maps with channels first."""

from __future__ import annotations

import numpy as np

from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes

#: Axes of channels first, of channels last, and the other way round.
_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def resize_with_channels_first(model: CheckedModel) -> CheckedModel:
    """The model with a Transpose before and behind each Resize along the second and third of four axes."""
    return model.with_nodes([other for node in model.nodes for other in _instead(model, node)])


def _instead(model: CheckedModel, node: Node) -> list[Node]:
    """The nodes that take the place of a node."""
    at = _operand(model, node)
    if at is None:
        return [node]
    instead, copy = Instead(node), type(node)()
    copy.CopyFrom(node)
    copy.input[at] = instead.array(model.constants[node.input[at]][list(_FIRST)])
    copy.input[0] = instead.op("Transpose", node.input[0], perm=_FIRST)
    copy.output[0] = instead.new("Resize")
    instead.nodes.append(copy)
    instead.op("Transpose", copy.output[0], to=node.output[0], perm=_LAST)
    return instead.nodes


def _operand(model: CheckedModel, node: Node) -> int | None:
    """Which operand says the sizes (3) or scales (2) of a Resize of channels last; None of another node."""
    if (
        node.op_type != "Resize"
        or len(node.input) < 3
        or attributes(node).keys() & {"axes", "keep_aspect_ratio_policy"}
    ):
        return None
    at = 3 if len(node.input) > 3 and node.input[3] else 2
    numbers = model.constants.get(node.input[at])
    if numbers is None or numbers.size != 4:
        return None
    before = model.shapes.get(node.input[0], ())
    if at == 3 and len(before) != 4:
        return None
    same = numbers == (np.ones(4) if at == 2 else np.asarray(before))
    return at if same[0] and same[3] and not same[1] else None
