"""The forward pass of a layer, Y = X·W, beside its two gradients: all three are a step, which is what the paper times.

The product is as large as those of the gradients: X is unfolded, as it is for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.loop_order.kept import schedule
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.layers import gemm_shape
from meshloom.sched.workload.training import TrainingLayer, find, setting_of

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from .gradient_cases import Case, chip_with, config_for
from .gradient_points import modelled

#: Share of its usual budget that `loop_order` spends on a forward pass; a multiplier of its results, on which no cycle
#: depends.
EFFORT, _SCALE = 0.25, 1 << 15


@dataclass(frozen=True)
class ForwardCycles:
    """What a forward pass takes in the model; `refused`: why it cannot be computed."""

    cycles: int = 0
    refused: str = ""


@dataclass(frozen=True)
class ForwardModelled(Point):
    """The forward pass of a layer in the model, on all cores, by `loop_order`. `bytes`: of DRAM a cycle, None: as the
    chip has."""

    chip: str
    layer: str
    bytes: int | None
    row: ClassVar[Any] = ForwardCycles

    @property
    def name(self) -> str:
        width = f" with {self.bytes} bytes a cycle" * (self.bytes is not None)
        return f"forward pass of {self.layer} on {self.chip}{width}"

    @property
    def work(self) -> float:
        return 2.0

    def inputs(self) -> Inputs:
        chip = chip_with(self.chip, self.bytes).digest
        return Inputs(("sched.schedulers.loop_order.kept", "sched.workload.training"), (("chip", chip),))

    def measure(self, report: Report) -> ForwardCycles:
        (layer,) = find(self.layer, setting_of(load(self.chip)))
        shape = gemm_shape(layer.name, layer.m, layer.n, layer.k)
        config = config_for(layer, self.chip, self.bytes)
        try:
            predicted = schedule(shape, config, _SCALE, EFFORT, SCHEDULES.folder()).predicted
        except DoesNotFit as error:
            return ForwardCycles(refused=str(error))
        assert predicted is not None
        return ForwardCycles(predicted.cycles)


def forward(case: Case, layer: TrainingLayer) -> ForwardModelled:
    """The point of a layer's forward pass: layers of the same sizes have one."""
    pair = modelled(case, layer)
    return ForwardModelled(pair.chip, pair.layer, pair.bytes)


def forward_cycles(rows: Rows, case: Case, layer: TrainingLayer) -> int | None:
    """What a layer's forward pass takes; None if it is not measured, or cannot be computed."""
    point = forward(case, layer)
    if point not in rows:
        return None
    cycles: int = rows[point].cycles
    return cycles or None
