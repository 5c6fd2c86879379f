"""The network that a context has built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..errors import NodeRefusal, OnnxError, Refused, UnsupportedError, node_name, operator_name
from ..floats import FloatLayer, FloatNet
from ..reader_context import COPY
from .context import FloatContext
from .pictures import arrange, as_picture, spread
from .views import NO_PAD, View, layout_of, natural


def build_network(context: FloatContext) -> FloatNet:
    """The result."""
    outputs: list[str] = []
    origins: list[str] = []
    end_orders: dict[str, NDArray[np.int64]] = {}
    by_value: dict[str, set[str]] = {}  # tensors that a value is a result as
    constants = [name for name in context.model.outputs if name not in context.views]
    if constants and len(constants) == len(context.model.outputs):
        raise OnnxError(f"{context.model.name}: output {constants[0]!r} is a constant; remove it")
    context.notes += [f"Output {name} is a constant, whatever the input." for name in constants]
    for name in context.model.outputs:
        if name in constants:
            continue
        origin = context.before.get(name, name)
        view = _find_result(context, origin, name)
        if view.value in context.inputs or origin not in by_value.setdefault(view.value, {origin}):
            view = _copy(context, view)
        outputs.append(view.value)
        origins.append(origin)
        if not view.is_picture:
            end_orders[origin] = view.order
    needed = set(outputs)
    for layer in reversed(context.layers.values()):
        if layer.output in needed:
            needed.update(layer.inputs)
    if unused := [name for name in context.inputs if name not in needed]:
        raise OnnxError(f"{context.model.name}: input {unused[0]!r} is not used; remove it")
    layers = [layer for layer in context.layers.values() if layer.output in needed]
    if all(layer.output.endswith(COPY) for layer in layers):
        raise OnnxError(f"{context.model.name}: nothing is left to compute; give a model with layers")
    shapes = {
        name: view.shape for name, view in context.views.items() if view.pad == NO_PAD and name not in context.before
    }
    notes = [*context.notes, *_dense(context.dense), *context.end_notes()]
    orders = {name: index for name, index in context.orders.items() if name in shapes}
    values = {name: view.value for name, view in context.views.items() if name not in context.before}
    return FloatNet(
        context.model.name,
        context.inputs,
        layers,
        outputs,
        origins,
        context.normalise,
        notes,
        shapes,
        orders,
        end_orders,
        context.sizes,
        values,
        {name: ends for layer in layers if layer.function is not None for name, ends in layer.function.cuts.items()},
        tuple(context.end_notes()),
        frozenset(name for name, view in context.views.items() if _is_turned(context, view)),
    )


def _is_turned(context: FloatContext, view: View) -> bool:
    """Whether a tensor has elements of a value in another order than the tensor of its name."""
    own = context.orders.get(view.value)
    if own is None and view.index is None:
        return False
    first, second = (np.arange(view.order.size) if index is None else index.ravel() for index in (own, view.index))
    return not np.array_equal(first, second)


def _copy(context: FloatContext, view: View) -> View:
    """A value that is an input, or another result, too: moved by a layer."""
    copy = f"{view.value}{COPY}"
    while copy in context.layers:
        copy += COPY
    context.emit(FloatLayer("max_pool", copy, (view.value,)), view.size)
    return replace(view, value=copy)


def _find_result(context: FloatContext, name: str, output: str) -> View:
    """A result of the network, that the model calls `output`: a value with its axes in any order, or a picture made of
    some; if no picture can be made, all elements of a value in any order."""
    view = context.view(name)
    whole = view.order.size == prod(view.size) and bool(np.all(np.bincount(view.order.ravel()) == 1))
    plain = view.pad == NO_PAD
    if plain and whole and (view.index is None or (natural(view) and view.value not in context.inputs)):
        return view
    if plain and whole and view.value == name in context.orders:  # a layer's own result, in an order that is known
        return view
    context.turns = False  # whoever reads results knows their order
    try:
        if len(view.shape) > 4 and plain and not whole:
            return spread(context, context.fresh(f"{name}/end"), view, layout_of(view))
        return as_picture(context, name) if len(view.shape) > 2 else _arrange_vectors(context, name, view)
    except Refused as refusal:
        if whole:
            return view
        sources = [node for node in context.model.nodes if name in node.output]
        if not sources:
            raise OnnxError(f"{context.model.name}: output {output!r} cannot be made: {refusal}") from refusal
        node, why = sources[0], f"its result cannot be an output: {refusal}"  # which may be the host's
        problem = NodeRefusal(node_name(node), operator_name(node), why, tuple(node.output))
        raise UnsupportedError(context.model.name, [problem]) from refusal
    finally:
        context.turns = True


def _arrange_vectors(context: FloatContext, name: str, view: View) -> View:
    """A result of one or two axes: the last is channels, the other columns."""
    rows = view.order.reshape(-1, view.shape[-1])
    picture = arrange(context, name, view.moved(rows.T[None, :, None]))
    return picture.moved(picture.order[0, :, 0].T.reshape(view.shape))


def _dense(names: Sequence[str]) -> Iterator[str]:
    """What is to be said of convolutions in groups."""
    if names:
        others = f" and {len(names) - 1} others" if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else ""
        each = "Its groups run" if len(names) == 1 else "The groups of each run"
        yield f"{names[0]}{others}: convolutions in groups. {each} as one convolution with zeros between them."
