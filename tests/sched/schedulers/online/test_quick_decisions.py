"""What makes decisions quick makes none of them another: each short cut beside the plain rule that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from meshloom.hw.spec.config import load, tile_position
from meshloom.sched.papers.layer_puzzle.estimator import trained
from meshloom.sched.papers.layer_puzzle.veltair import block
from meshloom.sched.schedulers.online.choosing import together
from meshloom.sched.schedulers.online.congestion import Congestion, FairShare, cycles_beside, fastest_beside
from meshloom.sched.schedulers.online.interface import Instance, Layer, Network, Platform, Version, View
from meshloom.sched.schedulers.online.lookahead import Job, improved

PLATFORM = Platform.of(load("lp25"))


def versions(random: Random, count: int, least: int = 1) -> tuple[Version, ...]:
    """Of few different times, so that many are alike."""
    result = [
        Version(
            random.randint(least, 25), str(number), cycles := 1000 * random.randint(1, 12),
            random.randint(0, cycles), 100 * random.randint(1, 300), 100, 0.5,
        )
        for number in range(count)
    ]  # fmt: skip
    return tuple(sorted(result, key=lambda one: one.cores))


@pytest.mark.parametrize("congestion", [trained(), FairShare()], ids=["forest", "fair"])
def test_the_fastest_beside_others_is_that_of_all_versions(congestion: Congestion) -> None:
    random = Random(3)
    slower = 0
    for _ in range(150):
        running = versions(random, random.randint(0, 4))
        offered = versions(random, random.randint(0, 30))

        def cycles(version: Version, running: Sequence[Version] = running) -> tuple[int, int]:
            return cycles_beside(congestion, PLATFORM, version, running), version.cores

        result = fastest_beside(congestion, PLATFORM, offered, running)
        assert result is min(offered, key=cycles, default=None)
        slower += result is not None and result is not min(offered, key=lambda one: one.cycles)
    assert slower > 5  # where the one that is fastest alone is not the one


def test_cores_that_lie_together_are_those_of_the_smallest_sum_of_distances() -> None:
    random = Random(4)
    for _ in range(300):
        free = random.sample(PLATFORM.cores, random.randint(1, 25))
        count = random.randint(1, len(free))
        places = [tile_position(tile) for tile in free]
        near = [
            sorted((abs(x - u) + abs(y - v), index) for index, (u, v) in enumerate(places))[:count] for x, y in places
        ]
        best = min(near, key=lambda one: sum(distance for distance, _ in one))
        expected = [free[index] for index in sorted(index for _, index in best)]
        if count == 1:
            expected = free[:1]
        assert together(free, count) == tuple(expected)


def cost(jobs: Sequence[Job], order: Sequence[int], now: int, penalty: float) -> float:
    at, result = now, 0.0
    for job in (jobs[index] for index in order):
        at += job.left
        result += (at - job.arrival) / job.alone
        if job.deadline is not None and at > job.deadline:
            result += penalty
    return result


def improved_plainly(jobs: Sequence[Job], now: int, penalty: float) -> list[int]:
    """Every move of every job, each order summed up from its beginning."""
    order = list(range(len(jobs)))
    for _ in jobs:
        before = order
        for place in range(len(jobs)):
            for other in range(len(jobs)):
                moved = order.copy()
                moved.insert(other, moved.pop(place))
                if cost(jobs, moved, now, penalty) < cost(jobs, order, now, penalty) - 1e-9:
                    order = moved
        if order == before:
            break
    return order


def test_the_order_by_cost_is_that_of_whole_sums() -> None:
    random = Random(5)
    moved = 0
    for _ in range(150):
        jobs = [
            Job(left := random.randint(1, 9) * 100, left + random.randint(0, 500),
                random.choice([None, 5000 + random.randint(-200, 3000)]), random.randint(0, 5000))
            for _ in range(random.randint(1, 8))
        ]  # fmt: skip
        penalty = random.choice([0.0, 0.5, 2.0, 50.0])
        result = improved(jobs, 5000, penalty)
        if any(job.deadline is not None for job in jobs):
            assert result == improved_plainly(jobs, 5000, penalty)
        moved += result != list(range(len(jobs)))
    assert moved > 50


def test_a_block_ends_before_the_first_layer_that_needs_more_than_the_threshold() -> None:
    random = Random(6)
    ends: set[int] = set()
    for _ in range(200):
        net = Network("net", 1, tuple(layer(f"l{n}", random) for n in range(12)))
        at, threshold = random.randrange(12), random.randint(1, 25)
        one = Instance(0, net, 0, random.randint(1, 90_000), at)
        view = View(0, PLATFORM, PLATFORM.cores, 8, (one,), ())
        left = net.remaining(at, 1)
        part = max(1, one.deadline or 0) / left
        end = at + 1
        while end < 12 and needed(net.layers[end], part) <= threshold:
            end += 1
        result = block(one, view, threshold)
        assert result.end == end
        ends.add(end - at)
    assert len(ends) > 5


def layer(name: str, random: Random) -> Layer:
    """One version is for a single core, so that any number of cores will do."""
    first = Version(1, "single", 1000 * random.randint(6, 14), 1000, 1000, 100, 0.5)
    return Layer(name, 1, (first, *versions(random, random.randint(1, 12))))


def needed(layer: Layer, part: float) -> int:
    """The fewest cores on which it takes at most that part of what its smallest version takes; all if none do."""
    goal = part * layer.versions[0].cycles
    return next((version.cores for version in layer.versions if version.cycles <= goal), 25)
