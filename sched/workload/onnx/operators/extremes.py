"""Max and Min."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...graph import Place, Window
from ..building.context import FloatContext, Operator
from ..building.maps import emit_constant
from ..building.pictures import settle
from ..building.tables import apply_function, emit_table, find_function
from ..errors import Refused
from ..floats import FloatLayer
from ..load import Attributes
from ..pointwise import function
from .pairs_of_tensors import lay_like

if TYPE_CHECKING:
    from onnx import NodeProto


def extremes(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    """Max and Min: a table with one number; otherwise tensors whose columns take turns in one map, and the maximum
    of each few columns; Min of what is negative."""
    for name in node.input:
        if name in context.views:
            settle(context, name)
    if (found := find_function(context, node)) is not None:
        emit_table(context, node, *found)
        return
    context.only_if_generous("of several tensors, or with constants that differ from channel to channel")
    some = [name for name in node.input if name in context.views]
    shape = context.views[some[0]].shape
    for name in node.input:
        other = context.views[name].shape if name in context.views else context.constants[name].shape
        shape = np.broadcast_shapes(shape, other)
    like = next((settle(context, name) for name in some if context.views[name].shape == shape), None)
    if like is None or prod(shape) != prod(like.size):
        raise Refused(f"of tensors of which none has the result's shape {list(shape)}")
    names: list[str] = []
    for index, name in enumerate(node.input):
        if name in context.constants:
            view = emit_constant(context, context.constants[name], like, f"{node.output[0]}/{index}")
        else:
            view = lay_like(context, name, like, f"{node.output[0]}/{index}")
        if node.op_type == "Min":
            view = apply_function(context, view, f"{node.output[0]}/negative{index}", function("Neg"))
        names.append(view.value)
    count, (channels, rows, columns) = len(names), like.size
    places = tuple(Place(0, at, 1, count, rows, columns) for at in range(count))
    beside = FloatLayer("paste", context.fresh(f"{node.output[0]}/beside"), tuple(names), places=places)
    context.emit(beside, (channels, rows, columns * count))
    last = node.output[0] if node.op_type == "Max" else context.fresh(f"{node.output[0]}/largest")
    window = Window(1, count, 1, count)
    context.emit(FloatLayer("max_pool", last, (beside.output,), window), like.size)
    context.keep_view(last, like)
    if node.op_type == "Min":
        context.emit_like(FloatLayer("table", node.output[0], (last,), function=function("Neg")), context.views[last])


OPERATORS: dict[str, Operator] = {"Max": extremes, "Min": extremes}
