"""Schedules: content checks, save and load, what operations touch, and validation against a chip."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address
from meshloom.sched.ir.functional import Memories, execute_one
from meshloom.sched.ir.schedule import (
    Access,
    Gemm,
    Move,
    Operation,
    Piece,
    Prediction,
    Schedule,
    ScheduleError,
    Span,
    Tensor,
    intervals,
    memory_words,
    reads,
    writes,
)
from meshloom.sched.ir.validation import validate
from meshloom.sched.support.files import WriteError
from meshloom.sched.workload.layout import BiasLayout
from meshloom.tb.verify.random_schedules import DATA_REGIONS, random_operations, schedule_of

from ..random_schedules import small_chip

CHIP = small_chip()
CORE, SPM, DRAM, OTHER_DRAM, HOST = 1, 2, 0, 0x12, 0x10

FIELDS = {
    "a_plane": 6, "in_w": 3, "k_blocks": 1, "kernel_h": 2, "kernel_w": 2, "stride_h": 1, "stride_w": 1, "dilation": 1,
    "out_w": 2, "pixels": 2, "n_blocks": 1, "scale": 5, "clamp": 127,
}  # fmt: skip


def gemm(**changes: int) -> Gemm:
    return Gemm(core=CORE, fields=FIELDS | changes, label="the gemm")


def move(src: tuple[int, int], dst: tuple[int, int], words: int = 4, issuer: int = CORE, **runs: int) -> Move:
    return Move(
        issuer=issuer,
        src=Span(tile=src[0], address=src[1], run=runs.get("src_run", words), stride=runs.get("src_stride", 0)),
        dst=Span(tile=dst[0], address=dst[1], run=runs.get("dst_run", words), stride=runs.get("dst_stride", 0)),
        words=words,
        label="the move",
    )


def tensor(name: str = "bias", role: str = "constant", start: int = 0, **changes: Any) -> Tensor:
    values = {
        "name": name,
        "role": role,
        "layout": BiasLayout(out_channels=3, cols=3),
        "pieces": (Piece(tile=DRAM, address=start, first=0, words=4),),
    }
    return Tensor(**(values | changes))


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    schedule = Schedule(
        chip="small",
        chip_digest=CHIP.digest,
        workload="w",
        scheduler="s",
        operations=(gemm(), move((DRAM, 0), (SPM, 0))),
        tensors=(tensor(),),
        predicted=Prediction(cycles=9, start=(0, 4), end=(4, 9)),
    )
    path = tmp_path / "a.json"
    schedule.save(path)
    assert Schedule.load(path) == schedule
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]
    assert schedule.tensor("bias") is schedule.tensors[0]
    with pytest.raises(ScheduleError, match="no tensor 'x'; it has 'bias'"):
        schedule.tensor("x")
    with pytest.raises(WriteError, match=r"b\.json: cannot be written: Not a directory; name another place"):
        schedule.save(path / "b.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "save the schedule again"),
        (lambda text: json.dumps(json.loads(text) | {"version": 2}), "version"),
        (lambda text: json.dumps(json.loads(text) | {"operations": [{"kind": "jump"}]}), r"operations\.0"),
        (lambda text: json.dumps(json.loads(text) | {"extra": 1}), "extra"),
        (lambda text: json.dumps(json.loads(text) | {"predicted": {"cycles": 1, "start": [1, 2]}}), "2 entries for 1"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "a.json"
    schedule_of([gemm()], CHIP).save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(ScheduleError, match=message) as caught:
        Schedule.load(path)
    assert str(path) in str(caught.value)
    with pytest.raises(ScheduleError, match="cannot be read"):
        Schedule.load(tmp_path / "none.json")


def test_contradictory_content_is_refused() -> None:
    with pytest.raises(ValidationError, match="tensor 'bias' is listed twice; names must differ"):
        Schedule(
            chip="c", chip_digest="", workload="w", scheduler="s", operations=(), tensors=(tensor(), tensor(start=9))
        )
    pieces = (Piece(tile=DRAM, address=0, first=0, words=2), Piece(tile=DRAM, address=9, first=3, words=2))
    with pytest.raises(ValidationError, match="piece 1 begins with word 3, must be 2"):
        tensor(pieces=pieces)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (move((DRAM, 0), (HOST, 0)), "destination is MAIN of a host tile"),
        (move((DRAM, 0), (SPM, address(Region.B, 0))), "destination is B of a spm tile"),
        (move((DRAM, 0), (SPM, 7 << 24)), "destination is region 7"),
        (
            move((DRAM, 10**9), (CORE, 0)),
            "source has address 1000000000, out of range: addresses have 28 bits",
        ),
        (move((DRAM, 0), (0x55, 0)), "destination tile .* outside the floorplan"),
        (move((SPM, 38), (DRAM, 0)), r"source words 38\.\.41 end past MAIN .* has 40; use a lower address"),
        (move((DRAM, 0), (CORE, address(Region.ACC, 37))), "end past ACC"),
        (move((CORE, 0), (DRAM, 0)), "operand memory A"),
        (move((CORE, address(Region.B, 0)), (DRAM, 0)), "operand memory B"),
        (move((DRAM, 0), (DRAM, 2)), "source and destination share word 2 of one memory"),
        (move((DRAM, 0), (SPM, 0), issuer=HOST), "issuer .* has no mover stream"),
        (move((DRAM, 0), (SPM, 0), dst_run=3, dst_stride=2), "destination runs of 3 words overlap at stride 2"),
        (move((DRAM, 0), (SPM, 0), words=4, src_run=1 << 16), "src_run = 65536 does not fit 16 bits"),
        (gemm(a_base=19), r"GEMM uses words 19\.\.24 of MAIN, which has 24"),
        (gemm(b_base=61), "of B, which has 72"),
        (gemm(dest_base=15), "of OUT, which has 16"),
        (gemm(dest_base=9, to_acc=1), "of ACC, which has 40"),
        (gemm(pixels=0), "GEMM.pixels = 0 must be at least 1"),
        (gemm(addend=3), "GEMM.addend = 3 is none of"),
        (gemm(a_plane=7), "must be whole rows of in_w = 3"),
        (gemm(a_base=1 << 16), "a_base = 65536 does not fit 16 bits"),
        (gemm(wait_n=1), "no body field 'wait_n'"),
        (gemm(addend=1, to_acc=1, addend_base=1, dest_base=0), "ACC word 1, which is also an addend"),
        (gemm(addend=2, to_acc=1, addend_base=1, dest_base=0), "ACC word 1, which is also an addend"),
        (Gemm(core=SPM, fields=FIELDS), "is not a core"),
    ],
)
def test_operations_that_cannot_run_are_named(op: Operation, message: str) -> None:
    label = rf" \({op.label}\)" if op.label else ""
    with pytest.raises(ScheduleError, match=f"^operation 1{label}: .*{message}"):
        validate(schedule_of([gemm(), op], CHIP), CHIP)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((tensor(pieces=(Piece(tile=SPM, address=0, first=0, words=4),)),), "is not a DRAM tile"),
        ((tensor(start=65534),), r"words 65534\.\.65537 end past the 65536 words"),
        ((tensor(start=65533),), r"words 65533\.\.65536 end past the 65536 words"),
        ((tensor(pieces=(Piece(tile=DRAM, address=0, first=0, words=3),)),), "hold 3 words, its layout takes 4"),
        ((tensor(pieces=(Piece(tile=DRAM, address=0, first=0, words=5),)),), "hold 5 words, its layout takes 4"),
        ((tensor("y", "output"), tensor("z", "output", start=3)), "'y' and 'z' both claim word 3"),
        ((tensor("w", start=3), tensor("x", "input")), "'x' and 'w' both claim word 3"),
        ((tensor("x", "input"), tensor("w", start=3)), "'x' and 'w' both claim word 3"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tensors: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        validate(schedule_of([], CHIP).model_copy(update={"tensors": tensors}), CHIP)


@pytest.mark.parametrize(
    "tensors",
    [
        (tensor(start=65532),),  # up to the last word
        (tensor("x", "input"), tensor("w", start=4)),  # one behind the other
        (tensor("x", "input"), tensor("w", pieces=(Piece(tile=OTHER_DRAM, address=3, first=0, words=4),))),
        (tensor(pieces=tuple(Piece(tile=DRAM, address=9 - n, first=n, words=1) for n in range(4))),),
    ],
)
def test_tensors_that_just_fit(tensors: tuple[Tensor, ...]) -> None:
    validate(schedule_of([], CHIP).model_copy(update={"tensors": tensors}), CHIP)


@pytest.mark.parametrize(
    "op",
    [
        move((SPM, 36), (DRAM, 0)),
        move((DRAM, 0), (CORE, address(Region.ACC, 36))),
        move((DRAM, 0), (DRAM, 4)),
        move((DRAM, 0), (SPM, 0), dst_run=2, dst_stride=2),
        move((DRAM, 0), (SPM, 0), dst_run=4, dst_stride=2),  # one run: its stride is not walked
        gemm(a_base=18),
        gemm(dest_base=14),
    ],
)
def test_operations_that_just_fit(op: Operation) -> None:
    validate(schedule_of([op], CHIP), CHIP)


def test_outputs_may_reuse_the_room_of_inputs() -> None:
    tensors = (tensor("x", "input"), tensor("y", "output"))
    validate(schedule_of([gemm(), gemm(addend=2, to_acc=1)], CHIP).model_copy(update={"tensors": tensors}), CHIP)


def test_a_schedule_belongs_to_one_chip() -> None:
    with pytest.raises(ScheduleError, match=r"was made for chip small .* schedule the workload again"):
        validate(schedule_of([], CHIP), small_chip(spm_words=41))


@pytest.mark.parametrize(
    ("span", "words", "expected"),
    [
        (Span(tile=0, address=7, run=9), 5, [(7, 12)]),
        (Span(tile=0, address=7, run=2, stride=2), 5, [(7, 12)]),
        (Span(tile=0, address=7, run=2, stride=5), 5, [(7, 9), (12, 14), (17, 18)]),
        (Span(tile=0, address=7, run=3, stride=1), 7, [(7, 11)]),
        (Span(tile=0, address=address(Region.OUT, 3), run=3, stride=0), 9, [(3, 6)]),
    ],
)
def test_spans_are_exact_intervals(span: Span, words: int, expected: list[tuple[int, int]]) -> None:
    assert intervals(span, words) == expected


def _rows(accesses: list[Access]) -> set[tuple[int, int, int]]:
    return {(a.tile, a.region, word) for a in accesses for start, stop in a.intervals for word in range(start, stop)}


@pytest.mark.parametrize("seed", range(25))
def test_operations_touch_what_they_say(seed: int) -> None:
    """Nothing else changes, and what is not read does not matter."""
    chip: ChipConfig = CHIP
    for number, op in enumerate(random_operations(random.Random(seed), chip, 12)):
        message, read = _rows(writes(op, chip)), _rows(reads(op, chip))
        places = [(t, r) for t in chip.tiles for r in DATA_REGIONS if memory_words(chip, t, r)]
        results = []
        for variant in range(2):
            memories, noise = Memories(chip), np.random.default_rng((seed, number, variant))
            same = np.random.default_rng((seed, number))
            for place in places:
                held = memories.region(*place)[:400]
                held[:] = noise.integers(0, 256, held.shape, np.uint8)
                common = same.integers(0, 256, held.shape, np.uint8)
                for row in range(len(held)):
                    if (*place, row) in read:
                        held[row] = common[row]
            before = {place: memories.region(*place)[:400].copy() for place in places}
            execute_one(op, memories)
            changed = {
                (*place, int(row))
                for place in places
                for row in np.flatnonzero((before[place] != memories.region(*place)[:400]).any(axis=1))
            }
            assert changed <= message
            results.append({row: bytes(memories.region(row[0], row[1])[row[2]]) for row in message})
        assert results[0] == results[1]
