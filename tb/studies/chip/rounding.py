"""Weights of trained files rounded to 8 bits with a step for a layer, some of its channels or each: their noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.onnx.calibrate import Statistics, measure, run_all
from meshloom.sched.workload.onnx.equalise import equalised
from meshloom.sched.workload.onnx.floats import FloatLayer, FloatNet
from meshloom.sched.workload.onnx.host import fold_to_end

from ..networks.file_cases import ModelFile
from .scale_stage import SHIFT_BITS

#: Channels of a word on quad16, which one instruction computes with one multiplier.
WORD = 16
#: Filters of a depthwise layer with a power of two of their own, beside all with one step or each with one.
SHIFTED = "shifted"
#: Shares of the largest weight at which clipping is tried, as the quantiser does.
_CLIPS = np.linspace(0.5, 1, 48)

Tensors = Sequence[Mapping[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class Noise:
    """Signal-to-noise ratios of the worst output in dB: with a step for a layer, as it is and `equalised`; for a word
    of channels; for a layer with depthwise filters `shifted`; for each channel."""

    layer: float
    equalised: float
    word: float
    shifted: float
    channel: float


def rounded(w: NDArray[np.float64], weight: NDArray[np.float64], together: int) -> NDArray[np.float64]:
    """Weights [O, ...] with 8 bits: one step for each `together` filters, those of like range, the one with the least
    squared error, weighted with `weight` (that broadcasts to them)."""
    steps = np.zeros_like(w)
    power = np.broadcast_to(weight, w.shape)
    order = np.argsort(np.abs(w).reshape(len(w), -1).max(axis=1), kind="stable")
    for first in range(0, len(w), together):
        some = order[first : first + together]
        part, full = w[some], float(np.abs(w[some]).max()) / 127
        best = np.inf
        for share in _CLIPS if full else ():
            tried = np.clip(np.rint(part / (full * share)), -127, 127) * (full * share)
            error = float((power[some] * (tried - part) ** 2).sum())
            if error < best:
                best, steps[some] = error, tried
    return steps


def shifted(w: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `rounded` with one step for all filters, each of which is multiplied by a power of two before, as far as it
    fits, and divided by it behind."""
    ranges = np.abs(w).reshape(len(w), -1).max(axis=1)
    free = np.floor(np.log2(np.divide(ranges.max(), ranges, out=np.ones_like(ranges), where=ranges > 0)))
    factor = (2.0 ** np.clip(free, 0, 2**SHIFT_BITS - 1))[:, None, None, None]
    return rounded(w * factor, np.broadcast_to(weight, w.shape) / factor**2, len(w)) / factor


def with_rounded_weights(net: FloatNet, statistics: Mapping[str, Statistics], together: int | str) -> FloatNet:
    """The network with weights of 8 bits, everything else as it is. `together`: channels with one step; 0: all;
    `SHIFTED`: all, and filters of depthwise layers are `shifted`."""

    def layer_of(layer: FloatLayer) -> FloatLayer:
        if layer.w is None or layer.bias is None or layer.moves:
            return layer
        x = statistics[layer.inputs[0]]
        depthwise = layer.kind == "depthwise"
        weight = x.square[:, None, None, None] if depthwise else x.square[None, :, None, None]
        if together == SHIFTED and depthwise:
            w = shifted(layer.w, weight)
        else:
            w = rounded(layer.w, weight, (together if isinstance(together, int) else 0) or len(layer.w))
        lost = (layer.w - w).sum(axis=(2, 3))  # bias correction, as in `rounding`
        shift = lost[:, 0] * x.mean if depthwise else lost @ x.mean
        return replace(layer, w=w, bias=layer.bias + shift)

    return replace(net, layers=[layer_of(layer) for layer in net.layers])


def noise(net: FloatNet, truth: Tensors, results: Tensors) -> float:
    """The worst signal-to-noise ratio of an output, in dB."""
    ratios: list[float] = []
    for output in dict.fromkeys(net.outputs):
        exact = np.stack([one[output].astype(np.float64) for one in truth])
        off = np.stack([one[output].astype(np.float64) for one in results]) - exact
        ratios.append(float(10 * np.log10((exact**2).sum() / max(float((off**2).sum()), 1e-30))))
    return min(ratios)


def _run(net: FloatNet, statistics: Mapping[str, Statistics], together: int | str, feeds: Tensors) -> Tensors:
    return run_all(with_rounded_weights(net, statistics, together), feeds)


def noise_of(file: ModelFile) -> Noise:
    """Of a file. Raises PackageError."""
    net = fold_to_end(file.model(), file.name, normalised=False)
    ((name, source),) = net.inputs.items()
    arrays = [array for array, _ in file.inputs(file.tests, file.calibration) if isinstance(array, np.ndarray)]
    feeds = [{name: net.feed(name, source.value(array))} for array in arrays]
    truth, statistics = run_all(net, feeds), measure(net, feeds)
    ratios = {each: noise(net, truth, _run(net, statistics, each, feeds)) for each in (0, WORD, SHIFTED, 1)}
    best = ratios[0]
    for strength in (0.5, 1.0):
        trial = equalised(net, statistics, strength)
        own = run_all(trial, feeds)
        best = max(best, noise(trial, own, _run(trial, measure(trial, feeds), 0, feeds)))
    return Noise(ratios[0], best, ratios[WORD], ratios[SHIFTED], ratios[1])
