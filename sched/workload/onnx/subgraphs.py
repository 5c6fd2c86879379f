"""Graphs inside nodes (bodies of Loop, Scan and If), which read tensors of the graphs around them by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def bodies(node: NodeProto) -> list[GraphProto]:
    """The graphs in a node's attributes."""
    return [graph for item in node.attribute for graph in ([item.g] if item.HasField("g") else item.graphs)]


def reads(node: NodeProto) -> list[str]:
    """The tensors that a node reads, one as often as it is an operand: its operands, and what its bodies, at any depth,
    read of the graph around it."""
    names = [name for name in node.input if name]
    for body in bodies(node):
        names += [name for name in _outer(body) if name not in names]
    return names


def nodes_within(node: NodeProto) -> Iterator[NodeProto]:
    """A node and all nodes of its bodies, at any depth."""
    yield node
    for body in bodies(node):
        for inner in body.node:
            yield from nodes_within(inner)


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Gives tensors other names in a node and its bodies, but not those that a body makes itself."""
    for fields in (node.input, node.output):
        for index, name in enumerate(fields):
            fields[index] = names.get(name, name)
    for body in bodies(node):
        own = _made(body)
        rest = {name: new for name, new in names.items() if name not in own}
        for inner in body.node:
            rename(inner, rest)
        for value in body.output:
            value.name = rest.get(value.name, value.name)


def _made(body: GraphProto) -> set[str]:
    """What a body has names for itself."""
    names = {value.name for value in body.input} | {item.name for item in body.initializer}
    names.update(item.values.name for item in body.sparse_initializer)
    return names | {name for node in body.node for name in node.output}


def _outer(body: GraphProto) -> list[str]:
    own = _made(body)
    names = [name for node in body.node for name in reads(node)] + [value.name for value in body.output]
    return [name for name in dict.fromkeys(names) if name not in own]
