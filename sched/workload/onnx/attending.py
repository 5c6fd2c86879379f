"""Attention and rotary embedding as operators of their own, put together of standard ones: those of the ONNX standard
(from opset 23 on) and those of ONNX Runtime's domain with grouped queries.

A network has one sequence, in which all tokens count, and new keys and values follow the earlier ones. Where a mask
says otherwise (`seqlens_k` is less), ONNX Runtime would write them elsewhere: that is refused when inputs are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import Refused
from .replacement import Replacement

_INT64 = 7  # of `TensorProto`
#: What is added to scores that do not count.
_LOW = -10000.0
_OPTIMISED = "export it before ONNX Runtime has optimised it"
_ONE_BY_ONE = "it turns neighbours as pairs (interleaved); export it with halves"


def group_query_attention(s: Replacement) -> None:
    """com.microsoft.GroupQueryAttention."""
    heads, groups = s.attributes["num_heads"], s.attributes["kv_num_heads"]
    for name in ("smooth_softmax", "qk_output", "kv_cache_bit_width"):
        if s.attributes.get(name, 0):
            raise Refused(f"{name} is set; {_OPTIMISED}")
    if s.operand(11):
        raise Refused("it has sinks (head_sink); export it without")
    s.refuse_results((3,), "its scores are read; export it without output_qk")
    query, key, value = s.operand(0), s.operand(1), s.operand(2)
    if key:
        parts = [s.heads(query, heads), s.heads(key, groups), s.heads(value, groups)]
    else:
        whole = s.heads(query, heads + 2 * groups)
        ends = (0, heads, heads + groups, heads + 2 * groups)
        parts = [_slice(s, whole, 1, begin, end) for begin, end in zip(ends, ends[1:], strict=False)]
    past = s.operand(3)
    places = _all_count(s, _places(s, parts[0], past), _size(s, parts[0]), past)
    if s.attributes.get("do_rotary", 0):
        if s.attributes.get("rotary_interleaved", 0):
            raise Refused(_ONE_BY_ONE)
        turns = s.operand(9) or s.unsqueeze(places, 0)
        tables = [_looked_up(s, s.operand(index), turns) for index in (7, 8)]
        parts[:2] = [_turned(s, part, *tables) for part in parts[:2]]
    keys, values = (_behind(s, s.operand(3 + index), parts[1 + index], s.result(1 + index)) for index in range(2))
    window = s.attributes.get("local_window_size", -1)
    scores = _scores(s, parts[0], _repeated(s, keys, heads, groups))
    biased = s.sum(scores, s.operand(10))
    masked = _causal(s, biased, places, window)
    _weighted(s, masked, _repeated(s, values, heads, groups), s.result(0), flat=True)


def attention(s: Replacement) -> None:
    """Attention of the ONNX standard."""
    s.refuse_results((3,), "its scores are read; export it without qk_matmul_output")
    flat = s.rank(s.operand(0)) == 3
    parts = [s.operand(index) for index in range(3)]
    heads, groups = (s.attributes.get(name, 0) for name in ("q_num_heads", "kv_num_heads"))
    if flat:
        if not heads or not groups:
            raise Refused("it does not say q_num_heads and kv_num_heads; export it again")
        parts = [s.heads(part, count) for part, count in zip(parts, (heads, groups, groups), strict=True)]
    past = s.operand(4)
    if s.operand(6):
        raise Refused("how many keys count is an operand (nonpad_kv_seqlen); export it without a cache of fixed size")
    keys, values = (_behind(s, s.operand(4 + index), parts[1 + index], s.result(1 + index)) for index in range(2))
    if flat:
        keys, values = (_repeated(s, part, heads, groups) for part in (keys, values))
    else:
        keys, values = (_repeated_for(s, part, parts[0]) for part in (keys, values))
    scores = _scores(s, parts[0], keys)
    mask = s.operand(3)
    if mask and s.is_boolean(mask):
        scores = s.op("Where", mask, scores, s.constant(_LOW))
    else:
        scores = s.sum(scores, mask)
    if s.attributes.get("is_causal", 0):
        scores = _causal(s, scores, _places(s, parts[0], past), -1)
    _weighted(s, scores, values, s.result(0), flat)


def rotary_embedding(s: Replacement) -> None:
    """RotaryEmbedding of the ONNX standard."""
    x, cosines, sines, places = (s.operand(index) for index in range(4))
    _rotary(s, x, [cosines, sines], places)


def rotary_embedding_of_microsoft(s: Replacement) -> None:
    """com.microsoft.RotaryEmbedding."""
    x, places, cosines, sines = (s.operand(index) for index in range(4))
    if s.attributes.get("is_packed_batching", 0):
        raise Refused(f"is_packed_batching is set; {_OPTIMISED}")
    if s.rank(places) != 2:
        raise Refused("its places are not [batch, tokens]")
    _rotary(s, x, [cosines, sines], places)


def _rotary(s: Replacement, x: str, tables: Sequence[str], places: str) -> None:
    """`tables`: of cosines and sines, by place, or of each token if there are no `places`."""
    if s.attributes.get("interleaved", 0):
        raise Refused(_ONE_BY_ONE)
    flat, part = s.rank(x) == 3, s.attributes.get("rotary_embedding_dim", 0)
    if flat:
        if not s.attributes.get("num_heads", 0):
            raise Refused(f"it does not say num_heads; {_OPTIMISED}")
        x = s.heads(x, s.attributes["num_heads"])
    factors = [_looked_up(s, table, places) if places else s.unsqueeze(table, 1) for table in tables]
    if part:
        turned = _turned(s, _slice(s, x, 3, 0, part), *factors)
        whole = s.op("Concat", turned, _slice(s, x, 3, part, 2**31 - 1), axis=-1, to="" if flat else s.result(0))
    else:
        whole = _turned(s, x, *factors, to="" if flat else s.result(0))
    if flat:
        s.reshape(s.op("Transpose", whole, perm=[0, 2, 1, 3]), 0, 0, -1, to=s.result(0))


def _looked_up(s: Replacement, table: str, places: str) -> str:
    """[batch, 1, tokens, half of the features] of a table by place."""
    return s.unsqueeze(s.op("Gather", table, places, axis=0), 1)


def _turned(s: Replacement, x: str, cosine: str, sine: str, to: str = "") -> str:
    """The halves of the features turn as pairs: (a, b) becomes (a cos - b sin, b cos + a sin)."""
    half = s.op("Slice", s.op("Shape", cosine), *(s.constant(each, np.int64) for each in ([3], [4], [0])))
    zero, end, last = (s.constant(each, np.int64) for each in ([0], [2**31 - 1], [-1]))
    first, second = s.op("Slice", x, zero, half, last), s.op("Slice", x, half, end, last)
    turned = s.op("Concat", s.op("Neg", second), first, axis=-1)
    twice = [s.op("Concat", table, table, axis=-1) for table in (cosine, sine)]
    terms = [s.op("Mul", each, factor) for each, factor in zip((x, turned), twice, strict=True)]
    return s.op("Add", *terms, to=to)


def _slice(s: Replacement, x: str, axis: int, begin: int, end: int) -> str:
    return s.op("Slice", x, *(s.constant([each], np.int64) for each in (begin, end, axis)))


def _size(s: Replacement, x: str) -> str:
    """Tokens of a tensor by heads, a number."""
    return s.op("Gather", s.op("Shape", x), s.constant(2, np.int64), axis=0)


def _places(s: Replacement, query: str, past: str) -> str:
    """Of the new tokens, behind those before."""
    zero, one = s.constant(0, np.int64), s.constant(1, np.int64)
    before = _size(s, past) if past else zero
    return s.op("Range", before, s.op("Add", before, _size(s, query)), one)


def _all_count(s: Replacement, places: str, tokens: str, past: str) -> str:
    """The same places, in a shape that they have if `seqlens_k` counts all `tokens`, and that is larger if not: ONNX
    Runtime then says that it does not fit, naming the node."""
    last = s.several("Cast", [s.operand(5)], [s.new("Cast")], to=_INT64)[0]
    count = s.op("Add", last, s.constant(1, np.int64))
    if past:
        count = s.op("Sub", count, _size(s, past))
    shape = s.reshape(s.op("Add", tokens, s.op("Abs", s.op("Sub", count, tokens))), 1)
    whole = s.op("Reshape", places, shape)
    s.nodes[-1].name = f"{s.node.name or s.node.output[0]}: its mask must let all tokens count"
    return whole


def _behind(s: Replacement, past: str, new: str, to: str) -> str:
    """Keys or values of all tokens; `to` is what they are kept as."""
    if not past:
        return s.op("Identity", new, to=to) if to else new
    return s.op("Concat", past, new, axis=2, to=to)


def _repeated(s: Replacement, x: str, heads: int, groups: int) -> str:
    """One for each head of the queries: heads of a group share it."""
    return x if heads == groups else _expanded(s, x, s.constant([heads // groups], np.int64))


def _repeated_for(s: Replacement, x: str, queries: str) -> str:
    """The same of heads whose number their shapes say."""
    return _expanded(s, x, s.op("Div", _sizes(s, queries, 1, 2), _sizes(s, x, 1, 2)))


def _expanded(s: Replacement, x: str, times: str) -> str:
    """Each head so many times, one behind the other."""
    first, groups, rest = (_sizes(s, x, begin, end) for begin, end in ((0, 1), (1, 2), (2, 4)))
    wide = s.op("Expand", s.unsqueeze(x, 2), s.op("Concat", first, groups, times, rest, axis=0))
    return s.op("Reshape", wide, s.op("Concat", first, s.op("Mul", groups, times), rest, axis=0))


def _sizes(s: Replacement, x: str, begin: int, end: int) -> str:
    """Some sizes of a tensor."""
    return s.op("Slice", s.op("Shape", x), *(s.constant([each], np.int64) for each in (begin, end, 0)))


def _scores(s: Replacement, query: str, keys: str) -> str:
    """Scaled, and capped if the node says so."""
    scores = s.op("MatMul", query, s.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scale = float(s.attributes.get("scale", 0.0))
    if scale:
        scores = s.op("Mul", scores, s.constant(scale))
    else:
        scores = s.op("Div", scores, s.op("Sqrt", s.features_of(query)))
    cap = float(s.attributes.get("softcap", 0.0))
    if cap:
        scores = s.op("Mul", s.op("Tanh", s.op("Div", scores, s.constant(cap))), s.constant(cap))
    return scores


def _causal(s: Replacement, scores: str, places: str, window: int) -> str:
    """Scores of tokens later than those at `places`, and of those `window` (if it is above 0) before, are as good as
    none."""
    own = s.unsqueeze(places, 1)
    size = s.op("Gather", s.op("Shape", scores), s.constant(3, np.int64), axis=0)
    all_ = s.unsqueeze(s.op("Range", s.constant(0, np.int64), size, s.constant(1, np.int64)), 0)
    hidden = s.op("Less", own, all_)
    if window > 0:
        begin = s.op("Sub", own, s.constant(window - 1, np.int64))
        hidden = s.op("Or", hidden, s.op("Less", all_, begin))
    return s.op("Where", hidden, s.constant(_LOW), scores)


def _weighted(s: Replacement, scores: str, values: str, to: str, flat: bool) -> None:
    """The values by the softmax of their scores; `flat`: heads side by side."""
    shares = s.op("Softmax", scores, axis=-1)
    if not flat:
        s.op("MatMul", shares, values, to=to)
        return
    s.reshape(s.op("Transpose", s.op("MatMul", shares, values), perm=[0, 2, 1, 3]), 0, 0, -1, to=to)
