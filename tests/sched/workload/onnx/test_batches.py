"""First axes that are batches become 1; those that are steps, tokens or channels stay, behind a batch of 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from meshloom.sched.workload.onnx.batches import _near
from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.load import bound, check, load_model
from meshloom.sched.workload.onnx.quantise import quantise_with_report

from ...float_models import FloatModel, decibels, integer_outputs, run_float


def shapes(model: onnx.ModelProto) -> list[list[int]]:
    return [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]


def opened(model: onnx.ModelProto, *symbols: str) -> onnx.ModelProto:
    """A model whose input leaves its first axes open."""
    for dim, symbol in zip(model.graph.input[0].type.tensor_type.shape.dim, symbols, strict=False):
        dim.ClearField("dim_value")
        dim.dim_param = symbol
    return model


def recurrent(steps: int) -> onnx.ModelProto:
    """The last state of an LSTM, [steps, batch, features] as its operator has it."""
    m = FloatModel((steps, 1, 6))
    operands = ["x", m.normal(1, 16, 6), m.normal(1, 16, 4)]
    m.nodes.append(helper.make_node("LSTM", operands, ["all", "last"], hidden_size=4, name="lstm"))
    return m.build(
        m.node("Gemm", [m.node("Reshape", ["last", m.constant([1, 4], np.int64)], "h"), m.normal(4, 3)], "y")
    )


def attentive(tokens: int) -> onnx.ModelProto:
    """Each token takes of all others, [tokens, batch, features]; the result has as many."""
    m = FloatModel((tokens, 1, 8))
    flat = m.node("Reshape", ["x", m.constant([tokens, 8], np.int64)], "flat")
    turned = m.node("Transpose", flat, "turned", perm=[1, 0])
    scores = m.node("Softmax", m.node("MatMul", [flat, turned], "qk"), "p", axis=-1)
    return m.build(
        m.node("Reshape", [m.node("MatMul", [scores, flat], "v"), m.constant([tokens, 1, 8], np.int64)], "y")
    )


def pictures(*shape: int) -> onnx.ModelProto:
    m = FloatModel(shape)
    return m.build(m.node("Relu", m.conv("x", "a", (4, 3, 3, 3)), "y"))


def rows(*shape: int) -> onnx.ModelProto:
    """Each sample of features for itself."""
    m = FloatModel(shape)
    return m.build(m.node("MatMul", ["x", m.normal(shape[-1], 5)], "y"))


@pytest.mark.parametrize("model", [recurrent(4), attentive(5)], ids=["recurrent", "attentive"])
def test_steps_and_tokens_are_no_batch(model: onnx.ModelProto) -> None:
    """And the chip's part computes what the file does of all of them."""
    (shape,) = shapes(model)
    whole = bound(model, {}, {}, "model")
    assert shapes(whole) == [[1, *shape]]
    random = np.random.default_rng(3)
    data = [random.normal(0, 1, shape).astype(np.float32) for _ in range(4)]
    report = quantise_with_report(whole, [{"x": x[None]} for x in data])
    (end,) = report.graph.outputs
    exact = np.stack([next(iter(run_float(model, x).values())).ravel() for x in data])
    pixels = [np.moveaxis(integer_outputs(report.graph, x[None])[end], 1, -1) for x in data]  # features last
    result = np.stack([x.ravel() for x in pixels])
    assert result.shape == exact.shape
    assert decibels(exact, result) > 20


@pytest.mark.parametrize("shape", [(4, 3, 6, 6), (5, 2, 7)], ids=str)
def test_batches_become_one(shape: tuple[int, ...]) -> None:
    model = pictures(*shape) if len(shape) == 4 else rows(*shape)
    assert shapes(bound(model, {}, {}, "model")) == [[1, *shape[1:]]]
    assert shapes(bound(opened(model, "N"), {}, {}, "model")) == [[1, *shape[1:]]]


@pytest.mark.parametrize("operator", ["Log", "Acosh"])
def test_what_is_no_number_says_nothing_against_a_batch(operator: str) -> None:
    m = FloatModel((3, 4, 5), opset=17)
    assert shapes(bound(m.build(m.node(operator, "x", "y")), {}, {}, "model")) == [[1, 4, 5]]
    m = FloatModel((3, 4, 5), opset=17)
    whole = m.build(m.node("Softmax", m.node(operator, "x", "l"), "y", axis=0))
    assert shapes(bound(whole, {}, {}, "model")) == [[1, 3, 4, 5]]


