"""The golden model of whole networks: it is the definition, layer by layer, and refuses what it could not promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshloom.sched.workload.graph import Graph, Layer, PastePlace, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.inputs.golden.graph import GoldenError, golden_values

from ..sched.network_graphs import placed
from ..sched.random_graphs import defined_values, random_graph, random_inputs


@given(seed=st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=60)
def test_every_tensor_is_the_definition(seed):
    graph = random_graph(seed)
    inputs = random_inputs(graph, seed)
    arrays, result = golden_values(graph, inputs), defined_values(graph, inputs)
    assert set(arrays) == set(graph.values)
    for name, value in graph.values.items():
        assert arrays[name].dtype == np.int8
        assert arrays[name].shape == value.shape
        np.testing.assert_array_equal(arrays[name], result[name], err_msg=name)


def test_maps_put_together_from_others():
    graph = placed()
    inputs = random_inputs(graph, 1)
    arrays, result = golden_values(graph, inputs), defined_values(graph, inputs)
    for name in graph.values:
        np.testing.assert_array_equal(arrays[name], result[name], err_msg=name)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (
            (PastePlace(0, 0, 1, 1, 4, 4), PastePlace(0, 0, 1, 1, 4, 4)),
            "have 32 pixels and do not cover 4x4 exactly once",
        ),
        ((PastePlace(0, 0, 1, 1, 4, 4), PastePlace(5, 0, 1, 1, 4, 4)), "do not cover 9x4"),
        (
            (PastePlace(0, 0, 1, 1, 4, 4), PastePlace(4, 0, 1, 1, 4, 3)),
            "its places are not of the size of its operands",
        ),
    ],
)
def test_places_that_do_not_fit(places, message):
    with pytest.raises(WorkloadError, match=message):
        graph_of(Layer("paste", "y", ("x", "x"), places=places))


@pytest.mark.parametrize("scale", [1, 3, 1 << 15, (1 << 16) - 1])
@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_corners(kind, scale):
    """Extreme operands and biases, and sums whose scaled value lies half way between integers."""
    channels = 64
    w = np.full((channels, channels if kind == "conv" else 1, 3, 3), -128, np.int8)
    w[1::2] = 127
    bias = np.linspace(-(1 << 30), 1 << 30, channels).astype(np.int32)
    bias[::4] = np.arange(16) * (1 << 16)
    layer = Layer(kind, "y", ("x",), Window(3, 3, 1, 1, 1, 1, 1, 1), scale=scale, w=w, bias=bias)
    zero = replace(layer, output="z", w=np.zeros_like(w))
    graph = Graph("corner", (Value("x", channels, 4, 4),), (layer, zero), ("y", "z"))
    for fill in (-128, 127):
        inputs = {"x": np.full((1, channels, 4, 4), fill, np.int8)}
        arrays, result = golden_values(graph, inputs), defined_values(graph, inputs)
        for name in ("y", "z"):
            np.testing.assert_array_equal(arrays[name], result[name])


def graph_of(layer: Layer) -> Graph:
    return Graph("net", (Value("x", 2, 4, 4),), (layer,), ("y",))


def test_sums_past_int32_are_refused():
    w = np.full((2, 2, 4, 4), 127, np.int8)
    room = (1 << 31) - 1 - 128 * 127 * 32
    layer = Layer("conv", "y", ("x",), Window(4, 4), scale=5, w=w, bias=np.array([0, -room], np.int32))
    inputs = {"x": np.full((1, 2, 4, 4), -128, np.int8)}
    assert golden_values(graph_of(layer), inputs)["y"].ravel().tolist() == [-20, -128]
    assert layer.bias is not None
    with pytest.raises(GoldenError, match=r"network net: layer y: sums may reach 2147483648, past int32"):
        golden_values(graph_of(replace(layer, bias=layer.bias - np.int32(1))), inputs)


def test_inputs_must_fit():
    graph = graph_of(Layer("max_pool", "y", ("x",), Window(2, 2)))
    right: Any = np.zeros((1, 2, 4, 4), np.int8)
    assert golden_values(graph, {"x": right})["y"].shape == (1, 2, 3, 3)
    for inputs, message in (
        ({}, "network net: inputs are x; given are none"),
        ({"x": right, "z": right}, "inputs are x; given are x, z"),
        ({"x": right[:, :, 1:]}, r"input x is int8\[1, 2, 3, 4\], must be int8\[1, 2, 4, 4\]"),
        ({"x": right.astype(np.uint8)}, "input x is uint8"),
    ):
        with pytest.raises(GoldenError, match=message):
            golden_values(graph, inputs)
