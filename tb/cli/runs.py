"""`meshloom runs`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..api.options import Json, examples
from .outputs import listing_screen, put_list

app = typer.Typer()


@app.command(
    epilog=examples("meshloom runs", "meshloom runs --last 0 --json - | jq '.runs[] | select(.ok | not) | .run'")
)
def runs(
    last: Annotated[int, typer.Option("--last", min=0, metavar="N", help="How many; 0: all.")] = 20,
    json: Json = None,
) -> None:
    """List the last runs in sim_build/results, newest first: what they were and how they ended.

    `meshloom explain`, `compare` and `report` take a run by its name.
    """
    from ..report.narrow import show
    from ..report.past import runs_table
    from ..results.listings import RunList
    from ..results.past import past
    from ..results.recorder import RESULTS_FOLDER

    screen = listing_screen(json)
    entries = tuple(past(last))
    if entries:
        show(runs_table(entries), screen)
    else:
        screen.print(f"nothing has been run here (there is nothing in {RESULTS_FOLDER}); try `meshloom run gemm:8x8x8`")
    put_list(json, RunList(runs=entries))
