"""Operators as those that they are defined by, by ONNX's own function bodies or by ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.load import check, in_standard_form
from meshloom.sched.workload.onnx.operators.table import OPERATORS
from meshloom.sched.workload.onnx.passes.definitions import put_definitions_in_place
from meshloom.sched.workload.onnx.quantise import quantise_with_report

from ....tiers import slow_but
from ...float_models import FloatModel, decibels, integer_outputs, run_float
from .test_attention import keeps_its_meaning

SHAPE = (1, 3, 6, 6)


def between(opset: int, build: Callable[[FloatModel, str], str], channels: int = 8) -> FloatModel:
    """What `build` makes between two convolutions, so that the host cannot do it."""
    m = FloatModel(SHAPE, opset=opset)
    m.conv(build(m, m.conv("x", "a", (8, 3, 1, 1))), "y", (4, channels, 1, 1))
    return m


def joined(m: FloatModel, x: str, reduced: str) -> str:
    return m.node("Add", [x, reduced], "joined")


#: Opset, and a node of it between two convolutions.
DEFINED: list[tuple[int, Callable[[FloatModel, str], str]]] = [
    (11, lambda m, x: m.node("LogSoftmax", x, "b")),
    (18, lambda m, x: m.node("LogSoftmax", x, "b", axis=1)),
    (13, lambda m, x: m.node("Mean", [x, m.node("Tanh", x, "t"), m.normal(8, 1, 1)], "b")),
    (13, lambda m, x: m.node("MeanVarianceNormalization", x, "b")),
    (13, lambda m, x: m.node("LRN", x, "b", size=3, alpha=0.1)),
    (13, lambda m, x: m.node("LpPool", x, "b", kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 0, 0])),
    (13, lambda m, x: joined(m, x, m.node("GlobalLpPool", x, "b", p=1))),
    (13, lambda m, x: joined(m, x, m.node("ReduceLogSumExp", x, "b", axes=[2, 3]))),
    (13, lambda m, x: joined(m, x, m.node("ReduceProd", m.node("Tanh", x, "t"), "b", axes=[3]))),
    (13, lambda m, x: m.node("Compress", [x, m.constant([1, 0, 1, 1], np.bool_)], "b", axis=2)),
    (13, lambda m, x: m.node("ReverseSequence", [x, m.integers(4)], "b", batch_axis=0, time_axis=1)),
    (18, lambda m, x: m.node("CenterCropPad", [x, m.integers(4, 9)], "b", axes=[2, 3])),
    (21, lambda m, x: m.node("CastLike", [m.node("Sigmoid", x, "t"), x], "b")),
]


@pytest.mark.parametrize(("opset", "build"), DEFINED)
def test_what_is_written_instead_says_the_same(opset: int, build: Callable[[FloatModel, str], str]) -> None:
    m = between(opset, build)
    model, x = m.build("y"), m.data()[0]
    checked = check(model, "m", ())
    nodes = put_definitions_in_place(checked, OPERATORS).nodes
    assert [node.op_type for node in nodes] != [node.op_type for node in checked.nodes]
    written = ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    np.testing.assert_allclose(run_float(written, x)["y"], run_float(model, x)["y"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("opset", "build"), DEFINED)
@pytest.mark.slow
def test_definitions_compute_what_the_operator_does(opset: int, build: Callable[[FloatModel, str], str]) -> None:
    keeps_its_meaning(between(opset, build), "y", least=20)


@pytest.mark.parametrize(
    "options", slow_but([{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}], {})
)
@pytest.mark.parametrize("axis", slow_but([1, 2, -1], 2))
def test_sums_so_far_of_maps(axis: int, options: dict[str, int]) -> None:
    """Channels by a convolution of one pixel, rows and columns by windows."""
    build = between(14, lambda m, x: m.node("CumSum", [x, m.constant(axis, np.int64)], "b", **options))
    keeps_its_meaning(build, "y", least=25)
    layers = quantise_with_report(build.build("y"), build.data()).graph.layers
    assert len(layers) == 3


@pytest.mark.parametrize("shape", slow_but([(5, 8), (8,), (2, 3, 40)], (5, 8)))
@pytest.mark.parametrize("options", slow_but([{}, {"exclusive": 1}, {"reverse": 1}], {"exclusive": 1}))
def test_sums_so_far_of_others(shape: tuple[int, ...], options: dict[str, int]) -> None:
    """Products with a triangle."""
    m = FloatModel((1, *shape), opset=14)
    a = m.node("MatMul", ["x", m.normal(shape[-1], 40)], "a")
    sums = m.node("CumSum", [a, m.constant(-1, np.int32)], "sums", **options)
    m.node("MatMul", [sums, m.normal(40, 4)], "y")
    keeps_its_meaning(m, "y", least=25)


COLUMNS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((6, 6), (2, 2), {}),
    ((7, 6), (3, 2), {"strides": [2, 2]}),
    ((6, 8), (3, 3), {"pads": [1, 1, 1, 1], "strides": [1, 2]}),
    ((7, 9), (2, 3), {"dilations": [2, 2]}),
    ((10,), (3,), {}),
]


@pytest.mark.parametrize("case", slow_but(COLUMNS, COLUMNS[1]))
def test_columns_that_become_an_image(case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]) -> None:
    image, block, options = case
    axes = len(image)
    pads = np.reshape(options.get("pads", [0] * 2 * axes), (2, axes)).sum(axis=0)
    reach = np.array(options.get("dilations", [1] * axes)) * (np.array(block) - 1) + 1
    blocks = (np.array(image) + pads - reach) // np.array(options.get("strides", [1] * axes)) + 1
    m = FloatModel((1, 4, int(blocks.prod())), opset=18)
    a = m.node("Conv", ["x", m.normal(3 * int(np.prod(block)), 4, 1)], "a")
    b = m.node("Col2Im", [a, m.integers(*image), m.integers(*block)], "b", **options)
    m.node("Conv", [b, m.normal(4, 3, *[1] * axes)], "y")
    keeps_its_meaning(m, "y", least=25)


@pytest.mark.slow
def test_a_reduction_that_drops_its_axes() -> None:
    m = FloatModel(SHAPE, opset=13)
    a = m.conv("x", "a", (8, 3, 1, 1))
    sums = m.node("ReduceLogSumExp", a, "sums", axes=[-1, -2], keepdims=0)
    m.node("Gemm", [sums, m.normal(8, 5)], "y")
    keeps_its_meaning(m, "y")


def _slice(m: FloatModel, x: str) -> str:
    return m.node("Slice", [x, m.integers(1), m.integers(5), m.integers(2)], "part")


def _compressed(m: FloatModel, x: str) -> str:
    """ONNX's shape inference does not say how many rows are left."""
    return m.node("Compress", [x, m.constant([1, 0, 1, 1, 0, 1], np.bool_)], "part", axis=2)


