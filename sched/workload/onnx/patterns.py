"""Nodes that exporters write several of for one operator, put together again.

A layer normalisation is one operator since opset 17. Before, PyTorch writes

    mean = ReduceMean(x), d = x - mean, variance = ReduceMean(d ** 2), y = d / Sqrt(variance + epsilon)

with d once or twice; TensorFlow's converter multiplies by a reciprocal or a power instead of the division.

What is padded with −∞, or with the least number of its type, before a MaxPool is the MaxPool's own padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .load import CheckedModel, attributes
from .subgraphs import reads

if TYPE_CHECKING:
    from onnx import NodeProto


def together(model: CheckedModel) -> CheckedModel:
    """The model with such nodes as one each; it computes the same tensors, but for those between them."""
    from onnx import helper

    search = _Search(model)
    pads = _Pads(model)
    found: list[NodeProto] = []
    for node in model.nodes:
        match = search.standardised(node)
        if match is None:
            found += pads.before(node)
            continue
        x, axis, epsilon = match
        found.append(
            helper.make_node(
                "LayerNormalization",
                [x, ""],
                list(node.output),
                node.name or node.output[0],
                axis=axis,
                epsilon=epsilon,
            )
        )
    alike = len(found) == len(model.nodes) and all(ours is node for ours, node in zip(found, model.nodes, strict=True))
    return model if alike else replace(model, others=tuple(found))


class _Pads:
    """Pads of −∞, and what only gives their results another order of axes before MaxPools read them."""

    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.readers: dict[str, list[NodeProto]] = {}
        for node in model.nodes:
            for name in reads(node):
                self.readers.setdefault(name, []).append(node)
        #: Of padded tensors: the tensor without its padding, and how many are before and behind along each axis.
        self.padded: dict[str, tuple[str, list[int]]] = {}

    def before(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that take the place of a node."""
        if node.op_type == "Pad" and (pads := self._least(node)) and self._only_pools(node.output[0], pads):
            self.padded[node.output[0]] = node.input[0], pads
            return []
        if not node.input or node.input[0] not in self.padded:
            return [node]
        source, pads = self.padded[node.input[0]]
        copy = type(node)()
        copy.CopyFrom(node)
        copy.input[0] = source
        if node.op_type == "MaxPool":
            _add_pads(copy, pads)
            return [copy]
        copy.output[0] = f"{node.output[0]}//unpadded"
        self.padded[node.output[0]] = copy.output[0], _in_order(node, pads)
        return [copy]

    def _least(self, node: NodeProto) -> list[int] | None:
        """How much a Pad adds before and behind along each axis, if it is of the least number there is."""
        known, constants = attributes(node), self.model.constants
        if known.get("mode", "constant") != "constant":
            return None
        if self.model.opset < 11:
            return list(known["pads"]) if _is_least(np.float32(known.get("value", 0.0))) else None
        names = [*node.input, "", "", ""][1:4]
        if any(name and name not in constants for name in names) or not names[1] or constants[names[1]].size != 1:
            return None
        given: list[int] = constants[names[0]].tolist()
        axes: list[int] | None = constants[names[2]].tolist() if names[2] else None
        if not _is_least(constants[names[1]].ravel()[0]):
            return None
        if axes is None:
            return given
        shape = self.model.inferred.get(node.input[0]) or self.model.inferred.get(node.output[0])
        rank = len(self.model.input_sizes.get(node.input[0], shape or ()))
        if not rank:
            return None
        pads = [0] * (2 * rank)
        for index, axis in enumerate(axes):
            pads[axis % rank], pads[axis % rank + rank] = given[index], given[index + len(axes)]
        return pads

    def _only_pools(self, name: str, pads: list[int]) -> bool:
        """Whether nothing but MaxPools that may have such padding reads a tensor, in any order of its axes."""
        waiting = [(name, pads)]
        while waiting:
            name, pads = waiting.pop()
            readers = self.readers.get(name, [])
            if not readers or name in self.model.outputs:
                return False
            for reader in readers:
                if reader.op_type in ("Transpose", "Identity"):
                    waiting.append((reader.output[0], _in_order(reader, pads)))
                elif reader.op_type != "MaxPool" or not _fits(reader, pads):
                    return False
        return True


def _in_order(node: NodeProto, pads: list[int]) -> list[int]:
    """Padding of a tensor behind a Transpose, or another node that changes no axis."""
    if node.op_type != "Transpose":
        return pads
    rank = len(pads) // 2
    order: Sequence[int] = attributes(node).get("perm", tuple(range(rank))[::-1])
    return [pads[axis] for axis in order] + [pads[axis + rank] for axis in order]


