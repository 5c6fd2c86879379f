"""Operators that move bytes, tables of bytes, and where real numbers become bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import MOST_REPEATS, TABLE_SIZE, Layer, PastePlace, pasted_pixels
from ..errors import Refused
from ..nodes import Attributes, Node
from ..windows import slice_window, sliding_window
from .context import IntegerContext, IntegerOperator, Tensor
from .sums import WIDE


def quantise_input(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    name = node.input[0]
    if name not in context.sources:
        raise Refused("only inputs of the network can be quantised")
    scale, zero = float(context.number(node, 1, "scale")), context.zero_point(node, 2, None)
    context.sources[node.output[0]] = context.sizes[node.output[0]] = context.sources.pop(name)
    context.ends[node.output[0]] = scale
    context.views[node.output[0]] = Tensor(node.output[0], zero, scale)


def dequantise(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    if not context.at_end(node):
        raise Refused("layers between DequantizeLinear and QuantizeLinear are float; export integer operators")
    view, scale = context.operand(node, 0)
    context.ends[view.value or ""] = scale
    context.views[node.output[0]] = view


def max_pool(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view = context.tensor(node.input[0])
    if any(context.model.uses[name] for name in node.output[1:]):
        raise Refused("the indices of the maxima are not computed")
    if attributes.get("ceil_mode"):
        raise Refused("ceil_mode; write pads out")
    window = sliding_window(attributes, tuple(attributes["kernel_shape"]), context.extent(view), (0, 0, 0, 0))
    context.emit(Layer("max_pool", node.output[0], (view.value or "",), window), view.zero, view.step)


def concat(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    if all(context.view(name).pixels for name in node.input) and attributes["axis"] in (2, -1):
        first = context.view(node.input[0])
        pixels = tuple(value for name in node.input for value in context.view(name).pixels)
        context.views[node.output[0]] = replace(first, pixels=pixels)
        return
    views = [context.tensor(name) for name in node.input]
    if attributes["axis"] not in (1, -3):
        raise Refused(f"axis = {attributes['axis']}; channels are axis 1")
    if len({view.zero for view in views}) > 1:
        raise Refused("operands differ in type")
    inputs = tuple(view.value or "" for view in views)
    context.emit(Layer("concat", node.output[0], inputs), views[0].zero, views[0].step)


def reshape(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view, shape = context.tensor(node.input[0]), context.constant(node, 1, "shape").tolist()
    size = context.sizes.get(view.value or "")
    if size is None or shape not in ([1, size[0], -1], [1, size[0], size[1] * size[2]]):
        raise Refused("only to rows of pixels, for a Gather that puts them elsewhere")
    context.views[node.output[0]] = replace(view, value=None, pixels=(view.value or "",))


def gather(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    """From a table, which is a constant, or of pixels, whose places are."""
    if node.input[0] in context.views:
        _gather_pixels(context, node, attributes)
    else:
        _gather_entries(context, node)


def _gather_pixels(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view, indices = context.view(node.input[0]), context.constant(node, 1, "indices")
    sizes = [context.sizes.get(name) for name in view.pixels]
    if not sizes or None in sizes or attributes.get("axis", 0) not in (2, -1) or indices.ndim != 2:
        raise Refused("only of rows of pixels, into rows and columns")
    places = _places(indices, [size[1:] for size in sizes if size])
    context.emit(Layer("paste", node.output[0], view.pixels, places=places), view.zero, view.step)


def _gather_entries(context: IntegerContext, node: Node) -> None:
    """An element of a table for each element of a tensor."""
    table = context.constant(node, 0, "table")
    index = context.view(node.input[1])
    if table.shape != (TABLE_SIZE,) or table.dtype.name not in ("uint8", "int8"):
        raise Refused(f"gathers from {table.dtype}{list(table.shape)}, must be a table of {TABLE_SIZE} bytes")
    if index.value is not None or len(index.addends) != 1 or index.zero != 128 or (index.low, index.high) != WIDE:
        raise Refused("a table is indexed by a uint8 tensor at zero point 128, cast to int32")
    entries = (table.astype(np.int16) - (128 if table.dtype == np.uint8 else 0)).astype(np.int8)
    layer = Layer("table", node.output[0], index.addends, table=entries)
    context.emit(layer, 128 if table.dtype == np.uint8 else 0, 0.0)


def take_slice(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view = context.tensor(node.input[0])
    size = context.sizes.get(view.value or "")
    if size is None:
        raise Refused("the size of its operand is not known, because an earlier node is refused")
    starts, ends = context.constant(node, 1, "starts"), context.constant(node, 2, "ends")
    axes, steps = context.optional(node, 3, "axes"), context.optional(node, 4, "steps")
    window = slice_window((1, *size), starts, ends, axes, steps)
    context.emit(Layer("slice", node.output[0], (view.value or "",), window), view.zero, view.step)


def resize(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view = context.tensor(node.input[0])
    scales = context.constant(node, 2, "scales")
    how = (attributes.get("mode", b"nearest"), attributes.get("nearest_mode"))
    if [_text(each) for each in how] != ["nearest", "floor"] or (
        _text(attributes.get("coordinate_transformation_mode")) != "asymmetric"
    ):
        raise Refused("only nearest, floor, asymmetric is computed")
    factor = float(scales[-1]) if scales.shape == (4,) else 0.0
    if scales.tolist() != [1, 1, factor, factor] or factor not in range(2, MOST_REPEATS + 1):
        raise Refused(f"scales {scales.tolist()} must be 1, 1 and twice one of 2..{MOST_REPEATS}")
    layer = Layer("upsample", node.output[0], (view.value or "",), repeat=int(factor))
    context.emit(layer, view.zero, view.step)


def identity(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    context.views[node.output[0]] = context.view(node.input[0])


def _text(attribute: bytes | str | None) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else attribute or ""


def _places(indices: NDArray[Any], sizes: Sequence[tuple[int, int]]) -> tuple[PastePlace, ...]:
    """Where the operands of a paste lie, from the number of the pixel at each row and column. Raises Refused."""
    places: list[PastePlace] = []
    first = 0
    for rows, columns in sizes:
        at = np.argwhere((indices >= first) & (indices < first + rows * columns))
        if not len(at):
            raise Refused("leaves out an operand")
        top, left = at.min(axis=0).tolist()
        end = at.max(axis=0).tolist()
        step_h, step_w = (max(1, (end[i] - at.min(axis=0)[i]) // max(1, n - 1)) for i, n in enumerate((rows, columns)))
        places.append(PastePlace(top, left, int(step_h), int(step_w), rows, columns))
        first += rows * columns
    try:
        same = np.array_equal(pasted_pixels(places), indices)
    except (ValueError, IndexError):
        same = False
    if not same:
        raise Refused("its operands do not keep their rows and columns, in even steps")
    return tuple(places)


OPERATORS: dict[str, IntegerOperator] = {
    "DequantizeLinear": dequantise,
    "QuantizeLinear": quantise_input,
    "Concat": concat,
    "Gather": gather,
    "Identity": identity,
    "MaxPool": max_pool,
    "Reshape": reshape,
    "Resize": resize,
    "Slice": take_slice,
}
