"""Changes of size in float models."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ..graph import Place, Window
from .bounds import check_size
from .errors import Refused
from .floats import FloatLayer
from .reductions import Reductions
from .runtime import run, session
from .views import View, natural

if TYPE_CHECKING:
    from onnx import NodeProto


#: Layers that one axis may take.
_MOST_PARTS = 256


class Resizing(Reductions):
    def resize(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """Nearest: copies of rows and columns. Otherwise a depthwise convolution for each phase of the result, over the
        map with copies of its edges around it; by factors that are not whole, first for the rows, then for the columns.
        """
        from onnx import helper

        view = self.settled(node.input[0])
        order = natural(view)
        if order is None or len(order) != 4:
            view, order = self.picture(node.input[0]), (0, 1, 2, 3)
        mode = attributes.get("mode", "nearest")
        mode = mode if isinstance(mode, str) else mode.decode()
        self._check_result(node, view.shape)
        down, right = (self._rows(node, view.shape, axis, helper) for axis in order[2:])
        if mode == "nearest":
            moved = view.order.transpose(order)
            if not all(matrix.any(axis=1).all() for matrix in (down, right)):
                raise Refused("reaches beyond its operand (tf_crop_and_resize)")
            picked = [np.argmax(matrix, axis=1) for matrix in (down, right)]
            index = moved[:, :, picked[0]][:, :, :, picked[1]].transpose(np.argsort(order))
            self.move(node, index)
            return
        if order != (0, 1, 2, 3):
            raise Refused(f"mode = {mode} of a tensor whose channels are its last axis; put it behind the Transpose")
        both = [_kernels(matrix) for matrix in (down, right)]
        if None in both:
            between = view if _is_identity(down) else self._along(node, view, down, 0, _is_identity(right))
            if not _is_identity(right):
                self._along(node, between, right, 1, True)
            return
        (rows, before_h, after_h, step_h), (columns, before_w, after_w, step_w) = (one for one in both if one)
        whole = view.order[0]
        edges = np.pad(whole, ((0, 0), (before_h, after_h), (before_w, after_w)), "edge")
        padded = self.arrange(node.input[0], view.moved(edges[None])) if edges.shape != whole.shape else view
        parts: list[FloatLayer] = []
        for y, above in enumerate(rows):
            for x, beside in enumerate(columns):
                taps = np.broadcast_to(np.outer(above, beside), (view.channels, 1, len(above), len(beside)))
                window = Window(len(above), len(beside), step_h, step_w)
                name = self.fresh(f"{node.output[0]}/{y}_{x}")
                zeros = np.zeros(view.channels)
                parts.append(FloatLayer("depthwise", name, (padded.value,), window, w=taps.copy(), bias=zeros))
        size = view.channels, len(down), len(right)
        if len(parts) == 1:
            parts[0].output = node.output[0]
            self.emit(parts[0], size)
        else:
            self.pasted(node.output[0], parts, size, (len(rows), len(columns)))

    def _check_result(self, node: NodeProto, shape: tuple[int, ...]) -> None:
        """Raises Refused for a result of too many numbers."""
        sizes = self.constants.get(node.input[3]) if len(node.input) > 3 else None
        at = 1 if node.op_type == "Upsample" or self.model.opset < 11 else 2
        scales = self.constants.get(node.input[at]) if len(node.input) > at else None
        if sizes is not None and sizes.size == len(shape):
            check_size(sizes.tolist())
        elif scales is not None and scales.size == len(shape):
            check_size([int(size * float(scale)) for size, scale in zip(shape, scales.tolist(), strict=True)])

    def _along(self, node: NodeProto, view: View, matrix: NDArray[np.float64], axis: int, last: bool) -> View:
        """Rows (`axis` 0) or columns multiplied by a matrix [those of the result, those of the view]: a depthwise
        convolution for each phase, over those that it reads. `last`: the result is the node's."""
        phases, side = _phases(matrix), "columns" if axis else "rows"
        if len(phases) > _MOST_PARTS:
            raise Refused(
                f"from {matrix.shape[1]} to {len(matrix)} {side}, whose weights are of {len(phases)} kinds; at most "
                f"{_MOST_PARTS} may be"
            )
        output = node.output[0] if last else self.fresh(f"{node.output[0]}/{side}")
        size = [view.channels, *view.size[1:]]
        size[axis + 1] = len(matrix)
        names: list[str] = []
        places: list[Place] = []
        for index, phase in enumerate(phases):
            count = len(range(index, len(matrix), len(phases)))
            reach = phase.first + np.arange((count - 1) * phase.stride + len(phase.taps))
            chosen = np.take(view.order, np.clip(reach, 0, matrix.shape[1] - 1), axis + 2)
            made = view if np.array_equal(chosen, view.order) else self.arrange(view.value, view.moved(chosen))
            taps = phase.taps.reshape((1, -1) if axis else (-1, 1))
            window = Window(*taps.shape, *((1, phase.stride) if axis else (phase.stride, 1)))
            w = np.broadcast_to(taps, (view.channels, 1, *taps.shape)).copy()
            part = [*size]
            part[axis + 1] = count
            name = output if len(phases) == 1 else self.fresh(f"{output}/{index}")
            layer = FloatLayer("depthwise", name, (made.value,), window, w=w, bias=np.zeros(view.channels))
            names.append(self.emit(layer, (part[0], part[1], part[2])))
            places.append(
                Place(0, index, 1, len(phases), part[1], count) if axis
                else Place(index, 0, len(phases), 1, count, part[2])
            )  # fmt: skip
        if len(phases) > 1:
            self.emit(FloatLayer("paste", output, tuple(names), places=tuple(places)), (size[0], size[1], size[2]))
        return self.views[output]

    def _rows(self, node: NodeProto, shape: tuple[int, ...], axis: int, helper: Any) -> NDArray[np.float64]:
        """What a Resize multiplies along one axis, [rows of the result, rows], as ONNX Runtime does it: a picture whose
        rows are those of the identity matrix gives it."""
        import onnx

        size = shape[axis]
        inputs = {name: self.constants[name] for name in node.input[1:] if name}
        rows = np.eye(size, dtype=np.float32)
        sides = [size if at == axis else 1 for at in range(len(shape))]
        probe = [np.broadcast_to(row.reshape(sides), shape) for row in rows]
        values = [helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, shape)]
        graph = helper.make_graph(
            [node], "resize", values, [helper.make_empty_tensor_value_info(node.output[0])],
            [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in inputs.items()],
        )  # fmt: skip
        opset = helper.make_opsetid("", max(self.model.opset, 10 if node.op_type == "Resize" else 9))
        live = session(helper.make_model(graph, opset_imports=[opset], ir_version=8), node.output[0])
        found = [run(live, {node.input[0]: np.ascontiguousarray(one)})[node.output[0]] for one in probe]
        if np.any(run(live, {node.input[0]: np.zeros(shape, np.float32)})[node.output[0]]):
            raise Refused("has other numbers than 0 outside of its operand (extrapolation_value)")
        columns = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in found]
        inside = int(np.abs(sum(columns)).sum(axis=1).argmax())  # not beside the operand along other axes
        return np.stack([one[inside] for one in columns], axis=1).astype(np.float64)


