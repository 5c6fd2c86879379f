"""The reference of all sequences, and looking ahead beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import run
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.flexer import playing
from meshloom.sched.papers.flexer.exhaustive import POLICIES, sequences, tried
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import attempt
from meshloom.sched.papers.flexer.policy import PAPER, Choice, Policy
from meshloom.sched.papers.flexer.state import NEXT, RUN
from meshloom.sched.papers.flexer.tiles import Tiling
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.inputs.golden.layer import golden

#: Five operations on four cores for which list scheduling is 1.3 times the optimum: chip, rows, layer, tiling.
NARROW = ("quad8", 66, "conv:9x9x8-8,k3,p1", Tiling(9, 2, 1, 1))
#: Sums that are kept and come back, on two cores with little room: list scheduling is 1.17 times the optimum.
DEEP = ("arch1", 560, "conv:15x15x64-32,k3,p1", Tiling(15, 5, 1, 1))


@pytest.mark.parametrize(
    ("pairs", "k", "cores", "count"),
    [(1, 1, 4, 1), (1, 6, 4, 1), (3, 1, 1, 6), (3, 1, 2, 18), (3, 1, 4, 24), (2, 2, 2, 22), (6, 1, 1, 720)],
)
def test_all_sequences_are_there(pairs: int, k: int, cores: int, count: int) -> None:
    """Each once, whole, with predecessors first, and no set larger than the chip or with two operations of a pair."""
    result = sequences(pairs, k, cores)
    assert len(result) == count
    seen: set[tuple[object, ...]] = set()
    for order, depth, first, sets in zip(result.pairs, result.k, result.first, result.sets, strict=True):
        seen.add((*order, *first))
        done = [0] * pairs
        for begin, end in zip(first[:sets], first[1 : sets + 1], strict=True):
            assert 0 < end - begin <= cores
            assert len(set(order[begin:end])) == end - begin
            for pair, at in zip(order[begin:end], depth[begin:end], strict=True):
                assert at == done[pair]
                done[pair] += 1
        assert done == [k] * pairs
    assert len(seen) == count


@pytest.mark.parametrize(("pairs", "k"), [(0, 1), (7, 1), (2, 4), (3, 3)])
def test_more_operations_than_anyone_waits_for(pairs: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"{pairs * k} operations: all sequences are tried of 1 to 6"):
        sequences(pairs, k, 2)


@pytest.mark.parametrize("options", ["lookahead=65", "lookahead=-1", "lookahead=some"])
def test_a_lookahead_that_is_none(options: str) -> None:
    with pytest.raises(registry.SchedulerError, match="lookahead"):
        registry.find(f"flexer:{options}")
    with pytest.raises(registry.SchedulerError, match="no option 'lookahead'"):
        registry.find("paper_static:lookahead=2")


@pytest.mark.slow
@pytest.mark.parametrize("case", [NARROW, DEEP], ids=lambda case: case[2])
@pytest.mark.parametrize("overlap", [True, False])
def test_looking_ahead_comes_nearer_to_the_optimum(case: tuple[str, int, str, Tiling], overlap: bool) -> None:
    """Nothing is better than the best of all sequences, and looking ahead is never worse than list scheduling; the log
    of the best sequence says what it was said to cost."""
    name, rows, shape, tiling = case
    chip = load(name).model_copy(update={"spm_words": rows})
    problem, policy = pose(parse(shape), chip), replace(PAPER, overlap=overlap)
    all_ = tried(problem, chip, tiling, policy)
    metric = all_.cycles * all_.words
    best = float(metric.min())
    number, which = (int(at) for at in np.argwhere(metric == best)[0])
    log = all_.log(number, which)
    assert (log["kind"] == RUN).sum() == all_.sequences.pairs.shape[1]
    assert (log["kind"] == NEXT).sum() == all_.sequences.sets[number]
    costs = {}
    for width in (0, 1, 4, 16):
        good, cycles, words, _, steps = attempt(
            problem, chip, Choice(tiling, "mnk"), replace(policy, lookahead=width), record=True
        )
        assert good
        costs[width] = cycles * words
        assert costs[width] >= best * (1 - 1e-12)
        assert costs[width] <= costs[0]
        assert steps >= (width > 0)
    assert costs[16] <= 1.05 * best
    if overlap:
        assert costs[0] > {NARROW: 1.25, DEEP: 1.15}[case] * best


@pytest.mark.slow
def test_memory_policies_that_cannot_play_cost_infinitely_much() -> None:
    """Where sums stay in their cores and no core has room for new ones, a sequence has no cost; others have."""
    chip = load("tiny").model_copy(update={"spm_words": 400})
    chip = chip.model_copy(update={"core": chip.core.model_copy(update={"acc_words": 70})})
    all_ = tried(pose(parse("conv:8x8x8-8"), chip), chip, Tiling(22, 1, 2, 1), Policy(home=True))
    assert all_.cycles.shape == (len(all_.sequences), len(POLICIES))
    assert np.isfinite(all_.cycles).any()
    assert np.isinf(all_.cycles).any()
    assert (np.isinf(all_.cycles) == np.isinf(all_.words)).all()


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Policy(), Policy(home=True), Policy(again=True), Policy(overlap=False)], ids=str)
def test_schedules_that_look_ahead_compute_the_layer(policy: Policy) -> None:
    name = "conv:12x10x32-24,k3,p1"
    chip, data = load("quad8").model_copy(update={"spm_words": 300}), random_data(parse(name))
    policy = replace(policy, lookahead=3)
    result = LayerSearch(parse(name), chip, data.scale, budget=Budget(steps=2_000_000)).best(policy, "flexer").schedule
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))
    check(lower(result, chip), chip, result)


@pytest.mark.slow
def test_looking_ahead_is_bounded_by_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule for which it takes too much work stays what list scheduling has made; a search looks ahead from fewer
    choices if its budget is small, and finds the same again."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    layer = LayerSearch(parse("conv:10x10x40-40,k3,p1,relu"), chip, 1000, budget=Budget(steps=3_000_000))
    listed, ahead = layer.choices(PAPER), layer.choices(replace(PAPER, lookahead=4))
    assert 0 < len(ahead) < len(listed)
    assert ahead == layer.choices(replace(PAPER, lookahead=4))
    metrics = [choice.cycles * choice.words for choice in ahead]
    assert metrics == sorted(metrics)
    before = {(one.tiling, one.loops): one.cycles * one.words for one in listed}
    assert all(m <= before[one.tiling, one.loops] for m, one in zip(metrics, ahead, strict=True))
    problem = pose(parse(NARROW[2]), chip := load(NARROW[0]).model_copy(update={"spm_words": NARROW[1]}))
    choice, wide = Choice(NARROW[3], "mnk"), replace(PAPER, lookahead=16)
    alone, result = (attempt(problem, chip, choice, policy)[1:3] for policy in (PAPER, wide))
    assert result != alone
    monkeypatch.setattr(playing, "AHEAD_STEPS", 100)
    assert attempt(problem, chip, choice, wide)[1:3] == alone
