"""Pools."""

from __future__ import annotations

from dataclasses import replace

from ...graph import Window
from ..building.context import FloatContext, Operator
from ..building.pictures import as_picture
from ..building.views import NO_PAD, View
from ..building.windowed import emit_averages, emit_inner_averages, emit_maxima, has_pixels
from ..errors import Refused
from ..nodes import Attributes, Node
from ..windows import sliding_window, two_axes


def max_pool(context: FloatContext, node: Node, attributes: Attributes) -> None:
    if any(context.model.uses[name] for name in node.output[1:]):
        raise Refused("the indices of the maxima are not computed")
    rank, attributes = len(attributes["kernel_shape"]), two_axes(attributes)
    layer = context.layers.get(context.view(node.input[0]).value)
    zeros = bool(layer and layer.relu)  # that are never larger than what is there
    view = as_picture(context, node.input[0], padded=zeros)
    windows = [_pool_window(context, view, one) for one in _by_axis(attributes)]
    if view.pad != NO_PAD and not all(has_pixels(one) for one in windows if one.dilation == 1):
        view = as_picture(context, node.input[0])
        windows = [_pool_window(context, view, one) for one in _by_axis(attributes)]
    name, size = view.value, view.size
    for index, window in enumerate(windows):
        output = node.output[0] if index == len(windows) - 1 else context.fresh(f"{node.output[0]}/part{index}")
        name, size = emit_maxima(context, output, name, size, window), (size[0], *window.output(*size[1:]))
    if rank == 1:
        context.see_as(name, (1, size[0], size[2]))


def average_pool(context: FloatContext, node: Node, attributes: Attributes) -> None:
    rank, attributes = len(attributes["kernel_shape"]), two_axes(attributes)
    own = any(attributes.get("pads", ())) or str(attributes.get("auto_pad")).startswith("SAME")
    counted = bool(attributes.get("count_include_pad")) or not (own or attributes.get("ceil_mode"))
    view = as_picture(context, node.input[0], padded=counted)
    window = _pool_window(context, view, attributes)
    if view.pad != NO_PAD and not has_pixels(window):
        view = as_picture(context, node.input[0])
        window = _pool_window(context, view, attributes)
    size = view.channels, *window.output(*view.size[1:])
    plain = _pool_window(context, view, attributes | {"ceil_mode": 0})
    pads = window.pad_top, window.pad_left, window.pad_bottom, window.pad_right
    if plain == window and (pads == NO_PAD or counted):
        emit_averages(context, node.output[0], view, window)
    elif counted and pads != NO_PAD:
        raise Refused("ceil_mode with padding that counts in the average")
    elif window.dilation != 1:
        raise Refused("dilations of an average, beside padding that does not count")
    else:
        emit_inner_averages(context, node.output[0], view, window, size)
    if rank == 1:
        context.see_as(node.output[0], (1, size[0], size[2]))


def _pool_window(context: FloatContext, view: View, attributes: Attributes) -> Window:
    """With `ceil_mode`, padding at the end grows until the last window fits."""
    window = sliding_window(attributes, tuple(attributes["kernel_shape"]), view.size[1:], view.pad)
    if not attributes.get("ceil_mode") or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return window
    ends: list[int] = []
    for extent, k, stride, before, after in (
        (view.size[1], window.kernel_h, window.stride_h, window.pad_top, window.pad_bottom),
        (view.size[2], window.kernel_w, window.stride_w, window.pad_left, window.pad_right),
    ):
        reach = (k - 1) * window.dilation + 1
        count = -(-(extent + before + after - reach) // stride) + 1
        if (count - 1) * stride >= extent + before:  # no window begins past the operand
            count -= 1
        ends.append(max(after, (count - 1) * stride + reach - extent - before))
    return replace(window, pad_bottom=ends[0], pad_right=ends[1])


def _by_axis(attributes: Attributes) -> list[Attributes]:
    """The windows of a max pool: one, or, if its dilations differ, one of rows and one of columns."""
    down, right = attributes.get("dilations", (1, 1))
    kernel, strides, pads = (
        list(attributes.get(name, neutral))
        for name, neutral in (("kernel_shape", ()), ("strides", (1, 1)), ("pads", (0, 0, 0, 0)))
    )
    if down == right or min(kernel) == 1 or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return [attributes]
    rows = {"kernel_shape": [kernel[0], 1], "strides": [strides[0], 1], "pads": [pads[0], 0, pads[2], 0]}
    columns = {"kernel_shape": [1, kernel[1]], "strides": [1, strides[1]], "pads": [0, pads[1], 0, pads[3]]}
    return [attributes | rows | {"dilations": [down, down]}, attributes | columns | {"dilations": [right, right]}]


OPERATORS: dict[str, Operator] = {"AveragePool": average_pool, "MaxPool": max_pool}