#: Operators and the methods that read them.
RESIZING = {"Resize": "resize", "Upsample": "resize"}


def _is_identity(matrix: NDArray[np.float64]) -> bool:
    return matrix.shape[0] == matrix.shape[1] and np.allclose(matrix, np.eye(len(matrix)), atol=1e-6)


class _Phase(NamedTuple):
    """Every so many rows of a result: weights of the rows that the first of them is made of, from row `first` on (there
    are copies of the first and last row beyond the edges); the next one's are `stride` rows further."""

    taps: NDArray[np.float64]
    first: int
    stride: int


def _phases(matrix: NDArray[np.float64]) -> list[_Phase]:
    """A matrix [rows of the result, rows] as few phases, as far as an instruction holds the stride between them; each
    row of the result is one by itself if they are not alike."""
    high, wide = matrix.shape
    whole = gcd(high, wide)
    count, stride = high // whole, wide // whole
    if stride <= INSTRUCTIONS[Opcode.VEC].most("stride_h"):
        found: list[_Phase] = []
        for phase in range(count):
            rows = matrix[phase::count]
            best = int(np.count_nonzero(rows, axis=1).argmax())  # one that loses no taps at the edges, if there is any
            reach = _reach(rows[best])
            found.append(_Phase(rows[best][reach], reach.start - best * stride, stride))
        if np.allclose(_unfolded(found, high, wide), matrix, atol=1e-5):
            return found
    reaches = [_reach(row) for row in matrix]
    return [_Phase(row[reach], reach.start, 1) for row, reach in zip(matrix, reaches, strict=True)]


def _reach(row: NDArray[np.float64]) -> slice:
    used = np.flatnonzero(row)
    return slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)


def _unfolded(phases: Sequence[_Phase], high: int, wide: int) -> NDArray[np.float64]:
    """The matrix that phases stand for."""
    found = np.zeros((high, wide))
    for row in range(high):
        turn, phase = divmod(row, len(phases))
        taps, first, stride = phases[phase]
        np.add.at(found[row], np.clip(first + turn * stride + np.arange(len(taps)), 0, wide - 1), taps)
    return found


def _kernels(matrix: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], int, int, int] | None:
    """A matrix [rows of the result, rows] as one kernel for each phase of the result, where one is a multiple of the
    other: the kernels, all over the same rows, how many copies of the first and last row are needed, and the stride.
    None where that is not what it is."""
    high, wide = matrix.shape
    if high % wide and wide % high:
        return None
    phases = _phases(matrix)
    if len(phases) != max(1, high // wide) or (step := phases[0].stride) != max(1, wide // high):
        return None
    low = min(phase.first for phase in phases)
    end = max(phase.first + len(phase.taps) for phase in phases)
    kernels = [np.pad(one.taps, (one.first - low, end - one.first - len(one.taps))) for one in phases]
    return kernels, max(0, -low), max(0, (high // len(phases) - 1) * step + end - wide), step
