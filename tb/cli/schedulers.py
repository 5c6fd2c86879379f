"""`meshloom schedulers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Json, MemoryLimit, Network, TimeLimit, examples
from ..api.request import limited
from .loadable import loadable
from .outputs import listing_screen, put_list

if TYPE_CHECKING:
    from pydantic import BaseModel

    from meshloom.sched.schedulers.interface import Scheduler
    from meshloom.sched.schedulers.online.registry import OnlineMaker
    from meshloom.sched.schedulers.tokens.registry import TokenMaker

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom schedulers",
        "meshloom schedulers flexer",
        "meshloom schedulers lookahead",
        "meshloom schedulers --json -",
        "meshloom schedulers examples/scheduler/in_turn/__init__.py:schedule",
    )
)
def schedulers(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the options of this one; also PACKAGE.MODULE:NAME, FILE.py:NAME."),
    ] = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    network: Network = False,
    json: Json = None,
) -> None:
    """List the schedulers, including those of installed packages, or show the options of one.

    Those for `run` and `schedule` order the work of layers and networks; online ones, for `serve`, place layers while
    the chip runs; token schedulers, for `serve-tokens`, say what the next step of a language model reads.
    """
    from meshloom.sched.schedulers.online.registry import ONLINE
    from meshloom.sched.schedulers.registry import REGISTRY
    from meshloom.sched.schedulers.tokens.registry import TOKENS

    from ..report.narrow import show
    from ..report.schedulers import entry, online_table, options_table, schedulers_table, tokens_table
    from ..results.listings import SchedulerList

    screen = listing_screen(json)
    if name is None:
        broken: list[str] = []
        known, online = [*loadable(REGISTRY, broken).values()], [*loadable(ONLINE, broken).values()]
        show(schedulers_table(known), screen)
        show(online_table(online), screen)
        tokens = [*loadable(TOKENS, broken).values()]
        show(tokens_table(tokens), screen)
        for each in broken:
            screen.print(each, style="red", markup=False, soft_wrap=True)
        screen.print("options of one: meshloom schedulers NAME", markup=False, soft_wrap=True)
        entries = [entry(each, each.kinds) for each in known] + [entry(each, ("serving",)) for each in online]
        entries += [entry(each, ("texts",)) for each in tokens]
        put_list(json, SchedulerList(schedulers=tuple(entries), broken=tuple(broken)))
        return
    with limited(time_limit, memory_limit, network):
        scheduler, models = _options(name)
    screen.print(f"{scheduler.name}: {scheduler.summary or 'says nothing about itself'}", markup=False, soft_wrap=True)
    for model in dict.fromkeys(models.values()):
        show(options_table(" and ".join(kind for kind in models if models[kind] is model), model), screen)
    put_list(json, SchedulerList(schedulers=(entry(scheduler, tuple(models), models),)))


def _options(name: str) -> tuple[Scheduler | OnlineMaker | TokenMaker, dict[str, type[BaseModel]]]:
    """The scheduler of a name, be it online or not, and its options for each kind of work. Raises SchedulerError."""
    from meshloom.hw.spec.config import near_or_all
    from meshloom.sched.schedulers.interface import Options
    from meshloom.sched.schedulers.online.registry import ONLINE
    from meshloom.sched.schedulers.registry import REGISTRY, SchedulerError, options_of, scheduler_of
    from meshloom.sched.schedulers.tokens.registry import TOKENS

    base = options_of(name, ONLINE)[0]
    try:
        online = ONLINE.get(base)
    except SchedulerError:
        if base in ONLINE.names():
            raise
    else:
        return online, {"serving": online.options}
    if base in TOKENS.names():
        return TOKENS.get(base), {"texts": Options}
    if ":" not in base and not base.endswith(".py") and base not in REGISTRY.names():
        hint = near_or_all(base, [*REGISTRY.names(), *ONLINE.names(), *TOKENS.names()])
        raise SchedulerError(
            f"unknown scheduler {base!r}; {hint}; others are named by package.module:NAME or FILE.py:NAME"
        )
    scheduler = scheduler_of(name)
    return scheduler, {kind: getattr(scheduler, kind).options for kind in scheduler.kinds}
