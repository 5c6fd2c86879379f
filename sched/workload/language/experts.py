"""A step of a model with experts (a mixture of experts, MoE) as the networks of its programs.

The host chooses experts by what the chip has computed, so a step is cut at each layer that has some:

    attention 0 .. router | experts | attention .. router | ... | experts | ... scores

Weights of all experts of a layer lie side by side in two regions of DRAM: those of an expert are as many pixels there
as it has outputs, and multiply as `product`. A network of experts has so many of them (`slots`), which it sees as the
first ones of the layer; a run moves each to an expert that was chosen. So there is a program for each number of
experts, and none for each choice, and nothing is read of experts that no token chose. Each expert multiplies all tokens
of the step; its gate is 0 for those that did not choose it, which then is exactly nothing.

What the networks hand each other lies in regions, too: the chip reads it where it has left it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Layer, Value
from ..normalisation import ONE
from ..regions import Region, View
from . import reference
from .graph import StepBuilder, check_news, named
from .integers import WEIGHT_BITS, Filters, Integers
from .model import LanguageModel

Chosen = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A program of a step with `news[i]` new tokens of text i: all up to the router of mixture `number` (or to the
    scores, behind the last); or, with `slots`, so many experts of that mixture."""

    news: tuple[int, ...]
    number: int
    slots: int = 0

    def graph(self, integers: Integers, begin: int = 0, texts: int = 0) -> Graph:
        """Its network. `begin`: first word of each DRAM tile that it may use (`Graph.begin`); `texts`: for how many
        there are regions (0: its own). Raises LanguageError if the context has no room for so many tokens."""
        check_news(integers.model, self.news)
        builder = _PartBuilder(integers, self.news, texts)
        if self.slots:
            return builder.experts(integers.model.mixtures[self.number], self.slots, begin)
        return builder.attention(self.number, begin)


def whole_graph(integers: Integers, news: tuple[int, ...], slots: Callable[[int, int], int]) -> Graph:
    """The network of a whole step, were its experts known before it: what cutting it costs shows there. `slots`: as in
    `parts_of`. Raises LanguageError if the context has no room for so many tokens."""
    check_news(integers.model, news)
    return _PartBuilder(integers, news).whole(slots)


def parts_of(model: LanguageModel, news: tuple[int, ...], slots: Callable[[int, int], int]) -> list[Part]:
    """The programs of a step, in order. `slots(experts, top)`: experts of a program, of so many that a layer has and a
    token takes."""
    parts: list[Part] = []
    for number, layer in enumerate(model.mixtures):
        parts += [Part(news, number), Part(news, number, slots(model.experts(layer), model.top))]
    return [*parts, Part(news, len(model.mixtures))]


def most_chosen(news: tuple[int, ...], experts: int, top: int) -> int:
    """The most experts that the tokens of a step can choose."""
    return min(experts, sum(news) * top)


def even_chosen(news: tuple[int, ...], experts: int, top: int) -> int:
    """How many experts the tokens of a step choose in the mean if each takes any `top` of them."""
    return max(top, round(experts * (1 - (1 - top / experts) ** sum(news))))


def regions_of(model: LanguageModel, texts: int = 1) -> tuple[Region, ...]:
    """What all networks of steps of so many texts have in common: caches, weights of experts, and what they hand each
    other."""
    width, context = model.width, model.context
    caches = [
        Region(named(f"{layer}/{name}", text, texts), model.key_width, 2 * context, model.groups)
        for text in range(texts)
        for layer in range(model.layers)
        for name in "kv"
    ]
    weights: list[Region] = []
    for layer in model.mixtures:
        experts, hidden = model.experts(layer), hidden_of(model, layer)
        weights.append(Region(f"{layer}/up", width, experts * hidden))
        weights.append(Region(f"{layer}/down", hidden, experts * width))
    return (*caches, *weights, *(Region(name, width, texts * context) for name in ("residual", "feed", "sum")))


def hidden_of(model: LanguageModel, layer: int) -> int:
    """Numbers between the two products of an expert."""
    return model.arrays[f"{layer}/up.weight"].shape[1]


def expert_weights(integers: Integers, layer: int) -> dict[str, NDArray[np.int8]]:
    """The weights of all experts of a layer as the networks read them, "up" int8 [E, W, F] and "down" [E, F, W]. One
    multiplier serves all experts of a layer."""
    up, down = (_filters(integers, layer, name).w for name in ("up", "down"))
    return {"up": up.transpose(0, 2, 1), "down": down.transpose(0, 2, 1)}


def gates_of(integers: Integers, layer: int, scores: NDArray[np.int8]) -> tuple[Chosen, NDArray[np.int8]]:
    """What the host chooses. `scores`: int8 [tokens, E] of a router; returns the experts of each token, [tokens, top],
    and the gates of all experts, int8 [tokens, E] with a step of 1 / `ONE`, 0 where a token did not choose one."""
    chosen = reference.routed(scores, integers.model.top)
    gates = reference.gates(scores.astype(np.float64) * integers.steps[f"{layer}/router"], chosen)
    result = np.zeros(scores.shape, np.int8)
    np.put_along_axis(result, chosen, np.rint(ONE * gates).astype(np.int8), axis=-1)
    return chosen, result


def slot(layer: int, name: str, number: int) -> str:
    """The input `name` ("gate", "up", "down") of an expert of a network."""
    return f"{layer}/{name}@{number}"


