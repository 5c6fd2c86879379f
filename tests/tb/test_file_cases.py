"""How answers of trained files are judged, and how weights with several steps are rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from numpy.typing import NDArray

from meshloom.hw.core.golden import requantise
from meshloom.tb.studies.chip.rounding import rounded, shifted
from meshloom.tb.studies.chip.scale_stage import By, ScaleStage
from meshloom.tb.studies.networks import file_cases

Pair = tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]], int]


def pair(exact: list[float] | NDArray[np.float64], result: list[float] | NDArray[np.float64], right: int = -1) -> Pair:
    return {"y": np.asarray(exact, np.float64)}, {"y": np.asarray(result, np.float64)}, right


def test_classes() -> None:
    some = [pair([1, 3], [2, 4], 1), pair([1, 3], [5, 4], 1), pair([3, 1], [3, 2], 1)]
    assert file_cases.same_class(some) == "as float on 2 of 3; right on 1, float on 2"
    assert file_cases.same_class([pair([1, 3], [2, 4])]) == "as float on 1 of 1"


def test_directions() -> None:
    some = [pair([1, 0], [2, 0]), pair([1, 0], [1, 1])]
    assert file_cases.same_direction(some) == f"cosine to float {(1 + 0.5**0.5) / 2:.3f}, worst {0.5**0.5:.3f}"
    assert file_cases.same_direction([pair([1, 0], [-1, 0])]) == "cosine to float -1.000, worst -1.000"
    assert file_cases.same_direction([pair([0, 0], [1, 0])]) == "cosine to float 0.000, worst 0.000"


def test_neighbours() -> None:
    """Of three sentences, two are near each other; the chip puts the second beside the third."""
    vectors = [[1.0, 0.1, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    moved = [[1.0, 0.1, 0.0], [0.1, 0.0, 1.0], [0.0, 0.0, 1.0]]
    same = file_cases.same_neighbours([pair(a, a) for a in vectors])
    assert "cosine to float 1.000, worst 1.000; nearest other sentence as float's for 3 of 3" in same
    assert "correlation 1.000" in same
    other = file_cases.same_neighbours([pair(a, b) for a, b in zip(vectors, moved, strict=True)])
    assert "worst 0.100" in other
    assert "for 3 of 3" not in other


def test_scores() -> None:
    assert file_cases.same_score([pair([0.5], [0.4]), pair([0.2], [0.2])]) == "score off by 0.0500, at most 0.1000"


def test_masks() -> None:
    exact, array = np.array([0.9, 0.9, 0.0, 0.0]), np.array([0.9, 0.2, 0.4, 0.0])
    assert (
        file_cases.same_mask([pair(exact, array), pair(exact, exact)]) == "text pixels as float: IoU 0.667, worst 0.333"
    )


def detected(cell: int, score: float) -> NDArray[np.float64]:
    """What YOLOX says: a box of 32x32 around a cell of stride 8, of 416x416 pixels."""
    count = sum((416 // stride) ** 2 for stride in (8, 16, 32))
    array = np.zeros((1, count, 6))
    array[0, cell] = [0, 0, np.log(4), np.log(4), score, 1]
    return array


def test_boxes() -> None:
    here, near, far = detected(500, 0.9), detected(501, 0.5), detected(900, 0.9)
    assert file_cases.same_boxes([pair(here, here)]) == "1 of 1 boxes of float found (IoU 0.5), 1 in all"
    assert file_cases.same_boxes([pair(here, near)]) == "1 of 1 boxes of float found (IoU 0.5), 1 in all"
    assert file_cases.same_boxes([pair(here, far)]) == "0 of 1 boxes of float found (IoU 0.5), 1 in all"
    assert file_cases.same_boxes([pair(here, detected(500, 0.05))]) == "0 of 1 boxes of float found (IoU 0.5), 0 in all"
    both = np.maximum(here, near)  # the better one of two that overlap
    assert file_cases.same_boxes([pair(both, far + here)]) == "1 of 1 boxes of float found (IoU 0.5), 2 in all"


@pytest.mark.parametrize(("together", "steps"), [(4, 1), (2, 2), (1, 4)])
def test_filters_share_steps(together: int, steps: int) -> None:
    """Filters of like range share one, in whatever order they are; none is further off than half a step of its own."""
    random = np.random.default_rng(1)
    scale = np.array([1.0, 1000.0, 2.0, 2000.0])
    w = random.uniform(-1, 1, (4, 3, 1, 1)) * scale[:, None, None, None]
    array = rounded(w, np.ones((1, 3, 1, 1)), together)
    ranges = np.abs(w).max(axis=(1, 2, 3))
    order = np.argsort(ranges)
    for first in range(0, 4, together):
        some = order[first : first + together]
        full = ranges[some].max() / 127
        assert np.abs(array[some] - w[some]).max() <= max(full / 2, 0.5 * ranges[some].max())
    zeros = np.count_nonzero(array[[0, 2]])
    assert (zeros == 0) == (steps == 1)


def test_filters_with_powers_of_two_of_their_own() -> None:
    """A small filter has up to an eighth of the step of the largest; no product is beyond 8 bits."""
    random = np.random.default_rng(2)
    ranges = np.array([1.0, 0.3, 0.06, 0.0])
    w = random.uniform(-1, 1, (4, 1, 15, 15)) * ranges[:, None, None, None]
    w[:3, 0, 0, 0] = ranges[:3]
    array = shifted(w, np.ones((4, 1, 1, 1)))
    step = np.abs(np.diff(np.unique(array[2]))).min()
    for filters, factor in zip((0, 1, 2), (1, 2, 8), strict=True):
        steps = array[filters] / step
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
        assert np.abs(np.rint(steps)).max() <= 127 * 8 / factor
        assert np.abs(array[filters] - w[filters]).max() <= 8.001 / factor * step
    assert not array[3].any()


@pytest.mark.parametrize("by", ["instruction", "shift", "lane"])
def test_the_stage_whose_area_is_measured(by: By) -> None:
    """It computes what it is said to: rounded and saturated, with what lanes have of their own since the swap."""
    stage, random = ScaleStage(2, by), np.random.default_rng(4)
    sums, scale = random.integers(-3000, 3000, (8, 2)), 5000
    constants = [int(number) for number in random.integers(0, 1 << 32, 2)]

    def word(numbers: Sequence[int]) -> int:
        return sum((number & 0xFFFFFFFF) << 32 * lane for lane, number in enumerate(numbers))

    async def bench(ctx: Any) -> None:
        ctx.set(stage.scale, scale)
        ctx.set(stage.clamp, 127)
        ctx.set(stage.constants, word(constants))
        ctx.set(stage.load, 1)
        await ctx.tick()
        ctx.set(stage.load, 0)
        ctx.set(stage.swap, 1)
        await ctx.tick()
        ctx.set(stage.swap, 0)
        for row in sums.tolist():
            ctx.set(stage.sums, word(row))
            await ctx.tick().repeat(2)
            factors = {
                "instruction": [scale, scale],
                "shift": [scale << (constant >> 30) for constant in constants],
                "lane": [constant & 0xFFFF for constant in constants],
            }[by]
            right = requantise(np.array(row, np.int32), np.array(factors, np.int64), relu=False, clamp=127)
            assert ctx.get(stage.result) == int(np.ascontiguousarray(right).view("<u2")[0])

    simulator = Simulator(stage)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
