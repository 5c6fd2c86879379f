"""`meshloom workloads`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..api.completion import complete_workloads
from ..api.options import examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom workloads",
        "meshloom workloads vgg16",
        "meshloom workloads gradient:bert",
        "meshloom workloads regression",
    )
)
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
    if table.is_file(name) or name.endswith(".onnx"):
        raise typer.BadParameter(f"{name}: `meshloom check {name}` says what is in a file", param_hint="NAME")
    from ..report.tables import request_table, workload_table
    from ..runs.kinds.layers import SingleLayer

    requests = table.find(f"{name}/*" if table.is_network(name) else name)
    layers = [request.subject for request in requests if isinstance(request, SingleLayer)]
    if len(layers) == len(requests):
        show(workload_table(layers), console())
    else:
        show(request_table((request.name, request.macs) for request in requests), console())
