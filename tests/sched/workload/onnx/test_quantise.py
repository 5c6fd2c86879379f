"""The quantiser: every operator keeps its meaning, numbers obey the chip's rules, what cannot be is said."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from meshloom.sched.workload.graph import Picture
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx.calibrate import MAX, MSE, Range, common_step, measure, ranges
from meshloom.sched.workload.onnx.equalise import equalised
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.quantise import quantise, quantise_with_report
from meshloom.sched.workload.onnx.rounding import Rounder
from meshloom.sched.workload.onnx.writer import to_onnx

from ...float_models import FloatModel, integer_outputs, run_float


def residual(seed: int = 0) -> FloatModel:
    """A MobileNet-v2 block on a picture that it normalises itself."""
    m = FloatModel((1, 3, 16, 16), seed)
    zero, six = m.constant(0.0), m.constant(6.0)
    a = m.node("Sub", ["x", m.constant(np.array([120, 110, 100]).reshape(3, 1, 1))], "a")
    a = m.node("Div", [a, m.constant(np.array([60, 50, 55]).reshape(3, 1, 1))], "b")
    c = m.node("Clip", [m.conv(a, "c", (8, 3, 3, 3), strides=[2, 2]), zero, six], "conv")
    spread = m.constant(np.geomspace(0.02, 1, 16).reshape(16, 1, 1, 1) * m.random.normal(0, 1, (16, 1, 3, 3)))
    e = m.node("Clip", [m.conv(c, "d", (16, 8, 1, 1)), zero, six], "expand")
    f = m.node("Conv", [e, spread, m.normal(16)], "e", group=16, pads=[1, 1, 1, 1])
    g = m.conv(m.node("Clip", [f, zero, six], "depth"), "project", (8, 16, 1, 1))
    h = m.node("GlobalAveragePool", m.node("Add", [c, g], "sum"), "pool")
    m.node("Softmax", m.node("Gemm", [m.node("Flatten", h, "f"), m.normal(8, 10), m.normal(10)], "scores"), "prob")
    return m


def pictures(count: int = 6) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.integers(0, 256, (1, 3, 16, 16)).astype(np.float32) for _ in range(count)]


# -- numbers ----------------------------------------------------------------------------------------------------


def test_a_network_from_picture_to_scores():
    report = quantise_with_report(residual().build("prob"), pictures(), labels=list("abcdefghij"), notes=["mine"])
    graph = report.graph
    assert [layer.output for layer in graph.layers] == [
        "conv",
        "expand",
        "depth",
        "project",
        "sum",
        "pool",
        "scores",
    ]
    assert graph.outputs == ("scores",)
    assert graph.notes == ("mine", "Softmax prob at the end is left out: it does not change the order of classes.")
    assert graph.labels == tuple("abcdefghij")
    assert graph.real
    picture = graph.picture
    assert picture is not None
    assert picture.mode == "RGB"
    np.testing.assert_allclose(picture.mean, (120, 110, 100))
    np.testing.assert_allclose(picture.std, (60, 50, 55))
    # every byte fits
    assert graph.inputs[0].step >= (255 - 100) / 55 / 127
    layers = {layer.output: layer for layer in graph.layers}
    assert layers["conv"].relu
    assert layers["conv"].clamp == min(127, round(6 / graph.steps["conv"]))
    assert graph.steps["conv"] == graph.steps["sum"] == graph.steps["project"]
    for line in report.layers:
        layer = layers[line.name]
        assert (line.kind, line.scale, line.step) == (layer.kind, layer.scale, graph.steps[line.name])
        assert line.snr_db > 18
        if layer.w is not None:
            # sx * sw / sy = m / 2^17
            x_step = graph.value(layer.inputs[0]).step
            assert x_step * line.weight_step / line.step * 2**17 == pytest.approx(layer.scale, rel=1e-12)
        if layer.kind == "average_pool":
            x_step, size = graph.value(layer.inputs[0]).step, layer.window.kernel_h * layer.window.kernel_w
            assert x_step / size / line.step * 2**17 == pytest.approx(layer.scale, rel=1e-12)
    assert report.agreement == 1
    again = quantise(residual().build("prob"), pictures(), labels=list("abcdefghij"), notes=["mine"])
    assert to_onnx(again).SerializeToString(deterministic=True) == to_onnx(graph).SerializeToString(deterministic=True)


def test_pictures_are_added_to_what_the_model_normalises():
    """The model takes byte / 255; its own Sub and Div come on top of that."""
    m = FloatModel((1, 1, 8, 8))
    a = m.node("Div", [m.node("Sub", ["x", m.constant(0.5)], "a"), m.constant(0.25)], "b")
    m.conv(a, "y", (4, 1, 3, 3))
    data = [np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8)).astype(np.float32) / 255]
    graph = quantise(m.build("y"), data, picture=Picture("L", (0.0,), (255.0,)))
    assert graph.picture is not None
    assert graph.picture.mode == "L"
    np.testing.assert_allclose(graph.picture.mean, (127.5,))
    np.testing.assert_allclose(graph.picture.std, (63.75,))
    # without a picture the same arithmetic is a layer
    plain = quantise(m.build("y"), data)
    assert plain.picture is None
    assert [layer.kind for layer in plain.layers] == ["depthwise", "conv"]
    with pytest.raises(OnnxError, match="input 'x' has 1 channels, the picture 3"):
        quantise(m.build("y"), data, picture=Picture("RGB", (0.0,) * 3, (1.0,) * 3))


def test_bytes_become_themselves():
    """(byte - 128) / 128 has a step of exactly 1 / 128: -128 is used."""
    m = FloatModel()
    m.conv("x", "y", (4, 3, 3, 3))
    graph = quantise(m.build("y"), m.data(), picture=Picture("RGB", (128.0,) * 3, (128.0,) * 3))
    assert graph.inputs[0].step > 1 / 128  # the data are larger than any picture
    small = [np.clip(x / 4, -1, 127 / 128) for x in m.data()]
    graph = quantise(m.build("y"), small, picture=Picture("RGB", (128.0,) * 3, (128.0,) * 3))
    assert graph.inputs[0].step == 1 / 128


def test_several_inputs_and_outputs():
    m = FloatModel((1, 6))
    m.node("MatMul", ["x", m.normal(6, 4)], "a")
    m.node("MatMul", ["z", m.normal(8, 3)], "b")
    model = m.build("a", "b")
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, (1, 8)))
    data = [{"x": x, "z": np.concatenate([x, x], 1)[:, :8]} for x in m.data()]
    graph = quantise(model, data)
    assert [(value.name, value.channels) for value in graph.inputs] == [("x", 6), ("z", 8)]
    assert graph.outputs == ("a", "b")
    with pytest.raises(OnnxError, match="has inputs x, z; calibration data must be mappings"):
        quantise(model, m.data())
    with pytest.raises(OnnxError, match="calibration 0 has x, the model x, z"):
        quantise(model, [{"x": m.data()[0]}])


@pytest.mark.parametrize("text", ["mean", "percentile", "percentile:x", "percentile:50", "percentile:101", "max:1", ""])
def test_ways_to_choose_ranges_that_there_are_not(text):
    with pytest.raises(OnnxError, match="must be max, mse, best, or percentile:P with P above 50 and at most 100"):
        ranges(text)


def test_ranges_are_chosen_as_asked():
    m = FloatModel()
    m.conv(m.node("Relu", m.conv("x", "a", (8, 3, 3, 3)), "r"), "y", (4, 8, 1, 1))
    model, data = m.build("y"), m.data()
    result = {how: quantise_with_report(model, data, ranges=how) for how in ("max", "mse", "percentile:99", "best")}
    assert [str(report.ranges) for report in result.values()][:3] == ["max", "mse", "percentile:99"]
    steps = {how: report.graph.steps["r"] for how, report in result.items()}
    assert steps["percentile:99"] < steps["max"]
    assert result["best"].snr_db == max(result["max"].snr_db, result["mse"].snr_db)


def test_clipping_lessens_the_error_of_heavy_tails():
    m = FloatModel((1, 3, 64, 64))
    m.conv("x", "y", (4, 3, 1, 1))
    net = fold(m.build("y"), "model", normalised=False)
    random = np.random.default_rng(0)
    x = random.laplace(0, 1, (1, 3, 64, 64)).astype(np.float32)
    x[0, 0, 0, 0] = 60
    tensor = measure(net, [{"x": x}])["x"]
    full, clipped = (common_step([tensor], how) for how in (MAX, MSE))
    most, all_ = (common_step([tensor], Range("percentile", percent)) for percent in (99.9, 100))
    assert full == pytest.approx(60 / 127)
    assert clipped < full
    assert most == pytest.approx(np.percentile(np.abs(x), 99.9) / 127, rel=0.1)
    assert all_ == pytest.approx(full)

    def error(step: float) -> float:
        return float(((np.clip(np.rint(x / step), -128, 127) * step - x) ** 2).sum())

    assert error(clipped) < error(full)


def test_equalisation_changes_nothing_but_the_rounding():
    """In real numbers the network is the same on the calibration data, through ReLU6 too; rounded it is better."""
    net = fold(residual().build("prob"), "model", normalised=True)
    feeds = [{"x": net.feed("x", x)} for x in pictures()]
    statistics = measure(net, feeds)
    changed = equalised(net, statistics, 1.0)
    depth, even = (next(layer for layer in n.layers if layer.output == "depth").w for n in (net, changed))
    assert depth is not None
    assert even is not None

    def spread(w: np.ndarray) -> float:
        largest = np.abs(w).max(axis=(1, 2, 3))
        return float(largest.max() / largest.min())

    assert spread(even) < spread(depth) / 2
    after = measure(changed, feeds)
    np.testing.assert_allclose(after["scores"].samples, statistics["scores"].samples, atol=1e-4)
    assert not np.allclose(after["expand"].samples, statistics["expand"].samples, atol=1e-2)
    errors = []
    for trial, numbers in ((net, statistics), (changed, after)):
        graph = Rounder(trial, numbers).graph()
        wrong = [
            integer_outputs(graph, feed["x"])["scores"].ravel() - run_float(residual().build("scores"), x)["scores"][0]
            for feed, x in zip(feeds, pictures(), strict=True)
        ]
        errors.append(float(np.square(wrong).mean()))
    assert errors[1] < errors[0]


# -- what cannot be -----------------------------------------------------------------------------------------------


def test_scales_that_overflow():
    """A result that is tiny beside its operands needs m > 65535, a huge one m < 1."""
    m = FloatModel((1, 4, 8, 8))
    w = np.full((2, 4, 1, 1), 100.0)
    w[:, 1::2] *= -1
    m.node("Conv", ["x", m.constant(w)], "y")
    # channels cancel to the last bit but for a little
    x = np.repeat(np.random.default_rng(0).normal(0, 1, (1, 1, 8, 8)), 4, 1).astype(np.float32)
    x[:, 0] *= 1 + 1e-4
    with pytest.raises(
        WorkloadError, match=r"layer y \(conv\) cannot be quantised: its scale m = \d+ does not fit 1..65535"
    ):
        quantise(m.build("y"), [x], name="net")


def test_biases_that_overflow():
    m = FloatModel((1, 3, 8, 8))
    a = m.node("Conv", ["x", m.normal(4, 3, 1, 1), m.constant(np.full(4, -1e8))], "a")
    m.node("Relu", a, "y")
    with pytest.raises(WorkloadError, match=r"layer y \(conv\) cannot be quantised: its sums may reach .*past int32"):
        quantise(m.build("y"), m.data())


def test_a_layer_without_effect():
    """Weights of zero and results of zeros are no problem."""
    m = FloatModel()
    a = m.node("Conv", ["x", m.constant(np.zeros((4, 3, 1, 1))), m.normal(4)], "a")
    m.node("Relu", m.node("Conv", [a, m.normal(2, 4, 1, 1), m.constant([1.0, -9.0])], "b"), "y")
    m.node("Relu", m.node("Conv", [a, m.normal(2, 4, 1, 1), m.constant([-9.0, -9.0])], "c"), "z")
    model = m.build("y", "z")
    exact, result = run_float(model, m.data()[0]), integer_outputs(quantise(model, m.data()), m.data()[0])
    np.testing.assert_allclose(result["y"], exact["y"], atol=0.02)
    assert not result["z"].any()


def test_calibration_data_must_fit():
    m = FloatModel()
    model = m.build(m.conv("x", "y", (4, 3, 3, 3)))
    with pytest.raises(OnnxError, match="no calibration data"):
        quantise(model, [])
    with pytest.raises(OnnxError, match=r"calibration 1: x has shape \[1, 3, 8, 7\], must be \[1, 3, 8, 8\]"):
        quantise(model, [m.data()[0], m.data()[0][..., 1:]])
    with pytest.raises(OnnxError, match="calibration 0: x must be an array of finite numbers"):
        quantise(model, [m.data()[0] * np.nan])
    with pytest.raises(OnnxError, match="calibration 0: x must be an array of finite numbers"):
        quantise(model, [m.data()[0].astype(object)])


def test_models_at_fault(tmp_path):
    m = FloatModel((1, 3, "rows", 8))
    with pytest.raises(OnnxError, match="its window does not fit the input"):  # the data have one row
        quantise(m.build(m.conv("x", "y", (4, 3, 3, 3))), m.data())
    with pytest.raises(OnnxError, match="cannot be read"):
        quantise(tmp_path / "none.onnx", m.data())
    m = FloatModel()
    with pytest.raises(OnnxError, match="nothing is left to compute"):
        quantise(m.build(m.node("Identity", "x", "y")), m.data())


def test_where_the_float_model_is_lost_is_said() -> None:
    """A sum shares its step with what is a thousand times as large, which is then taken off."""
    m = FloatModel((1, 16))
    small = m.node("Gemm", ["x", m.normal(16, 8)], "small")
    large = m.node("Gemm", ["x", m.normal(16, 8, scale=300)], "large")
    m.node("Sub", [m.node("Add", [small, large], "sum"), large], "y")
    for real in (True, False):  # of weights that are drawn nothing is said
        notes = quantise_with_report(m.build("y"), m.data(), real=real).graph.notes
        losses = [note for note in notes if note.startswith("Little is left of the float model at the outputs (")]
        assert len(losses) == real
        assert all(
            re.search(r"most is lost in layer (small|y) \(from \d+.\d to -?\d+.\d dB[:)]", note) for note in losses
        )
    m.node("Relu", small, "z")
    assert not quantise_with_report(m.build("z"), m.data()).graph.notes


def test_a_step_that_drowns_a_layer_is_named_with_whose_it_is() -> None:
    """A residual network that grows with each of its sums, all of which share one step."""
    m, name = FloatModel((1, 8)), "x"
    for number in range(12):
        name = m.node("Add", [name, m.node("Gemm", [name, m.normal(8, 8, scale=2)], f"c{number}")], f"a{number}")
    (note,) = quantise_with_report(m.build(name), m.data(), real=True).graph.notes
    assert re.search(
        r"below its step of .*, which it shares with layer a11, .* on average; tensors that additions, po", note
    )
