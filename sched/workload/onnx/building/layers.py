"""Layers with weights, and what the layer before absorbs."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import PastePlace, Window
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Node
from .context import FloatContext
from .kernels import emit_conv, widen
from .pictures import arrange, as_picture, emit_paste, settle
from .views import NO_PAD, Size, View


def paste_phases(
    context: FloatContext, output: str, parts: Sequence[FloatLayer], size: Size, steps: tuple[int, int]
) -> None:
    """A map of `size` whose rows and columns the results of `parts` take in turn."""
    places: list[PastePlace] = []
    names: list[str] = []
    for index, part in enumerate(parts):
        y, x = divmod(index, steps[1])
        rows, columns = -(-(size[1] - y) // steps[0]), -(-(size[2] - x) // steps[1])
        if rows > 0 and columns > 0:
            widen(part)
            names.append(context.emit(part, (size[0], rows, columns)))
            places.append(PastePlace(y, x, *steps, rows, columns))
    emit_paste(context, output, names, places, size)


def find_makers(context: FloatContext, name: str) -> list[FloatLayer]:
    """The layers with weights that a tensor is the result of, put together from several or not, if nothing else
    reads them and nothing follows their sums yet."""
    whole = context.fusible(name, ("conv", "depthwise", "paste", "concat"))
    if whole is None:
        return []
    parts = [whole] if whole.w is not None else [context.layers.get(part) for part in dict.fromkeys(whole.inputs)]
    own = whole.w is not None or all(  # no tensors of the file
        not context.model.uses[part] and sum(part in layer.inputs for layer in context.layers.values()) == 1
        for part in whole.inputs
    )
    layers = [layer for layer in parts if layer and layer.w is not None and not layer.relu and layer.clamp == inf]
    return layers if own and len(layers) == len(parts) else []


def clip_at(context: FloatContext, node: Node, relu: bool, clamp: float) -> None:
    """Clamping, in the layer before if nothing else reads its result."""
    from onnx import helper

    name, output = node.input[0], node.output[0]
    view = context.view(name)
    if view.pad != NO_PAD:  # zeros around it stay zeros; what the layer makes has none of them, and another name
        inside = context.fresh(f"{output}/inside")
        _clip_inside(context, helper.make_node(node.op_type, [name], [inside], node.name), relu, clamp)
        context.views[output] = context.views[inside]
    else:
        _clip_inside(context, node, relu, clamp)


def _clip_inside(context: FloatContext, node: Node, relu: bool, clamp: float) -> None:
    """The same without zeros around it."""
    name = node.input[0]
    view = context.view(name)
    if layer := context.fusible(name, ("conv", "depthwise", "add", "mul", "max_pool", "average_pool")):
        layer.relu, layer.clamp = layer.relu or relu, min(layer.clamp, clamp)
        context.rename(layer, node)
        return
    if makers := find_makers(context, name):
        for layer in makers:
            layer.relu, layer.clamp = relu, clamp
        context.rename(context.layers[view.value], node)
        return
    context.emit_like(FloatLayer("max_pool", node.output[0], (view.value,), relu=relu, clamp=clamp), view)


def emit_affine(
    context: FloatContext, node: Node, name: str, gain: NDArray[np.float64], offset: NDArray[np.float64]
) -> None:
    """gain * x + offset, channel by channel: in the layer before, in the picture, or as a depthwise layer."""
    view = context.view(name)
    if not (np.all(np.isfinite(gain)) and np.all(np.isfinite(offset))):
        raise Refused("its constants are not finite")
    alike = bool(gain[0] > 0 and np.all(gain == gain[0]) and not np.any(offset))
    layer = context.fusible(name, ("product", "average_pool")) if alike else None
    if layer and (layer.kind == "product" or layer.gain != 1) and not layer.relu and layer.clamp == inf:
        layer.gain *= float(gain[0])  # of sums; averages stay what they are
        context.rename(layer, node)
        return
    if view.pad != NO_PAD:
        view = as_picture(context, name)
    if makers := find_makers(context, name):
        _scale(context, makers, gain, offset)
        context.rename(context.layers[view.value], node)
        return
    if (
        context.normalised
        and view.value in context.inputs
        and view.single
        and context.used_once(name)
        and np.all(gain > 0)
    ):
        before = context.normalise.get(view.value, (np.ones(view.channels), np.zeros(view.channels)))
        context.normalise[view.value] = (before[0] * gain, before[1] * gain + offset)
        context.views[node.output[0]] = view
        return
    if alike and gain[0] == 1:
        context.see(node, view)
        return
    w = gain[:, None, None, None].copy()
    context.emit_like(FloatLayer("depthwise", node.output[0], (view.value,), w=w, bias=offset.copy()), view)


def _scale(
    context: FloatContext, makers: Sequence[FloatLayer], gain: NDArray[np.float64], offset: NDArray[np.float64]
) -> None:
    """What makes a tensor makes gain * x + offset instead: filters of one layer, of all phases, or of parts."""
    first, whole = 0, len(gain)
    for layer in makers:
        assert layer.w is not None
        assert layer.bias is not None
        count = len(layer.w)
        some = slice(first, first + count)
        layer.w, layer.moves = layer.w * gain[some, None, None, None], False
        layer.bias = layer.bias * gain[some] + offset[some]
        first = (first + count) % whole  # phases have all channels, parts some of them


def numbers_by_channel(context: FloatContext, array: NDArray[Any], view: View) -> NDArray[np.float64]:
    """A constant operand of elementwise arithmetic as one number for each channel."""
    try:
        whole = np.broadcast_to(array.astype(np.float64), view.shape).ravel()
    except ValueError:
        raise Refused(f"a constant of shape {list(array.shape)} does not fit {list(view.shape)}") from None
    channel = view.channel_of.ravel()
    numbers = np.ones(view.channels)
    numbers[channel] = whole
    if np.any(numbers[channel] != whole):
        raise Refused("its constant differs from pixel to pixel; it may differ from channel to channel")
    return numbers


def emit_fully_connected(context: FloatContext, node: Node, w: NDArray[Any], bias: NDArray[Any] | None) -> None:
    """`w` [outputs, features], for the last axis of the operand."""
    view = settle(context, node.input[0])
    outputs, rows = len(w), view.shape[:-1]
    if w.shape[1] != view.shape[-1]:
        raise Refused(f"{w.shape[1]} features for an operand of shape {list(view.shape)}")
    if bias is None or bias.size in (1, outputs):
        bias = np.zeros(outputs) if bias is None else np.broadcast_to(bias.ravel(), (outputs,))
    else:
        raise Refused(f"a bias of shape {list(bias.shape)} for {outputs} outputs")
    layer = FloatLayer(
        "conv", node.output[0], (view.value,), w=require_finite(w)[:, :, None, None], bias=require_finite(bias)
    )
    if prod(rows) == 1:
        emit_whole_map(context, layer, view, rows)
        return
    columns = view.order.reshape(1, 1, prod(rows), -1).transpose(0, 3, 1, 2)  # a picture of one row of vectors
    layer.inputs = (arrange(context, node.input[0], view.moved(columns)).value,)
    context.emit(layer, (outputs, 1, prod(rows)))
    result = context.views[layer.output]
    context.keep_view(layer.output, result.moved(result.order[0, :, 0].T.reshape(*rows, outputs)))


def emit_whole_map(context: FloatContext, layer: FloatLayer, view: View, rows: Sequence[int]) -> None:
    """A fully connected layer of a whole map: its kernel is the map, however its pixels are ordered."""
    assert layer.w is not None
    channels, height, width = view.size
    dense, places = layer.w[:, :, 0, 0], view.order.ravel()
    if len(places) != prod(view.size) or np.any(places != np.arange(len(places))):
        dense = scatter(dense, places, prod(view.size))
    layer.w, layer.window = dense.reshape(-1, channels, height, width), Window(height, width)
    emit_conv(context, layer, view)
    context.see_as(layer.output, (*rows, len(layer.w)))


def scatter(w: NDArray[np.float64], places: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Weights [outputs, inputs, ...] for `count` inputs, of which those given are at `places`; 0 for the others."""
    if np.all(np.bincount(places.ravel()) <= 1):
        weights = np.zeros((len(w), count, *w.shape[2:]))
        weights[:, places] = w
        return weights
    weights = np.zeros((count, len(w), *w.shape[2:]))
    np.add.at(weights, places, w.swapaxes(0, 1))
    return weights.swapaxes(0, 1)


def require_finite(array: NDArray[Any]) -> NDArray[np.float64]:
    """The array in double. Raises Refused when it is not finite."""
    if not np.all(np.isfinite(array)):
        raise Refused("its weights are not finite")
    return array.astype(np.float64)
