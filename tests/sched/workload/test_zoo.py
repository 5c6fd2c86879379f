"""The built-in networks: that they are what they are called, that their data is whole, and what they decide."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from meshloom.sched.workload import networks, zoo
from meshloom.sched.workload.layers import WorkloadError, random_data
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.pictures import read_picture

#: Multiply-accumulates, layers of each kind, shape of the result. The sums are those of the papers' or the makers'
#: tables: ResNet-50 4.1 G, VGG-16 15.5 G, GoogLeNet 1.58 G (with 5x5, without auxiliary heads), MobileNet-v1 569 M,
#: YOLOv2 29.46 billion operations, two for each product (darknet's own count), DS-CNN 2.66 M, MobileNet 0.25 7.49 M; of
#: VGG-19, ResNet-152 and Inception-v3 those of torchvision's (19.632, 11.514 and 5.713 G).
FACTS = {
    "resnet8": (12_501_632, {"conv": 10, "add": 3, "average_pool": 1}, (1, 10, 1, 1)),
    "ds_cnn": (2_656_768, {"conv": 6, "depthwise": 4, "average_pool": 1}, (1, 12, 1, 1)),
    "vww": (7_489_664, {"conv": 15, "depthwise": 13, "average_pool": 1}, (1, 2, 1, 1)),
    "squeezenet": (349_151_936, {"conv": 26, "concat": 8, "max_pool": 3, "average_pool": 1}, (1, 1000, 1, 1)),
    "efficientnet_lite0": (385_187_552, {"conv": 34, "depthwise": 16, "add": 9, "average_pool": 1}, (1, 1000, 1, 1)),
    "minilm_block": (32 * (4 * 384 * 384 + 2 * 384 * 1536), {"conv": 6}, (1, 384, 1, 32)),
    "resnet18": (1_814_073_344, {"conv": 21, "add": 8, "max_pool": 1, "average_pool": 1}, (1, 1000, 1, 1)),
    "resnet50": (4_089_184_256, {"conv": 54, "add": 16, "max_pool": 1, "average_pool": 1}, (1, 1000, 1, 1)),
    "resnet152": (11_513_626_624, {"conv": 156, "add": 50, "max_pool": 1, "average_pool": 1}, (1, 1000, 1, 1)),
    "vgg16": (15_470_264_320, {"conv": 16, "max_pool": 5}, (1, 1000, 1, 1)),
    "vgg19": (19_632_062_464, {"conv": 19, "max_pool": 5}, (1, 1000, 1, 1)),
    "inception_v3": (5_713_216_096, {"conv": 95, "concat": 11, "average_pool": 10, "max_pool": 4}, (1, 1000, 1, 1)),
    "googlenet": (1_582_671_872, {"conv": 58, "concat": 9, "max_pool": 13, "average_pool": 1}, (1, 1000, 1, 1)),
    "yolov2": (14_732_084_224, {"conv": 23, "max_pool": 5, "slice": 4, "concat": 1}, (1, 425, 13, 13)),
    "mobilenet_v1": (568_740_352, {"conv": 15, "depthwise": 13, "average_pool": 1}, (1, 1000, 1, 1)),
    "ncf": (256 * 256 + 256 * 128 + 128 * 64 + 128, {"conv": 4, "concat": 1}, (1, 1, 1, 1)),
    # encoder, decoder (self and cross attention), vocabulary, for each of 32 tokens
    "transformer": (
        32 * (6 * (4 * 512 * 512 + 2 * 512 * 2048) + 6 * (8 * 512 * 512 + 2 * 512 * 2048) + 512 * 33708),
        {"conv": 97, "add": 30},
        (1, 33708, 1, 32),
    ),
    # 18 attentions, whose scores and contexts take 32 x 32 x 512 each; 30 normalisations, each with factors of 512
    # channels
    "transformer_whole": (
        32 * (6 * (4 * 512 * 512 + 2 * 512 * 2048) + 6 * (8 * 512 * 512 + 2 * 512 * 2048) + 512 * 33708)
        + 18 * 2 * 32 * 32 * 512
        + 30 * 32 * 512,
        {
            "conv": 97,
            "add": 30,
            "product": 2 * 18,
            "transpose": 2 * 18 + 2 * 30,
            "table": 18,
            "normalise": 2 * 18 + 2 * 30,
            "depthwise": 30,
        },
        (1, 33708, 1, 32),
    ),
}
#: Networks that no stored picture fits.
NO_PICTURES = ("minilm_block", "inception_v3", "yolov2", "ncf", "transformer", "transformer_whole")
#: How many of the stored pictures the float networks get right.
RIGHT = {"resnet8": 18, "ds_cnn": 19, "vww": 10, "squeezenet": 15, "efficientnet_lite0": 18}


def test_all_networks_are_here():
    assert set(zoo.names()) == set(FACTS)
    assert len(zoo.names()) == len(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_networks_are_the_published_ones(name: str):
    macs, kinds, shape = FACTS[name]
    graph = zoo.load(name)
    assert graph.name == name
    assert graph.total_macs == macs
    assert Counter(layer.kind for layer in graph.layers) == kinds
    assert graph.value(graph.outputs[-1]).shape == shape
    assert graph.real == (name in zoo.TRAINED)
    # nothing is computed in vain, nothing is fed in vain
    used = {source for layer in graph.layers for source in layer.inputs}
    result = {layer.output for layer in graph.layers}
    assert result - used == set(graph.outputs)
    assert {value.name for value in graph.inputs} <= used


@pytest.mark.parametrize("name", networks.GRAPHS)
def test_tables_and_graphs_are_one(name: str):
    graph, table = zoo.load(name), getattr(networks, name)()
    convolutions = [layer for layer in graph.layers if layer.kind == "conv"]
    for layer, shape in zip(convolutions, table, strict=True):
        if shape.name in ("vgg16/fc6", "vgg19/fc6"):  # a matrix product in the table
            assert graph.conv_shape(layer).w_shape == (4096, 512, 7, 7)
            assert graph.conv_shape(layer).macs == shape.macs
        else:
            assert graph.conv_shape(layer) == shape
        if not name.startswith("vgg"):
            assert layer.w is not None
            np.testing.assert_array_equal(layer.w, random_data(shape).w)


#: Weights and biases of the published networks. Of torchvision's count (143,667,240; 25,557,032; 60,192,808) those of
#: residual networks have another scale for each channel that a batch normalisation follows (26,560; 75,712), which
#: folding takes into weights; Inception-v3 is Keras' count of trainable parameters, whose normalisations have none.
PARAMETERS = {
    "vgg19": 143_667_240,
    "resnet50": 25_557_032 - 26_560,
    "resnet152": 60_192_808 - 75_712,
    "inception_v3": 23_817_352,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_networks_have_the_published_parameters(name: str):
    layers = zoo.load(name).layers
    result = sum(layer.w.size + layer.bias.size for layer in layers if layer.w is not None and layer.bias is not None)
    assert result == PARAMETERS[name]


def test_residual_blocks():
    graph = zoo.load("resnet50")
    result = {layer.output: layer for layer in graph.layers}
    assert result["add2_1"].inputs == ("conv2_1_shortcut", "conv2_1_3")
    assert result["add4_2"].inputs == ("add4_1", "conv4_2_3")
    assert result["add4_2"].relu
    assert not result["conv4_2_3"].relu
    assert [layer.output for layer in graph.users("add4_1")] == ["conv4_2_1", "add4_2"]
    assert result["conv5_1_2"].window.stride_h == 2
    assert result["conv5_1_1"].window.stride_h == 1
    assert graph.value("pool1").shape == (1, 64, 56, 56)


def test_inception_modules():
    graph = zoo.load("googlenet")
    result = {layer.output: layer for layer in graph.layers}
    parts = ("conv4_c_1x1", "conv4_c_3x3", "conv4_c_5x5", "conv4_c_projection")
    assert result["concat4_c"].inputs == parts
    assert {result[part].inputs[0] for part in parts[1:]} == {"conv4_c_3x3_reduce", "conv4_c_5x5_reduce", "pool4_c"}
    assert graph.value("concat3_b").shape == (1, 480, 28, 28)
    assert graph.value("concat5_b").shape == (1, 1024, 7, 7)


def test_the_modules_of_inception_v3():
    graph = zoo.load("inception_v3")
    result = {layer.output: layer for layer in graph.layers}
    sizes = {"3": (64, 147), "5_b": (256, 35), "5_d": (288, 35), "6_a": (768, 17), "7_a": (1280, 8), "7_c": (2048, 8)}
    for name, (channels, side) in sizes.items():
        value = graph.value("conv1_3" if name == "3" else f"concat{name}")
        assert value.shape == (1, channels, side, side)
    row, column = result["conv7_b_3_1x3"], result["conv7_b_3_3x1"]
    assert row.inputs == column.inputs == ("conv7_b_3_2",)
    assert (row.window.kernel_h, row.window.kernel_w, row.window.pad_top, row.window.pad_left) == (1, 3, 0, 1)
    assert result["conv6_c_3_3"].window.kernel_w == 7
    assert result["pool5_c"].inputs == ("concat5_b",)
    assert result["conv5_c_projection"].inputs == ("pool5_c",)
    assert result["concat7_a"].inputs == ("conv7_a_1_2", "conv7_a_2_4", "pool7_a")


def test_the_passthrough_of_yolov2_is_space_to_depth():
    graph = zoo.load("yolov2")
    result = {layer.output: layer for layer in graph.layers}
    assert graph.value("slice01").shape == (1, 64, 13, 13)
    assert graph.value("concat8").shape == (1, 1280, 13, 13)
    quarters = [result[name].window for name in result["concat8"].inputs[:4]]
    assert [(window.pad_top, window.pad_left) for window in quarters] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {(window.stride_h, window.stride_w) for window in quarters} == {(2, 2)}


def test_fire_modules_and_inverted_bottlenecks():
    graph = zoo.load("squeezenet")
    result = {layer.output: layer for layer in graph.layers}
    assert result["fire4"].inputs == ("fire4_expand1", "fire4_expand3")
    assert result["fire4_expand1"].inputs == result["fire4_expand3"].inputs == ("fire4_squeeze",)
    graph = zoo.load("efficientnet_lite0")
    result = {layer.output: layer for layer in graph.layers}
    assert result["add3_2"].inputs == ("conv3_1_project", "conv3_2_project")
    assert result["conv4_1_depthwise"].window.kernel_h == 5
    # ReLU6: 6 in steps of the tensor
    layer = result["conv4_1_depthwise"]
    assert layer.relu
    assert layer.clamp * graph.value(layer.output).step == pytest.approx(6, rel=0.05) or layer.clamp == 127


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v1"])
def test_random_values_spread_and_do_not_die(name: str):
    graph = zoo.load(name)
    values = golden_values(graph, {"picture": read_picture(zoo.pictures(name)[3][0], graph)})
    for layer in graph.layers:
        value = values[layer.output].astype(int)
        assert 8 < value.std() < 60
        assert np.mean(np.abs(value) >= 127) < 0.05


def test_random_weights_are_the_same_everywhere():
    layer = next(layer for layer in zoo.load("resnet18").layers if layer.output == "conv3_1_2")
    assert layer.w is not None
    assert layer.bias is not None
    digest = hashlib.sha256(layer.w.tobytes() + layer.bias.astype("<i4").tobytes() + str(layer.scale).encode())
    assert digest.hexdigest() == "eb21862e8caa9abf4f45543d490d0954bf20a0213d5e8fa87f74c6cebf20826d"


@pytest.mark.parametrize("name", [name for name in zoo.names() if name not in NO_PICTURES])
def test_pictures_fit_their_networks(name: str):
    graph, result = zoo.load(name), zoo.pictures(name)
    assert len(result) >= 10
    assert zoo.arrays(name) == {}
    for path, label in result:
        with Image.open(path) as image:
            assert image.size == (graph.inputs[0].width, graph.inputs[0].height)
        assert label is None or 0 <= label < len(graph.labels)
    assert all((label is None) == (name not in zoo.TRAINED) for _, label in result)


@pytest.mark.parametrize("name", NO_PICTURES)
def test_arrays_fit_their_networks(name: str):
    graph, result = zoo.load(name), zoo.arrays(name)
    assert zoo.pictures(name) == []
    assert zoo.float_top1(name) == zoo.int8_top1(name) == ()
    assert {value.name: value.shape for value in graph.inputs} == {key: x.shape for key, x in result.items()}
    for array in result.values():
        assert array.dtype == np.int8
        assert array.std() > 1


@pytest.mark.parametrize("name", RIGHT)
def test_recorded_decisions(name: str):
    truth = [label for _, label in zoo.pictures(name)]
    right = [sum(a == b for a, b in zip(top1(name), truth, strict=True)) for top1 in (zoo.float_top1, zoo.int8_top1)]
    assert right[0] == RIGHT[name]
    assert right[1] >= right[0] - 1  # quantising costs at most one
    assert zoo.load(name).labels


@pytest.mark.parametrize(
    ("name", "count"), [("resnet8", 20), ("ds_cnn", 25), ("vww", 10), ("squeezenet", 3), ("efficientnet_lite0", 2)]
)
def test_onnx_runtime_still_decides_as_recorded(name: str, count: int):
    graph = zoo.load(name)
    (source,) = (value.name for value in graph.inputs)
    for (path, _), recorded in list(zip(zoo.pictures(name), zoo.int8_top1(name), strict=True))[:count]:
        scores = golden_values(graph, {source: read_picture(path, graph)})[graph.outputs[0]]
        assert scores.argmax() == recorded


def test_the_encoder_block_has_real_numbers():
    graph = zoo.load("minilm_block")
    assert [layer.inputs[0] for layer in graph.layers] == ["hidden"] * 3 + ["context", "attended", "activated"]
    values = golden_values(graph, zoo.arrays("minilm_block"))
    for layer in graph.layers:
        assert values[layer.output].std() > 1
        assert np.abs(values[layer.output].astype(int)).max() > 100


def test_files_are_the_ones_that_sources_md_lists():
    page = (zoo.DATA / "SOURCES.md").read_text()
    listed = page.partition("\n## Files\n")[2].partition("\n## ")[0].splitlines()[3:]
    files = [path for path in sorted(zoo.DATA.rglob("*")) if path.is_file() and path.name != "SOURCES.md"]
    assert listed == [
        f"| {path.relative_to(zoo.DATA).as_posix()} | {hashlib.sha256(path.read_bytes()).hexdigest()} |"
        for path in files
    ]
    assert sum(path.stat().st_size for path in files) < 15_000_000
    for name, folder in zoo.TRAINED.items():
        assert f"\n## {name}.onnx\n" in page
        assert folder == name or f"\n## {folder}/\n" in page


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5", "unknown network 'resnet5': did you mean .*resnet50"),
        ("squeezenet1", "did you mean squeezenet"),
        ("resnet50/conv1", "unknown network"),
        ("?", "there are resnet8, ds_cnn, .*mobilenet_v1"),
    ],
)
def test_unknown_names_say_what_is_near(name: str, message: str):
    for ask in (zoo.load, zoo.pictures, zoo.arrays, zoo.file, zoo.float_top1):
        with pytest.raises(WorkloadError, match=message):
            ask(name)


def test_random_networks_have_no_file():
    with pytest.raises(WorkloadError, match="'vgg16' has random weights and no file; there are resnet8, "):
        zoo.file("vgg16")
    assert zoo.file("vww").is_file()
    assert zoo.float_top1("vgg16") == ()


def test_importing_the_zoo_is_cheap():
    program = "import sys, meshloom.sched.workload.zoo; assert not {'onnx', 'PIL', 'onnxruntime'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], check=True)
