"""`meshloom workloads`."""

from __future__ import annotations

from textwrap import fill
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
    from meshloom.sched.workload import zoo
    from meshloom.sched.workload.catalog import find
    from meshloom.sched.workload.shapes import SYNTAX
    from meshloom.sched.workload.training import SYNTAX as GRADIENTS
    from meshloom.sched.workload.training import VARIANTS
    from meshloom.sched.workload.training_chain import ROWS
    from meshloom.sched.workload.training_chain import SYNTAX as CHAINS
    from meshloom.sched.workload.training_tables import TABLES

    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import workload_table

    if name is not None:
        show(workload_table(find(name)), console())
        return
    console().print(
        f"networks: {', '.join(zoo.names())}, an .onnx file, regression (what `make sim` runs)",
        markup=False,
        soft_wrap=True,
    )
    console().print(
        "layers:   NETWORK/LAYER, or 'NETWORK/*' for each by itself; `meshloom workloads NETWORK` lists them; a "
        "topology of SCALE-Sim (FILE.csv, FILE.csv/LAYER)",
        markup=False,
        soft_wrap=True,
    )
    console().print(f"shapes:\n{SYNTAX}", markup=False, soft_wrap=True)
    trained = fill(f"networks: {', '.join((*VARIANTS, *TABLES))}", 78, subsequent_indent="  ")
    console().print(f"training:\n{GRADIENTS}\n{trained}", markup=False, soft_wrap=True)
    console().print(f"{CHAINS}\nnetworks: {', '.join(ROWS)}", markup=False, soft_wrap=True)
