"""A step of a language model as a network: so many new tokens of one or several texts behind those in their caches.

Tokens are pixels, features channels. Keys and values are caches (`regions.Cache`): C pixels in DRAM of which the
last belong to the new tokens, read where they lie. Scores have a channel for each head and new token and a pixel for
each key, so whole-block operations of the vector unit make a softmax of them. Two inputs say which keys count: `keep`
(1, or 0) and `mask` (0, or -128). So one network serves all lengths.

Keys and values that several heads share are made, kept and read once: queries of these heads, and what they take of
the values, are rows of pixels of one product.

In a step of several texts the products with weights are those of all tokens together, so weights are read once. Each
text has an attention, caches and inputs of its own, whose names end with its number in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from .. import int4
from ..graph import TABLE_SIZE, Graph, Kind, Layer, PastePlace, Value, Window
from ..normalisation import ONE, quotient_scale, softmax
from ..regions import Cache
from . import reference
from .activation import ACTIVATIONS
from .integers import WEIGHT_BITS, Integers
from .model import LanguageError, LanguageModel
from .rotary import Rotary

_ONCE_16 = 1 << SCALE_SHIFT - 4  # a factor of 1 with `times16`


def step_graph(integers: Integers, tokens: int) -> Graph:
    """The network of a step of `tokens` new tokens; input `x` and outputs `scores` have a pixel for each.

    Raises LanguageError if the context has no room for them.
    """
    return batch_graph(integers, (tokens,))


def batch_graph(integers: Integers, news: Sequence[int]) -> Graph:
    """The network of a step of several texts, with `news[i]` new tokens of text i: their pixels of `x` and `scores`
    stand side by side. Of one text it is that of `step_graph`.

    Raises LanguageError if the context has no room for the tokens of a text, and for a model with experts.
    """
    model = integers.model
    if model.mixtures:
        raise LanguageError(
            f"model {model.name} has experts, which the host chooses between programs: a step of it is several "
            "networks; take those of its parts (`experts.Part`)"
        )
    check_news(model, news)
    return StepBuilder(integers, tuple(news)).build()


def check_news(model: LanguageModel, news: Sequence[int]) -> None:
    """Raises LanguageError if the context has no room for so many new tokens of a text."""
    if not all(0 < tokens < model.context for tokens in news):
        raise LanguageError(f"model {model.name} looks at {model.context} tokens; take 1..{model.context - 1} at once")


def named(name: str, text: int, texts: int) -> str:
    """The name that an input or a cache has in the step of so many texts."""
    return name if texts == 1 else f"{name}@{text}"


def attended(
    context: int, heads: int, new: int, total: int, slopes: Sequence[float] = ()
) -> dict[str, NDArray[np.int8]]:
    """The inputs `keep` and `mask`, int8 [1, heads * new, 1, context], when the last of `total` tokens are `new`.
    `slopes`: by head, how many steps less the score of a key is with each token that it is farther away."""
    key = np.arange(context) - context  # -1: the last token
    query = np.arange(new) - new
    counts = (key[None, :] <= query[:, None]) & (key[None, :] >= -total)
    counts = np.tile(counts, (heads, 1))[None, :, None, :]
    apart = (key[None, :] - query[:, None]) * np.array(slopes or (0.0,) * heads)[:, None, None]
    less = np.clip(np.rint(apart), -128, 0).reshape(counts.shape)
    return {"keep": counts.astype(np.int8), "mask": np.where(counts, less, -128).astype(np.int8)}


class StepBuilder:
    """Builds the network of a step of `news[i]` new tokens of text i."""

    def __init__(self, integers: Integers, news: tuple[int, ...]) -> None:
        self.integers, self.model, self.news = integers, integers.model, news
        self.layers: list[Layer] = []
        self.steps: dict[str, float] = {}
        self.caches: list[Cache] = []
        self.inputs: list[Value] = []

    def build(self) -> Graph:
        """The whole step."""
        x = self._input("x", self.integers.steps["x"])
        for rotary in self.model.turns:
            for name in reference.waves(self.model, rotary):
                self._input(name, self.integers.steps[name], self.model.key_width, self.model.sharing)
        self._counted()
        for layer in range(self.model.layers):
            rescaled, feed = self._attended(layer, x)
            x = self._dense(layer, rescaled, feed)
        return self._graph("", [self._scores(x)])

    def _dense(self, layer: int, rescaled: str, feed: str) -> str:
        """The rest of a layer without experts."""
        return self._residual(layer, "down", self._hidden(layer, feed), rescaled, f"{layer}/z")

    def _hidden(self, layer: int, feed: str) -> str:
        """What is between the two products of a layer."""
        steps, hidden = self.integers.steps, f"{layer}/hidden"
        if not self.model.gated and self.model.activation == "relu":
            return self._product(f"{layer}/up", feed, hidden, relu=True)
        if not self.model.gated:
            return self._activated(self._product(f"{layer}/up", feed, f"{layer}/raised"), hidden)
        active = self._activated(self._product(f"{layer}/gate", feed, f"{layer}/gate"), f"{layer}/active")
        raised = self._product(f"{layer}/up", feed, f"{layer}/raised")
        scale = self.integers.multiplier(hidden, steps[active], steps[raised], 1 / steps[hidden])
        return self._add("mul", hidden, (active, raised), steps[hidden], scale=scale)

    def _activated(self, x: str, y: str) -> str:
        """The activation of each number."""
        return self._tabled(x, y, ACTIVATIONS[self.model.activation])

    def _tabled(self, x: str, y: str, function: Callable[[NDArray[Any]], NDArray[Any]], y_step: str = "") -> str:
        """A function of each number. `y_step`: the tensor whose step it has, if it is another."""
        step, numbers = self.integers.steps[y_step or y], np.arange(TABLE_SIZE) - TABLE_SIZE // 2
        table = np.clip(np.rint(function(numbers * self.steps[x]) / step), -128, 127).astype(np.int8)
        return self._add("table", y, (x,), step, table=table)

    def _input(self, name: str, step: float, channels: int = 0, rows: int = 1) -> str:
        """An input with a pixel for each token in each row; `channels`: 0 for as many as a token has between layers."""
        self.inputs.append(Value(name, channels or self.model.width, rows, sum(self.news), step))
        self.steps[name] = step
        return name

    def _counted(self) -> None:
        """The inputs that say which keys count."""
        for text, tokens in enumerate(self.news):
            self.inputs += [
                Value(self._named(name, text), self.model.heads * tokens, 1, self.model.context, 1.0)
                for name in ("keep", "mask")
            ]

    def _attended(self, layer: int, x: str) -> tuple[str, str]:
        """A layer but for what follows its second normalisation: the residual in the step of the sum, and the result of
        that normalisation."""
        width, read = self.model.width, x
        if not self.model.bare:
            read = self._normalised(f"{layer}/attend", self._across(f"{layer}/attend", x), width)
        pairs = self._attention(layer, read)
        rescaled = self._rescaled(x, f"{layer}/y")
        y = self._residual(layer, "o", self._mixed(layer, pairs), rescaled, f"{layer}/y")
        if self.model.parallel or self.model.bare:
            return self._rescaled(y, f"{layer}/z"), read if self.model.parallel else y
        across = self._across(f"{layer}/feed", y)
        rescaled = self._rescaled(y, f"{layer}/z")
        return rescaled, self._normalised(f"{layer}/feed", across, width)

    def _scores(self, x: str) -> str:
        last = self._normalised("last", self._across("last", x), self.model.width)
        if not self.model.output_cap:
            return self._product("output", last, "scores")
        uncapped = self._product("output", last, "uncapped")
        return self._tabled(uncapped, "scores", partial(reference.capped, cap=self.model.output_cap))

    def _graph(self, part: str, outputs: Sequence[str], **fields: Any) -> Graph:
        """The network of what has been added. `part`: behind its name; `fields`: of `Graph`."""
        return Graph(
            f"{self.model.name}-{'-'.join(str(tokens) for tokens in self.news)}{part}",
            tuple(self.inputs),
            tuple(self.layers),
            (*outputs, *(cache.new for cache in self.caches)),
            self.steps,
            real=True,
            caches=tuple(self.caches),
            **fields,
        )

    def _add(self, kind: Kind, name: str, inputs: Sequence[str], step: float, **fields: Any) -> str:
        """A layer; `step`: real value of 1 of its result; `fields`: of `Layer`."""
        self.layers.append(Layer(kind, name, tuple(inputs), **fields))
        self.steps[name] = step
        return name

    def _product(
        self, name: str, x: str, y: str, *, relu: bool = False, gain: float = 1.0, y_step: str = "",
    ) -> str:  # fmt: skip
        """The product `y` of `x` with weights. `y_step`: the tensor whose step it has, if it is another."""
        filters = self.integers.filters(name, x, y_step or y, gain)
        return self._add(
            "conv", y, (x,), self.integers.steps[y_step or y], w=filters.w[:, :, None, None], bias=filters.bias,
            scale=filters.scale, relu=relu, group=int4.GROUP if self.integers.weight_bits == WEIGHT_BITS[0] else 0,
        )  # fmt: skip

    def _placed(self, layer: int, name: str, x: str, gain: float = 1.0) -> str:
        """Keys ("k") or queries ("q"), a row of pixels for each head of a group: turned by their positions if these are
        rotary. Who turns a pair of numbers adds cos times the pair and sin times the pair the other way round."""
        at, rotary, rows = f"{layer}/{name}", self.model.turn(layer), self.model.sharing if name == "q" else 1
        if rotary is None and rows == 1:
            return self._made(layer, name, x, at, gain)
        step, still = self.integers.steps[at], self._made(layer, name, x, f"{at}/still", gain)
        across = self._across(f"{still}/swapped" if rotary else at, still, self.model.groups * rows)
        if rotary is None:
            return self._by_group(at, across, rows)
        factors = still if rows == 1 else self._by_group(f"{still}/by_group", across, rows)
        parts = list[str]()
        for factor, wave in zip(
            (factors, self._swapped(still, across, rotary, rows)), reference.waves(self.model, rotary), strict=True
        ):
            scale = self.integers.multiplier(f"{at}/{wave}", self.integers.steps[wave])
            own = wave if rows == self.model.sharing else self._first_row(wave)
            parts.append(self._add("mul", f"{at}/{wave}", (factor, own), step, scale=scale))
        return self._add("add", at, parts, step)

    def _made(self, layer: int, name: str, x: str, y: str, gain: float) -> str:
        """Queries or keys `y` by the product of that name, in their step, normalised if they are."""
        at = f"{layer}/{name}"
        if f"{at}.gain" in self.model.arrays:
            return self._gained(at, x, y, at, self.model.parts(name), gain)
        return self._product(at, x, y, gain=gain, y_step=at)

    def _by_group(self, name: str, across: str, rows: int) -> str:
        """Heads that are channels, their numbers pixels: turned back, so many heads of a group in a row each."""
        return self._add("transpose", name, (across,), self.steps[across], groups=self.model.groups, rows=rows)

    def _first_row(self, x: str) -> str:
        """The first row of pixels."""
        first = f"{x}/first"
        if first not in self.steps:
            self._add("slice", first, (x,), self.steps[x], window=Window(pad_bottom=self.model.sharing - 1))
        return first

    def _swapped(self, x: str, across: str, rotary: Rotary, rows: int) -> str:
        """`reference.swapped` of `x`, by moves alone. `across`: the same, a head's numbers pixels meanwhile."""
        step, width, half = self.steps[x], self.model.head_width, rotary.turned // 2
        parts, places = list[str](), list[PastePlace]()
        for at, first, count in ((0, half, half), (half, 0, half), (2 * half, 2 * half, width - 2 * half)):
            if count:
                window = Window(pad_left=first, pad_right=width - first - count)
                parts.append(self._add("slice", f"{x}/from{first}", (across,), step, window=window))
                places.append(PastePlace(0, at, 1, 1, 1, count))
        swapped = self._add("paste", f"{x}/swapped/by_head", parts, step, places=tuple(places))
        return self._by_group(f"{x}/swapped", swapped, rows)

    def _gained(self, name: str, x: str, y: str, y_step: str, parts: int = 1, gain: float = 1.0) -> str:
        """The product of that name, each of its parts normalised, times its gains and `gain`, in the step of `y_step`.
        Weights of single channels have 8 bits, also where others have fewer."""
        gains, long = self.model.arrays[f"{name}.gain"], self._product(name, x, f"{name}/long")
        across = self._across(f"{name}/over", long, parts)
        over = self._normalised(f"{name}/over", across, len(gains) // parts, parts)
        whole = replace(self.integers, weight_bits=WEIGHT_BITS[-1])
        filters = whole.of(gains[:, None], np.zeros(len(gains), np.float32), over, y_step, gain)
        return self._add(
            "depthwise", y, (over,), self.integers.steps[y_step], w=filters.w[:, :, None, None], bias=filters.bias,
            scale=filters.scale,
        )  # fmt: skip

    def _rescaled(self, r: str, y: str) -> str:
        """The residual `r` in the step of the sum `y`: it grows from layer to layer. It comes before what it is added
        to, whose operands would wait for it otherwise."""
        return self._tabled(r, f"{y}/rescaled", lambda numbers: numbers, y)

    def _residual(self, layer: int, name: str, x: str, rescaled: str, y: str) -> str:
        """A product that is added to the residual, normalised if it is."""
        name, more = f"{layer}/{name}", f"{y}/more"
        if f"{name}.gain" in self.model.arrays:
            self._gained(name, x, more, y)
        else:
            self._product(name, x, more, y_step=y)
        return self._add("add", y, (more, rescaled), self.integers.steps[y])

    def _across(self, name: str, x: str, parts: int = 1) -> str:
        """Tokens (of so many parts of their features each) along channels, features along pixels: the vector unit
        divides all pixels of a channel."""
        return self._add("transpose", f"{name}/across", (x,), self.steps[x], groups=parts)

    def _normalised(self, name: str, across: str, width: int, parts: int = 1) -> str:
        """Each part of a token, `width` features, over its root mean square, turned back."""
        step = self.integers.steps[name]
        scale = round(quotient_scale("root", width, step))
        over = self._add("normalise", f"{name}/over", (across,), step, by="root", scale=scale, times16=True)
        return self._add("transpose", name, (over,), step, groups=parts)

    def _named(self, name: str, text: int) -> str:
        return named(name, text, len(self.news))

    def _of_text(self, x: str, text: int) -> str:
        """The tokens of a text alone."""
        if len(self.news) == 1:
            return x
        left, right = sum(self.news[:text]), sum(self.news[text + 1 :])
        return self._add(
            "slice", self._named(x, text), (x,), self.steps[x], window=Window(pad_left=left, pad_right=right)
        )

    def _cached(self, name: str, text: int) -> str:
        """Keys or values of all tokens of a text: those of the new ones, behind those that are there. `name`: of the
        product that makes them of the new tokens of all texts."""
        new, tokens = self._of_text(name, text), self.news[text]
        context, step = self.model.context, self.integers.steps[name]
        old = context - tokens
        past = f"{new}/past"
        self.inputs.append(Value(past, self.model.key_width, 1, old, step))
        places = PastePlace(0, 0, 1, 1, 1, old), PastePlace(0, old, 1, 1, 1, tokens)
        rows = self._add("paste", f"{new}/rows", (past, new), step, places=places)
        self.caches.append(Cache(rows, past, new, 2 * context, self._region(name, text)))
        return rows

    def _region(self, name: str, text: int) -> str:
        """The region of a text's cache: its own."""
        return ""

    def _attention(self, layer: int, x: str) -> list[tuple[str, str]]:
        """By text what each new token takes of each key, and the values, both with keys along channels. Keys come
        first, and values are turned at once: neither needs the scores."""
        texts = range(len(self.news))
        self._placed(layer, "k", x)
        keys = [self._cached(f"{layer}/k", text) for text in texts]
        self._placed(layer, "q", x, gain=self.model.score_gain)
        self._product(f"{layer}/v", x, f"{layer}/v")
        values = [self._turned(layer, text) for text in texts]
        segments: list[list[Layer]] = []
        shares: list[str] = []
        for text in texts:
            first = len(self.layers)
            shares.append(self._shares(layer, text, keys[text]))
            segments.append(self.layers[first:])
            del self.layers[first:]
        # in turn: a unit that waits for one text's layer has another's to do
        self.layers += [one for turn in zip(*segments, strict=True) for one in turn]
        return list(zip(shares, values, strict=True))

    def _turned(self, layer: int, text: int) -> str:
        """The values of a text, keys along channels."""
        values, step = self._cached(f"{layer}/v", text), self.integers.steps[f"{layer}/v"]
        name = self._named(f"{layer}/v/turned", text)
        return self._add("transpose", name, (values,), step, groups=self.model.groups)

    def _shares(self, layer: int, text: int, keys: str) -> str:
        """What each new token of a text takes of each of its keys."""
        integers, groups, name = self.integers, self.model.groups, self._named(f"{layer}/attention", text)
        cap, met = self.model.score_cap, "uncapped" if self.model.score_cap else "scores"
        steps = {each: integers.steps[f"{layer}/{each}"] for each in {"q", "k", "scores", met}}
        q = self._of_text(f"{layer}/q", text)
        keep, mask = self._named("keep", text), self._named("mask", text)
        scale = integers.multiplier(f"{layer}/scores", steps["q"], steps["k"], 1 / steps[met])
        scores = self._named(f"{layer}/{met}", text)
        self._add("product", scores, (keys, q), steps[met], groups=groups, scale=scale)
        if cap:
            result = self._named(f"{layer}/scores", text)
            scores = self._tabled(scores, result, partial(reference.capped, cap=cap), f"{layer}/scores")
        kept = self._add("mul", f"{name}/kept", (scores, keep), steps["scores"], scale=_ONCE_16, times16=True)
        masked = self._add("add", f"{name}/masked", (kept, mask), steps["scores"])
        less, table, over = softmax(name, masked, steps["scores"])
        counted = Layer("mul", f"{name}/counted", (table.output, keep), scale=_ONCE_16, times16=True)
        shares = Layer("normalise", name, (counted.output,), by="sum", scale=over.scale, times16=True)
        self.layers += [less, table, counted, shares]
        self.steps |= {less.output: steps["scores"]} | dict.fromkeys((table.output, counted.output, name), 1 / ONE)
        return self._add("transpose", f"{name}/by_key", (name,), 1 / ONE, groups=groups, rows=self.model.sharing)

    def _mixed(self, layer: int, pairs: list[tuple[str, str]]) -> str:
        """Values by their shares, of all texts side by side."""
        integers, step = self.integers, self.integers.steps[f"{layer}/mixed"]
        scale = integers.multiplier(f"{layer}/mixed", integers.steps[f"{layer}/v"] / ONE, 1 / step)
        rows = self.model.sharing
        result = f"{layer}/mixed" if rows == 1 else f"{layer}/mixed/by_group"
        mixed = [
            self._add("product", self._named(result, text), pair, step, groups=self.model.groups, scale=scale)
            for text, pair in enumerate(pairs)
        ]
        if len(mixed) > 1:
            places = [PastePlace(0, sum(self.news[:text]), 1, 1, rows, tokens) for text, tokens in enumerate(self.news)]
            self._add("paste", result, mixed, step, places=tuple(places))
        if rows == 1:
            return result
        heads = [
            self._add("slice", f"{result}{row}", (result,), step, window=Window(pad_top=row, pad_bottom=rows - 1 - row))
            for row in range(rows)
        ]
        return self._add("concat", f"{layer}/mixed", heads, step)
