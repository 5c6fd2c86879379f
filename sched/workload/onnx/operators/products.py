"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.kernels import emit_conv
from ..building.layers import emit_fully_connected, require_finite
from ..building.maps import emit_constant
from ..building.pictures import begin_words, lay, settle
from ..building.views import View
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from .scores import meets_softmax


def gemm(context: FloatContext, node: Node, attributes: Attributes) -> None:
    w, bias = context.constant(node, 1, "weights"), context.optional(node, 2, "bias")
    w = (w if attributes.get("transB") else w.T) * attributes.get("alpha", 1.0)
    bias = None if bias is None else bias * attributes.get("beta", 1.0)
    if attributes.get("transA"):
        context.only_if_generous("transA; only weights are transposed")
        view, turned = settle(context, node.input[0]), context.fresh(f"{node.output[0]}/turned")
        context.views[turned] = view.moved(np.ascontiguousarray(view.order.T))
        node = _between(node, [turned], node.output[0])
    if bias is None or bias.ndim < 2 or bias.shape[0] == 1:
        emit_fully_connected(context, node, w, bias)
        return
    sums = context.fresh(f"{node.output[0]}/sums")
    emit_fully_connected(context, _between(node, [node.input[0]], sums), w, None)
    view = context.views[sums]
    term = emit_constant(context, bias, view, node.output[0])
    context.emit_like(FloatLayer("add", node.output[0], (view.value, term.value)), view)


def _between(node: Node, inputs: list[str], output: str) -> Node:
    """A node of the same operator between other tensors."""
    from onnx import helper

    return helper.make_node(node.op_type, inputs, [output], node.name)


def matmul(context: FloatContext, node: Node, attributes: Attributes) -> None:
    first, second = node.input
    if second in context.constants:
        w = context.constants[second]
        w = w.reshape(w.shape[-2:]) if w.ndim > 2 and prod(w.shape[:-2]) == 1 else w
        if w.ndim > 2:
            _multiply_by_each(context, node, w)
            return
        if w.ndim == 0:
            raise Refused("its weights are a single number; a Mul multiplies by one")
        emit_fully_connected(context, node, w.T if w.ndim == 2 else w[None], None)
        if w.ndim == 1:  # the axis that it sums over is gone
            result = context.views[node.output[0]]
            context.keep_view(node.output[0], result.moved(result.order[..., 0]))
    elif first in context.constants:
        _multiply_weights(context, node)
    else:
        _multiply_tensors(context, node, settle(context, first), settle(context, second))


def _multiply_by_each(context: FloatContext, node: Node, w: NDArray[Any]) -> None:
    """Constants [..., inputs, outputs], a matrix for each one of the operand's: convolutions in groups, with zeros
    between these."""
    view, (depth, columns) = settle(context, node.input[0]), w.shape[-2:]
    if len(view.shape) < 2 or view.shape[-1] != depth:
        raise Refused(f"weights of shape {list(w.shape)} for an operand of shape {list(view.shape)}")
    lead = np.broadcast_shapes(view.shape[:-2], w.shape[:-2])
    rows, groups = view.shape[-2], prod(lead)
    check_size((groups * columns, groups * depth), "the weights of its groups, with zeros between them,")
    order = np.broadcast_to(view.order, (*lead, rows, depth)).reshape(groups, rows, depth)
    x, _ = lay(context, node.input[0], view, np.ascontiguousarray(order.swapaxes(1, 2)).reshape(-1, rows))
    weights = np.zeros((groups, columns, groups, depth))
    each = np.broadcast_to(require_finite(w), (*lead, depth, columns)).reshape(groups, depth, columns)
    weights[np.arange(groups), :, np.arange(groups)] = each.swapaxes(1, 2)
    dense = weights.reshape(groups * columns, groups * depth, 1, 1)
    emit_conv(context, FloatLayer("conv", node.output[0], (x.value,), w=dense, bias=np.zeros(len(dense))), x)
    count: int = groups * columns * rows
    index = np.ascontiguousarray(np.arange(count).reshape(groups, columns, rows).swapaxes(1, 2))
    context.keep_view(node.output[0], context.views[node.output[0]].moved(index.reshape(*lead, rows, columns)))


