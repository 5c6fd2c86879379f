"""How much slower a layer runs beside others: the interface of congestion estimators, and two that need no training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Protocol

from .interface import Platform, Version


class Congestion(Protocol):
    """Estimates mem_factor (Layer-Puzzle, section III-B.1): ideal over real access time, as cycles alone over cycles
    beside others, above 0 and at most 1."""

    def factor(self, platform: Platform, version: Version, running: Sequence[Version]) -> float:
        """That of a version beside those that run."""
        ...


class NoCongestion:
    """Everybody has the chip to himself."""

    def factor(self, platform: Platform, version: Version, running: Sequence[Version]) -> float:
        """Always 1."""
        return 1.0


class FairShare:
    """What is asked for on average, divided max-min fairly."""

    def factor(self, platform: Platform, version: Version, running: Sequence[Version]) -> float:
        """See `Congestion`."""
        demands = [version.intensity, *(other.intensity for other in running)]
        if sum(demands) <= platform.bandwidth or not demands[0]:
            return 1.0
        return max(0.01, shares(demands, platform.bandwidth)[0] / demands[0])


def shares(demands: Sequence[float], capacity: float) -> list[float]:
    """Max-min fair shares of a capacity."""
    granted = [0.0] * len(demands)
    left = capacity
    order = sorted(range(len(demands)), key=lambda index: (demands[index], index))
    for done, index in enumerate(order):
        granted[index] = min(demands[index], left / (len(order) - done))
        left -= granted[index]
    return granted


def cycles_beside(
    congestion: Congestion, platform: Platform, version: Version, running: Sequence[Version]
) -> int:  # fmt: skip
    """Predicted cycles of a version beside those that run."""
    return ceil(version.cycles / congestion.factor(platform, version, running))


def fastest_beside(
    congestion: Congestion, platform: Platform, versions: Iterable[Version], running: Sequence[Version]
) -> Version | None:
    """The version with the fewest predicted cycles beside those that run, of equal ones that with fewer cores, of these
    the first; None if there are none.

    Nobody is faster beside others than alone, so what takes longer alone than the best beside them is not estimated.
    """
    best: tuple[int, int, int] | None = None
    fastest: Version | None = None
    for index, version in sorted(enumerate(versions), key=lambda one: one[1].cycles):
        if best is not None and version.cycles > best[0]:
            break
        predicted = cycles_beside(congestion, platform, version, running), version.cores, index
        if best is None or predicted < best:
            best, fastest = predicted, version
    return fastest
