"""Artefacts of runs that the timeline model played, as if a device had measured them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from meshloom.hw.control.trace import Counter
from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.lifted import metadata_of
from meshloom.sched.model.timeline import Executed
from meshloom.sched.program import image
from meshloom.sched.workload.catalog import find
from meshloom.tb.compare.tables import tables
from meshloom.tb.devices.interface import Run
from meshloom.tb.devices.readout import Record
from meshloom.tb.inputs.sources import NetworkSource, ready
from meshloom.tb.results import artefacts
from meshloom.tb.results.figures import NetworkFigures
from meshloom.tb.results.schema import Results, Row
from meshloom.tb.runs import network
from meshloom.tb.runs.kinds.layers import LayerRun
from meshloom.tb.runs.runner import prepare

#: What the device measured instead of what the model says.
Measured = Callable[[Executed], tuple[int, int, int]]


def as_predicted(entry: Executed) -> tuple[int, int, int]:
    """(wait, start, end) of the model."""
    return entry.wait, entry.start, entry.end


def _run(executed: list[Executed], cycles: int, chip: ChipConfig, measured: Measured) -> Run:
    records = []
    for entry in executed:
        wait, start, end = measured(entry)
        records.append(Record(entry.tile, entry.unit, entry.opcode, entry.tag, wait, 0, start, end))
    late = max(record.end for record in records) - max(entry.end for entry in executed)
    counters = {tile: [cycles // (3 + each) for each in range(len(Counter))] for tile in chip.tiles}
    return Run(cycles + late, None, [], records, counters, 1.0, "verilator")


@cache
def _prepared(workload: str, chip: ChipConfig, scheduler: str) -> LayerRun:
    return prepare(find(workload)[0], chip, scheduler)


def keep(
    folder: Path, workload: str, chip: ChipConfig, scheduler: str = "loop_order", measured: Measured = as_predicted
) -> Path:
    """The folder of a layer's artefacts, below `folder`."""
    layer_run = _prepared(workload, chip, scheduler)  # pyright: ignore[reportArgumentType]  (chips are frozen)
    run = _run(layer_run.timeline.executed, layer_run.timeline.cycles, chip, measured)
    figures = {
        "rtl_cycles": run.cycles,
        "model_cycles": layer_run.timeline.cycles,
        "bytes_checked": 1,
        "cpu_seconds": 1.0,
    }
    row = Row(workload=workload, chip=chip.name, chip_digest=chip.digest, scheduler=scheduler, simulator="verilator",
              **figures)  # fmt: skip
    values = tables(run, layer_run.timeline, layer_run.program, layer_run.schedule, chip)
    code = image.to_bytes(layer_run.program, metadata_of(layer_run.schedule))
    return artefacts.save(folder, row, chip, layer_run.schedule, code, values)


def keep_network(folder: Path, name: str, chip: ChipConfig, scheduler: str = "loop_order") -> Path:
    """The folder of a network's artefacts, below `folder`."""
    prepared = network.prepare(ready(NetworkSource(name))[0], chip, scheduler=scheduler)
    run = _run(prepared.timeline.executed, prepared.timeline.cycles, chip, as_predicted)
    layers, shares = network.figures(prepared, run, chip)
    figures = NetworkFigures(
        macs=prepared.graph.total_macs,
        tensors_checked=1,
        dram_bytes=0,
        layers=layers,
        shares=shares,
        picture="none",
    )
    schedule = prepared.network_schedule.schedule
    row = Row(workload=name, chip=chip.name, chip_digest=chip.digest, scheduler=schedule.scheduler,
              simulator="verilator", rtl_cycles=run.cycles, model_cycles=run.cycles, bytes_checked=1, cpu_seconds=1.0,
              network=figures)  # fmt: skip
    values = tables(run, prepared.timeline, prepared.program, schedule, chip)
    code = image.to_bytes(prepared.program, metadata_of(schedule))
    return artefacts.save(folder, row, chip, schedule, code, values)


def results_file(path: Path, *folders: Path, **changes: object) -> Path:
    """A results file whose rows have these artefacts."""
    rows = [artefacts.manifest(folder).row for folder in folders]
    Results(
        run=path.stem, started=datetime(2026, 1, 1, tzinfo=UTC), wall_seconds=1.0, complete=True, environment={},
        rows=tuple(row.model_copy(update=changes) for row in rows),
    ).save(path)  # fmt: skip
    return path
