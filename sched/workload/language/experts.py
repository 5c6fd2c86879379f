"""A step of a model with experts (a mixture of experts, MoE) as the networks of its programs.

The host chooses experts by what the chip has computed, so a step is cut at each layer that has some:

    attention 0 .. router | experts | attention .. router | ... | experts | ... scores

Weights of all experts of a layer lie side by side in two regions of DRAM: those of an expert are as many pixels there as
it has outputs, and multiply as `product`. A network of experts has so many of them (`slots`), which it sees as the first
ones of the layer; a run moves each to an expert that was chosen. So there is a program for each number of experts, and
none for each choice, and nothing is read of experts that no token chose. Each expert multiplies all tokens of the step;
its gate is 0 for those that did not choose it, which then is exactly nothing.

What the networks hand each other lies in regions, too: the chip reads it where it has left it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Value
from ..normalisation import ONE
from ..regions import Region, View
from . import reference
from .graph import StepBuilder, check_news, named
from .integers import Filters, Integers
from .model import LanguageModel


Chosen = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A program of a step with `news[i]` new tokens of text i: all up to the router of mixture `number` (or to the
    scores, behind the last); or, with `slots`, so many experts of that mixture."""

    news: tuple[int, ...]
    number: int
    slots: int = 0

    def graph(self, integers: Integers, begin: int = 0) -> Graph:
        """Its network. `begin`: first word of each DRAM tile that it may use (`Graph.begin`). Raises LanguageError if the
        context has no room for so many tokens."""
        check_news(integers.model, self.news)
        builder = _PartBuilder(integers, self.news)
        if self.slots:
            return builder.experts(integers.model.mixtures[self.number], self.slots, begin)
        return builder.attention(self.number, begin)


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
        Region(named(f"{layer}/{name}", text, texts), width, 2 * context, model.heads)
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
    x, y = _TENSORS[name]
    return integers.filters(f"{layer}/{name}", f"{layer}/{x}", f"{layer}/{y}")


class _PartBuilder(StepBuilder):
    """The networks of the programs of a step."""

    def attention(self, part: int, begin: int) -> Graph:
        """That of program `part` up to a router, or to the scores."""
        mixtures = self.model.mixtures
        views: list[View] = []
        first = mixtures[part - 1] + 1 if part else 0
        if part:
            x = self._input(f"{first - 1}/z", self.integers.steps[f"{first - 1}/z"])
            views.append(View(x, "sum"))
        else:
            x = self._input("x", self.integers.steps["x"])
        end = mixtures[part] + 1 if part < len(mixtures) else self.model.layers
        if first < end:
            self._counted()
        outputs: list[str] = []
        for layer in range(first, end):
            rescaled, feed = self._attended(layer, x)
            if self.model.experts(layer):
                outputs = [self._product(f"{layer}/router", feed, f"{layer}/router"), rescaled, feed]
                views += [View(rescaled, "residual"), View(feed, "feed")]
                break
            hidden = self._product(f"{layer}/up", feed, f"{layer}/hidden", relu=True)
            x = self._residual(f"{layer}/down", hidden, rescaled, f"{layer}/z")
        return self._part(f"-{part}", outputs or [self._scores(x)], views, begin)

    def experts(self, layer: int, slots: int, begin: int) -> Graph:
        """That of the first `slots` experts of a layer."""
        integers, steps, hidden_size = self.integers, self.integers.steps, hidden_of(self.model, layer)
        total = self._input(f"{layer}/z/rescaled", steps[f"{layer}/z"])
        feed = self._input(f"{layer}/feed", steps[f"{layer}/feed"])
        views = [View(total, "residual"), View(feed, "feed"), View(f"{layer}/z", "sum")]
        up, down = (_filters(integers, layer, name) for name in ("up", "down"))
        gating = integers.multiplier(f"{layer}/gated", steps[f"{layer}/hidden"] / ONE, 1 / steps[f"{layer}/gated"])
        for number in range(slots):
            gate = self._input(slot(layer, "gate", number), 1 / ONE, hidden_size)
            weights = {name: slot(layer, name, number) for name in ("up", "down")}
            for name, channels, pixels in (("up", self.model.width, hidden_size), ("down", hidden_size, self.model.width)):
                self.inputs.append(Value(weights[name], channels, 1, pixels, 1.0))
                views.append(View(weights[name], f"{layer}/{name}", number * pixels))
            hidden = self._add(
                "product", slot(layer, "hidden", number), (feed, weights["up"]), steps[f"{layer}/hidden"],
                scale=up.scale, relu=True,
            )  # fmt: skip
            gated = self._add("mul", slot(layer, "gated", number), (hidden, gate), steps[f"{layer}/gated"], scale=gating)
            more = self._add(
                "product", slot(layer, "more", number), (gated, weights["down"]), steps[f"{layer}/z"], scale=down.scale
            )
            name = f"{layer}/z" if number == slots - 1 else slot(layer, "z", number)
            total = self._add("add", name, (total, more), steps[f"{layer}/z"])
        return self._part(f"-{layer}-{slots}", [total], views, begin)

    def _part(self, part: str, outputs: Sequence[str], views: Sequence[View], begin: int) -> Graph:
        regions = regions_of(self.model, len(self.news))
        return self._graph(part, outputs, regions=regions, views=tuple(views), begin=begin)

    def _region(self, cache: str) -> str:
        return cache
