"""What every function of a float operator takes: the graph that is read, and the layers that are built of it so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..bounds import Budget, check_size
from ..constant_nodes import computable, computed
from ..errors import Refused
from ..floats import FloatLayer, PerChannel, Source, unit_of
from ..load import CheckedModel
from ..nodes import Attributes, Node, attributes
from ..pins import Pin
from ..pointwise import Function, function
from ..reader_context import ReaderContext
from ..windows import check_window
from .inputs import input_views, view_of_tensor
from .views import Size, View


class FloatContext(ReaderContext[View]):
    """`layers`: by their results, in the order in which they compute. `inputs`, `normalise`, `orders`, `sizes`,
    `notes`: as in `FloatNet`.

    `normalised`: whether per-channel arithmetic on an input is taken out of the network. `generous`: whether constants
    become values, and whatever else takes layers that the host would not need, where it runs what is at the end.
    `turns`: whether channels and pixels may change places. `functions`: for values that are functions of one other
    value, element by element: that one, and how. `cuts`: what a file cuts off of tensors before they are read.
    `truths`: those of the functions that are true or false; no layer makes them. `masks`: of values that are masked
    scores, which of their elements count. `dense`: convolutions in groups that run as one. `transposes`, `pixels`:
    values that several operators share, by what they are made of (`pictures.turn`, `maps.emit_map`). `lacks`: units
    that cores lack (`floats.unit_of`), without which layers are refused.
    """

    def __init__(
        self,
        model: CheckedModel,
        normalised: bool = False,
        generous: bool = False,
        cuts: Mapping[str, Pin] | None = None,
        lacks: Collection[str] = (),
    ) -> None:
        super().__init__(model)
        self.lacks = lacks
        self.normalised, self.generous, self.turns = normalised, generous, True
        self.layers: dict[str, FloatLayer] = {}
        self.budget = Budget(sum(array.size for array in self.constants.values()))
        self.notes: list[str] = []
        self.dense: list[str] = []
        self.orders: dict[str, NDArray[np.int64]] = {}
        self.sizes: dict[str, Size] = {}
        self.normalise: dict[str, PerChannel] = {}
        self.functions: dict[str, tuple[str, Function]] = {}
        self.truths: set[str] = set()
        self.cuts = dict(cuts or {})
        self.masks: dict[str, NDArray[np.bool_]] = {}
        self.transposes: dict[tuple[str, int, int], str] = {}
        self.pixels: dict[Size, str] = {}
        self.views = input_views(model)
        self.inputs = {name: Source(view.size, view.shape, view.index) for name, view in self.views.items()}

    def is_empty(self) -> bool:
        return not self.layers

    def guess(self, name: str) -> View | None:
        shape = self.model.shapes.get(name)
        if shape is None or not shape or (len(shape) > 2 and shape[0] != 1):
            return None
        try:
            self.budget.spend("places of rearranged numbers", prod(shape))
        except Refused:
            return None
        return replace(view_of_tensor(name, shape, False), single=False)

    def fold(self, node: Node) -> bool:
        """Also computes nodes whose operands are all constants, and Shape."""
        for name in node.input:
            self._cut(name)
        if super().fold(node):
            return True
        if node.op_type == "Shape" and node.input[0] in self.views:
            self.constants[node.output[0]] = np.array(self.views[node.input[0]].padded_shape, np.int64)[
                slice(attributes(node).get("start"), attributes(node).get("end"))
            ]
            return True
        names = [name for name in node.input if name]
        if not computable(node) or not all(name in self.constants for name in names):
            return False
        if not names and node.op_type != "Constant":
            return False
        for name, array in computed(node, self.constants, self.model.opset).items():
            self.budget.spend("numbers computed from constants", array.size)
            self.constants[name] = array
        return True

    def _cut(self, name: str) -> None:
        """What is a function of this tensor, and of the one that it is a function of, is cut off in between."""
        pin = self.cuts.pop(name, None) if name in self.views else None
        if pin is None or (value := self.views[name].value) not in self.functions:
            return
        base, inner = self.functions[value]
        clip = replace(function("Clip", pin.low, pin.high), cuts={name: (pin.low, pin.high)})
        others = [other for other, view in self.views.items() if view.value == value and other != name]
        if any(self.model.uses[other] > 1 for other in others):  # who reads it as it is before
            view, value = self.views[name], self.fresh(f"{name}//cut")
            self.emit(FloatLayer("table", value, (base,), function=inner.then(clip)), view.size)
            self.views[name] = replace(view, value=value, single=True)
        self.functions[value] = base, inner.then(clip)

    # -- layers -------------------------------------------------------------------------------------------------

    def emit(self, layer: FloatLayer, size: Size, shape: tuple[int, ...] | None = None) -> str:
        """Adds a layer whose result has `size` channels, rows and columns; the value that it makes. `shape`: of the
        tensor, if that is not [1, *size]. Raises Refused for what no instruction holds or is too large."""
        check_window(layer.kind, layer.window)
        if (unit := unit_of(layer)) in self.lacks:
            raise Refused(f"needs {unit}, which the chip's cores lack")
        if min(size) < 1:
            raise Refused("its window does not fit the input")
        check_size(shape or (1, *size))
        self.budget.spend("numbers of tensors", prod(size))
        self.budget.spend("layers", 1)
        self.budget.spend("weights of layers", 0 if layer.w is None else layer.w.size)
        self.layers[layer.output], self.sizes[layer.output] = layer, size
        self.views[layer.output] = View(layer.output, size, shape or (1, *size))
        return layer.output

    def emit_like(self, layer: FloatLayer, view: View) -> None:
        """Adds a layer whose result has the size of what it reads, and is seen in the same way."""
        self.emit(layer, view.size)
        self.keep_view(layer.output, view)

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        while name in self.views or name in self.layers:
            name += "_"
        return name

    def fusible(self, name: str, kinds: tuple[str, ...]) -> FloatLayer | None:
        """The layer that makes a tensor, if nothing else reads it and it is of one of these kinds."""
        view = self.view(name)
        layer = self.layers.get(view.value)
        return layer if layer and view.single and self.used_once(name) and layer.kind in kinds else None

    def rename(self, layer: FloatLayer, node: Node) -> None:
        """The layer's result becomes the node's."""
        view = self.view(node.input[0]) if node.input[0] in self.views else self.view(node.input[1])
        del self.layers[layer.output]
        self.orders.pop(layer.output, None)
        layer.output = node.output[0]
        self.layers[layer.output] = layer
        self.sizes[layer.output] = view.size
        self.keep_view(layer.output, view)

    # -- views --------------------------------------------------------------------------------------------------

    def pass_on(self, node: Node) -> None:
        """The result is the operand."""
        self.see(node, self.view(node.input[0]))

    def see(self, node: Node, view: View, output: int = 0) -> None:
        """Result `output` of a node is a view of what its first operand is."""
        single = view.single and self.used_once(node.input[0])
        self.views[node.output[output]] = replace(view, single=single)

    def move(self, node: Node, index: NDArray[np.int64], output: int = 0) -> None:
        """Result `output` has these elements of the operand's value. Raises Refused where there is none."""
        if not index.size:
            raise Refused("its result is empty")
        self.budget.spend("places of rearranged numbers", index.size)
        self.see(node, self.view(node.input[0]).moved(np.asarray(index, order="C")), output)

    def keep_view(self, output: str, view: View) -> None:
        """A layer's result is seen as its operand was."""
        self.views[output] = replace(view, value=output, single=True)
        self.orders.pop(output, None)  # as it was seen before
        if not view.is_picture:
            self.orders[output] = view.order

    def see_as(self, name: str, shape: tuple[int, ...]) -> None:
        """A tensor has another shape."""
        self.views[name] = replace(self.views[name], shape=shape)

    def only_if_generous(self, why: str) -> None:
        """Raises Refused where the host may still do it."""
        if not self.generous:
            raise Refused(why)


#: Reads a node of one operator: takes the context, the node and its attributes. Raises Refused.
Operator = Callable[[FloatContext, Node, Attributes], None]
