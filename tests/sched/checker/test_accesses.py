"""Words of strided walks, counted one by one."""

from __future__ import annotations

from itertools import product, repeat
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.isa import Region, address
from meshloom.sched.checker.accesses import Ends, merge, move_accesses, runs
from meshloom.sched.ir.schedule import Span, intervals


def covered(begins: Ends, ends: Ends) -> set[int]:
    """The words of intervals, which must ascend, hold something and not overlap."""
    assert (begins < ends).all()
    assert (ends[:-1] <= begins[1:]).all()
    return {word for begin, end in zip(begins.tolist(), ends.tolist(), strict=True) for word in range(begin, end)}


def walk(start: int, run: int, stride: int, words: int) -> set[int]:
    return {start + word // run * stride + word % run for word in range(words)}


@pytest.mark.parametrize("run", range(1, 6))
def test_runs_are_the_words_of_a_walk(run: int) -> None:
    """Also where runs touch or overlap, and the last is short: the walk may end before the end of the run before it."""
    for start, stride, words in product((0, 7), range(8), range(1, 3 * run + 3)):
        assert covered(*runs(start, run, stride, words)) == walk(start, run, stride, words), (start, stride, words)


def test_spans_of_a_schedule_are_the_words_of_a_walk() -> None:
    """The other reading of a walk, which shares no code with the checker's."""
    for run, stride, words in product(range(1, 6), range(8), range(1, 14)):
        span = Span(tile=1, address=7, run=run, stride=stride)
        pairs = np.array(intervals(span, words), np.int64)
        assert covered(pairs[:, 0], pairs[:, 1]) == walk(7, run, stride, words), (run, stride, words)


def test_both_ends_of_a_move() -> None:
    fields = {"src_tile": 3, "src": address(Region.B, 5), "src_run": 3, "src_stride": 2, "words": 4}
    fields |= {"dst_tile": 4, "dst": address(Region.ACC, 9), "dst_run": 1, "dst_stride": 3}
    source, destination = move_accesses(fields)
    assert (source.tile, source.region, source.write) == (3, Region.B, False)
    assert covered(source.begins, source.ends) == {5, 6, 7}
    assert (destination.tile, destination.region, destination.write) == (4, Region.ACC, True)
    assert covered(destination.begins, destination.ends) == {9, 12, 15, 18}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8])
def test_merging_loses_no_word_and_leaves_no_neighbours(count: int) -> None:
    random = Random(count)
    for _ in repeat(None, 60):
        begins = [random.randrange(20) for _ in range(count)]
        ends = [begin + random.randrange(1, 6) for begin in begins]
        merged = merge(np.array(begins, np.int64), np.array(ends, np.int64))
        words = {word for begin, end in zip(begins, ends, strict=True) for word in range(begin, end)}
        assert covered(*merged) == words
        assert (merged[1][:-1] < merged[0][1:]).all(), "adjacent intervals are one"
