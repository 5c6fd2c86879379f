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


def put_in_order(graph: GraphProto) -> None:
    """Puts nodes behind those whose results they read, as ONNX wants it and not every converter does; otherwise they
    stay as they are. Nodes in a circle stay at the end."""
    results = {output for node in graph.node for output in node.output if output}
    ready = set[str]()
    waiting: dict[str, list[int]] = {}
    missing: list[int] = []
    order: list[int] = []
    nodes = list(graph.node)

    def settle(index: int) -> None:
        stack = [index]
        while stack:
            now = stack.pop()
            order.append(now)
            for output in nodes[now].output:
                ready.add(output)
                for later in waiting.pop(output, []):
                    missing[later] -= 1
                    if not missing[later]:
                        stack.append(later)

    for index, node in enumerate(nodes):
        open_ = {name for name in reads(node) if name in results and name not in ready}
        missing.append(len(open_))
        for name in open_:
            waiting.setdefault(name, []).append(index)
        if not open_:
            settle(index)
    if order != sorted(order) or len(order) != len(nodes):
        rest = sorted(set(range(len(nodes))) - set(order))
        del graph.node[:]
        graph.node.extend(nodes[index] for index in (*order, *rest))
