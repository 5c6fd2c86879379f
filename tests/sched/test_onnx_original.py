"""The user's file in ONNX Runtime is the reference: whatever a reader takes for something else is caught and named.

Each case makes a reader misread one attribute or operand of one operator, as a mistake in it would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from meshloom.sched.onnx import float_reader, folding, lowering, reader, windows
from meshloom.sched.onnx.errors import OnnxError, node_name
from meshloom.sched.onnx.load import attributes
from meshloom.sched.onnx.original import check_integer
from meshloom.sched.onnx.quantise import quantise
from meshloom.sched.onnx.reader import from_onnx
from meshloom.sched.onnx.runtime import run, session
from meshloom.sched.onnx.writer import flip, to_onnx, unflip
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import WorkloadError

from .float_models import FloatModel, run_float
from .integer_models import IntegerModel
from .random_graphs import random_inputs

#: Attributes that decide only whether a file is taken; the layers that it becomes are the same.
WITHOUT_EFFECT = {("Softmax", "axis")}

Read = set[tuple[str, str]]


class Spy(dict[str, Any]):
    """Attributes of a node that note which of them are looked at."""

    def __init__(self, operator: str, values: dict[str, Any], read: Read) -> None:
        super().__init__(values)
        self.operator, self.read = operator, read

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add((self.operator, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add((self.operator, key))
        return super().__getitem__(key)


def misread(monkeypatch: pytest.MonkeyPatch, operator: str, name: str, wrong: Any) -> Read:
    """Readers see `wrong` for an attribute (None: as if it were not there); what they look at is noted."""
    read: Read = set()

    def seen(node: onnx.NodeProto) -> dict[str, Any]:
        values = Spy(node.op_type, attributes(node), read)
        if node.op_type == operator:
            if wrong is None:
                values.pop(name, None)
            else:
                values[name] = wrong
        return values

    for module in (lowering, folding):
        monkeypatch.setattr(module, "attributes", seen)
    return read


def misread_operand(
    monkeypatch: pytest.MonkeyPatch, operator: str, index: int, wrong: Callable[[NDArray], Any]
) -> None:
    """Readers see `wrong(array)` for a constant operand."""
    right = lowering.Lowering.constant

    def seen(self: Any, node: onnx.NodeProto, at: int, what: str) -> NDArray[Any]:
        array = right(self, node, at, what)
        return np.asarray(wrong(array)).astype(array.dtype) if (node.op_type, at) == (operator, index) else array

    monkeypatch.setattr(lowering.Lowering, "constant", seen)


def conv(m: FloatModel, source: str = "x", **more: Any) -> str:
    return m.conv(source, "y", (4, 3, 3, 2), **more)


def grouped(m: FloatModel) -> str:
    """Two groups, and weights that would do for one convolution of half as many channels."""
    return m.conv(m.conv("x", "a", (6, 3, 1, 1)), "y", (6, 3, 3, 3), group=2)


def pool(kind: str, **more: Any) -> Callable[[FloatModel], str]:
    return lambda m: m.node(kind, "x", "y", **({"kernel_shape": [3, 2]} | more))


def gemm(m: FloatModel, *, square: bool = False, **more: Any) -> str:
    flat = m.node("Flatten", m.node("GlobalAveragePool", "x", "p"), "f")
    size = (3, 3) if square else ((4, 3) if more.get("transB") else (3, 4))
    return m.node("Gemm", [flat, m.normal(*size), m.normal(size[0] if more.get("transB") else size[1])], "y", **more)


def normalised(m: FloatModel) -> str:
    numbers = [m.constant(m.random.uniform(0.5, 1, 3)) for _ in range(4)]
    return m.node("BatchNormalization", ["x", *numbers], "y", epsilon=1e-2)


def reshaped(m: FloatModel, operator: str, *more: str, **attributes: Any) -> str:
    pooled = m.node("GlobalAveragePool", m.conv("x", "a", (4, 3, 1, 1)), "p")
    return m.node("Gemm", [m.node(operator, [pooled, *more], "y", **attributes), m.normal(4, 5), m.normal(5)], "z")


def unsqueezed(m: FloatModel) -> str:
    flat = m.node("Flatten", m.node("GlobalAveragePool", "x", "p"), "f")
    return m.conv(m.node("Unsqueeze", m.node("Unsqueeze", flat, "u", axes=[2]), "v", axes=[3]), "y", (4, 3, 1, 1))


def truncated(m: FloatModel) -> str:
    whole = m.node("Cast", m.conv("x", "a", (4, 3, 1, 1)), "whole", to=TensorProto.INT32)
    return m.conv(m.node("Cast", whole, "b", to=TensorProto.FLOAT), "y", (4, 4, 1, 1))


def padded(m: FloatModel) -> str:
    return m.conv(m.node("Pad", "x", "p", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.0), "y", (4, 3, 3, 3))


def padded_with_ones(m: FloatModel) -> str:
    return m.conv(m.node("Pad", "x", "p", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=1.0), "y", (4, 3, 3, 3))


def reflected(m: FloatModel) -> str:
    return m.conv(m.node("Pad", ["x", m.integers(0, 0, 1, 1, 0, 0, 1, 1)], "p", mode="reflect"), "y", (4, 3, 3, 3))


def sliced(m: FloatModel) -> str:
    return m.node("Slice", m.conv("x", "a", (4, 3, 1, 1)), "y", starts=[1, 2], ends=[99, 99], axes=[2, 3])


def sliced_by_operands(m: FloatModel) -> str:
    operands = [m.integers(1, 2), m.integers(99, 99), m.integers(2, 3), m.integers(2, 1)]
    return m.node("Slice", [m.conv("x", "a", (4, 3, 1, 1)), *operands], "y")


def clipped(m: FloatModel, **more: Any) -> str:
    return m.node("Clip", m.conv("x", "a", (4, 3, 1, 1)), "y", **more)


def joined(m: FloatModel, axis: int = 1) -> str:
    return m.node("Concat", [m.conv("x", name, (4, 3, 1, 1)) for name in "ab"], "y", axis=axis)


def trained(m: FloatModel) -> str:
    numbers = [m.constant(m.random.uniform(0.5, 1, 3)) for _ in range(4)]
    return m.node("BatchNormalization", ["x", *numbers], "y", training_mode=1)


FLOAT_CASES: list[tuple[str, str, Any, Callable[[FloatModel], str], dict[str, Any]]] = [
    ("Conv", "pads", [0, 1, 2, 1], lambda m: conv(m, pads=[1, 0, 2, 1]), {}),
    ("Conv", "pads", [1, 0, 1, 2], lambda m: conv(m, pads=[1, 0, 2, 1]), {}),
    ("Conv", "pads", None, lambda m: conv(m, pads=[1, 1, 1, 1]), {}),
    ("Conv", "strides", [2, 1], lambda m: conv(m, strides=[1, 2]), {}),
    ("Conv", "strides", None, lambda m: conv(m, strides=[2, 2]), {}),
    ("Conv", "dilations", None, lambda m: conv(m, dilations=[2, 2], pads=[2, 1, 2, 1]), {}),
    ("Conv", "auto_pad", "SAME_LOWER", lambda m: conv(m, auto_pad="SAME_UPPER"), {}),
    ("Conv", "auto_pad", "SAME_UPPER", lambda m: conv(m, auto_pad="SAME_LOWER"), {}),
    ("Conv", "auto_pad", "VALID", lambda m: conv(m, auto_pad="SAME_UPPER"), {}),
    ("Conv", "group", 3, grouped, {}),
    ("Conv", "kernel_shape", [2, 3], conv, {}),
    ("Gemm", "alpha", None, lambda m: gemm(m, alpha=0.5), {}),
    ("Gemm", "beta", None, lambda m: gemm(m, beta=0.5), {}),
    ("Gemm", "transB", None, lambda m: gemm(m, square=True, transB=1), {}),
    ("Gemm", "transB", 1, lambda m: gemm(m, square=True), {}),
    ("Gemm", "transA", None, lambda m: gemm(m, transA=1), {}),
    ("BatchNormalization", "epsilon", None, normalised, {}),
    ("BatchNormalization", "training_mode", None, trained, {"opset": 15}),
    ("Clip", "min", -5.0, lambda m: clipped(m, min=0.0, max=0.5), {"opset": 10}),
    ("Clip", "min", None, lambda m: clipped(m, min=0.0, max=0.5), {"opset": 10}),
    ("Clip", "max", 0.4, lambda m: clipped(m, min=0.0, max=0.5), {"opset": 10}),
    ("MaxPool", "kernel_shape", [2, 3], pool("MaxPool"), {}),
    ("MaxPool", "strides", None, pool("MaxPool", strides=[2, 2]), {}),
    ("MaxPool", "dilations", None, pool("MaxPool", dilations=[2, 2], pads=[2, 1, 0, 0]), {}),
    ("MaxPool", "pads", [0, 1, 0, 0], pool("MaxPool", pads=[0, 0, 0, 1]), {}),
    ("MaxPool", "auto_pad", "SAME_LOWER", pool("MaxPool", auto_pad="SAME_UPPER"), {}),
    ("MaxPool", "ceil_mode", None, pool("MaxPool", strides=[2, 2], ceil_mode=1), {}),
    ("AveragePool", "kernel_shape", [2, 3], pool("AveragePool"), {}),
    ("AveragePool", "strides", None, pool("AveragePool", strides=[2, 2]), {}),
    ("AveragePool", "dilations", None, pool("AveragePool", dilations=[2, 2]), {"opset": 19}),
    ("AveragePool", "pads", None, pool("AveragePool", pads=[1, 1, 1, 1], count_include_pad=1), {}),
    ("AveragePool", "auto_pad", "SAME_LOWER", pool("AveragePool", auto_pad="SAME_UPPER", count_include_pad=1), {}),
    ("AveragePool", "ceil_mode", None, pool("AveragePool", strides=[2, 2], ceil_mode=1), {}),
    ("AveragePool", "count_include_pad", 1, pool("AveragePool", pads=[1, 1, 1, 1]), {}),
    ("ReduceMean", "axes", [2, 3], lambda m: m.node("ReduceMean", conv(m), "z", axes=[1, 2]), {}),
    ("ReduceMean", "keepdims", None, lambda m: m.node("ReduceMean", conv(m), "z", axes=[2, 3], keepdims=0), {}),
    ("Concat", "axis", 1, lambda m: joined(m, axis=2), {}),
    ("Slice", "starts", [2, 1], sliced, {"opset": 9}),
    ("Slice", "axes", [3, 2], sliced, {"opset": 9}),
    ("Slice", "ends", [99, 99],
     lambda m: m.node("Slice", conv(m), "z", starts=[0, 0], ends=[5, 5], axes=[2, 3]), {"opset": 9}),
    ("SpaceToDepth", "blocksize", 4, lambda m: m.node("SpaceToDepth", "x", "y", blocksize=2), {}),
    ("Cast", "to", TensorProto.FLOAT, truncated, {}),
    ("Flatten", "axis", None, lambda m: reshaped(m, "Flatten", axis=2), {}),
    ("Reshape", "allowzero", 1, lambda m: reshaped(m, "Reshape", m.integers(0, 4), allowzero=0), {"opset": 14}),
    ("Squeeze", "axes", [3], lambda m: reshaped(m, "Squeeze", axes=[2, 3]), {"opset": 12}),
    ("Unsqueeze", "axes", [1], unsqueezed, {"opset": 12}),
    ("Pad", "pads", [0, 0, 0, 1, 0, 0, 2, 0], padded, {"opset": 10}),
    ("Pad", "value", None, padded_with_ones, {"opset": 10}),
    ("Pad", "mode", None, reflected, {}),
]  # fmt: skip


def ids(cases: list[Any]) -> list[str]:
    return [f"{operator}-{what}-{index}" for index, (operator, what, *_) in enumerate(cases)]


@pytest.mark.parametrize(("operator", "name", "wrong", "build", "more"), FLOAT_CASES, ids=ids(FLOAT_CASES))
def test_a_misread_attribute_of_a_float_file(
    operator: str,
    name: str,
    wrong: Any,
    build: Callable[[FloatModel], str],
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = FloatModel(**more)
    model = m.build(build(m))
    misread(monkeypatch, operator, name, wrong)
    with pytest.raises(OnnxError) as caught:
        quantise(model, m.data(2), name="net")
    says(caught.value, operator, model)


def says(error: WorkloadError, operator: str, model: onnx.ModelProto) -> None:
    """The message names the misread node, tensor and both values or shapes; a node that is refused for it is named."""
    text = str(error)
    if "misread" not in text:
        assert any(node_name(node) in text or f"layer {node.output[0]} " in text for node in model.graph.node), text
        return
    assert any(node_name(node) in text for node in model.graph.node if node.op_type == operator), text
    values = r"at \[[\d, ]+\] is \S+ when ONNX Runtime runs the file, \S+ in the network"
    shapes = r"has the shape \[[\d, ]+\] when ONNX Runtime runs the file, \[[\d, ]+\] in the network"
    assert re.search(rf"tensor '\w+' ({values}|{shapes}) that was read from it", text), text


FLOAT_OPERANDS: list[tuple[str, int, Callable[[NDArray], Any], Callable[[FloatModel], str], dict[str, Any]]] = [
    ("Conv", 1, lambda w: w[..., ::-1], conv, {}),
    ("Conv", 2, lambda b: b[::-1], conv, {}),
    ("Gemm", 2, lambda b: b[::-1], gemm, {}),
    ("BatchNormalization", 3, lambda mean: mean * 1.01, normalised, {}),
    ("BatchNormalization", 4, lambda variance: variance * 1.01, normalised, {}),
    ("Slice", 1, lambda starts: starts[::-1], sliced_by_operands, {}),
    ("Slice", 3, lambda axes: axes[::-1], sliced_by_operands, {}),
    ("Slice", 4, np.ones_like, sliced_by_operands, {}),
    ("Clip", 1, lambda low: low - np.inf, lambda m: m.node("Clip", ["x", m.constant(0.0), m.constant(0.5)], "y"), {}),
    ("Clip", 2, lambda high: high + 0.1, lambda m: m.node("Clip", ["x", m.constant(0.0), m.constant(0.5)], "y"), {}),
    ("Pad", 1, lambda pads: pads[[0, 1, 3, 2, 4, 5, 7, 6]],
     lambda m: m.conv(m.node("Pad", ["x", m.integers(0, 0, 1, 0, 0, 0, 2, 0)], "p"), "y", (4, 3, 3, 3)), {}),
    ("Pad", 2, np.zeros_like,
     lambda m: m.conv(m.node("Pad", ["x", m.integers(*[0, 0, 1, 1] * 2), m.constant(1.0)], "p"), "y", (4, 3, 1, 1)),
     {}),
    ("Reshape", 1, lambda shape: [1, -1, 1, 1], lambda m: reshaped(m, "Reshape", m.integers(1, -1)), {}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "index", "wrong", "build", "more"), FLOAT_OPERANDS, ids=ids(FLOAT_OPERANDS))
def test_a_misread_operand_of_a_float_file(
    operator: str,
    index: int,
    wrong: Callable[[NDArray], Any],
    build: Callable[[FloatModel], str],
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = FloatModel(**more)
    model = m.build(build(m))
    misread_operand(monkeypatch, operator, index, wrong)
    with pytest.raises(OnnxError, match="misread") as caught:
        quantise(model, m.data(2), name="net")
    says(caught.value, operator, model)


def test_all_attributes_that_the_float_reader_looks_at_have_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    read = misread(monkeypatch, "", "", None)
    for *_, build, more in FLOAT_CASES:
        m = FloatModel(**more)
        model = m.build(build(m))
        with suppress(OnnxError):
            quantise(model, m.data(1))
    covered = {(operator, name) for operator, name, *_ in FLOAT_CASES}
    assert read - WITHOUT_EFFECT <= covered
    # and no operator that has attributes is missing
    names = {name for module in (float_reader, windows) for name in looked_at(module)}
    assert names <= {name for _, name in covered | WITHOUT_EFFECT}


def looked_at(module: Any) -> set[str]:
    """Attributes that the source of a module asks for."""
    text = Path(module.__file__).read_text(encoding="utf-8")
    return set(re.findall(r'attributes(?:\.get\(|\[)"(\w+)"', text))


def test_the_first_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node, tensor, coordinates and both values; what stands behind it is not blamed."""
    m = FloatModel()
    m.node("Relu", m.conv("x", "a", (4, 3, 3, 3), pads=[1, 1, 1, 1]), "r")
    m.conv("r", "y", (4, 4, 1, 1))
    misread_operand(monkeypatch, "Conv", 2, lambda bias: bias + (np.arange(4) == 2))
    data = m.data(2)
    with pytest.raises(OnnxError) as caught:
        quantise(m.build("y"), data, name="net")
    sums, right = (run_float(m.build(name), data[0])[name] for name in "ar")
    at = tuple(np.argwhere((sums > -1) & (np.arange(4) == 2)[:, None, None])[0].tolist())
    assert str(caught.value) == (
        f"net: nodes n_a (Conv), n_r (Relu): misread: tensor 'r' at {list(at)} is {right[at]:g} when ONNX Runtime runs "
        f"the file, {max(0.0, sums[at] + 1):g} in the network that was read from it for calibration input 0; report it "
        "with the file"
    )