_TENSORS = {"up": ("feed", "hidden"), "down": ("gated", "z")}


def _filters(integers: Integers, layer: int, name: str) -> Filters:
    """A product of all experts of a layer. They multiply as tensors, whose words hold bytes: so their weights have 8
    bits, also where others have fewer."""
    x, y = _TENSORS[name]
    return replace(integers, weight_bits=WEIGHT_BITS[-1]).filters(f"{layer}/{name}", f"{layer}/{x}", f"{layer}/{y}")


class _PartBuilder(StepBuilder):
    """The networks of the programs of a step. `views`: of what has been added, what lies in regions."""

    def __init__(self, integers: Integers, news: tuple[int, ...], texts: int = 0) -> None:
        super().__init__(integers, news)
        self.texts = texts or len(news)
        self.views: list[View] = []

    def attention(self, part: int, begin: int) -> Graph:
        """That of program `part` up to a router, or to the scores."""
        mixtures = self.model.mixtures
        first = mixtures[part - 1] + 1 if part else 0
        if part:
            x = self._input(f"{first - 1}/z", self.integers.steps[f"{first - 1}/z"])
            self.views.append(View(x, "sum"))
        else:
            x = self._input("x", self.integers.steps["x"])
        end = mixtures[part] + 1 if part < len(mixtures) else self.model.layers
        if first < end:
            self._counted()
        for layer in range(first, end):
            rescaled, feed = self._attended(layer, x)
            if self.model.experts(layer):
                router = self._product(f"{layer}/router", feed, f"{layer}/router")
                self.views += [View(rescaled, "residual"), View(feed, "feed")]
                return self._part(f"-{part}", [router, rescaled, feed], begin)
            x = self._dense(layer, rescaled, feed)
        return self._part(f"-{part}", [self._scores(x)], begin)

    def experts(self, layer: int, slots: int, begin: int) -> Graph:
        """That of the first `slots` experts of a layer."""
        steps = self.integers.steps
        rescaled = self._input(f"{layer}/z/rescaled", steps[f"{layer}/z"])
        feed = self._input(f"{layer}/feed", steps[f"{layer}/feed"])
        total = self._mixture(layer, slots, rescaled, feed)
        self.views += [View(rescaled, "residual"), View(feed, "feed"), View(total, "sum")]
        return self._part(f"-{layer}-{slots}", [total], begin)

    def whole(self, slots: Callable[[int, int], int]) -> Graph:
        """That of the whole step, were its experts known before it."""
        x = self._input("x", self.integers.steps["x"])
        self._counted()
        routers: list[str] = []
        for layer in range(self.model.layers):
            rescaled, feed = self._attended(layer, x)
            if experts := self.model.experts(layer):
                routers.append(self._product(f"{layer}/router", feed, f"{layer}/router"))
                x = self._mixture(layer, slots(experts, self.model.top), rescaled, feed)
            else:
                x = self._dense(layer, rescaled, feed)
        return self._part("-whole", [self._scores(x), *routers], 1)

    def _mixture(self, layer: int, slots: int, total: str, feed: str) -> str:
        """The first `slots` experts of a layer, added to the residual one after the other. Layers of one come beside
        earlier ones of the next: a unit that waits for one expert's has another's to do."""
        experts: list[list[Layer]] = []
        for number in range(slots):
            result = f"{layer}/z" if number == slots - 1 else slot(layer, "z", number)
            experts.append(self._expert(layer, number, feed, total, result))
            total = result
        depth = len(experts[0])
        for turn in range(slots + depth - 1):
            for late in range(max(0, turn - slots + 1), min(turn + 1, depth)):
                self.layers.append(experts[turn - late][late])
        return total

    def _expert(self, layer: int, number: int, feed: str, total: str, result: str) -> list[Layer]:
        """The layers of an expert, which reads its weights where they lie and adds to `total`."""
        steps, width = self.integers.steps, self.model.width
        hidden_size = hidden_of(self.model, layer)
        up, down = (_filters(self.integers, layer, name) for name in ("up", "down"))
        gate, w_up, w_down, hidden, gated, more = (
            slot(layer, name, number) for name in ("gate", "up", "down", "hidden", "gated", "more")
        )
        self._input(gate, 1 / ONE, hidden_size)
        for name, weights, channels, pixels in (
            ("up", w_up, width, hidden_size), ("down", w_down, hidden_size, width),
        ):  # fmt: skip
            self.inputs.append(Value(weights, channels, 1, pixels, 1.0))
            self.views.append(View(weights, f"{layer}/{name}", number * pixels))
        s_hidden, s_gated, s_z = (steps[f"{layer}/{name}"] for name in ("hidden", "gated", "z"))
        self.steps |= {hidden: s_hidden, gated: s_gated, more: s_z, result: s_z}
        gating = self.integers.multiplier(f"{layer}/gated", s_hidden / ONE, 1 / s_gated)
        return [
            Layer("product", hidden, (feed, w_up), scale=up.scale, relu=True),
            Layer("mul", gated, (hidden, gate), scale=gating),
            Layer("product", more, (gated, w_down), scale=down.scale),
            Layer("add", result, (total, more)),
        ]

    def _part(self, part: str, outputs: Sequence[str], begin: int) -> Graph:
        regions = regions_of(self.model, self.texts)
        return self._graph(part, outputs, regions=regions, views=tuple(self.views), begin=begin)

    def _region(self, name: str, text: int) -> str:
        return named(name, text, self.texts)
