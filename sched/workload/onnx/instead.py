"""Nodes that take the place of one node of an ONNX file. Results have the node's first one's name, `//` and a number:
files have no such names (`own_names`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass
class Instead:
    """The nodes that take the place of `node`."""

    node: NodeProto
    nodes: list[NodeProto] = field(default_factory=list["NodeProto"], kw_only=True)

    def new(self, kind: str) -> str:
        """A name for the result of the next node."""
        return f"{next(filter(None, self.node.output))}//{len(self.nodes)}"

    def op(self, kind: str, *operands: str, to: str = "", domain: str = "", **attributes: Any) -> str:
        """Adds a node; the name of its result (`to`, or a new one)."""
        return self.several(kind, operands, (to or self.new(kind),), domain, **attributes)[0]

    def several(
        self, kind: str, operands: Sequence[str], results: Sequence[str], domain: str = "", **attributes: Any
    ) -> Sequence[str]:
        """The same with several results, whose names are given."""
        from onnx import helper

        name = self.new(kind)
        self.nodes.append(helper.make_node(kind, operands, results, name, domain=domain, **attributes))
        return results

    def array(self, numbers: ArrayLike, kind: type[np.generic] | None = None) -> str:
        """A constant."""
        from onnx import numpy_helper

        return self.op("Constant", value=numpy_helper.from_array(np.asarray(numbers, kind)))

    def integers(self, *numbers: int) -> str:
        """A constant of sizes, places or axes."""
        return self.array(numbers, np.int64)

    def reshape(self, x: str, *sizes: int, to: str = "") -> str:
        return self.op("Reshape", x, self.integers(*sizes), to=to)
