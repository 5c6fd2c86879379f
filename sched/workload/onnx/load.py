"""ONNX files as checked models for one picture with all shapes known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .bounds import check_size
from .contributed import without_contributed
from .errors import NodeRefusal, OnnxError, Refused, UnsupportedError, node_name, operator_name
from .functions import without_calls
from .known_tensors import KnownTensors
from .logarithms import join_logarithms_of_sums
from .nodes import attributes
from .own_names import give_own_names
from .packed_weights import with_whole_weights
from .single_floats import make_floats_single
from .sparse_weights import fill_sparse_weights
from .subgraphs import put_in_order, reads
from .tabular import give_tensors_for_maps
from .validity import check_external, check_opset, check_structure, check_tensors, check_values, one_line

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

#: Operators that only integer models have.
_INTEGER = {
    "ConvInteger", "MatMulInteger", "QGemm", "QLinearAdd", "QLinearConv", "QLinearMatMul", "QLinearMul",
}  # fmt: skip
#: Operators that only float models have, whatever the type of their inputs.
_FLOAT = {"Conv", "Gemm", "MatMul", "BatchNormalization", "Relu", "GlobalAveragePool", "Softmax"}


def load_model(path: str | Path) -> ModelProto:
    """The model in a file, with external weights. Raises OnnxError when it is missing, damaged or no ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError
    from onnx.external_data_helper import load_external_data_for_model

    path = Path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OnnxError(f"{path}: is a device, a pipe or a socket; give an ONNX file")
        content = path.read_bytes()
    except OSError as error:
        raise OnnxError(f"{path}: cannot be read: {error.strerror}; give an ONNX file") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise OnnxError(f"{path}: is damaged or not an ONNX file ({error}); export or copy it again") from error
    if not model.ir_version or not model.graph.node:
        raise OnnxError(f"{path}: is not an ONNX model, or one without nodes; export it again")
    try:
        check_external(model, path)
        load_external_data_for_model(model, str(path.parent))
        return in_standard_form(model, str(path))
    except OnnxError:
        raise
    except (UnicodeDecodeError, TypeError) as error:
        raise OnnxError(f"{path}: is damaged: a name in it is no text; export or copy it again") from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise OnnxError(f"{path}: its weights lie in another file that cannot be read: {one_line(error)}") from error


def in_standard_form(model: ModelProto, name: str) -> ModelProto:
    """A model, which is changed, as one whose operators are standard ones, with names and types that can be read.
    `name` is for messages. Raises OnnxError for what no model has, and for what is not known of other operators."""
    put_in_order(model.graph)
    _open_negative_sizes(model)
    give_tensors_for_maps(model)
    for check_ in (check_opset, check_tensors, check_values, check_structure):
        check_(model, name)
    fill_sparse_weights(model, name)
    flat = without_calls(model, name)
    give_own_names(flat, name)
    whole = with_whole_weights(flat, name)
    make_floats_single(whole)
    join_logarithms_of_sums(whole)
    return without_contributed(whole, name)


