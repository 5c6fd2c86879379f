"""Sums, differences, products, quotients and extremes, of two tensors or of one and a constant."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import PastePlace, Window
from ..building.context import FloatContext, Operator
from ..building.layers import emit_affine, numbers_by_channel
from ..building.maps import emit_constant
from ..building.pictures import place, settle, spread, unrepeated
from ..building.tables import apply_function, emit_table, find_function, or_table
from ..building.views import NO_PAD, View, layout_of, natural
from ..errors import Refused
from ..floats import FloatLayer, PerChannel
from ..nodes import Attributes, Node
from ..pointwise import function


def emit_sum(context: FloatContext, node: Node, a: View, b: View) -> None:
    shape = _common_shape(a, b)
    if a.shape == b.shape and a.size == b.size and np.array_equal(a.order, b.order):
        context.emit_like(FloatLayer("add", node.output[0], (a.value, b.value)), a)
        return
    for first, second in ((a, b), (b, a)):
        if first.shape == shape and first.order.size == prod(first.size) and _is_factor(first, second):
            ones = apply_function(context, first, f"{node.output[0]}/ones", function("Clip", 1.0, 1.0))
            layer = FloatLayer("mul", context.fresh(f"{node.output[0]}/spread"), (ones.value, second.value))
            context.emit(layer, first.size)
            context.emit_like(FloatLayer("add", node.output[0], (first.value, layer.output)), first)
            return
    _emit_of_pictures(context, "add", node, a, b)


def emit_product(context: FloatContext, node: Node, a: View, b: View) -> None:
    shape = _common_shape(a, b)
    for first, second in ((a, b), (b, a)):
        alike = first.size == second.size and first.shape == second.shape
        if first.shape == shape and (
            (alike and np.array_equal(first.order, second.order)) or _is_factor(first, second)
        ):
            context.emit_like(FloatLayer("mul", node.output[0], (first.value, second.value)), first)
            return
    _emit_of_pictures(context, "mul", node, a, b)


def _emit_of_pictures(context: FloatContext, kind: Any, node: Node, a: View, b: View) -> None:
    """Of tensors whose elements lie otherwise, or that are repeated: of pictures made of them."""
    shape = _common_shape(a, b)
    if _emit_of_layouts(context, kind, node, a, b):
        return
    if len(shape) not in (3, 4) or shape[0] != 1:
        wide = [view.moved(np.ascontiguousarray(np.broadcast_to(view.order, shape))) for view in (a, b)]
        first, second = (
            spread(context, context.fresh(f"{node.output[0]}/{index}"), view) for index, view in enumerate(wide)
        )
        context.emit_like(FloatLayer(kind, node.output[0], (first.value, second.value)), first)
        return
    picture = shape if len(shape) == 4 else (*shape[:2], 1, shape[2])
    views: list[View] = []
    for index, view in enumerate((a, b)):
        order = np.broadcast_to(view.order, shape).reshape(picture)
        name = node.input[index] if view.value == context.views[node.input[index]].value else node.output[0]
        views.append(place(context, name, view.moved(np.ascontiguousarray(order))))
    context.emit(FloatLayer(kind, node.output[0], (views[0].value, views[1].value)), views[0].size)
    context.see_as(node.output[0], shape)


def _emit_of_layouts(context: FloatContext, kind: Any, node: Node, a: View, b: View) -> bool:
    """Of tensors whose channels and pixels are other axes than those of a picture: of both in the layout of one."""
    shape = _common_shape(a, b)
    views = [view.moved(np.ascontiguousarray(np.broadcast_to(view.order, shape))) for view in (a, b)]
    whole = [view for view in (a, b) if view.shape == shape]
    layouts = [layout for view in whole if (layout := layout_of(view)) is not None]
    if not layouts or any(natural(view) == tuple(range(len(shape))) for view in whole):
        return False
    layout = layouts[0]
    parts: list[View] = []
    for index, view in enumerate(views):
        laid = layout.of(view.order)
        row = view.moved(laid.reshape(1, len(laid), 1, -1))
        name = node.input[index] if (a, b)[index].shape == shape else context.fresh(f"{node.output[0]}/{index}")
        parts.append(place(context, name, row))
    context.emit(FloatLayer(kind, node.output[0], (parts[0].value, parts[1].value)), parts[0].size)
    context.keep_view(node.output[0], context.views[node.output[0]].moved(layout.index(shape)))
    return True


def lay_like(context: FloatContext, name: str, like: View, output: str) -> View:
    """A tensor, repeated where its shape is smaller, whose elements lie as those of another do."""
    view = settle(context, name)
    if view.size == like.size and view.shape == like.shape and np.array_equal(view.order, like.order):
        return view
    index = np.zeros(prod(like.size), np.int64)
    index[like.order.ravel()] = np.broadcast_to(view.order, like.shape).ravel()
    return replace(place(context, output, view.moved(index.reshape(1, *like.size))), shape=like.shape, index=like.index)


def split_sum(node: Node, constants: Container[str]) -> list[Node]:
    """A sum of several tensors as sums of two, one after the other, constants last."""
    from onnx import helper

    sums: list[Node] = []
    first, *others = sorted(node.input, key=lambda name: name in constants)
    for index, second in enumerate(others):
        last = index == len(node.input) - 2
        output = node.output[0] if last else f"{node.output[0]}/of{index + 2}"
        sums.append(helper.make_node("Sum", [first, second], [output], output))
        first = output
    return sums


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


#: Gain and offset, channel by channel, that stand for an operator with a constant.
_Affine = Callable[[NDArray[np.float64]], PerChannel]


def add(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if len(node.input) == 1:
        context.pass_on(node)
    elif len(node.input) > 2:
        context.only_if_generous(f"adds {len(node.input)} tensors; an addition has two")
        for part in split_sum(node, context.constants):
            add(context, part, attributes)
    elif any(name in context.constants for name in node.input):
        _with_constant(context, node, lambda x: (np.ones_like(x), x), lambda x: (np.ones_like(x), x))
    else:
        emit_sum(context, node, settle(context, node.input[0]), settle(context, node.input[1]))


def subtract(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if any(name in context.constants for name in node.input):
        _with_constant(context, node, lambda x: (np.ones_like(x), -x), lambda x: (-np.ones_like(x), x))
        return
    second = apply_function(context, settle(context, node.input[1]), f"{node.output[0]}/negative", function("Neg"))
    emit_sum(context, node, settle(context, node.input[0]), second)


def multiply(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if any(name in context.constants for name in node.input):
        _with_constant(context, node, lambda x: (x, np.zeros_like(x)), lambda x: (x, np.zeros_like(x)))
        return
    emit_product(context, node, settle(context, node.input[0]), settle(context, node.input[1]))


def divide(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if node.input[1] in context.constants:
        if not np.all(context.constants[node.input[1]]):
            raise Refused("divides by zero")
        _with_constant(context, node, lambda x: (1 / x, np.zeros_like(x)), lambda x: (1 / x, np.zeros_like(x)))
        return
    divisor = apply_function(
        context, settle(context, node.input[1]), f"{node.output[0]}/reciprocal", function("Reciprocal")
    )
    if node.input[0] in context.constants:
        numbers = context.constants[node.input[0]]
        try:
            gain = numbers_by_channel(context, numbers, divisor)
        except Refused:
            if np.broadcast_shapes(numbers.shape, divisor.shape) != divisor.shape:
                raise
            _emit_by_pixels(context, node, divisor, numbers.astype(np.float64), np.zeros(1))
            return
        w, zeros = gain[:, None, None, None], np.zeros(divisor.channels)
        context.emit_like(FloatLayer("depthwise", node.output[0], (divisor.value,), w=w, bias=zeros), divisor)
        return
    emit_product(context, node, settle(context, node.input[0]), divisor)


def negate(context: FloatContext, node: Node, attributes: Attributes) -> None:
    channels = context.view(node.input[0]).channels
    emit_affine(context, node, node.input[0], -np.ones(channels), np.zeros(channels))


def _with_constant(context: FloatContext, node: Node, right: _Affine, left: _Affine) -> None:
    """`right`, `left`: gain and offset for a constant on that side of the operator."""
    which = 1 if node.input[1] in context.constants else 0
    name = node.input[1 - which]
    view, numbers = context.view(name), context.constants[node.input[which]]
    if _meets_zeros(numbers, view):
        view = settle(context, name)
    shape = np.broadcast_shapes(numbers.shape, view.shape)
    if shape != view.shape and prod(shape) == prod(view.shape) and view.pad == NO_PAD:  # more axes of size 1
        name = context.fresh(f"{name}/wide")
        view = context.views[name] = replace(view.moved(view.order.reshape(shape)), single=False)
    elif shape != view.shape:  # each of its numbers beside several constants
        context.only_if_generous(f"a constant of shape {list(numbers.shape)} does not fit {list(view.shape)}")
        wide = np.ascontiguousarray(np.broadcast_to(settle(context, name).order, shape))
        view = spread(context, context.fresh(f"{name}/wide"), context.view(name).moved(wide))
        name = context.fresh(f"{name}/wide")
        context.views[name] = replace(view, single=False)
    try:
        gain, offset = (right if which else left)(numbers_by_channel(context, numbers, view))
    except Refused:
        if np.broadcast_shapes(numbers.shape, view.shape) != view.shape:
            raise
        _emit_by_pixels(context, node, settle(context, name), *(right if which else left)(numbers.astype(np.float64)))
        return
    emit_affine(context, node, name, gain, offset)


def _meets_zeros(numbers: NDArray[Any], view: View) -> bool:
    """Whether a constant has several numbers along an axis of which zeros are still to come."""
    sizes = zip(reversed(numbers.shape), reversed(view.shape), reversed(view.padded_shape), strict=False)
    return any(size > 1 and inside != whole for size, inside, whole in sizes)


def _emit_by_pixels(
    context: FloatContext, node: Node, view: View, gain: NDArray[np.float64], offset: NDArray[np.float64]
) -> None:
    """gain * x + offset, where one of them differs from pixel to pixel and the other is 1, -1 or 0."""
    view = unrepeated(context, f"{node.output[0]}/each", view)
    if np.any(gain != gain.flat[0]):
        factor = emit_constant(context, gain, view, node.output[0])
        context.emit_like(FloatLayer("mul", node.output[0], (view.value, factor.value)), view)
        return
    if gain.flat[0] < 0:
        view = apply_function(context, view, f"{node.output[0]}/negative", function("Neg"))
    term = emit_constant(context, offset, view, node.output[0])
    context.emit_like(FloatLayer("add", node.output[0], (view.value, term.value)), view)


def extremes(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """Max and Min: a table with one number; otherwise tensors whose columns take turns in one map, and the maximum
    of each few columns; Min of what is negative."""
    for name in node.input:
        if name in context.views:
            settle(context, name)
    if (composed := find_function(context, node)) is not None:
        emit_table(context, node, *composed)
        return
    context.only_if_generous("of several tensors, or with constants that differ from channel to channel")
    some = [name for name in node.input if name in context.views]
    shape = context.views[some[0]].shape
    for name in node.input:
        other = context.views[name].shape if name in context.views else context.constants[name].shape
        shape = np.broadcast_shapes(shape, other)
    like = next((settle(context, name) for name in some if context.views[name].shape == shape), None)
    if like is None or prod(shape) != prod(like.size):
        raise Refused(f"of tensors of which none has the result's shape {list(shape)}")
    names: list[str] = []
    for index, name in enumerate(node.input):
        if name in context.constants:
            view = emit_constant(context, context.constants[name], like, f"{node.output[0]}/{index}")
        else:
            view = lay_like(context, name, like, f"{node.output[0]}/{index}")
        if node.op_type == "Min":
            view = apply_function(context, view, f"{node.output[0]}/negative{index}", function("Neg"))
        names.append(view.value)
    count, (channels, rows, columns) = len(names), like.size
    places = tuple(PastePlace(0, at, 1, count, rows, columns) for at in range(count))
    beside = FloatLayer("paste", context.fresh(f"{node.output[0]}/beside"), tuple(names), places=places)
    context.emit(beside, (channels, rows, columns * count))
    last = node.output[0] if node.op_type == "Max" else context.fresh(f"{node.output[0]}/largest")
    window = Window(1, count, 1, count)
    context.emit(FloatLayer("max_pool", last, (beside.output,), window), like.size)
    context.keep_view(last, like)
    if node.op_type == "Min":
        context.emit_like(FloatLayer("table", node.output[0], (last,), function=function("Neg")), context.views[last])


OPERATORS: dict[str, Operator] = {
    "Div": or_table(divide),
    "Mul": or_table(multiply),
    "Neg": or_table(negate),
    "Sub": or_table(subtract),
    "Sum": or_table(add),
    "Max": extremes,
    "Min": extremes,
}
