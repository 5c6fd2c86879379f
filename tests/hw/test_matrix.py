"""The matrix unit against the NumPy golden model (every byte) and the timing formula (every cycle)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from meshloom.hw.core import golden, vector_golden
from meshloom.hw.core.array import split, sum_bits
from meshloom.hw.core.golden import CoreMemories
from meshloom.hw.core.matrix import MatrixUnit
from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.contracts import ACC_TO_OUT, ADDEND_TO_ACC, OUT_TO_END, STAGE_CYCLES
from meshloom.hw.spec.isa import INSTRUCTIONS, Addend, Cause, Opcode, Region, VectorOp, address
from meshloom.hw.spec.timing import (
    GemmShape,
    VecShape,
    gemm_bubble,
    gemm_cycles,
    gemm_occupancy,
    gemm_start,
    vec_occupancy,
)

from ..tiers import slow_but
from .matrix_bench import FORMAT, Gemm, Outcome, read, run, write

COUNTS = ("k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w", "pixels", "n_blocks")
#: One window, one row; requantised with m / 2^17 = 1/4.
ONE: Gemm = dict.fromkeys(COUNTS, 1) | {"scale": 1 << 15, "clamp": 127, "in_w": 1, "a_plane": 1}


def chip(lanes: int, rows: int = 0, cols: int = 0, product_register: bool = False, **core: int) -> ChipConfig:
    words = {"a_words": 256, "b_words": 512, "acc_words": 64, "out_words": 64} | core
    return ChipConfig.model_validate(
        {
            "name": "t",
            "lanes": lanes,
            "rows": rows or lanes,
            "cols": cols or lanes,
            "floorplan": ["dram core host"],
            "core": words,
            "dram": {"bytes_per_cycle": min(lanes, 16)},
            "product_register": product_register,
        }
    )


def complete(gemm: Gemm) -> Gemm:
    """All body fields of a GEMM, those not given 0."""
    return dict.fromkeys(FORMAT.offsets, 0) | gemm


def shape(gemm: Gemm) -> GemmShape:
    return GemmShape(**{name: gemm[name] for name in vars(GemmShape(1))})


def random_memories(config: ChipConfig, rng: np.random.Generator) -> CoreMemories:
    memories = CoreMemories.zeros(config)
    memories.a[:] = rng.integers(-128, 128, memories.a.shape)
    memories.b[:] = rng.integers(-128, 128, memories.b.shape)
    memories.acc[:, : config.cols] = rng.integers(-(1 << 17), 1 << 17, (len(memories.acc), config.cols))
    memories.acc[::5, : config.cols] = rng.integers(-(1 << 31), 1 << 31, memories.acc[::5, : config.cols].shape)
    memories.out[:, : config.cols] = rng.integers(-128, 128, (len(memories.out), config.cols))
    return memories


def random_gemm(config: ChipConfig, rng: random.Random, windows: int) -> Gemm:
    """A GEMM of at most `windows` windows that stays inside the memories."""
    core = config.core
    while True:
        gemm = complete(
            {
                "kernel_h": rng.choice((1, 1, 2, 3, 5, 7)),
                "kernel_w": rng.choice((1, 1, 2, 3, 5, 7)),
                "stride_h": rng.randint(1, 3),
                "stride_w": rng.randint(1, 3),
                "dilation": rng.choice((1, 1, 2)),
                "k_blocks": rng.choice((1, 1, 2, 3)),
                "n_blocks": rng.choice((1, 1, 2, 3)),
                "pad_top": rng.randint(0, 3),
                "pad_left": rng.randint(0, 3),
                "in_w": rng.randint(1, 9),
                "out_w": rng.randint(1, 7),
                "pixels": rng.randint(1, 3 * config.rows),
                "addend": rng.choice(tuple(Addend)),
                "to_acc": rng.randint(0, 1),
                "scale": rng.choice((rng.randint(1, 64), rng.randint(0, 2000), rng.randint(0, 65535))),
                "relu": rng.randint(0, 1),
                "clamp": rng.choice((127, rng.randint(0, 127))),
                "tag": rng.randint(0, 65535),
                "post_sem": rng.randint(0, 63),
                "post_n": rng.randint(0, 15),
            }
        )
        gemm["a_plane"] = gemm["in_w"] * rng.randint(1, 9)
        results = gemm["n_blocks"] * gemm["pixels"]
        room = {
            "a_base": core.a_words - gemm["k_blocks"] * gemm["a_plane"],
            "b_base": core.b_words - gemm["n_blocks"] * shape(gemm).taps * config.cols,
            "addend_base": core.acc_words - (gemm["n_blocks"] if gemm["addend"] == Addend.BIAS else results),
            "dest_base": (core.acc_words if gemm["to_acc"] else core.out_words) - results,
        }
        if min(room.values()) >= 0 and gemm_occupancy(config, shape(gemm)) <= windows * config.lanes:
            # Often at the edges of the memories, often on what was just written.
            return gemm | {name: rng.choice((0, rng.randint(0, most), most)) for name, most in room.items()}


def check(config: ChipConfig, memories: CoreMemories, gemms: Sequence[Gemm], gaps: Sequence[int] = ()) -> Outcome:
    """Runs the GEMMs and compares every result byte and every start and end cycle."""
    outcome = run(config, memories, gemms, gaps)
    expected = memories.copy()
    start, before, int4 = None, None, 1
    assert len(outcome.retired) == len(gemms)
    for index, (gemm, accepted, retired) in enumerate(zip(gemms, outcome.accepted, outcome.retired, strict=True)):
        golden.gemm(config, expected, gemm)
        start = gemm_start(config, accepted, start, before, gemm_bubble(config, bool(gemm["int4"]), bool(int4)))
        before, int4 = shape(gemm), gemm["int4"]
        target = {name: gemm[name] for name in ("tag", "post_sem", "post_n")}
        target |= {"start": start, "end": start + gemm_cycles(config, before)}
        assert retired == target, f"GEMM {index}: {gemm}"
    assert not outcome.faults
    assert outcome.reading == sum(gemm_occupancy(config, shape(gemm)) for gemm in gemms)
    compare(outcome, expected, config)
    assert outcome.seen_writes == sum(gemm["n_blocks"] * gemm["pixels"] for gemm in gemms if not gemm["to_acc"])
    for at, word in outcome.seen.items():
        np.testing.assert_array_equal(word, expected.out[at])
    return outcome


def compare(outcome: Outcome, expected: CoreMemories, config: ChipConfig) -> None:
    lanes = config.lanes
    np.testing.assert_array_equal(outcome.images[Region.MAIN], expected.a)
    np.testing.assert_array_equal(outcome.images[Region.B], expected.b)
    np.testing.assert_array_equal(outcome.images[Region.ACC].view(np.int32).reshape(-1, lanes), expected.acc)
    np.testing.assert_array_equal(outcome.images[Region.OUT], expected.out)


CHIPS = {
    "4x4": chip(4),
    "4x4 product": chip(4, product_register=True),
    "3x2 of 4": chip(4, 3, 2),
    "1x1 of 4": chip(4, 1, 1),
    "8x8": chip(8),
    "5x7 of 8 product": chip(8, 5, 7, product_register=True),
    "odd memories": chip(4, a_words=201, b_words=301, acc_words=45, out_words=33),
    "12x14 of 16": chip(16, 12, 14, a_words=64, b_words=300, acc_words=48, out_words=48),
}


def test_golden_is_the_written_semantics() -> None:
    config = chip(4, 3, 2)
    rng = random.Random(1)
    memories = random_memories(config, np.random.default_rng(1))
    for _ in range(10):
        g = random_gemm(config, rng, 8)
        sums = golden.accumulate(config, memories, g)
        for b, p, c in np.ndindex(*sums.shape):
            total = 0
            taps = shape(g).taps
            for k in range(taps):
                kb, ky, kx = k // g["kernel_w"] // g["kernel_h"], k // g["kernel_w"] % g["kernel_h"], k % g["kernel_w"]
                iy = p // g["out_w"] * g["stride_h"] + ky * g["dilation"] - g["pad_top"]
                ix = p % g["out_w"] * g["stride_w"] + kx * g["dilation"] - g["pad_left"]
                if 0 <= ix < g["in_w"] and 0 <= iy * g["in_w"] < g["a_plane"]:
                    a = memories.a[g["a_base"] + kb * g["a_plane"] + iy * g["in_w"] + ix]
                    w = memories.b[g["b_base"] + (b * taps + k) * config.cols + c]
                    total += sum(int(a[lane]) * int(w[lane]) for lane in range(config.lanes))
            assert sums[b, p, c] == total


def test_golden_requantise() -> None:
    rng = random.Random(2)
    for _ in range(2000):
        scale = rng.choice((rng.randint(0, 65535), 1 << rng.randint(0, 15)))
        acc = rng.choice((rng.randint(-(1 << 31), (1 << 31) - 1), rng.randint(-2000, 2000)))
        relu, clamp = rng.randint(0, 1), rng.choice((127, rng.randint(0, 127)))
        exact = round(Fraction(acc * scale, 1 << 17))  # round() of a Fraction is half to even
        expected = min(max(exact, 0 if relu else -128), clamp)
        assert golden.requantise(np.array([acc], np.int32), scale, bool(relu), clamp)[0] == expected


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("seed", slow_but(range(2), 0))
def test_random_sequences(name: str, seed: int) -> None:
    config = CHIPS[name]
    rng = random.Random(f"{name} {seed}")
    big = config.lanes == 16
    gemms = [random_gemm(config, rng, rng.choice((2, 6) if big else (2, 10, 60))) for _ in range(6 if big else 16)]
    gaps = [rng.choice((0, 0, 0, rng.randint(1, 2 * config.lanes), 100)) for _ in gemms]
    check(config, random_memories(config, np.random.default_rng(seed)), gemms, gaps)


def test_array_of_blocks() -> None:
    """20 x 17 PEs: four blocks, not all of one size."""
    assert [split(count) for count in (16, 17, 20, 45)] == [[16], [9, 8], [10, 10], [15, 15, 15]]
    config = chip(32, 20, 17, a_words=32, b_words=70, acc_words=50, out_words=50)
    rng = random.Random(3)
    pixels = {"in_w": 5, "a_plane": 25, "out_w": 5, "pixels": 25, "tag": 1}
    gemms = [
        complete(ONE | pixels | {"n_blocks": 2, "scale": 900, "tag": 1}),
        complete(ONE | pixels | {"kernel_w": 2, "to_acc": 1, "addend": Addend.PARTIAL, "b_base": 7, "tag": 2}),
        complete(ONE | pixels | {"addend": Addend.PARTIAL, "scale": rng.randint(1, 2000), "b_base": 34, "tag": 3}),
    ]
    check(config, random_memories(config, np.random.default_rng(3)), gemms)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "cols"), [(128, 2), (2, 128)])
def test_arrays_as_long_as_the_widest_words(rows: int, cols: int) -> None:
    """128 rows or columns: all of them full, then a few."""
    config = chip(128, rows, cols, a_words=140, b_words=256, acc_words=256, out_words=256)
    pixels = {"in_w": 10, "a_plane": 140, "out_w": 10, "pixels": min(rows + 3, 140), "clamp": 100}
    gemms = [
        complete(ONE | pixels | {"to_acc": 1, "addend": Addend.BIAS, "addend_base": 9, "tag": 1}),
        complete(ONE | pixels | {"addend": Addend.PARTIAL, "scale": 700, "b_base": 256 - cols, "tag": 2}),
    ]
    check(config, random_memories(config, np.random.default_rng(5)), gemms)


def test_whole_array_layer() -> None:
    """A 3x3 convolution with padding on 16 x 16 PEs, back to back with a projection; all rows full, then partial."""
    config = chip(16, a_words=128, b_words=400, acc_words=64, out_words=64)
    conv = {
        "kernel_h": 3,
        "kernel_w": 3,
        "pad_top": 1,
        "pad_left": 1,
        "in_w": 7,
        "a_plane": 49,
        "out_w": 7,
        "pixels": 49,
    }
    bias = {"addend": Addend.BIAS, "scale": 40, "relu": 1, "clamp": 100}
    gemms = [
        complete(ONE | conv | bias | {"a_base": 60, "b_base": 111, "tag": 5}),
        complete(ONE | {"in_w": 7, "a_plane": 49, "out_w": 4, "pixels": 16, "stride_h": 2, "stride_w": 2, "to_acc": 1}),
    ]
    check(config, random_memories(config, np.random.default_rng(4)), gemms)


def test_rows_and_columns_far_outside_of_the_tile_are_zeros() -> None:
    """Columns and rows are counted in few bits: those that have gone beyond all tiles must not come back."""
    config = chip(4, a_words=64, b_words=16, acc_words=4, out_words=640)
    wide = {"in_w": 9, "a_plane": 36, "out_w": 590, "pixels": 598, "stride_w": 7, "pad_left": 2}
    high = {"in_w": 1023, "a_plane": 50, "pixels": 40, "stride_h": 7, "kernel_h": 2, "pad_top": 3, "dilation": 3}
    gemms = [complete(ONE | wide), complete(ONE | high | {"dest_base": 600})]
    check(config, random_memories(config, np.random.default_rng(6)), gemms)


@pytest.mark.parametrize("product_register", slow_but([False, True], True))
def test_shortest_gemms_back_to_back(product_register: bool) -> None:
    """One window, one row each, all on the same word of ACC; the next row is read when the last one is written."""
    config = chip(4, 4, 4, product_register)
    one = ONE | {"to_acc": 1, "addend": Addend.PARTIAL, "dest_base": 7, "addend_base": 7}
    gemms = [complete(one | {"tag": tag, "a_base": tag, "b_base": 4 * tag}) for tag in range(12)]
    # Four rows, then one that adds to the last of them: read in the cycle in which it is written.
    four = one | {"pixels": 4, "out_w": 4, "in_w": 4, "a_plane": 4}
    gemms += [complete(four), complete(one | {"addend_base": 10, "dest_base": 10}), complete(one | {"addend_base": 10})]
    # A row that adds what the row before it wrote.
    gemms += [complete(four | {"addend_base": 20, "dest_base": 21}), complete(four | {"addend_base": 6, "to_acc": 0})]
    outcome = check(config, random_memories(config, np.random.default_rng(5)), gemms)
    starts = [retired["start"] for retired in outcome.retired]
    assert np.diff(starts).tolist() == [4] * (len(gemms) - 1)


def test_extreme_sums_are_requantised_exactly() -> None:
    config = chip(4, acc_words=64)
    memories = random_memories(config, np.random.default_rng(6))
    memories.a[:] = 0
    rng = random.Random(6)
    edges = (-(1 << 31), (1 << 31) - 1, -1, 0, 1, 3, -3)
    gemms = []
    for index, scale in enumerate((65535, 1 << 15, 1 << 14, 1, 0, 3)):
        for lane in range(4):
            for row in range(4):
                expected = (rng.randint(-260, 260) << 16) // max(scale, 1)  # many ties, many at the limits
                memories.acc[index * 4 + row, lane] = rng.choice((*edges, expected, expected + 1))
        body = {"pixels": 4, "addend": Addend.PARTIAL, "addend_base": index * 4, "dest_base": index * 8, "scale": scale}
        gemms += [
            complete(ONE | body),
            complete(ONE | body | {"dest_base": index * 8 + 4, "relu": 1, "clamp": index * 25}),
        ]
    check(config, memories, gemms)


@pytest.mark.parametrize(("rows", "cols", "bits"), [(4, 4, 20), (2, 3, 20), (1, 1, 22)])
def test_the_longest_sums_of_what_b_holds_fit_an_accumulator(rows: int, cols: int, bits: int) -> None:
    """The largest and nearly the smallest that any GEMM can have, with every word of B in one fold."""
    config = chip(4, rows, cols, b_words=16)
    assert sum_bits(config) == bits
    memories = random_memories(config, np.random.default_rng(12))
    memories.a[:] = memories.b[:] = -128
    blocks = {"pixels": rows, "in_w": rows, "out_w": rows, "a_plane": rows, "to_acc": 1, "k_blocks": 16 // cols}
    check(config, memories, [complete(ONE | blocks)])
    memories.b[:] = 127
    check(config, memories, [complete(ONE | blocks)])
    assert [sum_bits(load(name)) for name in ("tiny", "mono128")] == [28, 30]


@pytest.mark.parametrize("product_register", slow_but([False, True], False))
def test_memories_are_usable_while_gemms_run(product_register: bool) -> None:
    """Every word the network writes arrives, every word the mover reads is right, and no GEMM is disturbed."""
    config = chip(4, 3, 3, product_register, acc_words=96)
    gemm_part = chip(4, 3, 3, acc_words=64, out_words=40, a_words=200, b_words=400)
    rng = random.Random(7)
    memories = random_memories(config, np.random.default_rng(7))
    gemms = [random_gemm(gemm_part, rng, 25) for _ in range(25)]
    expected = memories.copy()
    for gemm in gemms:
        golden.gemm(config, expected, gemm)
    images = {Region.MAIN: expected.a, Region.B: expected.b, Region.ACC: expected.acc, Region.OUT: expected.out}
    free = {
        Region.MAIN: (200, len(memories.a)), Region.B: (400, len(memories.b)),
        Region.ACC: (4 * 64, 4 * 96), Region.OUT: (40, len(memories.out)),
    }  # fmt: skip
    transfers = 0

    async def traffic(unit: MatrixUnit, context: Any) -> None:
        nonlocal transfers
        while context.get(unit.busy) or not transfers:
            region = rng.choice(tuple(free))
            offset = rng.randrange(*free[region])
            image = images[region].view(np.int8).reshape(-1, 4)
            if rng.random() < 0.5:
                image[offset] = [rng.randint(-128, 127) for _ in range(4)]
                await write(unit, context, region, offset, image[offset])
            else:
                assert (await read(unit, context, region, offset, 4) == image[offset]).all(), (region, offset)
            transfers += 1

    outcome = run(config, memories, gemms, (), traffic)
    compare(outcome, expected, config)
    assert transfers > 200
    windows = sum(gemm_occupancy(config, shape(gemm)) for gemm in gemms)
    assert outcome.retired[-1]["start"] - outcome.retired[0]["start"] == windows - gemm_occupancy(
        config, shape(gemms[-1])
    )


@pytest.mark.parametrize("to_acc", [0, 1])
@pytest.mark.parametrize("product_register", slow_but([False, True], True))
def test_the_drain_path_has_the_ports_in_the_cycles_of_its_contract(to_acc: int, product_register: bool) -> None:
    """One fold of three rows with partial sums: in which cycles a write, and a read of ACC, has to wait."""
    config, rows = chip(4, 3, 3, product_register), 3
    gemm = complete(ONE | {"in_w": 3, "a_plane": 3, "out_w": 3, "pixels": rows, "to_acc": to_acc, "dest_base": 8})
    gemm |= {"addend": Addend.PARTIAL}
    held: dict[str, list[int]] = {"write": [], "read": []}

    async def traffic(unit: MatrixUnit, context: Any) -> None:
        spare = 40  # a word that the GEMM has no use for
        region = Region.ACC if to_acc else Region.OUT
        context.set(unit.write.payload, {"region": region, "offset": 4 * spare if to_acc else spare, "data": 0})
        context.set(unit.read.payload, {"region": Region.ACC, "offset": 4 * spare})
        context.set(unit.write.valid, 1)
        context.set(unit.read.valid, 1)
        for _ in range(60):
            for name, port in (("write", unit.write), ("read", unit.read)):
                if not context.get(port.ready):
                    held[name].append(context.get(unit.now))
            await context.tick()
        context.set(unit.write.valid, 0)
        context.set(unit.read.valid, 0)

    outcome = run(config, random_memories(config, np.random.default_rng(3)), [gemm], (), traffic)
    last = outcome.retired[0]["end"] - OUT_TO_END - (ACC_TO_OUT if to_acc else 0)
    assert held["write"] == list(range(last - rows + 1, last + 1))
    before = ADDEND_TO_ACC + (0 if to_acc else ACC_TO_OUT)
    assert held["read"] == [cycle - before for cycle in held["write"]]


@pytest.mark.parametrize("region", slow_but([Region.MAIN, Region.B], Region.B))
def test_operands_that_can_be_sources_wait_for_the_vector_unit_alone(region: Region) -> None:
    """A and B are read in every cycle of a GEMM, but in none in which a VEC walks over its operands; all words right,
    those of the VEC, too."""
    config = chip(4, operand_sources=True)
    memories = random_memories(config, np.random.default_rng(11))
    pixels = {"in_w": 20, "a_plane": 20, "out_w": 20, "pixels": 20, "k_blocks": 3, "addend": Addend.NONE}
    weighed = {"op": int(VectorOp.MAC), "x_base": 7, "x_plane": 8, "in_w": 4, "blocks": 2, "kernel_w": 2, "pixels": 6}
    ones = dict.fromkeys(("kernel_h", "stride_h", "stride_w", "dilation"), 1)
    vec = dict.fromkeys(INSTRUCTIONS[Opcode.VEC].offsets, 0) | ones | weighed | {"out_w": 3, "clamp": 127, "scale": 900}
    image = memories.a if region is Region.MAIN else memories.b
    held: list[int] = []
    words = 0

    async def traffic(unit: MatrixUnit, context: Any) -> None:
        nonlocal words
        before: int | None = None
        context.set(unit.read.valid, 1)
        for cycle in range(120):
            offset = 17 * cycle % len(image)
            context.set(unit.read.payload, {"region": region, "offset": offset})
            if before is not None:
                result = context.get(unit.read_data).to_bytes(4, "little")
                assert result == image[before].tobytes(), f"word {before}"
            before = offset if context.get(unit.read.ready) else None
            held.extend([context.get(unit.now)] if before is None else [])
            words += before is not None
            await context.tick()
        context.set(unit.read.valid, 0)

    outcome = run(config, memories, [complete(ONE | pixels)] * 2, (), traffic, [vec, vec | {"dest_base": 40}])
    starts = [start for start, _ in outcome.vecs_retired]
    occupied = vec_occupancy(config, VecShape.of(vec))
    assert held == [cycle for start in starts for cycle in range(start, start + occupied)]
    assert words == 120 - 2 * occupied
    expected = memories.copy()
    for gemm in [complete(ONE | pixels)] * 2:
        golden.gemm(config, expected, gemm)
    compare(outcome, expected, config)
    vector_golden.vec(config, expected, vec)
    vector_golden.vec(config, expected, vec | {"dest_base": 40})
    np.testing.assert_array_equal(outcome.images[Region.VEC], expected.vec)


def test_the_next_gemm_is_accepted_before_the_first_operand_of_the_one_before() -> None:
    gemms = [complete(ONE | {"k_blocks": 4}) for _ in range(4)]
    outcome = check(chip(4), random_memories(chip(4), np.random.default_rng(2)), gemms)
    starts = [retired["start"] for retired in outcome.retired]
    assert outcome.accepted[2:] == [start - STAGE_CYCLES for start in starts[1:3]]


FAULTS: dict[str, tuple[Gemm, Cause, int]] = {
    "reserved": ({"reserved": 1}, Cause.RESERVED_BITS, 0),
    "last reserved": ({"reserved": 1 << (FORMAT.width - FORMAT.used - 1)}, Cause.RESERVED_BITS, 0),
    "addend": ({"addend": 3}, Cause.RESERVED_BITS, 0),
    **{name: ({name: 0}, Cause.SHAPE, 0) for name in COUNTS},
    "A": ({"in_w": 4, "a_plane": 4, "out_w": 4, "pixels": 4, "a_base": 199}, Cause.ADDRESS, address(Region.MAIN, 201)),
    "A far": ({"a_base": 65535}, Cause.ADDRESS, address(Region.MAIN, 65535)),
    "B": ({"b_base": 300}, Cause.ADDRESS, address(Region.B, 301)),
    "B far": ({"b_base": 65535, "n_blocks": 2}, Cause.ADDRESS, address(Region.B, 65535)),
    "addend past": ({"addend": Addend.PARTIAL, "addend_base": 45}, Cause.ADDRESS, address(Region.ACC, 4 * 45)),
    "bias past": (
        {"addend": Addend.BIAS, "addend_base": 44, "n_blocks": 2},
        Cause.ADDRESS,
        address(Region.ACC, 4 * 45),
    ),
    "to ACC": ({"to_acc": 1, "dest_base": 43, "pixels": 4}, Cause.ADDRESS, address(Region.ACC, 4 * 45)),
    "to OUT": ({"dest_base": 16383}, Cause.ADDRESS, address(Region.OUT, 16383)),
    "to OUT later": ({"dest_base": 30, "n_blocks": 2, "pixels": 2}, Cause.ADDRESS, address(Region.OUT, 33)),
}


def test_faults_name_their_cause_and_never_hang() -> None:
    """Each bad GEMM between two good ones: one fault each, all retire, and only the good ones' results are there."""
    config = CHIPS["odd memories"]
    memories = random_memories(config, np.random.default_rng(8))
    good = ONE | {"in_w": 4, "a_plane": 16, "out_w": 4, "pixels": 6, "dest_base": 3, "scale": 700}
    gemms: list[int] = []
    for tag, (change, _, _) in enumerate(FAULTS.values()):
        body = ONE | {"dest_base": 25, "tag": tag} | change
        reserved = body.pop("reserved", 0)
        gemms += [FORMAT.pack(body) | reserved << FORMAT.used, FORMAT.pack(good | {"tag": 1000 + tag})]
    outcome = run(config, memories, gemms)
    assert outcome.faults == [(cause, tag, value) for tag, (_, cause, value) in enumerate(FAULTS.values())]
    assert [retired["tag"] for retired in outcome.retired] == [
        n for tag in range(len(FAULTS)) for n in (tag, 1000 + tag)
    ]
    expected = memories.copy()
    golden.gemm(config, expected, complete(good))
    out = outcome.images[Region.OUT]
    np.testing.assert_array_equal(out[:25], expected.out[:25])
    np.testing.assert_array_equal(outcome.images[Region.ACC].view(np.int32).reshape(-1, 4)[:43], expected.acc[:43])


