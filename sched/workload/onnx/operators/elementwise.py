"""Sums, differences, products and quotients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..building.context import FloatContext, Operator
from ..building.layers import emit_affine, numbers_by_channel
from ..building.maps import emit_constant
from ..building.pictures import settle
from ..building.tables import apply_function, or_table
from ..building.views import View
from ..errors import Refused
from ..floats import FloatLayer, PerChannel
from ..load import Attributes
from ..pointwise import function
from .pairs_of_tensors import emit_product, emit_sum, split_sum

if TYPE_CHECKING:
    from onnx import NodeProto

#: Gain and offset, channel by channel, that stand for an operator with a constant.
_Affine = Callable[[NDArray[np.float64]], PerChannel]


def add(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    if any(name in context.constants for name in node.input):
        _with_constant(context, node, lambda x: (np.ones_like(x), x), lambda x: (np.ones_like(x), x))
        return
    if len(node.input) == 1:
        context.pass_on(node)
        return
    if len(node.input) == 2:
        emit_sum(context, node, settle(context, node.input[0]), settle(context, node.input[1]))
        return
    context.only_if_generous(f"adds {len(node.input)} tensors; an addition has two")
    for part in split_sum(node):
        emit_sum(context, part, settle(context, part.input[0]), settle(context, part.input[1]))


def subtract(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    if any(name in context.constants for name in node.input):
        _with_constant(context, node, lambda x: (np.ones_like(x), -x), lambda x: (-np.ones_like(x), x))
        return
    second = apply_function(context, settle(context, node.input[1]), f"{node.output[0]}/negative", function("Neg"))
    emit_sum(context, node, settle(context, node.input[0]), second)


def multiply(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    if any(name in context.constants for name in node.input):
        _with_constant(context, node, lambda x: (x, np.zeros_like(x)), lambda x: (x, np.zeros_like(x)))
        return
    emit_product(context, node, settle(context, node.input[0]), settle(context, node.input[1]))


def divide(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    if node.input[1] in context.constants:
        if not np.all(context.constants[node.input[1]]):
            raise Refused("divides by zero")
        _with_constant(context, node, lambda x: (1 / x, np.zeros_like(x)), lambda x: (1 / x, np.zeros_like(x)))
        return
    divisor = apply_function(
        context, settle(context, node.input[1]), f"{node.output[0]}/reciprocal", function("Reciprocal")
    )
    if node.input[0] in context.constants:
        gain = numbers_by_channel(context, context.constants[node.input[0]], divisor)
        w, zeros = gain[:, None, None, None], np.zeros(divisor.channels)
        context.emit_like(FloatLayer("depthwise", node.output[0], (divisor.value,), w=w, bias=zeros), divisor)
        return
    emit_product(context, node, settle(context, node.input[0]), divisor)


def negate(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    channels = context.view(node.input[0]).channels
    emit_affine(context, node, node.input[0], -np.ones(channels), np.zeros(channels))


def _with_constant(context: FloatContext, node: NodeProto, right: _Affine, left: _Affine) -> None:
    """`right`, `left`: gain and offset for a constant on that side of the operator."""
    which = 1 if node.input[1] in context.constants else 0
    name = node.input[1 - which]
    view, numbers = context.view(name), context.constants[node.input[which]]
    try:
        gain, offset = (right if which else left)(numbers_by_channel(context, numbers, view))
    except Refused:
        if np.broadcast_shapes(numbers.shape, view.shape) != view.shape:
            raise
        _emit_by_pixels(context, node, settle(context, name), *(right if which else left)(numbers.astype(np.float64)))
        return
    emit_affine(context, node, name, gain, offset)


def _emit_by_pixels(
    context: FloatContext, node: NodeProto, view: View, gain: NDArray[np.float64], offset: NDArray[np.float64]
) -> None:
    """gain * x + offset, where one of them differs from pixel to pixel and the other is 1, -1 or 0."""
    if np.any(gain != gain.flat[0]):
        factor = emit_constant(context, gain, view, node.output[0])
        context.emit_like(FloatLayer("mul", node.output[0], (view.value, factor.value)), view)
        return
    if gain.flat[0] < 0:
        view = apply_function(context, view, f"{node.output[0]}/negative", function("Neg"))
    term = emit_constant(context, offset, view, node.output[0])
    context.emit_like(FloatLayer("add", node.output[0], (view.value, term.value)), view)


OPERATORS: dict[str, Operator] = {
    "Div": or_table(divide),
    "Mul": or_table(multiply),
    "Neg": or_table(negate),
    "Sub": or_table(subtract),
    "Sum": or_table(add),
}
