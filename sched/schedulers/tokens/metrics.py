"""What serving tokens is measured by: times to the first token and between tokens, and how many texts were in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum

from .drive import ServedText, TokenStep


@dataclass(frozen=True)
class Spread:
    """Of several numbers: mean, median, 99 % quantile (nearest rank) and largest; all 0 of none."""

    mean: float
    median: float
    p99: float
    worst: float


@dataclass(frozen=True)
class TokenMetrics:
    """In cycles. `ttft`: from arrival to the first token; `tpot`: for each further token of a text in the mean; `met`:
    texts that met their limits; `tokens`: written; `cycles`: from the first arrival to the end; `batch`: texts of a
    decode step in the mean."""

    ttft: Spread
    tpot: Spread
    met: int
    tokens: int
    good_tokens: int
    cycles: int
    batch: float


def spread(numbers: Sequence[float]) -> Spread:
    """See `Spread`."""
    order = sorted(numbers)
    if not order:
        return Spread(0.0, 0.0, 0.0, 0.0)
    median, p99 = (order[ceil(share * len(order)) - 1] for share in (0.5, 0.99))
    return Spread(fsum(order) / len(order), median, p99, order[-1])


def measure(texts: Sequence[ServedText], steps: Sequence[TokenStep]) -> TokenMetrics:
    """The metrics of a run."""
    decoding = [len(step.batch.decodes) for step in steps if step.batch.decodes]
    good = [text for text in texts if text.met]
    begin = min((text.request.arrival for text in texts), default=0)
    return TokenMetrics(
        spread([text.ttft for text in texts]),
        spread([text.tpot for text in texts if text.tpot is not None]),
        len(good),
        sum(len(text.tokens) for text in texts),
        sum(len(text.tokens) for text in good),
        max((step.end for step in steps), default=0) - begin,
        sum(decoding) / max(1, len(decoding)),
    )
