"""Prepared workloads: a layer, its gradients, or a network with an input, with everything from which a row is made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Opcode
from meshloom.hw.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm, Schedule
from meshloom.sched.model.timeline import Executed, Timeline
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.gradient.scheduler import GradientSchedule
from meshloom.sched.schedulers.network.limits import limit
from meshloom.sched.schedulers.training.chain_search import ChainSchedule
from meshloom.sched.workload.catalog import Workload
from meshloom.sched.workload.chain_data import random_chain
from meshloom.sched.workload.layers import LayerData
from meshloom.sched.workload.training import TrainingLayer
from meshloom.sched.workload.training_chain import Chain
from meshloom.sched.workload.training_data import random_gradients

from ..compare import mismatch, records
from ..compare.arrivals import arrivals
from ..compare.completeness import completeness
from ..devices.interface import Job, Run
from ..devices.readout import Record
from ..inputs.sources import Feed
from ..results.figures import ArrayFigures, GradientFigures
from ..results.schema import Row
from . import network

if TYPE_CHECKING:
    from .batch import Item

#: A run counts as hung if it takes this much longer than predicted.
_PATIENCE = 4
_MARGIN = 20_000


@dataclass(frozen=True)
class Prepared:
    """A layer ready to run."""

    workload: Workload
    schedule: Schedule
    program: Program
    timeline: Timeline
    made_of: dict[str, Any] = field(default_factory=dict[str, Any])  #: for a file: fields of `Settings`

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.workload.shape.macs

    def job(self, chip: ChipConfig) -> Job:
        return _job(self, chip.lanes)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        return _row(self, run, chip)

    def settings(self) -> dict[str, Any]:
        real = self.workload.real
        named = "trained weights, stored activation" if real else "random bytes, seeded by the workload's name"
        return self.made_of | {"input": named, "input_digest": _digest(arrays(self.workload.data()))}


@dataclass(frozen=True, eq=False)
class GradientItem:
    """The two gradients of a layer in training, ready to run. `made`: what their scheduler says of them, None for a
    file, whose fields of `Settings` are `made_of`."""

    layer: TrainingLayer
    made: GradientSchedule | None
    schedule: Schedule
    program: Program
    timeline: Timeline
    made_of: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    def job(self, chip: ChipConfig) -> Job:
        given = random_gradients(self.layer).arrays()
        memory, outputs = network.places(self.schedule, given, chip.lanes)
        return Job(self.program, memory, outputs, _PATIENCE * self.cycles + _MARGIN)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        from ..inputs.golden.layer import golden

        products, made = random_gradients(self.layer).products(), self.made
        figures = made and GradientFigures(
            order=made.order,
            nest=made.nest,
            dram_bytes=made.dram_bytes,
            spilled_bytes=made.spilled_bytes,
            array_cycles=made.array_cycles,
            vector_cycles=made.vector_cycles,
            orders={order.value: cycles for order, cycles in made.predicted.items()},
        )
        return row_of(self, self.layer.macs, lambda name: golden(products[name]), run, chip, gradient=figures)

    def settings(self) -> dict[str, Any]:
        given = random_gradients(self.layer).arrays()
        return self.made_of | {"input": "random bytes, seeded by the workload's name", "input_digest": _digest(given)}


@dataclass(frozen=True, eq=False)
class ChainItem:
    """The gradients of layers in a row in training, ready to run. `made`, `made_of`: as of a `GradientItem`."""

    chain: Chain
    made: ChainSchedule | None
    schedule: Schedule
    program: Program
    timeline: Timeline
    made_of: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.chain.name

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    def job(self, chip: ChipConfig) -> Job:
        memory, outputs = network.places(self.schedule, random_chain(self.chain).arrays(), chip.lanes)
        return Job(self.program, memory, outputs, _PATIENCE * self.cycles + _MARGIN)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        from ..inputs.golden.chain import chain

        right, made = chain(random_chain(self.chain)), self.made
        figures = made and GradientFigures(
            order=self.schedule.scheduler,
            nest=str(made.plan),
            dram_bytes=made.dram_bytes,
            spilled_bytes=0,
            array_cycles=made.array_cycles,
            vector_cycles=made.vector_cycles,
            orders={},
        )
        return row_of(self, self.chain.macs, lambda name: right[name], run, chip, gradient=figures)

    def settings(self) -> dict[str, Any]:
        given = random_chain(self.chain).arrays()
        named = {"input": "random bytes, seeded by the layers' names", "input_digest": _digest(given)}
        return self.made_of | named


@dataclass(frozen=True, eq=False)
class NetworkItem:
    """A network ready to run on one input. `made_of`: see `sources.model_settings`."""

    prepared: network.PreparedNetwork
    title: str
    feed: Feed
    tensors: Path | None = None
    made_of: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.title

    @property
    def cycles(self) -> int:
        return self.prepared.timeline.cycles

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.prepared.graph.total_macs

    @property
    def program(self) -> Program:
        return self.prepared.program

    @property
    def schedule(self) -> Schedule:
        return self.prepared.made.schedule

    @property
    def timeline(self) -> Timeline:
        return self.prepared.timeline

    def job(self, chip: ChipConfig) -> Job:
        return network.job(self.prepared, self.feed.arrays, chip, _PATIENCE, _MARGIN)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        return network.row(self.prepared, self.title, self.feed, run, chip, self.tensors)

    def settings(self) -> dict[str, Any]:
        fed = {"input": self.feed.name, "input_digest": _digest(self.feed.arrays)}
        return self.made_of | fed


def _digest(given: dict[str, np.ndarray]) -> str:
    """SHA-256 of arrays, by name."""
    found = hashlib.sha256()
    for name in sorted(given):
        array = np.ascontiguousarray(given[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def arrays(data: LayerData) -> dict[str, np.ndarray]:
    """The arrays of a single layer by the names of its tensors."""
    return {"x": data.x, "w": data.w, "bias": data.bias}


def _job(prepared: Prepared, lanes: int) -> Job:
    """The job for the device: packed tensors, locations of outputs, and the watchdog."""
    memory, outputs = network.places(prepared.schedule, arrays(prepared.workload.data()), lanes)
    return Job(prepared.program, memory, outputs, _PATIENCE * prepared.timeline.cycles + _MARGIN)


def _row(prepared: Prepared, run: Run, chip: ChipConfig) -> Row:
    """Compares a run with the golden model, byte by byte, and with the timeline, instruction by instruction."""
    from ..inputs.golden.layer import golden

    workload = prepared.workload
    return row_of(prepared, workload.shape.macs, lambda _: golden(workload.data()), run, chip)


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
    item: Item, macs: int, golden: Callable[[str], NDArray[Any]], run: Run, chip: ChipConfig, **more: Any
) -> Row:
    """A row about a workload of one layer. `macs`: its multiply-accumulates; `golden(name)`: what output tensor `name`
    must be; `more`: further fields."""
    schedule, program = item.schedule, item.program
    match = records.match(run.records, item.timeline.executed, program)
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
    whole = not faults and not traced.get("record_problem")
    return Row(
        workload=item.name,
        chip=chip.name,
        scheduler=schedule.scheduler,
        simulator=run.simulator,
        rtl_cycles=run.cycles,
        model_cycles=item.timeline.cycles,
        utilisation=min(1.0, macs / peak),
        bytes_checked=checked,
        mismatches=wrong,
        first_mismatch="" if first is None else mismatch.described(first, chip),
        wrong_byte=first,
        faults=len(faults),
        fault_reports=faults,
        instructions=program.instructions,
        cpu_seconds=run.cpu_seconds,
        arrays=arrays_used(schedule, run.records, macs, chip) if whole else None,
        **traced,
        **arrivals(program, run, chip),
        first_divergence=records.first_divergence(match.pairs, schedule, program.operation_of_tag, program),
        **more,
    )
