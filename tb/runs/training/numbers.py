"""The host's arithmetic in training, exactly defined, so that all machines come to the same bits.

Every int8 tensor has one real value per step, a power of two 2^e. So a multiplier of the chip, y = sat8(RNE(sum * m /
2^17)), is m = 2^s with s in 0..15, products of steps are exact, and no real number is rounded but the weights:

* Weights: q = RNE(w / 2^e), e the smallest with which the largest |w| is at most 127. The master weights are double.
* Maps and their gradients: e is that of the step before, one more if anything saturated (|q| >= 127), one less if the
  largest |q| was below 48. (Delayed scaling, as FP8 training has it: P. Micikevicius et al., "FP8 Formats for Deep
  Learning", 2022.) Rounding is to nearest, half to even, as the chip's; there is nothing random in it.
* The gradient of the loss: as weights, e chosen anew in each step.

NumPy's functions of one argument may differ in the last bit between processors, and so may the order of its sums; so
the exponential is computed here from products and sums alone, and sums over classes are taken one by one.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

Reals = NDArray[np.float64]


class Update(StrEnum):
    """Who keeps the weights from step to step."""

    DOUBLE = "double"  #: the host: master weights and momentum in double
    INT8 = "int8"  #: nobody: the weights are int8 alone, W' = sat8(W - sat8(RNE(sums * m / 2^17))), by the host
    CHIP = "chip"  #: the same on the chip, as soon as dW is complete


#: The largest multiplier is 2^15.
MOST_SHIFT = 15
#: Below this largest |q| a finer step is taken.
LOW = 48


def exponent_of(values: Reals) -> int:
    """The smallest e for which all |values| / 2^e are at most 127; 0 for zeros."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 0
    part, power = math.frexp(largest / 127)
    return power - 1 if part == 0.5 else power


def quantised(values: Reals, exponent: int) -> NDArray[np.int8]:
    """sat8(RNE(values / 2^exponent)), saturating at -127 and 127."""
    return np.clip(np.rint(np.ldexp(values, -exponent)), -127, 127).astype(np.int8)


def rate_multiplier(of_sums: int, rate: float, of_weights: int) -> int:
    """The multiplier for an update of weights in steps 2^`of_weights` from sums of step 2^`of_sums`: that of the power
    of two which is nearest to `rate`, or the nearest that the chip has."""
    shift = of_sums + round(math.log2(rate)) + SCALE_SHIFT - of_weights
    return 1 << min(MOST_SHIFT, max(0, shift))


def first_exponent(of_sums: int, depth: int) -> int:
    """An exponent to begin with, for sums of `depth` products of steps 2^`of_sums`: as if operands were 40 on average,
    and 40 were wanted."""
    return of_sums + round(math.log2(40 * math.sqrt(depth)))


def multiplier(of_sums: int, of_result: int) -> tuple[int, int]:
    """The multiplier for sums of step 2^`of_sums` and a result of step 2^`of_result`, and the exponent that the result
    has: another than wanted where no multiplier gives that."""
    shift = min(MOST_SHIFT, max(0, of_sums + SCALE_SHIFT - of_result))
    return 1 << shift, of_sums + SCALE_SHIFT - shift


def adapted(exponent: int, array: NDArray[np.int8]) -> int:
    """The exponent for the next step of a tensor that had `exponent` in this one."""
    largest = int(np.abs(array.astype(np.int16)).max(initial=0))
    return exponent + 1 if largest >= 127 else exponent - 1 if largest < LOW else exponent


def exponential(x: Reals) -> Reals:
    """e^x for x <= 0, to within a few units in the last place, from products and sums alone."""
    x = np.maximum(x, -700.0)
    power = np.rint(x * (1 / math.log(2)))
    rest = (x - power * 0.693145751953125) - power * 1.4286068203094173e-06  # log 2 in two parts
    array = np.ones_like(rest)
    for n in range(14, 0, -1):
        array = 1.0 + array * rest / n
    return np.ldexp(array, power.astype(np.int64))


def loss_and_gradient(scores: Reals, labels: NDArray[np.int64]) -> tuple[float, Reals]:
    """The mean cross-entropy of scores [images, classes], and its gradient at them."""
    largest = scores.max(axis=1, keepdims=True)
    powers = exponential(scores - largest)
    total = np.zeros(len(scores))
    for column in range(scores.shape[1]):
        total = total + powers[:, column]
    chosen = np.arange(len(labels)), labels
    losses = [math.log(t) - (s - m) for t, s, m in zip(total, scores[chosen], largest[:, 0], strict=True)]
    gradient = powers / total[:, None]
    gradient[chosen] -= 1.0
    return math.fsum(losses) / len(losses), gradient / len(labels)
