"""Layers in training: their products, their networks, and the names under which they are found."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.training import PREFIX, Setting, find, names, setting_of
from meshloom.sched.workload.training_tables import TABLES

EDGE, SERVER = Setting(False, 4), Setting(True, 8)

#: Millions of weights of the tables' layers; what the publications count besides is named.
WEIGHTS = {
    "rcnn": 20.504,  # 19.4 with the proposal head's weights, which three levels share, counted once
    "goo": 6.99,
    "res": 25.503,
    "mob": 4.164,
    "yolov2_tiny": 11.227,
    "yolov5l": 46.503,
    "bert_tiny": 4.65,  # and 9.5 in the embedding of 30,522 words
    "bert_large": 303.038,  # and 31.3 in the embedding, 2 in the pre-training heads
    "t5_small": 60.49,
    "t5_large": 737.542,
}


@pytest.mark.parametrize("network", WEIGHTS)
def test_networks_have_the_published_number_of_weights(network: str) -> None:
    result = sum(row.shape.depth * row.shape.out_channels * row.count for row in TABLES[network]())
    assert result / 1e6 == pytest.approx(WEIGHTS[network], abs=0.001)


def test_a_convolution_is_the_product_of_its_unfolded_input() -> None:
    (layer,) = find("gradient:res/conv3_1_2", EDGE)  # 3x3, stride 2, 56x56 -> 28x28, 128 channels
    assert (layer.m, layer.k, layer.n) == (4 * 28 * 28, 9 * 128, 128)
    assert layer.unfolded
    assert layer.macs == 2 * layer.shape.macs


def test_rows_of_a_product_are_those_of_the_batch() -> None:
    (layer,) = find("gradient:bert/qkv", EDGE)
    assert (layer.name, layer.m, layer.k, layer.n, layer.count) == ("gradient:bert_tiny/qkv,b4", 512, 312, 936, 4)
    assert not layer.unfolded
    assert find("gradient:res/fc", EDGE)[0].m == 4
    assert find("gradient:rcnn/fc6,b1", EDGE)[0].m == 512


def test_size_and_batch_are_those_of_the_chip() -> None:
    assert setting_of(load("edge45")) == EDGE
    assert find("gradient:bert/qkv", SERVER)[0].name == "gradient:bert_large/qkv,b8"
    assert find("gradient:yolo", SERVER)[0].name == "gradient:yolov5l/conv1,b8"


def test_what_reads_the_input_of_the_network_has_no_input_gradient() -> None:
    firsts = {network: [row.shape.name for row in make() if row.first] for network, make in TABLES.items()}
    assert firsts["res"] == ["resnet50/conv1"]
    assert firsts["dlrm"] == ["dlrm/bottom1"]
    assert firsts["ncf"] == firsts["bert_large"] == []  # embeddings are trained
    (first,) = find("gradient:mob/conv1", EDGE)
    assert first.first
    assert first.macs == first.shape.macs


def test_every_name_finds_the_layer_that_carries_it() -> None:
    for name in names():
        for layer in find(PREFIX + name, EDGE):
            assert find(layer.name, SERVER) == (layer,)
    assert find("gradient:gemm:8x16x24", EDGE)[0].name == "gradient:gemm:8x16x24"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gradient:brt/qkv", "did you mean bert"),
        ("gradient:bert/qvk", "bert_tiny has qkv"),
        ("gradient:", "there are bert, t5, yolo"),
        ("gradient:bert/qkv,b0", "'b0' is not bBATCH"),
        ("gradient:bert/qkv,4", "'4' is not bBATCH"),
        ("gradient:gemm:8x8", "'8x8' is not MxNxK"),
        ("gradient:gemm:8x8x8,relu", "relu and clamp belong to the forward pass"),
    ],
)
def test_other_names_are_refused_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        find(name, EDGE)
