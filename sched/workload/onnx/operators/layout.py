"""Operators that give values another order or shape, take some of them, or some several times."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.pictures import as_picture, settle
from ..building.tables import emit_table, find_function
from ..errors import Refused
from ..nodes import Attributes, Node
from ..windows import slices


def identity(context: FloatContext, node: Node, attributes: Attributes) -> None:
    context.pass_on(node)


def dropout(context: FloatContext, node: Node, attributes: Attributes) -> None:
    training = context.optional(node, 2, "training mode")
    if training is not None and training.any():
        raise Refused("training_mode; export the model for inference")
    if len(node.output) > 1 and context.model.uses[node.output[1]]:
        raise Refused("its mask output is used")
    context.pass_on(node)


def cast(context: FloatContext, node: Node, attributes: Attributes) -> None:
    from onnx import TensorProto

    if attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        raise Refused(f"to {TensorProto.DataType.Name(attributes['to'])}; only floating point is quantised")
    if context.views[node.input[0]].value not in context.truths:
        context.pass_on(node)
    elif (composed := find_function(context, node)) is not None:
        emit_table(context, node, *composed)


def refuse_integers(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """What quantises: only models of floating point are read."""
    raise Refused("the model is quantised already, around float layers; give the float model that it was made from")


def transpose(context: FloatContext, node: Node, attributes: Attributes) -> None:
    order = settle(context, node.input[0]).order
    context.move(node, order.transpose(attributes.get("perm", tuple(range(order.ndim))[::-1])))


def flatten(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    axis = attributes.get("axis", 1)
    axis += len(view.shape) if axis < 0 else 0
    context.move(node, view.order.reshape(prod(view.shape[:axis]), -1))


def reshape(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    shape = context.constant(node, 1, "shape").tolist()
    if not attributes.get("allowzero"):
        shape = [view.shape[i] if size == 0 and i < len(view.shape) else size for i, size in enumerate(shape)]
    try:
        context.move(node, view.order.reshape(shape))
    except ValueError:
        raise Refused(f"from {list(view.shape)} to {shape}, which has another number of elements") from None


def squeeze(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view, axes = settle(context, node.input[0]), _axes(context, node, attributes)
    context.move(node, np.squeeze(view.order, None if axes is None else tuple(axes)))


def unsqueeze(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view, axes = settle(context, node.input[0]), _axes(context, node, attributes) or []
    context.move(node, np.expand_dims(view.order, tuple(axes)))


def _axes(context: FloatContext, node: Node, attributes: Attributes) -> list[int] | None:
    axes = context.optional(node, 1, "axes")
    return attributes.get("axes") if axes is None else axes.tolist()


def space_to_depth(context: FloatContext, node: Node, attributes: Attributes) -> None:
    order, block = as_picture(context, node.input[0]).order, attributes["blocksize"]
    _, c, h, w = order.shape
    if h % block or w % block:
        raise Refused(f"{h} rows and {w} columns in blocks of {block}")
    blocks = order.reshape(c, h // block, block, w // block, block).transpose(2, 4, 0, 1, 3)
    context.move(node, blocks.reshape(1, -1, h // block, w // block))


def depth_to_space(context: FloatContext, node: Node, attributes: Attributes) -> None:
    order, block = as_picture(context, node.input[0]).order, attributes["blocksize"]
    _, c, h, w = order.shape
    if c % (block * block):
        raise Refused(f"{c} channels in blocks of {block}x{block}")
    if attributes.get("mode", "DCR") == "DCR":
        blocks = order.reshape(block, block, -1, h, w).transpose(2, 3, 0, 4, 1)
    else:
        blocks = order.reshape(-1, block, block, h, w).transpose(0, 3, 1, 4, 2)
    context.move(node, blocks.reshape(1, -1, h * block, w * block))


def take_slice(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    if context.model.opset < 10:
        starts, ends = np.array(attributes["starts"]), np.array(attributes["ends"])
        axes, steps = attributes.get("axes"), None
        axes = None if axes is None else np.array(axes)
    else:
        starts, ends = context.constant(node, 1, "starts"), context.constant(node, 2, "ends")
        axes, steps = context.optional(node, 3, "axes"), context.optional(node, 4, "steps")
    context.move(node, view.order[slices(view.shape, starts, ends, axes, steps)])


def gather(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    indices, axis = context.constant(node, 1, "indices"), attributes.get("axis", 0) % len(view.shape)
    check_size((*view.shape[:axis], *indices.shape, *view.shape[axis + 1 :]))
    context.move(node, np.take(view.order, indices, axis))


def gather_places(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """GatherND: the last axis of the indices says a place in the first axes of the operand."""
    order, indices = settle(context, node.input[0]).order, context.constant(node, 1, "indices")
    shared = attributes.get("batch_dims", 0)
    depth, lead = indices.shape[-1], indices.shape[:-1]
    if order.shape[:shared] != indices.shape[:shared] or not depth <= order.ndim - shared:
        raise Refused(f"indices of shape {list(indices.shape)} for an operand of shape {list(order.shape)}")
    check_size((*lead, *order.shape[shared + depth :]))
    many = order.reshape(-1, *order.shape[shared:])
    places = indices.reshape(len(many), *indices.shape[shared:])
    parts = [one[tuple(np.moveaxis(place, -1, 0))] for one, place in zip(many, places, strict=True)]
    context.move(node, np.stack(parts).reshape(*lead, *order.shape[shared + depth :]))


def gather_elements(context: FloatContext, node: Node, attributes: Attributes) -> None:
    order, indices = settle(context, node.input[0]).order, context.constant(node, 1, "indices")
    axis = attributes.get("axis", 0) % order.ndim
    few = tuple(slice(None if at == axis else size) for at, size in enumerate(indices.shape))
    context.move(node, np.take_along_axis(order[few], indices, axis))


def split(context: FloatContext, node: Node, attributes: Attributes) -> None:
    view, count = settle(context, node.input[0]), len(node.output)
    axis: int = attributes.get("axis", 0)
    stated_sizes = attributes.get("split") if context.model.opset < 13 else context.optional(node, 1, "sizes")
    whole = view.shape[axis]
    each = -(-whole // count)
    sizes = (
        [min(each, whole - each * index) for index in range(count)]
        if stated_sizes is None
        else [int(size) for size in stated_sizes]
    )
    if sum(sizes) != whole:
        raise Refused(f"into parts of {sizes} of {whole}")
    parts = np.split(view.order, np.cumsum(np.array(sizes, np.int64))[:-1], axis)
    for index, part in enumerate(parts):
        if node.output[index]:
            context.move(node, part, index)
            context.views[node.output[index]] = replace(context.views[node.output[index]], single=count == 1)


def tile(context: FloatContext, node: Node, attributes: Attributes) -> None:
    order, repeats = settle(context, node.input[0]).order, context.constant(node, 1, "repeats").tolist()
    check_size([size * count for size, count in zip(order.shape, repeats, strict=True)])
    context.move(node, np.tile(order, repeats))


def expand(context: FloatContext, node: Node, attributes: Attributes) -> None:
    order, shape = settle(context, node.input[0]).order, tuple(context.constant(node, 1, "shape").tolist())
    whole = np.broadcast_shapes(order.shape, shape)
    check_size(whole)
    context.move(node, np.broadcast_to(order, whole))


OPERATORS: dict[str, Operator] = {
    "Cast": cast,
    "DepthToSpace": depth_to_space,
    "DequantizeLinear": refuse_integers,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_places,
    "Identity": identity,
    "QuantizeLinear": refuse_integers,
    "Reshape": reshape,
    "Slice": take_slice,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
