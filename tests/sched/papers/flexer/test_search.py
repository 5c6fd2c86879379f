"""The search of Flexer's schedules: proven right, the same for every number of threads, budget and interruption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.flexer import jit, machine
from meshloom.sched.papers.flexer import layer as layers
from meshloom.sched.papers.flexer import search as module
from meshloom.sched.papers.flexer.flows import flows
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import attempt, play
from meshloom.sched.papers.flexer.policy import OURS, PAPER, PAPER_STATIC, Choice, Policy, power
from meshloom.sched.papers.flexer.search import Partial, Progress, bounds, search
from meshloom.sched.papers.flexer.tiles import Tiling, viable
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.budget import Budget, BudgetError
from meshloom.sched.workload.shapes import parse

from ....tiers import slow_but

SMALL = parse("conv:10x10x40-40,k3,p1,relu")
#: The paper's search with transfers first and a beam.
BEAM = Policy("flexer", priority=1, pruning=3, home=True, by_words=0.25)


@pytest.mark.parametrize("policy", slow_but([PAPER, PAPER_STATIC, OURS, BEAM], BEAM), ids=str)
def test_search_is_proven_right(policy: Policy) -> None:
    """The best of a search is the best of all tilings and data flows played to their end; no bound is above what it
    bounds; the number of threads does not matter."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem = pose(SMALL, chip)
    result = search(problem, chip, policy, "x", keep=3, threads=2)
    alone = search(problem, chip, policy, "x", keep=3, threads=1)
    assert result.choices == alone.choices
    assert result.complete
    assert result.proven > 0
    space = viable(problem, chip, "x")
    cycles, words = bounds(space, chip)
    best = np.inf
    for index in np.argsort(cycles * words)[:12]:
        for choice in flows(problem, chip, policy, space.tiling(int(index))):
            good, took, moved, _ = play(problem, chip, choice, policy)
            assert good
            assert took >= cycles[index]
            assert moved >= words[index]
            best = min(best, policy.metric(took, moved))
    leader = result.choices[0]
    assert policy.metric(leader.cycles, leader.words) <= best


@pytest.mark.slow  # seconds: the layer is large
def test_weights_that_leave_no_second_slot_come_while_the_array_waits() -> None:
    """The bound knows it, so that a search does not spend its budget on such tilings; with two slots, tiles come while
    cores compute, also by list scheduling: their places take turns in the scratchpad."""
    chip = load("arch2")
    problem = pose(parse("gemm:1x1024x2048"), chip)
    space = viable(problem, chip, "x")
    tilings = [space.tiling(index) for index in range(len(space))]
    cycles, _ = bounds(space, chip)
    for tiling, slots in ((Tiling(1, 1, 8, 4), 2), (Tiling(1, 1, 8, 8), 1)):
        least = cycles[tilings.index(tiling)]
        _, listed, _, _ = play(problem, chip, Choice(tiling, "mnk"), PAPER)
        _, nested, _, _ = play(problem, chip, Choice(tiling, "mnk", (16, 4, 2)), PAPER_STATIC)
        assert least <= listed <= 1.01 * nested
        assert nested <= 1.1 * least
        assert (least > 1.5 * cycles.min()) == (slots == 1)


def test_bounds_abort_only_what_is_worse() -> None:
    """A limit at a schedule's own metric does not stop it; a little less does, before it is done."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem = pose(SMALL, chip)
    choice = Choice(Tiling(5, 10, 1, 2), "mnk")
    good, cycles, words, _ = play(problem, chip, choice, PAPER)
    assert good
    assert play(problem, chip, choice, PAPER, limit=PAPER.metric(cycles, words))[0]
    assert not play(problem, chip, choice, PAPER, limit=0.5 * PAPER.metric(cycles, words))[0]


@pytest.mark.parametrize("policy", [PAPER, PAPER_STATIC, OURS, BEAM], ids=str)
@pytest.mark.parametrize("steps", slow_but([1, 3_000_000, 12_000_000], 1, 3_000_000))
def test_a_budget_of_work_finds_the_same_everywhere(
    policy: Policy, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of threads, and whoever of them is slow, in whichever of the two halves of a search the
    budget ends."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem, budget = pose(SMALL, chip), Budget(steps=steps)
    alone = search(problem, chip, policy, "x", layers.BEST_RUNS, budget, threads=1)
    assert alone.choices
    assert not alone.complete
    random = np.random.default_rng(steps)
    quick = module.attempt

    def now_and_then_slow(*arguments: Any, **more: Any) -> Any:
        sleep(0.01 * (random.random() < 0.1))
        return quick(*arguments, **more)

    monkeypatch.setattr(module, "attempt", now_and_then_slow)
    for threads in (2, 5):
        other = search(problem, chip, policy, "x", layers.BEST_RUNS, budget, threads=threads)
        assert replace(other, seconds=alone.seconds) == alone


@pytest.mark.slow
def test_more_work_is_spent_to_the_step() -> None:
    """What a budget does not suffice for is not made; what was counted is what the same plays count by themselves."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem = pose(SMALL, chip)
    for most in (2_000_000, 2_000_001, 7_000_000):
        result = search(problem, chip, PAPER, "x", budget=Budget(steps=most), threads=1)
        assert 0.9 * most < result.steps <= most
    whole = search(problem, chip, PAPER, "x", threads=1)
    enough = search(problem, chip, PAPER, "x", budget=Budget(steps=4 * whole.steps), threads=1)
    assert enough.complete
    assert enough.choices == whole.choices


