"""Functions of one tensor become tables, products of two become mul, however exporters write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

from meshloom.sched.workload.onnx.deviations import _shift
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.host import fold_to_end
from meshloom.sched.workload.onnx.pointwise import function, numbers
from meshloom.sched.workload.onnx.quantise import quantise, quantise_with_report
from meshloom.sched.workload.onnx.reader import from_onnx
from meshloom.sched.workload.onnx.writer import to_onnx

from ...float_models import FloatModel, decibels, integer_outputs, run_float

CASES: dict[str, tuple[Callable[[FloatModel], str], str, int]] = {}


def case(kinds: str, opset: int = 13) -> Callable:
    def enter(build: Callable[[FloatModel], str]) -> Callable[[FloatModel], str]:
        CASES[getattr(build, "__name__", "")] = build, kinds, opset
        return build

    return enter


def narrow(m: FloatModel, output: str) -> str:
    """A tensor whose exponential 8 bits can hold."""
    return m.node("Conv", ["x", m.normal(4, 3, 3, 3, scale=0.15), m.normal(4)], output)


for _name, _more, _opset in (
    ("Sigmoid", {}, 13), ("Tanh", {}, 13), ("Erf", {}, 13), ("HardSigmoid", {"alpha": 0.3}, 13), ("Elu", {}, 13),
    ("Selu", {}, 13), ("Celu", {"alpha": 0.7}, 13), ("Softplus", {}, 13), ("Softsign", {}, 13), ("Exp", {}, 13),
    ("LeakyRelu", {"alpha": 0.1}, 13), ("Abs", {}, 13), ("ThresholdedRelu", {"alpha": 0.4}, 13), ("Sin", {}, 13),
    ("HardSwish", {}, 14), ("Mish", {}, 18), ("Gelu", {"approximate": "tanh"}, 20),
):  # fmt: skip
    CASES[_name] = (lambda m, name=_name, more=_more: m.node(name, narrow(m, "a"), "y", **more), "conv table", _opset)


@case("conv table conv")
def fake_quantisation(m):
    """What training with few bits leaves behind: whole numbers of a step, cut off."""
    step = m.constant(0.1)
    steps = m.node("Div", [m.conv("x", "a", (4, 3, 3, 3)), step], "b")
    whole = m.node("Round", m.node("Clip", [steps, m.constant(-8.0), m.constant(7.0)], "c"), "d")
    return m.conv(m.node("Mul", [whole, step], "e"), "y", (3, 4, 1, 1))


@case("conv table")
def silu(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    return m.node("Mul", [a, m.node("Sigmoid", a, "s")], "y")


@case("conv table")
def hard_swish_written_out(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    b = m.node("Clip", [m.node("Add", [a, m.constant(3.0)], "b"), m.constant(0.0), m.constant(6.0)], "c")
    return m.node("Div", [m.node("Mul", [a, b], "d"), m.constant([[[6.0]]])], "y")


@case("conv table")
def gelu_written_out(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    b = m.node("Erf", m.node("Div", [a, m.constant(np.sqrt(2))], "b"), "c")
    d = m.node("Mul", [a, m.node("Add", [b, m.constant(1.0)], "d")], "e")
    return m.node("Mul", [d, m.constant(0.5)], "y")


@case("conv table")
def mish_written_out(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    return m.node("Mul", [a, m.node("Tanh", m.node("Softplus", a, "b"), "c")], "y")


@case("conv table conv")
def chain(m):
    a = m.node("Sigmoid", m.node("Abs", m.conv("x", "a", (4, 3, 3, 3)), "b"), "c")
    return m.conv(m.node("Sub", [m.constant(1.0), m.node("Mul", [a, m.constant(2.0)], "d")], "e"), "y", (3, 4, 1, 1))


@case("conv table")
def clip_between(m):
    return m.node("Clip", [m.conv("x", "a", (4, 3, 3, 3)), m.constant(-0.5), m.constant(0.7)], "y")


@case("conv table", 10)
def clip_between_in_old_files(m):
    return m.node("Clip", m.conv("x", "a", (4, 3, 3, 3)), "y", min=-0.5, max=0.7)


@case("conv table")
def square_root_of_a_square(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    b = m.node("Pow", [a, m.constant(2.0)], "b")
    return m.node("Sqrt", m.node("Add", [b, m.node("Mul", [a, a], "c")], "d"), "y")


@case("conv table")
def largest_of_a_constant(m):
    return m.node("Max", [m.conv("x", "a", (4, 3, 3, 3)), m.constant(-0.3)], "y")


@case("conv table")
def one_slope(m):
    return m.node("PRelu", [m.conv("x", "a", (4, 3, 3, 3)), m.constant(np.full((4, 1, 1), 0.2))], "y")


@case("conv table depthwise add")
def slope_of_each_channel(m):
    slopes = m.constant(np.array([0.1, 0.5, -0.2, 0.9]).reshape(4, 1, 1))
    return m.node("PRelu", [m.conv("x", "a", (4, 3, 3, 3)), slopes], "y")


@case("depthwise table conv")
def padding_is_no_argument(m):
    """Zeros around it are the function's argument, too: it is 0.5 there."""
    a = m.node("Pad", ["x", m.integers(0, 0, 1, 1, 0, 0, 1, 1)], "p")
    return m.conv(m.node("Sigmoid", a, "s"), "y", (4, 3, 3, 3))