def _fits(pool: NodeProto, pads: list[int]) -> bool:
    """Whether padding can be added to that of a MaxPool: of rows and columns, and less than a window."""
    known, rank = attributes(pool), len(pads) // 2
    if known.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or rank < 3 or min(pads) < 0:
        return False
    kernel: list[int] = list(known["kernel_shape"])
    beyond = any(pad >= taps for pad, taps in zip(_with(pool, pads), kernel * 2, strict=True))
    return not beyond and not any(pads[axis] for axis in (0, 1, rank, rank + 1))


def _with(pool: NodeProto, pads: list[int]) -> list[int]:
    """The padding of a MaxPool and some more along all axes of its operand."""
    known, rank = attributes(pool), len(pads) // 2
    own: list[int] | None = known.get("pads") if known.get("auto_pad", "NOTSET") == "NOTSET" else None
    return [a + b for a, b in zip(own or [0] * (2 * rank - 4), [*pads[2:rank], *pads[rank + 2 :]], strict=True)]


def _is_least(number: Any) -> bool:
    return float(number) == -np.inf or (number.dtype.kind == "f" and number == np.finfo(number.dtype).min)


def _add_pads(pool: NodeProto, pads: list[int]) -> None:
    """Adds padding along all axes of its operand to a MaxPool's own."""
    from onnx import helper

    both = _with(pool, pads)
    for item in [item for item in pool.attribute if item.name in ("pads", "auto_pad")]:
        pool.attribute.remove(item)
    pool.attribute.append(helper.make_attribute("pads", both))


class _Search:
    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.makers = {name: node for node in model.nodes for name in node.output if name}

    def standardised(self, node: NodeProto) -> tuple[str, int, float] | None:
        """If a node makes (x - mean) / root of the variance: x, the first of the last axes that they are of, and what
        is added to the variance."""
        for difference, factor in self._quotients(node):
            x = self._difference(difference)
            variance = self._variance(factor) if x is not None else None
            if x is None or variance is None:
                continue
            squares, axis, epsilon = variance
            other = self._squared(squares)
            if other is not None and self._difference(other) == (x[0], axis) == x:
                return x[0], axis, epsilon
        return None

    def _quotients(self, node: NodeProto) -> list[tuple[str, NodeProto]]:
        """(d, node of the variance with its epsilon) for a node that may be d / root."""
        found: list[tuple[str, NodeProto]] = []
        if node.op_type == "Div":
            root = self._of(node.input[1], "Sqrt")
            found += [(node.input[0], inner)] if root and (inner := self.makers.get(root.input[0])) else []
        elif node.op_type == "Mul":
            for d, other in (tuple(node.input), tuple(node.input)[::-1]):
                maker = self._of(other, "Reciprocal", "Pow", "Div")
                if maker is None:
                    continue
                if maker.op_type == "Pow":
                    root = maker if self._number(maker.input[1]) == -0.5 else None
                elif maker.op_type == "Div":
                    root = self._of(maker.input[1], "Sqrt") if self._number(maker.input[0]) == 1 else None
                else:
                    root = self._of(maker.input[0], "Sqrt")
                if root is not None and (inner := self.makers.get(root.input[0])):
                    found.append((d, inner))
        return found

    def _variance(self, node: NodeProto) -> tuple[str, int, float] | None:
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

    def _mean_axis(self, node: NodeProto) -> int | None:
        """The first axis, from the end, of a mean over all axes from there on that keeps them."""
        if node.op_type != "ReduceMean":
            return None
        known = attributes(node)
        axes: Any = known.get("axes")
        if len(node.input) > 1 and node.input[1] in self.model.constants:
            axes = self.model.constants[node.input[1]].tolist()
        shape = self.model.inferred.get(node.input[0])
        if not known.get("keepdims", 1) or not axes:
            return None
        if shape is None:
            return -1 if list(axes) == [-1] else None
        last = sorted(axis % len(shape) - len(shape) for axis in axes)
        return last[0] if last == list(range(last[0], 0)) else None

    def _of(self, name: str, *operators: str) -> NodeProto | None:
        node = self.makers.get(name)
        return node if node is not None and node.op_type in operators else None

    def _number(self, name: str) -> float | None:
        array = self.model.constants.get(name)
        if array is None or array.size != 1:
            return None
        return float(np.asarray(array, np.float64).reshape(()))
