"""A folded float network as an ONNX model, for ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..graph import PlainKind, Window, pasted_pixels
from .floats import FloatLayer, FloatNet
from .nodes import Node
from .pointwise import MICROSOFT, OLDEST

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto


def float_model(net: FloatNet, given: Collection[str] = ()) -> ModelProto:
    """An ONNX model of the folded network, float32; every layer's result is an output.

    Tensors in `given` are inputs as well, as `<name>//given`, and layers read these instead.
    """
    from onnx import TensorProto, helper

    def source(name: str) -> str:
        return f"{name}//given" if name in given else name

    writer = _FloatWriter(net)
    for layer in net.layers:
        writer.write(layer, [source(name) for name in layer.inputs])
    sources = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *x.size)) for name, x in net.inputs.items()]
    read = dict.fromkeys(name for layer in net.layers for name in layer.inputs if name in given)
    sources += [helper.make_tensor_value_info(source(name), TensorProto.FLOAT, None) for name in read]
    results = [helper.make_tensor_value_info(layer.output, TensorProto.FLOAT, None) for layer in net.layers]
    graph = helper.make_graph(writer.nodes, net.name, sources, results, writer.initialisers)
    opsets = [helper.make_opsetid("", writer.opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True))


#: Operators that have no value for some numbers.
_PARTIAL = {"Acos", "Acosh", "Asin", "Atanh", "Div", "Log", "Pow", "Sqrt"}


class _FloatWriter:
    """The nodes and constants so far, and the opset that they need."""

    def __init__(self, net: FloatNet) -> None:
        self.net, self.opset = net, OLDEST
        self.nodes: list[Node] = []
        self.initialisers: list[TensorProto] = []

    def node(self, operator: str, inputs: list[str], output: str, name: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], name, **attributes))
        return output

    def constant(self, name: str, numbers: ArrayLike, kind: type[np.float32 | np.int64] = np.float32) -> str:
        from onnx import numpy_helper

        self.initialisers.append(numpy_helper.from_array(np.asarray(numbers, kind), name))
        return name

    def write(self, layer: FloatLayer, inputs: list[str]) -> None:
        """Nodes of a layer that reads tensors `inputs`."""
        least, most = max(0.0 if layer.relu else -inf, layer.range[0]), min(layer.clamp, layer.range[1])
        clipped = least > -inf or most < inf
        output = f"{layer.output}//full" if clipped else layer.output
        _KINDS[layer.kind](self, layer, inputs, output)
        if clipped:
            low = self.constant(f"{layer.output}//low", least)
            high = self.constant(f"{layer.output}//high", most)
            self.node("Clip", [output, low, high], layer.output)


def _window(w: Window) -> Mapping[str, list[int]]:
    return {
        "kernel_shape": [w.kernel_h, w.kernel_w],
        "strides": [w.stride_h, w.stride_w],
        "pads": [w.pad_top, w.pad_left, w.pad_bottom, w.pad_right],
    }


def _conv(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    assert layer.w is not None
    assert layer.bias is not None
    inputs += [
        writer.constant(f"{layer.output}//w", layer.w),
        writer.constant(f"{layer.output}//bias", layer.bias),
    ]
    group, dilations = 1 if layer.kind == "conv" else len(layer.bias), [layer.window.dilation] * 2
    writer.node("Conv", inputs, output, layer.output, group=group, dilations=dilations, **_window(layer.window))


def _max_pool(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    dilations = [layer.window.dilation] * 2
    writer.node("MaxPool", inputs, output, layer.output, dilations=dilations, **_window(layer.window))


def _average_pool(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    mean = output if layer.gain == 1 else f"{layer.output}//mean"
    writer.node("AveragePool", inputs, mean, mean, count_include_pad=1, **_window(layer.window))
    if layer.gain != 1:
        writer.node("Mul", [mean, writer.constant(f"{layer.output}//gain", layer.gain)], output, layer.output)


def _of_two(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    writer.node(layer.kind.capitalize(), inputs, output, layer.output)


def _table(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    """0 where the function has no value, as the chip's: the file may not ask for it there."""
    assert layer.function is not None
    writer.opset = max(writer.opset, layer.function.opset)
    partial = any(node.op_type in _PARTIAL for node in layer.function.nodes)
    result = f"{layer.output}//value" if partial else output
    nodes, constants = layer.function.within(f"{layer.output}//", inputs[0], result)
    writer.nodes += nodes
    writer.initialisers += constants
    if partial:
        none, zero = f"{layer.output}//none", writer.constant(f"{layer.output}//zero", 0.0)
        writer.node("Where", [writer.node("IsNaN", [result], none), zero, result], output)


