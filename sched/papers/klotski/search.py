"""Searches for a partition, each bounded by the number of partitions that it looks at.

Klotski's Bayesian optimisation (Algorithm 1), simulated annealing (as atomic dataflow uses it for partitions: S. Zheng
et al., HPCA 2022), points at random, and changes of one kind of layer at a time. What a search does follows from its
seed and from what it has seen, so one that was interrupted goes on where it was: its trials are found again in the
judge's memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from .alone import alone
from .judging import Judge, Objective, Trial
from .space import Form, PartitionSpace, Point

#: Partitions that a search looks at (section IV-A; atomic dataflow gets as many).
BUDGET = 50
#: Points among which Bayesian optimisation looks for the highest upper confidence bound: at random, and near the best.
_POOL, _NEAR = 768, 256
#: Standard deviations that the upper confidence bound is above the mean.
_KAPPA = 2.0
#: Length scales that the Gaussian process may have, in sides of the cube: within narrower bounds it finds more.
_SCALES = 0.3, 3.0
#: Simulated annealing: shares of the value by which a point may be worse, and widths of moves, at first and at last.
_HEAT, _WIDTH = (0.1, 0.005), (0.3, 0.06)

#: Turns of all cores with which a layer-wise search tries to begin.
_TURNS = 1, 2, 3, 4, 6, 8

Progress = Callable[[int, int, Trial], None]


class Method(StrEnum):
    """How the next point is chosen."""

    RANDOM = "random"
    ANNEALING = "annealing"
    BAYES = "bayes"
    LAYERWISE = "layer-wise"


@dataclass(frozen=True)
class SearchOutcome:
    """What a search has found: the trial with the highest value, and all of them in their order."""

    best: Trial
    value: float
    trials: tuple[Trial, ...]


class _Proposer(Protocol):
    """Chooses points, and hears what they are worth."""

    def ask(self) -> Point: ...

    def tell(self, point: Point, value: float) -> None: ...


def search(
    judge: Judge, method: Method, form: Form = Form.SIZES, objective: Objective = Objective.ENTROPY,
    budget: int = BUDGET, seed: int = 1, progress: Progress | None = None,
) -> SearchOutcome:  # fmt: skip
    """The best of `budget` partitions; a layer-wise search takes form LAYERS. `progress`: called with the number of
    those looked at, the budget, and the best so far; what it raises ends the search, and what was looked at is kept
    (`Judge.memory`). Raises ValueError for a budget below 1 or a layer-wise search of another form."""
    if budget < 1:
        raise ValueError(f"a search has to look at one partition at least, not {budget}")
    if method is Method.LAYERWISE and form is not Form.LAYERS:
        raise ValueError(f"a layer-wise search changes one kind of layer at a time: its form is layers, not {form}")
    space = PartitionSpace(judge.works, form)
    random = np.random.default_rng(seed)
    proposer: _Proposer
    match method:
        case Method.RANDOM:
            proposer = _Random(space, random)
        case Method.ANNEALING:
            proposer = _Annealing(space, random, budget)
        case Method.BAYES:
            proposer = _Bayes(space, random, seed)
        case Method.LAYERWISE:
            proposer = _Layerwise(space, random, judge)
    values: list[float] = []
    trials: list[Trial] = []
    for number in range(budget):
        point = proposer.ask()
        trials.append(judge.look(space.extents(point)))
        values.append(trials[-1].value(objective, judge.alpha))
        proposer.tell(point, values[-1])
        if progress:
            progress(number + 1, budget, trials[int(np.argmax(values))])
    best = int(np.argmax(values))
    return SearchOutcome(trials[best], values[best], tuple(trials))


class _Random:
    """Points at random."""

    def __init__(self, space: PartitionSpace, random: np.random.Generator) -> None:
        self.space, self.random = space, random

    def ask(self) -> Point:
        return self.space.draw(self.random)[0]

    def tell(self, point: Point, value: float) -> None:
        pass


class _Annealing:
    """Simulated annealing from a point at random: half of the numbers move (of many, a few), ever less."""

    def __init__(self, space: PartitionSpace, random: np.random.Generator, budget: int) -> None:
        self.space, self.random, self.budget = space, random, budget
        self.asked = 0
        self.at: tuple[Point, float] | None = None

    def _now(self, first: float, last: float) -> float:
        return first * (last / first) ** (self.asked / self.budget)

    def ask(self) -> Point:
        size = self.space.size
        if self.at is None:
            return self.space.draw(self.random)[0]
        moved = self.random.random(size) < max(0.5 * 4 / size, 2 / size)
        moved[self.random.integers(size)] = True
        step = np.where(moved, self.random.normal(0, self._now(*_WIDTH), size), 0)
        return self.space.mended((self.at[0] + step)[None])[0]

    def tell(self, point: Point, value: float) -> None:
        self.asked += 1
        if self.at is None:
            self.at = point, value
            return
        worse = (self.at[1] - value) / abs(self.at[1])
        if worse <= 0 or self.random.random() < np.exp(-worse / self._now(*_HEAT)):
            self.at = point, value


class _Bayes:
    """Algorithm 1: a Gaussian process with a Matern 5/2 kernel, a length scale for each number, and the point with the
    highest upper confidence bound of a pool. Bounds of the length scales are its prior."""

    def __init__(self, space: PartitionSpace, random: np.random.Generator, seed: int) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
        from threadpoolctl import threadpool_limits

        self.space, self.random = space, random
        self.one_thread = threadpool_limits
        self.points: list[Point] = []
        self.values: list[float] = []
        scales = np.full(space.size, 0.5)
        kernel = ConstantKernel(1.0, (0.05, 20.0)) * Matern(scales, _SCALES, nu=2.5)
        self.process = GaussianProcessRegressor(
            kernel + WhiteKernel(1e-3, (1e-6, 0.1)), normalize_y=True, random_state=seed
        )

    def ask(self) -> Point:
        if len(self.points) < 2:  # one value has no spread to be normalised by
            return self.space.draw(self.random)[0]
        best = self.points[int(np.argmax(self.values))]
        near = best + self.random.normal(0, 0.1, (_NEAR, self.space.size))
        pool = np.concatenate((self.space.draw(self.random, _POOL), self.space.mended(near)))
        with warnings.catch_warnings(), self.one_thread(limits=1):  # matrices are too small for more
            warnings.simplefilter("ignore")  # a length scale at its bound is what bounds are for
            self.process.fit(np.stack(self.points), np.array(self.values))
            mean, deviation = self.process.predict(pool, return_std=True)
        hope = mean + _KAPPA * deviation
        seen = (pool[:, None] == np.stack(self.points)).all(axis=2).any(axis=1)
        return pool[int(np.argmax(np.where(seen, -np.inf, hope)))]

    def tell(self, point: Point, value: float) -> None:
        self.points.append(point)
        self.values.append(value)


class _Layerwise:
    """Begins with what is best for each kind of layer by itself, with as many turns as are best for all of them
    (`alone`); then one kind at a time, those with much work more often, is cut into more or fewer parts along one
    dimension, and what is better stays."""

    def __init__(self, space: PartitionSpace, random: np.random.Generator, judge: Judge) -> None:
        self.space, self.random = space, random
        kinds: dict[int, int] = {}
        load = np.zeros(max(space.classes) + 1)
        for index, (work, kind) in enumerate(zip(space.works, space.classes, strict=True)):
            kinds.setdefault(kind, index)
            load[kind] += work.cycles(judge.chip, work.whole, (0, work.whole.columns))
        self.works = [space.works[index] for index in kinds.values()]
        self.share = load / load.sum()
        starts = [
            np.concatenate([space.numbers(work, alone(work, judge.chip, judge.cores, turns)) for work in self.works])
            for turns in _TURNS
        ]
        self.starts = list(space.mended(np.stack(starts)))[::-1]
        self.at: tuple[Point, float] = self.starts[-1], -np.inf

    def ask(self) -> Point:
        if self.starts:
            return self.starts.pop()
        point = self.at[0]
        for _ in range(100):
            kind = int(self.random.choice(len(self.works), p=self.share))
            axis = int(self.random.integers(4))
            parts = self.space.parts(self.works[kind], point[4 * kind : 4 * kind + 4])
            change = self.random.choice([-1, 1]) * self.random.choice([1, max(1, parts[axis] // 2)])
            parts[axis] += int(change)
            moved = point.copy()
            moved[4 * kind : 4 * kind + 4] = self.space.numbers_of(self.works[kind], parts)
            moved = self.space.mended(moved[None])[0]
            if (moved != point).any():
                return moved
        return point

    def tell(self, point: Point, value: float) -> None:
        if value > self.at[1]:
            self.at = point, value
