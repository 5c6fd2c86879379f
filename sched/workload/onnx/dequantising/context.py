"""Tensors of a file of integer operators: their scales and zero points, and the real tensors that they become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Refused
from ..load import CheckedModel
from ..pins import EXACT, Pin, Rounded, pin_of
from .pairs import POSITIVE

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_BYTES = ("UINT8", "INT8")


class RealContext:
    """What every function of an integer operator takes here: what is known of the tensors of a file so far, and `nodes`
    of real numbers, which have `initialisers`."""

    def __init__(self, model: ModelProto, name: str) -> None:
        from onnx import TensorProto

        self.file, self.name = model, name
        self.constants: dict[str, NDArray[Any]] = CheckedModel(name, model).constants
        initializers = {item.name for item in model.graph.initializer}
        self.bytes_in = {
            value.name: TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            for value in model.graph.input
            if value.name not in initializers and TensorProto.DataType.Name(value.type.tensor_type.elem_type) in _BYTES
        }
        self.nodes: list[NodeProto] = []
        self.initialisers: list[TensorProto] = []
        self._constants: dict[str, NDArray[np.float32]] = {}
        self.pins: dict[str, Pin] = {}
        self.rounded: dict[str, Rounded] = {}
        self.entries: dict[str, str] = {}  # of inputs in real numbers, what they are rounded to
        self.scales: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}  # of tensors of 8 bits, or 32: scale and zero
        self.real: dict[str, str] = {}  # tensors of integers and the real ones that they are
        self.makers = {output: node for node in model.graph.node for output in node.output}
        self.dynamic: set[str] = set()  # those whose scale is computed

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """The name of a real constant: this one, or another one where that has other numbers."""
        from onnx import numpy_helper

        numbers, number = np.asarray(array, np.float32), 0
        own = name
        while own in self._constants:
            if np.array_equal(self._constants[own], numbers):
                return own
            number += 1
            own = f"{name}{number}"
        self._constants[own] = numbers
        self.initialisers.append(numpy_helper.from_array(numbers, own))
        return own

    def number(self, node: NodeProto, index: int, default: Any = None) -> NDArray[Any]:
        """A scale or zero point."""
        name = node.input[index] if index < len(node.input) else ""
        if not name and default is not None:
            return np.asarray(default)
        if name not in self.constants:
            raise Refused(f"{name or 'a scale or zero point'} is computed, must be a constant")
        return self.constants[name]

    def zero_left_out(self, name: str) -> NDArray[Any]:
        """The zero point of a tensor where its reader names none: 0, of its type."""
        bytes_ = self.constants[name] if name in self.constants else self.scales.get(name, (None, None))[1]
        signed = self.bytes_in.get(name) == "INT8" or (bytes_ is not None and bytes_.dtype == np.int8)
        return np.zeros((), np.int8 if signed else np.uint8)

    def named(self, name: str) -> str:
        return self.real.get(name, name)

    def operand(
        self, name: str, scale: NDArray[Any], zero: NDArray[Any], axis: int | None = None, pinned: bool = True
    ) -> str:
        """A quantised operand as a real tensor; a constant becomes one."""
        if name in self.constants:
            array = self.constants[name]
            return self.constant(f"{name}//real", real_numbers(array, scale, zero, axis))
        if name in self.scales:
            first = self.scales[name]
            if not all(np.array_equal(_flat(a), _flat(b)) for a, b in zip(first, (scale, zero), strict=True)):
                raise Refused(f"tensor {name!r} is read with another scale or zero point than its QuantizeLinear has")
            return self.named(name)
        if name not in self.bytes_in:
            raise Refused(f"operand {name!r} is not of 8 bits with a known scale")
        return self.pin_input(name, scale, zero, axis, pinned)

    def pin_input(
        self, name: str, scale: NDArray[Any], zero: NDArray[Any], axis: int | None, pinned: bool = True
    ) -> str:
        """An input of 8 bits, whose scale its first reader says: real numbers are given instead."""
        rank = next(len(v.type.tensor_type.shape.dim) for v in self.file.graph.input if v.name == name)
        scale, zero = (along(numbers, axis, rank) for numbers in (scale, zero))
        self.scales[name] = scale, zero
        if pinned and (pin := pin_of(scale, zero)) is not None:
            self.pins[name] = pin
        return name

    def emit(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, list(inputs), [output], output, **attributes))

    def emit_rounded(
        self, node: NodeProto, operator: str, inputs: Sequence[str], numbers: tuple[NDArray[Any], NDArray[Any]],
        weights: tuple[float, ...] = (), before: Rounded = EXACT, **attributes: Any,
    ) -> None:  # fmt: skip
        """A node whose result has 8 bits; what is below the least of them is cut off where that is 0. `before`: what
        the file has rounded before, where the network may round once for both."""
        output = node.output[0]
        self.scales[output] = numbers
        pin = pin_of(*numbers, weights or before.weights)
        if pin is None:
            raise Refused("the scale of its result is none, or its zero point not of 8 bits")
        self.pins[output] = pin
        self.rounded[output] = before.then(pin)
        maker = self.makers.get(node.input[0]) if operator == "Identity" else node
        cut = pin.zero == pin.least and (maker is None or maker.op_type.removeprefix("QLinear") not in POSITIVE)
        whole = f"{output}//whole" if cut else output
        self.emit(operator, inputs, whole, **attributes)
        if whole != output:
            self.emit("Relu", [whole], output)


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array).ravel()


def along(numbers: NDArray[Any], axis: int | None, rank: int) -> NDArray[Any]:
    """Numbers along an axis in a form that broadcasts; one number as it is."""
    if numbers.size == 1 or axis is None:
        return numbers.reshape(()) if numbers.size == 1 else numbers
    return numbers.reshape([-1 if at == axis % rank else 1 for at in range(rank)])


def real_numbers(array: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], axis: int | None) -> NDArray[np.float32]:
    """What the integers of a constant stand for."""
    scale, zero = (along(np.asarray(numbers), axis, array.ndim) for numbers in (scale, zero))
    try:
        real = (array.astype(np.int64) - zero.astype(np.int64)) * scale.astype(np.float64)
    except ValueError:
        raise Refused(f"scales of shape {list(scale.shape)} for weights of {list(array.shape)}") from None
    return real.astype(np.float32)
