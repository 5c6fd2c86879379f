"""A network as it is served: its stages, where its tensors lie in an instance's window, and what each stage computes.

Residual additions are fused with the convolution before them; max pools and depthwise convolutions are stages of their
own, so that every stage can be cut by any scheme. A concatenation computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS

from ...ir.schedule import Schedule, Tensor
from ...mapping.emit.fields import VECTOR_OPS
from ...mapping.tiling.problem import Problem, pose
from ...mapping.tiling.windows import check_window
from ...store.described import described
from ...workload.graph import SCALED, Graph, Layer, Value
from ...workload.layers import WorkloadError
from ...workload.layout import ActivationLayout, BiasLayout, DepthwiseLayout, Layout, PackedWindow, WeightLayout
from ...workload.stages import Stage, Stages, constant, cut, spread
from ...workload.words import in_words
from . import matrix, vector
from .memory import Striped, Window
from .plans import best_plan
from .schemes import LayerShape, Scheme

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
        self.cut: Stages = cut(graph, chip, convs & pooled, whole_inputs=convs)
        for stage in self.cut.stages:
            if stage.layer.kind not in ("conv", *VECTOR_OPS):
                raise WorkloadError(
                    f"network {graph.name}: layer {stage.layer.output} ({stage.layer.kind}) has no program to serve; "
                    f"there are programs for conv, concat, {', '.join(VECTOR_OPS)}"
                )
        self.window = Window(chip)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, NDArray[Any]] = {}
        self.copies: dict[str, tuple[str, bool]] = {}
        self._stored: dict[str, Striped] = {}
        self._tasks: dict[str, matrix.MatrixTask | vector.VectorTask] = {}
        for stage in self.cut.stages:
            if stage.layer.w is not None:
                self._place_constants(stage.layer)
        for stage in self.cut.stages:
            self._tasks[stage.y] = self._matrix(stage) if stage.layer.kind == "conv" else self._vector(stage)
        for name in dict.fromkeys(graph.outputs):
            self._tensor(name, "output", self._activation(name), self._whole(name))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is launched, in this order."""
        return self.cut.stages

    @property
    def code_page(self) -> int:
        """First page of the code, behind weights and activations."""
        return ceil(self.window.words / PAGE_WORDS)

    @cached_property
    def shapes(self) -> tuple[LayerShape, ...]:
        """What decides how each stage can be cut."""
        return tuple(self._tasks[stage.y].shape for stage in self.stages)

    # -- tensors --------------------------------------------------------------------------------------------------

    def _tensor(self, name: str, role: Any, layout: Layout, stored: Striped) -> None:
        self.tensors[name] = Tensor(name=name, role=role, layout=layout, pieces=stored.pieces())

    def _activation(self, name: str) -> ActivationLayout:
        value, lanes = self.cut.values[name], self.chip.lanes
        channels = len(self.cut.lanes[name])
        return ActivationLayout(
            batch=1, channels=channels, height=self.batch * value.height, width=value.width, block=lanes
        )

    def _whole(self, name: str) -> Striped:
        """Where a tensor lies, be it part of another."""
        root, first = self.cut.roots[name]
        value = self.cut.values[root]
        if root not in self._stored:
            planes = sum(self.cut.members[root])
            self._stored[root] = Striped(self.window, planes, self.batch * value.height, value.width)
            if root in {value.name for value in self.graph.inputs}:
                self._tensor(root, "input", self._activation(root), self._stored[root])
                self.copies[root] = root, False
        stored = self._stored[root]
        planes = sum(self.cut.members[name])
        return stored if planes == stored.planes else stored.part(first, planes)

    def _packed(self, layer: Layer, value: Value) -> Striped:
        """The input of a layer of few channels, its windows side by side."""
        name, window = f"{value.name}@{layer.output}", layer.window
        layout = ActivationLayout(
            batch=1, channels=value.channels, height=self.batch * value.height, width=value.width,
            block=self.chip.lanes,
            packed_kw=PackedWindow(window.kernel_w, window.stride_w, window.pad_left, window.pad_right),
        )  # fmt: skip
        stored = Striped(self.window, layout.blocks, self.batch * value.height, layout.columns)
        self._tensor(name, "input", layout, stored)
        self.copies[name] = value.name, True
        return stored

    def _is_packed(self, layer: Layer) -> bool:
        inputs = {value.name for value in self.graph.inputs}
        return layer.inputs[0] in inputs and pose(self.graph.conv_shape(layer), self.chip).packed

    def _place_constants(self, layer: Layer) -> None:
        lanes = self.cut.lanes[layer.inputs[0]]
        assert layer.w is not None
        names = f"{layer.output}/w", f"{layer.output}/bias"
        outputs, kernel_h, kernel_w = layer.w.shape[0], layer.w.shape[2], layer.w.shape[3]
        packed = False
        layout: Layout
        if layer.kind == "depthwise":
            layout = DepthwiseLayout(channels=len(lanes), kernel_h=kernel_h, kernel_w=kernel_w, block=self.chip.lanes)
            bias = BiasLayout(out_channels=len(lanes), cols=self.chip.lanes)
            stored = Striped(self.window, 1, layout.blocks, kernel_h * kernel_w)
        else:
            packed = self._is_packed(layer)
            inputs = layer.w.shape[1] if packed else len(lanes)
            layout = WeightLayout(
                out_channels=outputs, in_channels=inputs, kernel_h=kernel_h, kernel_w=kernel_w,
                cols=self.chip.cols, block=self.chip.lanes, packed_kw=packed,
            )  # fmt: skip
            bias = BiasLayout(out_channels=outputs, cols=self.chip.cols)
            windows = layout.words(self.chip.lanes) // (layout.n_blocks * self.chip.cols)
            stored = Striped(self.window, layout.n_blocks, windows, self.chip.cols, across=True)
        self._stored[names[0]] = stored
        self._stored[names[1]] = Striped(self.window, 1, bias.n_blocks, 4)
        for name, kind, how in zip(names, ("w", "bias"), (layout, bias), strict=True):
            self._tensor(name, "constant", how, self._stored[name])
            self.constants[name] = constant(layer, kind, lanes, packed)

    # -- what stages compute --------------------------------------------------------------------------------------

    def _matrix(self, stage: Stage) -> matrix.MatrixTask:
        layer, epilogue = stage.layer, stage.epilogue
        lanes = self.cut.lanes[layer.inputs[0]]
        packed = self._is_packed(layer)
        shape = replace(self.graph.conv_shape(layer), batch=self.batch)
        channels = shape.in_channels, shape.out_channels
        if not packed:
            shape = replace(shape, in_channels=len(lanes))
        problem = pose(shape, self.chip, packed=packed)
        x = self._packed(layer, self.cut.values[stage.x]) if packed else self._whole(stage.x)
        return matrix.MatrixTask(
            shape=LayerShape(problem, True, channels, bool(stage.r)),
            x=self._seen(x, problem),
            w=self._stored[f"{layer.output}/w"],
            bias=self._stored[f"{layer.output}/bias"],
            y=self._seen(self._whole(stage.y), problem),
            r=self._seen(self._whole(stage.r), problem) if stage.r else None,
            fixed={"scale": layer.scale, "relu": int(layer.relu), "clamp": layer.clamp},
            epilogue={"relu": int(epilogue.relu), "clamp": epilogue.clamp} if epilogue else {},
        )

    @staticmethod
    def _seen(stored: Striped, problem: Problem) -> Striped:
        """A tensor as the problem sees it."""
        return stored.flattened() if problem.flat else stored

    def _vector(self, stage: Stage) -> vector.VectorTask:
        layer, w = stage.layer, stage.layer.window
        x, y = self.cut.values[stage.x], self.cut.values[stage.y]
        check_window(layer)
        flat = (w.kernel_h, w.kernel_w, w.stride_h, w.stride_w) == (1, 1, 1, 1) and x.shape[2:] == y.shape[2:]
        planes, height, width = len(self.cut.lanes[stage.x]) // self.chip.lanes, x.height, x.width
        rows, out_w, top, left = y.height, y.width, w.pad_top, w.pad_left
        if layer.kind == "slice":  # begins inside of the map
            top, left = -top, -left
            flat = False
        if flat:
            height, width, rows, out_w = height * width, 1, rows * out_w, 1
        problem = Problem(
            images=self.batch, k_blocks=planes, n_blocks=planes, in_rows=height, in_w=width, out_rows=rows, out_w=out_w,
            kernel_h=w.kernel_h, kernel_w=w.kernel_w, stride_h=w.stride_h, stride_w=w.stride_w, dilation=w.dilation,
            pad_top=top, pad_left=left, row_step=1, stored_rows=height, packed=False, flat=flat,
            lanes=self.chip.lanes, rows=self.chip.rows, cols=self.chip.cols,
        )  # fmt: skip
        fixed = {"relu": int(layer.relu), "clamp": layer.clamp}
        return vector.VectorTask(
            shape=LayerShape(problem, False, (x.channels, y.channels)),
            op=VECTOR_OPS[layer.kind],
            x=self._seen(self._whole(stage.x), problem),
            y=self._seen(self._whole(stage.y), problem),
            r=self._seen(self._whole(layer.inputs[1]), problem) if layer.kind == "add" else None,
            w=self._stored.get(f"{layer.output}/w"),
            bias=self._stored.get(f"{layer.output}/bias"),
            fixed=fixed | ({"scale": layer.scale} if layer.kind in SCALED else {}),
        )

    # -- schedules ------------------------------------------------------------------------------------------------

    def task(self, index: int) -> matrix.MatrixTask | vector.VectorTask:
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
                yield Tensor(name=name, role="input", layout=self._activation(name), pieces=self._whole(name).pieces())
        for name in (f"{layer.output}/w", f"{layer.output}/bias"):
            if name in self.tensors:
                yield self.tensors[name]
        yield Tensor(
            name=stage.y, role="output", layout=self._activation(stage.y), pieces=self._whole(stage.y).pieces()
        )

    def results(self) -> Iterator[Tensor]:
        """What the stages leave in the window, in their order: every tensor, for none is overwritten."""
        for stage in self.stages:
            yield Tensor(
                name=stage.y, role="output", layout=self._activation(stage.y), pieces=self._whole(stage.y).pieces()
            )

    # -- numbers --------------------------------------------------------------------------------------------------

    def arrays(self, inputs: Mapping[str, NDArray[np.int8]]) -> dict[str, NDArray[Any]]:
        """All arrays that the host writes, by tensor, for network inputs int8 [batch, C, H, W]."""
        result = dict(self.constants)
        for name, (source, packed) in self.copies.items():
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
