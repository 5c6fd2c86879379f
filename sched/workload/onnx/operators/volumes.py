"""Convolutions and pools of three axes, as those of two: the third becomes channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import wraps
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.layers import require_finite
from ..building.pictures import place, settle
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from .convolutions import conv
from .elementwise import extremes
from .pools import average_pool, max_pool
from .reductions import global_average_pool, global_max_pool, reduce


def _of_volumes(usual: Operator, volumes: Operator) -> Operator:
    """An operator: as `usual`, and for an operand of five axes as `volumes`."""

    @wraps(usual)
    def read(context: FloatContext, node: Node, attributes: Attributes) -> None:
        some = context.views.get(node.input[0])
        (volumes if some is not None and len(some.shape) == 5 else usual)(context, node, attributes)

    return read


def _padded(attributes: Attributes, kernel: Sequence[int], size: Sequence[int]) -> Attributes:
    """The attributes with `pads` in place of `auto_pad`."""
    mode = attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return attributes
    strides, dilations = (list(attributes.get(name, (1, 1, 1))) for name in ("strides", "dilations"))
    pads = [0] * 6
    if mode != "VALID" and len(kernel) == len(strides) == len(dilations) == 3 and min(strides) > 0:
        for at, extent in enumerate(size):
            room = (-(-extent // strides[at]) - 1) * strides[at] + (kernel[at] - 1) * dilations[at] + 1 - extent
            less = max(0, room) // 2
            more = max(0, room) - less
            pads[at], pads[at + 3] = (less, more) if mode == "SAME_UPPER" else (more, less)
    return attributes | {"auto_pad": "NOTSET", "pads": pads} | ({} if mode == "VALID" else {"ceil_mode": 0})


def _three(attributes: Attributes, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, and zeros before and behind along three axes."""
    pads = list(attributes.get("pads", (0,) * 6))
    strides, dilations = (list(attributes.get(name, (1, 1, 1))) for name in ("strides", "dilations"))
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == 3 or min(*strides, *dilations) < 1:
        raise Refused("its kernel_shape, strides, dilations and pads are not of three axes, or less than 1")
    return strides, dilations, pads[:3], pads[3:]


def _flat(context: FloatContext, node: Node, deep: int) -> str:
    """A name for the operand with axis `deep` of rows, columns and what is behind them as part of the channels."""
    view = settle(context, node.input[0])
    rest = [axis for axis in (2, 3, 4) if axis != deep + 2]
    order = view.order.transpose(0, 1, deep + 2, *rest)
    shape = (1, prod(order.shape[:3]), *order.shape[3:])
    name = context.fresh(f"{node.input[0]}/flat")
    context.views[name] = replace(view.moved(np.ascontiguousarray(order.reshape(shape))), single=False)
    return name


def _raise_up(context: FloatContext, output: str, channels: int, deep: int) -> None:
    """The result of a flat operand as a volume."""
    view = context.views[output]
    order = view.order.reshape(1, channels, -1, *view.shape[2:])
    volume = view.moved(np.ascontiguousarray(np.moveaxis(order, 2, deep + 2)))
    if view.value == output:
        context.keep_view(output, volume)
    else:  # of maps that are there already
        context.views[output] = volume


def _plane(attributes: Attributes, kernel: Sequence[int], deep: int) -> Attributes:
    """Attributes of what happens along the other two axes."""
    strides, dilations, before, behind = _three(attributes, kernel)
    rest = [axis for axis in range(3) if axis != deep]
    two: Attributes = {
        "kernel_shape": [kernel[axis] for axis in rest],
        "strides": [strides[axis] for axis in rest],
        "dilations": [dilations[axis] for axis in rest],
        "pads": [*(before[axis] for axis in rest), *(behind[axis] for axis in rest)],
    }
    return two


def _depth(context: FloatContext, node: Node) -> list[int]:
    view = settle(context, node.input[0])
    if view.shape[0] != 1:
        raise Refused(f"its operand has shape {list(view.shape)}, must be [1, channels, depth, rows, columns]")
    return list(view.shape[2:])


