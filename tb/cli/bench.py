"""`meshloom bench` and `meshloom studies`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from ..api.completion import complete_studies
from ..api.options import Cluster, Json, examples
from ..results.exits import Exit
from .loadable import loadable
from .outputs import listing_screen, put_list
from .requests import filled

app = typer.Typer()


@dataclass(frozen=True)
class BenchRequest:
    """What is measured: the fields are the options of the command."""

    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=complete_studies,
            help="Studies to measure; FILE.py:STUDY is one, too.",
            show_default="all",
        ),
    ] = None
    full: Annotated[bool, typer.Option("--full", help="Measure the whole study; may take hours.")] = False
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Measure only the I-th of N parts, one for each machine.")
    ] = ""
    stale: Annotated[
        bool,
        typer.Option(
            "--stale", help="Measure nothing: say what the present code would measure anew, and what that takes."
        ),
    ] = False
    printed: Annotated[
        bool, typer.Option("--print", help="Measure nothing: print the pages from the rows that there are.")
    ] = False
    jobs: Annotated[
        int, typer.Option(min=0, metavar="N", help="Worker processes on this machine; default: one per CPU.")
    ] = len(os.sched_getaffinity(0))
    cluster: Cluster = None
    retry: Annotated[bool, typer.Option("--retry", help="Measure points again that came to an error.")] = False


@app.command(
    epilog=examples(
        "meshloom bench",
        "meshloom bench whole_packets gemm",
        "meshloom bench flexer_networks --full --shard 1/4",
        "meshloom bench --stale",
    )
)
@filled(BenchRequest)
def bench(request: BenchRequest) -> None:
    """Measure studies of speed, accuracy and papers' claims, and write their pages.

    A quick study is a sample of at most five minutes of a processor that touches every claim of its page. Rows are kept
    as text as they come: an interrupted study goes on where it was, and what the present code has measured is not
    measured again. The exit status is 1 if a bar is missed.
    """
    from ..report.console import console
    from ..studies import command
    from ..studies.engine.rows import StudyError

    screen = console()
    options = command.StudyOptions(
        request.full, request.shard, request.jobs, request.cluster, request.retry, request.printed
    )
    chosen = list(command.chosen(request.names or []).values())
    try:
        if request.stale:
            command.stale(chosen, screen)
            return
        good = command.run(chosen, options, screen)
    except StudyError as error:
        raise typer.BadParameter(str(error), param_hint="--shard") from None
    if not good:
        raise typer.Exit(Exit.WRONG)


@app.command(epilog=examples("meshloom studies", "meshloom studies --json - | jq -r '.studies[].name'"))
def studies(json: Json = None) -> None:
    """List the studies, including those of installed packages: what `meshloom bench` measures."""
    from ..report.narrow import show
    from ..report.tables import text_table
    from ..results.listings import StudyEntry, StudyList
    from ..studies.registry import REGISTRY

    broken: list[str] = []
    screen = listing_screen(json)
    known = loadable(REGISTRY, broken)
    entries = [StudyEntry(name=name, question=each.summary, paper=each.paper) for name, each in known.items()]
    lines = ((entry.name, entry.paper or "-", entry.question) for entry in entries)
    show(text_table(("study", "paper", "what it measures"), lines), screen)
    for each in broken:
        screen.print(each, style="red", soft_wrap=True)
    put_list(json, StudyList(studies=tuple(entries), broken=tuple(broken)))
