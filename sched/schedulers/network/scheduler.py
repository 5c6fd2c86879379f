"""Schedules a whole network: places tensors, plans every layer, lets them overlap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...lowering.predict import Lowered
from ...mapping.emit.core import Epilogue
from ...mapping.emit.expansion import Expansion
from ...mapping.emit.prologue import Prologue
from ...mapping.memory.placement import Dram, Placed, Stored
from ...mapping.nodes import Node, sites_of
from ...mapping.tiling.problem import DoesNotFit, pose
from ...mapping.tiling.room import dram_fix, size_text
from ...mapping.tiling.tiles import Pooling
from ...mapping.tiling.windows import check_window
from ...store.findings import SearchCache
from ...support.garbage import uncollected
from ...workload.graph import Graph, Layer
from ...workload.regions import ConstantPlace
from ...workload.stages import Lanes, Stage, Stages, cut, spread
from . import conv, mixing, product, transpose, vector
from .choices import Choices
from .fusing import FusionDepth
from .multicast import merged
from .reuse import Laid, Reuse
from .sharing import HORIZONS, SharingOptions, streams
from .shift import Shifter
from .storage import place
from .tensors import NetworkTensors

NAME = "loop_order"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class MicroOps:
    """What a scheduler of micro-ops says of its schedule. `count` of them; `planned_cycles`: of its plan, without what
    it leaves out; `bound_cycles`: no schedule of these micro-ops can be shorter, by proof; `hops_bytes`: bytes that
    cores send to each other, times the links they pass; `spilled_words`: words of P bytes that went to DRAM for want of
    room; `taken`: what the program is made of, "micro-ops" or the scheduler that the model found quicker."""

    count: int
    planned_cycles: int
    bound_cycles: int
    hops_bytes: int
    spilled_words: int
    taken: str = "micro-ops"


@dataclass(frozen=True, eq=False)
class NetworkSchedule:
    """A schedule of a network, the arrays of its constants, and what is needed to feed it and to read its results.

    `lanes`: channel of each lane of every tensor (see `stages`). `copies`: tensors of the schedule that hold a network
    input, by name, with the name of the input; `packed` ones have the true channels, others a channel for each lane.
    `estimate`: cycles that list scheduling foresees. `micro_ops`: of schedulers that work with them. `alone`: the
    convolutions that could be made, or are, as if they were alone (see `mixing`). `roomless`: what has no room to be
    computed together, and is not. `lowered`: the program of `schedule`, if a search has had to make it.
    """

    graph: Graph
    schedule: Schedule
    constants: dict[str, NDArray[Any]]
    lanes: dict[str, Lanes]
    copies: dict[str, tuple[str, bool]]
    spilled: tuple[str, ...]
    estimate: int = 0
    micro_ops: MicroOps | None = None
    alone: tuple[str, ...] = ()
    roomless: tuple[tuple[str, FusionDepth], ...] = ()
    lowered: Lowered | None = None

    def arrays(self, inputs: Mapping[str, NDArray[np.int8]]) -> dict[str, NDArray[Any]]:
        """All arrays that the host writes, by schedule tensor, for network inputs int8 [1, C, H, W]."""
        result = dict(self.constants)
        for name, (source, packed) in self.copies.items():
            array = inputs[source]
            result[name] = array if packed else spread(array, self.lanes[source])
        return result

    def output(self, name: str, array: NDArray[np.int8]) -> NDArray[np.int8]:
        """A result int8 [1, C, H, W] from what the schedule's output tensor holds (a channel for each lane)."""
        lanes = self.lanes[name]
        output = np.empty((1, int(lanes.max()) + 1, *array.shape[2:]), np.int8)
        output[:, lanes[lanes >= 0]] = array[:, lanes >= 0]
        return output


def layer_of(label: str) -> str:
    """The layer that an operation of a network belongs to."""
    return label.rpartition(": ")[0]


class _Apart(Exception):
    """A convolution that fits the cores only without what would be fused; `expanded`: without the convolution before
    the depthwise one."""

    def __init__(self, name: str, expanded: bool) -> None:
        super().__init__(name)
        self.name, self.expanded = name, expanded


