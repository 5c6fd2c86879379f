"""What is known while the nodes of an ONNX file are read: what every operator's function takes and adds to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import NodeRefusal, Refused, node_name, operator_name
from .load import CheckedModel
from .nodes import Node, attributes
from .subgraphs import reads

V = TypeVar("V")
#: Operators that need not run on the chip where nothing but others of them follows: they give results another
#: shape, type or scale, and do not change which of them is the largest.
ENDS = {
    "Cast",
    "DequantizeLinear",
    "Dropout",
    "Flatten",
    "Identity",
    "LogSoftmax",
    "Reshape",
    "Softmax",
    "Squeeze",
    "Unsqueeze",
}
SOFTMAX = ("Softmax", "LogSoftmax")
#: What is added to the name of an input that is an output, too.
COPY = "//copy"


class ReaderContext(ABC, Generic[V]):
    """The graph that is read, its tensors, and the refusals so far.

    `views`: what each ONNX tensor is; a tensor whose maker was refused may have none. `problems`: of the nodes that
    were refused. `before`: for what nodes at the end make that are left out, the tensor before them; `left`: these
    nodes.
    """

    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.constants: dict[str, NDArray[Any]] = dict(model.constants)
        self.views: dict[str, V] = {}
        self.problems: list[NodeRefusal] = []
        self.before: dict[str, str] = {}
        self.left: list[Node] = []

    @abstractmethod
    def guess(self, name: str) -> V | None:
        """A stand-in for a tensor whose maker was refused."""

    def is_result(self, view: V) -> bool:
        """Whether a tensor may be a result of the network."""
        return True

    def is_empty(self) -> bool:
        """Whether there is nothing to compute yet, so that nothing would be left without a softmax."""
        return False

    def fold(self, node: Node) -> bool:
        """Whether the results of a node are constants, known from now on."""
        return all(name in self.constants for name in node.output)

    def refuse(self, node: Node, why: str | None) -> None:
        """Notes why a node cannot run (None: because of another one), and what its results would have been."""
        if why is not None:
            results = tuple(dict.fromkeys(map(self.model.in_file, node.output)))
            own = self.model.node_in_file(node)
            if own.name != node.name:
                why = f"{operator_name(node)} in its place: {why}"
            self.problems.append(NodeRefusal(node_name(own), operator_name(own), why, results))
        for name in node.output:
            if (stand_in := self.guess(name)) is not None:
                self.views[name] = stand_in

    # -- for functions of operators ---------------------------------------------------------------------------

    def view(self, name: str) -> V:
        """What a tensor is. Raises Refused when it is a constant."""
        if name not in self.views:
            raise Refused(f"operand {name!r} is a constant; only weights may be")
        return self.views[name]

    def constant(self, node: Node, index: int, what: str) -> NDArray[Any]:
        """A constant operand. Raises Refused when it is computed or left out."""
        if index >= len(node.input) or not node.input[index]:
            raise Refused(f"has no {what}")
        if node.input[index] not in self.constants:
            raise Refused(f"its {what} ({node.input[index]!r}) is computed, must be a constant")
        return self.constants[node.input[index]]

    def optional(self, node: Node, index: int, what: str) -> NDArray[Any] | None:
        """A constant operand, or None when it is left out. Raises Refused when it is computed."""
        return self.constant(node, index, what) if index < len(node.input) and node.input[index] else None

    def number(self, node: Node, index: int, what: str) -> Any:
        """A constant operand with one element (or with equal ones). Raises Refused."""
        array = self.constant(node, index, what)
        if array.size == 0 or np.any(array != array.flat[0]):
            raise Refused(f"its {what} differs from channel to channel; the chip has one for the tensor")
        return array.flat[0]

    def used_once(self, name: str) -> bool:
        """Whether only one node reads a tensor, and nothing else."""
        return self.model.uses[name] == 1

    # -- the end of the model -----------------------------------------------------------------------------------

    def at_end(self, node: Node) -> bool:
        """Whether a node and all that follow it are of `ENDS`, each with one operand besides constants."""
        return node.output[0] in self._last_tensors

    @cached_property
    def _last_tensors(self) -> set[str]:
        return last_tensors(self.model, self.constants)

    def end_notes(self) -> list[str]:
        """What was left out at the end, in a sentence for people; none if nothing was."""
        if not self.left:
            return []
        names = ", ".join(f"{node.op_type} {node.output[0]}" for node in self.left)
        verb, they, do = ("is", "it", "does") if len(self.left) == 1 else ("are", "they", "do")
        what = "the order of classes" if any(node.op_type in SOFTMAX for node in self.left) else "values"
        return [f"{names} at the end {verb} left out: {they} {do} not change {what}."]


def last_tensors(model: CheckedModel, constants: Mapping[str, NDArray[Any]]) -> set[str]:
    """The results of nodes of `ENDS` that nothing but others of them follows, each with one operand besides
    constants."""
    last: set[str] = set()
    read_inside: set[str] = set()  # by others, or not as their first operand
    for node in reversed(model.nodes):
        standard = node.domain in ("", "ai.onnx") and node.op_type in ENDS
        standard = standard and not _has_other_values(model, node, constants)
        if standard and len(set(node.output) - {""}) == 1 and node.output[0] not in read_inside:
            last.add(node.output[0])
            read_inside.update(node.input[1:])
        else:
            read_inside.update(reads(node))
    return last


def _has_other_values(model: CheckedModel, node: Node, constants: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a node of `ENDS` has other numbers than its operand: a Cast of real ones to whole ones cuts them, and a
    Dropout in training draws which are left."""
    from onnx import TensorProto

    real = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16
    if node.op_type == "Cast":
        return attributes(node)["to"] not in real and model.types.get(node.input[0], real[0]) in real
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    return node.input[2] not in constants or bool(constants[node.input[2]].any())
