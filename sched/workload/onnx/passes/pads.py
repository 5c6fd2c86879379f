"""What is padded with −∞, or with the least number of its type, before a MaxPool is the MaxPool's own padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..load import CheckedModel
from ..nodes import Node, attributes
from ..subgraphs import reads


def move_pads_into_pools(model: CheckedModel) -> CheckedModel:
    """The model with such padding in its MaxPools; it computes the same tensors, but for the padded ones."""
    pads = _Pads(model)
    return model.with_nodes([other for node in model.nodes for other in pads.before(node)])


class _Pads:
    """Pads of −∞, and what only gives their results another order of axes before MaxPools read them."""

    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.readers: dict[str, list[Node]] = {}
        for node in model.nodes:
            for name in reads(node):
                self.readers.setdefault(name, []).append(node)
        #: Of padded tensors: the tensor without its padding, and how many are before and behind along each axis.
        self.padded: dict[str, tuple[str, list[int]]] = {}

    def before(self, node: Node) -> list[Node]:
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

    def _least(self, node: Node) -> list[int] | None:
        """How much a Pad adds before and behind along each axis, if it is of the least number there is."""
        options, constants = attributes(node), self.model.constants
        if options.get("mode", "constant") != "constant":
            return None
        if self.model.opset < 11:
            return list(options["pads"]) if _is_least(np.float32(options.get("value", 0.0))) else None
        names = [*node.input, "", "", ""][1:4]
        if any(name and name not in constants for name in names) or not names[1] or constants[names[1]].size != 1:
            return None
        numbers: list[int] = constants[names[0]].tolist()
        axes: list[int] | None = constants[names[2]].tolist() if names[2] else None
        if not _is_least(constants[names[1]].ravel()[0]):
            return None
        if axes is None:
            return numbers
        rank = max(len(self.model.shapes.get(name, ())) for name in (node.input[0], node.output[0]))
        if not rank:
            return None
        pads = [0] * (2 * rank)
        for index, axis in enumerate(axes):
            pads[axis % rank], pads[axis % rank + rank] = numbers[index], numbers[index + len(axes)]
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


def _in_order(node: Node, pads: list[int]) -> list[int]:
    """Padding of a tensor behind a Transpose, or another node that changes no axis."""
    if node.op_type != "Transpose":
        return pads
    rank = len(pads) // 2
    order: Sequence[int] = attributes(node).get("perm", tuple(range(rank))[::-1])
    return [pads[axis] for axis in order] + [pads[axis + rank] for axis in order]


def _fits(pool: Node, pads: list[int]) -> bool:
    """Whether padding can be added to that of a MaxPool: of rows and columns, and less than a window."""
    options, rank = attributes(pool), len(pads) // 2
    if options.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or rank < 3 or min(pads) < 0:
        return False
    kernel: list[int] = list(options["kernel_shape"])
    beyond = any(pad >= taps for pad, taps in zip(_with(pool, pads), kernel * 2, strict=True))
    return not beyond and not any(pads[axis] for axis in (0, 1, rank, rank + 1))


def _with(pool: Node, pads: list[int]) -> list[int]:
    """The padding of a MaxPool and some more along all axes of its operand."""
    options, rank = attributes(pool), len(pads) // 2
    own: list[int] | None = options.get("pads") if options.get("auto_pad", "NOTSET") == "NOTSET" else None
    return [a + b for a, b in zip(own or [0] * (2 * rank - 4), [*pads[2:rank], *pads[rank + 2 :]], strict=True)]


def _is_least(number: Any) -> bool:
    return float(number) == -np.inf or (number.dtype.kind == "f" and number == np.finfo(number.dtype).min)


def _add_pads(pool: Node, pads: list[int]) -> None:
    """Adds padding along all axes of its operand to a MaxPool's own."""
    from onnx import helper

    both = _with(pool, pads)
    for item in [item for item in pool.attribute if item.name in ("pads", "auto_pad")]:
        pool.attribute.remove(item)
    pool.attribute.append(helper.make_attribute("pads", both))
