"""`meshloom sweep`: many points, on all CPUs or on a cluster, into one table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Cluster, MemoryLimit, Network, TimeLimit, examples
from ..api.request import limited
from ..results.exits import Exit
from ..results.schema import Status
from .errors import resumable
from .outputs import check_places
from .requests import filled

if TYPE_CHECKING:
    from ..results.sweep import PointRow

app = typer.Typer()
#: Failures that are printed as they come; all of them are in the table.
_SHOWN = 10


@dataclass(frozen=True)
class SweepRequest:
    """A sweep: the fields are the options of the command."""

    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="What to sweep; see docs/sweeps.md.")]
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the rows; what it has is not made again."),
    ] = None
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Worker processes on this machine; default: one per CPU.")
    ] = len(os.sched_getaffinity(0))
    cluster: Cluster = None
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PATH", help="Then draw all rows and their Pareto front: .svg or .png."),
    ] = None
    aims: Annotated[
        str,
        typer.Option(
            "--pareto", metavar="COLUMN,COLUMN", help="Columns of --plot: least is best, with - in front greatest."
        ),
    ] = "cycles,dram_bytes"
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    retry: Annotated[bool, typer.Option("--retry", help="Make points again that failed.")] = False
    only_plan: Annotated[bool, typer.Option("--plan", help="Say how many points there are, and make none.")] = False


@app.command(
    epilog=examples(
        "meshloom sweep memory.toml",
        "meshloom sweep memory.toml --plot front.svg --pareto cycles,-utilisation",
        "meshloom sweep memory.toml --cluster tls://head:8786 --out results/memory",
        "meshloom query sim_build/sweeps/memory 'select chip, min(cycles) from points group by chip'",
    )
)
@filled(SweepRequest)
def sweep(request: SweepRequest) -> None:
    """Predict or run every point of a sweep: chips x schedulers x workloads x options.

    Rows are kept as they come, so an interrupted sweep goes on where it was: run the same command again. A point that
    fails is a row with its error. The exit status is 1 if a byte differs or the model is off, 3 if a point failed.
    """
    from ..report.console import console
    from ..report.progress import Counted
    from ..results.sweep import read
    from ..runs.sweeps import query as queries
    from ..runs.sweeps import sweep as sweeps
    from ..runs.sweeps.store import Store

    file = read(request.file)
    check_places(request.plot)
    folder = request.out or sweeps.default_folder(file)
    screen = console()
    if request.only_plan:
        points = sweeps.plan(file, request.file.parent)
        done = len({point.key for point in points} & Store(folder).done(failed_too=not request.retry).keys())
        screen.print(f"{file.name}: {len(points):,} points, {done:,} of them in {folder}", markup=False)
        return
    failures: list[PointRow] = []
    with limited(request.time_limit, request.memory_limit, request.network), Counted(screen, file.name) as progress:

        def on_rows(rows: Sequence[PointRow]) -> None:
            for row in rows:
                if row.error is not None:
                    failures.append(row)
                    if len(failures) <= _SHOWN:
                        message = f"{row.workload} on {row.chip} by {row.scheduler}: {row.error}"
                        screen.print(message, style="red", markup=False, soft_wrap=True)
            progress.advance(len(rows), f"{len(failures)} failed" if failures else "")

        with resumable(lambda: f"{progress.reached}; their rows are kept in {folder}"):
            outcome = sweeps.run(
                file,
                request.file.parent,
                folder,
                jobs=request.jobs,
                address=request.cluster,
                retry=request.retry,
                on_plan=progress.begin,
                on_rows=on_rows,
            )
    more = f", {len(failures):,} of them failed" if failures else ""
    before = f", {len(outcome.failed_before):,} of them failed (--retry)" if outcome.failed_before else ""
    screen.print(
        f"{file.name}: {len(outcome.rows):,} of {outcome.points:,} points made{more}, {outcome.existing:,} were there"
        f"{before}",
        markup=False,
        soft_wrap=True,
    )
    screen.print(f"rows: {folder}", markup=False, soft_wrap=True)
    if request.plot is not None:
        queries.draw(queries.rows(folder), [aim.strip() for aim in request.aims.split(",")], request.plot)
        screen.print(f"picture: {request.plot}", markup=False, soft_wrap=True)
    if failures or outcome.failed_before:
        wrong = any(row.error_kind is None for row in failures) or Status.MISMATCH in outcome.failed_before
        raise typer.Exit(Exit.WRONG if wrong else Exit.NOT_RUN)
