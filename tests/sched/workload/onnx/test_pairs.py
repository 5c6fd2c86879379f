"""QDQ files: pairs around activations are taken out, weights are the file's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from meshloom.sched.workload.onnx.dequantising.pairs import without_pairs
from meshloom.sched.workload.onnx.dequantising.wide import without_wide_pairs
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.pins import Pin
from meshloom.sched.workload.onnx.quantise import quantise_with_report

from ...float_models import FloatModel, decibels, integer_outputs, run_float


def statically_quantised(folder: Path, signed: bool, per_channel: bool) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A small network with an addition and a fully connected end, as ONNX Runtime's own quantiser writes it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    m = FloatModel((1, 3, 8, 8))
    a = m.node("Relu", m.conv("x", "a", (8, 3, 3, 3)), "a2")
    both = m.node("Add", [m.conv(a, "b", (8, 8, 3, 3), pads=[1, 1, 1, 1]), a], "both")
    flat = m.node("Flatten", m.node("GlobalAveragePool", both, "p"), "f")
    onnx.save(m.build(m.node("Gemm", [flat, m.normal(8, 5), m.normal(5)], "y")), folder / "float.onnx")

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{"x": x} for x in m.data(4)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    kind = QuantType.QInt8 if signed else QuantType.QUInt8
    quantize_static(
        folder / "float.onnx", folder / "qdq.onnx", Reader(), QuantFormat.QDQ, per_channel=per_channel,
        activation_type=kind, weight_type=QuantType.QInt8,
    )  # fmt: skip
    return onnx.load(folder / "qdq.onnx"), m.data(4)


@pytest.mark.parametrize(("signed", "per_channel"), [(True, False), (False, True)])
def test_files_of_onnx_runtimes_quantiser(signed: bool, per_channel: bool, tmp_path: Path) -> None:
    """Symmetric or with zero points, with one scale for all weights or one for each channel."""
    model, data = statically_quantised(tmp_path, signed, per_channel)
    report = quantise_with_report(model, data)
    assert {layer.kind for layer in report.graph.layers} <= {"conv", "add", "average_pool", "max_pool"}
    assert any("QuantizeLinear and DequantizeLinear" in note for note in report.graph.notes)
    (end,) = report.graph.outputs
    exact = np.stack([next(iter(run_float(model, x).values())).ravel() for x in data])
    result = np.stack([integer_outputs(report.graph, x)[end].ravel() for x in data])
    assert decibels(exact, result) > 20


def pair(m: FloatModel, x: str, scale: float, zero: int, kind: type, name: str, other: float | None = None) -> str:
    constants = [m.constant(scale), m.constant(zero, kind)]
    q = m.node("QuantizeLinear", [x, *constants], f"{name}_q")
    if other is not None:
        constants[0] = m.constant(other)
    return m.node("DequantizeLinear", [q, *constants], name)


def test_a_zero_point_at_the_end_of_its_range_is_a_relu() -> None:
    m = FloatModel()
    a = pair(m, m.conv("x", "a", (4, 3, 3, 3)), 0.02, 0, np.uint8, "a2")
    m.conv(pair(m, m.conv(a, "b", (4, 4, 3, 3)), 0.05, 128, np.uint8, "b2"), "y", (4, 4, 1, 1))
    stripped, pins = without_pairs(m.build("y"))
    assert pins == {"a2": Pin(float(np.float32(0.02)), 0, 0), "b": Pin(float(np.float32(0.05)), 128, 0)}
    assert [node.op_type for node in stripped.graph.node] == ["Conv", "Relu", "Conv", "Identity", "Conv"]
    graph = quantise_with_report(m.build("y"), m.data()).graph
    assert [(layer.kind, layer.relu) for layer in graph.layers] == [("conv", True), ("conv", False), ("conv", False)]


@pytest.mark.parametrize(("element", "between"), [(TensorProto.INT8, "Identity"), (TensorProto.UINT8, "Relu")])
def test_a_type_without_a_zero_point(element: int, between: str) -> None:
    m = FloatModel(opset=21)
    scale = m.constant(0.05)
    q = m.node("QuantizeLinear", [m.conv("x", "a", (4, 3, 3, 3)), scale], "q", output_dtype=element)
    m.conv(m.node("DequantizeLinear", [q, scale], "d"), "y", (4, 4, 1, 1))
    assert [node.op_type for node in without_pairs(m.build("y"))[0].graph.node] == ["Conv", between, "Conv"]


@pytest.mark.parametrize(("strip", "kind"), [(without_pairs, np.uint8), (without_wide_pairs, np.uint16)])
def test_what_a_pair_need_not_cut_off(
    strip: Callable[[onnx.ModelProto], tuple[onnx.ModelProto, Any]], kind: type
) -> None:
    """An input may be below 0, the result of a Relu not."""
    m = FloatModel()
    a = m.node("Relu", m.conv(pair(m, "x", 0.02, 0, kind, "x2"), "a", (4, 3, 3, 3)), "a2")
    m.conv(pair(m, a, 0.02, 0, kind, "a3"), "y", (4, 4, 1, 1))
    nodes = strip(m.build("y"))[0].graph.node
    assert [node.op_type for node in nodes] == ["Relu", "Conv", "Relu", "Identity", "Conv"]
    assert [node.name for node in nodes] == ["n_x2", "n_a", "n_a2", "n_a3", "n_y"]


def test_what_a_pair_behind_a_softmax_cuts_off_are_its_shares() -> None:
    """They lie in 0..1; the scores that are the network's output, with the softmax left out, do not."""
    m = FloatModel((1, 3, 8, 8))
    scores = pair(m, m.conv("x", "a", (5, 3, 8, 8)), 0.02, 0, np.int8, "scores")
    flat = m.node("Flatten", scores, "flat")
    pair(m, m.node("Softmax", flat, "p"), 1 / 255, -128, np.int8, "y")
    report = quantise_with_report(m.build("y"), m.data())
    assert [layer.kind for layer in report.graph.layers] == ["conv"]
    assert report.graph.notes[1].startswith("Softmax p, Identity y at the end are left out")
    assert report.snr_db > 25


