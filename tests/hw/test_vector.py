"""The vector unit against the NumPy golden model (every byte) and the timing formula (every cycle)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from meshloom.hw.core import golden, vector_golden
from meshloom.hw.core.golden import CoreMemories
from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import VEC_ISSUE_CYCLES
from meshloom.hw.spec.isa import TWO_OPERANDS, WHOLE_PAIRS, WINDOWED, Pair, Region, VectorOp, YWalk
from meshloom.hw.spec.timing import (
    GemmShape,
    VecShape,
    gemm_cycles,
    gemm_start,
    slides,
    vec_cycles,
    vec_occupancy,
    vec_start,
    vec_words,
)

from ..tiers import slow_but
from . import matrix_bench
from .vector_bench import (
    CHIPS,
    ONE,
    Outcome,
    Vec,
    chip,
    complete,
    random_memories,
    random_vec,
    random_whole,
    run,
    shape,
)


def check(config: ChipConfig, memories: CoreMemories, vecs: Sequence[Vec], gaps: Sequence[int] = ()) -> Outcome:
    """Runs the VECs and compares every result byte and every start and end cycle."""
    outcome = run(config, memories, vecs, gaps)
    expected = memories.copy()
    start, before = None, None
    assert len(outcome.retired) == len(vecs)
    for index, (vec, accepted, retired) in enumerate(zip(vecs, outcome.accepted, outcome.retired, strict=True)):
        vector_golden.vec(config, expected, vec)
        start = vec_start(config, accepted, start, before)
        before = shape(vec)
        target = {name: vec[name] for name in ("tag", "post_sem", "post_n")}
        target |= {"start": start, "end": start + vec_cycles(config, before)}
        assert retired == target, f"VEC {index}: {vec}"
    assert not outcome.faults
    assert not outcome.out_of_range
    assert outcome.reading == sum(vec_occupancy(config, shape(vec)) for vec in vecs)
    np.testing.assert_array_equal(outcome.vec, expected.vec)
    return outcome


def naive(config: ChipConfig, memories: CoreMemories, v: Vec) -> dict[int, list[int]]:
    """The written semantics, number by number: address in VEC to the lanes of the word there."""
    lanes, op = config.lanes, VectorOp(v["op"])
    if v["y_walk"] == YWalk.WHOLE:
        return naive_whole(config, memories, v)
    source: Any = memories.acc if op is VectorOp.REQUANT else memories.out if v["x_out"] else memories.a
    words: dict[int, list[int]] = {}
    if op is VectorOp.TRANSPOSE:
        for group in range(-(-v["pixels"] // lanes)):
            for row in range(v["blocks"] * lanes):
                words[v["dest_base"] + group * v["blocks"] * lanes + row] = [0] * lanes
    for b in range(v["blocks"]):
        for p in range(v["pixels"]):
            for lane in range(lanes):
                total = Fraction(int(memories.acc[v["addend_base"] + b, lane]) if v["addend"] else 0)
                values = []
                for k in range(v["kernel_h"] * v["kernel_w"]):
                    ky, kx = divmod(k, v["kernel_w"])
                    oy, ox = (place // (v["repeat"] + 1) for place in divmod(p, v["out_w"]))
                    iy = oy * v["stride_h"] + ky * v["dilation"] - v["pad_top"]
                    ix = ox * v["stride_w"] + kx * v["dilation"] - v["pad_left"]
                    if not (0 <= ix < v["in_w"] and 0 <= iy * v["in_w"] < v["x_plane"]):
                        continue
                    x = int(source[v["x_base"] + b * v["x_plane"] + iy * v["in_w"] + ix][lane])
                    if op is VectorOp.MAC:
                        x *= int(memories.b[v["y_base"] + b * v["kernel_h"] * v["kernel_w"] + k][lane])
                    values.append(x)
                if op is VectorOp.MAX:
                    total = Fraction(max(values, default=-128))
                else:
                    total += sum(values)
                    total = (total + (1 << 31)) % (1 << 32) - (1 << 31)
                if op in TWO_OPERANDS:
                    place = {YWalk.EACH: b * v["pixels"] + p, YWalk.BLOCK: b, YWalk.PIXEL: p}[YWalk(v["y_walk"])]
                    y = int(memories.out[v["y_base"] + place][lane])
                    if op is VectorOp.ADD:
                        total += y
                    else:
                        kinds = {Pair.MUL: total * y, Pair.MASK: total if y > 0 else 0, Pair.EQUAL: total == y}
                        total = Fraction(kinds.get(Pair(v["pair"]), total - y))
                if op is VectorOp.TABLE:
                    word, byte = divmod(int(total) + 128, lanes)
                    total = Fraction(int(memories.b[v["y_base"] + word][byte]))
                multiplies = op is VectorOp.PAIR and v["pair"] == Pair.MUL
                if multiplies or op in (VectorOp.MAC, VectorOp.SUM, VectorOp.REQUANT):
                    if v["times16"]:
                        total = (16 * total + (1 << 31)) % (1 << 32) - (1 << 31)
                    total = Fraction(round(total * v["scale"] / (1 << 17)))  # of a Fraction: half to even
                result = int(min(max(total, 0 if v["relu"] else -128), v["clamp"]))
                if op is VectorOp.TRANSPOSE:
                    group, place = divmod(p, lanes)
                    words[v["dest_base"] + (group * v["blocks"] + b) * lanes + lane][place] = result
                else:
                    words.setdefault(v["dest_base"] + b * v["pixels"] + p, [0] * lanes)[lane] = result
    return words


def naive_whole(config: ChipConfig, memories: CoreMemories, v: Vec) -> dict[int, list[int]]:
    """`naive` for `YWalk.WHOLE`."""
    op, pair = VectorOp(v["op"]), Pair(v["pair"])
    source: Any = memories.out if v["x_out"] else memories.a
    words: dict[int, list[int]] = {}
    for b in range(v["blocks"]):
        for lane in range(config.lanes):
            xs: list[int] = []
            for p in range(v["pixels"]):
                iy = p // v["out_w"] * v["stride_h"] - v["pad_top"]
                ix = p % v["out_w"] * v["stride_w"] - v["pad_left"]
                inside = 0 <= ix < v["in_w"] and 0 <= iy * v["in_w"] < v["x_plane"]
                outside = -128 if op is VectorOp.MAX else 0
                x = source[v["x_base"] + b * v["x_plane"] + iy * v["in_w"] + ix][lane] if inside else outside
                xs.append(int(x))
            times = 16 if v["times16"] else 1
            if pair is Pair.SUBTRACT:
                y = max(xs)
                if op is VectorOp.SUM:
                    y = min(127, max(-128, round(Fraction(times * sum(xs) * v["scale"], 1 << 17))))
                result = [x - y for x in xs]
            else:
                total = sum(x * x for x in xs) if op is VectorOp.MAC else sum(xs)
                d = math.isqrt(256 * total) if op is VectorOp.MAC else total
                m = min(65535, v["scale"] * 4096 // d) if d > 0 else 65535
                result = [round(Fraction(times * x * m, 1 << 17)) for x in xs]
            for p, y in enumerate(result):
                y = min(127, max(-128, y))
                y = min(max(y, 0) if v["relu"] else y, v["clamp"])
                words.setdefault(v["dest_base"] + b * v["pixels"] + p, [0] * config.lanes)[lane] = y
    return words


@pytest.mark.parametrize("op", VectorOp)
def test_golden_is_the_written_semantics(op: VectorOp) -> None:
    config = CHIPS["4"]
    rng = random.Random(f"golden {op}")
    memories = random_memories(config, 1)
    for _ in range(25):
        vec = random_vec(config, rng, op, 150)
        result = memories.copy()
        vector_golden.vec(config, result, vec)
        expected = memories.copy()
        for at, word in naive(config, memories, vec).items():
            expected.vec[at] = word
        np.testing.assert_array_equal(result.vec, expected.vec, err_msg=str(vec))


@pytest.mark.parametrize("op", VectorOp)
def test_each_operation(op: VectorOp) -> None:
    for name in ("4", "8", "5 windows"):
        rng = random.Random(f"{op} {name}")
        config = CHIPS[name]
        vecs = [random_vec(config, rng, op, rng.choice((3, 20, 60))) for _ in range(8)]
        check(config, random_memories(config, 4), vecs)


@pytest.mark.parametrize("op", [op for op in VectorOp if op is not VectorOp.TABLE])
def test_a_unit_of_one_operation(op: VectorOp) -> None:
    config, rng = chip(4, vec_ops=[op.name.lower()], vec_whole=False, vec_table=False), random.Random(f"only {op}")
    check(config, random_memories(config, 11), [random_vec(config, rng, op, rng.choice((3, 20, 60))) for _ in range(5)])


@pytest.mark.parametrize("name", ["4", "odd memories", "5 windows"])
def test_whole_blocks(name: str) -> None:
    """Maxima, means, quotients and roots, behind one another and mixed with others, blocks of one pixel among them."""
    config, rng = CHIPS[name], random.Random(f"whole {name}")
    vecs = [random_whole(config, rng, rng.choice((2, 20, 90))) for _ in range(16)]
    vecs += [random_vec(config, rng, rng.choice(tuple(VectorOp)), 20) for _ in range(6)]
    rng.shuffle(vecs)
    assert {(vec["op"], vec["pair"]) for vec in vecs if vec["y_walk"] == YWalk.WHOLE} == set(WHOLE_PAIRS)
    check(config, random_memories(config, 9), vecs, [rng.choice((0, 0, 7, 90)) for _ in vecs])


@pytest.mark.slow
def test_words_of_128_bytes() -> None:
    """Every operation: a table of two words, a square of 128 x 128 bytes among them."""
    config, rng = chip(128, vec_windows=2, vec_words=400), random.Random("128")
    vecs = [random_vec(config, rng, op, 20) for op in VectorOp]
    vecs += [random_whole(config, rng, 12) for _ in range(3)]
    check(config, random_memories(config, 10), vecs)


@pytest.mark.slow  # the dearest of this file
def test_quotients_at_their_limits() -> None:
    """Sums below 1, quotients of 16 bits and more, roots of next to nothing and of the most, in every rounding."""
    config = chip(4, a_words=600, vec_words=600)
    memories = random_memories(config, 5)
    memories.a[:300] = [[0, 1, -128, 127]]
    memories.a[5, 0], memories.a[300:303] = 1, [[2, 5, -7, 0], [1, 1, 100, 3], [0, -6, 11, 1]]
    line = ONE | {"y_walk": YWalk.WHOLE, "in_w": 300, "x_plane": 300, "out_w": 300, "pixels": 300}
    vecs = [
        complete(sizes | {"op": op, "scale": scale, "times16": times16})
        for sizes in (line, line | {"x_base": 300, "in_w": 3, "x_plane": 3, "out_w": 3, "pixels": 3, "dest_base": 300})
        for op in (VectorOp.SUM, VectorOp.MAC) for scale in (0, 1, 254, 65535) for times16 in (0, 1)
    ]  # fmt: skip
    check(config, memories, vecs)


@pytest.mark.parametrize("name", slow_but(CHIPS, *(name for name in CHIPS if name not in ("3 windows", "5 windows"))))
def test_random_sequences(name: str) -> None:
    """Operations by turns, sometimes with gaps."""
    config = CHIPS[name]
    rng = random.Random(name)
    vecs = [random_vec(config, rng, rng.choice(tuple(VectorOp)), rng.choice((2, 20, 60))) for _ in range(24)]
    gaps = [rng.choice((0, 0, 0, rng.randint(1, 2 * config.lanes), 40)) for _ in vecs]
    check(config, random_memories(config, 2), vecs, gaps)


# -- cycles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lanes", "op", "pixels", "blocks", "kernel", "words", "cycles"),
    [
        (16, VectorOp.MAC, 49, 2, (3, 3), 882, 887),
        (16, VectorOp.SUM, 1, 4, (7, 7), 196, 201),
        (8, VectorOp.MAX, 25, 1, (2, 3), 150, 155),
        (4, VectorOp.ADD, 10, 3, (1, 1), 30, 35),
        (4, VectorOp.REQUANT, 1, 1, (1, 1), 1, 6),
        (4, VectorOp.TRANSPOSE, 1, 1, (1, 1), 4, 13),
        (16, VectorOp.TRANSPOSE, 33, 2, (1, 1), 96, 117),
        (4, VectorOp.PAIR, 10, 3, (1, 1), 30, 35),
        (4, VectorOp.TABLE, 10, 3, (1, 1), 30, 99),
        (16, VectorOp.TABLE, 1, 1, (1, 1), 1, 22),
    ],
)
def test_closed_forms(
    lanes: int, op: VectorOp, pixels: int, blocks: int, kernel: tuple[int, int], words: int, cycles: int
) -> None:
    """Worked out by hand: words + 5, P more for a transposition, 256 / P for a table."""
    counted = VecShape(op, pixels, blocks, *kernel)
    assert (vec_words(CHIPS[str(lanes)], counted), vec_cycles(CHIPS[str(lanes)], counted)) == (words, cycles)


@pytest.mark.parametrize(
    ("change", "words", "occupancy"),
    [
        # 6 columns of 3 rows, one outside on either side, in each of 4 rows; 9 weights before
        ({}, 80, 89),
        # the last row has 2 pixels: 3 columns inside and the one on the left
        ({"pixels": 20}, 70, 79),
        # two blocks: the second one's weights are read during the first one's walk
        ({"blocks": 2}, 160, 169),
        # walks of 4 cycles (2 columns of 1 row, one outside on either side): the next 3 weights are there in time
        ({"blocks": 3, "kernel_h": 1, "in_w": 2, "out_w": 2, "pixels": 2}, 12, 15),
        # 7 columns of 3 rows in each of 4 rows, a column outside of the tile
        ({"stride_w": 2, "in_w": 7, "pixels": 16, "out_w": 4}, 4 * (7 * 3 + 2), 9 + 4 * 23),
        # walks of 13 cycles (2 columns of 5 rows, 3 outside) wait for the next 25 weights
        ({"blocks": 2, "kernel_h": 5, "kernel_w": 5, "in_w": 2, "out_w": 1, "pixels": 1, "pad_left": 2},
         2 * 13, 25 + 25 + 13),
        ({"op": VectorOp.MAX, "blocks": 2}, 160, 160),
        ({"op": VectorOp.SUM, "stride_w": 2, "in_w": 7, "pixels": 16, "out_w": 4}, 92, 92),
        # do not slide: no overlap, dilation, wider than all windows, more weights than the memory holds
        ({"stride_w": 3}, 216, 216),
        ({"dilation": 2}, 216, 216),
        ({"kernel_w": 6}, 24 * 18, 24 * 18),
        ({"kernel_h": 7, "kernel_w": 5}, 24 * 35, 24 * 35),
        ({"op": VectorOp.SUM, "kernel_h": 7, "kernel_w": 5}, 4 * (6 * 7 + 4), 4 * (6 * 7 + 4)),
    ],
)  # fmt: skip
def test_closed_forms_of_sliding_windows(change: dict[str, int], words: int, occupancy: int) -> None:
    """Worked out by hand, for 5 windows; and the unit takes as long."""
    config = CHIPS["5 windows"]
    body = {"op": VectorOp.MAC, "pixels": 24, "kernel_h": 3, "kernel_w": 3, "in_w": 6, "out_w": 6, "pad_left": 1}
    vec = complete(ONE | body | {"pad_top": 1, "addend": 0} | change)
    vec["x_plane"] = 4 * vec["in_w"]
    assert (vec_words(config, shape(vec)), vec_occupancy(config, shape(vec))) == (words, occupancy)
    check(config, random_memories(config, 16), [vec, vec | {"dest_base": 100, "tag": 1}])


@pytest.mark.slow  # dear; each kind by itself is in the first tier
def test_sliding_windows_in_any_order_with_others() -> None:
    """Windows of all sizes that overlap, each next to those that don't, with biases and weights of their own."""
    for name in ("2 windows", "3 windows", "5 windows"):
        config = CHIPS[name]
        rng = random.Random(name)
        vecs: list[Vec] = []
        while len(vecs) < 30:
            vec = random_vec(config, rng, rng.choice(WINDOWED), 200)
            if slides(config, shape(vec)) or len(vecs) % 4 == 3:
                vecs.append(vec)
        assert any(vec["op"] == VectorOp.MAC and vec["blocks"] > 1 and slides(config, shape(vec)) for vec in vecs)
        gaps = [rng.choice((0, 0, 0, rng.randint(1, 20))) for _ in vecs]
        check(config, random_memories(config, 17), vecs, gaps)


