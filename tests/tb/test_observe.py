"""Observed words: logged by both simulators as the cores write them, and given back to the tensors they belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from meshloom.hw.spec.isa import Cause, Region, VectorOp, address
from meshloom.sched.ir.schedule import Box, Gemm, Move, Schedule, Span, Vec
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.observe import (
    Mismatch,
    Observed,
    ObserveError,
    Written,
    compare_values,
    maker,
    planes,
    read_log,
    values,
)
from meshloom.tb.devices.simulated import SimulatedDevice

from .hand_made import CHIP, CORE, DRAM, Words, endless, product

LANES = CHIP.lanes
#: A 1x1 convolution of 8 to 8 channels over 7 rows of 5 columns, in row tiles that overlap by a row at the end.
CHANNELS, ROWS, COLUMNS, SCALE = 8, 7, 5, 1 << 12
TILES = [(0, 2), (2, 2), (4, 2), (5, 2)]
BLOCKS = CHANNELS // LANES
X_AT, W_AT, Y_AT = 0, 200, 400
A, B, OUT = address(Region.MAIN, 0), address(Region.B, 0), address(Region.OUT, 0)


def operands(seed: int = 1) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """x [1, C, rows, columns] and w [C out, C in]."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (1, CHANNELS, ROWS, COLUMNS), np.int8)
    return x, rng.integers(-128, 128, (CHANNELS, CHANNELS), np.int8)


def right(x: NDArray[np.int8], w: NDArray[np.int8]) -> NDArray[np.int8]:
    sums = np.einsum("oc,bcyx->boyx", w.astype(np.int64), x.astype(np.int64))
    return np.clip(np.rint(sums * SCALE / (1 << 17)), -128, 127).astype(np.int8)


def schedule() -> Schedule:
    """All operands to the core, a GEMM for each row tile into one of two places of OUT, its rows back to DRAM."""

    def span(tile: int, at: int, run: int, stride: int = 0) -> Span:
        return Span(tile=tile, address=at, run=run, stride=stride)

    plane = ROWS * COLUMNS
    weights = BLOCKS * BLOCKS * LANES
    operations: list[Move | Gemm] = [
        Move(issuer=CORE, src=span(DRAM, X_AT, 999), dst=span(CORE, A, 999), words=BLOCKS * plane, label="x"),
        Move(issuer=CORE, src=span(DRAM, W_AT, 999), dst=span(CORE, B, 999), words=weights, label="w"),
    ]
    for number, (row, rows) in enumerate(TILES):
        pixels, base = rows * COLUMNS, 100 * (number % 2)
        fields = {
            "a_base": row * COLUMNS, "a_plane": plane, "in_w": COLUMNS, "k_blocks": BLOCKS, "kernel_h": 1,
            "kernel_w": 1, "stride_h": 1, "stride_w": 1, "dilation": 1, "out_w": COLUMNS, "pixels": pixels,
            "n_blocks": BLOCKS, "dest_base": base, "scale": SCALE, "clamp": 127,
        }  # fmt: skip
        box = Box(tensor="y", plane=0, planes=BLOCKS, row=row, rows=rows, column=0, columns=COLUMNS)
        operations.append(Gemm(core=CORE, fields=fields, label=f"conv rows {row}", result=box))
        back = span(DRAM, Y_AT + row * COLUMNS, pixels, plane)
        operations.append(
            Move(issuer=CORE, src=span(CORE, OUT + base, 999), dst=back, words=BLOCKS * pixels, label=f"y {row}")
        )
    return Schedule(
        chip=CHIP.name, chip_digest=CHIP.digest, workload="conv", scheduler="hand", operations=tuple(operations)
    )


