"""The golden model: its two routes agree with each other and with the written definition, at the corners too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from meshloom.sched.workload import catalog, resnet8, shapes
from meshloom.sched.workload.layers import ConvShape, LayerData, WorkloadError, gemm_shape, random_data
from meshloom.tb.inputs.golden.layer import GoldenError, golden, golden_exact, golden_int32


def defined_sums(data: LayerData) -> np.ndarray:
    """The sums by the definition in docs/architecture/operations.md, one tap at a time, in int64."""
    shape = data.shape
    sums = np.zeros(shape.y_shape, np.int64) + data.bias[:, None, None]
    for oy, ox, ky, kx in np.ndindex(shape.out_h, shape.out_w, shape.kernel_h, shape.kernel_w):
        iy = oy * shape.stride_h + ky * shape.dilation - shape.pad_top
        ix = ox * shape.stride_w + kx * shape.dilation - shape.pad_left
        if 0 <= iy < shape.in_h and 0 <= ix < shape.in_w:
            sums[:, :, oy, ox] += data.x[:, :, iy, ix].astype(np.int64) @ data.w[:, :, ky, kx].astype(np.int64).T
    return sums


def defined_output(value: int, scale: int, relu: bool, clamp: int) -> int:
    """clamp(sat8(RNE(value * scale / 2**17))) in rational arithmetic."""
    rounded = round(Fraction(value * scale, 1 << 17))  # half to even
    return max(0 if relu else -128, min(clamp, 127, rounded))


@st.composite
def layers(draw):
    text = (
        f"conv:{draw(st.integers(1, 7))}x{draw(st.integers(1, 7))}x{draw(st.integers(1, 6))}-{draw(st.integers(1, 6))}"
    )
    text += (
        f",k{draw(st.integers(1, 5))}x{draw(st.integers(1, 5))},s{draw(st.integers(1, 3))}x{draw(st.integers(1, 3))}"
    )
    text += ",p" + "x".join(str(draw(st.integers(0, 4))) for _ in range(4))
    text += f",d{draw(st.integers(1, 3))},b{draw(st.integers(1, 3))},clamp{draw(st.integers(0, 127))}"
    return text + (",relu" if draw(st.booleans()) else "")


@given(text=layers(), scale=st.integers(0, 65535))
@settings(deadline=None, max_examples=60)
def test_both_routes_are_the_definition(text, scale):
    try:
        shape = shapes.parse(text)
    except WorkloadError:  # the kernel does not fit: no layer
        reject()
    drawn = random_data(shape)
    for data in (drawn, LayerData(shape, drawn.x, drawn.w, drawn.bias, scale)):
        sums = defined_sums(data)
        np.testing.assert_array_equal(golden_int32(data), sums)
        expected = [defined_output(int(value), data.scale, shape.relu, shape.clamp) for value in sums.flat]
        np.testing.assert_array_equal(golden(data).ravel(), expected)
        np.testing.assert_array_equal(golden_exact(data).ravel(), expected)


def products_of(values: list[int], scale: int) -> LayerData:
    """A layer whose sums are exactly `values`: they are its biases."""
    shape = gemm_shape("sums", 1, len(values), 1)
    nothing = np.zeros(shape.w_shape, np.int8)
    return LayerData(shape, np.zeros(shape.x_shape, np.int8), nothing, np.array(values, np.int32), scale)


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 255, 342, 4096, 21845, 32768, 65534, 65535])
def test_requantisation_is_exact_for_every_kind_of_sum(scale):
    values = {0, 1, -1, (1 << 31) - 16385, 16385 - (1 << 31)}
    for edge in (1 << 24, 1 << 25, 1 << 30):  # where float32 stops holding every integer
        values |= {sign * edge + offset for sign in (1, -1) for offset in range(-3, 4)}
    for half in range(-257, 258):  # around every tie, and around where the result saturates
        near = half * (1 << 16) // max(scale, 1)
        values |= {value for value in range(near - 2, near + 3) if abs(value) < (1 << 31) - 16384}
    ordered = sorted(values)
    data = products_of(ordered, scale)
    expected = [defined_output(value, scale, False, 127) for value in ordered]
    np.testing.assert_array_equal(golden(data).ravel(), expected)
    np.testing.assert_array_equal(golden_exact(data).ravel(), expected)
    assert scale < 2 or {-128, 127} <= set(expected)


def test_ties_go_to_even():
    data = products_of([1, 3, 5, -1, -3, -5], 1 << 15)  # quarters
    assert golden(data).ravel().tolist() == [0, 1, 1, 0, -1, -1]
    data = products_of([2, 6, 10, -2, -6, -10], 1 << 15)  # 0.5, 1.5, 2.5
    assert golden(data).ravel().tolist() == [0, 2, 2, 0, -2, -2]


@pytest.mark.parametrize(("x", "w"), [(-128, -128), (-128, 127), (127, -128), (127, 127)])
def test_extreme_operands_do_not_saturate_on_the_way(x, w):
    shape = ConvShape("extreme", 1, 64, 6, 6, 20, 3, 3, 1, 1, 1, 1, 1, 1)
    bias = np.arange(20, dtype=np.int32)
    data = LayerData(shape, np.full(shape.x_shape, x, np.int8), np.full(shape.w_shape, w, np.int8), bias, 12)
    sums = golden_int32(data)
    assert sums[0, 0, 2, 2] == 9 * 64 * x * w
    assert sums[0, 3, 0, 0] == 4 * 64 * x * w + 3
    np.testing.assert_array_equal(sums, defined_sums(data))
    np.testing.assert_array_equal(golden(data), golden_exact(data))


def test_matmul_integer_agrees_on_a_matrix_product():
    import onnxruntime
    from onnx import TensorProto, helper

    data = random_data(gemm_shape("gemm:33x45x77", 33, 45, 77))
    tensors = [helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in "ab"]
    zeros = [helper.make_tensor("zero", TensorProto.UINT8, [], [128])]
    node = helper.make_node("MatMulInteger", ["a", "b", "zero", "zero"], ["y"])
    graph = helper.make_graph(
        [node], "m", tensors, [helper.make_tensor_value_info("y", TensorProto.INT32, None)], zeros
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    a, b = (array.astype(np.int16) + 128 for array in (data.x[0, :, 0].T, data.w[:, :, 0, 0].T))
    (product,) = session.run(None, {"a": a.astype(np.uint8), "b": b.astype(np.uint8)})
    sums = golden_int32(data)[0, :, 0].T - data.bias
    np.testing.assert_array_equal(product, sums)


def test_both_routes_agree_on_the_whole_regression():
    for workload in catalog.regression():
        data = workload.data()
        y = golden(data)
        np.testing.assert_array_equal(y, golden_exact(data), err_msg=workload.name)
        assert y.shape == workload.shape.y_shape
        assert y.dtype == np.int8
        if workload.real:
            continue
        # The data must be able to show a mistake: outputs spread, and not all at the stops.
        stop = np.isin(y, (0 if workload.shape.relu else -128, workload.shape.clamp)).mean()
        assert stop < (0.75 if workload.shape.relu else 0.05), workload.name
        assert len(np.unique(y)) > min(25, y.size // 3), workload.name


@pytest.mark.parametrize("picture", [0, 1])
def test_resnet8_layers_chain_into_the_right_class(picture):
    """Each stored activation is what the layers before it give, and the last layer names the picture."""

    def run(layer: str) -> np.ndarray:
        return golden(resnet8.layer_data(layer, picture)).astype(np.int64)

    def given_to(layer: str) -> np.ndarray:
        return resnet8.layer_data(layer, picture).x

    np.testing.assert_array_equal(given_to("conv2_1_1"), run("conv1"))
    np.testing.assert_array_equal(given_to("conv2_1_2"), run("conv2_1_1"))
    total = np.clip(run("conv1") + run("conv2_1_2"), 0, 127)
    for stage in (3, 4):
        np.testing.assert_array_equal(given_to(f"conv{stage}_1_1"), total)
        np.testing.assert_array_equal(given_to(f"conv{stage}_1_shortcut"), total)
        np.testing.assert_array_equal(given_to(f"conv{stage}_1_2"), run(f"conv{stage}_1_1"))
        total = np.clip(run(f"conv{stage}_1_2") + run(f"conv{stage}_1_shortcut"), 0, 127)
    finer = resnet8.contents()["step/add4"] / resnet8.contents()["step/pool"]
    mean = np.rint(total.sum((2, 3), keepdims=True) / 64 * finer)
    np.testing.assert_array_equal(given_to("fc"), np.clip(mean, -128, 127))
    assert run("fc").argmax() == resnet8.contents()["labels"][picture]


def test_sums_past_int32_are_refused():
    shape = gemm_shape("deep", 1, 1, 1)
    nothing = np.zeros((1, 1, 1, 1), np.int8)
    data = LayerData(shape, nothing, nothing, np.array([(1 << 31) - 1], np.int32), 1)
    for route in (golden, golden_exact, golden_int32):
        with pytest.raises(GoldenError, match="layer deep: sums may reach 2147500031, past int32"):
            route(data)