def _cut_where_a_shape_says(m: FloatModel, x: str) -> str:
    end = m.node("Concat", [m.integers(4), m.integers(5)], "end", axis=0)
    return m.node("Slice", [x, m.integers(0, 1), end, m.integers(2, 3)], "part")


MOVED: dict[str, dict[str, Any]] = {
    "LRN": {"size": 3},
    "GlobalLpPool": {},
    "ReduceProd": {"axes": [3]},
    "LogSoftmax": {"axis": 1},
    "MeanVarianceNormalization": {},
}


@pytest.mark.parametrize("move", slow_but([_slice, _compressed, _cut_where_a_shape_says], _slice, _compressed))
@pytest.mark.parametrize("operator", slow_but(list(MOVED), "LRN", "ReduceProd"))
def test_operators_that_need_a_shape_behind_what_moves(operator: str, move: Callable[[FloatModel, str], str]) -> None:
    def build(m: FloatModel, x: str) -> str:
        return m.node(operator, m.node("Tanh", move(m, x), "t"), "b", **MOVED[operator])

    keeps_its_meaning(between(13, build), "y", least=20)


@pytest.mark.slow
def test_a_reduction_behind_a_slice_that_drops_its_axes() -> None:
    def build(m: FloatModel, x: str) -> str:
        part = _slice(m, x)
        sums = m.node("ReduceLogSumExp", part, "sums", axes=[3, 2], keepdims=0)
        return joined(m, part, m.node("Unsqueeze", [sums, m.integers(2, 3)], "b"))

    keeps_its_meaning(between(13, build), "y", least=20)