def test_a_vec_starts_two_cycles_after_its_acceptance() -> None:
    vecs = [complete(ONE | {"op": op, "tag": op}) for op in VectorOp]
    outcome = check(CHIPS["4"], random_memories(CHIPS["4"], 3), vecs, [80] * len(vecs))
    assert [retired["start"] for retired in outcome.retired] == [cycle + VEC_ISSUE_CYCLES for cycle in outcome.accepted]


def test_shortest_vecs_back_to_back() -> None:
    """A result in every cycle, also from one operation to the next, with the bias of each (and REQUANT's words, which
    come the same way) where it belongs."""
    operations = (VectorOp.SUM, VectorOp.REQUANT, VectorOp.ADD, VectorOp.MAC, VectorOp.REQUANT, VectorOp.MAX) * 4
    vecs = [
        complete(
            ONE | {"op": op, "tag": tag, "x_base": tag, "y_base": tag + 3, "dest_base": 2 * tag, "scale": 3000 + tag}
            | ({"addend": tag % 2, "addend_base": tag + 20} if op in (VectorOp.SUM, VectorOp.MAC) else {})
            | {"pixels": 1 if tag else 9}  # a long one first, so that each is there in time
        )
        for tag, op in enumerate(operations)
    ]  # fmt: skip
    vecs[0] |= {"x_plane": 9, "in_w": 9, "out_w": 9, "dest_base": 100}
    outcome = check(CHIPS["4"], random_memories(CHIPS["4"], 4), vecs)
    assert np.diff([cycle for cycle, _ in outcome.written]).tolist() == [1] * (9 + len(vecs) - 2)


