"""Layers: of a network, of a topology's file, or a shape written out; each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.programs import Planned, planned
from meshloom.sched.mapping.tiling.room import check_room
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.registry import Chosen
from meshloom.sched.schedulers.registry import find as find_scheduler
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import catalog, shapes
from meshloom.sched.workload.catalog import Workload
from meshloom.sched.workload.layers import LayerData
from meshloom.sched.workload.layout import ActivationLayout, BiasLayout, WeightLayout

from .interface import Expected, Kind, Progress, Single

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ...devices.interface import Job, Run
    from ...results.schema import Row


@dataclass(frozen=True)
class LayerItem:
    """A layer ready to run, with its data: random, or trained weights on a real activation."""

    layer: Workload
    schedule: Schedule
    program: Program
    timeline: Timeline
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def cycles(self) -> int:
        """Predicted cycles."""
        return self.timeline.cycles

    @property
    def macs(self) -> int:
        return self.layer.shape.macs

    def job(self, chip: ChipConfig) -> Job:
        from ..single import job_of

        return job_of(self, arrays(self.layer.data()), chip)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        from ...inputs.golden.layer import golden
        from ..single import row_of

        return row_of(self, self.macs, lambda _: golden(self.layer.data()), run, chip)

    def settings(self) -> dict[str, Any]:
        from ..single import digest

        real = self.layer.real
        data = "trained weights, stored activation" if real else "random bytes, seeded by the workload's name"
        return {**self.origin, "input": data, "input_digest": digest(arrays(self.layer.data()))}


def arrays(data: LayerData) -> dict[str, NDArray[Any]]:
    """The arrays of a single layer by the names of its tensors."""
    return {"x": data.x, "w": data.w, "bias": data.bias}


@dataclass(frozen=True)
class SingleLayer(Single):
    """A layer to be scheduled by itself."""

    layer: Workload
    scheduled_as = "layers"

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def macs(self) -> int:
        return self.layer.shape.macs

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Progress) -> LayerItem:
        """Raises DoesNotFit and what the scheduler raises."""
        progress.step("scheduling")
        check_room(self.layer.shape, chip)
        make = find_scheduler(scheduler, SCHEDULES.folder(), progress.search)
        schedule = make(self.layer.shape, chip, self.layer.scale)
        return self.item(planned(schedule, chip, progress.step), {})

    def expected(self) -> Expected:
        shape = self.layer.shape
        return Expected(
            f"layer {shape.name}",
            {
                "x": ("input", ActivationLayout, shape.x_shape),
                "w": ("constant", WeightLayout, shape.w_shape),
                "bias": ("constant", BiasLayout, (shape.out_channels,)),
                "y": ("output", ActivationLayout, shape.y_shape),
            },
            ("x", "w", "y"),
        )

    def item(self, planned: Planned, origin: Mapping[str, Any]) -> LayerItem:
        return LayerItem(self.layer, planned.schedule, planned.program, planned.timeline, origin)


def _find(name: str, chip: ChipConfig | None) -> Sequence[SingleLayer]:
    return [SingleLayer(layer) for layer in catalog.find(name)]


def _syntax() -> str:
    return (
        "layers:   NETWORK/LAYER, or 'NETWORK/*' for each by itself; `meshloom workloads NETWORK` lists them; a "
        f"topology of SCALE-Sim (FILE.csv, FILE.csv/LAYER)\nshapes:\n{shapes.SYNTAX}"
    )


KIND = Kind(_find, _syntax)
