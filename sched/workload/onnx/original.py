"""The user's own file, run as it is by ONNX Runtime, against what was read in it.

Chip and golden model both compute the network that the readers made of a file: a node misread would be wrong in both
alike. So the file itself is the reference: its tensors are compared with those of the network, on the data that the
network will see. The network's tensors keep the names that they have in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf, prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..graph import MOVED, Graph
from .deviations import Deviations
from .errors import OnnxError, node_name, operator_name
from .float_model import float_model
from .floats import FloatNet, Source
from .pins import NOTHING, Rounding
from .runtime import run, session
from .subgraphs import reads

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from onnxruntime import InferenceSession

#: Largest difference of a layer's float result from the file's, as a share of the largest value of that tensor ...
TOLERANCE, HALF_TOLERANCE = 1e-4, 5e-3
#: ... and as a share of the sum of the products in it, without their signs: where these cancel, so do their digits.
DIGITS = 2e-7

Arrays = Mapping[str, NDArray[Any]]
_TYPES: Mapping[str, Any] = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


class Original:
    """A model in ONNX Runtime, unchanged but for outputs: those of `tensors` that it makes are outputs, too.

    `name` is for messages; `sources`: the inputs of a float one. Raises OnnxError when ONNX Runtime refuses the model.
    """

    def __init__(
        self, model: ModelProto, name: str, tensors: Iterable[str], sources: Mapping[str, Source] | None = None
    ) -> None:
        import onnx
        from onnx import helper

        self.name, self.sources = name, sources or {}
        initializers = {item.name for item in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in initializers]
        self.outputs = [value.name for value in model.graph.output]
        self._makers = {output: node for node in model.graph.node for output in node.output if output}
        exposed = onnx.ModelProto()
        exposed.CopyFrom(model)
        exposed.graph.output.extend(
            helper.make_empty_tensor_value_info(tensor)
            for tensor in dict.fromkeys(tensors)
            if tensor in self._makers and tensor not in self.outputs
        )
        self._live = session(exposed, name, mixed_signs=_mixed_signs(model))

    def run(self, feeds: Arrays) -> dict[str, NDArray[Any]]:
        """The tensors that were asked for and the outputs, by name, in the order of the nodes.

        `feeds`: an array for each input, [1, C, H, W] whatever the shape of the model's own input; it is given the type
        that the model asks for.
        """
        typed: dict[str, NDArray[Any]] = {}
        for value in self._live.get_inputs():
            array = np.asarray(feeds[value.name])
            array = array.astype(_TYPES.get(value.type) or value.type.removeprefix("tensor(").removesuffix(")"))
            source = self.sources.get(value.name)
            typed[value.name] = (
                array.reshape(array.shape[: len(value.shape)]) if source is None else source.array(array)
            )
        results = run(self._live, typed, self.name)
        return {tensor: results[tensor] for tensor in (*self._makers, *results) if tensor in results}

    def source(self, output: str, known: Collection[str]) -> tuple[str, set[str]]:
        """The tensor in `known` that the nodes after it make an output of, and their operators; each has one operand
        besides constants, its first."""
        operators: set[str] = set()
        while output not in known and output in self._makers:
            node = self._makers[output]
            operators.add(operator_name(node))
            output = node.input[0]
        return output, operators

    def nodes(self, tensor: str, known: Iterable[str]) -> str:
        """The nodes between a tensor and the nearest ones in `known`, in words."""
        nodes: list[NodeProto] = []
        stop, open_ = set(known), [tensor]
        while open_:
            node = self._makers.get(open_.pop())
            if node is not None and node not in nodes:
                nodes.append(node)
                open_ += [name for name in reads(node) if name not in stop]
        named = [f"{node_name(node)} ({operator_name(node)})" for node in reversed(nodes) if node.op_type != "Constant"]
        return ("nodes " if len(named) > 1 else "node ") + ", ".join(named) if named else "the input"


#: Where operators that multiply integers have the zero points of their factors.
_ZERO_POINTS = {
    "ConvInteger": (2, 3), "MatMulInteger": (2, 3), "QGemm": (2, 5), "QLinearConv": (2, 5), "QLinearMatMul": (2, 5),
}  # fmt: skip


def _mixed_signs(model: ModelProto) -> bool:
    """Whether anything multiplies uint8 by int8, which the types of the zero points say."""
    from onnx import TensorProto

    types = {item.name: item.data_type for item in model.graph.initializer}
    for node in model.graph.node:
        first, second = _ZERO_POINTS.get(node.op_type, (0, 0))
        names = list(node.input)
        if 0 < second < len(names) and types.get(names[first], TensorProto.UINT8) == TensorProto.UINT8 and (
            types.get(names[second]) == TensorProto.INT8
        ):  # fmt: skip
            return True
    return False


def check_integer(
    model: ModelProto, graph: Graph, cases: Iterable[tuple[Arrays, Arrays]], name: str
) -> Mapping[str, str]:
    """For each output of the network the model's output that is made of it, by name. Raises OnnxError unless an integer
    model makes of inputs what its network does, byte for byte.

    `graph`: what was read in the model. `cases`: the network's inputs, and all its tensors as the golden model computes
    them, int8 [1, C, H, W] by name. `name` is for messages.
    """
    original = Original(model, name, graph.values)
    titles: dict[str, str] = {}
    for inputs, golden in cases:
        theirs = original.run(_integer_feeds(model, graph, inputs))
        for tensor, array in theirs.items():
            if tensor in golden:
                _same_bytes(original, tensor, array, golden[tensor], graph)
        ends = {output: original.source(output, graph.values) for output in original.outputs}
        for output, (tensor, operators) in ends.items():
            if tensor not in graph.outputs:
                nodes, known = original.nodes(output, graph.values), ", ".join(graph.outputs)
                raise OnnxError(
                    f"{name}: {nodes}: misread: output {output!r} is made of {tensor!r} in the file, the network that "
                    f"was read from it has the outputs {known}; report it with the file"
                )
            if operators <= {"Identity"}:
                _same_bytes(original, output, theirs[output], golden[tensor], graph)
            elif operators <= {"Identity", "DequantizeLinear"}:
                step = graph.value(tensor).step
                _same_reals(original, output, theirs[output], golden[tensor] * step, 1e-5 * step, graph.values, "")
            titles[tensor] = output
    return titles


def quantised_inputs(model: ModelProto) -> dict[str, str]:
    """The tensors of 8 bits that a model makes of real numbers, by these."""
    return {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}


def _integer_feeds(model: ModelProto, graph: Graph, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """The network's inputs as those of the model: bytes, or the real numbers that its QuantizeLinear makes bytes of."""
    from onnx import TensorProto

    quantised = quantised_inputs(model)
    initializers = {item.name for item in model.graph.initializer}
    feeds: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        if value.name not in inputs:
            inside = quantised[value.name]
            feeds[value.name] = inputs[inside] * graph.value(inside).step
        elif value.type.tensor_type.elem_type == TensorProto.UINT8:
            feeds[value.name] = inputs[value.name].view(np.uint8) ^ np.uint8(0x80)
        else:
            feeds[value.name] = inputs[value.name]
    return feeds


