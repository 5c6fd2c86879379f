"""Candidates that are one schedule by several names: which they are, and that a search only saves by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.mapping.emit.emission import Emission, emit
from meshloom.sched.mapping.tiling.plan import CorePlan
from meshloom.sched.mapping.tiling.problem import DoesNotFit, pose
from meshloom.sched.mapping.tiling.space import best
from meshloom.sched.mapping.tiling.tiles import ORDERS, Candidate
from meshloom.sched.schedulers.loop_order import scheduler
from meshloom.sched.schedulers.loop_order.alike import Alike
from meshloom.sched.workload.layers import ConvShape, gemm_shape

from ....tiers import slow_but

SHAPES = {
    "small": (gemm_shape("small", 8, 8, 9), "quad16"),
    "deep": (gemm_shape("deep", 37, 50, 100), "tiny"),
    "strips": (ConvShape("strips", 1, 8, 9, 12, 20, 3, 3, 1, 1, 1, 1, 1, 1), "pe12x14"),
    "batch": (ConvShape("batch", 2, 33, 7, 7, 20, 1, 1), "quad8"),
}


def candidates(shape: ConvShape, chip_name: str) -> Iterator[Candidate]:
    """The best of the closed form in every order, and with every switch."""
    chip = load(chip_name)
    pool, _ = best(pose(shape, chip), chip, 12, shape.name)
    for entry in pool:
        for order in ORDERS:
            one = replace(entry.candidate, order=order)
            yield one
            for switch in ("snap", "ramp_rows", "ramp_k", "tail_rows", "strip", "late", "tight", "edges", "fair"):
                yield replace(one, **{switch: not getattr(one, switch)})


def operations(shape: ConvShape, chip_name: str, candidate: Candidate) -> list[object]:
    return [node.operation() for node in emit(shape, load(chip_name), candidate).nodes]


@pytest.mark.parametrize("name", slow_but(SHAPES, "small"))
def test_what_counts_as_the_same_makes_the_same_operations(name: str) -> None:
    shape, chip = SHAPES[name]
    alike, firsts, others = Alike(pose(shape, load(chip)), load(chip)), dict[Candidate, list[object]](), 0
    for candidate in candidates(shape, chip):
        try:
            first = alike.first(candidate)
        except DoesNotFit:
            with pytest.raises(DoesNotFit):
                emit(shape, load(chip), candidate)
            continue
        if first is candidate:
            firsts[candidate] = operations(shape, chip, candidate)
        else:
            others += 1
            assert operations(shape, chip, candidate) == firsts[first], candidate
    assert others > len(firsts) > 1


def test_plans_of_a_first_one_are_those_it_is_emitted_by() -> None:
    shape, chip = SHAPES["small"][0], load(SHAPES["small"][1])
    alike = Alike(pose(shape, chip), chip)
    one = next(candidates(shape, chip.name))
    assert alike.first(one) is one
    by_plans = emit(shape, chip, one, 0, alike.plans(one)).nodes
    assert [node.operation() for node in by_plans] == operations(shape, chip.name, one)


def by_itself(alike: Alike, candidate: Candidate) -> Candidate:
    """Each candidate is its own first."""
    alike.plans(candidate)
    return candidate


@pytest.mark.parametrize("name", slow_but(("small", "batch"), "small"))
def test_a_search_finds_the_same_and_emits_less(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In work: what is emitted, by a search that knows what is alike and by one that takes each for its own."""
    shape, chip_name = SHAPES[name]
    chip, emitted = load(chip_name), list[Candidate]()

    def counted(
        shape: ConvShape, chip: ChipConfig, candidate: Candidate, scale: int, plans: Sequence[CorePlan]
    ) -> Emission:
        emitted.append(candidate)
        return emit(shape, chip, candidate, scale, plans)

    monkeypatch.setattr(scheduler, "emit", counted)
    result = scheduler.search(shape, chip, effort=0.1)
    some = len(emitted)
    monkeypatch.setattr(Alike, "first", by_itself)
    emitted.clear()
    plain = scheduler.search(shape, chip, effort=0.1)
    assert [(one.candidate, one.cycles) for one in plain.ranked] == [
        (one.candidate, one.cycles) for one in result.ranked
    ]
    assert (plain.replays, plain.predictions) == (result.replays, result.predictions)
    best_ones = result.ranked[0].schedule, plain.ranked[0].schedule
    assert best_ones[0]
    assert best_ones[1]
    assert best_ones[0].operations == best_ones[1].operations
    assert 2 * some < len(emitted)
