"""Windows that no instruction holds: any kernel, stride, distance of taps and padding of a convolution or a pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.isa import Opcode
from meshloom.sched.workload.onnx.building.strides import MOST_STRIDE, factors, first_step, next_product
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report
from meshloom.sched.workload.onnx.windows import limit

from ...float_models import FloatModel, decibels, integer_outputs, run_float


def test_steps_as_products():
    assert [factors(stride) for stride in (1, 7, 8, 14, 22, 32, 11)] == [[], [7], [4, 2], [7, 2], None, [4, 4, 2], None]
    assert [next_product(least) for least in (1, 8, 11, 13, 41)] == [1, 8, 12, 14, 42]
    assert [first_step(stride) for stride in (1, 7, 8, 11, 32)] == [(1, 1), (7, 1), (4, 2), (1, 11), (4, 8)]


def read(m: FloatModel) -> Quantised:
    """The model on its way to the chip's numbers; its layers fit instructions, its results are ONNX Runtime's."""
    model, data = m.build("y"), m.data(2)
    report = quantise_with_report(model, data)
    for layer in report.graph.layers:
        w, opcode = layer.window, Opcode.GEMM if layer.kind == "conv" else Opcode.VEC
        assert max(w.stride_h, w.stride_w) <= MOST_STRIDE
        if layer.kind != "slice":
            assert max(w.kernel_h, w.kernel_w) <= limit("kernel_h", opcode)
            assert w.dilation <= limit("dilation", opcode)
            assert max(w.pad_top, w.pad_left) <= limit("pad_top", opcode)
    exact = run_float(model, data[0])["y"]
    values = integer_outputs(report.graph, data[0])
    result = report.said({name: values[name] for name in report.graph.outputs})["y"]
    assert result.shape == exact.shape
    assert decibels(exact, result) > 22
    return report


def kinds(report: Quantised) -> dict[str, int]:
    return {layer.kind: 0 for layer in report.graph.layers} | {
        kind: sum(layer.kind == kind for layer in report.graph.layers)
        for kind in {layer.kind for layer in report.graph.layers}
    }


def convolution(shape: tuple[int, int, int], *kernel: int, group: int = 1, **attributes: Any) -> FloatModel:
    m = FloatModel((1, *shape), opset=19)
    outputs = shape[0] if group == shape[0] > 1 else 4
    m.conv("x", "y", (outputs, shape[0] // group, kernel[0], kernel[1]), group=group, **attributes)
    return m


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes", "layers"),
    [
        ((3, 16, 32), (8, 16), {"strides": [8, 16]}, {"slice": 6, "concat": 2, "conv": 1}),
        ((3, 15, 16), (7, 8), {"strides": [7, 8]}, {"slice": 3, "concat": 1, "conv": 1}),
        ((3, 33, 12), (11, 1), {"strides": [11, 1]}, {"slice": 5, "paste": 1, "concat": 1, "conv": 1}),
        ((2, 20, 40), (3, 17), {"strides": [1, 13], "pads": [1, 3, 1, 2]}, None),
        ((2, 24, 9), (3, 1), {"dilations": [9, 9], "pads": [9, 0, 9, 0], "strides": [2, 1]}, {"slice": 3, "concat": 1}),
        ((2, 30, 9), (3, 2), {"dilations": [2, 2], "strides": [8, 1]}, None),
        ((2, 9, 9), (31, 5), {"pads": [15, 2, 15, 2]}, None),
        ((2, 4, 9), (41, 3), {"pads": [20, 1, 20, 1]}, None),
        ((4, 20, 24), (8, 9), {"group": 2, "strides": [9, 8]}, None),
        ((1, 1, 900), (1, 40), {"strides": [1, 16]}, None),
    ],
)
def test_convolutions(shape: Any, kernel: tuple[int, int], attributes: dict[str, Any], layers: dict[str, int] | None):
    result = kinds(read(convolution(shape, *kernel, **attributes)))
    assert layers is None or layers.items() <= result.items(), result


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes", "layers"),
    [
        ((3, 16, 16), (8, 8), {"strides": [8, 8]}, {"depthwise": 1, "slice": 1}),
        ((3, 24, 11), (3, 3), {"strides": [11, 5]}, {"depthwise": 1, "paste": 1, "slice": 2}),
        ((3, 34, 6), (33, 3), {"pads": [16, 1, 16, 1]}, {"conv": 1}),
        ((3, 20, 20), (3, 3), {"dilations": [8, 8], "pads": [8, 8, 8, 8]}, {"conv": 1}),
        ((3, 20, 20), (3, 19), {"pads": [0, 18, 0, 18]}, {"depthwise": 4}),
    ],
)
def test_depthwise_convolutions(shape: Any, kernel: Any, attributes: dict[str, Any], layers: dict[str, int]):
    report = read(convolution(shape, *kernel, group=3, **attributes))
    assert layers.items() <= kinds(report).items(), kinds(report)
    zeros = (
        "The depthwise y runs as a convolution with zeros between its 3 channels, since no instruction of the vector "
    )
    assert any(note.startswith(zeros) for note in report.graph.notes) == ("conv" in layers)


def pool(operator: str, shape: tuple[int, int, int], **attributes: Any) -> FloatModel:
    m = FloatModel((1, *shape), opset=19)
    m.node(operator, "x", "y", **attributes)
    return m


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((3, 17, 22), {"kernel_shape": [8, 9], "strides": [8, 11]}),
        ((3, 40, 9), {"kernel_shape": [35, 3], "strides": [1, 9], "pads": [17, 1, 17, 1]}),
        ((3, 20, 20), {"kernel_shape": [19, 1], "pads": [18, 0, 18, 0], "strides": [10, 10]}),
        ((3, 21, 19), {"kernel_shape": [2, 2], "dilations": [9, 9], "pads": [1, 0, 1, 1]}),
        ((3, 40, 6), {"kernel_shape": [3, 1], "dilations": [8, 1], "strides": [9, 1], "pads": [2, 0, 2, 0]}),
        ((2, 40, 40), {"kernel_shape": [33, 2], "dilations": [1, 2], "ceil_mode": 1, "strides": [3, 3]}),
    ],
)
def test_max_pools(shape: Any, attributes: dict[str, Any]):
    read(pool("MaxPool", shape, **attributes))


@pytest.mark.parametrize(
    ("shape", "attributes", "layers"),
    [
        ((3, 16, 24), {"kernel_shape": [8, 8], "strides": [8, 8]}, {"average_pool": 1, "slice": 1}),
        ((3, 22, 9), {"kernel_shape": [11, 1], "strides": [11, 1]}, {"average_pool": 1, "slice": 2, "paste": 1}),
        ((2, 34, 6), {"kernel_shape": [33, 1]}, {"conv": 1}),
        ((2, 6, 6), {"kernel_shape": [20, 1], "pads": [17, 0, 18, 0], "count_include_pad": 1}, {"depthwise": 4}),
        ((2, 9, 9), {"kernel_shape": [2, 2], "dilations": [3, 3]}, {"depthwise": 1}),
        ((2, 34, 6), {"kernel_shape": [33, 1], "pads": [1, 0, 1, 0]}, {"conv": 3, "paste": 1}),
    ],
)
def test_average_pools(shape: Any, attributes: dict[str, Any], layers: dict[str, int]):
    result = kinds(read(pool("AveragePool", shape, **attributes)))
    assert layers.items() <= result.items(), result


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool", "ReduceSum"])
@pytest.mark.parametrize("side", [37, 34])
def test_whole_maps(operator: str, side: int):
    m = FloatModel((1, 2, side, 3), opset=19)
    positive = m.node("Abs", "x", "abs")  # sums of noise are small
    m.node(operator, [positive, m.integers(2, 3)] if operator == "ReduceSum" else positive, "y")
    read(m)


@pytest.mark.parametrize("steps", [(8, 11), (2, 40)])
def test_slices(steps: tuple[int, int]):
    m = FloatModel((1, 3, 30, 41), opset=19)
    ends = m.integers(30, 41)
    m.node("Relu", m.node("Slice", ["x", m.integers(1, 0), ends, m.integers(2, 3), m.integers(*steps)], "z"), "y")
    read(m)


def test_a_result_of_a_layer_that_makes_more():
    """A slice changes nothing but what is seen of a value; as a result it is a picture of its own."""
    m = FloatModel((1, 3, 8, 9), opset=19)
    m.node("Relu", m.node("Slice", ["x", m.integers(0), m.integers(8), m.integers(2), m.integers(2)], "z"), "y")
    read(m)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: convolution((1, 1, 257 * 11), 1, 11, strides=[1, 11]),
         "a stride of 11 with 257 windows along columns; 256 at most, or a stride of factors up to 7"),
        (lambda: convolution((1, 257 * 11, 1), 11, 1, strides=[11, 1]), "a stride of 11 with 257 windows along rows"),
        (lambda: pool("MaxPool", (1, 257 * 11, 1), kernel_shape=[2, 1], strides=[11, 1]),
         "a step of 11 through 2826 rows takes 257 copies; 256 at most, or a step of factors up to 7"),
        (lambda: pool("AveragePool", (1, 9, 9), kernel_shape=[2, 2], dilations=[3, 3], pads=[1, 1, 1, 1]),
         "dilations of an average, beside padding that does not count"),
        (lambda: pool("MaxPool", (1, 3, 30), kernel_shape=[2, 2], dilations=[8, 8], pads=[1, 1, 1, 1]),
         "does not fit|lie in the padding alone"),
    ],
)  # fmt: skip
def test_what_is_refused(build: Any, message: str):
    m = build()
    with pytest.raises(UnsupportedError, match=message):
        quantise_with_report(m.build("y"), m.data(1))


@pytest.mark.slow
def test_as_many_windows_as_there_may_be():
    m = convolution((1, 1, 256 * 11), 1, 11, strides=[1, 11])
    assert read(m).graph.value("y").shape == (1, 4, 1, 256)


def test_values_are_moved_and_not_changed():
    """A patch's sums are those of the file: nothing is rounded between."""
    m = convolution((3, 16, 16), 8, 8, strides=[8, 8])
    report = read(m)
    x = np.clip(np.rint(m.data(1)[0] / report.graph.inputs[0].step), -128, 127)
    layer = report.graph.layers[-1]
    assert layer.w is not None
    assert layer.bias is not None
    w = np.zeros((4, 3, 8, 8), np.int64)
    for at, block in enumerate(np.split(layer.w, 4, axis=1)):  # columns of one remainder behind those of the other
        column, row = divmod(at, 2)
        w[:, :, row::2, column::2] = block
    patches = x.reshape(3, 2, 8, 2, 8).astype(np.int64)
    sums = np.einsum("cryqx,ocyx->orq", patches, w) + layer.bias[:, None, None]
    mine = np.clip(np.rint(sums * layer.scale / 2**17), -128, 127) * report.graph.steps["y"]
    assert np.array_equal(
        mine.astype(np.float32), integer_outputs(report.graph, m.data(1)[0])["y"][0].astype(np.float32)
    )
