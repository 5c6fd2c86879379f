"""A network as it is served: its stages, where its tensors lie in an instance's window, and what each stage computes.

Residual additions are fused with the convolution before them; max pools and depthwise convolutions are stages of their
own, so that every stage can be cut by any scheme. A concatenation computes nothing, a paste copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS

from ...ir.schedule import Schedule, Tensor
from ...store.described import described
from ...workload.graph import Graph
from ...workload.layers import WorkloadError
from ...workload.stages import Stage, Stages, cut, spread
from ...workload.words import in_words
from . import matrix, product, transpose, vector
from .memory import Striped, Window
from .plans import best_plan
from .schemes import LayerShape, Scheme
from .tasks import StageTask, task_of
from .tensors import CONSTANTS, ServedTensors

#: Name of those who make schedules of stages.
NAME = "serving"


@dataclass(frozen=True)
class Varying:
    """What stages of one form do not share: where their arrays begin (`starts`, words of each DRAM tile; `extents`: how
    many they have there), and the scale of their results."""

    starts: tuple[int, ...]
    extents: tuple[int, ...]
    scale: int


class ServedNetwork:
    """A network for a batch of images on a chip.

    Word addresses of tensors begin at 0: those of the first instance whose window begins with page 0. `pages`: of an
    instance, without its code. Raises WorkloadError or DoesNotFit when the chip cannot hold or compute it.
    """

    def __init__(self, graph: Graph, chip: ChipConfig, batch: int = 1) -> None:
        if batch < 1:
            raise WorkloadError(f"network {graph.name}: batch = {batch} must be at least 1")
        graph = in_words(graph, chip)
        self.graph, self.chip, self.batch = graph, chip, batch
        convs = {layer.output for layer in graph.layers if layer.kind == "conv"}
        pooled = {layer.inputs[0] for layer in graph.layers if layer.kind == "max_pool"}
        self.cut: Stages = cut(graph, chip, convs & pooled, whole_inputs=convs, pastes=True)
        self._placed = ServedTensors(graph, chip, batch, self.cut)
        weights = {stage.y: self._placed.weights(stage.layer) for stage in self.cut.stages if stage.layer.w is not None}
        self._tasks = {stage.y: task_of(stage, self._placed, weights.get(stage.y)) for stage in self.cut.stages}
        for name in dict.fromkeys(graph.outputs):
            self._placed.place(name, "output", self._placed.layout(name), self._placed.activation(name))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is launched, in this order."""
        return self.cut.stages

    @property
    def window(self) -> Window:
        """The words that its tensors take of each DRAM tile."""
        return self._placed.window

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """What the host writes or reads."""
        return self._placed.tensors

    @property
    def code_page(self) -> int:
        """First page of the code, behind weights and activations."""
        return ceil(self.window.words / PAGE_WORDS)

    @cached_property
    def shapes(self) -> tuple[LayerShape, ...]:
        """What decides how each stage can be cut."""
        return tuple(self._tasks[stage.y].shape for stage in self.stages)

    # -- schedules ------------------------------------------------------------------------------------------------

    def task(self, index: int) -> StageTask:
        """What stage `index` computes, and where."""
        return self._tasks[self.stages[index].y]

    def form(self, index: int) -> str:
        """All that the program of a stage depends on, but for chip, scheme and what `varies`, as text."""
        task = self.task(index)
        stored = {each.start: number for number, each in enumerate(self._arrays(index))}
        parts: dict[str, object] = {}
        for name, value in vars(task).items():
            if isinstance(value, Striped):
                parts[name] = stored[value.start], value.form
            elif name == "fixed":
                parts[name] = {key: each for key, each in task.fixed.items() if key != "scale"}
            else:
                parts[name] = value
        return described(parts)

    def varies(self, index: int) -> Varying:
        """In what stages of one form differ."""
        task = self.task(index)
        arrays = self._arrays(index)
        return Varying(
            tuple(each.start for each in arrays), tuple(each.extent for each in arrays), task.fixed.get("scale", 0)
        )

    def _arrays(self, index: int) -> list[Striped]:
        """The arrays of a stage, each once."""
        stored = [each for each in vars(self.task(index)).values() if isinstance(each, Striped)]
        return list({each.start: each for each in stored}.values())

    def schedule(self, index: int, scheme: Scheme, cores: Sequence[int]) -> Schedule:
        """Stage `index` on these cores. Raises DoesNotFit when its tiles do not fit them."""
        task, stage = self.task(index), self.stages[index]
        if len(cores) != scheme.cores:
            raise ValueError(f"scheme {scheme} is for {scheme.cores} cores, given are {len(cores)}")
        if isinstance(task, matrix.MatrixTask):
            plan = best_plan(task.shape, self.chip, scheme)
            operations = matrix.emit(task, self.chip, scheme, plan, cores)
        elif isinstance(task, product.ServedProduct):
            operations = product.emit(task, self.chip, scheme, cores)
        elif isinstance(task, transpose.ServedTranspose):
            operations = transpose.emit(task, self.chip, scheme, cores)
        else:
            operations = vector.emit(task, self.chip, scheme, cores)
        return Schedule(
            chip=self.chip.name,
            chip_digest=self.chip.digest,
            workload=f"{self.graph.name}/{stage.y}",
            scheduler=NAME,
            operations=tuple(operations),
            tensors=tuple(self._touched(stage)),
        )

    def _touched(self, stage: Stage) -> Iterator[Tensor]:
        """The tensors that a stage reads and writes."""
        layer = stage.layer
        reads = dict.fromkeys(stage.reads)
        for name in reads:
            packed = f"{name}@{layer.output}"
            if packed in self.tensors:
                yield self.tensors[packed]
            else:
                yield Tensor(
                    name=name,
                    role="input",
                    layout=self._placed.layout(name),
                    pieces=self._placed.activation(name).pieces(),
                )
        for kind in CONSTANTS:
            if (name := f"{layer.output}/{kind}") in self.tensors:
                yield self.tensors[name]
        yield Tensor(
            name=stage.y,
            role="output",
            layout=self._placed.layout(stage.y),
            pieces=self._placed.activation(stage.y).pieces(),
        )

    def results(self) -> Iterator[Tensor]:
        """What the stages leave in the window, in their order: every tensor, for none is overwritten."""
        for stage in self.stages:
            yield Tensor(
                name=stage.y,
                role="output",
                layout=self._placed.layout(stage.y),
                pieces=self._placed.activation(stage.y).pieces(),
            )

    # -- numbers --------------------------------------------------------------------------------------------------

    def arrays(self, inputs: Mapping[str, NDArray[np.int8]]) -> dict[str, NDArray[Any]]:
        """All arrays that the host writes, by tensor, for network inputs int8 [batch, C, H, W]."""
        result = dict(self._placed.constants)
        for name, (source, packed) in self._placed.copies.items():
            array = np.concatenate(list(inputs[source]), axis=1)[None]
            result[name] = array if packed else spread(array, self.cut.lanes[source])
        return result

    def stacked(self, name: str, images: Sequence[NDArray[np.int8]]) -> NDArray[np.int8]:
        """A tensor as it is stored, from int8 [1, C, H, W] of each image: rows of all images, lanes without a channel
        zero."""
        array = np.concatenate([image[0] for image in images], axis=1)[None]
        return spread(array, self.cut.lanes[name])

    def output(self, name: str, array: NDArray[np.int8]) -> NDArray[np.int8]:
        """A result int8 [batch, C, H, W] from what its tensor holds: a channel for each lane, images stacked."""
        lanes = self.cut.lanes[name]
        output = np.empty((1, int(lanes.max()) + 1, *array.shape[2:]), np.int8)
        output[:, lanes[lanes >= 0]] = array[:, lanes >= 0]
        return np.stack(np.split(output[0], self.batch, axis=1))
