"""A chip without what it may leave out runs as ever, refuses what it lacks, and says what it cannot say."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from meshloom.hw.assembly.regions import memory_regions, readable_regions, writable_regions
from meshloom.hw.spec.config import ChipConfig, TileKind, VectorOperation, load
from meshloom.hw.spec.isa import Cause, Opcode, Region, Unit, VectorOp, units_of, vector_ops
from meshloom.sched.checker.accesses import region_words
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir import bodies
from meshloom.sched.ir.schedule import Move, Vec
from meshloom.sched.ir.validation import ScheduleError, validate
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.mapping.emit.fields import check_units
from meshloom.sched.mapping.nodes import issuer_for
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.sched.workload.catalog import find
from meshloom.tb.compare.explain import explain
from meshloom.tb.devices.interface import Fault, Job, Run
from meshloom.tb.devices.registry import find as find_device
from meshloom.tb.results.schema import Status
from meshloom.tb.runs.kinds.layers import LayerRun
from meshloom.tb.runs.runner import prepare
from meshloom.tb.verify.fuzz.samples import FuzzSample, OmittedError, ProgramKind, SampleKey, difference, draw

#: What a chip may leave out.
LEAST: dict[str, Any] = {
    "trace_records": 0, "reports": False, "fire_times": False, "memory_streams": False, "boot_host": True,
}  # fmt: skip
VALUES: dict[str, Any] = {
    "name": "least", "lanes": 4, "floorplan": ["dram core host"], "ring_instructions": 16, "semaphores": 16,
    "core": {"a_words": 512, "b_words": 512, "acc_words": 128, "out_words": 256, "vec_words": 256, "vec_ops": []},
    "dram": {"words": 16384, "bytes_per_cycle": 4, "latency": 4},
}  # fmt: skip
CHIP = ChipConfig.model_validate(VALUES | LEAST)
WORKLOADS = ["gemm:12x9x7", "conv:7x7x5-6,k3,p1"]


def changed(**changes: Any) -> ChipConfig:
    return ChipConfig.model_validate(CHIP.model_dump(mode="json") | {"name": "changed"} | changes)


def prepared(chip: ChipConfig, workload: str) -> LayerRun:
    run = prepare(find(workload)[0], chip, "loop_order:effort=0.01")
    assert isinstance(run, LayerRun)
    return run


def stopped(cause: Cause) -> Run:
    return Run(500, Fault(cause, CHIP.cores[0], Unit.NONE, 0, 0), [], [], {}, 1.0, "somewhere", quiet=400)


# -- what is not there -------------------------------------------------------------------------------------------------


def test_a_core_without_a_vector_unit() -> None:
    assert (vector_ops(CHIP.core), units_of(CHIP, TileKind.CORE)) == ((), (Unit.MOVER, Unit.MATRIX))
    for regions in (memory_regions, readable_regions, writable_regions):
        assert not {Region.VEC, Region.RING_VECTOR} & regions(CHIP, TileKind.CORE).keys()
    assert region_words(CHIP, CHIP.cores[0], Region.VEC, "src") == 0
    table = changed(core={"vec_ops": [], "vec_table": True})
    assert (vector_ops(table.core), table.core.has_vector) == ((VectorOp.TABLE,), True)


def test_memories_without_streams_and_a_host_that_only_boots() -> None:
    assert [units_of(CHIP, kind) for kind in (TileKind.DRAM, TileKind.SPM)] == [(), ()]
    assert units_of(CHIP, TileKind.HOST) == units_of(load("tiny"), TileKind.SPM) == (Unit.MOVER,)
    assert writable_regions(CHIP, TileKind.DRAM).keys() == {Region.MAIN}
    assert readable_regions(CHIP, TileKind.HOST) == {}
    assert [region_words(CHIP, tile, Region.STATS, "src") > 0 for tile in (CHIP.host, CHIP.cores[0])] == [False, True]


def test_operations_are_the_same_chip_in_any_order() -> None:
    one, other = (changed(core={"vec_ops": ops}) for ops in (["max", "add"], ["add", "max"]))
    assert (one, one.digest) == (other, other.digest)
    assert changed(core={}).core.vec_ops == load("tiny").core.vec_ops == tuple(VectorOperation)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"core": {"vec_ops": ["add", "add"]}}, r"names an operation twice \(add, add\); name each once"),
        ({"core": {"vec_ops": ["max"], "vec_whole": True}}, r"vec_whole = true without mac, sum in vec_ops: .*; add"),
        ({"core": {"vec_ops": [], "operand_sources": True}}, "operand_sources = true without a vector unit, by"),
        ({"trace_records": 16}, "boot_host = true with trace_records = 16: nobody could read what the host's tile"),
        ({"reports": True, "programs": 1}, "boot_host = true with programs = 1: a host that launches programs does"),
        (
            {"trace_records": 16, "boot_host": False, "floorplan": ["dram core host dtt"]},
            'fire_times = false on a floorplan with a "dtt" tile, whose programs are nothing but times',
        ),
        ({"programs": 1}, "programs = 1 with reports = false: whose program has failed is known by reports; set"),
    ],
)  # fmt: skip
def test_what_excludes_each_other(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        changed(**changes)


# -- what is refused ---------------------------------------------------------------------------------------------------


class _NamedLayer(NamedTuple):
    kind: str
    output: str
    by: str | None = None


def test_layers_that_need_operations_are_refused_with_the_mend() -> None:
    layers = _NamedLayer("conv", "a"), _NamedLayer("max_pool", "b"), _NamedLayer("table", "c")
    what = "layer b needs MAX, and cores of least have none; layer c needs a table, and cores of least have none; "
    mend = "take another chip, or set core.vec_ops = ['max'] and core.vec_table = true in its file (or with --set "
    with pytest.raises(DoesNotFit, match=re.escape(f"{what}{mend}core.vec_ops=[max] --set core.vec_table=true)")):
        check_units(layers, CHIP)
    check_units(layers[:1], CHIP)
    with pytest.raises(DoesNotFit, match=re.escape("(or with --set core.vec_ops=[max,add])")):
        check_units(layers[:2], changed(core={"vec_ops": ["add"]}))


def test_a_schedule_and_a_program_with_one_are_refused() -> None:
    """The schedule by its operation; the program by its stream, which no unit of the core has."""
    fields = bodies.vec(op=VectorOp.ADD, scale=1)
    adds = changed(core={"vec_ops": ["max"]})
    schedule = prepared(CHIP, WORKLOADS[0]).schedule
    operations = (*schedule.operations, Vec(core=CHIP.cores[0], fields=fields))
    odd = schedule.model_copy(update={"operations": operations, "predicted": None})
    with pytest.raises(
        ScheduleError, match=r"VEC ADD: the cores of least have no such operation; add 'add' to core\.vec_ops"
    ):
        validate(odd, CHIP)
    for chip, message in (
        (CHIP, "a core tile has no vector unit"),
        (adds, "cores of changed have no ADD: it is not among"),
    ):
        stream = Stream(chip.cores[0], Unit.VECTOR, chip.drams[0], 512, (Instruction(Opcode.VEC, fields),))
        boot = Stream(chip.host, Unit.MOVER, chip.drams[0], 1024, (Instruction(Opcode.END),))
        with pytest.raises(CheckError, match=message):
            check(Program(chip.digest, (stream,), boot, {}), chip)


def test_a_memory_issues_nothing_and_nothing_is_timed() -> None:
    schedule = prepared(CHIP, WORKLOADS[0]).schedule
    operations = tuple(
        op.model_copy(update={"issuer": op.src.tile}) if isinstance(op, Move) else op for op in schedule.operations
    )
    odd = schedule.model_copy(update={"operations": operations, "predicted": None})
    with pytest.raises(
        ScheduleError, match="has no mover stream on least, where memories do what cores ask of them; let"
    ):
        validate(odd, CHIP)
    code = Instruction(Opcode.SYNC, {"fire_at": 900}), Instruction(Opcode.END)
    program = Program(CHIP.digest, (), Stream(CHIP.host, Unit.MOVER, CHIP.drams[0], 1024, code), {})
    with pytest.raises(CheckError, match="fire_at = 900; it must be 0: fire_times is off in least"):
        check(program, CHIP)
    sends = Stream(CHIP.drams[0], Unit.MOVER, CHIP.drams[0], 512, code[:1])
    with pytest.raises(CheckError, match="a dram tile has no mover unit"):
        check(replace(program, streams=(sends,)), CHIP)


def test_what_several_wait_for_is_told_by_streams_that_there_are() -> None:
    """Of what is delivered to a memory without a stream, one of those that wait tells the others."""
    chip = changed(floorplan=["dram core spm", "host core spm"], spm_words=600)
    for seed in range(12):
        sample = draw(SampleKey(ProgramKind.SCHEDULE, seed, 20), chip)  # it has been checked
        assert {chip.tiles[stream.tile] for stream in sample.job.program.streams} == {TileKind.CORE}


@pytest.mark.parametrize("scheduler", ["loop_order:effort=0.01", "flexer:budget=20k"])
def test_schedulers_that_fill_scratchpads_let_cores_do_it(scheduler: str) -> None:
    chip = changed(floorplan=["dram core spm", "host core spm"], spm_words=600)
    item = prepare(find("gemm:24x24x24")[0], chip, scheduler)
    assert isinstance(item, LayerRun)
    moves = [op for op in item.schedule.operations if isinstance(op, Move)]
    assert {chip.tiles[move.issuer] for move in moves} == {TileKind.CORE}
    assert any(move.dst.tile in chip.spms for move in moves)
    assert {issuer_for(chip, bank) for bank in chip.spms} == set(chip.cores)
    assert issuer_for(load("tiny"), load("tiny").spms[0]) == load("tiny").spms[0]


# -- what cannot be said -----------------------------------------------------------------------------------------------


def test_a_fault_names_its_tile_and_the_mend() -> None:
    said = Fault(Cause.UNREPORTED, CHIP.cores[0], Unit.NONE, 0, 0).describe(CHIP)
    assert said == "a fault in core@(1,0); which one, chip least does not tell: set reports = true in its file"
    item = prepared(CHIP, WORKLOADS[0])
    assert item.row(stopped(Cause.UNREPORTED), CHIP).status is Status.FAULT


def test_a_hang_says_that_nobody_knows_why() -> None:
    item = prepared(CHIP, WORKLOADS[0])
    said = explain(stopped(Cause.STALLED), item.program, item.schedule, CHIP)
    assert said.endswith("; what its parts wait for, chip least does not tell: set reports = true in its file")


# -- on the RTL --------------------------------------------------------------------------------------------------------


def damaged(job: Job, chip: ChipConfig) -> Job:
    """With streams of cores that begin with a wait for a semaphore that no tile has."""

    def waiting(stream: Stream) -> Stream:
        first, *others = stream.instructions
        first = replace(first, fields=first.fields | {"wait_sem": 40, "wait_n": 1})
        return replace(stream, instructions=(first, *others)) if stream.tile in chip.cores else stream

    return replace(job, program=replace(job.program, streams=tuple(map(waiting, job.program.streams))))


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_it_takes_the_cycles_of_the_model(simulator: str) -> None:
    """Gated in Verilator, not gated in Icarus. Then a fault, of which it says the tile, and a run after that."""
    items = [prepared(CHIP, workload) for workload in WORKLOADS]
    jobs = [item.job(CHIP) for item in items]
    *runs, faulty, last = find_device(simulator).open(CHIP, False, print).run([*jobs, damaged(jobs[0], CHIP), jobs[0]])
    for item, run in zip([*items, items[0]], [*runs, last], strict=True):
        row = item.row(run, CHIP)
        assert (row.status, row.rtl_cycles, row.mismatches) == (Status.PASSED, item.timeline.cycles, 0), row.reason
    assert faulty.fault == Fault(Cause.UNREPORTED, CHIP.cores[0], Unit.NONE, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("ops", [(), ("max", "requant", "pair")])
def test_random_programs_take_the_cycles_of_the_model(ops: tuple[str, ...]) -> None:
    """Bytes, too, where a program is a schedule."""
    spm = {"floorplan": ["dram core", "host spm"], "spm_words": 600, "core": {**VALUES["core"], "vec_ops": ops}}
    chip = changed(**spm)
    samples: list[FuzzSample] = []
    for seed in range(60):
        kind = ProgramKind.SCHEDULE if seed % 3 == 0 else ProgramKind.PROGRAM
        with suppress(OmittedError):
            samples.append(draw(SampleKey(kind, seed, 8 + seed % 16), chip))
    assert len(samples) > 20
    runs = list(find_device("verilator").open(chip, False, print).run([sample.job for sample in samples]))
    assert [difference(sample, run, chip) for sample, run in zip(samples, runs, strict=True)] == [""] * len(samples)


def test_a_controller_has_its_stream_where_memories_have_none() -> None:
    ahead = load("ahead8")
    chip = ChipConfig.model_validate(ahead.model_dump(mode="json") | {"name": "changed", "memory_streams": False})
    item = prepare(find("gemm:16x16x16")[0], chip, "dtt")
    assert isinstance(item, LayerRun)
    check_program(item.program, chip, item.schedule)
    for kind, units in ((TileKind.DTT, (Unit.MOVER,)), (TileKind.DRAM, ()), (TileKind.SPM, ())):
        assert units_of(chip, kind) == units
