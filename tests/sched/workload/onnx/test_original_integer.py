"""The user's integer file in ONNX Runtime is the reference: whatever the reader misreads is caught and named.

Each case makes the reader misread one attribute or operand of one operator, as a mistake in it would.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.onnx import windows
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.integers import arithmetic, functions, layout, sums
from meshloom.sched.workload.onnx.original import check_integer
from meshloom.sched.workload.onnx.reader import from_onnx
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip

from ...integer_models import IntegerModel
from ...random_graphs import random_inputs
from .misreading import ids, looked_at, misread, misread_operand, says

WEIGHTS = np.random.default_rng(0).integers(-128, 128, (4, 2, 3, 2)).astype(np.int8)
BIAS = np.array([900, -700, 400, 0], np.int32)


def check(model: onnx.ModelProto) -> Graph:
    """Reads a model and compares it with itself on two random inputs."""
    graph = from_onnx(model, "net")
    cases = []
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        feeds = {name: flip(array) for name, array in inputs.items()}
        result = run(session(to_onnx(graph, all_outputs=True), "golden"), feeds)
        cases.append((inputs, inputs | {name: unflip(array) for name, array in result.items()}))
    check_integer(model, graph, cases, "net")
    return graph


def qconv(m: IntegerModel, source: str = "x", output: str = "y", w: NDArray[np.int8] = WEIGHTS, **more: Any) -> str:
    y = m.conv(source, output, w, (1.0, 2.0**-7, 1.0), **more)
    m.nodes[-1].input.append(m.array(f"{output}_bias", BIAS[: len(w)]))
    return y


def qgrouped(m: IntegerModel) -> str:
    """Depthwise; misread as one convolution it has too few weights."""
    return qconv(m, w=WEIGHTS[:2, :1], group=2)


def qpool(m: IntegerModel, **more: Any) -> str:
    return m.node("MaxPool", ["x"], "y", **({"kernel_shape": [3, 2]} | more))


def qclip(m: IntegerModel) -> str:
    bounds = [m.array(name, np.array(value, np.uint8)) for name, value in (("low", 128), ("high", 160))]
    return m.node("Clip", [qconv(m, output="a"), *bounds], "y")


def qjoined(m: IntegerModel) -> str:
    return m.node("Concat", [qconv(m, output=name) for name in "ab"], "y", axis=2)


def qsliced(m: IntegerModel) -> str:
    numbers = {"starts": (1, 2), "ends": (9, 9), "axes": (2, 3), "steps": (2, 1)}
    operands = [m.array(name, np.array(pair)) for name, pair in numbers.items()]
    return m.node("Slice", [qconv(m, output="a"), *operands], "y")


def qsum(m: IntegerModel, zero: int = 128) -> str:
    wide = [m.node("Cast", [qconv(m, output=name)], f"{name}32", to=TensorProto.INT32) for name in "ab"]
    both = m.node("Add", wide, "both")
    once = m.node("Sub", [both, m.array("zero32", np.array(zero, np.int32))], "once")
    bounds = [m.array(name, np.array(value, np.int32)) for name, value in (("low", 128), ("high", 255))]
    return m.node("Cast", [m.node("Clip", [once, *bounds], "clipped")], "y", to=TensorProto.UINT8)


def qadd(m: IntegerModel, *scales: float) -> str:
    names = [m.scale(f"step{index}", scale) for index, scale in enumerate(scales or (1.0, 1.0, 1.0))]
    a, b = (qconv(m, output=name) for name in "ab")
    operands = [a, names[0], "zero", b, names[1], "zero", names[2], "zero"]
    return m.node("QLinearAdd", operands, "y", domain="com.microsoft")


def qresized(m: IntegerModel, **more: str) -> str:
    """Twice as many rows and columns, each pixel four times."""
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} | more
    scales = m.array("scales", np.array([1, 1, 2, 2], np.float32))
    return m.node("Resize", [qconv(m, output="a"), "", scales], "y", **how)


def qends(m: IntegerModel, scale: float = 0.5) -> str:
    """A float input and a float output."""
    q = m.node("QuantizeLinear", ["x", m.scale("in", scale), "zero"], "q")
    return m.node("DequantizeLinear", [qconv(m, q, "a"), m.scale("out", 0.25), "zero"], "y")


INTEGER_CASES: list[tuple[str, str, Any, Callable[[IntegerModel], str]]] = [
    ("QLinearConv", "pads", [0, 1, 2, 1], lambda m: qconv(m, pads=[1, 0, 2, 1])),
    ("QLinearConv", "pads", [1, 0, 1, 1], lambda m: qconv(m, pads=[0, 1, 1, 1])),
    ("QLinearConv", "pads", None, lambda m: qconv(m, pads=[1, 1, 1, 1])),
    ("QLinearConv", "strides", [2, 1], lambda m: qconv(m, strides=[1, 2])),
    ("QLinearConv", "strides", None, lambda m: qconv(m, strides=[2, 2])),
    ("QLinearConv", "dilations", None, lambda m: qconv(m, dilations=[2, 2], pads=[2, 1, 2, 1])),
    ("QLinearConv", "auto_pad", "SAME_LOWER", lambda m: qconv(m, auto_pad="SAME_UPPER")),
    ("QLinearConv", "auto_pad", "SAME_UPPER", lambda m: qconv(m, auto_pad="SAME_LOWER")),
    ("QLinearConv", "auto_pad", None, lambda m: qconv(m, auto_pad="SAME_LOWER")),
    ("QLinearConv", "group", None, qgrouped),
    ("QLinearConv", "kernel_shape", [2, 3], qconv),
    ("MaxPool", "kernel_shape", [2, 3], qpool),
    ("MaxPool", "strides", None, lambda m: qpool(m, strides=[2, 2])),
    ("MaxPool", "dilations", None, lambda m: qpool(m, dilations=[2, 2], pads=[2, 1, 0, 0])),
    ("MaxPool", "pads", [0, 1, 0, 0], lambda m: qpool(m, pads=[0, 0, 0, 1])),
    ("MaxPool", "auto_pad", "SAME_LOWER", lambda m: qpool(m, auto_pad="SAME_UPPER")),
    ("MaxPool", "ceil_mode", None, lambda m: qpool(m, strides=[2, 2], ceil_mode=1)),
    ("Concat", "axis", 1, qjoined),
    ("Cast", "to", TensorProto.INT8, qsum),
    ("Resize", "mode", "nearest", lambda m: qresized(m, mode="linear")),
    ("Resize", "nearest_mode", "floor", lambda m: qresized(m, nearest_mode="ceil")),
    (
        "Resize",
        "coordinate_transformation_mode",
        "asymmetric",
        lambda m: qresized(m, coordinate_transformation_mode="half_pixel"),
    ),
]


INTEGER_OPERANDS: list[tuple[str, int, Callable[[NDArray], Any], Callable[[IntegerModel], str]]] = [
    ("QLinearConv", 1, lambda scale: scale * 2, qconv),
    ("QLinearConv", 3, lambda w: w[..., ::-1], qconv),
    ("QLinearConv", 4, lambda scale: scale / 2, qconv),
    ("QLinearConv", 5, lambda zero: zero - 1, qconv),
    ("QLinearConv", 6, lambda scale: scale / 2, qconv),
    ("QLinearConv", 8, lambda bias: bias[::-1], qconv),
    ("Clip", 1, lambda low: low * 0, qclip),
    ("Clip", 2, lambda high: high + 1, qclip),
    ("Slice", 1, lambda starts: starts[::-1], qsliced),
    ("Slice", 2, lambda ends: ends - 6, qsliced),
    ("Slice", 3, lambda axes: axes[::-1], qsliced),
    ("Slice", 4, np.ones_like, qsliced),
    ("Clip", 1, lambda low: low - 1 - 127, qsum),
    ("Clip", 2, lambda high: high - 5, qsum),
    ("Sub", 1, lambda zero: zero - 1, qsum),
    ("QLinearAdd", 6, lambda scale: scale / 2, lambda m: qadd(m, 1.0, 1.0, 2.0)),
    ("QLinearAdd", 4, np.ones_like, lambda m: qadd(m, 1.0, 2.0, 1.0)),
    ("QuantizeLinear", 1, lambda scale: scale * 2, qends),
    ("DequantizeLinear", 1, lambda scale: scale * 2, qends),
    ("DequantizeLinear", 1, lambda scale: scale * 1.002, qends),
]


def built(build: Callable[[IntegerModel], str]) -> onnx.ModelProto:
    m = IntegerModel()
    output = build(m)
    real = any(node.op_type == "QuantizeLinear" for node in m.nodes)
    model = m.build(output, element=TensorProto.FLOAT if real else None)
    if real:
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return model


@pytest.mark.parametrize(("operator", "name", "wrong", "build"), INTEGER_CASES, ids=ids(INTEGER_CASES))
def test_a_misread_attribute_of_an_integer_file(
    operator: str, name: str, wrong: Any, build: Callable[[IntegerModel], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = built(build)
    misread(monkeypatch, operator, name, wrong)
    with pytest.raises(WorkloadError) as caught:
        check(model)
    says(caught.value, operator, model)


@pytest.mark.parametrize(("operator", "index", "wrong", "build"), INTEGER_OPERANDS, ids=ids(INTEGER_OPERANDS))
def test_a_misread_operand_of_an_integer_file(
    operator: str,
    index: int,
    wrong: Callable[[NDArray], Any],
    build: Callable[[IntegerModel], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = built(build)
    misread_operand(monkeypatch, operator, index, wrong)
    with pytest.raises(OnnxError) as caught:
        check(model)
    says(caught.value, operator, model)


@pytest.mark.parametrize(
    "build",
    [qconv, qgrouped, qpool, qclip, qsliced, qsum, qadd, qends, qresized, lambda m: qconv(m, auto_pad="SAME_LOWER")],
)
def test_integer_files_that_are_read_right_pass(build: Callable[[IntegerModel], str]) -> None:
    check(built(build))


def test_all_attributes_that_the_integer_reader_looks_at_have_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    read = misread(monkeypatch, "", "", None)
    for *_, build in INTEGER_CASES:
        with suppress(OnnxError):
            from_onnx(built(build), "net")
    covered = {(operator, name) for operator, name, *_ in INTEGER_CASES}
    assert read <= covered
    names = {name for module in (arithmetic, functions, layout, sums, windows) for name in looked_at(module)}
    assert names <= {name for _, name in covered}


def test_weights_of_the_other_sign_do_not_saturate_in_pairs() -> None:
    """uint8 by int8 of the largest size: 2 x 255 x 127 is past 16 bits."""
    m = IntegerModel(shape=(1, 16, 5, 5))
    weights = np.where(np.arange(16)[:, None, None] % 4 < 2, 127, -127) * np.ones((8, 16, 3, 3))
    zero = m.array("signed", np.array(0, np.int8))
    names = [m.scale(name, value) for name, value in (("sx", 1.0), ("sw", 2.0**-12), ("sy", 1.0))]
    w = m.array("w", weights.astype(np.int8))
    m.node("QLinearConv", ["x", names[0], "zero", w, names[1], zero, names[2], "zero"], "y")
    check(m.build("y"))


def test_an_output_that_is_another_tensor_is_told() -> None:
    model = built(lambda m: m.node("Identity", [qconv(m, qconv(m, output="a", w=WEIGHTS[:2]))], "z"))
    graph = check(model)
    model.graph.node[-1].input[0] = "a"
    inputs = random_inputs(graph, 0)
    assert [value.name for value in to_onnx(graph).graph.output] == [*graph.outputs], "unless all are asked for"
    result = run(session(to_onnx(graph, all_outputs=True), "golden"), {"x": flip(inputs["x"])})
    golden = inputs | {name: unflip(array) for name, array in result.items()}
    with pytest.raises(OnnxError, match=r"output 'z' is made of 'a' in the file, .* has the outputs y;"):
        check_integer(model, graph, [(inputs, golden)], "net")


def test_the_first_different_byte_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(qclip)
    right = check(model)
    inputs = random_inputs(right, 0)
    sums = unflip(run(session(to_onnx(right, all_outputs=True), "golden"), {"x": flip(inputs["x"])})["y"])
    misread_operand(monkeypatch, "Clip", 2, lambda high: high - 1)
    with pytest.raises(OnnxError) as caught:
        check(model)
    at = np.argwhere(sums == 32)[0].tolist()
    assert str(caught.value) == (
        f"net: nodes n_a (QLinearConv), n_y (Clip): misread: tensor 'y' at {at} is 32 when ONNX Runtime runs the file, "
        "31 in the network that was read from it; report it with the file"
    )
