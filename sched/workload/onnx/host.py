"""What stands at the end of a float model and runs on the host: probabilities, decoding, suppression of boxes.

The chip computes everything up to the last layer with weights. Nodes behind it that it lacks, and all that follow them,
are a model of their own, which ONNX Runtime runs on what the chip computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .detector_forms import suppressions
from .errors import UnsupportedError, operator_name
from .float_reader import fold
from .floats import FloatNet, unit_of
from .operators.table import operators_of
from .pins import Pin
from .pointwise import MICROSOFT, PROCESSOR, UNARY
from .runtime import run, session
from .subgraphs import nodes_within, reads

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Operators that no host runs in the chip's place: where one of them follows, the model is not at its end.
_HEAVY = {
    "Attention", "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "GRU", "Gemm", "GlobalAveragePool",
    "GlobalMaxPool", "InstanceNormalization", "LSTM", "LayerNormalization", "MatMul", "MaxPool", "RNN", "Resize",
}  # fmt: skip
#: Numbers of a convolution that is no work for the chip.
_DECODES = 64
#: What moves to the host with the nodes behind it.
_LIGHT = UNARY | {
    "Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
#: Operators of two numbers that move, too, where one is a constant and the other a function's.
_WITH_CONSTANTS = ("Add", "Div", "Mul", "Sub")
#: Domains whose operators ONNX Runtime has.
_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", MICROSOFT, PROCESSOR}
#: So many nodes at the end are named.
_NAMED = 4


class HostPart:
    """The nodes between tensors that the chip computes, `sources`, and the outputs of a model.

    `outputs`: those of the model that they make; `suppressions`: what NonMaxSuppressions among them read and make."""

    def __init__(self, model: ModelProto, sources: Iterable[str], name: str) -> None:
        import onnx
        from onnx import helper

        self.sources, self._name = tuple(dict.fromkeys(sources)), f"{name}: what runs on the host"
        self.nodes = _between(model, self.sources)
        self.outputs = tuple(value.name for value in model.graph.output if value.name not in self.sources)
        self.suppressions = suppressions(model, self.nodes)
        inner = {output for node in self.nodes for output in node.output} - set(self.outputs)
        inside = [name for each in self.suppressions for name in (each.boxes, each.scores, each.selected)]
        read = {name for node in self.nodes for name in reads(node)}
        values = [helper.make_tensor_value_info(name, 1, None) for name in self.sources if name in read]
        graph = helper.make_graph(
            self.nodes, "host", values,
            [value for value in model.graph.output if value.name in self.outputs]
            + [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(inside) if name in inner],
            [item for item in model.graph.initializer if item.name in read],
        )  # fmt: skip
        self._model: Any = onnx.ModelProto()
        self._model.CopyFrom(helper.make_model(graph, opset_imports=list(model.opset_import)))
        self._model.ir_version = model.ir_version
        for value in self._model.graph.output:
            if value.name in self.outputs:
                value.type.tensor_type.ClearField("shape")

    @property
    def note(self) -> str:
        """Which nodes they are, in a sentence for people; empty if they are constants alone."""
        work = [node for node in self.nodes if node.op_type != "Constant"]
        if not work:
            return ""
        names = [f"{operator_name(node)} {node.output[0]}" for node in work[:_NAMED]]
        more = f" and {len(work) - _NAMED} more" if len(work) > _NAMED else ""
        verb = "runs" if len(work) == 1 else "run"
        return f"{', '.join(names)}{more} at the end {verb} on the host."

    def run(self, values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The model's outputs, and the tensors of `suppressions`, for its `sources`, float32 in the shapes that they
        have in the model."""
        live = session(self._model, self._name)
        read = {value.name for value in live.get_inputs()}
        return run(live, {name: np.asarray(array, np.float32) for name, array in values.items() if name in read})


def fold_for_units(
    model: ModelProto,
    name: str,
    *,
    normalised: bool,
    cuts: Mapping[str, Pin] | None = None,
    lacks: Collection[str] = (),
) -> FloatNet:
    """As `fold_to_end`; where the model ends with layers that need units of cores that the chip `lacks`
    (`floats.unit_of`), the host takes these, too. If others need them, the network has them all, and who maps it says
    so."""
    net = fold_to_end(model, name, normalised=normalised, cuts=cuts)
    if all(unit_of(layer) not in lacks for layer in net.layers):
        return net
    try:
        return fold_to_end(model, name, normalised=normalised, cuts=cuts, lacks=lacks)
    except UnsupportedError:
        return net


