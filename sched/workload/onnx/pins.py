"""Steps that a file has chosen itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calibrate import Statistics
from .floats import ANY, FloatLayer, FloatNet
from .pointwise import function


@dataclass(frozen=True)
class Pin:
    """A tensor of 8 bits of a file, or fewer: a number q, the first of `count` from `least` on, stands for
    (q - `zero`) * `scale`. `weights`: the scale of all weights that make it, or one for each channel; empty if there
    are none."""

    scale: float
    zero: int
    least: int
    weights: tuple[float, ...] = ()
    count: int = 256

    @property
    def low(self) -> float:
        """The least real number that it has."""
        return (self.least - self.zero) * self.scale

    @property
    def high(self) -> float:
        """The largest."""
        return (self.least + self.count - 1 - self.zero) * self.scale

    @property
    def step(self) -> float:
        """The step of the chip's tensor, -128..127 around 0, that holds all its numbers; `scale` if they are some of
        the chip's."""
        return max(self.high / 127, -self.low / 128, self.scale)

    @property
    def symmetric(self) -> bool:
        """Whether the chip's tensor has the same numbers."""
        return self.zero == self.least + 128


@dataclass(frozen=True)
class Rounded:
    """A real tensor that a file has rounded: numbers of `low`..`high`, each at most `off` from what it was before.
    `weights`: as in `Pin`. `before`: a rounded tensor that it is made of, where the network may compute both at once.
    """

    low: float
    high: float
    off: float
    weights: tuple[float, ...] = ()
    before: str = ""

    def then(self, pin: Pin) -> Rounded:
        """Rounded again."""
        low, high = max(self.low, pin.low), min(self.high, pin.high)
        return Rounded(low, high, self.off + pin.scale / 2, pin.weights, self.before)

    def cut(self, array: NDArray[Any]) -> NDArray[np.bool_]:
        """Where the file may have cut off what was beyond the range."""
        near = 1e-6 * max(abs(self.low), abs(self.high))
        return (array <= self.low + near) | (array >= self.high - near)


#: What has not been rounded.
EXACT = Rounded(-inf, inf, 0.0)


@dataclass(frozen=True, eq=False)
class Rounding:
    """What a file rounds: real tensors, by name, and for inputs of the file the tensor that they are after that."""

    tensors: Mapping[str, Rounded]
    inputs: Mapping[str, str]


#: A file that rounds nothing.
NOTHING = Rounding({}, {})


def scales_of(scale: NDArray[np.floating]) -> tuple[float, ...]:
    """Scales of weights as a pin has them: one if all are equal."""
    numbers = tuple(scale.astype(np.float64).ravel().tolist())
    return numbers[:1] if len(set(numbers)) == 1 else numbers


def pin_of(
    scale: NDArray[np.floating],
    zero: NDArray[np.integer],
    weights: tuple[float, ...] = (),
    ends: tuple[float, float] = (-inf, inf),
) -> Pin | None:
    """The pin of one scale and a zero point of 8 bits, as QuantizeLinear has them; None for others. `ends`: of the real
    numbers that are rounded, so that it may have fewer than 256 numbers."""
    if scale.size != 1 or zero.size != 1 or zero.dtype.name not in ("uint8", "int8"):
        return None
    number = float(scale.flat[0])
    if not np.isfinite(number) or number <= 0:
        return None
    middle, limits = int(zero.flat[0]), np.iinfo(zero.dtype)
    least, most = (int(np.clip(np.rint(end / number) + middle, limits.min, limits.max)) for end in ends)
    return Pin(number, middle, least, weights, most - least + 1)


#: What the name of a tensor has before it is cut off, and what that of an input has behind that: no file has these.
UNCUT, CUT = "//uncut", "//cut"
#: Layers that end with a clamp.
_CLAMPED = ("add", "average_pool", "conv", "depthwise", "max_pool", "mul")


