"""LSTM, GRU and RNN of a known length, as the nodes of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.quantise import quantise

from ...float_models import FloatModel
from .test_attention import keeps_its_meaning, linear

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(operator: str, steps: int = 3, features: int = 5, hidden: int = 8, **options: Any) -> FloatModel:
    """With a bias; both directions if it says so."""
    m = FloatModel((1, steps, features), opset=14)
    first = m.node("Transpose", "x", "first", perm=[1, 0, 2])
    two, gates = 1 + (options.get("direction") == "bidirectional"), GATES[operator]
    weights = [m.normal(two, gates * hidden, size) for size in (features, hidden)]
    bias = m.normal(two, 2 * gates * hidden)
    y = m.node(operator, [first, *weights, bias], "states", hidden_size=hidden, **options)
    turned = m.node("Transpose", y, "turned", perm=[0, 2, 1, 3])
    linear(m, m.node("Reshape", [turned, m.integers(steps, 1, two * hidden)], "flat"), two * hidden, 4, "y")
    return m


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("LSTM", {}),
        ("LSTM", {"direction": "bidirectional"}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"direction": "reverse"}),
        ("RNN", {"activations": ["Relu"]}),
    ],
)
def test_steps_compute_what_the_operator_does(operator: str, options: dict[str, Any]) -> None:
    report = keeps_its_meaning(recurrent(operator, **options), "y")
    assert any(layer.kind == "add" for layer in report.graph.layers)


def test_a_last_state() -> None:
    m = FloatModel((1, 3, 5), opset=14)
    first = m.node("Transpose", "x", "first", perm=[1, 0, 2])
    weights = [m.normal(1, 24, size) for size in (5, 8)]
    m.node("GRU", [first, *weights], "states", hidden_size=8)
    m.nodes[-1].output.append("last")
    assert keeps_its_meaning(m, m.node("Mul", ["last", m.constant(2.0)], "y")).snr_db > 25


@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_rows_that_are_a_batch(operator: str) -> None:
    """Of a picture, from left to right and back; gates in another order, and first states of zeros."""
    gates = 4 if operator == "LSTM" else 3
    m = FloatModel((1, 3, 5, 6), opset=14)
    rows = m.node("Squeeze", [m.node("Transpose", "x", "t", perm=[0, 3, 2, 1]), m.integers(0)], "rows")
    halves = [m.normal(2, gates * 4, size) for size in (3, 8)]
    weights = [m.node("Concat", [half, half], f"w{at}", axis=1) for at, half in enumerate(halves)]
    zeros = m.node("ConstantOfShape", m.integers(2, 5, 8), "zeros")
    m.node(operator, [rows, *weights, "", "", zeros], "states", hidden_size=8, direction="bidirectional")
    a = m.node("Reshape", [m.node("Transpose", "states", "s", perm=[0, 2, 1, 3]), m.integers(6, 5, 16)], "r")
    keeps_its_meaning(m, m.node("MatMul", [a, m.normal(16, 4)], "y"))


@pytest.mark.parametrize("options", [{"clip": 2.0}, {"activations": ["Affine"]}])
def test_what_is_more_than_gates_is_refused(options: dict[str, Any]) -> None:
    m = recurrent("RNN", **options)
    with pytest.raises(UnsupportedError, match=r"n_states \(RNN\): its steps are not written down: 512 at most"):
        quantise(m.build("y"), m.data())


def test_a_length_that_is_computed_is_refused() -> None:
    m = recurrent("RNN", steps=1)
    next(node for node in m.nodes if node.op_type == "RNN").input.append("length")
    top = helper.make_node("ReduceMax", ["x"], ["top"], axes=[1, 2], keepdims=0)
    m.nodes[:0] = [top, helper.make_node("Cast", ["top"], ["length"], to=TensorProto.INT32)]
    with pytest.raises(UnsupportedError, match=r"n_states \(RNN\): its steps are not written down"):
        quantise(m.build("y"), m.data())


def test_a_root_mean_square_alone() -> None:
    m = FloatModel((1, 6, 8), opset=17)
    a = linear(m, "x", 8, 16, "a")
    mean = m.node("ReduceMean", m.node("Pow", [a, m.constant(2.0)], "squares"), "mean", axes=[-1])
    root = m.node("Sqrt", m.node("Add", [mean, m.constant(1e-6)], "above"), "root")
    even = m.node("Mul", [a, m.node("Reciprocal", root, "one_over")], "even")
    scaled = m.node("Mul", [m.constant(np.linspace(0.5, 2, 16)), even], "scaled")
    report = keeps_its_meaning(m, linear(m, scaled, 16, 12, "y"))
    assert [layer.by for layer in report.graph.layers if layer.kind == "normalise"] == ["root"]
