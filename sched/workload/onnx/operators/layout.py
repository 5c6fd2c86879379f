"""Operators that give values another order, shape or type."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..building.context import FloatContext, Operator
from ..building.pictures import as_picture, settle
from ..errors import Refused
from ..load import Attributes

if TYPE_CHECKING:
    from onnx import NodeProto


def identity(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    context.pass_on(node)


def dropout(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    training = context.optional(node, 2, "training mode")
    if training is not None and training.any():
        raise Refused("training_mode; export the model for inference")
    if len(node.output) > 1 and context.model.uses[node.output[1]]:
        raise Refused("its mask output is used")
    context.pass_on(node)


def cast(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    from onnx import TensorProto

    if attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        raise Refused(f"to {TensorProto.DataType.Name(attributes['to'])}; only floating point is quantised")
    context.pass_on(node)


def transpose(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    order = settle(context, node.input[0]).order
    context.move(node, order.transpose(attributes.get("perm", tuple(range(order.ndim))[::-1])))


def flatten(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    axis = attributes.get("axis", 1)
    axis += len(view.shape) if axis < 0 else 0
    context.move(node, view.order.reshape(prod(view.shape[:axis]), -1))


def reshape(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view = settle(context, node.input[0])
    wanted = context.constant(node, 1, "shape").tolist()
    if not attributes.get("allowzero"):
        wanted = [view.shape[i] if size == 0 and i < len(view.shape) else size for i, size in enumerate(wanted)]
    try:
        context.move(node, view.order.reshape(wanted))
    except ValueError:
        raise Refused(f"from {list(view.shape)} to {wanted}, which has another number of elements") from None


def squeeze(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view, axes = settle(context, node.input[0]), _axes(context, node, attributes)
    context.move(node, np.squeeze(view.order, None if axes is None else tuple(axes)))


def unsqueeze(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    view, axes = settle(context, node.input[0]), _axes(context, node, attributes) or []
    context.move(node, np.expand_dims(view.order, tuple(axes)))


def _axes(context: FloatContext, node: NodeProto, attributes: Attributes) -> list[int] | None:
    axes = context.optional(node, 1, "axes")
    return attributes.get("axes") if axes is None else axes.tolist()


def space_to_depth(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    order, block = as_picture(context, node.input[0]).order, attributes["blocksize"]
    _, c, h, w = order.shape
    if h % block or w % block:
        raise Refused(f"{h} rows and {w} columns in blocks of {block}")
    blocks = order.reshape(c, h // block, block, w // block, block).transpose(2, 4, 0, 1, 3)
    context.move(node, blocks.reshape(1, -1, h // block, w // block))


def depth_to_space(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    order, block = as_picture(context, node.input[0]).order, attributes["blocksize"]
    _, c, h, w = order.shape
    if c % (block * block):
        raise Refused(f"{c} channels in blocks of {block}x{block}")
    if attributes.get("mode", "DCR") == "DCR":
        blocks = order.reshape(block, block, -1, h, w).transpose(2, 3, 0, 4, 1)
    else:
        blocks = order.reshape(-1, block, block, h, w).transpose(0, 3, 1, 4, 2)
    context.move(node, blocks.reshape(1, -1, h * block, w * block))


OPERATORS: dict[str, Operator] = {
    "Cast": cast,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Flatten": flatten,
    "Identity": identity,
    "Reshape": reshape,
    "SpaceToDepth": space_to_depth,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
