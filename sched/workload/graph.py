"""A whole network: layers over int8 tensors of one picture, as the chip computes them.

Numbers are those of docs/architecture/instructions.md: every tensor is int8 with zero point 0 and has one real value
per step (`Value.step`); convolutions, depthwise convolutions, average pools and products are requantised by `scale` /
2^17. The operands and the result of an `add`, of a `max_pool`, of a `slice`, of an `upsample`, of a `concat` and of a
`paste` share one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import int4
from .layers import NO_CLAMP, SCALE_LIMIT, ConvShape, WorkloadError
from .regions import Cache, ConstantPlace, Region, View

#: Kinds of layers of float networks, too (`onnx.floats`).
PlainKind = Literal[
    "conv", "depthwise", "max_pool", "average_pool", "add", "concat", "slice", "paste", "table", "mul", "normalise",
    "product", "transpose",
]  # fmt: skip
Kind = PlainKind | Literal["upsample"]
#: What a `normalise` takes of all rows and columns of a channel.
By = Literal["max", "mean", "sum", "root"]
#: Kinds that requantise.
SCALED = ("conv", "depthwise", "average_pool", "mul", "product")
#: Kinds that read two tensors.
PAIRED = ("add", "mul", "product")
#: Kinds that compute nothing: where their operands are put is all.
PLACED = ("concat", "paste")
#: Kinds that change no byte.
MOVED = ("slice", "transpose", *PLACED)
#: Entries of a table: one for each byte.
TABLE_SIZE = 256
#: Largest factor of an `upsample`.
MOST_REPEATS = 4


@dataclass(frozen=True)
class Value:
    """An int8 tensor [1, channels, height, width]; `step`: real value of 1 (0: unknown, shape-only networks)."""

    name: str
    channels: int
    height: int
    width: int
    step: float = 0.0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return 1, self.channels, self.height, self.width


@dataclass(frozen=True)
class Window:
    """Kernel, stride, padding (in rows and columns) and distance of taps of a layer that slides."""

    kernel_h: int = 1
    kernel_w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    dilation: int = 1

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the result."""
        reach_h, reach_w = (self.kernel_h - 1) * self.dilation + 1, (self.kernel_w - 1) * self.dilation + 1
        return (
            (height + self.pad_top + self.pad_bottom - reach_h) // self.stride_h + 1,
            (width + self.pad_left + self.pad_right - reach_w) // self.stride_w + 1,
        )


