"""`meshloom schedule`: schedules and programs without a simulator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..results.exits import Exit, expected
from .completion import complete_workloads
from .errors import say_error
from .options import Budget, Chip, MemoryLimit, Scheduler, TimeLimit, examples
from .outputs import check_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshloom.hw.spec.config import ChipConfig

    from ..runs.kinds.interface import Request

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom schedule resnet50/conv4_2_2 --chip quad16",
        "meshloom schedule gemm:256x256x256 --show | less",
        "meshloom schedule resnet8/conv1 --out conv1.json --program conv1.bin",
        "meshloom schedule gradient:bert/qkv --chip edge45 --scheduler gradient",
        "meshloom schedule resnet8 --out resnet8.json",
    )
)
def schedule(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="A layer, a shape, a network, 'NETWORK/*' (each of its layers by itself), or gradients in training.",
        ),
    ],
    chip: Chip = "quad16",
    scheduler: Scheduler = "loop_order",
    budget: Budget = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Save the schedule as JSON; for several workloads, a folder."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option("--program", metavar="PATH", help="Save the program image; for several workloads, a folder."),
    ] = None,
    operations: Annotated[
        bool, typer.Option("--show", help="List the operations with their predicted cycles.")
    ] = False,
) -> None:
    """Make schedules, check them and predict their cycles, without a simulator.

    `meshloom run` uses the same code path: what is predicted and saved here is what runs there. If a layer cannot be
    scheduled, its error is printed, the others are scheduled, and the exit status is 3, as it is there.
    """
    from meshloom.hw.spec.config import load
    from meshloom.sched.lowering.lifted import metadata_of
    from meshloom.sched.program import image
    from meshloom.sched.support.limits import guard_of, guarded

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table, print_operations
    from ..runs.kinds.interface import Plan, Progress
    from ..runs.searching import searching, with_budget

    config = load(chip)
    name = with_budget(scheduler, budget)
    requests = _requests(workload, config, name)
    screen = console()
    for path, suffix in ((out, ".json"), (program, ".bin")):
        check_places(*(path and _place(path, request.name, suffix, len(requests)) for request in requests))
    plans: list[Plan] = []
    failures: list[tuple[str, str]] = []
    with guarded(guard_of(time_limit, memory_limit)), searching(screen) as on_search:
        for request in requests:
            try:
                plans.append(request.plan(config, name, Progress(search=on_search)))
            except Exception as error:
                if (problem := expected(error)) is None:
                    raise
                failures.append((request.name, problem[0]))
    if plans:
        show(prediction_table([(plan.name, plan.macs, plan.schedule) for plan in plans], config), screen)
    for plan in plans:
        if operations:
            print_operations(plan.schedule, screen)
        if out is not None:
            place = _place(out, plan.name, ".json", len(requests))
            plan.schedule.save(place)
            screen.print(f"schedule: {place}", markup=False, soft_wrap=True)
        if program is not None:
            place = _place(program, plan.name, ".bin", len(requests))
            image.save(plan.program, place, metadata_of(plan.schedule))
            screen.print(f"program: {place}", markup=False, soft_wrap=True)
    for title, why in failures:
        say_error(why if title in why or len(requests) == 1 else f"{title}: {why}")
    if failures:
        raise typer.Exit(Exit.NOT_RUN)


def _requests(workload: str, chip: ChipConfig, scheduler: str) -> Sequence[Request]:
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


def _place(path: Path, name: str, suffix: str, count: int) -> Path:
    """`path` itself for a single layer, otherwise a file named after the layer in the folder `path`."""
    return path if count == 1 else path / (re.sub(r"[^\w.-]+", "_", name) + suffix)
