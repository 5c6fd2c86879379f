"""Where real numbers become bytes, and bytes real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Refused
from ..load import Attributes
from .context import IntegerContext, IntegerOperator, Tensor

if TYPE_CHECKING:
    from onnx import NodeProto


def quantise_input(context: IntegerContext, node: NodeProto, attributes: Attributes) -> None:
    name = node.input[0]
    if name not in context.sources:
        raise Refused("only inputs of the network can be quantised")
    scale, zero = float(context.number(node, 1, "scale")), context.zero_point(node, 2, None)
    context.sources[node.output[0]] = context.sizes[node.output[0]] = context.sources.pop(name)
    context.ends[node.output[0]] = scale
    context.views[node.output[0]] = Tensor(node.output[0], zero, scale)


def dequantise(context: IntegerContext, node: NodeProto, attributes: Attributes) -> None:
    if not context.at_end(node):
        raise Refused("layers between DequantizeLinear and QuantizeLinear are float; export integer operators")
    view, scale = context.operand(node, 0)
    context.ends[view.value or ""] = scale
    context.views[node.output[0]] = view


OPERATORS: dict[str, IntegerOperator] = {"DequantizeLinear": dequantise, "QuantizeLinear": quantise_input}