def narrow(m: FloatModel, x: str, scale: float, ends: tuple[int, int], kind: type, name: str) -> str:
    """A pair of fewer than 8 bits, as Brevitas and PyTorch write it: the integers are cut off between."""
    constants = [m.constant(scale), m.constant(0, kind)]
    q = x if x.startswith("constant") else m.node("QuantizeLinear", [x, *constants], f"{name}_q")
    cut = m.node("Clip", [q, *(m.constant(end, kind) for end in ends)], f"{name}_c")
    return m.node("DequantizeLinear", [cut, *constants], name)


def test_pairs_of_fewer_bits() -> None:
    """Tensors have the file's own numbers, all of which the chip has, and so do weights."""
    m = FloatModel()
    weights = [m.constant(m.random.integers(-9, 10, size), np.int8) for size in ((8, 3, 3, 3), (5, 8, 6, 6))]
    first, second = (narrow(m, w, 0.06, (-7, 7), np.int8, f"w{at}") for at, w in enumerate(weights))
    a = m.node("Relu", m.node("Conv", [narrow(m, "x", 0.02, (-128, 127), np.int8, "x2"), first], "a"), "a2")
    m.node("Conv", [narrow(m, a, 0.25, (0, 15), np.uint8, "a3"), second], "y")
    report = quantise_with_report(m.build("y"), m.data())
    assert [(layer.kind, layer.clamp) for layer in report.graph.layers] == [("conv", 15), ("conv", 127)]
    assert [(each.name, each.step) for each in report.graph.inputs] == [("x", pytest.approx(0.02))]
    assert report.graph.steps[report.graph.layers[0].output] == pytest.approx(0.25)
    assert any(note.startswith("2 of 2 tensors have the file's own scale;") for note in report.graph.notes)
    assert np.abs(np.asarray(report.graph.layers[0].w)).max() <= 7
    exact, result = run_float(m.build("y"), m.data()[0])["y"], integer_outputs(report.graph, m.data()[0])["y"]
    assert decibels(exact, result) > 26


def test_a_pair_whose_ends_are_computed_is_refused() -> None:
    m = FloatModel(opset=13)
    constants = [m.constant(0.02), m.constant(0, np.uint8)]
    q = m.node("QuantizeLinear", [m.conv("x", "a", (4, 3, 3, 3)), *constants], "q")
    end = m.node("Cast", m.node("ReduceMax", m.node("Abs", "x", "b"), "e", keepdims=0), "end", to=TensorProto.UINT8)
    m.conv(m.node("DequantizeLinear", [m.node("Clip", [q, "", end], "c"), *constants], "d"), "y", (4, 4, 1, 1))
    with pytest.raises(UnsupportedError, match=r"n_c \(Clip\): computes with 8 bits"):
        quantise_with_report(m.build("y"), m.data())


def test_pairs_that_rescale_stay_and_are_refused() -> None:
    m = FloatModel()
    model = m.build(m.conv(pair(m, m.conv("x", "a", (4, 3, 3, 3)), 0.02, 0, np.int8, "a2", 0.04), "y", (4, 4, 1, 1)))
    assert without_pairs(model) == (model, {})
    with pytest.raises(UnsupportedError, match="QuantizeLinear"):
        quantise_with_report(model, m.data())


def test_pairs_of_16_bits_that_stay() -> None:
    """Those of 8 bits do, those that rescale, and those whose integers are an output."""
    m = FloatModel()
    a = pair(m, pair(m, "x", 0.01, 0, np.int16, "wide"), 0.02, 0, np.int8, "a")
    b = pair(m, pair(m, a, 0.01, 0, np.int16, "b", 0.02), 0.03, 0, np.int16, "c")
    stripped, pairs = without_wide_pairs(m.build(b, "c_q"))
    assert [node.name for node in stripped.graph.node] == ["n_wide", "n_a_q", "n_a", "n_b_q", "n_b", "n_c_q", "n_c"]
    assert pairs == ("wide_q",)


@pytest.mark.parametrize("opset", [9, 21])
def test_what_pairs_of_16_bits_cut_off(opset: int) -> None:
    """A clamp, or a table, does so too where data show it."""
    m = FloatModel(opset=opset)
    a = pair(m, m.conv(pair(m, "x", 1 / 1024, 0, np.int16, "x2"), "a", (4, 3, 3, 3)), 2**-16, 0, np.uint16, "a2")
    m.conv(pair(m, a, 2**-17, 0, np.uint16, "a3"), "y", (4, 4, 1, 1))
    if opset < 21:
        for node in m.nodes:
            node.domain = "com.microsoft" if "Linear" in node.op_type else ""
    model = m.build("y")
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    report = quantise_with_report(model, m.data())
    assert report.snr_db > 25
    assert [layer.kind for layer in report.graph.layers] == ["conv", "conv"]
    assert report.graph.notes[0].startswith("3 pairs of QuantizeLinear and DequantizeLinear with 16 bits")
    exact = run_float(model, m.data()[0])["y"]
    assert decibels(exact, integer_outputs(report.graph, m.data()[0])["y"]) > 25
