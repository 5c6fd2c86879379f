"""Networks of which only the shapes are known, and the random numbers that make them run.

A `NetworkDraft` is drawn up layer by layer, without a single weight, so that tables of shapes cost nothing. Its `graph`
draws the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

import numpy as np

from meshloom.hw.spec.isa import SCALE_SHIFT

from .graph import Graph, Kind, Layer, Picture, Value, Window
from .layers import ConvShape, random_data
from .normalisation import ONE, softmax, standardise

#: Standard deviation of a result before ReLU, a third of the int8 range, so that few saturate.
SPREAD = 42
#: The same for the branch of a residual block that is added to a sum: small, so that sums do not grow too fast.
BRANCH_SPREAD = 21
#: Mean square of a uniform int8, of which random weights (and the inputs of single random layers) are made.
_UNIFORM = (256**2 + 2) / 12
#: Mean square of a picture's bytes minus 128.
_PICTURE = 64.0**2
#: Root mean square of the shares of a softmax over their mean: some stand out.
_PEAKS = 2.5
#: By how much an average pool multiplies the mean, because means are small.
_AVERAGE_GAIN = 2


@dataclass(frozen=True)
class _Step:
    """A layer to be: all of it but its numbers. `shape` is that of its products with weights, None without weights;
    `depth`: factors that each result of a product of two tensors adds up; `layer`: itself, if it has all numbers, and
    `spread` is what its results should have."""

    kind: Kind
    output: str
    inputs: tuple[str, ...]
    window: Window
    relu: bool
    spread: float
    shape: ConvShape | None
    depth: int = 0
    layer: Layer | None = None


class NetworkDraft:
    """Draws up a network over one square RGB picture of `size` rows, whose tensor is called "picture", or over `inputs`
    by name (channels, rows, columns) of any int8 values; `size` is 0 then.

    Each method adds a layer after `source` (default: the layer added last), called `name`, and returns that name.
    `pad` is on all four sides; default: half the kernel.
    """

    def __init__(self, name: str, size: int = 0, inputs: Mapping[str, tuple[int, int, int]] | None = None) -> None:
        self.name, self.size = name, size
        self.inputs = dict(inputs or {"picture": (3, size, size)})
        self.last = next(iter(self.inputs))
        self._steps: list[_Step] = []
        self._shapes = dict(self.inputs)

    def conv(  # as whoever writes a network down has them
        self,
        name: str,
        outputs: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        *,
        source: str | None = None,
        pad: int | None = None,
        relu: bool = True,
        spread: float = SPREAD,
    ) -> str:
        """A convolution; `kernel`: of a square, or its rows and columns."""
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        rows, columns = (high // 2, wide // 2) if pad is None else (pad, pad)
        window = Window(high, wide, stride, stride, rows, columns, rows, columns)
        return self._multiply("conv", name, source, outputs, window, relu, spread)

    def depthwise(self, name: str, kernel: int, stride: int = 1, *, relu: bool = True) -> str:
        """A depthwise convolution and ReLU."""
        return self._multiply("depthwise", name, None, 0, _window(kernel, stride, kernel // 2), relu, SPREAD)

    def _multiply(
        self,
        kind: Kind,
        name: str,
        source: str | None,
        outputs: int,
        window: Window,
        relu: bool,
        spread: float,
    ) -> str:
        source = source or self.last
        channels, height, width = self._shapes[source]
        inputs, outputs = (1, channels) if kind == "depthwise" else (channels, outputs)
        shape = ConvShape(f"{self.name}/{name}", 1, inputs, height, width, outputs, *astuple(window)[:-1], relu=relu)
        return self._add(_Step(kind, name, (source,), window, relu, spread, shape), outputs)

    def max_pool(
        self, name: str, kernel: int, stride: int, pads: tuple[int, int] = (0, 0), *, source: str | None = None
    ) -> str:
        """A max pool; `pads`: top and left, bottom and right."""
        before, after = pads
        window = Window(kernel, kernel, stride, stride, before, before, after, after)
        return self._slide("max_pool", name, window, source)

    def average_pool(self, name: str, kernel: int, *, source: str | None = None) -> str:
        """The average around each pixel; beyond the edges there are zeros, which count."""
        return self._slide("average_pool", name, _window(kernel, 1, kernel // 2), source)

    def global_average(self, name: str) -> str:
        """The average of each channel."""
        _, height, width = self._shapes[self.last]
        return self._slide("average_pool", name, Window(height, width), None)

    def slice(self, name: str, row: int, column: int, step: int, *, source: str) -> str:
        """Every `step`-th row from `row` on and column from `column` on."""
        return self._slide("slice", name, Window(1, 1, step, step, row, column), source)

    def _slide(self, kind: Kind, name: str, window: Window, source: str | None) -> str:
        source = source or self.last
        return self._add(_Step(kind, name, (source,), window, False, SPREAD, None), self._shapes[source][0])

    def add(self, name: str, one: str, other: str, *, relu: bool = True) -> str:
        """A residual sum and ReLU."""
        return self._add(_Step("add", name, (one, other), Window(), relu, SPREAD, None), self._shapes[one][0])

    def concat(self, name: str, *parts: str) -> str:
        """Tensors side by side in their channels."""
        channels = sum(self._shapes[part][0] for part in parts)
        return self._add(_Step("concat", name, parts, Window(), False, SPREAD, None), channels)

    def product(self, name: str, a: str, b: str, groups: int = 1) -> str:
        """A product of two tensors in each of some groups of channels: see `graph.Layer`."""
        channels, height, width = self._shapes[b]
        layer = Layer("product", name, (a, b), groups=groups)
        step = _Step("product", name, (a, b), Window(), False, SPREAD, None, channels // groups, layer)
        return self._add(step, groups * height * width)

    def transpose(self, name: str, source: str, groups: int = 1) -> str:
        """Channels and pixels change places in each group."""
        channels, height, width = self._shapes[source]
        name = self._add(
            _Step(
                "transpose", name, (source,), Window(), False, 0, None,
                layer=Layer("transpose", name, (source,), groups=groups),
            ),
            groups * height * width,
        )  # fmt: skip
        self._shapes[name] = groups * height * width, 1, channels // groups
        return name

    def softmax(self, name: str, source: str, step: float) -> str:
        """The softmax over all pixels of each channel, of a tensor with this step."""
        pixels = self._shapes[source][1] * self._shapes[source][2]
        return self._ready(softmax(name, source, step), _PEAKS * ONE / pixels)

    def standardise(self, name: str, source: str, step: float) -> str:
        """All pixels of each channel less their mean, over their deviation, with this step."""
        pixels = self._shapes[source][1] * self._shapes[source][2]
        return self._ready(standardise(name, source, pixels, step), 1 / step)

    def _ready(self, layers: tuple[Layer, ...], spread: float) -> str:
        """Layers that have all numbers, of one tensor each; `spread`: of the last one's results."""
        for layer in layers:
            step = _Step(layer.kind, layer.output, layer.inputs, Window(), False, spread, None, layer=layer)
            self._add(step, self._shapes[layer.inputs[0]][0])
        return self.last

    def _add(self, step: _Step, channels: int) -> str:
        _, height, width = self._shapes[step.inputs[0]]
        if step.kind == "slice":
            height, width = (
                -(-n // step.window.stride_h) for n in (height - step.window.pad_top, width - step.window.pad_left)
            )
        elif step.kind not in ("add", "concat") and step.layer is None:
            height, width = step.window.output(height, width)
        self._shapes[step.output] = channels, height, width
        self._steps.append(step)
        self.last = step.output
        return step.output

    def table(self) -> tuple[ConvShape, ...]:
        """The convolutions (a fully connected layer is one), without the depthwise ones, `<network>/<layer>` each."""
        return tuple(step.shape for step in self._steps if step.kind == "conv" and step.shape)

    def products(self) -> tuple[tuple[Kind, ConvShape], ...]:
        """The same with the depthwise ones, in order, each with its kind: "conv" or "depthwise"."""
        return tuple((step.kind, step.shape) for step in self._steps if step.shape)

    def graph(self) -> Graph:
        """The network with the weights of `random_data` for each layer's name, the same on every machine.

        Biases and scales are chosen by the mean squares that inputs should have, so that values spread over int8 in
        every layer and neither die out nor all saturate. A picture's byte b becomes b - 128. What no layer reads is an
        output.
        """
        power = dict.fromkeys(self.inputs, _PICTURE if self.size else _UNIFORM)
        layers: list[Layer] = []
        for step in self._steps:
            numbers, power[step.output] = _numbers(step, [power[name] for name in step.inputs])
            layers.append(numbers)
        picture = Picture("RGB", (128.0,) * 3, (1.0,) * 3) if self.size else None
        read = {name for layer in layers for name in layer.inputs}
        outputs = tuple(layer.output for layer in layers if layer.output not in read)
        inputs = tuple(Value(name, *shape, 1.0) for name, shape in self.inputs.items())
        return Graph(self.name, inputs, tuple(layers), outputs, picture=picture)


def _numbers(step: _Step, powers: list[float]) -> tuple[Layer, float]:
    """The layer, and the mean square that its result should have, from those of its inputs."""
    taps = step.window.kernel_h * step.window.kernel_w
    if step.depth and step.layer is not None:
        scale = max(1, round(step.spread * 2**SCALE_SHIFT / (step.depth * powers[0] * powers[1]) ** 0.5))
        return replace(step.layer, scale=scale), step.spread**2
    if step.layer is not None:
        return step.layer, step.spread**2 or powers[0]
    if step.shape is not None:
        data = random_data(step.shape)
        # random_data's biases and scale are for inputs of another mean square
        ratio = (powers[0] / _UNIFORM) ** 0.5
        bias = np.rint(data.bias * ratio).astype(np.int32)
        deviation = _UNIFORM**0.5 * (step.shape.depth * powers[0] * 4 / 3) ** 0.5
        scale = max(1, round(step.spread * 2**SCALE_SHIFT / deviation))
        power = step.spread**2 / (2 if step.relu else 1)
        layer = Layer(step.kind, step.output, step.inputs, step.window, step.relu, scale=scale, w=data.w, bias=bias)
        return layer, power
    scale = round(_AVERAGE_GAIN * 2**SCALE_SHIFT / taps) if step.kind == "average_pool" else 0
    power = {
        # a residual sum; ReLU takes what little is below 0
        "add": sum(powers),
        # the largest of a few half-normal values
        "max_pool": 2 * powers[0],
        # (mean of a half-normal value)^2 = 2 / pi of its mean square
        "average_pool": _AVERAGE_GAIN**2 * powers[0] * 2 / np.pi,
    }.get(step.kind, sum(powers) / len(powers))
    return Layer(step.kind, step.output, step.inputs, step.window, step.relu, scale=scale), float(power)


def _window(kernel: int, stride: int, pad: int) -> Window:
    """A square one."""
    return Window(kernel, kernel, stride, stride, pad, pad, pad, pad)
