"""The functional executor against plain loops over the formulas of docs/architecture/operations.md."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, CoreConfig, DramConfig
from meshloom.hw.spec.isa import Region, address
from meshloom.sched.ir.functional import Memories, execute, land, requantise, run, take
from meshloom.sched.ir.schedule import Gemm, Move, Piece, Schedule, ScheduleError, Span, Tensor
from meshloom.sched.ir.validation import validate
from meshloom.sched.workload.layout import ActivationLayout, BiasLayout, WeightLayout


def chip_of(lanes: int, cols: int, **core: int) -> ChipConfig:
    return ChipConfig(
        name="c",
        lanes=lanes,
        cols=cols,
        floorplan=(("dram", "core"), ("host", "spm")),  # type: ignore[arg-type]
        dram=DramConfig(words=4096, bytes_per_cycle=lanes),
        core=CoreConfig.model_validate(core),
    )


def wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def requantised(value: int, scale: int, relu: int, clamp: int) -> int:
    rounded = round(Fraction(value * scale, 1 << 17))  # Python rounds halves to even, too
    result = max(-128, min(127, rounded))
    return min(max(result, 0) if relu else result, clamp)


def by_loops(op: Gemm, a: np.ndarray, b: np.ndarray, acc: np.ndarray, cols: int) -> dict[tuple[int, int, int], int]:
    """Sums of a GEMM by (n block, pixel, column), one product after the other."""
    sums = {}
    k_words = op["k_blocks"] * op["kernel_h"] * op["kernel_w"]
    for block in range(op["n_blocks"]):
        for pixel in range(op["pixels"]):
            oy, ox = divmod(pixel, op["out_w"])
            for column in range(cols):
                total = 0
                for kb in range(op["k_blocks"]):
                    for ky in range(op["kernel_h"]):
                        for kx in range(op["kernel_w"]):
                            iy = oy * op["stride_h"] + ky * op["dilation"] - op["pad_top"]
                            ix = ox * op["stride_w"] + kx * op["dilation"] - op["pad_left"]
                            if not (0 <= ix < op["in_w"] and 0 <= iy * op["in_w"] < op["a_plane"]):
                                continue
                            k = (kb * op["kernel_h"] + ky) * op["kernel_w"] + kx
                            left = a[op["a_base"] + kb * op["a_plane"] + iy * op["in_w"] + ix]
                            right = b[op["b_base"] + (block * k_words + k) * cols + column]
                            total += sum(int(x) * int(y) for x, y in zip(left, right, strict=True))
                if op["addend"] == 1:
                    total += int(acc[op["addend_base"] + block, column])
                if op["addend"] == 2:
                    total += int(acc[op["addend_base"] + block * op["pixels"] + pixel, column])
                sums[block, pixel, column] = wrap(total)
    return sums


@pytest.mark.parametrize("seed", range(40))
def test_gemm_is_the_formula(seed: int) -> None:
    rng = random.Random(seed)
    lanes = rng.choice((4, 8))
    chip = chip_of(lanes, rng.randint(1, lanes), a_words=300, b_words=400, acc_words=64, out_words=64)
    in_w, rows = rng.randint(1, 6), rng.randint(1, 6)
    to_acc, addend = rng.randrange(2), rng.randrange(3)
    op = Gemm(core=1, fields={
        "a_base": rng.randrange(20), "a_plane": in_w * rows, "in_w": in_w, "k_blocks": rng.randint(1, 3),
        "kernel_h": rng.randint(1, 3), "kernel_w": rng.randint(1, 3), "stride_h": rng.randint(1, 2),
        "stride_w": rng.randint(1, 2), "dilation": rng.randint(1, 2), "pad_top": rng.randrange(3),
        "pad_left": rng.randrange(3), "out_w": rng.randint(1, 5), "pixels": rng.randint(1, 14),
        "b_base": rng.randrange(20), "n_blocks": rng.randint(1, 2), "addend": addend, "addend_base": rng.randrange(3),
        "to_acc": to_acc, "dest_base": 32 if addend < 2 or not to_acc else 0, "scale": rng.randrange(1 << 16),
        "relu": rng.randrange(2), "clamp": rng.randrange(128),
    })  # fmt: skip
    if addend == 2 and to_acc:
        op = op.model_copy(update={"fields": op.fields | {"addend_base": op["dest_base"]}})
    schedule = Schedule(chip="c", chip_digest=chip.digest, workload="w", scheduler="s", operations=(op,))
    validate(schedule, chip)
    memories, random_bytes = Memories(chip), np.random.default_rng(seed)
    for region in (Region.MAIN, Region.B, Region.ACC, Region.OUT):
        held = memories.region(1, region)
        held[:] = random_bytes.integers(0, 256, held.shape, np.uint8)
    a, b = (memories.region(1, region).view(np.int8).copy() for region in (Region.MAIN, Region.B))
    acc, out = memories.acc(1).copy(), memories.region(1, Region.OUT).view(np.int8).copy()
    for (block, pixel, column), total in by_loops(op, a, b, acc.copy(), chip.cols).items():
        row = op["dest_base"] + block * op["pixels"] + pixel
        if to_acc:
            acc[row, column], acc[row, chip.cols :] = total, 0
        else:
            out[row, column] = requantised(total, op["scale"], op["relu"], op["clamp"])
            out[row, chip.cols :] = 0
    execute([op], memories)
    np.testing.assert_array_equal(memories.acc(1), acc)
    np.testing.assert_array_equal(memories.region(1, Region.OUT).view(np.int8), out)


def test_largest_sums_are_exact_and_wrap() -> None:
    chip = chip_of(64, 2, a_words=2048, b_words=4096, acc_words=4, out_words=4)
    memories = Memories(chip)
    memories.region(1, Region.MAIN)[:] = 0x80  # -128
    memories.region(1, Region.B)[:] = 0x80
    memories.acc(1)[0] = (1 << 31) - 1
    fields = {
        "a_plane": 16, "in_w": 4, "k_blocks": 120, "kernel_h": 4, "kernel_w": 4, "stride_h": 1, "stride_w": 1,
        "dilation": 1, "out_w": 1, "pixels": 1, "n_blocks": 1, "addend": 1, "to_acc": 1, "dest_base": 1,
    }  # fmt: skip
    execute([Gemm(core=1, fields=fields)], memories)
    assert memories.acc(1)[1, 0] == wrap((1 << 31) - 1 + 120 * 16 * 64 * 128 * 128)


def test_requantise_rounds_halves_to_even_and_saturates() -> None:
    edges = np.array([0, 1, -1, 2**31 - 1, -(2**31), *(k << 15 for k in range(-9, 10)), 12345, -54321], np.int32)
    values = np.concatenate([edges, np.random.default_rng(0).integers(-(2**31), 2**31, 300).astype(np.int32)])
    for scale in (0, 1, 2, 4, 999, 65535):
        for relu, clamp in ((0, 127), (1, 127), (1, 6), (0, 0)):
            result = requantise(values, scale, relu, clamp)
            assert result.tolist() == [requantised(int(value), scale, relu, clamp) for value in values]


def test_moves_walk_both_strides_and_read_before_they_write() -> None:
    chip = chip_of(4, 4)
    memories = Memories(chip)
    dram = memories.region(0, Region.MAIN)
    dram[:64] = np.arange(256, dtype=np.uint8).reshape(64, 4)
    op = Move(
        issuer=1,
        src=Span(tile=0, address=1, run=3, stride=10),
        dst=Span(tile=1, address=address(Region.ACC, 6), run=2, stride=5),
        words=8,
    )
    words = take(op, memories)
    assert words[:, 0].tolist() == [4 * i for i in (1, 2, 3, 11, 12, 13, 21, 22)]
    land(op, words, memories)
    acc = memories.region(1, Region.ACC)
    for i, place in enumerate((6, 7, 11, 12, 16, 17, 21, 22)):
        np.testing.assert_array_equal(acc[place], words[i])
    assert np.count_nonzero(acc.any(axis=1)) == 8
    with pytest.raises(ScheduleError, match="no data memory"):
        memories.region(chip.host, Region.MAIN)


def test_a_convolution_from_tensors_to_tensors() -> None:
    """3x3, padded, stride 2, two channel blocks in and two out, bias and ReLU; the output in two pieces."""
    chip = chip_of(4, 3)
    core, dram, rng = 1, 0, np.random.default_rng(7)
    layouts = {
        "x": ActivationLayout(batch=1, channels=6, height=5, width=7, block=4),
        "w": WeightLayout(out_channels=5, in_channels=6, kernel_h=3, kernel_w=3, cols=3, block=4),
        "bias": BiasLayout(out_channels=5, cols=3),
        "y": ActivationLayout(batch=1, channels=5, height=3, width=4, block=3),
    }
    places = {"x": (0, 70), "w": (100, 108), "bias": (300, 8), "y": (400, 24)}
    tensors, moves = [], {}
    regions = {"x": Region.MAIN, "w": Region.B, "bias": Region.ACC, "y": Region.OUT}
    for name, layout in layouts.items():
        start, words = places[name]
        assert layout.words(4) == words
        if name == "y":
            pieces = (
                Piece(tile=dram, address=600, first=0, words=10),
                Piece(tile=dram, address=500, first=10, words=14),
            )
        else:
            pieces = (Piece(tile=dram, address=start, first=0, words=words),)
        role = {"x": "input", "y": "output"}.get(name, "constant")
        tensors.append(Tensor(name=name, role=role, layout=layout, pieces=pieces))  # type: ignore[arg-type]
        far = Span(tile=core, address=address(regions[name], 0), run=words)
        moves[name] = Move(issuer=core, src=Span(tile=dram, address=start, run=words), dst=far, words=words)
    stores = [
        Move(
            issuer=core,
            src=Span(tile=core, address=address(Region.OUT, piece.first), run=piece.words),
            dst=Span(tile=dram, address=piece.address, run=piece.words),
            words=piece.words,
        )
        for piece in tensors[3].pieces
    ]
    gemm = Gemm(core=core, fields={
        "a_plane": 35, "in_w": 7, "k_blocks": 2, "kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2,
        "dilation": 1, "pad_top": 1, "pad_left": 1, "out_w": 4, "pixels": 12, "n_blocks": 2, "addend": 1,
        "dest_base": 0, "scale": 700, "relu": 1, "clamp": 100,
    })  # fmt: skip
    schedule = Schedule(
        chip="c",
        chip_digest=chip.digest,
        workload="conv",
        scheduler="by hand",
        operations=(moves["x"], moves["w"], moves["bias"], gemm, *stores),
        tensors=tuple(tensors),
    )
    validate(schedule, chip)
    x = rng.integers(-128, 128, (1, 6, 5, 7)).astype(np.int8)
    w = rng.integers(-128, 128, (5, 6, 3, 3)).astype(np.int8)
    bias = rng.integers(-5000, 5000, 5).astype(np.int32)
    result = run(schedule, chip, {"x": x, "w": w, "bias": bias})["y"]
    padded = np.pad(x.astype(int), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for o in range(5):
        for oy in range(3):
            for ox in range(4):
                window = padded[0, :, 2 * oy : 2 * oy + 3, 2 * ox : 2 * ox + 3]
                total = int((window * w[o].astype(int)).sum()) + int(bias[o])
                assert result[0, o, oy, ox] == requantised(total, 700, 1, 100)
    with pytest.raises(ScheduleError, match="'bias' has no array"):
        run(schedule, chip, {"x": x, "w": w})
    with pytest.raises(ScheduleError, match="'z' is not an input"):
        run(schedule, chip, {"x": x, "w": w, "bias": bias, "z": x})
