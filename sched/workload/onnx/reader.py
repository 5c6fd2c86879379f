"""ONNX files as networks: integer models as `writer` writes them, and others that keep to the same arithmetic.

What an integer model must be: QLinearConv with one scale for all weights or one for each filter (which only chips with
`core.channel_scales` have), sx * sw / sy = m / 2**17 with a whole m of 1..65535 (in float32, as ONNX Runtime computes
it), zero points 128 (uint8) or 0 (int8); MaxPool, Concat, Slice and Clip on such tensors; additions either by
QLinearAdd with three equal scales or in int32; QuantizeLinear at an input and DequantizeLinear at an output. What may
follow at the end is `lowering.ENDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from ..graph import MOST_REPEATS, TABLE_SIZE, UNSCALABLE, Graph, Layer, Place, Value, pasted_pixels, scalable
from ..layers import SCALE_LIMIT
from . import grouped, normalising
from .dequantised import has_integer_operators
from .errors import OnnxError, Refused, UnsupportedError
from .folding import COPY
from .integer_operators import check_sums
from .integer_sums import WIDE, Sums
from .integers import Tensor
from .load import check, is_float_model, load_model
from .lowering import ENDS
from .metadata import KEY, Metadata
from .settling import settled
from .windows import slice_window, sliding_window

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def as_it_is(model: ModelProto, name: str, by_channel: bool = False) -> Graph | None:
    """The network of a model that the chip computes to the last bit; None for a float model, and for one of integer
    operators that it does not, which `quantise` takes. `by_channel`: the chip has multipliers by channel. Raises
    OnnxError for others, as `read` does."""
    model = settled(model, name)
    if is_float_model(model):
        return None
    try:
        found = from_onnx(model, name)
        return found if by_channel or all(layer.scales is None for layer in found.layers) else None
    except UnsupportedError:
        if has_integer_operators(model):
            return None
        raise


def read(path: str | Path) -> Graph:
    """The network in an integer ONNX file.

    Raises OnnxError when the file is missing, damaged, no ONNX, of float type or has sizes that are not fixed;
    UnsupportedError with all nodes that the chip cannot run; WorkloadError when layers contradict each other.
    """
    model = load_model(path)
    if is_float_model(model):
        raise OnnxError(f"{path}: is a float model; quantise it first, with calibration data")
    return from_onnx(model, str(path))


def from_onnx(model: ModelProto, name: str) -> Graph:
    """As `read`; `name` is for messages, and for the network if the model's metadata has none."""
    lowering = _Reader(check(model, name, _OPERATORS.keys() | ENDS))
    lowering.lower_nodes()
    text = next((item.value for item in model.metadata_props if item.key == KEY), None)
    return lowering.graph(None if text is None else Metadata.parse(text, name))


