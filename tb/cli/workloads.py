"""`meshloom workloads`."""

from __future__ import annotations

from typing import Annotated

import typer

from .completion import complete_workloads
from .options import examples

app = typer.Typer()


@app.command(epilog=examples("meshloom workloads", "meshloom workloads vgg16", "meshloom workloads regression"))
def workloads(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=complete_workloads,
            help="Name whose layers to show.",
        ),
    ] = None,
) -> None:
    """List the built-in networks and the syntax of shapes, or the layers of one name."""
    from ..report.console import console
    from ..report.narrow import show
    from ..runs.kinds import table

    if name is None:
        for text in table.syntaxes():
            console().print(text, markup=False, soft_wrap=True)
        return
    from meshloom.sched.workload.catalog import find

    from ..report.tables import workload_table

    show(workload_table(find(name)), console())