def test_of_two_faults_in_a_cycle_that_of_the_earlier_gemm_is_reported() -> None:
    """The drain of one GEMM and the reader of the next fault at the same time, for one of these gaps."""
    config, most = CHIPS["odd memories"], 12
    gemms, gaps = list[int](), list[int]()
    for gap in range(most):
        for tag, name, wait in ((2 * gap, "to OUT", 60), (2 * gap + 1, "A far", gap)):
            gemms.append(FORMAT.pack(ONE | FAULTS[name][0] | {"tag": tag}))
            gaps.append(wait)
    faults = run(config, random_memories(config, np.random.default_rng(8)), gemms, gaps).faults
    reported = [[tag % 2 for _, tag, _ in faults if tag // 2 == gap] for gap in range(most)]
    assert all(cause == Cause.ADDRESS for cause, _, _ in faults)
    assert {value for _, tag, value in faults if tag % 2 == 0} == {FAULTS["to OUT"][2]}
    assert {value for _, tag, value in faults if tag % 2 == 1} == {FAULTS["A far"][2]}
    assert reported[-1] == [0, 1]
    assert reported.count([0]) == 1, "they meet once, and the reader's is lost"
    assert all(0 in one for one in reported), reported


def test_void_gemms_write_nothing() -> None:
    config = CHIPS["odd memories"]
    memories = random_memories(config, np.random.default_rng(9))
    wrong = ({"pixels": 0}, {"stride_h": 0}, {"addend": 3})
    gemms = [FORMAT.pack(ONE | {"to_acc": to_acc} | body) for to_acc in (0, 1) for body in wrong]
    outcome = run(config, memories, gemms)
    assert [fault[0] for fault in outcome.faults] == [Cause.SHAPE, Cause.SHAPE, Cause.RESERVED_BITS] * 2
    assert len(outcome.retired) == len(gemms)
    compare(outcome, memories, config)


def test_shapes_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel_w = 0 must be at least 1"):
        GemmShape(pixels=1, kernel_w=0)
