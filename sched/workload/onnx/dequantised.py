"""Files of integer operators (QLinearConv and its like) with any scales and zero points, as float models.

An 8-bit number stands for (q - zero) * scale, so an integer operator is one of real numbers whose result is rounded and
saturated. Written so, the file is a float model, whose tensors get the chip's steps that are nearest to the file's own
(`pins`); weights stay what they are where their scale is one that the chip's requantisation has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .dequantising.context import RealContext
from .dequantising.operators import OPERATORS
from .dequantising.pairs import with_clips_in_front, with_ends_of_relus, with_quantised_constants, without_pairs
from .errors import NodeRefusal, Refused, UnsupportedError, node_name, operator_name
from .nodes import attributes
from .pins import EXACT, Pin, Rounded, Rounding, pin_of
from .settling import settled

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Operators whose results are some of their operands' numbers, whatever these are: of 8 bits, or the real numbers that
#: they stand for.
_MOVES = {
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool",
    "ReduceMax", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
#: These too, if they take the nearest number.
_RESIZES = {"Resize", "Upsample"}
#: Operators whose results differ by no more than their operands together.
_STEADY = {
    "Abs", "Add", "Atan", "Cos", "LeakyRelu", "Max", "Min", "Neg", "Sigmoid", "Sin", "Softsign", "Sub",
    "Sum", "Tanh",
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
    model = with_ends_of_relus(settled(with_clips_in_front(with_quantised_constants(model)), name))
    stripped, pins = without_pairs(model)
    if not has_integer_operators(stripped):
        return stripped, pins, None
    own = dequantised(model, name)
    return own.model, own.pins, own


def dequantised(model: ModelProto, name: str) -> Dequantised:
    """Raises UnsupportedError with every node whose scales or operands are not known."""
    import onnx

    context, problems = RealContext(model, name), list[NodeRefusal]()
    for node in context.file.graph.node:
        try:
            _write(context, node)
        except Refused as refusal:
            problems.append(NodeRefusal(node_name(node), operator_name(node), str(refusal), tuple(node.output)))
    if problems:
        raise UnsupportedError(context.name, problems)
    real = onnx.ModelProto()
    real.CopyFrom(context.file)
    del real.graph.node[:], real.graph.value_info[:]
    real.graph.node.extend(context.nodes)
    real.graph.initializer.extend(context.initialisers)
    for value in (*real.graph.input, *real.graph.output):
        if value.name in context.bytes_in or value.name in context.scales:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    inputs = {name: context.scales[name] for name in context.bytes_in if name in context.scales}
    reference, rounding = _reference(context), Rounding(context.rounded, context.entries)
    return Dequantised(real, reference, context.pins, rounding, bool(context.dynamic), inputs)


def _reference(context: RealContext) -> ModelProto:
    """The file, its integer tensors named `...//bytes`, and nodes that make real ones of them."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.ModelProto()
    model.CopyFrom(context.file)
    scales = {name: numbers for name, numbers in context.scales.items() if name not in context.dynamic}
    renamed = {name: f"{name}//bytes" for name in scales}
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = renamed.get(name, name)
    nodes: list[NodeProto] = []
    for value in model.graph.input:
        if value.name in context.bytes_in:
            to, name, bytes_ = value.type.tensor_type.elem_type, value.name, renamed[value.name]
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            scale, zero = (numbers.astype(np.float32) for numbers in scales.pop(name))
            nodes += [
                helper.make_node("Div", [name, context.constant(f"{name}//scale", scale)], [f"{name}//steps"]),
                helper.make_node(
                    "Add", [f"{name}//steps", context.constant(f"{name}//up", zero + 0.5)], [f"{name}//q"]
                ),
                helper.make_node("Floor", [f"{name}//q"], [f"{name}//whole"]),  # Round is of newer opsets
                helper.make_node("Cast", [f"{name}//whole"], [bytes_], to=to),
            ]
    nodes += model.graph.node
    for name, (scale, zero) in scales.items():
        target = context.real.get(name, name)
        # in float32 whatever the type: (q - zero) * scale
        numbers = context.constant(f"{target}//zero", zero), context.constant(f"{target}//scale", scale)
        nodes += [
            helper.make_node("Cast", [renamed[name]], [f"{target}//number"], to=TensorProto.FLOAT),
            helper.make_node("Sub", [f"{target}//number", numbers[0]], [f"{target}//less"]),
            helper.make_node("Mul", [f"{target}//less", numbers[1]], [target]),
        ]
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input} - {name for node in nodes for name in node.output}
    model.graph.initializer.extend(item for item in context.initialisers if item.name in read)
    for value in model.graph.output:
        if value.name in scales:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return model


