"""Convolutions with computed filters (a tracker's search for a template) as products of matrices.

What a window holds at each of its taps is a part of the padded map; the parts behind each other, with the filters as
the other factor, make one product for all windows, whose sums are rounded once. Where there is one filter, each channel
is such a product of its own, and their sum is rounded again: maps stay maps.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ..errors import Refused
from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes
from ..subgraphs import reads
from ..windows import sliding_window, two_axes

#: Taps that are written down.
_MOST_TAPS = 1024
#: From this opset on what a Pad and a Slice need are operands.
_OPERANDS = 11


def multiply_by_computed_filters(model: CheckedModel) -> CheckedModel:
    """The model with such products, where the sizes of maps and filters are known."""
    computed = {value.name for value in model.inputs}
    nodes: list[Node] = []
    for node in model.nodes:
        if not computed.isdisjoint(reads(node)):
            computed.update(node.output)
        filters = node.op_type == "Conv" and node.input[1] in computed
        nodes += (_products(model, node) if filters else None) or [node]
    return model.with_nodes(nodes)


def _products(model: CheckedModel, node: Node) -> list[Node] | None:
    """The nodes that take the place of a Conv; None where sizes are not known, or there are too many taps."""
    shapes = [model.shapes.get(name, ()) for name in node.input[:2]]
    options = attributes(node)
    if model.opset < _OPERANDS or len(shapes[0]) not in (3, 4) or len(shapes[0]) != len(shapes[1]):
        return None
    line = len(shapes[0]) == 3
    maps, filters = (_four(shape) for shape in shapes)
    try:
        window = sliding_window(two_axes(options), filters[2:], maps[2:], (0, 0, 0, 0))
    except Refused:
        return None
    if maps[0] != 1 or prod(filters[2:]) > _MOST_TAPS:
        return None
    parts = _ConvParts(node)
    group, (rows, columns) = options.get("group", 1), window.output(*maps[2:])
    single = filters[0] == group and filters[1] > 1  # of one filter each channel by itself, and then their sum
    factors, count = (maps[1], 1) if single else (group, filters[0] // group)
    x = parts.reshape(node.input[0], *maps) if line else node.input[0]
    pads = window.pad_top, window.pad_left, 0, 0, window.pad_bottom, window.pad_right
    if any(pads):
        x = parts.op("Pad", x, parts.integers(0, 0, *pads))
    strides = window.stride_h, window.stride_w
    taps = [
        parts.reshape(parts.part(x, (row, column), (rows, columns), strides), 1, factors, -1, rows * columns)
        for row, column in product(*(range(0, size * window.dilation, window.dilation) for size in filters[2:]))
    ]
    windows = parts.op("Concat", *taps, axis=2) if len(taps) > 1 else taps[0]
    weights = parts.reshape(node.input[1], *filters) if line else node.input[1]
    turned = weights if single else parts.op("Transpose", weights, perm=[0, 2, 3, 1])
    sums = parts.op("MatMul", parts.reshape(turned, 1, factors, count, -1), windows)
    bias = node.input[2] if len(node.input) > 2 else ""
    size = (1, filters[0], columns) if line else (1, filters[0], rows, columns)
    if single:
        ones = parts.array(np.ones((group, filters[1], 1, 1), np.float32))
        sums = parts.op("Conv", parts.reshape(sums, 1, factors, rows, columns), ones, group=group)
    if bias:
        bias = parts.reshape(bias, 1, filters[0], *(1,) * (len(size) - 2))
        parts.op("Add", parts.reshape(sums, *size), bias, to=node.output[0])
    else:
        parts.reshape(sums, *size, to=node.output[0])
    return parts.nodes


def _four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """With one row, if it has none."""
    first, second, *rows, columns = shape
    return first, second, rows[0] if rows else 1, columns


class _ConvParts(Instead):
    """What takes the place of one Conv."""

    def part(self, x: str, first: tuple[int, int], size: tuple[int, int], strides: tuple[int, int]) -> str:
        """What one tap of all windows meets."""
        ends = (at + (count - 1) * stride + 1 for at, count, stride in zip(first, size, strides, strict=True))
        return self.op("Slice", x, *(self.integers(*numbers) for numbers in (first, tuple(ends), (2, 3), strides)))
