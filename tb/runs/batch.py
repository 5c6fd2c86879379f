"""Runs prepared programs on several devices concurrently; a job that fails also becomes a row."""

from __future__ import annotations

import heapq
import os
import queue
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from inspect import signature
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.lifted import metadata_of
from meshloom.sched.program import image
from meshloom.sched.store.room import unwritten
from meshloom.sched.support.files import write_error

from ..build.builder import BuildError
from ..compare.area import area_of
from ..compare.clock import time_of
from ..compare.energy import energy
from ..compare.links import figures as link_figures
from ..compare.tables import tables
from ..devices.folders import RunsError
from ..devices.interface import Device, Job, NoDeviceError, Run
from ..results import artefacts
from ..results.area import AreaTotals
from ..results.energy import EnergyTable
from ..results.energy import load as load_energy
from ..results.events import Event, Stage, Unwritten
from ..results.schema import Row, Settings
from ..results.shelf import Shelf
from . import stage_times
from .failures import Failure, failure, row_error
from .kinds.interface import PreparedRun
from .options import RunOptions


def failed_row(
    result: Failure,
    workload: str,
    chip: ChipConfig,
    device: str,
    settings: Settings,
    traces: Path | None,
) -> Row:
    """The row of a workload that could not be run."""
    return Row(
        workload=workload,
        chip=chip.name,
        chip_digest=chip.digest,
        scheduler=settings.scheduler,
        simulator=device,
        settings=settings,
        error=row_error(result, workload, traces),
    )


#: Device errors that would affect every job.
_FATAL = (NoDeviceError, BuildError, RunsError)


def simulate(
    items: Sequence[PreparedRun],
    device: Device,
    settings: Settings,
    on_event: Callable[[Event], None],
    options: RunOptions | None = None,
) -> list[Row]:
    """Runs items on several devices like this one; returns rows in the order of the items, including failures (see
    `run`). `settings`: of the whole run; of `options`, those that do not concern the device.

    Raises NoDeviceError, BuildError, RunsError if there is no device on which to run anything.
    """
    options = options or RunOptions()
    name = device.config.name
    area = None
    if options.detailed:
        area = area_of(device.config, options.area, lambda what: on_event(Stage(workload=name, what=what)))
    batch = _Batch(items, device, settings, options, area and area.totals)
    rows: list[Row | None] = [None] * len(items)
    threads = [
        threading.Thread(target=batch.work, args=(share,), daemon=True)
        for share in _shares([item.timeline.cycles for item in items], batch.options.jobs)
    ]
    for thread in threads:
        thread.start()
    open_ends = len(threads)
    try:
        while open_ends:
            item = batch.events.get()
            if item is None:
                open_ends -= 1
            elif isinstance(item, BaseException):
                raise item
            elif isinstance(item, Stage | Unwritten):
                on_event(item)
            else:
                rows[item[0]] = item[1]
                on_event(item[1])
    finally:
        batch.stop.set()
    return [row for row in rows if row is not None]


