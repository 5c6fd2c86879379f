"""Attention and rotary embedding as operators of the standard, and with grouped queries: what takes their place
computes the same, by ONNX Runtime itself, and decoders with a cache come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.onnx.contributed import without_contributed
from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.load import load_model
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.single_floats import make_floats_single
from meshloom.sched.workload.onnx.start import examples, looks_up, real_inputs
from meshloom.sched.workload.onnx.writer import flip, to_onnx, unflip

from ...float_models import FloatModel, decibels

MICROSOFT = "com.microsoft"
Arrays = dict[str, NDArray[Any]]
RANDOM = np.random.default_rng(23)


def normal(*shape: int) -> NDArray[np.float32]:
    return RANDOM.normal(size=shape).astype(np.float32)


def one(kind: str, inputs: Arrays, operands: str, results: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    """A node; `operands` and `results` are names, `-` for what is left out."""
    kind, _, domain = kind.partition("@")
    names = [["" if name == "-" else name for name in text.split()] for text in (operands, results)]
    node = helper.make_node(kind, *names, name="it", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names[1] if name],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def computed(which: onnx.ModelProto, inputs: Arrays) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(which.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, inputs)]


X = normal(1, 5, 12)
GROUPED = f"GroupQueryAttention@{MICROSOFT}"
COUNTS = {"num_heads": 4, "kv_num_heads": 2}
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
PROMPT: Arrays = {
    "q": normal(1, 5, 64), "k": normal(1, 5, 32), "v": normal(1, 5, 32), "pk": normal(1, 2, 0, 16),
    "pv": normal(1, 2, 0, 16), "l": np.array([4], np.int32), "t": np.array(5, np.int32),
}  # fmt: skip
STEP = PROMPT | {
    "q": normal(1, 1, 64), "k": normal(1, 1, 32), "v": normal(1, 1, 32), "pk": normal(1, 2, 6, 16),
    "pv": normal(1, 2, 6, 16), "l": np.array([6], np.int32), "t": np.array(7, np.int32),
}  # fmt: skip
PACKED = {"q": normal(1, 5, 128)} | {name: PROMPT[name] for name in ("pk", "pv", "l", "t")}
WAVES: Arrays = {"c": normal(16, 8), "s": normal(16, 8)}
ANGLES: Arrays = {"c": normal(16, 4), "s": normal(16, 4)}
ALL = "q k v pk pv l t"
FOUR: Arrays = {"q": normal(1, 4, 5, 8), "k": normal(1, 4, 7, 8), "v": normal(1, 4, 7, 8)}
THREE: Arrays = {"q": normal(1, 5, 32), "k": normal(1, 5, 16), "v": normal(1, 5, 16)}
LATER: Arrays = {"pk": normal(1, 2, 3, 8), "pv": normal(1, 2, 3, 8)}
PLACES = np.array([[1, 2, 3, 5, 8]])
#: Operator, inputs, operands, results and attributes.
CASES: dict[str, tuple[str, Arrays, str, str, dict[str, Any]]] = {
    "prompt": (GROUPED, PROMPT, ALL, "y ck cv", COUNTS),
    "step": (GROUPED, STEP, ALL, "y ck cv", COUNTS),
    "step, turned": (GROUPED, STEP | WAVES, f"{ALL} c s", "y ck cv", COUNTS | {"do_rotary": 1}),
    "prompt, turned": (GROUPED, PROMPT | WAVES, f"{ALL} c s", "y ck cv", COUNTS | {"do_rotary": 1}),
    "packed, turned": (GROUPED, PACKED | WAVES, "q - - pk pv l t c s", "y ck cv", COUNTS | {"do_rotary": 1}),
    "window": (GROUPED, PROMPT, ALL, "y ck cv", COUNTS | {"local_window_size": 3}),
    "window, step": (GROUPED, STEP, ALL, "y ck cv", COUNTS | {"local_window_size": 3}),
    "scaled, capped": (GROUPED, PROMPT, ALL, "y ck cv", COUNTS | {"scale": 0.7, "softcap": 2.0}),
    "biased": (GROUPED, PROMPT | {"b": normal(1, 4, 5, 5)}, f"{ALL} - - - b", "y ck cv", COUNTS),
    "four axes": ("Attention", FOUR, "q k v", "y", {}),
    "four axes, mask": ("Attention", FOUR | {"m": normal(5, 7)}, "q k v m", "y", {"scale": 0.3}),
    "four axes, which count": ("Attention", FOUR | {"m": np.tri(5, 7, 2) > 0}, "q k v m", "y", {}),
    "four axes, in groups": ("Attention", FOUR | {"k": normal(1, 2, 7, 8), "v": normal(1, 2, 7, 8)}, "q k v", "y", {}),
    "three axes": ("Attention", THREE, "q k v", "y", HEADS),
    "three axes, causal": ("Attention", THREE, "q k v", "y", HEADS | {"is_causal": 1, "softcap": 1.5}),
    "three axes, later": ("Attention", THREE | LATER, "q k v - pk pv", "y ck cv", HEADS),
    "rotary": ("RotaryEmbedding", {"x": FOUR["q"], "p": PLACES} | ANGLES, "x c s p", "y", {}),
    "rotary, in part": (
        "RotaryEmbedding", {"x": normal(1, 4, 5, 12), "p": PLACES} | ANGLES, "x c s p", "y",
        {"rotary_embedding_dim": 8},
    ),
    "rotary, each token": (
        "RotaryEmbedding", {"x": THREE["q"], "c": normal(1, 5, 4), "s": normal(1, 5, 4)}, "x c s", "y",
        {"num_heads": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_takes_its_place_computes_the_same(case: str) -> None:
    kind, inputs, operands, results, attributes = CASES[case]
    whole = one(kind, inputs, operands, results, attributes)
    plain = without_contributed(whole, "m")
    assert kind.partition("@")[0] not in {node.op_type for node in plain.graph.node}
    for right, result in zip(computed(whole, inputs), computed(plain, inputs), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "operands", "results", "attributes", "why"),
    [
        (GROUPED, f"{ALL} - - - - t", "y ck cv", COUNTS, "it has sinks"),
        (GROUPED, ALL, "y ck cv", COUNTS | {"smooth_softmax": 1}, "smooth_softmax is set"),
        (GROUPED, ALL, "y ck cv", COUNTS | {"do_rotary": 1, "rotary_interleaved": 1}, "turns neighbours as pairs"),
        (GROUPED, ALL, "y ck cv z", COUNTS, "its scores are read; export it without output_qk"),
        ("Attention", "q k v", "y - - z", HEADS, "its scores are read; export it without qk_matmul_output"),
        ("Attention", "q k v", "y", {}, "does not say q_num_heads and kv_num_heads"),
        ("Attention", "q k v - - - l", "y", HEADS, "how many keys count is an operand"),
        ("RotaryEmbedding", "q k k", "y", {"interleaved": 1}, "turns neighbours as pairs"),
    ],
)
def test_what_does_more_is_refused(
    kind: str, operands: str, results: str, attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"it .*{why}"):
        without_contributed(one(kind, PROMPT, operands, results, attributes), "m")


def test_of_what_type_a_mask_is_must_be_known() -> None:
    model = one("Attention", FOUR | {"m": normal(5, 7)}, "q k v m", "y", {})
    model.graph.input[3].type.tensor_type.elem_type = 0
    with pytest.raises(UnsupportedError, match="of what type 'm' is is not said"):
        without_contributed(model, "m")


def decoder() -> onnx.ModelProto:
    """A step of a decoder as exporters write it: numbers of words, a mask, keys and values of earlier tokens."""
    m = FloatModel(opset=17)
    x = m.node("Gather", [m.normal(20, 64), "ids"], "x0")
    q, k, v = (m.node("MatMul", [x, m.normal(64, width)], name) for name, width in (("q", 64), ("k", 32), ("v", 32)))
    count = m.node("Sub", [m.node("ReduceSum", ["mask", m.integers(1)], "n", keepdims=0), m.integers(1)], "n1")
    total = m.node("Gather", [m.node("Shape", "mask", "size"), m.constant(1, np.int64)], "all", axis=0)
    lengths = [m.node("Cast", each, f"{each}32", to=TensorProto.INT32) for each in (count, total)]
    angle = np.outer(np.arange(12), 1 / 100 ** (np.arange(8) / 8))
    tables = [m.constant(np.cos(angle)), m.constant(np.sin(angle))]
    m.nodes.append(
        helper.make_node(
            "GroupQueryAttention", [q, k, v, "pk", "pv", *lengths, *tables], ["a", "ck", "cv"], "it", domain=MICROSOFT,
            do_rotary=1, num_heads=4, kv_num_heads=2,
        )
    )  # fmt: skip
    model = m.build(m.node("Add", [m.node("MatMul", ["a", m.normal(64, 64)], "o"), x], "y"), "ck", "cv")
    del model.graph.input[:]
    sizes = {"ids": [1, 1], "mask": [1, 7], "pk": [1, 2, 6, 16], "pv": [1, 2, 6, 16]}
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT if name[0] == "p" else TensorProto.INT64, size)
        for name, size in sizes.items()
    )
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def test_a_step_of_a_decoder_takes_its_cache_and_gives_it_back() -> None:
    whole = decoder()
    feeds = {
        "ids": np.array([[3]]), "mask": np.ones((1, 7), np.int64), "pk": normal(1, 2, 6, 16), "pv": normal(1, 2, 6, 16),
    }  # fmt: skip
    model = without_contributed(whole, "m")
    assert looks_up(model)
    assert real_inputs(model) == {"pk", "pv"}
    assert {name: array.shape for name, array in examples(model).items()} == {k: v.shape for k, v in feeds.items()}
    report = quantise_with_report(model, [feeds])
    assert report.start is not None
    assert report.start.passed == ("pk", "pv")
    begun = report.start.run(feeds)
    assert sorted(begun) == ["pk", "pv", "x0"]
    real = {name: report.sources[name].value(array) for name, array in begun.items()}
    values = outputs_of(report.graph, real)
    for name, right in zip(("y", "ck", "cv"), computed(whole, feeds), strict=True):
        (end,) = (end for end, origin in report.origins.items() if origin == name)
        assert decibels(report.ends[end].value(right), values[end]) > 30


@pytest.mark.parametrize("count", [1, 4, 6])
def test_a_mask_that_leaves_tokens_out_is_refused(count: int) -> None:
    model = without_contributed(decoder(), "m")
    feeds = examples(model)
    feeds["mask"] = (np.arange(7) < count).astype(np.int64)[None]
    with pytest.raises(OnnxError, match="it: its mask must let all tokens count"):
        quantise_with_report(model, [feeds])


def outputs_of(graph: Graph, real: Arrays) -> Arrays:
    """What the int8 network makes of real inputs."""
    fed = {}
    for value in graph.inputs:
        steps = np.clip(np.rint(real[value.name].reshape(value.shape) / value.step), -128, 127).astype(np.int8)
        fed[value.name] = flip(steps)
    result = run(session(to_onnx(graph), "int8"), fed)
    return {name: unflip(array) * graph.value(name).step for name, array in result.items()}


@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64])
def test_masks_beside_real_numbers_are_constants(kind: int) -> None:
    m = FloatModel((1, 5, 12), opset=17)
    q, k, v = (m.node("MatMul", ["x", m.normal(12, 12)], name) for name in "qkv")
    scores = m.node("MatMul", [q, m.node("Transpose", k, "kt", perm=[0, 2, 1])], "scores")
    if kind == TensorProto.BOOL:
        masked = m.node("Where", ["mask", scores, m.constant(-1e4)], "masked")
    else:
        mask = m.node("Cast", "mask", "real", to=TensorProto.FLOAT) if kind == TensorProto.INT64 else "mask"
        masked = m.node("Add", [scores, m.node("Mul", [mask, m.constant(-1e4)], "low")], "masked")
    model = m.build(m.node("MatMul", [m.node("Softmax", masked, "p", axis=-1), v], "y"))
    model.graph.input.append(helper.make_tensor_value_info("mask", kind, [1, 5, 5]))
    mask = np.tri(5)[None] if kind == TensorProto.BOOL else 1 - np.tri(5)[None]
    model.ir_version = 3  # in which constants are inputs, too
    model.graph.input.extend(
        helper.make_tensor_value_info(item.name, item.data_type, item.dims) for item in model.graph.initializer
    )
    feeds = {"x": normal(1, 5, 12), "mask": mask.astype(helper.tensor_dtype_to_np_dtype(kind))}
    assert looks_up(model)
    report = quantise_with_report(model, [feeds])
    assert report.graph.notes[0].startswith("Masks are made ready on the host; ")
    assert [value.name for value in report.graph.inputs] == ["x"]
    assert report.start is not None
    with pytest.raises(OnnxError, match="is not the same for all inputs"):
        report.start.run(feeds | {"mask": feeds["mask"] ^ True if kind == TensorProto.BOOL else feeds["mask"] * 0})


def test_long_ways_to_a_softmax_are_walked_once() -> None:
    m = FloatModel((1, 4), opset=17)
    x = "x"
    for step in range(2000):
        x = m.node("Mul", [x, x], f"t{step}")
    model = m.build(m.node("Softmax", m.node("Add", [x, "z"], "s"), "y"))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4]))
    assert not looks_up(model), "both shift scores, and nothing is left"


def test_terms_that_differ_from_input_to_input_are_inputs_of_the_network() -> None:
    m = FloatModel((1, 5, 12), opset=17)
    q, k = (m.node("MatMul", ["x", m.normal(12, 12)], name) for name in "qk")
    scores = m.node("MatMul", [q, m.node("Transpose", k, "kt", perm=[0, 2, 1])], "scores")
    p = m.node("Softmax", m.node("Add", [scores, "bias"], "biased"), "p", axis=-1)
    model = m.build(m.node("MatMul", [p, q], "y"))
    model.graph.input.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, [1, 5, 5]))
    data = [{"x": normal(1, 5, 12), "bias": normal(1, 5, 5)} for _ in range(3)]
    assert [value.name for value in quantise_with_report(model, data).graph.inputs] == ["x", "bias"]
    assert [value.name for value in quantise_with_report(model, data[:1]).graph.inputs] == ["x"]


def test_a_sum_that_is_no_score_has_two_inputs() -> None:
    m = FloatModel((1, 5, 12), opset=17)
    model = m.build(m.node("Softmax", m.node("Mul", [m.node("Add", ["x", "z"], "s"), "z"], "t"), "y", axis=-1))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 5, 12]))
    assert not looks_up(model)


def test_nodes_are_put_behind_what_they_read(tmp_path: Path) -> None:
    """Converters to 16 bits write casts of inputs behind those who read them."""
    m = FloatModel((1, 6), opset=17)
    y = m.node("Add", [m.node("Mul", ["cast", m.normal(6)], "a"), m.node("Relu", "b", "r")], "y")
    m.node("Neg", "a", "b")
    m.node("Cast", "x", "cast", to=TensorProto.FLOAT)
    path = tmp_path / "m.onnx"
    onnx.save(m.build(y), path)
    model = load_model(path)
    assert [node.output[0] for node in model.graph.node] == ["cast", "a", "b", "r", "y"]
    x = m.data()[0]
    np.testing.assert_array_equal(computed(model, {"x": x})[0], computed(m.build(y), {"x": x})[0])


@pytest.mark.parametrize("table", ["half", "bytes"])
def test_tables_of_16_and_of_8_bits_are_looked_up(table: str) -> None:
    m = FloatModel((1, 5), opset=17)
    rows = m.random.normal(0, 1, (9, 16))
    if table == "half":
        weights, product = m.constant(rows, np.float16), m.constant(m.random.normal(0, 0.3, (16, 12)), np.float16)
    else:
        scale = [m.constant(0.02), m.constant(0, np.int8)]
        weights = m.node("DequantizeLinear", [m.constant(np.rint(rows * 30), np.int8), *scale], "table")
        product = m.normal(16, 12)
    model = m.build(m.node("MatMul", [m.node("Gather", [weights, "x"], "e"), product], "y"))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    if table == "half":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    assert looks_up(model)
    report = quantise_with_report(model, [{"x": np.array([[1, 0, 8, 3, 3]])}])
    assert [value.name for value in report.graph.inputs] == ["e"]


def test_what_is_16_bits_wide_stays_so() -> None:
    halves = {name: array.astype(np.float16) for name, array in {"q": X, "k": X, "v": X}.items()}
    model = one(f"MultiHeadAttention@{MICROSOFT}", halves, "q k v", "y", {"num_heads": 3})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    plain = without_contributed(model, "m")
    right = computed(one(f"MultiHeadAttention@{MICROSOFT}", {"q": X, "k": X, "v": X}, "q k v", "y", {"num_heads": 3}),
                     {"q": X, "k": X, "v": X})  # fmt: skip
    np.testing.assert_allclose(computed(plain, halves)[0], right[0], atol=0.01)


@pytest.mark.parametrize("by_channel", [False, True])
def test_weights_of_8_bits_multiply_real_numbers(by_channel: bool) -> None:
    """ONNX Runtime would round what they multiply, which the file does not say."""
    m = FloatModel((1, 8, 64), opset=17)
    shape = (96,) if by_channel else ()
    w = m.random.integers(-127, 128, (64, 96))
    scale, zero = m.constant(np.full(shape, 0.01)), m.constant(np.zeros(shape), np.int8)
    weights = m.node("DequantizeLinear", [m.constant(w, np.int8), scale, zero], "w", axis=1)
    report = quantise_with_report(m.build(m.node("MatMul", ["x", weights], "y")), m.data(1))
    assert [layer.kind for layer in report.graph.layers] == ["conv"]


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_other_floats_are_computed_in_float32(kind: TensorProto.DataType, tmp_path: Path) -> None:
    """Also by operators that ONNX Runtime lacks for them."""
    m = FloatModel((1, 6), opset=17)
    m.element = kind
    w = m.random.normal(0, 1, (6, 4)).astype(np.float32)
    m.initialisers.append(helper.make_tensor("w", kind, (6, 4), w.ravel()))
    half = helper.make_tensor("half", kind, (), [0.5])
    a = m.node("Mul", [m.node("MatMul", ["x", "w"], "a"), m.node("Constant", [], "c", value=half)], "b")
    m.node("Cast", m.node("Cast", a, "f", to=TensorProto.FLOAT), "y", to=kind)
    model = m.build("y")
    model.graph.output[0].type.tensor_type.elem_type = kind
    shapes_alone = TensorProto(name="bare", data_type=kind, dims=(3, 3))
    bare = onnx.ModelProto()
    bare.graph.input.append(helper.make_tensor_value_info("x", kind, (1, 3)))
    bare.graph.initializer.append(shapes_alone)
    make_floats_single(bare)
    assert bare.graph.initializer[0].data_type == TensorProto.FLOAT
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    x = m.data()[0]
    (result,) = computed(load_model(path), {"x": x})
    np.testing.assert_allclose(result, x @ w * 0.5, rtol=0.02, atol=0.02)


def test_sizes_may_be_computed_in_float64(tmp_path: Path) -> None:
    """Where no input is: fewer digits could make another size."""
    m = FloatModel((1, 6), opset=17)
    whole = m.node("Cast", m.node("Shape", "x", "shape"), "d", to=TensorProto.DOUBLE)
    model = m.build(m.node("Reshape", ["x", m.node("Cast", whole, "i", to=TensorProto.INT64)], "y"))
    onnx.save(model, tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx") == model
