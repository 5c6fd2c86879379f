"""`meshloom compare`: runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Energy, RunNames, SavedChip, Set, examples
from ..results.exits import Exit
from .fields import saved_chip
from .outputs import STDOUT, check_page, check_places, put
from .requests import once

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ..results.comparison import Comparisons
    from ..results.named import NamedRun

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom compare before.json after.json",
        "meshloom compare main.json latest --max-regression 2%",
        "meshloom compare before.json after.json --out comparison.html",
        "meshloom compare monday.json tuesday.json latest --json - | jq '.workloads[].fastest'",
        "meshloom compare latest",
    )
)
def compare(
    runs: RunNames,
    max_regression: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with status 1 if a workload takes more cycles than in the first run by more than that, is "
            "missing or did not run.",
        ),
    ] = None,
    chip: SavedChip = None,
    set: Set = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Also write a page (one HTML file that fetches nothing)."),
    ] = None,
    energy: Energy = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Also write it as JSON; - is stdout, and nothing else is printed."),
    ] = None,
) -> None:
    """Compare runs, of different schedulers, chips or commits: what moved, layer by layer, and why.

    Workloads are matched by name. Runs whose artefacts are there are compared cause by cause, exactly; of others,
    networks by the shares in their results. Of three or more, each is compared with the first. One alone: what ran on
    several chips or by several schedulers, or else the model's cycles with the RTL's.
    """
    from ..compare.compared import against_model
    from ..compare.compared import compare as compare_two
    from ..compare.ranked import ranked, targets
    from ..report.compared import print_comparison
    from ..report.comparison_page import comparison_page
    from ..report.console import console
    from ..report.ranked import print_rankings
    from ..results.energy import load as load_energy
    from ..results.ranking import Rankings

    bound = None if max_regression is None else _percent(max_regression)
    table = None if energy is None else load_energy(energy)
    check_places(json)
    check_page(out)
    each = _read(runs, saved_chip(chip, set))
    first, *others = each.values()
    if not others and len(pieces := targets(first)) > 1:
        each = pieces
        first, *others = each.values()
    if len(others) > 1 and table is not None:
        raise typer.BadParameter("is for one run or two", param_hint="--energy")
    if len(others) > 1 and out is not None:
        raise typer.BadParameter("is for one run or two", param_hint="--out")
    result: Rankings | Comparisons
    if len(others) > 1:
        result = ranked(each, bound)
    else:
        result = compare_two(first, others[0], table, bound) if others else against_model(first, bound)
    if json is not None:
        put(json, result.model_dump_json(indent=2) + "\n")
    if out is not None and not isinstance(result, Rankings):
        put(out, comparison_page(result))
    if json != STDOUT:
        print_rankings(result, console()) if isinstance(result, Rankings) else print_comparison(result, console())
    if result.regressions:
        raise typer.Exit(Exit.WRONG)


def _read(names: Sequence[str], chip: ChipConfig | None) -> Mapping[str, Sequence[NamedRun]]:
    """The workloads of each run. `chip`: of saved schedules among them. Raises BadParameter, and what looking for a run
    raises."""
    from ..runs.planned import find, is_saved

    saved = [name for name in names if is_saved(name)]
    return {name: find(name, chip if name in saved or not saved else None) for name in once(names, "RUN")}


def _percent(text: str) -> float:
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        number = float("nan")
    if not isfinite(number) or number < 0:
        raise typer.BadParameter(f"{text!r} must be a percentage such as 2%", param_hint="--max-regression")
    return number
