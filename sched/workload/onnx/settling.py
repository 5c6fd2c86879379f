"""What follows from the sizes of a model's inputs, before anything else is read in it.

Exporters that leave sizes open compute shapes (Shape, Gather, Concat) that are constants as soon as the inputs have
sizes, and choose between branches (If) by them. Here both become what they are then: constants, and the nodes of the
branch that is taken. A Loop that goes a constant number of times is the nodes of its steps: as often as is given, or as
long as a condition holds that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .constant_nodes import computable
from .errors import OnnxError, node_name
from .known_tensors import KnownTensors
from .runtime import evaluate
from .subgraphs import bodies, rename

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

#: Where none of these is, nothing follows from sizes.
_SEEDS = {"If", "Loop", "Shape", "Size"}
#: From this opset on the axes of Unsqueeze are an operand.
_AXES = 13
#: Nodes that a Loop may become.
_MOST_NODES = 20_000


def settled(model: ModelProto, name: str) -> ModelProto:
    """A model in which what depends on nothing but the sizes of its inputs is a Constant, an If whose condition is
    constant is the nodes of its branch, and a Loop of constant steps those of its steps; the model itself if there is
    no such node.

    The first size of an input of several axes is 1 where it is open (`load.check`). `name` is for messages. Raises
    OnnxError for an If that has no branch for its condition.
    """
    import onnx

    if not any(node.op_type in _SEEDS for node in model.graph.node):
        return model
    settling = _Settling(model, name)
    nodes = list(settling.nodes(model.graph.node))
    if not settling.changed:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:], copy.graph.value_info[:]
    copy.graph.node.extend(nodes)
    return copy


class _Settling:
    """`known`: what is known of tensors."""

    def __init__(self, model: ModelProto, name: str) -> None:
        self.name, self.changed = name, False
        self.opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
        self.known = KnownTensors(model.graph, self.opset)
        for value in model.graph.input:
            dims = self.known.types[value.name].tensor_type.shape.dim
            if len(dims) > 1 and not dims[0].HasField("dim_value"):
                dims[0].dim_value = 1
        self.outputs = {value.name for value in model.graph.output}
        self.used = {name for node in model.graph.node for name in (*node.input, *node.output)}

    @property
    def constants(self) -> dict[str, NDArray[Any]]:
        return self.known.constants

    def nodes(self, nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
        """The nodes that stay, and those that take the place of others, in their order."""
        for node in nodes:
            if node.op_type == "If" and node.input and node.input[0] in self.constants and bodies(node):
                self.changed = True
                yield from self.nodes(self._branch(node))
            elif node.op_type == "Loop" and (steps := self._steps(node)) is not None:
                self.changed = True
                yield from self.nodes(steps)
            elif self.outputs.intersection(node.output) or (known := self.known.results(node)) is None:
                self.known.note(node)
                yield node
            else:
                self.changed = True
                self.known.note_constants(known)
                for output, array in known.items():
                    yield _constant_node(output, array)

    # -- branches -------------------------------------------------------------------------------------------

    def _branch(self, node: NodeProto) -> list[NodeProto]:
        """The nodes of the branch that an If takes, its results named as the If's."""
        from onnx import helper

        chosen = "then_branch" if np.any(self.constants[node.input[0]]) else "else_branch"
        branch = next((item.g for item in node.attribute if item.name == chosen), None)
        if branch is None or len(branch.output) != len(node.output):
            raise OnnxError(
                f"{self.name}: {node_name(node)} (If): its {chosen} does not make its {len(node.output)} results; "
                "export the model again"
            )
        results = [name for inner in branch.node for name in inner.output if name]
        names = {name: self._fresh(name, node.output[0]) for name in (*results, *_stored(branch))}
        copies: list[NodeProto] = []
        for result, value in zip(node.output, branch.output, strict=True):
            if value.name in results and names[value.name] not in node.output:
                names[value.name] = result
            elif result:
                copies.append(helper.make_node("Identity", [names.get(value.name, value.name)], [result]))
        nodes = [_constant_node(names[item.name], item) for item in branch.initializer]
        for inner in branch.node:
            copy = type(inner)()
            copy.CopyFrom(inner)
            rename(copy, names)
            nodes.append(copy)
        return nodes + copies

    # -- loops ----------------------------------------------------------------------------------------------

    def _steps(self, node: NodeProto) -> list[NodeProto] | None:
        """The nodes of all steps of a Loop; None where how many there are is not constant, or there is none."""
        from onnx import helper

        (body,) = bodies(node)
        states = len(node.input) - 2
        number = self._count(node, body)
        if not 0 < number * len(body.node) <= _MOST_NODES:
            return None
        results = [name for inner in body.node for name in inner.output if name]
        values, rows = list(node.input[2:]), [list[str]() for _ in node.output[states:]]
        nodes: list[NodeProto] = []
        for step in range(number):
            names = {name: self._fresh(f"{name}/{step}", node.output[0]) for name in (*results, *_stored(body))}
            nodes += [_constant_node(names[item.name], item) for item in body.initializer]
            for value, array in zip(body.input, (np.array(step, np.int64), np.array(True)), strict=False):
                names[value.name] = self._fresh(f"{value.name}/{step}", node.output[0])
                nodes.append(_constant_node(names[value.name], array))
            names |= {value.name: name for value, name in zip(body.input[2:], values, strict=True)}
            for inner in body.node:
                copy = type(inner)()
                copy.CopyFrom(inner)
                rename(copy, names)
                copy.name = inner.name and f"{inner.name}/{step}"
                nodes.append(copy)
            ends = [names.get(value.name, value.name) for value in body.output[1:]]
            values = ends[:states]
            for row, end in zip(rows, ends[states:], strict=True):
                row.append(self._fresh(f"{end}/row", node.output[0]))
                if self.opset < _AXES:
                    nodes.append(helper.make_node("Unsqueeze", [end], [row[-1]], axes=[0]))
                else:
                    axes = self._fresh(f"{end}/axes", node.output[0])
                    nodes += [
                        _constant_node(axes, np.array([0], np.int64)),
                        helper.make_node("Unsqueeze", [end, axes], [row[-1]]),
                    ]
        outputs = list(node.output)
        nodes += [
            helper.make_node("Identity", [value], [result])
            for value, result in zip(values, outputs, strict=False)
            if result
        ]
        nodes += [
            helper.make_node("Concat", row, [result], axis=0)
            for row, result in zip(rows, outputs[states:], strict=True)
            if result
        ]
        return nodes

    def _count(self, node: NodeProto, body: GraphProto) -> int:
        """How many steps a Loop goes; 0 where that does not follow from constants."""
        count, begins = ([*node.input, "", ""][at] for at in (0, 1))
        if (count and count not in self.constants) or (begins and not np.any(self.constants.get(begins, False))):
            return 0
        most = int(self.constants[count].ravel()[0]) if count else _MOST_NODES
        if _goes_on(body):
            return most if count else 0
        if not most > 0 or (counter := self._counter(node, body, min(most, _MOST_NODES))) is None:
            return 0
        try:
            return len(evaluate(counter, {})["steps"])
        except OnnxError:
            return 0

    def _counter(self, node: NodeProto, body: GraphProto, most: int) -> ModelProto | None:
        """A model of a Loop's condition alone: its output `steps` has an element for each step. None where the
        condition depends on what is no constant."""
        from onnx import TensorProto, helper, numpy_helper

        makers = {output: inner for inner in body.node for output in inner.output if output}
        stored = {item.name: item for item in body.initializer}
        own = [value.name for value in body.input]
        begins = dict(zip(own[2:], node.input[2:], strict=True))
        results = dict(zip(own[2:], body.output[1:], strict=False))
        needed, outer = {body.output[0].name: None}, dict[str, None]()
        for name in (names := list(needed)):
            if name in makers:
                more = [each for each in makers[name].input if each]
                if not computable(makers[name]):
                    return None
            elif name in begins:
                more, outer[begins[name]] = [results[name].name], None
            else:
                more = []
                outer |= {} if name in own or name in stored else {name: None}
            names += [each for each in more if each not in needed]
            needed |= dict.fromkeys(more)
        if not outer.keys() <= self.constants.keys():
            return None
        states = [name for name in begins if name in needed]
        row = helper.make_tensor_value_info("step", TensorProto.INT64, [])
        inner = helper.make_graph(
            [
                *(each for each in body.node if not needed.keys().isdisjoint(each.output)),
                helper.make_node("Identity", [own[0]], ["step"]),
            ],
            "body",
            [value for value in body.input if value.name in (*own[:2], *states)],
            [body.output[0], *(results[name] for name in states), row],
            [item for name, item in stored.items() if name in needed],
        )
        ends = [self._fresh(f"{name}/end", node.output[0]) for name in states]
        constants = {name: self.constants[name] for name in outer}
        constants |= {"most": np.array(most, np.int64), "begins": np.array(True)}
        loop = helper.make_node(
            "Loop", ["most", "begins", *(begins[name] for name in states)], [*ends, "steps"], body=inner
        )
        graph = helper.make_graph(
            [loop], "counter", [], [helper.make_tensor_value_info("steps", TensorProto.INT64, None)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True))

    def _fresh(self, name: str, output: str) -> str:
        """A name that no other tensor has: branches may have the same ones."""
        while name in self.used:
            name = f"{output}/{name}"
        self.used.add(name)
        return name


def _goes_on(body: GraphProto) -> bool:
    """Whether the condition of a Loop, which its body makes, stays true."""
    end, makers = body.output[0].name, {output: node for node in body.node for output in node.output}
    while end in makers and makers[end].op_type in ("Identity", "Cast"):
        end = makers[end].input[0]
    if len(body.input) > 1 and end == body.input[1].name:
        return True
    from onnx import numpy_helper

    stored = {item.name: numpy_helper.to_array(item) for item in body.initializer}
    if end in makers and makers[end].op_type == "Constant" and makers[end].attribute[0].name == "value":
        stored[end] = numpy_helper.to_array(makers[end].attribute[0].t)
    return bool(np.any(stored.get(end, np.array(False))))


def _stored(branch: GraphProto) -> list[str]:
    return [item.name for item in branch.initializer]


def _constant_node(name: str, value: NDArray[Any] | TensorProto) -> NodeProto:
    from onnx import helper, numpy_helper

    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(np.asarray(value), name)
    return helper.make_node("Constant", [], [name], value=value)
