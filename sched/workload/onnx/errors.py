"""What is wrong with an ONNX model, always in one error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..layers import WorkloadError

if TYPE_CHECKING:
    from onnx import NodeProto


class OnnxError(WorkloadError):
    """A file or a model that cannot be used; the message names it, the place and the fix."""


class Refused(Exception):
    """Raised while one node is looked at: why it cannot run. Collected into one `UnsupportedError`."""


@dataclass(frozen=True)
class Problem:
    """One node that cannot run: its name (or its outputs), its operator and why."""

    node: str
    operator: str
    why: str

    def __str__(self) -> str:
        return f"{self.node} ({self.operator}): {self.why}"


class UnsupportedError(OnnxError):
    """Nodes that the chip cannot run, all of them; `problems` in the order of the model."""

    def __init__(self, model: str, problems: list[Problem]) -> None:
        self.model, self.problems = model, tuple(problems)
        count = f"{len(problems)} nodes" if len(problems) > 1 else "1 node"
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"{model}: {count} cannot run on the chip; change or remove them in the exporting program:\n{lines}"
        )

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[Any, ...]]:
        return UnsupportedError, (self.model, list(self.problems))  # as it comes out of a worker process


def node_name(node: NodeProto) -> str:
    """How a node is called in messages: its name, or `-> outputs` when it has none."""
    return node.name or "-> " + ", ".join(node.output)


def operator_name(node: NodeProto) -> str:
    """The operator with its domain, unless that is the standard one."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
