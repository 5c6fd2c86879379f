"""`meshloom schedulers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from meshloom.sched.support.plugins import PluginError, Registry

from ..api.options import examples

if TYPE_CHECKING:
    from pydantic import BaseModel

    from meshloom.sched.schedulers.interface import Scheduler
    from meshloom.sched.schedulers.online.registry import OnlineMaker

app = typer.Typer()
T = TypeVar("T")


@app.command(
    epilog=examples(
        "meshloom schedulers",
        "meshloom schedulers flexer",
        "meshloom schedulers lookahead",
        "meshloom schedulers examples/scheduler/in_turn/__init__.py:schedule",
    )
)
def schedulers(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the options of this one; also PACKAGE.MODULE:NAME, FILE.py:NAME."),
    ] = None,
) -> None:
    """List the schedulers, including those of installed packages, or show the options of one.

    Those for `run` and `schedule` order the work of layers and networks; online ones, for `serve`, place layers while
    the chip runs.
    """
    from meshloom.sched.schedulers.online.registry import ONLINE
    from meshloom.sched.schedulers.registry import REGISTRY

    from ..report.console import console
    from ..report.narrow import show
    from ..report.schedulers import online_table, options_table, schedulers_table

    screen = console()
    if name is None:
        broken: list[str] = []
        show(schedulers_table(_loaded(REGISTRY, broken)), screen)
        show(online_table(_loaded(ONLINE, broken)), screen)
        for each in broken:
            screen.print(each, style="red", markup=False, soft_wrap=True)
        screen.print("options of one: meshloom schedulers NAME", markup=False, soft_wrap=True)
        return
    scheduler, models = _options(name)
    screen.print(f"{scheduler.name}: {scheduler.summary or 'says nothing about itself'}", markup=False, soft_wrap=True)
    for model in dict.fromkeys(models.values()):
        show(options_table(" and ".join(kind for kind in models if models[kind] is model), model), screen)


def _loaded(registry: Registry[T], broken: list[str]) -> list[T]:
    """All that a registry names; what is wrong with those that cannot be loaded is added to `broken`."""
    items: list[T] = []
    for name in registry.names():
        try:
            items.append(registry.get(name))
        except PluginError as error:
            broken.append(str(error))
    return items


def _options(name: str) -> tuple[Scheduler | OnlineMaker, dict[str, type[BaseModel]]]:
    """The scheduler of a name, be it online or not, and its options for each kind of work. Raises SchedulerError."""
    from meshloom.hw.spec.config import near_or_all
    from meshloom.sched.schedulers.online.registry import ONLINE
    from meshloom.sched.schedulers.registry import REGISTRY, SchedulerError, options_of, scheduler_of

    base = options_of(name, ONLINE)[0]
    try:
        online = ONLINE.get(base)
    except SchedulerError:
        if base in ONLINE.names():
            raise
    else:
        return online, {"serving": online.options}
    if ":" not in base and base not in REGISTRY.names():
        hint = near_or_all(base, [*REGISTRY.names(), *ONLINE.names()])
        raise SchedulerError(
            f"unknown scheduler {base!r}; {hint}; others are named by package.module:NAME or FILE.py:NAME"
        )
    scheduler = scheduler_of(name)
    return scheduler, {kind: getattr(scheduler, kind).options for kind in scheduler.kinds}
