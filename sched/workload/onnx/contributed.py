"""Operators of ONNX Runtime's own domain (com.microsoft), as the standard operators that they are put together of.

ONNX Runtime's optimiser of transformers writes them, and so does ONNX Runtime where it keeps a model that it has
optimised. What each computes is in its documentation ("Contrib Operators"). Elementwise ones are in `pointwise`,
quantised ones in `integers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from . import amd, qonnx, tabular
from .attending import attention, group_query_attention, rotary_embedding, rotary_embedding_of_microsoft
from .errors import NodeRefusal, Refused, UnsupportedError, node_name, operator_name
from .known_tensors import KnownTensors
from .pointwise import MICROSOFT
from .replacement import Replacement, UnknownRank
from .subgraphs import reads

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

#: `TensorProto` says so.
_INT32, _INT64 = 6, 7
#: From this opset on GroupNormalization has a gain for each channel.
_GAINS_OF_CHANNELS = 21
_CACHE = "it keeps keys and values of earlier tokens; export it without a cache"
_MOMENTS = "its mean or deviation is read; export it for inference"


def _attention(s: Replacement) -> None:
    if s.operand(4) or s.operand(6):
        raise Refused(_CACHE)
    s.refuse_results((1,), _CACHE)
    if s.attributes.get("do_rotary", 0):
        raise Refused("it turns queries and keys (do_rotary); export it before ONNX Runtime has optimised it")
    if len(set(s.attributes.get("qkv_hidden_sizes", []))) > 1:
        raise Refused("queries, keys and values have different widths (qkv_hidden_sizes)")
    whole = s.sum(s.op("MatMul", s.operand(0), s.operand(1)), s.operand(2))
    parts = s.thirds(whole, -1)
    query, key, value = (s.heads(part, s.attributes["num_heads"]) for part in parts)
    terms = [s.mask_term(s.operand(3), key), s.operand(5)]
    s.attention(query, key, value, s.features_of(query), terms, s.result(0))


def _multi_head_attention(s: Replacement) -> None:
    if s.operand(6) or s.operand(7):
        raise Refused(_CACHE)
    s.refuse_results((1, 2, 3), _CACHE)
    if not s.operand(1) or not s.operand(2):
        raise Refused("its queries, keys and values are packed in one tensor; export it with three")
    if any(s.rank(s.operand(index)) != 3 for index in range(3)):
        raise Refused("its queries, keys and values are not [batch, tokens, features]")
    parts = [s.operand(index) for index in range(3)]
    if s.operand(3):
        offsets = s.thirds(s.operand(3), 0)
        parts = [s.op("Add", part, offset) for part, offset in zip(parts, offsets, strict=True)]
    query, key, value = (s.heads(part, s.attributes["num_heads"]) for part in parts)
    terms = [s.mask_term(s.operand(4), key), s.operand(5)]
    s.attention(query, key, value, s.features_of(query), terms, s.result(0))


def _skip_layer_normalization(s: Replacement) -> None:
    x, skip, gain, offset, bias = (s.operand(index) for index in range(5))
    whole = s.sum(x, bias, skip, to=s.result(3))  # behind the product that it belongs to, as exporters write it
    s.refuse_results((1, 2), _MOMENTS)
    s.layer_normalisation(whole, gain, offset, s.result(0))


def _skip_simplified_layer_normalization(s: Replacement) -> None:
    x, skip, gain, bias = (s.operand(index) for index in range(4))
    whole = s.sum(x, bias, skip, to=s.result(3))  # behind the product that it belongs to, as exporters write it
    s.refuse_results((1, 2), _MOMENTS)
    s.root_normalisation(whole, gain, s.result(0))


def _simplified_layer_normalization(s: Replacement) -> None:
    s.refuse_results((1,), _MOMENTS)
    if s.attributes.get("axis", -1) != -1:
        raise Refused("it normalises more than the last axis")
    s.root_normalisation(s.operand(0), s.operand(1), s.result(0))


def _embed_layer_normalization(s: Replacement) -> None:
    ids, segments, words, places, kinds, gain, offset, mask, numbers = (s.operand(index) for index in range(9))
    if s.result(1):
        if not mask:
            raise Refused("it counts the tokens of a mask, and has none")
        whole = s.several("Cast", [mask], [s.new("Cast")], to=_INT64)[0]
        s.several("Cast", [s.count(whole)], [s.result(1)], to=_INT32)
    word = s.op("Gather", words, ids, axis=0)
    if numbers:
        place = s.op("Gather", places, numbers, axis=0)
    else:
        size = s.op("Slice", s.op("Shape", ids), *(s.constant(each, np.int64) for each in ([1], [2], [0])))
        place = s.op("Slice", places, s.constant([0], np.int64), size, s.constant([0], np.int64))
    kind = s.op("Gather", kinds, segments, axis=0) if segments else ""
    whole = s.sum(word, place, kind, to=s.result(2))
    s.layer_normalisation(whole, gain, offset, s.result(0))


def _bias_gelu(s: Replacement) -> None:
    s.op("Gelu", s.op("Add", s.operand(0), s.operand(1)), to=s.result(0), domain=MICROSOFT)


def _fast_gelu(s: Replacement) -> None:
    s.op("FastGelu", s.op("Add", s.operand(0), s.operand(1)), to=s.result(0), domain=MICROSOFT)


def _fused_matmul(s: Replacement) -> None:
    operands = [s.operand(0), s.operand(1)]
    for index, side in enumerate("AB"):
        if s.attributes.get(f"transBatch{side}", 0):
            raise Refused(f"it turns batches of its operand {side} (transBatch{side})")
        if s.attributes.get(f"trans{side}", 0):
            rank = s.rank(operands[index])
            operands[index] = s.op("Transpose", operands[index], perm=[*range(rank - 2), rank - 1, rank - 2])
    alpha = float(s.attributes.get("alpha", 1.0))
    if alpha == 1.0:
        s.op("MatMul", *operands, to=s.result(0))
    else:
        s.op("Mul", s.op("MatMul", *operands), s.constant(alpha), to=s.result(0))


def _dynamic_quantize_matmul(s: Replacement) -> None:
    """What it multiplies is rounded as it goes, which the chip's own scale does."""
    x, weights, scale, zero, offset = (s.operand(index) for index in range(5))
    real = s.cast(weights)
    if zero:
        real = s.op("Sub", real, s.cast(zero))
    real = s.op("Mul", real, scale)  # one for each column, or for all
    if offset:
        s.op("Add", s.op("MatMul", x, real), offset, to=s.result(0))
    else:
        s.op("MatMul", x, real, to=s.result(0))


