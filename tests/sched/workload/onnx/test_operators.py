"""Float operators, one small model each: quantised, every one keeps its meaning; what cannot run is listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from meshloom.sched.workload.graph import Window
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.quantise import quantise, quantise_with_report

from ...float_models import FloatModel, decibels, integer_outputs, run_float

# -- operators -------------------------------------------------------------------------------------------------

OPERATORS: dict[str, tuple[Callable[[], tuple[FloatModel, str]], str]] = {}


def operator(kinds: str, **model: Any) -> Callable:
    """A model that makes its last tensor from `x`; `kinds`: the layers that it becomes."""

    def enter(build: Callable[[FloatModel], str]) -> Callable[[FloatModel], str]:
        def make() -> tuple[FloatModel, str]:
            m = FloatModel(**model)
            return m, build(m)

        OPERATORS[getattr(build, "__name__", "")] = (make, kinds)
        return build

    return enter


@operator("conv")
def conv_same_lower(m):
    return m.conv("x", "y", (4, 3, 2, 2), auto_pad="SAME_LOWER", strides=[1, 1])


@operator("conv", shape=(1, 3, 9, 8))
def conv_same_upper(m):
    return m.conv("x", "y", (4, 3, 3, 2), auto_pad="SAME_UPPER", strides=[2, 3])


@operator("conv")
def conv_all_attributes(m):
    return m.conv("x", "y", (4, 3, 3, 2), pads=[1, 0, 2, 1], strides=[2, 1], dilations=[2, 2], group=1)


def chosen_channels(m, outputs, kernel):
    chosen = m.node("Slice", ["x", m.integers(1), m.integers(7), m.integers(1)], "chosen")
    return m.conv(chosen, "y", (outputs, 6, kernel, kernel))


@operator("conv", shape=(1, 8, 6, 6))
def conv_with_zeros_for_two_channels(m):
    return chosen_channels(m, 5, 1)


@operator("conv conv", shape=(1, 8, 6, 6))
def conv_that_would_have_more_zeros_than_a_choice_of_channels(m):
    return chosen_channels(m, 5, 3)


@operator("conv conv concat conv", shape=(1, 6))
def vectors_without_a_batch_joined(m):
    parts = [
        m.node("Reshape", [m.node("Gemm", ["x", m.normal(6, n)], f"g{n}"), m.integers(-1)], f"f{n}") for n in (3, 5)
    ]
    whole = m.node("Reshape", [m.node("Concat", parts, "both", axis=0), m.integers(1, 8)], "whole")
    return m.node("Gemm", [whole, m.normal(8, 3)], "y")


@operator("depthwise depthwise", shape=(1, 6, 8, 8))
def depthwise(m):
    return m.conv(m.conv("x", "a", (6, 1, 3, 3), group=6), "y", (6, 1, 2, 2), group=6)


@operator("conv conv", shape=(1, 6, 8, 8))
def groups(m):
    return m.conv(m.conv("x", "a", (4, 3, 3, 3), group=2), "y", (8, 1, 2, 2), group=4)


@operator("conv depthwise")
def batch_normalisation_folded_or_alone(m):
    def normalisation(source: str, output: str) -> str:
        numbers = [m.constant(m.random.uniform(0.5, 2, 4)) for _ in range(4)]
        return m.node("BatchNormalization", [source, *numbers], output, epsilon=1e-3)

    a = m.node("Relu", normalisation(m.conv("x", "a", (4, 3, 3, 3)), "b"), "c")
    return normalisation(a, "y")


@operator("conv")
def arithmetic_folded(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    a = m.node("Mul", [m.constant(np.array([1, -2, 3, 0.5]).reshape(1, 4, 1, 1)), a], "b")
    a = m.node("Sub", [m.constant(0.7), a], "c")
    a = m.node("Div", [a, m.constant(np.array([1, 2, 3, 4]).reshape(4, 1, 1))], "d")
    a = m.node("Sub", [a, m.constant(np.full((1, 4, 1, 1), 0.1))], "e")
    return m.node("Add", [m.constant(np.array([1.0])), a], "y")


@operator("conv conv add max_pool concat")
def activations(m):
    """Fused into a convolution and an addition; a layer of its own where others see the operand."""
    a = m.node("Clip", [m.conv("x", "a", (4, 3, 1, 1)), m.constant(0.0), m.constant(0.5)], "b")
    b = m.conv("x", "c", (4, 3, 1, 1))
    c = m.node("Clip", [m.node("Add", [a, b], "d"), "", m.constant(1.0)], "e")
    return m.node("Concat", [m.node("Relu", c, "f"), m.node("Identity", m.node("Relu", b, "g"), "h")], "y", axis=1)


@operator("conv table")
def one_tensor_twice(m):
    a = m.conv("x", "a", (4, 3, 1, 1))
    return m.node("Sum", [m.node("Add", [a, a], "b"), a], "y")


@operator("conv", opset=6 + 1)
def old_clip_and_pad(m):
    a = m.node("Pad", "x", "a", pads=[0, 0, 1, 2, 0, 0, 3, 4])
    return m.node("Clip", m.conv(a, "b", (4, 3, 3, 3), pads=[1, 1, 0, 0]), "y", min=0.0, max=0.5)


@operator("conv max_pool average_pool")
def padded_pools(m):
    a = m.node("Relu", m.conv("x", "a", (4, 3, 1, 1)), "b")
    b = m.node("MaxPool", m.node("Pad", [a, m.integers(0, 0, 1, 1, 0, 0, 1, 1)], "c"), "d", kernel_shape=[3, 3])
    c = m.node("Pad", [b, m.integers(0, 0, 0, 1, 0, 0, 0, 1), m.constant(0.0)], "e")
    return m.node("AveragePool", c, "y", kernel_shape=[3, 2], strides=[2, 1])


@operator("max_pool max_pool average_pool", shape=(1, 3, 12, 11))
def pools(m):
    a = m.node("MaxPool", "x", "a", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    b = m.node("MaxPool", a, "b", kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 0, 0])
    return m.node("AveragePool", b, "y", kernel_shape=[2, 2], pads=[1, 0, 0, 1], count_include_pad=1)


@operator("max_pool max_pool", shape=(1, 2, 6, 7))
def pools_that_do_not_fit(m):
    """The last window of a ceil_mode pool never begins in the padding."""
    a = m.node("MaxPool", "x", "a", kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1)
    return m.node("MaxPool", a, "y", kernel_shape=[1, 2], strides=[2, 2], pads=[0, 1, 0, 1], ceil_mode=1)


@operator("conv average_pool conv")
def classifier(m):
    a = m.node("GlobalAveragePool", m.conv("x", "a", (4, 3, 3, 3)), "b")
    b = m.node("Dropout", m.node("Flatten", a, "c"), "d")
    return m.node("Gemm", [b, m.normal(4, 5), m.normal(5)], "y", alpha=0.5, beta=2.0)


@operator("conv conv")
def flattened_picture(m):
    a = m.node("Reshape", [m.conv("x", "a", (4, 3, 3, 3)), m.integers(0, -1)], "b")
    b = m.node("MatMul", [a, m.normal(4 * 36, 5, scale=0.1)], "c")
    return m.node("Relu", m.node("Add", [m.normal(5), b], "d"), "y")


@operator("conv conv conv", shape=("batch", 3, 8, 8))
def shape_computed(m):
    """As exporters write x.view(x.size(0), -1)."""
    a = m.conv("x", "a", (4, 3, 3, 3))
    size = m.node("Gather", [m.node("Shape", a, "b"), m.constant(0, np.int64)], "c", axis=0)
    size = m.node("Unsqueeze", [size, m.integers(0)], "d")
    shape = m.node("Concat", [size, m.integers(-1)], "e", axis=0)
    b = m.node("Gemm", [m.node("Reshape", [a, shape], "f"), m.normal(5, 144, scale=0.1)], "g", transB=1)
    return m.conv(m.node("Unsqueeze", [b, m.integers(2, 3)], "h"), "y", (6, 5, 1, 1))


@operator("average_pool conv", opset=11)
def mean_and_squeeze(m):
    a = m.node("ReduceMean", "x", "a", axes=[-1, 2], keepdims=0)
    return m.node("Gemm", [a, m.normal(3, 5), m.normal(1)], "y")


@operator("average_pool max_pool conv", opset=18)
def newer_reduce_mean(m):
    """And a node that no result depends on."""
    a = m.node("ReduceMean", ["x", m.integers(2, 3)], "a")
    b = m.node("Squeeze", [m.node("GlobalMaxPool", a, "b"), m.integers(2, 3)], "c")
    return m.node("LogSoftmax", m.node("MatMul", [b, m.normal(3, 5)], "d"), "y") and "d"


@operator("conv max_pool conv concat conv")
def branches(m):
    a = m.node("Relu", m.conv("x", "a", (4, 3, 1, 1)), "b")
    b = m.node("MaxPool", a, "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    c = m.node("Relu", m.conv(a, "d", (2, 4, 3, 3), pads=[1, 1, 1, 1]), "e")
    return m.conv(m.node("Concat", [b, c, a], "f", axis=1), "y", (3, 10, 1, 1))


@operator("slice slice slice slice concat conv")
def space_to_depth(m):
    a = m.node("SpaceToDepth", "x", "a", blocksize=2)
    b = m.node("Slice", [a, m.integers(1, 0), m.integers(100, 4), m.integers(-2, 3), m.integers(1, 3)], "b")
    return m.conv(b, "y", (4, 12, 1, 2))


@operator("conv conv depthwise", shape=(1, 3, 6, 6))
def channel_shuffle(m):
    """Behind a convolution its filters are put into another order."""
    a = m.node("Reshape", [m.conv("x", "a", (6, 3, 1, 1)), m.integers(0, 2, 3, 6, 6)], "b")
    b = m.node("Reshape", [m.node("Transpose", a, "c", perm=[0, 2, 1, 3, 4]), m.integers(0, -1, 6, 6)], "d")
    return m.conv(m.conv(b, "e", (6, 6, 1, 1)), "y", (6, 1, 3, 3), group=6)


@operator("conv conv max_pool conv conv")
def split_channels(m):
    m.nodes.append(
        onnx.helper.make_node("Split", [m.conv("x", "a", (6, 3, 1, 1)), m.integers(2, 4)], ["b", "c"], axis=1)
    )
    m.conv(m.node("MaxPool", "c", "d", kernel_shape=[2, 2]), "e", (2, 4, 1, 1))
    return m.conv("e", "y", (2, 2, 1, 1))


@operator("conv conv conv conv conv paste", shape=(1, 2, 5, 4))
def depth_to_space(m):
    return m.node("DepthToSpace", m.conv("x", "a", (8, 2, 1, 1)), "y", blocksize=2, mode="CRD")


@operator("conv conv conv conv paste", shape=(1, 2, 5, 4))
def transposed(m):
    """With the normalisation and the ReLU behind it."""
    a = m.node("ConvTranspose", ["x", m.normal(2, 3, 3, 3), m.normal(3)], "a", strides=[2, 2], pads=[1, 1, 0, 0])
    numbers = [m.constant(m.random.uniform(0.5, 2, 3)) for _ in range(4)]
    return m.node("Relu", m.node("BatchNormalization", [a, *numbers], "b"), "y")


@operator("paste conv", shape=(1, 2, 5, 4))
def larger_by_copies(m):
    return m.conv(m.node("Resize", ["x", "", m.constant([1.0, 1.0, 2.0, 3.0])], "a"), "y", (3, 2, 3, 3))


@operator(" ".join(["slice"] * 8 + ["paste"] + ["depthwise"] * 4 + ["paste"]), shape=(1, 2, 5, 4))
def larger_by_interpolation(m):
    return m.node("Resize", ["x", "", m.constant([1.0, 1.0, 2.0, 2.0])], "y", mode="linear")


@operator("slice slice paste depthwise depthwise slice slice paste depthwise paste " * 2, shape=(1, 2, 6, 4))
def larger_by_half(m):
    """Three phases of the rows, and then of the columns; the outer ones reach over the edge."""
    return m.node("Resize", ["x", "", m.constant([1.0, 1.0, 1.5, 1.5])], "y", mode="linear")


@operator("slice depthwise " * 5 + "paste", shape=(1, 2, 4, 3))
def corners_aligned(m):
    """Each row has weights of its own; columns stay."""
    return m.node("Resize", ["x", "", "", m.integers(1, 2, 5, 3)], "y", mode="linear",
                  coordinate_transformation_mode="align_corners")  # fmt: skip


@operator("slice depthwise depthwise slice depthwise paste", shape=(1, 2, 3, 8), opset=18)
def smaller_without_aliases(m):
    return m.node("Resize", ["x", "", "", m.integers(1, 2, 3, 3)], "y", mode="cubic", antialias=1)


@operator("conv", shape=(1, 8, 8, 3))
def channels_last(m):
    """As tf2onnx and Keras leave them, at the beginning and in the middle."""
    a = m.conv(m.node("Transpose", "x", "a", perm=[0, 3, 1, 2]), "b", (4, 3, 3, 3))
    b = m.node("Add", [m.node("Transpose", a, "c", perm=[0, 2, 3, 1]), m.normal(4)], "d")
    return m.node("Relu", b, "y")


@operator("conv max_pool conv", shape=(1, 4, 20))
def one_axis(m):
    a = m.node("Conv", ["x", m.normal(6, 4, 5), m.normal(6)], "a", pads=[2, 2], strides=[2])
    b = m.node("MaxPool", a, "b", kernel_shape=[3], strides=[2])
    return m.node("Gemm", [m.node("Flatten", b, "c"), m.normal(24, 3)], "y")


@operator("conv conv add", shape=(1, 7, 12))
def vectors(m):
    """Layers of a transformer: matrix products of [1, vectors, features]."""
    a = m.node("Relu", m.node("Add", [m.node("MatMul", ["x", m.normal(12, 8)], "a"), m.normal(8)], "b"), "c")
    b = m.node("MatMul", [a, m.normal(8, 12)], "d")
    return m.node("Add", [b, "x"], "y")


@operator("slice slice slice concat slice slice concat conv", shape=(1, 3, 40, 33))
def large_strides(m):
    return m.conv("x", "y", (4, 3, 8, 8), strides=[8, 8])


@operator("slice slice slice slice slice slice concat conv", shape=(1, 3, 20, 33))
def large_maps(m):
    return m.node("Gemm", [m.node("Flatten", "x", "f"), m.normal(3 * 20 * 33, 5, scale=0.02)], "y")


@operator("depthwise slice slice slice slice concat conv", shape=(1, 2, 20, 19))
def large_kernels(m):
    return m.conv("x", "y", (3, 2, 17, 18), pads=[1, 2, 3, 4])


@operator("conv")
def dilations_that_differ(m):
    return m.conv("x", "y", (4, 3, 3, 2), dilations=[2, 3])


@operator("depthwise max_pool")
def zeros_before_a_pool(m):
    padded = m.node("Pad", ["x", m.integers(0, 0, 1, 1, 0, 0, 1, 1)], "p")
    return m.node("MaxPool", padded, "y", kernel_shape=[3, 3])


@operator(" ".join(["slice average_pool"] * 4 + ["average_pool"] + ["slice average_pool"] * 4 + ["paste"]))
def averages_without_padding(m):
    return m.node("AveragePool", "x", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])


@operator("max_pool max_pool", shape=(1, 2, 36, 40))
def large_pools(m):
    return m.node("MaxPool", "x", "y", kernel_shape=[33, 35], strides=[2, 2])


@operator("average_pool average_pool", shape=(1, 2, 35, 40))
def large_averages(m):
    return m.node("GlobalAveragePool", "x", "y")


@operator("conv")
def a_conv_on_flattened_pixels(m):
    a = m.node("Reshape", ["x", m.integers(1, 192, 1, 1)], "a")
    return m.conv(a, "y", (5, 192, 1, 1))


@operator("conv", opset=15)
def constants_computed(m):
    w = m.node("Transpose", m.normal(3, 3, 3, 4), "w", perm=[3, 2, 0, 1])
    w = m.node("Mul", [w, m.node("Constant", [], "half", value_float=0.5)], "w2")
    return m.node("Cast", m.node("Conv", ["x", w], "a"), "y", to=onnx.TensorProto.FLOAT)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_keeps_its_meaning(name):
    make, kinds = OPERATORS[name]
    m, output = make()
    model, data = m.build(output), m.data()
    report = quantise_with_report(model, data)
    assert [layer.kind for layer in report.graph.layers] == kinds.split()
    (end,) = report.graph.outputs
    for x in data:
        exact = run_float(model, x)[output]
        result = report.ends[end].array(integer_outputs(report.graph, report.sources["x"].value(x))[end])
        assert result.shape == exact.shape
        assert decibels(exact, result) > 22, report.layers
    assert report.snr_db > 25


def test_windows_survive():
    m = FloatModel()
    graph = quantise(m.build(conv_all_attributes(m)), m.data())
    assert graph.layers[0].window == Window(3, 2, 2, 1, 1, 0, 2, 1, 2)


# -- what cannot be -----------------------------------------------------------------------------------------------


def test_what_is_wrong_behind_refused_rows_is_listed_too():
    m = FloatModel((1, 4, 6), opset=13)
    rows = m.node("LpNormalization", m.node("Reshape", ["x", m.integers(4, 6)], "r"), "rows")
    none = m.node("Slice", [rows, m.integers(3), m.integers(3), m.integers(1)], "none")
    with pytest.raises(UnsupportedError) as caught:
        quantise(m.build(m.node("MatMul", [none, m.normal(6, 3)], "y")), m.data())
    for part in ("n_rows (LpNormalization): no layer does that", "n_none (Slice): its result is empty"):
        assert part in str(caught.value)


def test_everything_unsupported_is_listed_at_once():
    m = FloatModel(opset=13)
    a = m.conv("x", "a", (4, 3, 3, 3))
    b = m.node("LpNormalization", a, "b")
    c = m.node("Hardmax", m.conv(b, "c", (4, 4, 3, 3), kernel_shape=[3, 2]), "d")
    m.node("AveragePool", b, "g", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    m.node("CumSum", ["g", m.constant(1)], "h")
    m.node("Add", ["g", m.normal(1, 1, 6, 6)], "i")
    m.node("Softmax", a, "s", axis=1)
    m.node("ConvTranspose", ["s", m.node("Slice", ["a", m.integers(0), m.integers(3), m.integers(2)], "computed")], "t")
    m.nodes[-1].name = ""
    m.node("Relu", m.node("Reshape", [a, m.integers(1, 6, 6, 5)], "u"), "u2")
    m.node("Slice", [a, m.integers(3), m.integers(3), m.integers(2)], "w")
    m.node("Hardmax", m.node("Hardmax", a, "k"), "l")
    m.conv("l", "z", (4, 4, 1, 1))
    with pytest.raises(UnsupportedError) as caught:
        quantise(m.build("h", "i", "t", "u2", "w", "z", c), m.data(), name="net")
    text = str(caught.value)
    for part in (
        "net: 7 nodes cannot run on the chip",
        "n_b (LpNormalization): no layer does that",
        "n_k (Hardmax) and 1 more: which number is the largest is for the host to say",
        "n_c (Conv): its kernel_shape, strides or dilations contradict its weights or are less than 1",
        "-> t (ConvTranspose): its weights ('computed') is computed, must be a constant",
        "n_u (Reshape): from [1, 4, 6, 6] to [1, 6, 6, 5], which has another number of elements",
        "n_w (Slice): its result is empty",
    ):
        assert part in text, part
    assert text.count("Hardmax") == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: m.conv(m.node("Transpose", m.node("Resize", ["x", "", "", m.integers(1, 3, 40, 40)], "r"), "t",
                                 perm=[0, 1, 3, 2]), "y", (4, 3, 3, 3)),
         "rows and columns do not move as wholes"),
        (lambda m: m.node("Pad", ["x", m.integers(*[0, 0, 1, 1] * 2), m.constant(-np.inf)], "y"), "pads with -inf"),
        (lambda m: m.node("Resize", ["x", "", "", m.integers(1, 3, 257, 8)], "y", mode="linear"),
         "from 8 to 257 rows, whose weights are of 257 kinds; at most 256 may be"),
        (lambda m: m.node("Resize", ["x", m.constant([0, 0, 0.5, 0, 1, 1, 1.5, 1.0]), "", m.integers(1, 3, 6, 8)], "y",
                          mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.0),
         "has other numbers than 0 outside of its operand"),
        (lambda m: m.node("Resize", ["x", m.constant([0, 0, 0.5, 0, 1, 1, 1.5, 1.0]), "", m.integers(1, 3, 6, 8)], "y",
                          coordinate_transformation_mode="tf_crop_and_resize"), "reaches beyond its operand"),
        (lambda m: m.node("Relu", m.node("QuantizeLinear", ["x", m.constant(1.0)], "q"), "y"), "no scale is said for"),
        (lambda m: m.node("AveragePool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1,
                          count_include_pad=1), "ceil_mode with padding that counts"),
        (lambda m: m.node("Conv", ["x", m.constant(np.full((4, 3, 1, 1), np.nan))], "y"), "weights are not finite"),
        (lambda m: m.node("Gemm", ["x", m.normal(7, 4)], "y"), "7 features for an operand of shape"),
        (lambda m: m.node("Div", ["x", m.constant(0.0)], "y"), "divides by zero"),
        (lambda m: m.node("Clip", ["x", m.constant([])], "y"), "its operands or attributes are invalid"),
        (lambda m: m.conv("x", "y", (4, 3, 3, 3), pads=[1, 1]), r"pads \[1, 1\] must be top, left, bottom and right"),
        (lambda m: m.conv("x", "y", (4, 3, 3, 3), strides=[0, 1]), "or are less than 1"),
        (lambda m: m.conv("x", "y", (4, 3, 3, 3), kernel_shape=[3, 2]), "its kernel_shape, .* contradict its weights"),
        (lambda m: m.node("Add", ["x", m.conv("x", "a", (5, 3, 1, 1))], "y"), "must be alike"),
        (lambda m: m.node("Pow", ["x", m.constant([1.0, 2, 3, 4, 5, 6, 7, 8])], "y"), "constants that differ from"),
        (lambda m: m.node("Pow", ["x", m.conv("x", "a", (3, 3, 1, 1))], "y"), "of several tensors"),
        (lambda m: m.node("BatchNormalization", ["x", *[m.constant([1.0] * 3)] * 4], "y", training_mode=1), "training"),
    ],
)  # fmt: skip
def test_operators_that_are_refused(build, message):
    m = FloatModel(opset=13 if "shape" in message or "zeros" in message else 14)
    with pytest.raises(UnsupportedError, match=message):
        quantise(m.build(build(m)), m.data())


# -- ends ---------------------------------------------------------------------------------------------------------

HALF = ("Cast", {"to": onnx.TensorProto.FLOAT16})


@pytest.mark.parametrize(
    ("ends", "note"),
    [
        ([("Softmax", {"axis": 1}), ("Identity", {})],
         "Softmax e0, Identity e1 at the end are left out: they do not change the order of classes."),
        ([("LogSoftmax", {}), ("Squeeze", {})],
         "LogSoftmax e0, Squeeze e1 at the end are left out: they do not change the order of classes."),
        ([("Softmax", {}), ("Reshape", (2, 5)), HALF, ("Identity", {})],
         "Softmax e0, Reshape e1, Cast e2, Identity e3 at the end are left out: they do not change the order of "
         "classes."),
        ([("Identity", {}), ("Softmax", {}), ("Flatten", {"axis": 0})],
         "Softmax e1, Flatten e2 at the end are left out: they do not change the order of classes."),
        ([("Squeeze", {})], None),
        ([("Reshape", (10,))], None),
        ([("Identity", {}), ("Flatten", {})], None),
    ],
)  # fmt: skip
def test_what_stands_at_the_end_need_not_run(ends, note):
    m = FloatModel()
    pooled = m.node("Flatten", m.node("GlobalAveragePool", m.conv("x", "a", (6, 3, 3, 3)), "p"), "f")
    last = m.node("Gemm", [pooled, m.normal(6, 10), m.normal(10)], "scores")
    for index, (operator, how) in enumerate(ends):
        if isinstance(how, tuple):
            last = m.node(operator, [last, m.integers(*how)], f"e{index}")
        else:
            last = m.node(operator, last, f"e{index}", **how)
    model = m.build(last)
    if ends[-2:-1] == [HALF]:
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    graph = quantise(model, m.data())
    assert graph.outputs == ("scores",)
    assert graph.notes == ((note,) if note else ())
    bare = FloatModel()
    bare.nodes, bare.initialisers = m.nodes[:4], m.initialisers
    exact = run_float(bare.build("scores"), m.data()[0])["scores"]
    assert decibels(exact, integer_outputs(graph, m.data()[0])["scores"]) > 22


def test_scores_and_probabilities_are_one_result():
    """Both are outputs of the model; the network has the scores."""
    m = FloatModel()
    scores = m.node("GlobalAveragePool", m.conv("x", "a", (6, 3, 3, 3)), "scores")
    m.node("Identity", m.node("Softmax", scores, "s", axis=1), "probabilities")
    graph = quantise(m.build("probabilities", "scores"), m.data())
    assert graph.outputs == ("scores",)


@pytest.mark.parametrize(
    ("opset", "axis", "message"),
    [
        (13, None, "Softmax s at the end runs on the host."),
        (13, 2, "Softmax s at the end runs on the host."),
        (12, 2, "Softmax s at the end runs on the host."),
        (12, None, None),
        (13, 1, None),
        (13, -3, None),
    ],
)
def test_a_softmax_goes_along_the_classes(opset, axis, message):
    m = FloatModel(opset=opset)
    m.node("Softmax", m.conv("x", "a", (4, 3, 3, 3)), "s", **({} if axis is None else {"axis": axis}))
    graph = quantise(m.build("s"), m.data())
    assert graph.outputs == ("a",)
    assert graph.notes == (message or "Softmax s at the end is left out: it does not change the order of classes.",)


def test_ends_that_something_else_reads_run_on_the_chip():
    m = FloatModel()
    a = m.node("GlobalAveragePool", m.conv("x", "a", (4, 3, 3, 3)), "p")
    s = m.node("Identity", m.node("Softmax", a, "s", axis=1), "i")
    m.conv(m.node("Concat", [s, a], "y", axis=1), "z", (4, 8, 1, 1))
    graph = quantise(m.build("z", "i"), m.data())
    assert [layer.kind for layer in graph.layers].count("normalise") == 2