def test_sizes_of_a_resize_have_the_batch() -> None:
    m = FloatModel((4, 3, 6, 6))
    wide = m.node("Resize", ["x", "", "", m.constant([4, 3, 12, 12], np.int64)], "wide", mode="nearest")
    whole = bound(m.build(m.conv(wide, "y", (4, 3, 3, 3))), {}, {}, "model")
    assert run_float(whole, m.data(1)[0][:1])["y"].shape == (1, 4, 10, 10)


def test_a_picture_without_a_batch_is_one() -> None:
    m = FloatModel((3, 6, 6))
    model = m.build(m.conv(m.node("Reshape", ["x", m.constant([1, 3, 6, 6], np.int64)], "one"), "y", (4, 3, 3, 3)))
    assert shapes(bound(model, {}, {}, "model")) == [[1, 3, 6, 6]]


def test_an_open_axis_of_steps_needs_a_size() -> None:
    why = r"^model: the first axis of its inputs is no batch, since what it computes .*; give it one \(--bind seq=N\)$"
    with pytest.raises(OnnxError, match=why):
        bound(opened(recurrent(4), "seq"), {}, {}, "model")
    assert shapes(bound(opened(recurrent(4), "seq"), {}, {"seq": 7}, "model")) == [[1, 7, 1, 6]]
    model = opened(recurrent(4), "seq", "batch")  # seen when both are there
    for names in ({"seq": 3}, {}):
        first = bound(model, {}, names, "model")
        assert shapes(first) == [[names.get("seq", 0), 0, 6]]
    assert shapes(bound(bound(model, {}, {"seq": 3}, "m"), {"x": (3, 1, 6)}, {}, "m")) == [[1, 3, 1, 6]]
    with pytest.raises(OnnxError, match="is no batch"):
        bound(bound(model, {}, {}, "m"), {"x": (1, 1, 6)}, {}, "m")


def test_shapes_stay_until_all_sizes_are_there() -> None:
    """What tokens are reshaped to is no batch that becomes 1, although an axis is open when it is first looked at."""
    model = attentive(5)
    dim = model.graph.input[0].type.tensor_type.shape.dim[1]
    dim.ClearField("dim_value")
    dim.dim_param = "batch"
    first = bound(model, {}, {}, "model")
    assert shapes(first) == [[5, 0, 8]]
    whole = bound(first, {"x": (5, 1, 8)}, {}, "model")
    assert shapes(whole) == [[1, 5, 1, 8]]
    x = np.random.default_rng(4).normal(0, 1, (5, 1, 8)).astype(np.float32)
    (result,), (exact,) = run_float(whole, x[None]).values(), run_float(attentive(5), x).values()
    np.testing.assert_allclose(result, exact, rtol=1e-5)
    with pytest.raises(OnnxError, match=r"dimension 1 of input 'x' is not fixed .batch."):
        check(first, "model", ("Reshape", "Transpose", "MatMul", "Softmax"))


def test_what_is_named_a_batch_is_one() -> None:
    assert shapes(bound(opened(recurrent(4), "batch_size"), {}, {}, "model")) == [[1, 1, 6]]


def test_scales_of_a_whole_batch_do_not_make_it_one_sample() -> None:
    m = FloatModel((4, 2, 8))
    q = m.node("DynamicQuantizeLinear", "x", "q")
    m.nodes[-1].output.extend(["scale", "zero"])
    model = m.build(m.node("DequantizeLinear", [q, "scale", "zero"], "y"))
    assert shapes(bound(model, {}, {}, "model")) == [[1, 2, 8]]


def test_sizes_of_minus_one_are_open(tmp_path: Path) -> None:
    """Converters write them so: as the batch, and where the sizes of a picture are not known."""
    m = FloatModel((-1, 3, -1, 8))
    onnx.save(m.build(m.conv("x", "y", (2, 3, 3, 3))), tmp_path / "open.onnx")
    model = load_model(tmp_path / "open.onnx")
    with pytest.raises(OnnxError, match=r"dimension 2 of input 'x' is not fixed \(unknown\); give it a size"):
        check(model, "open", {"Conv"})
    assert check(bound(model, {}, {"x:2": 6}, "open"), "open", {"Conv"}).input_sizes == {"x": (1, 3, 6, 8)}


@pytest.mark.parametrize(
    ("kind", "off", "near"),
    [(np.int8, 1, True), (np.int8, 2, False), (np.float32, 1e-6, True), (np.float32, 0.1, False)],
)
def test_whole_numbers_of_a_sample_may_be_a_step_off(kind: type, off: float, near: bool) -> None:
    """Products of a batch are added up in another order."""
    own = np.array([3, -40, 0], kind)
    assert _near(own, (own + off).astype(kind), 1e-4) is near