class _Reader(Sums):
    def handlers(self) -> Mapping[str, Callable[[NodeProto, dict[str, Any]], None]]:
        return {operator: getattr(self, method) for operator, method in _OPERATORS.items()}

    # -- operators ------------------------------------------------------------------------------------------

    def conv(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, x_scale = self.operand(node, 0)
        raw = self.constant(node, 3, "weights")
        w_scale = self.constant(node, 4, "weight scale").ravel()
        w_scale = w_scale[:1] if np.all(w_scale == w_scale[:1]) else w_scale
        zero = self.zero_point(node, 5, None)
        y_scale, y_zero = self.number(node, 6, "output scale"), self.zero_point(node, 7, None)
        bias = self.optional(node, 8, "bias")
        w = (raw.astype(np.int16) - zero).astype(np.int8)
        check_sums(w, np.zeros((), np.int8), bias, np.zeros((), np.int8), 0)
        if w.ndim != 4:
            raise Refused(f"weights have shape {list(w.shape)}, must be [outputs, inputs, rows, columns]")
        if len(w_scale) not in (1, len(w)):
            raise Refused(f"{len(w_scale)} weight scales for {len(w)} filters")
        if not all(np.all(np.isfinite(scale) & (scale > 0)) for scale in (x_scale, w_scale, y_scale)):
            raise Refused(f"scales {x_scale:g}, {w_scale.min():g} and {y_scale:g} must be positive")
        with np.errstate(over="ignore", under="ignore"):
            ratios = (np.float32(x_scale) * w_scale.astype(np.float32) / np.float32(y_scale)).astype(np.float64)
        ratios *= 2**SCALE_SHIFT
        for ratio in ratios.tolist():
            if not ratio.is_integer() or not 1 <= ratio <= SCALE_LIMIT:
                raise Refused(
                    f"scale m = sx * sw / sy * 2^{SCALE_SHIFT} = {ratio:g} must be a whole number of 1..{SCALE_LIMIT}; "
                    "quantise the float model with Meshloom instead"
                )
        kernel = (w.shape[2], w.shape[3])
        window = sliding_window(attributes, kernel, self.extent(view), (0, 0, 0, 0))
        group = attributes.get("group", 1)
        layer = Layer("conv", node.output[0], (view.value or "",), window, scale=int(ratios[0]))
        if w.shape[1] == 1 and bias is None and np.all(w == 1) and group == w.shape[0]:
            layer = replace(layer, kind="average_pool")
        elif group == 1 or (w.shape[1] == 1 and group == w.shape[0]):
            bias = np.zeros(w.shape[0], np.int32) if bias is None else bias
            layer = replace(layer, kind="conv" if group == 1 else "depthwise", w=w, bias=bias)
        else:
            raise Refused(f"group = {group} must be 1, or the number of channels with one filter each")
        if len(ratios) > 1:
            layer = replace(layer, scale=0, scales=ratios.astype(np.int32))
            if not scalable(layer):
                raise Refused(UNSCALABLE)
        self.emit(layer, y_zero, float(y_scale))

    def max_pool(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.tensor(node.input[0])
        if any(self.model.uses[name] for name in node.output[1:]):
            raise Refused("the indices of the maxima are not computed")
        if attributes.get("ceil_mode"):
            raise Refused("ceil_mode; write pads out")
        window = sliding_window(attributes, tuple(attributes["kernel_shape"]), self.extent(view), (0, 0, 0, 0))
        self.emit(Layer("max_pool", node.output[0], (view.value or "",), window), view.zero, view.step)

    def concat(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if all(self.view(name).pixels for name in node.input) and attributes["axis"] in (2, -1):
            first = self.view(node.input[0])
            pixels = tuple(value for name in node.input for value in self.view(name).pixels)
            self.views[node.output[0]] = replace(first, pixels=pixels)
            return
        views = [self.tensor(name) for name in node.input]
        if attributes["axis"] not in (1, -3):
            raise Refused(f"axis = {attributes['axis']}; channels are axis 1")
        if len({view.zero for view in views}) > 1:
            raise Refused("operands differ in type")
        inputs = tuple(view.value or "" for view in views)
        self.emit(Layer("concat", node.output[0], inputs), views[0].zero, views[0].step)

    def reshape(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, shape = self.tensor(node.input[0]), self.constant(node, 1, "shape").tolist()
        size = self.sizes.get(view.value or "")
        if size is None or shape not in ([1, size[0], -1], [1, size[0], size[1] * size[2]]):
            raise Refused("only to rows of pixels, for a Gather that puts them elsewhere")
        self.views[node.output[0]] = replace(view, value=None, pixels=(view.value or "",))

    def _gather_pixels(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view, indices = self.view(node.input[0]), self.constant(node, 1, "indices")
        sizes = [self.sizes.get(name) for name in view.pixels]
        if not sizes or None in sizes or attributes.get("axis", 0) not in (2, -1) or indices.ndim != 2:
            raise Refused("only of rows of pixels, into rows and columns")
        places = _places(indices, [size[1:] for size in sizes if size])
        self.emit(Layer("paste", node.output[0], view.pixels, places=places), view.zero, view.step)

    def slice(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.tensor(node.input[0])
        size = self.sizes.get(view.value or "")
        if size is None:
            raise Refused("the size of its operand is not known, because an earlier node is refused")
        starts, ends = self.constant(node, 1, "starts"), self.constant(node, 2, "ends")
        axes, steps = self.optional(node, 3, "axes"), self.optional(node, 4, "steps")
        window = slice_window((1, *size), starts, ends, axes, steps)
        self.emit(Layer("slice", node.output[0], (view.value or "",), window), view.zero, view.step)

    def qlinear_add(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        (a, a_scale), (b, b_scale) = self.operand(node, 0), self.operand(node, 3)
        scale, zero = float(self.number(node, 6, "output scale")), self.zero_point(node, 7, None)
        if not a_scale == b_scale == scale:
            raise Refused(f"scales {a_scale:g}, {b_scale:g} and {scale:g} must be equal")
        self.emit(Layer("add", node.output[0], (a.value or "", b.value or "")), zero, scale)

    def qlinear_mul(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        (a, a_scale), (b, b_scale) = self.operand(node, 0), self.operand(node, 3)
        scale, zero = float(self.number(node, 6, "output scale")), self.zero_point(node, 7, None)
        if not all(np.isfinite(step) and step > 0 for step in (a_scale, b_scale, scale)):
            raise Refused(f"scales {a_scale:g}, {b_scale:g} and {scale:g} must be positive")
        ratio = a_scale * b_scale / scale * 2**SCALE_SHIFT
        times16 = ratio > SCALE_LIMIT
        m = ratio / 16 if times16 else ratio
        if not m.is_integer() or not 1 <= m <= SCALE_LIMIT:
            raise Refused(
                f"scale m = sa * sb / sy * 2^{SCALE_SHIFT} = {ratio:g} must be a whole number of 1..{SCALE_LIMIT}, or "
                "16 times one; quantise the float model with Meshloom instead"
            )
        pair, sizes = [a.value or "", b.value or ""], [self.sizes.get(view.value or "") for view in (a, b)]
        if None not in sizes and sizes[0] != sizes[1] and sizes[0] == (sizes[1] or (0,))[:1] + (1, 1):
            pair.reverse()
        self.emit(Layer("mul", node.output[0], (pair[0], pair[1]), scale=int(m), times16=times16), zero, scale)

    def gather(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        """From a table, which is a constant, or of pixels, whose places are."""
        if node.input[0] in self.views:
            self._gather_pixels(node, attributes)
        else:
            self._gather_entries(node)

    def _gather_entries(self, node: NodeProto) -> None:
        """An element of a table for each element of a tensor."""
        table = self.constant(node, 0, "table")
        index = self.view(node.input[1])
        if table.shape != (TABLE_SIZE,) or table.dtype.name not in ("uint8", "int8"):
            raise Refused(f"gathers from {table.dtype}{list(table.shape)}, must be a table of {TABLE_SIZE} bytes")
        if index.value is not None or len(index.addends) != 1 or index.zero != 128 or (index.low, index.high) != WIDE:
            raise Refused("a table is indexed by a uint8 tensor at zero point 128, cast to int32")
        entries = (table.astype(np.int16) - (128 if table.dtype == np.uint8 else 0)).astype(np.int8)
        layer = Layer("table", node.output[0], index.addends, table=entries)
        self.emit(layer, 128 if table.dtype == np.uint8 else 0, 0.0)

    def resize(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.tensor(node.input[0])
        scales = self.constant(node, 2, "scales")
        how = (attributes.get("mode", b"nearest"), attributes.get("nearest_mode"))
        if [_text(each) for each in how] != ["nearest", "floor"] or (
            _text(attributes.get("coordinate_transformation_mode")) != "asymmetric"
        ):
            raise Refused("only nearest, floor, asymmetric is computed")
        factor = float(scales[-1]) if scales.shape == (4,) else 0.0
        if scales.tolist() != [1, 1, factor, factor] or factor not in range(2, MOST_REPEATS + 1):
            raise Refused(f"scales {scales.tolist()} must be 1, 1 and twice one of 2..{MOST_REPEATS}")
        layer = Layer("upsample", node.output[0], (view.value or "",), repeat=int(factor))
        self.emit(layer, view.zero, view.step)

    def normalise(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        view = self.tensor(node.input[0])
        if view.zero != 128:
            raise Refused("an int8 tensor; functions of domain meshloom take uint8 with zero point 128")
        by, (_, names) = next(found for found in normalising.FUNCTIONS.items() if found[1][0] == node.op_type)
        given = {name: float(self.number(node, 1 + index, name)) for index, name in enumerate(names)}
        self.emit(normalising.layer_of(by, node.output[0], view.value or "", given), 128, view.step)

    def grouped(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        kind: grouped.GroupedKind = "product" if node.op_type == grouped.FUNCTIONS["product"][0] else "transpose"
        _, tensors, names = grouped.FUNCTIONS[kind]
        views = [self.tensor(name) for name in node.input[: len(tensors)]]
        if any(view.zero != 128 for view in views):
            raise Refused("an int8 tensor; functions of domain meshloom take uint8 with zero point 128")
        given = {name: self.constant(node, len(tensors) + index, name) for index, name in enumerate(names)}
        layer = grouped.layer_of(kind, node.output[0], tuple(view.value or "" for view in views), given)
        self.emit(layer, 128, views[0].step)

    def identity(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        self.views[node.output[0]] = self.view(node.input[0])

    def quantise_input(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        name = node.input[0]
        if name not in self.sources:
            raise Refused("only inputs of the network can be quantised")
        scale, zero = float(self.number(node, 1, "scale")), self.zero_point(node, 2, None)
        self.sources[node.output[0]] = self.sizes[node.output[0]] = self.sources.pop(name)
        self.ends[node.output[0]] = scale
        self.views[node.output[0]] = Tensor(node.output[0], zero, scale)

    def dequantise(self, node: NodeProto, attributes: dict[str, Any]) -> None:
        if not self.at_end(node):
            raise Refused("layers between DequantizeLinear and QuantizeLinear are float; export integer operators")
        view, scale = self.operand(node, 0)
        self.ends[view.value or ""] = scale
        self.views[node.output[0]] = view

    # -- the result -----------------------------------------------------------------------------------------

    def graph(self, metadata: Metadata | None) -> Graph:
        """The network. Raises OnnxError when an output of the model is none of its tensors."""
        steps = (self.steps if metadata is None else metadata.steps) | self.ends
        outputs: list[str] = []
        for output in self.model.outputs:
            view = self.views.get(output)
            if view is None or view.value is None:
                raise OnnxError(f"{self.model.name}: output {output!r} is not 8-bit; export the integer result")
            name = view.value
            if name in self.sources:  # an input that is an output, too
                name = f"{view.value}{COPY}"
                if name not in self.layers:
                    self.emit(Layer("max_pool", name, (view.value,)), view.zero, view.step)
            outputs.append(name)
        if all(name.endswith(COPY) for name in self.layers):
            raise OnnxError(f"{self.model.name}: nothing is left to compute; give a model with layers")
        inputs: list[Value] = []
        for source, size in self.sources.items():
            inputs.append(Value(source, *size, steps.get(source, 0.0)))
        graph = Graph(
            name=Path(self.model.name).stem,
            inputs=tuple(inputs),
            layers=tuple(self.layers.values()),
            outputs=tuple(dict.fromkeys(outputs)),
            steps={key: steps[key] for key in self.layers if key in steps},
            real=True,
            notes=tuple(self.end_notes()),
        )
        if metadata is None:
            return graph
        return replace(
            graph,
            name=metadata.name,
            real=metadata.real,
            labels=metadata.labels,
            picture=metadata.graph_picture(),
            notes=(*metadata.notes, *graph.notes),
        )


_OPERATORS = {
    "QLinearConv": "conv",
    "Clip": "clip",
    "MaxPool": "max_pool",
    "Concat": "concat",
    "Gather": "gather",
    "Reshape": "reshape",
    "Slice": "slice",
    "com.microsoft.QLinearAdd": "qlinear_add",
    "com.microsoft.QLinearMul": "qlinear_mul",
    "Resize": "resize",
    **{f"{normalising.DOMAIN}.{name}": "normalise" for name, _ in normalising.FUNCTIONS.values()},
    **{f"{normalising.DOMAIN}.{name}": "grouped" for name, _, _ in grouped.FUNCTIONS.values()},
    "Cast": "cast",
    "Add": "add",
    "Sub": "subtract",
    "Identity": "identity",
    "QuantizeLinear": "quantise_input",
    "DequantizeLinear": "dequantise",
}


def _text(attribute: bytes | str | None) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else attribute or ""


def _places(indices: NDArray[Any], sizes: Sequence[tuple[int, int]]) -> tuple[Place, ...]:
    """Where the operands of a paste lie, from the number of the pixel at each row and column. Raises Refused."""
    found: list[Place] = []
    first = 0
    for rows, columns in sizes:
        at = np.argwhere((indices >= first) & (indices < first + rows * columns))
        if not len(at):
            raise Refused("leaves out an operand")
        top, left = at.min(axis=0).tolist()
        end = at.max(axis=0).tolist()
        step_h, step_w = (max(1, (end[i] - at.min(axis=0)[i]) // max(1, n - 1)) for i, n in enumerate((rows, columns)))
        found.append(Place(top, left, int(step_h), int(step_w), rows, columns))
        first += rows * columns
    try:
        same = np.array_equal(pasted_pixels(found), indices)
    except (ValueError, IndexError):
        same = False
    if not same:
        raise Refused("its operands do not keep their rows and columns, in even steps")
    return tuple(found)
