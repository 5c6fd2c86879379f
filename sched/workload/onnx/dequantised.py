"""Files of integer operators (QLinearConv and its like) with any scales and zero points, as float models.

An 8-bit number stands for (q - zero) * scale, so an integer operator is one of real numbers whose result is rounded and
saturated. Written so, the file is a float model, whose tensors get the chip's steps that are nearest to the file's own
(`pins`); weights stay what they are where their scale is one that the chip's requantisation has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import Problem, Refused, UnsupportedError, node_name, operator_name
from .integer_operators import OPERATORS, IntegerOperators
from .pairs import with_quantised_constants, without_pairs
from .pins import Pin, Rounding, pin_of
from .settling import settled

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Operators of numbers of 8 bits that mean the same for the real numbers that these are.
_ALIKE = {
    "Concat", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
    "Unsqueeze",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dequantised:
    """`model`: in real numbers, which its inputs of 8 bits have become too (`inputs`: their scales and zero points).
    `reference`: the file itself with the same inputs, whose tensors of 8 bits have become the real numbers that they
    stand for, by the same names. `pins`: the file's scales by tensor, `rounding`: what it rounds. `dynamic`: whether
    some scales are computed, so that only what is made of all is the file's."""

    model: ModelProto
    reference: ModelProto
    pins: dict[str, Pin]
    rounding: Rounding
    dynamic: bool
    inputs: dict[str, tuple[NDArray[Any], NDArray[Any]]]

    def real(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """What an input of the file is for `model`."""
        return real_input(self.inputs, name, array)


def real_input(
    numbers: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], name: str, array: NDArray[Any]
) -> NDArray[Any]:
    """The real numbers that an input stands for; itself, unless its scale and zero point are in `numbers`."""
    if name not in numbers:
        return array
    scale, zero = numbers[name]
    return ((array.astype(np.float64) - zero) * scale).astype(np.float32)


def has_integer_operators(model: ModelProto) -> bool:
    """Whether any node is one of integers that `dequantised` knows."""
    constants = {item.name for item in model.graph.initializer}
    return any(
        operator_name(node) in OPERATORS and not constants.issuperset(name for name in node.input if name)
        for node in model.graph.node
    )


def in_real_numbers(model: ModelProto, name: str) -> tuple[ModelProto, dict[str, Pin], Dequantised | None]:
    """A model without anything of 8 bits, what the file's tensors had, and, if more than pairs was taken out, more."""
    model = settled(with_quantised_constants(model), name)
    stripped, pins = without_pairs(model)
    if not has_integer_operators(stripped):
        return stripped, pins, None
    own = dequantised(model, name)
    return own.model, own.pins, own


def dequantised(model: ModelProto, name: str) -> Dequantised:
    """Raises UnsupportedError with every node whose scales or operands are not known."""
    return _Writer(model, name).result()


