"""A network as an integer ONNX model that computes, in ONNX Runtime, every tensor to the last bit as the chip does.

Tensors are uint8 with zero point 128, which is int8 with the top bit flipped, weights too: the kernels of ONNX Runtime
for unsigned operands widen before they multiply, those for mixed signs saturate pairs of products on x86 processors
without VNNI. The quantisation parameters of activations are 1 and those of weights m / 2**17, so that requantisation in
float32 is exact (docs/architecture.md, "Numbers": the product has at most 24 significant bits wherever it does not
saturate). What steps really stand for is metadata (`metadata`).

| layer | nodes |
|---|---|
| conv, depthwise | QLinearConv, with a bias; with scales by channel one weight scale for each filter |
| average_pool | QLinearConv of ones with a group for each channel, without a bias |
| max_pool | MaxPool |
| add | Cast to int32, Add, Sub of a zero point, Clip, Cast back |
| concat | Concat |
| slice | Slice |
| paste | Reshape to rows of pixels, Concat, Gather |
| table | Cast to int32, Gather from the table |
| mul | QLinearMul (com.microsoft), with second scale m / 2**17, or a function of the model's own (`multiplying`) |
| upsample | Resize, nearest |
| normalise | a function of the model's own (`normalising`) |
| product, transpose | a function of the model's own (`grouped`) |

and a Clip after those that have relu or clamp.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from ...support.files import write_atomically
from ..graph import MOVED, By, Graph, Layer, pasted_pixels
from ..layers import NO_CLAMP
from . import grouped, multiplying, normalising
from .metadata import KEY, Metadata

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

OPSET, IR_VERSION = 13, 8
#: Domain of QLinearMul.
MICROSOFT = "com.microsoft"
_ZERO, _ONE = "zero_point", "one"


def flip(array: NDArray[np.int8]) -> NDArray[np.uint8]:
    """int8 to the uint8 that is 128 more."""
    return np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(0x80)


def unflip(array: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The inverse of `flip`."""
    return (array ^ np.uint8(0x80)).view(np.int8)


def to_onnx(graph: Graph, *, all_outputs: bool = False) -> ModelProto:
    """The integer model; its inputs and outputs are uint8 with zero point 128 and have the names of the graph's.

    `all_outputs`: every layer's result is an output of the model.
    """
    from onnx import TensorProto, helper

    writer = _Writer(graph)
    for layer in graph.layers:
        writer.add(layer)
    names = [layer.output for layer in graph.layers] if all_outputs else graph.outputs
    opsets = [helper.make_opsetid("", OPSET)]
    domains = {node.domain for node in writer.nodes}
    opsets += [helper.make_opsetid(domain, 1) for domain in (MICROSOFT, normalising.DOMAIN) if domain in domains]
    ways: dict[By, None] = dict.fromkeys(layer.by for layer in graph.layers if layer.by is not None)
    model = helper.make_model(
        helper.make_graph(
            writer.nodes,
            graph.name,
            [helper.make_tensor_value_info(value.name, TensorProto.UINT8, value.shape) for value in graph.inputs],
            [helper.make_tensor_value_info(name, TensorProto.UINT8, graph.value(name).shape) for name in names],
            writer.initialisers,
        ),
        opset_imports=opsets,
        ir_version=IR_VERSION,
        functions=[
            *(normalising.function(by, OPSET) for by in ways),
            *(grouped.function(kind, OPSET) for kind in sorted(grouped.KINDS & {layer.kind for layer in graph.layers})),
            *([multiplying.function(OPSET)] if any(node.op_type == multiplying.NAME for node in writer.nodes) else []),
        ],
        producer_name="meshloom",
    )
    helper.set_model_props(model, {KEY: Metadata.of(graph).model_dump_json()})
    return model


def save(graph: Graph, path: str | Path) -> None:
    """Writes `to_onnx(graph)`; the same graph gives the same bytes. Raises WriteError."""
    write_atomically(Path(path), to_onnx(graph).SerializeToString(deterministic=True))


