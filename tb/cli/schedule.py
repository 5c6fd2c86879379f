"""`meshloom schedule`: schedules and programs without a simulator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import complete_workloads
from .options import Budget, Chip, Scheduler, examples
from .outputs import check_places

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshloom.hw.config import ChipConfig
    from meshloom.sched.ir.schedule import Schedule
    from meshloom.sched.lowering.programs import Planned

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom schedule resnet50/conv4_2_2 --chip quad16",
        "meshloom schedule gemm:256x256x256 --show | less",
        "meshloom schedule resnet8/conv1 --out conv1.json --program conv1.bin",
        "meshloom schedule gradient:bert/qkv --chip edge45 --scheduler gradient",
    )
)
def schedule(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="A layer, a shape, a network (each of its layers by itself), or gradients of these in training.",
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
    from meshloom.sched.workload.training import is_training
    from meshloom.sched.workload.training_chain import is_chain

    config = load(chip)
    wanted = _gradients if is_training(workload) else _chains if is_chain(workload) else _layers
    from meshloom.sched.lowering.lifted import metadata_of
    from meshloom.sched.lowering.programs import planned
    from meshloom.sched.program import image

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table, print_operations
    from ..runs.searching import searching, with_budget

    screen = console()
    made: list[tuple[str, int, Planned]] = []
    with searching(screen) as on_progress:
        layers = wanted(workload, config, with_budget(scheduler, budget), on_progress)
        count = len(layers)
        for path, suffix in ((out, ".json"), (program, ".bin")):
            check_places(*(path and _place(path, name, suffix, count) for name, *_ in layers))
        for name, macs, make in layers:
            made.append((name, macs, planned(make(), config)))
    show(prediction_table([(name, macs, one.schedule) for name, macs, one in made], config), screen)
    for name, _, one in made:
        if operations:
            print_operations(one.schedule, screen)
        if out is not None:
            place = _place(out, name, ".json", count)
            one.schedule.save(place)
            screen.print(f"schedule: {place}", markup=False, soft_wrap=True)
        if program is not None:
            place = _place(program, name, ".bin", count)
            image.save(one.program, place, metadata_of(one.schedule))
            screen.print(f"program: {place}", markup=False, soft_wrap=True)


if TYPE_CHECKING:
    #: Layers by name, their multiply-accumulates, and what makes their schedules.
    _Wanted = list[tuple[str, int, Callable[[], Schedule]]]


def _layers(workload: str, chip: ChipConfig, scheduler: str, on_progress: Callable[[Any], None]) -> _Wanted:
    """Layers forwards. Raises what finding them, their room and the scheduler raise."""
    from meshloom.sched.mapping.room import check_room
    from meshloom.sched.schedulers.registry import find as find_scheduler
    from meshloom.sched.store.kinds import SCHEDULES
    from meshloom.sched.workload.catalog import find

    layers = find(workload)
    make = find_scheduler(scheduler, SCHEDULES.folder(), on_progress)
    for layer in layers:
        check_room(layer.shape, chip)
    return [
        (layer.name, layer.shape.macs, lambda layer=layer: make(layer.shape, chip, layer.scale)) for layer in layers
    ]


def _gradients(workload: str, chip: ChipConfig, scheduler: str, _: Callable[[Any], None]) -> _Wanted:
    """The gradients of layers in training. Raises what finding them and the scheduler raise."""
    from meshloom.sched.schedulers.registry import find_gradient
    from meshloom.sched.store.kinds import SCHEDULES
    from meshloom.sched.workload.training import find, setting_of

    layers = find(workload, setting_of(chip))
    make = find_gradient(scheduler, SCHEDULES.folder())
    return [(layer.name, layer.macs, lambda layer=layer: make(layer, chip).schedule) for layer in layers]


def _chains(workload: str, chip: ChipConfig, scheduler: str, _: Callable[[Any], None]) -> _Wanted:
    """The gradients of layers in a row. Raises what finding them and the scheduler raise."""
    from meshloom.sched.schedulers.registry import find_chain
    from meshloom.sched.store.kinds import SCHEDULES
    from meshloom.sched.workload.training import setting_of
    from meshloom.sched.workload.training_chain import find

    chains = find(workload, setting_of(chip))
    make = find_chain(scheduler, SCHEDULES.folder())
    return [(chain.name, chain.macs, lambda chain=chain: make(chain, chip).schedule) for chain in chains]


def _place(path: Path, name: str, suffix: str, count: int) -> Path:
    """`path` itself for a single layer, otherwise a file named after the layer in the folder `path`."""
    return path if count == 1 else path / (re.sub(r"[^\w.-]+", "_", name) + suffix)
