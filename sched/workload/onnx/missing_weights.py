"""Files that say the shapes of weights and not their numbers, as simulators ship them: the numbers are drawn.

Some of these files have layers of real numbers between tensors of 8 bits, which ONNX does not know. They mean the
shapes alone, so all their tensors become real numbers.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .errors import OnnxError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

#: Numbers that are drawn for one file: 128 MiB.
MOST_NUMBERS = 1 << 25
#: Layers of real numbers, in ONNX.
_REAL = {"BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul"}
#: Operands that are weights, too.
_WEIGHTS = {
    ("Add", 0), ("Add", 1), ("DequantizeLinear", 0), ("Gather", 0), ("InstanceNormalization", 1),
    ("InstanceNormalization", 2), ("LayerNormalization", 1), ("LayerNormalization", 2), ("Mul", 0), ("Mul", 1),
    ("PRelu", 1), ("QLinearConv", 3), ("QLinearMatMul", 3), ("Sub", 0), ("Sub", 1),
}  # fmt: skip
#: Those that must not be negative.
_POSITIVE = {("BatchNormalization", 1), ("BatchNormalization", 4), ("LayerNormalization", 1)}
#: Operators that read integers as such.
_OF_INTEGERS = {"DequantizeLinear", "QLinearConv", "QLinearMatMul"}
#: Types of tensors that these have where only shapes are meant.
_NARROW = {"BFLOAT16", "FLOAT16", "INT16", "INT4", "INT8", "UINT16", "UINT4", "UINT8"}
_FLOATS = {"BFLOAT16", "DOUBLE", "FLOAT", "FLOAT16"}
#: Fields of a tensor that hold numbers.
_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def with_weights(model: ModelProto, name: str, seed: int) -> tuple[ModelProto, tuple[str, ...]]:
    """The model with numbers for the weights that have none, drawn from `seed` and the weights' names, and sentences
    that say so; the model itself and none if nothing had to be done.

    Raises OnnxError for constants without numbers that are no weights, and for more than `MOST_NUMBERS`.
    """
    import onnx
    from onnx import numpy_helper

    missing = [item for item in model.graph.initializer if lacks_numbers(item)]
    narrow = _narrow(model)
    if not missing and not narrow:
        return model, ()
    if (count := sum(prod(item.dims) for item in missing)) > MOST_NUMBERS:
        raise OnnxError(
            f"{name}: has no numbers for {count:,} weights; {MOST_NUMBERS:,} at most are drawn: export it with them"
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for item in copy.graph.initializer:
        if lacks_numbers(item):
            array = _drawn(item, _readers(model, item.name), name, seed)
            item.CopyFrom(numpy_helper.from_array(array, item.name))
    notes = [_sentence(missing, seed)] if missing else []
    if narrow:
        _as_real_numbers(copy)
        notes.append(f"{narrow} are computed in real numbers.")
    return copy, tuple(notes)


def lacks_numbers(item: TensorProto) -> bool:
    """Whether a constant has a shape and no numbers, neither here nor in another file."""
    return bool(prod(item.dims)) and not item.external_data and not any(getattr(item, field) for field in _FIELDS)


def _sentence(missing: list[TensorProto], seed: int) -> str:
    names = ", ".join(item.name for item in missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return f"The file has no numbers for {names}: they are drawn with seed {seed}."


def _readers(model: ModelProto, name: str) -> list[tuple[NodeProto, int]]:
    """The nodes that read a tensor, and as which operand."""
    return [(node, at) for node in model.graph.node for at, each in enumerate(node.input) if each == name]


def _drawn(item: TensorProto, readers: list[tuple[NodeProto, int]], name: str, seed: int) -> NDArray[Any]:
    """Numbers that keep values in range: weights by what they add up, variances and gains positive."""
    from onnx import TensorProto, helper

    kind = TensorProto.DataType.Name(item.data_type)
    roles = {(node.op_type, at) for node, at in readers}
    weights = all((operator in _REAL and at) or (operator, at) in _WEIGHTS for operator, at in roles)
    if kind not in _FLOATS | _NARROW | {"INT32"} or not weights:
        raise OnnxError(
            f"{name}: constant {item.name!r} ({kind} {list(item.dims)}) has no numbers, and is none of the weights, "
            "which alone are drawn; export it with them"
        )
    random = np.random.default_rng((seed, crc32(item.name.encode())))
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(item.data_type))
    if roles and {operator for operator, _ in roles} <= _OF_INTEGERS and dtype.itemsize == 1:
        return random.integers(np.iinfo(dtype).min + 1, np.iinfo(dtype).max, item.dims, dtype, endpoint=True)
    if roles & _POSITIVE:
        array = random.uniform(0.5, 1.5, item.dims)
    else:
        array = random.normal(0, 1 / sqrt(max(1, _added(item, readers))), item.dims)
    return array.astype(np.float32 if dtype.kind in "iu" else dtype)


def _added(item: TensorProto, readers: list[tuple[NodeProto, int]]) -> int:
    """How many products with weights are added for one number of a layer's result."""
    if len(item.dims) < 2 or not readers:
        return 1
    node = readers[0][0]
    turned = any(each.name == "transB" and each.i for each in node.attribute)
    if node.op_type == "MatMul" or (node.op_type == "Gemm" and not turned):
        return item.dims[-2]
    return prod(item.dims[1:])


def _narrow(model: ModelProto) -> str:
    """The first layer of real numbers that reads tensors of a type which it cannot, in words; or nothing."""
    from onnx import TensorProto

    types = {item.name: item.data_type for item in model.graph.initializer}
    types |= {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    for node in model.graph.node:
        kinds = {TensorProto.DataType.Name(types[name]) for name in node.input if name in types}
        missing = any(lacks_numbers(item) for item in model.graph.initializer if item.name in node.input)
        if node.op_type in _REAL and (wrong := kinds & _NARROW - (set() if missing else _FLOATS)):
            return f"{node.op_type} and others of {sorted(wrong)[0]}"
    return ""


def _as_real_numbers(model: ModelProto) -> None:
    """All tensors of narrow types become float32, with the same numbers."""
    from onnx import TensorProto, numpy_helper

    biases = {node.input[2] for node in model.graph.node if node.op_type in _REAL and len(node.input) > 2}
    for item in model.graph.initializer:
        kind = TensorProto.DataType.Name(item.data_type)
        if kind in _NARROW or (kind == "INT32" and item.name in biases):
            item.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(item).astype(np.float32), item.name))
    for value in (*model.graph.input, *model.graph.output):
        if TensorProto.DataType.Name(value.type.tensor_type.elem_type) in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    del model.graph.value_info[:]
