"""Changes of size."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ...graph import PastePlace, Window
from ..bounds import check_size
from ..building.axes import place_along, side_of, size_along, window_along
from ..building.context import FloatContext, Operator
from ..building.layers import paste_phases
from ..building.pictures import arrange, as_picture, emit_paste, settle
from ..building.views import View, natural
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node
from ..runtime import run, session

#: Layers that one axis may take.
_MOST_PARTS = 256


def resize(context: FloatContext, node: Node, attributes: Attributes) -> None:
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
        matrices = {order[2]: down, order[3]: right}
        if _may_change(context, node, view.shape, order[1]):
            matrices[order[1]] = _resize_matrix(context, node, view.shape, order[1], helper)
        if not all(matrix.any(axis=1).all() for matrix in matrices.values()):
            raise Refused("reaches beyond its operand (tf_crop_and_resize)")
        index = view.order
        for axis, matrix in matrices.items():
            index = np.take(index, np.argmax(matrix, axis=1), axis)
        context.move(node, index)
        return
    if _may_change(context, node, view.shape, order[1]):
        raise Refused(f"mode = {mode} along channels")
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


def _may_change(context: FloatContext, node: Node, shape: tuple[int, ...], axis: int) -> bool:
    """Whether an axis may be given another size."""
    rank = len(shape)
    named = next((list(item.ints) for item in node.attribute if item.name == "axes"), range(rank))
    axes = [each % rank for each in named]
    sizes, scales = _target(context, node)
    if axis not in axes:
        return False
    if sizes is not None and sizes.size == len(axes):
        return int(sizes[axes.index(axis)]) != shape[axis]
    return scales is not None and scales.size == len(axes) and float(scales[axes.index(axis)]) != 1


def _target(context: FloatContext, node: Node) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Sizes and scales of the result, those that there are."""
    at = 1 if node.op_type == "Upsample" or context.model.opset < 11 else 2
    sizes = context.constants.get(node.input[3]) if len(node.input) > 3 else None
    return sizes, context.constants.get(node.input[at]) if len(node.input) > at else None


def _check_result(context: FloatContext, node: Node, shape: tuple[int, ...]) -> None:
    """Raises Refused for a result of too many numbers."""
    sizes, scales = _target(context, node)
    if sizes is not None and sizes.size == len(shape):
        check_size(sizes.tolist())
    elif scales is not None and scales.size == len(shape):
        check_size([int(size * float(scale)) for size, scale in zip(shape, scales.tolist(), strict=True)])


def _resize_axis(
    context: FloatContext, node: Node, view: View, matrix: NDArray[np.float64], axis: int, last: bool
) -> View:
    """Rows (`axis` 0) or columns multiplied by a matrix [those of the result, those of the view]: a depthwise
    convolution for each phase, over those that it reads. `last`: the result is the node's."""
    phases, side = split_phases(matrix), side_of(axis)
    if len(phases) > _MOST_PARTS:
        raise Refused(
            f"from {matrix.shape[1]} to {len(matrix)} {side}, whose weights are of {len(phases)} kinds; at most "
            f"{_MOST_PARTS} may be"
        )
    output = node.output[0] if last else context.fresh(f"{node.output[0]}/{side}")
    names: list[str] = []
    places: list[PastePlace] = []
    for index, phase in enumerate(phases):
        count = len(range(index, len(matrix), len(phases)))
        reach = phase.first + np.arange((count - 1) * phase.stride + len(phase.taps))
        chosen = np.take(view.order, np.clip(reach, 0, matrix.shape[1] - 1), axis + 2)
        source = view if np.array_equal(chosen, view.order) else arrange(context, view.value, view.moved(chosen))
        window = window_along(axis, len(phase.taps), phase.stride)
        taps = phase.taps.reshape(window.kernel_h, window.kernel_w)
        w = np.broadcast_to(taps, (view.channels, 1, *taps.shape)).copy()
        name = output if len(phases) == 1 else context.fresh(f"{output}/{index}")
        layer = FloatLayer("depthwise", name, (source.value,), window, w=w, bias=np.zeros(view.channels))
        part = size_along(axis, view.size, count)
        names.append(context.emit(layer, part))
        places.append(place_along(axis, index, len(phases), part))
    if len(phases) > 1:
        emit_paste(context, output, names, places, size_along(axis, view.size, len(matrix)))
    return context.views[output]


