"""Files of integer operators (QLinearConv and its like) with any scales and zero points, as float models.

An 8-bit number stands for (q - zero) * scale, so an integer operator is one of real numbers whose result is rounded and
saturated. Written so, the file is a float model, whose tensors get the chip's steps that are nearest to the file's own
(`pins`); weights stay what they are where their scale is one that the chip's requantisation has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import Problem, Refused, UnsupportedError, node_name, operator_name
from .load import CheckedModel, attributes
from .pairs import POSITIVE, weights_before, without_pairs
from .pins import EXACT, Pin, Rounded, Rounding, pin_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

MICROSOFT = "com.microsoft"
#: Operators of numbers of 8 bits that mean the same for the real numbers that these are.
_ALIKE = {
    "Concat", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
    "Unsqueeze",
}  # fmt: skip
#: What dynamic quantisation makes of a real tensor is that tensor.
_DYNAMIC = "DynamicQuantizeLinear"
_BYTES = ("UINT8", "INT8")


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
        if name not in self.inputs:
            return array
        scale, zero = self.inputs[name]
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
    stripped, pins = without_pairs(model)
    if not has_integer_operators(stripped):
        return stripped, pins, None
    own = dequantised(model, name)
    return own.model, own.pins, own


def dequantised(model: ModelProto, name: str) -> Dequantised:
    """Raises UnsupportedError with every node whose scales or operands are not known."""
    return _Writer(model, name).result()


class _Writer:
    def __init__(self, model: ModelProto, name: str) -> None:
        from onnx import TensorProto

        self.file, self.name = model, name
        self.constants = CheckedModel(name, model).constants
        known = {item.name for item in model.graph.initializer}
        self.bytes_in = {
            value.name: TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            for value in model.graph.input
            if value.name not in known and TensorProto.DataType.Name(value.type.tensor_type.elem_type) in _BYTES
        }
        self.nodes: list[NodeProto] = []
        self.made: list[TensorProto] = []
        self.pins: dict[str, Pin] = {}
        self.rounded: dict[str, Rounded] = {}
        self.entries: dict[str, str] = {}  # of inputs in real numbers, what they are rounded to
        self.scales: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}  # of tensors of 8 bits, or 32: scale and zero
        self.real: dict[str, str] = {}  # tensors of integers and the real ones that they are
        self.makers = {output: node for node in model.graph.node for output in node.output}
        self.dynamic: set[str] = set()  # those whose scale is computed

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

    # -- parts of nodes ---------------------------------------------------------------------------------------

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        if all(item.name != name for item in self.made):
            self.made.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def _number(self, node: NodeProto, index: int, default: Any = None) -> NDArray[Any]:
        """A scale or zero point."""
        given = node.input[index] if index < len(node.input) else ""
        if not given and default is not None:
            return np.asarray(default)
        if given not in self.constants:
            raise Refused(f"{given or 'a scale or zero point'} is computed, must be a constant")
        return self.constants[given]

    def _named(self, name: str) -> str:
        return self.real.get(name, name)

    def _operand(
        self, name: str, scale: NDArray[Any], zero: NDArray[Any], axis: int | None = None, pinned: bool = True
    ) -> str:
        """A quantised operand as a real tensor; a constant becomes one."""
        if name in self.constants:
            array = self.constants[name]
            return self._constant(f"{name}//real", _real(array, scale, zero, axis))
        if name in self.scales:
            known = self.scales[name]
            if not all(np.array_equal(_flat(a), _flat(b)) for a, b in zip(known, (scale, zero), strict=True)):
                raise Refused(f"tensor {name!r} is read with another scale or zero point than its QuantizeLinear has")
            return self._named(name)
        if name not in self.bytes_in:
            raise Refused(f"operand {name!r} is not of 8 bits with a known scale")
        return self._first(name, scale, zero, axis, pinned)

    def _first(self, name: str, scale: NDArray[Any], zero: NDArray[Any], axis: int | None, pinned: bool = True) -> str:
        """An input of 8 bits, whose scale its first reader says: real numbers are given instead."""
        rank = next(len(v.type.tensor_type.shape.dim) for v in self.file.graph.input if v.name == name)
        scale, zero = (_along(numbers, axis, rank) for numbers in (scale, zero))
        self.scales[name] = scale, zero
        if pinned and (pin := pin_of(scale, zero)) is not None:
            self.pins[name] = pin
        return name

    def _emit(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, list(inputs), [output], output, **attributes))

    def _rounded(
        self, node: NodeProto, operator: str, inputs: Sequence[str], numbers: tuple[NDArray[Any], NDArray[Any]],
        weights: float = 0.0, **attributes: Any,
    ) -> None:  # fmt: skip
        """A node whose result has 8 bits; what is below the least of them is cut off where that is 0."""
        output = node.output[0]
        self.scales[output] = numbers
        before = self.rounded.get(inputs[0], EXACT) if operator == "Identity" else EXACT
        pin = pin_of(*numbers, weights or before.weights)
        if pin is None:
            raise Refused("the scale of its result is none, or its zero point not of 8 bits")
        self.pins[output] = pin
        self.rounded[output] = before.then(pin)
        maker = self.makers.get(node.input[0]) if operator == "Identity" else node
        cut = pin.zero == pin.least and (maker is None or maker.op_type.removeprefix("QLinear") not in POSITIVE)
        whole = f"{output}//whole" if cut else output
        self._emit(operator, inputs, whole, **attributes)
        if whole != output:
            self._emit("Relu", [whole], output)

    # -- nodes --------------------------------------------------------------------------------------------------

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

    def convolution(self, node: NodeProto) -> None:
        x = self._operand(node.input[0], self._number(node, 1), self._number(node, 2))
        scale, zero = self._number(node, 4), self._number(node, 5)
        w = self._operand(node.input[3], scale, zero, 0)
        inputs = [x, w]
        if len(node.input) > 8 and node.input[8]:
            step = np.float64(self._number(node, 1).flat[0]) * scale.astype(np.float64)
            inputs.append(self._constant(f"{node.output[0]}//bias", self.constants[node.input[8]] * step.ravel()))
        weights = float(scale.flat[0]) if np.all(scale == scale.flat[0]) else 0.0
        self._rounded(node, "Conv", inputs, (self._number(node, 6), self._number(node, 7)), weights, **attributes(node))

    def product(self, node: NodeProto) -> None:
        sides = [
            self._operand(node.input[at], self._number(node, at + 1), self._number(node, at + 2), axis)
            for at, axis in ((0, -2), (3, -1))
        ]
        weights = [self._number(node, at + 1) for at in (0, 3) if node.input[at] in self.constants]
        step = float(weights[0].flat[0]) if weights and weights[0].size == 1 else 0.0
        self._rounded(node, "MatMul", sides, (self._number(node, 6), self._number(node, 7)), step)

    def fully_connected(self, node: NodeProto) -> None:
        """com.microsoft.QGemm."""
        given = attributes(node)
        scale = self._number(node, 4)
        x = self._operand(node.input[0], self._number(node, 1), self._number(node, 2))
        inputs = [x, self._operand(node.input[3], scale, self._number(node, 5), 0 if given.get("transB") else 1)]
        if len(node.input) > 6 and node.input[6]:
            step = np.float64(self._number(node, 1).flat[0]) * scale.astype(np.float64).ravel()
            step = step * given.get("alpha", 1.0)
            inputs.append(self._constant(f"{node.output[0]}//bias", self.constants[node.input[6]] * step))
        weights = float(scale.flat[0]) * given.get("alpha", 1.0) if scale.size == 1 else 0.0
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
        self._rounded(node, node.op_type.removeprefix("QLinear"), sides, numbers)

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
            self._rounded(node, "Identity", [self._named(node.input[0])], (scale, zero), weights)
            return
        if scale.ndim != 1 or zero.dtype.name not in ("uint8", "int8"):
            raise Refused("scales in blocks, or zero points not of 8 bits")
        rank = len(CheckedModel(self.name, self.file).input_sizes.get(node.input[0], ()))
        if not rank:
            raise Refused("scales by channel of a tensor inside the network")
        axis = attributes(node).get("axis", 1)
        self.scales[node.output[0]] = _along(scale, axis, rank), _along(zero, axis, rank)
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


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array).ravel()


def _along(numbers: NDArray[Any], axis: int | None, rank: int) -> NDArray[Any]:
    """Numbers along an axis in a form that broadcasts; one number as it is."""
    if numbers.size == 1 or axis is None:
        return numbers.reshape(()) if numbers.size == 1 else numbers
    return numbers.reshape([-1 if at == axis % rank else 1 for at in range(rank)])


def _real(array: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], axis: int | None) -> NDArray[np.float32]:
    """What the integers of a constant stand for."""
    scale, zero = (_along(np.asarray(numbers), axis, array.ndim) for numbers in (scale, zero))
    try:
        real = (array.astype(np.int64) - zero.astype(np.int64)) * scale.astype(np.float64)
    except ValueError:
        raise Refused(f"scales of shape {list(scale.shape)} for weights of {list(array.shape)}") from None
    return real.astype(np.float32)


#: Operators of integers, and what writes them.
OPERATORS: dict[str, Callable[[_Writer, NodeProto], None]] = {
    "ConvInteger": _Writer.sums,
    "DequantizeLinear": _Writer.dequantise,
    _DYNAMIC: _Writer.dynamically,
    "MatMulInteger": _Writer.sums,
    "QLinearConv": _Writer.convolution,
    "QLinearMatMul": _Writer.product,
    "QuantizeLinear": _Writer.quantise,
    f"{MICROSOFT}.QGemm": _Writer.fully_connected,
    f"{MICROSOFT}.QLinearAdd": _Writer.of_two,
    f"{MICROSOFT}.QLinearMul": _Writer.of_two,
    f"{MICROSOFT}.QLinearAveragePool": _Writer.of_one,
    f"{MICROSOFT}.QLinearConcat": _Writer.concatenation,
    f"{MICROSOFT}.QLinearGlobalAveragePool": _Writer.of_one,
    f"{MICROSOFT}.QLinearLeakyRelu": _Writer.of_one,
    f"{MICROSOFT}.QLinearSigmoid": _Writer.of_one,
    f"{MICROSOFT}.QLinearSoftmax": _Writer.of_one,
}
