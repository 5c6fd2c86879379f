"""The road from workload names to rows of the table: schedule, lower, check, predict, simulate, compare.

Schedules are made in worker processes while the simulator is built; programs then run in as many simulator processes as
there are jobs, the longest first, and rows come out as they finish.
"""

from __future__ import annotations

import heapq
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..hw.config import OFFSET_BITS, ChipConfig, load
from ..sched.model.predict import prediction
from ..sched.model.timeline import Timeline, play
from ..sched.program.check import check
from ..sched.program.lower import lower
from ..sched.program.program import Program
from ..sched.schedule import Schedule
from ..sched.scheduler import find as find_scheduler
from ..sched.workload.catalog import Workload, find, regression
from ..sched.workload.layers import LayerData
from . import compare
from .build import build
from .device import Job, Run, SimulatedDevice
from .results import Event, FaultReport, Plan, Row, Stage

#: A run is stopped as hung when it takes this much longer than the model says.
_PATIENCE = 4
_MARGIN = 20_000
#: Icarus simulates a few hundred cycles a second of a four-core chip; its regression is of layers up to this size.
ICARUS_MACS = 500_000


@dataclass(frozen=True)
class Prepared:
    """A workload ready to run: everything about it but the run."""

    workload: Workload
    schedule: Schedule
    program: Program
    timeline: Timeline


def prepare(workload: Workload, chip: ChipConfig, scheduler: str) -> Prepared:
    """Schedules, lowers, checks and predicts one workload. Raises what those raise on bad input."""
    made = find_scheduler(scheduler)(workload.shape, chip, workload.data().scale)
    program = lower(made, chip)
    check(program, chip, made)
    timeline = play(program, chip)
    made = made.model_copy(update={"predicted": prediction(made, program, timeline)})
    return Prepared(workload, made, program, timeline)


def _prepare_named(name: str, chip: ChipConfig, scheduler: str) -> tuple[Schedule, Program, Timeline]:
    """`prepare` in a worker process, to which a workload travels by its name."""
    ready = prepare(find(name)[0], chip, scheduler)
    return ready.schedule, ready.program, ready.timeline


def _leave_interrupts() -> None:
    """Ctrl-C is the parent's business; it stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(
    workloads: Sequence[str],
    chip: str | Path,
    scheduler: str,
    simulator: str,
    waves: bool,
    jobs: int,
    on_event: Callable[[Event], None],
) -> list[Row]:
    """Runs workloads by name ("regression" = those of `make sim`) and returns their rows in the order given.

    Every row is also handed to `on_event` as soon as it is there. Raises the errors of bad input before anything runs.
    """
    config = load(chip)
    find_scheduler(scheduler)  # a wrong name is told before anything is built
    layers: list[Workload] = []
    for name in workloads:
        layers += _regression(simulator, on_event) if name == "regression" else find(name)
    on_event(Plan(rows=len(layers)))
    on_event(Stage(workload=config.name, what=f"building the simulator ({simulator}), unless it is cached"))
    with ProcessPoolExecutor(max_workers=jobs, initializer=_leave_interrupts) as pool:
        try:
            futures = [pool.submit(_prepare_named, layer.name, config, scheduler) for layer in layers]
            built = build(config, simulator, waves)
            ready = []
            for layer, future in zip(layers, futures, strict=True):
                on_event(Stage(workload=layer.name, what="scheduling"))
                ready.append(Prepared(layer, *future.result()))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    rows: list[Row | None] = [None] * len(ready)
    found: queue.Queue[tuple[int, Row] | BaseException | None] = queue.Queue()
    stop = threading.Event()

    def work(share: Sequence[int]) -> None:
        try:
            device = SimulatedDevice(built, keep=waves)
            batch = [_job(ready[index], config.lanes) for index in share]
            for index, result in zip(share, device.run(batch), strict=True):
                found.put((index, _row(ready[index], result, config, scheduler, device)))
                if stop.is_set():
                    break
        except BaseException as error:  # handed to the thread that reports it
            found.put(error)
        finally:
            found.put(None)

    shares = _shares([prepared.timeline.cycles for prepared in ready], jobs)
    threads = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
    for layer in layers:
        on_event(Stage(workload=layer.name, what="simulating"))
    for thread in threads:
        thread.start()
    open_ends = len(threads)
    try:
        while open_ends:
            item = found.get()
            if item is None:
                open_ends -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                rows[item[0]] = item[1]
                on_event(item[1])
    finally:
        stop.set()
    return [row for row in rows if row is not None]


def _regression(simulator: str, on_event: Callable[[Event], None]) -> list[Workload]:
    """The layers of `make sim`; for the slow simulator, those that it can run in minutes."""
    layers = list(regression())
    if simulator != "icarus":
        return layers
    small = [layer for layer in layers if layer.shape.macs <= ICARUS_MACS]
    what = f"{simulator} is slow: {len(small)} of {len(layers)} layers, up to {ICARUS_MACS:,} MACs; others by name"
    on_event(Stage(workload="regression", what=what))
    return small


def _shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices for `count` processes, the longest first, each to the one with the least to do."""
    heap = [(0, number) for number in range(min(count, len(costs)))]
    shares: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, number = heapq.heappop(heap)
        shares[number].append(index)
        heapq.heappush(heap, (load + costs[index] + 2000, number))
    return shares


