"""Softmax and normalisations.

A softmax and a standardisation are taken of all pixels of a channel (`workload.normalisation`), so what they go over
has to lie along pixels: products are made that way round if a softmax follows, and other tensors are transposed before
and, for a layer normalisation, behind.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..building.context import FloatContext, Operator
from ..building.layers import emit_affine, numbers_by_channel
from ..building.maps import emit_constant, emit_map
from ..building.pictures import lay, place, settle, turn
from ..building.views import View, turn_index, turn_size
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..pointwise import function


def softmax(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view, old = settle(context, node.input[0]), context.model.opset < 13
    axis = attributes.get("axis", 1 if old else -1) % len(view.shape)
    # before opset 13 all axes from there on go together
    last = view.order.reshape(*view.shape[:axis], -1) if old else np.moveaxis(view.order, axis, -1)
    x, _ = lay(context, node.input[0], view, np.ascontiguousarray(last.reshape(-1, last.shape[-1])), as_wholes=True)
    less = FloatLayer("normalise", context.fresh(f"{node.output[0]}/less"), (x.value,), by="max")
    context.emit(less, x.size)
    powers = context.fresh(f"{node.output[0]}/exponentials")
    context.emit(FloatLayer("table", powers, (less.output,), function=function("Exp")), x.size)
    if view.value in context.masks:
        mask = context.masks[view.value][last.reshape(x.size)]
        factor = emit_map(context, mask, x, f"{node.output[0]}/kept")
        left = context.fresh(f"{node.output[0]}/left")
        context.emit(FloatLayer("mul", left, (powers, factor)), x.size)
        powers = left
    context.emit(FloatLayer("normalise", node.output[0], (powers,), by="sum"), x.size)
    index = np.arange(last.size).reshape(last.shape)
    index = index.reshape(view.shape) if old else np.moveaxis(index, -1, axis)
    context.keep_view(node.output[0], context.views[node.output[0]].moved(np.ascontiguousarray(index)))


def layer_normalisation(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if any(context.model.uses[name] for name in node.output[1:] if name):
        raise Refused("its mean and deviation are used")
    view = settle(context, node.input[0])
    axis = attributes.get("axis", -1) % len(view.shape)
    standardise(context, node, view, axis, attributes.get("epsilon", 1e-5))


def rms_normalisation(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    axis = attributes.get("axis", -1) % len(view.shape)
    standardise(context, node, view, axis, attributes.get("epsilon", 1e-5), centred=False)


def instance_normalisation(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    if view.shape[0] != 1 or len(view.shape) < 3:
        raise Refused(f"its operand has shape {list(view.shape)}, must be [1, channels, ...]")
    standardise(context, node, view, 2, attributes.get("epsilon", 1e-5), along=(-1, *(1 for _ in view.shape[2:])))


def standardise(
    context: FloatContext,
    node: Node,
    view: View,
    axis: int,
    epsilon: float,
    along: tuple[int, ...] | None = None,
    centred: bool = True,
) -> None:
    """Over all axes from `axis` on; then the node's gains and offsets, of shape `along` if that is not theirs.
    `centred`: whether the mean is taken off."""
    scale, bias = (context.optional(node, index, what) for index, what in ((1, "scale"), (2, "bias")))
    plain = all(array is None or np.all(array == one) for array, one in ((scale, 1), (bias, 0)))
    rows = prod(view.shape[:axis])
    laid = view.order.reshape(rows, -1)
    places = np.arange(view.order.size)
    pixels = view.size[1] * view.size[2]
    channels, more = divmod(places.size, pixels)
    if rows == 1 and 1 < pixels < channels and not more and np.array_equal(laid[0], places):
        # all of the first channels, pixel by pixel: fewer parts than channel by channel
        places = places.reshape(-1, channels).T.ravel()
        laid = laid.reshape(channels, -1).T.reshape(1, -1)
    x, groups = lay(context, node.input[0], view, np.ascontiguousarray(laid), as_wholes=True)
    operand = x.value
    if centred:
        operand = context.fresh(f"{node.output[0]}/less")
        context.emit(FloatLayer("normalise", operand, (x.value,), by="mean"), x.size)
    last = node.output[0] if plain and not groups else context.fresh(f"{node.output[0]}/even")
    even = FloatLayer("normalise", last, (operand,), by="root", epsilon=epsilon)
    context.emit(even, x.size)
    result = context.views[last].moved(places.reshape(view.shape))
    if groups:  # back to where channels and pixels were
        last = node.output[0] if plain else context.fresh(f"{node.output[0]}/back")
        size = view.size[0], 1, view.size[1] * view.size[2]
        context.emit(FloatLayer("transpose", last, (even.output,), groups=groups), size)
        result = context.views[last].moved(view.order)
    context.keep_view(last, result)
    if not groups and x.size[0] < view.size[0] and _is_whole_map(view):
        result = _apart(context, result, view, np.argsort(laid.ravel()), last)
        if plain:
            context.views[node.output[0]] = result
    if plain:
        return
    ones, zeros = np.ones(1), np.zeros(1)
    factors = [
        default if array is None else array.reshape(along or array.shape)
        for array, default in ((scale, ones), (bias, zeros))
    ]
    try:
        gain, offset = (numbers_by_channel(context, array, result) for array in factors)
    except Refused:  # a number for each pixel, which becomes a channel
        result = replace(
            result, value=turn(context, result.value, result.size, 1), size=turn_size(result.size, 1)
        ).moved(turn_index(result.order, result.size, 1))
        try:
            gain, offset = (numbers_by_channel(context, array, result) for array in factors)
        except Refused:  # a number for each element
            factor, term = (emit_constant(context, array, result, node.output[0]) for array in factors)
            scaled = context.fresh(f"{node.output[0]}/scaled")
            context.emit(FloatLayer("mul", scaled, (result.value, factor.value)), result.size)
            context.emit_like(FloatLayer("add", node.output[0], (scaled, term.value)), result)
            return
    w, bias = gain[:, None, None, None].copy(), offset.copy()
    context.emit_like(FloatLayer("depthwise", node.output[0], (result.value,), w=w, bias=bias), result)


def _is_whole_map(view: View) -> bool:
    return view.size[1] * view.size[2] > 1 and np.array_equal(np.sort(view.order.ravel()), np.arange(prod(view.size)))


def _apart(context: FloatContext, result: View, view: View, order: NDArray[np.int64], name: str) -> View:
    """A result whose maps lie behind or below each other, as maps beside each other again, if that can be made.
    `order`: for each element of the operand's value the one of the result's."""
    whole = View(result.value, result.size, (1, *view.size), order.reshape(1, *view.size))
    try:
        picture = place(context, context.fresh(f"{name}/apart"), whole)
    except Refused:
        return result
    return replace(view, value=picture.value, single=False)


def batch_normalisation(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if attributes.get("training_mode") or len([name for name in node.output if name]) > 1:
        raise Refused("training_mode; export the model for inference")
    names = ("scale", "bias", "mean", "variance")
    gain, offset, mean, variance = (
        context.constant(node, index, what).astype(np.float64) for index, what in enumerate(names, start=1)
    )
    view = context.view(node.input[0])
    if len(view.shape) < 2 or view.shape[1] != len(gain):
        raise Refused(f"{len(gain)} channels for an operand of shape {list(view.shape)}")
    gain = gain / np.sqrt(variance + attributes.get("epsilon", 1e-5))
    along = (-1, *(1 for _ in view.shape[2:]))
    both = gain.reshape(along), (offset - gain * mean).reshape(along)
    try:
        numbers = [numbers_by_channel(context, array, view) for array in both]
    except Refused:  # its channels are pixels of the value
        view, scaled = settle(context, node.input[0]), context.fresh(f"{node.output[0]}/scaled")
        factor = emit_constant(context, both[0], view, scaled)
        context.emit_like(FloatLayer("mul", scaled, (view.value, factor.value)), view)
        view = context.views[scaled]
        term = emit_constant(context, both[1], view, node.output[0])
        context.emit_like(FloatLayer("add", node.output[0], (view.value, term.value)), view)
        return
    emit_affine(context, node, node.input[0], *numbers)


OPERATORS: dict[str, Operator] = {
    "BatchNormalization": batch_normalisation,
    "InstanceNormalization": instance_normalisation,
    "LayerNormalization": layer_normalisation,
    "RMSNormalization": rms_normalisation,
    "SimplifiedLayerNormalization": rms_normalisation,
    "Softmax": softmax,
}
