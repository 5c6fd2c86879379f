"""`meshloom report`: a run as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..api.options import Area, Clock, Energy, RunName, SavedChip, Set, examples
from .fields import saved_chip
from .outputs import check_page, check_places, put

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom report latest --out run.html",
        "meshloom report latest --trace run.json.gz",
    )
)
def report(
    run: RunName = "latest",
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only this workload of the run.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this scheduler made, of a run of several.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="Write a page (one HTML file, which fetches nothing).")
    ] = None,
    chip: SavedChip = None,
    set: Set = None,
    clock: Clock = None,
    energy: Energy = None,
    area: Area = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="PATH", help="Write a trace for ui.perfetto.dev (.json, or .json.gz)."),
    ] = None,
) -> None:
    """Write a run that is over as a page to look at, or as a trace for Perfetto.

    The page has for each workload the figures, layers, waterfall, timeline, roofline, links on the floorplan, memories
    over time, and faults. The trace has planned and measured slices of every unit, DRAM channel and link, side by side.
    """
    if out is None and trace is None:
        raise typer.BadParameter("say what to write: --out run.html, --trace run.json", param_hint="--out")

    from ..compare.explained import explained_all
    from ..compare.pictures import pictures
    from ..compare.timelines import timeline
    from ..report.console import console
    from ..report.page import Shown, page
    from ..report.progress import Working
    from ..report.trace import save_trace
    from ..results.energy import load as load_energy
    from ..results.named import chosen
    from ..runs.planned import find

    check_page(out)
    check_places(trace)
    some = chosen(find(run, saved_chip(chip, set)), workload, scheduler)
    screen = console()
    table = None if energy is None else load_energy(energy)
    with Working(console(stderr=True), "explaining") as work:
        runs, failed = explained_all(some, table, None, area=area, on_progress=work.say, clock_mhz=clock)
    for name, why in failed.items():
        screen.print(f"{name}: {why}", style="yellow", markup=False, soft_wrap=True)
    if trace is not None:
        with Working(console(stderr=True), "writing the trace"):
            save_trace([(timeline(each.run), each.run.row) for each in runs], trace)
        screen.print(f"trace: {trace}; open it in https://ui.perfetto.dev", markup=False, soft_wrap=True)
    if out is not None:
        with Working(console(stderr=True), "drawing") as work:
            shown: list[Shown] = []
            for each in runs:
                work.say(f"drawing {each.run.row.workload}")
                drawn = pictures(each.run, each.artefacts, each.why.waterfall, each.model)
                shown.append(Shown(each.run.row, each.why, drawn, each.run.chip))
            put(out, page(shown, failed))
        screen.print(f"page: {out}", markup=False, soft_wrap=True)
