"""A wrong byte of a layer names its place, and the instructions that made it; on the RTL, with programs and constants
that are not those of the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.sched.ir import functional
from meshloom.sched.ir.schedule import Gemm, Move, Operation, Schedule, Span
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program.program import Instruction, Program
from meshloom.sched.workload import catalog
from meshloom.tb.build.builder import build
from meshloom.tb.compare import mismatch
from meshloom.tb.compare.records import Match
from meshloom.tb.devices.interface import FILL, Run
from meshloom.tb.devices.simulated import VERILATOR, SimulatedDevice
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.report.junit import junit
from meshloom.tb.results.figures import Maker, WrongByte
from meshloom.tb.results.recorder import Recorder
from meshloom.tb.results.schema import Row, Status
from meshloom.tb.results.schema import load as load_results
from meshloom.tb.runs import runner
from meshloom.tb.runs.kinds import layers
from meshloom.tb.runs.kinds.layers import LayerRun

CHIP = load("tiny")
SPM = CHIP.spms[0]
NAME = "conv:7x7x5-6,k3,p1"


@pytest.fixture(scope="module")
def prepared() -> LayerRun:
    return runner.prepare(catalog.find(NAME)[0], CHIP, "loop_order")


def place_of(prepared: LayerRun, operation: int) -> tuple[int, Unit, int]:
    """Tile, unit and index of the instruction that an operation is, by its tag."""
    ((place),) = [
        (stream.tile, stream.unit, index)
        for stream in prepared.program.streams
        for index, each in enumerate(stream.instructions)
        if each.fields["tag"] == operation + 1 and each.opcode in (Opcode.MOVE, Opcode.GEMM, Opcode.VEC)
    ]
    return place


def with_fields(prepared: LayerRun, operation: int, **fields: int) -> Program:
    """The program with other fields in one of its instructions."""
    tile, unit, at = place_of(prepared, operation)
    streams = []
    for stream in prepared.program.streams:
        code = list(stream.instructions)
        if (stream.tile, stream.unit) == (tile, unit):
            code[at] = Instruction(code[at].opcode, code[at].fields | fields)
        streams.append(replace(stream, instructions=tuple(code)))
    return replace(prepared.program, streams=tuple(streams))


def results(schedule: Schedule) -> list[int]:
    """The GEMMs that compute results, not partial sums."""
    return [number for number, op in enumerate(schedule.operations) if isinstance(op, Gemm) and not op["to_acc"]]


def stores(schedule: Schedule) -> list[int]:
    """The MOVEs to DRAM."""
    result = enumerate(schedule.operations)
    return [number for number, op in result if isinstance(op, Move) and op.dst.tile in CHIP.drams]


@pytest.fixture(scope="module")
def runs(prepared: LayerRun) -> dict[str, Run]:
    job = prepared.job(CHIP)
    gemm, store = results(prepared.schedule)[-1], stores(prepared.schedule)[0]
    scale = prepared.schedule.operations[gemm]
    moved = prepared.schedule.operations[store]
    assert isinstance(scale, Gemm)
    assert isinstance(moved, Move)
    weights = prepared.schedule.tensor("w").pieces[0]
    memory = []
    for tile, at, words in job.memory:
        words = words.copy()
        if (tile, at) == (weights.tile, weights.address & 0xFFFFFF):
            words[1 - CHIP.cols] ^= 0x55  # of the last output channel: the last two columns of the array have none
        memory.append((tile, at, words))
    far = moved.dst.address + CHIP.dram.words // 2
    jobs = {
        "good": job,
        "scale": replace(job, program=with_fields(prepared, gemm, scale=scale["scale"] // 2)),
        "source": replace(job, program=with_fields(prepared, store, src=moved.src.address + 1)),
        "lost": replace(job, program=with_fields(prepared, store, dst=far)),
        "weight": replace(job, memory=memory),
    }
    return dict(zip(jobs, SimulatedDevice(build(CHIP)).run(list(jobs.values()), "wrong"), strict=True))


@pytest.fixture(scope="module")
def rows(prepared: LayerRun, runs: dict[str, Run]) -> dict[str, Row]:
    return {name: prepared.row(run, CHIP) for name, run in runs.items()}


def test_a_row_without_details_is_judged_the_same(
    prepared: LayerRun, runs: dict[str, Run], rows: dict[str, Row]
) -> None:
    for name, run in runs.items():
        assert prepared.row(run, CHIP, detailed=False) == rows[name].model_copy(update={"arrays": None})
    assert rows["good"].arrays is not None


def wrong_in(row: Row) -> WrongByte:
    assert row.status is Status.MISMATCH
    assert row.wrong_byte is not None
    return row.wrong_byte


def arrays(prepared: LayerRun, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The layer's output as it must be and as it is, [image, channel, row, column]."""
    tensor = prepared.schedule.tensor("y")
    return golden(prepared.subject.data()), tensor.layout.unpack(np.concatenate(run.memory))