def slice_size(window: Window, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of a `slice`."""
    rows, columns = height - window.pad_top - window.pad_bottom, width - window.pad_left - window.pad_right
    return -(-rows // window.stride_h), -(-columns // window.stride_w)


#: Why a layer has one multiplier for all channels.
UNSCALABLE = "a depthwise layer without a window of several taps has one scale for all channels"


def scalable(layer: Layer) -> bool:
    """Whether a chip with `core.channel_scales` has multipliers by channel for such a layer."""
    taps = layer.window.kernel_h * layer.window.kernel_w
    return layer.kind == "conv" or (layer.kind == "depthwise" and taps > 1)


@dataclass(frozen=True)
class PastePlace:
    """Where an operand of a `paste` goes: its rows to rows top, top + step_h, ..., its columns likewise."""

    top: int
    left: int
    step_h: int
    step_w: int
    rows: int
    columns: int

    @property
    def end(self) -> tuple[int, int]:
        """The first row and column behind it."""
        return self.top + (self.rows - 1) * self.step_h + 1, self.left + (self.columns - 1) * self.step_w + 1


def pasted_pixels(places: Sequence[PastePlace]) -> NDArray[np.int64]:
    """For each row and column of a `paste` the number of its pixel among those of all operands, one after the other.

    Raises ValueError where two operands meet or none is.
    """
    height, width = (max(place.end[axis] for place in places) for axis in (0, 1))
    pixels = np.full((height, width), -1, np.int64)
    covered = first = 0
    for p in places:
        here = pixels[p.top : p.end[0] : p.step_h, p.left : p.end[1] : p.step_w]
        here[...] = np.arange(first, first + p.rows * p.columns).reshape(p.rows, p.columns)
        covered, first = covered + here.size, first + here.size
    if covered != pixels.size or np.any(pixels < 0):
        raise ValueError(f"its operands have {covered} pixels and do not cover {height}x{width} exactly once")
    return pixels


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer. `output` = the name of the value that it makes (also the layer's own name).

    conv: `w` int8 [O, C, KH, KW], `bias` int32 [O]. A fully connected layer is a conv whose kernel is its whole input.
    With `group`, each run of so many input channels has weights that four bits and a scale of their own can say
    (`int4`; chips with `core.int4` then fetch half the bytes).
    depthwise: `w` int8 [C, 1, KH, KW], `bias` int32 [C].
    Both may have a multiplier for each channel of the result, `scales` int32 [O] or [C], instead of `scale`, which is 0
    then (`by_channel`; chips with `core.channel_scales`).
    average_pool: y = sat8(RNE(sum of the window * scale / 2^17)); padding counts as zeros.
    max_pool: padding never wins. add: sat8(a + b). concat: along the channels.
    slice: rows and columns from `window.pad_top`, `pad_left` on without the last `pad_bottom`, `pad_right`, in steps of
    `stride_h`, `stride_w`; nothing else of the window counts (a space-to-depth layer is four slices and a concat).
    paste: each operand at its place in `places`; together they cover the map, each pixel once (a depth-to-space layer
    puts its operands side by side in steps).
    table: y = table[x + 128], int8 [256]; any function of one activation.
    mul: y = sat8(RNE(a * b * scale / 2^17)), with `times16` / 2^13; the shapes are equal, or b has one row and column:
    then it is a factor for each channel.
    normalise: with what `by` takes of all rows and columns of a channel: its maximum (y = sat8(x - max)), its mean
    (y = sat8(x - sat8(RNE(sum * scale / 2^17)))), its sum or the root of its sum of squares (y = sat8(RNE(x * m /
    2^17)), m = min(65535, scale * 2^12 / d rounded down), d the sum or the root of 256 times that of squares, rounded
    down; m = 65535 where d <= 0). With `times16` 2^13 for 2^17. A softmax is max, a table of exponentials, and sum.
    upsample: y[i, j] = x[i // repeat, j // repeat], `repeat` 2..4 (nearest).
    product: in each of `groups` groups of channels (the heads of an attention) y[n, p] = sat8(RNE(sum of a[k, p] *
    b[k, n] over channels k * scale / 2^17)): a pixel of b, whatever its row and column, is a filter, and the result has
    as many channels as b has pixels, in the rows and columns of a.
    transpose: in each of `groups` groups of channels y[n, k] = x[k, n], n and k pixels of x and y in `rows` rows: the
    two change places.
    After that, for all but `MOVED`: clamped below at 0 if `relu`, above at `clamp` (127: not clamped).

    `density`: the share of its products that the network itself has, where a convolution has more: its weights have
    zeros for channels of other groups, for rows that a transposed convolution leaves out, or only move what it reads
    (then 0).
    """

    kind: Kind
    output: str
    inputs: tuple[str, ...]
    window: Window = Window()
    relu: bool = False
    clamp: int = NO_CLAMP
    scale: int = 0
    w: NDArray[np.int8] | None = None
    bias: NDArray[np.int32] | None = None
    scales: NDArray[np.int32] | None = None
    places: tuple[PastePlace, ...] = ()
    table: NDArray[np.int8] | None = None
    times16: bool = False
    repeat: int = 1
    by: By | None = None
    groups: int = 1
    rows: int = 1
    group: int = 0
    density: float = 1.0

    @property
    def fixed(self) -> dict[str, int]:
        """How its results become bytes: fields of instructions. By channel, `scale` is where multipliers lie."""
        one = {"relu": int(self.relu), "clamp": self.clamp}
        return one | ({"scale": self.scale} if self.scales is None else {"by_channel": 1})


@dataclass(frozen=True, eq=False)
class Picture:
    """How a picture becomes the network's input: int8 = sat8(RNE((byte - mean) / std / step)), channel by channel.

    `mean`, `std` in units of a byte (0..255), one number for each channel; "RGB" or "L" (grey).
    """

    mode: Literal["RGB", "L"]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _groups(w: NDArray[np.int8], group: int) -> NDArray[np.int8]:
    """Weights int8 [O, C, KH, KW] as [O, groups, KH, KW, `group`], zeros past the last channel."""
    outputs, channels = w.shape[:2]
    full = np.zeros((outputs, -(-channels // group) * group, *w.shape[2:]), np.int8)
    full[:, :channels] = w
    return np.moveaxis(full.reshape(outputs, -1, group, *w.shape[2:]), 2, -1)


def _check_filters(layer: Layer, x: Value, no: Callable[[str], WorkloadError]) -> int:
    """Checks weights, biases and multipliers of a convolution of `x`; returns how many filters it has. Raises `no`."""
    if layer.w is None or layer.bias is None:
        raise no("has no weights or no bias")
    outputs = layer.w.shape[0]
    weights = (outputs, x.channels if layer.kind == "conv" else 1, layer.window.kernel_h, layer.window.kernel_w)
    if layer.w.shape != weights or layer.w.dtype != np.int8:
        raise no(f"weights are {layer.w.dtype}{list(layer.w.shape)}, must be int8{list(weights)}")
    if layer.bias.shape != (outputs,) or layer.bias.dtype != np.int32:
        raise no(f"bias is {layer.bias.dtype}{list(layer.bias.shape)}, must be int32[{outputs}]")
    if layer.kind == "depthwise" and outputs != x.channels:
        raise no(f"{outputs} filters for {x.channels} channels")
    if layer.group and not int4.scales_of(_groups(layer.w, layer.group)).all():
        raise no(f"weights are not in groups of {layer.group} with a scale each; round them with int4.in_groups")
    if (scales := layer.scales) is not None:
        if scales.shape != (outputs,) or scales.dtype != np.int32:
            raise no(f"scales are {scales.dtype}{list(scales.shape)}, must be int32[{outputs}]")
        if scales.min() < 1 or scales.max() > SCALE_LIMIT:
            raise no(f"scales m = {scales.min()}..{scales.max()} must be in 1..{SCALE_LIMIT}")
        if layer.scale or not scalable(layer):
            raise no(f"scale m = {layer.scale} beside scales" if layer.scale else UNSCALABLE)
    return outputs


@dataclass(frozen=True, eq=False)
class Graph:
    """A network. `layers` are in an order in which every input is made before it is used.

    Raises WorkloadError, naming the layer, when shapes, numbers of operands or arrays contradict each other.
    `real`: trained weights (otherwise random ones). `labels`: names of the classes, if it classifies.
    `picture`: None if the input is no picture. `notes`: sentences for people: where it comes from, what was left out.
    `caches`: its state. `regions`, `views`: room that it has in common with other networks, and what of it lies there;
    everything else of it lies behind the first `begin` words of each DRAM tile, but for `constants` of convolutions,
    by tensor of the schedule: they are those of another network, and lie where that has them.
    """

    name: str
    inputs: tuple[Value, ...]
    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]
    steps: dict[str, float] = field(default_factory=dict[str, float])
    real: bool = False
    labels: tuple[str, ...] = ()
    picture: Picture | None = None
    notes: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()
    regions: tuple[Region, ...] = ()
    views: tuple[View, ...] = ()
    begin: int = 0
    constants: Mapping[str, tuple[ConstantPlace, ...]] = field(default_factory=dict[str, tuple[ConstantPlace, ...]])

    def __post_init__(self) -> None:
        for layer in self.layers:  # the property checks each as it goes
            self.value(layer.output)
        for name in self.outputs:
            self.value(name)

    def value(self, name: str) -> Value:
        """The tensor of that name. Raises WorkloadError when there is none."""
        if name not in self.values:
            raise WorkloadError(f"network {self.name}: nothing makes tensor {name!r}")
        return self.values[name]

    @cached_property
    def values(self) -> dict[str, Value]:
        """All tensors by name, inputs first."""
        result = {value.name: value for value in self.inputs}
        for layer in self.layers:
            if layer.output in result:
                raise WorkloadError(f"network {self.name}: tensor {layer.output!r} is made twice")
            for name in layer.inputs:
                if name not in result:
                    raise WorkloadError(f"network {self.name}: layer {layer.output} reads {name!r} before it is made")
            channels, height, width = self._shape(layer, [result[name] for name in layer.inputs])
            if height < 1 or width < 1:
                raise WorkloadError(f"network {self.name}: layer {layer.output}: the window does not fit its input")
            result[layer.output] = Value(layer.output, channels, height, width, self.steps.get(layer.output, 0.0))
        return result

    def _shape(self, layer: Layer, inputs: list[Value]) -> tuple[int, int, int]:
        def no(why: str) -> WorkloadError:
            return WorkloadError(f"network {self.name}: layer {layer.output} ({layer.kind}): {why}")

        count = 2 if layer.kind in PAIRED else 1
        if (layer.kind in PLACED and not inputs) or (layer.kind not in PLACED and len(inputs) != count):
            raise no(f"has {len(inputs)} inputs, must have {count}")
        x = inputs[0]
        scaled = layer.kind in SCALED or (layer.kind == "normalise" and layer.by != "max")
        if scaled and layer.scales is None and not 0 < layer.scale <= SCALE_LIMIT:
            raise no(f"scale m = {layer.scale} must be in 1..{SCALE_LIMIT}")
        if layer.kind in ("conv", "depthwise"):
            return _check_filters(layer, x, no), *layer.window.output(x.height, x.width)
        if layer.kind in ("max_pool", "average_pool"):
            return x.channels, *layer.window.output(x.height, x.width)
        if layer.kind == "table":
            if layer.table is None or layer.table.shape != (TABLE_SIZE,) or layer.table.dtype != np.int8:
                raise no(f"its table must be int8[{TABLE_SIZE}]")
            return x.channels, x.height, x.width
        if layer.kind == "normalise":
            if layer.by is None:
                raise no("does not say by what")
            return x.channels, x.height, x.width
        if layer.kind in ("product", "transpose"):
            if layer.groups < 1 or x.channels % layer.groups:
                raise no(f"{x.channels} channels cannot be cut into {layer.groups} groups")
            if layer.kind == "transpose":
                pixels = x.channels // layer.groups
                if layer.rows < 1 or pixels % layer.rows:
                    raise no(f"{pixels} pixels in {layer.rows} rows")
                return layer.groups * x.height * x.width, layer.rows, pixels // layer.rows
            if inputs[1].channels != x.channels:
                raise no(f"operands have {x.channels} and {inputs[1].channels} channels")
            return layer.groups * inputs[1].height * inputs[1].width, x.height, x.width
        if layer.kind == "upsample":
            if not 2 <= layer.repeat <= MOST_REPEATS:
                raise no(f"repeat = {layer.repeat} must be in 2..{MOST_REPEATS}")
            return x.channels, x.height * layer.repeat, x.width * layer.repeat
        if layer.kind == "mul":
            if inputs[1].shape not in (x.shape, (1, x.channels, 1, 1)):
                raise no(
                    f"operands have shapes {inputs[0].shape[1:]} and {inputs[1].shape[1:]}; the second may have one "
                    "row and one column instead"
                )
            return x.channels, x.height, x.width
        if layer.kind == "slice":
            return x.channels, *slice_size(layer.window, x.height, x.width)
        if layer.kind == "add":
            if inputs[0].shape != inputs[1].shape:
                raise no(f"operands have shapes {inputs[0].shape[1:]} and {inputs[1].shape[1:]}")
            return x.channels, x.height, x.width
        if layer.kind == "paste":
            if [(p.rows, p.columns) for p in layer.places] != [(v.height, v.width) for v in inputs]:
                raise no("its places are not of the size of its operands")
            if len({value.channels for value in inputs}) != 1:
                raise no("operands differ in channels")
            try:
                height, width = pasted_pixels(layer.places).shape
            except ValueError as error:
                raise no(str(error)) from error
            return x.channels, height, width
        if len({(value.height, value.width) for value in inputs}) != 1:
            raise no("operands differ in rows or columns")
        return sum(value.channels for value in inputs), x.height, x.width

    def conv_shape(self, layer: Layer) -> ConvShape:
        """A conv layer as the shape that single-layer schedulers take, named `<network>/<layer>`."""
        x, y, w = self.value(layer.inputs[0]), self.value(layer.output), layer.window
        return ConvShape(
            name=f"{self.name}/{layer.output}",
            batch=1,
            in_channels=x.channels,
            in_h=x.height,
            in_w=x.width,
            out_channels=y.channels,
            kernel_h=w.kernel_h,
            kernel_w=w.kernel_w,
            stride_h=w.stride_h,
            stride_w=w.stride_w,
            pad_top=w.pad_top,
            pad_left=w.pad_left,
            pad_bottom=w.pad_bottom,
            pad_right=w.pad_right,
            dilation=w.dilation,
            relu=layer.relu,
            clamp=layer.clamp,
        )

    def macs(self, layer: Layer) -> int:
        """Multiply-accumulates of a layer that the network itself has, those with padding included; 0 for layers that
        multiply nothing, or only move what they read."""
        if layer.kind == "product":
            y = self.value(layer.output)
            return self.value(layer.inputs[0]).channels // layer.groups * int(np.prod(y.shape))
        if layer.w is None:
            return 0
        y = self.value(layer.output)
        return round(layer.density * layer.w.size) * y.height * y.width

    @property
    def total_macs(self) -> int:
        """Multiply-accumulates of the whole network."""
        return sum(self.macs(layer) for layer in self.layers)

    def users(self, name: str) -> Iterator[Layer]:
        """The layers that read a tensor."""
        return (layer for layer in self.layers if name in layer.inputs)
