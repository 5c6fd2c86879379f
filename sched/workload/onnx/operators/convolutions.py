"""Convolutions and transposed convolutions."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import PlainKind, Window
from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.kernels import emit_conv, inflate
from ..building.layers import emit_whole_map, paste_phases, require_finite, scatter
from ..building.pictures import as_picture
from ..building.views import MOST_PIECES, NO_PAD, View, find_channels
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..windows import sliding_window, two_axes


def conv(context: FloatContext, node: Node, attributes: Attributes) -> None:
    w, bias = context.constant(node, 1, "weights"), context.optional(node, 2, "bias")
    rank, group = w.ndim, attributes.get("group", 1)
    if rank == 3:
        w, attributes = w[:, :, None], two_axes(attributes)
    if w.ndim != 4:
        raise Refused(f"weights have shape {list(w.shape)}, must be [outputs, inputs, rows, columns]")
    outputs, inputs = w.shape[:2]
    flat = context.view(node.input[0])
    if group == 1 and w.shape[2:] == (1, 1) == flat.shape[2:] and not flat.is_picture and flat.pad == NO_PAD:
        if inputs != flat.shape[1]:
            raise Refused(f"weights for {inputs} channels on an operand of {flat.shape[1]}")
        numbers = np.zeros(outputs) if bias is None else require_finite(bias)
        emit_whole_map(
            context, FloatLayer("conv", node.output[0], (flat.value,), w=require_finite(w), bias=numbers), flat, (1,)
        )
        context.see_as(node.output[0], (1, outputs, 1, 1))
        return
    view = _read_operand(context, node.input[0], w)
    if inputs * group != view.shape[1] or outputs % group:
        raise Refused(f"weights for {inputs} x {group} channels on an operand of {view.shape[1]}")
    products = w.size
    w, attributes = _even_taps(w, attributes)
    window = sliding_window(attributes, (w.shape[2], w.shape[3]), view.size[1:], view.pad)
    kind, weights = _group_weights(context, node, require_finite(w), group, view.shape[1])
    if (selected := find_channels(view)) is not None and view.index is not None:  # 0 for the others
        weights = scatter(weights, selected, view.channels)
    numbers = np.zeros(outputs) if bias is None else require_finite(bias)
    layer = FloatLayer(kind, node.output[0], (view.value,), window, w=weights, bias=numbers)
    layer.density = products / weights.size
    emit_conv(context, layer, view)
    if rank == 3:
        result = context.views[node.output[0]]
        context.views[node.output[0]] = replace(result, shape=(1, result.size[0], result.size[2]))


def _read_operand(context: FloatContext, name: str, w: NDArray[Any]) -> View:
    """The operand of a convolution. A selection of channels stays a view where weights of 0 for the others are
    cheaper than a convolution that selects them."""
    view = context.view(name)
    if len(view.shape) == 4 and view.shape[0] == 1 and view.pad == NO_PAD and view.index is not None:
        chosen, left = view.shape[1], view.channels - view.shape[1]
        if (
            w.shape[1] == chosen
            and find_channels(view) is not None
            and not context.fusible(name, ("conv",))
            and left * len(w) * w.shape[2] * w.shape[3] <= view.channels * chosen
        ):
            return view
    return as_picture(context, name, padded=True)


def _group_weights(
    context: FloatContext, node: Node, w: NDArray[np.float64], group: int, channels: int
) -> tuple[PlainKind, NDArray[np.float64]]:
    """Weights of a convolution in groups: one filter for each channel, or as one convolution with zeros."""
    outputs, inputs = w.shape[:2]
    if group == 1 or group == channels == outputs:
        return ("conv" if group == 1 else "depthwise"), w
    each = outputs // group
    check_size((outputs, channels, *w.shape[2:]), "what stands for its weights")
    dense = np.zeros((outputs, channels, *w.shape[2:]))
    for g in range(group):
        rows, columns = slice(g * each, (g + 1) * each), slice(g * inputs, (g + 1) * inputs)
        dense[rows, columns] = w[rows]
    context.dense.append(node.output[0])
    return "conv", dense


def conv_transpose(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """One convolution for each phase of the result, whose rows and columns take turns."""
    raw, bias = context.constant(node, 1, "weights"), context.optional(node, 2, "bias")
    rank, group = raw.ndim, attributes.get("group", 1)
    w = require_finite(raw[:, :, None] if rank == 3 else raw)
    attributes = two_axes(attributes)
    view = as_picture(context, node.input[0])
    if w.ndim != 4 or len(w) != view.channels:
        raise Refused(f"weights of shape {list(raw.shape)} for {view.channels} channels")
    products = w.size
    w = inflate(w, *attributes.get("dilations", (1, 1)))
    w = w.reshape(group, -1, *w.shape[1:]).transpose(0, 2, 1, 3, 4)  # group, outputs, inputs, rows, columns
    flat = w.reshape(-1, *w.shape[2:])
    kind, weights = _group_weights(context, node, flat, group, view.channels)
    strides = tuple(attributes.get("strides", (1, 1)))
    pads, size = _transposed_size(attributes, (flat.shape[2], flat.shape[3]), strides, view.size[1:])
    outputs = len(flat)
    check_size((outputs, *size))
    if strides[0] * strides[1] > MOST_PIECES:
        raise Refused(f"strides {list(strides)} take {strides[0] * strides[1]:,} layers; {MOST_PIECES} at most")
    numbers = np.zeros(outputs) if bias is None else require_finite(bias)
    if len(numbers) != outputs:
        raise Refused(f"a bias of {len(numbers)} numbers for {outputs} outputs")
    density = products / weights.size
    parts: list[FloatLayer] = []
    for y in range(strides[0]):
        for x in range(strides[1]):
            down = _phase(y, strides[0], pads[0], flat.shape[2], view.size[1], size[0])
            right = _phase(x, strides[1], pads[1], flat.shape[3], view.size[2], size[1])
            taps = _take_taps(_take_taps(weights, 2, down[0]), 3, right[0])
            window = Window(taps.shape[2], taps.shape[3], 1, 1, down[1], right[1], down[2], right[2])
            name = context.fresh(f"{node.output[0]}/{y}_{x}")
            own = [sum(tap >= 0 for tap in each[0]) / len(each[0]) for each in (down, right)]
            layer = FloatLayer(kind, name, (view.value,), window, w=taps, bias=numbers.copy())
            layer.density = density * own[0] * own[1]
            parts.append(layer)
    if len(parts) == 1:
        parts[0].output = node.output[0]
        emit_conv(context, parts[0], view)
    else:
        paste_phases(context, node.output[0], parts, (outputs, *size), (strides[0], strides[1]))
    if rank == 3:
        context.see_as(node.output[0], (1, outputs, size[1]))


def _even_taps(w: NDArray[Any], attributes: Attributes) -> tuple[NDArray[Any], dict[str, Any]]:
    """Weights whose taps are equally far apart in both directions, with zeros between those that are not."""
    down, right = attributes.get("dilations", (1, 1))
    if down == right or min(w.shape[2:]) == 1:
        return w, attributes
    apart = gcd(down, right)
    rest = {name: value for name, value in attributes.items() if name not in ("dilations", "kernel_shape")}
    return inflate(w, down // apart, right // apart), rest | {"dilations": [apart, apart]}


def _transposed_size(
    attributes: Attributes, kernel: tuple[int, int], strides: tuple[int, ...], size: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns that a ConvTranspose drops at the beginning, and the size of its result (as ONNX says)."""
    extra, shape = attributes.get("output_padding", (0, 0)), attributes.get("output_shape")
    mode, pads = attributes.get("auto_pad", "NOTSET"), list(attributes.get("pads", (0, 0, 0, 0)))
    begin: list[int] = []
    sizes: list[int] = []
    for axis in (0, 1):
        full = strides[axis] * (size[axis] - 1) + extra[axis] + kernel[axis]
        if shape is None and not mode.startswith("SAME"):
            begin.append(pads[axis] if mode == "NOTSET" else 0)
            sizes.append(full - (pads[axis] + pads[axis + 2] if mode == "NOTSET" else 0))
            continue
        end = shape[len(shape) - 2 + axis] if shape is not None and len(shape) > 1 else (
            shape[0] if shape is not None and axis == 1 else size[axis] * strides[axis]
        )  # fmt: skip
        gone = max(0, full - end)
        begin.append(gone // 2 if mode == "SAME_UPPER" else gone - gone // 2)
        sizes.append(end)
    return (begin[0], begin[1]), (sizes[0], sizes[1])


def _phase(at: int, stride: int, pad: int, kernel: int, size: int, result: int) -> tuple[list[int], int, int]:
    """The taps (-1: 0) that make every `stride`-th row of a transposed convolution from row `at` on, and the zeros
    before and behind its operand."""
    first = (at + pad) % stride
    taps = list(range(first, kernel, stride))[::-1] or [-1]
    ahead = (at + pad) // stride
    count = -(-(result - at) // stride)
    before, behind = len(taps) - 1 - ahead, count + ahead - size
    if before < 0:
        taps, before = [-1] * -before + taps, 0
    if behind < 0:
        taps, behind = taps + [-1] * -behind, 0
    return taps, before, behind


def _take_taps(w: NDArray[np.float64], axis: int, taps: list[int]) -> NDArray[np.float64]:
    weights = np.take(w, np.maximum(taps, 0), axis)
    empty: list[Any] = [slice(None)] * w.ndim
    empty[axis] = np.array(taps) < 0
    weights[tuple(empty)] = 0
    return weights


OPERATORS: dict[str, Operator] = {"Conv": conv, "ConvTranspose": conv_transpose}