def _resize_matrix(
    context: FloatContext, node: Node, shape: tuple[int, ...], axis: int, helper: Any
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
    results = [run(live, {node.input[0]: np.ascontiguousarray(one)})[node.output[0]] for one in probe]
    if np.any(run(live, {node.input[0]: np.zeros(shape, np.float32)})[node.output[0]]):
        raise Refused("has other numbers than 0 outside of its operand (extrapolation_value)")
    columns = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in results]
    inside = int(np.abs(sum(columns)).sum(axis=1).argmax())  # not beside the operand along other axes
    return np.stack([one[inside] for one in columns], axis=1).astype(np.float64)


def is_identity(matrix: NDArray[np.float64]) -> bool:
    return matrix.shape[0] == matrix.shape[1] and np.allclose(matrix, np.eye(len(matrix)), atol=1e-6)


class Phase(NamedTuple):
    """Every so many rows of a result: weights of the rows that the first of them is made of, from row `first` on (there
    are copies of the first and last row beyond the edges); the next one's are `stride` rows further."""

    taps: NDArray[np.float64]
    first: int
    stride: int


def split_phases(matrix: NDArray[np.float64]) -> list[Phase]:
    """A matrix [rows of the result, rows] as few phases, as far as an instruction holds the stride between them; each
    row of the result is one by itself if they are not alike."""
    high, wide = matrix.shape
    whole = gcd(high, wide)
    count, stride = high // whole, wide // whole
    if stride <= INSTRUCTIONS[Opcode.VEC].most("stride_h"):
        phases: list[Phase] = []
        for phase in range(count):
            rows = matrix[phase::count]
            best = int(np.count_nonzero(rows, axis=1).argmax())  # one that loses no taps at the edges, if there is any
            reach = _reach(rows[best])
            phases.append(Phase(rows[best][reach], reach.start - best * stride, stride))
        if np.allclose(_unfold(phases, high, wide), matrix, atol=1e-5):
            return phases
    reaches = [_reach(row) for row in matrix]
    return [Phase(row[reach], reach.start, 1) for row, reach in zip(matrix, reaches, strict=True)]


def _reach(row: NDArray[np.float64]) -> slice:
    used = np.flatnonzero(row)
    return slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)


def _unfold(phases: Sequence[Phase], high: int, wide: int) -> NDArray[np.float64]:
    """The matrix that phases stand for."""
    matrix = np.zeros((high, wide))
    for row in range(high):
        turn, phase = divmod(row, len(phases))
        taps, first, stride = phases[phase]
        np.add.at(matrix[row], np.clip(first + turn * stride + np.arange(len(taps)), 0, wide - 1), taps)
    return matrix


def find_kernels(matrix: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], int, int, int] | None:
    """A matrix [rows of the result, rows] as one kernel for each phase of the result, where one is a multiple of the
    other: the kernels, all over the same rows, how many copies of the first and last row are needed, and the stride.
    None where that is not what it is."""
    high, wide = matrix.shape
    if high % wide and wide % high:
        return None
    phases = split_phases(matrix)
    if len(phases) != max(1, high // wide) or (step := phases[0].stride) != max(1, wide // high):
        return None
    low = min(0, *(phase.first for phase in phases))  # windows begin with the first row, or copies of it
    end = max(phase.first + len(phase.taps) for phase in phases)
    kernels = [np.pad(one.taps, (one.first - low, end - one.first - len(one.taps))) for one in phases]
    return kernels, max(0, -low), max(0, (high // len(phases) - 1) * step + end - wide), step


OPERATORS: dict[str, Operator] = {
    "Resize": resize,
    "Upsample": resize,
}