@case("conv table average_pool")
def of_a_reshaped_tensor(m):
    a = m.node("Reshape", [m.conv("x", "a", (4, 3, 3, 3)), m.integers(1, 2, 2, 36)], "b")
    b = m.node("Mul", [m.node("Sigmoid", a, "s"), a], "c")
    return m.node("GlobalAveragePool", m.node("Reshape", [b, m.integers(1, 4, 6, 6)], "d"), "y")


@case("conv average_pool conv conv table mul")
def squeeze_and_excitation(m):
    a = m.node("Relu", m.conv("x", "a", (8, 3, 3, 3)), "r")
    b = m.node("Relu", m.conv(m.node("GlobalAveragePool", a, "p"), "b", (4, 8, 1, 1)), "c")
    return m.node("Mul", [m.node("Sigmoid", m.conv(b, "d", (8, 4, 1, 1)), "e"), a], "y")


@case("conv average_pool conv table mul")
def squeeze_and_excitation_of_vectors(m):
    a = m.node("Relu", m.conv("x", "a", (8, 3, 3, 3)), "r")
    b = m.node("MatMul", [m.node("ReduceMean", a, "p", axes=[2, 3], keepdims=0), m.normal(8, 8)], "b")
    c = m.node("Reshape", [m.node("HardSigmoid", b, "c"), m.integers(1, 8, 1, 1)], "d")
    return m.node("Mul", [a, c], "y")


@case("conv conv mul conv")
def product(m):
    a, b = m.conv("x", "a", (4, 3, 3, 3)), m.conv("x", "b", (4, 3, 3, 3))
    return m.conv(m.node("Relu", m.node("Mul", [a, b], "c"), "d"), "y", (4, 4, 1, 1))


