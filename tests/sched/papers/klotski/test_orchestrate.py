"""Orchestration as a whole: what comes out is a schedule, the same every time, and kept."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.papers.klotski import orchestrate as module
from meshloom.sched.papers.klotski.dag import GraphError, dag
from meshloom.sched.papers.klotski.listing import Delays, OpPlacement, check
from meshloom.sched.papers.klotski.mapping import hops_between
from meshloom.sched.papers.klotski.muops import Orchestration
from meshloom.sched.papers.klotski.orchestrate import Progress, orchestrate, orchestration_cache
from meshloom.sched.schedulers.budget import Budget, BudgetError

from .test_listing import random_dag

SMALL = Budget(steps=200_000)


@pytest.fixture(scope="module")
def chip() -> ChipConfig:
    return load("quad16")


def plan(found: Orchestration) -> OpPlacement:
    return OpPlacement(np.array(found.cores, np.int64), np.array(found.starts, np.int64))


@pytest.mark.parametrize("size", [1, 5, 30, 200])
def test_a_schedule_comes_out(size: int, chip: ChipConfig) -> None:
    graph = random_dag(Random(size), size, longest=100, density=3 / max(3, size))
    heard: list[Progress] = []
    result = orchestrate(graph, chip, SMALL, heard.append)
    check(graph, plan(result), len(chip.cores))
    assert result.bound <= result.makespan
    assert heard[-1].makespan == result.makespan
    assert heard[-1].stage == "mapping"
    assert result == orchestrate(graph, chip, SMALL)


def test_degenerate_graphs(chip: ChipConfig) -> None:
    assert orchestrate(dag([], []), chip, SMALL) == Orchestration((), (), 0, 0)
    assert orchestrate(dag([7], []), chip, SMALL).makespan == 7
    assert orchestrate(dag([7] * 5, []), chip, SMALL).makespan == 14
    with pytest.raises(GraphError, match="circle"):
        orchestrate(dag([1, 1], [(0, 1), (1, 0)]), chip)
    with pytest.raises(BudgetError, match="counts steps"):
        orchestrate(dag([1], []), chip, Budget(seconds=1))


def test_one_core_takes_all_one_by_one() -> None:
    graph = random_dag(Random(1), 20)
    one = load("mono16")
    result = orchestrate(graph, one, SMALL)
    assert (result.makespan, result.bound) == (graph.cycles.sum(), graph.cycles.sum())
    assert set(result.cores) == {0}


def test_delays_make_it_later(chip: ChipConfig) -> None:
    graph = random_dag(Random(4), 40)
    delays = Delays.wormhole(hops_between(chip), 3)
    result = orchestrate(graph, chip, SMALL, delays=delays)
    check(graph, plan(result), len(chip.cores), delays)
    assert result.makespan > orchestrate(graph, chip, SMALL).makespan


def test_what_was_found_is_kept(tmp_path: Path, chip: ChipConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted while it maps, it goes on with the schedule; asked again, it searches nothing."""
    graph = random_dag(Random(9), 50)
    expected = orchestrate(graph, chip, SMALL)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def never(*_: object) -> None:
        pytest.fail("searched again")

    with monkeypatch.context() as patch:
        patch.setattr(module, "annealed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            orchestrate(graph, chip, SMALL, memory=orchestration_cache(tmp_path, chip))
    with monkeypatch.context() as patch:
        patch.setattr(module, "solved", never)
        assert orchestrate(graph, chip, SMALL, memory=orchestration_cache(tmp_path, chip)) == expected
        patch.setattr(module, "annealed", never)
        assert orchestrate(graph, chip, SMALL, memory=orchestration_cache(tmp_path, chip)) == expected


def test_a_plan_that_contradicts_its_bound_is_no_plan() -> None:
    with pytest.raises(ValueError, match="a plan takes 1,000 cycles, which a proof says to be 1,001 at least"):
        Orchestration((0,), (0,), 1000, 1001)
