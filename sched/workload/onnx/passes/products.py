"""Gemm of computed operands as the nodes that it stands for."""

from __future__ import annotations

from ..instead import Instead
from ..load import CheckedModel
from ..nodes import Node, attributes
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
        nodes += _Parts(model, node).written(operands) if node.op_type == "Gemm" and any(operands[1:]) else [node]
    return model.with_nodes(nodes)


class _Parts(Instead):
    """What takes the place of one Gemm. `kind`: the type (`TensorProto`) of its result."""

    def __init__(self, model: CheckedModel, node: Node) -> None:
        super().__init__(node)
        self.options, self.kind = attributes(node), model.types.get(node.output[0], _FLOAT)

    def written(self, computed: list[bool]) -> list[Node]:
        """`computed`: of each operand."""
        first, second, term = [*self.node.input, ""][:3]
        result = self.node.output[0]
        if computed[0] and computed[1]:
            turned = [
                self.op("Transpose", name, perm=[1, 0]) if self.options.get(option) else name
                for name, option in ((first, "transA"), (second, "transB"))
            ]
            alpha = self.options.get("alpha", 1.0)
            sums = self.op("MatMul", *turned, to="" if term or alpha != 1 else result)
            sums = self._times(sums, alpha, "" if term else result)
        else:
            own = {name: value for name, value in self.options.items() if name != "beta"}
            sums = self.op("Gemm", first, second, to="" if term else result, **own)
        if term:
            self.op("Add", sums, self._times(term, self.options.get("beta", 1.0)), to=result)
        return self.nodes

    def _times(self, name: str, number: float, to: str = "") -> str:
        from onnx import helper

        if number == 1:
            return name
        return self.op("Mul", name, self.array(number, helper.tensor_dtype_to_np_dtype(self.kind).type), to=to)
