"""Nodes of ONNX files, and what their attributes say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from onnx import NodeProto

Node: TypeAlias = "NodeProto"
#: Of a node, by name (`attributes`).
Attributes = dict[str, Any]


def attributes(node: NodeProto) -> Attributes:
    """The attributes of a node as Python values (tensors as TensorProto, strings as str)."""
    from onnx import helper

    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