def test_every_calibration_input_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clamp that was misread shows only where it is reached."""
    m = FloatModel()
    m.node("Clip", ["x", m.constant(0.0), m.constant(6.0)], "y")
    misread_operand(monkeypatch, "Clip", 2, lambda high: high + 1)
    with pytest.raises(OnnxError, match=r"is 6 when .*, 7 in the network .* for calibration input 3"):
        quantise(m.build("y"), [*m.data(3), 9 + m.data(1)[0]], name="net")


def test_models_of_half_precision_may_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bits of a tensor in between are no misreading; a wrong clamp is."""
    m = FloatModel()
    half = m.node("Cast", m.conv("x", "a", (4, 3, 3, 3)), "half", to=TensorProto.FLOAT16)
    m.node("Clip", [m.node("Cast", half, "b", to=TensorProto.FLOAT), m.constant(0.0), m.constant(1.0)], "y")
    model = m.build("y")
    quantise(model, m.data(2))
    misread_operand(monkeypatch, "Clip", 2, lambda high: high - 0.1)
    with pytest.raises(OnnxError, match=r"is 1 when .*, 0.9 in the network"):
        quantise(model, m.data(2), name="net")


# -- integer files ------------------------------------------------------------------------------------------------

WEIGHTS = np.random.default_rng(0).integers(-128, 128, (4, 2, 3, 2)).astype(np.int8)
BIAS = np.array([900, -700, 400, 0], np.int32)


def check(model: onnx.ModelProto) -> Graph:
    """Reads a model and compares it with itself on two random inputs."""
    graph = from_onnx(model, "net")
    cases = []
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        feeds = {name: flip(array) for name, array in inputs.items()}
        found = run(session(to_onnx(graph, all_outputs=True), "golden"), feeds)
        cases.append((inputs, inputs | {name: unflip(array) for name, array in found.items()}))
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
    "build", [qconv, qgrouped, qpool, qclip, qsliced, qsum, qadd, qends, lambda m: qconv(m, auto_pad="SAME_LOWER")]
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
    assert looked_at(reader) | looked_at(windows) <= {name for _, name in covered}


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
    found = run(session(to_onnx(graph, all_outputs=True), "golden"), {"x": flip(inputs["x"])})
    golden = inputs | {name: unflip(array) for name, array in found.items()}
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
