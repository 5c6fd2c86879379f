"""What values the tensors of a float network take over calibration data, and the steps that suit them.

The range of a tensor can be that of all its values (`max`), that of all but the rarest (`percentile`), or the one whose
rounding and saturation have the least mean squared error together (`mse`): H. Wu et al., "Integer Quantization for Deep
Learning Inference: Principles and Empirical Evaluation", 2020, section 5.1, has the first two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .errors import OnnxError
from .float_model import float_model
from .floats import FloatNet
from .runtime import run, session

#: Samples that are kept of a tensor and an input, and bins of the histogram that is made of them.
SAMPLES, BINS = 8192, 4096
#: Shares of the largest value at which clipping is tried, largest first: the first of equals wins.
CLIPS = tuple(1 - 0.02 * index for index in range(36))


@dataclass(frozen=True)
class Range:
    """How the range of a tensor follows from its values, or `file`: it is that of a file. `percent`: of `percentile`,
    how many of them lie in it."""

    kind: Literal["max", "percentile", "mse", "file"]
    percent: float = 100.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.percent:g}" if self.kind == "percentile" else self.kind


MAX, MSE, FILE = Range("max"), Range("mse"), Range("file")
#: What is tried if nobody says otherwise ...
BEST = "best"
#: ... besides in networks that normalise layers: single numbers in their sums are hundreds of times as large as others.
RAREST = Range("percentile", 99.95)


def ranges(text: str) -> tuple[Range, ...]:
    """What `max`, `mse`, `percentile:P` or `best` (the better one of max and mse) means. Raises OnnxError.

    For networks with layer normalisations the best also considers `RAREST` (`quantise`).
    """
    kind, _, number = text.partition(":")
    methods = {"max": (MAX,), "mse": (MSE,), BEST: (MAX, MSE)}
    if text in methods:
        return methods[text]
    try:
        percent = float(number)
    except ValueError:
        percent = 0.0
    if kind != "percentile" or not 50 < percent <= 100:
        raise OnnxError(f"calibration {text!r} must be max, mse, best, or percentile:P with P above 50 and at most 100")
    return (Range("percentile", percent),)


Feeds = Mapping[str, NDArray[np.float32]]


@dataclass
class Statistics:
    """Values of one tensor: extremes, mean, mean square and maximum of each channel, and samples of all."""

    low: float
    high: float
    mean: NDArray[np.float64]
    square: NDArray[np.float64]
    largest: NDArray[np.float64]
    samples: NDArray[np.float32]

    @property
    def full_step(self) -> float:
        """The smallest step with which nothing saturates; 1 for a tensor of zeros."""
        return max(self.high / 127, -self.low / 128) or 1.0

    def above(self, least: float) -> Statistics:
        """As if no value were below."""
        return replace(self, low=max(self.low, least), samples=np.maximum(self.samples, np.float32(least)))

    def step_of(self, percent: float) -> float:
        """The smallest step with which so many of the samples do not saturate; 0 if these are zeros."""
        apart = np.maximum(self.samples / 127.0, self.samples / -128.0)
        return float(np.percentile(apart, percent))


def run_all(net: FloatNet, feeds: Sequence[Feeds]) -> list[dict[str, NDArray[np.float32]]]:
    """All tensors of the network, inputs included, for each element of `feeds`."""
    live = session(float_model(net), net.name)
    return [{**feed, **run(live, dict(feed))} for feed in feeds]


def measure(net: FloatNet, feeds: Sequence[Feeds]) -> dict[str, Statistics]:
    """Statistics of all tensors, inputs included. Raises OnnxError when one is not finite."""
    live = session(float_model(net), net.name)
    gathered: dict[str, list[Statistics]] = {}
    for feed in feeds:
        for name, array in {**feed, **run(live, dict(feed))}.items():
            gathered.setdefault(name, []).append(_statistics(net.name, name, array))
    return {name: _merge(parts) for name, parts in gathered.items()}


def _statistics(network: str, name: str, array: NDArray[np.float32]) -> Statistics:
    if not np.all(np.isfinite(array)):
        raise OnnxError(f"{network}: tensor {name!r} is not finite for a calibration input; fix the weights or data")
    channels = array[0].reshape(array.shape[1], -1).astype(np.float64)
    flat = array.ravel()
    return Statistics(
        low=min(float(flat.min()), 0.0),
        high=max(float(flat.max()), 0.0),
        mean=channels.mean(axis=1),
        square=(channels**2).mean(axis=1),
        largest=channels.max(axis=1),
        samples=flat[:: -(-flat.size // SAMPLES) | 1],  # an odd distance, lest it follow rows
    )


def _merge(parts: list[Statistics]) -> Statistics:
    return Statistics(
        low=min(part.low for part in parts),
        high=max(part.high for part in parts),
        mean=np.mean([part.mean for part in parts], axis=0),
        square=np.mean([part.square for part in parts], axis=0),
        largest=np.max([part.largest for part in parts], axis=0),
        samples=np.concatenate([part.samples for part in parts]),
    )


#: Samples that differ by less than this share of themselves are one value: float32 has too few numbers between them.
_NARROW = 1e-3


def common_step(tensors: Sequence[Statistics], how: Range) -> float:
    """One step for tensors that share it: large enough for every value of each, for all but the rarest of each, or
    where the sum of their relative squared errors is smallest."""
    full = max((tensor.full_step for tensor in tensors if tensor.high or tensor.low), default=1.0)
    if how.kind == "max":
        return full
    if how.kind == "percentile":
        return max((tensor.step_of(how.percent) for tensor in tensors), default=0.0) or full
    bins = [_histogram(tensor) for tensor in tensors]
    errors: list[float] = []
    for share in CLIPS:
        step = full * share
        error = 0.0
        for counts, centres in bins:
            power = float(counts @ centres**2)
            if power:
                rounded = np.clip(np.rint(centres / step), -128, 127) * step
                error += float(counts @ (rounded - centres) ** 2) / power
        errors.append(error)
    return full * CLIPS[int(np.argmin(errors))]


def _histogram(tensor: Statistics) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    low, high = float(tensor.samples.min()), float(tensor.samples.max())
    if high - low <= _NARROW * max(abs(low), abs(high)):  # no bins between: one value, as far as a step is concerned
        return np.array([tensor.samples.size]), np.array([low])
    counts, edges = np.histogram(tensor.samples, BINS, (low, high))
    return counts, (edges[1:].astype(np.float64) + edges[:-1]) / 2
