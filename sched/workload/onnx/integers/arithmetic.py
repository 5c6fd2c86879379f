"""Convolutions, sums and products of tensors of 8 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meshloom.hw.spec.isa import SCALE_SHIFT

from ...graph import UNSCALABLE, Layer, scalable
from ...layers import SCALE_LIMIT
from ..dequantising.operators import check_sums
from ..errors import Refused
from ..nodes import Attributes, Node
from ..windows import sliding_window
from .context import IntegerContext, IntegerOperator


def conv(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    view, x_scale = context.operand(node, 0)
    raw = context.constant(node, 3, "weights")
    w_scale = context.constant(node, 4, "weight scale").ravel()
    w_scale = w_scale[:1] if np.all(w_scale == w_scale[:1]) else w_scale
    zero = context.zero_point(node, 5, None)
    y_scale, y_zero = context.number(node, 6, "output scale"), context.zero_point(node, 7, None)
    bias = context.optional(node, 8, "bias")
    w = (raw.astype(np.int16) - zero).astype(np.int8)
    check_sums(w, np.zeros((), np.int8), bias, np.zeros((), np.int8), 0)
    if w.ndim != 4:
        raise Refused(f"weights have shape {list(w.shape)}, must be [outputs, inputs, rows, columns]")
    if len(w_scale) not in (1, len(w)):
        raise Refused(f"{len(w_scale)} weight scales for {len(w)} filters")
    if not all(np.all(np.isfinite(scale) & (scale > 0)) for scale in (x_scale, w_scale, y_scale)):
        raise Refused(f"scales {x_scale:g}, {w_scale.min():g} and {y_scale:g} must be positive")
    with np.errstate(over="ignore", under="ignore"):
        ratios = (np.float32(x_scale) * w_scale.astype(np.float32) / np.float32(y_scale)).astype(np.float64)
    ratios *= 2**SCALE_SHIFT
    for ratio in ratios.tolist():
        if not ratio.is_integer() or not 1 <= ratio <= SCALE_LIMIT:
            raise Refused(
                f"scale m = sx * sw / sy * 2^{SCALE_SHIFT} = {ratio:g} must be a whole number of 1..{SCALE_LIMIT}; "
                "quantise the float model with Meshloom instead"
            )
    kernel = (w.shape[2], w.shape[3])
    window = sliding_window(attributes, kernel, context.extent(view), (0, 0, 0, 0))
    group = attributes.get("group", 1)
    layer = Layer("conv", node.output[0], (view.value or "",), window, scale=int(ratios[0]))
    if w.shape[1] == 1 and bias is None and np.all(w == 1) and group == w.shape[0]:
        layer = replace(layer, kind="average_pool")
    elif group == 1 or (w.shape[1] == 1 and group == w.shape[0]):
        bias = np.zeros(w.shape[0], np.int32) if bias is None else bias
        layer = replace(layer, kind="conv" if group == 1 else "depthwise", w=w, bias=bias)
    else:
        raise Refused(f"group = {group} must be 1, or the number of channels with one filter each")
    if len(ratios) > 1:
        layer = replace(layer, scale=0, scales=ratios.astype(np.int32))
        if not scalable(layer):
            raise Refused(UNSCALABLE)
    context.emit(layer, y_zero, float(y_scale))


def qlinear_add(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    (a, a_scale), (b, b_scale) = context.operand(node, 0), context.operand(node, 3)
    scale, zero = float(context.number(node, 6, "output scale")), context.zero_point(node, 7, None)
    if not a_scale == b_scale == scale:
        raise Refused(f"scales {a_scale:g}, {b_scale:g} and {scale:g} must be equal")
    context.emit(Layer("add", node.output[0], (a.value or "", b.value or "")), zero, scale)


def qlinear_mul(context: IntegerContext, node: Node, attributes: Attributes) -> None:
    (a, a_scale), (b, b_scale) = context.operand(node, 0), context.operand(node, 3)
    scale, zero = float(context.number(node, 6, "output scale")), context.zero_point(node, 7, None)
    if not all(np.isfinite(step) and step > 0 for step in (a_scale, b_scale, scale)):
        raise Refused(f"scales {a_scale:g}, {b_scale:g} and {scale:g} must be positive")
    ratio = a_scale * b_scale / scale * 2**SCALE_SHIFT
    times16 = ratio > SCALE_LIMIT
    m = ratio / 16 if times16 else ratio
    if not m.is_integer() or not 1 <= m <= SCALE_LIMIT:
        raise Refused(
            f"scale m = sa * sb / sy * 2^{SCALE_SHIFT} = {ratio:g} must be a whole number of 1..{SCALE_LIMIT}, or "
            "16 times one; quantise the float model with Meshloom instead"
        )
    pair, sizes = [a.value or "", b.value or ""], [context.sizes.get(view.value or "") for view in (a, b)]
    if None not in sizes and sizes[0] != sizes[1] and sizes[0] == (sizes[1] or (0,))[:1] + (1, 1):
        pair.reverse()
    context.emit(Layer("mul", node.output[0], (pair[0], pair[1]), scale=int(m), times16=times16), zero, scale)


OPERATORS: dict[str, IntegerOperator] = {
    "QLinearConv": conv,
    "com.microsoft.QLinearAdd": qlinear_add,
    "com.microsoft.QLinearMul": qlinear_mul,
}
