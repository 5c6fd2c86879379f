"""What quantises: only models of floating point are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..building.context import FloatContext, Operator
from ..errors import Refused
from ..load import Attributes

if TYPE_CHECKING:
    from onnx import NodeProto


def quantised(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    raise Refused("the model is quantised already, around float layers; give the float model that it was made from")


OPERATORS: dict[str, Operator] = {"DequantizeLinear": quantised, "QuantizeLinear": quantised}
