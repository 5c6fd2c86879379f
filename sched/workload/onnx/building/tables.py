"""Functions of one tensor, element by element, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..pointwise import ARGUMENT, OLDEST, Function, numbers, standard
from .context import FloatContext, Operator
from .pictures import settle
from .views import NO_PAD, View

#: Nodes that are one function: longer chains are functions of functions, lest each is written down again and again.
_MOST_NODES = 64


def or_table(usual: Operator) -> Operator:
    """An operator that other layers may absorb: as `usual` does it, and a table where it refuses, where the operand
    is one already, or where several are functions of one value."""

    @wraps(usual)
    def read(context: FloatContext, node: Node, attributes: Attributes) -> None:
        function = find_function(context, node)
        tensors = sum(name in context.views for name in node.input)
        if function is not None and (tensors > 1 or any(_is_table(context, name) for name in node.input)):
            emit_table(context, node, *function)
            return
        try:
            usual(context, node, attributes)
        except Refused:
            for name in node.input:
                if name in context.views:
                    settle(context, name)
            if (function := find_function(context, node)) is None:
                raise
            emit_table(context, node, *function)
            return
        value = context.views[node.output[0]].value
        if function is None or value != node.output[0]:
            return
        if function[0] in context.layers or function[0] in context.inputs:
            context.functions[value] = function

    return read


def find_function(context: FloatContext, node: Node) -> tuple[str, Function] | None:
    """The value that a node's result is a function of, element by element, and the function; None if there is no
    such value, or zeros around it are still to come."""
    names = [name for name in node.input if name]
    views = [context.views[name] for name in names if name in context.views]
    constants = {name: context.constants[name] for name in names if name not in context.views}
    if not views or any(view.pad != NO_PAD for view in views):
        return None
    if node.op_type in ("Div", "Mod") and names[-1] in constants and not np.all(constants[names[-1]]):
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
    bases = {_find_base(context, view.value) for view in views}
    if len(bases) > 1 and len({view.value for view in views}) == 1:
        bases = {first.value}
    if len(bases) != 1 or bases & context.truths:
        return None
    (base,) = bases
    return base, _compose(context, node, base, constants)


def _find_base(context: FloatContext, value: str) -> str:
    """The value that another one is a function of, of not too many nodes; itself if it is none."""
    base, function = context.functions.get(value, (value, None))
    return value if function is not None and len(function.nodes) >= _MOST_NODES else base


def _compose(context: FloatContext, node: Node, base: str, constants: Mapping[str, NDArray[Any]]) -> Function:
    opset = max(context.model.opset, OLDEST)
    copy, bounds = standard(node, context.model.opset)
    before: dict[str, Node] = {}
    cuts: dict[str, tuple[float, float]] = {}
    fixed_inputs = numbers(constants) | bounds
    for index, name in enumerate(copy.input):
        if name not in context.views:
            continue
        value = context.views[name].value
        copy.input[index] = ARGUMENT
        if value != base:
            inner = context.functions[value][1]
            cuts |= inner.cuts
            copy.input[index] = inner.result
            before |= {each.output[0]: each for each in inner.nodes}
            fixed_inputs |= inner.constants
    return Function((*before.values(), copy), fixed_inputs, copy.output[0], opset, cuts)


def _is_table(context: FloatContext, name: str) -> bool:
    layer = context.layers.get(context.views[name].value) if name in context.views else None
    return layer is not None and layer.kind == "table"


def emit_table(context: FloatContext, node: Node, base: str, function: Function) -> None:
    view = next(context.views[name] for name in node.input if name in context.views)
    layer = FloatLayer("table", node.output[0], (base,), function=function)
    context.emit_like(layer, view)
    context.functions[layer.output] = base, function


def note_truth(context: FloatContext, node: Node, base: str, function: Function) -> None:
    """A result that is true or false for each number of a value: part of the function that chooses by it."""
    view = next(context.views[name] for name in node.input if name in context.views)
    value = context.fresh(node.output[0])
    context.views[node.output[0]] = replace(view, value=value, single=False)
    context.functions[value] = base, function
    context.truths.add(value)


def apply_function(context: FloatContext, view: View, output: str, function: Function) -> View:
    """A table that no node of the file is."""
    base = view.value
    if base in context.functions:
        base, inner = context.functions[base]
        function = inner.then(function)
    layer = FloatLayer("table", context.fresh(output), (base,), function=function)
    context.emit(layer, view.size)
    context.functions[layer.output] = base, function
    return replace(view, value=layer.output, single=True)
