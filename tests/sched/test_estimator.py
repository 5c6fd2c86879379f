"""The congestion estimator: its samples, its table, and what it is worth against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.sched.schedulers.layer_puzzle.estimator import Table, forest, tabulated
from meshloom.sched.schedulers.layer_puzzle.samples import Experiment, experiments, features, measure
from meshloom.sched.serving.congestion import FairShare
from meshloom.sched.serving.scheduler import Platform, Version

#: Twelve cores with the bandwidth of four.
NARROW = Platform("narrow", tuple(16 * y + x for y in (1, 2, 3) for x in (1, 2, 3, 4)), 4.0)


def play(experiment: Experiment) -> int:
    """An even share of the bandwidth: no simulation at all."""
    return round(experiment.version.cycles / FairShare().factor(NARROW, experiment.version, experiment.beside))


def test_experiments_are_drawn_by_the_seed_and_fit_the_chip() -> None:
    found = list(experiments(NARROW, 60, 3))
    assert found == list(experiments(NARROW, 60, 3))
    assert found != list(experiments(NARROW, 60, 4))
    assert all(one.version.cores + sum(other.cores for other in one.beside) <= 12 for one in found)
    assert {one.version.cores for one in found} == set(range(1, 13))
    assert all(len(one.layers) == 1 + len(one.beside) for one in found)


def test_the_fluid_model_measures_congestion() -> None:
    found = measure(NARROW, 25, 7)
    assert found.features.shape == (25, 4)
    assert np.all((found.factor > 0) & (found.factor <= 1))
    alone = found.features[:, 2] == 0
    assert np.all(found.factor[alone] == 1)
    assert found.factor.min() < 0.9


@pytest.fixture(scope="module")
def samples():
    return measure(NARROW, 1200, 1, play)


def test_the_own_intensity_makes_the_forest_better_and_the_table_says_what_the_forest_says(samples) -> None:
    held = measure(NARROW, 300, 2, play)
    errors = [
        float(np.abs(forest(samples, columns).predict(held.features[:, :columns]) - held.factor).mean())
        for columns in (3, 4)
    ]
    assert errors[1] < errors[0]
    assert errors[1] < 0.06
    table = tabulated(forest(samples), samples, 12)
    rows = [table.at(int(row[0]), float(row[1]), int(row[2]), float(row[3])) for row in held.features]
    assert float(np.abs(np.array(rows) - held.factor).mean()) < errors[1] + 0.02


def test_tables_are_reproducible_and_kept_without_pickle(samples) -> None:
    one, other = (tabulated(forest(samples), samples, 12) for _ in range(2))
    assert np.array_equal(one.factors, other.factors)
    back = Table.unpacked(one.packed())
    assert (back.others, back.own) == (one.others, one.own)
    assert np.array_equal(back.factors, one.factors)


def test_a_prediction_takes_the_nearest_point() -> None:
    factors = np.linspace(0.01, 0.24, 24).astype(np.float32).reshape(2, 2, 3, 2)
    table = Table((0.0, 1.0), (0.0, 1.0), factors)
    assert table.at(1, -5.0, 0, 0.4) == pytest.approx(factors[0, 0, 0, 0])
    assert table.at(9, 0.6, 9, 7.0) == pytest.approx(factors[1, 1, 2, 1])
    own = Version(2, "v", 100, 50, 100, 0, 0.5)
    assert features(own, [own]) == (2.0, 0.5, 2.0, 0.5)
    assert table.factor(NARROW, own, []) == 1.0
    assert table.factor(NARROW, own, [own]) == pytest.approx(table.at(2, 0.5, 2, 0.5))