def _write(context: RealContext, node: NodeProto) -> None:
    import onnx

    operator = operator_name(node)
    if operator in OPERATORS and operator != "DequantizeLinear":
        OPERATORS[operator](context, node)
        return
    if operator == "DequantizeLinear" and node.input[0] not in context.constants:
        OPERATORS[operator](context, node)
        return
    integers = [name for name in node.input if name in context.scales]
    if node.input and node.input[0] in context.bytes_in and node.input[0] not in context.scales:
        if operator == "Cast":  # bytes stand for themselves
            value = next(value for value in context.file.graph.input if value.name == node.input[0])
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            context.pin_input(node.input[0], np.ones((), np.float32), np.zeros((), kind), None)
            context.emit("Identity", [node.input[0]], node.output[0])
            return
        if not _is_move(node):
            raise Refused("computes with 8 bits that have no scale yet")
        scale, zero = _scale_behind(context, node.output[0], context.zero_left_out(node.input[0]))
        context.pin_input(node.input[0], scale, zero, None)
        integers = [node.input[0]]
    copy = type(node)()
    copy.CopyFrom(node)
    if (
        operator == "Gather"
        and node.input[0] in context.constants
        and context.constants[node.input[0]].dtype.itemsize == 1
    ):
        scale, zero = _scale_behind(context, node.output[0], context.zero_left_out(node.input[0]))  # a table of bytes
        copy.input[0] = context.operand(node.input[0], scale, zero)
        context.scales[node.output[0]] = scale, zero
        context.nodes.append(copy)
        return
    if integers:
        floats = all(context.scales[name][1].dtype.kind == "f" for name in integers)  # of 32 bits, without a scale
        first = context.scales[integers[0]]
        same = all(np.array_equal(a, b) for name in integers for a, b in zip(first, context.scales[name], strict=True))
        pads, chooses = operator == "Pad" and len(integers) == 1, operator in ("ArgMax", "ArgMin")
        keeps_scale = pads or _interpolates(node) or _is_move(node)
        if not floats and (not (keeps_scale or chooses) or not same or first[0].size > 1):
            raise Refused(
                "computes with 8 bits, which no scale is said for; export QLinear operators, or pairs of "
                "QuantizeLinear and DequantizeLinear around it"
            )
        for index, name in enumerate(node.input):
            copy.input[index] = context.named(name)
        if pads and not floats:
            _pad(context, copy, *first)
        if floats and operator == "Cast":
            context.emit("Identity", [copy.input[0]], node.output[0])
            return
        if not floats and not chooses:
            for output in node.output:
                context.scales[output] = first
                if (pin := pin_of(*first)) is not None:
                    context.pins[output] = pin
    if (
        operator in ("Clip", "Dropout", "Relu")
        or _is_move(node)
        or (operator == "Pad" and integers)
        or (operator == "Einsum" and _rearranges(node))
    ):
        _follows(context, copy)
        maker = context.makers.get(node.input[0]) if operator in ("Relu", "Clip") else None
        if maker is not None and maker.op_type == "DequantizeLinear" and maker.input[0] in context.pins:
            context.pins[node.output[0]] = context.pins[maker.input[0]]  # the network has both as one layer, this one
    elif _interpolates(node) and (pin := context.pins.get(node.output[0])) is not None:
        before = context.rounded.get(copy.input[0], EXACT)  # ONNX Runtime cuts off what is behind the point
        context.rounded[node.output[0]] = replace(before.then(pin), off=before.off + pin.scale)
    elif operator in _STEADY or operator == "Pad":
        _deviates(context, copy, 1.0)
    elif operator == "BatchNormalization" and {copy.input[1], copy.input[4]} <= context.constants.keys():
        gain, variance = (context.constants[copy.input[at]].astype(np.float64) for at in (1, 4))
        gain /= np.sqrt(variance + attributes(node).get("epsilon", 1e-5))
        _deviates(context, copy, float(np.abs(gain).max(initial=0.0)))
    elif (factor := _factor(context, copy)) is not None:
        _deviates(context, copy, float(np.abs(factor).max(initial=0.0)))
    context.nodes.append(copy)


