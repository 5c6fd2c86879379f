"""Layers on a chip's RTL, as `meshloom run` runs them, with what each step of the way costs."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from meshloom.hw.spec.isa import Opcode

from ...devices.readout import Record
from ...results.schema import Row
from ..engine.point import Report

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ...runs.kinds.layers import LayerRun

#: Layers of fewer cycles take milliseconds: they run so many times, and the fastest run counts.
SHORT_CYCLES, REPEATS = 20_000, 3


@dataclass(frozen=True)
class LayerCost:
    """One layer: its row, and CPU-seconds for the schedule (with lowering, checking, predicting) and for the golden
    model (with comparing). `array_cycles`: from the first start to the last end of all GEMMs."""

    row: Row
    schedule_seconds: float
    golden_seconds: float
    array_cycles: int


@dataclass(frozen=True)
class Batch:
    """Layers run in one simulator process. `process_seconds`: that process's CPU time, start and loading included."""

    layers: tuple[LayerCost, ...]
    process_seconds: float


def run_layers(
    names: Sequence[str], chip: str | ChipConfig, report: Report, scheduler: str = "loop_order", times: int = 1
) -> Batch:
    """Runs layers one after another on a chip (or the one of that name), nothing beside them, so that CPU times disturb
    each other as little as can be. Each runs at least so many `times`; the fastest run counts."""
    from meshloom.hw.spec.config import load
    from meshloom.sched.workload.catalog import find

    from ...devices.simulated import VERILATOR
    from ...inputs.golden import layer  # its imports are no layer's cost
    from ...runs import runner

    assert layer
    config = load(chip) if isinstance(chip, str) else chip
    device = VERILATOR.open(config, False, report)
    ready: list[LayerRun] = []
    spent: list[float] = []
    for name in names:
        for workload in find(name):
            report(f"scheduling {workload.name}")
            before = time.process_time()
            ready.append(runner.prepare(workload, config, scheduler))
            spent.append(time.process_time() - before)
    report(f"simulating {len(ready)} layers")
    children = _children()
    layers: list[LayerCost] = []
    repeats = [max(times, REPEATS if prepared.timeline.cycles < SHORT_CYCLES else 1) for prepared in ready]
    jobs = [prepared.job(config) for prepared, count in zip(ready, repeats, strict=True) for _ in range(count)]
    runs = device.run(jobs, "bench")
    for prepared, seconds, count in zip(ready, spent, repeats, strict=True):
        result = min(islice(runs, count), key=lambda run: run.cpu_seconds)
        before = time.process_time()
        row = prepared.row(result, config)
        layers.append(LayerCost(row, seconds, time.process_time() - before, array_span(result.records)))
    for _ in runs:  # lets the process end: only then is its CPU time known
        raise AssertionError("more runs than jobs")
    return Batch(tuple(layers), _children() - children)


def array_span(records: Sequence[Record]) -> int:
    """Cycles from the first start to the last end of all GEMMs of a run; 0 when there are none."""
    gemms = [record for record in records if record.opcode is Opcode.GEMM]
    if not gemms:
        return 0
    return max(record.end for record in gemms) - min(record.start for record in gemms)


def _children() -> float:
    """CPU-seconds of all processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