def _open_negative_sizes(model: ModelProto) -> None:
    """Sizes of -1 are open ones, which is how some converters say that; other files leave them out or name them."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")


def is_float_model(model: ModelProto) -> bool:
    """Whether a model computes in floating point, so that it must be quantised first."""
    operators = {node.op_type for node in model.graph.node}
    if operators & _INTEGER:
        return False
    initializers = {item.name for item in model.graph.initializer}
    bytes_only = all(
        _element(value) in ("UINT8", "INT8") for value in model.graph.input if value.name not in initializers
    )
    return not bytes_only or bool(operators & _FLOAT)


def _element(value: ValueInfoProto) -> str:
    from onnx import TensorProto

    return TensorProto.DataType.Name(value.type.tensor_type.elem_type)


@dataclass(frozen=True, eq=False)
class CheckedModel:
    """A valid ONNX model whose batch is 1. `name` is for messages; `others`: nodes that compute the same as its own
    and as those of the model `before`."""

    name: str
    model: ModelProto
    others: tuple[NodeProto, ...] | None = None
    before: CheckedModel | None = None

    def with_nodes(self, nodes: Sequence[NodeProto]) -> CheckedModel:
        """The model with other nodes, which compute the same outputs; itself if they are its own."""
        same = len(nodes) == len(self.nodes) and all(a is b for a, b in zip(nodes, self.nodes, strict=True))
        return self if same else replace(self, others=tuple(nodes), before=self)

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """The nodes that results depend on, in an order in which every tensor is made before it is used."""
        needed = set(self.outputs)
        nodes: list[NodeProto] = []
        for node in reversed(self.model.graph.node if self.others is None else self.others):
            if needed.intersection(node.output):
                needed.update(reads(node))
                nodes.append(node)
        return nodes[::-1]

    @cached_property
    def constants(self) -> dict[str, NDArray[Any]]:
        """Initialisers and outputs of Constant nodes, read-only."""
        from onnx import numpy_helper

        arrays = {item.name: numpy_helper.to_array(item) for item in self.model.graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant":
                ((name, value),) = attributes(node).items()
                if name == "value":
                    arrays[node.output[0]] = numpy_helper.to_array(value)
                elif name in ("value_int", "value_ints"):
                    arrays[node.output[0]] = np.array(value, np.int64)
                elif name in ("value_float", "value_floats"):
                    arrays[node.output[0]] = np.array(value, np.float32)
        return arrays

    @cached_property
    def opset(self) -> int:
        """Version of the standard operators."""
        return next(item.version for item in self.model.opset_import if item.domain in ("", "ai.onnx"))

    @cached_property
    def inputs(self) -> list[ValueInfoProto]:
        """Inputs that are not initialisers."""
        initializers = {item.name for item in self.model.graph.initializer}
        return [value for value in self.model.graph.input if value.name not in initializers]

    @cached_property
    def outputs(self) -> list[str]:
        """Names of the results."""
        return [value.name for value in self.model.graph.output]

    @cached_property
    def input_sizes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs."""
        return {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in self.inputs}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors of which ONNX's shape inference, or the model itself, says them completely."""
        return self._known.shapes

    @cached_property
    def types(self) -> dict[str, int]:
        """Types of elements (`TensorProto`) that ONNX's shape inference, or the model itself, says."""
        return self._known.elements

    @cached_property
    def _known(self) -> KnownTensors:
        """What is known of the tensors of this model; shared with the one that other nodes were given to."""
        known = KnownTensors(self.model.graph, self.opset) if self.before is None else self.before._known
        known.read(self.nodes)
        return known

    @cached_property
    def _made(self) -> dict[str, NodeProto]:
        """The file's own nodes, by their results."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    def in_file(self, name: str) -> str:
        """The file's own tensor that one is named after which a pass has put in between (`instead`); else itself."""
        while name not in self._made and "//" in name:
            name = name.rpartition("//")[0]
        return name

    def node_in_file(self, node: NodeProto) -> NodeProto:
        """The file's own node in whose place a pass has put one; else itself."""
        return self._made.get(self.in_file(next(filter(None, node.output), "")), node)

    @cached_property
    def readers(self) -> dict[str, list[NodeProto]]:
        """The nodes that read each tensor, each once."""
        readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(reads(node)):
                readers.setdefault(name, []).append(node)
        return readers

    @cached_property
    def uses(self) -> Counter[str]:
        """How often each tensor is read, results of the model included."""
        return Counter([name for node in self.nodes for name in reads(node)] + self.outputs)


def check(model: ModelProto, name: str, supported: Container[str]) -> CheckedModel:
    """A copy of `model`, checked and with a batch of 1.

    `supported`: operators (with their domain unless standard) that the caller knows. Raises UnsupportedError listing
    all others that ONNX does not know when the model is no valid one because of them; OnnxError for what is invalid
    otherwise, for opsets that are too old or too new, for a batch other than 1 and for sizes that are not fixed.
    """
    import onnx

    check_opset(model, name)
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    del checked.graph.value_info[:]  # shapes are inferred anew, for a batch of 1
    for value in checked.graph.output:
        value.type.tensor_type.shape.SetInParent()  # the checker wants some shape
    try:
        onnx.checker.check_model(checked)  # pyright: ignore[reportUnknownMemberType]  (onnx leaves PathLike open)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as error:
        opset = CheckedModel(name, checked).opset
        unknown = [
            NodeRefusal(node_name(node), operator_name(node), why, tuple(node.output))
            for node in model.graph.node
            if operator_name(node) not in supported and (why := _strange(node, opset))
        ]
        if unknown:
            raise UnsupportedError(name, unknown) from error
        raise OnnxError(f"{name}: is not a valid ONNX model: {one_line(error)}; export it again") from error
    result = CheckedModel(name, checked)
    try:
        _ = result.constants
    except (ValueError, TypeError, KeyError) as error:
        raise OnnxError(f"{name}: a constant is damaged ({error}); export it again") from error
    if not result.inputs or not result.outputs:
        raise OnnxError(f"{name}: has no input or no output; export it again")
    for value in result.inputs:
        _fix_batch(name, value)
        try:
            check_size([dim.dim_value for dim in value.type.tensor_type.shape.dim], f"input {value.name!r}")
        except Refused as refusal:
            raise OnnxError(f"{name}: {refusal}") from refusal
    for value in checked.graph.output:
        value.type.tensor_type.ClearField("shape")
    return result


