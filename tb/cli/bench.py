"""`meshloom bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..api.completion import complete_benchmarks
from ..api.options import examples
from ..results.exits import Exit

app = typer.Typer()


@app.command(
    epilog=examples("meshloom bench", "meshloom bench gemm speed", "meshloom bench layer_puzzle --part lp9-small")
)
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
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            metavar="PART",
            help="Measure this part only, of a benchmark that has parts and keeps its results; may be given again.",
        ),
    ] = None,
) -> None:
    """Measure speed and accuracy, side by side with other simulators where these can be installed."""
    from ..benchmarks.interface import BenchmarkError
    from ..benchmarks.registry import run

    try:
        good = run(names or [], part or [])
    except BenchmarkError as error:
        raise typer.BadParameter(str(error), param_hint="--part") from None
    if not good:
        raise typer.Exit(Exit.WRONG)
