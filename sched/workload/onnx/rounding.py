"""A float network and the statistics of its tensors made integer: steps, multipliers, weights, biases, clamps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from ..graph import MOVED, PAIRED, SCALED, By, Graph, Layer, Picture, Value, scalable
from ..layers import NO_CLAMP, SCALE_LIMIT, WorkloadError
from ..normalisation import mean_scale, quotient_scale
from .calibrate import MAX, Range, Statistics, common_step
from .floats import FloatLayer, FloatNet
from .pins import Pin, of_values
from .pointwise import Function
from .weight_errors import LayerWeights, rounded_weights, squared_errors

#: Weights may be clipped to this share of the largest, if that lessens their error.
_NARROWEST = 0.5
#: Share of a layer's power that weights beyond every multiplier may lose.
_CLIPPED = 1e-4
#: Multipliers that are tried for a layer.
_TRIES = 48
#: The weight that stands for 1 in layers that only move values.
_ONE = 64
#: How far a step may grow past what its tensors ask for, so that multipliers fit: 127 / 16, almost 8 levels, are left.
_GROWTH = 16.0
#: Differences from a maximum below this have an exponential of less than half a step: no matter where they end.
_FAINTEST = -5.6
#: How much larger the multiplier of an elementwise product may be than others (`times16`).
_SIXTEEN = 16


class Rounder:
    """Rounds one network. `weight_steps`: the real value of 1 of each layer's weights, filled by `graph`.

    `how`: how the range of a tensor follows from its values; inputs and outputs never saturate. `pins`: steps that a
    file has chosen; tensors that share one get the largest of theirs. `by_channel`: weights have a step for each filter
    wherever the chip has (`graph.scalable`); `weight_steps` has the largest of a layer's. `weights`: of layers by name,
    shared with other ways to round the same network; filled here.
    """

    def __init__(
        self,
        net: FloatNet,
        statistics: dict[str, Statistics],
        how: Range = MAX,
        *,
        picture: Picture | None = None,
        pins: Mapping[str, Pin] | None = None,
        by_channel: bool = False,
        weights: dict[str, LayerWeights] | None = None,
    ) -> None:
        self.net, self.by_channel = net, by_channel
        self._held = weights if weights is not None else dict[str, LayerWeights]()
        self.statistics = statistics
        self.weight_steps: dict[str, float] = {}
        self._parent = {name: name for name in statistics}
        self.pins = of_values(net, pins or {}, statistics)
        for layer in net.layers:
            if layer.kind in ("add", "max_pool", *MOVED) or layer.by in ("max", "mean") or layer.moves:
                for name in layer.inputs:
                    self._parent[self._root(name)] = self._root(layer.output)
        self.steps = self._choose(how, picture)

    def graph(self) -> Graph:
        """The network. Raises WorkloadError, naming the layer, when a multiplier, a bias or a sum does not fit."""
        layers = tuple(self._layer(layer) for layer in self.net.layers)
        step = {name: self.steps[self._root(name)] for name in self.statistics}
        return Graph(
            name=self.net.name,
            inputs=tuple(Value(name, *x.size, step[name]) for name, x in self.net.inputs.items()),
            layers=layers,
            outputs=tuple(dict.fromkeys(self.net.outputs)),
            steps={layer.output: step[layer.output] for layer in layers},
        )

    # -- steps ------------------------------------------------------------------------------------------------

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def _choose(self, how: Range, picture: Picture | None) -> dict[str, float]:
        """The step of each group of tensors that share one."""
        groups: dict[str, list[str]] = {}
        statistics = dict(self.statistics)
        for layer in self.net.layers:
            if layer.by == "max":
                statistics[layer.output] = statistics[layer.output].above(_FAINTEST)
            if layer.gone:
                least = statistics[layer.inputs[0]].low if layer.kind == "add" else 0.0
                statistics[layer.output] = statistics[layer.output].above(least)
        for name in self.statistics:
            groups.setdefault(self._root(name), []).append(name)
        ends = {*self.net.inputs, *self.net.outputs}
        steps: dict[str, float] = {}
        for root, names in groups.items():
            tensors = [statistics[name] for name in names]
            step = common_step(tensors, MAX if ends & set(names) else how)
            if picture is not None and set(self.net.inputs) & set(names):  # all bytes can come, whatever was seen
                bytes_ = (np.array([[0.0], [255.0]]) - picture.mean) / picture.std
                step = max(step, float(bytes_.max()) / 127, float(-bytes_.min()) / 128)
            steps[root] = step
        pinned = {self._root(name): 0.0 for name in self.pins}
        for name, some in self.pins.items():
            pinned[self._root(name)] = max(pinned[self._root(name)], *(pin.step for pin in some))
        makers = {*self.net.inputs, *(layer.output for layer in self.net.layers if not _hands_on(layer))}
        for root in pinned:  # what the file does not round shares the step, and must not be cut off
            free = [statistics[name] for name in groups[root] if name in makers and name not in self.pins]
            pinned[root] = max(pinned[root], common_step(free, MAX if ends & set(groups[root]) else how) if free else 0)
        steps |= pinned
        self._fit(steps, pinned)
        return steps

    def _fit(self, steps: dict[str, float], pinned: Collection[str]) -> None:
        """Lets steps grow until the multiplier of every layer fits, and those of average pools are exact.

        m = sx * sw / sy * 2^17: where it is too large, a larger step of the result helps. That makes the multipliers
        of its readers larger, and the step may be shared with tensors before it, hence the rounds. Where a step would
        outgrow its tensors by more than `_GROWTH` it stays, and the layer is refused when it is rounded. Steps in
        `pinned` do not change for averages.
        """
        first = dict(steps)
        inputs = {self._root(name) for name in self.net.inputs}
        makers = Counter(self._root(layer.output) for layer in self.net.layers if _makes(layer))
        for _ in range(len(steps) + 1):
            before = dict(steps)
            for layer in self.net.layers:
                if not _makes(layer):
                    continue
                root, x_step = self._root(layer.output), steps[self._root(layer.inputs[0])]
                if layer.kind in PAIRED:
                    x_step *= steps[self._root(layer.inputs[1])]
                least = self._least(layer, x_step)
                if steps[root] < least <= _GROWTH * first[root]:
                    steps[root] = least
                free = root not in inputs and root not in pinned
                if layer.w is None and layer.by is None and makers[root] == 1 and free:
                    unit = x_step * layer.gain / (layer.window.kernel_h * layer.window.kernel_w) * 2**SCALE_SHIFT
                    m = int(unit / steps[root] + 1e-6)  # rounded down: the step grows
                    if 0 < m <= SCALE_LIMIT:
                        steps[root] = unit / m
            if steps == before:
                break

    def _least(self, layer: FloatLayer, x_step: float) -> float:
        """The smallest step of a layer's result for which its multiplier fits, none of its weights clipped."""
        if layer.kind == "mul":
            return x_step * 2**SCALE_SHIFT / (SCALE_LIMIT * _SIXTEEN)
        if layer.kind == "product":
            return x_step * layer.gain * 2**SCALE_SHIFT / (SCALE_LIMIT - 0.5)
        if layer.kind == "normalise":
            return quotient_scale(layer.by, self._pixels(layer), 1.0) / (SCALE_LIMIT - 0.5)
        if layer.w is None:
            return x_step * layer.gain / (layer.window.kernel_h * layer.window.kernel_w) * 2**SCALE_SHIFT / SCALE_LIMIT
        full = float(self._in_blocks(layer).largest.max()) / 127 * x_step * 2**SCALE_SHIFT
        return full / (SCALE_LIMIT - 0.5)  # m is rounded up

    # -- layers -----------------------------------------------------------------------------------------------

    def _layer(self, layer: FloatLayer) -> Layer:
        y_step = self.steps[self._root(layer.output)]
        clamp = NO_CLAMP if layer.clamp == inf else min(NO_CLAMP, round(layer.clamp / y_step))
        relu = layer.relu
        plain = Layer(layer.kind, layer.output, layer.inputs, layer.window, relu=relu, clamp=clamp, places=layer.places)
        if layer.kind == "average_pool":
            gain = self.step(layer.inputs[0]) * layer.gain / (layer.window.kernel_h * layer.window.kernel_w)
            m = self._multiplier(layer, round(gain / y_step * 2**SCALE_SHIFT))
            return replace(plain, scale=m)
        if layer.kind == "mul":
            gain = self.step(layer.inputs[0]) * self.step(layer.inputs[1]) / y_step * 2**SCALE_SHIFT
            times16 = gain > SCALE_LIMIT
            m = self._multiplier(layer, round(gain / _SIXTEEN if times16 else gain))
            return replace(plain, scale=m, times16=times16)
        if layer.kind == "product":
            gain = self.step(layer.inputs[0]) * self.step(layer.inputs[1]) * layer.gain / y_step * 2**SCALE_SHIFT
            return replace(plain, scale=self._multiplier(layer, round(gain)), groups=layer.groups)
        if layer.by is not None:
            return self._normalised(layer, layer.by, plain, y_step)
        if layer.kind == "transpose":
            return replace(plain, groups=layer.groups, rows=layer.rows)
        if layer.function is not None:
            return replace(plain, relu=False, clamp=NO_CLAMP, table=self._table(layer, layer.function, y_step))
        if layer.w is None or layer.bias is None:
            return plain
        if layer.moves:  # x * _ONE * 2**17 / _ONE / 2**17
            w = (layer.w * _ONE).astype(np.int8)
            bias = np.zeros(len(w), np.int32)
            return replace(plain, scale=(1 << SCALE_SHIFT) // _ONE, w=w, bias=bias, density=0.0)
        plain = replace(plain, density=layer.density)
        if self.by_channel and scalable(plain):
            scales, w_steps, w = self._filters(layer, y_step)
            self.weight_steps[layer.output] = float(w_steps.max())
            return replace(plain, scales=scales, w=w, bias=self._bias(layer, w, w_steps))
        m, w_step, w = self._weights(layer, y_step)
        self.weight_steps[layer.output] = w_step
        return replace(plain, scale=m, w=w, bias=self._bias(layer, w, np.array([w_step])))

    def step(self, name: str) -> float:
        """The real value of 1 of a tensor."""
        return self.steps[self._root(name)]

    def _table(self, layer: FloatLayer, function: Function, y_step: float) -> NDArray[np.int8]:
        """The function of each value that the operand can have; 0 where it has no value there (the root of -1)."""
        exact = function(np.arange(-128, 128) * self.step(layer.inputs[0]))
        numbers = np.nan_to_num(exact, nan=0.0, posinf=inf, neginf=-inf)
        return np.clip(np.rint(np.clip(numbers / y_step, -128, 127)), -128, 127).astype(np.int8)

    def _normalised(self, layer: FloatLayer, by: By, plain: Layer, y_step: float) -> Layer:
        """What is added to the mean of the squares before the root (`epsilon`) is left out."""
        normalise, pixels = replace(plain, by=by), self._pixels(layer)
        if by == "max":
            return normalise
        if by == "mean":
            scale, times16 = mean_scale(pixels)
            return replace(normalise, scale=scale, times16=times16)
        scale = self._multiplier(layer, round(quotient_scale(by, pixels, y_step)))
        return replace(normalise, scale=scale, times16=True)

    def _pixels(self, layer: FloatLayer) -> int:
        _, rows, columns = self.net.sizes[layer.output]
        return rows * columns

    def _multiplier(self, layer: FloatLayer, m: int) -> int:
        if not 0 < m <= SCALE_LIMIT:
            small = "small" if m > SCALE_LIMIT else "large"
            raise self._error(
                layer,
                f"its scale m = {m} does not fit 1..{SCALE_LIMIT}: its results are too {small} for its operands and "
                "weights; calibrate with inputs like those it will see, or rescale the layer",
            )
        return m

    def _weights(self, layer: FloatLayer, y_step: float) -> tuple[int, float, NDArray[np.int8]]:
        """m, step and weights: the m with the least weighted squared error."""
        assert layer.w is not None
        unit, held = self._unit(layer, y_step), self._in_blocks(layer)
        full = float(held.largest.max()) / 127 / unit
        top = max(1, int(np.ceil(full)))  # where the bias is much larger than all products, too
        if top > SCALE_LIMIT:
            top = SCALE_LIMIT if self._may_clip(held, unit) else self._multiplier(layer, top)
        low = min(max(1, full * _NARROWEST), top)
        tries = sorted({round(m) for m in np.linspace(low, top, _TRIES)}, reverse=True)
        if (own := self._own(layer, unit)) is not None:
            tries = [own]
        least = -128 if own is not None else -127
        lowest, m = inf, tries[0]
        for trial in tries:
            if held.whole.least(np.array([trial * unit]), -least)[0] > lowest:
                break  # fewer steps clip more
            error, step = 0.0, trial * unit
            for block in held.blocks:
                rounded = rounded_weights(block.w, step, least)
                error += float(squared_errors(block.w, rounded, step, block.power).sum())
            if error < lowest:
                lowest, m = error, trial
        result = np.zeros_like(layer.w, np.int8)
        for block in held.blocks:
            block.put(result, rounded_weights(block.w, m * unit, least))
        return m, m * unit, result

    def _unit(self, layer: FloatLayer, y_step: float) -> float:
        """The step of the weights for m = 1."""
        return y_step / self.step(layer.inputs[0]) / 2**SCALE_SHIFT

    def _power(self, layer: FloatLayer) -> NDArray[np.float64]:
        """The mean square of what each weight multiplies; broadcasts to the weights."""
        square = self.statistics[layer.inputs[0]].square
        return square[:, None, None, None] if layer.kind == "depthwise" else square[None, :, None, None]

    def _filters(
        self, layer: FloatLayer, y_step: float
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int8]]:
        """m and step of each filter, and the weights: as `_weights`, filter by filter. A filter whose own scale, if the
        file has one for each, some m is near enough keeps its weights."""
        assert layer.w is not None
        unit, held = self._unit(layer, y_step), self._in_blocks(layer)
        full = held.largest / 127 / unit
        top = np.maximum(np.ceil(full), 1)
        if top.max() > SCALE_LIMIT and not self._may_clip(held, unit):
            self._multiplier(layer, int(top.max()))
        top = np.minimum(top, SCALE_LIMIT)
        low = np.clip(full * _NARROWEST, 1, top)
        scales, w = np.ones(len(layer.w), np.int32), np.zeros_like(layer.w, np.int8)
        for block in held.blocks:
            some, own, weight = block.filters, block.w, block.power
            first, last, errors = top[some], low[some], np.full(len(own), inf)
            for share in np.linspace(0, 1, _TRIES):
                m = np.rint(first + (last - first) * share)
                # a filter that has clipped so much will not do better with fewer steps
                left = np.flatnonzero(block.rows.least(m * unit, 127) <= errors)
                if not len(left):
                    break
                step = (m[left] * unit)[:, None, None, None]
                these = own if len(left) == len(own) else own[left]
                powers = weight if len(left) == len(own) else weight[left]
                error = squared_errors(these, rounded_weights(these, step, -127), step, powers).sum(axis=(1, 2, 3))
                better = error < errors[left]
                errors[left[better]] = error[better]
                scales[some][left[better]] = m[left[better]]
            block.put(w, rounded_weights(own, (scales[some] * unit)[:, None, None, None], -127))
        for pin in self.pins.get(layer.output, ()):
            if len(pin.weights) not in (1, len(layer.w)):
                continue
            theirs = np.broadcast_to(pin.weights, len(layer.w))
            m = np.clip(np.rint(theirs / unit), 1, SCALE_LIMIT)
            own, rescaled = (layer.w / (steps[:, None, None, None]) for steps in (theirs, m * unit))
            whole = np.rint(own)
            exact = (np.abs(own - whole) < 1e-3) & (np.abs(whole) <= 128) & (np.rint(rescaled) == whole)
            exact = exact.all(axis=(1, 2, 3)) & np.any(whole, axis=(1, 2, 3))
            scales[exact], w[exact] = m[exact], np.clip(whole[exact], -128, 127)
        return scales, np.array(scales * unit, np.float64), w

    def _own(self, layer: FloatLayer, unit: float) -> int | None:
        """The multiplier nearest to that of the file, if the file has one and its weights stay what they are."""
        assert layer.w is not None
        for pin in self.pins.get(layer.output, ()):
            if len(pin.weights) != 1:
                continue
            (scale,) = pin.weights
            m = round(scale / unit)
            if 1 <= m <= SCALE_LIMIT:
                own, rescaled = layer.w / scale, layer.w / (m * unit)
                whole = np.rint(own)
                if (
                    np.abs(own - whole).max() < 1e-3
                    and np.abs(whole).max() <= 128
                    and np.all(np.rint(rescaled) == whole)
                ):
                    return m
        return None

    @staticmethod
    def _may_clip(held: LayerWeights, unit: float) -> bool:
        """Whether the largest weights that any multiplier can express lose next to nothing of the layer's power: those
        that are larger multiply channels that are almost always 0."""
        most = 127 * SCALE_LIMIT * unit
        lost = whole = 0.0
        for block in held.blocks:
            lost += float((block.power * (block.w - np.clip(block.w, -most, most)) ** 2).sum())
            whole += float((block.power * block.w**2).sum())
        return lost <= _CLIPPED * whole

    def _in_blocks(self, layer: FloatLayer) -> LayerWeights:
        """The layer's weights, looked at once."""
        assert layer.w is not None
        if layer.output not in self._held:
            self._held[layer.output] = LayerWeights(layer.w, self._power(layer))
        return self._held[layer.output]

    def _bias(self, layer: FloatLayer, w: NDArray[np.int8], w_step: NDArray[np.float64]) -> NDArray[np.int32]:
        """`w_step`: of all filters or of each, [1] or [O]."""
        assert layer.w is not None
        assert layer.bias is not None
        x = self.statistics[layer.inputs[0]]
        steps = np.broadcast_to(w_step, len(w))[:, None, None, None]
        lost = np.zeros(w.shape[:2])  # [O, C] or [C, 1]
        sums = np.empty(len(w), np.int64)
        for block in self._in_blocks(layer).blocks:
            rounded = block.of(w)
            block.put(lost, (block.w - rounded * steps[block.filters]).sum(axis=(2, 3)))
            sums[block.filters] = np.abs(rounded.astype(np.int64)).sum(axis=(1, 2, 3))
        shift = lost[:, 0] * x.mean if layer.kind == "depthwise" else lost @ x.mean
        bias = np.rint((layer.bias + shift) / (self.step(layer.inputs[0]) * w_step))
        largest = np.abs(bias) + 128 * sums
        if largest.max() >= 1 << 31:
            channel = int(largest.argmax())
            raise self._error(
                layer,
                f"its sums may reach {largest.max():.4g} in channel {channel} (bias {bias[channel]:.4g}), past int32; "
                "its bias is too large for its operands and weights: rescale the layer or move the bias",
            )
        return bias.astype(np.int32)

    def _error(self, layer: FloatLayer, why: str) -> WorkloadError:
        return WorkloadError(f"{self.net.name}: layer {layer.output} ({layer.kind}) cannot be quantised: {why}")


def _hands_on(layer: FloatLayer) -> bool:
    """Whether a layer's result has no numbers but its operands'."""
    return layer.kind in ("max_pool", *MOVED) or layer.moves


def _makes(layer: FloatLayer) -> bool:
    """Whether a layer's multiplier absorbs whatever step its result has."""
    return (layer.kind in SCALED and not layer.moves) or layer.by in ("sum", "root")