def test_a_schedule_is_given_up_when_its_work_exceeds_a_limit() -> None:
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem = pose(SMALL, chip)
    static = next(flows(problem, chip, PAPER_STATIC, Tiling(5, 10, 1, 2)))
    again = Policy(again=True)
    for choice, policy in (
        (Choice(Tiling(5, 10, 1, 2), "mnk"), PAPER),
        (Choice(Tiling(5, 10, 1, 2), "mnk"), again),
        (static, PAPER_STATIC),
        (Choice(Tiling(5, 10, 1, 2), "m", shape=(2, 2)), OURS),
    ):
        good, _, _, _, steps = attempt(problem, chip, choice, policy)
        assert good
        assert attempt(problem, chip, choice, policy, most=steps)[::4] == (True, steps)
        good, _, _, _, fewer = attempt(problem, chip, choice, policy, most=steps // 2)
        assert not good
        assert steps // 2 < fewer < steps


@pytest.mark.parametrize("threads", slow_but([1, 3], 3))
@pytest.mark.parametrize("budget", [pytest.param(None, marks=pytest.mark.slow), Budget(steps=12_000_000)], ids=str)
def test_interrupted_search_goes_on(budget: Budget | None, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted again and again, in both halves of a search: what it has found is not done again, and the result is
    that of a whole one."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem = pose(SMALL, chip)
    whole = search(problem, chip, PAPER, "x", layers.BEST_RUNS, budget)
    quick, count = module.attempt, 0

    def interrupted(*arguments: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == 70:
            raise KeyboardInterrupt
        return quick(*arguments, **more)

    monkeypatch.setattr(module, "attempt", interrupted)
    monkeypatch.setattr(module, "SAVE_SECONDS", float("inf"))  # on a slow machine it also saves on its way
    saved: list[Partial] = []
    for times in range(1000):
        count = 0
        before = layers._PARTIAL.validate_json(layers._PARTIAL.dump_json(saved[-1])) if saved else None
        try:
            rest = search(
                problem, chip, PAPER, "x", layers.BEST_RUNS, budget, threads=threads, before=before, save=saved.append
            )
            break
        except KeyboardInterrupt:
            assert len(saved) == times + 1
    assert times > 1, "it was interrupted in both halves"
    assert replace(rest, seconds=whole.seconds) == whole


@pytest.mark.slow  # several whole searches
def test_what_was_interrupted_is_found_in_the_folder(tmp_path: Path) -> None:
    """And what is damaged there is found again."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    problem = pose(SMALL, chip)
    saved: list[Partial] = []

    def stop(progress: Progress) -> None:
        if progress.schedules > 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(problem, chip, PAPER, "x", layers.BEST_RUNS, on_progress=stop, save=saved.append)
    assert saved[-1].ranked
    assert 0 < saved[-1].taken < len(viable(problem, chip, "x"))
    again = LayerSearch(SMALL, chip, 1000, tmp_path)
    again.searches.put((again.key, PAPER, None, layers.BEST_RUNS, "partly"), layers._PARTIAL, saved[-1])
    first = again.choices(PAPER)
    assert LayerSearch(SMALL, chip, 1000, tmp_path).choices(PAPER) == first
    damaged = list(tmp_path.glob("*.value"))
    assert damaged
    for path in damaged:
        path.write_text("{damaged")
    assert LayerSearch(SMALL, chip, 1000, tmp_path).choices(PAPER) == first


def test_a_budget_of_seconds_is_named(tmp_path: Path) -> None:
    """It gives a schedule even if it is over before it began, says whose it is, and is not taken for one of work."""
    chip = load("quad8").model_copy(update={"spm_words": 512})
    result = search(pose(SMALL, chip), chip, PAPER, "x", budget=Budget(seconds=1e-6))
    assert result.choices
    assert not result.complete
    hurried = registry.find("flexer:budget=0.001s", tmp_path)(SMALL, chip, 1000)
    assert hurried.scheduler == "flexer:budget=0.001s"
    counted = registry.find("flexer:budget=9M", tmp_path)(SMALL, chip, 1000)
    assert counted.scheduler == "flexer"
    alone = registry.find("flexer:budget=9M")(SMALL, chip, 1000)
    assert counted == alone, "nothing of what seconds had found"


@pytest.mark.parametrize("text", ["5", "0M", "soon", "-1s", "1e3M", "5 s", "inf", "0s", "2T"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(BudgetError, match="100M or 2G, or seconds, as in 5s"):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("500k", Budget(steps=500_000)),
        ("100M", Budget(steps=10**8)),
        ("1.5G", Budget(steps=1_500_000_000)),
        ("0.25s", Budget(seconds=0.25)),
    ],
)
def test_budgets(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget
    assert str(budget) == text
    assert Budget.parse(str(budget)) == budget


def test_powers_are_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made of products and square roots alone, which every processor rounds correctly; close to the library's."""
    assert power(7.0, 0.0) == 1.0
    assert power(3.0, 4.0) == 81.0
    assert power(16.0, 0.25) == 2.0
    assert power(2.0, 0.75) == (2.0**0.5) * (2.0**0.5) ** 0.5
    monkeypatch.setattr(jit, "folder", lambda: None)
    compiled = jit.compiled(lambda base, weights: machine.metric(base, 1.0, weights))
    for base, exponent in ((1234567.0, 0.3), (89.5, 2.7), (1e6, 3.0), (5.0, 99.9)):
        assert power(base, exponent) == pytest.approx(base**exponent, rel=1e-12)
        assert compiled(base, np.array([exponent, 0.0])) == power(base, exponent)