@case("conv conv table conv mul")
def mask_of_pixels(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    return m.node("Mul", [a, m.node("Sigmoid", m.conv(a, "b", (1, 4, 1, 1)), "c")], "y")


@case("conv average_pool table mul add")
def sum_with_one_number_for_each_channel(m):
    a = m.conv("x", "a", (4, 3, 3, 3))
    return m.node("Add", [m.node("GlobalAveragePool", a, "b"), a], "y")


@case("conv conv table add")
def difference(m):
    return m.node("Sub", [m.conv("x", "a", (4, 3, 3, 3)), m.conv("x", "b", (4, 3, 3, 3))], "y")


@case("conv conv table mul")
def quotient(m):
    b = m.node("Add", [m.node("Exp", narrow(m, "b"), "c"), m.constant(1.0)], "d")
    return m.node("Div", [m.conv("x", "a", (4, 3, 3, 3)), b], "y")


@case("conv table")
def quotient_of_a_constant(m):
    b = m.node("Exp", narrow(m, "b"), "c")
    return m.node("Div", [m.constant(2.0), b], "y")


@pytest.mark.parametrize("name", CASES)
def test_meaning_is_kept(name: str) -> None:
    build, kinds, opset = CASES[name]
    m = FloatModel(opset=opset)
    model = m.build(build(m))
    report = quantise_with_report(model, m.data(8))
    graph = report.graph
    outcome = sorted(layer.kind for layer in graph.layers)
    assert outcome == sorted(kinds.split())
    x = m.data(8)[3]
    (output,) = graph.outputs
    result = report.ends[output].array(integer_outputs(graph, x)[output])
    assert decibels(run_float(model, x)[report.origins[output]], result) > 22
    # as a file of integers it is the same network
    again = from_onnx(to_onnx(graph), "again")
    for ours, theirs in zip(graph.layers, again.layers, strict=True):
        assert (ours.kind, ours.inputs, ours.scale, ours.times16) == (
            theirs.kind, theirs.inputs, theirs.scale, theirs.times16,
        )  # fmt: skip
        if ours.table is not None:
            np.testing.assert_array_equal(ours.table, theirs.table)


def test_every_entry_of_a_table_is_the_function_of_its_index():
    m = FloatModel()
    graph = quantise(m.build(m.node("Tanh", m.conv("x", "a", (4, 3, 3, 3)), "y")), m.data())
    (layer,) = (layer for layer in graph.layers if layer.kind == "table")
    exact = np.tanh(np.arange(-128, 128) * graph.value("a").step) / graph.value("y").step
    assert layer.table is not None
    assert np.abs(layer.table - np.clip(exact, -128, 127)).max() <= 0.5 + 1e-4


def test_a_remainder_by_zero_is_named() -> None:
    m = FloatModel((1, 3, 8, 8))
    jumps = m.node("Mod", [m.conv("x", "a", (4, 3, 3, 3)), m.constant(0.0)], "b", fmod=1)
    with pytest.raises(UnsupportedError, match="nothing has a remainder by 0"):
        quantise(m.build(m.conv(jumps, "y", (3, 4, 1, 1))), m.data())


@pytest.mark.parametrize(
    ("name", "exact"),
    [("Floor", np.floor), ("Ceil", np.ceil), ("Round", np.rint), ("Sign", np.sign), ("Mod", lambda x: np.fmod(x, 0.5))],
)
def test_what_jumps_is_a_table_where_the_host_cannot_do_it(name: str, exact: Any) -> None:
    m = FloatModel()
    a = m.conv("x", "a", (4, 3, 3, 3))
    jumps = m.node(name, [a, m.constant(0.5)], "b", fmod=1) if name == "Mod" else m.node(name, a, "b")
    ended = fold_to_end(m.build(jumps), "net", normalised=False)
    assert ended.notes == [f"{name} b at the end runs on the host."], "which loses nothing"
    graph = quantise(m.build(m.conv(jumps, "y", (3, 4, 1, 1))), m.data())
    (layer,) = (layer for layer in graph.layers if layer.kind == "table")
    real = exact(np.arange(-128, 128, dtype=np.float32) * np.float32(graph.value("a").step))
    assert layer.table is not None
    assert np.abs(layer.table - np.clip(real / graph.value("b").step, -128, 127)).max() <= 0.5 + 1e-3


def test_where_a_function_has_no_value_its_table_has_0():
    """The calibration data show no negative number; other inputs may."""
    m = FloatModel()
    model = m.build(m.node("Sqrt", m.node("Add", ["x", m.constant(0.0)], "a"), "y"))
    data = [np.abs(x) for x in m.data()]
    graph = quantise(model, data)
    table = graph.layers[-1].table
    assert table is not None
    assert not table[:128].any()
    assert table[255] == 127
    with pytest.raises(OnnxError, match="tensor 'y' is not finite"):
        quantise(model, m.data())


def test_a_microsoft_operator():
    m = FloatModel()
    a = m.conv("x", "a", (4, 3, 3, 3))
    m.nodes.append(helper.make_node("QuickGelu", [a], ["y"], domain="com.microsoft", alpha=1.5))
    model = m.build("y")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert [layer.kind for layer in quantise(model, m.data()).layers] == ["conv", "table"]


def test_functions_before_the_host_run_there():
    """The host loses nothing to rounding: what it alone reads it computes itself."""
    m = FloatModel()
    a = m.node("Sigmoid", m.conv("x", "a", (4, 3, 3, 3)), "s")
    both = m.node("Concat", [a, m.conv("x", "b", (4, 3, 3, 3))], "c", axis=1)
    net = fold_to_end(m.build(m.node("Hardmax", both, "y", axis=1)), "net", normalised=False)
    assert net.outputs == ["a", "b"]
    assert net.notes == ["Sigmoid s, Concat c, Hardmax y at the end run on the host."]


def test_constants_of_a_function_are_numbers_of_its_argument_s_type() -> None:
    one = numbers({"real": np.full((2, 3), 0.5), "half": np.full(2, 2, np.float16), "whole": np.full(4, 7)})
    assert {name: (array.item(), array.dtype.name, array.shape) for name, array in one.items()} == {
        "real": (0.5, "float32", ()),
        "half": (2, "float32", ()),
        "whole": (7, "int64", ()),
    }


def test_a_pole_says_nothing_of_how_far_results_differ() -> None:
    """Logarithms are infinite at it: no warning, and nothing but finite differences."""
    assert _shift(function("Log"), np.zeros(1), 0.0) == 0.0
    assert 0.0 < _shift(function("Log"), np.array([0.0, 1.0]), 0.25) < 0.5
