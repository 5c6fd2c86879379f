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
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>'
    return parser.parse_model(f"{head} drawn (float[{shape}] x) => ({results}) <{constants}> {{{body}}}")


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


@pytest.mark.parametrize(("operator", "sides"), [("ReduceMax", "1,8"), ("ReduceMin", "5,1"), ("ReduceMax", "5,3")])
def test_maxima_over_channels_stay_where_they_are(operator: str, sides: str) -> None:
    columns = int(sides[-1])
    w = f"float[{columns},2] w = {{{','.join(str(n % 5 - 2) for n in range(2 * columns))}}}"
    body = f"a = {operator}<axes = [1], keepdims = 1>(x) y = MatMul(a, w)"
    near(model_of(f"1,4,{sides}", f"y:1,1,{sides[0]},2", body, w))


def test_values_that_hardly_differ() -> None:
    """Between them are fewer numbers than a histogram has bins."""
    constants = "float[1] small = {0.00001}, float[1] five = {5.0}, float[1,2,1,1] w = {1.0, 2.0}"
    near(model_of("1,2,6,6", "y:1,1,6,6", "a = Mul(x, small) b = Add(a, five) y = Conv(b, w)", constants))


def test_outputs_that_are_one_tensor() -> None:
    body = "y = Relu(x) z = Flatten<axis = 1>(y) w = Identity(y)"
    report = near(model_of("1,3,4,4", "y:1,3,4,4 z:1,48 w:1,3,4,4", body))
    assert len(report.origins) == 3


def test_the_host_may_read_the_input() -> None:
    body = "a = Dropout(x) y = Round(a) b = Identity(x) z = Conv(x, w)"
    near(model_of("1,3,4,4", "y:1,3,4,4 b:1,3,4,4 z:1,1,4,4", body, "float[1,3,1,1] w = {1.0, 2.0, -1.0}"), least=5)


def test_the_host_may_read_the_input_in_another_order() -> None:
    """The last axis are the channels of who multiplies it."""
    w = "float[10,2] w = {" + ",".join(str(n % 7 - 3) for n in range(20)) + "}"
    body = "a = MatMul(x, w) y = Conv(a, v) z = Softmax<axis = 1>(x)"
    v = "float[1,8,4,1] v = {" + ",".join(str(n % 5 - 2) for n in range(32)) + "}"
    near(model_of("1,8,4,10", "y:1,1,1,2 z:1,8,4,10", body, f"{w}, {v}"), least=18)


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


def test_zeros_around_a_line_and_a_relu() -> None:
    near(model_of("1,3,8", "y:1,3,11", "a = Relu(x) b = Pad(a, p) y = Relu(b)", "int64[6] p = {0,0,2,0,0,1}"))


@pytest.mark.parametrize("first", ["d = Mul(x, x)", "d = Conv(x, w)"])
@pytest.mark.parametrize(
    "last", ["y = Relu(b)", "c = Relu(b) y = HardSwish(c)", "c = Relu(b) z = Abs(d) y = Conv(c, w)"]
)
def test_zeros_around_a_picture_and_a_relu(first: str, last: str) -> None:
    """What the layer makes has no zeros around it, so it is not the file's tensor."""
    constants = "int64[8] p = {0,0,0,0,0,0,0,1}, float[3,3,1,1] w = {1.0,-2.0,0.5,1.5,0.5,-1.0,0.3,-0.2,0.6}"
    outputs = "y:1,3,4,6 z:1,3,4,5" if "z =" in last else "y:1,3,4,6"
    near(model_of("1,3,4,5", outputs, f"{first} b = Pad(d, p) {last}", constants, opset=14))


def test_copies_of_columns_that_are_channels() -> None:
    w = "float[10,4] w = {" + ",".join(str(n % 7 - 3) for n in range(40)) + "}"
    constants = f"{w}, float[0] r = {{}}, float[0] s = {{}}, int64[4] z = {{1,1,12,6}}"
    body = 'a = MatMul(x, w) y = Resize<mode = "nearest", nearest_mode = "ceil">(a, r, s, z)'
    near(model_of("1,1,6,10", "y:1,1,12,6", body, constants))


