"""Decoders of all families in the form of `LanguageModel`, which changes nothing of what they say.

What the chip does is a division by the root mean square, products, and a function of one number. So

- gains of a normalisation are in the weights behind it, and its biases in theirs;
- a layer normalisation takes the mean away first. Nothing else reads the residual, so whatever is added to it may have
  no mean: embeddings, positions, and what each layer adds have theirs taken away;
- of heads that share keys and values the first ones of all groups come first where the residual reads them;
- factors (of embeddings, of what is added, of scores) are in the weights before them;
- where a position turns a number and its neighbour, what makes them has another order: number i and number i + half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checkpoint import Weights
from .layout import DecoderTensors, Product, Shape, TensorLayout
from .model import Reals
from .rotary import Rotary

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class DecoderForm:
    """What a family decides beside names and sizes. `centred`: normalisations take the mean away, too; `more`: what is
    added to the gains in the file; `bare`: products read the residual as it is. `positions`: learned ones, of which
    the file has `skipped` more before the first; `rotary`: of each layer, none without; `pairs`: a number turns with
    its neighbour. `query_gains`: of each layer's queries, 1 if there are none. `embedded`, `added`, `scored`: factors
    of embeddings, of what each layer adds, of scores. What else there is `LanguageModel` explains."""

    shape: Shape
    activation: str
    epsilon: float
    tied: bool
    centred: bool = False
    more: float = 0.0
    bare: bool = False
    parallel: bool = False
    positions: int = 0
    skipped: int = 0
    rotary: tuple[Rotary | None, ...] = ()
    pairs: bool = False
    gain: float = 0.0
    query_gains: tuple[float, ...] = ()
    normed: int = 0
    score_cap: float = 0.0
    output_cap: float = 0.0
    embedded: float = 1.0
    added: float = 1.0
    scored: float = 1.0
    slopes: tuple[float, ...] = ()


class DecoderWeights:
    """Brings a decoder to the form of `LanguageModel`."""

    def __init__(self, decoder: DecoderForm, layout: TensorLayout, weights: Weights) -> None:
        self.decoder, self.layout = decoder, layout
        self.tensors = DecoderTensors(weights, layout, decoder.shape)

    def arrays(self, context: int) -> Arrays:
        """All weights. Raises LanguageError."""
        decoder, layout, width = self.decoder, self.layout, self.decoder.shape.width
        rows = self.tensors.matrix(layout.embedding, 0, width) * decoder.embedded
        arrays: Arrays = {"embedding": self._added(self._embedded(rows))}
        if layout.position:
            rows = self.tensors.matrix(layout.position, decoder.positions + decoder.skipped, width)
            arrays["position"] = self._added(rows[decoder.skipped :][:context])
        for layer in range(decoder.shape.layers):
            arrays |= self._layer(layer)
        head = self._behind(self.tensors.head(decoder.tied, len(arrays["embedding"])), layout.last)
        head = head.times(decoder.scored)
        arrays |= {"output": head.w} | ({"output.bias": head.bias} if head.bias.any() else {})
        return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}

    def _embedded(self, rows: Reals) -> Reals:
        """Rows of the embedding, normalised if they are."""
        if not self.layout.embedded:
            return rows
        gains, shift = self.tensors.gains(self.layout.embedded, rows.shape[1])
        less = rows - rows.mean(axis=-1, keepdims=True)
        over = less / np.sqrt(np.mean(np.square(less), axis=-1, keepdims=True) + np.float32(self.decoder.epsilon))
        return over * gains + shift

    def _layer(self, layer: int) -> Arrays:
        tensors, layout = self.tensors, self.layout
        products = {
            name: self._behind(product, tensors.of_layer(layer, layout.attend))
            for name, product in tensors.attention(layer).items()
        }
        if self.decoder.query_gains:
            products["q"] = products["q"].times(self.decoder.query_gains[layer])
        if self.decoder.pairs:
            heads = {"q": self.decoder.shape.heads, "k": self.decoder.shape.groups}
            products |= {name: products[name].rows(self._half_by_half(count)) for name, count in heads.items()}
        hidden = tensors.hidden(layer)
        for name in hidden.keys() - {"down"}:
            products[name] = self._behind(hidden[name], tensors.of_layer(layer, layout.feed))
        for name, product in (("o", tensors.out(layer)), ("down", hidden["down"])):
            products[name] = Product(self._added(product.w.T).T, self._added(product.bias)).times(self.decoder.added)
        arrays: Arrays = {}
        for name, product in products.items():
            arrays[f"{layer}/{name}.weight"] = product.w
            if product.bias.any() or name in self.decoder.shape.biased:
                arrays[f"{layer}/{name}.bias"] = product.bias
        return arrays | self._normed(layer)

    def _normed(self, layer: int) -> Arrays:
        """Gains of queries, keys, and of what the layer adds, where these are normalised."""
        tensors, layout, shape, arrays = self.tensors, self.layout, self.decoder.shape, Arrays()
        for name, norm, heads in (("q", layout.q_norm, shape.heads), ("k", layout.k_norm, shape.groups)):
            if norm:
                own = 1 if self.decoder.normed == shape.heads else heads  # those of one head are for all
                gains = self._gains(tensors.of_layer(layer, norm), own * shape.each)
                arrays[f"{layer}/{name}.gain"] = np.tile(gains, heads // own)
        for name, norm in (("o", layout.o_norm), ("down", layout.down_norm)):
            if norm:
                arrays[f"{layer}/{name}.gain"] = self._gains(tensors.of_layer(layer, norm), shape.width)
        return arrays

    def _gains(self, norm: str, size: int) -> Reals:
        return self.tensors.gains(norm, size)[0] + np.float32(self.decoder.more)

    def _behind(self, product: Product, norm: str) -> Product:
        """A product with the gains and biases of the normalisation that it reads."""
        size = product.w.shape[1]
        _, shift = self.tensors.gains(norm, size)
        gains = self._gains(norm, size) if norm else np.ones(size, np.float32)
        return Product(product.w * gains, product.bias + (product.w @ shift).astype(np.float32))

    def _added(self, array: Reals) -> Reals:
        """What is added to the residual, [..., W], as normalisations see it."""
        return array - array.mean(axis=-1, keepdims=True) if self.decoder.centred else array

    def _half_by_half(self, heads: int) -> NDArray[np.int64]:
        """Rows of so many heads, of each first the even ones that turn, then the odd ones, then those that stay."""
        shape, rotary = self.decoder.shape, self.decoder.rotary[0]
        turned = rotary.turned if rotary else 0
        own = np.arange(shape.each)
        order = np.concatenate([own[:turned:2], own[1:turned:2], own[turned:]])
        return (np.arange(heads)[:, None] * shape.each + order).reshape(-1)
