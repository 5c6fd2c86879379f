"""Products of two tensors, softmax and layer normalisation in float files, however exporters write them, and text."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.load import check
from meshloom.sched.workload.onnx.passes.table import rewrite
from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report
from meshloom.sched.workload.onnx.start import examples, looks_up

from ...float_models import FloatModel, decibels, integer_outputs, run_float


def keeps_its_meaning(m: FloatModel, output: str, least: float = 25) -> Quantised:
    model, data = m.build(output), m.data()
    report = quantise_with_report(model, data)
    (end,) = report.graph.outputs
    for x in data:
        exact = run_float(model, x)[output]
        result = report.ends[end].array(integer_outputs(report.graph, report.sources["x"].value(x))[end])
        assert result.shape == exact.shape
        assert decibels(exact, result) > least, report.layers
    return report


def kinds(report: Quantised) -> str:
    return " ".join(layer.kind for layer in report.graph.layers)


def linear(m: FloatModel, x: str, inputs: int, outputs: int, name: str) -> str:
    m.node("MatMul", [x, m.normal(inputs, outputs, scale=inputs**-0.5)], f"{name}_sums")
    return m.node("Add", [m.normal(outputs, scale=0.1), f"{name}_sums"], name)


def normalised(m: FloatModel, x: str, features: int, name: str, how: str = "operator") -> str:
    """A layer normalisation as PyTorch writes it now, as it did before opset 17, or as tf2onnx does, of Keras (with a
    factor), too."""
    gain, offset = m.constant(m.random.uniform(0.5, 2, features)), m.normal(features)
    if how == "operator":
        return m.node("LayerNormalization", [x, gain, offset], name, axis=-1, epsilon=1e-5)
    mean = m.node("ReduceMean", x, f"{name}_mean", axes=[-1])
    less = m.node("Sub", [x, mean], f"{name}_less")
    again = m.node("Sub", [x, mean], f"{name}_again")
    squares = m.node("Pow", [less, m.constant(2.0)], f"{name}_squares")
    if how in ("reciprocal", "factor"):
        squares = m.node("Mul", [less, less], f"{name}_products")
    variance = m.node("ReduceMean", squares, f"{name}_variance", axes=[-1])
    root = m.node("Sqrt", m.node("Add", [variance, m.constant(1e-5)], f"{name}_above"), f"{name}_root")
    if how == "factor":
        factor = m.node("Mul", [m.node("Reciprocal", root, f"{name}_one_over"), gain], f"{name}_factor")
        rest = m.node("Sub", [offset, m.node("Mul", [mean, factor], f"{name}_off")], f"{name}_rest")
        return m.node("Add", [m.node("Mul", [x, factor], f"{name}_times"), rest], name)
    if how == "reciprocal":
        even = m.node("Mul", [m.node("Reciprocal", root, f"{name}_one_over"), again], f"{name}_even")
    else:
        even = m.node("Div", [again, root], f"{name}_even")
    return m.node("Add", [m.node("Mul", [gain, even], f"{name}_times"), offset], name)


def attention(m: FloatModel, x: str, tokens: int, features: int, heads: int, mask: str = "none") -> str:
    def cut(name: str, order: list[int]) -> str:
        whole = linear(m, x, features, features, name)
        parts = m.node("Reshape", [whole, m.integers(1, tokens, heads, features // heads)], f"{name}_heads")
        return m.node("Transpose", parts, f"{name}_turned", perm=order)

    scores = m.node("MatMul", [cut("q", [0, 2, 1, 3]), cut("k", [0, 2, 3, 1])], "products")
    scores = m.node("Div", [scores, m.constant((features // heads) ** 0.5)], "scores")
    later = np.triu(np.ones((tokens, tokens)), 1)
    if mask == "where":
        masked = m.node("Where", [m.constant(later, bool), m.constant(-1e9), scores], "masked")
    else:
        term = {"none": np.zeros((1, 1, 1, tokens)), "infinite": np.where(later, -np.inf, 0)}
        term["slopes"] = np.where(later, -1e9, -0.1 * np.arange(tokens)[None, ::-1])
        masked = m.node("Add", [scores, m.constant(term[mask])], "masked")
    context = m.node("MatMul", [m.node("Softmax", masked, "shares", axis=-1), cut("v", [0, 2, 1, 3])], "context")
    joined = m.node("Transpose", context, "joined", perm=[0, 2, 1, 3])
    return linear(m, m.node("Reshape", [joined, m.integers(0, 0, features)], "merged"), features, features, "attended")


def encoder(how: str = "operator", tokens: int = 9, features: int = 16, heads: int = 2, opset: int = 17) -> FloatModel:
    m = FloatModel((1, tokens, features), opset=opset)
    first = normalised(m, m.node("Add", [attention(m, "x", tokens, features, heads), "x"], "sum"), features, "n", how)
    wide = linear(m, first, features, 2 * features, "wide")
    half = m.node("Add", [m.node("Erf", m.node("Div", [wide, m.constant(2**0.5)], "g0"), "g1"), m.constant(1.0)], "g2")
    gelu = m.node("Mul", [m.node("Mul", [wide, half], "g3"), m.constant(0.5)], "gelu")
    second = m.node("Add", [linear(m, gelu, 2 * features, features, "narrow"), first], "second")
    normalised(m, second, features, "y", how)
    return m


@pytest.mark.parametrize(("how", "opset"), [("operator", 17), ("division", 12), ("reciprocal", 13), ("factor", 13)])
def test_an_encoder_of_a_transformer(how: str, opset: int) -> None:
    report = keeps_its_meaning(encoder(how, opset=opset), "y")
    result = dict(Counter(layer.kind for layer in report.graph.layers))
    assert result == {
        "conv": 6, "normalise": 6, "transpose": 6, "product": 2, "table": 2, "add": 2, "depthwise": 2,
    }  # fmt: skip
    assert {layer.groups for layer in report.graph.layers if layer.kind == "product"} == {2}


@pytest.mark.parametrize("mask", ["infinite", "where", "slopes"])
def test_a_causal_mask(mask: str) -> None:
    """Scores of later tokens have no share, however large they are, and ask for no step."""
    m = FloatModel((1, 8, 16), opset=17)
    attention(m, "x", 8, 16, 2, mask)
    report = keeps_its_meaning(m, "attended")
    steps = {layer.name: layer.step for layer in report.layers}
    assert steps["masked/masked"] == steps["masked/zeros"] < 0.1
    left = report.graph.layers[[layer.output for layer in report.graph.layers].index("shares/left")]
    assert left.kind == "mul"


def test_a_mask_of_whole_rows_is_refused() -> None:
    m = FloatModel((1, 4, 8), opset=17)
    masked = m.node(
        "Add",
        [linear(m, "x", 8, 4, "scores"), m.constant(np.where(np.arange(4)[:, None], np.zeros((4, 4)), -np.inf))],
        "masked",
    )
    m.node("MatMul", [m.node("Softmax", masked, "shares", axis=-1), m.normal(4, 3)], "y")
    with pytest.raises(UnsupportedError, match="masks"):
        quantise_with_report(m.build("y"), m.data(1))


def test_what_is_no_layer_normalisation_is_left_as_it_is() -> None:
    m = FloatModel((1, 6, 8), opset=13)
    mean = m.node("ReduceMean", "x", "mean", axes=[-1])
    squares = m.node("Pow", [m.node("Sub", ["x", mean], "less"), m.constant(3.0)], "cubes")
    root = m.node("Sqrt", m.node("ReduceMean", squares, "variance", axes=[-1]), "root")
    model = m.build(m.node("Div", ["less", root], "y"))
    assert rewrite(check(model, "m", ())).others is None


def test_softmax_over_channels() -> None:
    """Channels and pixels change places before, and back for the convolution behind."""
    m = FloatModel((1, 5, 3, 4))
    shares = m.node("Softmax", m.node("Mul", ["x", m.constant(2.0)], "twice"), "s", axis=1)
    report = keeps_its_meaning(m, m.conv(shares, "y", (4, 5, 1, 1)))
    assert kinds(report) == "depthwise transpose normalise table normalise transpose conv"


def test_softmax_alone() -> None:
    m = FloatModel((1, 7, 5))
    assert kinds(keeps_its_meaning(m, m.node("Softmax", "x", "y", axis=-1))) == "normalise table normalise"
    m = FloatModel((1, 6, 5), opset=11)  # all axes behind the first together
    assert kinds(keeps_its_meaning(m, m.node("Softmax", "x", "y", axis=2))) == "normalise table normalise"


def test_normalisations_over_other_axes() -> None:
    m = FloatModel((1, 4, 6, 5), opset=17)
    one = m.node("InstanceNormalization", ["x", m.constant([1.0, 2, 0.5, 3]), m.normal(4)], "one")
    assert kinds(keeps_its_meaning(m, one)) == "normalise normalise depthwise"
    m = FloatModel((1, 4, 32, 32), opset=17)  # as a row more than an instruction holds, but rows of its own are short
    one = m.node("InstanceNormalization", ["x", m.constant([1.0, 2, 0.5, 3]), m.normal(4)], "one")
    assert kinds(keeps_its_meaning(m, one)) == "normalise normalise depthwise"
    m = FloatModel((1, 4, 6, 5), opset=17)
    gains, offsets = m.constant(np.ones((6, 5))), m.constant(np.zeros((6, 5)))
    assert kinds(keeps_its_meaning(m, m.node("LayerNormalization", ["x", gains, offsets], "y", axis=2))) == (
        "normalise normalise"
    )
    m = FloatModel((1, 4, 6, 5), opset=17)  # a number for each pixel: pixels become channels
    uneven = m.node("LayerNormalization", ["x", m.constant(m.random.uniform(0.5, 2, (6, 5)))], "y", axis=2)
    assert kinds(keeps_its_meaning(m, uneven)) == "normalise normalise transpose depthwise"


def test_products_of_two_tensors() -> None:
    m = FloatModel((1, 6, 8), opset=13)  # in several groups, with a matrix that all of them share
    whole = m.node("Reshape", [linear(m, "x", 8, 24, "a"), m.integers(1, 6, 3, 8)], "parts")
    left = m.node("Transpose", whole, "left", perm=[0, 2, 1, 3])
    right = m.node("Transpose", linear(m, "x", 8, 8, "b"), "right", perm=[0, 2, 1])
    report = keeps_its_meaning(m, m.node("MatMul", [left, right], "y"))
    assert report.graph.layers[-1].groups == 3
    m = FloatModel((1, 6, 8), opset=13)  # the weights on the left
    assert kinds(keeps_its_meaning(m, m.node("MatMul", [m.normal(5, 6), "x"], "y"))) == "conv"
    m = FloatModel((6, 8))
    turned = m.node("Transpose", "x", "t", perm=[1, 0])
    assert kinds(keeps_its_meaning(m, m.node("MatMul", ["x", turned], "y"))) == "product"


def test_rows_and_columns_change_places() -> None:
    m = FloatModel((1, 3, 4, 5))
    turned = m.node("Transpose", m.conv("x", "a", (6, 3, 1, 1)), "t", perm=[0, 1, 3, 2])
    assert kinds(keeps_its_meaning(m, m.conv(turned, "y", (4, 6, 3, 3)))) == "conv transpose conv transpose conv"


def test_sums_of_all_pixels() -> None:
    m = FloatModel((1, 9, 8), opset=13)
    total = m.node("ReduceSum", [linear(m, "x", 8, 6, "a"), m.integers(1)], "total", keepdims=0)
    report = keeps_its_meaning(m, m.node("Div", [total, m.constant(9.0)], "y"))
    assert kinds(report) == "conv average_pool"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: m.node("MatMul", ["x", m.node("Relu", "x", "r")], "y"), "operands have shapes"),
        (lambda m: m.node("MatMul", [m.normal(2, 5, 7), "x"], "y"), r"weights of shape \[2, 5, 7\] before"),
        (
            lambda m: m.node("MatMul", [m.node("Hardmax", "x", "l"), m.normal(8, 4)], "y"),
            r"n_l \(Hardmax\): which number is the largest is for the host to say",
        ),
    ],
)
def test_what_is_refused(build, message) -> None:
    m = FloatModel((1, 6, 8), opset=13)
    with pytest.raises(UnsupportedError, match=message):
        quantise_with_report(m.build(build(m)), m.data())


# -- text ----------------------------------------------------------------------------------------------------------


def text(tokens: int = 6, features: int = 8) -> onnx.ModelProto:
    """Numbers of words and a mask: rows of tables, their sum normalised, scores less 10,000 where the mask is 0."""
    m = FloatModel((1, tokens, features), opset=17)
    words = m.node("Gather", [m.normal(20, features, scale=1), "ids"], "words")
    places = m.node("Gather", [m.normal(32, features), m.integers(*range(tokens))], "places")
    rows = m.node("Add", [words, places], "rows")
    x = normalised(m, rows, features, "x")
    wide = m.node("Unsqueeze", [m.node("Cast", "mask", "real", to=TensorProto.FLOAT), m.integers(1)], "wide")
    term = m.node("Mul", [m.node("Sub", [m.constant(1.0), wide], "hidden"), m.constant(-10000.0)], "term")
    scores = m.node("MatMul", [x, m.node("Transpose", linear(m, x, features, features, "k"), "t", perm=[0, 2, 1])], "s")
    shares = m.node("Softmax", m.node("Add", [scores, term], "masked"), "shares", axis=-1)
    y = m.node("MatMul", [shares, linear(m, x, features, features, "v")], "y")
    model = m.build(y, "term")
    del model.graph.input[:]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "sequence")) for name in ("ids", "mask")
    )
    return model


def sentences(count: int, tokens: int = 6) -> list[dict[str, np.ndarray]]:
    random, mask = np.random.default_rng(3), np.ones((1, tokens), np.int64)
    return [{"ids": random.integers(0, 20, (1, tokens)), "mask": mask} for _ in range(count)]


def test_numbers_of_words_are_looked_up_on_the_host() -> None:
    model, data = text(), sentences(5)
    report = quantise_with_report(model, data)
    assert report.start is not None
    assert report.start.sources == ("rows",)
    assert report.graph.outputs == ("y",)
    assert report.graph.notes == (
        "Gather words and 4 more at the beginning run on the host; term must be the same for all inputs.",
    )
    assert report.snr_db > 22
    from meshloom.sched.workload.onnx.runtime import run, session

    for item in data:
        exact = run(session(model, "text"), item)["y"]
        x = report.sources["rows"].value(report.start.run(item)["rows"])
        result = report.ends["y"].array(integer_outputs(report.graph, x)["y"])
        assert decibels(exact, result) > 18


def test_masks_are_constants() -> None:
    report = quantise_with_report(text(), sentences(3))
    assert report.start is not None
    masked = {**sentences(1)[0], "mask": np.array([[1, 1, 1, 1, 0, 0]])}
    with pytest.raises(OnnxError, match=r"tensor 'term' is not the same for all inputs.*give inputs of one size and"):
        report.start.run(masked)
    with pytest.raises(OnnxError, match="is not the same for all inputs"):
        quantise_with_report(text(), [*sentences(2), masked])


def with_inputs(model: onnx.ModelProto, **types: tuple[int, tuple[int, ...]]) -> onnx.ModelProto:
    del model.graph.input[:]
    model.graph.input.extend(helper.make_tensor_value_info(name, *each) for name, each in types.items())
    return model


def test_whole_numbers_that_are_weighed_are_inputs() -> None:
    """The waves of a time step: they differ from input to input."""
    m = FloatModel((1, 6), opset=17)
    angle = m.node("Mul", [m.node("Cast", "t", "real", to=TensorProto.FLOAT), m.normal(1, 4, scale=1)], "angle")
    waves = m.node("Concat", [m.node("Sin", angle, "sine"), m.node("Cos", angle, "cosine")], "waves", axis=1)
    y = m.node("Add", [linear(m, waves, 8, 5, "a"), linear(m, "x", 6, 5, "b")], "y")
    model = with_inputs(m.build(y), x=(TensorProto.FLOAT, (1, 6)), t=(TensorProto.INT64, (1,)))
    data = [{"x": m.random.normal(0, 1, (1, 6)), "t": np.array([step])} for step in (3, 700)]
    report = quantise_with_report(model, data)
    assert report.start is not None
    assert (report.start.sources, report.start.passed) == (("waves",), ("x",))
    assert report.start.note == "Mul angle, Sin sine, Cos cosine, Concat waves at the beginning run on the host."
    assert report.snr_db > 25


def test_one_whole_number_that_is_weighed_alone() -> None:
    m = FloatModel((1, 3), opset=17)
    y = linear(m, m.node("Cast", "ages", "real", to=TensorProto.FLOAT), 3, 5, "y")
    model = with_inputs(m.build(y), ages=(TensorProto.INT32, (1, 3)))
    report = quantise_with_report(model, [{"ages": np.array([[20, 4, 60]])}, {"ages": np.array([[2, 40, 6]])}])
    assert report.start is not None
    assert (report.start.sources, report.start.note) == (("real",), "")


def test_columns_of_numbers_are_looked_up() -> None:
    """A recommender's fields: each column of an input has rows of its own in the table, behind an offset."""
    m = FloatModel((1, 2), opset=17)
    table = m.normal(30, 4, scale=1)
    rows: list[str] = []
    for column in range(2):
        number = m.node("Gather", ["ids", m.integers(column)], f"n{column}", axis=1)
        other = m.node("Add", [number, m.integers(10 * column)], f"o{column}")
        number = m.node("Where", [m.node("Less", [number, m.integers(10)], f"l{column}"), other, number], f"w{column}")
        rows.append(m.node("Squeeze", [m.node("Gather", [table, number], f"e{column}"), m.integers(1)], f"r{column}"))
    model = with_inputs(m.build(linear(m, m.node("Concat", rows, "c", axis=1), 8, 3, "y")),
                        ids=(TensorProto.INT64, (1, 2)))  # fmt: skip
    assert looks_up(model)
    report = quantise_with_report(model, [{"ids": np.array([[1, 5]])}, {"ids": np.array([[7, 2]])}])
    assert report.start is not None
    assert report.start.sources == ("c",)
    assert report.start.note == "Gather e0, Gather e1 and 9 more at the beginning run on the host."


