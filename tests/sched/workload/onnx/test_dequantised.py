"""Files of integer operators with any scales and zero points: the file's own tensors, and how near the chip comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx import quantise
from meshloom.sched.workload.onnx.dequantised import dequantised, in_real_numbers
from meshloom.sched.workload.onnx.dequantising.context import RealContext
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.floats import FloatNet
from meshloom.sched.workload.onnx.original import Original
from meshloom.sched.workload.onnx.pins import Pin
from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report
from meshloom.sched.workload.onnx.reader import as_it_is
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.start import looks_up

from ...float_models import FloatModel, decibels, integer_outputs, run_float
from .misreading import misread


def small() -> FloatModel:
    m = FloatModel((1, 3, 8, 8))
    a = m.node("Relu", m.conv("x", "a", (8, 3, 3, 3)), "a2")
    both = m.node("Add", [m.conv(a, "b", (8, 8, 3, 3), pads=[1, 1, 1, 1]), a], "both")
    flat = m.node("Flatten", m.node("GlobalAveragePool", both, "p"), "f")
    m.node("Gemm", [flat, m.normal(8, 5), m.normal(5)], "y")
    return m


def written(
    folder: Path, signed: bool, symmetric: bool, per_channel: bool, m: FloatModel | None = None
) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """As ONNX Runtime's own quantiser writes it. `m`: of that model with the output y."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    m = m or small()
    model = m.build("y")
    if model.graph.node[-1].op_type == "ArgMax":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(model, folder / "float.onnx")

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{"x": x} for x in m.data(4)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    quantize_static(
        folder / "float.onnx", folder / "q.onnx", Reader(), QuantFormat.QOperator, per_channel=per_channel,
        activation_type=QuantType.QInt8 if signed else QuantType.QUInt8, weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": symmetric},
    )  # fmt: skip
    return onnx.load(folder / "q.onnx"), m.data(4)


def noise(model: onnx.ModelProto, report: Quantised, data: list[np.ndarray]) -> float:
    """Against the file in ONNX Runtime, in dB."""
    (end,) = report.graph.outputs
    exact = np.stack([next(iter(run_float(model, x).values())).ravel() for x in data])
    return decibels(exact, np.stack([integer_outputs(report.graph, x)[end].ravel() for x in data]))


@pytest.mark.parametrize(
    ("signed", "symmetric", "per_channel", "said"),
    [
        (True, True, False, "5 of 6 tensors have the file's own scale"),  # an addition joins two
        (False, True, False, "5 of 6 tensors have the file's own scale"),
        (False, False, False, "0 of 6 tensors have the file's own scale, 6 the nearest"),
        (True, True, True, "some weights have one for each channel"),
    ],
)
def test_files_of_onnx_runtimes_quantiser(
    signed: bool, symmetric: bool, per_channel: bool, said: str, tmp_path: Path
) -> None:
    model, data = written(tmp_path, signed, symmetric, per_channel)
    assert as_it_is(model, "m") is None
    report = quantise_with_report(model, data)
    assert any(said in note for note in report.graph.notes), report.graph.notes
    assert noise(model, report, data) > 33


def product(x: tuple[float, int], w: tuple[float, int], y: tuple[float, int], kind: type = np.uint8) -> onnx.ModelProto:
    """A QLinearConv with 8 bits at both ends; scales and zero points of operand, weights and result."""
    random = np.random.default_rng(3)
    weights = random.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)
    arrays: dict[str, np.ndarray] = {"w": weights, "b": np.array([400, -300, 0, 50], np.int32)}
    for name, (scale, zero), element in (("x", x, kind), ("w", w, np.int8), ("y", y, kind)):
        arrays |= {f"{name}s": np.array(scale, np.float32), f"{name}z": np.array(zero, element)}
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], "conv")
    element = TensorProto.UINT8 if kind is np.uint8 else TensorProto.INT8
    graph = helper.make_graph(
        [node], "m", [helper.make_tensor_value_info("x", element, (1, 3, 6, 6))],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def off_by(model: onnx.ModelProto, kind: type) -> tuple[float, Quantised]:
    """The file's bytes and the network's results, in steps of the file, and the report."""
    random = np.random.default_rng(5)
    raw = random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (1, 3, 6, 6)).astype(kind)
    own = dequantised(model, "m")
    x = own.real("x", raw)
    report = quantise_with_report(model, [x])
    scale, zero = own.pins["y"].scale, own.pins["y"].zero
    bytes_ = run(session(model, "m", mixed_signs=kind is np.uint8), {"x": raw})["y"]
    exact = (bytes_.astype(np.float64) - zero) * scale
    # what the comparison is made with is the file itself
    assert report.reference is not None
    again = Original(report.reference, "m", ["y"]).run({"x": x})["y"]
    assert np.allclose(again, exact, atol=scale * 1e-4)
    return float(np.abs(integer_outputs(report.graph, x)["y"] - exact).max() / scale), report


