"""ScatterND and ScatterElements: parts of a tensor in the place of others, or added to them, at constant places.

What takes the place of others is joined to what stays, along one axis after the other: a part is whole rows of the one
or the other, or is parted further. What is added is a product with a matrix of ones and zeros, which adds up what has
one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..building.context import FloatContext, Operator
from ..building.pictures import settle
from ..errors import Refused
from ..nodes import Attributes, Node
from .contractions import einsum
from .elementwise import add
from .joining import concat

#: Parts of which a result is joined.
_MOST_PARTS = 64
_LETTERS = "abcdefg"


def scatter_elements(context: FloatContext, node: Node, attributes: Attributes) -> None:
    shape, size = _shape(context, node.input[0]), _shape(context, node.input[2])
    indices, axis = context.constant(node, 1, "indices"), attributes.get("axis", 0) % len(shape)
    if indices.shape != size:
        raise Refused(f"indices of shape {list(indices.shape)} for what has shape {list(size)}")
    places = list(np.indices(size))
    places[axis] = indices % shape[axis]
    _scatter(context, node, attributes, np.asarray(np.ravel_multi_index(places, shape), np.int64))


def scatter_places(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """ScatterND: the last axis of the indices says a place in the first axes of the operand."""
    shape, size = _shape(context, node.input[0]), _shape(context, node.input[2])
    indices = context.constant(node, 1, "indices")
    depth = indices.shape[-1]
    if size != (*indices.shape[:-1], *shape[depth:]):
        raise Refused(f"indices of shape {list(indices.shape)} for what has shape {list(size)}")
    whole = np.arange(prod(shape)).reshape(shape)
    within = np.moveaxis(indices, -1, 0) % np.reshape(shape[:depth], (-1, *[1] * (indices.ndim - 1)))
    _scatter(context, node, attributes, whole[tuple(within)])


def _shape(context: FloatContext, name: str) -> tuple[int, ...]:
    return context.constants[name].shape if name in context.constants else settle(context, name).shape


def _scatter(context: FloatContext, node: Node, attributes: Attributes, places: NDArray[np.int64]) -> None:
    """`places`: of each element of what is written in the operand, all axes as one."""
    context.only_if_generous("parts of a tensor in the place of others")
    kind = attributes.get("reduction", "none")
    if kind not in ("none", "add"):
        raise Refused(f"reduction {kind}; must be none or add")
    shape = _shape(context, node.input[0])
    if kind == "add":
        _add(context, node, shape, places)
        return
    source = np.full(shape, -1)
    source.ravel()[places.ravel()] = np.arange(places.size)
    where = np.arange(source.size).reshape(shape)
    _Assembly(context, node).make(source, where, node.output[0])


def _borders(written: NDArray[np.bool_], axis: int) -> NDArray[np.intp]:
    """The numbers of the rows along an axis that differ from the row before."""
    rows = np.moveaxis(written, axis, 0).reshape(written.shape[axis], -1)
    return np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1


@dataclass
class _Assembly:
    """What is joined of two tensors; `parts`: how many there are so far."""

    context: FloatContext
    node: Node
    parts: int = 0

    def make(self, source: NDArray[np.int64], where: NDArray[np.int64], output: str) -> None:
        """`source`: of each element the one that is written there, -1 where the operand's stays; `where`: its place."""
        written = source >= 0
        if written.all() or not written.any():
            self._part(2 if written.any() else 0, source if written.any() else where, output)
            return
        # where some are written and some not, rows along some axis differ
        axis, cuts = next((axis, cuts) for axis in range(source.ndim) if (cuts := _borders(written, axis)).size)
        names: list[str] = []
        for part, place in zip(np.split(source, cuts, axis), np.split(where, cuts, axis), strict=True):
            names.append(self.context.fresh(f"{output}/part{len(names)}"))
            self.make(part, place, names[-1])
        concat(self.context, _node(self.node, "Concat", names, output), {"axis": axis})

    def _part(self, at: int, index: NDArray[np.int64], output: str) -> None:
        """Elements of one of the node's operands."""
        self.parts += 1
        if self.parts > _MOST_PARTS:
            raise Refused(f"its places are more than {_MOST_PARTS} parts of the result; write whole rows or columns")
        name = self.node.input[at]
        if name in self.context.constants:
            self.context.constants[output] = self.context.constants[name].ravel()[index]
            return
        view = settle(self.context, name)
        self.context.budget.spend("places of rearranged numbers", index.size)
        self.context.views[output] = view.moved(np.ascontiguousarray(view.order.ravel()[index]))


def _add(context: FloatContext, node: Node, shape: tuple[int, ...], places: NDArray[np.int64]) -> None:
    data, _, updates = node.input
    if updates in context.constants:
        whole = np.zeros(shape, context.constants[updates].dtype)
        np.add.at(whole.ravel(), places.ravel(), context.constants[updates].ravel())  # a view: it is new
        term = context.fresh(f"{node.output[0]}/term")
        context.constants[term] = whole
        add(context, _node(node, "Add", [data, term], node.output[0]), {})
        return
    axis, rows = _rows(shape, places)
    adds = np.zeros((shape[axis], places.shape[axis]), np.float32)
    np.add.at(adds, (rows, np.arange(len(rows))), 1)
    stays = data not in context.constants or context.constants[data].any()
    sums = context.fresh(f"{node.output[0]}/sums") if stays else node.output[0]
    matrix = context.fresh(f"{node.output[0]}/rows")
    context.constants[matrix] = adds
    letters = _LETTERS[: len(shape)]
    result = letters.replace(letters[axis], "z")
    equation = {"equation": f"z{letters[axis]},{letters}->{result}"}
    einsum(context, _node(node, "Einsum", [matrix, updates], sums), equation)
    if stays:
        add(context, _node(node, "Add", [data, sums], node.output[0]), {})


def _rows(shape: tuple[int, ...], places: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """An axis along which whole rows are added, and to which ones."""
    if places.ndim != len(shape) or len(shape) > len(_LETTERS):
        raise Refused("what it adds has other axes than its operand; add whole rows along one axis")
    whole = np.arange(prod(shape)).reshape(shape)
    for axis in range(len(shape)):
        if shape[:axis] + shape[axis + 1 :] != places.shape[:axis] + places.shape[axis + 1 :]:
            continue
        first = np.moveaxis(places, axis, 0).reshape(places.shape[axis], -1)[:, 0]
        rows = np.unravel_index(first, shape)[axis]
        if np.array_equal(np.take(whole, rows, axis), places):
            return axis, rows
    raise Refused("it adds other parts than whole rows along one axis")


def _node(node: Node, operator: str, inputs: list[str], output: str) -> Any:
    from onnx import helper

    return helper.make_node(operator, inputs, [output], node.name)


OPERATORS: dict[str, Operator] = {
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_places,
}
