"""Operators of ONNX's domain for tables of numbers (ai.onnx.ml), as standard operators, where these are what a chip
computes: what scales columns, and linear models. Trees, kernels and neighbours are none.

Converters of scikit-learn write them. Where probabilities are put into maps at the end (ZipMap), the tensor of
probabilities is the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import Refused
from .replacement import Replacement

if TYPE_CHECKING:
    from onnx import ModelProto

DOMAIN = "ai.onnx.ml"
#: What is done with the results of a linear model, as an operator.
_BEHIND = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}


def _numbers(s: Replacement, name: str) -> NDArray[np.float32]:
    return np.asarray(s.attributes.get(name, ()), np.float32)


def _real(s: Replacement) -> str:
    """The operand, in real numbers: columns may be whole ones."""
    from onnx import TensorProto

    kind = s.kinds.get(s.operand(0), 0)
    if kind in (0, TensorProto.FLOAT):
        return s.operand(0)
    return s.several("Cast", [s.operand(0)], [s.new("Cast")], to=TensorProto.FLOAT)[0]


def _scaler(s: Replacement) -> None:
    x, offset, scale = _real(s), _numbers(s, "offset"), _numbers(s, "scale")
    less = s.op("Sub", x, s.constant(offset, np.float32)) if offset.size else x
    s.op("Mul", less, s.constant(scale if scale.size else np.ones(1), np.float32), to=s.result(0))


def _linear(s: Replacement, rows: int) -> str:
    """Weighted sums of columns."""
    weights, offsets = _numbers(s, "coefficients"), _numbers(s, "intercepts")
    if not rows or weights.size % rows or offsets.size not in (0, rows):
        raise Refused(f"{weights.size} coefficients and {offsets.size} intercepts for {rows} results; export it again")
    operands = [_real(s), s.constant(weights.reshape(rows, -1), np.float32)]
    return s.op("Gemm", *operands, *([s.constant(offsets, np.float32)] if offsets.size else []), transB=1)


def _behind(s: Replacement, sums: str, to: str) -> None:
    what = s.attributes.get("post_transform", b"NONE").decode()
    if what not in _BEHIND:
        raise Refused(f"post_transform {what}; must be one of {', '.join(_BEHIND)}")
    more: dict[str, Any] = {"axis": 1} if what == "SOFTMAX" else {}
    s.op(_BEHIND[what], sums, to=to, **more)


def _linear_regressor(s: Replacement) -> None:
    _behind(s, _linear(s, s.attributes.get("targets", 1)), s.result(0))


def _linear_classifier(s: Replacement) -> None:
    labels = np.array(s.attributes.get("classlabels_ints", []), np.int64)
    if not labels.size:
        labels = np.array([text.decode() for text in s.attributes.get("classlabels_strings", [])], object)
    count = _numbers(s, "intercepts").size
    if count < 2 or count != len(labels):
        raise Refused(f"{count} rows of coefficients for {len(labels)} classes; it must have one for each")
    sums = _linear(s, count)
    if s.result(1):
        _behind(s, sums, s.result(1))
    if s.result(0):
        s.op("Gather", s.constant(labels, labels.dtype.type), s.op("ArgMax", sums, axis=1, keepdims=0), to=s.result(0))


def _array_feature_extractor(s: Replacement) -> None:
    """Some of the columns."""
    columns = s.number(s.operand(1))
    if columns is None or s.number(s.operand(0)) is not None:
        s.nodes.append(s.node)  # of labels, which the host takes
        return
    s.op("Gather", s.operand(0), s.constant(columns.ravel(), np.int64), to=s.result(0), axis=-1)


def _binarizer(s: Replacement) -> None:
    """Which numbers are above a threshold."""
    s.several(
        "Cast", [s.op("Greater", _real(s), s.constant(s.attributes.get("threshold", 0.0)))], [s.result(0)], to=s.real
    )


def _imputer(s: Replacement) -> None:
    """No input of the chip is without a number."""
    replaced = s.attributes.get("replaced_value_float", 0.0)
    if "imputed_value_int64s" in s.attributes or not np.isnan(replaced):
        raise Refused(f"it puts others in the place of numbers, of {replaced:g}; must be of those that lack (NaN)")
    s.op("Identity", s.operand(0), to=s.result(0))


def _normalizer(s: Replacement) -> None:
    """Rows of a length of 1, in one norm or another."""
    x, norm = _real(s), s.attributes.get("norm", b"MAX").decode()
    s.op("Div", x, s.over("ReduceMax" if norm == "MAX" else f"Reduce{norm}", x, -1), to=s.result(0))


OPERATORS: Mapping[str, Callable[[Replacement], None]] = {
    f"{DOMAIN}.ArrayFeatureExtractor": _array_feature_extractor,
    f"{DOMAIN}.Binarizer": _binarizer,
    f"{DOMAIN}.Imputer": _imputer,
    f"{DOMAIN}.LinearClassifier": _linear_classifier,
    f"{DOMAIN}.LinearRegressor": _linear_regressor,
    f"{DOMAIN}.Normalizer": _normalizer,
    f"{DOMAIN}.Scaler": _scaler,
}


def give_tensors_for_maps(model: ModelProto) -> None:
    """Makes tensors of probabilities outputs in place of the maps into which a model puts them at its end."""
    from onnx import TensorProto, helper

    graph = model.graph
    zips = {node.output[0]: node for node in graph.node if (node.domain, node.op_type) == (DOMAIN, "ZipMap")}
    ends = {value.name for value in graph.output}
    if not ends.intersection(zips):
        return
    outputs = list(graph.output)
    del graph.output[:]
    for value in outputs:
        node = zips.get(value.name)
        if node is None:
            graph.output.append(value)
        elif node.input[0] not in ends:
            graph.output.append(helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, None))
        if node is not None:
            graph.node.remove(node)
