"""Einsum: sums of products over named axes, as a product of matrices between rearrangements of its operands."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..building.context import FloatContext, Operator
from ..building.pictures import settle
from ..errors import Refused
from ..nodes import Attributes, Node
from .elementwise import multiply
from .products import matmul
from .reductions import reduce

#: Names of an operand's axes: letters, and numbers for those that an ellipsis stands for.
_Axes = list[Hashable]


def einsum(context: FloatContext, node: Node, attributes: Attributes) -> None:
    ranks = [len(_shape(context, name)) for name in node.input]
    operands, result = _axes(attributes["equation"].replace(" ", ""), ranks)
    if len(operands) > 2:
        raise Refused(f"of {len(operands)} tensors; multiply two at a time")
    sizes: dict[Hashable, int] = {}
    for name, axes in zip(node.input, operands, strict=True):
        for axis, size in zip(axes, _shape(context, name), strict=True):
            if sizes.setdefault(axis, size) != size:
                raise Refused(f"axes of {sizes[axis]} and {size} have one name in {attributes['equation']!r}")
    names: list[str] = []
    for at, name in enumerate(node.input):
        others = {axis for index, axes in enumerate(operands) if index != at for axis in axes}
        names.append(_without_own_sums(context, node, at, name, operands[at], {*others, *result}))
        operands[at] = [axis for axis in dict.fromkeys(operands[at]) if axis in others or axis in result]
    if len(names) == 1:
        view = context.views[names[0]]
        context.views[node.output[0]] = replace(view.moved(_ordered(view.order, operands[0], result)), single=False)
        return
    _multiply(context, node, names, operands, result, sizes)


def _shape(context: FloatContext, name: str) -> tuple[int, ...]:
    return context.constants[name].shape if name in context.constants else settle(context, name).shape


def _axes(equation: str, ranks: Sequence[int]) -> tuple[list[_Axes], _Axes]:
    """The names of the operands' axes and of those of the result."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refused(f"{equation!r} has {len(terms)} terms for {len(ranks)} operands")
    wide = max(rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True))
    operands: list[_Axes] = []
    for term, rank in zip(terms, ranks, strict=True):
        before, dots, behind = term.partition("...")
        more = rank - len(before) - len(behind)
        if more < 0 or (more and not dots):
            raise Refused(f"{equation!r} does not fit an operand of {rank} axes")
        operands.append([*before, *range(wide - more, wide), *behind])
    if arrow:
        before, dots, behind = right.partition("...")
        return operands, [*before, *(range(wide) if dots else ()), *behind]
    letters = [axis for axes in operands for axis in axes if isinstance(axis, str)]
    return operands, [*range(wide), *sorted(letter for letter in set(letters) if letters.count(letter) == 1)]


def _without_own_sums(context: FloatContext, node: Node, at: int, name: str, axes: _Axes, needed: set[Hashable]) -> str:
    """An operand whose axes have different names, all of them `needed` by another operand or the result."""
    from onnx import helper

    unique = list(dict.fromkeys(axes))
    numbers = {axis: number for number, axis in enumerate(unique)}
    order = context.constants[name] if name in context.constants else context.views[name].order
    diagonal = np.ascontiguousarray(np.einsum(order, [numbers[axis] for axis in axes], list(range(len(unique)))))
    over = [index for index, axis in enumerate(unique) if axis not in needed]
    part = context.fresh(f"{node.output[0]}/operand{at}")
    if name in context.constants:
        context.constants[part] = diagonal.sum(axis=tuple(over))
        return part
    context.views[part] = context.views[name].moved(diagonal)
    if over:
        total = context.fresh(f"{part}/sum")
        options = {"axes": over, "keepdims": 0}
        reduce(context, helper.make_node("ReduceSum", [part], [total], node.name), options)
        part = total
    return part


def _ordered(order: NDArray[Any], axes: _Axes, result: _Axes) -> NDArray[Any]:
    if not result:
        return order.reshape(())
    return np.ascontiguousarray(order.transpose([axes.index(axis) for axis in result]))


def _multiply(
    context: FloatContext,
    node: Node,
    names: list[str],
    operands: list[_Axes],
    result: _Axes,
    sizes: dict[Hashable, int],
) -> None:
    """The product of two operands, each axis of which is in both, or in the result."""
    from onnx import helper

    # the last axis of the result along columns, as a softmax over it takes them
    swap = bool(result) and result[-1] not in operands[1]
    if (swap or names[0] in context.constants) and names[1] not in context.constants:
        names, operands = names[::-1], operands[::-1]
    first, second = operands
    both = [axis for axis in result if axis in first and axis in second]
    summed = [axis for axis in first if axis not in result]
    rows, columns = ([axis for axis in result if axis in axes and axis not in both] for axes in (first, second))
    output = node.output[0]
    elementwise = not summed and (not rows or not columns)
    if elementwise:
        groups = [both + rows + columns] * 2
        shapes = [[sizes[axis] if axis in axes else 1 for axis in groups[0]] for axes in (first, second)]
    else:
        groups = [both + rows + summed, both + summed + columns]
        lead = [prod(sizes[axis] for axis in both)] if both else []
        depth = prod(sizes[axis] for axis in summed)
        shapes = [
            [*lead, prod(sizes[axis] for axis in rows), depth],
            [*lead, depth, prod(sizes[axis] for axis in columns)],
        ]
    parts: list[str] = []
    for name, axes, group, shape in zip(names, operands, groups, shapes, strict=True):
        part = context.fresh(f"{name}/matrix")
        own = [axis for axis in group if axis in axes]
        if name in context.constants:
            context.constants[part] = _ordered(context.constants[name], axes, own).reshape(shape)
        else:
            view = context.views[name]
            context.views[part] = view.moved(_ordered(view.order, axes, own).reshape(shape))
        parts.append(part)
    operator, kind = (multiply, "Mul") if elementwise else (matmul, "MatMul")
    operator(context, helper.make_node(kind, parts, [output], node.name), {})
    view = context.views[output]
    have = both + rows + columns
    order = view.order.reshape([sizes[axis] for axis in have])
    context.keep_view(output, view.moved(_ordered(order, have, result)))


OPERATORS: dict[str, Operator] = {"Einsum": einsum}
