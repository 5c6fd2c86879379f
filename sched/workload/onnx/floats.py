"""A float network in the form of `workload.graph`: what is left of a float ONNX model when everything is folded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import By, Place, PlainKind, Window, pasted_pixels
from .pointwise import MICROSOFT, OLDEST, Function

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Gain and offset for each channel.
PerChannel = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass
class FloatLayer:
    """`workload.graph.Layer` in real numbers: `clamp` and weights are real, average pools are true averages.

    `w` float64 [O, C, KH, KW] (depthwise [C, 1, KH, KW]) and `bias` float64 [O] of conv and depthwise. `moves`: its
    weights are 0 and at most one 1 in each filter, so that its result is its operand moved, in integers too.
    `function`: of a table. `by`, `groups`, `rows`: of a normalise, a product, a transpose. `gain`: what the sums of a
    product and the means of an average pool are multiplied by. `epsilon`: what a root mean square has added to the mean
    of the squares. `gone`: its least numbers stand for scores that a mask takes out; no step has to reach them.
    """

    kind: PlainKind
    output: str
    inputs: tuple[str, ...]
    window: Window = field(default_factory=Window)
    relu: bool = False
    clamp: float = inf
    w: NDArray[np.float64] | None = None
    bias: NDArray[np.float64] | None = None
    places: tuple[Place, ...] = ()
    moves: bool = False
    function: Function | None = None
    by: By | None = None
    groups: int = 1
    rows: int = 1
    gain: float = 1.0
    epsilon: float = 0.0
    gone: bool = False


@dataclass(frozen=True, eq=False)
class Source:
    """An input: its size as a value (channels, rows, columns), its shape in the model, and for each of its elements
    there the number in the value (None: the same order)."""

    size: tuple[int, int, int]
    shape: tuple[int, ...]
    index: NDArray[np.int64] | None = None

    def placed(self, array: NDArray[Any]) -> NDArray[Any] | None:
        """The value [1, C, H, W] of an array that is one already (of one pixel also [1, C]), or has the model's shape;
        None for others."""
        shape = (1, *self.size)
        if array.shape == shape or (array.shape == shape[:2] and shape[2:] == (1, 1)):
            return array.reshape(shape)
        return self.value(array) if array.shape == self.shape else None

    def value(self, array: NDArray[Any]) -> NDArray[Any]:
        """The value [1, C, H, W] of the model's array."""
        found = np.empty(self.size, array.dtype)
        found.reshape(-1)[slice(None) if self.index is None else self.index.ravel()] = array.ravel()
        return found[None]

    def array(self, value: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `value`."""
        flat = value.ravel()
        return (flat if self.index is None else flat[self.index]).reshape(self.shape)


@dataclass
class FloatNet:
    """Layers in an order in which every input is made before it is used.

    `inputs`: by name. `outputs` and the ONNX tensors that they were (`origins`), for
    comparison. `normalise`: for inputs that the model normalises itself, gain and offset of each channel; the network
    takes gain * x + offset where the model takes x. `shapes`: what the ONNX tensors were taken for, those without
    padding that is still to come, in the order of the nodes. `orders`: of ONNX tensors that hold a layer's result in
    another order, the number in the result of each element. `sizes`: channels, rows, columns of every layer's result.
    `values`: of ONNX tensors the value that they are elements of.
    """

    name: str
    inputs: dict[str, Source]
    layers: list[FloatLayer]
    outputs: list[str]
    origins: list[str]
    normalise: dict[str, PerChannel] = field(default_factory=dict[str, PerChannel])
    notes: list[str] = field(default_factory=list[str])
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    orders: dict[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    values: dict[str, str] = field(default_factory=dict[str, str])

    def users(self, name: str) -> list[FloatLayer]:
        """The layers that read a tensor."""
        return [layer for layer in self.layers if name in layer.inputs]

    def feed(self, name: str, array: NDArray[np.floating]) -> NDArray[np.float32]:
        """The network's input for an input of the ONNX model, both [1, C, H, W]."""
        return normalised(self.normalise, name, array.reshape(1, *self.inputs[name].size))


def normalised(normalise: Mapping[str, PerChannel], name: str, array: NDArray[np.floating]) -> NDArray[np.float32]:
    """An input [1, C, H, W] with the gain and the offset of each channel, if it has any."""
    x = array.astype(np.float64)
    if name in normalise:
        gain, offset = (numbers[:, None, None] for numbers in normalise[name])
        x = gain * x + offset
    return x.astype(np.float32)


def _normalised(
    layer: FloatLayer, x: str, y: str, size: tuple[int, int, int], constant: Callable[[str, NDArray[Any]], str]
) -> list[NodeProto]:
    """Nodes of a `normalise`, over all rows and columns; they mean the same in every opset."""
    from onnx import helper

    name = layer.output
    nodes: list[NodeProto] = []

    def node(operator: str, inputs: list[str], part: str) -> str:
        output = part and f"{name}//{part}"
        nodes.append(helper.make_node(operator, inputs, [output or y], output or name))
        return output or y

    match layer.by:
        case "max" | "mean":
            found = node("GlobalMaxPool" if layer.by == "max" else "GlobalAveragePool", [x], "found")
            node("Sub", [x, found], "")
        case "sum":
            pixels = constant(f"{name}//pixels", np.array(float(size[1] * size[2])))
            node("Div", [x, node("Mul", [node("GlobalAveragePool", [x], "mean"), pixels], "found")], "")
        case _:
            mean = node("GlobalAveragePool", [node("Mul", [x, x], "squares")], "mean")
            above = node("Add", [mean, constant(f"{name}//epsilon", np.array(layer.epsilon))], "above")
            node("Div", [x, node("Sqrt", [above], "found")], "")
    return nodes


def _grouped(inputs: list[str], shapes: list[str], gain: str, name: str, y: str) -> list[NodeProto]:
    """Nodes of a `product` (with a gain) or a `transpose`, channels and pixels of each group being a matrix."""
    from onnx import helper

    *matrices, last = [
        helper.make_node("Reshape", [tensor, shape], [f"{name}//matrix{index}"])
        for index, (tensor, shape) in enumerate(zip(inputs, shapes, strict=False))
    ]
    turned, result = f"{name}//turned", f"{name}//result"
    nodes = [*matrices, last, helper.make_node("Transpose", [last.output[0]], [turned], perm=[0, 2, 1])]
    if not gain:
        return [*nodes, helper.make_node("Reshape", [turned, shapes[-1]], [y], name)]
    product = helper.make_node("MatMul", [turned, matrices[0].output[0]], [f"{name}//sums"])
    scaled = helper.make_node("Mul", [product.output[0], gain], [result])
    return [*nodes, product, scaled, helper.make_node("Reshape", [result, shapes[-1]], [y], name)]


def float_model(net: FloatNet, given: Collection[str] = ()) -> ModelProto:
    """An ONNX model of the folded network, float32; every layer's result is an output.

    Tensors in `given` are inputs as well, as `<name>//given`, and layers read these instead.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[NodeProto] = []
    initialisers: list[TensorProto] = []
    opset = OLDEST

    def constant(name: str, array: NDArray[np.floating]) -> str:
        initialisers.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def source(name: str) -> str:
        return f"{name}//given" if name in given else name

    for layer in net.layers:
        clipped = layer.relu or layer.clamp < inf
        output = f"{layer.output}//full" if clipped else layer.output
        w = layer.window
        window: dict[str, Any] = {
            "kernel_shape": [w.kernel_h, w.kernel_w],
            "strides": [w.stride_h, w.stride_w],
            "pads": [w.pad_top, w.pad_left, w.pad_bottom, w.pad_right],
        }
        inputs = [source(name) for name in layer.inputs]
        match layer.kind:
            case "conv" | "depthwise":
                assert layer.w is not None
                assert layer.bias is not None
                inputs += [constant(f"{layer.output}//w", layer.w), constant(f"{layer.output}//bias", layer.bias)]
                group = 1 if layer.kind == "conv" else len(layer.bias)
                dilations = [w.dilation] * 2
                nodes.append(
                    helper.make_node("Conv", inputs, [output], layer.output, group=group, dilations=dilations, **window)
                )
            case "max_pool":
                nodes.append(
                    helper.make_node("MaxPool", inputs, [output], layer.output, dilations=[w.dilation] * 2, **window)
                )
            case "average_pool":
                mean = output if layer.gain == 1 else f"{layer.output}//mean"
                nodes.append(helper.make_node("AveragePool", inputs, [mean], mean, count_include_pad=1, **window))
                if layer.gain != 1:
                    gain = constant(f"{layer.output}//gain", np.array(layer.gain))
                    nodes.append(helper.make_node("Mul", [mean, gain], [output], layer.output))
            case "add" | "mul":
                nodes.append(helper.make_node(layer.kind.capitalize(), inputs, [output], layer.output))
            case "table":
                assert layer.function is not None
                opset = max(opset, layer.function.opset)
                parts, numbers = layer.function.within(f"{layer.output}//", inputs[0], output)
                nodes += parts
                initialisers += numbers
            case "normalise":
                nodes += _normalised(layer, inputs[0], output, net.sizes[layer.output], constant)
            case "product" | "transpose":
                sizes = [net.sizes[name] if name in net.sizes else net.inputs[name].size for name in layer.inputs]
                shapes = [(layer.groups, c // layer.groups, h * w) for c, h, w in sizes] + [
                    (1, *net.sizes[layer.output])
                ]
                names = [f"{layer.output}//shape{index}" for index in range(len(shapes))]
                initialisers += [
                    numpy_helper.from_array(np.array(shape, np.int64), name)
                    for shape, name in zip(shapes, names, strict=True)
                ]
                gain = constant(f"{layer.output}//gain", np.array(layer.gain)) if layer.kind == "product" else ""
                nodes += _grouped(inputs, names, gain, layer.output, output)
            case "concat":
                nodes.append(helper.make_node("Concat", inputs, [output], layer.output, axis=1))
            case "slice":
                ends = tuple(-pad or 1 << 30 for pad in (w.pad_bottom, w.pad_right))
                numbers = ((w.pad_top, w.pad_left), ends, (2, 3), (w.stride_h, w.stride_w))
                for name, pair in zip(("starts", "ends", "axes", "steps"), numbers, strict=True):
                    initialisers.append(numpy_helper.from_array(np.array(pair, np.int64), f"{layer.output}//{name}"))
                    inputs.append(f"{layer.output}//{name}")
                nodes.append(helper.make_node("Slice", inputs, [output], layer.output))
            case "paste":
                shape, indices = f"{output}//row", f"{output}//indices"
                initialisers.append(numpy_helper.from_array(np.array((1, 0, -1)), shape))
                initialisers.append(numpy_helper.from_array(pasted_pixels(layer.places), indices))
                rows = [f"{output}//pixels{index}" for index in range(len(inputs))]
                nodes += [helper.make_node("Reshape", [x, shape], [row]) for x, row in zip(inputs, rows, strict=True)]
                nodes.append(helper.make_node("Concat", rows, [f"{output}//pixels"], axis=2))
                nodes.append(helper.make_node("Gather", [f"{output}//pixels", indices], [output], axis=2))
        if clipped:
            low = constant(f"{layer.output}//low", np.array(0.0 if layer.relu else -inf))
            high = constant(f"{layer.output}//high", np.array(layer.clamp))
            nodes.append(helper.make_node("Clip", [output, low, high], [layer.output]))
    sources = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *x.size)) for name, x in net.inputs.items()]
    read = dict.fromkeys(name for layer in net.layers for name in layer.inputs if name in given)
    sources += [helper.make_tensor_value_info(source(name), TensorProto.FLOAT, None) for name in read]
    results = [helper.make_tensor_value_info(layer.output, TensorProto.FLOAT, None) for layer in net.layers]
    graph = helper.make_graph(nodes, net.name, sources, results, initialisers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True))
