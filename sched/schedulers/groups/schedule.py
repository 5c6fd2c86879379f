"""The schedule of a network by a mapping in fused groups; or, as the nearest one, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...mapping.emit.task import LayerTask
from ...mapping.memory.placement import Allocator, Dram, Stored
from ...mapping.nodes import Node, sites_of
from ...mapping.tiling.tiles import Range
from ...workload.graph import Graph, Layer
from ...workload.stages import cut
from ..nest.fit import Leeway, core_nest
from ..nest.mapping import LayerMapping, MappingError
from ..nest.schedule import add_operations, core_tiles, is_whole, remark
from ..nest.walk import MOST_GEMMS, count_visits, is_flat
from ..network.conv import ConvNodes, ConvTask
from ..network.scheduler import NetworkSchedule
from ..network.scheduler import schedule as layer_by_layer
from ..network.sharing import LAYERWISE
from ..network.storage import homes
from ..network.tensors import NetworkTensors
from .flow import GroupFlow
from .mapping import FusedGroup, GroupedNetwork
from .parts import FusedLayer, FusedPart, share


def schedule(graph: Graph, chip: ChipConfig, mapped: GroupedNetwork, *, nearest: bool = False) -> NetworkSchedule:
    """The schedule of a network by a tool's groups. The schedule has the tool's claim, with the changes that `nearest`
    allows: what of a layer the chip cannot do, and layers one after the other where a group cannot be fused.

    Raises MappingError for what the chip cannot do, in one line that says what would do; DoesNotFit.
    """
    leeway = Leeway(nearest)
    try:
        result = _GroupBuilder(graph, chip, mapped, leeway).build()
    except MappingError as error:
        if not nearest:
            mend = "or run it layer by layer (--nearest)"
            raise MappingError(str(error) if "--nearest" in str(error) else f"{error}; {mend}") from error
        leeway = Leeway(nearest)
        leeway.changes.append(f"layers run one after the other, with the tensors between them in DRAM: {error}")
        result = _in_turn(graph, chip, mapped, leeway)
    own = {"changes": tuple(leeway.changes), "remark": remark(mapped.claim, chip)}
    claim = mapped.claim.model_copy(update=own)
    update = {"claim": claim, "scheduler": claim.tool, "sites": None}
    return replace(result, schedule=result.schedule.model_copy(update=update), lowered=None)


class _Unplaced:
    """Hands out no words: of tensors that pass from core to core."""

    def take(self, tile: int, words: int) -> int:
        return 0


class _GroupBuilder:
    """Fuses groups; each begins when the one before it has been listed."""

    def __init__(self, graph: Graph, chip: ChipConfig, mapped: GroupedNetwork, leeway: Leeway) -> None:
        self.graph, self.chip, self.mapped, self.leeway = graph, chip, mapped, leeway
        for layer in graph.layers:
            if layer.kind != "conv":
                raise MappingError(
                    f"{layer.output} is a layer of kind {layer.kind}, groups of convolutions and products alone are "
                    "fused; cut the network there"
                )
        self.cut = cut(graph, chip, [layer.output for layer in graph.layers])
        self.dram = Dram(chip)
        self.tensors = NetworkTensors(self.cut, chip, self.dram)
        self.group_of = {name: group for group in mapped.groups for name in group.layers}
        self.stored: dict[str, Stored] = {}

    def build(self) -> NetworkSchedule:
        """Raises MappingError, DoesNotFit."""
        nodes: list[Node] = []
        for group in self.mapped.groups:
            nodes += self._group(group)
        outputs = dict.fromkeys(self.graph.outputs)
        for name in outputs:
            self.tensors.output(name, self.stored[name])
        schedule = Schedule(
            chip=self.chip.name,
            chip_digest=self.chip.digest,
            workload=self.graph.name,
            scheduler=self.mapped.claim.tool,
            operations=tuple(node.operation() for node in nodes),
            tensors=tuple(self.tensors.tensors),
            sites=sites_of(nodes),
        )
        between = tuple(sorted(self.stored.keys() - outputs))
        return NetworkSchedule(
            self.graph, schedule, self.tensors.constants, self.cut.lanes, self.tensors.copies, between
        )

    def _group(self, group: FusedGroup) -> list[Node]:
        """The operations of a group, in order."""
        layers: list[FusedLayer] = []
        for number, layer in enumerate(each for each in self.graph.layers if each.output in group.layers):
            layers.append(self._layer(layer, number, group))
        gemms = sum(count_visits(layer.nest) * len(layer.cores) for layer in layers)
        if gemms > MOST_GEMMS:
            raise MappingError(f"it makes {gemms:,} GEMMs, at most {MOST_GEMMS:,} are planned; take larger tiles")
        parts = [FusedPart(layer, part) for layer in layers for part in range(len(layer.cores))]
        for core in dict.fromkeys(part.core for part in parts):
            share([part for part in parts if part.core == core], self.chip)
        nodes = GroupFlow(parts).run()
        for layer, source in zip(
            layers, (each for each in self.graph.layers if each.output in group.layers), strict=True
        ):
            self.tensors.conv_constants(source, layer.task.constants())
        return nodes

    def _layer(self, layer: Layer, number: int, group: FusedGroup) -> FusedLayer:
        """A layer of a group, ready to be fused."""
        mapping = group.layers[layer.output].mapping
        nest = core_nest(mapping, self.chip, self.leeway)
        shape, packed = self.tensors.conv_shape(layer)
        if packed and not is_whole(nest, shape):
            raise MappingError(
                f"{layer.output} has {shape.in_channels} input channels, whose windows the host packs into words; let "
                "C, FX and FY lie in the core"
            )
        source = layer.inputs[0] if layer.inputs[0] in group.layers else ""
        readers = list(self.graph.users(layer.output))
        stored = layer.output in self.graph.outputs or any(each.output not in group.layers for each in readers)
        task = LayerTask(
            shape,
            self.chip,
            layer.scale,
            x=self._place(layer.inputs[0], _Unplaced()) if source else self._input(layer, packed),
            y=self._store(layer.output) if stored else self._place(layer.output, _Unplaced()),
            dram=self.dram,
            packed=packed,
            flat=False,
            result=layer.output,
        )
        cores = core_tiles(mapping, self.chip, prod(f.size for f in nest.cores))
        loops = group.layers[layer.output].loops
        return FusedLayer(layer.output, number, task, nest, cores, loops, group.loops, source, stored)

    def _input(self, layer: Layer, packed: bool) -> Stored:
        """What a layer reads from DRAM."""
        name = layer.inputs[0]
        if packed:
            return self.tensors.packed_input(layer)
        if name in self.stored:
            return self.stored[name]
        if name in self.group_of:
            raise MappingError(f"{layer.output} comes before {name}, which it reads; put the groups in order")
        return self.tensors.plain_input(self.cut.values[name])

    def _store(self, name: str) -> Stored:
        self.stored[name] = self._place(name, self.dram)
        return self.stored[name]

    def _place(self, name: str, words: Allocator) -> Stored:
        """A tensor whose planes lie in turn in all DRAM tiles."""
        planes, value = len(self.cut.lanes[name]) // self.chip.lanes, self.cut.values[name]
        cuts, home = homes([planes], value.height, self.chip.drams)
        return Stored(words, planes, value.height, value.width, cuts, home)


@dataclass(frozen=True)
class _ByMapping:
    """Makes each convolution by its own mapping (a `network.conv.Planner`)."""

    mappings: Mapping[str, LayerMapping]
    chip: ChipConfig
    leeway: Leeway
    key: object = "by mapping"

    def emit(self, task: ConvTask, dram: Allocator, room: Range | None = None) -> ConvNodes:
        """Raises MappingError, DoesNotFit."""
        mapping = self.mappings[task.result]
        nest = core_nest(mapping, self.chip, self.leeway)
        if task.packed and not is_whole(nest, task.shape):
            raise MappingError(f"{task.result}: inputs of few channels come packed; let C, FX and FY lie in the core")
        layer = LayerTask(
            task.shape, self.chip, task.fixed["scale"], x=task.x, y=task.y, dram=dram, packed=task.packed,
            flat=is_flat(nest, task.shape), result=task.result,
        )  # fmt: skip
        add_operations(layer, nest, core_tiles(mapping, self.chip, prod(f.size for f in nest.cores)), self.leeway)
        return ConvNodes(layer.operations(), layer.constants())


def _in_turn(graph: Graph, chip: ChipConfig, mapped: GroupedNetwork, leeway: Leeway) -> NetworkSchedule:
    """Each convolution by its own mapping, everything else as in other networks. Raises MappingError, DoesNotFit."""
    mappings = {name: layer.mapping for group in mapped.groups for name, layer in group.layers.items()}
    sharing = replace(LAYERWISE, planner=_ByMapping(mappings, chip, leeway))
    return layer_by_layer(graph, chip, sharing=sharing)
