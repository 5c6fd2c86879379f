"""Softmax and layer normalisation as layers of int8 tensors, over all pixels of each channel.

After Kim et al., "I-BERT: Integer-only BERT Quantization" (2021), sections 3.4 to 3.6: the maximum is subtracted before
the exponential (algorithm 2), what is divided by are exact integer sums, and a deviation comes from an integer root
(algorithm 4). Unlike there the exponential is a table of the 256 values that a difference of int8 has, and all tensors
between layers are int8. Keys (or features) lie along pixels, queries (or tokens) along channels: see
`hw.spec.isa.YWalk.WHOLE`.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from meshloom.hw.spec.isa import DIVIDEND_SHIFT, ROOT_SHIFT, SCALE_SHIFT

from .graph import TABLE_SIZE, By, Layer
from .layers import SCALE_LIMIT, WorkloadError

#: One, as the largest exponential and the largest share of a softmax have it: its result has a step of 1 / ONE.
ONE = 127
_SHORT = SCALE_SHIFT - 4  # with `times16`


def mean_scale(pixels: int) -> tuple[int, bool]:
    """`scale` and `times16` of a layer that subtracts the mean of so many pixels."""
    short = pixels <= 2  # 2^17 / 2 has 17 bits
    return round((1 << (_SHORT if short else SCALE_SHIFT)) / pixels), short


def quotient_scale(by: By | None, pixels: int, step: float) -> float:
    """`scale`, before it is rounded, of a layer (`times16`) that divides by the sum or the root mean square of so many
    pixels, for a result of this step."""
    if by == "sum":
        return 2.0 ** (_SHORT - DIVIDEND_SHIFT) / step
    return sqrt(pixels) / step * 2.0 ** (_SHORT + ROOT_SHIFT // 2 - DIVIDEND_SHIFT)


def softmax(name: str, x: str, step: float) -> tuple[Layer, ...]:
    """The layers that make exp(x) / sum(exp(x)) over all pixels of each channel of `x`, whose step is `step`.

    The last one is `name`; its step is 1 / `ONE`. Exponentials below half a step are lost, and differences end at -128
    (which matters for steps below 0.05). Each exponential is off by half of 1 / `ONE` at most, so a share w of n pixels
    is off from float64 by one step and w * n / 2 / sum, where sum is that of the integers: little for a few pixels or
    peaks, much for flat tails of hundreds. Raises WorkloadError if `step` is not above 0.
    """
    if not step > 0:
        raise WorkloadError(f"layer {name}: a softmax needs the step of its operand, above 0; it is {step}")
    differences = np.minimum(np.arange(TABLE_SIZE) - TABLE_SIZE // 2, 0)
    exponentials = np.rint(ONE * np.exp(step * differences)).astype(np.int8)
    # the shares are e * ONE / sum: m = dividend / sum
    scale = ONE << _SHORT >> DIVIDEND_SHIFT
    return (
        Layer("normalise", f"{name}/less", (x,), by="max"),
        Layer("table", f"{name}/exponentials", (f"{name}/less",), table=exponentials),
        Layer("normalise", name, (f"{name}/exponentials",), by="sum", scale=scale, times16=True),
    )


def standardise(name: str, x: str, pixels: int, step: float) -> tuple[Layer, ...]:
    """The layers that make (x - mean) / deviation over the `pixels` pixels of each channel of `x`: a layer
    normalisation without its factors and offsets.

    The last one is `name`; `step` is the step of its result. The mean is rounded to a step of `x`, so each channel's
    results may all be off by half a step of `x` over its deviation. Where a channel has one value only, they are 0.
    Raises WorkloadError for steps that its scale cannot say.
    """
    mean, short = mean_scale(pixels)
    root = round(quotient_scale("root", pixels, step)) if step > 0 else 0
    if not 0 < root <= SCALE_LIMIT:
        raise WorkloadError(
            f"layer {name}: a step of {step} for {pixels} pixels needs a scale m = {root}, which must be in "
            f"1..{SCALE_LIMIT}; take a larger step"
        )
    return (
        Layer("normalise", f"{name}/less", (x,), by="mean", scale=mean, times16=short),
        Layer("normalise", name, (f"{name}/less",), by="root", scale=root, times16=True),
    )
