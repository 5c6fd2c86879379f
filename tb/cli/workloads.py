"""`meshloom workloads`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..api.completion import complete_workloads
from ..api.options import Json, examples
from .outputs import listing_screen, put_list

if TYPE_CHECKING:
    from ..results.listings import WorkloadEntry
    from ..runs.kinds.interface import WorkloadRequest

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
    json: Json = None,
) -> None:
    """List the built-in networks and the syntax of shapes, or the layers of one name."""
    from ..report.narrow import show
    from ..report.tables import request_table, workload_table
    from ..results.listings import WorkloadEntry, WorkloadList
    from ..runs.kinds import table
    from ..runs.kinds.layers import SingleLayer

    screen = listing_screen(json)
    if name is None:
        from meshloom.sched.workload import zoo

        texts = tuple(table.syntaxes())
        for text in texts:
            screen.print(text, soft_wrap=True)
        networks = (WorkloadEntry(name=each, kind="network", real=each in zoo.TRAINED) for each in zoo.names())
        put_list(json, WorkloadList(workloads=tuple(networks), syntaxes=texts))
        return
    if table.is_file(name) or name.endswith(".onnx"):
        raise typer.BadParameter(f"{name}: `meshloom check {name}` says what is in a file", param_hint="NAME")
    requests = table.find(f"{name}/*" if table.is_network(name) else name)
    layers = [request.subject for request in requests if isinstance(request, SingleLayer)]
    if len(layers) == len(requests):
        show(workload_table(layers), screen)
    else:
        show(request_table((request.name, request.macs) for request in requests), screen)
    put_list(json, WorkloadList(workloads=tuple(_entry(request) for request in requests)))


def _entry(request: WorkloadRequest) -> WorkloadEntry:
    from ..results.listings import WorkloadEntry
    from ..runs.kinds.layers import SingleLayer

    if not isinstance(request, SingleLayer):
        return WorkloadEntry(name=request.name, kind="other", macs=request.macs)
    shape = request.subject.shape
    return WorkloadEntry(
        name=request.name,
        kind="layer",
        macs=shape.macs,
        input=shape.x_shape,
        output=shape.y_shape,
        real=request.subject.real,
    )
