"""`meshloom schedule`: schedules and programs without a simulator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.completion import complete_workloads
from ..api.options import Budget, Chip, Effort, MemoryLimit, Scheduler, TimeLimit, examples
from ..api.request import limited
from ..results.exits import Exit, expected
from .errors import resumable, say_error
from .outputs import check_places
from .requests import filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from meshloom.hw.spec.config import ChipConfig

    from ..runs.kinds.interface import PlannedWorkload, WorkloadRequest

app = typer.Typer()


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
    chip: Chip = "quad16"
    scheduler: Scheduler = "loop_order"
    budget: Budget = None
    effort: Effort = None
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Save the schedule as JSON; for several workloads, a folder."),
    ] = None
    program: Annotated[
        Path | None,
        typer.Option("--program", metavar="PATH", help="Save the program image; for several workloads, a folder."),
    ] = None
    operations: Annotated[bool, typer.Option("--show", help="List the operations with their predicted cycles.")] = False


@app.command(
    epilog=examples(
        "meshloom schedule resnet50/conv4_2_2 --chip quad16",
        "meshloom schedule gemm:256x256x256 --show | less",
        "meshloom schedule resnet8/conv1 --out conv1.json --program conv1.bin",
        "meshloom schedule gradient:bert/qkv --chip edge45 --scheduler gradient",
        "meshloom schedule resnet8 --out resnet8.json",
    )
)
@filled(ScheduleRequest)
def schedule(request: ScheduleRequest) -> None:
    """Make schedules, check them and predict their cycles, without a simulator.

    `meshloom run` uses the same code path: what is predicted and saved here is what runs there. If a layer cannot be
    scheduled, its error is printed, the others are scheduled, and the exit status is 3, as it is there.
    """
    from meshloom.hw.spec.config import load

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table
    from ..runs.kinds.interface import Listener
    from ..runs.searching import searching, with_budget, with_effort

    config = load(request.chip)
    scheduler = with_effort(with_budget(request.scheduler, request.budget), request.effort)
    requests = _requests(request.workload, config, scheduler)
    screen = console()
    for path, suffix in ((request.out, ".json"), (request.program, ".bin")):
        check_places(*(path and _place(path, each.name, suffix, len(requests)) for each in requests))
    plans: list[PlannedWorkload] = []
    failures: list[tuple[str, str]] = []
    kept = resumable(lambda: f"after {len(plans)} of {len(requests)}; what searches that have ended found is kept")
    with kept, limited(request.time_limit, request.memory_limit), searching(screen) as on_search:
        for each in requests:
            try:
                plans.append(each.plan(config, scheduler, Listener(search=on_search)))
            except Exception as error:
                if (problem := expected(error)) is None:
                    raise
                failures.append((each.name, problem[0]))
    if plans:
        show(prediction_table([(plan.name, plan.macs, plan.schedule) for plan in plans], config), screen)
    for plan in plans:
        _save(plan, request, len(requests), screen)
    for title, why in failures:
        say_error(why if title in why or len(requests) == 1 else f"{title}: {why}")
    if failures:
        raise typer.Exit(Exit.NOT_RUN)


def _requests(workload: str, chip: ChipConfig, scheduler: str) -> Sequence[WorkloadRequest]:
    """What to schedule, all of which the scheduler takes. Raises WorkloadError, SchedulerError and what looking at
    files raises, before anything is done."""
    from meshloom.sched.schedulers.registry import check_scheduler

    from ..runs.kinds import table

    requests = table.regression(scheduler) if workload == table.REGRESSION else table.find(workload, chip)
    for request in requests:
        request.check(chip)
        if request.scheduled_as is not None:
            check_scheduler(scheduler, request.scheduled_as)
    return requests


def _save(plan: PlannedWorkload, request: ScheduleRequest, count: int, screen: Console) -> None:
    """Lists a plan's operations and saves its schedule and program, where that is wanted. `count`: of all plans."""
    from meshloom.sched.lowering.lifted import metadata_of
    from meshloom.sched.program import image

    from ..report.tables import print_operations

    if request.operations:
        print_operations(plan.schedule, screen)
    if request.out is not None:
        place = _place(request.out, plan.name, ".json", count)
        plan.schedule.save(place)
        screen.print(f"schedule: {place}", markup=False, soft_wrap=True)
    if request.program is not None:
        place = _place(request.program, plan.name, ".bin", count)
        image.save(plan.program, place, metadata_of(plan.schedule))
        screen.print(f"program: {place}", markup=False, soft_wrap=True)


def _place(path: Path, name: str, suffix: str, count: int) -> Path:
    """`path` itself for a single layer, otherwise a file named after the layer in the folder `path`."""
    return path if count == 1 else path / (re.sub(r"[^\w.-]+", "_", name) + suffix)
