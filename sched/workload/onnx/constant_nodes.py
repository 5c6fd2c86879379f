"""Single nodes of constants: the shapes of their results, and these themselves, as long as they are not too large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from .bounds import check_size
from .errors import OnnxError, Refused
from .runtime import evaluate

if TYPE_CHECKING:
    from onnx import NodeProto, TypeProto

#: Operators whose results may be much larger than what they read; the size follows from numbers that they read.
_GROWING = {
    "CenterCropPad", "Col2Im", "ConstantOfShape", "Expand", "MaxUnpool", "OneHot", "Pad", "Range", "Resize", "Tile",
    "Upsample",
}  # fmt: skip
#: Operators whose results are drawn.
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
#: Constants up to this size may be numbers that shapes follow from.
_SMALL = 1 << 12


def computable(node: NodeProto) -> bool:
    """Whether the results of a node follow from its operands alone."""
    standard = node.domain in ("", "ai.onnx")
    return standard and node.op_type not in _RANDOM and not any(item.HasField("g") for item in node.attribute)


def result_types(
    node: NodeProto, types: Mapping[str, TypeProto], constants: Mapping[str, NDArray[Any]], opset: int
) -> dict[str, TypeProto]:
    """Types of a node's results as far as ONNX's shape inference knows them; none where it fails.

    `types`: of its operands; `constants`: those of them whose values are known.
    """
    import onnx
    from onnx import helper, numpy_helper, shape_inference

    names = [name for name in node.input if name]
    if any(name not in types for name in names) or any(dim < 0 for name in names for dim in sizes(types[name]) or ()):
        return {}
    data = {
        name: numpy_helper.from_array(constants[name])
        for name in names
        if name in constants and constants[name].size <= _SMALL and constants[name].dtype.kind in "iufb"
    }
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "" if node.domain == "ai.onnx" else node.domain)
        return shape_inference.infer_node_outputs(
            schema, node, {name: types[name] for name in names}, data, opset_imports=[helper.make_opsetid("", opset)]
        )
    except (
        onnx.defs.SchemaError,
        shape_inference.InferenceError,
        onnx.checker.ValidationError,
        RuntimeError,
        ValueError,
    ):
        return {}


def sizes(kind: TypeProto) -> tuple[int, ...] | None:
    """The shape of a tensor's type; None where it is not known completely."""
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def type_of(array: NDArray[Any]) -> TypeProto:
    """The type of a constant."""
    from onnx import helper

    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def computed(node: NodeProto, constants: Mapping[str, NDArray[Any]], opset: int) -> dict[str, NDArray[Any]]:
    """The results of a node whose operands are all constants, by name. Raises Refused where a result has too many
    elements, or ONNX Runtime cannot compute it."""
    from onnx import helper

    feeds = {name: constants[name] for name in node.input if name}
    try:
        types = {name: type_of(array) for name, array in feeds.items()}
    except (KeyError, ValueError, TypeError) as error:
        raise Refused(f"of constants of a type that numbers do not have ({error})") from error
    types_of_results = result_types(node, types, feeds, opset)
    for name in node.output:
        size = sizes(types_of_results[name]) if name in types_of_results else None
        if size is None and node.op_type in _GROWING:
            raise Refused("of constants: the size of its result is not known before; simplify the model first")
        if size is not None:
            check_size(size, "of constants: its result")
    values = [helper.make_value_info(name, kind) for name, kind in types.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "constant", values, results)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True))
    try:
        return evaluate(model, feeds)
    except OnnxError as error:
        text = " ".join(str(error).split()) or "no reason is given"
        raise Refused(f"of constants cannot be computed ({text}); simplify the model first") from error
