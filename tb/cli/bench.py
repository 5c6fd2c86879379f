"""`meshloom bench` and `meshloom benchmarks`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..api.completion import complete_benchmarks
from ..api.options import Json, examples
from ..results.exits import Exit
from .loadable import loadable
from .outputs import listing_screen, put_list

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


@app.command(epilog=examples("meshloom benchmarks", "meshloom benchmarks --json - | jq -r '.benchmarks[].name'"))
def benchmarks(json: Json = None) -> None:
    """List the benchmarks, including those of installed packages."""
    from ..benchmarks.registry import REGISTRY
    from ..report.narrow import show
    from ..report.tables import text_table
    from ..results.listings import BenchmarkEntry, BenchmarkList

    broken: list[str] = []
    known = loadable(REGISTRY, broken)
    screen = listing_screen(json)
    lines = ((name, each.paper or "-", each.summary) for name, each in known.items())
    show(text_table(("benchmark", "paper", "what it measures"), lines), screen)
    for each in broken:
        screen.print(each, style="red", soft_wrap=True)
    entries = (
        BenchmarkEntry(name=name, summary=each.summary, parts=each.parts, paper=each.paper)
        for name, each in known.items()
    )
    put_list(json, BenchmarkList(benchmarks=tuple(entries), broken=tuple(broken)))
