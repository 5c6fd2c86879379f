"""Changes of size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...graph import Place, Window
from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.layers import paste_phases
from ..building.pictures import arrange, as_picture, settle
from ..building.views import View, natural
from ..errors import Refused
from ..floats import FloatLayer
from ..load import Attributes
from ..runtime import run, session
from .phases import find_kernels, is_identity, split_phases

if TYPE_CHECKING:
    from onnx import NodeProto

#: Layers that one axis may take.
_MOST_PARTS = 256


def resize(context: FloatContext, node: NodeProto, attributes: Attributes) -> None:
    """Nearest: copies of rows and columns. Otherwise a depthwise convolution for each phase of the result, over the
    map with copies of its edges around it; by factors that are not whole, first for the rows, then for the columns.
    """
    from onnx import helper

    view = settle(context, node.input[0])
    order = natural(view)
    if order is None or len(order) != 4:
        view, order = as_picture(context, node.input[0]), (0, 1, 2, 3)
    mode = attributes.get("mode", "nearest")
    mode = mode if isinstance(mode, str) else mode.decode()
    _check_result(context, node, view.shape)
    down, right = (_resize_matrix(context, node, view.shape, axis, helper) for axis in order[2:])
    if mode == "nearest":
        moved = view.order.transpose(order)
        if not all(matrix.any(axis=1).all() for matrix in (down, right)):
            raise Refused("reaches beyond its operand (tf_crop_and_resize)")
        picked = [np.argmax(matrix, axis=1) for matrix in (down, right)]
        index = moved[:, :, picked[0]][:, :, :, picked[1]].transpose(np.argsort(order))
        context.move(node, index)
        return
    if order != (0, 1, 2, 3):
        raise Refused(f"mode = {mode} of a tensor whose channels are its last axis; put it behind the Transpose")
    both = [find_kernels(matrix) for matrix in (down, right)]
    if None in both:
        between = view if is_identity(down) else _resize_axis(context, node, view, down, 0, is_identity(right))
        if not is_identity(right):
            _resize_axis(context, node, between, right, 1, True)
        return
    (rows, before_h, after_h, step_h), (columns, before_w, after_w, step_w) = (one for one in both if one)
    whole = view.order[0]
    edges = np.pad(whole, ((0, 0), (before_h, after_h), (before_w, after_w)), "edge")
    padded = arrange(context, node.input[0], view.moved(edges[None])) if edges.shape != whole.shape else view
    parts: list[FloatLayer] = []
    for y, above in enumerate(rows):
        for x, beside in enumerate(columns):
            taps = np.broadcast_to(np.outer(above, beside), (view.channels, 1, len(above), len(beside)))
            window = Window(len(above), len(beside), step_h, step_w)
            name = context.fresh(f"{node.output[0]}/{y}_{x}")
            zeros = np.zeros(view.channels)
            parts.append(FloatLayer("depthwise", name, (padded.value,), window, w=taps.copy(), bias=zeros))
    size = view.channels, len(down), len(right)
    if len(parts) == 1:
        parts[0].output = node.output[0]
        context.emit(parts[0], size)
    else:
        paste_phases(context, node.output[0], parts, size, (len(rows), len(columns)))


def _check_result(context: FloatContext, node: NodeProto, shape: tuple[int, ...]) -> None:
    """Raises Refused for a result of too many numbers."""
    sizes = context.constants.get(node.input[3]) if len(node.input) > 3 else None
    at = 1 if node.op_type == "Upsample" or context.model.opset < 11 else 2
    scales = context.constants.get(node.input[at]) if len(node.input) > at else None
    if sizes is not None and sizes.size == len(shape):
        check_size(sizes.tolist())
    elif scales is not None and scales.size == len(shape):
        check_size([int(size * float(scale)) for size, scale in zip(shape, scales.tolist(), strict=True)])


def _resize_axis(
    context: FloatContext, node: NodeProto, view: View, matrix: NDArray[np.float64], axis: int, last: bool
) -> View:
    """Rows (`axis` 0) or columns multiplied by a matrix [those of the result, those of the view]: a depthwise
    convolution for each phase, over those that it reads. `last`: the result is the node's."""
    phases, side = split_phases(matrix), "columns" if axis else "rows"
    if len(phases) > _MOST_PARTS:
        raise Refused(
            f"from {matrix.shape[1]} to {len(matrix)} {side}, whose weights are of {len(phases)} kinds; at most "
            f"{_MOST_PARTS} may be"
        )
    output = node.output[0] if last else context.fresh(f"{node.output[0]}/{side}")
    size = [view.channels, *view.size[1:]]
    size[axis + 1] = len(matrix)
    names: list[str] = []
    places: list[Place] = []
    for index, phase in enumerate(phases):
        count = len(range(index, len(matrix), len(phases)))
        reach = phase.first + np.arange((count - 1) * phase.stride + len(phase.taps))
        chosen = np.take(view.order, np.clip(reach, 0, matrix.shape[1] - 1), axis + 2)
        made = view if np.array_equal(chosen, view.order) else arrange(context, view.value, view.moved(chosen))
        taps = phase.taps.reshape((1, -1) if axis else (-1, 1))
        window = Window(*taps.shape, *((1, phase.stride) if axis else (phase.stride, 1)))
        w = np.broadcast_to(taps, (view.channels, 1, *taps.shape)).copy()
        part = [*size]
        part[axis + 1] = count
        name = output if len(phases) == 1 else context.fresh(f"{output}/{index}")
        layer = FloatLayer("depthwise", name, (made.value,), window, w=w, bias=np.zeros(view.channels))
        names.append(context.emit(layer, (part[0], part[1], part[2])))
        places.append(
            Place(0, index, 1, len(phases), part[1], count) if axis
            else Place(index, 0, len(phases), 1, count, part[2])
        )  # fmt: skip
    if len(phases) > 1:
        context.emit(FloatLayer("paste", output, tuple(names), places=tuple(places)), (size[0], size[1], size[2]))
    return context.views[output]


def _resize_matrix(
    context: FloatContext, node: NodeProto, shape: tuple[int, ...], axis: int, helper: Any
) -> NDArray[np.float64]:
    """What a Resize multiplies along one axis, [rows of the result, rows], as ONNX Runtime does it: a picture whose
    rows are those of the identity matrix gives it."""
    import onnx

    size = shape[axis]
    inputs = {name: context.constants[name] for name in node.input[1:] if name}
    rows = np.eye(size, dtype=np.float32)
    sides = [size if at == axis else 1 for at in range(len(shape))]
    probe = [np.broadcast_to(row.reshape(sides), shape) for row in rows]
    values = [helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, shape)]
    graph = helper.make_graph(
        [node], "resize", values, [helper.make_empty_tensor_value_info(node.output[0])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in inputs.items()],
    )  # fmt: skip
    opset = helper.make_opsetid("", max(context.model.opset, 10 if node.op_type == "Resize" else 9))
    live = session(helper.make_model(graph, opset_imports=[opset], ir_version=8), node.output[0])
    found = [run(live, {node.input[0]: np.ascontiguousarray(one)})[node.output[0]] for one in probe]
    if np.any(run(live, {node.input[0]: np.zeros(shape, np.float32)})[node.output[0]]):
        raise Refused("has other numbers than 0 outside of its operand (extrapolation_value)")
    columns = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in found]
    inside = int(np.abs(sum(columns)).sum(axis=1).argmax())  # not beside the operand along other axes
    return np.stack([one[inside] for one in columns], axis=1).astype(np.float64)


OPERATORS: dict[str, Operator] = {"Resize": resize, "Upsample": resize}
