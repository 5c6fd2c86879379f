"""Operators of ONNX Runtime's own domain: what takes their place computes the same, by ONNX Runtime itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx.contributed import without_contributed
from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.quantise import Quantised, quantise_with_report

from ...float_models import FloatModel, decibels, integer_outputs
from .test_attention import encoder, linear

MICROSOFT = "com.microsoft"
Arrays = dict[str, NDArray[Any]]
RANDOM = np.random.default_rng(44)


def normal(*shape: int) -> NDArray[np.float32]:
    return RANDOM.normal(size=shape).astype(np.float32)


def model(
    kind: str, inputs: Arrays, constants: Arrays, operands: str, results: str = "y", opset: int = 17, **attributes: Any
) -> onnx.ModelProto:
    """One node. `operands`, `results`: names, `-` for what is left out."""
    domain = "" if kind == "SimplifiedLayerNormalization" else MICROSOFT
    names = [["" if name == "-" else name for name in text.split()] for text in (operands, results)]
    node = helper.make_node(kind, *names, name="it", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.INT32 if name == "n" else TensorProto.FLOAT, None)
            for name in names[1]
            if name
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    for value in graph.output:
        value.type.tensor_type.shape.SetInParent()
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def computed(which: onnx.ModelProto, inputs: Arrays) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(which.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, inputs)]


X, WIDE = normal(1, 5, 12), normal(1, 5, 36)
HEADS = {"num_heads": 3}
MASK = np.array([[1, 1, 1, 0, 1]], np.int32)
QKV = {"w": normal(12, 36) * 0.3, "b": normal(36)}
NORM = {"g": normal(12), "o": normal(12), "b": normal(12)}
IDS = np.array([[3, 0, 6, 6]], np.int32)
TABLES = {"words": normal(7, 12), "places": normal(9, 12), "kinds": normal(2, 12), "g": normal(12), "o": normal(12)}
PICTURE, CONV = normal(1, 2, 6, 6), {"w": normal(4, 2, 3, 3), "b": normal(4)}
PLACES, ANGLES = np.array([[1, 2, 3, 4, 6]]), {"c": normal(8, 2), "s": normal(8, 2)}
LSTM: Arrays = {
    "w": RANDOM.integers(-100, 100, (2, 5, 16)).astype(np.int8), "b": normal(2, 32),
    "sr": np.full(2, 0.005, np.float32),
    "r": RANDOM.integers(-100, 100, (2, 4, 16)).astype(np.int8), "zr": np.zeros(2, np.int8),
}  # fmt: skip
STEPS: Arrays = {"sw": np.full(2, 0.01, np.float32), "zw": np.zeros(2, np.int8)}
STEPS_OF_COLUMNS: Arrays = {
    "sw": RANDOM.uniform(0.005, 0.01, (2, 16)).astype(np.float32), "zw": np.zeros((2, 16), np.int8),
}  # fmt: skip
BOTH = {"hidden_size": 4, "direction": "bidirectional"}
#: Operator, inputs, constants, operands, results and attributes.
CASES: dict[str, tuple[str, Arrays, Arrays, str, str, dict[str, Any]]] = {
    "attention": ("Attention", {"x": X}, QKV, "x w b", "y", HEADS),
    "attention, masked": ("Attention", {"x": X, "m": MASK}, QKV, "x w b m", "y", HEADS),
    "attention, counted": ("Attention", {"x": X, "m": np.array([3], np.int32)}, QKV, "x w b m", "y", HEADS),
    "attention, causal": ("Attention", {"x": X}, QKV, "x w b", "y", HEADS | {"unidirectional": 1}),
    "attention, scaled": ("Attention", {"x": X}, QKV, "x w b", "y", HEADS | {"scale": 0.7}),
    "attention, biased": ("Attention", {"x": X}, QKV | {"r": normal(1, 3, 5, 5)}, "x w b - - r", "y", HEADS),
    "heads": ("MultiHeadAttention", {"q": X, "k": X[:, :4], "v": X[:, 1:]}, {}, "q k v", "y", HEADS),
    "heads, masked": ("MultiHeadAttention", {"q": X, "k": X, "v": X, "m": MASK}, {}, "q k v - m", "y", HEADS),
    "heads, causal": ("MultiHeadAttention", {"q": X, "k": X, "v": X}, {}, "q k v", "y", HEADS | {"unidirectional": 1}),
    "heads, offset": ("MultiHeadAttention", {"q": X, "k": X, "v": X}, QKV, "q k v b", "y", HEADS),
    "heads, biased": (
        "MultiHeadAttention", {"q": X, "k": X, "v": X}, QKV | {"r": normal(1, 3, 5, 5)}, "q k v b - r", "y", HEADS,
    ),
    "skip": ("SkipLayerNormalization", {"x": X, "s": X * 2}, NORM, "x s g o b", "y - - z", {"epsilon": 1e-3}),
    "skip, no offsets": ("SkipLayerNormalization", {"x": X, "s": X * 2}, NORM, "x s g", "y", {}),
    "skip by root": ("SkipSimplifiedLayerNormalization", {"x": X, "s": X * 2}, NORM, "x s g b", "y - - z", {}),
    "by root": ("SimplifiedLayerNormalization", {"x": X}, NORM, "x g", "y", {"axis": -1, "epsilon": 1e-4}),
    "embedded": (
        "EmbedLayerNormalization", {"i": IDS, "t": IDS // 4}, TABLES, "i t words places kinds g o", "y count", {},
    ),
    "embedded, no kinds": ("EmbedLayerNormalization", {"i": IDS}, TABLES, "i - words places - g o", "y -", {}),
    "embedded, masked": (
        "EmbedLayerNormalization", {"i": IDS, "t": IDS // 4, "m": MASK[:, 1:]}, TABLES,
        "i t words places kinds g o m", "y n", {},
    ),
    "turned": ("RotaryEmbedding", {"x": normal(1, 3, 5, 4), "p": PLACES}, ANGLES, "x p c s", "y", {}),
    "turned, heads": ("RotaryEmbedding", {"x": X, "p": PLACES}, ANGLES, "x p c s", "y", HEADS),
    "offset and gelu": ("BiasGelu", {"x": X}, NORM, "x b", "y", {}),
    "offset and fast gelu": ("FastGelu", {"x": X}, NORM, "x b", "y", {}),
    "product": ("FusedMatMul", {"x": X}, {"w": normal(1, 7, 12)}, "x w", "y", {"transB": 1, "alpha": 0.3}),
    "product, turned": ("FusedMatMul", {"x": X}, {"w": normal(1, 5, 7)}, "x w", "y", {"transA": 1}),
    "rounded product": (
        "DynamicQuantizeMatMul", {"x": X},
        {"w": RANDOM.integers(-100, 100, (12, 7)).astype(np.int8), "c": np.full(7, 0.01, np.float32),
         "z": np.zeros(7, np.int8), "b": normal(7)}, "x w c z b", "y", {},
    ),
    "rounded recurrence": (
        "DynamicQuantizeLSTM", {"x": normal(3, 1, 5) / 3}, LSTM | STEPS, "x w r b - - - - sw zw sr zr", "y h", BOTH,
    ),
    "rounded recurrence, by column": (
        "DynamicQuantizeLSTM", {"x": normal(3, 1, 5) / 3}, LSTM | STEPS_OF_COLUMNS, "x w r b - - - - sw zw sr zr", "y",
        BOTH,
    ),
    "conv": ("FusedConv", {"x": PICTURE}, CONV, "x w b", "y", {"activation": "Relu", "pads": [1] * 4}),
    "conv, added": (
        "FusedConv", {"x": PICTURE, "z": normal(1, 4, 4, 4)}, CONV, "x w b z", "y", {"activation": "Relu"},
    ),
    "conv, leaky": (
        "FusedConv", {"x": PICTURE}, CONV, "x w", "y", {"activation": "LeakyRelu", "activation_params": [0.3]},
    ),
    "conv, clipped": (
        "FusedConv", {"x": PICTURE}, CONV, "x w b", "y", {"activation": "Clip", "activation_params": [0.0, 1.0]},
    ),
    "gemm": ("FusedGemm", {"x": X[0]}, QKV, "x w b", "y", {"activation": "Tanh"}),
}  # fmt: skip


@pytest.mark.parametrize("opset", [12, 17, 20])
@pytest.mark.parametrize("case", CASES)
def test_what_takes_its_place_computes_the_same(case: str, opset: int) -> None:
    kind, inputs, constants, operands, results, attributes = CASES[case]
    operand_arrays = {name: array for name, array in constants.items() if name in operands.split()}
    whole = model(kind, inputs, operand_arrays, operands, results, opset, **attributes)
    if "count" in results:  # what nobody reads
        del whole.graph.output[1]
    plain = without_contributed(whole, "m")
    domains = {node.domain for node in plain.graph.node}
    assert domains <= {"", MICROSOFT}
    assert {node.op_type for node in plain.graph.node if node.domain} <= {"Gelu", "FastGelu"}
    assert kind not in [node.op_type for node in plain.graph.node if len(node.input) > 1 and node.domain]
    onnx.checker.check_model(plain)
    rounds = "rounded" in case  # what it multiplies
    for right, result in zip(computed(whole, inputs), computed(plain, inputs), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=0.05 if rounds else 1e-5)


@pytest.mark.parametrize(
    ("kind", "operands", "results", "attributes", "why"),
    [
        ("Attention", "x w b - x", "y", HEADS, "keeps keys and values of earlier tokens"),
        ("Attention", "x w b", "y z", HEADS, "keeps keys and values of earlier tokens"),
        ("Attention", "x w b", "y", HEADS | {"do_rotary": 1}, "it turns queries and keys"),
        ("Attention", "x w b", "y", HEADS | {"qkv_hidden_sizes": [12, 12, 24]}, "qkv_hidden_sizes"),
        ("Attention", "x w b x", "y", HEADS, r"its mask is not \[batch, tokens\]"),
        ("MultiHeadAttention", "x", "y", HEADS, "packed in one tensor"),
        ("MultiHeadAttention", "x x x - - - x x", "y", HEADS, "keeps keys and values"),
        ("MultiHeadAttention", "w w w", "y", HEADS, r"are not \[batch, tokens, features\]"),
        ("SkipLayerNormalization", "x x b", "y z", {}, "mean or deviation is read"),
        ("EmbedLayerNormalization", "x - w w - b b", "y z", {}, "counts the tokens of a mask, and has none"),
        (
            "RotaryEmbedding",
            "x w b b",
            "y",
            {"interleaved": 1},
            r"it turns neighbours as pairs \(interleaved\); export it with halves",
        ),
        ("RotaryEmbedding", "x w b b", "y", {"is_packed_batching": 1}, "is_packed_batching is set; export it before"),
        ("RotaryEmbedding", "x x b b", "y", HEADS, r"its places are not \[batch, tokens\]"),
        ("RotaryEmbedding", "x w b b", "y", {}, "does not say num_heads"),
        ("SimplifiedLayerNormalization", "x b", "y", {"axis": 1}, "more than the last axis"),
        ("FusedMatMul", "x w", "y", {"transBatchA": 1}, "transBatchA"),
        ("FusedGemm", "x w", "y", {"activation": "Elu", "activation_alpha": 2.0}, "its activation has parameters"),
    ],
)
def test_what_does_more_is_refused(
    kind: str, operands: str, results: str, attributes: dict[str, Any], why: str
) -> None:
    refused = model(kind, {"x": X}, QKV, operands, results, **attributes)
    with pytest.raises(UnsupportedError, match=f"it .*{kind}.*{why}"):
        without_contributed(refused, "m")


def test_a_size_that_is_not_known_is_named() -> None:
    product = model("FusedMatMul", {"x": X}, QKV, "x w", "y", transA=1)
    product.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match="how many dimensions 'x' has is not said"):
        without_contributed(product, "m")


def test_a_model_without_them_stays_what_it_is() -> None:
    plain = encoder().build("y")
    assert without_contributed(plain, "m") is plain


def fused(opset: int) -> onnx.ModelProto:
    """The encoder with the nodes that ONNX Runtime's optimiser of transformers puts into it (`--model_type bert`)."""
    result = encoder(opset=opset).build("y")
    nodes = {node.output[0]: node for node in result.graph.node}
    for end, bias, (x, skip) in (("n", "attended", ("attended_sums", "x")), ("y", "narrow", ("narrow_sums", "n"))):
        _, gain, offset = nodes[end].input
        (constant,) = (name for name in nodes[bias].input if name.startswith("constant"))
        nodes[end].CopyFrom(
            helper.make_node(
                "SkipLayerNormalization", [x, skip, gain, offset, constant], [end], domain=MICROSOFT, epsilon=1e-5
            )
        )
    (constant,) = (name for name in nodes["wide"].input if name.startswith("constant"))
    nodes["gelu"].CopyFrom(helper.make_node("BiasGelu", ["wide_sums", constant], ["gelu"], domain=MICROSOFT))
    gone = {"sum", "attended", "narrow", "second", "wide", "g0", "g1", "half", "g2", "g3"}
    kept = [node for node in result.graph.node if node.output[0] not in gone]
    del result.graph.node[:]
    result.graph.node.extend(kept)
    result.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return result


