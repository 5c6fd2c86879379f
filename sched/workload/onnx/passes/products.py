"""Gemm of computed operands as the nodes that it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..load import CheckedModel, Node, attributes
from ..subgraphs import reads

#: `TensorProto` says so.
_FLOAT = 1


def separate_computed_operands(model: CheckedModel) -> CheckedModel:
    """The model with a MatMul in place of each Gemm of two computed factors, and an Add behind each that adds what is
    computed."""
    computed = {value.name for value in model.inputs}
    nodes: list[Node] = []
    for node in model.nodes:
        if not computed.isdisjoint(reads(node)):
            computed.update(node.output)
        operands = [name in computed for name in node.input]
        nodes += _Parts(model, node).nodes(operands) if node.op_type == "Gemm" and any(operands[1:]) else [node]
    return model.with_nodes(nodes)


class _Parts:
    """What takes the place of one Gemm."""

    def __init__(self, model: CheckedModel, node: Node) -> None:
        self.node, self.options, self.made = node, attributes(node), list[Node]()
        self.kind = model.types.get(node.output[0], _FLOAT)

    def nodes(self, computed: list[bool]) -> list[Node]:
        """`computed`: of each operand."""
        first, second, term = [*self.node.input, ""][:3]
        adds = bool(term)
        if computed[0] and computed[1]:
            turned = [
                self._op("Transpose", [name], perm=[1, 0]) if self.options.get(option) else name
                for name, option in ((first, "transA"), (second, "transB"))
            ]
            sums = self._times(self._op("MatMul", turned, last=not adds and self._alpha == 1), self._alpha, not adds)
        else:
            own = {name: value for name, value in self.options.items() if name != "beta"}
            sums = self._op("Gemm", [first, second], last=not adds, **own)
        if adds:
            self._op("Add", [sums, self._times(term, self.options.get("beta", 1.0))], last=True)
        return self.made

    @property
    def _alpha(self) -> float:
        return self.options.get("alpha", 1.0)

    def _times(self, name: str, number: float, last: bool = False) -> str:
        from onnx import helper, numpy_helper

        if number == 1:
            return name
        constant = np.array(number, helper.tensor_dtype_to_np_dtype(self.kind))
        return self._op("Mul", [name, self._op("Constant", [], value=numpy_helper.from_array(constant))], last=last)

    def _op(self, operator: str, operands: list[str], *, last: bool = False, **options: Any) -> str:
        """Adds a node; the name of its result, that of the Gemm's if it is the `last`."""
        from onnx import helper

        result = self.node.output[0]
        name = result if last else f"{result}//{len(self.made)}"
        self.made.append(helper.make_node(operator, operands, [name], self.node.name, **options))
        return name
