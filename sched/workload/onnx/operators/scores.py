"""Scores of an attention: masks that take some of them out before their softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..building.context import FloatContext, Operator
from ..building.maps import emit_constant
from ..building.pictures import settle
from ..building.tables import or_table
from ..building.views import View
from ..errors import Refused
from ..floats import FloatLayer
from ..load import Attributes, Node
from ..load import attributes as attributes_of
from .elementwise import add

#: Operators between the scores of an attention and their softmax.
_ON_SCORES = {"Add", "Cast", "Clip", "Div", "Identity", "Max", "Mul", "Sub", "Tanh", "Where"}

#: What is less than this, added to a score, takes it out of the softmax ...
_MASKED = 500.0

#: ... and what such scores become: less than any that a softmax would not overlook, and nothing that asks for a step.
_GONE = 64.0


def meets_softmax(context: FloatContext, name: str) -> bool:
    """Whether a softmax over the last axis follows, with nothing but functions of single scores between."""
    for reader in context.model.nodes:
        if name not in reader.input:
            continue
        if reader.op_type in ("Softmax", "LogSoftmax"):
            rank = len(context.model.inferred.get(name, ())) or 4
            axis = attributes_of(reader).get("axis", 1 if context.model.opset < 13 else -1)
            return axis % rank == rank - 1
        if reader.op_type in _ON_SCORES and meets_softmax(context, reader.output[0]):
            return True
    return False


def add_to_scores(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """An addition of a constant to scores whose least numbers (minus infinity, say) mean that a score is not there:
    scores of -`_GONE` instead, and no share behind the exponentials. Others as always."""
    constants = [name for name in node.input if name in context.constants]
    if len(constants) == len(node.input) - 1 == 1 and meets_softmax(context, node.output[0]):
        numbers = context.constants[constants[0]].astype(np.float64)
        if numbers.size and numbers.min() < -_MASKED <= numbers.max():
            scores = next(name for name in node.input if name != constants[0])
            _mask(context, node, scores, numbers >= -_MASKED, np.where(numbers < -_MASKED, 0.0, numbers))
            return
    add(context, node, attributes)


def where(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """Scores where a constant says so, and something very small elsewhere, before a softmax."""
    condition, low, scores = context.constant(node, 0, "condition").astype(bool), *node.input[1:]
    context.only_if_generous("no layer does that")
    mask = ~condition
    if low in context.views:
        low, scores, mask = scores, low, condition
    if low not in context.constants or not meets_softmax(context, node.output[0]):
        raise Refused("chooses between tensors; only scores before a softmax are masked")
    if np.any(context.constants[low] >= -_MASKED):
        raise Refused(f"masks scores with {float(context.constants[low].max()):g}; must be below {-_MASKED:g}")
    _mask(context, node, scores, mask, np.zeros(1))


def _mask(context: FloatContext, node: Node, name: str, mask: NDArray[np.bool_], term: NDArray[np.float64]) -> None:
    view = settle(context, name)
    mask = np.broadcast_to(mask, view.shape)
    if np.all(mask):
        context.see(node, view)
        return
    if not mask.any(axis=-1).all():
        raise Refused("masks whole rows of scores")
    output = node.output[0]
    if np.any(term):
        view = _add_term(context, view, term, f"{output}/plus")
    ones = emit_constant(context, mask, view, f"{output}/kept")
    zero = context.fresh(f"{output}/zeros")
    context.emit(FloatLayer("mul", zero, (view.value, ones.value)), view.size)
    low = emit_constant(context, np.where(mask, 0.0, -_GONE), view, f"{output}/low")
    context.layers[low.value].gone = True
    total = FloatLayer("add", context.fresh(f"{output}/masked"), (zero, low.value), gone=True)
    context.emit(total, view.size)
    context.masks[total.output] = np.zeros(view.order.size, bool)
    context.masks[total.output][view.order.ravel()] = mask.ravel()
    context.views[output] = replace(view, value=total.output, single=True)


def _add_term(context: FloatContext, view: View, term: NDArray[np.float64], name: str) -> View:
    added = emit_constant(context, term, view, name)
    layer = FloatLayer("add", context.fresh(name), (view.value, added.value))
    context.emit(layer, view.size)
    return replace(view, value=layer.output, single=True)


OPERATORS: dict[str, Operator] = {"Add": or_table(add_to_scores), "Where": where}