def test_an_encoder_that_was_optimised_becomes_the_same_layers() -> None:
    m = encoder()
    data = m.data()
    plain, other = m.build("y"), without_contributed(fused(17), "m")
    for x in data:
        np.testing.assert_allclose(computed(other, {"x": x})[0], computed(plain, {"x": x})[0], rtol=1e-4, atol=1e-4)
    first, second = (
        Counter(layer.kind for layer in quantise_with_report(each, data).graph.layers) for each in (plain, other)
    )
    assert first == second


def imported(m: FloatModel, output: str) -> Quantised:
    """As a file of ONNX Runtime's comes in; what the layers compute is what ONNX Runtime makes of the file itself."""
    model = m.build(output)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    data = m.data()
    report = quantise_with_report(without_contributed(model, "m"), data)
    (end,) = report.graph.outputs
    for x in data:
        result = report.ends[end].array(integer_outputs(report.graph, report.sources["x"].value(x))[end])
        assert decibels(computed(model, {"x": x})[0], result) > 25
    return report


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_comes_in(causal: int) -> None:
    m = FloatModel((1, 6, 16), opset=17)
    operands = ["x", m.normal(16, 48, scale=0.25), m.normal(48, scale=0.1)]
    m.node("Attention", operands, "a", domain=MICROSOFT, num_heads=2, unidirectional=causal)
    report = imported(m, linear(m, "a", 16, 8, "y"))
    assert Counter(layer.kind for layer in report.graph.layers)["product"] == 2


