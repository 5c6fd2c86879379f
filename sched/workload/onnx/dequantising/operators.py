"""Operators of integers as those of real numbers: products, sums, pairs of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Refused
from ..load import CheckedModel
from ..nodes import attributes
from ..pins import EXACT, Rounded, scales_of
from .context import RealContext, along, real_numbers
from .pairs import weights_before, zero_left_out

if TYPE_CHECKING:
    from onnx import NodeProto

MICROSOFT = "com.microsoft"


def check_sums(
    w: NDArray[Any], zeros: NDArray[Any], bias: NDArray[Any] | None, x_zero: NDArray[Any], axis: int
) -> None:
    """Raises Refused where sums of 32 bits that an integer operator of the file makes may not fit: ONNX Runtime lets
    them overflow. `w`: with its outputs along `axis`, less `zeros`; `x_zero`: of the operand, in its type."""
    integers = np.moveaxis(w.astype(np.int64) - along(zeros.astype(np.int64), axis, w.ndim), axis, 0)
    flat, range_, zero = integers.reshape(len(integers), -1), np.iinfo(x_zero.dtype), int(x_zero.flat[0])
    ends = flat * (range_.min - zero), flat * (range_.max - zero)
    start = np.zeros(len(flat), np.int64) if bias is None else bias.astype(np.int64).ravel()
    high, low = start + np.maximum(*ends).sum(axis=1), start + np.minimum(*ends).sum(axis=1)
    most: NDArray[np.int64] = np.asarray(np.where(high > -low, high, low), np.int64)
    worst = int(np.abs(most).argmax())
    if high.max() >= 1 << 31 or low.min() < -(1 << 31):
        raise Refused(
            f"its sums may reach {most[worst]} in channel {worst} (bias {start[worst]}), past the 32 bits of the "
            "file's own accumulator, which overflows in ONNX Runtime: quantise the model again, with a bias that fits"
        )


def convolution(context: RealContext, node: NodeProto) -> None:
    x = context.operand(node.input[0], context.number(node, 1), context.number(node, 2))
    scale, zero = context.number(node, 4), context.number(node, 5)
    w = context.operand(node.input[3], scale, zero, 0)
    if node.input[3] in context.constants:
        bias = context.constants.get(node.input[8]) if len(node.input) > 8 else None
        check_sums(context.constants[node.input[3]], zero, bias, context.number(node, 2), 0)
    inputs = [x, w]
    if len(node.input) > 8 and node.input[8]:
        step = np.float64(context.number(node, 1).flat[0]) * scale.astype(np.float64)
        inputs.append(context.constant(f"{node.output[0]}//bias", context.constants[node.input[8]] * step.ravel()))
    numbers = context.number(node, 6), context.number(node, 7)
    context.emit_rounded(node, "Conv", inputs, numbers, scales_of(scale), **attributes(node))


def product(context: RealContext, node: NodeProto) -> None:
    sides = [
        context.operand(node.input[at], context.number(node, at + 1), context.number(node, at + 2), axis)
        for at, axis in ((0, -2), (3, -1))
    ]
    weights = [context.number(node, at + 1) for at in (0, 3) if node.input[at] in context.constants]
    step = scales_of(weights[0]) if weights else ()
    context.emit_rounded(node, "MatMul", sides, (context.number(node, 6), context.number(node, 7)), step)


def fully_connected(context: RealContext, node: NodeProto) -> None:
    """com.microsoft.QGemm."""
    options = attributes(node)
    scale = context.number(node, 4)
    x = context.operand(node.input[0], context.number(node, 1), context.number(node, 2))
    axis = 0 if options.get("transB") else 1
    inputs = [x, context.operand(node.input[3], scale, context.number(node, 5), axis)]
    if node.input[3] in context.constants:
        bias = context.constants.get(node.input[6]) if len(node.input) > 6 else None
        check_sums(context.constants[node.input[3]], context.number(node, 5), bias, context.number(node, 2), axis)
    if len(node.input) > 6 and node.input[6]:
        step = np.float64(context.number(node, 1).flat[0]) * scale.astype(np.float64).ravel()
        step = step * options.get("alpha", 1.0)
        inputs.append(context.constant(f"{node.output[0]}//bias", context.constants[node.input[6]] * step))
    weights = scales_of(scale * np.float64(options.get("alpha", 1.0)))
    if len(node.input) < 9:
        raise Refused("without a scale of its result; export QLinearMatMul")
    numbers = context.number(node, 7), context.number(node, 8)
    context.emit_rounded(node, "Gemm", inputs, numbers, weights, **options)


def integer_sums(context: RealContext, node: NodeProto) -> None:
    """ConvInteger and MatMulInteger: sums of 32 bits, with a scale of 1."""
    conv = node.op_type == "ConvInteger"
    one = np.ones((), np.float32)
    zeros = [context.number(node, at, np.uint8(0)) for at in (2, 3)]
    inputs = [
        context.operand(node.input[at], one, zeros[at], axis, pinned=False)  # a scale that nobody has chosen
        for at, axis in ((0, None if conv else -2), (1, 0 if conv else -1))
    ]
    output = node.output[0]
    context.scales[output] = one, np.zeros((), np.float32)
    if context.dynamic.intersection(node.input):
        context.dynamic.add(output)
        context.real[output] = f"{output}//real"
    context.emit("Conv" if conv else "MatMul", inputs, context.named(output), **attributes(node))


def of_two(context: RealContext, node: NodeProto) -> None:
    sides = [
        context.operand(node.input[at], context.number(node, at + 1), context.number(node, at + 2)) for at in (0, 3)
    ]
    numbers = context.number(node, 6), context.number(node, 7, context.zero_left_out(node.input[0]))
    operator = node.op_type.removeprefix("QLinear")
    context.emit_rounded(node, operator, sides, numbers, before=_rounding_before(context, node, operator))


def _rounding_before(context: RealContext, node: NodeProto, operator: str) -> Rounded:
    """How far rounding before takes the sum or the product of a tensor and a constant, which the layer before may
    compute as well."""
    for at, other in ((0, 3), (3, 0)):
        name = context.named(node.input[at])
        if node.input[other] in context.constants and (before := context.rounded.get(name)):
            if operator == "Add":
                return Rounded(-inf, inf, before.off, before=name)
            numbers = context.number(node, other + 1), context.number(node, other + 2)
            real = real_numbers(context.constants[node.input[other]], *numbers, None)
            return Rounded(-inf, inf, before.off * float(np.abs(real).max(initial=0.0)), before=name)
    return EXACT


def of_one(context: RealContext, node: NodeProto) -> None:
    options = attributes(node)
    if options.pop("channels_last", 0):
        raise Refused("channels_last")
    options.pop("opset", None)
    default = context.zero_left_out(node.input[0])
    x = context.operand(node.input[0], context.number(node, 1), context.number(node, 2, default))
    numbers = context.number(node, 3), context.number(node, 4, default)
    context.emit_rounded(node, node.op_type.removeprefix("QLinear"), [x], numbers, **options)


def concatenation(context: RealContext, node: NodeProto) -> None:
    parts = [
        context.operand(node.input[at], context.number(node, at + 1), context.number(node, at + 2))
        for at in range(2, len(node.input), 3)
    ]
    context.emit_rounded(node, "Concat", parts, (context.number(node, 0), context.number(node, 1)), **attributes(node))


def quantise(context: RealContext, node: NodeProto) -> None:
    scale, zero = context.number(node, 1), context.number(node, 2, zero_left_out(node))
    if scale.size == 1:
        if any(value.name == node.input[0] for value in context.file.graph.input):
            context.entries[node.input[0]] = node.output[0]
        weights = weights_before(node.input[0], context.makers, context.constants)
        source = context.named(node.input[0])
        before = context.rounded.get(source, EXACT)
        context.emit_rounded(node, "Identity", [source], (scale, zero), weights, before)
        return
    if scale.ndim != 1 or zero.dtype.name not in ("uint8", "int8"):
        raise Refused("scales in blocks, or zero points not of 8 bits")
    rank = len(CheckedModel(context.name, context.file).input_sizes.get(node.input[0], ()))
    if not rank:
        raise Refused("scales by channel of a tensor inside the network")
    axis = attributes(node).get("axis", 1)
    context.scales[node.output[0]] = along(scale, axis, rank), along(zero, axis, rank)
    context.emit("Identity", [context.named(node.input[0])], node.output[0])


def dequantise(context: RealContext, node: NodeProto) -> None:
    scale, zero = context.number(node, 1), context.number(node, 2, context.zero_left_out(node.input[0]))
    if scale.ndim > 1:
        raise Refused("scales in blocks")
    if zero.dtype.name not in ("uint8", "int8", "int32"):
        raise Refused(f"numbers of {zero.dtype}; must be of 8 bits")
    axis = attributes(node).get("axis", 1) if scale.size > 1 else None
    real = context.operand(node.input[0], scale, zero, axis)
    context.emit("Identity", [real], node.output[0])
    if real in context.rounded:
        context.rounded[node.output[0]] = context.rounded[real]


def dynamically(context: RealContext, node: NodeProto) -> None:
    """Its numbers stand for its operand; scale 1 and zero point 0 of that are constants."""
    values, scale, zero = node.output
    context.real[values] = context.named(node.input[0])
    context.scales[values] = np.ones((), np.float32), np.zeros((), np.float32)
    context.dynamic.add(values)
    context.constants |= {scale: np.ones((), np.float32), zero: np.zeros((), np.uint8)}
    context.constant(scale, context.constants[scale])


#: Operators of integers, and what writes them.
OPERATORS: dict[str, Callable[[RealContext, NodeProto], None]] = {
    "ConvInteger": integer_sums,
    "DequantizeLinear": dequantise,
    "DynamicQuantizeLinear": dynamically,
    "MatMulInteger": integer_sums,
    "QLinearConv": convolution,
    "QLinearMatMul": product,
    "QuantizeLinear": quantise,
    f"{MICROSOFT}.QGemm": fully_connected,
    f"{MICROSOFT}.QLinearAdd": of_two,
    f"{MICROSOFT}.QLinearMul": of_two,
    f"{MICROSOFT}.QLinearAveragePool": of_one,
    f"{MICROSOFT}.QLinearConcat": concatenation,
    f"{MICROSOFT}.QLinearGlobalAveragePool": of_one,
    f"{MICROSOFT}.QLinearLeakyRelu": of_one,
    f"{MICROSOFT}.QLinearSigmoid": of_one,
    f"{MICROSOFT}.QLinearSoftmax": of_one,
}
