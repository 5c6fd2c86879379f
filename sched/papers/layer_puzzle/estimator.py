"""Layer-Puzzle's congestion estimator (section III-B.1): a random forest, as plain arrays.

A forest of scikit-learn takes milliseconds for one prediction, far too long for a decision. A few shallow trees are as
accurate here as many deep ones, and walking down their arrays takes microseconds; no library and no pickle is needed
for that. Samples are layers beside others on lp9 in the timeline model (`samples`); they and the forest are part of the
package. Cores count as shares of the chip and intensities as words a cycle and core, so that the forest serves other
chips too.

    python -m meshloom.sched.papers.layer_puzzle.estimator        measures the samples and trains the forest anew

takes about an hour, goes on where it was interrupted, and makes the same forest everywhere.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, load

from ...schedulers.online.interface import Platform, Version
from ...support.files import write_atomically
from .samples import CHUNK, CHUNKS, Alone, Chunk, draws, measured, sample_cache

#: The chip that samples are measured on, and where they and the table lie.
CHIP, DATA = "lp9", Path(__file__).with_name("congestion.npz")
#: Trees, their depth, samples in a leaf at least, share of the features that a split may choose from, and the seed.
TREES, DEPTH, LEAF, TRIED, SEED = 10, 8, 6, 0.5, 1
#: Share of the samples that is for tests: the last ones, whose layers none of the others has.
TESTS = 0.2
#: Columns of `Samples.features`, the paper's three first. An intensity is the DRAM words that a core asks for in a
#: cycle when its layer runs alone: the inverse of operational intensity, but for a constant where arrays are busy.
FEATURES = (
    "allocated cores, of all", "mean intensity of the others", "active cores of the others, of all", "own intensity",
    "log2 of own cycles", "log2 of mean cycles of the others", "part of their time in which the others compute",
)  # fmt: skip
#: A layer is never expected to take longer than so many times.
MOST = 50


@dataclass(frozen=True)
class Samples:
    """`features` float32 [samples, FEATURES]; `factor` [samples]: cycles alone over cycles beside the others, in
    (0, 1]."""

    features: NDArray[np.float32]
    factor: NDArray[np.float32]

    def part(self, test: bool) -> Samples:
        """Those for tests, or the others."""
        at = round(len(self.factor) * (1 - TESTS))
        chosen = slice(at, None) if test else slice(at)
        return Samples(self.features[chosen], self.factor[chosen])


def features(version: Version, beside: Sequence[Version], cores: int) -> tuple[float, ...]:
    """One row of `Samples.features`, on a chip of so many cores. Means over the others are means over their cores."""
    active = demand = length = compute = 0.0
    for other in beside:
        active += other.cores
        demand += other.intensity
        length += other.cores * other.cycles
        compute += other.compute
    if not beside:
        active = length = 1.0
    return (
        version.cores / cores, demand / active, active / cores, version.intensity / version.cores, log2(version.cycles),
        log2(length / active), compute / length,
    )  # fmt: skip


def version_of(one: Alone) -> Version:
    """What schedulers see of a sample."""
    measures, scheme = one.measures, one.draw.scheme
    cycles, compute = measures.cycles, measures.compute
    return Version(scheme.cores, str(scheme), cycles, compute, measures.read, measures.written, measures.utilisation)


def samples_of(chunks: Iterable[Chunk], chip: ChipConfig) -> Samples:
    """The layers of chunks that ran beside others."""
    rows: list[tuple[float, ...]] = []
    factors: list[float] = []
    for chunk in chunks:
        versions = [version_of(one) for one in chunk.alone]
        for run in chunk.beside:
            own = versions[run.layer]
            rows.append(features(own, [versions[other] for other in run.others], len(chip.cores)))
            factors.append(min(1.0, own.cycles / run.cycles))
    return Samples(np.array(rows, np.float32).reshape(-1, len(FEATURES)), np.array(factors, np.float32))


@dataclass(frozen=True)
class Forest:
    """Trees as arrays of nodes: node i goes on with `left` or `right` (the number of another node) as feature `feature`
    is at most `threshold` or not; `feature` -1: a leaf, which says `value`. `roots`: one for each tree."""

    roots: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]

    def factor(self, platform: Platform, version: Version, running: Sequence[Version]) -> float:
        """See `Congestion`. 1 when nothing else runs."""
        if not running:
            return 1.0
        return max(1 / MOST, self.at(features(version, running, len(platform.cores))))

    def at(self, row: Sequence[float]) -> float:
        """The mean over the trees."""
        feature, threshold, left, right, total = self.feature, self.threshold, self.left, self.right, 0.0
        for node in self.roots:
            while (column := feature[node]) >= 0:
                node = left[node] if row[column] <= threshold[node] else right[node]
            total += self.value[node]
        return total / len(self.roots)


def fitted(samples: Samples, columns: int = len(FEATURES)) -> Forest:
    """A forest trained on the first columns of the features. The same samples give the same forest."""
    from sklearn.ensemble import RandomForestRegressor  # slow to import

    regressor: Any = RandomForestRegressor(
        n_estimators=TREES, max_depth=DEPTH, min_samples_leaf=LEAF, max_features=TRIED, random_state=SEED, n_jobs=1
    )
    regressor.fit(samples.features[:, :columns], samples.factor)
    trees: list[Any] = [each.tree_ for each in regressor.estimators_]
    roots = [0, *np.cumsum([tree.node_count for tree in trees])[:-1].tolist()]

    def joined(name: str, shift: bool = False) -> tuple[Any, ...]:
        arrays = [getattr(tree, name).ravel() + (root if shift else 0) for tree, root in zip(trees, roots, strict=True)]
        return tuple(np.concatenate(arrays).tolist())

    feature = tuple(max(-1, each) for each in joined("feature"))
    left, right = joined("children_left", shift=True), joined("children_right", shift=True)
    return Forest(tuple(roots), feature, joined("threshold"), left, right, joined("value"))


def error(forest: Forest, test: Samples) -> float:
    """Mean absolute error of the memory factor."""
    width = max(forest.feature) + 1
    factors = [forest.at(row) for row in test.features[:, :width].tolist()]
    return float(np.abs(np.array(factors) - test.factor).mean())


def chunks_of(chip: ChipConfig, count: int = CHUNKS) -> Iterable[Chunk]:
    """So many chunks, one after another, measured if they have not been."""
    memory, drawn = sample_cache(chip), draws(chip)
    return (measured(chip, number, list(islice(drawn, CHUNK)), memory) for number in range(count))


def save(samples: Samples, path: Path = DATA) -> None:
    """Writes samples and the forest that is trained on those that are not for tests."""
    arrays: dict[str, Any] = {name: np.array(value) for name, value in vars(fitted(samples.part(test=False))).items()}
    content = io.BytesIO()
    np.savez_compressed(content, features=samples.features, factor=samples.factor, **arrays)
    write_atomically(path, content.getvalue())


@cache
def shipped() -> tuple[Samples, Forest]:
    """The samples and the forest of the package."""
    with np.load(DATA, allow_pickle=False) as arrays:
        forest = {each.name: tuple(arrays[each.name].tolist()) for each in fields(Forest)}
        return Samples(arrays["features"], arrays["factor"]), Forest(**forest)


def trained() -> Forest:
    """The forest of the package."""
    return shipped()[1]


if __name__ == "__main__":
    CHIP_CONFIG = load(CHIP)
    save(samples_of(chunks_of(CHIP_CONFIG), CHIP_CONFIG))