def test_copies_of_channels() -> None:
    near(
        model_of(
            "1,3,4,4", "y:1,6,4,4", 'y = Resize<mode = "nearest">(x, r, s)', "float[0] r = {}, float[4] s = {1,2,1,1}"
        )
    )
    body, constants = 'a = Resize<mode = "linear">(x, r, s) y = Conv(a, w)', "float[0] r = {}, float[4] s = {1,2,1,1}"
    near(model_of("1,3,4,4", "y:1,1,4,4", body, f"{constants}, float[1,6,1,1] w = {{1,2,3,4,5,6}}"))
    body, constants = body.replace('"linear"', '"linear", axes = [1]'), "float[0] r = {}, float[1] s = {2}"
    model = model_of("1,3,4,4", "y:1,1,4,4", body, f"{constants}, float[1,6,1,1] w = {{1,2,3,4,5,6}}", opset=18)
    with pytest.raises(ValueError, match=r"Resize\): mode = linear along channels"):
        near(model)


def test_only_some_axes_are_made_larger() -> None:
    constants = "float[0] r = {}, float[2] s = {2,3}"
    body = 'y = Resize<mode = "linear", axes = [2, 3]>(x, r, s)'
    near(model_of("1,3,4,4", "y:1,3,8,12", body, constants, opset=18))


def test_a_constant_that_fits_no_tensor_is_refused() -> None:
    constants = "float[2,1,1,1] c = {1.0,2.0}, float[1,3,1,1] w = {1.0,2.0,3.0}"
    model = model_of("1,3,2,2", "y:2,1,2,2", "a = Abs(x) b = Div(c, a) y = Conv(b, w)", constants)
    with pytest.raises(ValueError, match=r"\(Div\): a constant of shape \[2, 1, 1, 1\] does not fit \[1, 3, 2, 2\]"):
        quantise_with_report(model, [{"x": np.ones((1, 3, 2, 2), np.float32)}])


def test_a_pool_of_three_axes_that_changes_nothing() -> None:
    constants = "int64[5] s = {1,2,3,4,5}, int64[4] t = {1,6,4,5}"
    body = "a = Reshape(x, s) b = MaxPool<kernel_shape = [1, 1, 1]>(a) y = Reshape(b, t) z = Relu(x)"
    near(model_of("1,6,4,5", "y:1,6,4,5 z:1,6,4,5", body, constants))


def test_a_product_of_a_line_with_zeros_around_it() -> None:
    constants = "int64[6] p = {0,0,0,0,0,1}, float[6,3] w = {" + ",".join(str(n % 5 - 2) for n in range(18)) + "}"
    near(model_of("1,4,5", "y:1,4,3", "a = Pad(x, p) y = MatMul(a, w)", constants))


@pytest.mark.parametrize("function", ["Pow(a, half)", "Sqrt(a)", "Log(a)"])
def test_a_function_without_a_value_for_what_the_file_does_not_ask(function: str) -> None:
    """The chip looks all numbers up and then takes a part."""
    constants = "int64[1] one = {2}, float half = {0.5}, float[1,3] w = {1.0, -2.0, 0.5}"
    body = f"b = Abs(x) d = Mul(b, signs) a = Gather<axis = 3>(d, one) c = {function} y = MatMul(c, w)"
    near(model_of("1,1,3,4", "y:1,1,3,3", body, f"{constants}, float[1,1,1,4] signs = {{1.0, -1.0, 1.0, -1.0}}"))


MEANS = np.float32(0.5), np.float32(1e-4)


