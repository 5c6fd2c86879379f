"""Files whose activations have 16 bits: the chip has 8, so what rounds to 16 is taken out before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from .pairs import POSITIVE, alike, constants_of, cuts_below_0

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def without_wide_pairs(model: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """The model without pairs of QuantizeLinear and DequantizeLinear of 16 bits around activations, and what the first
    of each made; itself, and nothing, if it has none."""
    import onnx
    from onnx import helper

    constants = constants_of(model)
    makers = {output: node for node in model.graph.node for output in node.output}
    outputs = {value.name for value in model.graph.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    gone: dict[str, NodeProto] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants and _is_wide(node, constants):
            after = readers.get(node.output[0], [])
            if after and node.output[0] not in outputs and all(alike(node, other, constants) for other in after):
                gone[node.output[0]] = node
    if not gone:
        return model, ()
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in gone:
            first = gone[node.input[0]]
            source = makers.get(first.input[0])
            cuts = cuts_below_0(first, constants) and (source is None or source.op_type not in POSITIVE)
            operator = "Relu" if cuts else "Identity"
            copy.graph.node.append(helper.make_node(operator, [first.input[0]], list(node.output), node.name))
        elif node.op_type != "QuantizeLinear" or node.output[0] not in gone:
            copy.graph.node.append(node)
    return copy, tuple(gone)


def note_of_wide(pairs: int) -> str:
    """What is said of pairs that are taken out."""
    return (
        f"{f'{pairs} pairs' if pairs > 1 else '1 pair'} of QuantizeLinear and DequantizeLinear with 16 bits around "
        "activations are taken out, since the chip has 8: it is quantised as a float model, and compared with the file "
        "without them."
    )


def _is_wide(node: NodeProto, constants: Mapping[str, NDArray[Any]]) -> bool:
    from onnx import TensorProto

    if len(node.input) > 2 and node.input[2]:
        zero = constants.get(node.input[2])
        return zero is not None and zero.dtype.kind in "iu" and zero.dtype.itemsize == 2
    return any(
        item.name == "output_dtype" and item.i in (TensorProto.INT16, TensorProto.UINT16) for item in node.attribute
    )
