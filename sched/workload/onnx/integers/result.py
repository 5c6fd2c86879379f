"""The network that a context has built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...graph import Graph, Layer, Value
from ..errors import OnnxError
from ..metadata import Metadata
from ..reader_context import COPY
from .context import IntegerContext


def build_graph(context: IntegerContext, metadata: Metadata | None) -> Graph:
    """The network. Raises OnnxError when an output of the model is none of its tensors."""
    steps = (context.steps if metadata is None else metadata.steps) | context.ends
    outputs: list[str] = []
    for output in context.model.outputs:
        view = context.views.get(output)
        if view is None or view.value is None:
            raise OnnxError(f"{context.model.name}: output {output!r} is not 8-bit; export the integer result")
        name = view.value
        if name in context.sources:  # an input that is an output, too
            name = f"{view.value}{COPY}"
            if name not in context.layers:
                context.emit(Layer("max_pool", name, (view.value,)), view.zero, view.step)
        outputs.append(name)
    if all(name.endswith(COPY) for name in context.layers):
        raise OnnxError(f"{context.model.name}: nothing is left to compute; give a model with layers")
    inputs: list[Value] = []
    for source, size in context.sources.items():
        inputs.append(Value(source, *size, steps.get(source, 0.0)))
    graph = Graph(
        name=Path(context.model.name).stem,
        inputs=tuple(inputs),
        layers=tuple(context.layers.values()),
        outputs=tuple(dict.fromkeys(outputs)),
        steps={key: steps[key] for key in context.layers if key in steps},
        real=True,
        notes=tuple(context.end_notes()),
    )
    if metadata is None:
        return graph
    return replace(
        graph,
        name=metadata.name,
        real=metadata.real,
        labels=metadata.labels,
        picture=metadata.graph_picture(),
        notes=(*metadata.notes, *graph.notes),
    )
