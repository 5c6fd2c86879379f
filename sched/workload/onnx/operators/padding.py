"""Pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.pictures import as_picture, pad_picture, settle
from ..building.views import NO_PAD, Layout, View, layout_of, natural
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from .joining import concat


def pad(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view, mode = context.view(node.input[0]), attributes.get("mode", "constant")
    rank = len(view.shape)
    if context.model.opset < 11:
        pads, value = list(attributes["pads"]), attributes.get("value", 0.0)
    else:
        numbers = context.constant(node, 1, "padding").tolist()
        constant, axes = context.optional(node, 2, "value"), context.optional(node, 3, "axes")
        value = 0.0 if constant is None else float(constant.flat[0])
        places = range(rank) if axes is None else [axis % rank for axis in axes.tolist()]
        pads = [0] * (2 * rank)
        for index, axis in enumerate(places):
            pads[axis], pads[axis + rank] = numbers[index], numbers[index + len(numbers) // 2]
    check_size([max(0, size + pads[axis] + pads[axis + rank]) for axis, size in enumerate(view.shape)])
    if mode != "constant":
        view = settle(context, node.input[0])
        if min(pads) < 0:
            raise Refused(f"mode = {mode} with pads {pads}; they must be 0 or more")
        sides = list(zip(pads[:rank], pads[rank:], strict=True))
        modes: dict[str, Any] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
        context.move(node, np.pad(view.order, sides, modes[mode]))
        return
    if min(pads) < 0:
        cut = tuple(
            slice(max(0, -a), view.shape[axis] - max(0, -b))
            for axis, (a, b) in enumerate(zip(pads[:rank], pads[rank:], strict=True))
        )
        view = settle(context, node.input[0])
        context.move(node, view.order[cut])
        pads = [max(0, pad) for pad in pads]
    else:
        context.pass_on(node)
    if not any(pads):
        return
    if value == 0:
        view = context.views[node.output[0]]
        layout = layout_of(view)
        if context.generous and layout is not None and natural(view) is None and layout.channels != (1,):
            _join_zeros(context, node, view, pads)  # heads, tokens, features
            return
        try:
            _surround(context, node.output[0], pads)
        except Refused:
            if not context.generous:
                raise
            context.views[node.output[0]] = view
            _join_zeros(context, node, settle(context, node.output[0]), pads)
        return
    context.only_if_generous(f"pads with {value:g}")
    if not np.isfinite(value) or abs(value) > 1e4:
        raise Refused(f"pads with {value:g}")
    name, view = node.output[0], settle(context, node.output[0])  # zeros around what is less by the value
    less = _add_number(context, view, -value, f"{name}/less")
    context.views[name] = less
    _surround(context, name, pads)
    context.views[name] = _add_number(context, settle(context, name), value, f"{name}/padded")


def _add_number(context: FloatContext, view: View, number: float, name: str) -> View:
    """A tensor and a number."""
    ones = np.ones((view.channels, 1, 1, 1))
    layer = FloatLayer("depthwise", context.fresh(name), (view.value,), w=ones, bias=np.full(view.channels, number))
    context.emit(layer, view.size)
    return replace(view, value=layer.output, single=True)


def _surround(context: FloatContext, name: str, pads: Sequence[int]) -> None:
    """Zeros around a tensor; they wait for who reads it."""
    view = context.views[name]
    if view.pad == NO_PAD and (axes := natural(view)) and len(axes) == 4:
        pads = [*(pads[axis] for axis in axes), *(pads[axis + 4] for axis in axes)]
        if axes != (0, 1, 2, 3):
            context.views[name] = view = view.moved(view.order.transpose(axes))
            back = tuple(np.argsort(axes).tolist())
            if not any(pads[at] for at in (0, 1, 4, 5)):
                padded = pad_picture(context, name, replace(view, pad=(pads[2], pads[3], pads[6], pads[7])))
                context.views[name] = padded.moved(padded.order.transpose(back))
                return
    shape, view = view.shape, as_picture(context, name, padded=True)
    if len(pads) == 6:
        pads = [*pads[:2], 0, pads[2], *pads[3:5], 0, pads[5]]
    if any(pads[at] for at in (0, 1, 4, 5)):
        raise Refused(f"pads {list(pads)}; only rows and columns can be padded")
    top, left, bottom, right = (a + b for a, b in zip(view.pad, (pads[2], pads[3], pads[6], pads[7]), strict=True))
    context.views[name] = replace(view, shape=shape, pad=(top, left, bottom, right))


def _join_zeros(context: FloatContext, node: Node, view: View, pads: Sequence[int]) -> None:
    """Zeros before and behind along any axes: filters of zeros where these are channels, others joined."""
    from onnx import helper

    output, rank = node.output[0], len(view.shape)
    sides = list(zip(pads[:rank], pads[rank:], strict=True))
    layout = layout_of(view)
    if layout is not None and all(axis in layout.channels for axis in range(rank) if any(sides[axis])):
        _pad_channels(context, output, view, layout, sides)
        return
    name = context.fresh(f"{output}/inside")
    context.views[name] = replace(view, single=False)
    for axis, amounts in enumerate(sides):
        if not any(amounts):
            continue
        names = [name]
        for at, amount in enumerate(amounts):
            if amount:
                zeros = context.fresh(f"{output}/zeros{axis}_{at}")
                shape = [amount if each == axis else size for each, size in enumerate(context.views[name].shape)]
                context.constants[zeros] = np.zeros(shape)
                names.insert(at * len(names), zeros)
        name = context.fresh(f"{output}/along{axis}")
        concat(context, helper.make_node("Concat", names, [name], node.name), {"axis": axis})
    context.views[output] = context.views[name]


def _pad_channels(
    context: FloatContext, output: str, view: View, layout: Layout, sides: Sequence[tuple[int, int]]
) -> None:
    sources = np.pad(
        layout.of(view.order)[:, 0].reshape([view.shape[axis] for axis in layout.channels])
        // (view.size[1] * view.size[2]),
        [sides[axis] for axis in layout.channels],
        constant_values=-1,
    ).ravel()
    w = np.zeros((len(sources), view.size[0], 1, 1))
    there = np.flatnonzero(sources >= 0)
    w[there, sources[there]] = 1
    del context.views[output]
    layer = FloatLayer("conv", context.fresh(output), (view.value,), w=w, bias=np.zeros(len(w)), moves=True)
    context.emit(layer, (len(w), *view.size[1:]))
    shape = [size + sum(sides[axis]) for axis, size in enumerate(view.shape)]
    context.keep_view(layer.output, context.views[layer.output].moved(layout.index(shape)))
    context.views[output] = context.views[layer.output]


OPERATORS: dict[str, Operator] = {"Pad": pad}
