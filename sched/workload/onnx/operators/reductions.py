"""Maxima, means and sums over axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from meshloom.hw.spec.isa import Opcode

from ...graph import PlainKind, Window
from ..building.context import FloatContext, Operator
from ..building.pictures import as_picture, lay, settle
from ..building.strides import MOST_STRIDE
from ..building.views import Layout, View, layout_of, natural
from ..building.windowed import emit_averages, emit_maxima
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..pointwise import Function, function
from ..windows import limit

#: What each operator finds, and functions of one number before and after.
_REDUCTIONS: Mapping[str, tuple[str, tuple[Function, ...], tuple[Function, ...]]] = {
    "ReduceL1": ("sum", (function("Abs"),), ()),
    "ReduceL2": ("sum", (function("Pow", 2.0),), (function("Sqrt"),)),
    "ReduceLogSum": ("sum", (), (function("Log"),)),
    "ReduceMax": ("max", (), ()),
    "ReduceMean": ("mean", (), ()),
    "ReduceMin": ("max", (function("Neg"),), (function("Neg"),)),
    "ReduceSum": ("sum", (), ()),
    "ReduceSumSquare": ("sum", (function("Pow", 2.0),), ()),
}


def global_average_pool(context: FloatContext, node: Node, attributes: Attributes) -> None:
    _pool_pictures(context, "average_pool", node)


def global_max_pool(context: FloatContext, node: Node, attributes: Attributes) -> None:
    _pool_pictures(context, "max_pool", node)


def _pool_pictures(context: FloatContext, kind: PlainKind, node: Node) -> None:
    """Over all axes behind the channels, however many there are: each is 1 then."""
    first, *others = context.view(node.input[0]).shape[1:]
    view = as_picture(context, node.input[0])
    _pool_globally(context, kind, node.output[0], view, (1, first, *(1 for _ in others)))


def reduce(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """What is reduced is a function of the operand, and the result one of what is found."""
    kind, before, after = _REDUCTIONS[node.op_type]
    view = settle(context, node.input[0])
    name = node.input[0]
    if before or after:
        context.only_if_generous("no layer does that")
    for each in before:
        name = context.fresh(f"{node.output[0]}/each")
        context.emit(FloatLayer("table", name, (view.value,), function=each), view.size)
        view = replace(view, value=name, single=True)
        context.views[name] = view
    output = context.fresh(f"{node.output[0]}/found") if after else node.output[0]
    _reduce_axes(context, kind, node, attributes, (name, view), output)
    for each in after:
        reduced = context.views[output]
        context.emit_like(FloatLayer("table", node.output[0], (output,), function=each), reduced)


def _reduce_axes(
    context: FloatContext, kind: str, node: Node, attributes: Attributes, operand: tuple[str, View], output: str
) -> None:
    operand_axes = context.optional(node, 1, "axes")
    axes: list[int] | None = attributes.get("axes") if operand_axes is None else operand_axes.tolist()
    name, view = operand
    rank = len(view.shape)
    if not axes and attributes.get("noop_with_empty_axes"):
        if name != node.input[0] or output != node.output[0]:
            raise Refused("over no axes")
        context.pass_on(node)
        return
    over = {axis % rank for axis in axes} if axes else set(range(rank))
    others = [axis for axis in range(rank) if axis not in over]
    keep = bool(attributes.get("keepdims", 1))
    shape = tuple(1 if axis in over else size for axis, size in enumerate(view.shape) if keep or axis not in over)
    count = prod(view.shape[axis] for axis in over)
    pool: PlainKind = "max_pool" if kind == "max" else "average_pool"
    order = natural(view) or tuple(range(rank))
    wide = {axis for axis in order[2:] if view.shape[axis] > 1}
    if not (natural(view) and rank > 2 and wide <= over and all(view.shape[axis] == 1 for axis in over - wide)):
        context.only_if_generous(f"over axes {axes}; must be over rows and columns, 2 and 3")
        if kind != "max" and _sum_channels(context, kind, node, over, view, output, shape):
            return
        moved = view.order.transpose([*others, *sorted(over)]).reshape(-1, count)
        view, _ = lay(context, name, view, np.ascontiguousarray(moved))
    _pool_globally(context, pool, output, view, shape)
    if kind == "sum":
        layer = context.layers[output]
        if layer.w is None:
            layer.gain = float(count)
        else:
            layer.w = layer.w * count


def _sum_channels(
    context: FloatContext,
    kind: str,
    node: Node,
    over: set[int],
    view: View,
    output: str,
    shape: tuple[int, ...],
) -> bool:
    """Sums or means of several maps, if those axes are channels: a convolution of ones. What goes over pixels too
    follows."""
    from onnx import helper

    layout = layout_of(view)
    plane = view.size[1] * view.size[2]
    if layout is None or plane == 1:
        return False
    summed = [axis for axis in layout.channels if axis in over]
    others = tuple(axis for axis in layout.channels if axis not in over)
    if not summed:
        return False
    whole = layout.of(view.order)[:, 0] // plane
    sources = whole.reshape([view.shape[axis] for axis in layout.channels])
    sources = sources.transpose([layout.channels.index(axis) for axis in (*others, *summed)])
    count = prod(view.shape[axis] for axis in summed)
    sources = sources.reshape(-1, count)
    w = np.zeros((len(sources), view.size[0], 1, 1))
    np.add.at(w[:, :, 0, 0], (np.arange(len(sources))[:, None], sources), 1 / count if kind == "mean" else 1.0)
    rest = sorted(axis for axis in over if axis not in summed and view.shape[axis] > 1)
    part = context.fresh(f"{output}/channels") if rest else output
    layer = FloatLayer("conv", part, (view.value,), w=w, bias=np.zeros(len(w)))
    context.emit(layer, (len(w), *view.size[1:]))
    single = tuple(1 if axis in summed else size for axis, size in enumerate(view.shape))
    index = Layout(others, layout.pixels).index(single)
    if not rest:
        context.keep_view(output, context.views[output].moved(index.reshape(shape)))
        return True
    context.views[part] = context.views[part].moved(index)
    again = helper.make_node(node.op_type, [part], [output], node.name)
    options = {"axes": rest, "keepdims": 1}
    _reduce_axes(context, kind, again, options, (part, context.views[part]), output)
    context.views[output] = context.views[output].moved(context.views[output].order.reshape(shape))
    if not context.views[output].is_picture:
        context.orders[output] = context.views[output].order
    return True


def _pool_globally(context: FloatContext, kind: PlainKind, output: str, view: View, shape: tuple[int, ...]) -> None:
    """One window, or, where no instruction holds it, windows of windows."""
    name, (channels, height, width), most = view.value, view.size, limit("kernel_h", Opcode.VEC)
    step = 0
    while max(height, width) > most:
        kernel = _divisor(height, most), _divisor(width, most)
        if max(kernel) > MOST_STRIDE:
            break
        height, width = height // kernel[0], width // kernel[1]
        part = context.fresh(f"{output}/part{step}")
        name = context.emit(FloatLayer(kind, part, (name,), Window(*kernel, *kernel)), (channels, height, width))
        step += 1
    size, window = (channels, height, width), Window(height, width)
    if kind == "max_pool":
        emit_maxima(context, output, name, size, window)
    else:
        emit_averages(context, output, View(name, size, (1, *size)), window)
    context.see_as(output, shape)


def _divisor(size: int, most: int) -> int:
    """By what a side is divided on the way to `most`; 1 if it need not be."""
    if size <= most:
        return 1
    return next((divisor for divisor in range(2, size) if size % divisor == 0), size)


OPERATORS: dict[str, Operator] = {
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
    **dict.fromkeys(_REDUCTIONS, reduce),
}