def _dynamic_quantize_lstm(s: Replacement) -> None:
    """As LSTM, with weights of 8 bits that lie the other way round."""
    whole: list[str] = []
    for weights, scale, zero in ((1, 8, 9), (2, 10, 11)):
        real = s.op("Sub", s.cast(s.operand(weights)), s.cast(_by_direction(s, zero)))
        real = s.op("Mul", real, _by_direction(s, scale))
        whole.append(s.op("Transpose", real, perm=[0, 2, 1]))
    operands = [s.operand(0), *whole, *(s.operand(index) for index in range(3, 8))]
    while not operands[-1]:
        operands.pop()
    s.several("LSTM", operands, list(s.node.output), **s.attributes)


def _by_direction(s: Replacement, index: int) -> str:
    """A scale or a zero point, [directions] or [directions, columns], beside weights [directions, rows, columns]."""
    name = s.operand(index)
    return s.unsqueeze(name, *((1, 2) if s.rank(name) == 1 else (1,)))


def _activation(s: Replacement, x: str) -> None:
    """The activation that ONNX Runtime has fused into a node."""
    kind, values = s.attributes["activation"].decode(), list(s.attributes.get("activation_params", []))
    if kind == "Clip":
        s.op("Clip", x, *(s.constant(value) for value in values), to=s.result(0))
        return
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}.get(kind, ())
    s.op(kind, x, to=s.result(0), **dict(zip(names, values, strict=False)))


def _fused_conv(s: Replacement) -> None:
    own = {name: value for name, value in s.attributes.items() if not name.startswith("activation")}
    x = s.op("Conv", *filter(None, (s.operand(index) for index in range(3))), **own)
    _activation(s, s.sum(x, s.operand(3)))


def _fused_gemm(s: Replacement) -> None:
    if set(s.attributes) & {"activation_alpha", "activation_beta", "activation_gamma"}:
        raise Refused("its activation has parameters; export it before ONNX Runtime has optimised it")
    own = {name: value for name, value in s.attributes.items() if not name.startswith("activation")}
    _activation(s, s.op("Gemm", *filter(None, (s.operand(index) for index in range(3))), **own))


def _lp_normalization(s: Replacement) -> None:
    kind, x = {1: "ReduceL1", 2: "ReduceL2"}.get(p := s.attributes.get("p", 2)), s.operand(0)
    if kind is None:
        raise Refused(f"p = {p}; ONNX has norms of p = 1 and 2: export it with one of them")
    s.op("Div", x, s.over(kind, x, s.attributes.get("axis", -1)), to=s.result(0))


