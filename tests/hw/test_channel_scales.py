"""Multipliers of their own for each column of the array and each lane of the vector unit, from ACC (`by_channel`)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import SCALED_BIAS_WORDS, Addend, Cause, Region, VectorOp, YWalk, address

from ..tiers import slow_but
from . import matrix_bench, test_matrix, test_vector, vector_bench
from .matrix_bench import Gemm
from .vector_bench import Vec

GEMM_CHIPS = {
    "4x4": test_matrix.chip(4, channel_scales=True),
    "4x4 product": test_matrix.chip(4, product_register=True, channel_scales=True),
    "3x2 of 4": test_matrix.chip(4, 3, 2, channel_scales=True),
    "8x5 of 8": test_matrix.chip(8, 8, 5, channel_scales=True, acc_words=96),
}
VECTOR_CHIPS = {
    "4": vector_bench.chip(4, channel_scales=True),
    "5 windows": vector_bench.chip(4, vec_windows=5, channel_scales=True),
    "16, without tables": vector_bench.chip(16, vec_table=False, vec_whole=False, channel_scales=True),
}


def scaled_gemm(config: ChipConfig, rng: random.Random, windows: int) -> Gemm:
    """A random GEMM, `by_channel` wherever it may be."""
    while True:
        gemm = test_matrix.random_gemm(config, rng, windows)
        alone = test_matrix.shape(gemm).taps == 1 and not gemm["to_acc"]
        if gemm["addend"] == Addend.NONE or (gemm["addend"] == Addend.PARTIAL and alone):
            return gemm
        pairs = SCALED_BIAS_WORDS * gemm["n_blocks"]
        most = config.core.acc_words - pairs + 1
        if gemm["addend"] == Addend.BIAS:
            gemm["addend_base"] = rng.choice((0, rng.randint(0, most - 1), most - 1))
        dest = gemm["dest_base"], gemm["dest_base"] + gemm["n_blocks"] * gemm["pixels"]
        if gemm["to_acc"] and gemm["addend"] == Addend.BIAS:  # it must not write what it has yet to read
            begin = gemm["addend_base"]
            if begin < dest[1] and dest[0] < begin + pairs:
                continue
        return gemm | {"by_channel": 1, "scale": rng.choice((0, rng.randint(0, most), most))}


@pytest.mark.parametrize("name", slow_but(GEMM_CHIPS, "4x4", "4x4 product", "8x5 of 8"))
def test_gemms_as_numpy_has_them(name: str) -> None:
    """Biases and partial sums, to OUT and to ACC, folds back to back and apart, others in between."""
    config = GEMM_CHIPS[name]
    rng = random.Random(name)
    gemms = [scaled_gemm(config, rng, rng.choice((2, 10, 40))) for _ in range(24)]
    assert sum(gemm["by_channel"] for gemm in gemms) > 8
    gaps = [rng.choice((0, 0, 0, rng.randint(1, 2 * config.lanes))) for _ in gemms]
    test_matrix.check(config, test_matrix.random_memories(config, np.random.default_rng(7)), gemms, gaps)


@pytest.mark.parametrize("name", ["4x4", "4x4 product"])
def test_single_windows_back_to_back(name: str) -> None:
    """All rows of folds of one window: the drain path adds in every cycle, and multipliers come while it does."""
    config = GEMM_CHIPS[name]
    full = test_matrix.ONE | {"in_w": 8, "a_plane": 8, "out_w": 8, "pixels": 8}
    own = full | {"addend": Addend.BIAS, "by_channel": 1, "n_blocks": 3}
    gemms = [
        test_matrix.complete(full | {"addend": Addend.PARTIAL, "addend_base": 30, "scale": 500, "tag": 1}),
        test_matrix.complete(own | {"addend_base": 3, "scale": 4, "dest_base": 8, "tag": 2}),
        test_matrix.complete(own | {"addend_base": 9, "scale": 2, "pixels": 5, "dest_base": 32, "tag": 3}),
        test_matrix.complete(full | {"to_acc": 1, "addend": Addend.BIAS, "dest_base": 40, "tag": 4}),
        # biases and multipliers that the GEMM before has written in the cycles before
        test_matrix.complete(own | {"n_blocks": 1, "addend_base": 46, "scale": 47, "dest_base": 50, "tag": 5}),
        test_matrix.complete(own | {"pixels": 1, "addend_base": 1, "scale": 40, "dest_base": 58, "tag": 6}),
    ]
    test_matrix.check(config, test_matrix.random_memories(config, np.random.default_rng(8)), gemms)


def test_gemms_that_cannot_be() -> None:
    """Each raises its fault and retires; multipliers past ACC count as 0."""
    config = GEMM_CHIPS["4x4"]
    past = address(Region.ACC, 4 * 64)
    wrong = [
        ({"addend": Addend.NONE}, (Cause.RESERVED_BITS, 0, 0)),
        ({"addend": Addend.PARTIAL}, (Cause.SHAPE, 1, 0)),
        ({"scale": 64}, (Cause.ADDRESS, 2, past)),
        ({"addend_base": 64, "scale": 2}, (Cause.ADDRESS, 3, past)),
    ]
    own = test_matrix.ONE | {"by_channel": 1, "addend": Addend.BIAS}
    gemms = [test_matrix.complete(own | fields | {"tag": tag}) for tag, (fields, _) in enumerate(wrong)]
    gaps = [20] * len(gemms)
    memories = test_matrix.random_memories(config, np.random.default_rng(1))
    outcome = matrix_bench.run(config, memories, gemms, gaps)
    assert outcome.faults == [fault for _, fault in wrong]
    assert len(outcome.retired) == len(gemms)


def test_units_without_refuse() -> None:
    config = test_matrix.chip(4)
    gemm = test_matrix.complete(test_matrix.ONE | {"by_channel": 1, "addend": Addend.BIAS, "tag": 9})
    outcome = matrix_bench.run(config, test_matrix.random_memories(config, np.random.default_rng(1)), [gemm], ())
    assert [fault[0] for fault in outcome.faults] == [Cause.RESERVED_BITS]
    bare = vector_bench.chip(4)
    vec = vector_bench.complete(
        vector_bench.ONE | {"op": VectorOp.MAC, "addend": 1, "kernel_w": 2, "by_channel": 1, "tag": 8}
    )
    result = vector_bench.run(bare, vector_bench.random_memories(bare, 1), [vec], ())
    assert [fault[0] for fault in result.faults] == [Cause.RESERVED_BITS]


def scaled_vec(config: ChipConfig, rng: random.Random, words: int) -> Vec:
    """A random depthwise convolution with multipliers for each lane, or any other operation."""
    others = [op for op in VectorOp if op is not VectorOp.TABLE or config.core.vec_table]
    if rng.randrange(4) == 0:
        return vector_bench.random_vec(config, rng, rng.choice(others), words)
    while True:
        vec = vector_bench.random_vec(config, rng, VectorOp.MAC, words)
        if vec["addend"] and vec["y_walk"] != YWalk.WHOLE and vec["kernel_h"] * vec["kernel_w"] > 1:
            most = config.core.acc_words - SCALED_BIAS_WORDS * vec["blocks"] + 1
            at = {name: rng.choice((0, rng.randint(0, most), most)) for name in ("addend_base", "scale")}
            return vec | at | {"by_channel": 1}


@pytest.mark.parametrize("name", VECTOR_CHIPS)
def test_vecs_as_numpy_has_them(name: str) -> None:
    """Windows that slide or do not, blocks of two steps, others in between."""
    config = VECTOR_CHIPS[name]
    rng = random.Random(name)
    vecs = [scaled_vec(config, rng, rng.choice((2, 20, 60))) for _ in range(24)]
    gaps = [rng.choice((0, 0, 0, rng.randint(1, 2 * config.lanes), 40)) for _ in vecs]
    test_vector.check(config, vector_bench.random_memories(config, 3), vecs, gaps)


def test_shortest_blocks_back_to_back() -> None:
    """Two steps a block: each has its own bias and multipliers."""
    config = VECTOR_CHIPS["4"]
    own = vector_bench.ONE | {
        "op": VectorOp.MAC, "addend": 1, "by_channel": 1, "kernel_w": 2, "in_w": 2, "x_plane": 2, "blocks": 20,
    }  # fmt: skip
    vecs = [vector_bench.complete(own | {"addend_base": at, "scale": at + 1, "dest_base": 30 * at}) for at in range(3)]
    test_vector.check(config, vector_bench.random_memories(config, 4), vecs)


def test_vecs_that_cannot_be() -> None:
    config = VECTOR_CHIPS["4"]
    wrong = [
        ({"kernel_w": 1}, Cause.SHAPE),
        ({"addend": 0}, Cause.RESERVED_BITS),
        ({"op": VectorOp.SUM}, Cause.RESERVED_BITS),
        ({"scale": 64}, Cause.ADDRESS),
    ]
    own = vector_bench.ONE | {"op": VectorOp.MAC, "addend": 1, "by_channel": 1, "kernel_w": 2}
    vecs = [vector_bench.complete(own | fields | {"tag": tag}) for tag, (fields, _) in enumerate(wrong)]
    outcome = vector_bench.run(config, vector_bench.random_memories(config, 1), vecs, [20] * len(vecs))
    assert [fault[:2] for fault in outcome.faults] == [(cause, tag) for tag, (_, cause) in enumerate(wrong)]
    assert len(outcome.retired) == len(vecs)