def check_place(prepared: LayerRun, run: Run, row: Row) -> WrongByte:
    """Coordinates, values and address are those of a byte that is wrong, and no byte before it is."""
    byte = wrong_in(row)
    right, got = arrays(prepared, run)
    at = byte.image, byte.channel, byte.row, byte.column
    assert (right[at], got[at]) == (byte.expected, byte.found)
    wrong = right != got
    assert byte.count == row.mismatches == np.count_nonzero(wrong), "lanes without a channel are right"
    block = CHIP.lanes
    in_order = [
        (image, first // block, y, x, first % block)
        for image, first, y, x in zip(*(axis.tolist() for axis in np.nonzero(wrong)), strict=True)
    ]
    assert byte.channel is not None
    assert min(in_order) == (byte.image, byte.channel // block, byte.row, byte.column, byte.lane)
    return byte


def check_maker(prepared: LayerRun, run: Run, maker: Maker, operation: int) -> None:
    """It is this operation, its instruction, and the cycles in which it ran."""
    op = prepared.schedule.operations[operation]
    tile, unit, index = place_of(prepared, operation)
    assert (maker.operation, maker.label) == (operation, op.label)
    assert (maker.tile, maker.unit, maker.index) == (tile, unit.name.lower(), index)
    assert maker.executed_by == (op.src.tile if isinstance(op, Move) else op.core)
    (record,) = [
        record
        for record in run.records
        if (record.tile, record.tag, record.opcode.name) == (maker.executed_by, operation + 1, maker.opcode)
        and record.end - record.start > 1
    ]
    assert (maker.start, maker.end) == (record.start, record.end)


def test_a_good_run_has_no_wrong_byte(rows: dict[str, Row]) -> None:
    row = rows["good"]
    assert (row.status, row.wrong_byte, row.first_mismatch) == (Status.PASSED, None, "")


def test_a_gemm_with_a_wrong_scale_is_named(prepared: LayerRun, runs: dict[str, Run], rows: dict[str, Row]) -> None:
    row, run = rows["scale"], runs["scale"]
    byte = check_place(prepared, run, row)
    gemm = results(prepared.schedule)[-1]
    store, maker = byte.makers
    check_maker(prepared, run, maker, gemm)
    assert store.opcode == "MOVE"
    check_maker(prepared, run, store, store.operation)
    assert maker.start is not None
    assert store.end is not None
    assert maker.start < store.end
    text = (
        f"y: {row.mismatches} wrong bytes, first in channel {byte.channel}, row {byte.row}, column {byte.column}: "
        f"is {byte.found}, must be {byte.expected} (dram@(0,0) word {byte.address}, lane {byte.lane}); computed by "
        f"GEMM {maker.label!r} (core@(1,0) matrix stream [{maker.index}], cycles {maker.start}..{maker.end}), moved by "
        f"MOVE {store.label!r} (core@(1,0) mover stream [{store.index}], cycles {store.start}..{store.end})"
    )
    assert row.first_mismatch == text
    assert row.reason == f"{row.mismatches} of {row.bytes_checked} bytes differ from the golden model, first in {text}"


def test_a_store_of_the_wrong_words_is_named(prepared: LayerRun, runs: dict[str, Run], rows: dict[str, Row]) -> None:
    byte = check_place(prepared, runs["source"], rows["source"])
    check_maker(prepared, runs["source"], byte.makers[0], stores(prepared.schedule)[0])
    assert not byte.unwritten


def test_a_store_to_somewhere_else_is_named(prepared: LayerRun, runs: dict[str, Run], rows: dict[str, Row]) -> None:
    """The word is as it was before the run: what should have written it is known from the schedule."""
    byte = wrong_in(rows["lost"])
    assert byte.unwritten
    assert byte.found == np.uint8(FILL).view(np.int8)
    check_maker(prepared, runs["lost"], byte.makers[0], stores(prepared.schedule)[0])
    assert "; nothing has been written there; computed by " in rows["lost"].first_mismatch


def test_a_wrong_weight_names_its_channel(prepared: LayerRun, runs: dict[str, Run], rows: dict[str, Row]) -> None:
    byte = check_place(prepared, runs["weight"], rows["weight"])
    right, got = arrays(prepared, runs["weight"])
    assert set(np.nonzero(right != got)[1].tolist()) == {byte.channel} == {right.shape[1] - 1}
    check_maker(prepared, runs["weight"], byte.makers[-1], byte.makers[-1].operation)
    assert byte.makers[-1].operation in results(prepared.schedule)


def test_terminal_json_and_junit_name_it(rows: dict[str, Row], tmp_path: Any) -> None:
    recorder = Recorder("tiny-loop_order-verilator", VERILATOR.tools(), tmp_path)
    recorder.add(rows["scale"])
    result = recorder.finish(complete=True)
    assert load_results(recorder.path).rows[0].wrong_byte == rows["scale"].wrong_byte
    assert rows["scale"].first_mismatch in result.summary.reasons[0]
    assert "computed by GEMM " in junit(result)


# -- the way back, without the chip ----------------------------------------------------------------------------------


def through_scratchpad(schedule: Schedule) -> Schedule:
    """The same schedule, but each store leaves its words in the scratchpad first, packed, and fetches them there."""
    operations: list[Operation] = []
    at = address(Region.MAIN, CHIP.spm_words // 2)
    for op in schedule.operations:
        if not isinstance(op, Move) or op.dst.tile not in CHIP.drams:
            operations.append(op)
            continue
        there = Span(tile=SPM, address=at, run=op.words)
        at += op.words
        operations.append(op.model_copy(update={"dst": there, "label": f"{op.label} out"}))
        operations.append(op.model_copy(update={"issuer": SPM, "src": there, "label": f"{op.label} on"}))
    return schedule.model_copy(update={"operations": tuple(operations)})


@pytest.mark.parametrize(
    ("chip", "scheduler", "name", "steps"),
    [
        ("tiny", "loop_order", "conv:9x9x12-10,k3,p1", 2),
        ("tiny", "loop_order", "conv:9x9x12-10,k3,p1", 3),
        ("ahead8", "dtt", "conv:9x9x12-20,k3,p1", 2),
    ],
)
def test_whatever_gemm_is_wrong_is_the_one_that_is_named(chip: str, scheduler: str, name: str, steps: int) -> None:
    """Each GEMM in turn requantises with another scale, and the functional executor says what comes of it."""
    config = load(chip)
    run = runner.prepare(catalog.find(name)[0], config, scheduler)
    if steps == 3:
        longer = through_scratchpad(run.schedule)
        run = replace(run, planned=replace(run.planned, schedule=longer, program=lower(longer, config)))
    result = layers.arrays(run.subject.data())
    tensor = run.schedule.tensor("y")
    right = tensor.layout.pack(golden(run.subject.data()), config.lanes)
    numbers = results(run.schedule)
    assert len(numbers) > 1
    for number in numbers[:12]:
        operations = list(run.schedule.operations)
        op = operations[number]
        assert isinstance(op, Gemm)
        operations[number] = op.model_copy(update={"fields": op.fields | {"scale": op["scale"] // 3}})
        altered = run.schedule.model_copy(update={"operations": tuple(operations)})
        got = tensor.layout.pack(functional.run(altered, config, result)["y"], config.lanes)
        byte = mismatch.in_dram(
            tensor, right, got, mismatch.Makers(run.schedule, run.program, Match([], [], [])), config
        )
        assert byte is not None
        assert byte.makers[-1].operation == number
        assert len(byte.makers) == steps
        for maker in byte.makers:
            stream = next(s for s in run.program.streams if (s.tile, s.unit.name.lower()) == (maker.tile, maker.unit))
            assert stream.instructions[maker.index].opcode.name == maker.opcode
            assert stream.instructions[maker.index].fields["tag"] in run.program.operation_of_tag
            assert run.program.operation_of_tag[stream.instructions[maker.index].fields["tag"]] == maker.operation
            assert maker.start is None, "there are no records"


def test_what_no_operation_writes_says_so(prepared: LayerRun) -> None:
    store = stores(prepared.schedule)
    moves = tuple(op for number, op in enumerate(prepared.schedule.operations) if number not in store)
    blind = prepared.schedule.model_copy(update={"operations": moves})
    tensor = blind.tensor("y")
    right = tensor.layout.pack(golden(prepared.subject.data()), CHIP.lanes)
    got = np.full_like(right, FILL)
    got[:3] = right[:3]
    byte = mismatch.in_dram(tensor, right, got, mismatch.Makers(blind, prepared.program, Match([], [], [])), CHIP)
    assert byte is not None
    assert (byte.makers, byte.unwritten) == ((), True)
    assert byte.address == (tensor.pieces[0].address & 0xFFFFFF) + 3
    text = mismatch.described(byte, CHIP)
    assert text.endswith("; nothing has been written there; no operation of the schedule writes it")


def test_lanes_without_a_channel_are_told(prepared: LayerRun) -> None:
    """6 channels in words of 4: the second block has two lanes that hold none."""
    tensor = prepared.schedule.tensor("y")
    right = tensor.layout.pack(golden(prepared.subject.data()), CHIP.lanes)
    got = right.copy()
    got[7 * 7 + 9, 3] = 1
    byte = mismatch.in_dram(
        tensor, right, got, mismatch.Makers(prepared.schedule, prepared.program, Match([], [], [])), CHIP
    )
    assert byte is not None
    assert (byte.image, byte.channel, byte.row, byte.column, byte.lane) == (0, None, 1, 2, 3)
    assert "first in no channel, row 1, column 2: is 1, must be 0" in mismatch.described(byte, CHIP)