def test_a_size_that_has_become_negative_has_no_shape() -> None:
    """ONNX's inference of the whole model ends the process."""
    m = FloatModel((1, 3, 4))
    bad = m.node("Pad", ["x", m.integers(0, 0, -9, 0, 0, 0)], "bad")
    part = m.node("Slice", [bad, m.integers(0), m.integers(1), m.integers(2)], "part")
    m.node("Relu", part, "y")
    m.node("Relu", "x", "z")
    shapes = check(m.build("y", "z"), "m", ()).shapes
    assert shapes["z"] == (1, 3, 4)
    assert not {"bad", "part", "y"} & shapes.keys()


@pytest.mark.parametrize("opset", slow_but([11, 13, 18], 13))
@pytest.mark.parametrize("whole", slow_but([False, True], False))
def test_logarithms_of_sums_of_exponentials_are_put_together_again(opset: int, whole: bool) -> None:
    """The largest exponential is far beyond 8 bits."""
    m = FloatModel(SHAPE, opset=opset)
    a = m.node("Mul", ["x", m.constant(30.0)], "a")
    e = m.node("Cast", m.node("Exp", m.node("Cast", a, "b", to=11), "e"), "f", to=1)
    since = 18 if whole else 13
    operands, options = ([e], {"axes": [1]}) if opset < since else ([e, m.integers(1)], {})
    m.node("ReduceLogSum" if whole else "ReduceSum", operands, "s", **options)
    b = "s" if whole else m.node("Log", "s", "l")
    m.conv(b, "y", (4, 1, 1, 1))
    model = in_standard_form(m.build("y"), "m")
    data = m.data()
    report = quantise_with_report(model, data)
    exact = run_float(m.build("y"), data[0] / 10)["y"]
    assert np.isfinite(exact).all()
    assert decibels(exact, integer_outputs(report.graph, data[0] / 10)["y"]) > 20
    assert report.snr_db > 30


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("LogSoftmax", {"axis": 2}), ("LpPool", {"kernel_shape": [2, 2]}), ("ReduceLogSumExp", {"axes": [1]}),
        ("ReduceProd", {"axes": [1]}),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_at_the_end_they_are_the_hosts(operator: str, options: dict[str, int]) -> None:
    m = FloatModel(SHAPE, opset=13)
    m.node(operator, m.conv("x", "a", (8, 3, 1, 1)), "y", **options)
    report = quantise_with_report(m.build("y"), m.data())
    assert [layer.kind for layer in report.graph.layers] == ["conv"]
    assert report.host is not None
    assert [node.op_type for node in report.host.nodes] == [operator]


@pytest.mark.parametrize(
    ("operator", "options", "why"),
    [
        (
            "LpPool",
            {"p": 3, "kernel_shape": [2, 2]},
            "sums of powers of 3 are beyond 8 bits; export it with p = 2 or 1",
        ),
        ("GlobalLpPool", {"p": 4}, "sums of powers of 4 are beyond 8 bits"),
        (
            "LpPool",
            {"ceil_mode": 1, "kernel_shape": [2, 2]},
            "with ceil_mode or dilations; export it with pads instead",
        ),
        (
            "LpPool",
            {"dilations": [2, 2], "kernel_shape": [2, 2]},
            "with ceil_mode or dilations; export it with pads instead",
        ),
        ("LpNormalization", {"p": 3, "axis": 1}, "p = 3; ONNX has norms of p = 1 and 2"),
    ],
)
def test_pools_that_8_bits_do_not_hold_are_refused_as_such(operator: str, options: dict[str, Any], why: str) -> None:
    m = between(18, lambda m, x: m.node(operator, x, "b", **options))
    with pytest.raises(UnsupportedError, match=rf"n_b \({operator}\): {why}"):
        quantise_with_report(in_standard_form(m.build("y"), "m"), m.data())


