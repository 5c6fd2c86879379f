"""`meshloom schedulers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import examples

if TYPE_CHECKING:
    from meshloom.sched.schedulers.interface import Scheduler

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom schedulers",
        "meshloom schedulers flexer",
        "meshloom schedulers examples/scheduler/in_turn/__init__.py:schedule",
    )
)
def schedulers(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the options of this one; also PACKAGE.MODULE:NAME, FILE.py:NAME."),
    ] = None,
) -> None:
    """List the schedulers, including those of installed packages, or show the options of one."""
    from meshloom.sched.schedulers.registry import REGISTRY, SchedulerError, scheduler_of

    from ..report.console import console
    from ..report.narrow import show
    from ..report.schedulers import options_table, schedulers_table

    screen = console()
    if name is None:
        found: list[Scheduler] = []
        broken: list[str] = []
        for each in REGISTRY.names():
            try:
                found.append(REGISTRY.get(each))
            except SchedulerError as error:
                broken.append(str(error))
        show(schedulers_table(found), screen)
        for each in broken:
            screen.print(each, style="red", markup=False, soft_wrap=True)
        screen.print("options of one: meshloom schedulers NAME", markup=False, soft_wrap=True)
        return
    scheduler = scheduler_of(name)
    screen.print(f"{scheduler.name}: {scheduler.summary or 'says nothing about itself'}", markup=False, soft_wrap=True)
    models = {kind: getattr(scheduler, kind).options for kind in scheduler.kinds}
    for model in dict.fromkeys(models.values()):
        show(options_table(" and ".join(kind for kind in models if models[kind] is model), model), screen)