class _Batch:
    """State shared by the threads of a run: the items, and a queue of `events`: rows with the index of their
    item, other events, an error that ends the run, and None from each thread at its end."""

    def __init__(
        self,
        items: Sequence[PreparedRun],
        device: Device,
        settings: Settings,
        options: RunOptions,
        area: AreaTotals | None,
    ) -> None:
        self.items, self.device, self.settings, self.options = items, device, settings, options
        self.config = device.config
        self.area = area
        self.events: queue.Queue[tuple[int, Row] | Stage | Unwritten | BaseException | None] = queue.Queue()
        self.stop = threading.Event()

    @cached_property
    def energies(self) -> EnergyTable:
        """The table of the estimates of energy."""
        return self.options.energy or load_energy()

    def work(self, share: Sequence[int]) -> None:
        """Runs items, by index, on this thread's own device."""
        try:
            name = self.config.name
            own = self.device.beside(lambda what: self.events.put(Stage(workload=name, what=what)))
            while share:
                share = self._run_some(share, own)
        except BaseException as error:  # handed to the thread that reports it
            self.events.put(error)
        finally:
            self.events.put(None)

    def _run_some(self, indices: Sequence[int], own: Device) -> Sequence[int]:
        """Runs items one after another until the device dies; returns those that remain."""
        batch: list[Job] = []
        ready: list[int] = []
        stage_times.enter("loading")
        for index in indices:
            try:
                batch.append(self.items[index].job(self.config))
                ready.append(index)
            except Exception as error:
                self._fail(index, error, "loading")
        running = own.run(batch)
        for place, index in enumerate(ready):
            if self.stop.is_set():
                running.close()
                return []
            stage_times.enter("simulating")
            try:
                result = next(running)
            except _FATAL:
                raise
            except Exception as error:
                self._fail(index, error, "simulating")
                return ready[place + 1 :]
            stage_times.enter("comparing")
            try:
                self._finish(index, result, own)
            except Exception as error:
                self._fail(index, error, "comparing")
        stage_times.enter("simulating")
        for _ in running:  # lets the device finish
            raise AssertionError("more runs than jobs")
        stage_times.enter("")
        return []

    def _fail(self, index: int, error: Exception, stage: str) -> None:
        what, name = failure(error, stage), self.items[index].name
        row = failed_row(what, name, self.config, self.device.name, self.settings, self.options.traces)
        self.events.put((index, row))

    def _finish(self, index: int, result: Run, own: Device) -> None:
        item = self.items[index]
        row = _row(item, result, self.config, self.options.detailed)
        update: dict[str, object] = {"chip_digest": self.config.digest}
        if self.options.detailed:
            update |= self._details(item, row)
        if self.options.links:
            update |= link_figures(result, item.program, self.config, not (row.record_problem or row.untraced))
        if own.waves is not None:
            update["waves"] = os.path.relpath(own.waves)
        row = row.model_copy(update=update)
        if (shelf := self.options.artefacts) is not None:
            try:
                saved = _save(shelf, row, item, result, self.config)
                row = row.model_copy(update={"artefacts": os.path.relpath(saved)})
            except OSError as error:  # the comparison matters more than the files
                why = str(unwritten(error) or write_error(error, error.filename or shelf.folder))
                self.events.put(Unwritten(item.name, why, shelf.required))
        self.events.put((index, row))

    def _details(self, item: PreparedRun, row: Row) -> dict[str, object]:
        """Fields of a row that say how it was made, and what it cost."""
        settings = self.settings.model_copy(update=item.settings())
        update: dict[str, object] = {} if row.network else {"scheduler": settings.scheduler}
        update |= {"settings": settings, "area": self.area}
        if row.rtl_cycles and not row.faults:
            # of all that was computed and moved, however long it took
            estimate = energy(row, item.schedule, item.program, self.config, self.energies)
            update |= {"energy": estimate, "time": time_of(row, item.schedule, self.config.clock_mhz, estimate)}
        return update


def _row(item: PreparedRun, run: Run, chip: ChipConfig, detailed: bool) -> Row:
    """The outcome of a run; with all details if its kind, which may be of another package, cannot leave them out."""
    if detailed or "detailed" not in signature(item.row).parameters:
        return item.row(run, chip)
    return item.row(run, chip, detailed=False)


def _save(shelf: Shelf, row: Row, item: PreparedRun, run: Run, chip: ChipConfig) -> Path:
    """Saves the artefacts of one workload; returns their folder."""
    shelf.take()
    values = tables(run, item.timeline, item.program, item.schedule, chip)
    code = image.to_bytes(item.program, metadata_of(item.schedule))
    return artefacts.save(shelf.folder, row, chip, item.schedule, code, values)


def _shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices for `count` processes, the longest first, each to the process with the least work."""
    heap = [(0, number) for number in range(min(count, len(costs)))]
    shares: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, number = heapq.heappop(heap)
        shares[number].append(index)
        heapq.heappush(heap, (load + costs[index] + 2000, number))
    return shares
