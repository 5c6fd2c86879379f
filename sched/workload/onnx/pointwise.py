"""Real functions of one number, put together from the elementwise nodes of a file.

An activation, a chain of them, or several that meet again (x * sigmoid(x)) is one such function of one tensor. On the
chip it is a table, which has an entry for each of the 256 values that the tensor can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .runtime import run, session

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

#: The argument, among the tensors of a function's nodes.
ARGUMENT = "//x"
#: Nodes are understood as in this opset, or in that of their file if it is newer.
OLDEST = 13
MICROSOFT = "com.microsoft"
#: Operators as ONNX Runtime has laid them out for the processor on which it ran.
PROCESSOR = f"{MICROSOFT}.nchwc"
#: Operators that are jumps alone: where 8 bits move the argument past one the result is another whole number, which
#: leaves 13 to 30 dB of numbers that are drawn. So the host has them where it can.
JUMPS = frozenset({"Ceil", "Floor", "Mod", "Round", "Sign"})
#: Operators that compute each element of their result from the elements at the same place, of one operand ...
UNARY = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Reciprocal", "Selu", "Shrink",
    "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    f"{MICROSOFT}.FastGelu", f"{MICROSOFT}.Gelu", f"{MICROSOFT}.QuickGelu",
})  # fmt: skip
#: ... or of several, all but one of which may be constants.
SEVERAL = frozenset({"Max", "Min", "PRelu", "Pow"})
#: Operators whose results are truths, of numbers or of other truths: parts of a function that chooses by them (Where).
TRUTHS = frozenset({
    "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Function:
    """`nodes` make `result` of `ARGUMENT` and of `constants`, one number each; they are of opset `opset`. `cuts`: of
    tensors of a file between them, between which numbers its 8 bits lie."""

    nodes: tuple[NodeProto, ...]
    constants: Mapping[str, NDArray[Any]]
    result: str
    opset: int
    cuts: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def within(self, prefix: str, source: str, result: str) -> tuple[list[NodeProto], list[TensorProto]]:
        """Nodes and initialisers that make tensor `result` of tensor `source`; other names begin with `prefix`."""
        from onnx import NodeProto, numpy_helper

        names = {ARGUMENT: source, self.result: result}
        nodes: list[NodeProto] = []
        for node in self.nodes:
            copy = NodeProto()
            copy.CopyFrom(node)
            for operands in (copy.input, copy.output):
                renamed = [name and names.get(name, f"{prefix}{name}") for name in operands]
                del operands[:]
                operands.extend(renamed)
            copy.name = f"{prefix}{node.output[0]}"
            nodes.append(copy)
        return nodes, [numpy_helper.from_array(array, f"{prefix}{name}") for name, array in self.constants.items()]

    def then(self, outer: Function) -> Function:
        """`outer` of this function."""
        nodes, constants = outer.within(f"{self.result}//then//", self.result, f"{self.result}//then")
        named = {item.name: array for item, array in zip(constants, outer.constants.values(), strict=True)}
        opset = max(self.opset, outer.opset)
        constants_of_both, cuts = {**self.constants, **named}, {**self.cuts, **outer.cuts}
        return Function((*self.nodes, *nodes), constants_of_both, f"{self.result}//then", opset, cuts)

    def __call__(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """The function of each number, in float32 as ONNX Runtime computes it. Not finite where it has no value."""
        from onnx import TensorProto, helper

        nodes, constants = self.within("", "x", "y")
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
        graph = helper.make_graph(nodes, "function", ends[:1], ends[1:], constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True))
        return run(session(model, self.result), {"x": np.asarray(x, np.float32)})["y"].astype(np.float64)


def numbers(constants: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Constants that are equal throughout as one number each; real ones in float32."""
    scalars: dict[str, NDArray[Any]] = {}
    for name, array in constants.items():
        one = np.array(array).reshape(-1)[:1].reshape(())
        scalars[name] = one.astype(np.float32) if one.dtype.kind == "f" else one
    return scalars


def standard(node: NodeProto, opset: int) -> tuple[NodeProto, dict[str, NDArray[Any]]]:
    """A copy of a node of a file's opset in the form of `OLDEST` or newer ones, and constants that it then reads."""
    from onnx import NodeProto, helper

    copy = NodeProto()
    copy.CopyFrom(node)
    if node.op_type != "Clip" or opset >= 11:
        return copy, {}
    bounds = {item.name: np.array(helper.get_attribute_value(item), np.float32) for item in node.attribute}
    names = {key: f"{node.output[0]}//{key}" for key in ("min", "max") if key in bounds}
    copy = helper.make_node("Clip", [node.input[0], names.get("min", ""), names.get("max", "")], list(node.output))
    return copy, {names[key]: bounds[key] for key in names}


def function(operator: str, *constants: float) -> Function:
    """A function of one node: the argument, then these constants."""
    from onnx import helper

    named = {f"//{index}": np.array(number, np.float32) for index, number in enumerate(constants)}
    node = helper.make_node(operator, [ARGUMENT, *named], ["//y"])
    return Function((node,), named, "//y", OLDEST)
