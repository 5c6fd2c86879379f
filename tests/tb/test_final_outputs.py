"""What a run says at its end is what ONNX Runtime makes of the file as it is, for every rewrite on the way.

The comparison of layers (`original.check_float`) has the model behind some rewrites as its reference: operators of
other domains, weights of few bits, pairs around activations. Here nothing but the file is, and its own outputs are
compared, for two inputs. Whoever adds a rewrite adds a case: the last tests name what has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from meshloom.sched.workload.onnx import amd, contributed, qonnx
from meshloom.sched.workload.onnx.choosing import choose_by_products
from meshloom.sched.workload.onnx.dequantised import in_real_numbers
from meshloom.sched.workload.onnx.dequantising.operators import OPERATORS as INTEGERS
from meshloom.sched.workload.onnx.errors import operator_name
from meshloom.sched.workload.onnx.load import CheckedModel, load_model
from meshloom.sched.workload.onnx.passes.table import PASSES
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.network_source import NetworkSource
from meshloom.tb.inputs.sources import ready

from ..sched.float_models import decibels
from ..tiers import slow_but

Arrays = dict[str, NDArray[Any]]


def reals(*sizes: int, scale: float = 0.4) -> NDArray[np.float32]:
    """As all constants here, of these sizes always the same: another case changes no other."""
    return np.random.default_rng(sizes).normal(0, scale, sizes).astype(np.float32)


def positive(*sizes: int) -> NDArray[np.float32]:
    return np.random.default_rng(sizes).uniform(0.5, 1.5, sizes).astype(np.float32)


def whole(*numbers: int, kind: type = np.int64) -> NDArray[Any]:
    return np.array(numbers, kind)


def bytes_(*sizes: int, kind: type = np.int8) -> NDArray[Any]:
    return np.random.default_rng(sizes).integers(*((-100, 100) if kind is np.int8 else (0, 256)), sizes).astype(kind)


@dataclass(frozen=True)
class Case:
    """A file in ONNX's text: inputs, outputs and nodes, with constants by name. `least`: decibels; `words`: of inputs
    that are whole numbers, below which."""

    inputs: str
    outputs: str
    nodes: str
    constants: Arrays = field(default_factory=dict[str, NDArray[Any]])
    opset: int = 17
    least: float = 24
    words: int = 6

    def model(self) -> onnx.ModelProto:
        versions = f'"": {self.opset}, "com.microsoft": 1, "ai.onnx.ml": 3'
        text = f"<ir_version: 10, opset_import: [{versions}]> m ({self.inputs}) => ({self.outputs}) {{{self.nodes}}}"
        model = parser.parse_model(text)
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.constants.items())
        return model

    def feeds(self, model: onnx.ModelProto, seed: int) -> Arrays:
        random, feeds = np.random.default_rng(seed), dict[str, NDArray[Any]]()
        for value in model.graph.input:
            size = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            drawn = random.normal(0, 1, size) if kind.kind == "f" else random.integers(0, self.words, size)
            feeds[value.name] = drawn.astype(kind)
        return feeds


QKV = {"w": reals(12, 36), "b": reals(36)}
NORM = {"g": positive(12), "o": reals(12), "v": reals(12, 8), "eps": np.array(1e-3, np.float32)}
TABLES = {"t": reals(6, 12, scale=1.0), "p": reals(5, 12), "k": reals(6, 12), "g": positive(12), "o": reals(12)}
ANGLES = {"c": np.cos(np.outer(np.arange(8), [1, 0.3])), "s": np.sin(np.outer(np.arange(8), [1, 0.3]))}
ANGLES = {name: array.astype(np.float32) for name, array in ANGLES.items()} | {"at": whole(1, 2, 3, 5, 6)[None]}
ONE, ZERO = np.array(0.05, np.float32), np.array(3, np.int8)
BYTES = {"s": ONE, "z": ZERO, "u": np.array(0.2, np.float32), "zu": np.array(-5, np.int8)}
NARROW = {"s": ONE, "z": np.array(0, np.uint8), "lo": np.array(0, np.uint8), "hi": np.array(15, np.uint8)}
IN = "x8 = QuantizeLinear(x, s, z)"

#: Of `passes`.
REWRITTEN: dict[str, Case] = {
    "resize with channels last": Case(
        "float[1,4,5,3] x", "float[1,8,10,4] y", 'a = Resize<mode = "nearest">(x, r, n) y = MatMul(a, w)',
        {"r": np.zeros(0, np.float32), "n": np.array([1, 2, 2, 1], np.float32), "w": reals(3, 4)},
    ),
    "triangle": Case(
        "float[1,6,6] x", "float[1,6,4] y", "a = Trilu<upper = 0>(x) y = MatMul(a, w)", {"w": reals(6, 4)}
    ),
    "Gemm of computed factors": Case(
        "float[4,6] x", "float[4,4] y", "t = Tanh(x) y = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, t, b)",
        {"b": reals(4)},
    ),
    "product over columns": Case(
        "float[1,5] x", "float[1,3] y",
        "a = Gather<axis = 1>(x, i) p = ReduceProd<axes = [1], keepdims = 1>(a) y = Gemm(p, w)",
        {"i": whole(1, 4, 1), "w": reals(1, 3)},
    ),
    "computed filters": Case(
        "float[1,3,8,8] x, float[1,3,4,4] t", "float[1,1,7,7] y", "y = Conv<pads = [1, 1, 1, 1]>(x, t)"
    ),
    "root mean square in parts": Case(
        "float[1,5,12] x", "float[1,5,8] y",
        "q = Mul(x, x) m = ReduceMean<axes = [-1]>(q) e = Add(m, eps) r = Sqrt(e) n = Div(x, r) h = Mul(n, g) "
        "y = MatMul(h, v)", NORM,
    ),
    "layer normalisation in parts": Case(
        "float[1,5,12] x", "float[1,5,8] y",
        "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) q = Mul(d, d) e = ReduceMean<axes = [-1]>(q) f = Add(e, eps) "
        "r = Sqrt(f) n = Div(d, r) h = Mul(n, g) i = Add(h, o) y = MatMul(i, v)", NORM,
    ),
    "padding before a maximum": Case(
        "float[1,3,6,6] x", "float[1,3,4,3] y",
        "a = Pad(x, p, low) y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0]>(a)",
        {"p": whole(0, 0, 0, 1, 0, 0, 1, 1), "low": np.array(-np.inf, np.float32)},
    ),
    "LSTM": Case(
        "float[5,1,6] x", "float[5,2,1,4] y, float[2,1,4] h",
        'y, h = LSTM<hidden_size = 4, direction = "bidirectional">(x, w, r, b)',
        {"w": reals(2, 16, 6), "r": reals(2, 16, 4), "b": reals(2, 32)}, least=22,
    ),
    "GRU": Case(
        "float[5,1,6] x", "float[5,1,1,4] y", "y = GRU<hidden_size = 4, linear_before_reset = 1>(x, w, r, b)",
        {"w": reals(1, 12, 6), "r": reals(1, 12, 4), "b": reals(1, 24)}, least=22,
    ),
    "RNN": Case(
        "float[5,1,6] x", "float[5,1,1,4] y", 'y = RNN<hidden_size = 4, direction = "reverse">(x, w, r)',
        {"w": reals(1, 4, 6), "r": reals(1, 4, 4)}, least=22,
    ),
    "token whose place the words say": Case(
        "int64[1,5] i", "float[1,1,8] y",
        "a = Gather(t, i) h = MatMul(a, v) n = ArgMax<axis = 1, keepdims = 0>(i) y = Gather<axis = 1>(h, n)",
        TABLES | {"v": reals(12, 8)},
    ),
    "elements whose places the words say": Case(
        "int64[1,5] i, int64[1,2,1] m", "float[1,2,8] y",
        "a = Gather(t, i) h = MatMul(a, v) n = Concat<axis = 2>(first, m) y = GatherND(h, n)",
        TABLES | {"v": reals(12, 8), "first": np.zeros((1, 2, 1), np.int64)}, words=5,
    ),
}  # fmt: skip

#: Of `contributed` and `tabular`.
STANDARD: dict[str, Case] = {
    "Attention": Case(
        "float[1,5,12] x", "float[1,5,12] y", "y = com.microsoft.Attention<num_heads = 3, unidirectional = 1>(x, w, b)",
        QKV, least=18,
    ),
    "MultiHeadAttention": Case(
        "float[1,5,12] q, float[1,4,12] k, float[1,4,12] v", "float[1,5,12] y",
        "y = com.microsoft.MultiHeadAttention<num_heads = 3>(q, k, v, b)", QKV, least=18,
    ),
    "GroupQueryAttention": Case(
        "float[1,5,32] q, float[1,5,16] k, float[1,5,16] v", "float[1,5,32] y",
        "y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, pk, pv, l, n)",
        {"pk": reals(1, 2, 0, 8), "pv": reals(1, 2, 0, 8), "l": np.array([4], np.int32), "n": np.array(5, np.int32)},
        least=18,
    ),
    "Attention of the standard": Case(
        "float[1,5,32] q, float[1,5,16] k, float[1,5,16] v", "float[1,5,32] y",
        "y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(q, k, v)", opset=23, least=18,
    ),
    "RotaryEmbedding": Case(
        "float[1,5,12] x", "float[1,5,8] y",
        "a = com.microsoft.RotaryEmbedding<num_heads = 3>(x, at, c, s) y = MatMul(a, v)", ANGLES | {"v": reals(12, 8)},
    ),
    "RotaryEmbedding of the standard": Case(
        "float[1,5,12] x", "float[1,5,8] y", "a = RotaryEmbedding<num_heads = 3>(x, c, s, at) y = MatMul(a, v)",
        ANGLES | {"v": reals(12, 8)}, opset=23,
    ),
    "SkipLayerNormalization": Case(
        "float[1,5,12] x, float[1,5,12] z", "float[1,5,8] y, float[1,5,12] sum",
        "a, m, d, sum = com.microsoft.SkipLayerNormalization<epsilon = 0.001>(x, z, g, o) y = MatMul(a, v)", NORM,
    ),
    "SkipSimplifiedLayerNormalization": Case(
        "float[1,5,12] x, float[1,5,12] z", "float[1,5,8] y",
        "a = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.001>(x, z, g) y = MatMul(a, v)", NORM,
    ),
    "SimplifiedLayerNormalization": Case(
        "float[1,5,12] x", "float[1,5,8] y", "a = SimplifiedLayerNormalization<axis = -1>(x, g) y = MatMul(a, v)", NORM,
    ),
    "EmbedLayerNormalization": Case(
        "int32[1,5] i, int32[1,5] j", "float[1,5,8] y",
        "a, n = com.microsoft.EmbedLayerNormalization(i, j, t, p, k, g, o) y = MatMul(a, v)",
        TABLES | {"v": reals(12, 8)},
    ),
    "GroupNormalization": Case(
        "float[1,4,6,6] x", "float[1,3,6,6] y",
        "a = GroupNormalization<num_groups = 2>(x, g, o) y = Conv(a, w)",
        {"g": reals(4), "o": reals(4), "w": reals(3, 4, 1, 1)}, opset=21,
    ),
    "Binarizer": Case(
        "float[1,12] x", "float[1,8] y",
        "a = ai.onnx.ml.Binarizer<threshold = 0.2>(x) y = MatMul(a, v)", {"v": reals(12, 8)},
    ),
    "BiasGelu": Case("float[1,5,12] x", "float[1,5,12] y", "y = com.microsoft.BiasGelu(x, o)", NORM),
    "FastGelu": Case("float[1,5,12] x", "float[1,5,12] y", "y = com.microsoft.FastGelu(x, o)", NORM),
    "FusedMatMul": Case(
        "float[1,5,12] x", "float[1,5,8] y", "y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.3>(x, w)",
        {"w": reals(8, 12)},
    ),
    "FusedConv": Case(
        "float[1,3,6,6] x", "float[1,4,4,4] y",
        'y = com.microsoft.FusedConv<activation = "LeakyRelu", activation_params = [0.3]>(x, w, b)',
        {"w": reals(4, 3, 3, 3), "b": reals(4)},
    ),
    "FusedGemm": Case(
        "float[1,12] x", "float[1,36] y", 'y = com.microsoft.FusedGemm<activation = "Tanh">(x, w, b)', QKV
    ),
    "DynamicQuantizeMatMul": Case(
        "float[1,5,12] x", "float[1,5,7] y", "y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, b)",
        {"w": bytes_(12, 7), "s": np.full(7, 0.01, np.float32), "z": np.zeros(7, np.int8), "b": reals(7)},
    ),
    "DynamicQuantizeLSTM": Case(
        "float[3,1,5] x", "float[3,1,1,4] y",
        "y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 4>(x, w, r, b, e, e, e, e, sw, zw, sr, zr)",
        {"w": bytes_(1, 5, 16), "r": bytes_(1, 4, 16), "b": reals(1, 32), "sw": np.full(1, 0.005, np.float32),
         "zw": np.zeros(1, np.int8), "sr": np.full(1, 0.005, np.float32), "zr": np.zeros(1, np.int8)},
        least=20,
    ),
    "LpNormalization": Case(
        "float[1,5,12] x", "float[1,5,8] y", "a = LpNormalization<axis = -1, p = 2>(x) y = MatMul(a, v)", NORM
    ),
    "Scaler": Case(
        "float[1,5] x", "float[1,3] y",
        "a = ai.onnx.ml.Scaler<offset = [0.5, 0.1, 0.0, -0.5, 1.0], scale = [2.0, 1.0, 0.5, 3.0, 1.0]>(x) "
        "y = MatMul(a, w)", {"w": reals(5, 3)},
    ),
    "ArrayFeatureExtractor, Imputer, Normalizer": Case(
        "float[1,5] x", "float[1,3] y",
        "a = ai.onnx.ml.Imputer<imputed_value_floats = [0.5], replaced_value_float = nan>(x) "
        "b = ai.onnx.ml.ArrayFeatureExtractor(a, i) "
        'c = ai.onnx.ml.Normalizer<norm = "L2">(b) y = MatMul(c, w)', {"i": whole(4, 0, 2, 0)[None], "w": reals(4, 3)},
    ),
    "LinearRegressor": Case(
        "float[1,4] x", "float[1,2] y",
        "y = ai.onnx.ml.LinearRegressor<targets = 2, coefficients = [1.0, 0.5, -0.3, 2.0, 0.1, 0.2, 0.3, -0.4], "
        "intercepts = [0.5, -1.0]>(x)",
    ),
    "LinearClassifier": Case(
        "float[1,4] x", "int64[1] best, float[1,2] y",
        "best, y = ai.onnx.ml.LinearClassifier<classlabels_ints = [7, 3], intercepts = [0.5, -1.0], post_transform = "
        '"SOFTMAX", coefficients = [1.0, 0.5, -0.3, 2.0, 0.1, 0.2, 0.3, -0.4]>(x)',
    ),
}  # fmt: skip

#: Of `dequantised`, `dequantising` and `packed_weights`.
QUANTISED: dict[str, Case] = {
    "pairs": Case(
        "float[1,3,6,6] x", "float[1,4,6,6] y",
        f"{IN} a = DequantizeLinear(x8, s, z) w = DequantizeLinear<axis = 0>(w8, sw) "
        "b = Conv<pads = [1, 1, 1, 1]>(a, w) c = QuantizeLinear(b, u, zu) y = DequantizeLinear(c, u, zu)",
        BYTES | {"w8": bytes_(4, 3, 3, 3), "sw": positive(4) / 100},
    ),
    "pairs of four bits": Case(
        "float[1,3,6,6] x", "float[1,4,6,6] y",
        f"{IN} n = Clip(x8, lo, hi) a = DequantizeLinear(n, s, z) w8 = QuantizeLinear(wr, sw, zw) "
        "wn = Clip(w8, wlo, whi) w = DequantizeLinear(wn, sw, zw) y = Conv<pads = [1, 1, 1, 1]>(a, w)",
        NARROW | {"wr": reals(4, 3, 3, 3), "sw": np.array(0.1, np.float32), "zw": np.array(0, np.int8),
                  "wlo": np.array(-7, np.int8), "whi": np.array(7, np.int8), "s": np.array(0.1, np.float32)},
    ),
    "pairs of sixteen bits": Case(
        "float[1,3,6,6] x", "float[1,4,4,4] y",
        "x16 = QuantizeLinear(x, s, z) a = DequantizeLinear(x16, s, z) y = Conv(a, w)",
        {"s": np.array(1e-4, np.float32), "z": np.array(0, np.int16), "w": reals(4, 3, 3, 3)}, opset=21,
    ),
    "convolutions, sums and means": Case(
        "float[1,3,6,6] x", "float[1,8,1,1] y",
        f"{IN} a = QLinearConv<pads = [1, 1, 1, 1]>(x8, s, z, w, sw, zw, u, zu, b) "
        "c = com.microsoft.QLinearLeakyRelu<alpha = 0.2>(a, u, zu, u, zu) "
        "d = com.microsoft.QLinearAdd(a, u, zu, c, u, zu, u, zu) "
        "e = com.microsoft.QLinearMul(d, u, zu, c, u, zu, u, zu) "
        "f = com.microsoft.QLinearConcat<axis = 1>(u, zu, d, u, zu, e, u, zu) "
        "h = com.microsoft.QLinearAveragePool<kernel_shape = [2, 2], strides = [2, 2]>(f, u, zu, u, zu) "
        "i = com.microsoft.QLinearGlobalAveragePool(h, u, zu, s, z) y = DequantizeLinear(i, s, z)",
        BYTES | {"w": bytes_(4, 3, 3, 3), "sw": positive(4) / 100, "zw": np.zeros(4, np.int8),
                 "b": whole(30, -20, 5, 0, kind=np.int32)}, least=20,
    ),
    "products, a sigmoid and a softmax": Case(
        "float[1,5,12] x", "float[1,5,7] y",
        f"{IN} a = QLinearMatMul(x8, s, z, w, sw, zw, u, zu) b = com.microsoft.QLinearSigmoid(a, u, zu, t, low) "
        "c = com.microsoft.QLinearSoftmax<axis = -1, opset = 13>(b, t, low, t, low) y = DequantizeLinear(c, t, low)",
        BYTES | {"w": bytes_(12, 7), "sw": np.array(0.01, np.float32), "zw": np.array(0, np.int8),
                 "t": np.array(1 / 256, np.float32), "low": np.array(-128, np.int8)}, least=20,
    ),
    "QGemm": Case(
        "float[1,12] x", "float[1,7] y",
        f"{IN} a = com.microsoft.QGemm<transB = 1>(x8, s, z, w, sw, zw, b, u, zu) y = DequantizeLinear(a, u, zu)",
        BYTES | {"w": bytes_(7, 12), "sw": np.array(0.01, np.float32), "zw": np.array(0, np.int8),
                 "b": whole(100, -50, 3, 0, 9, 20, -7, kind=np.int32), "u": ONE},
    ),
    "sums of integers": Case(
        "float[1,3,6,6] x", "float[1,4,4,4] y",
        "x8, sx, zx = DynamicQuantizeLinear(x) a = ConvInteger(x8, w, zx, zw) b = Cast<to = 1>(a) c = Mul(sx, sw) "
        "y = Mul(b, c)",
        {"w": bytes_(4, 3, 3, 3, kind=np.uint8), "zw": np.array(50, np.uint8), "sw": np.array(0.01, np.float32)},
    ),
    "product of integers": Case(
        "float[1,12] x", "float[1,7] y",
        "x8, sx, zx = DynamicQuantizeLinear(x) a = MatMulInteger(x8, w, zx) b = Cast<to = 1>(a) c = Mul(sx, sw) "
        "y = Mul(b, c)", {"w": bytes_(12, 7), "sw": np.array(0.01, np.float32)},
    ),
    "weights of four bits in blocks": Case(
        "float[1,5,32] x", "float[1,5,8] y",
        "y = com.microsoft.MatMulNBits<K = 32, N = 8, bits = 4, block_size = 16>(x, w, s, z)",
        {"w": bytes_(8, 2, 8, kind=np.uint8), "s": positive(16) / 20, "z": bytes_(8, kind=np.uint8)},
    ),
}  # fmt: skip
CASES = REWRITTEN | STANDARD | QUANTISED


def last_outputs(path: Path, files: tuple[Path, ...]) -> list[Arrays]:
    """The file's outputs as a run of each input says them: of the golden model's bytes, and of the host."""
    graph, feeds = ready(NetworkSource(str(path), inputs=files))
    results: list[Arrays] = []
    for feed in feeds:
        values = golden_values(graph, feed.arrays)
        real = {name: values[name].astype(np.float64) * graph.value(name).step for name in graph.outputs}
        mine = {
            feed.titles.get(name, name): feed.ends[name].array(array) if name in feed.ends else array
            for name, array in real.items()
        }
        results.append(mine | dict(feed.finish(real) if feed.finish is not None else {}))
    return results


@pytest.mark.parametrize("name", slow_but(CASES, *list(CASES)[::4]))
def test_outputs_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = case.model()
    for node in model.graph.node:  # what is left out has no name
        for at, operand in enumerate(node.input):
            node.input[at] = "" if operand == "e" and node.op_type == "DynamicQuantizeLSTM" else operand
    onnx.save(model, tmp_path / "m.onnx")
    feeds = [case.feeds(model, seed) for seed in (5, 6)]
    files = tuple(tmp_path / f"{at}.npz" for at in range(len(feeds)))
    for path, each in zip(files, feeds, strict=True):
        np.savez(path, allow_pickle=False, **each)
    live = session(model, "file", mixed_signs=any(array.dtype == np.uint8 for array in case.constants.values()))
    for each, results in zip(feeds, last_outputs(tmp_path / "m.onnx", files), strict=True):
        exact = run(live, each)
        for output in model.graph.output:
            right, mine = np.asarray(exact[output.name]), np.asarray(results[output.name])
            assert mine.shape == right.shape
            if right.dtype.kind == "f":
                assert decibels(right, mine) > case.least
            else:
                assert np.array_equal(mine, right)


def operators(cases: dict[str, Case]) -> set[str]:
    return {operator_name(node) for case in cases.values() for node in case.model().graph.node}


def test_every_operator_that_is_rewritten_has_a_case() -> None:
    """But QONNX's and AMD's, which ONNX Runtime lacks: test_qonnx.py, test_contributed.py of the importer."""
    lacking = qonnx.OPERATORS.keys() | amd.OPERATORS.keys()
    assert contributed.OPERATORS.keys() - lacking <= operators(STANDARD)
    assert INTEGERS.keys() <= operators(QUANTISED)


def test_every_pass_has_a_case(tmp_path: Path) -> None:
    changed: list[object] = []
    for case in REWRITTEN.values():
        onnx.save(case.model(), tmp_path / "m.onnx")
        model = load_model(tmp_path / "m.onnx")
        checked = CheckedModel("m", in_real_numbers(model, "m")[0])
        for apply in PASSES:
            after = apply(checked)
            changed += [] if after is checked else [apply]
            checked = after
    assert set(changed) == set(PASSES)
    model = REWRITTEN["token whose place the words say"].model()
    assert choose_by_products(model, "m", {"i", "n", "t"}, {"t"}) is not model
