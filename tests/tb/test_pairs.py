"""What ran on the RTL beside what the model plays: who belongs together, and the first that differs."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.ir.schedule import Gemm, Schedule
from meshloom.sched.model.timeline import Executed
from meshloom.tb.compare.records import first_divergence, pair
from meshloom.tb.devices.readout import Record

from .layer_runs import CHIP


def record(tag: int, start: int, end: int, tile: int = 1, opcode: Opcode = Opcode.GEMM) -> Record:
    return Record(tile, Unit.MATRIX, opcode, tag, 0, 0, start, end)


def executed(tag: int, start: int, end: int, tile: int = 1, opcode: Opcode = Opcode.GEMM) -> Executed:
    return Executed(tile, Unit.MATRIX, opcode, tag, 0, start, end)


SCHEDULE = Schedule(
    chip="tiny",
    chip_digest=CHIP.digest,
    workload="t",
    scheduler="t",
    operations=tuple(Gemm(core=1, fields={}, label=f"gemm {i}") for i in range(3)),
)


def test_pairs_are_found_by_tile_unit_opcode_and_tag() -> None:
    records = [record(2, 20, 30), record(1, 5, 9), record(1, 7, 9, tile=17), record(3, 40, 44)]
    model = [executed(1, 7, 9, tile=17), executed(1, 5, 9), executed(2, 20, 30), executed(9, 1, 2)]
    pairs = pair(records, model)
    assert [(p.measured.tag, p.measured.tile) for p in pairs] == [(1, 1), (1, 17), (2, 1)]  # no partner: left out
    assert not any(p.differs for p in pairs)
    assert first_divergence(pairs, SCHEDULE, {}) is None


def test_tags_that_come_again_are_paired_in_turn() -> None:
    pairs = pair([record(1, 50, 60), record(1, 5, 9)], [executed(1, 5, 9), executed(1, 51, 60)])
    assert [(p.measured.start, p.predicted.start) for p in pairs] == [(5, 5), (50, 51)]
    divergence = first_divergence(pairs, SCHEDULE, {1: 2})
    assert divergence is not None
    assert (divergence.operation, divergence.label, divergence.measured_start, divergence.predicted_start) == (
        2,
        "gemm 2",
        50,
        51,
    )


@pytest.mark.parametrize(("start", "end"), [(21, 30), (20, 31), (19, 30)])
def test_one_cycle_is_a_divergence_and_the_earliest_is_named(start: int, end: int) -> None:
    records = [record(1, 5, 9), record(2, start, end), record(3, 40, 50)]
    pairs = pair(records, [executed(1, 5, 9), executed(2, 20, 30), executed(3, 41, 50)])
    divergence = first_divergence(pairs, SCHEDULE, {1: 0, 2: 1, 3: 2})
    assert divergence is not None
    assert (divergence.tag, divergence.operation, divergence.label) == (2, 1, "gemm 1")
    assert (
        divergence.measured_start,
        divergence.measured_end,
        divergence.predicted_start,
        divergence.predicted_end,
    ) == (
        start,
        end,
        20,
        30,
    )


# -- networks -----------------------------------------------------------------------------------------------------
