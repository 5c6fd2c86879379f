"""`meshloom bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..results.exits import Exit
from .completion import complete_benchmarks
from .options import examples

app = typer.Typer()


@app.command(epilog=examples("meshloom bench", "meshloom bench gemm speed"))
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=complete_benchmarks,
            help="Benchmarks to run.",
            show_default="all",
        ),
    ] = None,
) -> None:
    """Measure speed and accuracy, side by side with other simulators where these can be installed."""
    from ..benchmarks.registry import run

    if not run(names or []):
        raise typer.Exit(Exit.WRONG)
