"""Inputs of a float model as values."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..errors import OnnxError
from ..load import CheckedModel
from ..nodes import attributes
from .views import Layout, Size, View

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto

#: Operators that mean the same for integers and for the real numbers that these are.
_OF_INTEGERS = {"Cast", "Expand", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Tile", "Transpose"}
#: Operators before the first that mixes channels, which treat all axes alike.
_ALIKE = ("Add", "Cast", "Clip", "Div", "Identity", "Mul", "Relu", "Sub")
#: Operators that leave axes in their order: those, and what cuts and pads.
_IN_ORDER = (*_ALIKE, "Pad", "Slice")
#: Operators that take volumes, [1, channels, depth, rows, columns].
_OF_VOLUMES = ("AveragePool", "Conv", "MaxPool")
#: Operators that give heads to several others.
_SHARING = ("Expand", "Reshape", "Unsqueeze")


def input_views(model: CheckedModel) -> dict[str, View]:
    """The view of each input. Raises OnnxError for an input of integers that the model computes with."""
    readers = _first_readers(model)
    views: dict[str, View] = {}
    for value in model.inputs:
        _check_type(model, value)
        shape = model.input_sizes[value.name]
        channels_last = _is_channels_last(model, readers, value.name)
        reader = readers.get(value.name)
        if len(shape) == 5 and shape[0] == 1 and reader is not None and reader.op_type in _OF_VOLUMES:
            size = shape[1] * shape[2], shape[3], shape[4]
            views[value.name] = View(value.name, size, shape, np.arange(prod(size)).reshape(shape))
        elif _has_heads(model, readers, value.name):
            views[value.name] = _view_of_heads(value.name, shape)
        else:
            map_ = _view_of_map(model, readers, value.name)
            views[value.name] = map_ or view_of_tensor(value.name, shape, channels_last)
    return views


def _view_of_heads(name: str, shape: tuple[int, ...]) -> View:
    """[1, heads, tokens, features] as a value: features of all heads are channels, tokens are pixels."""
    _, heads, tokens, features = shape
    return View(name, (heads * features, 1, tokens), shape, Layout((1, 3), (2,)).index(shape))


def _view_of_map(model: CheckedModel, readers: dict[str, NodeProto], name: str) -> View | None:
    """An input of three axes that becomes a picture of one channel: its first reader that does not treat all axes
    alike puts one before the others. If that picture is turned, the input is a turned one."""
    shape, tensor = model.input_sizes[name], name
    reader = readers.get(name)
    while reader is not None and reader.op_type in _ALIKE:
        tensor = reader.output[0]
        reader = readers.get(tensor)
    if reader is None or reader.op_type != "Unsqueeze" or len(shape) != 3 or shape[0] != 1:
        return None
    axes = model.constants.get(reader.input[1]) if len(reader.input) > 1 else attributes(reader).get("axes")
    if axes is None or list(axes) not in ([1], [-3]):
        return None
    behind = readers.get(reader.output[0])
    if behind is not None and behind.op_type == "Transpose" and attributes(behind).get("perm") == [0, 1, 3, 2]:
        turned = np.ascontiguousarray(np.arange(prod(shape)).reshape(1, shape[2], shape[1]).swapaxes(1, 2))
        return View(name, (1, shape[2], shape[1]), shape, turned)
    return View(name, (1, shape[1], shape[2]), shape)


def _has_heads(model: CheckedModel, readers: dict[str, NodeProto], name: str) -> bool:
    """Whether an input is keys, values or queries, [1, heads, tokens, features]: a product of two tensors takes it, or
    it with more tokens behind (which several heads may share then)."""
    shape = model.input_sizes[name]
    reader, longer = readers.get(name), False
    while reader is not None:
        if reader.op_type == "Concat" and attributes(reader)["axis"] in (2, -2):
            longer = True
        elif reader.op_type not in (*_ALIKE, "Transpose") and not (longer and reader.op_type in _SHARING):
            break
        reader = readers.get(reader.output[0])
    return (
        len(shape) == 4
        and shape[0] == 1
        and reader is not None
        and reader.op_type == "MatMul"
        and not any(each in model.constants for each in reader.input)
    )


def view_of_tensor(name: str, shape: tuple[int, ...], channels_last: bool) -> View:
    """The value of a tensor: its axes after the first are channels, rows and columns, or channels and columns; two axes
    are vectors, several of them columns."""
    if len(shape) == 1:
        return View(name, (shape[0], 1, 1), shape)
    if len(shape) == 2 and shape[0] > 1:
        return View(name, (shape[1], 1, shape[0]), shape, np.arange(prod(shape)).reshape(shape[::-1]).T)
    if len(shape) > 4:  # what is behind the rows are columns
        whole = (shape[0], *shape[1:3], prod(shape[3:]))
        if shape[1] == 1 and not channels_last:
            whole = (shape[0], *shape[2:4], prod(shape[4:]))
        if channels_last:
            whole = (shape[0], shape[1], prod(shape[2:-1]), shape[-1])
        view = view_of_tensor(name, whole, channels_last)
        return View(name, view.size, shape, None if view.index is None else view.index.reshape(shape))
    middle = (1,) if len(shape) == 3 else ()
    order = (1, *range(2, len(shape)))
    if channels_last and len(shape) > 2:
        order = (len(shape) - 1, *range(1, len(shape) - 1))
    sizes = [shape[axis] for axis in order]
    size: Size = tuple([sizes[0], *middle, *sizes[1:], 1, 1][:3])  # pyright: ignore[reportAssignmentType]  (three)
    index = None
    if channels_last and len(shape) > 2:
        index = np.arange(prod(size)).reshape(1, *sizes).transpose(0, *range(2, len(shape)), 1)
    return View(name, size, shape, index)


def _check_type(model: CheckedModel, value: ValueInfoProto) -> None:
    """Raises OnnxError for integers that the model computes with: only what moves them may be quantised."""
    from onnx import TensorProto

    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    if kind == "BOOL":
        raise OnnxError(
            f"{model.name}: input {value.name!r} is BOOL, and what a chip computes has no truth values; export the "
            "model with it as a constant, or as a mask of floating point that is added or multiplied"
        )
    readers = {node.op_type for node in model.nodes if value.name in node.input}
    if "FLOAT" in kind or kind == "DOUBLE" or readers <= _OF_INTEGERS:
        return
    raise OnnxError(f"{model.name}: input {value.name!r} is {kind}; only models of floating point are quantised")


def _is_channels_last(model: CheckedModel, readers: dict[str, NodeProto], name: str) -> bool:
    """Whether channels are the last axis of an input: where nodes first mix them, that is what they take."""
    reader = readers.get(name)
    while reader is not None and reader.op_type in _IN_ORDER:
        name = reader.output[0]
        reader = readers.get(name)
    if reader is None:
        return False
    if reader.op_type == "Transpose":
        perm = attributes(reader).get("perm", (3, 2, 1, 0))
        return len(perm) > 2 and perm[1] == len(perm) - 1
    if reader.op_type == "MatMul":
        return reader.input[0] == name
    if reader.op_type == "LayerNormalization":
        return attributes(reader).get("axis", -1) in (-1, len(model.input_sizes.get(name, ())) - 1)
    # a grey picture, whose one channel goes elsewhere
    return reader.op_type in ("Reshape", "Squeeze") and model.input_sizes.get(name, (0,))[-1] == 1


def _first_readers(model: CheckedModel) -> dict[str, NodeProto]:
    """The first node that reads each tensor."""
    readers: dict[str, NodeProto] = {}
    for node in model.nodes:
        for name in node.input:
            readers.setdefault(name, node)
    return readers