def _strange(node: NodeProto, opset: int) -> str:
    """Why a node has no meaning in ONNX; empty if it has one."""
    import onnx

    if node.domain not in ("", "ai.onnx"):
        return "no layer does that"
    if onnx.defs.has(node.op_type, max_inclusive_version=opset):
        return ""
    return f"no operator of ONNX is called so in opset {opset}: it is the exporter's own; export the model otherwise"


def _fix_batch(name: str, value: ValueInfoProto) -> None:
    dims = value.type.tensor_type.shape.dim
    if not 1 <= len(dims) <= 5:
        raise OnnxError(
            f"{name}: input {value.name!r} has {len(dims)} dimensions; it may have 1 to 5, say [1, channels, rows, "
            "columns], [1, channels, columns] or [1, features]"
        )
    if len(dims) > 1 and not dims[0].HasField("dim_value"):
        dims[0].dim_value = 1
    for index, dim in enumerate(dims):
        if not dim.HasField("dim_value") or dim.dim_value < 1:
            free, size = dim.dim_param or "unknown", dim.dim_param or f"{value.name}:{index}"
            raise OnnxError(
                f"{name}: dimension {index} of input {value.name!r} is not fixed ({free}); give it a size "
                f"(--bind {size}=N), or a picture or an array of that size (--input)"
            )
    if len(dims) > 2 and dims[0].HasField("dim_value") and dims[0].dim_value > 1:
        raise OnnxError(
            f"{name}: input {value.name!r} has a batch of {dims[0].dim_value}; bind it (--bind) or export it with 1"
        )


def without_unused(model: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """A model without the inputs that no result depends on, and their names; itself if it has none, or no others."""
    import onnx

    initializers = {item.name for item in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initializers]
    needed = {value.name for value in model.graph.output}
    nodes: list[NodeProto] = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(reads(node))
            nodes.append(node)
    unused = tuple(name for name in inputs if name not in needed)
    if len(unused) in (0, len(inputs)):
        return model, ()
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    del rest.graph.input[:], rest.graph.node[:]
    rest.graph.input.extend(value for value in model.graph.input if value.name not in unused)
    rest.graph.node.extend(nodes[::-1])
    return rest, unused


def bound(model: ModelProto, sizes: Mapping[str, Sequence[int]], names: Mapping[str, int], name: str) -> ModelProto:
    """A copy of a model whose inputs have sizes that are not fixed in it, or a batch, or the same model if there is
    nothing to bind.

    `sizes`: shapes of arrays that the inputs will be given, by input, where they are known: they decide what is not
    fixed. `names`: sizes by the names that the model gives them ("batch"), or by `input:axis`; they replace fixed ones
    too. A batch becomes 1, whatever it was: the chip takes one picture after the other. Where a first axis is no batch,
    since what is computed for one entry depends on others, the input gets a batch of 1 in front, as a single number
    does. Raises OnnxError for a
    name that the model does not have, and for an open first axis that is no batch.
    """
    import onnx

    from .batches import FirstAxis, is_open_batch, with_batch, without_batches

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    initializers = {item.name for item in model.graph.initializer}
    used: set[str] = set()
    firsts: dict[str, FirstAxis] = {}
    single = [
        value.name
        for value in model.graph.input
        if value.name not in initializers
        and value.type.tensor_type.HasField("shape")
        and not value.type.tensor_type.shape.dim
    ]
    if single:
        copy = with_batch(copy, single)
    for value in copy.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in initializers or not dims:
            continue
        open_batch = is_open_batch(value)
        shape = sizes.get(value.name, ())
        if len(shape) == len(dims) == 4 and dims[3].dim_value == shape[1] != dims[1].dim_value:
            shape = (shape[0], *shape[2:], shape[1])  # channels last
        for axis, dim in enumerate(dims):
            keys = [key for key in (dim.dim_param, f"{value.name}:{axis}") if key and key in names]
            used.update(keys)
            if keys:
                dim.dim_value = names[keys[0]]
            elif not dim.HasField("dim_value") and axis and len(shape) == len(dims):
                dim.dim_value = shape[axis]
        if len(dims) > 2 and dims[0].dim_value != 1:
            size = dims[0].dim_value
            firsts[value.name] = FirstAxis(size, dims[0].dim_param, open_batch and not size)
    if unknown := [key for key in names if key not in used]:
        raise OnnxError(f"{name}: no input has a size {unknown[0]!r} to bind; sizes are {_sizes(model)}")
    if not firsts:
        return model if copy == model else copy
    return without_batches(copy, firsts, name)


def _sizes(model: ModelProto) -> str:
    """The sizes that can be bound, for messages."""
    initializers = {item.name for item in model.graph.initializer}
    names = [
        dim.dim_param or f"{value.name}:{axis}"
        for value in model.graph.input
        if value.name not in initializers
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    return ", ".join(dict.fromkeys(names))