def conv_volume(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """Each of a result's maps as a filter over all maps of the operand, most of whose weights are 0."""
    from onnx import helper

    w, bias = require_finite(context.constant(node, 1, "weights")), context.optional(node, 2, "bias")
    size, group = _depth(context, node), attributes.get("group", 1)
    channels = context.view(node.input[0]).shape[1]
    if w.ndim != 5 or w.shape[1] * group != channels or len(w) % group:
        raise Refused(f"weights of shape {list(w.shape)} in {group} groups for {channels} channels of three axes")
    attributes = _padded(attributes, w.shape[2:], size)
    strides, dilations, before, behind = _three(attributes, w.shape[2:])
    counts = [
        (size[at] + before[at] + behind[at] - (w.shape[at + 2] - 1) * dilations[at] - 1) // strides[at] + 1
        for at in range(3)
    ]
    if min(counts) < 1:
        raise Refused("its window does not fit the input")
    deep = min(range(3), key=lambda at: size[at] * counts[at] / w.shape[at + 2])
    taps = np.moveaxis(w, deep + 2, 2)
    outputs, inputs, depth = taps.shape[:3]
    shape = (outputs, counts[deep], channels, size[deep], *taps.shape[3:])
    check_size((prod(shape[:2]), prod(shape[2:4]), *shape[4:]), "what stands for its weights")
    dense = np.zeros(shape)
    for number in range(outputs):
        first = number // (outputs // group) * inputs
        for at in range(counts[deep]):
            for tap in range(depth):
                each = at * strides[deep] + tap * dilations[deep] - before[deep]
                if 0 <= each < size[deep]:
                    dense[number, at, first : first + inputs, each] = taps[number, :, tap]
    names = [_flat(context, node, deep), context.fresh(f"{node.output[0]}/weights"), ""]
    context.constants[names[1]] = dense.reshape(prod(shape[:2]), prod(shape[2:4]), *shape[4:])
    if bias is not None:
        names[2] = context.fresh(f"{node.output[0]}/bias")
        context.constants[names[2]] = np.repeat(bias, counts[deep])
    flat = helper.make_node("Conv", names, [node.output[0]], node.name)
    conv(context, flat, _plane(attributes, w.shape[2:], deep))
    _raise_up(context, node.output[0], outputs, deep)


def max_pool_volume(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """Maxima of maps, and then of several maps, tap by tap."""
    from onnx import helper

    if any(context.model.uses[name] for name in node.output[1:]):
        raise Refused("the indices of the maxima are not computed")
    kernel = attributes["kernel_shape"]
    attributes = _padded(attributes, kernel, _depth(context, node))
    windows = _windows(context, node, attributes)
    context.only_if_generous("along three axes")
    channels, maps = context.view(node.input[0]).shape[1], context.fresh(f"{node.output[0]}/maps")
    flat = helper.make_node("MaxPool", [_flat(context, node, 0)], [maps], node.name)
    max_pool(context, flat, _plane(attributes, kernel, 0) | {"ceil_mode": attributes.get("ceil_mode", 0)})
    view = context.views[maps]
    order = view.order.reshape(channels, -1, *view.shape[2:])
    parts: list[str] = []
    for tap in range(max(map(len, windows))):
        chosen = np.ascontiguousarray(order[:, [window[min(tap, len(window) - 1)] for window in windows]])
        parts.append(context.fresh(f"{maps}/tap{tap}"))
        moved = view.moved(chosen.reshape(1, -1, *view.shape[2:]))
        context.views[parts[-1]] = replace(place(context, context.fresh(f"{parts[-1]}/of"), moved), single=False)
    if len(parts) == 1:
        context.views[node.output[0]] = context.views[parts[0]]
    else:
        extremes(context, helper.make_node("Max", parts, [node.output[0]], node.name), {})
    _raise_up(context, node.output[0], channels, 0)


def average_pool_volume(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """Means of maps, and then of several maps: a convolution."""
    from onnx import helper

    kernel = attributes["kernel_shape"]
    attributes = _padded(attributes, kernel, _depth(context, node))
    windows = _windows(context, node, attributes)
    counted, ceil = bool(attributes.get("count_include_pad", 0)), attributes.get("ceil_mode", 0)
    if ceil and counted:
        raise Refused("ceil_mode with padding that counts in the average")
    channels, maps = context.view(node.input[0]).shape[1], context.fresh(f"{node.output[0]}/maps")
    flat = helper.make_node("AveragePool", [_flat(context, node, 0)], [maps], node.name)
    average_pool(context, flat, _plane(attributes, kernel, 0) | {"count_include_pad": counted, "ceil_mode": ceil})
    view = context.views[maps]
    depth = view.shape[1] // channels
    w = np.zeros((channels, len(windows), channels, depth))
    for at, window in enumerate(windows):
        for each in window:
            w[np.arange(channels), at, np.arange(channels), each] = 1 / (kernel[0] if counted else len(window))
    dense: NDArray[np.float64] = w.reshape(channels * len(windows), channels * depth, 1, 1)
    layer = FloatLayer("conv", node.output[0], (view.value,), w=dense, bias=np.zeros(len(dense)))
    context.emit(layer, (len(dense), *view.size[1:]))
    _raise_up(context, node.output[0], channels, 0)


def _windows(context: FloatContext, node: Node, attributes: Attributes) -> list[list[int]]:
    """For each map of a pool's result the maps of the operand that it is of."""
    size, kernel = _depth(context, node)[0], attributes["kernel_shape"]
    strides, dilations, before, behind = _three(attributes, kernel)
    room = size + before[0] + behind[0] - (kernel[0] - 1) * dilations[0] - 1
    count = (-(-room // strides[0]) if attributes.get("ceil_mode", 0) else room // strides[0]) + 1
    firsts = [at * strides[0] - before[0] for at in range(count)]
    windows = [
        [first + tap * dilations[0] for tap in range(kernel[0]) if 0 <= first + tap * dilations[0] < size]
        for first in firsts
        if first < size
    ]
    if not windows or not all(windows):
        raise Refused("its window does not fit the input")
    return windows


def _globally(operator: str) -> Operator:
    def read(context: FloatContext, node: Node, attributes: Attributes) -> None:
        from onnx import helper

        options: dict[str, Any] = {"axes": [2, 3, 4], "keepdims": 1}
        reduce(context, helper.make_node(operator, [node.input[0]], list(node.output), node.name), options)

    return read


OPERATORS: dict[str, Operator] = {
    "AveragePool": _of_volumes(average_pool, average_pool_volume),
    "Conv": _of_volumes(conv, conv_volume),
    "GlobalAveragePool": _of_volumes(global_average_pool, _globally("ReduceMean")),
    "GlobalMaxPool": _of_volumes(global_max_pool, _globally("ReduceMax")),
    "MaxPool": _of_volumes(max_pool, max_pool_volume),
}
