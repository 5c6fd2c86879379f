"""What is wrong with an ONNX file whatever it computes, found before anything is made of it.

Sizes come first: a few bytes of a file can ask for any amount of memory. Weights are not looked at, so that files of
any size are checked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import OnnxError
from .subgraphs import bodies, nodes_within

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

#: Numbers of tensors that a file has the sizes of and no data.
MOST_WITHOUT_DATA = 150_000_000
#: Operators of older sets mean other things (BatchNormalization, Add with `axis`).
OLDEST_OPSET = 7
#: Characters of a text of ONNX's own in a message.
_LONGEST = 400


def check_opset(model: ModelProto, name: str) -> None:
    """Raises OnnxError unless a model has one version of the standard operators, and that is known here."""
    import onnx

    versions = list(dict.fromkeys(item.version for item in model.opset_import if item.domain in ("", "ai.onnx")))
    newest = onnx.defs.onnx_opset_version()
    if len(versions) != 1 or not OLDEST_OPSET <= versions[0] <= newest:
        text = ", ".join(map(str, versions)) or "none"
        raise OnnxError(f"{name}: opset {text} must be one of {OLDEST_OPSET}..{newest}; export it with another opset")


def check_tensors(model: ModelProto, name: str) -> None:
    """Raises OnnxError, naming file and tensor, for data that do not have the shape that they should have."""
    from onnx import TensorProto, helper, numpy_helper

    empty = 0
    for tensor in _tensors(model):
        where = f"{name}: tensor {tensor.name!r} of shape {list(tensor.dims)}"
        if any(dim < 0 for dim in tensor.dims):
            raise OnnxError(f"{where}: has a negative size; export it again")
        if tensor.data_type not in helper.get_all_tensor_dtypes():
            raise OnnxError(f"{where}: has an unknown type ({tensor.data_type}); export it again")
        if prod(tensor.dims) and not _has_data(tensor):
            empty += prod(tensor.dims)
            if empty > MOST_WITHOUT_DATA:
                raise OnnxError(
                    f"{where}: has no data; the tensors of a file that have none may have {MOST_WITHOUT_DATA:,} "
                    "numbers in all: export it with its weights"
                )
            continue
        if tensor.data_type == TensorProto.STRING:
            continue
        try:
            numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise OnnxError(f"{where}: does not fit its data ({one_line(error)}); export it again") from error


def check_external(model: ModelProto, path: Path) -> None:
    """Raises OnnxError, naming the file, for weights in other files that are not there as they should be."""
    from onnx import TensorProto, helper

    for tensor in _tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        keys = {item.key: item.value for item in tensor.external_data}
        data = path.parent / keys.get("location", "")
        where = f"{path}: its weights {tensor.name!r} lie in {keys.get('location', '')!r}"
        try:
            if not data.is_file():
                raise OnnxError(f"{where}, which is no file; copy it beside the model")
            size = data.stat().st_size
            first, length = int(keys.get("offset", "0")), int(keys.get("length", "-1"))
            bits = 4 if "INT4" in TensorProto.DataType.Name(tensor.data_type) else 0
            bits = bits or helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8
        except OnnxError:
            raise
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise OnnxError(f"{where}, as no file can be ({one_line(error)}); export it again") from error
        bytes_ = -(-prod(tensor.dims) * bits // 8)
        length = bytes_ if length < 0 else length
        if any(dim < 0 for dim in tensor.dims) or length != bytes_ or not 0 <= first <= size - length:
            raise OnnxError(
                f"{where}, {length:,} bytes from {first:,} on; the file has {size:,}, the shape {list(tensor.dims)} "
                f"takes {bytes_:,}: export it again"
            )


def check_values(model: ModelProto, name: str) -> None:
    """Raises OnnxError for an input or an output that is no tensor of a known type."""
    from onnx import helper

    for value in (*model.graph.input, *model.graph.output):
        if not value.type.HasField("tensor_type"):
            if value.type.WhichOneof("value") is None:
                continue
            raise OnnxError(f"{name}: {value.name!r} is no tensor; export the model with tensors")
        element = value.type.tensor_type.elem_type
        if element and element not in helper.get_all_tensor_dtypes():
            raise OnnxError(f"{name}: {value.name!r} has an unknown type ({element}); export it again")


def check_structure(model: ModelProto, name: str) -> None:
    """Raises OnnxError for what ONNX's checker finds, in one line. A model with operators that it does not know is left
    to who reads it: they are all listed then."""
    import onnx

    light = without_weights(model)
    inner = [node for graph in (light.graph, *light.functions) for outer in graph.node for node in nodes_within(outer)]
    if not all(isinstance(text, str) for text in _names(light.graph, inner)):  # protobuf gives what is no text as bytes
        raise OnnxError(f"{name}: is damaged: a name in it is no text; export or copy it again")
    for value in light.graph.input:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            raise OnnxError(
                f"{name}: input {value.name!r} has no number of axes; export it with a shape (sizes may be open)"
            )
    own = {(function.domain, function.name) for function in light.functions}
    if any((node.domain, node.op_type) not in own and not _is_known(node) for node in inner):
        return
    for value in light.graph.output:
        value.type.tensor_type.shape.SetInParent()  # the checker wants some shape
    try:
        onnx.checker.check_model(light)  # pyright: ignore[reportUnknownMemberType]  (onnx leaves PathLike open)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as error:
        raise OnnxError(f"{name}: is not a valid ONNX model: {one_line(error)}; export it again") from error


def _names(graph: GraphProto, nodes: Iterable[NodeProto]) -> Iterator[object]:
    for item in (*graph.input, *graph.output, *graph.initializer):
        yield item.name
    for node in nodes:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def without_weights(model: ModelProto) -> ModelProto:
    """A copy with initialisers of no elements, without shapes of tensors between."""
    import onnx

    light = onnx.ModelProto()
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph, whole = light.graph, model.graph
    graph.name = whole.name or "graph"
    for item in whole.initializer:
        graph.initializer.append(onnx.TensorProto(name=item.name, data_type=item.data_type, dims=[0]))
    for field in ("input", "output", "node", "sparse_initializer", "quantization_annotation"):
        getattr(graph, field).extend(getattr(whole, field))
    return light


def one_line(error: Exception) -> str:
    """What an error of another library says, in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _is_known(node: NodeProto) -> bool:
    import onnx

    return onnx.defs.has(node.op_type, "" if node.domain == "ai.onnx" else node.domain)


def _has_data(tensor: TensorProto) -> bool:
    """Whether a tensor has any data, here or in another file."""
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    return bool(tensor.external_data) or any(len(getattr(tensor, field)) for field in fields)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    yield from _tensors_of(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of(graph: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    yield from getattr(graph, "initializer", ())
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for item in node.attribute:
            if item.HasField("t"):
                yield item.t
            yield from item.tensors
        for body in bodies(node):
            yield from _tensors_of(body)
