"""Words of strided walks, counted one by one."""

from __future__ import annotations

from itertools import product, repeat
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region, VectorOp, address
from meshloom.sched.checker.accesses import Ends, gemm_accesses, merge, move_accesses, runs, vec_accesses
from meshloom.sched.ir.schedule import GEMM_FIELDS, VEC_FIELDS, Gemm, Span, Vec, intervals, reads, writes
from meshloom.tb.verify.random_programs import random_program


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


def units() -> ChipConfig:
    """A core with everything that a unit may read besides its operands."""
    values = load("tiny").model_dump(mode="json", exclude_none=True)
    core = values["core"] | {"channel_scales": True, "int4": True, "vec_table": True}
    return ChipConfig.model_validate(values | {"name": "units", "core": core})


Words = dict[tuple[int, bool], set[int]]


def test_units_touch_what_their_schedule_says() -> None:
    """Schedules read an instruction without the checker. What windows leave out they take for read."""
    chip, seen = units(), set[tuple[Opcode, int]]()
    streams = [stream for seed in range(3) for stream in random_program(Random(seed), chip, 60).streams]
    for core, one in ((stream.tile, one) for stream in streams for one in stream.instructions):
        if one.opcode is Opcode.GEMM:
            fields = {name: one.fields.get(name, 0) for name in GEMM_FIELDS}
            op, checked, windows = Gemm(core=core, fields=fields), gemm_accesses(core, fields, chip.cols), Region.MAIN
        elif one.opcode is Opcode.VEC:
            fields = {name: one.fields.get(name, 0) for name in VEC_FIELDS}
            op, checked = Vec(core=core, fields=fields), vec_accesses(core, fields, chip.lanes)
            windows = Region.ACC if fields["op"] == VectorOp.REQUANT else Region.OUT if fields["x_out"] else Region.MAIN
        else:
            continue
        seen.add((one.opcode, fields["by_channel"]))
        own, said = Words(), Words()
        for access in checked:
            own.setdefault((access.region, access.write), set()).update(covered(access.begins, access.ends))
        for write, some in enumerate((reads(op, chip), writes(op, chip))):
            for access in some:
                words = {word for begin, end in access.intervals for word in range(begin, end)}
                said.setdefault((access.region, bool(write)), set()).update(words)
        assert own.pop((windows, False), set()) <= said.pop((windows, False), set()), one
        assert own == said, one
    assert len(seen) == 4
