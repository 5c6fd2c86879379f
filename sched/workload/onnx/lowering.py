"""From ONNX nodes to layers, node by node; what cannot be is collected and reported at once.

Used for integer models (`reader`) and for float ones (`floats`). Handlers look at a node whose operands are known and
append to `layers`. A node that is refused does not end the work: its result is taken as it is known from shape
inference, so that the nodes after it are checked too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..layers import WorkloadError
from .errors import Problem, Refused, UnsupportedError, node_name, operator_name
from .load import CheckedModel, attributes
from .subgraphs import reads

if TYPE_CHECKING:
    from onnx import NodeProto

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
_SOFTMAX = ("Softmax", "LogSoftmax")
_MALFORMED = (IndexError, KeyError, TypeError, ValueError, ArithmeticError)


class Lowering(ABC, Generic[V]):
    """Base of both directions. `views`: what each ONNX tensor is; a tensor whose maker was refused may have none.

    `before`: for what nodes at the end make that are left out, the tensor before them; `left`: these nodes.
    """

    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.constants: dict[str, NDArray[Any]] = dict(model.constants)
        self.views: dict[str, V] = {}
        self.problems: list[Problem] = []
        self.before: dict[str, str] = {}
        self.left: list[NodeProto] = []

    @abstractmethod
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        """Operator to what lowers it; takes the node and its attributes, raises Refused."""

    @abstractmethod
    def guess(self, name: str) -> V | None:
        """A stand-in for a tensor whose maker was refused."""

    def is_result(self, view: V) -> bool:
        """Whether a tensor may be a result of the network."""
        return True

    def is_empty(self) -> bool:
        """Whether nothing has been found to compute yet, so that nothing would be left without a softmax."""
        return False

    def fold(self, node: NodeProto) -> bool:
        """Whether the results of a node are constants, known from now on."""
        return all(name in self.constants for name in node.output)

    def lower_nodes(self) -> None:
        """Lowers all nodes. Raises UnsupportedError that lists every node that was refused."""
        handlers = self.handlers()
        for node in self.model.nodes:
            try:
                if self.fold(node):
                    continue
            except Refused as refusal:  # a constant that cannot be: nothing behind it is known
                self.problems.append(Problem(node_name(node), operator_name(node), str(refusal), tuple(node.output)))
                break
            if any(name and name not in self.views and name not in self.constants for name in node.input):
                known = operator_name(node) in handlers or self.at_end(node)
                self._refuse(node, None if known else _no_layer(node))  # None: its operand's maker has been refused
                continue
            try:
                self._lower(node, handlers.get(operator_name(node)))
            except Refused as refusal:
                self._refuse(node, str(refusal))
            except WorkloadError:
                raise
            except MemoryError as error:
                self._refuse(node, f"takes more memory than there is ({error})")
            except _MALFORMED as error:  # what checker and handlers do not look for: empty constants, absurd sizes
                self._refuse(node, f"its operands or attributes are invalid ({error})")
        if self.problems:
            raise UnsupportedError(self.model.name, self.problems)

    def _lower(self, node: NodeProto, handler: Callable[[NodeProto, dict[str, Any]], None] | None) -> None:
        if node.op_type in _SOFTMAX and node.domain in ("", "ai.onnx"):
            if handler is not None and (self.is_empty() or not self.at_end(node)):
                handler(node, attributes(node))
                return
            self._check_end(node)
        elif node.input and node.input[0] not in self.before:
            try:
                if handler is None:
                    raise Refused(_no_layer(node))
                handler(node, attributes(node))
                return
            except Refused:
                if not (self.at_end(node) and self.is_result(self.view(node.input[0]))):
                    raise
        source = node.input[0]
        self.view(source)
        self.left.append(node)
        for name in node.output:
            self.views[name], self.before[name] = self.views[source], self.before.get(source, source)

    def _check_end(self, node: NodeProto) -> None:
        """Refuses a softmax that is not at the end, or that would change the order of the classes, axis 1."""
        if not self.at_end(node):
            raise Refused("inside the network; only one at its end can be left out")
        shape, old = self.model.inferred.get(node.input[0]), self.model.opset < 13
        if not shape:
            return
        axis = attributes(node).get("axis", 1 if old else -1) % len(shape)
        together = set(range(axis, len(shape))) if old else {axis}  # before opset 13: all axes from there on
        apart = [size for index, size in enumerate(shape) if index not in together]
        if 1 not in together and any(size > 1 for size in apart):
            raise Refused(f"along axis {axis} of {list(shape)}; it can be left out only along the classes, axis 1")

    def at_end(self, node: NodeProto) -> bool:
        """Whether a node and all that follow it are of `ENDS`, each with one operand besides constants."""
        return node.output[0] in self._at_end

    @cached_property
    def _at_end(self) -> set[str]:
        """The results of nodes at the end."""
        found: set[str] = set()
        read_inside: set[str] = set()  # by others, or not as their first operand
        for node in reversed(self.model.nodes):
            standard = node.domain in ("", "ai.onnx") and node.op_type in ENDS
            if standard and len(set(node.output) - {""}) == 1 and node.output[0] not in read_inside:
                found.add(node.output[0])
                read_inside.update(node.input[1:])
            else:
                read_inside.update(reads(node))
        return found

    def end_notes(self) -> list[str]:
        """What was left out at the end, in a sentence for people; none if nothing was."""
        if not self.left:
            return []
        names = ", ".join(f"{node.op_type} {node.output[0]}" for node in self.left)
        verb, they, do = ("is", "it", "does") if len(self.left) == 1 else ("are", "they", "do")
        what = "the order of classes" if any(node.op_type in _SOFTMAX for node in self.left) else "values"
        return [f"{names} at the end {verb} left out: {they} {do} not change {what}."]

    def _refuse(self, node: NodeProto, why: str | None) -> None:
        if why is not None:
            self.problems.append(Problem(node_name(node), operator_name(node), why, tuple(node.output)))
        for name in node.output:
            if (stand_in := self.guess(name)) is not None:
                self.views[name] = stand_in

    # -- for handlers ------------------------------------------------------------------------------------

    def view(self, name: str) -> V:
        """What a tensor is; Refused when it is a constant."""
        if name not in self.views:
            raise Refused(f"operand {name!r} is a constant; only weights may be")
        return self.views[name]

    def constant(self, node: NodeProto, index: int, what: str) -> NDArray[Any]:
        """A constant operand; Refused when it is computed or left out."""
        if index >= len(node.input) or not node.input[index]:
            raise Refused(f"has no {what}")
        if node.input[index] not in self.constants:
            raise Refused(f"its {what} ({node.input[index]!r}) is computed, must be a constant")
        return self.constants[node.input[index]]

    def optional(self, node: NodeProto, index: int, what: str) -> NDArray[Any] | None:
        """A constant operand, or None when it is left out."""
        return self.constant(node, index, what) if index < len(node.input) and node.input[index] else None

    def number(self, node: NodeProto, index: int, what: str) -> Any:
        """A constant operand with one element (or with equal ones)."""
        array = self.constant(node, index, what)
        if array.size == 0 or np.any(array != array.flat[0]):
            raise Refused(f"its {what} differs from channel to channel; the chip has one for the tensor")
        return array.flat[0]

    def used_once(self, name: str) -> bool:
        """Whether only one node reads a tensor, and nothing else."""
        return self.model.uses[name] == 1


def _no_layer(node: NodeProto) -> str:
    """Why a node is refused whose operator nobody knows."""
    if node.op_type == "If" and node.domain in ("", "ai.onnx") and node.input:
        return (
            f"its condition ({node.input[0]!r}) depends on the input's values; the chip takes no branches: export the "
            "model with the branch that is meant"
        )
    return "no layer does that"