def test_a_new_bias_in_every_cycle() -> None:
    """Blocks of one word each, then pixels of one word in one block."""
    config = CHIPS["8"]
    blocks = {"op": VectorOp.SUM, "blocks": 20, "addend": 1, "addend_base": 7, "x_out": 1, "scale": 700}
    line = {"op": VectorOp.MAC, "pixels": 20, "in_w": 20, "x_plane": 20, "out_w": 20, "addend": 1, "dest_base": 20}
    outcome = check(config, random_memories(config, 5), [complete(ONE | blocks), complete(ONE | line)])
    cycles = [cycle for cycle, _ in outcome.written]
    assert cycles == list(range(cycles[0], cycles[0] + 40))


@pytest.mark.parametrize("lanes", [4, 16])
def test_transposition_sustains_a_word_a_cycle(lanes: int) -> None:
    """Over groups and blocks; a second one, right behind, is P cycles later because its results are."""
    config = chip(lanes, out_words=200, vec_words=400)
    pixels = 2 * lanes + 3
    body = ONE | {"op": VectorOp.TRANSPOSE, "x_out": 1, "pixels": pixels, "in_w": pixels, "x_plane": pixels}
    body |= {"out_w": pixels, "blocks": 3}
    vecs = [complete(body), complete(body | {"dest_base": 200, "x_base": 5, "relu": 1, "clamp": 60, "tag": 1})]
    outcome = check(config, random_memories(config, 6), vecs)
    words = 9 * lanes
    cycles = [cycle for cycle, _ in outcome.written]
    assert cycles == [outcome.retired[n]["end"] - words + i for n in range(2) for i in range(words)]
    assert outcome.retired[1]["start"] == outcome.retired[0]["start"] + words + lanes


