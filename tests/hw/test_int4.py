"""Weights of four bits with a scale for each group, unpacked at the edge of the array (`int4`)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from meshloom.hw.core import golden
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INT4_SCALES, Cause, Region, address
from meshloom.hw.spec.timing import gemm_bubble, gemm_occupancy, weight_words

from ..tiers import slow_but
from . import test_matrix
from .matrix_bench import FORMAT, Gemm, run
from .test_matrix import ONE, check, complete, random_memories, shape

CHIPS = {
    "4x4": test_matrix.chip(4, int4=True),
    "4x4 product": test_matrix.chip(4, product_register=True, int4=True),
    "3x2 of 4": test_matrix.chip(4, 3, 2, int4=True),
    "1x1 of 4": test_matrix.chip(4, 1, 1, int4=True),
    "8x8 by channel": test_matrix.chip(8, int4=True, channel_scales=True),
    "12x16 of 16": test_matrix.chip(16, 12, 16, int4=True, a_words=64, b_words=300, acc_words=48, out_words=48),
}


def with_int4(config: ChipConfig, rng: random.Random, gemm: Gemm) -> Gemm:
    """The GEMM with weights of four bits if its windows are even in number."""
    if shape(gemm).taps % 2:
        return gemm
    most = config.core.b_words - gemm["n_blocks"] * weight_words(shape(gemm).taps, config.cols, int4=True)
    if most < 0:  # of one column, scales need as much as is saved
        return gemm
    return gemm | {"int4": 1, "b_base": rng.choice((0, rng.randint(0, most), most))}


def test_golden_is_the_written_semantics() -> None:
    """Nibble by nibble, in plain loops."""
    config = CHIPS["3x2 of 4"]
    words = np.random.default_rng(1).integers(-128, 128, (3 * (INT4_SCALES + 2), 4)).astype(np.int8)
    weights = golden.unpacked(words, 2)
    assert weights.shape == (12, 4)
    for pair in range(3):
        scales = words[pair * 3].view(np.uint8)
        for half in range(2):
            for column in range(config.cols):
                for lane in range(4):
                    nibble = int(words[pair * 3 + 1 + column].view(np.uint8)[lane]) >> 4 * half & 15
                    value = (nibble - 16 if nibble > 7 else nibble) * (int(scales[column]) >> 4 * half & 15)
                    assert weights[(pair * 2 + half) * 2 + column, lane] == value


@pytest.mark.parametrize("name", slow_but(CHIPS, "4x4", "3x2 of 4"))
@pytest.mark.parametrize("seed", slow_but(range(2), 0))
def test_random_sequences(name: str, seed: int) -> None:
    """Mixed with GEMMs of whole bytes, back to back and apart: every byte and every cycle."""
    config = CHIPS[name]
    rng = random.Random(f"{name} {seed}")
    big = config.lanes == 16
    gemms = [
        with_int4(config, rng, test_matrix.random_gemm(config, rng, rng.choice((4, 8) if big else (4, 12, 60))))
        for _ in range(8 if big else 20)
    ]
    assert 1 < sum(gemm["int4"] for gemm in gemms) < len(gemms) - 1
    gaps = [rng.choice((0, 0, 0, rng.randint(1, 2 * config.lanes), 100)) for _ in gemms]
    check(config, random_memories(config, np.random.default_rng(seed)), gemms, gaps)


@pytest.mark.parametrize(("name", "bubble"), [("4x4", 1), ("3x2 of 4", 0)])
def test_back_to_back(name: str, bubble: int) -> None:
    """The scales need the port of B in the cycle before: a cycle behind a GEMM of bytes, if that has used them all."""
    config = CHIPS[name]
    pair = ONE | {"k_blocks": 2, "a_plane": 3, "in_w": 3, "out_w": 3, "pixels": 3, "n_blocks": 2, "scale": 900}
    gemms = [complete(pair | {"int4": int4, "b_base": 9 * tag, "tag": tag}) for tag, int4 in enumerate((1, 1, 0, 1, 0))]
    outcome = check(config, random_memories(config, np.random.default_rng(3)), gemms)
    starts = [retired["start"] for retired in outcome.retired]
    occupied = gemm_occupancy(config, shape(gemms[0]))
    assert np.diff(starts).tolist() == [occupied, occupied, occupied + bubble, occupied]
    assert gemm_bubble(config, int4=True, before=False) == bubble


@pytest.mark.slow
def test_faults() -> None:
    """An odd number of windows, words past B, a chip that has no such weights; GEMMs in between are right."""
    config = CHIPS["4x4"]
    most = config.core.b_words
    cases: list[tuple[Gemm, Cause, int]] = [
        ({"kernel_w": 3}, Cause.SHAPE, 0),
        ({"k_blocks": 1}, Cause.SHAPE, 0),
        ({"k_blocks": 2, "b_base": most - 4}, Cause.ADDRESS, address(Region.B, most)),
        ({"k_blocks": 2, "b_base": most}, Cause.ADDRESS, address(Region.B, most + 1)),
        ({"k_blocks": 4, "b_base": most - 5}, Cause.ADDRESS, address(Region.B, most + 1)),
    ]
    good = complete(ONE | {"k_blocks": 2, "b_base": 7, "dest_base": 3, "scale": 700, "int4": 1})
    plain = complete(ONE | {"b_base": 50, "dest_base": 5, "scale": 700})
    gemms: list[int] = []
    for tag, (change, _, _) in enumerate(cases):
        gemms += [FORMAT.pack(complete(ONE | {"dest_base": 40, "tag": tag, "int4": 1} | change))]
        gemms += [FORMAT.pack(each | {"tag": 100}) for each in (plain, good)]
    memories = random_memories(config, np.random.default_rng(5))
    outcome = run(config, memories, gemms)
    assert outcome.faults == [(cause, tag, value) for tag, (_, cause, value) in enumerate(cases)]
    assert len(outcome.retired) == len(gemms)
    for gemm in (good, plain):
        golden.gemm(config, memories, gemm)
    np.testing.assert_array_equal(outcome.images[Region.OUT][:40], memories.out[:40])
    assert run(test_matrix.chip(4), memories, [FORMAT.pack(good)]).faults == [(Cause.RESERVED_BITS, 0, 0)]
