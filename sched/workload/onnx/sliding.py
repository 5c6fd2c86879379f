"""Operators of float models with windows: convolutions, transposed ones, pools, changes of size."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.isa import Opcode

from ..graph import Place, PlainKind, Window
from .arranging import inflated
from .errors import Refused
from .floats import FloatLayer
from .folding import finite, scattered
from .movement import Movement
from .runtime import run, session
from .views import NO_PAD, Size, View, channels_selected, natural
from .windows import limit, sliding_window

if TYPE_CHECKING:
    from onnx import NodeProto


def two_axes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a window over columns alone as those of one over rows and columns."""
    found = dict(attributes)
    for name, neutral in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
        if name in found and len(found[name]) == 1:
            found[name] = [neutral, *found[name]]
    if len(found.get("pads", ())) == 2:
        found["pads"] = [0, found["pads"][0], 0, found["pads"][1]]
    return found


class Sliding(Movement):
    # -- convolutions ---------------------------------------------------------------------------------------

    def conv(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        w, bias = self.constant(node, 1, "weights"), self.optional(node, 2, "bias")
        rank, group = w.ndim, attributes.get("group", 1)
        if rank == 3:
            w, attributes = w[:, :, None], two_axes(attributes)
        if w.ndim != 4:
            raise Refused(f"weights have shape {list(w.shape)}, must be [outputs, inputs, rows, columns]")
        outputs, inputs = w.shape[:2]
        flat = self.view(node.input[0])
        if group == 1 and w.shape[2:] == (1, 1) == flat.shape[2:] and not flat.is_picture and flat.pad == NO_PAD:
            if inputs != flat.shape[1]:
                raise Refused(f"weights for {inputs} channels on an operand of {flat.shape[1]}")
            numbers = np.zeros(outputs) if bias is None else finite(bias)
            self.whole_map(FloatLayer("conv", node.output[0], (flat.value,), w=finite(w), bias=numbers), flat, (1,))
            self.views[node.output[0]] = replace(self.views[node.output[0]], shape=(1, outputs, 1, 1))
            return
        view = self._read(node.input[0], w)
        if inputs * group != view.shape[1] or outputs % group:
            raise Refused(f"weights for {inputs} x {group} channels on an operand of {view.shape[1]}")
        w, attributes = _even_taps(w, attributes)
        window = sliding_window(attributes, (w.shape[2], w.shape[3]), view.size[1:], view.pad)
        kind, weights = self._grouped(node, finite(w), group, view.shape[1])
        if (selected := channels_selected(view)) is not None and view.index is not None:  # 0 for the others
            weights = scattered(weights, selected, view.channels)
        numbers = np.zeros(outputs) if bias is None else finite(bias)
        self.emit_conv(FloatLayer(kind, node.output[0], (view.value,), window, w=weights, bias=numbers), view)
        if rank == 3:
            made = self.views[node.output[0]]
            self.views[node.output[0]] = replace(made, shape=(1, made.size[0], made.size[2]))

    def _read(self, name: str, w: NDArray[Any]) -> View:
        """The operand of a convolution. A selection of channels stays a view where weights of 0 for the others are
        cheaper than a convolution that selects them."""
        view = self.view(name)
        if len(view.shape) == 4 and view.shape[0] == 1 and view.pad == NO_PAD and view.index is not None:
            chosen, left = view.shape[1], view.channels - view.shape[1]
            if (
                w.shape[1] == chosen
                and channels_selected(view) is not None
                and not self.fusible(name, ("conv",))
                and left * len(w) * w.shape[2] * w.shape[3] <= view.channels * chosen
            ):
                return view
        return self.picture(name, padded=True)

    def _grouped(
        self, node: NodeProto, w: NDArray[np.float64], group: int, channels: int
    ) -> tuple[PlainKind, NDArray[np.float64]]:
        """Weights of a convolution in groups: one filter for each channel, or as one convolution with zeros."""
        outputs, inputs = w.shape[:2]
        if group == 1 or group == channels == outputs:
            return ("conv" if group == 1 else "depthwise"), w
        each = outputs // group
        dense = np.zeros((outputs, channels, *w.shape[2:]))
        for g in range(group):
            rows, columns = slice(g * each, (g + 1) * each), slice(g * inputs, (g + 1) * inputs)
            dense[rows, columns] = w[rows]
        self.notes.append(f"The {group} groups of {node.output[0]} run as one convolution with zeros between them.")
        return "conv", dense

    def conv_transpose(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """One convolution for each phase of the result, whose rows and columns take turns."""
        raw, bias = self.constant(node, 1, "weights"), self.optional(node, 2, "bias")
        rank, group = raw.ndim, attributes.get("group", 1)
        w = finite(raw[:, :, None] if rank == 3 else raw)
        attributes = two_axes(attributes)
        view = self.picture(node.input[0])
        if w.ndim != 4 or len(w) != view.channels:
            raise Refused(f"weights of shape {list(raw.shape)} for {view.channels} channels")
        w = inflated(w, *attributes.get("dilations", (1, 1)))
        w = w.reshape(group, -1, *w.shape[1:]).transpose(0, 2, 1, 3, 4)  # group, outputs, inputs, rows, columns
        flat = w.reshape(-1, *w.shape[2:])
        kind, weights = self._grouped(node, flat, group, view.channels)
        strides = tuple(attributes.get("strides", (1, 1)))
        pads, size = _transposed(attributes, (flat.shape[2], flat.shape[3]), strides, view.size[1:])
        outputs = len(flat)
        numbers = np.zeros(outputs) if bias is None else finite(bias)
        if len(numbers) != outputs:
            raise Refused(f"a bias of {len(numbers)} numbers for {outputs} outputs")
        parts: list[FloatLayer] = []
        for y in range(strides[0]):
            for x in range(strides[1]):
                down = _phase(y, strides[0], pads[0], flat.shape[2], view.size[1], size[0])
                right = _phase(x, strides[1], pads[1], flat.shape[3], view.size[2], size[1])
                taps = _taps(_taps(weights, 2, down[0]), 3, right[0])
                window = Window(taps.shape[2], taps.shape[3], 1, 1, down[1], right[1], down[2], right[2])
                name = self.fresh(f"{node.output[0]}/{y}_{x}")
                parts.append(FloatLayer(kind, name, (view.value,), window, w=taps, bias=numbers.copy()))
        if len(parts) == 1:
            parts[0].output = node.output[0]
            self.emit_conv(parts[0], view)
        else:
            self.pasted(node.output[0], parts, (outputs, *size), (strides[0], strides[1]))
        if rank == 3:
            self.views[node.output[0]] = replace(self.views[node.output[0]], shape=(1, outputs, size[1]))

    # -- pools ----------------------------------------------------------------------------------------------

    def max_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if len([name for name in node.output if name]) > 1:
            raise Refused("the indices of the maxima are not computed")
        rank, attributes = len(attributes["kernel_shape"]), two_axes(attributes)
        layer = self.layers.get(self.view(node.input[0]).value)
        zeros = bool(layer and layer.relu)  # that are never larger than what is there
        view = self.picture(node.input[0], padded=zeros)
        windows = [self._pool_window(view, one) for one in _by_axis(attributes)]
        if view.pad != NO_PAD and not all(_has_pixels(one) for one in windows if one.dilation == 1):
            view = self.picture(node.input[0])
            windows = [self._pool_window(view, one) for one in _by_axis(attributes)]
        steps = [part for window in windows for part in _composed(window)]
        name, size = view.value, view.size
        for index, window in enumerate(steps):
            output = node.output[0] if index == len(steps) - 1 else self.fresh(f"{node.output[0]}/part{index}")
            size = size[0], *window.output(*size[1:])
            name = self.emit(FloatLayer("max_pool", output, (name,), window), size)
        if rank == 1:
            self.views[name] = replace(self.views[name], shape=(1, size[0], size[2]))

    def average_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        rank, attributes = len(attributes["kernel_shape"]), two_axes(attributes)
        own = any(attributes.get("pads", ())) or str(attributes.get("auto_pad")).startswith("SAME")
        counted = bool(attributes.get("count_include_pad")) or not (own or attributes.get("ceil_mode"))
        view = self.picture(node.input[0], padded=counted)
        window = self._pool_window(view, attributes)
        if window.dilation != 1:
            raise Refused("dilations of an average")
        if view.pad != NO_PAD and not _has_pixels(window):
            view = self.picture(node.input[0])
            window = self._pool_window(view, attributes)
        size = view.channels, *window.output(*view.size[1:])
        plain = self._pool_window(view, attributes | {"ceil_mode": 0})
        pads = window.pad_top, window.pad_left, window.pad_bottom, window.pad_right
        if plain == window and (pads == NO_PAD or counted):
            self.emit(FloatLayer("average_pool", node.output[0], (view.value,), window), size)
        elif counted and pads != NO_PAD:
            raise Refused("ceil_mode with padding that counts in the average")
        else:
            self._inside(node.output[0], view, window, size)
        if rank == 1:
            self.views[node.output[0]] = replace(self.views[node.output[0]], shape=(1, size[0], size[2]))

    def _inside(self, output: str, view: View, window: Window, size: Size) -> None:
        """Averages of the pixels that there are: windows that have as many of them together."""
        down = _regions(size[1], view.size[1], window.kernel_h, window.stride_h, window.pad_top)
        right = _regions(size[2], view.size[2], window.kernel_w, window.stride_w, window.pad_left)
        places: list[Place] = []
        names: list[str] = []
        for y, rows, top, high, kernel_h in down:
            for x, columns, left, wide, kernel_w in right:
                part = self.fresh(f"{output}/{len(names)}")
                cut = Window(1, 1, 1, 1, top, left, view.size[1] - top - high, view.size[2] - left - wide)
                source = self.slice_of(view.value, f"{part}/pixels", view.size, cut)
                inner = Window(kernel_h, kernel_w, window.stride_h, window.stride_w)
                names.append(self.emit(FloatLayer("average_pool", part, (source,), inner), (size[0], rows, columns)))
                places.append(Place(y, x, 1, 1, rows, columns))
        self.emit(FloatLayer("paste", output, tuple(names), places=tuple(places)), size)

    def _pool_window(self, view: View, attributes: dict[str, Any]) -> Window:
        """With `ceil_mode`, padding at the end grows until the last window fits."""
        window = sliding_window(attributes, tuple(attributes["kernel_shape"]), view.size[1:], view.pad)
        if not attributes.get("ceil_mode") or attributes.get("auto_pad", "NOTSET") != "NOTSET":
            return window
        ends: list[int] = []
        for extent, k, stride, before, after in (
            (view.size[1], window.kernel_h, window.stride_h, window.pad_top, window.pad_bottom),
            (view.size[2], window.kernel_w, window.stride_w, window.pad_left, window.pad_right),
        ):
            reach = (k - 1) * window.dilation + 1
            count = -(-(extent + before + after - reach) // stride) + 1
            if (count - 1) * stride >= extent + before:  # no window begins past the operand
                count -= 1
            ends.append(max(after, (count - 1) * stride + reach - extent - before))
        return replace(window, pad_bottom=ends[0], pad_right=ends[1])

    def global_average_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._global("average_pool", node, self.picture(node.input[0]))

    def global_max_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._global("max_pool", node, self.picture(node.input[0]))

    def reduce_mean(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._reduced("average_pool", node, attributes)

    def reduce_max(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._reduced("max_pool", node, attributes)

    def reduce_sum(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """As many means as there are pixels."""
        self._reduced("average_pool", node, attributes)
        summed = prod(self.settled(node.input[0]).shape) // prod(self.views[node.output[0]].shape)
        self.layers[node.output[0]].gain = float(summed)

    def _reduced(self, kind: PlainKind, node: NodeProto, attributes: dict[str, Any]) -> None:
        axes = self.optional(node, 1, "axes")
        axes = attributes.get("axes") if axes is None else axes.tolist()
        view = self.settled(node.input[0])
        order = natural(view)
        if order is None:
            view = self.picture(node.input[0])
            order = tuple(range(len(view.shape)))
        rank = len(order)
        over = {axis % rank for axis in axes} if axes is not None else set(range(rank))
        wide = {axis for axis in order[2:] if view.shape[axis] > 1}
        if rank < 3 or not wide <= over or any(view.shape[axis] > 1 for axis in over - wide):
            raise Refused(f"over axes {axes}; must be over rows and columns, 2 and 3")
        keep = bool(attributes.get("keepdims", 1))
        shape = tuple(1 if axis in over else size for axis, size in enumerate(view.shape) if keep or axis not in over)
        self._global(kind, node, view, shape)

    def _global(self, kind: PlainKind, node: NodeProto, view: View, shape: tuple[int, ...] | None = None) -> None:
        """One window, or, where no instruction holds it, windows of windows."""
        name, (channels, height, width), most = view.value, view.size, limit("kernel_h", Opcode.VEC)
        step = 0
        while max(height, width) > most:
            kernel = _divisor(height, most), _divisor(width, most)
            window = Window(*kernel, *kernel)
            if max(kernel) > limit("stride_h", Opcode.VEC):
                raise Refused(
                    f"over {view.size[1]}x{view.size[2]} pixels; {most}x{most} at most, or with small divisors"
                )
            height, width = height // kernel[0], width // kernel[1]
            part = self.fresh(f"{node.output[0]}/part{step}")
            name = self.emit(FloatLayer(kind, part, (name,), window), (channels, height, width))
            step += 1
        layer = FloatLayer(kind, node.output[0], (name,), Window(height, width))
        self.emit(layer, (channels, 1, 1))
        shape = shape or (*view.shape[:2], *(1 for _ in view.shape[2:]))
        self.views[node.output[0]] = replace(self.views[node.output[0]], shape=shape)

    # -- other sizes ----------------------------------------------------------------------------------------

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


SLIDING = {
    "AveragePool": "average_pool",
    "Conv": "conv",
    "ConvTranspose": "conv_transpose",
    "GlobalAveragePool": "global_average_pool",
    "GlobalMaxPool": "global_max_pool",
    "MaxPool": "max_pool",
    "ReduceMax": "reduce_max",
    "ReduceMean": "reduce_mean",
    "ReduceSum": "reduce_sum",
    "Resize": "resize",
    "Upsample": "resize",
}


# -- windows taken apart -------------------------------------------------------------------------------------------


def _even_taps(w: NDArray[Any], attributes: dict[str, Any]) -> tuple[NDArray[Any], dict[str, Any]]:
    """Weights whose taps are equally far apart in both directions, with zeros between those that are not."""
    down, right = attributes.get("dilations", (1, 1))
    if down == right or min(w.shape[2:]) == 1:
        return w, attributes
    apart = gcd(down, right)
    rest = {name: value for name, value in attributes.items() if name not in ("dilations", "kernel_shape")}
    return inflated(w, down // apart, right // apart), rest | {"dilations": [apart, apart]}


def _has_pixels(window: Window) -> bool:
    """Whether no window lies in the padding alone."""
    rows, columns = max(window.pad_top, window.pad_bottom), max(window.pad_left, window.pad_right)
    return rows < window.kernel_h and columns < window.kernel_w


def _by_axis(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """The windows of a max pool: one, or, if its dilations differ, one of rows and one of columns."""
    down, right = attributes.get("dilations", (1, 1))
    kernel, strides, pads = (
        list(attributes.get(name, neutral))
        for name, neutral in (("kernel_shape", ()), ("strides", (1, 1)), ("pads", (0, 0, 0, 0)))
    )
    if down == right or min(kernel) == 1 or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return [attributes]
    rows = {"kernel_shape": [kernel[0], 1], "strides": [strides[0], 1], "pads": [pads[0], 0, pads[2], 0]}
    columns = {"kernel_shape": [1, kernel[1]], "strides": [1, strides[1]], "pads": [0, pads[1], 0, pads[3]]}
    return [attributes | rows | {"dilations": [down, down]}, attributes | columns | {"dilations": [right, right]}]


def _composed(window: Window) -> list[Window]:
    """A window of maxima as windows of windows that a VEC holds: k and j taps reach as far as k + j - 1."""
    most = limit("kernel_h", Opcode.VEC)
    if max(window.kernel_h, window.kernel_w) <= most or window.dilation > 1:
        return [window]
    found: list[Window] = []
    high, wide = window.kernel_h, window.kernel_w
    pad = [window.pad_top, window.pad_left, window.pad_bottom, window.pad_right]
    while max(high, wide) > most:
        k, j = min(high, most) if high > most else 1, min(wide, most) if wide > most else 1
        own = [min(side, size - 1) for side, size in zip(pad, (k, j, k, j), strict=True)]
        pad = [side - part for side, part in zip(pad, own, strict=True)]
        found.append(Window(k, j, 1, 1, *own))
        high, wide = high - k + 1, wide - j + 1
    return [*found, Window(high, wide, window.stride_h, window.stride_w, *pad)]


def _divisor(size: int, most: int) -> int:
    """By what a side is divided on the way to `most`; 1 if it need not be."""
    if size <= most:
        return 1
    return next((divisor for divisor in range(2, size) if size % divisor == 0), size)


def _regions(count: int, size: int, kernel: int, stride: int, pad: int) -> list[tuple[int, int, int, int, int]]:
    """Runs of windows that have as many pixels: first window, how many, first pixel, how many, pixels of each."""
    found: list[tuple[int, int, int, int, int]] = []
    for index in range(count):
        low, high = max(0, index * stride - pad), min(size, index * stride - pad + kernel)
        last = found[-1] if found else None
        if last and last[4] == high - low == kernel:
            found[-1] = last[0], last[1] + 1, last[2], high - last[2], kernel
        else:
            found.append((index, 1, low, high - low, high - low))
    return found


def _transposed(
    attributes: dict[str, Any], kernel: tuple[int, int], strides: tuple[int, ...], size: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns that a ConvTranspose drops at the beginning, and the size of its result (as ONNX says)."""
    extra, asked = attributes.get("output_padding", (0, 0)), attributes.get("output_shape")
    mode, pads = attributes.get("auto_pad", "NOTSET"), list(attributes.get("pads", (0, 0, 0, 0)))
    begin: list[int] = []
    sizes: list[int] = []
    for axis in (0, 1):
        full = strides[axis] * (size[axis] - 1) + extra[axis] + kernel[axis]
        if asked is None and not mode.startswith("SAME"):
            begin.append(pads[axis] if mode == "NOTSET" else 0)
            sizes.append(full - (pads[axis] + pads[axis + 2] if mode == "NOTSET" else 0))
            continue
        end = asked[len(asked) - 2 + axis] if asked is not None and len(asked) > 1 else (
            asked[0] if asked is not None and axis == 1 else size[axis] * strides[axis]
        )  # fmt: skip
        gone = max(0, full - end)
        begin.append(gone // 2 if mode == "SAME_UPPER" else gone - gone // 2)
        sizes.append(end)
    return (begin[0], begin[1]), (sizes[0], sizes[1])


def _phase(at: int, stride: int, pad: int, kernel: int, size: int, result: int) -> tuple[list[int], int, int]:
    """The taps (-1: 0) that make every `stride`-th row of a transposed convolution from row `at` on, and the zeros
    before and behind its operand."""
    first = (at + pad) % stride
    taps = list(range(first, kernel, stride))[::-1] or [-1]
    ahead = (at + pad) // stride
    count = -(-(result - at) // stride)
    before, behind = len(taps) - 1 - ahead, count + ahead - size
    if before < 0:
        taps, before = [-1] * -before + taps, 0
    if behind < 0:
        taps, behind = taps + [-1] * -behind, 0
    return taps, before, behind


def _taps(w: NDArray[np.float64], axis: int, taps: list[int]) -> NDArray[np.float64]:
    found = np.take(w, np.maximum(taps, 0), axis)
    empty: list[Any] = [slice(None)] * w.ndim
    empty[axis] = np.array(taps) < 0
    found[tuple(empty)] = 0
    return found


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
