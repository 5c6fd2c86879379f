"""`meshloom schedule`: schedules and programs without a simulator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from meshloom.hw.spec.config import ChipConfig

from ..api.completion import complete_workloads
from ..api.options import (
    Bind,
    Budget,
    Calibrate,
    Calibration,
    Chips,
    Clock,
    Effort,
    Mean,
    MemoryLimit,
    Network,
    Schedulers,
    Seed,
    Set,
    Std,
    TimeLimit,
    bindings,
    examples,
)
from ..api.request import limited, refuse_other_kind
from ..results.exits import Exit, expected
from .errors import resumable, say_error
from .fields import with_fields
from .outputs import STDOUT, check_places, put
from .quantising import numbers, ranges_of
from .requests import filled, once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ..runs.kinds.interface import PlannedWorkload, WorkloadRequest

app = typer.Typer()
#: How the names of several files of a form end.
SUFFIXES = {"schedule": ".json", "timeloop": ".map.yaml", "loops": ".txt"}


@dataclass(frozen=True)
class ScheduleRequest:
    """Workloads to be scheduled: the fields are the options of the command."""

    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="A layer, a shape, a network, 'NETWORK/*' (each of its layers by itself), or gradients in training.",
        ),
    ]
    chip: Chips = None
    set: Set = None
    clock: Clock = None
    scheduler: Schedulers = None
    budget: Budget = None
    effort: Effort = None
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    calibrate: Calibrate = None
    calibration: Calibration = "best"
    mean: Mean = "0"
    std: Std = "255"
    bind: Bind = None
    seed: Seed = 0
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PATH", help="Save the schedule as JSON; - is stdout; for several schedules, a folder."
        ),
    ] = None
    form: Annotated[
        Literal["schedule", "timeloop", "loops"],
        typer.Option(
            "--as",
            metavar="FORM",
            help="Of --out: schedule (JSON), timeloop (a map of a layer that is a plain nest), loops (nests as text).",
        ),
    ] = "schedule"
    program: Annotated[
        Path | None,
        typer.Option(
            "--program", metavar="PATH", help="Save the program image; - is stdout; for several schedules, a folder."
        ),
    ] = None
    loops: Annotated[
        bool,
        typer.Option(
            "--loops", help="Show the loop nest of each layer: tiles, what is loaded in which loop, how long it stays."
        ),
    ] = False
    operations: Annotated[bool, typer.Option("--show", help="List the operations with their predicted cycles.")] = False


@app.command(
    epilog=examples(
        "meshloom schedule resnet50/conv4_2_2 --chip quad16",
        "meshloom schedule gemm:256x256x256 --show | less",
        "meshloom schedule resnet8/conv3_1_2 --chip quad8 --loops",
        "meshloom schedule resnet8/conv1 --out conv1.json --program conv1.bin",
        "meshloom schedule gradient:bert/qkv --chip edge45 --scheduler gradient",
        "meshloom schedule resnet8 --out resnet8.json",
        "meshloom schedule gemm:16x16x16 --chip tiny --as timeloop --out gemm.map.yaml",
        "meshloom schedule resnet8/conv1 --scheduler loop_order --scheduler zigzag --chip quad8 --chip quad16",
    )
)
@filled(ScheduleRequest)
def schedule(request: ScheduleRequest) -> None:
    """Make schedules, check them and predict their cycles, without a simulator.

    `meshloom run` uses the same code path: what is predicted and saved here is what runs there. If a layer cannot be
    scheduled, its error is printed, the others are scheduled, and the exit status is 3, as it is there. Several chips
    or schedulers: the predicted cycles are compared at the end, cause by cause, with the first.
    """
    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table
    from ..runs.kinds.interface import Listener
    from ..runs.searching import searching

    if request.form != "schedule" and request.out is None:
        raise typer.BadParameter("is the form of a file; name it with --out", param_hint="--as")
    if request.out == request.program == STDOUT:
        raise typer.BadParameter("only one of --out and --program can go to stdout", param_hint="--program")
    jobs = _jobs(request)
    if len(jobs) > 1 and STDOUT in (request.out, request.program):
        raise typer.BadParameter(f"{len(jobs)} schedules need a folder; only one can go to stdout", param_hint="--out")
    screen, progressing = console(stderr=STDOUT in (request.out, request.program)), console(stderr=True)
    for path, suffix in ((request.out, SUFFIXES[request.form]), (request.program, ".bin")):
        check_places(*(path and _place(path, job, suffix, len(jobs)) for job in jobs))
    plans: list[tuple[_Job, PlannedWorkload]] = []
    failures: list[tuple[str, str]] = []
    kept = resumable(lambda: f"after {len(plans)} of {len(jobs)}; what searches that have ended found is kept")
    with kept, limited(request.time_limit, request.memory_limit, request.network), searching(progressing) as progress:
        for job in jobs:
            name = job.title(jobs)
            listener = Listener(lambda what, name=name: progress.step(f"{name}: {what}"), progress.search)
            listener.step("reading")
            try:
                plans.append((job, job.workload.plan(job.chip, job.scheduler, listener)))
            except Exception as error:
                if (problem := expected(error)) is None:
                    raise
                failures.append((job.title(jobs), problem[0]))
    if plans:
        show(prediction_table((plan.name, plan.macs, plan.schedule, job.chip) for job, plan in plans), screen)
    # kinds of workload of other packages may have nothing to say
    for note in dict.fromkeys(note for _, plan in plans for note in getattr(plan, "notes", ())):
        screen.print(f"note: {note}", markup=False, soft_wrap=True)
    for job, plan in plans:
        _save(job, plan, request, len(jobs), screen)
    _print_ranking(plans, screen)
    for title, why in failures:
        say_error(why if title in why or len(jobs) == 1 else f"{title}: {why}")
    if failures:
        raise typer.Exit(Exit.NOT_RUN)


@dataclass(frozen=True)
class _Job:
    """A schedule to be made. `target`: a folder for those of its chip and scheduler, if there are others."""

    workload: WorkloadRequest
    chip: ChipConfig
    scheduler: str
    target: str

    def title(self, jobs: Sequence[_Job]) -> str:
        """Its name among others."""
        alone = len({(job.chip.digest, job.scheduler) for job in jobs}) == 1
        return self.workload.name if alone else f"{self.workload.name} on {self.chip.name} by {self.scheduler}"


def _jobs(request: ScheduleRequest) -> list[_Job]:
    """The schedules that a request asks for. Raises BadParameter, ConfigError, and what `_requests` raises."""
    from meshloom.hw.spec.config import load

    from ..inputs.chips import at_clock
    from ..runs.searching import with_budget, with_effort
    from ..runs.targets import Target

    names = once(request.chip or ["quad16"], "--chip")
    chips = [at_clock(with_fields(load(each), request.set), request.clock) for each in names]
    schedulers = once(request.scheduler or ["loop_order"], "--scheduler")
    for each in schedulers:
        refuse_other_kind(each)
    schedulers = [with_effort(with_budget(each, request.budget), request.effort) for each in schedulers]
    targets = [Target(chip, each) for chip, each in product(chips, schedulers)]
    return [
        _Job(workload, chip, target.scheduler, target.folder if len(targets) > 1 else "")
        for target in targets
        if isinstance(chip := target.chip, ChipConfig)
        for workload in _requests(request, chip, target.scheduler)
    ]


def _requests(request: ScheduleRequest, chip: ChipConfig, scheduler: str) -> Sequence[WorkloadRequest]:
    """What to schedule, all of which the scheduler takes. Raises WorkloadError, SchedulerError and what looking at
    files raises, before anything is done."""
    from meshloom.sched.schedulers.registry import check_scheduler

    from ..inputs.arrays import files_of
    from ..inputs.sources import NetworkSource
    from ..runs.kinds import table

    name = request.workload
    if name == table.REGRESSION:
        workloads: Sequence[WorkloadRequest] = table.regression(scheduler)
    elif table.is_network(name):
        source = NetworkSource(
            name,
            calibration=files_of(request.calibrate or ()),
            mean=numbers(request.mean, "--mean"),
            std=numbers(request.std, "--std"),
            bind=tuple(bindings(request.bind).items()),
            ranges=ranges_of(request.calibration),
            seed=request.seed,
        )
        workloads = table.requests(source, chip)
    else:
        workloads = table.find(name, chip)
    for option, value in (("--calibrate", request.calibrate), ("--bind", request.bind)):
        if value and not table.is_network(name):
            raise typer.BadParameter("is for a network", param_hint=option)
    for workload in workloads:
        workload.check(chip)
        if workload.scheduled_as is not None:
            check_scheduler(scheduler, workload.scheduled_as)
    return workloads


def _print_ranking(plans: Sequence[tuple[_Job, PlannedWorkload]], screen: Console) -> None:
    """Compares what several chips or schedulers need."""
    if len({job.target for job, _ in plans}) < 2:
        return
    from ..compare.ranked import ranked, targets
    from ..report.ranked import print_rankings
    from ..results.record import ResultsError
    from ..runs.planned import of_plan

    try:
        runs = targets([of_plan(plan, job.chip, job.scheduler) for job, plan in plans])
        print_rankings(ranked(runs), screen)
    except ResultsError as error:  # the predictions matter more
        screen.print(f"note: not compared: {error}", style="yellow", soft_wrap=True)


def _save(job: _Job, plan: PlannedWorkload, request: ScheduleRequest, count: int, screen: Console) -> None:
    """Lists a plan's operations and saves its schedule and program, where that is wanted. `count`: of all plans."""
    from meshloom.sched.lowering.lifted import metadata_of
    from meshloom.sched.program import image

    from ..report.tables import print_operations

    if request.loops:
        from ..compare.tiles import layers_of
        from ..report.loops import print_loops

        print_loops(plan.schedule, layers_of(plan.schedule, job.chip), job.chip, screen)
    if request.operations:
        print_operations(plan.schedule, screen)
    if request.out is not None:
        place = _place(request.out, job, SUFFIXES[request.form], count)
        put(place, plan.schedule.text if request.form == "schedule" else _text(job, plan, request.form))
        screen.print(f"{request.form}: {place}", markup=False, soft_wrap=True)
    if request.program is not None:
        place = _place(request.program, job, ".bin", count)
        put(place, image.to_bytes(plan.program, metadata_of(plan.schedule)))
        screen.print(f"program: {place}", markup=False, soft_wrap=True)


def _text(job: _Job, plan: PlannedWorkload, form: str) -> str:
    """A plan as a map of Timeloop, or its nests as text. Raises MapError."""
    from ..compare.tiles import layers_of
    from ..exchange.timeloop_map import MapError, timeloop_map
    from ..report.loops import nest_lines
    from ..runs.kinds.layers import SingleLayer

    layers = layers_of(plan.schedule, job.chip)
    if form == "loops":
        return "".join(f"{line}\n" for name, each in layers.items() for line in nest_lines(name, each, job.chip))
    if not isinstance(job.workload, SingleLayer):
        raise MapError(f"{plan.name}: is no single layer; Timeloop maps one")
    (tiles,) = layers.values()
    return timeloop_map(job.workload.subject.shape, tiles, job.chip, job.scheduler)


def _place(path: Path, job: _Job, suffix: str, count: int) -> Path:
    """`path` itself for a single schedule, otherwise a file named after the layer in the folder `path`, or in one below
    it for each chip and scheduler."""
    return path if count == 1 else path / job.target / (re.sub(r"[^\w.-]+", "_", job.workload.name) + suffix)
