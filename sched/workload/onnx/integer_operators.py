"""Operators of integers as those of real numbers: products, sums, pairs of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import Refused
from .integer_tensors import IntegerTensors, along, real_numbers
from .load import CheckedModel, attributes
from .pairs import weights_before
from .pins import EXACT, Rounded, scales_of

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


class IntegerOperators(IntegerTensors):
    def convolution(self, node: NodeProto) -> None:
        x = self._operand(node.input[0], self._number(node, 1), self._number(node, 2))
        scale, zero = self._number(node, 4), self._number(node, 5)
        w = self._operand(node.input[3], scale, zero, 0)
        if node.input[3] in self.constants:
            bias = self.constants.get(node.input[8]) if len(node.input) > 8 else None
            check_sums(self.constants[node.input[3]], zero, bias, self._number(node, 2), 0)
        inputs = [x, w]
        if len(node.input) > 8 and node.input[8]:
            step = np.float64(self._number(node, 1).flat[0]) * scale.astype(np.float64)
            inputs.append(self._constant(f"{node.output[0]}//bias", self.constants[node.input[8]] * step.ravel()))
        numbers = self._number(node, 6), self._number(node, 7)
        self._rounded(node, "Conv", inputs, numbers, scales_of(scale), **attributes(node))

    def product(self, node: NodeProto) -> None:
        sides = [
            self._operand(node.input[at], self._number(node, at + 1), self._number(node, at + 2), axis)
            for at, axis in ((0, -2), (3, -1))
        ]
        weights = [self._number(node, at + 1) for at in (0, 3) if node.input[at] in self.constants]
        step = scales_of(weights[0]) if weights else ()
        self._rounded(node, "MatMul", sides, (self._number(node, 6), self._number(node, 7)), step)

    def fully_connected(self, node: NodeProto) -> None:
        """com.microsoft.QGemm."""
        given = attributes(node)
        scale = self._number(node, 4)
        x = self._operand(node.input[0], self._number(node, 1), self._number(node, 2))
        axis = 0 if given.get("transB") else 1
        inputs = [x, self._operand(node.input[3], scale, self._number(node, 5), axis)]
        if node.input[3] in self.constants:
            bias = self.constants.get(node.input[6]) if len(node.input) > 6 else None
            check_sums(self.constants[node.input[3]], self._number(node, 5), bias, self._number(node, 2), axis)
        if len(node.input) > 6 and node.input[6]:
            step = np.float64(self._number(node, 1).flat[0]) * scale.astype(np.float64).ravel()
            step = step * given.get("alpha", 1.0)
            inputs.append(self._constant(f"{node.output[0]}//bias", self.constants[node.input[6]] * step))
        weights = scales_of(scale * np.float64(given.get("alpha", 1.0)))
        if len(node.input) < 9:
            raise Refused("without a scale of its result; export QLinearMatMul")
        numbers = self._number(node, 7), self._number(node, 8)
        self._rounded(node, "Gemm", inputs, numbers, weights, **given)

    def sums(self, node: NodeProto) -> None:
        """ConvInteger and MatMulInteger: sums of 32 bits, with a scale of 1."""
        conv = node.op_type == "ConvInteger"
        one = np.ones((), np.float32)
        zeros = [self._number(node, at, np.uint8(0)) for at in (2, 3)]
        inputs = [
            self._operand(node.input[at], one, zeros[at], axis, pinned=False)  # a scale that nobody has chosen
            for at, axis in ((0, None if conv else -2), (1, 0 if conv else -1))
        ]
        output = node.output[0]
        self.scales[output] = one, np.zeros((), np.float32)
        if self.dynamic.intersection(node.input):
            self.dynamic.add(output)
            self.real[output] = f"{output}//real"
        self._emit("Conv" if conv else "MatMul", inputs, self._named(output), **attributes(node))

    def of_two(self, node: NodeProto) -> None:
        sides = [self._operand(node.input[at], self._number(node, at + 1), self._number(node, at + 2)) for at in (0, 3)]
        numbers = self._number(node, 6), self._number(node, 7, np.uint8(0))
        operator = node.op_type.removeprefix("QLinear")
        self._rounded(node, operator, sides, numbers, before=self._with_constant(node, operator))

    def _with_constant(self, node: NodeProto, operator: str) -> Rounded:
        """How far rounding before takes the sum or the product of a tensor and a constant, which the layer before may
        compute as well."""
        for at, other in ((0, 3), (3, 0)):
            name = self._named(node.input[at])
            if node.input[other] in self.constants and (before := self.rounded.get(name)):
                if operator == "Add":
                    return Rounded(-inf, inf, before.off, before=name)
                numbers = self._number(node, other + 1), self._number(node, other + 2)
                real = real_numbers(self.constants[node.input[other]], *numbers, None)
                return Rounded(-inf, inf, before.off * float(np.abs(real).max(initial=0.0)), before=name)
        return EXACT

    def of_one(self, node: NodeProto) -> None:
        given = attributes(node)
        if given.pop("channels_last", 0):
            raise Refused("channels_last")
        given.pop("opset", None)
        x = self._operand(node.input[0], self._number(node, 1), self._number(node, 2, np.uint8(0)))
        numbers = self._number(node, 3), self._number(node, 4, np.uint8(0))
        self._rounded(node, node.op_type.removeprefix("QLinear"), [x], numbers, **given)

    def concatenation(self, node: NodeProto) -> None:
        parts = [
            self._operand(node.input[at], self._number(node, at + 1), self._number(node, at + 2))
            for at in range(2, len(node.input), 3)
        ]
        self._rounded(node, "Concat", parts, (self._number(node, 0), self._number(node, 1)), **attributes(node))

    def quantise(self, node: NodeProto) -> None:
        scale, zero = self._number(node, 1), self._number(node, 2, np.uint8(0))
        if scale.size == 1:
            if any(value.name == node.input[0] for value in self.file.graph.input):
                self.entries[node.input[0]] = node.output[0]
            weights = weights_before(node.input[0], self.makers, self.constants)
            source = self._named(node.input[0])
            before = self.rounded.get(source, EXACT)
            self._rounded(node, "Identity", [source], (scale, zero), weights, before)
            return
        if scale.ndim != 1 or zero.dtype.name not in ("uint8", "int8"):
            raise Refused("scales in blocks, or zero points not of 8 bits")
        rank = len(CheckedModel(self.name, self.file).input_sizes.get(node.input[0], ()))
        if not rank:
            raise Refused("scales by channel of a tensor inside the network")
        axis = attributes(node).get("axis", 1)
        self.scales[node.output[0]] = along(scale, axis, rank), along(zero, axis, rank)
        self._emit("Identity", [self._named(node.input[0])], node.output[0])

    def dequantise(self, node: NodeProto) -> None:
        scale, zero = self._number(node, 1), self._number(node, 2, np.uint8(0))
        if scale.ndim > 1:
            raise Refused("scales in blocks")
        if zero.dtype.name not in ("uint8", "int8", "int32"):
            raise Refused(f"numbers of {zero.dtype}; must be of 8 bits")
        axis = attributes(node).get("axis", 1) if scale.size > 1 else None
        real = self._operand(node.input[0], scale, zero, axis)
        self._emit("Identity", [real], node.output[0])
        if real in self.rounded:
            self.rounded[node.output[0]] = self.rounded[real]

    def dynamically(self, node: NodeProto) -> None:
        """Its numbers stand for its operand; scale 1 and zero point 0 of that are constants."""
        values, scale, zero = node.output
        self.real[values] = self._named(node.input[0])
        self.scales[values] = np.ones((), np.float32), np.zeros((), np.float32)
        self.dynamic.add(values)
        self.constants |= {scale: np.ones((), np.float32), zero: np.zeros((), np.uint8)}
        self._constant(scale, self.constants[scale])


#: Operators of integers, and what writes them.
OPERATORS: dict[str, Callable[[IntegerOperators, NodeProto], None]] = {
    "ConvInteger": IntegerOperators.sums,
    "DequantizeLinear": IntegerOperators.dequantise,
    "DynamicQuantizeLinear": IntegerOperators.dynamically,
    "MatMulInteger": IntegerOperators.sums,
    "QLinearConv": IntegerOperators.convolution,
    "QLinearMatMul": IntegerOperators.product,
    "QuantizeLinear": IntegerOperators.quantise,
    f"{MICROSOFT}.QGemm": IntegerOperators.fully_connected,
    f"{MICROSOFT}.QLinearAdd": IntegerOperators.of_two,
    f"{MICROSOFT}.QLinearMul": IntegerOperators.of_two,
    f"{MICROSOFT}.QLinearAveragePool": IntegerOperators.of_one,
    f"{MICROSOFT}.QLinearConcat": IntegerOperators.concatenation,
    f"{MICROSOFT}.QLinearGlobalAveragePool": IntegerOperators.of_one,
    f"{MICROSOFT}.QLinearLeakyRelu": IntegerOperators.of_one,
    f"{MICROSOFT}.QLinearSigmoid": IntegerOperators.of_one,
    f"{MICROSOFT}.QLinearSoftmax": IntegerOperators.of_one,
}
