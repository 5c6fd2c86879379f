"""Programs that are ready to run, on several devices side by side; a job that fails becomes a row, too."""

from __future__ import annotations

import heapq
import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from meshloom.hw.config import ChipConfig
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.lifted import metadata_of
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.program import image
from meshloom.sched.program.program import Program

from ..build.builder import BuildError
from ..compare.links import figures as link_figures
from ..compare.tables import tables
from ..devices.folders import RunsError
from ..devices.interface import Device, Job, NoDeviceError, Run
from ..results import artefacts
from ..results.schema import Event, Row, Settings, Stage, Unwritten
from .failures import Failure, failure, row_error


class Item(Protocol):
    """Something ready to run once: a layer, or a network with its inputs."""

    @property
    def name(self) -> str: ...

    @property
    def cycles(self) -> int:
        """What the model expects."""
        ...

    @property
    def program(self) -> Program:
        """What runs."""
        ...

    @property
    def schedule(self) -> Schedule:
        """What it was made from."""
        ...

    @property
    def timeline(self) -> Timeline:
        """When the model expects what."""
        ...

    def job(self, chip: ChipConfig) -> Job:
        """What the device needs."""
        ...

    def row(self, run: Run, chip: ChipConfig) -> Row:
        """What came of it, compared with golden model and timeline."""
        ...

    def settings(self) -> dict[str, Any]:
        """What it was made of and fed: fields of `Settings`."""
        ...


def failed_row(
    found: Failure,
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
        error=row_error(found, workload, traces),
    )


#: Errors of the device that every job would meet.
_FATAL = (NoDeviceError, BuildError, RunsError)


def simulate(
    items: Sequence[Item],
    device: Device,
    settings: Settings,
    jobs: int,
    on_event: Callable[[Event], None],
    links: bool = False,
    traces: Path | None = None,
    keep: Path | None = None,
) -> list[Row]:
    """Runs what is ready on `jobs` devices like this one; rows in the order of the items, of failures too (see `run`).
    `settings`: of the run as a whole. `keep`: the folder in which each leaves its artefacts.

    Raises NoDeviceError, BuildError, RunsError when there is no device to run anything on.
    """
    config = device.config
    rows: list[Row | None] = [None] * len(items)
    found: queue.Queue[tuple[int, Row] | Stage | Unwritten | BaseException | None] = queue.Queue()
    stop = threading.Event()

    def fail(index: int, error: Exception, stage: str) -> None:
        what = failure(error, stage)
        found.put((index, failed_row(what, items[index].name, config, device.name, settings, traces)))

    def finish(index: int, result: Run, own: Device) -> None:
        item = items[index]
        row = item.row(result, config)
        own_settings = settings.model_copy(update=item.settings())
        update: dict[str, object] = {} if row.network else {"scheduler": own_settings.scheduler}
        update["chip_digest"] = config.digest
        update["settings"] = own_settings
        if links:
            update |= link_figures(result, item.program, config, not row.record_problem)
        if own.waves is not None:
            update["waves"] = os.path.relpath(own.waves)
        row = row.model_copy(update=update)
        if keep is not None:
            try:
                row = row.model_copy(update={"artefacts": os.path.relpath(_save(keep, row, item, result, config))})
            except OSError as error:  # the comparison counts more than the files
                found.put(Unwritten(item.name, f"{error.filename or keep}: {error.strerror or error}"))
        found.put((index, row))

    def run_some(indices: Sequence[int], own: Device) -> Sequence[int]:
        """Runs them one after another until the simulator dies; returns those that have not had their turn."""
        batch: list[Job] = []
        ready: list[int] = []
        for index in indices:
            try:
                batch.append(items[index].job(config))
                ready.append(index)
            except Exception as error:
                fail(index, error, "loading")
        running = own.run(batch)
        for place, index in enumerate(ready):
            if stop.is_set():
                running.close()
                return []
            try:
                result = next(running)
            except _FATAL:
                raise
            except Exception as error:
                fail(index, error, "simulating")
                return ready[place + 1 :]
            try:
                finish(index, result, own)
            except Exception as error:
                fail(index, error, "comparing")
        for _ in running:  # lets the simulator end
            raise AssertionError("more runs than jobs")
        return []

    def work(share: Sequence[int]) -> None:
        try:
            name = config.name
            own = device.beside(lambda what: found.put(Stage(workload=name, what=what)))
            while share:
                share = run_some(share, own)
        except BaseException as error:  # handed to the thread that reports it
            found.put(error)
        finally:
            found.put(None)

    shares = _shares([item.cycles for item in items], jobs)
    threads = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
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
            elif isinstance(item, Stage | Unwritten):
                on_event(item)
            else:
                rows[item[0]] = item[1]
                on_event(item[1])
    finally:
        stop.set()
    return [row for row in rows if row is not None]


def _save(folder: Path, row: Row, item: Item, run: Run, chip: ChipConfig) -> Path:
    """What a run leaves of one workload; its folder."""
    found = tables(run, item.timeline, item.program, item.schedule, chip)
    code = image.to_bytes(item.program, metadata_of(item.schedule))
    return artefacts.save(folder, row, chip, item.schedule, code, found)


def _shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices for `count` processes, the longest first, each to the one with the least to do."""
    heap = [(0, number) for number in range(min(count, len(costs)))]
    shares: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, number = heapq.heappop(heap)
        shares[number].append(index)
        heapq.heappush(heap, (load + costs[index] + 2000, number))
    return shares
