"""Layer-Puzzle's congestion estimator (section III-B.1): a random forest, and its table.

A forest of scikit-learn takes milliseconds for one prediction, far too long for a decision. So it is asked once for
every point of a grid over its features, and the table of its answers is what serves: a prediction is a look-up of the
nearest point. The table depends on nothing but the platform, the samples and the seed, and is kept in the store as
plain arrays.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...serving.scheduler import Platform, Version
from ...store.kinds import SCHEDULES
from ...store.store import key
from .samples import FEATURES, Samples, features, measure

#: Samples to train on and to test with (the paper's), trees, and the seed of all of it.
TRAIN, TEST, TREES, SEED = 8000, 2000, 100, 1
#: Points of the grid for each intensity, at quantiles of the samples.
POINTS = 24
#: What entries of the store are made with: counts up when tables would differ.
_FORMAT = 1


@dataclass(frozen=True)
class Accuracy:
    """Mean absolute errors of mem_factor on samples that were not trained on: of the forest with the paper's three
    features, of the forest with the layer's own intensity too, and of the table made from the latter."""

    three: float
    four: float
    table: float


@dataclass(frozen=True)
class Table:
    """Predictions on a grid. `cores` and `active` are whole numbers from 1 and from 0; `others`, `own`: the intensities
    of the points, rising; `factors` [cores, others, active, own]."""

    others: tuple[float, ...]
    own: tuple[float, ...]
    factors: NDArray[np.float32]

    def factor(self, platform: Platform, version: Version, running: Sequence[Version]) -> float:
        """See `Congestion`. 1 when nothing else runs."""
        if not running:
            return 1.0
        cores, others, active, own = features(version, running)
        return self.at(int(cores), others, int(active), own)

    def at(self, cores: int, others: float, active: int, own: float) -> float:
        """The prediction at the nearest point."""
        limits = self.factors.shape
        place = min(cores, limits[0]) - 1, _nearest(self.others, others), min(active, limits[2] - 1)
        return float(self.factors[(*place, _nearest(self.own, own))])

    def packed(self) -> bytes:
        """The arrays, for the store."""
        file = io.BytesIO()
        np.savez(file, others=np.array(self.others), own=np.array(self.own), factors=self.factors)
        return file.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Table:
        """What `packed` made."""
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            others, own = (tuple(map(float, found[name])) for name in ("others", "own"))
            return cls(others, own, np.asarray(found["factors"], np.float32))


def _nearest(points: tuple[float, ...], value: float) -> int:
    place = bisect_right(points, value)
    if place == 0:
        return 0
    if place == len(points):
        return place - 1
    return place if points[place] - value < value - points[place - 1] else place - 1


def forest(samples: Samples, columns: int = len(FEATURES), seed: int = SEED) -> Any:
    """A forest trained on the first columns of the features. The same samples and seed give the same forest."""
    from sklearn.ensemble import RandomForestRegressor  # slow to import

    made = RandomForestRegressor(n_estimators=TREES, min_samples_leaf=2, random_state=seed, n_jobs=1)
    return made.fit(samples.features[:, :columns], samples.factor)


def tabulated(trained: Any, samples: Samples, cores: int) -> Table:
    """The table of a forest with all features. `samples`: where points are needed; `cores`: of the chip."""
    others = _points(samples.features[:, 1])
    own = _points(samples.features[:, 3])
    grid = np.array(list(product(range(1, cores + 1), others, range(cores + 1), own)))
    shape = (cores, len(others), cores + 1, len(own))
    factors = np.asarray(trained.predict(grid), np.float32).reshape(shape)
    return Table(others, own, np.clip(factors, 0.01, 1.0))


def _points(values: NDArray[np.float64]) -> tuple[float, ...]:
    """Quantiles of what occurs, without repetitions."""
    return tuple(sorted(set(map(float, np.quantile(values, np.linspace(0, 1, POINTS))))))


def accuracy(platform: Platform, train: int = TRAIN, test: int = TEST, seed: int = SEED) -> Accuracy:
    """Mean absolute errors on test samples of the fluid model."""
    samples, held = measure(platform, train, seed), measure(platform, test, seed + 1)
    errors = [
        float(np.abs(forest(samples, columns, seed).predict(held.features[:, :columns]) - held.factor).mean())
        for columns in (3, 4)
    ]
    table = tabulated(forest(samples, 4, seed), samples, len(platform.cores))
    found = [table.at(int(row[0]), float(row[1]), int(row[2]), float(row[3])) for row in held.features]
    return Accuracy(errors[0], errors[1], float(np.abs(np.array(found) - held.factor).mean()))


@cache
def trained(platform: Platform, train: int = TRAIN, seed: int = SEED) -> Table:
    """The table for a platform, from samples of the fluid model; trained when the store has none (seconds)."""
    name = key(
        f"congestion_{platform.name}",
        format=str(_FORMAT),
        platform=repr((len(platform.cores), platform.bandwidth, platform.link, platform.lanes, platform.macs)),
        samples=str((train, seed, TREES, POINTS)),
    )

    def make() -> bytes:
        samples = measure(platform, train, seed)
        return tabulated(forest(samples, seed=seed), samples, len(platform.cores)).packed()

    return Table.unpacked(SCHEDULES.store().made(name, make))
