"""The user's float file in ONNX Runtime is the reference: whatever the reader misreads is caught and named.

Each case makes a reader misread one attribute or operand of one operator, as a mistake in it would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from math import inf
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from meshloom.sched.workload.onnx import operators, windows
from meshloom.sched.workload.onnx.building import context, inputs
from meshloom.sched.workload.onnx.deviations import Deviations
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.floats import FloatNet
from meshloom.sched.workload.onnx.original import check_float
from meshloom.sched.workload.onnx.pins import NOTHING, Rounded, Rounding
from meshloom.sched.workload.onnx.quantise import quantise

from ...float_models import FloatModel, run_float
from .misreading import ids, looked_at, misread, misread_operand, says


def conv(m: FloatModel, source: str = "x", **more: Any) -> str:
    return m.conv(source, "y", (4, 3, 3, 2), **more)


def scattered(m: FloatModel, **attributes: Any) -> str:
    """Two rows in the place of others, or added to them."""
    places = m.constant(np.tile([[3], [1]], 4), np.int64)
    updates = m.node("MatMul", [m.normal(2, 4, scale=1), "x"], "u")
    a = m.node("ScatterElements", [m.node("Tanh", "x", "t"), places, updates], "s", **attributes)
    return m.node("MatMul", [a, m.normal(4, 4)], "y")


def gathered(m: FloatModel, operator: str, size: tuple[int, ...], **more: Any) -> str:
    places = m.constant(np.zeros(size) if operator == "GatherND" else np.ones(size), np.int64)
    a = m.node(operator, [conv(m), places], "g", **more)
    return m.node("MaxPool", a, "z", kernel_shape=[1, 1])


def spectra(m: FloatModel) -> str:
    operands = ["x", m.constant(8, np.int64), m.constant(np.hanning(16)), m.constant(16, np.int64)]
    return m.node("STFT", operands, "z", onesided=1)


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


def shape_computed(m: FloatModel) -> str:
    pooled = m.node("GlobalAveragePool", m.conv("x", "a", (4, 3, 1, 1)), "p")
    channels = m.node("Shape", pooled, "channels", start=1, end=2)
    flat = m.node("Reshape", [pooled, m.node("Concat", [m.integers(1), channels], "shape", axis=0)], "y")
    return m.node("Gemm", [flat, m.normal(4, 5), m.normal(5)], "z")


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


def split(m: FloatModel, *more: str, **attributes: Any) -> str:
    m.nodes.append(helper.make_node("Split", [m.conv("x", "a", (4, 3, 1, 1)), *more], ["b", "c"], "n_b", **attributes))
    return m.conv("c", "y", (3, attributes.get("split", (1, 3))[1], 1, 1))


def transposed(m: FloatModel, **more: Any) -> str:
    groups = more.get("group", 1)
    w, bias = m.normal(4, 6 // groups, 3, 2), m.normal(6)
    return m.node("ConvTranspose", [m.conv("x", "a", (4, 3, 1, 1)), w, bias], "y", **more)


def shuffled(m: FloatModel, perm: Sequence[int] = (0, 2, 1, 3, 4)) -> str:
    groups = m.node("Reshape", [m.conv("x", "a", (6, 3, 1, 1)), m.integers(1, 2, 3, 8, 8)], "r")
    back = m.node("Reshape", [m.node("Transpose", groups, "t", perm=list(perm)), m.integers(1, 6, 8, 8)], "s")
    return m.conv(back, "y", (6, 1, 3, 3), group=6)


def deep(m: FloatModel, **more: Any) -> str:
    return m.conv(m.node("DepthToSpace", m.conv("x", "a", (8, 3, 1, 1)), "d", **more), "y", (3, 2, 3, 3))


def resized(m: FloatModel, **more: Any) -> str:
    return m.conv(m.node("Resize", ["x", "", m.constant([1.0, 1.0, 2.0, 2.0])], "r", **more), "y", (4, 3, 3, 3))


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
    ("ReduceMean", "noop_with_empty_axes", 0,
     lambda m: m.node("MaxPool", m.node("ReduceMean", conv(m), "p", noop_with_empty_axes=1), "z", kernel_shape=[1, 1]),
     {"opset": 18}),
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
    ("Shape", "start", None, shape_computed, {"opset": 15}),
    ("Shape", "end", None, shape_computed, {"opset": 15}),
    ("Pad", "pads", [0, 0, 0, 1, 0, 0, 2, 0], padded, {"opset": 10}),
    ("Pad", "value", None, padded_with_ones, {"opset": 10}),
    ("Pad", "mode", None, reflected, {}),
    ("Split", "axis", 2, lambda m: split(m, m.integers(1, 3), axis=1), {}),
    ("Split", "split", [2, 2], lambda m: split(m, axis=1, split=[1, 3]), {"opset": 11}),
    ("Gather", "axis", 2, lambda m: m.conv(m.node("Gather", ["x", m.integers(1, 0, 2)], "g", axis=1), "y",
     (4, 3, 1, 1)), {}),
    ("GatherND", "batch_dims", None, lambda m: gathered(m, "GatherND", (1, 2, 1), batch_dims=1), {}),
    ("GatherElements", "axis", 2, lambda m: gathered(m, "GatherElements", (1, 4, 5, 5), axis=3), {}),
    ("ScatterElements", "axis", 1, lambda m: scattered(m, axis=0), {"shape": (4, 4), "opset": 18}),
    ("ScatterElements", "reduction", "none", lambda m: scattered(m, reduction="add"), {"shape": (4, 4), "opset": 18}),
    ("Einsum", "equation", "bchw,ck->bkhw", lambda m: m.node("Einsum", [conv(m), m.normal(4, 4)], "z",
     equation="bchw,kc->bkhw"), {}),
    ("STFT", "onesided", 0, spectra, {"shape": (1, 48), "opset": 17}),
    ("Transpose", "perm", [0, 1, 2, 3, 4], shuffled, {}),
    ("DepthToSpace", "blocksize", 1, lambda m: deep(m, blocksize=2), {}),
    ("DepthToSpace", "mode", "CRD", lambda m: deep(m, blocksize=2), {}),
    ("Resize", "mode", None, lambda m: resized(m, mode="linear"), {}),
    ("ConvTranspose", "strides", [2, 2], lambda m: transposed(m, strides=[2, 1]), {}),
    ("ConvTranspose", "pads", [0, 1, 1, 0], lambda m: transposed(m, strides=[2, 2], pads=[1, 0, 0, 1]), {}),
    ("ConvTranspose", "pads", None, lambda m: transposed(m, pads=[1, 1, 1, 1]), {}),
    ("ConvTranspose", "output_padding", None, lambda m: transposed(m, strides=[2, 2], output_padding=[1, 1]), {}),
    ("ConvTranspose", "output_shape", [15, 16], lambda m: transposed(m, strides=[2, 2], output_shape=[16, 16]), {}),
    ("ConvTranspose", "auto_pad", "SAME_LOWER", lambda m: transposed(m, strides=[2, 1], auto_pad="SAME_UPPER"), {}),
    ("ConvTranspose", "dilations", None, lambda m: transposed(m, dilations=[2, 2]), {}),
    ("ConvTranspose", "group", 1, lambda m: transposed(m, group=2), {}),
]  # fmt: skip


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
    ("Reshape", 1, lambda shape: np.array([1, 1, -1]), lambda m: reshaped(m, "Reshape", m.integers(1, -1)), {}),
    ("Split", 1, lambda sizes: sizes[::-1],
     lambda m: split(m, m.integers(1, 3), axis=1) and m.node("Relu", "c", "z"), {}),
    ("Gather", 1, lambda at: at[::-1], lambda m: m.conv(m.node("Gather", ["x", m.integers(2, 0)], "g", axis=1), "y",
     (4, 2, 1, 1)), {}),
    ("Tile", 1, lambda counts: counts[[0, 1, 3, 2]], lambda m: m.conv(m.node("Tile", ["x", m.integers(1, 1, 2, 1)],
     "t"), "y", (4, 3, 3, 3)), {}),
    ("Expand", 1, lambda shape: shape[[0, 1, 3, 2]], lambda m: m.conv(m.node("Expand", [m.node("GlobalMaxPool", "x",
     "g"), m.integers(1, 1, 3, 5)], "e"), "y", (4, 3, 3, 3)), {}),
    ("ConvTranspose", 1, lambda w: w[..., ::-1], transposed, {}),
    ("ConvTranspose", 2, lambda b: b[::-1], transposed, {}),
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
    assert read <= covered
    # and no operator that has attributes is missing
    families = [import_module(f"{operators.__name__}.{item.name}") for item in iter_modules(operators.__path__)]
    names = {name for module in (*families, context, inputs, windows) for name in looked_at(module)}
    assert names <= {name for _, name in covered}


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


def test_an_output_may_be_an_input() -> None:
    """Nothing computes it, so there is nothing to compare."""
    m = FloatModel()
    m.node("Identity", "x", "same")
    net = fold(m.build(m.conv("x", "y", (4, 3, 3, 3)), "same"), "net", normalised=False)
    data = [{"x": x} for x in m.data(1)]
    check_float(m.build("y", "same"), net, data, data)


def products() -> FloatNet:
    """p of two tensors of 6 channels and 5 pixels, elementwise; q of them as matrices."""
    m = FloatModel((1, 3, 1, 5))
    a, b = (m.conv("x", name, (6, 3, 1, 1)) for name in "ab")
    m.node("Mul", [a, b], "p")
    first, second = (m.node("Reshape", [name, m.integers(1, 6, 5)], f"{name}_rows") for name in (a, b))
    m.node("MatMul", [first, m.node("Transpose", second, "t", perm=[0, 2, 1])], "q")
    return fold(m.build("p", "q"), "net", normalised=False)


def test_the_largest_sum_of_products_is_that_of_the_largest_numbers() -> None:
    """Elementwise one product, of matrices as many as the first one has columns."""
    net = products()
    operands = {name: np.full((1, 6, 1, 5), size) for name, size in (("a", 3.0), ("b", -4.0))}
    sums, slack = Deviations(net, NOTHING).of(operands, {}, {}, "abpq")
    assert (sums["p"], sums["q"]) == (12, 5 * 12)
    assert not any(slack.values())


@pytest.mark.parametrize(
    ("places", "least", "most"), [((1.0, 3.0), 0.01, 0.011), ((-0.03, 3.0), 15.0, 18.0), ((-0.005, 0.7), 500.0, inf)]
)
def test_what_a_function_with_a_pole_may_differ_by(places: tuple[float, ...], least: float, most: float) -> None:
    """1 / x of a number that is rounded to 0.02: beyond, near and across 0, which no number need be as near as."""
    m = FloatModel((1, 1, 1, 2))
    m.node("Reciprocal", "x", "y")
    net = fold(m.build("y"), "net", normalised=False)
    rounding = Rounding({"q": Rounded(-inf, inf, 0.01)}, {})
    net.values["q"] = "x"
    x = np.array(places, np.float32).reshape(1, 1, 1, 2)
    _, slack = Deviations(net, rounding).of({"x": x}, {"q": x}, {}, ())
    assert least < slack["y"] < most


def test_what_lies_otherwise_than_the_tensor_of_its_name_is_known() -> None:
    assert products().turned == {"t"}