# -- values -------------------------------------------------------------------------------------------------------


def test_extreme_sums_are_requantised_exactly() -> None:
    config = CHIPS["4"]
    memories = random_memories(config, 7)
    rng = random.Random(7)
    edges = (-(1 << 31), (1 << 31) - 1, -1, 0, 1, 3, -3)
    vecs = []
    for index, scale in enumerate((65535, 1 << 15, 1 << 14, 1, 0, 3)):
        for row, lane in np.ndindex(8, 4):
            expected = (rng.randint(-260, 260) << 16) // max(scale, 1)  # many ties, many at the limits
            memories.acc[index * 8 + row, lane] = rng.choice((*edges, expected, expected + 1))
        line = {"op": VectorOp.REQUANT, "pixels": 8, "in_w": 8, "x_plane": 8, "out_w": 8, "x_base": index * 8}
        vecs += [
            complete(ONE | line | {"dest_base": index * 16, "scale": scale}),
            complete(ONE | line | {"dest_base": index * 16 + 8, "scale": scale, "relu": 1, "clamp": index * 25}),
        ]
    check(config, memories, vecs)


@pytest.mark.parametrize("windows", slow_but((1, 8), 8))
def test_extreme_words(windows: int) -> None:
    """-128 and 127 against each other in every operation, sums that wrap included."""
    config = chip(4, vec_windows=windows)
    memories = random_memories(config, 8)
    rng = np.random.default_rng(8)
    for memory in (memories.a, memories.b, memories.out):
        memory[:] = rng.choice((-128, 127), memory.shape)
    memories.acc[:] = rng.choice((-(1 << 31), (1 << 31) - 1), memories.acc.shape)
    square = {"kernel_h": 7, "kernel_w": 7, "in_w": 9, "x_plane": 81, "out_w": 3, "pixels": 9}
    vecs = [
        complete(ONE | square | {"op": VectorOp.MAC, "addend": 1}),
        complete(ONE | square | {"op": VectorOp.SUM, "addend": 1, "dest_base": 10, "scale": 3}),
        complete(ONE | square | {"op": VectorOp.MAX, "dest_base": 20}),
        complete(ONE | square | {"op": VectorOp.ADD, "dest_base": 30, "kernel_h": 1, "kernel_w": 1}),
    ]
    check(config, memories, vecs)


