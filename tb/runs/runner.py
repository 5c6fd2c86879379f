"""From names to rows of the table: schedule, lower, check, predict, simulate, compare.

Worker processes make the programs before the device is opened (a simulator may have to be built), so that workloads
that cannot be run are known by then. The programs run on as many devices as there are jobs, the longest first, and rows
are reported as they finish. A workload that fails becomes a row with an `error`; the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.schedulers.registry import Chosen, check_scheduler, scheduler_of
from meshloom.sched.support.plugins import PluginError
from meshloom.sched.workload.catalog import Workload
from meshloom.sched.workload.layers import WorkloadError

from ..devices.interface import DeviceKind
from ..devices.registry import find as find_device
from ..inputs.sources import NetworkSource
from ..results.events import Event, MoreRows, RowCount, Stage
from ..results.identity import code
from ..results.schema import Row, Settings
from . import stage_times
from .batch import failed_row, simulate
from .failures import At, Failure, attempt, stage_of
from .kinds.interface import Listener, PreparedRun, WorkloadRequest
from .kinds.layers import LayerRun, SingleLayer
from .kinds.table import REGRESSION, one, regression, requests
from .options import RunOptions
from .workers import Workers, report_progress, report_search, workers


def prepare(layer: Workload, chip: ChipConfig, scheduler: str | Chosen) -> LayerRun:
    """Schedules, lowers, checks and predicts one layer. Raises the errors of these steps on bad input."""
    return SingleLayer(layer).plan(chip, scheduler, Listener(search=report_search))


def prepare_all(names: Sequence[str], chip: ChipConfig, scheduler: str, jobs: int) -> list[PreparedRun]:
    """Workloads by name, each one run, ready to run, made in `jobs` worker processes; in the order given."""
    with workers(jobs) as pool:
        futures = [pool.submit(_prepare, one(name, chip), chip, scheduler) for name in names]
        return [item for future in futures for item in future.result()]


def _prepare(
    request: WorkloadRequest, chip: ChipConfig, scheduler: str | Chosen, at: At = lambda stage: None
) -> list[PreparedRun]:
    """A request, ready to run: made in a worker process, which reports each step."""

    def step(what: str) -> None:
        at(what)
        stage_times.enter(stage_of(what))
        report_progress(request.name, what)

    stage_times.enter(request.first_stage)
    try:
        return list(request.prepare(chip, scheduler, Listener(step, report_search)))
    finally:
        stage_times.enter("")


def _attempt(request: WorkloadRequest, chip: ChipConfig, scheduler: str | Chosen) -> list[PreparedRun] | Failure:
    """The same, or why it cannot be."""
    return attempt(lambda at: _prepare(request, chip, scheduler, at), request.first_stage)


def run(
    workloads: Sequence[str | NetworkSource | WorkloadRequest],
    chip: str | Path | ChipConfig,
    scheduler: str | Chosen,
    on_event: Callable[[Event], None],
    options: RunOptions | None = None,
) -> list[Row]:
    """Runs workloads by name ("regression" = those of `make sim`) and returns their rows in the order given.

    Every row is also passed to `on_event` as soon as it is finished. A workload that cannot be run has one row, with an
    `error`. Raises the errors of bad input (names, files, chip, scheduler, device) before anything runs; BuildError,
    NoDeviceError, RunsError if nothing can run.
    """
    options = options or RunOptions()
    config, kind, workload_requests = _request(workloads, chip, scheduler, on_event, options)
    options = replace(options, jobs=min(options.jobs, kind.most or options.jobs))
    count = sum(each.runs for each in workload_requests)
    on_event(RowCount(rows=count))
    prepared = _prepared(workload_requests, config, scheduler, options, on_event)
    if more := sum(1 if isinstance(result, Failure) else len(result) for result in prepared) - count:
        on_event(MoreRows(rows=more))
    settings = Settings(code=code(), scheduler=str(scheduler), simulator_version=kind.version())
    unread = [result.message for result in prepared if isinstance(result, Failure) and result.stage == "reading"]
    if unread and len(unread) == len(prepared):  # nothing of the request can even be read
        raise WorkloadError("\n".join(unread))
    rows: list[Row | None] = []
    items: list[PreparedRun] = []
    for each, result in zip(workload_requests, prepared, strict=True):
        if isinstance(result, Failure):
            row = failed_row(result, each.name, config, kind.name, settings, options.traces)
            rows.append(row)
            on_event(row)
        else:
            rows += [None] * len(result)
            items += result
    if items:
        stage_times.enter("building")
        opened = kind.open(config, options.waves, lambda what: on_event(Stage(workload=config.name, what=what)))
        for item in items:
            on_event(Stage(workload=item.name, what="simulating"))
        stage_times.enter("")
        ran = iter(simulate(items, opened, settings, on_event, options))
        rows = [next(ran) if row is None else row for row in rows]
    return [row for row in rows if row is not None]


def count_rows(
    workloads: Sequence[str | NetworkSource | WorkloadRequest],
    chip: str | Path | ChipConfig,
    scheduler: str | Chosen,
    options: RunOptions,
) -> int:
    """How many rows `run` will make. Raises what it raises for bad input."""
    _, _, workload_requests = _request(workloads, chip, scheduler, lambda event: None, options)
    return sum(each.runs for each in workload_requests)


def _request(
    workloads: Sequence[str | NetworkSource | WorkloadRequest],
    chip: str | Path | ChipConfig,
    scheduler: str | Chosen,
    on_event: Callable[[Event], None],
    options: RunOptions,
) -> tuple[ChipConfig, DeviceKind, list[WorkloadRequest]]:
    """The chip, the device and the workloads that names mean; every error in the arguments is raised here."""
    config = chip if isinstance(chip, ChipConfig) else load(chip)
    kind = find_device(options.device)
    if options.waves and not kind.waves:
        raise PluginError(f"device {kind.name} writes no waveforms; leave out --waves, or use a simulator of the RTL")
    workload_requests: list[WorkloadRequest] = []
    for each in workloads:
        workload_requests += _regression(kind, scheduler, on_event) if each == REGRESSION else requests(each, config)
    for each in workload_requests:
        each.check(config)
    for way in dict.fromkeys(each.scheduled_as for each in workload_requests):
        if way is not None:
            check_scheduler(scheduler, way)
    return config, kind, workload_requests


def prepared_here(workload: str | WorkloadRequest, chip: ChipConfig, scheduler: str) -> Sequence[PreparedRun] | Failure:
    """A workload, by name or read, ready to run, prepared in this process; or why it is not. Several layers are
    none."""
    request = attempt(lambda at: one(workload, chip), "reading") if isinstance(workload, str) else workload
    return request if isinstance(request, Failure) else _attempt(request, chip, scheduler)


def _prepared(
    workload_requests: Sequence[WorkloadRequest],
    chip: ChipConfig,
    scheduler: str | Chosen,
    options: RunOptions,
    on_event: Callable[[Event], None],
) -> list[list[PreparedRun] | Failure]:
    """Everything ready to run, or its failure; made in worker processes, to which only schedulers with names can be
    sent."""
    if options.here or isinstance(scheduler, Chosen):
        here: list[list[PreparedRun] | Failure] = []
        for each in workload_requests:
            on_event(Stage(workload=each.name, what=each.activity))
            here.append(_attempt(each, chip, scheduler))
        return here

    def submit(pool: Workers, each: WorkloadRequest) -> Future[Any]:
        return pool.submit(_attempt, each, chip, scheduler)

    results: list[list[PreparedRun] | Failure | None] = []
    with workers(options.jobs) as pool:
        try:
            futures = [submit(pool, each) for each in workload_requests]
        except BrokenProcessPool:
            futures = []
        for each, future in zip(workload_requests, futures, strict=False):
            on_event(Stage(workload=each.name, what=each.activity))
            try:
                results.append(pool.result(future, on_event))
            except BrokenProcessPool:
                results.append(None)
    results += [None] * (len(workload_requests) - len(results))
    # A process that is killed (usually for lack of memory) takes down the whole pool; run alone, the culprit is known.
    return [
        _alone(lambda pool, each=each: submit(pool, each), on_event) if result is None else result
        for each, result in zip(workload_requests, results, strict=True)
    ]


def _alone(submit: Callable[[Workers], Future[Any]], on_event: Callable[[Event], None]) -> Any:
    try:
        with workers(1) as pool:
            return pool.result(submit(pool), on_event)
    except BrokenProcessPool:
        return Failure("BrokenProcessPool", "scheduling", "its process was killed; is there enough memory?")


def _regression(
    kind: DeviceKind, scheduler: str | Chosen, on_event: Callable[[Event], None]
) -> Sequence[WorkloadRequest]:
    """Networks and layers of `make sim`: networks only if the scheduler supports them; for a slow device, the layers
    that it can run in minutes."""
    everything = regression(scheduler)
    layers = [each for each in everything if each.macs is not None]
    if kind.macs is None:
        if len(layers) == len(everything):
            name = scheduler_of(scheduler).name
            what = f"scheduler {name} takes no networks: the {len(layers)} layers"
            on_event(Stage(workload=REGRESSION, what=what))
        return everything
    small = [layer for layer in layers if layer.macs is not None and layer.macs <= kind.macs]
    what = f"{kind.name} is slow: {len(small)} of {len(layers)} layers, up to {kind.macs:,} MACs; run others by name"
    on_event(Stage(workload=REGRESSION, what=what))
    return small
