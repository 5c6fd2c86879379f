"""Tensors whose channels lie in the words of a chip as who reads them needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshloom.hw.spec.config import ChipConfig

from .graph import Graph, Layer
from .stages import Lanes, LanesError, all_lanes

#: y = RNE(64 x * 2048 / 2^17) = x.
_WEIGHT, _SCALE = 64, 2048


def in_words(graph: Graph, chip: ChipConfig) -> Graph:
    """The network, with a convolution of 1x1 that changes nothing but the place of channels wherever layers on this
    chip would else read channels that lie apart: a sum of a concatenation whose pieces fill no whole words and of
    another tensor, or heads of an attention that begin within a word. The same object if there is none.

    Raises WorkloadError where that does not help.
    """
    copies: set[str] = set()
    while True:
        try:
            all_lanes(graph, chip)
        except LanesError as error:
            if copies.issuperset(error.names):
                raise
            graph, more = _with_copies(graph, error.layer, [name for name in error.names if name not in copies])
            copies |= more
        else:
            return graph


def _with_copies(graph: Graph, reader: str, names: Sequence[str]) -> tuple[Graph, set[str]]:
    """The network with copies of what a layer reads, and these."""
    copies = {name: _fresh(graph, f"{reader}/{name}/words") for name in names}
    layers: list[Layer] = []
    for layer in graph.layers:
        if layer.output == reader:
            layers += [_copy(name, copy, graph.value(name).channels) for name, copy in copies.items()]
            layer = replace(layer, inputs=tuple(copies.get(name, name) for name in layer.inputs))
        layers.append(layer)
    steps = graph.steps | {copy: graph.steps[name] for name, copy in copies.items() if name in graph.steps}
    return replace(graph, layers=tuple(layers), steps=steps), set(copies.values())


def _copy(name: str, copy: str, channels: int) -> Layer:
    w = np.zeros((channels, channels, 1, 1), np.int8)
    w[range(channels), range(channels)] = _WEIGHT
    return Layer("conv", copy, (name,), scale=_SCALE, w=w, bias=np.zeros(channels, np.int32), density=0.0)


def _fresh(graph: Graph, name: str) -> str:
    while name in graph.values:
        name += "_"
    return name


def channel_runs(lanes: Lanes, per_word: int) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Words that follow each other and are full but for the last one, and the channels that they have, for the words of
    a group of channels: `lanes` has the channel of each lane, or -1."""
    counts = [int((word >= 0).sum()) for word in lanes.reshape(-1, per_word)]
    runs: list[tuple[tuple[int, int], tuple[int, int]]] = []
    begin = channel = first = 0
    for index, count in enumerate(counts):
        channel += count
        if count < per_word or index == len(counts) - 1:
            runs.append(((begin, index + 1), (first, channel)))
            begin, first = index + 1, channel
    return tuple(runs)