def _normalise(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    """Over all rows and columns; the nodes mean the same in every opset."""
    name, (x,) = layer.output, inputs

    def node(operator: str, operands: list[str], part: str) -> str:
        return writer.node(operator, operands, f"{name}//{part}", f"{name}//{part}")

    match layer.by:
        case "max" | "mean":
            number = node("GlobalMaxPool" if layer.by == "max" else "GlobalAveragePool", [x], "found")
            writer.node("Sub", [x, number], output, name)
        case "sum":
            _, rows, columns = writer.net.sizes[name]
            pixels = writer.constant(f"{name}//pixels", float(rows * columns))
            total = node("Mul", [node("GlobalAveragePool", [x], "mean"), pixels], "found")
            writer.node("Div", [x, total], output, name)
        case _:
            mean = node("GlobalAveragePool", [node("Mul", [x, x], "squares")], "mean")
            above = node("Add", [mean, writer.constant(f"{name}//epsilon", layer.epsilon)], "above")
            writer.node("Div", [x, node("Sqrt", [above], "found")], output, name)


def _grouped(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    """A product (with a gain) or a transpose, channels and pixels of each group being a matrix."""
    net, name = writer.net, layer.output
    sizes = [net.sizes[x] if x in net.sizes else net.inputs[x].size for x in layer.inputs]
    shapes = [*((layer.groups, c // layer.groups, h * w) for c, h, w in sizes), (1, *net.sizes[name])]
    names = [writer.constant(f"{name}//shape{index}", shape, np.int64) for index, shape in enumerate(shapes)]
    gain = writer.constant(f"{name}//gain", layer.gain) if layer.kind == "product" else ""
    *matrices, last = [
        writer.node("Reshape", [x, shape], f"{name}//matrix{index}")
        for index, (x, shape) in enumerate(zip(inputs, names, strict=False))
    ]
    result = writer.node("Transpose", [last], f"{name}//turned", perm=[0, 2, 1])
    if gain:
        sums = writer.node("MatMul", [result, matrices[0]], f"{name}//sums")
        result = writer.node("Mul", [sums, gain], f"{name}//result")
    writer.node("Reshape", [result, names[-1]], output, name)


def _concat(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    writer.node("Concat", inputs, output, layer.output, axis=1)


def _slice(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    w = layer.window
    ends = tuple(-pad or 1 << 30 for pad in (w.pad_bottom, w.pad_right))
    numbers = {"starts": (w.pad_top, w.pad_left), "ends": ends, "axes": (2, 3), "steps": (w.stride_h, w.stride_w)}
    inputs += [writer.constant(f"{layer.output}//{name}", pair, np.int64) for name, pair in numbers.items()]
    writer.node("Slice", inputs, output, layer.output)


def _paste(writer: _FloatWriter, layer: FloatLayer, inputs: list[str], output: str) -> None:
    row = writer.constant(f"{output}//row", (1, 0, -1), np.int64)
    indices = writer.constant(f"{output}//indices", pasted_pixels(layer.places), np.int64)
    rows = [writer.node("Reshape", [x, row], f"{output}//pixels{index}") for index, x in enumerate(inputs)]
    pixels = writer.node("Concat", rows, f"{output}//pixels", axis=2)
    writer.node("Gather", [pixels, indices], output, axis=2)


_KINDS: Mapping[PlainKind, Callable[[_FloatWriter, FloatLayer, list[str], str], None]] = {
    "add": _of_two,
    "average_pool": _average_pool,
    "concat": _concat,
    "conv": _conv,
    "depthwise": _conv,
    "max_pool": _max_pool,
    "mul": _of_two,
    "normalise": _normalise,
    "paste": _paste,
    "product": _grouped,
    "slice": _slice,
    "table": _table,
    "transpose": _grouped,
}