def test_rotary_embeddings_and_attention_of_three_tensors_come_in() -> None:
    m = FloatModel((1, 5, 12), opset=17)
    angle = np.outer(np.arange(8), 1 / 100 ** (np.arange(2) / 4))
    tables = [m.integers(*range(5)), m.constant(np.cos(angle)), m.constant(np.sin(angle))]
    tables[0] = m.node("Reshape", [tables[0], m.integers(1, 5)], "places")
    parts = [linear(m, "x", 12, 12, name) for name in "qkv"]
    turned = [
        m.node("RotaryEmbedding", [part, *tables], f"{part}_turned", domain=MICROSOFT, num_heads=3)
        for part in parts[:2]
    ]
    m.node("MultiHeadAttention", [*turned, parts[2]], "a", domain=MICROSOFT, num_heads=3)
    imported(m, linear(m, "a", 12, 6, "y"))


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("attributes", [{}, {"p": 1, "axis": 1}])
def test_vectors_of_one_length(attributes: dict[str, int], opset: int) -> None:
    m = FloatModel((1, 3, 8), opset=opset)
    whole = m.build(m.node("LpNormalization", "x", "y", **attributes))
    plain = without_contributed(whole, "m")
    assert "LpNormalization" not in {node.op_type for node in plain.graph.node}
    x = {"x": m.data(1)[0]}
    np.testing.assert_allclose(computed(plain, x), computed(whole, x), rtol=1e-5)


