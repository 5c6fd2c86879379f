"""`meshloom explain`: why a run took its cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Area, Energy, RunName, SavedChip, examples
from .outputs import STDOUT, check_places, put

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom explain latest",
        "meshloom explain latest --workload resnet8 --layer conv3_1_1",
        "meshloom explain conv1.json",
        "meshloom explain latest --op 527 --json - | jq '.workloads[0].path'",
    )
)
def explain(
    run: RunName,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only this workload of the run.")] = None,
    layer: Annotated[str | None, typer.Option(metavar="NAME", help="Only this layer of a network.")] = None,
    operation: Annotated[
        int | None,
        typer.Option("--op", metavar="N", min=0, help="The path to the end of this operation, and its wait."),
    ] = None,
    model: Annotated[bool, typer.Option("--model", help="Explain the model's cycles instead of the RTL's.")] = False,
    waits: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the most costly waits.")] = 10,
    chip: SavedChip = None,
    energy: Energy = None,
    area: Area = False,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Write all of it as JSON; - is stdout, and nothing else."),
    ] = None,
) -> None:
    """Explain the cycles of a run that is over, workload by workload.

    A waterfall from the ideal cycles to those that it took, by cause and layer; the critical path, from the end
    backwards; the waits of arrays that cost most, and what they were for; where model and RTL differ; and
    estimates of the energy and, if it is known or `--area` is given, of the chip's area.
    """

    from ..compare.explained import explained, explained_all
    from ..compare.kept import kept
    from ..report.console import console
    from ..report.explained import print_explanation, print_overview
    from ..results.energy import load as load_energy
    from ..results.explanation import Explanations
    from ..results.named import one
    from ..runs.planned import find

    check_places(json)
    there = find(run, chip)
    if workload is not None or layer is not None or operation is not None:
        there = (one(there, workload),)
    if layer is not None or operation is not None:
        found = there[0].load()
        parts = [(explained(kept(found), model, layer, operation, waits), found.chip)]
        failed: dict[str, str] = {}
    else:
        table = None if energy is None else load_energy(energy)

        def tell(what: str) -> None:
            console(stderr=True).print(what, style="dim", markup=False, soft_wrap=True)

        told, failed = explained_all(there, table, model, waits, area, tell)
        parts = [(each.why, each.run.chip) for each in told]
    said = Explanations(workloads=tuple(why for why, _ in parts), unexplained=failed)
    if json is not None:
        put(json, said.model_dump_json(indent=2) + "\n")
    if json == STDOUT:
        return
    screen = console()
    if len(there) > 1:
        print_overview(said, screen)
    for why, of in parts:
        print_explanation(why, of, screen, layer, operation)
