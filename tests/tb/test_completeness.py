"""A row says whether every instruction was compared with the model: what is missing, too much or of something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshloom.hw.spec.config import load
from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Unit
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Instruction, Program, Stream, place
from meshloom.sched.workload import catalog
from meshloom.tb.build.builder import build
from meshloom.tb.compare.completeness import completeness
from meshloom.tb.compare.records import match
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.simulated import VERILATOR, SimulatedDevice
from meshloom.tb.report.junit import junit
from meshloom.tb.results.recorder import Recorder
from meshloom.tb.results.schema import Row, Settings, Status
from meshloom.tb.runs import runner
from meshloom.tb.runs.batch import simulate
from meshloom.tb.runs.kinds.layers import LayerRun
from meshloom.tb.runs.options import RunOptions

CHIP = load("tiny")
CORE, DRAM = CHIP.cores[0], CHIP.drams[0]
Code = tuple[Instruction, ...]


@pytest.fixture(scope="module")
def prepared() -> LayerRun:
    return runner.prepare(catalog.find("gemm:5x6x7")[0], CHIP, "loop_order")


def changed(program: Program, change: Callable[[Stream], Code], streams: int | None = None) -> Program:
    """The program with other code in its streams; its boot stream waits for the end of `streams` of them."""
    codes = {(stream.tile, stream.unit): change(stream) for stream in program.streams}
    first = min(stream.address for stream in (*program.streams, program.boot))
    placed, boot = place(codes, {DRAM: first}, CHIP)
    if streams is not None:
        *fetches, _, end = boot.instructions
        wait = [Instruction(Opcode.SYNC, {"wait_n": streams, "tag": len(fetches) + 1})] * bool(streams)
        boot = replace(boot, instructions=(*fetches, *wait, end))
    return replace(program, streams=placed, boot=boot)


def in_stream(unit: Unit, change: Callable[[Code], Code]) -> Callable[[Stream], Code]:
    def changing(stream: Stream) -> Code:
        return change(stream.instructions) if stream.unit is unit and stream.tile == CORE else stream.instructions

    return changing


def other_tag(code: Code) -> Code:
    last = code[-1]
    return *code[:-1], replace(last, fields=last.fields | {"tag": 999})


@pytest.fixture(scope="module")
def programs(prepared: LayerRun) -> dict[str, Program]:
    """Programs of which the model knows another: what the last instructions do not change are the bytes."""
    whole, streams = prepared.program, len(prepared.program.streams)
    idle = Instruction(Opcode.SYNC, {"tag": 777})
    return {
        "good": whole,
        "ends early": changed(whole, lambda stream: stream.instructions, streams=0),
        "good again": whole,
        # the matrix stream does not say that it has ended, and nobody waits for it
        "one is missing": changed(whole, in_stream(Unit.MATRIX, lambda code: code[:-1]), streams - 1),
        "one too many": changed(whole, in_stream(Unit.MATRIX, lambda code: (*code[:-1], idle, code[-1]))),
        "another": changed(whole, in_stream(Unit.MATRIX, other_tag)),
    }


def job(prepared: LayerRun, program: Program) -> Job:
    return replace(prepared.job(CHIP), program=program)


@pytest.fixture(scope="module")
def runs(prepared: LayerRun, programs: dict[str, Program]) -> dict[str, Run]:
    """One after another in one process."""
    jobs = [job(prepared, program) for program in programs.values()]
    return dict(zip(programs, SimulatedDevice(build(CHIP)).run(jobs, "records"), strict=True))


@pytest.fixture(scope="module")
def rows(prepared: LayerRun, runs: dict[str, Run]) -> dict[str, Row]:
    return {name: prepared.row(run, CHIP) for name, run in runs.items()}


def count(prepared: LayerRun) -> int:
    return len(prepared.timeline.executed)


def test_all_records_of_a_good_run_are_compared(prepared: LayerRun, rows: dict[str, Row]) -> None:
    for name in ("good", "good again"):
        row = rows[name]
        assert (row.status, row.record_problem) == (Status.PASSED, "")
        assert row.records_expected == row.records_compared == count(prepared) > 10


def test_a_program_that_ends_early_says_what_has_not_run(prepared: LayerRun, rows: dict[str, Row]) -> None:
    row = rows["ends early"]
    assert row.status is Status.MISMATCH, "nothing had been written by then, and what is written later does not count"
    assert row.mismatches > row.bytes_checked / 2
    assert row.records_compared < 10
    assert row.records_expected == count(prepared)
    assert "the run ended before all was executed: END must wait for every stream" in row.record_problem
    assert "the first without a record is " in row.record_problem


def test_the_row_does_not_depend_on_what_ran_before(
    prepared: LayerRun, programs: dict[str, Program], rows: dict[str, Row]
) -> None:
    (alone,) = SimulatedDevice(build(CHIP)).run([job(prepared, programs["ends early"])])
    assert prepared.row(alone, CHIP).model_copy(update={"cpu_seconds": 0.0}) == rows["ends early"].model_copy(
        update={"cpu_seconds": 0.0}
    )


def test_one_missing_instruction_is_named_though_all_bytes_are_right(prepared: LayerRun, rows: dict[str, Row]) -> None:
    row = rows["one is missing"]
    matrix = next(stream for stream in prepared.program.streams if stream.unit is Unit.MATRIX)
    assert (row.mismatches, row.status) == (0, Status.INCOMPLETE)
    assert (row.records_compared, row.records_expected) == (count(prepared) - 1, count(prepared))
    last = len(matrix.instructions) - 1
    missing = f"the first without a record is core@(1,0) matrix stream [{last}] SYNC tag "
    assert missing in row.record_problem
    assert row.reason.startswith(
        f"the comparison with the model is incomplete, {count(prepared) - 1} of {count(prepared)} trace records were"
    )
    assert row.record_problem in row.reason


def test_one_instruction_too_many_is_no_pass(prepared: LayerRun, rows: dict[str, Row]) -> None:
    row = rows["one too many"]
    assert (row.mismatches, row.status) == (0, Status.INCOMPLETE)
    core = sum(entry.tile == CORE for entry in prepared.timeline.executed)
    assert row.record_problem.startswith(f"core@(1,0) made {core + 1} trace records, its program makes {core}; ")


def test_a_record_of_something_else_is_no_pass(prepared: LayerRun, rows: dict[str, Row]) -> None:
    row = rows["another"]
    assert (row.mismatches, row.status) == (0, Status.INCOMPLETE)
    assert (row.records_compared, row.records_expected) == (count(prepared) - 1, count(prepared))
    assert row.record_problem.startswith("core@(1,0) made a matrix record of SYNC tag 999, start ")
    assert "which was not predicted" in row.record_problem
    assert "the first without a record is core@(1,0) matrix stream [" in row.record_problem


@pytest.mark.parametrize("lost", [0, 7, -1])
def test_a_record_that_does_not_come_home_is_missed(prepared: LayerRun, runs: dict[str, Run], lost: int) -> None:
    """Whichever it is: the counts of the chip agree with the program, the records do not. Later ones of its kind have
    lost their turn."""
    run = runs["good"]
    short = replace(run, records=[record for record in run.records if record is not run.records[lost]])
    row = prepared.row(short, CHIP)
    assert row.status is Status.INCOMPLETE
    assert 0 < row.records_compared < row.records_expected
    first = run.records[lost]
    assert f"] {first.opcode.name} tag {first.tag}" in row.record_problem


def test_a_fault_says_nothing_of_records(prepared: LayerRun, runs: dict[str, Run]) -> None:
    hurried = replace(prepared.job(CHIP), watchdog=300)
    (run,) = SimulatedDevice(build(CHIP)).run([hurried])
    row = prepared.row(run, CHIP)
    assert (row.status, row.records_expected, row.records_compared, row.record_problem) == (Status.FAULT, 0, 0, "")


def test_a_trace_memory_that_is_too_small_is_an_incomplete_comparison(prepared: LayerRun) -> None:
    """All bytes and cycles are right; the row says how much was compared, which tile lost the rest, and the mend."""
    idle = CHIP.trace_records + 100
    whole = changed(
        prepared.program,
        in_stream(Unit.MATRIX, lambda code: (*(Instruction(Opcode.SYNC, {"tag": 1 + i}) for i in range(idle)), *code)),
    )
    long = replace(prepared, planned=replace(prepared.planned, program=whole, timeline=play(whole, CHIP)))
    (row,) = simulate(
        [long],
        SimulatedDevice(build(CHIP)),
        Settings(code="", scheduler="loop_order", simulator_version=""),
        lambda event: None,
        RunOptions(links=True),
    )
    assert (row.mismatches, row.error_percent, row.status) == (0, 0, Status.INCOMPLETE)
    number = sum(entry.tile == CORE for entry in long.timeline.executed)
    assert row.records_expected == len(long.timeline.executed)
    assert row.records_compared == row.records_expected - (number - CHIP.trace_records)
    assert row.record_problem.startswith(
        f"core@(1,0) made {number} trace records and keeps 4096, the others are lost; set trace_records = 8192 in chip "
        "tiny; the first without a record is core@(1,0) m"
    )
    assert row.links
    assert row.congestion is None, "which needs all records"


def test_an_ahead_of_time_program_has_as_many_records_as_are_expected() -> None:
    """Its instructions are known by their tags; the model stands in for the chip."""
    chip = load("ahead8")
    layer_run = runner.prepare(catalog.find("gemm:8x6x8")[0], chip, "dtt")
    assert layer_run.program.ahead
    result = match([], layer_run.timeline.executed, layer_run.program)
    assert len(result.absent) == len(layer_run.timeline.executed)
    run = Run(1, None, [], [], {tile: [0] for tile in chip.tiles}, 0.0, "none")
    row = completeness(result, run, layer_run.program, layer_run.schedule, chip)
    assert row.get("records_expected") == len(layer_run.timeline.executed)
    assert "the first without a record is host@" in row.get("record_problem", "")
    assert FETCH_TAG not in {entry.tag for entry in layer_run.timeline.executed}


def test_terminal_and_junit_say_it(rows: dict[str, Row]) -> None:
    recorder = Recorder("tiny-loop_order-verilator", VERILATOR.tools())
    recorder.rows.append(rows["one is missing"])
    results = recorder.results(complete=True)
    assert not results.summary.ok
    assert "is incomplete" in results.summary.reasons[0]
    text = junit(results)
    assert '<failure message="the comparison with the model is incomplete' in text
    assert 'type="incomplete"' in text
