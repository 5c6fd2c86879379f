"""The int8 numbers of a language model: a step for each tensor, from the largest values over its calibration text."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from .. import int4
from ..layers import SCALE_LIMIT
from . import reference
from .model import LanguageError, LanguageModel, Reals

#: Part of the values that lie within a tensor's range; the others saturate.
COVERED = 0.9999
#: Bits that weights may have.
WEIGHT_BITS = (4, 8)
_ONE = 1 << SCALE_SHIFT
#: Weights that are rounded at a time.
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class Filters:
    """A product's weights int8 [outputs, inputs], biases int32, multiplier m: y = sat8(RNE((w x + b) * m / 2^17))."""

    w: NDArray[np.int8]
    bias: NDArray[np.int32]
    scale: int


@dataclass(frozen=True, eq=False)
class Integers:
    """A model in int8. `steps`: real values of 1 by tensor, as `reference.scores` names them. `weight_bits`: 8, or 4
    with a scale for each group (`int4`)."""

    model: LanguageModel
    steps: dict[str, float]
    weight_bits: int = 8

    def filters(self, name: str, x: str, y: str, gain: float = 1.0) -> Filters:
        """The product `name` (an entry of the model without ".weight") from tensor x to y, its weights and its bias
        times `gain`.

        Raises LanguageError if no multiplier says its steps.
        """
        key = name, x, y, gain
        if key not in self._products:  # steps of one token and of many have the same
            self._products[key] = self._filters(name, x, y, gain)
        return self._products[key]

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """Those of the model in steps of scores, which are the same in all layers (ALiBi); none without."""
        return tuple(slope / self.steps["0/scores"] for slope in self.model.slopes)

    @cached_property
    def _products(self) -> dict[tuple[str, str, str, float], Filters]:
        return {}

    def _filters(self, name: str, x: str, y: str, gain: float) -> Filters:
        w = self.model.arrays.get(f"{name}.weight", self.model.arrays.get(name))
        assert w is not None
        bias = self.model.arrays.get(f"{name}.bias", np.zeros(len(w), np.float32))
        return self.of(w, bias, x, y, gain)

    def of(self, w: Reals, bias: Reals, x: str, y: str, gain: float = 1.0) -> Filters:
        """The product with these weights and biases, times `gain`, from tensor x to y. Raises LanguageError, as
        `filters`."""
        ratio = self.steps[x] / self.steps[y]
        most = int4.LARGEST if self.weight_bits == WEIGHT_BITS[0] else 127
        largest = max(float(w.max()), -float(w.min())) * gain
        scale = min(SCALE_LIMIT, max(1, round(largest / most * ratio * _ONE)))
        step = scale / _ONE / ratio
        rounded = np.empty(w.shape, np.int8)
        rows = max(1, _BLOCK // w[0].size)
        for first in range(0, len(w), rows):  # as a whole, weights of 64 bits would be the most memory of a model
            block = w[first : first + rows].astype(np.float64) * gain / step
            four = self.weight_bits == WEIGHT_BITS[0]
            rounded[first : first + rows] = int4.in_groups(block) if four else np.clip(np.rint(block), -most, most)
        return Filters(
            rounded, np.rint(bias.astype(np.float64) * gain / (step * self.steps[x])).astype(np.int32), scale
        )

    def multiplier(self, name: str, *factors: float) -> int:
        """m of a product of two tensors: 2^17 times these factors. Raises LanguageError if it is out of range."""
        number = round(float(np.prod(factors)) * _ONE)
        if not 1 <= number <= SCALE_LIMIT:
            raise LanguageError(
                f"model {self.model.name}: {name} needs a multiplier of {number}, which must be in 1..{SCALE_LIMIT}; "
                "train it so that its values lie closer together"
            )
        return number

    def entered(self, tokens: NDArray[np.int64], first: int) -> dict[str, NDArray[np.int8]]:
        """What goes into a step by name, int8 [1, ..., tokens]: `x` into the first layer, in one row, and, of a model
        with rotary positions, cosines and sines (`reference.turns`) of all groups, a row for each of their heads.
        `first`: position of the first token."""
        groups, rows = self.model.groups, self.model.sharing
        real = {"x": reference.embedded(self.model, tokens, first).T[:, None]}
        for name, wave in reference.turns(self.model, len(tokens), first).items():
            real[name] = np.tile(wave.T[:, None], (groups, rows, 1))
        return {
            name: np.clip(np.rint(value / self.steps[name]), -128, 127).astype(np.int8)[None]
            for name, value in real.items()
        }


def integers(model: LanguageModel, weight_bits: int = 8) -> Integers:
    """The model in int8, its weights in so many bits (`WEIGHT_BITS`). Raises LanguageError for one whose values are all
    0 somewhere."""
    steps = {name: rotary.largest / 127 for rotary in model.turns for name in reference.waves(model, rotary)}
    for name, sizes in _sizes(model).items():
        steps[name] = sizes.covered() / 127
        if not steps[name] > 0:
            raise LanguageError(f"model {model.name}: all values of {name} are 0 over its calibration text; train it")
    if model.slopes:  # one input says how far keys are away
        names = [f"{layer}/scores" for layer in range(model.layers)]
        steps |= dict.fromkeys(names, max(steps[name] for name in names))
    return Integers(model, steps, weight_bits)


@dataclass
class LargestSizes:
    """The largest of all `count` sizes of a tensor's values: as many as say which one `COVERED` of them reach."""

    count: int = 0
    largest: Reals = field(default_factory=partial(np.zeros, 0, np.float32))

    def add(self, sizes: list[Reals], more: int) -> None:
        """Takes further ones, of which as many may follow as these are, `more` times."""
        own = sum(each.size for each in sizes)
        self.count += own
        together = np.concatenate([self.largest, *sizes])
        most = min(len(together), int((1 - COVERED) * (self.count + more * own)) + 3)
        self.largest = np.partition(together, len(together) - most)[len(together) - most :]

    def covered(self) -> float:
        """What `np.quantile` says of all."""
        at = (self.count - 1) * COVERED
        low = int(at)
        smaller, larger = np.sort(self.largest)[[low - self.count, min(low + 1 - self.count, -1)]]
        share, apart = at - low, float(larger - smaller)
        return float(np.float32(larger - apart * (1 - share) if share >= 0.5 else smaller + apart * share))


def _sizes(model: LanguageModel) -> dict[str, LargestSizes]:
    """By tensor, the sizes of its values over the calibration text."""
    tokens, largest = model.tokens(model.calibration), dict[str, LargestSizes]()
    firsts = range(0, len(tokens), model.context)
    for number, first in enumerate(firsts, start=1):
        sizes: dict[str, list[Reals]] = {}

        def watch(name: str, value: Reals, sizes: dict[str, list[Reals]] = sizes) -> None:
            sizes.setdefault(name, []).append(np.abs(value).ravel())

        reference.scores(model, tokens[first : first + model.context], watch)
        for name, arrays in sizes.items():
            largest.setdefault(name, LargestSizes()).add(arrays, len(firsts) - number)
    return largest