class _Writer:
    """Nodes and initialisers of a graph; names inside a layer begin with the layer's name."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[NodeProto] = []
        self.initialisers: list[TensorProto] = []
        self._taken = set(graph.values)
        self._constants: dict[tuple[str, bytes], str] = {}
        self.zero = self.constant(_ZERO, np.array(128, np.uint8))
        self.one = self.constant(_ONE, np.array(1, np.float32))

    def fresh(self, name: str) -> str:
        """A tensor name that is not taken."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Name of an initialiser with these contents; small ones are shared."""
        from onnx import numpy_helper

        key = (f"{array.dtype}{array.shape}", array.tobytes())
        if array.size > 4 or key not in self._constants:
            self._constants[key] = self.fresh(name)
            self.initialisers.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def add(self, layer: Layer) -> None:
        """The nodes of one layer."""
        clipped = layer.kind not in ("add", "normalise", *MOVED) and (layer.relu or layer.clamp != NO_CLAMP)
        output = self.fresh(f"{layer.output}/full") if clipped else layer.output
        low, high = (128 if layer.relu else 0), 128 + layer.clamp
        match layer.kind:
            case "conv" | "depthwise" | "average_pool":
                self._conv(layer, output)
            case "max_pool":
                self.node("MaxPool", [layer.inputs[0]], output, **_window(layer))
            case "add":
                self._add(layer, low, high)
            case "concat":
                self.node("Concat", list(layer.inputs), output, axis=1)
            case "slice":
                self._slice(layer)
            case "paste":
                self._paste(layer)
            case "table":
                self._table(layer, output)
            case "mul":
                scale = np.array(layer.scale / 2 ** (SCALE_SHIFT - 4 * layer.times16), np.float32)
                a, b = layer.inputs
                if layer.times16 or multiplying.is_exact(layer.scale):
                    second = self.constant(f"{layer.output}/scale", scale)
                    operands = [a, self.one, self.zero, b, second, self.zero, self.one, self.zero]
                    self.node("QLinearMul", operands, output, domain=MICROSOFT)
                else:
                    factor = self.constant(f"{layer.output}/scale", scale.astype(np.float64))
                    self.node(multiplying.NAME, [a, b, factor], output, domain=normalising.DOMAIN)
            case "normalise":
                assert layer.by is not None  # the graph has checked it
                arrays = {name: np.array(number) for name, number in normalising.numbers(layer).items()}
                operands = [self.constant(f"{layer.output}/{name}", number) for name, number in arrays.items()]
                way, _ = normalising.FUNCTIONS[layer.by]
                self.node(way, [layer.inputs[0], *operands], output, domain=normalising.DOMAIN)
            case "product" | "transpose":
                arrays = grouped.numbers(layer, self.graph)
                operands = [self.constant(f"{layer.output}/{name}", number) for name, number in arrays.items()]
                name = grouped.FUNCTIONS[layer.kind][0]
                self.node(name, [*layer.inputs, *operands], output, domain=normalising.DOMAIN)
            case "upsample":
                factors = np.array([1, 1, layer.repeat, layer.repeat], np.float32)
                scales = self.constant(f"{layer.output}/scales", factors)
                how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                self.node("Resize", [layer.inputs[0], "", scales], output, **how)
        if clipped:
            bounds = [self.constant(f"at_{bound}", np.array(bound, np.uint8)) for bound in (low, high)]
            self.node("Clip", [output, *bounds], layer.output)

    def _conv(self, layer: Layer, output: str) -> None:
        channels = self.graph.value(layer.inputs[0]).channels
        w = layer.w
        if w is None:
            w = np.ones((channels, 1, layer.window.kernel_h, layer.window.kernel_w), np.int8)
        numbers = layer.scale if layer.scales is None else layer.scales
        name = f"scale_{layer.scale}" if layer.scales is None else f"{layer.output}/scales"
        scale = self.constant(name, np.array(numbers / 2**SCALE_SHIFT, np.float32))
        weights = self.constant(f"{layer.output}/w", flip(w))
        operands = [layer.inputs[0], self.one, self.zero, weights, scale, self.zero, self.one, self.zero]
        if layer.bias is not None:
            operands.append(self.constant(f"{layer.output}/bias", layer.bias))
        group = 1 if layer.kind == "conv" else channels
        self.node("QLinearConv", operands, output, group=group, **_window(layer))

    def _add(self, layer: Layer, low: int, high: int) -> None:
        from onnx import TensorProto

        name = layer.output
        wide = [
            self.node("Cast", [source], self.fresh(f"{name}/{side}"), to=TensorProto.INT32)
            for source, side in zip(layer.inputs, "ab", strict=True)
        ]
        both = self.node("Add", wide, self.fresh(f"{name}/sum"))
        zero = self.constant("zero_point_int32", np.array(128, np.int32))
        once = self.node("Sub", [both, zero], self.fresh(f"{name}/shifted"))
        bounds = [self.constant(f"at_{bound}_int32", np.array(bound, np.int32)) for bound in (low, high)]
        clipped = self.node("Clip", [once, *bounds], self.fresh(f"{name}/clipped"))
        self.node("Cast", [clipped], name, to=TensorProto.UINT8)

    def _table(self, layer: Layer, output: str) -> None:
        from onnx import TensorProto

        assert layer.table is not None
        index = self.node("Cast", [layer.inputs[0]], self.fresh(f"{layer.output}/index"), to=TensorProto.INT32)
        self.node("Gather", [self.constant(f"{layer.output}/table", flip(layer.table)), index], output)

    def _slice(self, layer: Layer) -> None:
        x, window = self.graph.value(layer.inputs[0]), layer.window
        numbers = {
            "starts": (window.pad_top, window.pad_left),
            "ends": (x.height - window.pad_bottom, x.width - window.pad_right),
            "axes": (2, 3),
            "steps": (window.stride_h, window.stride_w),
        }
        operands = [self.constant(f"{layer.output}/{name}", np.array(pair)) for name, pair in numbers.items()]
        self.node("Slice", [layer.inputs[0], *operands], layer.output)

    def _paste(self, layer: Layer) -> None:
        name = layer.output
        line = self.constant("one_row", np.array((1, self.graph.value(name).channels, -1)))
        rows = [
            self.node("Reshape", [source, line], self.fresh(f"{name}/pixels{index}"))
            for index, source in enumerate(layer.inputs)
        ]
        pixels = self.node("Concat", rows, self.fresh(f"{name}/pixels"), axis=2)
        indices = self.constant(f"{name}/indices", pasted_pixels(layer.places))
        self.node("Gather", [pixels, indices], name, axis=2)


def _window(layer: Layer) -> dict[str, list[int]]:
    w = layer.window
    return {
        "kernel_shape": [w.kernel_h, w.kernel_w],
        "strides": [w.stride_h, w.stride_w],
        "pads": [w.pad_top, w.pad_left, w.pad_bottom, w.pad_right],
        "dilations": [w.dilation, w.dilation],
    }