def saturating(net: FloatNet, statistics: Mapping[str, Statistics], pins: Mapping[str, Pin]) -> dict[str, Pin]:
    """Those pins whose tensors have values beyond the file's range: there the file saturates."""
    values = {
        name for name, some in of_values(net, pins, statistics).items() if any(_beyond(some[-1], statistics[name]))
    }
    return {name: pin for name, pin in pins.items() if net.values.get(name) in values}


def cut_off(
    net: FloatNet, statistics: Mapping[str, Statistics], pins: dict[str, Pin], step: Callable[[str], float],
    tables: bool = True,
) -> None:  # fmt: skip
    """Adds what saturates where the file does and the chip's tensor, which reaches as far above 0 as below, would not
    with the step that it has: for tensors that have such values, inputs among them. What a table cuts off gets the same
    pin, in `pins`. `tables`: whether the chip has any; otherwise clamps alone are added."""
    values = of_values(net, pins, statistics)
    for layer in list(net.layers):
        for pin in values.get(layer.output, ())[-1:]:
            if layer.output.endswith((UNCUT, CUT)) or f"{layer.output}{UNCUT}" in net.sizes:  # a table does it by now
                continue
            low, high, lower, higher = _cuts(pin, statistics[layer.output], step(layer.output), layer.range)
            layer.range = ANY
            if high and not lower and layer.kind in _CLAMPED:  # costs nothing where the tensor would saturate anyhow
                layer.clamp = min(layer.clamp, pin.high)
                higher = high = False
            if (lower or higher) and tables:
                whole = f"{layer.output}{UNCUT}"
                cut = FloatLayer("table", layer.output, (whole,), function=function("Clip", pin.low, pin.high))
                net.sizes[whole], layer.output = net.sizes[layer.output], whole
                net.values[whole], pins[whole] = whole, pin
                net.layers.insert(net.layers.index(layer) + 1, cut)
            else:
                layer.range = pin.low if low else -inf, pin.high if high else inf
    for name, source in net.inputs.items() if tables else ():
        for pin in values.get(name, ())[-1:]:
            *_, lower, higher = _cuts(pin, statistics[name], step(name), ANY)
            if (lower or higher) and f"{name}{CUT}" not in net.sizes:
                _cut_input(net, name, source.size, pin)
                pins[f"{name}{CUT}"] = pin


def _cut_input(net: FloatNet, name: str, size: tuple[int, int, int], pin: Pin) -> None:
    """A table stands between an input and its readers."""
    cut = f"{name}{CUT}"
    for layer in net.layers:
        layer.inputs = tuple(cut if each == name else each for each in layer.inputs)
    net.layers.insert(0, FloatLayer("table", cut, (name,), function=function("Clip", pin.low, pin.high)))
    net.sizes[cut], net.values[cut] = size, cut


def _cuts(pin: Pin, seen: Statistics, step: float, before: tuple[float, float]) -> tuple[bool, bool, bool, bool]:
    """Whether the file cuts off values below its range, and above, and whether the chip's tensor has room for them.
    `before`: what has been cut off by now."""
    below, above = _beyond(pin, seen)
    low, high, half = below or before[0] > -inf, above or before[1] < inf, pin.scale / 2
    return low, high, low and pin.low > -128 * step + half, high and pin.high < 127 * step - half


def _beyond(pin: Pin, seen: Statistics) -> tuple[bool, bool]:
    """Whether there are values below the range of a pin, and above."""
    return seen.low < pin.low - pin.scale / 2, seen.high > pin.high + pin.scale / 2


def of_values(net: FloatNet, pins: Mapping[str, Pin], roots: Collection[str]) -> dict[str, list[Pin]]:
    """The pins of each value of a network that has any."""
    by_value: dict[str, list[Pin]] = {}
    for name, pin in pins.items():
        value = net.values.get(name)
        if value is not None and value in roots:
            by_value.setdefault(value, []).append(pin)
    return by_value
