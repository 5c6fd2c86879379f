"""A step of a model with experts, program by program: what the host does between them, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.experts import Chosen, Part, expert_weights, gates_of, hidden_of, slot
from meshloom.sched.workload.language.graph import attended
from meshloom.sched.workload.language.integers import Integers

from ...inputs.golden.graph import golden_values

Arrays = dict[str, NDArray[np.int8]]
#: Computes a program: the part, the experts that it is of (none of attention), its inputs; returns its outputs.
Compute = Callable[[Part, tuple[int, ...], Arrays], Mapping[str, NDArray[np.int8]]]
#: Chooses experts by the layer and the router's scores (`experts.gates_of`).
Router = Callable[[int, NDArray[np.int8]], tuple[Chosen, NDArray[np.int8]]]


@dataclass(frozen=True, eq=False)
class Walked:
    """What a step left: `scores` int8 [tokens, V]; by cache what was appended, int8 [W, tokens]; by mixture the experts
    that each token took, [tokens, top]."""

    scores: NDArray[np.int8]
    new: Arrays
    chosen: tuple[Chosen, ...]


@dataclass(frozen=True, eq=False)
class Walk:
    """Steps of a model. `weights`: of all experts by layer; `route`: None for the router's scores."""

    integers: Integers
    weights: dict[int, Arrays]
    route: Router | None = None

    @classmethod
    def of(cls, integers: Integers, route: Router | None = None) -> Walk:
        """That of a model."""
        return cls(integers, {layer: expert_weights(integers, layer) for layer in integers.model.mixtures}, route)

    def step(
        self, tokens: NDArray[np.int64], caches: Mapping[str, NDArray[np.int8]], compute: Compute, every: bool = False
    ) -> Walked:
        """A step of `tokens` behind those of `caches`, int8 [W, tokens so far] by name. `every`: each program of experts
        is of all experts of its layer, which gives the same numbers."""
        model, count, before = self.integers.model, len(tokens), next(iter(caches.values())).shape[1]
        fixed = {"x": self.integers.embedded(tokens, before)}
        fixed |= attended(model.context, model.heads, count, before + count)
        for name, array in caches.items():
            width = model.context - count
            past = np.zeros((1, model.width, 1, width), np.int8)
            some = array[:, -width:]
            past[0, :, 0, width - some.shape[1] :] = some
            fixed[f"{name}/past"] = past
        left: Arrays = dict(fixed)
        chosen: list[Chosen] = []
        for number, layer in enumerate(model.mixtures):
            left |= compute(Part(count, number), (), left)
            scores = left[f"{layer}/router"][0, :, 0].T
            taken, gates = self.route(layer, scores) if self.route else gates_of(self.integers, layer, scores)
            chosen.append(taken)
            experts = tuple(range(model.experts(layer))) if every else tuple(np.unique(taken).tolist())
            left |= self._slots(layer, experts, gates)
            left |= compute(Part(count, number, len(experts)), experts, left)
        left |= compute(Part(count, len(model.mixtures)), (), left)
        new = {name: left[name][0, :, 0].copy() for name in caches}
        return Walked(left["scores"][0, :, 0].T.copy(), new, tuple(chosen))

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
