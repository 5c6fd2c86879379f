"""Softmax and layer normalisation in int8: how far from floating point."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph, Layer, Value
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.normalisation import ONE, softmax, standardise

from ..random_graphs import defined_values

CHANNELS = 64


def computed(layers: tuple[Layer, ...], x: NDArray[np.int8]) -> NDArray[np.float64]:
    """The last layer's result, [channels, pixels], in its steps."""
    channels, pixels = x.shape
    graph = Graph("n", (Value("x", channels, pixels, 1, 0.1),), layers, ("y",))
    return defined_values(graph, {"x": x.reshape(1, channels, pixels, 1)})["y"].reshape(x.shape).astype(np.float64)


@pytest.mark.parametrize("pixels", [1, 2, 16, 77, 197, 512])
@pytest.mark.parametrize("step", [0.05, 0.1, 0.5])
def test_a_softmax_is_off_by_the_rounding_of_its_exponentials(pixels: int, step: float) -> None:
    random = np.random.default_rng(pixels)
    wide = random.normal(0, random.uniform(2, 60, (CHANNELS, 1)), (CHANNELS, pixels))
    x = np.clip(np.rint(wide), -128, 127).astype(np.int8)
    powers = np.exp(step * (x.astype(np.float64) - x.max(axis=1, keepdims=True).astype(np.float64)))
    expected = ONE * powers / powers.sum(axis=1, keepdims=True)
    sums = np.rint(ONE * powers).sum(axis=1, keepdims=True)
    assert np.all(np.abs(computed(softmax("y", "x", step), x) - expected) <= 1.01 + expected * pixels / 2 / sums)


@pytest.mark.parametrize("pixels", [2, 64, 384, 512])
def test_a_normalisation_is_off_by_the_rounding_of_its_mean(pixels: int) -> None:
    random = np.random.default_rng(pixels)
    wide = random.normal(random.uniform(-20, 20, (CHANNELS, 1)), 25, (CHANNELS, pixels))
    x, step = np.clip(np.rint(wide), -128, 127).astype(np.int8), 1 / 25
    exact = x.astype(np.float64)
    deviation = exact.std(axis=1, keepdims=True)
    expected = (exact - exact.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1) / step
    result = computed(standardise("y", "x", pixels, step), x)
    allowed = 0.5 / np.maximum(deviation, 0.5) / step + 0.01 * np.abs(expected) + 1  # the mean's, the root's, rounding
    unclipped = (np.abs(expected) < 120) & (deviation > 3)
    assert np.all((np.abs(result - expected) <= allowed)[unclipped])
    assert unclipped.mean() > 0.8


def test_a_channel_of_one_value_is_zero() -> None:
    x = np.full((3, 5), [[7], [-128], [0]], np.int8)
    np.testing.assert_array_equal(computed(standardise("y", "x", 5, 1 / 32), x), 0)


def test_steps_that_cannot_be() -> None:
    with pytest.raises(WorkloadError, match="layer y: a softmax needs the step of its operand, above 0; it is 0"):
        softmax("y", "x", 0.0)
    with pytest.raises(WorkloadError, match=r"needs a scale m = 724077, which must be in 1\.\.65535; take a larger"):
        standardise("y", "x", 512, 1 / 1000)
