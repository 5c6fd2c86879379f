"""Sums and products of two tensors of 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshloom.hw.spec.isa import SCALE_SHIFT

from ...graph import Layer
from ...layers import SCALE_LIMIT
from ..errors import Refused
from ..load import Attributes
from .context import IntegerContext, IntegerOperator

if TYPE_CHECKING:
    from onnx import NodeProto


def qlinear_add(context: IntegerContext, node: NodeProto, attributes: Attributes) -> None:
    (a, a_scale), (b, b_scale) = context.operand(node, 0), context.operand(node, 3)
    scale, zero = float(context.number(node, 6, "output scale")), context.zero_point(node, 7, None)
    if not a_scale == b_scale == scale:
        raise Refused(f"scales {a_scale:g}, {b_scale:g} and {scale:g} must be equal")
    context.emit(Layer("add", node.output[0], (a.value or "", b.value or "")), zero, scale)


def qlinear_mul(context: IntegerContext, node: NodeProto, attributes: Attributes) -> None:
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
    "com.microsoft.QLinearAdd": qlinear_add,
    "com.microsoft.QLinearMul": qlinear_mul,
}