@pytest.mark.parametrize("name", ["4", "3 windows"])
@pytest.mark.parametrize("op", [VectorOp.MAC, VectorOp.SUM, VectorOp.MAX])
def test_windows_outside_of_the_tile_count_for_nothing(op: VectorOp, name: str) -> None:
    """The first column of windows sees nothing at all."""
    config = CHIPS[name]
    memories = random_memories(config, 9)
    memories.a[:] = -abs(memories.a // 2) - 1
    outside = {"pad_left": 3, "pad_top": 1, "kernel_w": 2, "kernel_h": 3, "in_w": 4, "x_plane": 16, "out_w": 5}
    body = complete(ONE | outside | {"op": op, "pixels": 20, "x_base": 30})
    outcome = check(config, memories, [body])
    assert (outcome.vec[0] == (-128 if op is VectorOp.MAX else 0)).all()
    assert (outcome.vec[7] != outcome.vec[0]).any()


def test_largest_window() -> None:
    """31 x 31 taps: global pooling of the largest tile that a window covers."""
    config = chip(4, a_words=970, vec_words=8, out_words=8)
    tile = {"kernel_h": 31, "kernel_w": 31, "in_w": 31, "x_plane": 961, "scale": 136, "x_base": 3}
    vecs = [complete(ONE | tile | {"op": op, "dest_base": op}) for op in (VectorOp.SUM, VectorOp.MAX)]
    check(config, random_memories(config, 10), vecs)


# -- beside the matrix unit ---------------------------------------------------------------------------------------


def test_gemms_and_vecs_at_once_do_not_disturb_each_other() -> None:
    """Both read the same memories in the same cycles; every byte and every cycle of both is as if it were alone."""
    config = ChipConfig.model_validate(chip(4, a_words=120, b_words=120, acc_words=72, out_words=100).model_dump()
                                       | {"rows": 3, "cols": 4})  # fmt: skip
    part = chip(4, a_words=120, b_words=120, acc_words=40, out_words=60, vec_words=200)
    rng = random.Random(11)
    memories = random_memories(config, 11)
    vecs = []
    for _ in range(14):
        vec = random_vec(part, rng, rng.choice(tuple(VectorOp)), 60)
        # The matrix unit writes the lower words of OUT and ACC.
        vec["x_base"] += 40 * vec["x_out"] + 32 * (vec["op"] == VectorOp.REQUANT)
        vec["y_base"] += 40 * (vec["op"] in TWO_OPERANDS)
        vec["addend_base"] += 32
        vecs.append(vec)
    kinds = ({"to_acc": 1}, {"addend": 2, "addend_base": 2, "scale": 999}, {"addend": 1, "scale": 2000})
    ones = ("k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels", "n_blocks")
    plain = dict.fromkeys(matrix_bench.FORMAT.offsets, 0) | dict.fromkeys(ones, 1) | {"clamp": 127}
    gemms = [
        plain | {"in_w": 5, "a_plane": 25, "out_w": 3, "pixels": 9, "kernel_h": 3, "kernel_w": 3, "tag": tag} | kind
        | {"a_base": rng.randint(0, 90), "b_base": rng.randint(0, 80), "dest_base": rng.randint(0, 20)}
        for tag, kind in enumerate(kinds * 3)
    ]  # fmt: skip
    outcome = matrix_bench.run(config, memories, gemms, (), None, vecs)
    expected = memories.copy()
    for gemm in gemms:
        golden.gemm(config, expected, gemm)
    for vec in vecs:
        vector_golden.vec(config, expected, vec)
    np.testing.assert_array_equal(outcome.images[Region.OUT], expected.out)
    np.testing.assert_array_equal(outcome.images[Region.ACC].view(np.int32).reshape(-1, 4), expected.acc)
    written = (expected.vec != memories.vec).any(axis=1)
    np.testing.assert_array_equal(outcome.images[Region.VEC][written], expected.vec[written])
    size = GemmShape(9, kernel_h=3, kernel_w=3)
    start = None
    for accepted, retired in zip(outcome.accepted, outcome.retired, strict=True):
        start = gemm_start(config, accepted, start, size)
        assert (retired["start"], retired["end"]) == (start, start + gemm_cycles(config, size))
    start, before = None, None
    for vec, accepted, retired in zip(vecs, outcome.vecs_accepted, outcome.vecs_retired, strict=True):
        start, before = vec_start(config, accepted, start, before), shape(vec)
        assert retired == (start, start + vec_cycles(config, before))
    alone = outcome.retired[0]["start"], outcome.retired[-1]["end"]
    assert min(end for _, end in outcome.vecs_retired) > alone[0], "they never ran at once"
    assert outcome.vecs_retired[0][0] < alone[1], "they never ran at once"


@pytest.mark.parametrize(
    ("op", "wrong", "words"),
    [
        (VectorOp.MAX, {"pixels": 0}, "VEC pixels = 0 must be at least 1"),
        (VectorOp.MAC, {"kernel_w": 0}, "VEC kernel_w = 0 must be at least 1"),
        (VectorOp.ADD, {"kernel_h": 2}, "VEC ADD has no window: 2x1 must be 1x1"),
        (VectorOp.TRANSPOSE, {"kernel_w": 3}, "VEC TRANSPOSE has no window: 1x3 must be 1x1"),
    ],
)
def test_shapes_that_cannot_be_are_refused(op: VectorOp, wrong: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VecShape(op, **{"pixels": 1} | wrong)