def _factor(context: RealContext, node: NodeProto) -> NDArray[np.float64] | None:
    """The constants that a node multiplies a real tensor by; None of another node."""
    operator = operator_name(node)
    constant = [context.constants[name] for name in node.input if name in context.constants]
    if operator == "Mul" and len(constant) == 1:
        return constant[0].astype(np.float64)
    if operator == "Div" and node.input[1] in context.constants and np.all(constant[-1]):
        return 1 / constant[-1].astype(np.float64)
    return None


def _deviates(context: RealContext, node: NodeProto, gain: float) -> None:
    """The result of a node differs by no more than its operands together, times a gain. The network may compute both at
    once, without what is rounded, and cut off, in between."""
    rounded = {name: context.rounded[name] for name in node.input if name in context.rounded}
    if off := sum(context.rounded[name].off for name in node.input if name in rounded):
        before = [name if one.high < inf else one.before for name, one in rounded.items()]
        context.rounded[node.output[0]] = Rounded(-inf, inf, off * gain, before=before[0] if len(before) == 1 else "")


def _is_move(node: NodeProto) -> bool:
    operator = operator_name(node)
    if operator in _RESIZES:
        return attributes(node).get("mode", "nearest") == "nearest"
    return operator in _MOVES


def _interpolates(node: NodeProto) -> bool:
    """Whether a node makes numbers between those of its operand, in its scale."""
    return operator_name(node) in _RESIZES and attributes(node).get("mode") == "linear"


def _pad(context: RealContext, node: NodeProto, scale: NDArray[Any], zero: NDArray[Any]) -> None:
    """The number that a Pad of 8 bits writes, which is 0 if the node has none, as a real number."""
    if attributes(node).get("mode", "constant") != "constant":
        return
    more = [*node.input] + [""] * (3 - len(node.input))
    if more[2] and more[2] not in context.constants:
        raise Refused("pads with a number that the file computes; it must be in the file")
    value = context.constants[more[2]] if more[2] else np.zeros((), zero.dtype)
    number = (value.reshape(()).astype(np.float32) - zero.astype(np.float32)) * scale
    more[2] = context.constant(f"{node.output[0]}//padding", number)
    del node.input[:]
    node.input.extend(more)


def _rearranges(node: NodeProto) -> bool:
    """Whether an Einsum only changes the order of axes."""
    equation = attributes(node)["equation"].replace(" ", "")
    axes, _, result = equation.partition("->")
    return len(node.input) == 1 and len(set(axes)) == len(axes) and sorted(axes) == sorted(result)


def _follows(context: RealContext, node: NodeProto) -> None:
    """The results of a node that changes no number, or cuts some off, are rounded as its operands are."""
    sources = [context.rounded[name] for name in node.input if name in context.rounded]
    if sources:
        most = max(sources, key=lambda each: each.off)
        context.rounded |= dict.fromkeys(node.output, most)


def _scale_behind(context: RealContext, name: str, default: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scale and zero point with which a tensor is read, perhaps after it was moved; `default`: where its reader names
    none."""
    for node in context.file.graph.node:
        operator = operator_name(node)
        if name not in node.input:
            continue
        at = list(node.input).index(name)
        if _is_move(node):
            return _scale_behind(context, node.output[0], default)
        if operator in OPERATORS and operator not in ("ConvInteger", "MatMulInteger"):
            return context.number(node, at + 1), context.number(node, at + 2, default)
    raise Refused(f"tensor {name!r} has 8 bits without a scale")
