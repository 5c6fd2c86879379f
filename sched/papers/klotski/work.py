"""A stage of a network as micro-ops see it: which unit computes it, what it reads of its operands, how long part of it
takes, and whether that fits a core's memories.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Unit, VectorOp
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...mapping.emit.fields import VECTOR_OPS
from ...mapping.tiling.problem import (
    MAX_IN_WIDTH,
    MAX_K_BLOCKS,
    MAX_N_BLOCKS,
    MAX_PIXELS,
    MAX_PLANE,
    DoesNotFit,
    Problem,
    pose,
)
from ...mapping.tiling.windows import check_window
from ...workload.graph import Graph
from ...workload.stages import Stage, Stages, cut
from .muops import Range

_VEC = INSTRUCTIONS[Opcode.VEC]
_MOST_BLOCKS, _MOST_VEC_PIXELS = _VEC.most("blocks"), _VEC.most("pixels")


@dataclass(frozen=True)
class Extent:
    """Size of a part of a stage: rows and columns of its result, planes of its result, and planes of its first operand
    that are multiplied (1 where the vector unit computes: it has the planes of its result)."""

    rows: int
    columns: int
    planes: int
    depth: int

    @property
    def pixels(self) -> int:
        """Of one plane."""
        return self.rows * self.columns


@dataclass(frozen=True, eq=False)
class StageWork:
    """A stage. `number`: its index; `problem`: its windows, not flattened; `op`: of the vector unit, None where the
    array computes; `reads`: the tensors of its operands; `whole`: its size; `weighted`: whether it has weights.

    An input of the network that the host packs for this stage (`ActivationLayout.packed_kw`) is a tensor of its own,
    called `<input>@<layer>`, whose columns are those of the result.
    """

    number: int
    stage: Stage
    problem: Problem
    op: VectorOp | None
    reads: tuple[str, ...]
    whole: Extent

    @property
    def unit(self) -> Unit:
        """Who computes it."""
        return Unit.MATRIX if self.op is None else Unit.VECTOR

    @cached_property
    def weighted(self) -> bool:
        """Whether it has weights and biases."""
        return self.stage.layer.w is not None

    def rows_read(self, rows: Range) -> Range:
        """Rows of the first operand that rows of the result need."""
        first, end, _ = self.problem.input_rows(*rows)
        step = self.problem.row_step
        return first * step, (end - 1) * step + 1

    def columns_read(self, columns: Range) -> Range:
        """The same of columns."""
        first, end, _ = self.problem.input_columns(*columns)
        return first, end

    def cycles(self, chip: ChipConfig, part: Extent, columns: Range) -> int:
        """For how long a part keeps its unit, when the next one follows without a gap; `columns`: those of its result.

        That is the occupancy of one GEMM or VEC. Its result is there a few cycles later, as the pipeline is long."""
        problem = self.problem
        if self.op is None:
            return gemm_occupancy(
                chip, GemmShape(part.pixels, part.planes, part.depth, problem.kernel_h, problem.kernel_w)
            )
        first, end, left = problem.input_columns(*columns)
        shape = VecShape(
            self.op, part.pixels, part.planes, problem.kernel_h, problem.kernel_w, problem.stride_w, problem.dilation,
            end - first, part.columns, left,
        )  # fmt: skip
        return vec_occupancy(chip, shape)

    def constants(self, chip: ChipConfig, part: Extent, first: bool) -> int:
        """Words of weights that a part needs, and of biases if it is the `first` of its sums."""
        if not self.weighted:
            return 0
        taps, biases = self.problem.taps, 4 * part.planes * first
        return part.planes * taps * (part.depth * chip.cols if self.op is None else 1) + biases

    def too_large(self, chip: ChipConfig, part: Extent) -> str:
        """What of a part is larger than half of a memory (the other half is for the next one), or than what one
        instruction computes, as text; empty if it fits."""
        return ", ".join(f"{have} {what}, {most} at most" for what, _, have, most in self._excess(chip, part))

    def ample(self, chip: ChipConfig, part: Extent) -> str:
        """The settings of a chip that has room for a part that is too large for this one; empty if none has."""
        excess = self._excess(chip, part)
        if not all(field for _, field, _, _ in excess):
            return ""
        return " ".join(f"--set core.{field}={2 * have}" for _, field, have, _ in excess)

    def _excess(self, chip: ChipConfig, part: Extent) -> list[tuple[str, str, int, int]]:
        """What of a part is too large: words for it, the field of the core that limits it ("": none), how much the part
        needs and how much it may."""
        problem, core = self.problem, chip.core
        rows, columns = (
            min((count - 1) * stride + (kernel - 1) * problem.dilation + 1, size)
            for count, stride, kernel, size in (
                (part.rows, problem.stride_h * problem.row_step, problem.kernel_h, problem.stored_rows),
                (part.columns, problem.stride_w, problem.kernel_w, problem.in_w),
            )
        )
        matrix = self.op is None
        result, weights = part.pixels * part.planes, self.constants(chip, part, first=False)
        split = part.depth < self.whole.depth
        sums = part.planes + result * split if matrix else part.planes * self.weighted
        result_words = result if matrix or self.op is VectorOp.ADD else 0
        limits = (
            ("words of A", "a_words", rows * columns * (part.depth if matrix else part.planes), core.a_words // 2),
            ("words of B", "b_words", weights, core.b_words // 2),
            ("words of ACC", "acc_words", sums, core.acc_words // 2),
            ("words of OUT", "out_words", result_words, core.out_words // 2),
            ("words of VEC", "vec_words", 0 if matrix else result, core.vec_words // 2),
            ("columns of a tile", "", max(columns, part.columns), MAX_IN_WIDTH),
            ("words of a plane", "", rows * columns, MAX_PLANE),
            ("pixels", "", part.pixels, MAX_PIXELS if matrix else _MOST_VEC_PIXELS),
            ("output blocks", "", part.planes, MAX_N_BLOCKS if matrix else _MOST_BLOCKS),
            ("input blocks", "", part.depth, MAX_K_BLOCKS),
        )
        return [limit for limit in limits if limit[2] > limit[3]]


def stages_of(graph: Graph, chip: ChipConfig) -> Stages:
    """The stages of a network for micro-ops: additions and pools are stages of their own. Raises WorkloadError."""
    return cut(graph, chip, apart={layer.output for layer in graph.layers if layer.kind == "conv"})


def works(stages: Stages, chip: ChipConfig) -> tuple[StageWork, ...]:
    """All stages. Raises DoesNotFit, naming the layer, for what no instruction of the chip computes, and for stages in
    which layers are fused (see `stages_of`)."""
    inputs = {value.name for value in stages.graph.inputs}
    return tuple(_work(stages, stage, number, inputs, chip) for number, stage in enumerate(stages.stages))


def _work(stages: Stages, stage: Stage, number: int, inputs: set[str], chip: ChipConfig) -> StageWork:
    layer = stage.layer
    if stage.epilogue is not None or stage.before is not None:
        raise DoesNotFit(f"layer {layer.output}: another layer is fused with it; cut the network with `stages_of`")
    y = stages.values[stage.y]
    planes = len(stages.lanes[stage.y]) // chip.lanes
    if layer.kind == "conv":
        shape = stages.graph.conv_shape(layer)
        packed = stage.x in inputs and pose(shape, chip).packed
        if not packed:
            shape = replace(shape, in_channels=len(stages.lanes[stage.x]))
        problem = pose(shape, chip, packed=packed, flatten=False)
        read = f"{stage.x}@{layer.output}" if packed else stage.x
        return StageWork(number, stage, problem, None, (read,), Extent(y.height, y.width, planes, problem.k_blocks))
    if layer.kind not in VECTOR_OPS:
        raise DoesNotFit(
            f"layer {layer.output}: there are no micro-ops for {layer.kind}, only for conv, "
            f"{', '.join(sorted(VECTOR_OPS))}; take a scheduler without micro-ops, such as loop_order"
        )
    check_window(layer)
    x, w = stages.values[stage.x], layer.window
    sign = -1 if layer.kind == "slice" else 1  # a slice begins inside of the map
    problem = Problem(
        images=1, k_blocks=planes, n_blocks=planes, in_rows=x.height, in_w=x.width, out_rows=y.height, out_w=y.width,
        kernel_h=w.kernel_h, kernel_w=w.kernel_w, stride_h=w.stride_h, stride_w=w.stride_w, dilation=w.dilation,
        pad_top=sign * w.pad_top, pad_left=sign * w.pad_left, row_step=1, stored_rows=x.height, packed=False,
        flat=False, lanes=chip.lanes, rows=chip.rows, cols=chip.cols,
    )  # fmt: skip
    return StageWork(number, stage, problem, VECTOR_OPS[layer.kind], layer.inputs, Extent(y.height, y.width, planes, 1))
