"""Layers in a row by their names, as a network."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layer_chain import chain, is_chain
from meshloom.sched.workload.layers import WorkloadError
from meshloom.tb.compare.floors import floor_of
from meshloom.tb.runs.kinds.table import is_network


def test_layers_of_a_network_keep_their_names_and_data() -> None:
    graph, x = chain("resnet8/conv2_1_1+resnet8/conv2_1_2")
    assert [layer.output for layer in graph.layers] == ["conv2_1_1", "conv2_1_2"]
    assert [layer.inputs for layer in graph.layers] == [("input",), ("conv2_1_1",)]
    first = find("resnet8/conv2_1_1")[0].data()
    assert np.array_equal(x, first.x)
    assert graph.layers[0].w is not None
    assert np.array_equal(graph.layers[0].w, first.w)
    assert graph.real
    assert floor_of("resnet8/conv2_1_1+resnet8/conv2_1_2", load("quad8")) == 2 * (3 * 32 - 2) ** 2, "without padding"


def test_shapes_are_numbered() -> None:
    graph, _ = chain("conv:8x8x8-16,k3,p1+conv:8x8x16-8")
    assert [layer.output for layer in graph.layers] == ["layer0", "layer1"]
    assert graph.value("layer1").shape == (1, 8, 8, 8)


@pytest.mark.parametrize(
    ("name", "so"),
    [
        ("conv:8x8x8-8+conv:8x8x8-8", True),
        ("resnet8/conv2_1_1+conv:32x32x16-8", True),
        ("resnet8/conv2_1_1", False),
        ("a+b.onnx", False),
        ("stream:c++/mapping.yaml", False),
        ("resnet8+resnet8", False),
    ],
)
def test_what_a_chain_is(name: str, so: bool) -> None:
    assert is_chain(name) == so
    assert is_network(name) == (so or name.endswith(".onnx"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "conv:8x8x8-8+conv:8x8x16-8",
            r"layer conv:8x8x16-8 reads 1x16x8x8 \(images, .*\), conv:8x8x8-8 before it makes 1x8x8x8; join layers",
        ),
        ("resnet8/conv2_1_1+resnet8/*", r"workload resnet8/\* is \d+ layers; name one of them"),
        ("resnet8/conv2_1_1+resnet8/conv9", r"unknown workload 'resnet8/conv9'"),
    ],
)
def test_layers_that_do_not_follow_each_other(name: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        chain(name)