def bound_in(report: Quantised) -> float:
    (note,) = [note for note in report.graph.notes if "at most" in note]
    return float(note.split("at most ")[1].split()[0])


@pytest.mark.parametrize(
    ("x", "y", "kind"),
    [
        ((0.02, 0), (0.3, 0), np.int8),
        ((0.0173, 0), (0.41, 0), np.int8),  # no multiplier of the chip is that exactly
        ((0.02, 128), (0.3, 128), np.uint8),
        ((0.02, 101), (0.3, 140), np.uint8),
        ((0.02, 0), (0.3, 0), np.uint8),  # behind a ReLU
    ],
)
def test_results_lie_within_the_bound_that_the_row_states(
    x: tuple[float, int], y: tuple[float, int], kind: type
) -> None:
    """The bound holds for any operands; where all numbers of the file are the chip's, one step is enough."""
    result, report = off_by(product(x, (0.011, 0), y, kind), kind)
    assert result <= bound_in(report)
    if kind is np.int8 or 128 in (x[1], y[1]):
        assert result <= 1.001
        weights = numpy_helper.to_array(product(x, (0.011, 0), y, kind).graph.initializer[0])
        outcome = report.graph.layers[0].w
        assert outcome is not None
        assert np.array_equal(outcome, weights)


def test_results_are_cut_off_where_the_file_does() -> None:
    """-60..195 in steps: above it is cut off by a clamp, below by a table, if results are seen there."""
    result, report = off_by(product((0.02, 128), (0.011, 0), (0.02, 60)), np.uint8)
    assert [layer.kind for layer in report.graph.layers] == ["conv", "table"]
    assert result <= bound_in(report)


def test_what_a_pin_says() -> None:
    assert Pin(0.5, 0, -128).step == Pin(0.5, 128, 0).step == 0.5
    assert Pin(0.5, 0, -128).symmetric
    pin = Pin(0.5, 100, 0)
    assert (pin.low, pin.high, pin.symmetric) == (-50.0, 77.5, False)
    assert pin.step == pytest.approx(77.5 / 127)


