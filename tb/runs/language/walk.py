"""A step of a model with experts, program by program: what the host does between them, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.experts import Chosen, Part, expert_weights, gates_of, hidden_of, slot
from meshloom.sched.workload.language.graph import attended, named
from meshloom.sched.workload.language.integers import Integers

from ...inputs.golden.graph import golden_values

Arrays = dict[str, NDArray[np.int8]]
#: Computes a program: the part, the experts that it is of (none of attention), its inputs; returns its outputs.
Compute = Callable[[Part, tuple[int, ...], Arrays], Mapping[str, NDArray[np.int8]]]
#: Of each text of a step its new tokens, and its caches by name.
Texts = Sequence[tuple[NDArray[np.int64], Mapping[str, NDArray[np.int8]]]]
#: Chooses experts by the layer and the router's scores (`experts.gates_of`).
Router = Callable[[int, NDArray[np.int8]], tuple[Chosen, NDArray[np.int8]]]


@dataclass(frozen=True, eq=False)
class Walked:
    """What a step left, by text: `scores` int8 [tokens, V], and by cache what was appended, int8 [W, tokens]; by
    mixture the experts that each token took, [tokens, top]."""

    scores: tuple[NDArray[np.int8], ...]
    new: tuple[Arrays, ...]
    chosen: tuple[Chosen, ...]


@dataclass(frozen=True, eq=False)
class Walk:
    """Steps of a model. `weights`: of all experts by layer; `route`: who chooses."""

    integers: Integers
    weights: dict[int, Arrays]
    route: Router

    @classmethod
    def of(cls, integers: Integers, route: Router | None = None) -> Walk:
        """That of a model. `route`: None for the router's scores."""
        weights = {layer: expert_weights(integers, layer) for layer in integers.model.mixtures}
        return cls(integers, weights, route or partial(gates_of, integers))

    def step(self, texts: Texts, compute: Compute, news: tuple[int, ...] = (), every: bool = False) -> Walked:
        """A step of some tokens of each text behind those of its caches, int8 [W, tokens so far] by name. `news`:
        places that each text has (none: as many as tokens); what is left over comes first, counts for nothing and
        chooses no expert. `every`: each program of experts is of all experts of its layer; the numbers are the same."""
        model, news = self.integers.model, news or tuple(len(tokens) for tokens, _ in texts)
        left = self._inputs(texts, news)
        real = np.concatenate([
            np.arange(places) >= places - len(tokens) for places, (tokens, _) in zip(news, texts, strict=True)
        ])  # fmt: skip
        chosen: list[Chosen] = []
        for number, layer in enumerate(model.mixtures):
            left |= compute(Part(news, number), (), left)
            scores = left[f"{layer}/router"][0, :, 0].T
            gates = np.zeros_like(scores)
            own, gates[real] = self.route(layer, scores[real])
            chosen.append(own)
            experts = tuple(range(model.experts(layer))) if every else tuple(np.unique(own).tolist())
            left |= self._slots(layer, experts, gates)
            left |= compute(Part(news, number, len(experts)), experts, left)
        left |= compute(Part(news, len(model.mixtures)), (), left)
        return self._outcome(texts, news, left, tuple(chosen))

    def _inputs(self, texts: Texts, news: tuple[int, ...]) -> Arrays:
        """What the step reads from outside."""
        model, count = self.integers.model, len(texts)
        arrays: Arrays = {}
        rows: list[NDArray[np.int8]] = []
        for text, (tokens, caches) in enumerate(texts):
            before, places = next(iter(caches.values())).shape[1], news[text]
            row = np.zeros((1, model.width, 1, places), np.int8)
            row[..., places - len(tokens) :] = self.integers.entered(tokens, before)["x"]
            rows.append(row)
            counts = attended(model.context, model.heads, places, before + len(tokens))
            arrays |= {named(name, text, count): array for name, array in counts.items()}
            for name, array in caches.items():
                width = model.context - places
                past, some = np.zeros((1, model.key_width, 1, width), np.int8), array[:, -width:]
                past[0, :, 0, width - some.shape[1] :] = some
                arrays[f"{named(name, text, count)}/past"] = past
        return arrays | {"x": np.concatenate(rows, axis=3)}

    def _outcome(self, texts: Texts, news: tuple[int, ...], left: Arrays, chosen: tuple[Chosen, ...]) -> Walked:
        scores: list[NDArray[np.int8]] = []
        new: list[Arrays] = []
        for text, (end, (tokens, caches)) in enumerate(zip(np.cumsum(news).tolist(), texts, strict=True)):
            scores.append(left["scores"][0, :, 0, end - len(tokens) : end].T.copy())
            names = {name: named(name, text, len(texts)) for name in caches}
            new.append({name: left[other][0, :, 0, -len(tokens) :].copy() for name, other in names.items()})
        return Walked(tuple(scores), tuple(new), chosen)

    def _slots(self, layer: int, experts: tuple[int, ...], gates: NDArray[np.int8]) -> Arrays:
        """What a program of these experts reads of each."""
        arrays: Arrays = {}
        for number, expert in enumerate(experts):
            gate = np.repeat(gates[None, :, expert], hidden_of(self.integers.model, layer), axis=0)
            arrays[slot(layer, "gate", number)] = gate[None, :, None, :]
            for name, weights in self.weights[layer].items():
                arrays[slot(layer, name, number)] = weights[expert][None, :, None, :]
        return arrays


class Golden:
    """Computes programs with ONNX Runtime; nothing is scheduled."""

    def __init__(self, integers: Integers) -> None:
        self._integers = integers
        self._graphs: dict[Part, Graph] = {}

    def __call__(self, part: Part, _experts: tuple[int, ...], arrays: Arrays) -> Mapping[str, NDArray[np.int8]]:
        if part not in self._graphs:
            self._graphs[part] = part.graph(self._integers)
        graph = self._graphs[part]
        values = golden_values(graph, {value.name: arrays[value.name] for value in graph.inputs})
        return {name: values[name] for name in graph.outputs}
