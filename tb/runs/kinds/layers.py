"""Layers: of a network, of a topology's file, or a shape written out; each by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from meshloom.sched.lowering.predict import Lowered, prediction
from meshloom.sched.lowering.programs import Planned, checked, planned
from meshloom.sched.mapping.tiling.room import check_room
from meshloom.sched.schedulers.registry import Chosen
from meshloom.sched.schedulers.registry import find as find_scheduler
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import catalog, shapes
from meshloom.sched.workload.catalog import Workload
from meshloom.sched.workload.layers import LayerData
from meshloom.sched.workload.layout import ActivationLayout, BiasLayout, WeightLayout

from .base import SingleRequest, SingleRun
from .interface import Expected, Listener, WorkloadKind

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig
    from meshloom.sched.ir.schedule import Schedule

    from ...devices.interface import Run
    from ...results.schema import Row


class LayerRun(SingleRun[Workload]):
    """A layer ready to run, with its data: random, or trained weights on a real activation."""

    @property
    def cycles(self) -> int:
        """Predicted cycles."""
        return self.timeline.cycles

    @property
    def macs(self) -> int:
        return self.subject.shape.macs

    @property
    def data(self) -> str:
        return "trained weights, stored activation" if self.subject.real else super().data

    def arrays(self) -> dict[str, NDArray[Any]]:
        return arrays(self.subject.data())

    def golden(self) -> Callable[[str], NDArray[Any]]:
        from ...inputs.golden.layer import golden

        return lambda _: golden(self.subject.data())

    def row(self, run: Run, chip: ChipConfig, detailed: bool = True) -> Row:
        from ..single import row_of

        return row_of(self, self.macs, self.golden(), run, chip, detailed)


def arrays(data: LayerData) -> dict[str, NDArray[Any]]:
    """The arrays of a single layer by the names of its tensors."""
    return {"x": data.x, "w": data.w, "bias": data.bias}


class SingleLayer(SingleRequest[Workload]):
    """A layer to be scheduled by itself."""

    scheduled_as = "layers"

    @property
    def macs(self) -> int:
        return self.subject.shape.macs

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> LayerRun:
        """Raises DoesNotFit and what the scheduler raises."""
        progress.step("scheduling")
        check_room(self.subject.shape, chip)
        lowered: list[Lowered] = []
        make = find_scheduler(scheduler, SCHEDULES.folder(), progress.search, lowered.append)
        schedule = make(self.subject.shape, chip, self.subject.scale)
        return self.run_of(_planned(schedule, lowered, chip, progress), {})

    def expected(self) -> Expected:
        shape = self.subject.shape
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

    def run_of(self, planned: Planned, origin: Mapping[str, Any]) -> LayerRun:
        return LayerRun(self.subject, planned, origin)


def _find(name: str, chip: ChipConfig | None) -> Sequence[SingleLayer]:
    return [SingleLayer(layer) for layer in catalog.find(name)]


def _syntax() -> str:
    return (
        "layers:   NETWORK/LAYER, or 'NETWORK/*' for each by itself; `meshloom workloads NETWORK` lists them; a "
        f"topology of SCALE-Sim (FILE.csv, FILE.csv/LAYER)\nshapes:\n{shapes.SYNTAX}"
    )


def _planned(schedule: Schedule, lowered: Sequence[Lowered], chip: ChipConfig, progress: Listener) -> Planned:
    """Checks the program of a schedule, and makes and predicts it unless the scheduler has done so. Raises as
    `planned`."""
    for done in lowered:
        if done.is_of(schedule):
            program = checked(done, chip, progress.step)
            progress.step("predicting its cycles")
            predicted = prediction(schedule, program, done.timeline)
            return Planned(schedule.model_copy(update={"predicted": predicted}), program, done.timeline)
    return planned(schedule, chip, progress.step)


KIND = WorkloadKind(_find, _syntax)