def _multiply_weights(context: FloatContext, node: Node) -> None:
    """Constant [outputs, inputs] x tensor [..., inputs, columns]."""
    w, view = context.constant(node, 0, "first factor"), settle(context, node.input[1])
    if w.ndim > 2 and len(view.shape) >= 2 and w.shape[-1] == view.shape[-2]:  # each transposed, and the other way
        _multiply_turned(context, node, lambda turned: _multiply_by_each(context, turned, w.swapaxes(-1, -2)))
        return
    if w.ndim == 2 and len(view.shape) > 2 and prod(view.shape[:-2]) > 1 and w.shape[1] == view.shape[-2]:
        _multiply_turned(context, node, lambda turned: emit_fully_connected(context, turned, w, None))
        return
    if w.ndim != 2 or len(view.shape) < 2 or prod(view.shape[:-2]) != 1 or w.shape[1] != view.shape[-2]:
        raise Refused(f"weights of shape {list(w.shape)} before an operand of shape {list(view.shape)}")
    x, _ = lay(context, node.input[1], view, view.order.reshape(view.shape[-2:]))
    weights, bias = w.astype(np.float64)[:, :, None, None], np.zeros(len(w))
    emit_conv(context, FloatLayer("conv", node.output[0], (x.value,), w=weights, bias=bias), x)
    result = context.views[node.output[0]]
    context.keep_view(node.output[0], result.moved(result.order.reshape(*view.shape[:-2], len(w), view.shape[-1])))


def _multiply_turned(context: FloatContext, node: Node, multiply: Callable[[Node], None]) -> None:
    """Matrices behind a constant: transposed, multiplied from the other side, and transposed again."""
    view, turned, output = context.view(node.input[1]), context.fresh(f"{node.input[1]}/turned"), node.output[0]
    context.views[turned] = replace(view.moved(np.ascontiguousarray(view.order.swapaxes(-1, -2))), single=False)
    multiply(_between(node, [turned], output))
    result = context.views[output]
    context.keep_view(output, result.moved(np.ascontiguousarray(result.order.swapaxes(-1, -2))))


def _multiply_tensors(context: FloatContext, node: Node, a: View, b: View) -> None:
    """A product of two tensors: matrices of the last two axes, those before in groups of channels."""
    left, right = a.order, b.order
    left = left[None] if left.ndim == 1 else left
    right = right[:, None] if right.ndim == 1 else right
    if left.shape[-1] != right.shape[-2]:
        raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}")
    try:
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}") from None
    rows, depth, columns = (int(size) for size in (*left.shape[-2:], right.shape[-1]))
    groups = prod(int(size) for size in lead)
    left = np.broadcast_to(left, (*lead, rows, depth)).reshape(groups, rows, depth)
    right = np.broadcast_to(right, (*lead, depth, columns)).reshape(groups * depth, columns)
    first, _ = lay(context, node.input[0], a, np.ascontiguousarray(left.swapaxes(1, 2)).reshape(-1, rows), groups)
    second, _ = lay(context, node.input[1], b, np.ascontiguousarray(right), groups)
    first, second = (begin_words(context, view, groups) for view in (first, second))
    along_columns = meets_softmax(context, node.output[0])
    if along_columns:  # the second operand's pixels are the result's
        first, second = second, first
    channels, pixels = (rows, columns) if along_columns else (columns, rows)
    layer = FloatLayer("product", node.output[0], (first.value, second.value), groups=groups)
    context.emit(layer, (groups * channels, *first.size[1:]))
    count: int = groups * channels * pixels
    index = np.arange(count).reshape(groups, channels, pixels)
    index = index if along_columns else np.ascontiguousarray(index.swapaxes(1, 2))
    shape = (*lead, *(() if len(a.shape) == 1 else (rows,)), *(() if len(b.shape) == 1 else (columns,)))
    context.keep_view(node.output[0], context.views[node.output[0]].moved(index.reshape(shape)))


OPERATORS: dict[str, Operator] = {"Gemm": gemm, "MatMul": matmul}