def _same_bytes(original: Original, tensor: str, bytes_: NDArray[Any], golden: NDArray[Any], graph: Graph) -> None:
    theirs = bytes_.astype(np.int16) - (128 if bytes_.dtype == np.uint8 else 0)
    ours = _shaped(original, tensor, golden, theirs, graph.values)
    if differ := np.argwhere(theirs != ours).tolist():
        at = tuple(differ[0])
        _misread(original, tensor, at, theirs[at], ours[at], graph.values, "")


#: Part of a tensor's norm by which a right layer's result may differ: of one that is steep, and of one whose operands
#: the file cuts off far from where they would lie.
_STEEP, _CUT = 0.2, 0.5


def check_float(
    model: ModelProto,
    net: FloatNet,
    data: Sequence[Arrays],
    feeds: Sequence[Arrays],
    rounding: Rounding = NOTHING,
) -> None:
    """Raises OnnxError unless each layer of the folded network makes of the model's tensors what the model does.

    `data`: inputs of the model as [1, C, H, W], `feeds`: the same as inputs of the network (`FloatNet.feed`). Each
    layer is given the operands that the model computed, so that differences do not add up and the first one is where
    the misread node is. `rounding`: what the model rounds to 8 bits.
    """
    exposed = [*net.shapes, *net.origins, *rounding.inputs.values()]
    original = Original(model, net.name, exposed, net.inputs)
    tolerance = HALF_TOLERANCE if _has_halves(model) else TOLERANCE
    layers = {layer.output: layer for layer in net.layers}
    # an output may be an input, renamed
    ends = {origin: name for name, origin in zip(net.outputs, net.origins, strict=True) if name in layers}
    compared = layers | {origin: layers[name] for origin, name in ends.items()}
    sizes = {name: prod(size) for name, size in net.sizes.items()}
    rounds = any(own.off for own in rounding.tensors.values())
    deviations = Deviations(net, rounding)
    ours: InferenceSession | None = None
    needed: set[str] = set()
    for index, (item, feed) in enumerate(zip(data, feeds, strict=True)):
        theirs = original.run(item)
        # the parts of a SpaceToDepth have no name in the file, and what repeats values does not give all of them back
        alike = {name for name in layers.keys() & theirs.keys() if theirs[name].size == sizes.get(name)}
        if ours is None:
            ours = session(float_model(net, alike), net.name)
            needed = {value.name for value in ours.get_inputs()}
        begun = {key: net.feed(key, net.inputs[key].value(theirs[name])) for key, name in rounding.inputs.items()}
        operands = {**feed, **begun}
        operands |= {name: _value(theirs[deviations.read(name, theirs)], net, name) for name in alike}
        results = _results(ours, operands, alike, needed, net.name)
        # who reads a tensor that the file rounds may read it as it was before
        exact = {**feed, **{name: _value(theirs[name], net, name) for name in alike}} if rounding.tensors else operands
        others = _results(ours, exact, alike, needed, net.name) if rounding.tensors else results
        sums, slack = deviations.of(operands, theirs, results, alike)
        cut: Arrays | None = None
        where = f" for calibration input {index}"
        for tensor, right in theirs.items():
            if right.shape != net.shapes.get(tensor, right.shape):
                _misshaped(original, tensor, right.shape, net.shapes[tensor], operands)
            if (layer := compared.get(tensor)) is None:
                continue
            if not np.all(np.isfinite(right)):
                raise OnnxError(f"{net.name}: tensor {tensor!r} is not finite{where}; fix the weights or the data")
            bound = np.array(tolerance * float(np.abs(right).max()) + DIGITS * sums[layer.output])
            bound += slack[layer.output]
            order = (net.end_orders if tensor in ends else net.orders).get(tensor)
            mine, other = (
                _in_shape(array[layer.output], order, right.size, net.shapes.get(tensor)) for array in (results, others)
            )
            if mine.size == right.size:
                mine = _nearer(mine, other, right)
            if (own := rounding.tensors.get(tensor)) is not None:
                mine, bound = np.clip(mine, own.low, own.high), bound + own.off
                before = theirs.get(own.before)
                if before is not None and before.shape == right.shape:
                    bound = np.where(rounding.tensors[own.before].cut(before), inf, bound)
            # a table may take in what the file rounds in between, and its function be steep: then all numbers decide
            steep = layer.kind in ("table", *MOVED) or layer.moves
            if steep and rounds and _near(right, mine, _STEEP):
                continue
            # so much may be cut off that no number tells: then all of them do
            whole = mine.reshape(right.shape) if mine.size == right.size else mine
            if slack[layer.output] > np.abs(right).max(initial=0) > 0 and not _near(right, whole, _CUT):
                if cut is None:  # of parts of a tensor, which readers of others have whole
                    cut = _results(ours, deviations.cut_off(operands, alike), alike, needed, net.name)
                mine = _in_shape(cut[layer.output], order, right.size, net.shapes.get(tensor))
                mine = mine if own is None else np.clip(mine, own.low, own.high)
                if mine.size == right.size and _near(right, mine.reshape(right.shape), _STEEP):
                    continue
                bound = np.where(np.isinf(bound), inf, 0.0)
            _same_reals(original, tensor, right, mine, bound, operands, where)


