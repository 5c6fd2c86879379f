"""The nodes that take the place of one node of an ONNX file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import Refused
from .instead import Instead

if TYPE_CHECKING:
    from onnx import TensorProto

#: From this opset on the axes of a mean, a sum and of `Unsqueeze` are operands; an operator normalises layers; sizes of
#: a split may be left out if their number is given.
_MEAN_AXES, _AXES, _NORMALISES, _SPLITS = 18, 13, 17, 18
_INT64 = 7  # of `TensorProto`
#: What a masked score is, unless a node says otherwise.
_MASKED = -10000.0


class UnknownRank(Refused):
    """A node whose operand may have any number of dimensions."""


@dataclass
class Replacement(Instead):
    """The nodes that take the place of one. `ranks`: dimensions of the tensors of which they are known; `kinds`: types
    of their elements; `uses`: tensors that are read; `constants`: those of the file."""

    opset: int
    ranks: Mapping[str, int]
    uses: Container[str]
    kinds: Mapping[str, int]
    constants: Mapping[str, TensorProto]

    @property
    def attributes(self) -> dict[str, Any]:
        from onnx import helper

        return {each.name: helper.get_attribute_value(each) for each in self.node.attribute}

    def operand(self, index: int) -> str:
        """The name of an operand; empty if it is left out."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def result(self, index: int) -> str:
        """The name of a result; empty if nobody reads it."""
        name = self.node.output[index] if index < len(self.node.output) else ""
        return name if name in self.uses else ""

    def number(self, name: str) -> NDArray[Any] | None:
        """A constant of the file; None for a tensor that is computed."""
        from onnx import numpy_helper

        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def new(self, kind: str) -> str:
        """A name that no tensor of the model has (`own_names`)."""
        return f"{next(filter(None, self.node.output))}//{kind}{len(self.nodes)}"

    def thirds(self, x: str, axis: int) -> Sequence[str]:
        """Queries, keys and values that stand one behind the other."""
        count: dict[str, Any] = {"num_outputs": 3} if self.opset >= _SPLITS else {}
        results = [self.new(f"Split{part}_") for part in range(3)]
        return self.several("Split", [x], results, "", axis=axis, **count)

    @property
    def real(self) -> int:
        """The type (`TensorProto`) in which the node computes: that of its first operand in real numbers. Raises
        UnknownRank where none is known, and the file has two of them."""
        from onnx import TensorProto

        types = TensorProto.FLOAT, TensorProto.FLOAT16
        operands = [self.kinds[name] for name in self.node.input if self.kinds.get(name) in types]
        if not operands and TensorProto.FLOAT16 in self.kinds.values():
            raise UnknownRank("of what type its operands are is not said in the file; export it with types")
        return operands[0] if operands else TensorProto.FLOAT

    def cast(self, x: str) -> str:
        """To the type in which the node computes."""
        return self.several("Cast", [x], [self.new("Cast")], to=self.real)[0]

    def constant(self, value: ArrayLike, kind: type[np.generic] | None = None) -> str:
        """In the type in which the node computes, unless it is named."""
        from onnx import helper

        kind = helper.tensor_dtype_to_np_dtype(self.real).type if kind is None else kind
        return self.array(value, kind)

    def rank(self, name: str) -> int:
        """Raises UnknownRank."""
        if name not in self.ranks:
            raise UnknownRank(f"how many dimensions {name!r} has is not said in the file; export it with shapes")
        return self.ranks[name]

    def is_boolean(self, name: str) -> bool:
        """Raises UnknownRank where the file does not say of what type a tensor is."""
        from onnx import TensorProto

        if not self.kinds.get(name, 0):
            raise UnknownRank(f"of what type {name!r} is is not said in the file; export it with types")
        return self.kinds[name] == TensorProto.BOOL

    def refuse_results(self, indices: Iterable[int], why: str) -> None:
        """Raises Refused if one of these results is read."""
        if any(self.result(index) for index in indices):
            raise Refused(why)

    # -- what several of them are made of ----------------------------------------------------------------------------

    def mean(self, x: str) -> str:
        """Over the last axis."""
        if self.opset < _MEAN_AXES:
            return self.op("ReduceMean", x, axes=[-1])
        return self.op("ReduceMean", x, self.constant([-1], np.int64))

    def over(self, reduction: str, x: str, axis: int) -> str:
        """A maximum, or a sum of another kind than the plain one, over one axis, which stays."""
        if self.opset < _MEAN_AXES:
            return self.op(reduction, x, axes=[axis])
        return self.op(reduction, x, self.constant([axis], np.int64))

    def unsqueeze(self, x: str, *axes: int) -> str:
        if self.opset < _AXES:
            return self.op("Unsqueeze", x, axes=list(axes))
        return self.op("Unsqueeze", x, self.constant(axes, np.int64))

    def sum(self, *terms: str, to: str = "") -> str:
        """Of those that are not left out: one at least."""
        first, *others = filter(None, terms)
        for number, other in enumerate(others):
            first = self.op("Add", first, other, to=to if number + 1 == len(others) else "")
        return first if others or not to else self.op("Identity", first, to=to)

    def layer_normalisation(self, x: str, gain: str, offset: str, to: str) -> str:
        epsilon = float(self.attributes.get("epsilon", 1e-5))
        if self.opset >= _NORMALISES:
            operands = [x, gain, offset] if offset else [x, gain]
            return self.op("LayerNormalization", *operands, to=to, axis=-1, epsilon=epsilon)
        less = self.op("Sub", x, self.mean(x))
        variance = self.mean(self.op("Mul", less, less))
        root = self.op("Sqrt", self.op("Add", variance, self.constant(epsilon)))
        scaled = self.op("Mul", self.op("Div", less, root), gain, to="" if offset else to)
        return self.op("Add", scaled, offset, to=to) if offset else scaled

    def root_normalisation(self, x: str, gain: str, to: str) -> str:
        epsilon = float(self.attributes.get("epsilon", 1e-5))
        squares = self.mean(self.op("Mul", x, x))
        root = self.op("Sqrt", self.op("Add", squares, self.constant(epsilon)))
        return self.op("Mul", self.op("Div", x, root), gain, to=to)

    def heads(self, x: str, count: int) -> str:
        """[batch, tokens, features] as [batch, heads, tokens, features of a head]."""
        return self.op("Transpose", self.reshape(x, 0, 0, count, -1), perm=[0, 2, 1, 3])

    def attention(self, query: str, key: str, value: str, width: str, terms: Sequence[str], to: str) -> None:
        """Softmax of scaled scores, times the values, heads side by side. `query`, `key`, `value`: by heads; `width`:
        what the scores are divided by the root of (empty: the attribute `scale`); `terms`: added to the scores."""
        turned = self.op("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.op("MatMul", query, turned)
        scale = float(self.attributes.get("scale", 0.0))
        if scale:
            scaled = self.op("Mul", scores, self.constant(scale))
        else:
            scaled = self.op("Div", scores, self.op("Sqrt", width))
        masked = self.sum(scaled, *terms)
        if self.attributes.get("unidirectional", 0):
            masked = self._causal(masked)
        shares = self.op("Softmax", masked, axis=-1)
        joined = self.op("Transpose", self.op("MatMul", shares, value), perm=[0, 2, 1, 3])
        self.reshape(joined, 0, 0, -1, to=to)

    def features_of(self, x: str) -> str:
        """The size of the last axis of a tensor by heads, as a number of floating point."""
        size = self.op("Gather", self.op("Shape", x), self.constant(3, np.int64), axis=0)
        return self.cast(size)

    def _causal(self, scores: str) -> str:
        """Scores of later tokens are as good as none."""
        size = self.op("Gather", self.op("Shape", scores), self.constant(3, np.int64), axis=0)
        places = self.op("Range", self.constant(0, np.int64), size, self.constant(1, np.int64))
        later = self.op("Less", self.unsqueeze(places, 1), self.unsqueeze(places, 0))
        low = self.constant(float(self.attributes.get("mask_filter_value", _MASKED)))
        return self.op("Where", later, low, scores)

    def count(self, mask: str) -> str:
        """How many ones stand in each row of a mask of whole numbers."""
        if self.opset < _AXES:
            return self.op("ReduceSum", mask, axes=[1], keepdims=0)
        return self.op("ReduceSum", mask, self.constant([1], np.int64), keepdims=0)

    def mask_term(self, mask: str, key: str) -> str:
        """What a mask adds to the scores: 1 for tokens that count and 0 for others, [batch, tokens], or how many
        count, [batch]. `key`: by heads."""
        if not mask:
            return ""
        if self.rank(mask) == 1:
            size = self.op("Gather", self.op("Shape", key), self.constant(2, np.int64), axis=0)
            places = self.op("Range", self.constant(0, np.int64), size, self.constant(1, np.int64))
            counts = self.several("Cast", [mask], [self.new("Cast")], to=_INT64)[0]
            mask = self.op("Less", self.unsqueeze(places, 0), self.unsqueeze(counts, 1))
        elif self.rank(mask) != 2:
            raise Refused("its mask is not [batch, tokens]; export it with a mask of ones and zeros")
        missing = self.op("Sub", self.constant(1.0), self.cast(mask))
        low = self.constant(float(self.attributes.get("mask_filter_value", _MASKED)))
        return self.unsqueeze(self.op("Mul", missing, low), 1, 2)
