"""Tensors of 8 bits of an integer ONNX model, and the layers that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...graph import Layer
from ..errors import NodeRefusal, Refused
from ..load import CheckedModel
from ..nodes import Attributes, Node
from ..reader_context import ReaderContext
from ..windows import check_window
from .sizes import Size, size_of

#: Zero points by element type of ONNX: UINT8, INT8.
ZEROS = {2: 128, 3: 0}


@dataclass(frozen=True)
class Tensor:
    """An ONNX tensor that holds value `value` plus `zero` (uint8: 128, int8: 0); `step`: its scale in the model.

    Inside an addition it is int32, `value` None, and holds clip(sum of `addends`) + `zero`. `real`: it is an input that
    is still to be quantised. `pixels`: it has `value` None and holds the pixels of these values, one after the other.
    """

    value: str | None
    zero: int
    step: float = 1.0
    addends: tuple[str, ...] = ()
    low: int = -(1 << 31)
    high: int = (1 << 31) - 1
    real: bool = False
    pixels: tuple[str, ...] = ()


class IntegerContext(ReaderContext[Tensor]):
    """What every function of an integer operator takes: the graph that is read, and the layers that are built so far.

    `layers`: by their results. `steps`: of values. `ends`: steps of inputs and outputs that are real numbers outside.
    `sources`: inputs of the network with their sizes. `sizes`: channels, rows, columns of values that are known.
    """

    def __init__(self, model: CheckedModel) -> None:
        super().__init__(model)
        self.layers: dict[str, Layer] = {}
        self.steps: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.sources: dict[str, Size] = {}
        self.sizes: dict[str, Size] = {}
        for value in model.inputs:
            shape = model.input_sizes[value.name]
            if len(shape) not in (2, 3, 4) or shape[0] != 1:
                why = f"has {len(shape)} dimensions, {list(shape)}; those of integer operators have 2 to 4, the first 1"
                self.problems.append(NodeRefusal(value.name, "input", why, (value.name,)))
                continue
            size = (*shape[1:], 1, 1)
            self.sources[value.name] = self.sizes[value.name] = (size[0], size[1], size[2])
            zero = ZEROS.get(value.type.tensor_type.elem_type)
            self.views[value.name] = Tensor(value.name, zero or 0, real=zero is None)

    def guess(self, name: str) -> Tensor | None:
        shape = self.model.shapes.get(name, ())
        if len(shape) == 4:
            self.sizes[name] = (shape[1], shape[2], shape[3])
        return Tensor(name, 128)

    def is_result(self, view: Tensor) -> bool:
        return view.value is not None and not view.real

    # -- values and layers ----------------------------------------------------------------------------------

    def emit(self, layer: Layer, zero: int, step: float) -> None:
        """Adds a layer whose result is an ONNX tensor with this zero point and scale. Raises Refused."""
        check_window(layer.kind, layer.window)
        self.layers[layer.output] = layer
        if (size := size_of(layer, self.sizes)) is not None:
            self.sizes[layer.output] = size
        self.steps[layer.output] = step
        self.views[layer.output] = Tensor(layer.output, zero, step)

    def view(self, name: str) -> Tensor:
        view = super().view(name)
        if view.real:
            raise Refused(f"operand {name!r} is not of 8 bits; put a QuantizeLinear after the input")
        return view

    def tensor(self, name: str) -> Tensor:
        """A tensor of 8 bits. Raises Refused."""
        view = self.view(name)
        if view.value is None:
            raise Refused(f"operand {name!r} is int32; only additions are computed in int32")
        return view

    def extent(self, view: Tensor) -> tuple[int, int] | None:
        """Rows and columns of a tensor, if they are known."""
        size = self.sizes.get(view.value or "")
        return size and size[1:]

    def operand(self, node: Node, index: int) -> tuple[Tensor, float]:
        """A quantised operand with its scale and zero point after it: the view and the scale."""
        view = self.tensor(node.input[index])
        scale = float(self.number(node, index + 1, "scale"))
        self.zero_point(node, index + 2, view.zero)
        if view.value in self.sources or view.value not in self.steps:
            self.steps[view.value or ""] = scale
        return view, scale

    def zero_point(self, node: Node, index: int, expected: int | None) -> int:
        """The zero point at an operand, 128 or 0; `expected`: of its tensor. Raises Refused for others."""
        zero = self.optional(node, index, "zero point")
        if zero is None:
            zero = np.array(0, np.uint8)
        right = {np.dtype(np.uint8): 128, np.dtype(np.int8): 0}.get(zero.dtype)
        if right is None or np.any(zero != right):
            raise Refused(
                f"zero point {int(zero.flat[0])} of a {zero.dtype} must be 128 of a uint8 or 0 of an int8 (symmetric)"
            )
        if expected is not None and right != expected:
            raise Refused("the type of a zero point is not that of its tensor")
        return right


#: Reads a node of one operator: takes the context, the node and its attributes. Raises Refused.
IntegerOperator = Callable[[IntegerContext, Node, Attributes], None]
