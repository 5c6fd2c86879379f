"""Nodes that exporters write several of for a layer normalisation, put together again.

It is one operator since opset 17. Before, PyTorch writes

    mean = ReduceMean(x), d = x - mean, variance = ReduceMean(d ** 2), y = d / Sqrt(variance + epsilon)

with d once or twice; TensorFlow's converter multiplies by a reciprocal or a power instead of the division, and Keras
writes x * factor + (offset - mean * factor), whose factor is the reciprocal times a gain. The same
without a mean that is taken off (RMSNorm) is an operator since opset 23.
"""

from __future__ import annotations

from itertools import product as product_of
from typing import Any

import numpy as np

from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes


def join_standardisations(model: CheckedModel) -> CheckedModel:
    """The model with such nodes as one LayerNormalization or RMSNormalization each; it computes the same tensors, but
    for those between."""
    search = _PatternSearch(model)
    return model.with_nodes([other for node in model.nodes for other in search.joined(node)])


class _PatternSearch:
    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.makers = {name: node for node in model.nodes for name in node.output if name}

    def joined(self, node: Node) -> list[Node]:
        """The nodes that take the place of a node: a LayerNormalization, an RMSNormalization, or itself."""
        from onnx import helper

        if (scaled := self._scaled(node)) is not None:
            return scaled
        match = self._standardisation(node)
        if match is None:
            return [node]
        operator, x, axis, epsilon = match
        name = node.name or node.output[0]
        return [helper.make_node(operator, [x, ""], list(node.output), name, axis=axis, epsilon=epsilon)]

    def _scaled(self, node: Node) -> list[Node] | None:
        """The nodes that take the place of x * factor + (offset - mean * factor)."""
        for product, rest in (tuple(node.input), tuple(node.input)[::-1]) if node.op_type == "Add" else ():
            times, less = self._of(product, "Mul"), self._of(rest, "Sub")
            off = self._of(less.input[1], "Mul") if less else None
            if times is None or less is None or off is None:
                continue
            for (x, factor), (mean, same) in product_of((times.input, times.input[::-1]), (off.input, off.input[::-1])):
                match = self._factor(factor, x, mean) if factor == same else None
                if match is not None:
                    gain, axis, epsilon = match
                    instead = Instead(node)
                    normal = instead.op("LayerNormalization", x, "", axis=axis, epsilon=epsilon)
                    instead.op("Add", instead.op("Mul", normal, gain), less.input[0], to=node.output[0])
                    return instead.nodes
        return None

    def _factor(self, name: str, x: str, mean: str) -> tuple[str, int, float] | None:
        """If a tensor is a gain over the root of the variance of x: the gain, the first axis, and what is added."""
        factor, middle = self._of(name, "Mul"), self.makers.get(mean)
        for root, gain in (factor.input, factor.input[::-1]) if factor and middle else ():
            inner = self._reciprocal(root)
            variance = self._variance(inner) if inner else None
            squared = self._squared(variance[0]) if variance else None
            if variance is None or squared is None or middle is None or middle.input[0] != x:
                continue
            if self._difference(squared) == (x, variance[1]) and self._mean_axis(middle) == variance[1]:
                return gain, variance[1], variance[2]
        return None

    def _standardisation(self, node: Node) -> tuple[str, str, int, float] | None:
        """If a node makes (x - mean) / root of the variance, or x / root of the mean square: the operator that does, x,
        the first of the last axes that they are of, and what is added to the variance."""
        for difference, factor in self._quotients(node):
            variance = self._variance(factor)
            if variance is None:
                continue
            squares, axis, epsilon = variance
            other = self._squared(squares)
            x = self._difference(difference)
            if other is not None and x is not None and self._difference(other) == (x[0], axis) == x:
                return "LayerNormalization", x[0], axis, epsilon
            if other == difference:
                return "RMSNormalization", difference, axis, epsilon
        return None

    def _quotients(self, node: Node) -> list[tuple[str, Node]]:
        """(d, node of the variance with its epsilon) for a node that may be d / root."""
        quotients: list[tuple[str, Node]] = []
        if node.op_type == "Div":
            root = self._of(node.input[1], "Sqrt")
            quotients += [(node.input[0], inner)] if root and (inner := self.makers.get(root.input[0])) else []
        elif node.op_type == "Mul":
            for d, other in (tuple(node.input), tuple(node.input)[::-1]):
                quotients += [(d, inner)] if (inner := self._reciprocal(other)) else []
        return quotients

    def _reciprocal(self, name: str) -> Node | None:
        """The node of what a tensor is one over the root of."""
        maker = self._of(name, "Reciprocal", "Pow", "Div")
        if maker is None:
            return None
        if maker.op_type == "Pow":
            root = maker if self._number(maker.input[1]) == -0.5 else None
        elif maker.op_type == "Div":
            root = self._of(maker.input[1], "Sqrt") if self._number(maker.input[0]) == 1 else None
        else:
            root = self._of(maker.input[0], "Sqrt")
        return self.makers.get(root.input[0]) if root is not None else None

    def _variance(self, node: Node) -> tuple[str, int, float] | None:
        """For what a root is taken of: the squares whose mean it is, over which axes, and what is added."""
        epsilon = 0.0
        if node.op_type == "Add":
            for mean, number in (tuple(node.input), tuple(node.input)[::-1]):
                value = self._number(number)
                if value is not None and mean in self.makers:
                    node, epsilon = self.makers[mean], value
                    break
            else:
                return None
        axis = self._mean_axis(node)
        return None if axis is None else (node.input[0], axis, epsilon)

    def _squared(self, name: str) -> str | None:
        """What a tensor is the square of."""
        node = self._of(name, "Pow", "Mul")
        if node is None:
            return None
        if node.op_type == "Pow":
            return node.input[0] if self._number(node.input[1]) == 2 else None
        return node.input[0] if node.input[0] == node.input[1] else None

    def _difference(self, name: str) -> tuple[str, int] | None:
        """x, and over which axes its mean is taken, if a tensor is x less its mean."""
        node = self._of(name, "Sub")
        mean = self.makers.get(node.input[1]) if node else None
        if node is None or mean is None or mean.input[:1] != node.input[:1]:
            return None
        axis = self._mean_axis(mean)
        return None if axis is None else (node.input[0], axis)

    def _mean_axis(self, node: Node) -> int | None:
        """The first axis, from the end, of a mean over all axes from there on that keeps them."""
        if node.op_type != "ReduceMean":
            return None
        options = attributes(node)
        axes: Any = options.get("axes")
        if len(node.input) > 1 and node.input[1] in self.model.constants:
            axes = self.model.constants[node.input[1]].tolist()
        shape = self.model.shapes.get(node.input[0])
        if not options.get("keepdims", 1) or not axes:
            return None
        if shape is None and max(axes) >= 0:  # from the end they are known without it
            return None
        last = sorted(axes if shape is None else (axis % len(shape) - len(shape) for axis in axes))
        return last[0] if last == list(range(last[0], 0)) else None

    def _of(self, name: str, *operators: str) -> Node | None:
        node = self.makers.get(name)
        return node if node is not None and node.op_type in operators else None

    def _number(self, name: str) -> float | None:
        array = self.model.constants.get(name)
        if array is None or array.size != 1:
            return None
        return float(np.asarray(array, np.float64).reshape(()))
