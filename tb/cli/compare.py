"""`meshloom compare`: two runs side by side."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from ..api.options import Energy, RunName, SavedChip, examples
from ..results.exits import Exit
from .outputs import STDOUT, check_places, put

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom compare before.json after.json",
        "meshloom compare main.json latest --max-regression 2%",
        "meshloom compare before.json after.json --out comparison.html",
        "meshloom compare latest",
    )
)
def compare(
    a: RunName,
    b: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The other run; without it, the model's cycles of the first and the RTL's."),
    ] = None,
    max_regression: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with status 1 if a workload takes more cycles by more than that, is missing or did not run.",
        ),
    ] = None,
    chip: SavedChip = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="Also write a page (one HTML file, no network needed).")
    ] = None,
    energy: Energy = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Also write it as JSON; - is stdout, and nothing else is printed."),
    ] = None,
) -> None:
    """Compare two runs, of different schedulers, chips or commits: what moved, layer by layer, and why.

    Workloads are matched by name. Runs whose artefacts are there are compared cause by cause, exactly; of others,
    networks by the shares in their results.
    """

    from ..compare.compared import against_model
    from ..compare.compared import compare as compare_runs
    from ..report.compared import print_comparison
    from ..report.comparison_page import comparison_page
    from ..report.console import console
    from ..results.energy import load as load_energy
    from ..runs.planned import find, is_saved

    bound = None if max_regression is None else _percent(max_regression)
    table = None if energy is None else load_energy(energy)
    check_places(json, out)
    saved = [each for each in (a, b) if each is not None and is_saved(each)]
    runs = [find(each, chip if each in saved or not saved else None) for each in (a, b) if each is not None]
    comparisons = against_model(runs[0], bound) if b is None else compare_runs(runs[0], runs[1], table, bound)
    if json is not None:
        put(json, comparisons.model_dump_json(indent=2) + "\n")
    if out is not None:
        put(out, comparison_page(comparisons))
    if json != STDOUT:
        print_comparison(comparisons, console())
    if comparisons.regressions:
        raise typer.Exit(Exit.WRONG)


def _percent(text: str) -> float:
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        number = float("nan")
    if not isfinite(number) or number < 0:
        raise typer.BadParameter(f"{text!r} must be a percentage such as 2%", param_hint="--max-regression")
    return number
