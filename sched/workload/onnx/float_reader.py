"""Float ONNX models as `FloatNet`s: what each operator becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Kind, Window
from .errors import Refused
from .floats import FloatLayer, FloatNet, PerChannel
from .folding import NO_PAD, Folding, View, finite
from .load import check
from .lowering import ENDS
from .windows import slice_window, sliding_window

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

#: Gain and offset, channel by channel, that stand for an operator with a constant.
_Affine = Callable[[NDArray[np.float64]], PerChannel]


def fold(model: ModelProto, name: str, *, normalised: bool) -> FloatNet:
    """The folded network of a float model. `name` is for messages and the network.

    `normalised`: per-channel arithmetic on an input (mean and deviation of pictures) is taken out of the network, to be
    done when the input is made (`FloatNet.normalise`); otherwise it becomes a layer. Raises UnsupportedError with all
    nodes that the chip cannot run, OnnxError as `load.check` does.
    """
    reader = _FloatReader(check(model, name, _OPERATORS.keys() | ENDS), normalised)
    reader.lower_nodes()
    return reader.net()


class _FloatReader(Folding):
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        return {operator: getattr(self, method) for operator, method in _OPERATORS.items()}

    # -- layers with weights ----------------------------------------------------------------------------------

    def conv(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        w = self.constant(node, 1, "weights")
        bias = self.optional(node, 2, "bias")
        view, group = self.view(node.input[0]), attributes.get("group", 1)
        if w.ndim != 4:
            raise Refused(f"weights have shape {list(w.shape)}, must be [outputs, inputs, rows, columns]")
        if view.shape != (1, *view.size) and w.shape[2:] == (1, 1) and group == 1:  # pixels flattened into channels
            self.fully_connected(node, w[:, :, 0, 0], bias)
            return
        view = self.picture(node.input[0], padded=True)
        outputs, inputs = w.shape[:2]
        if inputs * group != view.channels or outputs % group:
            raise Refused(f"weights for {inputs} x {group} channels on an operand of {view.channels}")
        window = sliding_window(attributes, (w.shape[2], w.shape[3]), view.size[1:], view.pad)
        weights = finite(w)
        if group == 1 or (group == view.channels == outputs):
            kind: Kind = "conv" if group == 1 else "depthwise"
        else:  # groups as one convolution with zeros between them
            kind, each = "conv", outputs // group
            dense = np.zeros((outputs, view.channels, *w.shape[2:]))
            for g in range(group):
                rows, columns = slice(g * each, (g + 1) * each), slice(g * inputs, (g + 1) * inputs)
                dense[rows, columns] = weights[rows]
            weights = dense
            self.notes.append(f"The {group} groups of {node.output[0]} run as one convolution with zeros between them.")
        numbers = np.zeros(outputs) if bias is None else finite(bias)
        layer = FloatLayer(kind, node.output[0], (view.value,), window, w=weights, bias=numbers)
        self.emit(layer, (outputs, *window.output(*view.size[1:])))

    def gemm(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        w, bias = self.constant(node, 1, "weights"), self.optional(node, 2, "bias")
        if attributes.get("transA"):
            raise Refused("transA; only weights are transposed")
        w = (w if attributes.get("transB") else w.T) * attributes.get("alpha", 1.0)
        self.fully_connected(node, w, None if bias is None else bias * attributes.get("beta", 1.0))

    def matmul(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.view(node.input[0])
        w = self.constant(node, 1, "second factor")
        if w.ndim != 2:
            raise Refused(f"weights have shape {list(w.shape)}, must be [inputs, outputs]")
        self.fully_connected(node, w.T, None)

    def batch_normalisation(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if attributes.get("training_mode") or len([name for name in node.output if name]) > 1:
            raise Refused("training_mode; export the model for inference")
        names = ("scale", "bias", "mean", "variance")
        gain, offset, mean, variance = (
            self.constant(node, index, what).astype(np.float64) for index, what in enumerate(names, start=1)
        )
        if self.view(node.input[0]).channels != len(gain):
            raise Refused(f"{len(gain)} channels for an operand of {self.view(node.input[0]).channels}")
        gain = gain / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        self.affine(node, node.input[0], gain, offset - gain * mean)

    # -- elementwise ------------------------------------------------------------------------------------------

    def add(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if any(name in self.constants for name in node.input):
            self._arithmetic(node, lambda x: (np.ones_like(x), x), lambda x: (np.ones_like(x), x))
            return
        if len(node.input) != 2:
            raise Refused(f"adds {len(node.input)} tensors; an addition has two")
        a, b = self.view(node.input[0]), self.view(node.input[1])
        if a.shape != b.shape or a.size != b.size:
            raise Refused(f"operands have shapes {list(a.shape)} and {list(b.shape)}, must be alike")
        if a.pad != NO_PAD or b.pad != NO_PAD:
            raise Refused("an operand is padded; only convolutions and pools take padding in")
        self.emit(FloatLayer("add", node.output[0], (a.value, b.value)), a.size, a.shape)

    def subtract(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._arithmetic(node, lambda x: (np.ones_like(x), -x), lambda x: (-np.ones_like(x), x))

    def multiply(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._arithmetic(node, lambda x: (x, np.zeros_like(x)), lambda x: (x, np.zeros_like(x)))

    def divide(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if node.input[0] in self.constants:
            raise Refused("divides by a tensor")
        if not np.all(self.constant(node, 1, "divisor")):
            raise Refused("divides by zero")
        self._arithmetic(node, lambda x: (1 / x, np.zeros_like(x)), lambda x: (1 / x, np.zeros_like(x)))

    def _arithmetic(self, node: NodeProto, right: _Affine, left: _Affine) -> None:
        """`right`, `left`: gain and offset for a constant on that side of the operator."""
        which = next((index for index in (1, 0) if node.input[index] in self.constants), None)
        if which is None:
            raise Refused("of two tensors; one must be a constant")
        name = node.input[1 - which]
        view = self.view(name)
        gain, offset = (right if which else left)(self.per_channel(self.constants[node.input[which]], view))
        self.affine(node, name, gain, offset)

    def relu(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.clip_at(node, True, inf)

    def clip(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if self.model.opset < 11:
            low, high = attributes.get("min", -inf), attributes.get("max", inf)
        else:
            bounds = (self.optional(node, index, what) for index, what in ((1, "minimum"), (2, "maximum")))
            low, high = (
                default if bound is None else float(bound.flat[0])
                for bound, default in zip(bounds, (-inf, inf), strict=True)
            )
        low, high = (-inf if low < -3e38 else low), (inf if high > 3e38 else high)  # the largest float means none
        if low not in (0.0, -inf) or not high >= 0:
            raise Refused(f"clips at {low:g} and {high:g}; the lower bound must be 0 or absent, the upper 0 or more")
        if low == -inf and high == inf:
            self.pass_on(node)
        else:
            self.clip_at(node, low == 0, high)

    # -- pools ------------------------------------------------------------------------------------------------

    def max_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.picture(node.input[0], padded=True)
        if len([name for name in node.output if name]) > 1:
            raise Refused("the indices of the maxima are not computed")
        layer = self.layers.get(view.value)
        if view.pad != NO_PAD and not (layer and layer.relu):
            raise Refused("zeros around an operand that may be negative; use the pads of the pool")
        window = self._pool_window(view, attributes)
        self.emit(
            FloatLayer("max_pool", node.output[0], (view.value,), window),
            (view.channels, *window.output(*view.size[1:])),
        )

    def average_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.picture(node.input[0], padded=True)
        window = self._pool_window(replace(view, pad=NO_PAD), attributes)
        pads = (window.pad_top, window.pad_left, window.pad_bottom, window.pad_right)
        inside = self._pool_window(replace(view, pad=NO_PAD), attributes | {"ceil_mode": 0})
        if inside != window:
            raise Refused("ceil_mode with windows that leave the operand; they would be averages of fewer pixels")
        if pads != NO_PAD and not attributes.get("count_include_pad"):
            raise Refused("padding that does not count in the average; only count_include_pad = 1 is supported")
        if window.dilation != 1:
            raise Refused("dilations of an average")
        window = self._pool_window(view, attributes | {"ceil_mode": 0})
        self.emit(
            FloatLayer("average_pool", node.output[0], (view.value,), window),
            (view.channels, *window.output(*view.size[1:])),
        )

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
        self._global("average_pool", node, True)

    def global_max_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self._global("max_pool", node, True)

    def reduce_mean(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        axes = self.optional(node, 1, "axes")
        axes = attributes.get("axes") if axes is None else axes.tolist()
        if axes is None or {axis % 4 for axis in axes} != {2, 3}:
            raise Refused(f"over axes {axes}; must be over rows and columns, 2 and 3")
        self._global("average_pool", node, bool(attributes.get("keepdims", 1)))

    def _global(self, kind: Kind, node: NodeProto, keep: bool) -> None:
        view = self.picture(node.input[0])
        layer = FloatLayer(kind, node.output[0], (view.value,), Window(*view.size[1:]))
        self.emit(layer, (view.channels, 1, 1), None if keep else (1, view.channels))

    # -- shapes -----------------------------------------------------------------------------------------------

    def concat(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        views = [self.view(name) for name in node.input]
        if attributes["axis"] % len(views[0].shape) != 1:
            raise Refused(f"axis = {attributes['axis']}; channels are axis 1")
        if len({(view.size[1:], len(view.shape)) for view in views}) > 1 or any(view.pad != NO_PAD for view in views):
            raise Refused("operands differ in rows or columns, or are padded")
        flat = len(views[0].shape) == 2
        if any(view.shape != ((1, view.channels) if flat else (1, *view.size)) for view in views):
            raise Refused("operands are flattened pictures; concatenate them before")
        channels = sum(view.channels for view in views)
        layer = FloatLayer("concat", node.output[0], tuple(view.value for view in views))
        self.emit(layer, (channels, *views[0].size[1:]), (1, channels) if flat else None)

    def slice(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.picture(node.input[0])
        if self.model.opset < 10:
            starts, ends = np.array(attributes["starts"]), np.array(attributes["ends"])
            axes, steps = attributes.get("axes"), None
            axes = None if axes is None else np.array(axes)
        else:
            starts, ends = self.constant(node, 1, "starts"), self.constant(node, 2, "ends")
            axes, steps = self.optional(node, 3, "axes"), self.optional(node, 4, "steps")
        self._slice(node.output[0], view, slice_window(view.shape, starts, ends, axes, steps))

    def _slice(self, output: str, view: View, window: Window) -> None:
        rows, columns = view.size[1] - window.pad_top, view.size[2] - window.pad_left
        size = (view.channels, -(-rows // window.stride_h), -(-columns // window.stride_w))
        self.emit(FloatLayer("slice", output, (view.value,), window), size)

    def space_to_depth(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, block, output = self.picture(node.input[0]), attributes["blocksize"], node.output[0]
        if view.size[1] % block or view.size[2] % block:
            raise Refused(f"{view.size[1]} rows and {view.size[2]} columns in blocks of {block}")
        parts = [f"{output}/{y}_{x}" for y in range(block) for x in range(block)]
        for index, part in enumerate(parts):
            y, x = divmod(index, block)
            self._slice(part, view, Window(stride_h=block, stride_w=block, pad_top=y, pad_left=x))
        size = (view.channels * block * block, view.size[1] // block, view.size[2] // block)
        self.emit(FloatLayer("concat", output, tuple(parts)), size)

    def identity(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.pass_on(node)

    def dropout(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        training = self.optional(node, 2, "training mode")
        if training is not None and training.any():
            raise Refused("training_mode; export the model for inference")
        if len(node.output) > 1 and self.model.uses[node.output[1]]:
            raise Refused("its mask output is used")
        self.pass_on(node)

    def cast(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        from onnx import TensorProto

        if attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            raise Refused(f"to {TensorProto.DataType.Name(attributes['to'])}; only floating point is quantised")
        self.pass_on(node)

    def flatten(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.view(node.input[0])
        if attributes.get("axis", 1) % len(view.shape) != 1:
            raise Refused(f"axis = {attributes['axis']}; only axis = 1, which keeps the batch, is supported")
        self._reshape(node, (1, prod(view.shape)))

    def reshape(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.view(node.input[0])
        wanted = self.constant(node, 1, "shape").tolist()
        if not attributes.get("allowzero"):
            wanted = [view.shape[i] if size == 0 and i < len(view.shape) else size for i, size in enumerate(wanted)]
        known = prod(size for size in wanted if size != -1)
        if -1 in wanted and known:
            wanted[wanted.index(-1)] = prod(view.shape) // known
        self._reshape(node, tuple(wanted))

    def squeeze(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, axes = self.view(node.input[0]), self._axes(node, attributes)
        if axes is None:
            axes = [index for index, size in enumerate(view.shape) if size == 1]
        gone = {axis % len(view.shape) for axis in axes}
        self._reshape(node, tuple(size for index, size in enumerate(view.shape) if index not in gone))

    def unsqueeze(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, axes = self.view(node.input[0]), self._axes(node, attributes) or []
        rank = len(view.shape) + len(axes)
        new = {axis % rank for axis in axes}
        sizes = iter(view.shape)
        self._reshape(node, tuple(1 if index in new else next(sizes) for index in range(rank)))

    def _axes(self, node: NodeProto, attributes: dict[str, Any]) -> list[int] | None:
        axes = self.optional(node, 1, "axes")
        return attributes.get("axes") if axes is None else axes.tolist()

    def _reshape(self, node: NodeProto, shape: tuple[int, ...]) -> None:
        view = self.view(node.input[0])
        count = prod(view.size)
        if view.pad != NO_PAD or shape not in ((1, *view.size), (1, count), (1, count, 1, 1)):
            raise Refused(
                f"from {list(view.shape)} to {list(shape)}; only {[1, *view.size]} and {[1, count]} are possible"
            )
        self.pass_on(node, shape=shape)

    def pad(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.picture(node.input[0], padded=True)
        if attributes.get("mode", "constant") != "constant":
            raise Refused(f"mode = {attributes['mode']}; only padding with zeros is supported")
        if self.model.opset < 11:
            pads, value = list(attributes["pads"]), attributes.get("value", 0.0)
        else:
            given = self.constant(node, 1, "padding").tolist()
            constant, axes = self.optional(node, 2, "value"), self.optional(node, 3, "axes")
            value = 0.0 if constant is None else float(constant.flat[0])
            places = range(4) if axes is None else [axis % 4 for axis in axes.tolist()]
            pads = [0] * 8
            for index, axis in enumerate(places):
                pads[axis], pads[axis + 4] = given[index], given[index + len(given) // 2]
        if value != 0:
            raise Refused(f"pads with {value:g}; only padding with zeros is supported")
        if pads[0] or pads[1] or pads[4] or pads[5] or min(pads) < 0:
            raise Refused(f"pads {pads}; only rows and columns can be padded, by 0 or more")
        top, left, bottom, right = (a + b for a, b in zip(view.pad, (pads[2], pads[3], pads[6], pads[7]), strict=True))
        self.pass_on(node, pad=(top, left, bottom, right))

    def quantised(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        raise Refused("the model is quantised already, around float layers; give the float model that it was made from")


_OPERATORS = {
    "Add": "add",
    "AveragePool": "average_pool",
    "BatchNormalization": "batch_normalisation",
    "Cast": "cast",
    "Clip": "clip",
    "Concat": "concat",
    "Conv": "conv",
    "DequantizeLinear": "quantised",
    "Div": "divide",
    "Dropout": "dropout",
    "Flatten": "flatten",
    "Gemm": "gemm",
    "GlobalAveragePool": "global_average_pool",
    "GlobalMaxPool": "global_max_pool",
    "Identity": "identity",
    "MatMul": "matmul",
    "MaxPool": "max_pool",
    "Mul": "multiply",
    "Pad": "pad",
    "QuantizeLinear": "quantised",
    "ReduceMean": "reduce_mean",
    "Relu": "relu",
    "Reshape": "reshape",
    "Slice": "slice",
    "SpaceToDepth": "space_to_depth",
    "Squeeze": "squeeze",
    "Sub": "subtract",
    "Sum": "add",
    "Unsqueeze": "unsqueeze",
}
