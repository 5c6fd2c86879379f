"""Operators of float models that compute each element by itself: functions of one tensor, sums and products of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Place, Window
from .errors import Refused
from .floats import FloatLayer, PerChannel
from .load import CheckedModel
from .pointwise import ARGUMENT, OLDEST, SEVERAL, UNARY, Function, function, numbers, standard
from .resizing import Resizing
from .views import NO_PAD, View

if TYPE_CHECKING:
    from onnx import NodeProto

#: Gain and offset, channel by channel, that stand for an operator with a constant.
_Affine = Callable[[NDArray[np.float64]], PerChannel]
_Handler = Callable[["NodeProto", dict[str, Any]], None]

#: Nodes that are one function: longer chains are functions of functions, lest each is written down again and again.
_MOST_NODES = 64


class Activations(Resizing):
    """`functions`: for values that are functions of one other value, element by element: that one, and how.

    A node whose operands are all functions of one value makes another such function, so that x * sigmoid(x) is one
    table of x, however many nodes it has. Layers for the functions between are made too; those that nothing reads in
    the end are left out with all others of their kind.
    """

    def __init__(self, model: CheckedModel, normalised: bool) -> None:
        super().__init__(model, normalised)
        self.functions: dict[str, tuple[str, Function]] = {}

    # -- functions of one tensor ------------------------------------------------------------------------------

    def table(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """An operator that is always a table."""
        for name in node.input:
            if name in self.views:
                self.settled(name)
        found = self.function_of(node)
        if found is None:
            raise Refused("of several tensors, or with constants that differ from channel to channel")
        self._table(node, *found)

    def or_table(self, usual: _Handler) -> _Handler:
        """An operator that other layers may absorb: as `usual` does it, and a table where it refuses, where the operand
        is one already, or where several are functions of one value."""

        def lower(node: NodeProto, attributes: dict[str, Any]) -> None:
            found = self.function_of(node)
            tensors = sum(name in self.views for name in node.input)
            if found is not None and (tensors > 1 or any(self._is_table(name) for name in node.input)):
                self._table(node, *found)
                return
            try:
                usual(node, attributes)
            except Refused:
                for name in node.input:
                    if name in self.views:
                        self.settled(name)
                if (found := self.function_of(node)) is None:
                    raise
                self._table(node, *found)
                return
            made = self.views[node.output[0]].value
            if found is not None and made == node.output[0] and (found[0] in self.layers or found[0] in self.inputs):
                self.functions[made] = found

        return lower

    def function_of(self, node: NodeProto) -> tuple[str, Function] | None:
        """The value that a node's result is a function of, element by element, and the function; None if there is no
        such value, or zeros around it are still to come."""
        names = [name for name in node.input if name]
        views = [self.views[name] for name in names if name in self.views]
        constants = {name: self.constants[name] for name in names if name not in self.views}
        if not views or any(view.pad != NO_PAD for view in views):
            return None
        if node.op_type == "Div" and names[-1] in constants and not np.all(constants[names[-1]]):
            return None
        first = views[0]
        for view in views[1:]:
            if view.size != first.size or view.shape != first.shape or not np.array_equal(view.order, first.order):
                return None
        for array in constants.values():
            if not array.size or np.any(array != array.flat[0]):
                return None
            if len(array.shape) > len(first.shape) or np.broadcast_shapes(array.shape, first.shape) != first.shape:
                return None
        bases = {self._base(view.value) for view in views}
        if len(bases) > 1 and len({view.value for view in views}) == 1:
            bases = {first.value}
        if len(bases) != 1:
            return None
        (base,) = bases
        return base, self._composed(node, base, constants)

    def _base(self, value: str) -> str:
        """The value that another one is a function of, of not too many nodes; itself if it is none."""
        base, found = self.functions.get(value, (value, None))
        return value if found is not None and len(found.nodes) >= _MOST_NODES else base

    def _composed(self, node: NodeProto, base: str, constants: Mapping[str, NDArray[Any]]) -> Function:
        opset = max(self.model.opset, OLDEST)
        copy, bounds = standard(node, self.model.opset)
        before: dict[str, NodeProto] = {}
        known = numbers(constants) | bounds
        for index, name in enumerate(copy.input):
            if name not in self.views:
                continue
            value = self.views[name].value
            copy.input[index] = ARGUMENT if value == base else value
            if value != base:
                inner = self.functions[value][1]
                before |= {each.output[0]: each for each in inner.nodes}
                known |= inner.constants
        return Function((*before.values(), copy), known, copy.output[0], opset)

    def _is_table(self, name: str) -> bool:
        layer = self.layers.get(self.views[name].value) if name in self.views else None
        return layer is not None and layer.kind == "table"

    def _table(self, node: NodeProto, base: str, found: Function) -> None:
        view = next(self.view(name) for name in node.input if name in self.views)
        layer = FloatLayer("table", node.output[0], (base,), function=found)
        self.emit_like(layer, view)
        self.functions[layer.output] = base, found

    def _mapped(self, view: View, output: str, found: Function) -> View:
        """A table that no node of the file is."""
        base = view.value
        if base in self.functions:
            base, inner = self.functions[base]
            found = inner.then(found)
        layer = FloatLayer("table", self.fresh(output), (base,), function=found)
        self.emit(layer, view.size)
        self.functions[layer.output] = base, found
        return replace(view, value=layer.output, single=True)

    def prelu(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """With one slope a table; otherwise x + (slope - 1) * min(x, 0), with a slope for each channel."""
        view = self.settled(node.input[0])
        slope = self.constant(node, 1, "slope")
        if (found := self.function_of(node)) is not None:
            self._table(node, *found)
            return
        below = self._mapped(view, f"{node.output[0]}/below", function("Min", 0.0))
        try:
            gain = self.per_channel(slope, view) - 1
        except Refused:
            factor = self.constant_like(slope.astype(np.float64) - 1, view, node.output[0])
            name = self.fresh(f"{node.output[0]}/slope")
            self.emit(FloatLayer("mul", name, (below.value, factor.value)), view.size)
            self.emit_like(FloatLayer("add", node.output[0], (view.value, name)), view)
            return
        zeros, weights = np.zeros(view.channels), gain[:, None, None, None]
        scaled = FloatLayer("depthwise", self.fresh(f"{node.output[0]}/slope"), (below.value,), w=weights, bias=zeros)
        self.emit(scaled, view.size)
        self.emit_like(FloatLayer("add", node.output[0], (view.value, scaled.output)), view)

    # -- sums and products of two tensors ---------------------------------------------------------------------

    def add(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if any(name in self.constants for name in node.input):
            self._arithmetic(node, lambda x: (np.ones_like(x), x), lambda x: (np.ones_like(x), x))
            return
        if len(node.input) == 1:
            self.pass_on(node)
            return
        if len(node.input) == 2:
            self._sum(node, self.settled(node.input[0]), self.settled(node.input[1]))
            return
        self.only_if_generous(f"adds {len(node.input)} tensors; an addition has two")
        for part in _two_by_two(node):
            self._sum(part, self.settled(part.input[0]), self.settled(part.input[1]))

    def subtract(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if any(name in self.constants for name in node.input):
            self._arithmetic(node, lambda x: (np.ones_like(x), -x), lambda x: (-np.ones_like(x), x))
            return
        second = self._mapped(self.settled(node.input[1]), f"{node.output[0]}/negative", function("Neg"))
        self._sum(node, self.settled(node.input[0]), second)

    def multiply(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if any(name in self.constants for name in node.input):
            self._arithmetic(node, lambda x: (x, np.zeros_like(x)), lambda x: (x, np.zeros_like(x)))
            return
        self._product(node, self.settled(node.input[0]), self.settled(node.input[1]))

    def divide(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if node.input[1] in self.constants:
            if not np.all(self.constants[node.input[1]]):
                raise Refused("divides by zero")
            self._arithmetic(node, lambda x: (1 / x, np.zeros_like(x)), lambda x: (1 / x, np.zeros_like(x)))
            return
        divisor = self._mapped(self.settled(node.input[1]), f"{node.output[0]}/reciprocal", function("Reciprocal"))
        if node.input[0] in self.constants:
            gain = self.per_channel(self.constants[node.input[0]], divisor)
            w, zeros = gain[:, None, None, None], np.zeros(divisor.channels)
            self.emit_like(FloatLayer("depthwise", node.output[0], (divisor.value,), w=w, bias=zeros), divisor)
            return
        self._product(node, self.settled(node.input[0]), divisor)

    def extremes(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """Max and Min: a table with one number; otherwise tensors whose columns take turns in one map, and the maximum
        of each few columns; Min of what is negative."""
        for name in node.input:
            if name in self.views:
                self.settled(name)
        if (found := self.function_of(node)) is not None:
            self._table(node, *found)
            return
        self.only_if_generous("of several tensors, or with constants that differ from channel to channel")
        some = [name for name in node.input if name in self.views]
        shape = self.views[some[0]].shape
        for name in node.input:
            other = self.views[name].shape if name in self.views else self.constants[name].shape
            shape = np.broadcast_shapes(shape, other)
        like = next((self.settled(name) for name in some if self.views[name].shape == shape), None)
        if like is None or prod(shape) != prod(like.size):
            raise Refused(f"of tensors of which none has the result's shape {list(shape)}")
        names: list[str] = []
        for index, name in enumerate(node.input):
            if name in self.constants:
                view = self.constant_like(self.constants[name], like, f"{node.output[0]}/{index}")
            else:
                view = self._laid_as(name, like, f"{node.output[0]}/{index}")
            if node.op_type == "Min":
                view = self._mapped(view, f"{node.output[0]}/negative{index}", function("Neg"))
            names.append(view.value)
        count, (channels, rows, columns) = len(names), like.size
        places = tuple(Place(0, at, 1, count, rows, columns) for at in range(count))
        beside = FloatLayer("paste", self.fresh(f"{node.output[0]}/beside"), tuple(names), places=places)
        self.emit(beside, (channels, rows, columns * count))
        last = node.output[0] if node.op_type == "Max" else self.fresh(f"{node.output[0]}/largest")
        window = Window(1, count, 1, count)
        self.emit(FloatLayer("max_pool", last, (beside.output,), window), like.size)
        self.keep_view(last, like)
        if node.op_type == "Min":
            self.emit_like(FloatLayer("table", node.output[0], (last,), function=function("Neg")), self.views[last])

    def _laid_as(self, name: str, like: View, output: str) -> View:
        """A tensor, repeated where its shape is smaller, whose elements lie as those of another do."""
        view = self.settled(name)
        if view.size == like.size and view.shape == like.shape and np.array_equal(view.order, like.order):
            return view
        found = np.zeros(prod(like.size), np.int64)
        found[like.order.ravel()] = np.broadcast_to(view.order, like.shape).ravel()
        return replace(
            self._placed(output, view.moved(found.reshape(1, *like.size))), shape=like.shape, index=like.index
        )

    def _sum(self, node: NodeProto, a: View, b: View) -> None:
        shape = _together(a, b)
        if a.shape == b.shape and a.size == b.size and np.array_equal(a.order, b.order):
            self.emit_like(FloatLayer("add", node.output[0], (a.value, b.value)), a)
            return
        for first, second in ((a, b), (b, a)):
            if first.shape == shape and _factors(first, second):
                ones = self._mapped(first, f"{node.output[0]}/ones", function("Clip", 1.0, 1.0))
                layer = FloatLayer("mul", self.fresh(f"{node.output[0]}/spread"), (ones.value, second.value))
                self.emit(layer, first.size)
                self.emit_like(FloatLayer("add", node.output[0], (first.value, layer.output)), first)
                return
        self._of_pictures("add", node, a, b)

    def _product(self, node: NodeProto, a: View, b: View) -> None:
        shape = _together(a, b)
        for first, second in ((a, b), (b, a)):
            alike = first.size == second.size and first.shape == second.shape
            if first.shape == shape and (
                (alike and np.array_equal(first.order, second.order)) or _factors(first, second)
            ):
                self.emit_like(FloatLayer("mul", node.output[0], (first.value, second.value)), first)
                return
        self._of_pictures("mul", node, a, b)

    def _of_pictures(self, kind: Any, node: NodeProto, a: View, b: View) -> None:
        """Of tensors whose elements lie otherwise, or that are repeated: of pictures made of them."""
        shape = _together(a, b)
        if len(shape) not in (3, 4) or shape[0] != 1:
            raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}, which no picture holds alike")
        picture = shape if len(shape) == 4 else (*shape[:2], 1, shape[2])
        views: list[View] = []
        for index, view in enumerate((a, b)):
            order = np.broadcast_to(view.order, shape).reshape(picture)
            name = node.input[index] if view.value == self.views[node.input[index]].value else node.output[0]
            views.append(self._placed(name, view.moved(np.ascontiguousarray(order))))
        self.emit(FloatLayer(kind, node.output[0], (views[0].value, views[1].value)), views[0].size)
        self.views[node.output[0]] = replace(self.views[node.output[0]], shape=shape)

    def _placed(self, name: str, view: View) -> View:
        """As `arrange`, also for tensors that have no name in the file."""
        if name in self.views or view.is_picture:
            return self.arrange(name, view)
        self.views[name] = view
        made = self.arrange(name, view)
        del self.views[name]
        return made

    # -- with constants -----------------------------------------------------------------------------------------

    def negate(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        channels = self.view(node.input[0]).channels
        self.affine(node, node.input[0], -np.ones(channels), np.zeros(channels))

    def _arithmetic(self, node: NodeProto, right: _Affine, left: _Affine) -> None:
        """`right`, `left`: gain and offset for a constant on that side of the operator."""
        which = 1 if node.input[1] in self.constants else 0
        name = node.input[1 - which]
        view, numbers = self.view(name), self.constants[node.input[which]]
        try:
            gain, offset = (right if which else left)(self.per_channel(numbers, view))
        except Refused:
            if np.broadcast_shapes(numbers.shape, view.shape) != view.shape:
                raise
            self._by_pixels(node, self.settled(name), *(right if which else left)(numbers.astype(np.float64)))
            return
        self.affine(node, name, gain, offset)

    def _by_pixels(self, node: NodeProto, view: View, gain: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
        """gain * x + offset, where one of them differs from pixel to pixel and the other is 1, -1 or 0."""
        if np.any(gain != gain.flat[0]):
            factor = self.constant_like(gain, view, node.output[0])
            self.emit_like(FloatLayer("mul", node.output[0], (view.value, factor.value)), view)
            return
        if gain.flat[0] < 0:
            view = self._mapped(view, f"{node.output[0]}/negative", function("Neg"))
        term = self.constant_like(offset, view, node.output[0])
        self.emit_like(FloatLayer("add", node.output[0], (view.value, term.value)), view)

    def relu(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.clip_at(node, True, inf)

    def clip(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if self.model.opset < 11:
            low, high = attributes.get("min", -inf), attributes.get("max", inf)
        else:
            bounds = (self.optional(node, index, what) for index, what in ((1, "minimum"), (2, "maximum")))
            low, high = (
                default if bound is None else float(bound.flat[0])
                for bound, default in zip(bounds, (-inf, inf), strict=True)
            )
        low, high = (-inf if low < -3e38 else low), (inf if high > 3e38 else high)  # the largest float means none
        if low not in (0.0, -inf) or not high >= 0:
            raise Refused(f"clips at {low:g} and {high:g}; the lower bound must be 0 or absent, the upper 0 or more")
        if low == -inf and high == inf:
            self.pass_on(node)
        else:
            self.clip_at(node, low == 0, high)


def _two_by_two(node: NodeProto) -> list[NodeProto]:
    """A sum of several tensors as sums of two, one after the other."""
    from onnx import helper

    found: list[NodeProto] = []
    first = node.input[0]
    for index, second in enumerate(node.input[1:]):
        last = index == len(node.input) - 2
        output = node.output[0] if last else f"{node.output[0]}/of{index + 2}"
        found.append(helper.make_node("Sum", [first, second], [output], output))
        first = output
    return found


def _together(a: View, b: View) -> tuple[int, ...]:
    """The shape of a result. Raises Refused."""
    try:
        return np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}, must be alike") from None


def _factors(first: View, second: View) -> bool:
    """Whether the second is one number for each channel of the first."""
    if second.size != (first.channels, 1, 1):
        return False
    return np.array_equal(np.broadcast_to(second.order, first.shape), first.channel_of)


#: Operators and the methods that read them.
ACTIVATIONS = {
    **dict.fromkeys(sorted(UNARY | SEVERAL), "table"),
    "Add": "add",
    "Max": "extremes",
    "Min": "extremes",
    "Clip": "clip",
    "Div": "divide",
    "Mul": "multiply",
    "Neg": "negate",
    "PRelu": "prelu",
    "Relu": "relu",
    "Sub": "subtract",
    "Sum": "add",
}
#: Those of them that layers with weights and clamps may absorb.
ABSORBED = frozenset({"Add", "Clip", "Div", "Mul", "Neg", "Relu", "Sub", "Sum"})
