"""Scores of served workloads, compared seed by seed: geometric means of ratios with their 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, fsum, isfinite, log, sqrt
from statistics import fmean, stdev

from .assumed import SHORT, Lives, RequestLife

#: Of an interval, the part of all samples whose interval has the true mean.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Counting:
    """How requests are counted. `one`: the time alone is that on one core, not on all; `short`: NCF counts, too."""

    one: bool = False
    short: bool = True

    def requests(self, lives: Lives) -> list[RequestLife]:
        """Those that count."""
        return [each for each in lives.requests if self.short or each.network != SHORT]

    def alone(self, life: RequestLife) -> int:
        """The time alone."""
        return life.one if self.one else life.all


ALL = Counting()


def antt(lives: Lives, counting: Counting = ALL) -> float:
    """Average normalised turnaround time: the less, the better."""
    return fmean(each.turnaround / counting.alone(each) for each in counting.requests(lives))


def stp(lives: Lives, counting: Counting = ALL) -> float:
    """System throughput: the more, the better."""
    return fsum(counting.alone(each) / each.turnaround for each in counting.requests(lives))


def missed(lives: Sequence[Lives], *, possible: bool = False) -> float | None:
    """Part of all deadlines that are missed. `possible`: of those alone that leave the time alone on all cores."""
    some = [each for one in lives for each in one.requests if each.possible or not possible]
    return fmean(each.turnaround > each.due for each in some) if some else None


#: Metrics by name, and whether more is better.
METRICS: Mapping[str, tuple[Callable[[Lives, Counting], float], bool]] = {"ANTT": (antt, False), "STP": (stp, True)}


@dataclass(frozen=True)
class Interval:
    """A geometric mean of `seeds` ratios, and the bounds of its interval; without bounds (0 and infinity) of one."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def side(self) -> int:
        """1: above 1; -1: below; 0: the interval has 1, or all ratios are 1."""
        return (self.low > 1) - (self.high < 1)

    def __str__(self) -> str:
        if not isfinite(self.high):
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interval(ratios: Sequence[float]) -> Interval | None:
    """Of ratios of pairs, by Student's distribution of their logarithms; None of none."""
    if not ratios:
        return None
    logs = [log(each) for each in ratios]
    mean, count = fmean(logs), len(logs)
    if count == 1:
        return Interval(exp(mean), 0.0, float("inf"), 1)
    half = _quantile(count - 1) * stdev(logs) / sqrt(count)
    return Interval(exp(mean), exp(mean - half), exp(mean + half), count)


@cache
def _quantile(freedom: int) -> float:
    """How many standard errors are on each side of a mean."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def better(metric: str, one: Mapping[int, Lives], other: Mapping[int, Lives], counting: Counting) -> Interval | None:
    """How many times as good one scheduler is as another by a metric, by seed of the workloads that both have
    served."""
    score, more = METRICS[metric]
    ratios: list[float] = []
    for seed in sorted(one.keys() & other.keys()):
        if counting.requests(one[seed]):
            a, b = score(one[seed], counting), score(other[seed], counting)
            ratios.append(a / b if more else b / a)
    return interval(ratios)