class _Writer(IntegerOperators):
    def result(self) -> Dequantised:
        import onnx

        problems: list[Problem] = []
        for node in self.file.graph.node:
            try:
                self._node(node)
            except Refused as refusal:
                problems.append(Problem(node_name(node), operator_name(node), str(refusal), tuple(node.output)))
        if problems:
            raise UnsupportedError(self.name, problems)
        model = onnx.ModelProto()
        model.CopyFrom(self.file)
        del model.graph.node[:], model.graph.value_info[:]
        model.graph.node.extend(self.nodes)
        model.graph.initializer.extend(self.made)
        for value in (*model.graph.input, *model.graph.output):
            if value.name in self.bytes_in or value.name in self.scales:
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        inputs = {name: self.scales[name] for name in self.bytes_in if name in self.scales}
        reference, rounding = self._reference(), Rounding(self.rounded, self.entries)
        return Dequantised(model, reference, self.pins, rounding, bool(self.dynamic), inputs)

    def _reference(self) -> ModelProto:
        """The file, its integer tensors named `...//bytes`, and nodes that make real ones of them."""
        import onnx
        from onnx import TensorProto, helper

        found = onnx.ModelProto()
        found.CopyFrom(self.file)
        scales = {name: numbers for name, numbers in self.scales.items() if name not in self.dynamic}
        renamed = {name: f"{name}//bytes" for name in scales}
        for node in found.graph.node:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    names[index] = renamed.get(name, name)
        nodes: list[NodeProto] = []
        for value in found.graph.input:
            if value.name in self.bytes_in:
                to, name, bytes_ = value.type.tensor_type.elem_type, value.name, renamed[value.name]
                value.type.tensor_type.elem_type = TensorProto.FLOAT
                scale, zero = (numbers.astype(np.float32) for numbers in scales.pop(name))
                nodes += [
                    helper.make_node("Div", [name, self._constant(f"{name}//scale", scale)], [f"{name}//steps"]),
                    helper.make_node(
                        "Add", [f"{name}//steps", self._constant(f"{name}//up", zero + 0.5)], [f"{name}//q"]
                    ),
                    helper.make_node("Floor", [f"{name}//q"], [f"{name}//whole"]),  # Round is of newer opsets
                    helper.make_node("Cast", [f"{name}//whole"], [bytes_], to=to),
                ]
        nodes += found.graph.node
        for name, (scale, zero) in scales.items():
            target = self.real.get(name, name)
            # in float32 whatever the type: (q - zero) * scale
            numbers = self._constant(f"{target}//zero", zero), self._constant(f"{target}//scale", scale)
            nodes += [
                helper.make_node("Cast", [renamed[name]], [f"{target}//number"], to=TensorProto.FLOAT),
                helper.make_node("Sub", [f"{target}//number", numbers[0]], [f"{target}//less"]),
                helper.make_node("Mul", [f"{target}//less", numbers[1]], [target]),
            ]
        del found.graph.node[:], found.graph.value_info[:]
        found.graph.node.extend(nodes)
        read = {name for node in nodes for name in node.input}
        found.graph.initializer.extend(item for item in self.made if item.name in read)
        for value in found.graph.output:
            if value.name in scales:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        return found

    def _node(self, node: NodeProto) -> None:
        operator = operator_name(node)
        if operator in OPERATORS and operator != "DequantizeLinear":
            OPERATORS[operator](self, node)
            return
        if operator == "DequantizeLinear" and node.input[0] not in self.constants:
            OPERATORS[operator](self, node)
            return
        integers = [name for name in node.input if name in self.scales]
        if node.input and node.input[0] in self.bytes_in and node.input[0] not in self.scales:
            if operator not in _ALIKE:
                raise Refused("computes with 8 bits that have no scale yet")
            scale, zero = self._scale_behind(node.output[0])
            self._first(node.input[0], scale, zero, None)
            integers = [node.input[0]]
        copy = type(node)()
        copy.CopyFrom(node)
        if (
            operator == "Gather"
            and node.input[0] in self.constants
            and self.constants[node.input[0]].dtype.itemsize == 1
        ):
            scale, zero = self._scale_behind(node.output[0])  # a table of bytes
            copy.input[0] = self._operand(node.input[0], scale, zero)
            self.scales[node.output[0]] = scale, zero
            self.nodes.append(copy)
            return
        if integers:
            floats = all(self.scales[name][1].dtype.kind == "f" for name in integers)  # of 32 bits, without a scale
            first = self.scales[integers[0]]
            same = all(np.array_equal(a, b) for name in integers for a, b in zip(first, self.scales[name], strict=True))
            if not floats and (operator not in _ALIKE or not same or first[0].size > 1):
                raise Refused("computes with 8 bits, which no scale is said for; export QLinear operators")
            for index, name in enumerate(node.input):
                copy.input[index] = self._named(name)
            if floats and operator == "Cast":
                self._emit("Identity", [copy.input[0]], node.output[0])
                return
            if not floats:
                for output in node.output:
                    self.scales[output] = first
                    if (pin := pin_of(*first)) is not None:
                        self.pins[output] = pin
        if operator in _ALIKE or operator in ("Clip", "Relu"):
            self._follows(copy)
        self.nodes.append(copy)

    def _follows(self, node: NodeProto) -> None:
        """The results of a node that changes no number, or cuts some off, are rounded as its operands are."""
        known = [self.rounded[name] for name in node.input if name in self.rounded]
        if known:
            most = max(known, key=lambda each: each.off)
            self.rounded |= dict.fromkeys(node.output, most)

    def _scale_behind(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scale and zero point with which a tensor is read, perhaps after it was moved."""
        for node in self.file.graph.node:
            operator = operator_name(node)
            if name not in node.input:
                continue
            at = list(node.input).index(name)
            if operator in _ALIKE:
                return self._scale_behind(node.output[0])
            if operator in OPERATORS and operator not in ("ConvInteger", "MatMulInteger"):
                return self._number(node, at + 1), self._number(node, at + 2, np.uint8(0))
        raise Refused(f"tensor {name!r} has 8 bits without a scale")
