"""Changes of size in float models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Window
from .errors import Refused
from .floats import FloatLayer
from .reductions import Reductions
from .runtime import run, session
from .views import natural

if TYPE_CHECKING:
    from onnx import NodeProto


class Resizing(Reductions):
    def resize(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """Nearest: copies of rows and columns. Otherwise a depthwise convolution for each phase of the result, over the
        map with copies of its edges around it."""
        from onnx import helper

        view = self.settled(node.input[0])
        order = natural(view)
        if order is None or len(order) != 4:
            view, order = self.picture(node.input[0]), (0, 1, 2, 3)
        mode = attributes.get("mode", "nearest")
        mode = mode if isinstance(mode, str) else mode.decode()
        down, right = (self._rows(node, view.shape, axis, helper) for axis in order[2:])
        if mode == "nearest":
            moved = view.order.transpose(order)
            picked = [np.argmax(matrix, axis=1) for matrix in (down, right)]
            index = moved[:, :, picked[0]][:, :, :, picked[1]].transpose(np.argsort(order))
            self.move(node, index)
            return
        if order != (0, 1, 2, 3):
            raise Refused(f"mode = {mode} of a tensor whose channels are its last axis; put it behind the Transpose")
        (rows, before_h, after_h, step_h), (columns, before_w, after_w, step_w) = _kernels(down), _kernels(right)
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
        columns = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis])[0] for one in found]
        return np.stack(columns, axis=1).astype(np.float64)


#: Operators and the methods that read them.
RESIZING = {"Resize": "resize", "Upsample": "resize"}


def _kernels(matrix: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], int, int, int]:
    """A matrix [rows of the result, rows] as one kernel for each phase of the result: the kernels, how many copies of
    the first and last row are needed, and the stride. Raises Refused when it is no such thing."""
    high, wide = matrix.shape
    phases, step = (high // wide, 1) if high >= wide else (1, wide // high)
    if high * step != wide * phases:
        raise Refused(f"from {wide} to {high} rows or columns; one must be a multiple of the other")
    used = np.count_nonzero(matrix, axis=1).reshape(-1, phases)
    best = used.argmax(axis=0).tolist()  # rows that lose no taps at the edges, if there are any
    reach = [np.flatnonzero(matrix[row * phases + phase]) - row * step for phase, row in enumerate(best)]
    low, end = min(int(taps.min()) for taps in reach), max(int(taps.max()) for taps in reach) + 1
    kernels: list[NDArray[np.float64]] = []
    for phase, row in enumerate(best):
        taps = np.zeros(end - low)
        taps[reach[phase] - low] = matrix[row * phases + phase][reach[phase] + row * step]
        kernels.append(taps)
    folded = np.zeros_like(matrix)
    for row in range(high):
        for tap, weight in enumerate(kernels[row % phases]):
            folded[row, min(max(row // phases * step + low + tap, 0), wide - 1)] += weight
    if not np.allclose(folded, matrix, atol=1e-5):
        raise Refused("its weights differ from pixel to pixel (align_corners?); they must be those of its phases")
    count = high // phases
    return kernels, max(0, -low), max(0, (count - 1) * step + end - wide), step