def ends_with_a_token(how: str, opset: int = 17, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Tokens of which the one goes on at which the text has its largest number."""
    m = FloatModel((1, 5), opset=opset)
    dtype = np.float16 if kind == TensorProto.FLOAT16 else np.float32
    table, w = (m.constant(m.random.normal(0, 1, size), dtype) for size in ((20, 8), (8, 6)))
    x = m.node("MatMul", [m.node("Gather", [table, "ids"], "rows"), w], "x")
    place = m.node("ArgMax", "ids", "place", axis=1, keepdims=0)
    if how == "from the end":
        place = m.node("Sub", [place, m.integers(5)], "negative")
    if how == "GatherND":
        places = m.node("Unsqueeze", [place, m.integers(1)], "u") if opset > 12 else m.node(
            "Unsqueeze", place, "u", axes=[1])  # fmt: skip
        m.node("GatherND", [x, m.node("Concat", [m.constant([[0]], np.int64), places], "both", axis=1)], "token")
    else:
        m.node("Gather", [x, place], "token", axis=1)
    return with_inputs(m.build(m.node("Add", ["token", m.constant(np.ones(6), dtype)], "y")),
                       ids=(TensorProto.INT64, (1, 5)))  # fmt: skip


@pytest.mark.parametrize(
    ("how", "opset", "kind"),
    [
        ("Gather", 17, TensorProto.FLOAT),
        ("from the end", 17, TensorProto.FLOAT),
        ("GatherND", 12, TensorProto.FLOAT),
        ("GatherND", 17, TensorProto.FLOAT),
        ("Gather", 17, TensorProto.FLOAT16),
    ],
)
def test_a_token_whose_place_the_words_say(how: str, opset: int, kind: int) -> None:
    from meshloom.sched.workload.onnx.runtime import run, session

    model = ends_with_a_token(how, opset, kind)
    model.graph.output[0].type.tensor_type.elem_type = kind
    data = [{"ids": np.array([ids])} for ids in ([1, 2, 3, 19, 0], [18, 2, 3, 1, 0])]
    report = quantise_with_report(model, data)
    assert report.start is not None
    assert len(report.start.sources) == 2
    assert not report.start.fixed
    for item in data:
        begun = {
            name: array.astype(helper.tensor_dtype_to_np_dtype(kind)) for name, array in report.start.run(item).items()
        }
        (result,) = run(session(report.start.rest, "rest"), begun).values()
        np.testing.assert_allclose(result, run(session(model, "whole"), item)["y"], atol=2e-2 if kind != 1 else 1e-6)
    assert report.snr_db > 30


def test_what_whole_numbers_decide_otherwise_is_the_same_for_all_inputs() -> None:
    """Truth values, such as where the padding is."""
    m = FloatModel((1, 4), opset=17)
    rows = m.node("MatMul", [m.node("Gather", [m.normal(9, 6), "ids"], "rows"), m.normal(6, 6)], "x")
    padding = m.node("Unsqueeze", [m.node("Equal", ["ids", m.integers(0)], "padding"), m.integers(2)], "wide")
    model = with_inputs(m.build(m.node("Where", [padding, m.constant(0.0), rows], "y")),
                        ids=(TensorProto.INT64, (1, 4)))  # fmt: skip
    data = [{"ids": np.array([ids])} for ids in ([1, 2, 3, 0], [5, 6, 7, 0])]
    report = quantise_with_report(model, data)
    assert report.start is not None
    assert (report.start.sources, list(report.start.fixed)) == (("rows",), ["wide"])
    with pytest.raises(OnnxError, match="tensor 'wide' is not the same for all inputs"):
        report.start.run({"ids": np.array([[1, 2, 0, 0]])})


def test_models_that_look_up_nothing_begin_on_the_chip() -> None:
    assert looks_up(text())
    assert not looks_up(encoder().build("y"))
    assert {name: array.tolist() for name, array in examples(bound_text()).items()} == {
        "ids": [[0] * 6], "mask": [[1] * 6],
    }  # fmt: skip
    with pytest.raises(OnnxError, match=r"input .ids. has a size that is not fixed; give it one .--bind sequence=32"):
        examples(text())


def bound_text() -> onnx.ModelProto:
    from meshloom.sched.workload.onnx.load import bound

    return bound(text(), {}, {"sequence": 6}, "text")
