"""Whole networks by functions that schedule one layer: each layer has the chip for itself, and the tensors between
layers lie in DRAM, or in the scratchpad. Pools, additions and depthwise layers are scheduled as in every other
network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meshloom.hw.spec.config import ChipConfig

from ...mapping.emit.task import LayerTask
from ...mapping.memory.placement import Allocator
from ...workload.graph import Graph
from .conv import ConvNodes, ConvTask
from .scheduler import NetworkSchedule, Progress
from .scheduler import schedule as network
from .sharing import LAYERWISE, SharingOptions

Author = Callable[[LayerTask], object]


class _Planner:
    """A network's convolutions by a function of a `LayerTask`."""

    def __init__(self, chip: ChipConfig, author: Author) -> None:
        self.chip, self.author = chip, author

    def emit(self, task: ConvTask, dram: Allocator) -> ConvNodes:
        """All operations of a convolution. Raises DoesNotFit and what the function raises."""
        layer = LayerTask(
            task.shape,
            self.chip,
            task.fixed["scale"],
            x=task.x,
            y=task.y,
            dram=dram,
            packed=task.packed,
            result=task.result,
        )
        self.author(layer)
        return ConvNodes(layer.operations(), layer.constants())


def schedule(
    graph: Graph,
    chip: ChipConfig,
    author: Author,
    name: str,
    on_layer: Progress | None = None,
    sharing: SharingOptions = LAYERWISE,
) -> NetworkSchedule:
    """The schedule of a network whose convolutions `author` schedules, under the scheduler's `name`.

    Of `sharing`, `between` says where tensors between layers lie, and `horizon` how early operands are fetched. With
    tensors in the scratchpad, `author` may use the first 1 / `staging` of each bank for itself. Raises DoesNotFit, and
    what `author` raises; ValueError if additions are to be fused, which no `author` does.
    """
    if sharing.fused:
        raise ValueError("a function of a LayerTask makes convolutions alone; give `fused=False`, as LAYERWISE has it")
    result = network(graph, chip, on_layer, sharing=replace(sharing, planner=_Planner(chip, author)))
    return replace(result, schedule=result.schedule.model_copy(update={"scheduler": name}))
