"""Stream's mapping of layers that it fuses: `mapping.yaml` of several layers, as stream-dse 2.1 writes it.

`fused_groups` says which layers are computed together and the tiles of their common loops, innermost first. A tile is
named by one layer, and cuts the same loop of all: the channels that a layer makes are those that the next one sums,
and the pixels of the one are, stride by stride, the pixels of the other. Each layer has its own cores. A tile of a
layer is passed on to the cores of the next, which begins when all that its windows reach is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.groups.mapping import FusedGroup, GroupedNetwork, GroupLayer
from meshloom.sched.schedulers.nest.mapping import Dimension, Factor, MappingError
from meshloom.sched.schedulers.nest.schedule import sizes_of
from meshloom.sched.workload.graph import Graph, Layer

from .interface import ImportFileError
from .stream import (
    TOOL,
    WHAT,
    StreamFile,
    StreamGroup,
    StreamLayer,
    claim_beside,
    core_sizes,
    dimension_of,
    layer_mapping,
    yaml_of,
)

#: A loop of a layer of the network.
_Loop = tuple[str, Dimension]
#: Loops over which two layers go together: of what makes a tensor, and of what reads it.
_TOGETHER = (
    (Dimension.B, Dimension.B),
    (Dimension.K, Dimension.C),
    (Dimension.OY, Dimension.OY),
    (Dimension.OX, Dimension.OX),
)


def read(path: Path, graph: Graph, names: Mapping[str, str] | None) -> GroupedNetwork:
    """A `GroupReader`."""
    file = yaml_of(path, StreamFile, WHAT)
    layers = _layers(path, file, graph, names)
    groups = file.fused_groups or [StreamGroup(layers=[each.name]) for each in file.layers]
    own = {each.name: name for name, each in layers.items()}
    try:
        result = [_group(group, [own[n] for n in group.layers if n in own], layers, graph) for group in groups]
    except MappingError as error:
        raise MappingError(f"{path}: {error}") from None
    listed = [name for group in result for name in group.layers]
    for name in own.values():
        if (times := listed.count(name)) != 1:
            raise ImportFileError(f"{path}: layer {name} is in {times} of its fused_groups, it must be in one")
    claim = claim_beside(path) if len(result) == 1 else ToolClaim(tool=TOOL)
    return GroupedNetwork(result, claim.model_copy(update={"transfers": ()}))


def _layers(path: Path, file: StreamFile, graph: Graph, names: Mapping[str, str] | None) -> dict[str, StreamLayer]:
    """The file's layer of each convolution of the network, by the name of what that makes. A layer that is computed
    with another, such as a Relu, must be on the same cores. Raises ImportFileError."""
    convolutions = [layer.output for layer in graph.layers if layer.kind == "conv"]
    if names is None:
        if len(file.layers) != len(convolutions):
            raise ImportFileError(
                f"{path}: maps {len(file.layers)} layers ({_listing(each.name for each in file.layers)}), the workload "
                f"has {len(convolutions)} ({_listing(convolutions)}); name with --workload as many as it maps"
            )
        names = {each.name: name for each, name in zip(file.layers, convolutions, strict=True)}
    layers: dict[str, StreamLayer] = {}
    for each in file.layers:
        name = names.get(each.name)
        if name is None:
            raise ImportFileError(
                f"{path}: layer {each.name} is no node of the workload, which has {_listing(names)}; name with "
                "--workload the network that was mapped"
            )
        first = layers.setdefault(name, each)
        if (first.core_allocation, first.inter_core_tiling) != (each.core_allocation, each.inter_core_tiling):
            raise ImportFileError(
                f"{path}: layer {each.name} is computed with {first.name} here, but has other cores or another "
                f"inter_core_tiling; give it those of {first.name}"
            )
    if missing := [name for name in convolutions if name not in layers]:
        raise ImportFileError(
            f"{path}: layer {missing[0]} of the workload is not mapped; map all {len(convolutions)}, or name "
            "with --workload those that are"
        )
    return {name: layers[name] for name in convolutions}


def _listing(names: Iterable[str], most: int = 4) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (", ..." if len(every) > most else "")


def _group(group: StreamGroup, members: Sequence[str], layers: Mapping[str, StreamLayer], graph: Graph) -> FusedGroup:
    """Raises MappingError."""
    own = [layer for layer in graph.layers if layer.output in members]
    if not own:
        raise MappingError(f"group {_listing(group.layers)} has no convolution; leave it out")
    sizes = {layer.output: sizes_of(graph.conv_shape(layer)) for layer in own}
    roots = _roots(own)
    loops = _common_loops(group, layers, sizes, roots)
    mapped: dict[str, GroupLayer] = {}
    for layer in own:
        name, stream = layer.output, layers[layer.output]
        inside = core_sizes(stream, sizes[name])
        outside: list[tuple[int, Factor]] = []
        for number, (root, count) in enumerate(loops):
            for dimension in (d for d in Dimension if roots.get((name, d)) == root):
                if inside[dimension] % count:
                    raise MappingError(
                        f"{count} tiles of {root[1]} of {layers[root[0]].name} do not divide the {inside[dimension]} "
                        f"of {dimension} that a core has of {stream.name}; take tiles that divide both"
                    )
                outside.append((number, Factor(dimension, count)))
        mapping = layer_mapping(stream, [factor for _, factor in outside], sizes[name])
        mapped[name] = GroupLayer(mapping, tuple(number for number, _ in outside))
    return FusedGroup(mapped, len(loops))


def _common_loops(
    group: StreamGroup,
    layers: Mapping[str, StreamLayer],
    sizes: Mapping[str, Mapping[Dimension, int]],
    roots: Mapping[_Loop, _Loop],
) -> list[tuple[_Loop, int]]:
    """The group's loops, innermost first, each with its iterations. Raises MappingError."""
    by_tool = {layers[name].name: name for name in sizes}
    loops: dict[_Loop, int] = {}
    for tile in group.intra_core_tiling:
        tool = tile.dim.rpartition(".")[0]
        name = by_tool.get(tool) if tool else next(iter(sizes))
        if name is None:
            raise MappingError(f"tiles of {tile.dim}: {tool or 'it'} is no convolution of its group")
        dimension = dimension_of(tile.dim)
        inside = core_sizes(layers[name], sizes[name])[dimension]
        if inside % tile.tile:
            raise MappingError(f"tiles of {tile.tile} of {tile.dim} do not divide the {inside} of a core")
        root, count = roots.get((name, dimension), (name, dimension)), inside // tile.tile
        if loops.setdefault(root, count) != count:
            raise MappingError(
                f"tiles of {tile.tile} of {tile.dim} make {count} iterations of a loop that another tile of the group "
                f"cuts into {loops[root]}; give it one"
            )
    return [(root, count) for root, count in loops.items() if count > 1]


def _roots(layers: Sequence[Layer]) -> dict[_Loop, _Loop]:
    """For each loop of each layer one that stands for all that go together with it."""
    roots: dict[_Loop, _Loop] = {(layer.output, d): (layer.output, d) for layer in layers for d in Dimension}

    def root(loop: _Loop) -> _Loop:
        while roots[loop] != loop:
            loop = roots[loop]
        return loop

    results = {layer.output for layer in layers}
    makers: dict[str, str] = {}  # of tensors from outside: the first that reads them
    for layer in layers:
        source = layer.inputs[0]
        if source in results:
            for of_maker, of_reader in _TOGETHER:
                roots[root((layer.output, of_reader))] = root((source, of_maker))
        elif source in makers:
            for _, of_reader in _TOGETHER:
                roots[root((layer.output, of_reader))] = root((makers[source], of_reader))
        else:
            makers[source] = layer.output
    return {loop: root(loop) for loop in roots}
