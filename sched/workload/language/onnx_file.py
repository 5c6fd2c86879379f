"""The weights of an ONNX file of a decoder, by what each of them is called: by its own name, and by the place of the
node that reads it.

PyTorch's exporter keeps the name of a tensor that a node reads as it is, and puts another one (`onnx::MatMul_123`) in
the place of one that it turns round; the node's own name then says whose it was: `/model/layers.0/mlp/up_proj/MatMul`.
ONNX Runtime GenAI names all of them, ONNX Runtime's quantiser adds endings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..onnx.errors import OnnxError
from ..onnx.packed_weights import with_whole_weights
from ..onnx.subgraphs import bodies
from ..onnx.validity import check_external, check_tensors, one_line
from .model import LanguageError, Reals

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

#: Bytes of a file and of those with its weights, at most.
_MOST_BYTES = 1 << 30
#: Operators that multiply by weights [inputs, outputs] with the operand of that number.
_PRODUCTS = {
    "MatMul": 1, "FusedMatMul": 1, "Gemm": 1, "MatMulInteger": 1, "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1,
}  # fmt: skip
#: Operators of files with weights of fewer bits.
_QUANTISED = {
    "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DequantizeLinear", "MatMulNBits", "MatMulBnb4",
}  # fmt: skip
#: Operators that normalise: which operands are gains and biases.
_NORMS = {
    "LayerNormalization": (1, 2), "SimplifiedLayerNormalization": (1, 9), "RMSNormalization": (1, 9),
    "SkipLayerNormalization": (2, 3), "SkipSimplifiedLayerNormalization": (2, 9),
}  # fmt: skip
#: What does not change whose weights they are.
_SAME = {"Transpose", "Cast", "Identity", "DequantizeLinear", "QuantizeLinear", "Reshape"}
#: The input that has the numbers of tokens, and another name of the table of which it takes rows.
TOKENS = "input_ids"
#: What exporters and quantisers put behind the name of a tensor.
_ENDINGS = re.compile(r"(_quantized|_fp16|_transposed|_DequantizeLinear_Output|/weights|_Q[48])+$")


@dataclass(frozen=True, eq=False)
class DecoderTensor:
    """Weights [outputs, inputs] of a product (`product`), rows of an embedding, gains or biases. `names`: what they may
    be called, the surest first; `whole`: gains to which nothing is added any more."""

    names: tuple[str, ...]
    array: Reals
    product: bool = False
    whole: bool = False


class DecoderFile:
    """A file. `tensors`: its weights in the order in which its nodes read them. Raises LanguageError for one that
    cannot be read, is damaged or too large."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            own = _read(path)
            self._model = with_whole_weights(own, str(path))
        except OnnxError as error:
            raise LanguageError(str(error)) from error
        self.quantised = not _QUANTISED.isdisjoint(node.op_type for node in _flat(own.graph.node))
        self.half = any(item.data_type == item.FLOAT16 for item in own.graph.initializer)

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """All nodes; of a choice (`If`: with a cache or without) one way."""
        return list(_flat(self._model.graph.node))

    @cached_property
    def tensors(self) -> list[DecoderTensor]:
        """What is read of them by products, embeddings, normalisations and sums. Raises LanguageError."""
        try:
            return [tensor for node in self.nodes for tensor in self._of(node)]
        except LanguageError:
            raise
        except (ValueError, IndexError, TypeError, RecursionError) as error:
            raise _damaged(self.path, one_line(error)) from error

    @property
    def epsilon(self) -> float | None:
        """What its normalisations add to a mean of squares, if they say it."""
        norms = (_attributes(node) for node in self.nodes if node.op_type in _NORMS)
        return next((float(each["epsilon"]) for each in norms if "epsilon" in each), None)

    @property
    def base(self) -> float | None:
        """Of rotary positions whose sines it has in a table."""
        sines = self._raw("sin_cache") if "sin_cache" in self._initialisers else None
        if sines is None or sines.ndim != 2 or min(sines.shape) < 2 or not 0 < sines[1, 1] <= 1:
            return None
        return float(f"{np.arcsin(np.float64(sines[1, 1])) ** -sines.shape[1]:.5g}")  # it is a round number

    def _of(self, node: NodeProto) -> Iterator[DecoderTensor]:
        place = _place(node)
        if node.op_type in _PRODUCTS:
            yield from self._product(node, place)
        elif node.op_type == "Gather":
            if (rows := self._embedding(node)) is not None:
                words = (TOKENS,) if self._given(node.input[1]) == TOKENS else ()
                yield DecoderTensor((*self._names(node.input[0], place, "weight"), *words), rows)
        elif node.op_type in _NORMS:
            for at, kind in zip(_NORMS[node.op_type], ("weight", "bias"), strict=True):
                if at < len(node.input) and (array := self._constant(node.input[at])) is not None:
                    yield DecoderTensor(self._names(node.input[at], place, kind), array, whole=kind == "weight")
        elif node.op_type in ("Mul", "Add"):
            for name in node.input:
                if (array := self._constant(name)) is None or array.ndim != 1 or array.size < 2:
                    continue
                if self._root(name).endswith("_scale"):  # of integers
                    continue
                whole = node.op_type == "Mul"
                kind = "weight" if whole or self._root(name).endswith(".weight") else "bias"
                yield DecoderTensor(self._names(name, place, kind), array, whole=whole)

    def _product(self, node: NodeProto, place: str) -> Iterator[DecoderTensor]:
        at = _PRODUCTS[node.op_type]
        attributes = _attributes(node)
        array = self._integers(node) if node.op_type not in ("MatMul", "FusedMatMul", "Gemm") else None
        if array is None:
            array = self._constant(node.input[at])
        if array is None or array.ndim != 2:
            return
        if not attributes.get("transB", 0):
            array = array.T
        if (factor := attributes.get("alpha", 1.0)) != 1:
            array = array * np.float32(factor)
        yield DecoderTensor(self._names(node.input[at], place, "weight"), array, product=True)
        bias = {"Gemm": 2, "MatMulIntegerToFloat": 6, "DynamicQuantizeMatMul": 4}.get(node.op_type, len(node.input))
        if bias < len(node.input) and (offset := self._constant(node.input[bias])) is not None:
            yield DecoderTensor(self._names(node.input[bias], place, "bias"), offset.reshape(-1))

    def _integers(self, node: NodeProto) -> Reals | None:
        """The weights of a product of integers; None if they are no constant. Raises LanguageError."""
        name = node.input[1]
        if (numbers := self._raw(name)) is None:
            return None
        scale, zero = {"MatMulIntegerToFloat": (3, 5), "DynamicQuantizeMatMul": (2, 3)}.get(node.op_type, (9, 3))
        scales = self._raw(node.input[scale]) if scale < len(node.input) else None
        if scales is None:
            scales = self._raw(f"{name.removesuffix('_quantized')}_scale")
        if scales is None:
            raise LanguageError(
                f"{self.path}: {node.op_type} {node.name!r}: the scale of its weights {name!r} is not found; take the "
                "file in floating point (model.onnx)"
            )
        zeros = self._raw(node.input[zero]) if zero < len(node.input) and node.input[zero] else None
        return ((numbers.astype(np.float64) - (0 if zeros is None else zeros)) * scales).astype(np.float32)

    def _embedding(self, node: NodeProto) -> Reals | None:
        """Rows that are looked up; None if that is something else."""
        numbers = self._constant(node.input[0])
        if numbers is None or numbers.ndim != 2:
            return None
        readers = (each for each in self.nodes if each.op_type == "DequantizeLinear" and each.input[0] in node.output)
        if (reader := next(readers, None)) is None:
            return numbers
        scale, zero = (self._raw(name) for name in [*reader.input, ""][1:3])
        return (numbers - np.float32(0 if zero is None else zero)) * np.float32(1 if scale is None else scale)

    def _names(self, tensor: str, place: str, kind: str) -> tuple[str, ...]:
        """What a tensor may be called that a node of that place reads."""
        own = re.sub(r"\.(MatMul|Add|layernorm)\.", ".", _ENDINGS.sub("", self._root(tensor)))
        return tuple(dict.fromkeys((own, f"{place}.{kind}" if place else own)))

    def _root(self, name: str) -> str:
        """The initialiser that a constant is made of."""
        return self._back(name, _SAME)

    def _given(self, name: str) -> str:
        """The input that numbers of rows are."""
        return self._back(name, {*_SAME, "Unsqueeze", "Squeeze", "Flatten"})

    def _back(self, name: str, operators: set[str]) -> str:
        """What a tensor is made of by these operators."""
        while (node := self._makers.get(name)) is not None and node.op_type in operators:
            name = node.input[0]
        return name

    def _constant(self, name: str) -> Reals | None:
        """The numbers of a constant, float32; None of what is computed."""
        array = self._raw(name)
        with np.errstate(over="ignore"):
            return None if array is None or array.dtype.kind not in "fiuV" else array.astype(np.float32, copy=False)

    def _raw(self, name: str) -> NDArray[Any] | None:
        """A constant as it is, and what is made of one without another tensor."""
        from onnx import numpy_helper

        if name in self._initialisers:
            return numpy_helper.to_array(self._initialisers[name])
        node = self._makers.get(name)
        if node is None or node.op_type not in _SAME or (array := self._raw(node.input[0])) is None:
            return None
        attributes = _attributes(node)
        if node.op_type == "Transpose":
            return array.transpose(attributes.get("perm"))
        if node.op_type == "DequantizeLinear":
            scale, zero = (self._raw(each) for each in [*node.input, ""][1:3])
            return None if scale is None else _real(array, scale, zero, attributes.get("axis", 1))
        return array if node.op_type in ("Cast", "Identity") else None

    @cached_property
    def _initialisers(self) -> dict[str, TensorProto]:
        graphs = [self._model.graph, *(body for node in self._model.graph.node for body in bodies(node))]
        tensors = {item.name: item for graph in graphs for item in graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant" and "value" in (values := _attributes(node)):
                tensors[node.output[0]] = values["value"]
        return tensors

    @cached_property
    def _makers(self) -> dict[str, NodeProto]:
        return {output: node for node in self.nodes for output in node.output}


def _read(path: Path) -> ModelProto:
    """The file with all its weights. Raises LanguageError, OnnxError."""
    import onnx
    from google.protobuf.message import DecodeError
    from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

    model = onnx.ModelProto()
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise LanguageError(f"{path}: has more than {_MOST_BYTES >> 20} MiB; take a smaller model")
        model.ParseFromString(path.read_bytes())
        outside = {ExternalDataInfo(item).location for item in model.graph.initializer if uses_external_data(item)}
        check_external(model, path)
        if sum((path.parent / name).stat().st_size for name in outside) > _MOST_BYTES:
            raise LanguageError(f"{path}: has weights of more than {_MOST_BYTES >> 20} MiB; take a smaller model")
        load_external_data_for_model(model, str(path.parent))
    except OSError as error:
        raise LanguageError(f"{path}: cannot be read ({error.strerror}); name a file that is there") from error
    except (DecodeError, UnicodeDecodeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        if isinstance(error, (LanguageError, OnnxError)):
            raise
        raise _damaged(path, one_line(error)) from error
    if not model.graph.node:
        raise _damaged(path, "it has no nodes")
    check_tensors(model, str(path))
    return model


def _damaged(path: Path, why: str) -> LanguageError:
    return LanguageError(f"{path}: is no whole ONNX file ({why}); fetch or export it again")


def _flat(nodes: Any) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        ways = bodies(node)
        if ways:
            yield from _flat(ways[0].node)


def _place(node: NodeProto) -> str:
    """Whose node it is, by the names of modules: "model.layers.0.mlp.up_proj"; "" if its name does not say."""
    parts = node.name.strip("/").split("/")
    kept = [*parts[: next((at for at, part in enumerate(parts) if _is_operator(part)), len(parts))]]
    return ".".join(kept) if len(kept) < len(parts) else ""


def _is_operator(part: str) -> bool:
    """Names of operators begin with a capital, those of modules do not."""
    return part[:1].isupper()


def _attributes(node: NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _real(array: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any] | None, axis: int) -> NDArray[Any]:
    """What integers stand for, with a scale for all, or one for each index along `axis`."""
    shape = [-1 if at == axis % array.ndim else 1 for at in range(array.ndim)] if scale.size > 1 else []
    less = 0 if zero is None else zero.astype(np.float64).reshape(shape)
    return ((array.astype(np.float64) - less) * scale.astype(np.float64).reshape(shape)).astype(np.float32)
