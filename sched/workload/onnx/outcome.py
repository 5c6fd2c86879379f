"""A quantised network, and how well it went: noise of the integer network beside the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph
from .calibrate import Feeds, Range
from .dequantised import real_input
from .floats import FloatNet, PerChannel, Source, normalised
from .host import HostPart
from .original import Original
from .rounding import Rounder
from .runtime import run, session
from .start import Start
from .writer import flip, to_onnx, unflip

if TYPE_CHECKING:
    from onnx import ModelProto


#: Decibels at the outputs below which a run says where they are lost; what rounding to 8 bits leaves at most, as good
#: as.
_ENOUGH, _MOST = 10.0, 50.0


@dataclass(frozen=True)
class LayerReport:
    """One layer: m (0: not requantised; by channel the largest), step of its result and of its weights (0: none, by
    channel the largest), and how its result deviates: signal-to-noise ratio in dB over the calibration data (inf: not
    at all), an output's against the file in ONNX Runtime, others' against the float network. `size`: the root of
    the mean square of its values there."""

    name: str
    kind: str
    scale: int
    step: float
    weight_step: float
    snr_db: float
    size: float = 0.0


@dataclass(frozen=True, eq=False)
class Quantised:
    """A quantised network with a report. `snr_db`: the worst of its outputs, against the file in ONNX Runtime, which
    may round and cut off itself. `agreement`: share of the calibration data for which the largest of the first output's
    values is where the file's is. `equalised`, `ranges`: what was chosen (exponent of the factors; how ranges follow
    from values), and `by_channel`: weights have a step for each filter. `origins`: for each output of the graph, the
    ONNX tensor that it stands for; `ends`: how its elements are those of the output; `sources`: how the inputs of the
    model are those of the graph; `host`: what the host does behind the graph, `start`: before it (then `sources` are
    the inputs of `start.rest`). `reference`: the model with whose results those of the graph are compared, if it is not
    the one that was given. `numbers`: scale and zero point of inputs of 8 bits; `normalise`: as in `FloatNet`."""

    graph: Graph
    layers: tuple[LayerReport, ...]
    snr_db: float
    agreement: float
    equalised: float
    ranges: Range
    by_channel: bool = False
    origins: dict[str, str] = field(default_factory=dict[str, str])
    ends: dict[str, Source] = field(default_factory=dict[str, Source])
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    host: HostPart | None = None
    start: Start | None = None
    reference: ModelProto | None = None
    numbers: dict[str, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict[str, Any])
    normalise: dict[str, PerChannel] = field(default_factory=dict[str, PerChannel])

    @property
    def loss(self) -> str:
        """Where most of the float model is lost, in a sentence for people; empty if enough of it is left."""
        if self.snr_db >= _ENOUGH:
            return ""
        ratios = {layer.name: layer.snr_db for layer in self.layers}
        falls = {
            layer.output: min([_MOST, *(ratios[name] for name in layer.inputs if name in ratios)])
            for layer in self.graph.layers
        }
        worst = max(falls, key=lambda name: falls[name] - ratios[name])
        return (
            f"Little is left of the float model at the outputs ({self.snr_db:.1f} dB): most is lost in layer {worst} "
            f"(from {falls[worst]:.1f} to {ratios[worst]:.1f} dB{self._drowned(worst)}); --layers shows each."
        )

    def _drowned(self, name: str) -> str:
        """Why little is left of a layer whose values are smaller than its step; empty of others."""
        by_name = {layer.name: layer for layer in self.layers}
        layer = by_name[name]
        if layer.size >= layer.step:
            return ""
        largest = max((each for each in self.layers if each.step == layer.step), key=lambda each: each.size)
        return (
            f": its values, {layer.size:.2g} on average, are below its step of {layer.step:.2g}, which it shares with "
            f"layer {largest.name}, {largest.size:.2g} on average; tensors that additions, pools and concatenations "
            "join have one step: normalise what is added up"
        )

    def real(self, name: str, array: NDArray[Any]) -> NDArray[Any] | None:
        """An input of the model, in its shape or as [1, C, H, W], as the real numbers that it stands for, [1, C, H, W];
        None if it has another shape."""
        return self.sources[name].placed(real_input(self.numbers, name, array))

    def feed(self, name: str, real: NDArray[Any]) -> NDArray[np.float32]:
        """The graph's input for what `real` gives."""
        return normalised(self.normalise, name, real)

    def finish(self, values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The model's outputs that are left to the host, by name, for real outputs of the graph, [1, C, H, W]."""
        if self.host is None:
            return {}
        tensors = self.said(values)
        return {name: tensors[name] for name in self.host.outputs}

    def said(self, values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The tensors of the model that real outputs of the graph, [1, C, H, W], stand for, and all that the host makes
        of them, by name and in the shapes that they have in the model; the model's outputs first, in its order."""
        by_origin = {self.origins[name]: self.ends[name].array(array) for name, array in values.items()}
        return by_origin if self.host is None else self.host.run(by_origin) | by_origin


def ends_of(file: ModelProto, net: FloatNet, data: Sequence[Mapping[str, NDArray[Any]]]) -> list[Feeds]:
    """What the file itself computes for the outputs of its network, by their names there, in the file's shapes: with
    all that it rounds and cuts off. `data`: inputs of the model, [1, C, H, W]."""
    original = Original(file, net.name, net.origins, net.inputs)
    runs = (original.run(item) for item in data)
    ends = list(zip(net.outputs, net.origins, strict=True))
    return [{name: theirs[origin] for name, origin in ends if origin in theirs} for theirs in runs]


def report_of(
    graph: Graph, rounder: Rounder, truth: Sequence[Feeds], ends: Sequence[Feeds], strength: float, how: Range
) -> Quantised:
    """`truth`: tensors of the float network, `ends`: the file's own results, which outputs are compared with."""
    live, net = session(to_onnx(graph, all_outputs=True), graph.name), rounder.net
    signal = dict.fromkeys(graph.values, 0.0)
    noise = dict.fromkeys(graph.values, 0.0)
    count = dict.fromkeys(graph.values, 0)
    alike = 0
    origins = dict(zip(net.outputs, net.origins, strict=True))
    sources = {
        name: Source(graph.value(name).shape[1:], net.shapes[origin], net.end_orders.get(origin))
        for name, origin in origins.items()
    }
    for real, end in zip(truth, ends, strict=True):
        feeds = {
            value.name: flip(
                np.clip(np.rint(real[value.name].astype(np.float64) / value.step), -128, 127).astype(np.int8)
            )
            for value in graph.inputs
        }
        results = {name: unflip(array) * graph.value(name).step for name, array in run(live, feeds).items()}
        results |= {name: sources[name].array(results[name]) for name in end}
        for name, array in results.items():
            exact = end.get(name, real[name]).astype(np.float64)
            count[name] += exact.size
            signal[name] += float((exact**2).sum())
            noise[name] += float(((array - exact) ** 2).sum())
        first = graph.outputs[0]
        alike += int(results[first].argmax() == end.get(first, real[first]).argmax())
    snr = {name: _decibels(signal[name], noise[name]) for name in graph.values}
    layers = tuple(
        LayerReport(
            layer.output,
            layer.kind,
            layer.scale if layer.scales is None else int(layer.scales.max()),
            graph.steps[layer.output],
            rounder.weight_steps.get(layer.output, 0.0),
            snr[layer.output],
            (signal[layer.output] / max(1, count[layer.output])) ** 0.5,
        )
        for layer in graph.layers
    )
    worst = min(snr[name] for name in graph.outputs)
    agreement = alike / len(truth)
    return Quantised(graph, layers, worst, agreement, strength, how, rounder.by_channel, origins, sources)


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return inf
    return float(10 * np.log10(signal / noise)) if signal else -inf