def _near(right: NDArray[Any], mine: NDArray[Any], share: float) -> bool:
    """Whether two tensors differ by less than a share of the first, on the whole."""
    if right.shape != mine.shape:
        return False
    return float(np.linalg.norm(right - mine)) < share * float(np.linalg.norm(right))


def _results(
    live: InferenceSession, operands: Arrays, given: Collection[str], needed: Collection[str], name: str
) -> Arrays:
    """What each layer makes of these operands."""
    named = {_given(key, given): np.asarray(array, np.float32) for key, array in operands.items()}
    return run(live, {key: array for key, array in named.items() if key in needed}, name)


def _in_shape(
    array: NDArray[Any], order: NDArray[np.int64] | None, size: int, shape: tuple[int, ...] | None
) -> NDArray[Any]:
    """A layer's result as the file's tensor of `size` elements, whatever its own order and shape."""
    if order is not None:
        return array.ravel()[order]
    return array.reshape(shape) if shape is not None and array.size == size else array


def _nearer(mine: NDArray[Any], other: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """What is between two arrays and nearest to a third."""
    low, high = np.minimum(mine, other), np.maximum(mine, other)
    return np.clip(right.reshape(mine.shape), low, high)


def _given(name: str, given: Iterable[str]) -> str:
    return f"{name}//given" if name in given else name


def _has_halves(model: ModelProto) -> bool:
    """Whether a model computes with 16 bits anywhere."""
    from onnx import TensorProto

    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    types = [item.data_type for item in model.graph.initializer]
    types += [value.type.tensor_type.elem_type for value in model.graph.input]
    types += [item.i for node in model.graph.node if node.op_type == "Cast" for item in node.attribute]
    return any(kind in halves for kind in types)


def _value(array: NDArray[Any], net: FloatNet, tensor: str) -> NDArray[Any]:
    """A tensor of the file as the value that it is in the network."""
    return Source(net.sizes[tensor], array.shape, net.orders.get(tensor)).value(array)


def _same_reals(
    original: Original,
    tensor: str,
    theirs: NDArray[Any],
    ours: NDArray[Any],
    bound: float | NDArray[Any],
    known: Iterable[str],
    where: str,
) -> None:
    theirs = theirs.astype(np.float64)
    ours = _shaped(original, tensor, ours, theirs, known)
    if differ := np.argwhere(~(np.abs(theirs - ours) <= bound)).tolist():
        at = tuple(differ[0])
        _misread(original, tensor, at, theirs[at], ours[at], known, where)


def _shaped(
    original: Original, tensor: str, ours: NDArray[Any], theirs: NDArray[Any], known: Iterable[str]
) -> NDArray[Any]:
    """Our tensor, [1, C, H, W], in the shape that it has in the file. Raises OnnxError when it cannot have that."""
    if theirs.size != ours.size or (theirs.ndim == ours.ndim and theirs.shape != ours.shape):
        _misshaped(original, tensor, theirs.shape, ours.shape, known)
    return ours.reshape(theirs.shape)


def _misshaped(
    original: Original, tensor: str, theirs: Sequence[int], ours: Sequence[int], known: Iterable[str]
) -> NoReturn:
    raise OnnxError(
        f"{original.name}: {original.nodes(tensor, known)}: misread: tensor {tensor!r} has the shape {list(theirs)} "
        f"when ONNX Runtime runs the file, {list(ours)} in the network that was read from it; report it with the file"
    )


def _misread(
    original: Original, tensor: str, at: Sequence[int], theirs: float, ours: float, known: Iterable[str], where: str
) -> NoReturn:
    raise OnnxError(
        f"{original.name}: {original.nodes(tensor, known)}: misread: tensor {tensor!r} at {list(at)} is {theirs:g} "
        f"when ONNX Runtime runs the file, {ours:g} in the network that was read from it{where}; report it with the "
        "file"
    )