def arrays(data: LayerData) -> dict[str, np.ndarray]:
    """The arrays of a single layer by the names that its tensors have."""
    return {"x": data.x, "w": data.w, "bias": data.bias}


def _job(prepared: Prepared, lanes: int) -> Job:
    """What the device needs: packed tensors, where outputs are, and when to give up."""
    given = arrays(prepared.workload.data())
    memory, outputs = [], []
    for tensor in prepared.schedule.tensors:
        packed = None if tensor.role == "output" else tensor.layout.pack(given[tensor.name], lanes)
        for piece in tensor.pieces:
            offset = piece.address & ((1 << OFFSET_BITS) - 1)
            if packed is None:
                outputs.append((piece.tile, offset, piece.words))
            else:
                memory.append((piece.tile, offset, packed[piece.first : piece.first + piece.words]))
    return Job(prepared.program, memory, outputs, _PATIENCE * prepared.timeline.cycles + _MARGIN)


def _row(prepared: Prepared, run: Run, chip: ChipConfig, scheduler: str, device: SimulatedDevice) -> Row:
    """Compares a run with the golden model, byte by byte, and with the timeline, instruction by instruction."""
    from .golden import golden

    workload, schedule, program = prepared.workload, prepared.schedule, prepared.program
    shape = workload.shape
    pairs = compare.pair(run.records, prepared.timeline.executed)
    checked = wrong = 0
    if run.fault is None:
        tensor = schedule.tensor("y")
        # whole words are compared: the lanes that hold no channel must be zero
        expected = tensor.layout.pack(golden(workload.data()), chip.lanes)
        got = np.concatenate(run.memory)
        checked, wrong = int(expected.size), int(np.count_nonzero(expected != got))
    faults = []
    if run.fault is not None:
        fault = run.fault
        faults.append(
            FaultReport(
                cause=fault.cause.name,
                tile=fault.tile,
                unit=fault.unit.name.lower(),
                tag=fault.tag,
                value=fault.value,
                label=compare.label_of(program, schedule, fault.tag),
            )
        )
    peak = chip.rows * chip.cols * len(chip.cores) * max(1, run.cycles)
    waves = None
    if device.build.waves and device.last_folder is not None:
        waves = os.path.relpath(device.last_folder / "waves.fst")
    return Row(
        workload=workload.name,
        chip=chip.name,
        scheduler=scheduler,
        simulator=run.simulator,
        rtl_cycles=run.cycles,
        model_cycles=prepared.timeline.cycles,
        utilisation=min(1.0, shape.macs / peak),
        bytes_checked=checked,
        mismatches=wrong,
        faults=len(faults),
        fault_reports=tuple(faults),
        instructions=program.instructions,
        cpu_seconds=run.cpu_seconds,
        first_divergence=compare.first_divergence(pairs, schedule, program.operation_of_tag),
        waves=waves,
    )
