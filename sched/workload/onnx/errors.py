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
class NodeRefusal:
    """One node that cannot run: its name (or its outputs), its operator, why, and its results."""

    node: str
    operator: str
    why: str
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.node} ({self.operator}): {self.why}"


#: What comes nearest to operators that the chip lacks.
NEAREST = {
    "InstanceNormalization": "BatchNormalization",
    "LayerNormalization": "BatchNormalization",
    "Softmax": "at the end of a model it need not run on the chip",
}


class UnsupportedError(OnnxError):
    """Nodes that the chip cannot run, all of them: `problems` in the order of the model; the message names each kind
    once, with its first node."""

    def __init__(self, model: str, problems: list[NodeRefusal]) -> None:
        self.model, self.problems = model, tuple(problems)
        count = f"{len(problems)} nodes" if len(problems) > 1 else "1 node"
        kinds: dict[tuple[str, str], list[NodeRefusal]] = {}
        for problem in problems:
            kinds.setdefault((problem.operator, problem.why), []).append(problem)
        lines = [f"  {_kind(alike)}" for alike in kinds.values()]
        text = "\n".join(lines)
        super().__init__(
            f"{model}: {count} cannot run on the chip; change or remove them in the exporting program:\n{text}"
        )

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[Any, ...]]:
        return UnsupportedError, (self.model, list(self.problems))  # as it comes out of a worker process


def _kind(alike: list[NodeRefusal]) -> str:
    """Nodes that cannot run for the same reason, and what comes nearest to them."""
    first, more = alike[0], len(alike) - 1
    nearest = NEAREST.get(first.operator)
    return (
        f"{first.node} ({first.operator})"
        + (f" and {more} more" if more else "")
        + f": {first.why}"
        + (f" (nearest that runs: {nearest})" if nearest else "")
    )


def node_name(node: NodeProto) -> str:
    """How a node is called in messages: its name, or `-> outputs` when it has none."""
    return node.name or "-> " + ", ".join(node.output)


def operator_name(node: NodeProto) -> str:
    """The operator with its domain, unless that is the standard one."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
