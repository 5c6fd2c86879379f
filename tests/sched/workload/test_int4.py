"""Weights of four bits with a scale for each group: rounding, words of B, and what cannot be said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.core import golden
from meshloom.sched.workload import int4
from meshloom.sched.workload.graph import Graph, Value
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.layout import LayoutError, WeightLayout

from ..network_graphs import Grower
from ..random_graphs import in_groups


def drawn(seed: int, *shape: int) -> np.ndarray:
    """Weights as networks have them: groups of one size, and others."""
    random = np.random.default_rng(seed)
    weights = random.normal(0, random.choice([2.0, 10.0, 40.0], shape[:2] + (1,) * (len(shape) - 2)), shape)
    return np.clip(weights, -int4.LARGEST, int4.LARGEST)


def nearest(members: np.ndarray) -> float:
    """The least sum of squared errors, by trying everything."""
    numbers = np.arange(int4.LEAST, int4.MOST + 1)
    return min(float((np.abs(members[:, None] - scale * numbers).min(axis=1) ** 2).sum()) for scale in int4.SCALES)


@pytest.mark.parametrize("shape", [(5, 64, 1, 1), (3, 70, 1, 1), (2, 40, 3, 2)])
def test_rounding_is_the_nearest_that_a_group_can_say(shape: tuple[int, ...]) -> None:
    weights = drawn(1, *shape)
    rounded = int4.in_groups(weights)
    assert rounded.shape == shape
    for output, ky, kx in np.ndindex(shape[0], *shape[2:]):
        for first in range(0, shape[1], int4.GROUP):
            some = (output, slice(first, first + int4.GROUP), ky, kx)
            error = float(((rounded[some] - weights[some]) ** 2).sum())
            assert error == pytest.approx(nearest(weights[some]))
            assert int4.scales_of(rounded[some]) > 0


def test_words_are_those_that_the_array_unpacks() -> None:
    """There and back, and by the golden model of the hardware."""
    rounded = int4.in_groups(drawn(2, 6, 8 * 16)).reshape(2, 3, 8, 16).transpose(0, 2, 1, 3)  # [n, window, column, P]
    words = int4.packed(np.ascontiguousarray(rounded))
    assert words.shape == (2 * 4 * (1 + 3), 16)
    flat = rounded.reshape(-1, 16)
    np.testing.assert_array_equal(int4.unpacked(words.view(np.int8), 3), flat)
    np.testing.assert_array_equal(golden.unpacked(words.view(np.int8), 3), flat)


def test_what_four_bits_cannot_say() -> None:
    weights = np.zeros((1, 2, 3, 4), np.int8)
    weights[0, 1, 2] = [1, 2, 3, 127]
    with pytest.raises(ValueError, match=r"no scale of 1\.\.15 says the weights of output channel 2 in window 1"):
        int4.packed(weights)
    with pytest.raises(ValueError, match="3 windows; weights of four bits lie in pairs of windows"):
        int4.packed(np.zeros((1, 3, 3, 4), np.int8))
    every = np.arange(-128, 128, dtype=np.int16)[:, None].astype(np.int8)
    numbers = {int(value) for value, scale in zip(every[:, 0], int4.scales_of(every), strict=True) if scale}
    assert numbers == {scale * number for scale in int4.SCALES for number in range(int4.LEAST, int4.MOST + 1)}


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("cols", [5, 8])
def test_layout(lanes: int, cols: int) -> None:
    layout = WeightLayout(out_channels=11, in_channels=60, kernel_h=1, kernel_w=1, cols=cols, block=lanes, int4=True)
    plain = layout.model_copy(update={"int4": False})
    array = int4.in_groups(drawn(3, 11, 60, 1, 1))
    packed = layout.pack(array, lanes)
    assert packed.shape == (layout.words(lanes), lanes)
    assert layout.words(lanes) == plain.words(lanes) // (2 * cols) * (cols + 1)
    np.testing.assert_array_equal(layout.unpack(packed), array)
    with pytest.raises(LayoutError, match="weights layout: no scale of"):
        layout.pack(np.arange(660, dtype=np.int16).astype(np.int8).reshape(layout.shape), lanes)
    with pytest.raises(ValueError, match="in pairs of windows, which are odd in number here"):
        WeightLayout(out_channels=1, in_channels=lanes, kernel_h=1, kernel_w=1, cols=cols, block=lanes, int4=True)


def test_a_layer_says_only_what_its_weights_are() -> None:
    g = Grower(1, Value("x", 40, 2, 2, 0.5))
    g.conv("y", "x", 5)
    graph: Graph = g.graph("small", "y")
    assert in_groups(graph).layers[0].group == int4.GROUP
    with pytest.raises(WorkloadError, match=r"layer y \(conv\): weights are not in groups of 32 with a scale each"):
        replace(graph, layers=(replace(graph.layers[0], group=32),))
