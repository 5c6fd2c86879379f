"""The `meshloom` command line. Every make target is one of these commands.

The module of a command is imported when it is used (`catalogue`), so `--help` answers at once. `exits.Exit` lists
the exit statuses.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..results.exits import help_text
from ..runs import stage_times
from .catalogue import Catalogue

app = typer.Typer(
    cls=Catalogue,
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
    stage_times.started()


if __name__ == "__main__":
    app()
