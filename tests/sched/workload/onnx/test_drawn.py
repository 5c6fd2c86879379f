"""Models of a few nodes that `make graphs` has drawn and that were once read wrongly, or not at all."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip

from ....tiers import slow_but
from ...float_models import decibels


def model_of(shape: str, outputs: str, body: str, constants: str = "", opset: int = 13) -> onnx.ModelProto:
    results = ", ".join(f"float[{sizes}] {name}" for name, _, sizes in (one.partition(":") for one in outputs.split()))
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> drawn (float[{shape}] x) => ({results}) <{constants}> {{{body}}}'
    )


def near(model: onnx.ModelProto, least: float = 22, shift: float = 0.0) -> Quantised:
    """All outputs are there, in their shapes, near what ONNX Runtime computes."""
    sizes = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    random = np.random.default_rng(3)
    data = [{"x": (random.normal(0, 1, sizes) + shift).astype(np.float32)} for _ in range(3)]
    report = quantise_with_report(model, data)
    exact = run(session(model, "float"), dict(data[0]))
    (value,) = report.graph.inputs
    real = report.feed("x", report.sources["x"].value(data[0]["x"])).reshape(value.shape)
    steps = np.clip(np.rint(real / value.step), -128, 127).astype(np.int8)
    integers = run(session(to_onnx(report.graph), "int8"), {value.name: flip(steps)})
    results = report.said({name: unflip(array) * report.graph.value(name).step for name, array in integers.items()})
    for name, array in exact.items():
        assert results[name].shape == array.shape
        assert decibels(array, results[name]) > least
    return report


@pytest.mark.parametrize("operator", ["GlobalMaxPool", "GlobalAveragePool"])
def test_pools_over_all_of_a_line(operator: str) -> None:
    near(model_of("1,5,9", "y:1,5,1 z:1,5,9", f"y = {operator}(x) z = Relu(x)"))


def test_zeros_around_a_line() -> None:
    """Who reads it sees a line, whether a convolution takes the zeros in or not."""
    pads = "int64[6] p = {0,0,2,0,0,1}"
    near(model_of("1,3,8", "y:1,3,11", "y = Pad(x, p)", pads))
    w = "float[2,3,3] w = {" + ",".join(str(n % 5 - 2) for n in range(18)) + "}"
    body = "a = Pad(x, p) y = Conv(a, w) z = Transpose<perm = [0, 2, 1]>(a)"
    near(model_of("1,3,8", "y:1,2,9 z:1,11,3", body, f"{pads}, {w}"))


@pytest.mark.parametrize(("operator", "axes", "shape"), [("ReduceMax", 1, "1,1,5,3"), ("ReduceMin", 2, "1,4,1,3")])
def test_maxima_over_channels_stay_where_they_are(operator: str, axes: int, shape: str) -> None:
    near(model_of("1,4,5,3", f"y:{shape}", f"y = {operator}<axes = [{axes}], keepdims = 1>(x)"))


def test_values_that_hardly_differ() -> None:
    """Between them are fewer numbers than a histogram has bins."""
    constants = "float[1] small = {0.00001}, float[1] five = {5.0}"
    near(model_of("1,2,6,6", "y:1,2,6,6", "a = Mul(x, small) y = Add(a, five)", constants))


def test_outputs_that_are_one_tensor() -> None:
    body = "y = Relu(x) z = Flatten<axis = 1>(y) w = Identity(y)"
    report = near(model_of("1,3,4,4", "y:1,3,4,4 z:1,48 w:1,3,4,4", body))
    assert len(report.origins) == 3


def test_the_host_may_read_the_input() -> None:
    body = "a = Dropout(x) b = Identity(x) y = Round(a) z = Conv(b, w)"
    near(model_of("1,3,4,4", "y:1,3,4,4 z:1,1,4,4", body, "float[1,3,1,1] w = {1.0, 2.0, -1.0}"), least=5)


def test_the_host_may_read_the_input_in_another_order() -> None:
    """The last axis are the channels of who multiplies it."""
    w = "float[10,2] w = {" + ",".join(str(n % 7 - 3) for n in range(20)) + "}"
    body = "a = MatMul(x, w) y = Conv(x, v) z = Softmax<axis = 2>(x)"
    v = "float[1,8,1,1] v = {1.0,-1.0,2.0,0.5,1.0,0.25,-2.0,1.0}"
    near(model_of("1,8,4,10", "a:1,8,4,2 y:1,1,4,10 z:1,8,4,10", body, f"{w}, {v}"), least=18)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_pools_without_padding_may_end_beyond_the_edge(operator: str) -> None:
    attributes = 'auto_pad = "VALID", ceil_mode = 1, kernel_shape = [2, 3], strides = [2, 3]'
    near(model_of("1,2,5,10", "y:1,2,3,4", f"y = {operator}<{attributes}>(x)"))


@pytest.mark.parametrize("mode", slow_but(["linear", "cubic"], "linear"))
@pytest.mark.parametrize(
    "where", slow_but(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"], "half_pixel")
)
@pytest.mark.parametrize("sizes", [(1, 4), (1, 1), (1, 6), (3, 3), (3, 1), (2, 9)])
def test_pictures_made_smaller(mode: str, where: str, sizes: tuple[int, int]) -> None:
    """By three, the first row of the result is the second of the picture."""
    constants = f"float[0] r = {{}}, float[0] s = {{}}, int64[4] z = {{1,3,{sizes[0]},{sizes[1]}}}"
    body = f'y = Resize<mode = "{mode}", coordinate_transformation_mode = "{where}">(x, r, s, z)'
    near(model_of("1,3,9,3", f"y:1,3,{sizes[0]},{sizes[1]}", body, constants))


def test_a_tensor_that_is_read_in_the_order_of_a_product_and_as_a_picture() -> None:
    """What the host gets of it is a picture, what the layer of its name makes is not."""
    w = "float[3,2,1,3] w = {" + ",".join(str(n % 5 - 2) for n in range(18)) + "}"
    body = """a = MatMul(x, x) b = Abs(a) y = ConvTranspose<kernel_shape = [1, 3], strides = [2, 2]>(b, w)
              z = Softmax<axis = -1>(b)"""
    near(model_of("1,3,6,6", "y:1,2,11,13 z:1,3,6,6", body, w), least=12)


def test_constants_that_differ_from_pixel_to_pixel() -> None:
    w = "float[4,5] w = {" + ",".join(str(n % 7 - 3) for n in range(20)) + "}"
    numbers = ", ".join(
        f"float[3] {name} = {{{values}}}"
        for name, values in (("s", "1.0,2.0,0.5"), ("b", "0.0,1.0,-1.0"), ("m", "0.1,0.2,0.3"), ("v", "1.0,2.0,1.0"))
    )
    body = "a = MatMul(x, w) y = BatchNormalization(a, s, b, m, v)"
    near(model_of("1,3,4", "y:1,3,5", body, f"{w}, {numbers}"))
    near(model_of("1,3,2,2", "y:1,3,2,2", "y = Div(c, x)", "float[2,2] c = {1.0,2.0,3.0,4.0}"), shift=6)


def test_a_constant_that_fits_no_tensor_is_refused() -> None:
    constants = "float[2,1,1,1] c = {1.0,2.0}, float[1,3,1,1] w = {1.0,2.0,3.0}"
    model = model_of("1,3,2,2", "y:2,1,2,2", "a = Abs(x) b = Div(c, a) y = Conv(b, w)", constants)
    with pytest.raises(ValueError, match=r"\(Div\): a constant of shape \[2, 1, 1, 1\] does not fit \[1, 3, 2, 2\]"):
        quantise_with_report(model, [{"x": np.ones((1, 3, 2, 2), np.float32)}])
