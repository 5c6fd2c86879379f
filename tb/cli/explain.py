"""`meshloom explain`: why a run took its cycles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..api.options import Area, Clock, Energy, RunName, SavedChip, Set, examples
from .fields import saved_chip
from .outputs import STDOUT, check_places, put
from .requests import filled

app = typer.Typer()


@dataclass(frozen=True)
class ExplainRequest:
    """A run to be explained: the fields are the options of the command."""

    run: RunName = "latest"
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only this workload of the run.")] = None
    scheduler: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this scheduler made, of a run of several.")
    ] = None
    layer: Annotated[str | None, typer.Option(metavar="NAME", help="Only this layer of a network.")] = None
    operation: Annotated[
        int | None,
        typer.Option("--op", metavar="N", min=0, help="The path to the end of this operation, and its wait."),
    ] = None
    model: Annotated[bool, typer.Option("--model", help="Explain the model's cycles instead of the RTL's.")] = False
    waits: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the most costly waits.")] = 10
    chip: SavedChip = None
    set: Set = None
    clock: Clock = None
    energy: Energy = None
    area: Area = False
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Write all of it as JSON; - is stdout, and nothing else."),
    ] = None


@app.command(
    epilog=examples(
        "meshloom explain latest",
        "meshloom explain latest --workload resnet8 --layer conv3_1_1",
        "meshloom explain latest --scheduler loop_order",
        "meshloom explain conv1.json",
        "meshloom explain latest --op 527 --json - | jq '.workloads[0].path'",
    )
)
@filled(ExplainRequest)
def explain(request: ExplainRequest) -> None:
    """Explain the cycles of a run that is over, workload by workload.

    A waterfall from the ideal cycles to those that it took, by cause and layer; the critical path, from the end
    backwards; the waits of arrays that cost most, and what they were for; where model and RTL differ; and
    estimates of the energy and, if it is known or `--area` is given, of the chip's area.
    """

    from ..compare.explained import explained, explained_all
    from ..compare.finished import finished_run
    from ..report.console import console
    from ..report.explained import print_explanation, print_overview
    from ..report.progress import Working
    from ..results.energy import load as load_energy
    from ..results.explanation import Explanations
    from ..results.named import chosen, one
    from ..runs.planned import find

    check_places(request.json)
    runs = chosen(find(request.run, saved_chip(request.chip, request.set)), request.workload, request.scheduler)
    part = request.layer is not None or request.operation is not None
    if part:
        runs = (one(runs, None),)
    unexplained: dict[str, str] = {}
    if part:
        with Working(console(stderr=True), f"explaining {runs[0].row.workload}"):
            run = runs[0].load()
            why = explained(finished_run(run), request.model, request.layer, request.operation, request.waits)
        explanations = [(why, run.chip)]
    else:
        table = None if request.energy is None else load_energy(request.energy)
        with Working(console(stderr=True), "explaining") as work:
            each, unexplained = explained_all(
                runs, table, request.model, request.waits, request.area, work.say, request.clock
            )
        explanations = [(explanation.why, explanation.run.chip) for explanation in each]
    record = Explanations(workloads=tuple(why for why, _ in explanations), unexplained=unexplained)
    if request.json is not None:
        put(request.json, record.model_dump_json(indent=2) + "\n")
    if request.json == STDOUT:
        return
    screen = console()
    if len(runs) > 1:
        print_overview(record, screen)
    for why, chip in explanations:
        print_explanation(why, chip, screen, request.layer, request.operation)
