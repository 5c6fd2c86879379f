"""Scores of an attention: masks that take some of them out before their softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..building.context import FloatContext, Operator
from ..building.maps import emit_constant
from ..building.pictures import settle, unrepeated
from ..building.tables import emit_table, find_function, or_table
from ..building.views import View
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..nodes import attributes as attributes_of
from .elementwise import add, lay_like

#: Operators between the scores of an attention and their softmax.
_ON_SCORES = {"Add", "Cast", "Clip", "Div", "Identity", "Max", "Mul", "Sub", "Tanh", "Where"}

#: What is less than this, added to a score, takes it out of the softmax ...
_MASKED = 500.0

#: ... and what such scores become: less than any that a softmax would not overlook, and nothing that asks for a step.
_GONE = 64.0


def meets_softmax(context: FloatContext, name: str) -> bool:
    """Whether a softmax over the last axis follows, with nothing but functions of single scores between."""
    for reader in context.model.readers.get(name, ()):
        if reader.op_type in ("Softmax", "LogSoftmax"):
            rank = len(context.model.shapes.get(name, ())) or 4
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
    """A function of one tensor that chooses by it. Where a constant chooses: scores, and something very small
    elsewhere, before a softmax; otherwise the one times ones and zeros, and the other times zeros and ones."""
    if node.input[0] in context.views:
        _choose_by_value(context, node)
        return
    condition, low, scores = context.constant(node, 0, "condition").astype(bool), *node.input[1:]
    context.only_if_generous("no layer does that")
    mask = ~condition
    if low in context.views:
        low, scores, mask = scores, low, condition
    if (
        low in context.constants
        and scores in context.views
        and meets_softmax(context, node.output[0])
        and np.all(context.constants[low] < -_MASKED)
    ):
        _mask(context, node, scores, mask, np.zeros(1))
    else:
        _choose_by_place(context, node, condition)


def _choose_by_value(context: FloatContext, node: Node) -> None:
    for name in node.input[1:]:
        if name in context.views:
            settle(context, name)
    if (composed := find_function(context, node)) is None:
        raise Refused(
            f"its condition ({node.input[0]!r}) is computed of other tensors than what it chooses between; it must be "
            "a constant, or all be functions of one tensor"
        )
    emit_table(context, node, *composed)


def _choose_by_place(context: FloatContext, node: Node, condition: NDArray[np.bool_]) -> None:
    """Two tensors, or one and a constant: what is not chosen is multiplied by 0."""
    some = [settle(context, name) for name in node.input[1:] if name in context.views]
    shapes = [(context.views if name in context.views else context.constants)[name].shape for name in node.input[1:]]
    shape = np.broadcast_shapes(condition.shape, *shapes)
    whole = [view for view in some if view.shape == shape]
    if not whole:
        raise Refused(f"chooses between tensors of which none has the result's shape {list(shape)}")
    output, like = node.output[0], unrepeated(context, f"{node.output[0]}/each", whole[0])
    terms: list[str] = []
    rest = np.zeros(shape)
    for at, (name, mask) in enumerate(zip(node.input[1:], (condition, ~condition), strict=True)):
        mask = np.broadcast_to(mask, shape)
        if name in context.constants:
            rest = np.where(mask, context.constants[name].astype(np.float64), rest)
            continue
        view = lay_like(context, name, like, f"{output}/{at}")
        if mask.all():
            context.views[output] = replace(view, single=False)
            return
        if mask.any():
            factor = emit_constant(context, mask, like, f"{output}/chosen{at}")
            term = FloatLayer("mul", context.fresh(f"{output}/term{at}"), (view.value, factor.value))
            terms.append(context.emit(term, like.size))
    if np.any(rest) or not terms:
        terms.append(emit_constant(context, rest, like, f"{output}/rest").value)
    if len(terms) > 1:
        terms = [context.emit(FloatLayer("add", context.fresh(output), (terms[0], terms[1])), like.size)]
    context.keep_view(terms[0], like)
    context.views[output] = context.views[terms[0]]


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
