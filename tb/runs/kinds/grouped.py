"""Networks by the fused groups of another tool: what they are of, and their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshloom.sched.lowering.predict import prediction
from meshloom.sched.lowering.programs import program_of
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.groups.mapping import GroupedNetwork
from meshloom.sched.schedulers.groups.schedule import schedule
from meshloom.sched.schedulers.nest.mapping import MappingError
from meshloom.sched.workload import layer_chain
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import WorkloadError

from ...exchange.reading import read_groups
from ...inputs.sources import Feed, NetworkSource, check_files, is_network, ready
from .. import network
from .interface import Listener
from .networks import NetworkRun

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig


@dataclass(frozen=True)
class MappedNetwork:
    """A network in a tool's fused groups. `title`: its name in tables; `path`: the tool's file; `feed`: its input."""

    title: str
    path: Path
    graph: Graph
    feed: Feed
    mapped: GroupedNetwork


def is_grouped(workload: str | None) -> bool:
    """Whether a name means several layers together."""
    return workload is not None and is_network(workload)


def read(importer: str, path: Path, workload: str | None) -> MappedNetwork:
    """A network, with what it is fed, and how a tool maps it. Raises the errors of the file, and of the workload."""
    assert workload is not None
    source = NetworkSource(workload)
    check_files(source)
    graph, feeds = ready(source)
    if layer_chain.is_chain(workload):
        names = None
    elif workload.endswith(".onnx"):
        names = _nodes(workload, graph)
    else:
        names = {layer.output: layer.output for layer in graph.layers}
    return MappedNetwork(source.title, path, graph, feeds[0], read_groups(importer, path, graph, names))


def _nodes(file: str, graph: Graph) -> dict[str, str]:
    """For each node of an ONNX file the layer that computes it: the one that makes its result, or the next result
    behind it. Raises WorkloadError for two nodes of a name, and for one whose loops are not those of a Conv."""
    import onnx

    model = onnx.load(file, load_external_data=False)  # pyright: ignore[reportUnknownMemberType]
    layers = {layer.output for layer in graph.layers}
    names: dict[str, str] = {}
    behind: dict[str, str] = {}  # what makes use of a tensor, by its name
    for node in reversed(model.graph.node):
        (first, *_) = node.output
        result = first if first in layers else behind.get(first)
        for name in node.input:
            if result is not None:
                behind[name] = result
        if result is not None:
            if node.op_type in ("Gemm", "MatMul"):
                raise WorkloadError(
                    f"{file}: node {node.name} is a {node.op_type}, with other dimensions; write it as a Conv of 1x1"
                )
            if node.name in names:
                raise WorkloadError(f"{file}: two nodes are called {node.name!r}; give each a name of its own")
            names[node.name] = result
    return names


def plan(
    source: MappedNetwork, chip: ChipConfig, origin: Mapping[str, Any], progress: Listener, *, nearest: bool
) -> NetworkRun:
    """Its run. Raises MappingError, DoesNotFit."""
    progress.step("scheduling")
    try:
        result = schedule(source.graph, chip, source.mapped, nearest=nearest)
    except MappingError as error:
        raise MappingError(f"{source.path}: {error}") from error
    program = program_of(result.schedule, chip, progress.step)
    progress.step("predicting its cycles")
    timeline = play(program, chip)
    predicted = {"predicted": prediction(result.schedule, program, timeline)}
    result = replace(result, schedule=result.schedule.model_copy(update=predicted))
    prepared = network.PreparedNetwork(result, program, timeline)
    return NetworkRun(prepared, source.title, source.feed, None, {"scheduler": result.schedule.scheduler, **origin})
