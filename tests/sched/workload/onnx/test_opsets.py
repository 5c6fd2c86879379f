"""Files with QuantizeLinear and DequantizeLinear of any opset: read as at opset 19."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx.dequantising.pairs import with_quantised_constants
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report
from meshloom.sched.workload.onnx.runtime import evaluate, run, session

from ...float_models import FloatModel, decibels, integer_outputs, run_float
from ...qdq_files import QdqFile


def exact_and_found(file: QdqFile) -> tuple[np.ndarray, np.ndarray, Quantised]:
    """What ONNX Runtime makes of the file, what its network does, both in real numbers."""
    model, x = file.build(), file.x()
    real = file.real(x) if file.bytes_in else x
    report = quantise_with_report(model, [real])
    exact = run(session(model, "file", mixed_signs=True), {"x": x})["y"].astype(np.float64)
    if file.bytes_out:
        exact = (exact - file.arrays["yz"]) * file.arrays["ys"].astype(np.float64)
    return exact, report.said(integer_outputs(report.graph, real))["y"], report


@pytest.mark.parametrize(
    "how",
    [
        {"opset": 10, "bias": "", "weights": np.uint8, "operator": "MatMul"},
        {"opset": 10, "bytes_in": True, "bytes_out": True},
        {"opset": 13},
        {"opset": 13, "bytes_in": True, "bytes_out": True, "per_channel": True, "zeros": True},
        {"opset": 13, "rounds_weights": True, "per_channel": True, "zeros": True, "weights": np.uint8},
        {"opset": 14, "bytes_in": True, "kind": np.int8, "operator": "ConvTranspose", "per_channel": True},
        {"opset": 15, "operator": "Gemm", "per_channel": True, "rounds_weights": True, "bytes_out": True},
        {"opset": 16, "operator": "MatMul", "per_channel": True, "zeros": True, "bias": "", "bytes_in": True},
        {"opset": 17, "weights": np.uint8, "zeros": True, "bias": "", "rounds_weights": True},
        {"opset": 18, "kind": np.int8, "bytes_in": True, "zeros": True, "operator": "Gemm"},
        {"opset": 19, "bytes_in": True, "per_channel": True},
        {"opset": 21, "rounds_weights": True, "per_channel": True},
        {"opset": 23, "bytes_in": True, "bytes_out": True, "weights": np.uint8, "zeros": True},
    ],
    ids=lambda how: "-".join(getattr(value, "__name__", str(value)) for value in how.values()),
)
def test_files_of_every_opset_are_read(how: dict[str, Any]) -> None:
    exact, result, _ = exact_and_found(QdqFile(**how))
    assert decibels(exact, result) > 25


def test_the_oldest_and_the_newest_make_the_same_network() -> None:
    some = [exact_and_found(QdqFile(opset=opset, bytes_in=True, per_channel=True))[2].graph for opset in (13, 18, 19)]
    for graph in some[1:]:
        assert [layer.scale for layer in graph.layers] == [layer.scale for layer in some[0].layers]
        for ours, theirs in zip(graph.layers, some[0].layers, strict=True):
            np.testing.assert_array_equal(ours.w, theirs.w)
            np.testing.assert_array_equal(ours.bias, theirs.bias)


def test_constants_that_a_file_quantises_are_integers_of_it() -> None:
    """Rounded to even and saturated, as ONNX Runtime does it."""
    numbers = np.array([0.25, 0.75, -0.25, 1e9, -1e9, 0.5], np.float32)
    m = FloatModel((1, 6))
    scale, zero = m.constant(0.5), m.constant(3, np.uint8)
    q = m.node("QuantizeLinear", [m.constant(numbers), scale, zero], "q")
    w = m.node("DequantizeLinear", [q, scale, zero], "w")
    settled = with_quantised_constants(m.build(m.node("Add", ["x", w], "y")))
    assert [node.op_type for node in settled.graph.node] == ["DequantizeLinear", "Add"]
    (result,) = [item for item in settled.graph.initializer if item.name == "q"]
    assert numpy_helper.to_array(result).tolist() == [3, 5, 3, 255, 0, 4]
    assert with_quantised_constants(settled) is settled


def constant_of(operator: str, opset: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(operator, ["a", "s"], ["y"])], "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in ("a", "s")],
        [helper.make_empty_tensor_value_info("y")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_constants_are_computed_by_whoever_can() -> None:
    feeds = {"a": np.array([1, 2], np.float32), "s": np.array(0.5, np.float32)}
    model = constant_of("QuantizeLinear", 13)
    model.graph.input[1].type.tensor_type.ClearField("shape")
    assert evaluate(model, feeds)["y"].tolist() == [2, 4], "ONNX Runtime"
    assert evaluate(constant_of("Add", 13), feeds)["y"].tolist() == [1.5, 2.5], "the reference"
    with pytest.raises(OnnxError, match="NoSuch"):
        evaluate(constant_of("NoSuch", 13), feeds)


# -- what lies between two roundings ------------------------------------------------------------------------------


def rounded(m: FloatModel, x: str, scale: float, zero: int, name: str) -> str:
    return m.node("QuantizeLinear", [x, m.constant(scale), m.constant(zero, np.uint8)], name)


def test_an_operand_is_what_the_file_rounded() -> None:
    """A maximum of numbers with one scale, rounded to another: who reads it reads the coarse ones."""
    m = FloatModel((1, 3, 8, 8))
    m.opset = 11
    scale, zero = m.constant(0.3), m.constant(128, np.uint8)
    first = rounded(m, "x", 0.03, 128, "q")
    real = m.node("DequantizeLinear", [first, m.constant(0.03), zero], "real")
    pooled = m.node("MaxPool", [real], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    coarse = rounded(m, pooled, 0.3, 128, "coarse")
    w = m.constant(np.random.default_rng(0).integers(-128, 128, (4, 3, 1, 1)), np.int8)
    operands = [coarse, scale, zero, w, m.constant(0.01), m.constant(0, np.int8), m.constant(0.1), zero]
    y = m.node("QLinearConv", operands, "yq")
    model = m.build(m.node("DequantizeLinear", [y, m.constant(0.1), zero], "y"))
    report = quantise_with_report(model, m.data())
    (x,) = m.data(1)
    assert decibels(run_float(model, x)["y"], report.said(integer_outputs(report.graph, x))["y"]) > 20


@pytest.mark.parametrize("largest", [1.0, 3.0])
def test_a_sum_with_a_constant_is_rounded_twice(largest: float) -> None:
    """QLinearMatMul, then QLinearAdd of the bias, which the network adds at once; where the product is cut off, too."""
    m = FloatModel((1, 12))
    m.opset = 13
    random, zero = np.random.default_rng(2), m.constant(128, np.uint8)
    x = rounded(m, "x", 0.02, 128, "q")
    w = m.constant(random.integers(-128, 128, (12, 8)), np.int8)
    step = m.constant(0.05 * largest)
    operands = [x, m.constant(0.02), zero, w, m.constant(0.01), m.constant(0, np.int8), step, zero]
    product = m.node("QLinearMatMul", operands, "product")
    bias = m.constant(random.integers(0, 256, 8), np.uint8)
    addends = [product, step, zero, bias, m.constant(0.03), zero, m.constant(0.1), zero]
    m.nodes.append(helper.make_node("QLinearAdd", addends, ["sum"], "n_sum", domain="com.microsoft"))
    model = m.build(m.node("DequantizeLinear", ["sum", m.constant(0.1), zero], "y"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    report = quantise_with_report(model, m.data())
    assert [layer.kind for layer in report.graph.layers] == ["conv"]