class _Builder:
    def __init__(
        self, graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None,
        apart: Collection[str], close: Collection[str], sharing: SharingOptions, reuse: Reuse,
    ) -> None:  # fmt: skip
        self.graph, self.chip, self.progress, self.memory, self.reuse = graph, chip, progress, memory, reuse
        self.sharing, self.planner = sharing, sharing.planner
        self.cut: Stages = cut(
            graph, chip, apart, sharing.tight, sharing.apart, pastes=True, expanded=sharing.expanded.difference(close),
            by_channel=True,
        )  # fmt: skip
        self.dram = Dram(chip)
        self.tensors = NetworkTensors(
            self.cut, chip, self.dram, whole=sharing.whole and (self.planner is None or sharing.planned is not None)
        )
        self.alone: list[str] = []
        self.by_rows: set[str] = set()  # tensors that cores make row by row, each its share of rows
        self.choices = Choices(chip, memory, reuse.choices)

    def build(self) -> NetworkSchedule:
        self._check_size()
        # before anything else: where state lies must not depend on the network that reads it
        resident = self.tensors.placed()
        if self.graph.begin:
            self.dram.skip(self.graph.begin)
            self.tensors.begin()
        self.stored, spilled = place(
            self.cut, self.chip, self.dram, self.sharing.between, self.sharing.staging, resident
        )
        self.stored |= resident
        laid: list[Laid] = []
        shifter = Shifter(self.chip)
        for index, stage in enumerate(self.cut.stages):
            if self.progress:
                self.progress(stage.layer.output, index, len(self.cut.stages))
            laid.append(self._lay(stage, self._stage(stage, index), shifter))
        for name in dict.fromkeys(self.graph.outputs):
            self.tensors.output(name, self._whole(name))
        if self.progress:
            self.progress("overlapping layers", len(self.cut.stages), len(self.cut.stages))
        interleaver = self.reuse.interleaver(laid, self.chip)
        horizons = HORIZONS if self.sharing.horizon is None else (self.sharing.horizon,)
        best = min((interleaver.run(horizon) for horizon in horizons), key=lambda interleaving: interleaving.cycles)
        operations, order = interleaver.waits.operations, best.order
        copies: dict[int, int] = {}
        if copied := self.sharing.copied:
            some = {index for index, op in enumerate(operations) if layer_of(op.label) in copied}
            order, copies = merged(operations, order, interleaver.waits.depends, self.chip, some)
        self.reuse.order = None if copies else order
        schedule = Schedule(
            chip=self.chip.name,
            chip_digest=self.chip.digest,
            workload=self.graph.name,
            scheduler=NAME,
            operations=tuple(
                operations[index].model_copy(update={"copies": copies[index]}) if index in copies else operations[index]
                for index in order
            ),
            tensors=tuple(self.tensors.tensors),
            sites=sites_of(interleaver.nodes[index] for index in order),
        )
        return NetworkSchedule(
            self.graph, schedule, self.tensors.constants, self.cut.lanes, self.tensors.copies,
            tuple(sorted(spilled)), best.cycles, alone=tuple(self.alone),
        )  # fmt: skip

    def _check_size(self) -> None:
        chip = self.chip
        weights = sum(layer.w.size for layer in self.graph.layers if layer.w is not None)
        room = len(chip.drams) * chip.dram.words * chip.lanes
        if weights > room:
            raise DoesNotFit(
                f"network {self.graph.name} is too big for chip {chip.name}: its weights take {size_text(weights)}, "
                f"the DRAM has {size_text(room)}; {dram_fix(weights, chip)}"
            )

    # -- tensors ----------------------------------------------------------------------------------------------------

    def _whole(self, name: str) -> Stored:
        """Where a tensor lies, be it part of another."""
        root, first = self.cut.roots[name]
        if root not in self.stored:
            return self.tensors.plain_input(self.cut.values[name])
        planes = sum(self.cut.members[name])
        stored = self.stored[root]
        return stored if planes == stored.planes else stored.part(first, planes)

    # -- stages -----------------------------------------------------------------------------------------------------

    def _stage(self, stage: Stage, index: int) -> list[Node]:
        match stage.layer.kind:
            case "conv":
                return self._conv(stage, index)
            case "product":
                return self._product(stage.layer)
            case "transpose":
                return self._transpose(stage.layer)
            case _:
                return self._vector(stage)

    def _product(self, layer: Layer) -> list[Node]:
        a, b, y = (self._whole(name) for name in (*layer.inputs, layer.output))
        emitted = product.emit(product.ProductTask(layer, a, b, y, layer.output), self.chip, self.dram)
        if emitted.zeros is not None:
            self.tensors.zeros(layer.output, emitted.zeros)
        return emitted.nodes

    def _transpose(self, layer: Layer) -> list[Node]:
        x, y = (self._whole(name) for name in (*layer.inputs, layer.output))
        lanes = self.cut.lanes[layer.inputs[0]]
        return transpose.emit(transpose.TransposeTask(layer, x, y, lanes, layer.output), self.chip)

    def _conv(self, stage: Stage, index: int) -> list[Node]:
        layer, task = stage.layer, self._task(stage)
        emitted = self._planned(task, stage, index) or self._nests(task, stage, index)
        self.tensors.conv_constants(layer, emitted.constants, int4=emitted.int4)
        if stage.before:
            constants = {name: emitted.constants[f"before {name}"] for name in ("w", "bias")}
            self.tensors.depthwise_constants(stage.before, constants)
        if stage.expand:
            constants = {name: emitted.constants[f"before expand {name}"] for name in ("w", "bias")}
            self.tensors.conv_constants(stage.expand, constants)
        return emitted.nodes

    def _task(self, stage: Stage) -> conv.ConvTask:
        """A convolution, with what it reads and writes."""
        layer = stage.layer
        shape, packed = self.tensors.conv_shape(layer)
        before = self._before(stage)
        return conv.ConvTask(
            shape=shape,
            x=before.x.x if before and isinstance(before.x, Expansion) else self._input(stage.first),
            y=self._whole(stage.y),
            r=self._whole(stage.r) if stage.r else None,
            packed=packed,
            result=layer.output,
            epilogue=self._behind(stage),
            fixed=layer.fixed,
            before=before,
            whole=packed and self.tensors.whole(layer),
            int4=self.tensors.int4(layer) and before is None,
            deep=self.sharing.deep and streams(shape.out_h * shape.out_w, self.chip),
            staging=self.sharing.staging,
            there=self._there(layer.output),
        )

    def _there(self, layer: str) -> dict[str, tuple[ConstantPlace, ...]]:
        """Where constants of a convolution lie that another network has, too: all of them, or none."""
        names = {kind: f"{layer}/{kind}" for kind in ("w", "bias")}
        places = self.graph.constants
        return {kind: places[name] for kind, name in names.items()} if places.keys() >= {*names.values()} else {}

    def _planned(self, task: conv.ConvTask, stage: Stage, index: int) -> conv.ConvNodes | None:
        """The operations of a convolution by who makes it instead of the loop nests; None if nobody does, or can."""
        planned, name = self.sharing.planned, stage.layer.output
        if self.planner is not None and planned is None:
            # others have one multiplier for a layer
            return self.planner.emit(task, self.dram) if stage.layer.scales is None else None
        if not mixing.alone(stage, task, self.chip):
            return None
        self.alone.append(name)
        if self.planner is None or planned is None or name not in planned:
            return None
        try:
            return self.planner.emit(task, self.dram, mixing.free_words(self.cut, self.stored, self.chip, index))
        except DoesNotFit:
            return None

    def _before(self, stage: Stage) -> Prologue | None:
        """The depthwise convolution before one."""
        layer = stage.before
        if layer is None:
            return None
        check_window(layer)
        x = self._expansion(stage.expand) if stage.expand else self._whole(stage.x)
        return Prologue(layer.output, layer.window, layer.fixed, x)

    def _expansion(self, layer: Layer) -> Expansion:
        """The convolution before a depthwise one."""
        shape, packed = self.tensors.conv_shape(layer)
        whole = packed and self.tensors.whole(layer)
        problem = pose(shape, self.chip, packed=packed, flatten=False, whole=whole)
        return Expansion(layer.output, problem, layer.fixed, self._input(layer))

    def _input(self, layer: Layer) -> Stored:
        """What a convolution, or the depthwise one before it, reads."""
        packed = layer.kind == "conv" and self.tensors.conv_shape(layer)[1]
        return self.tensors.packed_input(layer) if packed else self._whole(layer.inputs[0])

    def _nests(self, task: conv.ConvTask, stage: Stage, index: int) -> conv.ConvNodes:
        """The loop nests of a convolution."""
        try:
            candidates = self.choices.of(task)
        except DoesNotFit as error:
            if task.epilogue or task.before:
                raise _Apart(task.result, stage.expand is not None) from error
            raise
        name = stage.layer.output
        rank = 2 if name in self.sharing.third else int(name in self.sharing.second)
        candidate = candidates[min(len(candidates) - 1, rank)]
        switches: dict[str, Any] = {
            switch: not getattr(candidate, switch) for layer, switch in self.sharing.turned if layer == name
        }
        candidate = replace(candidate, **switches)
        if candidate.parts_m > 1:
            self.by_rows.add(stage.y)
        parity = index % 2
        return self.reuse.conv(
            stage,
            task,
            self.dram,
            (candidate, parity),
            lambda: conv.emit(task, self.chip, candidate, self.dram, parity),
        )

    def _behind(self, stage: Stage) -> Epilogue | None:
        """The addition or max pool behind a convolution."""
        layer = stage.epilogue
        if layer is None:
            return None
        pooling = None
        if layer.kind == "max_pool":
            check_window(layer)
            w, y = layer.window, self.cut.values[layer.output]
            pooling = Pooling(
                (w.kernel_h, w.kernel_w), (w.stride_h, w.stride_w), (w.pad_top, w.pad_left), y.height, y.width
            )
        return Epilogue(layer.output, {"relu": int(layer.relu), "clamp": layer.clamp}, pooling)

    def _by_rows(self, name: str) -> bool:
        """Whether a tensor, or what it is put together from, is made by cores that share out its rows."""
        parts = [part for part, (root, _) in self.cut.roots.items() if root == name]
        return any(part in self.by_rows for part in parts)

    def _lay(self, stage: Stage, nodes: list[Node], shifter: Shifter) -> Laid:
        """Operations of a stage in the memories of the cores, under the names of their layers. The memories of its
        operands send them on their own where `sharing` says so.

        A core's mover serves its requests and its own stores in one order, and waits for each; who sends to all cores
        serves these in the order in which the list has them."""
        name, tiles = stage.layer.output, self.chip.tiles if self.chip.memory_streams else {}
        pushed = frozenset(tile for tile, kind in tiles.items() if (name, kind) in self.sharing.pushed)
        return self.reuse.lay(stage, nodes, shifter, lambda node: f"{_layer_of(node, stage)}: {node.label}", pushed)

    def _vector(self, stage: Stage) -> list[Node]:
        layer, place = stage.layer, self.cut.places.get(stage.y)
        task = vector.VectorTask(
            layer=layer,
            x=self._whole(stage.x),
            y=self._whole(stage.y) if place is None else Placed(self._whole(stage.y), place),
            r=self._whole(layer.inputs[1]) if layer.kind in ("add", "mul") else None,
            result=layer.output if layer.output in self.graph.values else "",
            rows_first=self._by_rows(stage.x),
        )
        if task.rows_first:
            self.by_rows.add(stage.y)
        emitted = self.reuse.vector(stage, task, self.dram, lambda: vector.emit(task, self.chip, self.dram))
        if layer.kind == "depthwise":
            self.tensors.depthwise_constants(layer, emitted.constants)
        if layer.table is not None:
            self.tensors.table(layer.output, layer.table, emitted.constants["table"])
        return emitted.nodes


