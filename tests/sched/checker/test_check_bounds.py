"""What the checker needs for programs whose few instructions touch very many words: bounded, exact, or refused."""

from __future__ import annotations

import tracemalloc
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region
from meshloom.sched.checker import static
from meshloom.sched.checker.accesses import Strided, gemm_accesses, words_of
from meshloom.sched.checker.check import check
from meshloom.sched.program.program import Instruction, Program

from ..hand_made import CORE, DRAM, MOVER, SPM, at, gemm, move, problems, program, sync

CHIP = ChipConfig.model_validate(
    {
        "name": "wide",
        "lanes": 4,
        "spm_words": 1 << 18,
        "floorplan": ["dram core", "host spm"],
        "dram": {"words": 1 << 20},
    }
)


def _sparse(begin: int, words: int, stride: int = 2) -> list[Instruction]:
    """A MOVE of single words, and the wait for it."""
    walk = {"src_run": 1, "dst_run": 1, "src_stride": stride, "dst_stride": stride}
    landed = {"notify_tile": SPM, "notify_sem": 1, "notify": 1}
    return [move(DRAM, 4096 + begin, SPM, begin, words, **walk, **landed), sync(wait_sem=1, wait_n=1)]


def _of(moves: list[list[Instruction]]) -> Program:
    return program({(SPM, MOVER): [one for pair in moves for one in pair]}, CHIP)


def _peak(found: Program) -> int:
    """Bytes that a check needs at most."""
    tracemalloc.start()
    try:
        check(found, CHIP)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(40))
def test_a_walk_knows_its_end_and_its_size_before_it_is_listed(seed: int) -> None:
    random = Random(seed)
    walk = Strided(random.randrange(50), random.randint(1, 9), random.randrange(12), random.randint(1, 40))
    touched = {walk.start + (i // walk.run) * walk.stride + i % walk.run for i in range(walk.words)}
    begins, ends = walk.listed()
    assert set(words_of(begins, ends).tolist()) == touched
    assert walk.end == max(touched) + 1
    assert walk.intervals >= len(begins)


@pytest.mark.parametrize("seed", range(20))
def test_windows_know_their_end_before_they_are_listed(seed: int) -> None:
    random = Random(seed)
    rows, columns, kernel, stride = (random.randint(1, 5) for _ in range(4))
    fields = {"a_base": 7, "a_plane": rows * columns, "in_w": columns, "k_blocks": 3, "kernel_h": kernel}
    fields |= {"kernel_w": kernel, "stride_h": stride, "stride_w": stride, "out_w": 2, "pixels": 4}
    every = gemm(**fields, pad_top=kernel // 2, pad_left=kernel // 2).fields
    for access in gemm_accesses(CORE, every, 4):
        assert access.walk.end == int(access.ends[-1])
        assert access.walk.intervals >= len(access.begins)
        assert np.all(access.begins[1:] > access.ends[:-1])


def test_more_moves_of_single_words_need_no_more_memory() -> None:
    """Each MOVE touches 40,000 words one by one: as lists these are 1.3 MB, which 30 MOVEs must not add up to."""
    few, many = (_peak(_of([_sparse(begin, 20_000) for begin in range(count)])) for count in (2, 32))
    assert many - few < 15 * 1_300_000
    same = _peak(_of([_sparse(0, 20_000)] * 32))
    assert same - few < 2_000_000


def test_single_words_are_followed_exactly() -> None:
    """A MOVE overwrites every other word, the next the words between; a third comes without waiting for the second."""
    report = check(_of([_sparse(0, 5000), _sparse(1, 5000), _sparse(0, 5000)]), CHIP)
    assert report.accesses == 6
    first, second, third = _sparse(0, 5000), _sparse(1, 5000), _sparse(0, 5000)
    check(_of([first, second[:1], third, second[1:]]), CHIP)
    racing = program({(SPM, MOVER): [*first, second[0], second[1]], (DRAM, MOVER): [_sparse(8001, 3, 4)[0]]}, CHIP)
    text = problems(racing, CHIP)
    assert "races" in text
    assert "spm@(1,1) word 8001" in text


def test_the_limit_is_named_and_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = _of([_sparse(0, 1000), _sparse(1, 1000)])
    monkeypatch.setattr(static, "MEAN_INTERVALS", 1)
    monkeypatch.setattr(static, "MOST_INTERVALS", 4000)
    assert check(moves, CHIP).accesses == 4
    monkeypatch.setattr(static, "MOST_INTERVALS", 3999)
    text = problems(moves, CHIP)
    assert text.count("\n") == 1
    assert "program: touches more than 3,999 separate stretches of words" in text
    assert "in longer runs" in text


def test_long_programs_may_touch_more(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = _of([_sparse(0, 1000), _sparse(1, 1000)])
    count = moves.instructions + len(moves.boot.instructions)
    monkeypatch.setattr(static, "MOST_INTERVALS", 10)
    monkeypatch.setattr(static, "MEAN_INTERVALS", -(-4000 // count))
    check(moves, CHIP)
    monkeypatch.setattr(static, "MEAN_INTERVALS", 3999 // count)
    assert "separate stretches" in problems(moves, CHIP)


def test_what_lies_outside_is_refused_before_it_is_listed() -> None:
    """255 blocks of 16,000 windows, all but the first outside of the core's memory."""
    wide = {"a_plane": 65535, "in_w": 1023, "k_blocks": 255, "stride_w": 2, "out_w": 500, "pixels": 16000}
    result = program({(CORE, static.Unit.MATRIX): [gemm(**wide)]}, CHIP)
    tracemalloc.start()
    text = problems(result, CHIP)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "core@(1,0) A word 16" in text
    assert "the memory has 4096 words" in text
    assert peak < 20_000_000
    assert at(Region.MAIN) == 0
