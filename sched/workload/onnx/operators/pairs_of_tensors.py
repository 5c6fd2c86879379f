"""Sums and products of two tensors, whose elements may lie differently or be repeated."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..building.context import FloatContext
from ..building.pictures import arrange, settle
from ..building.tables import apply_function
from ..building.views import View
from ..errors import Refused
from ..floats import FloatLayer
from ..pointwise import function

if TYPE_CHECKING:
    from onnx import NodeProto


def emit_sum(context: FloatContext, node: NodeProto, a: View, b: View) -> None:
    shape = _common_shape(a, b)
    if a.shape == b.shape and a.size == b.size and np.array_equal(a.order, b.order):
        context.emit_like(FloatLayer("add", node.output[0], (a.value, b.value)), a)
        return
    for first, second in ((a, b), (b, a)):
        if first.shape == shape and _is_factor(first, second):
            ones = apply_function(context, first, f"{node.output[0]}/ones", function("Clip", 1.0, 1.0))
            layer = FloatLayer("mul", context.fresh(f"{node.output[0]}/spread"), (ones.value, second.value))
            context.emit(layer, first.size)
            context.emit_like(FloatLayer("add", node.output[0], (first.value, layer.output)), first)
            return
    _emit_of_pictures(context, "add", node, a, b)


def emit_product(context: FloatContext, node: NodeProto, a: View, b: View) -> None:
    shape = _common_shape(a, b)
    for first, second in ((a, b), (b, a)):
        alike = first.size == second.size and first.shape == second.shape
        if first.shape == shape and (
            (alike and np.array_equal(first.order, second.order)) or _is_factor(first, second)
        ):
            context.emit_like(FloatLayer("mul", node.output[0], (first.value, second.value)), first)
            return
    _emit_of_pictures(context, "mul", node, a, b)


def _emit_of_pictures(context: FloatContext, kind: Any, node: NodeProto, a: View, b: View) -> None:
    """Of tensors whose elements lie otherwise, or that are repeated: of pictures made of them."""
    shape = _common_shape(a, b)
    if len(shape) not in (3, 4) or shape[0] != 1:
        raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}, which no picture holds alike")
    picture = shape if len(shape) == 4 else (*shape[:2], 1, shape[2])
    views: list[View] = []
    for index, view in enumerate((a, b)):
        order = np.broadcast_to(view.order, shape).reshape(picture)
        name = node.input[index] if view.value == context.views[node.input[index]].value else node.output[0]
        views.append(_place(context, name, view.moved(np.ascontiguousarray(order))))
    context.emit(FloatLayer(kind, node.output[0], (views[0].value, views[1].value)), views[0].size)
    context.views[node.output[0]] = replace(context.views[node.output[0]], shape=shape)


def lay_like(context: FloatContext, name: str, like: View, output: str) -> View:
    """A tensor, repeated where its shape is smaller, whose elements lie as those of another do."""
    view = settle(context, name)
    if view.size == like.size and view.shape == like.shape and np.array_equal(view.order, like.order):
        return view
    found = np.zeros(prod(like.size), np.int64)
    found[like.order.ravel()] = np.broadcast_to(view.order, like.shape).ravel()
    return replace(
        _place(context, output, view.moved(found.reshape(1, *like.size))), shape=like.shape, index=like.index
    )


def _place(context: FloatContext, name: str, view: View) -> View:
    """As `arrange`, also for tensors that have no name in the file."""
    if name in context.views or view.is_picture:
        return arrange(context, name, view)
    context.views[name] = view
    made = arrange(context, name, view)
    del context.views[name]
    return made


def split_sum(node: NodeProto) -> list[NodeProto]:
    """A sum of several tensors as sums of two, one after the other."""
    from onnx import helper

    found: list[NodeProto] = []
    first = node.input[0]
    for index, second in enumerate(node.input[1:]):
        last = index == len(node.input) - 2
        output = node.output[0] if last else f"{node.output[0]}/of{index + 2}"
        found.append(helper.make_node("Sum", [first, second], [output], output))
        first = output
    return found


def _common_shape(a: View, b: View) -> tuple[int, ...]:
    """The shape of a result. Raises Refused."""
    try:
        return np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}, must be alike") from None


def _is_factor(first: View, second: View) -> bool:
    """Whether the second is one number for each channel of the first."""
    if second.size != (first.channels, 1, 1):
        return False
    return np.array_equal(np.broadcast_to(second.order, first.shape), first.channel_of)
