"""Where the tensors of a decoder are in a folder of transformers', and the products of a layer as they are there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checkpoint import CONFIG, Weights
from .model import LanguageError, Reals


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. `groups`: heads for keys and values, `each`: numbers of a head, `hidden`: between the two
    products of a layer, 0 for as many as the weights have. `biased`: products that must have a bias; others may."""

    width: int
    layers: int
    heads: int
    groups: int
    each: int
    hidden: int = 0
    biased: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TensorLayout:
    """Names of tensors without `.weight` and `.bias`, behind `prefix`, those of a layer behind `layer` with its number.

    Products that have one name are rows of one matrix: q, k and v one after the other, or with `by_group` those of the
    first group of heads (its queries, its key, its value), of the second, ...; gate and up one after the other.
    `transposed`: weights are [inputs, outputs]. A normalisation whose name is "" has no gains; `o_norm` and `down_norm`
    are of what a layer adds to the residual, `q_norm` and `k_norm` of queries and keys, `embedded` of embeddings: none
    if "".
    """

    prefix: str
    layer: str
    embedding: str
    last: str
    attend: str
    feed: str
    q: str
    k: str
    v: str
    o: str
    up: str
    down: str
    gate: str = ""
    position: str = ""
    embedded: str = ""
    q_norm: str = ""
    k_norm: str = ""
    o_norm: str = ""
    down_norm: str = ""
    by_group: bool = False
    transposed: bool = False


@dataclass(frozen=True)
class Product:
    """Weights [outputs, inputs] and biases [outputs]."""

    w: Reals
    bias: Reals

    def times(self, factor: float | Reals) -> Product:
        """With so much larger results."""
        by = np.broadcast_to(np.asarray(factor, np.float32), self.bias.shape)
        return Product(self.w * by[:, None], self.bias * by)

    def rows(self, order: NDArray[np.int64]) -> Product:
        """With those of its results, in that order."""
        return Product(self.w[order], self.bias[order])


class DecoderTensors:
    """The tensors of a folder by what they are for. Raises LanguageError as `Weights` does."""

    def __init__(self, weights: Weights, layout: TensorLayout, shape: Shape) -> None:
        self.weights, self.layout, self.shape = weights, layout, shape
        lost = layout.prefix.partition(".")[2]  # of a model that was saved without what makes scores
        self._prefix = layout.prefix if weights.has_prefix(layout.prefix) else lost

    def matrix(self, name: str, rows: int, columns: int) -> Reals:
        """One that is no product of a layer; 0: any size."""
        return self.weights(f"{self._prefix}{name}.weight", rows, columns)

    def gains(self, name: str, size: int) -> tuple[Reals, Reals]:
        """Gains and biases of a normalisation: ones and zeros if it has none."""
        if not name:
            return np.ones(size, np.float32), np.zeros(size, np.float32)
        return self.weights(f"{self._prefix}{name}.weight", size), self._bias(self._prefix + name, size)

    def of_layer(self, layer: int, name: str) -> str:
        """The name of what belongs to a layer; "" of nothing."""
        return name and self.layout.layer.format(layer) + name

    def attention(self, layer: int) -> dict[str, Product]:
        """q with rows for each head, k and v with rows for each group of them."""
        layout, shape = self.layout, self.shape
        own = {"q": shape.heads, "k": shape.groups, "v": shape.groups}
        if layout.q == layout.k:
            fused = self._product(layer, "q", sum(own.values()) * shape.each, shape.width)
            return {name: fused.rows(rows) for name, rows in self._fused().items()}
        return {name: self._product(layer, name, count * shape.each, shape.width) for name, count in own.items()}

    def _fused(self) -> dict[str, NDArray[np.int64]]:
        """Rows of q, k and v in their matrix."""
        heads, groups, each = self.shape.heads, self.shape.groups, self.shape.each
        rows = np.arange((heads + 2 * groups) * each)
        if not self.layout.by_group:
            return dict(zip("qkv", np.split(rows, [heads * each, (heads + groups) * each]), strict=True))
        by_group = rows.reshape(groups, -1, each)
        return {"q": by_group[:, :-2].reshape(-1), "k": by_group[:, -2].reshape(-1), "v": by_group[:, -1].reshape(-1)}

    def out(self, layer: int) -> Product:
        """What goes from the heads to the residual: it reads the first head of each group, then the second, ..."""
        heads, groups, each = self.shape.heads, self.shape.groups, self.shape.each
        product = self._product(layer, "o", self.shape.width, heads * each)
        columns = np.arange(heads * each).reshape(groups, -1, each).swapaxes(0, 1).reshape(-1)
        return Product(product.w[:, columns], product.bias)

    def hidden(self, layer: int) -> dict[str, Product]:
        """up and down, and gate if there is one."""
        layout, width, hidden = self.layout, self.shape.width, self.shape.hidden
        if layout.gate and layout.gate == layout.up:
            both = self._product(layer, "up", 2 * hidden, width)
            gate, up = np.split(np.arange(len(both.bias)), 2)
            products = {"gate": both.rows(gate), "up": both.rows(up)}
        else:
            names = ("gate", "up") if layout.gate else ("up",)
            products = {name: self._product(layer, name, hidden, width) for name in names}
        return products | {"down": self._product(layer, "down", width, len(products["up"].bias))}

    def _product(self, layer: int, name: str, rows: int, columns: int) -> Product:
        at = self._prefix + self.of_layer(layer, getattr(self.layout, name))
        if self.layout.transposed:
            w = self.weights(f"{at}.weight", columns, rows).T
        else:
            w = self.weights(f"{at}.weight", rows, columns)
        return Product(w, self._bias(at, len(w), name in self.shape.biased))

    def head(self, tied: bool, tokens: int) -> Product:
        """What makes scores of so many tokens: the file's own, or the embedding. Raises LanguageError."""
        own = next((name for name in ("lm_head", "embed_out") if f"{name}.weight" in self.weights), "lm_head")
        if f"{own}.weight" in self.weights:
            w = self.weights(f"{own}.weight", tokens, self.shape.width)
        elif tied:
            w = self.matrix(self.layout.embedding, tokens, self.shape.width)
        else:
            raise LanguageError(
                f"{self.weights.folder}: its weights have no 'lm_head.weight', by which tokens get their scores, and "
                f"its {CONFIG} does not say that they are the embedding's; save the whole model (AutoModelForCausalLM)"
            )
        return Product(w, self._bias(own, tokens))

    def _bias(self, at: str, size: int, must: bool = False) -> Reals:
        """A bias: zeros if there need not be one."""
        name = f"{at}.bias"
        return self.weights(name, size) if must or name in self.weights else np.zeros(size, np.float32)