def pooled() -> Schedule:
    """The first row tile as above; its words with ReLU (`z`), and with channels and pixels exchanged (`t`), to VEC."""
    pixels = 2 * COLUMNS
    fields = {
        "x_out": 1, "x_plane": pixels, "in_w": COLUMNS, "blocks": BLOCKS, "kernel_h": 1, "kernel_w": 1, "stride_h": 1,
        "stride_w": 1, "dilation": 1, "out_w": COLUMNS, "pixels": pixels, "clamp": 127,
    }  # fmt: skip
    groups = -(-pixels // LANES)
    boxes = {
        "z": Box(tensor="z", plane=0, planes=BLOCKS, row=0, rows=2, column=0, columns=COLUMNS),
        "t": Box(tensor="t", plane=0, planes=groups, row=0, rows=1, column=0, columns=CHANNELS),
    }
    change = {"z": {"op": VectorOp.MAX, "relu": 1}, "t": {"op": VectorOp.TRANSPOSE, "dest_base": 100}}
    vecs = [
        Vec(core=CORE, fields=fields | {k: int(v) for k, v in change[name].items()}, label=name, result=box)
        for name, box in boxes.items()
    ]
    first = schedule()
    return first.model_copy(update={"operations": (*first.operations[:3], *vecs)})


def job(observe: bool, result: Schedule | None = None) -> Job:
    x, w = operands()
    packed = planes(x, LANES).reshape(-1, LANES)
    # [n block][k block][array column][lane]
    weights = w.reshape(BLOCKS, LANES, BLOCKS, LANES).transpose(0, 2, 1, 3).reshape(-1, LANES).view(np.uint8)
    memory = [(DRAM, X_AT, packed), (DRAM, W_AT, np.ascontiguousarray(weights))]
    return Job(
        lower(result or schedule(), CHIP), memory, [(DRAM, Y_AT, BLOCKS * ROWS * COLUMNS)], 20_000, observe=observe
    )


@pytest.fixture(scope="module", params=["verilator", pytest.param("icarus", marks=pytest.mark.slow)])
def runs(request: pytest.FixtureRequest) -> dict[str, Run]:
    """Observed and not, a hang, and observed again, in one process."""
    hand, long = product(2).job, product(4, pixels=33, k_blocks=5).job
    jobs = {
        "observed": job(True),
        "not": job(False),
        "hand-made": replace(hand, observe=True),
        "hang": replace(long, observe=True, watchdog=480),
        "idle": replace(endless(300), observe=True),
        "again": job(True),
        "vectors": job(True, pooled()),
    }
    return dict(zip(jobs, SimulatedDevice(build(CHIP, request.param)).run(list(jobs.values()), "observe"), strict=True))


@pytest.fixture(scope="module")
def observed() -> Observed:
    """What the core of `schedule` writes, worked out by hand; the tests of values need no simulator."""
    golden = planes(right(*operands()), LANES)
    addresses, words = [], []
    for number, (row, rows) in enumerate(TILES):
        size = BLOCKS * rows * COLUMNS
        addresses.append(np.arange(size, dtype=np.int32) + 100 * (number % 2))
        words.append(golden[:, row : row + rows].reshape(size, LANES))
    nothing = Written(np.zeros(0, np.int32), np.zeros((0, LANES), np.uint8))
    return {(CORE, Region.OUT): Written(np.concatenate(addresses), np.concatenate(words)), (CORE, Region.VEC): nothing}


def without(observed: Observed, index: int) -> Observed:
    log = observed[CORE, Region.OUT]
    cut = Written(np.delete(log.addresses, index), np.delete(log.words, index, axis=0))
    return observed | {(CORE, Region.OUT): cut}


# -- what the bench logs ----------------------------------------------------------------------------------------------


def test_the_log_is_what_the_core_writes_word_by_word_in_order(runs: dict[str, Run], observed: Observed) -> None:
    for name in ("observed", "again"):
        assert runs[name].observed.keys() == observed.keys()
        for place, log in runs[name].observed.items():
            np.testing.assert_array_equal(log.addresses, observed[place].addresses)
            np.testing.assert_array_equal(log.words, observed[place].words)


def test_observing_changes_nothing_else(runs: dict[str, Run]) -> None:
    first, second = runs["observed"], runs["not"]
    assert second.observed == {}
    assert (first.cycles, first.records, first.counters) == (second.cycles, second.records, second.counters)
    np.testing.assert_array_equal(first.memory[0], second.memory[0])


def test_a_hand_made_program_is_observed_too(runs: dict[str, Run]) -> None:
    run, expected = runs["hand-made"], product(2).expected[0][:10]
    log = run.observed[CORE, Region.OUT]
    assert log.addresses.tolist() == list(range(10))
    np.testing.assert_array_equal(log.words, expected)
    np.testing.assert_array_equal(log.words, run.memory[0][:10])


def test_a_fault_keeps_what_was_written_before_it(runs: dict[str, Run]) -> None:
    run = runs["hang"]
    assert run.fault is not None
    assert run.fault.cause is Cause.WATCHDOG
    log = run.observed[CORE, Region.OUT]
    count = len(log.addresses)
    assert 0 < count < 33
    assert log.addresses.tolist() == list(range(count))
    np.testing.assert_array_equal(log.words, product(4, pixels=33, k_blocks=5).expected[0][:count])
    assert all(len(log.addresses) == 0 for log in runs["idle"].observed.values())


def test_the_tensor_comes_back_from_the_run(runs: dict[str, Run]) -> None:
    golden = planes(right(*operands()), LANES)
    result = values(schedule(), runs["observed"].observed, CHIP)
    assert compare_values(result, {"y": golden}) == []
    np.testing.assert_array_equal(result["y"].words, golden)
    np.testing.assert_array_equal(runs["observed"].memory[0].reshape(golden.shape), golden)


def test_words_of_the_vector_unit_are_observed(runs: dict[str, Run]) -> None:
    tile = right(*operands())[:, :, :2]
    rows = np.zeros((1, -(-tile[0, 0].size // LANES) * LANES, 1, CHANNELS), np.int8)
    rows[0, : tile[0, 0].size, 0] = tile.reshape(CHANNELS, -1).T  # pixels are the channels of what is transposed
    result = values(pooled(), runs["vectors"].observed, CHIP)
    golden = {"y": planes(tile, LANES), "z": planes(np.maximum(tile, 0), LANES), "t": planes(rows, LANES)}
    assert compare_values(result, golden) == []
    assert (
        len(runs["vectors"].observed[CORE, Region.VEC].words)
        == len(golden["z"].reshape(-1, LANES)) + rows.size // LANES
    )


def test_a_log_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(2 * (4 + LANES) - 1))
    with pytest.raises(ObserveError, match=r"15 bytes are not a whole number of 8-byte records"):
        read_log(path, CHIP)


# -- values and their comparison --------------------------------------------------------------------------------------


def test_values_are_golden_and_cover_the_tensor(observed: Observed) -> None:
    result = values(schedule(), observed, CHIP)
    assert list(result) == ["y"]
    assert result["y"].covered.all()
    assert result["y"].others == {}
    assert compare_values(result, {"y": planes(right(*operands()), LANES)}) == []


def test_the_first_wrong_byte_is_named_and_all_are_counted(observed: Observed) -> None:
    golden = planes(right(*operands()), LANES)
    result = values(schedule(), observed, CHIP)
    golden[1, 3, 2, 1] ^= 0x80
    golden[1, 6, 0] ^= 1
    got = int(result["y"].words[1, 3, 2, 1])
    (wrong,) = compare_values(result, {"y": golden})
    assert wrong == Mismatch("y", 1, 3, 2, 1, got ^ 0x80, got, 1 + LANES)
    assert f"y: {1 + LANES} wrong bytes, first in plane 1, row 3, column 2, lane 1: is" in str(wrong)


@pytest.mark.parametrize("wrong_turn", [0, 1])
def test_a_word_that_is_computed_twice_must_be_right_both_times(observed: Observed, wrong_turn: int) -> None:
    """Row 5 is computed by the third tile and by the fourth."""
    log = observed[CORE, Region.OUT]
    size = BLOCKS * 2 * COLUMNS
    index = (2 * size + COLUMNS + 3, 3 * size + 3)[wrong_turn]  # plane 0, row 5, column 3
    words = log.words.copy()
    words[index, 2] ^= 0x40
    result = values(schedule(), observed | {(CORE, Region.OUT): Written(log.addresses, words)}, CHIP)
    assert list(result["y"].others) == [(0, 5, 3)]
    golden = planes(right(*operands()), LANES)
    (wrong,) = compare_values(result, {"y": golden})
    byte = int(golden[0, 5, 3, 2])
    assert wrong == Mismatch("y", 0, 5, 3, 2, byte, byte ^ 0x40, 1)


def test_words_that_nobody_computes_are_mismatches(observed: Observed) -> None:
    """A golden tensor with a row more than the results span, and one whose third tile nobody claims."""
    golden = planes(np.pad(right(*operands()), ((0, 0), (0, 0), (0, 1), (0, 0))), LANES)
    (wrong,) = compare_values(values(schedule(), observed, CHIP), {"y": golden})
    assert (wrong.plane, wrong.row, wrong.column, wrong.lane, wrong.got) == (0, ROWS, 0, 0, None)
    assert wrong.count == BLOCKS * COLUMNS * LANES
    assert "never computed" in str(wrong)

    result = schedule()
    unclaimed = tuple(
        op.model_copy(update={"result": None}) if op.label == "conv rows 2" else op for op in result.operations
    )
    value = values(result.model_copy(update={"operations": unclaimed}), observed, CHIP)
    assert not value["y"].covered[:, 2:4].any()
    (wrong,) = compare_values(value, {"y": planes(right(*operands()), LANES)})
    assert (wrong.row, wrong.got, wrong.count) == (2, None, BLOCKS * 2 * COLUMNS * LANES)


def test_tensors_without_a_partner_are_refused(observed: Observed) -> None:
    result = values(schedule(), observed, CHIP)
    golden = planes(right(*operands()), LANES)
    with pytest.raises(ObserveError, match="tensor 'y' has no golden values"):
        compare_values(result, {})
    with pytest.raises(ObserveError, match="tensor 'z' has no operation that computes it"):
        compare_values(result, {"y": golden, "z": golden})
    with pytest.raises(ObserveError, match=r"tensor 'y': results span \(2, 7, 5, 4\), golden values \(2, 6, 5, 4\)"):
        compare_values(result, {"y": golden[:, :6]})


def test_a_missing_write_names_core_address_and_operation(observed: Observed) -> None:
    size = BLOCKS * 2 * COLUMNS
    # of the words of one address, it is the last that is missing
    cut = without(observed, 2 * size + 7)
    message = r"core 0 \(tile 0x01\) wrote OUT word 7 1 times, must be 2; first missing in operation 'conv rows 4'"
    with pytest.raises(ObserveError, match=message):
        values(schedule(), cut, CHIP)
    with pytest.raises(ObserveError, match=r"wrote OUT word 107 1 times, must be 2; .* operation 'conv rows 5'"):
        values(schedule(), without(observed, 3 * size + 7), CHIP)


@pytest.mark.parametrize(
    ("at", "how"), [(3, "3 times, must be 2 .last by operation 'conv rows 4'"), (90, "1 times, must be 0")]
)
def test_a_write_too_many_is_named(observed: Observed, at: int, how: str) -> None:
    log = observed[CORE, Region.OUT]
    more = Written(np.append(log.addresses, np.int32(at)), np.concatenate([log.words, log.words[:1]]))
    with pytest.raises(ObserveError, match=f"wrote OUT word {at} {how}"):
        values(schedule(), observed | {(CORE, Region.OUT): more}, CHIP)


@pytest.mark.parametrize(
    ("index", "address", "how"),
    [
        (7, 250, "word 7 1 times, must be 2; first missing in operation 'conv rows 4'"),
        (7, 8, "word 7 1 times, must be 2; first missing in operation 'conv rows 4'"),
        (-1, 0, "word 119 1 times, must be 2; first missing in operation 'conv rows 5'"),
    ],
)
def test_a_write_to_another_address_is_named(observed: Observed, index: int, address: int, how: str) -> None:
    """There are as many words as the schedule says, to an address that is none of its, or one that is."""
    log = observed[CORE, Region.OUT]
    addresses = log.addresses.copy()
    addresses[index] = address
    with pytest.raises(ObserveError, match=rf"^core 0 \(tile 0x01\) wrote OUT {how}"):
        values(schedule(), observed | {(CORE, Region.OUT): Written(addresses, log.words)}, CHIP)


@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
def test_the_operation_that_computed_a_wrong_word_is_known(observed: Observed, wrong: int) -> None:
    """Also of a word that two compute: row 5 is of the third tile and of the fourth."""
    log, result = observed[CORE, Region.OUT], schedule()
    words = log.words.copy()
    row, rows = TILES[wrong]
    first = sum(BLOCKS * rows * COLUMNS for _, rows in TILES[:wrong])
    inside = 5 - row if wrong >= 2 else 0
    words[first + inside * COLUMNS + 3, 2] ^= 0x40  # plane 0, row 5 if it has that, column 3
    changed = observed | {(CORE, Region.OUT): Written(log.addresses, words)}
    golden = planes(right(*operands()), LANES)
    (mismatch,) = compare_values(values(result, changed, CHIP), {"y": golden})
    assert (mismatch.plane, mismatch.row, mismatch.column) == (0, row + inside, 3)
    number = maker(result, changed, CHIP, mismatch, golden[0, row + inside, 3])
    assert number is not None
    assert result.operations[number].label == f"conv rows {row}"
    assert rows == 2
    assert maker(result, observed, CHIP, mismatch, golden[0, row + inside, 3]) is None, "it is right there"


def test_a_write_to_a_memory_that_no_operation_writes_is_an_error(observed: Observed) -> None:
    one = Written(np.array([4], np.int32), np.zeros((1, LANES), np.uint8))
    with pytest.raises(ObserveError, match=r"wrote VEC word 4 1 times, must be 0 \(no operation does\)"):
        values(schedule(), observed | {(CORE, Region.VEC): one}, CHIP)


def test_a_core_that_was_not_observed_is_an_error() -> None:
    with pytest.raises(ObserveError, match=r"core 0 .* was not observed"):
        values(schedule(), {}, CHIP)


def test_boxes_must_have_the_size_of_what_is_written(observed: Observed) -> None:
    result = schedule()
    operations = list(result.operations)
    box = Box(tensor="y", plane=0, planes=1, row=0, rows=2, column=0, columns=COLUMNS)
    operations[2] = operations[2].model_copy(update={"result": box})
    with pytest.raises(
        ObserveError, match="'conv rows 0' writes 20 words, its result is 1 planes x 2 rows x 5 columns"
    ):
        values(result.model_copy(update={"operations": tuple(operations)}), observed, CHIP)


def test_a_result_in_acc_is_refused(observed: Observed) -> None:
    result = schedule()
    operations = list(result.operations)
    gemm = operations[2]
    assert isinstance(gemm, Gemm)
    operations[2] = gemm.model_copy(update={"fields": gemm.fields | {"to_acc": 1}})
    with pytest.raises(ObserveError, match="'conv rows 0' has a result but writes to ACC"):
        values(result.model_copy(update={"operations": tuple(operations)}), observed, CHIP)


def test_planes_put_channels_into_lanes() -> None:
    array = np.arange(6, dtype=np.int8).reshape(1, 6, 1, 1)
    assert planes(array, 4).reshape(2, 4).tolist() == [[0, 1, 2, 3], [4, 5, 0, 0]]
    assert planes(array, 4, 3).reshape(2, 4).tolist() == [[0, 1, 2, 0], [3, 4, 5, 0]]


def test_the_words_of_many_operations_are_told_apart_quickly() -> None:
    """500,000 words of 1000 operations that share addresses, each with a value of its own; an operation may write its
    words in any order."""
    count, size = 1000, 500
    rng = np.random.default_rng(1)
    fields = {"n_blocks": 1, "pixels": size}
    bases = rng.integers(0, 1500, count).tolist()
    operations = tuple(
        Gemm(
            core=CORE,
            fields=fields | {"dest_base": base},
            label=f"{i}",
            result=Box(tensor="t", plane=i, planes=1, row=0, rows=size // 50, column=0, columns=50),
        )
        for i, base in enumerate(bases)
    )
    result = Schedule(chip=CHIP.name, chip_digest=CHIP.digest, workload="t", scheduler="t", operations=operations)
    addresses = np.concatenate([np.arange(base, base + size, dtype=np.int32) for base in bases])
    words = rng.integers(0, 256, (count * size, LANES), dtype=np.uint8)
    order = np.concatenate([number * size + rng.permutation(size) for number in range(count)])
    value = values(result, {(CORE, Region.OUT): Written(addresses[order], words[order])}, CHIP)
    golden: Words = words.reshape(count, size // 50, 50, LANES)
    assert compare_values(value, {"t": golden}) == []
