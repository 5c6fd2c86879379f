"""Operators of float models that transformers are made of: products of two tensors, softmax, layer normalisation.

A softmax and a standardisation are taken of all pixels of a channel (`workload.normalisation`), so what they go over
has to lie along pixels: products are made that way round if a softmax follows, and other tensors are transposed before
and, for a layer normalisation, behind.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .activations import Activations
from .errors import Refused
from .floats import FloatLayer
from .load import CheckedModel
from .load import attributes as attributes_of
from .pointwise import function
from .views import View, turned, turned_size

if TYPE_CHECKING:
    from onnx import NodeProto

#: Operators between the scores of an attention and their softmax.
_ON_SCORES = {"Add", "Cast", "Clip", "Div", "Identity", "Max", "Mul", "Sub", "Tanh", "Where"}

#: What is less than this, added to a score, takes it out of the softmax ...
_MASKED = 500.0
#: ... and what such scores become: less than any that a softmax would not overlook, and nothing that asks for a step.
_GONE = 64.0


class Attention(Activations):
    """`kept`: of values that are masked scores, which of their elements count."""

    def __init__(self, model: CheckedModel, normalised: bool) -> None:
        super().__init__(model, normalised)
        self.kept: dict[str, NDArray[np.bool_]] = {}

    # -- products ---------------------------------------------------------------------------------------------

    def matmul(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        first, second = node.input
        if second in self.constants:
            w = self.constants[second]
            w = w.reshape(w.shape[-2:]) if w.ndim > 2 and prod(w.shape[:-2]) == 1 else w
            if w.ndim != 2:
                raise Refused(f"weights have shape {list(w.shape)}, must be [inputs, outputs]")
            self.fully_connected(node, w.T, None)
        elif first in self.constants:
            self._weights_first(node)
        else:
            self.matrices(node, self.settled(first), self.settled(second))

    def _weights_first(self, node: NodeProto) -> None:
        """Constant [outputs, inputs] x tensor [..., inputs, columns]."""
        w, view = self.constant(node, 0, "first factor"), self.settled(node.input[1])
        if w.ndim != 2 or len(view.shape) < 2 or prod(view.shape[:-2]) != 1 or w.shape[1] != view.shape[-2]:
            raise Refused(f"weights of shape {list(w.shape)} before an operand of shape {list(view.shape)}")
        x, _ = self.laid(node.input[1], view, view.order.reshape(view.shape[-2:]))
        weights, bias = w.astype(np.float64)[:, :, None, None], np.zeros(len(w))
        self.emit_conv(FloatLayer("conv", node.output[0], (x.value,), w=weights, bias=bias), x)
        made = self.views[node.output[0]]
        self.keep_view(node.output[0], made.moved(made.order.reshape(*view.shape[:-2], len(w), view.shape[-1])))

    def matrices(self, node: NodeProto, a: View, b: View) -> None:
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
        first, _ = self.laid(node.input[0], a, np.ascontiguousarray(left.swapaxes(1, 2)).reshape(-1, rows))
        second, _ = self.laid(node.input[1], b, np.ascontiguousarray(right))
        along_columns = self._meets_softmax(node.output[0])
        if along_columns:  # the second operand's pixels are the result's
            first, second = second, first
        channels, pixels = (rows, columns) if along_columns else (columns, rows)
        layer = FloatLayer("product", node.output[0], (first.value, second.value), groups=groups)
        self.emit(layer, (groups * channels, *first.size[1:]))
        count: int = groups * channels * pixels
        index = np.arange(count).reshape(groups, channels, pixels)
        index = index if along_columns else np.ascontiguousarray(index.swapaxes(1, 2))
        shape = (*lead, *(() if len(a.shape) == 1 else (rows,)), *(() if len(b.shape) == 1 else (columns,)))
        self.keep_view(node.output[0], self.views[node.output[0]].moved(index.reshape(shape)))

    def _meets_softmax(self, name: str) -> bool:
        """Whether a softmax over the last axis follows, with nothing but functions of single scores between."""
        for reader in self.model.nodes:
            if name not in reader.input:
                continue
            if reader.op_type in ("Softmax", "LogSoftmax"):
                rank = len(self.model.inferred.get(name, ())) or 4
                axis = attributes_of(reader).get("axis", 1 if self.model.opset < 13 else -1)
                return axis % rank == rank - 1
            if reader.op_type in _ON_SCORES and self._meets_softmax(reader.output[0]):
                return True
        return False

    # -- masks ------------------------------------------------------------------------------------------------

    def masked(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """An addition of a constant to scores whose least numbers (minus infinity, say) mean that a score is not there:
        scores of -`_GONE` instead, and no share behind the exponentials. Others as always."""
        constants = [name for name in node.input if name in self.constants]
        if len(constants) == len(node.input) - 1 == 1 and self._meets_softmax(node.output[0]):
            numbers = self.constants[constants[0]].astype(np.float64)
            if numbers.size and numbers.min() < -_MASKED <= numbers.max():
                scores = next(name for name in node.input if name != constants[0])
                self._mask(node, scores, numbers >= -_MASKED, np.where(numbers < -_MASKED, 0.0, numbers))
                return
        self.add(node, attributes)

    def where(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """Scores where a constant says so, and something very small elsewhere, before a softmax."""
        condition, low, scores = self.constant(node, 0, "condition").astype(bool), *node.input[1:]
        self.only_if_generous("no layer does that")
        kept = ~condition
        if low in self.views:
            low, scores, kept = scores, low, condition
        if low not in self.constants or not self._meets_softmax(node.output[0]):
            raise Refused("chooses between tensors; only scores before a softmax are masked")
        if np.any(self.constants[low] >= -_MASKED):
            raise Refused(f"masks scores with {float(self.constants[low].max()):g}; must be below {-_MASKED:g}")
        self._mask(node, scores, kept, np.zeros(1))

    def _mask(self, node: NodeProto, name: str, kept: NDArray[np.bool_], term: NDArray[np.float64]) -> None:
        view = self.settled(name)
        kept = np.broadcast_to(kept, view.shape)
        if np.all(kept):
            self.see(node, view)
            return
        if not kept.any(axis=-1).all():
            raise Refused("masks whole rows of scores")
        output = node.output[0]
        if np.any(term):
            view = self._plus(view, term, f"{output}/plus")
        ones = self.constant_like(kept, view, f"{output}/kept")
        zero = self.fresh(f"{output}/zeros")
        self.emit(FloatLayer("mul", zero, (view.value, ones.value)), view.size)
        low = self.constant_like(np.where(kept, 0.0, -_GONE), view, f"{output}/low")
        self.layers[low.value].gone = True
        total = FloatLayer("add", self.fresh(f"{output}/masked"), (zero, low.value), gone=True)
        self.emit(total, view.size)
        self.kept[total.output] = np.zeros(view.order.size, bool)
        self.kept[total.output][view.order.ravel()] = kept.ravel()
        self.views[output] = replace(view, value=total.output, single=True)

    def _plus(self, view: View, term: NDArray[np.float64], name: str) -> View:
        added = self.constant_like(term, view, name)
        layer = FloatLayer("add", self.fresh(name), (view.value, added.value))
        self.emit(layer, view.size)
        return replace(view, value=layer.output, single=True)

    # -- over an axis -----------------------------------------------------------------------------------------

    def softmax(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, old = self.settled(node.input[0]), self.model.opset < 13
        axis = attributes.get("axis", 1 if old else -1) % len(view.shape)
        # before opset 13 all axes from there on go together
        last = view.order.reshape(*view.shape[:axis], -1) if old else np.moveaxis(view.order, axis, -1)
        x, _ = self.laid(node.input[0], view, np.ascontiguousarray(last.reshape(-1, last.shape[-1])))
        less = FloatLayer("normalise", self.fresh(f"{node.output[0]}/less"), (x.value,), by="max")
        self.emit(less, x.size)
        powers = self.fresh(f"{node.output[0]}/exponentials")
        self.emit(FloatLayer("table", powers, (less.output,), function=function("Exp")), x.size)
        if view.value in self.kept:
            kept = self.kept[view.value][last.reshape(x.size)]
            factor = self.map_of(kept, x, f"{node.output[0]}/kept")
            left = self.fresh(f"{node.output[0]}/left")
            self.emit(FloatLayer("mul", left, (powers, factor)), x.size)
            powers = left
        self.emit(FloatLayer("normalise", node.output[0], (powers,), by="sum"), x.size)
        index = np.arange(last.size).reshape(last.shape)
        index = index.reshape(view.shape) if old else np.moveaxis(index, -1, axis)
        self.keep_view(node.output[0], self.views[node.output[0]].moved(np.ascontiguousarray(index)))

    def layer_normalisation(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if any(self.model.uses[name] for name in node.output[1:] if name):
            raise Refused("its mean and deviation are used")
        view = self.settled(node.input[0])
        axis = attributes.get("axis", -1) % len(view.shape)
        self._standardised(node, view, axis, attributes.get("epsilon", 1e-5))

    def instance_normalisation(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.settled(node.input[0])
        if view.shape[0] != 1 or len(view.shape) < 3:
            raise Refused(f"its operand has shape {list(view.shape)}, must be [1, channels, ...]")
        self._standardised(node, view, 2, attributes.get("epsilon", 1e-5), along=(-1, *(1 for _ in view.shape[2:])))

    def _standardised(
        self, node: NodeProto, view: View, axis: int, epsilon: float, along: tuple[int, ...] | None = None
    ) -> None:
        """Over all axes from `axis` on; then the node's gains and offsets, of shape `along` if that is not theirs."""
        scale, bias = (self.optional(node, index, what) for index, what in ((1, "scale"), (2, "bias")))
        plain = all(array is None or np.all(array == one) for array, one in ((scale, 1), (bias, 0)))
        rows = prod(view.shape[:axis])
        x, groups = self.laid(node.input[0], view, np.ascontiguousarray(view.order.reshape(rows, -1)))
        less = FloatLayer("normalise", self.fresh(f"{node.output[0]}/less"), (x.value,), by="mean")
        self.emit(less, x.size)
        last = node.output[0] if plain and not groups else self.fresh(f"{node.output[0]}/even")
        even = FloatLayer("normalise", last, (less.output,), by="root", epsilon=epsilon)
        self.emit(even, x.size)
        made = self.views[last].moved(np.arange(view.order.size).reshape(view.shape))
        if groups:  # back to where channels and pixels were
            last = node.output[0] if plain else self.fresh(f"{node.output[0]}/back")
            size = view.size[0], 1, view.size[1] * view.size[2]
            self.emit(FloatLayer("transpose", last, (even.output,), groups=groups), size)
            made = self.views[last].moved(view.order)
        self.keep_view(last, made)
        if plain:
            return
        ones, zeros = np.ones(1), np.zeros(1)
        factors = [
            default if array is None else array.reshape(along or array.shape)
            for array, default in ((scale, ones), (bias, zeros))
        ]
        try:
            gain, offset = (self.per_channel(array, made) for array in factors)
        except Refused:  # a number for each pixel, which becomes a channel
            made = replace(made, value=self.turn(last, made.size, 1), size=turned_size(made.size, 1)).moved(
                turned(made.order, made.size, 1)
            )
            try:
                gain, offset = (self.per_channel(array, made) for array in factors)
            except Refused:  # a number for each element
                factor, term = (self.constant_like(array, made, node.output[0]) for array in factors)
                scaled = self.fresh(f"{node.output[0]}/scaled")
                self.emit(FloatLayer("mul", scaled, (made.value, factor.value)), made.size)
                self.emit_like(FloatLayer("add", node.output[0], (scaled, term.value)), made)
                return
        w, bias = gain[:, None, None, None].copy(), offset.copy()
        self.emit_like(FloatLayer("depthwise", node.output[0], (made.value,), w=w, bias=bias), made)


#: Operators and the methods that read them.
ATTENTION = {
    "Add": "masked",
    "Where": "where",
    "InstanceNormalization": "instance_normalisation",
    "LayerNormalization": "layer_normalisation",
    "MatMul": "matmul",
    "Softmax": "softmax",
}
