"""Workloads of one layer, however they are scheduled: the job for the device, and the row of its run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm, Schedule
from meshloom.sched.model.timeline import Executed
from meshloom.sched.schedulers.network.limits import limit

from ..compare import mismatch, records
from ..compare.arrivals import arrivals
from ..compare.completeness import completeness
from ..devices.interface import Job, Run
from ..devices.readout import Record
from ..results.figures import ArrayFigures
from ..results.schema import Row
from . import network
from .kinds.interface import MARGIN, PATIENCE, PlannedWorkload


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of arrays, by name."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return sha.hexdigest()


def job_of(plan: PlannedWorkload, arrays: Mapping[str, NDArray[Any]], chip: ChipConfig) -> Job:
    """The job for the device: packed tensors by name, locations of outputs, and the watchdog."""
    memory, outputs = network.places(plan.schedule, arrays, chip.lanes)
    return Job(plan.program, memory, outputs, PATIENCE * plan.timeline.cycles + MARGIN)


def arrays_used(
    schedule: Schedule, ran: Sequence[Record | Executed], macs: int, chip: ChipConfig
) -> ArrayFigures | None:
    """How a layer of `macs` used the arrays, by the records of its GEMMs; None without any."""
    gemms = [record for record in ran if record.opcode is Opcode.GEMM]
    if not gemms:
        return None
    spans = 0
    for core in {record.tile for record in gemms}:
        mine = [record for record in gemms if record.tile == core]
        spans += max(record.end for record in mine) - min(record.start for record in mine)
    fed = sum(
        gemm_occupancy(chip, GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"]))
        for op in schedule.operations
        if isinstance(op, Gemm)
    )
    pes = chip.rows * chip.cols
    return ArrayFigures(
        limit=limit(schedule, chip),
        span_cycles=spans,
        fed_cycles=fed,
        within=min(1.0, macs / (pes * spans)),
        edges=min(1.0, macs / (pes * fed)),
    )


def row_of(
    plan: PlannedWorkload,
    macs: int,
    golden: Callable[[str], NDArray[Any]],
    run: Run,
    chip: ChipConfig,
    detailed: bool = True,
    **more: Any,
) -> Row:
    """A row about a workload of one layer. `macs`: its multiply-accumulates; `golden(name)`: what output tensor `name`
    must be; `detailed`: with what its arrays did; `more`: further fields."""
    schedule, program = plan.schedule, plan.program
    match = records.match(run.records, plan.timeline.executed, program)
    checked = wrong = place = 0
    first = None
    for tensor in schedule.tensors if run.fault is None else ():
        if tensor.role != "output":
            continue
        # whole words are compared: lanes without a channel must be zero
        expected = tensor.layout.pack(golden(tensor.name), chip.lanes)
        got = np.concatenate(run.memory[place : place + len(tensor.pieces)])
        place += len(tensor.pieces)
        checked, wrong = checked + int(expected.size), wrong + int(np.count_nonzero(expected != got))
        first = first or mismatch.in_dram(tensor, expected, got, mismatch.Makers(schedule, program, match), chip)
    faults = records.fault_reports(run, program, schedule, chip)
    peak = chip.rows * chip.cols * len(chip.cores) * max(1, run.cycles)
    traced = completeness(match, run, program, schedule, chip)
    whole = not (faults or traced.get("record_problem") or traced.get("untraced"))
    return Row(
        workload=plan.name,
        chip=chip.name,
        scheduler=schedule.scheduler,
        simulator=run.simulator,
        rtl_cycles=run.cycles,
        model_cycles=plan.timeline.cycles,
        utilisation=min(1.0, macs / peak),
        bytes_checked=checked,
        mismatches=wrong,
        first_mismatch="" if first is None else mismatch.described(first, chip),
        wrong_byte=first,
        faults=len(faults),
        fault_reports=faults,
        instructions=program.instructions,
        cpu_seconds=run.cpu_seconds,
        arrays=arrays_used(schedule, run.records, macs, chip) if detailed and whole else None,
        claim=schedule.claim,
        **traced,
        **arrivals(program, run, chip),
        first_divergence=records.first_divergence(match.pairs, schedule, program.operation_of_tag, program),
        **more,
    )