@pytest.mark.parametrize(("opset", "gains"), [(18, 2), (21, 4)])
def test_normalised_groups_of_channels(opset: int, gains: int) -> None:
    """Until opset 20 the standard has gains of groups, which ONNX Runtime refuses, so the formula decides."""
    m = FloatModel((1, 4, 3, 8), opset=opset)
    gain, offset = normal(gains), normal(gains)
    whole = m.build(m.node("GroupNormalization", ["x", m.constant(gain), m.constant(offset)], "y", num_groups=2))
    plain = without_contributed(whole, "m")
    assert "GroupNormalization" not in {node.op_type for node in plain.graph.node}
    x = m.data(1)[0]
    groups = x.reshape(1, 2, -1)
    groups = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    each = (np.repeat(array, 4 // gains)[:, None, None] for array in (gain, offset))
    exact = groups.reshape(x.shape) * next(each) + next(each)
    np.testing.assert_allclose(computed(plain, {"x": x})[0], exact, rtol=1e-4, atol=1e-5)
    if opset == 21:
        np.testing.assert_allclose(computed(whole, {"x": x})[0], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("domain", "names", "zero", "why"),
    [
        ("com.vai.quantize", "Vitis", TensorProto.INT8, ""),
        ("com.amd.quark", "Extended", TensorProto.UINT8, ""),
        (
            "com.amd.quark",
            "Extended",
            TensorProto.BFLOAT16,
            "its numbers are none of 8 bits, which the chip has; export",
        ),
        ("com.amd.quark", "BFP", TensorProto.INT8, "blocks of numbers share an exponent, and the chip has one scale"),
    ],
)
def test_quantisers_of_amd(domain: str, names: str, zero: int, why: str) -> None:
    """With 8 bits as the standard's, others are refused as what they are."""
    m = FloatModel((1, 3, 8, 8))
    middle = helper.make_tensor("zero", zero, [], [0])
    if names == "BFP":
        rounded = m.node("BFPQuantizeDequantize", "x", "d", domain=domain, bit_width=16)
    else:
        operands = [m.constant(0.05), "zero"]
        q = m.node(f"{names}QuantizeLinear", ["x", *operands], "q", domain=domain)
        rounded = m.node(f"{names}DequantizeLinear", [q, *operands], "d", domain=domain)
    whole = m.build(m.conv(rounded, "y", (4, 3, 3, 3)))
    whole.graph.initializer.append(middle)
    whole.opset_import.append(helper.make_opsetid(domain, 1))
    if why:
        with pytest.raises(UnsupportedError, match=why):
            without_contributed(whole, "m")
        return
    plain = without_contributed(whole, "m")
    assert [node.op_type for node in plain.graph.node] == ["QuantizeLinear", "DequantizeLinear", "Conv"]
    assert quantise_with_report(plain, m.data()).snr_db > 25
    del whole.graph.initializer[-1]
    whole.graph.node.insert(0, helper.make_node("Constant", [], ["zero"], value=middle))
    assert [node.op_type for node in without_contributed(whole, "m").graph.node][-3] == "QuantizeLinear"
    del whole.graph.node[0]
    for node in whole.graph.node[:2]:
        del node.input[2]
    assert [node.op_type for node in without_contributed(whole, "m").graph.node][-3] == "QuantizeLinear"
