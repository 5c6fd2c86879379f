"""The congestion estimator: random layers beside others, the forest that learns from them, and what the package has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.papers.layer_puzzle import estimator, samples
from meshloom.sched.papers.layer_puzzle.estimator import FEATURES, Samples, error, features, fitted, shipped
from meshloom.sched.papers.layer_puzzle.samples import (
    CHUNK,
    CHUNKS,
    LONGEST,
    MIXES,
    PAUSE,
    WIDER,
    Runs,
    compiled,
    draws,
    measured,
    mixes,
    sample_cache,
)
from meshloom.sched.schedulers.online.interface import Platform, Version

CHIP = load("lp9")


@pytest.fixture(scope="module")
def small():
    """A few layers that are small enough to be compiled and played at once."""
    few = [draw for draw in islice(draws(CHIP), 60) if draw.network == "ncf" and draw.scheme.cores < 5]
    return compiled(few[:4], CHIP)


def test_draws_do_not_repeat_and_follow_the_seed() -> None:
    result = list(islice(draws(CHIP), 300))
    assert len(set(result)) == 300
    assert result == list(islice(draws(CHIP), 300))
    assert result != list(islice(draws(CHIP, 4), 300))
    assert {draw.scheme.cores for draw in result} == set(range(1, 10))
    assert {draw.batch for draw in result} == {1, 4}


def test_draws_beyond_the_samples_of_the_package_have_other_batch_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "CHUNKS", 1)
    result = list(islice(draws(CHIP), 3 * CHUNK))
    assert result[:CHUNK] == list(islice(draws(CHIP), CHUNK))
    assert {draw.batch for draw in result[:CHUNK]} == {1, 4}
    assert {draw.batch for draw in result[CHUNK:]} == set(WIDER)


def test_layers_run_beside_others_that_begin_anew(small) -> None:
    runs = Runs(ModelSession(CHIP), small)
    alone = [runs.alone(layer) for layer in range(len(small))]
    assert alone == pytest.approx([template.measures.cycles for _, template in small], rel=0.2)
    longest, shortest = alone.index(max(alone)), alone.index(min(alone))
    before = len(runs.completions)
    cycles = runs.beside(longest, [shortest], seed=3)
    runs.drain()
    again = [one.cycle for one in runs.completions[before:] if one.slot == 1]
    assert len(again) > max(alone) // (2 * (min(alone) + PAUSE))
    assert cycles > 0.8 * alone[longest]
    assert Runs(ModelSession(CHIP), small).beside(longest, [shortest], seed=3) == cycles


def test_mixes_fit_the_chip(small) -> None:
    result = list(mixes(small, CHIP, Random(1)))
    assert 0 < len(result) <= MIXES
    for layer, others in result:
        assert others
        assert sum(len(small[one][1].cores) for one in (layer, *others)) <= len(CHIP.cores)
        assert small[layer][1].measures.cycles <= LONGEST


def test_a_layer_that_leaves_one_core_runs_beside_a_layer_of_one() -> None:
    def layer(cores: int) -> Any:
        return None, SimpleNamespace(cores=tuple(range(cores)), measures=SimpleNamespace(cycles=LONGEST))

    result = list(mixes([layer(len(CHIP.cores) - 1), layer(1)], CHIP, Random(1)))
    assert {(layer, *others) for layer, others in result if layer == 0} == {(0, 1)}


def test_chunks_are_kept(small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    drawn = [draw for draw, _ in small]
    memory = sample_cache(CHIP)
    result = measured(CHIP, 5, drawn, memory)
    assert [one.draw for one in result.alone] == drawn
    monkeypatch.setattr("meshloom.sched.papers.layer_puzzle.samples.compiled", None)  # nothing is played again
    assert measured(CHIP, 5, drawn, memory) == result
    rows = estimator.samples_of([result], CHIP)
    assert rows.features.shape == (len(result.beside), len(FEATURES))
    assert np.all((rows.factor > 0) & (rows.factor <= 1))


def _made(count: int, seed: int) -> Samples:
    """Samples of a rule: slower with active cores, and the more the layer itself asks for."""
    random = np.random.default_rng(seed)
    result = random.random((count, len(FEATURES))).astype(np.float32)
    return Samples(result, (1 - 0.5 * result[:, 2] * result[:, 3]).astype(np.float32))


def test_arrays_say_what_the_forest_says() -> None:
    from sklearn.ensemble import RandomForestRegressor

    train, test = _made(800, 1), _made(200, 2)
    outcome: Any = RandomForestRegressor(
        n_estimators=estimator.TREES, max_depth=estimator.DEPTH, min_samples_leaf=estimator.LEAF,
        max_features=estimator.TRIED, random_state=estimator.SEED, n_jobs=1,
    )  # fmt: skip
    outcome.fit(train.features, train.factor)
    ours = fitted(train)
    result = [ours.at(row) for row in test.features.tolist()]
    assert result == pytest.approx(outcome.predict(test.features).tolist())
    assert error(ours, test) < error(fitted(train, 3), test)  # the own intensity matters
    assert fitted(train) == ours


def test_what_is_shipped_is_what_the_samples_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, forest = shipped()
    assert len(kept.factor) == CHUNKS * MIXES
    estimator.save(kept, tmp_path / "c.npz")
    monkeypatch.setattr(estimator, "DATA", tmp_path / "c.npz")
    shipped.cache_clear()
    assert shipped()[1] == forest
    shipped.cache_clear()
    train, test = kept.part(test=False), kept.part(test=True)
    assert len(train.factor) + len(test.factor) == len(kept.factor)
    assert error(forest, test) < 0.75 * float(np.abs(test.factor - train.factor.mean()).mean())


def _version(cores: int, cycles: int, words: int) -> Version:
    return Version(cores, f"of{cores}", cycles, cycles * cores // 2, words, 0, 0.5)


def test_features_are_of_the_layer_and_of_those_beside_it() -> None:
    own, one, other = _version(2, 1024, 512), _version(1, 256, 128), _version(3, 512, 1536)
    result = features(own, [one, other], 8)
    assert result == pytest.approx((0.25, (0.5 + 3) / 4, 0.5, 0.25, 10, np.log2((256 + 1536) / 4), 0.5))


@pytest.mark.parametrize("beside", [0, 1, 5])
def test_a_layer_alone_is_not_slowed(beside: int) -> None:
    platform: Platform = Platform.of(CHIP)
    others: Sequence[Version] = [_version(1, 4096, 4000)] * beside
    result = estimator.trained().factor(platform, _version(2, 2048, 3000), others)
    assert result == 1.0 if not beside else 0 < result < 1
    crowded = replace(platform, cores=platform.cores * 3)
    assert 0 < estimator.trained().factor(crowded, _version(2, 2048, 3000), others) <= 1
