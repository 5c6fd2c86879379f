"""`meshloom explain`: why a run took its cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import STDOUT, RunName, examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom explain latest",
        "meshloom explain latest --workload resnet8 --layer conv3_1_1",
        "meshloom explain latest --op 527 --json - | jq .path",
    )
)
def explain(
    run: RunName,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Which workload of the run.")] = None,
    layer: Annotated[str | None, typer.Option(metavar="NAME", help="Only this layer of a network.")] = None,
    operation: Annotated[
        int | None,
        typer.Option("--op", metavar="N", min=0, help="The path to the end of this operation, and its wait."),
    ] = None,
    model: Annotated[bool, typer.Option("--model", help="Explain the model's cycles instead of the RTL's.")] = False,
    waits: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the most costly waits.")] = 10,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Write all of it as JSON; - is stdout, and nothing else."),
    ] = None,
) -> None:
    """Explain the cycles of a run that was made with --artefacts.

    A waterfall from the ideal cycles to those that it took, by cause and layer; the critical path, from the end
    backwards; the waits of arrays that cost most, and what they were for; and where model and RTL differ.
    """
    from ..compare.explained import explained
    from ..compare.kept import kept
    from ..report.console import console
    from ..report.explained import print_explanation
    from ..results.named import find, one
    from ..results.schema import write_atomically

    found = one(find(run), workload).load()
    said = explained(kept(found), model, layer, operation, waits)
    if json == STDOUT:
        typer.echo(said.model_dump_json(indent=2))
        return
    if json is not None:
        write_atomically(json, said.model_dump_json(indent=2) + "\n")
    print_explanation(said, found.chip, console(), layer, operation)
