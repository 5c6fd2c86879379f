"""Samples for the congestion estimator: random layers beside random layers (Layer-Puzzle, section III-B.1).

An `Experiment` is one layer on some cores, and others on cores of the rest, which go on as long as it runs. What plays
it is a parameter: the fluid model here, the timeline model or the RTL elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...serving.fluid import Fluid
from ...serving.scheduler import Placement, Platform, Version
from ...workload.layer_tables import TableLayer
from ...workload.layers import ConvShape
from .table_versions import splits, version_of

#: Draws for one layer before another number of cores is tried: most shapes can be split in some way.
_TRIES = 50


@dataclass(frozen=True)
class Experiment:
    """A version and those beside it, and the layers that they are of, in the same order, for whatever compiles them."""

    version: Version
    beside: tuple[Version, ...]
    layers: tuple[TableLayer, ...] = field(compare=False, default=())


#: Cycles of an experiment's first layer beside the others; without others, alone.
Play = Callable[[Experiment], int]


@dataclass(frozen=True)
class Samples:
    """`features` [samples, FEATURES], `factor` [samples]: cycles alone over cycles beside the others, in (0, 1]."""

    features: NDArray[np.float64]
    factor: NDArray[np.float64]


#: Columns of `Samples.features`, the paper's three first. An intensity is the DRAM words that a core asks for in a
#: cycle when its layer runs alone: the inverse of operational intensity, but for a constant where arrays are busy.
FEATURES = ("allocated cores", "mean intensity of the others", "active cores", "own intensity")


def features(version: Version, beside: Sequence[Version]) -> tuple[float, float, float, float]:
    """One row of `Samples.features`. Active cores are those of the others; their intensity is the mean over cores."""
    active = sum(other.cores for other in beside)
    asked = sum(other.intensity for other in beside)
    return float(version.cores), asked / active if active else 0.0, float(active), version.intensity / version.cores


def experiments(platform: Platform, count: int, seed: int) -> Iterator[Experiment]:
    """Random ones, the same for a seed everywhere."""
    draw = _Draw(seed)
    total = len(platform.cores)
    for _ in range(count):
        layers: list[TableLayer] = []
        own, version = _random_version(platform, 1 + draw.below(total), draw)
        layers.append(own)
        beside: list[Version] = []
        free = draw.below(total - version.cores + 1)  # cores of the others together
        while free:
            layer, other = _random_version(platform, 1 + draw.below(free), draw)
            layers.append(layer)
            beside.append(other)
            free -= other.cores
        yield Experiment(version, tuple(beside), tuple(layers))


def measure(platform: Platform, count: int, seed: int, play: Play | None = None) -> Samples:
    """Plays random experiments. `play`: on what; None: the fluid model."""
    play = play or Fluids(platform)
    rows: list[tuple[float, float, float, float]] = []
    factors: list[float] = []
    for one in experiments(platform, count, seed):
        alone = play(Experiment(one.version, (), one.layers[:1]))
        rows.append(features(one.version, one.beside))
        factors.append(min(1.0, alone / play(one)) if one.beside else 1.0)
    return Samples(np.array(rows, np.float64).reshape(-1, len(FEATURES)), np.array(factors, np.float64))


@dataclass(frozen=True)
class Fluids:
    """Plays experiments on the fluid model."""

    platform: Platform

    def __call__(self, experiment: Experiment) -> int:
        """See `Play`. Layers beside it that end begin anew."""
        fluid = Fluid(self.platform)
        fluid.start(0, Placement(0, 0, experiment.version, (), 1))
        for slot, version in enumerate(experiment.beside, start=1):
            fluid.start(slot, Placement(slot, 0, version, (), 1))
        while True:
            for ended in fluid.advance(None):
                if ended.slot == 0:
                    return ended.cycle - 1
                again = experiment.beside[ended.slot - 1]
                fluid.start(ended.slot, Placement(ended.slot, 0, again, (), ended.cycle + 1))


class _Draw:
    """Whole numbers from a raw stream, which no version of NumPy changes."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def below(self, limit: int) -> int:
        """One of 0..limit-1."""
        return (int(self._bits.random_raw()) >> 16) % limit

    def of(self, *choices: int) -> int:
        return choices[self.below(len(choices))]


def _random_version(platform: Platform, cores: int, draw: _Draw) -> tuple[TableLayer, Version]:
    """A random layer with a random split over so many cores, fewer if none of many fits."""
    while True:
        for _ in range(_TRIES):
            layer = TableLayer(_random_shape(draw))
            ways = splits(cores)
            version = version_of(layer, ways[draw.below(len(ways))], platform)
            if version is not None:
                return layer, version
        cores = max(1, cores - 1)


def _random_shape(draw: _Draw) -> ConvShape:
    """A convolution or a matrix product of sizes that networks have."""
    batch = draw.of(1, 1, 4)
    inputs, outputs = draw.of(16, 32, 64, 128, 256, 512, 1024), draw.of(32, 64, 128, 256, 512, 1024)
    if draw.below(4) == 0:
        return ConvShape("random", batch, inputs * 4, 1, draw.of(1, 16, 64), outputs * 2)
    size, kernel = draw.of(7, 14, 28, 56), draw.of(1, 1, 3, 5)
    pad = kernel // 2
    return ConvShape("random", batch, inputs, size, size, outputs, kernel, kernel, 1, 1, pad, pad, pad, pad)
