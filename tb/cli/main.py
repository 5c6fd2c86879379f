"""The `meshloom` command line. Every make target is one of these commands.

Heavy modules are imported only when a command runs, so `--help` answers at once. `exits.Exit` lists the exit statuses.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..results.exits import help_text
from . import (
    bench,
    cache,
    chips,
    compare,
    devices,
    doctor,
    explain,
    imports,
    init,
    query,
    report,
    run,
    runs,
    saved,
    schedule,
    schedulers,
    schemas,
    serve,
    sweep,
    train,
    workloads,
)
from .errors import Group, strict

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run neural-network schedules on a simulated multi-NPU chip, check every byte, and compare the cycles of "
    "RTL and model.",
    epilog="Start with `meshloom run resnet8/conv1`; `meshloom workloads` and `meshloom chips` list what else can run."
    f"\n\n{help_text()}",
)


def _version(flag: bool) -> None:
    if flag:
        from importlib.metadata import version

        typer.echo(f"meshloom {version('meshloom')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for _module in (
    init,
    run,
    runs,
    explain,
    compare,
    report,
    serve,
    train,
    sweep,
    query,
    schedule,
    imports,
    schedulers,
    chips,
    workloads,
    devices,
    saved,
    schemas,
    bench,
    doctor,
):  # in the order of the help
    app.add_typer(strict(_module.app))
app.add_typer(strict(cache.app), name="cache", cls=Group)


if __name__ == "__main__":
    app()