def _of_flat(operator: str, *axes: int, **options: Any) -> Callable[[FloatModel, str], str]:
    def build(m: FloatModel, x: str) -> str:
        operands = [m.node("Reshape", [x, m.integers(1, 288)], "flat"), *([m.integers(*axes)] if axes else [])]
        flat = m.node(operator, operands, "b", **options)
        return m.node("Reshape", [flat, m.integers(1, 8, 6, -1)], "again")

    return build


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (_of_flat("LRN", size=3), r"its operand has shape \[1, 288\], must have pixels"),
        (_of_flat("MeanVarianceNormalization", axes=[0]), "no axis but the first has several numbers; leave it out"),
        (
            _of_flat("ReduceProd", 1),
            "multiplies 288 numbers along an axis, may multiply 64; take fewer at a time",
        ),
        (
            lambda m, x: m.node("ReduceProd", [x, m.node("Cast", m.node("ReduceMax", x, "c"), "d", to=7)], "b"),
            "its axes are computed or none; they must be constants",
        ),
        (
            lambda m, x: m.node("CumSum", [x, m.node("Cast", m.node("ReduceMax", x, "c"), "d", to=7)], "b"),
            r"its axis \('d'\) is computed, must be a constant",
        ),
        (
            lambda m, x: m.node(
                "CumSum", [m.node("Tile", [x, m.integers(1, 1, 1, 1000)], "wide"), m.constant(3, np.int64)], "b"
            ),
            "adds up 6000 numbers along an axis, may add 4096; take fewer at a time",
        ),
        (
            lambda m, x: m.node(
                "Col2Im", [m.node("Flatten", x, "f"), *[m.node("Cast", m.node("Flatten", x, "c"), "d", to=7)] * 2], "b"
            ),
            "the sizes of its image and its block are computed, must be constants",
        ),
        (
            lambda m, x: m.node("Hardmax", x, "b", axis=1),
            "which number is the largest is for the host to say, at the end of a model: 8 bits do not tell numbers",
        ),
        (
            lambda m, x: m.node("Compress", [x, m.node("Cast", m.node("Flatten", x, "c"), "d", to=9)], "b", axis=2),
            r"its condition \('d'\) is computed, must be a constant; slice or gather instead",
        ),
        (
            lambda m, x: m.node("ReverseSequence", [x, m.node("Cast", m.node("ReduceMax", x, "c"), "d", to=7)], "b"),
            r"its lengths \('d'\) are computed or differ; they must be one constant",
        ),
    ],
)
def test_what_definitions_cannot_say_is_refused_with_the_reason(
    build: Callable[[FloatModel, str], str], why: str
) -> None:
    m = between(18, build)
    with pytest.raises(UnsupportedError, match=rf"n_b \(\w+\)( and 1 more)?: {why}"):
        quantise_with_report(m.build("y"), m.data())


def test_what_is_refused_of_a_definition_is_called_as_in_the_file() -> None:
    def build(m: FloatModel, x: str) -> str:
        size = m.node("Cast", m.node("ReduceMax", x, "largest", keepdims=0), "size", to=7)
        return m.node("Mul", [x, m.node("HannWindow", size, "window")], "b")

    m = between(17, build)
    with pytest.raises(UnsupportedError, match=r"n_window \(HannWindow\): Range in its place: no layer does that"):
        quantise_with_report(m.build("y"), m.data())


def test_bodies_take_attributes_or_their_defaults() -> None:
    """Opsets that ONNX Runtime does not have yet: the nodes alone."""
    m = FloatModel(SHAPE, opset=28)
    m.node("SwiGLU", ["x", "x"], "y", alpha=0.5)
    m.node("SwiGLU", ["x", "x"], "z")
    checked = check(m.build("y", "z"), "m", ())
    gate, _, plain, _ = put_definitions_in_place(checked, {"Mul", "Swish"}).nodes
    assert [helper.get_attribute_value(node.attribute[0]) for node in (gate, plain)] == [0.5, 1.0]
    assert [node.op_type for node in (gate, plain)] == ["Swish", "Swish"]


def test_random_numbers_and_bodies_with_bodies_stay() -> None:
    m = FloatModel((1, 3, 4), opset=27)
    m.node("LinearAttention", ["x"] * 3, "y", q_num_heads=1, kv_num_heads=1)
    m.nodes[-1].output.append("state")
    m.node("Bernoulli", "x", "z")
    model = check(m.build("y", "z"), "m", ())
    assert put_definitions_in_place(model, ()) is model
