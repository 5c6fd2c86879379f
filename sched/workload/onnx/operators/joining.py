"""Concat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ...graph import PastePlace
from ..building.context import FloatContext, Operator
from ..building.maps import emit_map
from ..building.pictures import as_picture, lay, place, settle, spread
from ..building.views import Layout, View, layout_of, natural, rough_layout
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node

#: Parts of channels that are put beside each other by convolutions and sums.
_MOST_SCATTERED = 4


def concat(context: FloatContext, node: Node, attributes: Attributes) -> None:
    node = _without_empty(context, node)
    rank = len(next(context.view(name) for name in node.input if name in context.views).shape)
    axis = attributes["axis"] % rank
    if len(node.input) == 1:
        context.pass_on(node)
        return
    if _moves_alone(context, node, axis):
        return
    if _lie_as_tokens(context, node, rank) and _join_layouts(context, node, axis):
        return
    try:
        _join_pictures(context, node, axis)
    except Refused:
        if not context.generous or not _join_layouts(context, node, axis):
            raise


def _without_empty(context: FloatContext, node: Node) -> Node:
    """Without constants of no elements: the cache of a decoder before its first token, say."""
    empty = [name for name in node.input if name in context.constants and not context.constants[name].size]
    if not empty:
        return node
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(name for name in node.input if name not in empty)
    return copy


def _lie_as_tokens(context: FloatContext, node: Node, rank: int) -> bool:
    """Whether operands, none of them constant, lie in orders of axes that are not those of one kind of pictures."""
    if rank < 3 or any(name not in context.views for name in node.input):
        return False
    views = [settle(context, name) for name in node.input]
    orders = {natural(view) for view in views}
    if tuple(range(rank)) in orders or not any(layout_of(view) for view in views):
        return False
    return None in orders or (rank == 3 and len(orders) > 1)


def _moves_alone(context: FloatContext, node: Node, axis: int) -> bool:
    """If all operands are parts of one value, and together all of it: the result is that value in another order."""
    if any(name not in context.views for name in node.input):
        return False
    views = [settle(context, name) for name in node.input]
    if len({view.value for view in views}) > 1 or len({len(view.shape) for view in views}) > 1:
        return False
    order = np.concatenate([view.order for view in views], axis)
    if order.size != prod(views[0].size) or np.any(np.bincount(order.ravel()) != 1):
        return False
    context.budget.spend("places of rearranged numbers", order.size)
    context.views[node.output[0]] = replace(views[0].moved(np.ascontiguousarray(order)), single=False)
    return True


def _join_layouts(context: FloatContext, node: Node, axis: int) -> bool:
    """Of operands whose axes lie in any order, if they can be brought to one: constants, too. Channels or pixels of the
    result are those of the operands one after the other."""
    known = [settle(context, name) for name in node.input if name in context.views]
    shapes = [(context.views if name in context.views else context.constants)[name].shape for name in node.input]
    if len({(len(shape), *shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        return False
    layouts = [(view, layout) for view in known if (layout := layout_of(view)) is not None]
    if not layouts:
        name = next(name for name in node.input if name in context.views)
        if not context.generous or (layout := rough_layout(known[0])) is None:
            return False
        view = spread(context, context.fresh(f"{name}/whole"), known[0], layout)
        context.views[name] = view = replace(view, single=False)
        layouts = [(view, layout)]
    layouts.sort(key=lambda pair: -pair[0].shape[axis])  # which has the axis
    like, layout = layouts[0]
    if axis not in layout.channels and axis not in layout.pixels:
        if layout.channels and axis > max(layout.channels):  # finer than features
            layout = Layout((*layout.channels, axis), layout.pixels)
        elif len(shapes[0]) > 4 and layout.pixels and layout.channels and axis < min(layout.channels):  # of whole maps
            layout = Layout((axis, *layout.channels), layout.pixels)
        else:
            layout = Layout(layout.channels, (axis, *layout.pixels))
    if axis in layout.pixels[1:]:  # behind other pixels: before them
        layout = Layout(layout.channels, (axis, *(each for each in layout.pixels if each != axis)))
    if axis in layout.channels and len(shapes) <= _MOST_SCATTERED:
        _scatter_channels(context, node, axis, replace(layout, channels=tuple(sorted(layout.channels))), like)
        return True
    parts = [_lay_part(context, node, at, layout, like) for at in range(len(node.input))]
    names = tuple(view.value for view in parts)
    channels, _, width = parts[0].size
    firsts = np.cumsum([0, *(view.size[0 if axis in layout.channels else 2] for view in parts)]).tolist()
    if axis in layout.channels:  # one part behind the other, whatever is around the axis
        context.emit(FloatLayer("concat", node.output[0], names), (firsts[-1], 1, width))
        parted = [layout.index(shape) + first * width for shape, first in zip(shapes, firsts, strict=False)]
        index = np.concatenate(parted, axis)
    else:
        places = tuple(PastePlace(0, left, 1, 1, 1, view.size[2]) for left, view in zip(firsts, parts, strict=False))
        context.emit(FloatLayer("paste", node.output[0], names, places=places), (channels, 1, firsts[-1]))
        index = layout.index(_joined_shape(shapes, axis))
    context.keep_view(node.output[0], context.views[node.output[0]].moved(index))
    return True


def _joined_shape(shapes: Sequence[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _scatter_channels(context: FloatContext, node: Node, axis: int, layout: Layout, like: View) -> None:
    """Channels of operands to their places among zeros, and the sum of that: a result whose words are full, which
    parts of no whole words behind each other are not."""
    shapes = [(context.views if name in context.views else context.constants)[name].shape for name in node.input]
    shape = _joined_shape(shapes, axis)
    ends = np.cumsum([each[axis] for each in shapes])[:-1].tolist()
    total = ""
    for at, targets in enumerate(np.split(layout.index(shape), ends, axis)):
        view = context.views.get(node.input[at])
        if view is not None and view.size[1] == 1 and (own := layout_of(view)) and own.pixels == layout.pixels:
            value, width, sources = view, view.size[2], layout.of(view.order)[:, 0] // view.size[2]
        else:
            value = _lay_part(context, node, at, layout, like)
            width, sources = value.size[2], np.arange(value.size[0])
        w = np.zeros((prod(shape) // width, value.channels, 1, 1))
        w[layout.of(targets)[:, 0] // width, sources] = 1
        last = at == len(shapes) - 1
        part = context.fresh(f"{node.output[0]}/part{at}")
        layer = FloatLayer("conv", part, (value.value,), w=w, bias=np.zeros(len(w)), moves=True)
        context.emit(layer, (len(w), 1, width))
        if total:
            part = node.output[0] if last else context.fresh(f"{node.output[0]}/sum{at}")
            context.emit(FloatLayer("add", part, (total, layer.output)), (len(w), 1, width))
        total = part
    context.keep_view(node.output[0], context.views[total].moved(layout.index(shape)))


def _lay_part(context: FloatContext, node: Node, at: int, layout: Layout, like: View) -> View:
    """Operand `at` of a node in one row of pixels; `like`: any tensor."""
    name = node.input[at]
    if name in context.constants:
        array = layout.of(context.constants[name])[:, None]
        value = emit_map(context, array, like, f"{node.output[0]}/constant")
        return context.views[value]
    view = context.views[name]
    index = layout.of(view.order)
    laid, _ = lay(context, name, view, index)
    if laid.size[1] > 1:
        row = laid.order.reshape(1, len(index), 1, -1)
        laid = place(context, context.fresh(f"{node.output[0]}/row{at}"), laid.moved(row))
    return laid


def _join_pictures(context: FloatContext, node: Node, axis: int) -> None:
    rank = len(next(context.view(name) for name in node.input if name in context.views).shape)
    _emit_constants(context, node, axis)
    views = [settle(context, name) for name in node.input]
    orders = {natural(view) for view in views}
    order = orders.pop() if len(orders) == 1 else None
    if rank <= 2 and all(view.size == (view.shape[-1], 1, prod(view.shape[:-1])) for view in views):
        context.only_if_generous("operands are flattened pictures; concatenate them before")
        _join_vectors(context, node, [_lay_vectors(context, name) for name in node.input], axis)
        return
    if order is None:
        if any(len(view.shape) == 2 for view in views):
            raise Refused("operands are flattened pictures; concatenate them before")
        views, order = [as_picture(context, name) for name in node.input], tuple(range(rank))
    where = order.index(axis) + (rank == 3 and order.index(axis) == 2)
    sizes = [view.size for view in views]
    names = tuple(view.value for view in views)
    if where == 0 or len({(*size[: where - 1], *size[where:]) for size in sizes}) > 1:
        raise Refused(f"along axis {axis} of operands of shapes {[list(view.shape) for view in views]}")
    whole = sum(size[where - 1] for size in sizes)
    size = tuple(whole if at == where - 1 else part for at, part in enumerate(sizes[0]))
    places: list[PastePlace] = []
    first = 0
    for _, rows, columns in sizes if where > 1 else ():
        places.append(PastePlace(first * (where == 2), first * (where == 3), 1, 1, rows, columns))
        first += rows if where == 2 else columns
    kind = "paste" if places else "concat"
    context.emit(FloatLayer(kind, node.output[0], names, places=tuple(places)), (size[0], size[1], size[2]))
    result = context.views[node.output[0]]
    shape = (1, size[0], size[2]) if rank == 3 else (1, *size)[:rank]
    context.keep_view(node.output[0], result.moved(result.order.reshape(shape).transpose(np.argsort(order))))


def _lay_vectors(context: FloatContext, name: str) -> View:
    """Vectors [vectors, features] or [features] as a picture of one row, features being channels."""
    view = settle(context, name)
    rows = view.order.reshape(-1, view.shape[-1])
    return lay(context, name, view, np.ascontiguousarray(rows.T))[0]


def _join_vectors(context: FloatContext, node: Node, views: Sequence[View], axis: int) -> None:
    rank = len(context.view(node.input[0]).shape)
    names, sizes = tuple(view.value for view in views), [view.size for view in views]
    if axis == rank - 1:
        context.emit(FloatLayer("concat", node.output[0], names), (sum(size[0] for size in sizes), *sizes[0][1:]))
    else:
        first = np.cumsum([0, *(size[2] for size in sizes)]).tolist()
        places = tuple(PastePlace(0, left, 1, 1, 1, size[2]) for left, size in zip(first, sizes, strict=False))
        context.emit(FloatLayer("paste", node.output[0], names, places=places), (sizes[0][0], 1, first[-1]))
    result = context.views[node.output[0]]
    features, _, vectors = result.size
    index = result.order.reshape(features, vectors).T
    context.keep_view(node.output[0], result.moved(np.ascontiguousarray(index[0] if rank == 1 else index)))


def _emit_constants(context: FloatContext, node: Node, axis: int) -> None:
    """Makes tensors of constant operands; as many rows, columns or channels of the first tensor as they have."""
    like = settle(context, next(name for name in node.input if name in context.views))
    for name in node.input:
        if name in context.views:
            continue
        array = context.constants[name]
        if array.shape[:axis] + array.shape[axis + 1 :] != like.shape[:axis] + like.shape[axis + 1 :]:
            raise Refused(f"a constant of shape {list(array.shape)} beside an operand of {list(like.shape)}")
        order = natural(like)
        if order is None or len(order) < 3:
            raise Refused("a constant beside flattened pictures; concatenate it before")
        moved = array.transpose(order)
        moved = moved[:, :, None] if moved.ndim == 3 else moved
        value = emit_map(context, moved[0], like, f"{node.output[0]}/constant")
        picture = View(value, moved.shape[1:], (1, *moved.shape[1:]))
        shape = tuple(array.shape[at] for at in order)
        context.views[name] = picture.moved(picture.order.reshape(shape).transpose(np.argsort(order)))


OPERATORS: dict[str, Operator] = {"Concat": concat}