def _layer_of(node: Node, stage: Stage) -> str:
    """The layer to which an operation of a stage belongs: its last, but for GEMMs of one that goes with it."""
    first = stage.expand
    return first.output if first and node.result and node.result.tensor == first.output else stage.layer.output


def search_cache(folder: Path | None, chip: ChipConfig) -> SearchCache:
    """Where the search for each layer's loop nests keeps what it finds. Raises SettingError."""
    return SearchCache(folder, chip, "network", __name__.partition(".")[2])


def schedule(
    graph: Graph,
    chip: ChipConfig,
    progress: Progress | None = None,
    memory: SearchCache | None = None,
    sharing: SharingOptions | None = None,
    reuse: Reuse | None = None,
) -> NetworkSchedule:
    """The schedule of a network for one picture.

    `progress` is told layer, its number and how many there are; `memory` keeps what searches find; `sharing`: what
    layers have in common (None: whole tensors in the scratchpad); `reuse`: what other schedules of the same network on
    the same chip have made. Raises DoesNotFit if a layer fits no tiling or the
    network does not fit the chip's DRAM, WorkloadError for what the chip cannot do.
    """
    sharing, reuse = sharing or SharingOptions(), reuse or Reuse()
    apart: set[str] = set()
    if not sharing.fused:
        apart = {layer.output for layer in graph.layers if layer.kind == "conv"}
    close: set[str] = set()
    roomless: list[tuple[str, FusionDepth]] = []
    while True:
        try:
            with uncollected():
                result = _Builder(graph, chip, progress, memory, apart, close, sharing, reuse).build()
            return replace(result, roomless=tuple(roomless))
        except _Apart as refusal:
            (close if refusal.expanded else apart).add(refusal.name)
            roomless.append((refusal.name, FusionDepth.EXPANDED if refusal.expanded else FusionDepth.PAIR))
