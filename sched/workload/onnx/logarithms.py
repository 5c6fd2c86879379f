"""Logarithms of sums of exponentials, put together again: 8 bits hold the result, but not the exponentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .instead import Instead

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

#: From these opsets on the axes of a sum, and of the logarithm of a sum of exponentials, are an operand.
_SUM_AXES, _AXES = 13, 18


def join_logarithms_of_sums(model: ModelProto) -> None:
    """Changes a model so that the logarithm of a sum over axes of exponentials is a ReduceLogSumExp, as is a
    ReduceLogSum of exponentials."""
    if not any(node.op_type == "Exp" for node in model.graph.node):
        return
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 1)
    makers = {name: node for node in model.graph.node for name in node.output if name}
    constants = {item.name: item for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    nodes = [other for node in model.graph.node for other in _instead(node, makers, constants, opset)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


class _LogarithmOfSum(Instead):
    """Named otherwise than what is put in between later."""

    def new(self, kind: str) -> str:
        return f"{self.node.output[0]}//{kind}{len(self.nodes)}"


def _instead(
    node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, TensorProto], opset: int
) -> list[NodeProto]:
    """The nodes that take the place of one."""
    from onnx import helper, numpy_helper

    total, kind = _maker(node.input[0], makers) if node.op_type == "Log" else (node, 0)
    if total is None or total.op_type != ("ReduceSum" if node.op_type == "Log" else "ReduceLogSum"):
        return [node]
    exponential, before = _maker(total.input[0], makers)
    options = {item.name: helper.get_attribute_value(item) for item in total.attribute}
    if exponential is None or exponential.op_type != "Exp" or options.pop("noop_with_empty_axes", 0):
        return [node]
    axes = list(total.input[1:])
    if total.op_type == "ReduceSum" and _SUM_AXES <= opset < _AXES and axes:
        if axes[0] not in constants:
            return [node]
        options["axes"] = numpy_helper.to_array(constants[axes[0]]).tolist()
        axes = []
    instead, x = _LogarithmOfSum(node), exponential.input[0]
    if last := kind or before:
        (x,) = instead.several("Cast", [x], [instead.new("Cast")], to=last)
    instead.op("ReduceLogSumExp", x, *axes, to=node.output[0], **options)
    return instead.nodes


def _maker(name: str, makers: dict[str, NodeProto]) -> tuple[NodeProto | None, int]:
    """The node that computes a tensor's numbers, and which real numbers they have been cast to last; 0 if they have
    not been."""
    from onnx import TensorProto

    real = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
    node, last = makers.get(name), 0
    while node is not None and node.op_type == "Cast" and node.attribute[0].i in real:
        last = last or node.attribute[0].i
        node = makers.get(node.input[0])
    return node, last