def test_a_mean_whose_sums_cancel_over_several_layers() -> None:
    """Digits are lost where the file adds, whatever is left of the sum."""
    constants = "int64[3] l = {1,1,50}, float[3,1,1] w = {1.1, 0.14, -0.97}, float[2,1,1] v = {0.5, -1.5}"
    body = "r = Reshape(x, l) t = Conv(r, w) m = ReduceMean<axes = [-2, -1], keepdims = 1>(t) y = Conv(m, v) z = Erf(t)"
    model = model_of("1,50", "y:1,2,1 z:1,3,50", body, constants)
    numbers = np.random.default_rng(1).normal(0, 1, (5, 1, 50)).astype(np.float32)
    report = quantise_with_report(model, [{"x": one - one.mean() + shift} for one in numbers for shift in MEANS])
    assert report.host is None


@pytest.mark.parametrize("lead", ["1,3", "1,2,3", "3"])
def test_a_matrix_before_several(lead: str) -> None:
    """Each of them, in any layout, is multiplied from the left."""
    w = "float[6,5] w = {" + ",".join(str(n % 7 - 3) for n in range(30)) + "}"
    rank, count = len(lead.split(",")) + 2, 120 if "2" in lead else 60
    body, shape = "a = Reshape(x, d) b = MatMul(w, a) y = Tanh(b)", f"int64[{rank}] d = {{{lead},5,4}}"
    near(model_of(f"1,{count}", f"y:{lead},6,4", body, f"{shape}, {w}"))


def test_a_matrix_before_a_picture() -> None:
    w = "float[6,5] w = {" + ",".join(str(n % 7 - 3) for n in range(30)) + "}"
    constants = f"{w}, float[2,3,1,1] v = {{1,2,3,3,2,1}}"
    near(model_of("1,3,5,4", "y:1,2,6,4", "a = MatMul(w, x) y = Conv(a, v)", constants))


@pytest.mark.parametrize("other", ["a", "c"])
def test_an_einsum_that_sums_over_all_that_the_result_lacks(other: str) -> None:
    """A dot product for each pixel: neither operand has an axis of its own."""
    body = f'a = Sigmoid(x) c = Abs(x) b = Einsum<equation = "bchw,bchw->bhw">(a, {other}) y = Tanh(b) z = Neg(c)'
    near(model_of("1,8,3,5", "y:1,3,5 z:1,8,3,5", body), least=15)


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_maps_whose_numbers_are_all_alike_are_normalised(shift: float) -> None:
    """What is left of their digits is divided by the root of epsilon."""
    constants = "int64[3] to = {1,3,7}, float[3] one = {1,1,1}, float[3] none = {0,0,0}"
    body = "a = Expand(x, to) n = InstanceNormalization(a, one, none) y = Add(n, x)"
    near(model_of("1,3,1", "y:1,3,7", body, constants), shift=shift)


def test_sums_over_the_channels_of_a_part_of_a_line() -> None:
    """Channels and pixels change places, and the pixels that are left out are first channels of their own."""
    constants = "int64[1] from = {0}, int64[1] to = {15}, int64[1] axis = {2}, int64[1] over = {1}"
    body = "a = Slice(x, from, to, axis) y = ReduceSum<keepdims = 1>(a, over)"
    near(model_of("1,8,16", "y:1,1,15", body, constants))


@pytest.mark.parametrize("shape", ["8", "6,8", "3,4,8"])
def test_a_product_with_a_single_column(shape: str) -> None:
    """The axis that is summed over is gone; scores of an attention that pools."""
    w = "float[8] w = {" + ",".join(str(n % 5 - 2) for n in range(8)) + "}"
    rest = shape.rpartition(",")[0]
    near(model_of(f"1,{shape}", f"y:{f'1,{rest}' if rest else 1}", "a = MatMul(x, w) y = Tanh(a)", w))


def test_constants_of_no_elements_join_nothing() -> None:
    """The cache of a decoder before its first token."""
    constants = "float[1,3,0] e = {}, float[1,3,2] c = {1,2,3,4,5,6}"
    near(
        model_of(
            "1,3,4",
            "y:1,3,6 z:1,3,4",
            "a = Tanh(x) y = Concat<axis = 2>(e, a, c, e) z = Concat<axis = 2>(e, a)",
            constants,
        )
    )
