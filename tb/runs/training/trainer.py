"""Training: each step forwards on the chip, the loss on the host, all gradients on the chip, the update on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.schedulers.training.arrays import (
    gradient,
    gradient_rows,
    joined,
    score_rows,
    scores,
    shared,
    weight_rows,
    weights_in,
)
from meshloom.sched.schedulers.training.step import Half, TrainingStep
from meshloom.sched.workload.training_examples import Examples
from meshloom.sched.workload.training_net import TrainedLayer

from ...inputs.golden import training as golden
from .machine import Arrays, Machine, Outcome
from .numbers import (
    Reals,
    Update,
    adapted,
    exponent_of,
    first_exponent,
    loss_and_gradient,
    multiplier,
    quantised,
    rate_multiplier,
)
from .state import State

Words = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Rates:
    """Learning rate and momentum of stochastic gradient descent, and who keeps the weights between steps; momentum
    counts only where the host does."""

    learning: float = 0.05
    momentum: float = 0.9
    update: Update = Update.DOUBLE


@dataclass(frozen=True, eq=False)
class _Pass:
    """What a forward pass leaves: int8 weights, their exponents, all maps, the scores as real numbers, and for each
    layer the exponent of its input."""

    weights: dict[str, NDArray[np.int8]]
    steps: dict[str, int]
    maps: dict[str, NDArray[np.int8]]
    scores: Reals
    inputs: dict[str, int]


class Trainer:
    """Trains on a machine from a state, which it changes. `first_mismatch`, `first_divergence`: what is to be said of
    the first byte and the first cycle that were wrong."""

    def __init__(
        self, step: TrainingStep, examples: Examples, machine: Machine, state: State, rates: Rates, seed: int
    ) -> None:
        self.step, self.examples, self.machine, self.state, self.rates = step, examples, machine, state, rates
        self.net, self.seed = step.net, seed
        self.first_mismatch = self.first_divergence = ""

    def train(self, steps: int, on_step: Callable[[State], None]) -> None:
        """Goes on until `steps` steps are done, or a byte is wrong; `on_step` is called after each. A step that is
        interrupted leaves the state as it was."""
        while self.state.step < steps and not self.state.totals.mismatches:
            before = self.machine.cpu_seconds
            self._step()
            self.state.cpu_seconds += self.machine.cpu_seconds - before
            on_step(self.state)

    def accuracy(self) -> float:
        """The part of the test examples to whose class the network on the machine gives the highest score."""
        x, labels, size = self.examples.test_x, self.examples.test_labels, self.step.batch
        right = 0
        for first in range(0, len(x), size):
            some = x[first : first + size]
            full = np.zeros((size, *x.shape[1:]), np.int8)
            full[: len(some)] = some
            array = self._forward(full).scores[: len(some)]
            right += int(np.count_nonzero(array.argmax(axis=1) == labels[first : first + size]))
        return right / len(labels)

    # -- a step -------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        state = self.state
        chosen = self.examples.batch(state.step, self.step.batch, self.seed)
        labels = self.examples.labels[chosen]
        passed = self._forward(self.examples.x[chosen])
        loss, slope = loss_and_gradient(passed.scores, labels)
        of_dy = exponent_of(slope)
        dy = quantised(slope, of_dy)[:, :, None, None]
        arrays, slopes, exponents, own = self._backward(passed, dy, of_dy)
        adaptable = {f"y:{layer.name}": passed.maps[f"y:{layer.name}"] for layer in self.net.layers[:-1]}
        adaptable |= {name: array for name, array in arrays.items() if name.startswith("dx:")}
        exponents |= {name: e for name, e in passed.steps.items() if name.startswith("y:")}
        # from here on nothing can fail: a step is done or not
        for layer in self.net.layers:
            if layer.name in own:
                state.weights[layer.name] = np.ldexp(
                    own[layer.name].astype(np.float64), passed.steps[f"w:{layer.name}"]
                )
                continue
            velocity = self.rates.momentum * state.velocity[layer.name] + slopes[layer.name]
            state.velocity[layer.name] = velocity
            state.weights[layer.name] = state.weights[layer.name] - self.rates.learning * velocity
        state.exponents = {name: adapted(exponents[name], array) for name, array in adaptable.items()}
        state.losses.append(loss)
        state.step += 1

    def _forward(self, x: NDArray[np.int8]) -> _Pass:
        """The forward pass of a batch int8 [images, C, H, W], compared with the golden model."""
        step, state = self.step, self.state
        e = {f"w:{name}": exponent_of(w) for name, w in state.weights.items()}
        weights = {name: quantised(w, e[f"w:{name}"]) for name, w in state.weights.items()}
        number = exponent_of(np.array([127 * self.examples.step]))
        inputs: dict[str, int] = {}
        multipliers: dict[str, int] = {}
        for layer in self.net.layers:
            inputs[layer.name], name = number, f"y:{layer.name}"
            sums = number + e[f"w:{layer.name}"]
            result = state.exponents.get(name, first_exponent(sums, layer.shape.depth))
            multipliers[name], number = multiplier(sums, result)
            e[name] = number
        last = self.net.layers[-1]
        right = golden.forward(self.net, x, weights, multipliers)
        arrays: Arrays = {f"w:{name}": w for name, w in weights.items()} | shared(step, "x", x)
        wanted_words: Arrays = dict(score_rows(step, right.scores))
        for name, array in right.maps.items():
            if not name.startswith("x:"):
                wanted_words |= shared(step, name, array)
        value = self._run(step.forward, arrays, multipliers, wanted_words)
        maps: dict[str, NDArray[np.int8]] = {}
        for layer in self.net.layers[:-1]:
            maps[f"x:{layer.name}"] = x
            x = maps[f"y:{layer.name}"] = joined(step, f"y:{layer.name}", value)
            if layer.pool > 1:
                x = maps[f"p:{layer.name}"] = joined(step, f"p:{layer.name}", value)
        maps[f"x:{last.name}"] = x
        real = np.ldexp(scores(step, value).astype(np.float64), inputs[last.name] + e[f"w:{last.name}"])
        return _Pass(weights, e, maps, real, inputs)

    def _backward(
        self, passed: _Pass, dy: NDArray[np.int8], of_dy: int
    ) -> tuple[dict[str, NDArray[np.int8]], dict[str, Reals], dict[str, int], dict[str, NDArray[np.int8]]]:
        """Gradients of all maps, of all weights as real numbers, the exponents of the former, and the weights after the
        update, in the steps that they had, if they are int8 alone."""
        step, net, maps = self.step, self.net, passed.maps
        exponents: dict[str, int] = {}
        multipliers: dict[str, int] = {}
        of_g = {net.layers[-1].name: of_dy}
        for index in range(len(net.layers) - 1, 0, -1):
            layer, name = net.layers[index], f"dx:{net.layers[index].name}"
            sums = of_g[layer.name] + passed.steps[f"w:{layer.name}"]
            number = self.state.exponents.get(name, first_exponent(sums, _slopes(layer)))
            multipliers[name], exponents[name] = multiplier(sums, number)
            of_g[net.layers[index - 1].name] = exponents[name]
        if self.rates.update is not Update.DOUBLE:
            for layer in net.layers:
                sums, of_w = passed.inputs[layer.name] + of_g[layer.name], passed.steps[f"w:{layer.name}"]
                multipliers[f"dw:{layer.name}"] = rate_multiplier(sums, self.rates.learning, of_w)
        right = golden.backward(net, maps, dy, passed.weights, multipliers, step.shares)
        totals = {name: np.stack(parts).sum(axis=0, dtype=np.int64) for name, parts in right.dw.items()}
        own: dict[str, NDArray[np.int8]] = {}
        if self.rates.update is not Update.DOUBLE:
            for name, w in passed.weights.items():
                own[name] = golden.updated(w, totals[name], multipliers[f"dw:{name}"])
        first = net.layers[0].name
        arrays: Arrays = shared(step, "dy", dy)
        for layer in net.layers:
            arrays |= shared(step, f"x:{layer.name}", maps[f"x:{layer.name}"])
            if layer.name != first:
                arrays[f"w:{layer.name}"] = passed.weights[layer.name]
        for layer in net.layers[:-1]:
            if layer.pool > 1:
                arrays |= shared(step, f"y:{layer.name}", maps[f"y:{layer.name}"])
        wanted_words: Arrays = {}
        for name, array in right.maps.items():
            wanted_words |= shared(step, name, array)
        for sizes in step.layers:
            name = sizes.layer.name
            if step.update:
                arrays[f"v:{name}"] = weight_rows(sizes, passed.weights[name])
                wanted_words[f"w':{name}"] = weight_rows(sizes, own[name])
                continue
            for core, dw in enumerate(right.dw[name]):
                wanted_words[f"dw:{name}@{core}"] = gradient_rows(sizes, dw)
        result = self._run(step.backward, arrays, multipliers, wanted_words)
        slopes: dict[str, Reals] = {}
        for sizes in step.layers:
            name = sizes.layer.name
            if step.update:
                own[name] = weights_in(sizes, result[f"w':{name}"])
                continue
            parts = [result[f"dw:{name}@{core}"] for core in range(len(step.shares))]
            total = sum(gradient(sizes, part).astype(np.int64) for part in parts)
            slopes[name] = np.ldexp(np.asarray(total, np.float64), passed.inputs[name] + of_g[name])
        # a gradient that stays on the chip is compared by what follows from it: dX and dW of the layer
        gradients = {name: joined(step, name, result) for name in right.maps if f"{name}@0" in result}
        return gradients, slopes, exponents, own

    # -- programs -----------------------------------------------------------------------------------------------------

    def _run(self, half: Half, arrays: Arrays, multipliers: Mapping[str, int], right: Words) -> Arrays:
        """Runs a program and compares every byte of its outputs; returns them as arrays."""
        outcome = self.machine.run(half, arrays, multipliers)
        self._count(half, outcome)
        result: Arrays = {}
        lanes, totals = self.step.chip.lanes, self.state.totals
        for tensor in half.schedule.tensors:
            if tensor.role != "output":
                continue
            # whole words are compared: lanes without a channel must be zero
            expected, got = tensor.layout.pack(right[tensor.name], lanes), outcome.words[tensor.name]
            wrong = int(np.count_nonzero(expected != got))
            totals.bytes_checked += expected.size
            totals.mismatches += wrong
            if wrong and not self.first_mismatch:
                word, lane = (int(number) for number in np.argwhere(expected != got)[0])
                self.first_mismatch = (
                    f"step {self.state.step}, {half.schedule.workload}, {tensor.name}: {wrong} of {expected.size} "
                    f"bytes, first in word {word}, lane {lane}: is {int(got[word, lane].view(np.int8))}, must be "
                    f"{int(expected[word, lane].view(np.int8))}"
                )
            result[tensor.name] = tensor.layout.unpack(got)
        return result

    def _count(self, half: Half, outcome: Outcome) -> None:
        totals = self.state.totals
        totals.model_cycles += half.timeline.cycles
        totals.rtl_cycles += outcome.cycles or 0
        totals.divergences += outcome.divergences
        if outcome.divergences and not self.first_divergence:
            self.first_divergence = f"step {self.state.step}: {outcome.first_divergence}"


def _slopes(layer: TrainedLayer) -> int:
    """Products that are summed for an element of dX."""
    shape = layer.shape
    return shape.out_channels * (1 if layer.flat else shape.kernel_h * shape.kernel_w)
