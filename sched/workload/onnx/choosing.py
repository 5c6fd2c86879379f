"""Tokens whose place the input says are products with rows of zeros and a one.

A model of text may go on with one token alone: the one that ends the text, say, whose place is computed of the numbers
of words. The host makes a row for each such place, which is 1 there, and the chip multiplies it by the tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .load import CheckedModel
from .nodes import attributes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Longer rows take more room than what is chosen from.
_LONGEST = 4096
#: From these opsets on there is an operator that makes the rows, and the axes of a sum are an operand.
_ROWS, _AXES = 9, 13
#: `TensorProto` says so.
_FLOAT = 1


def choose_by_products(model: ModelProto, name: str, host: Collection[str], fixed: Collection[str]) -> ModelProto:
    """The model with products in place of Gather and GatherND of what the chip computes, at places that the host
    computes; itself if there is none. `host`: tensors that are the host's or constants, `fixed`: those that depend on
    no input."""
    import onnx

    chosen = [
        node.op_type in ("Gather", "GatherND")
        and node.input[1] in host
        and node.input[1] not in fixed
        and node.input[0] not in host
        for node in model.graph.node
    ]
    checked = CheckedModel(name, model)
    if not any(chosen) or checked.opset < _ROWS:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    shapes: Mapping[str, Sequence[int]] = checked.shapes
    for node, its in zip(model.graph.node, chosen, strict=True):
        instead = None
        if its:
            data, places = (shapes.get(each) for each in node.input)
            kind = checked.types.get(node.input[0], _FLOAT)
            if data is not None and places is not None:
                instead = _Product(node, checked.opset, data, places, kind).nodes()
        result.graph.node.extend([node] if instead is None else instead)
    return result


@dataclass
class _Product:
    """What takes the place of a node that chooses of `data` at `places`, of these shapes. `kind`: of its elements."""

    node: NodeProto
    opset: int
    data: Sequence[int]
    places: Sequence[int]
    kind: int

    def nodes(self) -> list[NodeProto] | None:
        """None where there is no product."""
        from onnx import helper, numpy_helper

        own = attributes(self.node)
        nodes: list[NodeProto] = []

        def constant(what: str, array: Any, kind: type[np.generic] = np.int64) -> str:
            value = numpy_helper.from_array(np.asarray(array, kind))
            return op("Constant", [], what, value=value)

        def op(operator: str, operands: Sequence[str], what: str, **more: Any) -> str:
            nodes.append(helper.make_node(operator, operands, [f"{self.node.output[0]}/{what}"], **more))
            return nodes[-1].output[0]

        first, shape, place = own.get("axis", 0) % len(self.data), self.places, self.node.input[1]
        count = 1
        if self.node.op_type == "GatherND":
            if own.get("batch_dims", 0):
                return None
            first, shape, count = 0, self.places[:-1], self.places[-1]
        sizes = self.data[first : first + count]
        depth = prod(sizes)
        if depth > _LONGEST:
            return None
        if self.node.op_type == "GatherND":
            place = op("Mod", [place, constant("sizes", sizes)], "within")  # places from the end are negative
            steps = constant("steps", [prod(sizes[axis + 1 :]) for axis in range(count)])
            place = op("Mul", [place, steps], "offsets")
            if self.opset < _AXES:
                place = op("ReduceSum", [place], "place", axes=[-1], keepdims=0)
            else:
                place = op("ReduceSum", [place, constant("axis", [-1])], "place", keepdims=0)
        before, after = self.data[:first], self.data[first + count :]
        flat = op("Reshape", [place, constant("flat", [-1])], "flat_places")
        rows = op("OneHot", [flat, constant("depth", depth), constant("values", [0, 1], np.float32)], "rows")
        if self.kind != _FLOAT:
            rows = op("Cast", [rows], "rows_of_its_type", to=self.kind)
        batch = [prod(before)] if prod(before) != 1 else []
        tokens = op("Reshape", [self.node.input[0], constant("as", [*batch, depth, prod(after)])], "tokens")
        product = op("MatMul", [rows, tokens], "product")
        to = constant("to", [*before, *shape, *after])
        nodes.append(helper.make_node("Reshape", [product, to], [self.node.output[0]], self.node.name))
        return nodes