def test_dynamic_quantisation(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    m = small()
    onnx.save(m.build("y"), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "q.onnx", weight_type=QuantType.QUInt8)
    model = onnx.load(tmp_path / "q.onnx")
    assert {"DynamicQuantizeLinear", "ConvInteger"} <= {node.op_type for node in model.graph.node}
    report = quantise_with_report(model, m.data())
    assert noise(model, report, m.data()) > 30
    assert report.reference is not None
    assert report.snr_db == pytest.approx(noise(model, report, m.data()), abs=0.1), "it runs the file"


def test_what_is_misread_behind_a_table_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table all numbers together decide where the file rounds; of what stands behind it each does."""
    m = FloatModel((1, 3, 8, 8))
    table = m.node("Sigmoid", m.conv("x", "a", (8, 3, 3, 3)), "t")
    pool = m.node("MaxPool", m.conv(table, "b", (4, 8, 3, 3)), "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    m.conv(pool, "y", (4, 4, 1, 1))
    model, data = written(tmp_path, True, True, False, m)
    misread(monkeypatch, "MaxPool", "pads", [0, 0, 2, 2])
    with pytest.raises(OnnxError, match=r"n_p \(MaxPool\).*: misread: tensor 'p_quantized'"):
        quantise_with_report(model, data)


def test_float_models_stay() -> None:
    model = small().build("y")
    assert in_real_numbers(model, "m") == (model, {}, None)


def test_scales_that_are_computed_are_refused() -> None:
    model = product((0.02, 128), (0.011, 0), (0.3, 128))
    model.graph.node[0].input[1] = "computed"
    model.graph.node.insert(0, helper.make_node("Abs", ["xs"], ["computed"]))
    with pytest.raises(UnsupportedError, match="computed, must be a constant"):
        dequantised(model, "m")


def test_bytes_without_a_scale_are_refused() -> None:
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], "m",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 3, 6, 6))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
    )  # fmt: skip
    with pytest.raises(OnnxError, match="8 bits without a scale"):
        dequantised(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), "m")


def upwards(mode: str, between: str = "nearest") -> FloatModel:
    """A convolution, a pad, a Resize and another convolution."""
    m = FloatModel((1, 3, 6, 6))
    a = m.conv("x", "a", (8, 3, 3, 3))
    p = m.node("Pad", [a, m.integers(0, 0, 1, 1, 0, 0, 1, 1)], "p", mode=mode)
    up = {"mode": between, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    r = m.node("Resize", [p, "", m.constant([1, 1, 2, 2])], "r", **up)
    m.conv(r, "y", (4, 8, 3, 3))
    return m


@pytest.mark.parametrize("mode", ["constant", "reflect"])
@pytest.mark.parametrize("signed", [False, True])
def test_what_moves_bytes(mode: str, signed: bool, tmp_path: Path) -> None:
    """Resize and Pad are written without a scale of their own: theirs is that of their operand."""
    model, data = written(tmp_path, signed, False, False, upwards(mode))
    moves = [node for node in model.graph.node if node.op_type in ("Pad", "Resize")]
    makers = {output: node for node in model.graph.node for output in node.output}
    assert [makers[node.input[0]].op_type for node in moves] == ["QLinearConv", "Pad"], "both are of 8 bits"
    report = quantise_with_report(model, [{"x": x} for x in data], name="net")
    assert noise(model, report, data) > 20


@pytest.mark.parametrize("signed", [False, True])
def test_a_resize_between_bytes(signed: bool, tmp_path: Path) -> None:
    """ONNX Runtime cuts off what is behind the point, so it may be a step away."""
    model, data = written(tmp_path, signed, False, False, upwards("constant", "linear"))
    assert noise(model, quantise_with_report(model, [{"x": x} for x in data], name="net"), data) > 20


def test_a_resize_beyond_bytes_is_refused(tmp_path: Path) -> None:
    model, _ = written(tmp_path, False, False, False, upwards("constant"))
    (resize,) = (node for node in model.graph.node if node.op_type == "Resize")
    next(item for item in resize.attribute if item.name == "mode").s = b"cubic"
    with pytest.raises(
        UnsupportedError, match="export QLinear operators, or pairs of QuantizeLinear and DequantizeLinear"
    ):
        dequantised(model, "net")


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_that_two_layers_share(per_channel: bool, tmp_path: Path) -> None:
    m = FloatModel((1, 3, 6, 6))
    shared = m.normal(3, 3, 3, 3)
    m.node("Conv", [m.node("Conv", ["x", shared], "a"), shared], "y")
    model, data = written(tmp_path, False, False, per_channel, m)
    report = quantise_with_report(model, [{"x": x} for x in data], name="net")
    assert noise(model, report, data) > 20


def test_bytes_that_are_weights_in_two_scales() -> None:
    model = product((0.02, 128), (0.011, 0), (0.3, 128))
    context = RealContext(model, "m")
    numbers = [context.operand("w", np.array([scale], np.float32), np.zeros(1, np.int8)) for scale in (0.5, 0.25, 0.5)]
    first, second = (numpy_helper.to_array(item) for item in context.initialisers)
    assert numbers == ["w//real", "w//real1", "w//real"]
    assert np.array_equal(first, 2 * second)


class WholeNumberModel(FloatModel):
    """A model of numbers of words."""

    def data(self, count: int = 4) -> list[np.ndarray]:
        return [np.random.default_rng(seed).integers(0, 9, self.sizes, self.kind) for seed in range(count)]

    @property
    def sizes(self) -> list[int]:
        return [size for size in self.shape if isinstance(size, int)]

    @property
    def kind(self) -> np.dtype:
        return helper.tensor_dtype_to_np_dtype(self.element)


def test_a_file_of_numbers_of_words_with_tensors_that_are_cut_off(tmp_path: Path) -> None:
    m = WholeNumberModel((1, 5), opset=17)
    m.element = onnx.TensorProto.INT64
    a = m.node("MatMul", [m.node("Gather", [m.normal(9, 16, scale=1.0), "x"], "e"), m.normal(16, 12)], "a")
    gate = m.node("Add", [m.node("Tanh", a, "t"), m.constant(1.0)], "gate")
    m.node("MatMul", [m.node("Mul", [a, gate], "b"), m.normal(12, 8)], "y")
    model, data = written(tmp_path, signed=False, symmetric=False, per_channel=False, m=m)
    assert looks_up(in_real_numbers(model, "m")[0])
    report = quantise_with_report(model, [{"x": x} for x in data])
    assert [value.name for value in report.graph.inputs]


def test_a_file_whose_bytes_become_real_numbers_first_and_whose_end_chooses(tmp_path: Path) -> None:
    m = WholeNumberModel((1, 3, 8, 8), opset=17)
    m.element = onnx.TensorProto.UINT8
    m.node("Cast", "x", "real", to=onnx.TensorProto.FLOAT)
    a = m.node("Relu", m.conv(m.node("Mul", ["real", m.constant(0.1)], "scaled"), "a", (6, 3, 3, 3)), "r")
    m.node("ArgMax", a, "y", axis=1, keepdims=0)
    model, data = written(tmp_path, signed=False, symmetric=False, per_channel=False, m=m)
    assert "QLinearConv" in {node.op_type for node in model.graph.node}
    report = quantise_with_report(model, [{"x": x.astype(np.float32)} for x in data])
    assert report.numbers["x"][0] == 1
    assert report.host is not None
    assert report.host.outputs == ("y",)


def test_zero_points_that_a_file_leaves_out() -> None:
    """They are 0 of the type that the operand has."""
    m = FloatModel()
    m.element = TensorProto.INT8
    scale, zero = m.constant(0.5), m.constant(0, np.int8)
    m.node("QLinearAdd", ["x", scale, zero, "x", scale, zero, scale], "sum", domain="com.microsoft")
    m.node("DequantizeLinear", ["sum", scale], "y")
    model = m.build("y")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert dequantised(model, "m").pins == {"x": Pin(0.5, 0, -128), "sum": Pin(0.5, 0, -128)}
    m.nodes[:] = m.nodes[1:]
    m.nodes[0].input[0] = "x"
    assert dequantised(m.build("y"), "m").pins == {"x": Pin(0.5, 0, -128)}
    m.nodes[0].input[0] = m.node("Transpose", "x", "moved")
    m.nodes.reverse()
    assert set(dequantised(m.build("y"), "m").pins.values()) == {Pin(0.5, 0, -128)}


def gated() -> FloatModel:
    """Half of the channels times a function of the others; the parts are rounded once more."""
    m = FloatModel((1, 3, 8, 8))
    m.conv("x", "a", (8, 3, 3, 3))
    parts = [m.node("Slice", ["a", *(m.integers(n) for n in (at, at + 4, 1))], f"part{at}") for at in (0, 4)]
    m.conv(m.node("Mul", [parts[0], m.node("Sigmoid", parts[1], "s")], "m"), "y", (4, 4, 1, 1))
    return m


def stepped() -> FloatModel:
    """The last step of a recurrence."""
    m = FloatModel((1, 4, 6))
    w, r = (m.normal(1, 20, size) for size in (6, 5))
    m.node("LSTM", [m.node("Transpose", "x", "steps", perm=[1, 0, 2]), w, r], "h", hidden_size=5)
    last = m.node("Gather", [m.node("Squeeze", ["h", m.integers(1)], "flat"), m.constant(3, np.int64)], "last")
    m.node("Gemm", [last, m.normal(5, 3), m.normal(3)], "y")
    return m


def shuffled() -> FloatModel:
    """Channels that change their places between two convolutions are the first one's filters in another order."""
    m = FloatModel((1, 3, 8, 8))
    pairs = m.node("Reshape", [m.conv("x", "a", (12, 3, 3, 3)), m.integers(1, 2, 6, 6, 6)], "pairs")
    turned = m.node("Transpose", pairs, "t", perm=[0, 2, 1, 3, 4])
    m.conv(m.node("Reshape", [turned, m.integers(1, 12, 6, 6)], "s"), "y", (4, 12, 3, 3))
    return m


def normalised() -> FloatModel:
    """What ONNX Runtime rounds in front of a normalisation, and the network does not."""
    m = FloatModel((1, 10))
    a = m.node("Gemm", ["x", m.normal(10, 8), m.normal(8)], "a")
    some = [m.normal(8), m.normal(8), m.normal(8), m.constant(np.full(8, 0.3))]
    m.node("Gemm", [m.node("Elu", m.node("BatchNormalization", [a, *some], "n"), "e"), m.normal(8, 3)], "y")
    return m


def _of_other_filters(net: FloatNet) -> FloatNet:
    """The last convolution with its filters in another order."""
    last = max(at for at, layer in enumerate(net.layers) if layer.kind == "conv")
    w = net.layers[last].w
    assert w is not None
    layers = [replace(layer, w=np.roll(w, 1, axis=0)) if at == last else layer for at, layer in enumerate(net.layers)]
    return replace(net, layers=layers)


def test_a_misreading_is_seen_although_the_file_cuts_off_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = written(tmp_path, False, False, False, shuffled())
    right = quantise.check_float
    monkeypatch.setattr(quantise, "check_float", lambda file, net, *rest: right(file, _of_other_filters(net), *rest))
    with pytest.raises(OnnxError, match="misread"):
        quantise_with_report(model, [3 * x for x in data])


@pytest.mark.parametrize("build", [gated, stepped, shuffled, normalised])
def test_what_the_file_cuts_off_of_a_part_is_no_misreading(build: Callable[[], FloatModel], tmp_path: Path) -> None:
    """Inputs that reach farther than those that the file was calibrated with."""
    model, data = written(tmp_path, False, False, False, build())
    quantise_with_report(model, [3 * x for x in data])
