"""`meshloom schedule`: schedules and programs without a simulator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import complete_workloads
from .options import Budget, Chip, Scheduler, examples

if TYPE_CHECKING:
    from meshloom.sched.lowering.programs import Planned
    from meshloom.sched.workload.catalog import Workload

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom schedule resnet50/conv4_2_2 --chip quad16",
        "meshloom schedule gemm:256x256x256 --show | less",
        "meshloom schedule resnet8/conv1 --out conv1.json --program conv1.bin",
    )
)
def schedule(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="A layer, a shape, or a network (each of its layers by itself).",
        ),
    ],
    chip: Chip = "quad16",
    scheduler: Scheduler = "loop_order",
    budget: Budget = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Save the schedule as JSON; for several layers, a folder."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option("--program", metavar="PATH", help="Save the program image; for several layers, a folder."),
    ] = None,
    operations: Annotated[
        bool, typer.Option("--show", help="List the operations with their predicted cycles.")
    ] = False,
) -> None:
    """Make schedules, check them and predict their cycles, without a simulator.

    `meshloom run` uses the same code path: what is predicted and saved here is what runs there.
    """
    from meshloom.hw.config import load
    from meshloom.sched.workload.catalog import find

    config = load(chip)
    layers = find(workload)
    from meshloom.sched.lowering.lifted import metadata_of
    from meshloom.sched.lowering.programs import planned
    from meshloom.sched.mapping.room import check_room
    from meshloom.sched.program import image
    from meshloom.sched.schedulers.registry import find as find_scheduler
    from meshloom.sched.store.kinds import SCHEDULES

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table, print_operations
    from ..runs.searching import searching, with_budget

    screen = console()
    made: list[tuple[Workload, Planned]] = []
    with searching(screen) as on_progress:
        make = find_scheduler(with_budget(scheduler, budget), SCHEDULES.folder(), on_progress)
        for layer in layers:
            check_room(layer.shape, config)
        for layer in layers:
            made.append((layer, planned(make(layer.shape, config, layer.scale), config)))
    show(prediction_table([(layer.shape, one.schedule) for layer, one in made], config), screen)
    for layer, one in made:
        if operations:
            print_operations(one.schedule, screen)
        if out is not None:
            place = _place(out, layer.name, ".json", len(made))
            one.schedule.save(place)
            screen.print(f"schedule: {place}", markup=False, soft_wrap=True)
        if program is not None:
            place = _place(program, layer.name, ".bin", len(made))
            image.save(one.program, place, metadata_of(one.schedule))
            screen.print(f"program: {place}", markup=False, soft_wrap=True)


def _place(path: Path, name: str, suffix: str, count: int) -> Path:
    """`path` itself for a single layer, otherwise a file named after the layer in the folder `path`."""
    target = path if count == 1 else path / (re.sub(r"[^\w.-]+", "_", name) + suffix)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