def _group_normalization(s: Replacement) -> None:
    """Groups are seen as channels of one row each. Gains and offsets are those of channels, or (until opset 20) of
    groups."""
    x, gain, offset = (s.operand(index) for index in range(3))
    count, epsilon = int(s.attributes["num_groups"]), float(s.attributes.get("epsilon", 1e-5))
    rows, each = s.reshape(x, 0, count, -1), s.opset >= _GAINS_OF_CHANNELS
    ones, zeros = (s.constant(np.full(count, value)) for value in (1.0, 0.0))
    normal = s.op("InstanceNormalization", rows, *((ones, zeros) if each else (gain, offset)), epsilon=epsilon)
    whole = s.op("Reshape", normal, s.op("Shape", x), to="" if each else s.result(0))
    if each:
        across = range(1, s.rank(x) - 1)
        s.op("Add", s.op("Mul", whole, s.unsqueeze(gain, *across)), s.unsqueeze(offset, *across), to=s.result(0))


#: By operator, with its domain unless that is the standard one, to which ONNX Runtime adds two of its own. The standard
#: has attention, rotary embedding and normalised groups, too; ONNX's domain for tables has scalers and linear models,
#: QONNX's quantisers, AMD's own.
OPERATORS: Mapping[str, Callable[[Replacement], None]] = {
    f"{MICROSOFT}.Attention": _attention,
    f"{MICROSOFT}.MultiHeadAttention": _multi_head_attention,
    f"{MICROSOFT}.SkipLayerNormalization": _skip_layer_normalization,
    f"{MICROSOFT}.SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
    f"{MICROSOFT}.EmbedLayerNormalization": _embed_layer_normalization,
    f"{MICROSOFT}.RotaryEmbedding": rotary_embedding_of_microsoft,
    f"{MICROSOFT}.GroupQueryAttention": group_query_attention,
    f"{MICROSOFT}.BiasGelu": _bias_gelu,
    f"{MICROSOFT}.FastGelu": _fast_gelu,
    f"{MICROSOFT}.FusedMatMul": _fused_matmul,
    f"{MICROSOFT}.DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    f"{MICROSOFT}.DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    f"{MICROSOFT}.FusedConv": _fused_conv,
    f"{MICROSOFT}.FusedGemm": _fused_gemm,
    "Attention": attention,
    "GroupNormalization": _group_normalization,
    "LpNormalization": _lp_normalization,
    "RotaryEmbedding": rotary_embedding,
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
    **tabular.OPERATORS,
    **qonnx.OPERATORS,
    **amd.OPERATORS,
}


def _takes(node: NodeProto) -> bool:
    if operator_name(node) == f"{MICROSOFT}.FastGelu":
        return len(node.input) > 1 and bool(node.input[1])  # without an offset it is a function of one number
    return operator_name(node) in OPERATORS


def without_contributed(model: ModelProto, name: str) -> ModelProto:
    """The model with standard operators in place of those of other domains that are known here; the model itself if it
    has none. `name` is for messages. Raises UnsupportedError for those that do more than is known."""
    from onnx import ModelProto

    if not any(_takes(node) for node in model.graph.node):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 1)
    ranks, kinds = _of_tensors(model.graph)
    constants, known = _constants(model.graph), KnownTensors(model.graph, opset)
    uses = {name for node in model.graph.node for name in reads(node)} | {each.name for each in model.graph.output}
    del result.graph.node[:]
    refused: list[NodeRefusal] = []
    for index, node in enumerate(model.graph.node):
        if not _takes(node):
            result.graph.node.append(node)
            continue
        instead = Replacement(node, opset, ranks, uses, kinds, constants)
        try:
            try:
                OPERATORS[operator_name(node)](instead)
            except UnknownRank:
                known.read((*result.graph.node, *model.graph.node[index:]))
                ranks, kinds = ranks | known.ranks, kinds | known.elements
                instead = Replacement(node, opset, ranks, uses, kinds, constants)
                OPERATORS[operator_name(node)](instead)
        except Refused as why:
            refused.append(NodeRefusal(node_name(node), operator_name(node), str(why), tuple(node.output)))
        result.graph.node.extend(instead.nodes)
    if refused:
        raise UnsupportedError(name, refused)
    return result


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    constants = {item.name: item for item in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and [item.name for item in node.attribute] == ["value"]:
            constants[node.output[0]] = node.attribute[0].t
    return constants


def _of_tensors(graph: GraphProto) -> tuple[dict[str, int], dict[str, int]]:
    """Dimensions, and types of elements (`TensorProto`), of the tensors of which the file says them."""
    ranks = {item.name: len(item.dims) for item in graph.initializer}
    kinds = {item.name: item.data_type for item in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        kinds.setdefault(value.name, kind.elem_type)
        if kind.HasField("shape"):
            ranks.setdefault(value.name, len(kind.shape.dim))
    return ranks, kinds
