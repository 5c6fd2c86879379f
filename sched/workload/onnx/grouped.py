"""What `product` and `transpose` layers are in ONNX: functions of the model's own, of ONNX's operators.

| kind | function (domain meshloom) | operands |
|---|---|---|
| product | Product | a, b, their shapes [groups, channels, pixels], the result's, m / 2**17 |
| transpose | Transposed | x, its shape [groups, channels, pixels], the result's |

Tensors are uint8 with zero point 128, [1, C, H, W]. A product is a QLinearMatMul of each group, whose requantisation in
float32 is exact as that of QLinearConv is (`writer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from ..graph import Graph, Layer
from ..layers import SCALE_LIMIT
from .errors import Refused
from .normalising import DOMAIN

if TYPE_CHECKING:
    from onnx import FunctionProto

GroupedKind = Literal["product", "transpose"]
#: The function of each kind, its tensors, and its operands behind them.
FUNCTIONS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "product": ("Product", ("a", "b"), ("a_shape", "b_shape", "shape", "scale")),
    "transpose": ("Transposed", ("x",), ("x_shape", "shape")),
}
KINDS = frozenset(FUNCTIONS)
_BODIES = {
    "product": """
    groups = Reshape (a, a_shape)
    columns = Reshape (b, b_shape)
    rows = Transpose <perm = [0, 2, 1]> (columns)
    one = Constant <value = float {1.0}> ()
    zero = Constant <value = uint8 {128}> ()
    found = QLinearMatMul (rows, one, zero, groups, scale, zero, one, zero)
    y = Reshape (found, shape)
""",
    "transpose": """
    groups = Reshape (x, x_shape)
    turned = Transpose <perm = [0, 2, 1]> (groups)
    y = Reshape (turned, shape)
""",
}


def function(kind: str, opset: int) -> FunctionProto:
    """The definition of a kind's function."""
    from onnx import parser

    name, tensors, operands = FUNCTIONS[kind]
    head = f'<opset_import: ["" : {opset}], domain: "{DOMAIN}"> {name} ({", ".join((*tensors, *operands))}) => (y)'
    return parser.parse_function(head + " {" + _BODIES[kind] + "}")


def numbers(layer: Layer, graph: Graph) -> dict[str, NDArray[Any]]:
    """The operands of a layer's function behind its tensors, by name."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in zip(FUNCTIONS[layer.kind][1], layer.inputs, strict=True):
        value = graph.value(tensor)
        sizes = layer.groups, value.channels // layer.groups, value.height * value.width
        arrays[f"{name}_shape"] = np.array(sizes, np.int64)
    arrays["shape"] = np.array(graph.value(layer.output).shape, np.int64)
    if layer.kind == "product":
        arrays["scale"] = np.array(layer.scale / 2**SCALE_SHIFT, np.float32)
    return arrays


def layer_of(kind: GroupedKind, output: str, inputs: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> Layer:
    """The layer whose `numbers` those are. Raises Refused where there is none."""
    shapes = [arrays[name].tolist() for name in arrays if name.endswith("_shape")]
    if any(len(shape) != 3 or shape[0] != shapes[0][0] or shape[0] < 1 for shape in shapes):
        raise Refused(f"operands of shapes {shapes}; each must be [groups, channels, pixels] with the same groups")
    m = float(arrays["scale"]) * 2**SCALE_SHIFT if kind == "product" else 1.0
    if not m.is_integer() or not 1 <= m <= SCALE_LIMIT:
        raise Refused(f"scale m / 2^{SCALE_SHIFT} with m = {m:g}; it must be a whole number of 1..{SCALE_LIMIT}")
    groups, result = shapes[0][0], arrays["shape"].tolist()
    if kind == "transpose":
        if len(result) != 4:
            raise Refused(f"a result of shape {result}; it must be [1, channels, rows, columns]")
        return Layer(kind, output, inputs, groups=groups, rows=result[2])
    return Layer(kind, output, inputs, scale=int(m), groups=groups)
