"""`meshloom schemas`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..api.options import examples

app = typer.Typer()


@app.command(epilog=examples("meshloom schemas --out schemas"))
def schemas(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")] = Path("schemas"),
) -> None:
    """Write JSON Schemas of chips, schedules, scenarios and sweeps, with which editors complete and check, and of all
    that commands write as JSON."""
    from ..report.console import console
    from ..results.json_schemas import write

    for path in write(out):
        console().print(str(path), markup=False, soft_wrap=True)
