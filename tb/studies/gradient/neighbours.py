"""The paper's predictor of how cores share a layer, beside the model, which needs no training (section 5).

The K nearest neighbours of a layer by its sizes vote for the split that was fastest for them. The paper names neither K
nor the metric; here sizes are compared by their logarithms, and several K are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Neighbours that vote; draws of a fifth of the layers for tests, and that fifth (the paper's).
NEIGHBOURS, REPEATS, TESTED = (1, 3, 5), 1000, 0.2


@dataclass(frozen=True)
class Sample:
    """A layer: `sizes` M, K, N; cycles by split, and those of the baseline."""

    sizes: tuple[int, int, int]
    cycles: dict[str, int]
    plain: int

    @property
    def label(self) -> str:
        """The fastest split, the first of several."""
        return min(self.cycles, key=self.cycles.__getitem__)


@dataclass(frozen=True)
class Predicted:
    """Of one K: share of test layers whose split is predicted right, and how much less time than the baseline all test
    layers take by the predicted split and by the fastest, on average over the draws."""

    neighbours: int
    right: float
    less: float
    least: float


def predicted(samples: Sequence[Sample], repeats: int = REPEATS) -> list[Predicted]:
    """The predictor on random fifths of the samples; nothing for fewer than ten. Deterministic."""
    if len(samples) < 10:
        return []
    from sklearn.neighbors import KNeighborsClassifier

    splits = sorted({split for one in samples for split in one.cycles})
    sizes = np.log2([one.sizes for one in samples])
    labels = np.array([splits.index(one.label) for one in samples])
    worst = [max(one.cycles.values()) for one in samples]
    # a split that a layer does not allow for is as slow as its slowest
    cycles = np.array(
        [[one.cycles.get(split, most) for split in splits] for one, most in zip(samples, worst, strict=True)]
    )
    plain = np.array([one.plain for one in samples])
    tested = max(1, round(TESTED * len(samples)))
    results: list[Predicted] = []
    for neighbours in NEIGHBOURS:
        rng, rows = np.random.default_rng(0), list[tuple[float, float, float]]()
        for _ in range(repeats):
            drawn = rng.permutation(len(samples))
            test, train = drawn[:tested], drawn[tested:]
            guess = KNeighborsClassifier(neighbours).fit(sizes[train], labels[train]).predict(sizes[test])
            base = plain[test].sum()
            rows.append((
                float(np.count_nonzero(guess == labels[test]) / tested),
                float(1 - cycles[test, guess].sum() / base),
                float(1 - cycles[test].min(axis=1).sum() / base),
            ))  # fmt: skip
        right, less, least = np.mean(rows, axis=0)
        results.append(Predicted(neighbours, float(right), float(less), float(least)))
    return results