def fold_to_end(
    model: ModelProto,
    name: str,
    *,
    normalised: bool,
    cuts: Mapping[str, Pin] | None = None,
    lacks: Collection[str] = (),
) -> FloatNet:
    """As `float_reader.fold`, generous where the host cannot do it; where the model ends with nodes that the chip
    lacks, the network ends before them, and its notes say so. Raises UnsupportedError without operators
    that the host would do, were it not for others."""
    try:
        return fold(model, name, normalised=normalised, cuts=cuts, lacks=lacks)
    except UnsupportedError as refusal:
        refused = _outputs_of(refusal)
    if not _last_tensors(model, refused):  # the host cannot do all of that
        try:
            return fold(model, name, normalised=normalised, generous=True, cuts=cuts, lacks=lacks)
        except UnsupportedError as refusal:
            refused, reasons = _outputs_of(refusal), refusal.problems
        if not _last_tensors(model, refused):
            known = operators_of(model)
            inside = [
                problem
                for problem in reasons
                if problem.operator in known or not _last_tensors(model, set(problem.outputs))
            ]
            raise UnsupportedError(name, inside or list(reasons))
    while outputs := _last_tensors(model, refused):
        shorter = _ending(model, outputs)
        try:
            net = _fold_generously(shorter, name, normalised, cuts, lacks)
        except UnsupportedError as refusal:  # what the host does begins earlier
            if (more := _outputs_of(refusal)) <= refused:
                raise
            refused |= more
            continue
        if note := HostPart(model, net.origins, name).note:  # it does what would be left out, too
            net.notes[:] = [*(each for each in net.notes if each not in net.end_notes), note]
        return net
    return fold(model, name, normalised=normalised, generous=True, cuts=cuts, lacks=lacks)


def _fold_generously(
    model: ModelProto, name: str, normalised: bool, cuts: Mapping[str, Pin] | None, lacks: Collection[str]
) -> FloatNet:
    """As `float_reader.fold`, generous only where it must be."""
    try:
        return fold(model, name, normalised=normalised, cuts=cuts, lacks=lacks)
    except UnsupportedError:
        return fold(model, name, normalised=normalised, generous=True, cuts=cuts, lacks=lacks)


def _outputs_of(refusal: UnsupportedError) -> set[str]:
    return {output for problem in refusal.problems for output in problem.outputs}


def _last_tensors(model: ModelProto, refused: set[str]) -> list[str]:
    """The tensors that refused nodes and all behind them read of the rest; none if work for the chip is among them, or
    an operator that no host knows, or nothing is left of the model."""
    initializers = {item.name for item in model.graph.initializer}
    inputs = {value.name for value in model.graph.input} - initializers
    behind, constants = set(refused), set(initializers)
    tail: list[NodeProto] = []
    for node in model.graph.node:
        if behind.intersection(reads(node)) or refused.intersection(node.output):
            tail.append(node)
            behind.update(node.output)
        elif constants.issuperset(reads(node)):
            constants.update(node.output)
    domains = _DOMAINS | {function.domain for function in model.functions}
    for node in (node for outer in tail for node in nodes_within(outer)):
        if node.domain not in domains or (node.op_type in _HEAVY and not _small(model, node)):
            return []
    tail = _widened(model, tail)
    behind.update(output for node in tail for output in node.output)
    read = [name for node in tail for name in reads(node) if name not in behind and name not in constants]
    read += [value.name for value in model.graph.output if value.name not in behind]
    tensors = list(dict.fromkeys(read))
    return [] if set(tensors) & inputs else tensors


def _small(model: ModelProto, node: NodeProto) -> bool:
    """Whether a convolution only decodes: one filter of few numbers (expectations over bins of a distance)."""
    sizes = {item.name: tuple(item.dims) for item in model.graph.initializer}
    size = sizes.get(node.input[1], ()) if node.op_type == "Conv" else ()
    return bool(size) and size[0] == 1 and prod(size) <= _DECODES


def _widened(model: ModelProto, tail: list[NodeProto]) -> list[NodeProto]:
    """The nodes on the host with what they alone read and what is no work: functions of one tensor, their sums and
    products with a constant, and what moves values. On the host they lose nothing to rounding, and joined tensors need
    not share a step."""
    outputs = {value.name for value in model.graph.output}
    constants = {item.name for item in model.graph.initializer}
    constants |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    functions = {name for node in model.graph.node if operator_name(node) in UNARY for name in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in reads(node):
            readers.setdefault(name, []).append(node)
    produced = {output for node in tail for output in node.output}
    for node in reversed(model.graph.node):
        computed = [name for name in node.input if name not in constants]
        light = operator_name(node) in _LIGHT
        light |= operator_name(node) in _WITH_CONSTANTS and len(computed) == 1 and functions.issuperset(computed)
        if not light or produced.intersection(node.output) or outputs.intersection(node.output):
            continue
        users = [user for name in node.output for user in readers.get(name, ())]
        if users and all(produced.issuperset(user.output) for user in users):
            produced.update(node.output)
    return [node for node in model.graph.node if produced.intersection(node.output)]


def _ending(model: ModelProto, outputs: Sequence[str]) -> ModelProto:
    """The model with other outputs."""
    import onnx
    from onnx import helper

    ending = onnx.ModelProto()
    ending.CopyFrom(model)
    del ending.graph.output[:]
    ending.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs)
    return ending


def _between(model: ModelProto, sources: Sequence[str]) -> list[NodeProto]:
    """The nodes that outputs depend on, back to `sources`."""
    needed = {value.name for value in model.graph.output} - set(sources)
    nodes: list[NodeProto] = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(name for name in reads(node) if name not in sources)
            nodes.append(node)
    return nodes[::-1]
