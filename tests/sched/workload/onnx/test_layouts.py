"""Tensors whose axes lie in several orders in one network: heads and tokens joined, constants among them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from meshloom.sched.workload.onnx.building.views import MOST_PIECES
from meshloom.sched.workload.onnx.building.ways import find_way
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.load import check
from meshloom.sched.workload.onnx.passes.table import rewrite
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip

from ...float_models import FloatModel, decibels, integer_outputs, run_float
from .test_attention import keeps_its_meaning, kinds, linear


def decode_step(past: int, heads: int, features: int, shared: int = 1) -> FloatModel:
    """One more token: its key and value behind those of the tokens before, which `shared` heads each use."""
    m, depth = FloatModel((1, 1, heads * features)), features
    kept = heads // shared

    def cut(name: str, count: int) -> str:
        whole = m.node("Reshape", [linear(m, "x", heads * depth, count * depth, name), m.integers(1, 1, count, depth)],
                       f"{name}_heads")  # fmt: skip
        return m.node("Transpose", whole, f"{name}_turned", perm=[0, 2, 1, 3])

    def every_head(name: str) -> str:
        if shared == 1:
            return name
        wide = m.node("Unsqueeze", [name, m.integers(2)], f"{name}_wide")
        many = m.node("Expand", [wide, m.integers(1, kept, shared, past + 1, depth)], f"{name}_many")
        return m.node("Reshape", [many, m.integers(1, heads, past + 1, depth)], f"{name}_all")

    keys = m.node("Concat", ["past_k", cut("k", kept)], "K", axis=2)
    values = m.node("Concat", ["past_v", cut("v", kept)], "V", axis=-2)
    turned = m.node("Transpose", every_head(keys), "keys", perm=[0, 1, 3, 2])
    scores = m.node("Mul", [m.node("MatMul", [cut("q", heads), turned], "products"), m.constant(depth**-0.5)], "scores")
    attended = m.node("MatMul", [m.node("Softmax", scores, "shares", axis=-1), every_head(values)], "attended")
    back = m.node("Transpose", attended, "back", perm=[0, 2, 1, 3])
    linear(m, m.node("Reshape", [back, m.integers(1, 1, heads * depth)], "joined"), heads * depth, 12, "y")
    return m


@pytest.mark.parametrize(
    ("past", "heads", "features", "shared"), [(7, 4, 4, 1), (6, 3, 5, 1), (5, 4, 6, 2), (4, 3, 4, 3)]
)
def test_a_token_behind_others(past: int, heads: int, features: int, shared: int) -> None:
    model = decode_step(past, heads, features, shared).build("y", "K", "V")
    kept = (1, heads // shared, past, features)
    for name in ("past_k", "past_v"):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, kept))
    random = np.random.default_rng(3)
    sizes = {"x": (1, 1, heads * features), "past_k": kept, "past_v": kept}
    data = [{name: random.normal(0, 1, size).astype(np.float32) for name, size in sizes.items()} for _ in range(4)]
    report = quantise_with_report(model, data)
    graph = report.graph
    for value in graph.inputs[1:]:  # a token is a pixel
        assert (value.channels, value.width) == (kept[1] * features, past)
    sources = {name: report.sources[name].value(array) for name, array in data[0].items()}
    steps = {
        value.name: flip(np.clip(np.rint(sources[value.name] / value.step), -128, 127).astype(np.int8))
        for value in graph.inputs
    }
    results = run(session(to_onnx(graph), "int8"), steps)
    exact = run(session(model, "float"), data[0])
    for name in graph.outputs:
        origin = report.origins[name]
        array = report.ends[name].array(unflip(results[name]) * graph.value(name).step)
        assert array.shape == exact[origin].shape
        assert decibels(exact[origin], array) > 22, origin


def test_a_batch_is_put_together() -> None:
    m = FloatModel((1, 3, 4, 5))
    both = m.node("Concat", [m.conv("x", "a", (6, 3, 1, 1)), m.conv("x", "b", (6, 3, 1, 1))], "c", axis=0)
    y = m.conv(m.node("Reshape", [both, m.integers(1, 12, 4, 5)], "d"), "y", (4, 12, 1, 1))
    with pytest.raises(UnsupportedError, match="along axis 0 of operands of shapes"):
        fold(m.build(y), "net", normalised=False)
    keeps_its_meaning(m, y)


@pytest.mark.parametrize("pixels", [(1, 9), (3, 3)])
def test_constants_before_tokens(pixels: tuple[int, int]) -> None:
    m = FloatModel((1, 3, *pixels))
    flat = m.node("Reshape", [m.conv("x", "a", (8, 3, 1, 1)), m.integers(1, 8, 9)], "flat")
    tokens = m.node("Transpose", flat, "tokens", perm=[0, 2, 1])
    both = m.node("Concat", [m.normal(1, 1, 8), tokens], "both", axis=1)
    report = keeps_its_meaning(m, linear(m, both, 8, 12, "y"))
    assert report.graph.layers[-1].kind == "conv"


def test_tokens_whose_axes_lie_otherwise_are_joined() -> None:
    """Channels of a picture as tokens, and its pixels as tokens with channels behind: each in its own order."""
    m = FloatModel((1, 3, 1, 6))
    plain = m.node("Reshape", [m.conv("x", "a", (8, 3, 1, 1)), m.integers(1, 8, 6)], "plain")
    pixels = m.node("Reshape", [m.conv("x", "b", (8, 3, 1, 1)), m.integers(1, 8, 6)], "pixels")
    turned = m.node("Transpose", pixels, "turned", perm=[0, 2, 1])
    square = m.node("Slice", [turned, m.integers(0), m.integers(6), m.integers(2)], "square")
    both = m.node("Concat", [m.node("Slice", [plain, m.integers(0), m.integers(6), m.integers(1)], "some"), square],
                  "both", axis=1)  # fmt: skip
    graph = keeps_its_meaning(m, linear(m, both, 6, 5, "y")).graph
    parts = [layer for layer in graph.layers if layer.output.startswith("both/part")]
    assert parts
    assert all(graph.steps[layer.output] == graph.steps[layer.inputs[0]] for layer in parts), "integers only move"


def test_a_picture_that_gets_an_axis_first_stays_one() -> None:
    m = FloatModel((1, 2, 3, 4))
    wide = m.node("Unsqueeze", ["x", m.integers(1)], "wide")
    m.conv(m.node("Reshape", [wide, m.integers(1, 2, 3, 4)], "again"), "y", (5, 2, 2, 2))
    (source,) = keeps_its_meaning(m, "y").graph.inputs
    assert (source.channels, source.height, source.width) == (2, 3, 4)


def test_parts_of_one_tensor_only_move() -> None:
    m = FloatModel((1, 6, 8))
    a = linear(m, "x", 8, 16, "a")
    first = m.node("Slice", [a, m.integers(0), m.integers(2), m.integers(1)], "first")
    rest = m.node("Slice", [a, m.integers(2), m.integers(6), m.integers(1)], "rest")
    rolled = m.node("Concat", [rest, first], "rolled", axis=1)
    back = m.node("Concat", [m.node("Slice", [rolled, m.integers(4), m.integers(6), m.integers(1)], "end"),
                             m.node("Slice", [rolled, m.integers(0), m.integers(4), m.integers(1)], "start")],
                  "back", axis=1)  # fmt: skip
    assert kinds(keeps_its_meaning(m, linear(m, back, 16, 4, "y"))) == "conv conv"


@pytest.mark.parametrize("how", ["halves", "neighbours"])
@pytest.mark.parametrize("depth", [4, 6])
def test_rotary_embeddings(how: str, depth: int) -> None:
    m, tokens, heads = FloatModel((1, 5, 12)), 5, 3
    whole = m.node("Reshape", [linear(m, "x", 12, heads * depth, "a"), m.integers(1, tokens, heads, depth)], "parts")
    q = m.node("Transpose", whole, "q", perm=[0, 2, 1, 3])
    angle = np.outer(np.arange(tokens), 1 / 100 ** (np.arange(depth // 2) / depth))
    step = 1 if how == "halves" else 2
    cuts = [(0, depth // 2), (depth // 2, depth)] if how == "halves" else [(0, depth), (1, depth)]
    a, b = (
        m.node("Slice", [q, m.integers(first), m.integers(end), m.integers(3), m.integers(step)], name)
        for name, (first, end) in zip("rs", cuts, strict=True)
    )
    if how == "halves":
        turned = m.node("Concat", [m.node("Neg", b, "less"), a], "turned", axis=-1)
        cos, sin = (np.concatenate([each, each], axis=1) for each in (np.cos(angle), np.sin(angle)))
        both = [m.node("Mul", [q, m.constant(cos)], "c"), m.node("Mul", [turned, m.constant(sin)], "d")]
        y = m.node("Add", both, "rotated")
    else:
        c, d = m.constant(np.cos(angle)), m.constant(np.sin(angle))
        first = m.node("Sub", [m.node("Mul", [a, c], "ac"), m.node("Mul", [b, d], "bd")], "first")
        second = m.node("Add", [m.node("Mul", [a, d], "ad"), m.node("Mul", [b, c], "bc")], "second")
        pairs = [m.node("Unsqueeze", [each, m.integers(4)], f"{each}_wide") for each in (first, second)]
        joined = m.node("Concat", pairs, "pairs", axis=-1)
        y = m.node("Reshape", [joined, m.integers(1, heads, tokens, depth)], "rotated")
    back = m.node("Transpose", y, "back", perm=[0, 2, 1, 3])
    m.node("Reshape", [back, m.integers(1, tokens, heads * depth)], "flat")
    keeps_its_meaning(m, linear(m, "flat", heads * depth, 8, "y"))


@pytest.mark.parametrize(
    ("shape", "order", "channels"),
    [((4, 6, 5), (0, 2, 1), 20), ((4, 6, 5), (1, 0, 2), 6), ((2, 3, 4, 5), (2, 0, 3, 1), 8), ((6, 1, 7), (2, 1, 0), 7)],
)
def test_ways_end_where_they_should(shape: tuple[int, ...], order: tuple[int, ...], channels: int) -> None:
    numbers = np.arange(np.prod(shape)).reshape(shape)
    index = numbers.transpose(order).reshape(channels, -1)
    steps = find_way(index, (shape[0], 1, numbers.size // shape[0]))
    assert steps is not None
    value = numbers.reshape(shape[0], -1)
    for step in steps:
        value = value[step.channels]
        if step.groups:
            value = value.reshape(step.groups, len(value) // step.groups, -1).swapaxes(1, 2)
            value = value.reshape(-1, value.shape[-1])
    assert np.array_equal(value, index)


def test_no_way_leads_to_what_is_no_order_of_axes() -> None:
    index = np.arange(24).reshape(4, 6)
    assert find_way(np.roll(index.ravel(), 1).reshape(4, 6), (4, 1, 6)) is None
    assert find_way(index.reshape(8, 3)[:, :2], (4, 1, 6)) is None


@pytest.mark.parametrize("by", ["sizes", "scales"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizes_with_channels_last(by: str, mode: str) -> None:
    m = FloatModel((1, 8, 6, 3), opset=17)
    numbers = ["", m.integers(1, 16, 12, 3)] if by == "sizes" else [m.constant([1, 2, 2, 1])]
    wide = m.node("Resize", ["x", "", *numbers], "wide", mode=mode, coordinate_transformation_mode="asymmetric")
    model = m.build(m.conv(m.node("Transpose", wide, "first", perm=[0, 3, 1, 2]), "y", (4, 3, 3, 3)))
    data = m.data()
    report = quantise_with_report(model, data)
    (end,) = report.graph.outputs
    exact, result = run_float(model, data[0])["y"], integer_outputs(report.graph, report.sources["x"].value(data[0]))
    assert decibels(exact, result[end]) > 30


def test_channels_that_are_resized_stay_as_they_are() -> None:
    m = FloatModel((1, 8, 6, 3), opset=17)
    model = m.build(m.node("Resize", ["x", "", m.constant([1, 2, 2, 2])], "y", mode="nearest"))
    checked = check(model, "m", ("Resize",))
    assert rewrite(checked) is checked


@pytest.mark.parametrize(("shift", "upper"), [(0, 0), (1, 0), (-1, 1), (None, 1)])
def test_triangles_of_scores(shift: int | None, upper: int) -> None:
    m = FloatModel((1, 6, 16), opset=17)
    q, k = (m.node("MatMul", ["x", m.normal(16, 16)], name) for name in "qk")
    scores = m.node("MatMul", [q, m.node("Transpose", k, "t", perm=[0, 2, 1])], "scores")
    part = m.node("Trilu", [scores] if shift is None else [scores, m.constant(shift, np.int64)], "part", upper=upper)
    model, data = m.build(m.node("MatMul", [part, q], "y")), m.data()
    report = quantise_with_report(model, data)
    (end,) = report.graph.outputs
    exact, result = run_float(model, data[0])["y"], integer_outputs(report.graph, report.sources["x"].value(data[0]))
    assert decibels(report.ends[end].value(exact), result[end]) > 25


@pytest.mark.parametrize("perm", [[0, 2, 1, 3], [0, 3, 2, 1]])
def test_what_a_constant_is_added_to_stays_where_it_is(perm: list[int]) -> None:
    """However its axes are named: the constant is laid as it is."""
    m, shape = FloatModel((1, 4, 2, 3)), (1, 4, 2, 3)
    turned = m.node("Transpose", m.node("Tanh", "x", "a"), "t", perm=perm)
    y = m.node("Add", [turned, m.normal(*(shape[axis] for axis in perm[1:]))], "y")
    assert kinds(keeps_its_meaning(m, y)) == "table slice conv conv depthwise add"


@pytest.mark.parametrize("strips", [3, 7])
def test_a_constant_of_a_long_row_is_put_together_from_strips(strips: int) -> None:
    columns = 16 * strips - 8
    m = FloatModel((1, 4, columns))
    y = m.node("Add", [m.node("Tanh", "x", "a"), m.normal(4, columns)], "y")
    assert kinds(keeps_its_meaning(m, y)) == f"table slice conv conv {'depthwise ' * strips}paste add"


def test_more_channels_than_pieces_move_together() -> None:
    m = FloatModel((1, MOST_PIECES + 8, 2, 3))
    ends = [m.integers(number) for number in (-1, -9, 3, -1)]
    back = m.node("Slice", [m.node("Relu", "x", "a"), *ends], "b")
    report = keeps_its_meaning(m, m.conv(back, "y", (4, MOST_PIECES + 8, 1, 1)))
    assert kinds(report) == "max_pool slice slice slice paste conv"
