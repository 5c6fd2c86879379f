"""From ONNX nodes to layers, node by node; what cannot be is collected and reported at once.

Used for integer models (`reader`) and for float ones (`floats`). Handlers look at a node whose operands are known and
append to `layers`. A node that is refused does not end the work: its result is taken as it is known from shape
inference, so that the nodes behind it are looked at too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..workload.layers import WorkloadError
from .errors import Problem, Refused, UnsupportedError, node_name, operator_name
from .load import CheckedModel, attributes

if TYPE_CHECKING:
    from onnx import NodeProto

V = TypeVar("V")
_MALFORMED = (IndexError, KeyError, TypeError, ValueError, ArithmeticError)


class Lowering(ABC, Generic[V]):
    """Base of both directions. `views`: what each ONNX tensor is; a tensor whose maker was refused may have none."""

    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.constants = dict(model.constants)
        self.views: dict[str, V] = {}
        self.problems: list[Problem] = []

    @abstractmethod
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        """Operator to what lowers it; takes the node and its attributes, raises Refused."""

    @abstractmethod
    def guess(self, name: str) -> V | None:
        """A stand-in for a tensor whose maker was refused."""

    def fold(self, node: NodeProto) -> bool:
        """Whether the results of a node are constants, known from now on."""
        return all(name in self.constants for name in node.output)

    def lower_nodes(self) -> None:
        """Lowers all nodes. Raises UnsupportedError that lists every node that was refused."""
        handlers = self.handlers()
        for node in self.model.nodes:
            if self.fold(node):
                continue
            operator = operator_name(node)
            if operator not in handlers:
                self._refuse(node, "no layer does that")
                continue
            if any(name and name not in self.views and name not in self.constants for name in node.input):
                self._refuse(node, None)  # its operand's maker has been refused
                continue
            try:
                handlers[operator](node, attributes(node))
            except Refused as refusal:
                self._refuse(node, str(refusal))
            except WorkloadError:
                raise
            except _MALFORMED as error:  # what checker and handlers do not look for: empty constants, absurd sizes
                self._refuse(node, f"its operands or attributes make no sense ({error})")
        if self.problems:
            raise UnsupportedError(self.model.name, self.problems)

    def _refuse(self, node: NodeProto, why: str | None) -> None:
        if why is not None:
            self.problems.append(Problem(node_name(node), operator_name(node), why))
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
        """Whether only one node reads a tensor, and nobody else."""
        return self.model.uses[name] == 1
