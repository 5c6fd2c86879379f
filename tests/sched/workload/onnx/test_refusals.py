"""What the ONNX readers refuse, one small model each: the text names the node or tensor and what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from meshloom.sched.workload.graph import Graph, Layer, PastePlace, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.constant_nodes import computed
from meshloom.sched.workload.onnx.dequantising.context import real_numbers
from meshloom.sched.workload.onnx.errors import OnnxError, Refused, UnsupportedError
from meshloom.sched.workload.onnx.load import check
from meshloom.sched.workload.onnx.quantise import quantise
from meshloom.sched.workload.onnx.reader import from_onnx
from meshloom.sched.workload.onnx.runtime import run, session

from ...float_models import FloatModel
from ...integer_models import IntegerModel

Build = Callable[[Any], str]


def refusal(build: Build, **model: Any) -> str:
    """Why the float model that makes the tensor of this name cannot be quantised."""
    m = FloatModel(**model)
    name = build(m)
    with pytest.raises(OnnxError) as error:
        quantise(m.build(name), m.data(), name="net")
    return str(error.value)


# -- float operators --------------------------------------------------------------------------------------------------


def with_outputs(m: FloatModel, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
    """Adds a node with several outputs, and a Relu of the last one."""
    m.nodes.append(helper.make_node(operator, inputs, outputs, name=f"n_{outputs[0]}", **attributes))
    return m.node("Relu", outputs[-1], "y")


def turned_and_flat(m: FloatModel, name: str) -> str:
    return m.node("Flatten", m.node("Transpose", "x", f"{name}t", perm=[0, 2, 3, 1]), name)


FLOAT: dict[str, tuple[Build, str, dict[str, Any]]] = {
    "product of three axes": (
        lambda m: m.node("MatMul", ["x", m.normal(2, 7, 4)], "y"),
        "n_y (MatMul): weights of shape [2, 7, 4] for an operand of shape [1, 2, 8, 8]", {"shape": (1, 2, 8, 8)},
    ),
    "product with a number": (
        lambda m: m.node("MatMul", ["x", m.constant(2.0)], "y"),
        "n_y (MatMul): its weights are a single number; a Mul multiplies by one", {},
    ),
    "three axes of pixels": (
        lambda m: m.node("Conv", ["x", m.normal(2, 3, 1, 1, 1)], "y"),
        "weights have shape [2, 3, 1, 1, 1], must be [outputs, inputs, rows, columns]", {},
    ),
    "bias of a transposed convolution": (
        lambda m: m.node("ConvTranspose", ["x", m.normal(3, 4, 2, 2), m.normal(3)], "y"),
        "a bias of 3 numbers for 4 outputs", {},
    ),
    "bias of a product": (
        lambda m: m.node("Gemm", [m.node("Flatten", "x", "f"), m.normal(192, 4), m.normal(3)], "y"),
        "a bias of shape [3] for 4 outputs", {},
    ),
    "training dropout": (
        lambda m: m.node("Relu", m.node("Dropout", ["x", m.constant(0.5), m.constant(True, bool)], "d"), "y"),
        "training_mode; export the model for inference", {},
    ),
    "mask of a dropout": (
        lambda m: m.node("Where", [with_mask(m), "x", m.constant(0.0)], "y"), "its mask output is used", {},
    ),
    "cast": (
        lambda m: m.conv(m.node("Cast", m.node("Cast", "x", "i", to=TensorProto.INT32), "f", to=1), "y", (3, 3, 1, 1)),
        "to INT32; only floating point is quantised", {},
    ),
    "split": (
        lambda m: with_outputs(m, "Split", ["x", m.integers(1, 1)], ["p", "q"], axis=1), "into parts of [1, 1] of 3",
        {},
    ),
    "blocks": (
        lambda m: m.node("DepthToSpace", "x", "y", blocksize=2), "3 channels in blocks of 2x2", {},
    ),
    "indices of maxima": (
        lambda m: m.node("Cast", used_indices(m), "y", to=1), "the indices of the maxima are not computed", {},
    ),
    "dilated average": (
        lambda m: m.node("AveragePool", "x", "y", kernel_shape=[2, 2], dilations=[2, 2], pads=[1] * 4),
        "dilations of an average, beside padding",
        {"opset": 19},
    ),
    "slice": (
        lambda m: m.node("Slice", ["x", m.integers(0, 0), m.integers(2, 2), m.integers(2)], "y"),
        "its starts, ends, axes and steps differ in number", {},
    ),
    "squares over no axes": (
        lambda m: m.node("ReduceSumSquare", "x", "y", noop_with_empty_axes=1), "n_y (ReduceSumSquare): over no axes",
        {"opset": 18},
    ),
    "maximum of a row and a column": (
        lambda m: m.conv(m.node("Max", [m.conv("x", "a", (3, 3, 8, 1)), m.conv("x", "b", (3, 3, 1, 8))], "m"), "y",
                         (3, 3, 1, 1)),
        "of tensors of which none has the result's shape [1, 3, 8, 8]", {},
    ),
    "flattened pictures joined": (
        lambda m: m.node("Concat", [turned_and_flat(m, "f"), turned_and_flat(m, "g")], "y", axis=1),
        "operands are flattened pictures; concatenate them before", {},
    ),
    "constant beside a flattened picture": (
        lambda m: m.node("Concat", [turned_and_flat(m, "f"), m.normal(1, 5)], "y", axis=1),
        "a constant beside flattened pictures; concatenate it before", {},
    ),
    "scales in blocks": (
        lambda m: m.node("DequantizeLinear", [m.node("QuantizeLinear", [
            "x", m.constant(0.02), m.constant(0, np.int8)], "q"), m.constant(np.full((1, 3, 8, 4), 0.02)),
            m.constant(np.zeros((1, 3, 8, 4)), np.int8)], "y", axis=3, block_size=2),
        "n_y (DequantizeLinear): scales in blocks", {"opset": 21},
    ),
    "mean of layer normalisation": (
        lambda m: with_outputs(m, "LayerNormalization", ["x", m.normal(8)], ["n", "mean"]),
        "its mean and deviation are used", {"opset": 17},
    ),
    "scales of another number": (
        lambda m: m.node("Conv", ["x", m.node("DequantizeLinear", [
            m.constant(np.ones((4, 3, 1, 1)), np.int8), m.constant([1.0, 1.0, 1.0])], "w", axis=0)], "y"),
        "(DequantizeLinear): of constants cannot be computed", {},
    ),
}  # fmt: skip


def with_mask(m: FloatModel) -> str:
    m.nodes.append(helper.make_node("Dropout", ["x"], ["dropped", "mask"], name="n_dropped"))
    return "mask"


def used_indices(m: FloatModel) -> str:
    m.nodes.append(helper.make_node("MaxPool", ["x"], ["pooled", "indices"], name="n_pooled", kernel_shape=[2, 2]))
    return "indices"


@pytest.mark.parametrize("name", FLOAT)
def test_float_operators_that_are_refused(name: str) -> None:
    build, message, model = FLOAT[name]
    assert message in refusal(build, **({"opset": 13} | model))


# -- models as wholes -------------------------------------------------------------------------------------------------


def plain() -> FloatModel:
    m = FloatModel()
    m.conv("x", "y", (4, 3, 1, 1))
    return m


def refused(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(OnnxError, match=message):
        quantise(model, plain().data(), name="net")


def test_inputs_and_outputs_that_say_nothing() -> None:
    m = plain()
    m.node("Relu", m.constant(np.ones((1, 3))), "fixed")
    refused(m.build("fixed"), "net: output 'fixed' is a constant; remove it")
    model = plain().build("y")
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, (1, 3, 8, 8)))
    data = [{"x": item, "more": item} for item in plain().data()]
    with pytest.raises(OnnxError, match="net: input 'more' is not used; remove it"):
        quantise(model, data, name="net")
    model = plain().build("y")
    del model.graph.output[:]
    with pytest.raises(OnnxError, match="net: has no input or no output; export it again"):
        check(model, "net", ())


@pytest.mark.parametrize("shape", [(), (1, 1, 3, 2, 8, 8)])
def test_inputs_have_one_to_five_dimensions(shape: tuple[int, ...]) -> None:
    m = FloatModel(shape)
    m.node("Relu", "x", "y")
    message = rf"net: input 'x' has {len(shape)} dimensions; it may have 1 to 5, say \[1, channels, rows, columns\]"
    with pytest.raises(OnnxError, match=message):
        check(m.build("y"), "net", {"Relu"})


def test_integers_that_a_model_computes_with() -> None:
    m = FloatModel()
    m.element = TensorProto.INT32
    m.node("Mul", ["x", "x"], "y")
    model = m.build("y")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    refused(model, "net: input 'x' is INT32; only models of floating point are quantised")


def test_inputs_of_truth_values() -> None:
    m = FloatModel()
    m.element = TensorProto.BOOL
    model = m.build(m.node("Tanh", m.node("Cast", "x", "real", to=TensorProto.FLOAT), "y"))
    with pytest.raises(OnnxError, match="net: input 'x' is BOOL, and what a chip computes has no truth values; exp"):
        quantise(model, [{"x": cast(Any, np.ones((1, 3, 8, 8), np.bool_))}], name="net")


def test_a_damaged_constant_is_named() -> None:
    model = plain().build("y")
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-3]
    with pytest.raises(OnnxError, match=r"net: (a constant is damaged|is not a valid ONNX model)"):
        check(model, "net", {"Conv"})


def test_what_onnx_runtime_says_is_passed_on() -> None:
    m = FloatModel()
    m.node("Relu", "nothing", "y")
    with pytest.raises(OnnxError, match="net: ONNX Runtime refuses it: "):
        session(m.build("y"), "net")
    with pytest.raises(OnnxError, match="net: ONNX Runtime cannot run it: "):
        run(session(plain().build("y"), "net"), {"x": np.zeros((1, 3, 8), np.float32)}, "net")


# -- integer operators ------------------------------------------------------------------------------------------------

W = np.ones((3, 2, 1, 1), np.int8)


def two_outputs(m: IntegerModel) -> str:
    m.nodes.append(helper.make_node("MaxPool", ["x"], ["p", "indices"], name="n_p", kernel_shape=[2, 2]))
    return m.node("Identity", ["p"], "y")


def product(m: IntegerModel, *scales: float) -> str:
    names = [m.scale(f"s{number}", scale) for number, scale in enumerate(scales)]
    a, b = m.conv("x", "a", W), m.conv("x", "b", W)
    operands = [a, names[0], m.zero, b, names[1], m.zero, names[2], m.zero]
    return m.node("QLinearMul", operands, "y", domain="com.microsoft")


def mixed(m: IntegerModel) -> str:
    """Concatenates a uint8 tensor with an int8 tensor, which only a strict check of ONNX finds."""
    wide = m.node("Cast", ["x"], "wide", to=TensorProto.INT32)
    less = m.node("Sub", [wide, m.array("c128", np.array(128, np.int32))], "less")
    ends = [m.array("low", np.array(-128, np.int32)), m.array("high", np.array(127, np.int32))]
    less = m.node("Clip", [less, *ends], "clipped")
    return m.node("Concat", ["x", m.node("Cast", [less], "signed", to=TensorProto.INT8)], "y", axis=1)


INTEGER: dict[str, tuple[Build, str]] = {
    "weights of three axes": (
        lambda m: m.conv("x", "y", W[..., 0]), "n_y (QLinearConv): weights have shape [3, 2, 1], must be [outputs,",
    ),
    "scale 0": (lambda m: m.conv("x", "y", W, (1.0, 0.0, 1.0)), "scales 1, 0 and 1 must be positive"),
    "scale below 0": (lambda m: m.conv("x", "y", W, (1.0, 1.0, -1.0)), "scales 1, 1 and -1 must be positive"),
    "infinite scale": (lambda m: m.conv("x", "y", W, (np.inf, 1.0, 1.0)), "scales inf, 1 and 1 must be positive"),
    "ceil": (lambda m: m.node("MaxPool", ["x"], "y", kernel_shape=[2, 2], ceil_mode=1), "ceil_mode; write pads out"),
    "types": (mixed, "operands differ in type"),
    "axis": (lambda m: m.node("Concat", ["x", "x"], "y", axis=2), "axis = 2; channels are axis 1"),
    "product": (lambda m: product(m, 1.0, 1.0, 0.0), "scales 1, 1 and 0 must be positive"),
    "resize": (
        lambda m: m.node("Resize", [m.conv("x", "a", W), "", m.array("r", np.array([1, 1, 2, 2], np.float32))], "y",
                         mode="linear"),
        "only nearest, floor, asymmetric is computed",
    ),
    "table": (
        lambda m: m.node("Gather", [m.array("t", np.zeros(256, np.uint8)), "x"], "y"),
        "a table is indexed by a uint8 tensor at zero point 128, cast to int32",
    ),
    "sum of three": (
        lambda m: m.node("Cast", [m.node("Clip", [m.node("Sub", [m.node("Add", [m.node("Add", [
            m.node("Cast", ["x"], f"x{n}", to=TensorProto.INT32) for n in range(2)], "two"),
            m.node("Cast", ["x"], "x3", to=TensorProto.INT32)], "three"), m.array("c", np.array(256, np.int32))], "d"),
            m.array("low", np.array(0, np.int32)), m.array("high", np.array(255, np.int32))], "e")], "y",
            to=TensorProto.UINT8),
        "adds 3 tensors; an addition has two",
    ),
    "difference of two": (
        lambda m: m.node("Sub", [m.node("Cast", ["x"], f"x{n}", to=TensorProto.INT32) for n in range(2)], "y"),
        "only sums of two int32 tensors are supported",
    ),
    "quantised inside": (
        lambda m: m.node("QuantizeLinear", [m.conv("x", "a", W), m.scale("s", 1.0), m.zero], "y"),
        "only inputs of the network can be quantised",
    ),
    "float inside": (
        lambda m: m.node("QuantizeLinear", [m.node("Relu", [m.node("DequantizeLinear", [
            m.conv("x", "a", W), m.scale("s", 1.0), m.zero], "d")], "r"), m.scale("t", 1.0), m.zero], "y"),
        "layers between DequantizeLinear and QuantizeLinear are float; export integer operators",
    ),
    "rows without an operand": (
        lambda m: m.node("Gather", [m.node("Concat", [m.node("Reshape", [m.conv("x", name, W), m.array(
            f"{name}s", np.array([1, 3, -1]))], f"{name}r") for name in ("a", "b")], "both", axis=2),
            m.array("places", np.arange(25).reshape(5, 5))], "y", axis=2),
        "leaves out an operand",
    ),
    "int32": (
        lambda m: m.node("MaxPool", [m.node("Cast", ["x"], "wide", to=TensorProto.INT32)], "y", kernel_shape=[2, 2]),
        "operand 'wide' is int32; only additions are computed in int32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER)
def test_integer_operators_that_are_refused(name: str) -> None:
    build, message = INTEGER[name]
    m = IntegerModel()
    with pytest.raises(UnsupportedError) as error:
        from_onnx(m.build(build(m)), "net")
    assert message in str(error.value)


# -- networks ---------------------------------------------------------------------------------------------------------

X = (Value("a", 4, 6, 6), Value("b", 4, 6, 6), Value("odd", 6, 6, 6), Value("low", 4, 5, 6))
CONV = Layer("conv", "y", ("a",), scale=9, w=np.ones((3, 4, 1, 1), np.int8), bias=np.zeros(3, np.int32))
PASTE = Layer("paste", "y", ("a", "b"), places=(PastePlace(0, 0, 1, 1, 6, 6), PastePlace(6, 0, 1, 1, 6, 6)))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (replace(CONV, inputs=("a", "b")), "has 2 inputs, must have 1"),
        (Layer("add", "y", ("a",)), "has 1 inputs, must have 2"),
        (replace(PASTE, inputs=(), places=()), "has 0 inputs, must have 1"),
        (replace(CONV, w=None), "has no weights or no bias"),
        (replace(CONV, bias=None), "has no weights or no bias"),
        (replace(CONV, scale=0), "scale m = 0 must be in 1..65535"),
        (replace(CONV, scale=65536), "scale m = 65536 must be in 1..65535"),
        (replace(CONV, bias=np.zeros(4, np.int32)), "bias is int32[4], must be int32[3]"),
        (replace(CONV, w=np.ones((3, 5, 1, 1), np.int8)), "weights are int8[3, 5, 1, 1], must be int8[3, 4, 1, 1]"),
        (replace(CONV, kind="depthwise", w=np.ones((3, 1, 1, 1), np.int8)), "3 filters for 4 channels"),
        (Layer("transpose", "y", ("odd",), groups=4, rows=1), "6 channels cannot be cut into 4 groups"),
        (Layer("transpose", "y", ("odd",), groups=0, rows=1), "6 channels cannot be cut into 0 groups"),
        (Layer("transpose", "y", ("odd",), groups=2, rows=2), "3 pixels in 2 rows"),
        (replace(PASTE, inputs=("a", "odd")), "operands differ in channels"),
        (replace(PASTE, inputs=("a", "low")), "its places are not of the size of its operands"),
        (Layer("concat", "y", ("a", "low")), "operands differ in rows or columns"),
        (Layer("add", "y", ("a", "odd")), "operands have shapes (4, 6, 6) and (6, 6, 6)"),
        (Layer("max_pool", "y", ("a",), Window(7, 1)), "the window does not fit its input"),
        (Layer("max_pool", "a", ("b",)), "tensor 'a' is made twice"),
        (Layer("max_pool", "y", ("c",)), "layer y reads 'c' before it is made"),
    ],
)
def test_layers_that_contradict_themselves(layer: Layer, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        _ = Graph("net", X, (layer,), ("y",)).values
    assert str(error.value).startswith("network net: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "layer",
    [
        CONV,
        replace(CONV, scale=1),
        replace(CONV, scale=65535),
        PASTE,
        Layer("transpose", "y", ("odd",), groups=2, rows=3),
        Layer("concat", "y", ("a", "odd")),
        Layer("max_pool", "y", ("a",), Window(6, 6)),
    ],
)
def test_layers_at_their_limits(layer: Layer) -> None:
    assert Graph("net", X, (layer,), ("y",)).value("y").channels > 0


def test_a_tensor_that_nothing_makes_is_named() -> None:
    with pytest.raises(WorkloadError, match="network net: nothing makes tensor 'z'"):
        Graph("net", X, (CONV,), ("y",)).value("z")


# -- constants --------------------------------------------------------------------------------------------------------


def test_constants_of_types_that_are_no_numbers() -> None:
    node = helper.make_node("Identity", ["a"], ["b"])
    with pytest.raises(Refused, match=r"of constants of a type that numbers do not have \("):
        computed(node, {"a": np.zeros(3, "V5")}, 13)


def test_scales_belong_to_the_weights_that_they_scale() -> None:
    weights, zero = np.ones((4, 3), np.int8), np.zeros(5, np.int8)
    np.testing.assert_array_equal(real_numbers(weights, np.arange(4.0), zero[:4], 0), np.arange(4.0)[:, None] * weights)
    with pytest.raises(Refused, match=r"scales of shape \[5, 1\] for weights of \[4, 3\]"):
        real_numbers(weights, np.ones(5), zero, 0)


def test_every_node_that_must_change_is_named_and_no_other() -> None:
    """Not those that read what it makes, of which nobody knows the size."""

    def build(m: FloatModel) -> str:
        first, second = (m.node("Relu", m.node("Unique", "x", name), f"{name}r") for name in "ab")
        return m.node("Add", [first, second], "y")

    assert [line.strip() for line in refusal(build).splitlines()] == [
        "net: 2 nodes cannot run on the chip; change or remove them in the exporting program:",
        "n_a (Unique) and 1 more: no layer does that",
    ]


def test_a_node_without_operands_is_refused_like_others() -> None:
    def build(m: FloatModel) -> str:
        m.nodes.append(helper.make_node("RandomNormal", [], ["r"], "n_r", shape=[1, 3, 8, 8]))
        return m.node("Add", ["x", "r"], "y")

    assert "n_r (RandomNormal): no layer does that" in refusal(build)


def test_what_fails_in_onnx_runtime_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """By the error, and not by ONNX Runtime beside it."""
    m = FloatModel()
    m.node("Gather", ["x", "at"], "y", axis=1)
    model = m.build("y")
    model.graph.input.append(helper.make_tensor_value_info("at", TensorProto.INT64, (1,)))
    with pytest.raises(OnnxError, match=r"m: ONNX Runtime cannot run it: .*out of"):
        run(session(model, "m"), {"x": m.data(1)[0], "at": np.array([99])}, "m")
    assert capfd.readouterr().err == ""
