"""Operators that take some of the values, or some of them several times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.pictures import settle
from ..errors import Refused
from ..load import Attributes
from ..windows import slices

if TYPE_CHECKING:
    from onnx import NodeProto


def take_slice(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    if context.model.opset < 10:
        starts, ends = np.array(attributes["starts"]), np.array(attributes["ends"])
        axes, steps = attributes.get("axes"), None
        axes = None if axes is None else np.array(axes)
    else:
        starts, ends = context.constant(node, 1, "starts"), context.constant(node, 2, "ends")
        axes, steps = context.optional(node, 3, "axes"), context.optional(node, 4, "steps")
    context.move(node, view.order[slices(view.shape, starts, ends, axes, steps)])


def gather(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    indices, axis = context.constant(node, 1, "indices"), attributes.get("axis", 0) % len(view.shape)
    check_size((*view.shape[:axis], *indices.shape, *view.shape[axis + 1 :]))
    context.move(node, np.take(view.order, indices, axis))


def split(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view, count = settle(context, node.input[0]), len(node.output)
    axis: int = attributes.get("axis", 0)
    given = attributes.get("split") if context.model.opset < 13 else context.optional(node, 1, "sizes")
    whole = view.shape[axis]
    each = -(-whole // count)
    sizes = (
        [min(each, whole - each * index) for index in range(count)] if given is None else [int(size) for size in given]
    )
    if sum(sizes) != whole:
        raise Refused(f"into parts of {sizes} of {whole}")
    parts = np.split(view.order, np.cumsum(np.array(sizes, np.int64))[:-1], axis)
    for index, part in enumerate(parts):
        if node.output[index]:
            context.move(node, part, index)
            context.views[node.output[index]] = replace(context.views[node.output[index]], single=count == 1)


def tile(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    order, repeats = settle(context, node.input[0]).order, context.constant(node, 1, "repeats").tolist()
    check_size([size * count for size, count in zip(order.shape, repeats, strict=True)])
    context.move(node, np.tile(order, repeats))


def expand(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    order, shape = settle(context, node.input[0]).order, tuple(context.constant(node, 1, "shape").tolist())
    whole = np.broadcast_shapes(order.shape, shape)
    check_size(whole)
    context.move(node, np.broadcast_to(order, whole))


OPERATORS: dict[str, Operator] = {
    "Expand": expand,
    "Gather": gather,
    "Slice": take_slice,
    "Split": split,
    "Tile": tile,
}
