"""Files that are quantised already, with QuantizeLinear and DequantizeLinear around layers in floating point (QDQ).

What lies between a pair is 8 bits of the file's own: a scale and a zero point for the tensor, any of them, and for
weights often one for each channel. The chip has symmetric tensors, so a pair of an activation is taken out, which
leaves a float model of the weights that the file has, and the scale of the pair is the step that the chip's tensor
gets, or the nearest around 0 (`pins`). Where a pair cuts off what is below 0 (a zero point at the end of the range),
that is a ReLU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...graph import MOVED
from ..errors import OnnxError
from ..floats import FloatNet
from ..pins import Pin, Rounded, Rounding, pin_of, scales_of
from ..runtime import run, session
from ..subgraphs import reads

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

#: Operators whose results are not below 0.
POSITIVE = {"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"}
#: What may stand between a layer and the tensor that has its scale.
_BETWEEN = {"Clip", "DequantizeLinear", "Identity", "QuantizeLinear", "Relu"}
#: From this opset on Clip has its ends as operands.
_ENDS_ARE_OPERANDS = 11


def with_quantised_constants(model: ModelProto) -> ModelProto:
    """The model with the integers that its QuantizeLinears make of constants, and Clips of integers, as ONNX Runtime
    makes them, for these; itself if there are none."""
    import onnx
    from onnx import helper, numpy_helper

    constants = constants_of(model)
    settled: dict[int, TensorProto] = {}
    for index, node in enumerate(model.graph.node):
        names = [name for name in node.input if name]
        if _makes_integers(node, constants) and all(name in constants for name in names):
            graph = helper.make_graph(
                [node], "constant", [], [helper.make_empty_tensor_value_info(node.output[0])],
                [numpy_helper.from_array(constants[name], name) for name in dict.fromkeys(names)],
            )  # fmt: skip
            single = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
            try:
                results = run(session(single, node.name), {})
            except OnnxError:  # which who reads the node will say better
                continue
            constants[node.output[0]] = results[node.output[0]]
            settled[index] = numpy_helper.from_array(results[node.output[0]], node.output[0])
    if not settled:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.node.extend(node for index, node in enumerate(model.graph.node) if index not in settled)
    copy.graph.initializer.extend(settled.values())
    return copy


def _makes_integers(node: NodeProto, constants: Mapping[str, NDArray[Any]]) -> bool:
    if node.op_type == "Clip":
        return node.input[0] in constants and constants[node.input[0]].dtype.kind in "iu"
    return node.op_type == "QuantizeLinear"


def with_clips_in_front(model: ModelProto) -> ModelProto:
    """The model with a Clip of real numbers before a QuantizeLinear in place of one of its integers behind it, which is
    how files say that a tensor has fewer than 8 bits; itself if there is none."""
    import onnx
    from onnx import helper, numpy_helper

    constants = constants_of(model)
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in reads(node):
            readers.setdefault(name, []).append(node)
    outputs = {value.name for value in model.graph.output}
    replacements: dict[str, list[NodeProto]] = {}  # by the result of a QuantizeLinear
    ends: list[TensorProto] = []
    for node in model.graph.node:
        after = readers.get(node.output[0], []) if node.op_type == "QuantizeLinear" else []
        if len(after) != 1 or after[0].op_type != "Clip" or node.output[0] in outputs:
            continue
        (clip,) = after
        if clip.input[0] != node.output[0] or not all(
            name in constants for name in (*node.input[1:], *clip.input[1:]) if name
        ):
            continue
        scale, zero = constants[node.input[1]], zero_of(node, constants)
        if scale.size != 1 or zero.dtype.kind not in "iu":
            continue
        names, limits = [node.input[0], "", ""], np.iinfo(zero.dtype)
        for at, (name, limit) in enumerate(zip(clip.input[1:], (limits.min, limits.max), strict=False), 1):
            if name and constants[name].flat[0] != limit:
                real = (constants[name].astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
                names[at] = f"{clip.output[0]}//{('least', 'most')[at - 1]}"
                ends.append(numpy_helper.from_array(real.reshape(()).astype(scale.dtype), names[at]))
        cut, rounds = f"{clip.output[0]}//cut", type(node)()
        rounds.CopyFrom(node)
        rounds.output[0] = clip.output[0]
        replacements[node.output[0]] = [rounds]
        if any(names[1:]):
            rounds.input[0] = cut
            replacements[node.output[0]].insert(0, helper.make_node("Clip", names, [cut], clip.name or cut))
    if not replacements:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for node in model.graph.node:
        if node.op_type != "Clip" or node.input[0] not in replacements:
            copy.graph.node.extend(replacements.get(node.output[0], [node]))
    copy.graph.initializer.extend(ends)
    return copy


def with_ends_of_relus(model: ModelProto) -> ModelProto:
    """The model with a Clip in place of each Relu of a tensor that was dequantised, where the result is quantised with
    a wider range: it ends where the first range does. The same numbers; itself if there is none."""
    import onnx
    from onnx import helper, numpy_helper

    constants = constants_of(model)
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    makers = {output: node for node in model.graph.node for output in node.output}
    widest: dict[str, float] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and (end := _end(node, constants)) is not None:
            widest[node.input[0]] = max(widest.get(node.input[0], 0.0), end.item())
    clips: dict[str, NodeProto] = {}
    ends: list[TensorProto] = []
    for node in model.graph.node:
        maker = makers.get(node.input[0]) if node.op_type == "Relu" and node.output[0] in widest else None
        most = _end(maker, constants) if maker is not None and maker.op_type == "DequantizeLinear" else None
        if most is None or most.item() >= widest[node.output[0]]:
            continue
        output, name = node.output[0], node.name or node.output[0]
        if opset < _ENDS_ARE_OPERANDS:
            clips[output] = helper.make_node("Clip", [node.input[0]], [output], name, min=0.0, max=most.item())
            continue
        names = [f"{output}//{end}" for end in ("least", "most")]
        ends += [
            numpy_helper.from_array(each, key) for key, each in zip(names, (np.zeros_like(most), most), strict=True)
        ]
        clips[output] = helper.make_node("Clip", [node.input[0], *names], [output], name)
    if not clips:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.node.extend(clips.get(node.output[0], node) if node.output else node for node in model.graph.node)
    copy.graph.initializer.extend(ends)
    return copy


def _end(node: NodeProto, constants: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """The largest number of what a node quantises or dequantises, in the type of its scale; None if it has no range of
    its own."""
    if node.input[1] not in constants or (len(node.input) > 2 and node.input[2] and node.input[2] not in constants):
        return None
    scale, zero = constants[node.input[1]], zero_of(node, constants)
    if scale.size != 1 or zero.size != 1 or zero.dtype.kind not in "iu":
        return None
    most = np.float32(np.iinfo(zero.dtype).max) - zero.astype(np.float32)
    return np.asarray((most * scale.astype(np.float32)).reshape(()), scale.dtype)


def _is_positive(node: NodeProto, constants: Mapping[str, NDArray[Any]]) -> bool:
    """Whether its results are not below 0."""
    if node.op_type != "Clip" or len(node.input) < 2 or node.input[1] not in constants:
        return node.op_type in POSITIVE
    return bool((constants[node.input[1]] >= 0).all())


def without_pairs(model: ModelProto) -> tuple[ModelProto, dict[str, Pin]]:
    """The model with weights as numbers and without pairs around activations, and what these had, by the tensor before
    them, or behind them where they are a Relu, too. A pair whose halves differ, or between whose halves anything is
    computed, stays; without any it is the model itself."""
    import onnx
    from onnx import helper, numpy_helper

    constants = constants_of(model)
    makers = {output: node for node in model.graph.node for output in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {value.name for value in model.graph.output}
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []
    pins: dict[str, Pin] = {}
    gone: set[str] = set()
    inner: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            after = readers.get(node.output[0], [])
            if after and node.output[0] not in outputs and all(alike(node, other, constants) for other in after):
                gone.add(node.output[0])
                scale, zero = constants[node.input[1]], zero_of(node, constants)
                before = weights_before(node.input[0], makers, constants)
                if (pin := pin_of(scale, zero, before, _ends(makers.get(node.input[0]), constants))) is not None:
                    pins[node.input[0]] = pin
                continue
        if node.op_type == "DequantizeLinear" and node.input[0] in gone:
            first = makers[node.input[0]]
            source = makers.get(first.input[0])
            cuts = cuts_below_0(first, constants) and (source is None or not _is_positive(source, constants))
            operator = "Relu" if cuts else "Identity"
            if cuts and first.input[0] in pins:  # the layer that takes the Relu in makes this tensor
                pins[node.output[0]] = pins[first.input[0]]
                inner.add(first.input[0])
            nodes.append(helper.make_node(operator, [first.input[0]], list(node.output), node.name or node.output[0]))
            continue
        maker = makers.get(node.input[0]) if node.op_type in ("Relu", "Clip") else None
        if maker is not None and maker.op_type == "DequantizeLinear" and maker.input[0] in gone:
            source = makers[maker.input[0]].input[0]
            if source in pins:
                pins[node.output[0]] = pins[source]  # as above
        real = _dequantised(node, constants)
        if real is None:
            nodes.append(node)
        else:
            weights.append(numpy_helper.from_array(real, node.output[0]))
    if not gone and not weights:
        return model, {}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:], copy.graph.value_info[:]
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(weights)
    return copy, {name: pin for name, pin in pins.items() if name not in inner}


def read_rounded(model: ModelProto, pins: Mapping[str, Pin]) -> dict[str, Pin]:
    """The pins of tensors that nothing reads as they are before they are rounded."""
    plain = {name for node in model.graph.node if node.op_type != "QuantizeLinear" for name in node.input}
    plain |= {value.name for value in model.graph.output}
    behind = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return {name: pin for name, pin in pins.items() if name not in plain or name in behind}


def cut_between(model: ModelProto, net: FloatNet) -> tuple[ModelProto, Rounding]:
    """The model with tensors cut off that functions of its network cut off, and what is."""
    import onnx

    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    copy, cuts = onnx.ModelProto(), net.cuts
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for node in model.graph.node:
        own = copy.graph.node.add()
        own.CopyFrom(node)
        for index, name in enumerate(node.output):
            if name not in cuts:
                continue
            own.output[index] = f"{name}//uncut"
            nodes, ends = clip(f"{name}//uncut", name, "", cuts[name], opset)
            copy.graph.node.extend(nodes)
            copy.graph.initializer.extend(ends)
    sources: dict[str, str] = {}  # of values that are another one, moved
    for layer in net.layers:
        if (layer.moves or layer.kind in MOVED) and len(layer.inputs) == 1:
            sources[layer.output] = sources.get(layer.inputs[0], layer.inputs[0])
    origin = {name: sources.get(value, value) for name, value in net.values.items()}
    behind = {name: Rounded(*ends, 0.0) for name, ends in cuts.items()}
    for node in model.graph.node:
        for name in node.input:
            if name in behind:
                alike = (output for output in node.output if origin.get(output) == origin[name])
                behind |= {output: behind[name] for output in alike if output not in cuts}
    return copy, Rounding(behind, {})


def ranges_of_pairs(model: ModelProto) -> dict[str, tuple[str, float, float]]:
    """Of what each QuantizeLinear of an activation makes: the tensor that it rounds, and between which numbers that
    lies then; not where scales are computed, or are several."""
    constants = constants_of(model)
    ranges: dict[str, tuple[str, float, float]] = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants or node.input[1] not in constants:
            continue
        if len(node.input) > 2 and node.input[2] and node.input[2] not in constants:
            continue
        scale, zero = constants[node.input[1]].astype(np.float64), zero_of(node, constants)
        if scale.size == zero.size == 1 and zero.dtype.kind in "iu":
            low, high = ((end - zero.astype(np.float64)) * scale for end in _limits(zero))
            ranges[node.output[0]] = node.input[0], low.item(), high.item()
    return ranges


def _limits(zero: NDArray[Any]) -> tuple[int, int]:
    limits = np.iinfo(zero.dtype)
    return int(limits.min), int(limits.max)


def with_cuts_in_front(model: ModelProto, cut: Collection[str]) -> ModelProto:
    """The model with Clips before those QuantizeLinears that make `cut`: the same numbers, but what is cut off is a
    node by itself, and who reads the tensor otherwise is not concerned."""
    import onnx

    ranges = ranges_of_pairs(model)
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for node in model.graph.node:
        own = type(node)()
        own.CopyFrom(node)
        if node.output and node.output[0] in cut:
            name, (x, *ends) = f"{node.output[0]}//inside", ranges[node.output[0]]
            nodes, constants = clip(x, name, name, (ends[0], ends[1]), opset)
            copy.graph.node.extend(nodes)
            copy.graph.initializer.extend(constants)
            own.input[0] = name
        copy.graph.node.append(own)
    return copy


def clip(
    x: str, output: str, name: str, ends: tuple[float, float], opset: int
) -> tuple[list[NodeProto], list[TensorProto]]:
    """A Clip in the form of an opset, with the constants that it reads."""
    from onnx import helper, numpy_helper

    numbers = dict(zip(("min", "max"), ends, strict=True))
    if opset < _ENDS_ARE_OPERANDS:
        return [helper.make_node("Clip", [x], [output], name, **numbers)], []
    arrays = {f"{output}//{end}": np.array(number, np.float32) for end, number in numbers.items()}
    node = helper.make_node("Clip", [x, *arrays], [output], name)
    return [node], [numpy_helper.from_array(array, key) for key, array in arrays.items()]


def constants_of(model: ModelProto) -> dict[str, NDArray[Any]]:
    from onnx import numpy_helper

    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return constants


def _dequantised(node: NodeProto, constants: dict[str, NDArray[Any]]) -> NDArray[np.float32] | None:
    """The numbers that a DequantizeLinear makes of a constant, with one scale or one for each index along an axis."""
    names = [name for name in node.input if name]
    if node.op_type != "DequantizeLinear" or not all(name in constants for name in names):
        return None
    array, scale = constants[names[0]], constants[names[1]].astype(np.float32)
    zero = constants[names[2]] if len(names) > 2 else np.zeros((), array.dtype)
    if array.dtype.kind not in "iu" or zero.dtype.kind not in "iu" or scale.ndim > 1:
        return None
    if scale.ndim and scale.size > 1:
        axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
        if not array.ndim or scale.size != array.shape[axis % array.ndim] or zero.size not in (1, scale.size):
            return None  # which who reads the node refuses
        shape = [-1 if at == axis % array.ndim else 1 for at in range(array.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape if zero.size > 1 else ())
    else:
        scale, zero = scale.reshape(()), zero.reshape(())
    return ((array.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale).astype(np.float32)


def alike(first: NodeProto, second: NodeProto, constants: dict[str, NDArray[Any]]) -> bool:
    """Whether one takes back what the other does, with the same constants."""
    if second.op_type != "DequantizeLinear" or second.input[0] != first.output[0]:
        return False
    ours, theirs = ([constants.get(name) for name in node.input[1:] if name] for node in (first, second))
    return len(ours) == len(theirs) and all(
        a is not None and b is not None and np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)
    )


def _ends(node: NodeProto | None, constants: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
    """Between which numbers the result of a node lies, where it is a Clip with ends as operands."""
    names = [*node.input[1:], "", ""][:2] if node is not None and node.op_type == "Clip" else ["", ""]
    low, high = (float(constants[name].flat[0]) if name in constants else None for name in names)
    return -inf if low is None else low, inf if high is None else high


def cuts_below_0(node: NodeProto, constants: dict[str, NDArray[Any]]) -> bool:
    """Whether the zero point of a QuantizeLinear is the least that its type has."""
    zero = zero_of(node, constants)
    return zero.dtype.kind in "iu" and bool(np.all(zero == np.iinfo(zero.dtype).min))


def zero_of(node: NodeProto, constants: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The zero point of a QuantizeLinear."""
    return constants[node.input[2]] if len(node.input) > 2 and node.input[2] else zero_left_out(node)


def zero_left_out(node: NodeProto) -> NDArray[Any]:
    """The zero point of a QuantizeLinear that names none."""
    from onnx import TensorProto, helper

    element = next((item.i for item in node.attribute if item.name == "output_dtype"), 0)
    return np.zeros((), helper.tensor_dtype_to_np_dtype(element or TensorProto.UINT8))


def weights_before(
    name: str, makers: Mapping[str, NodeProto], constants: Mapping[str, NDArray[Any]]
) -> tuple[float, ...]:
    """The scales of the weights of which a tensor is made, a ReLU between or none (`pins.Pin`)."""
    node = makers.get(name)
    while node is not None and node.op_type in _BETWEEN:
        node = makers.get(node.input[0])
    if node is None or node.op_type not in ("Conv", "Gemm", "MatMul"):
        return ()
    source = makers.get(node.input[1])
    while source is not None and source.op_type in ("Transpose", "Reshape", "Identity"):
        source = makers.get(source.input[0])
    if source is None or source.op_type != "DequantizeLinear" or source.input[1] not in constants:
        return ()
    return scales_of(constants[source.input[1]])
