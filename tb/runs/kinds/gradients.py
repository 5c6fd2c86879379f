"""The two gradients of a layer in training, as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from meshloom.sched.lowering.programs import Planned, planned
from meshloom.sched.schedulers.registry import Chosen, find_gradient
from meshloom.sched.schedulers.training.schedules import GradientSchedule
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import training
from meshloom.sched.workload.layout import ActivationLayout
from meshloom.sched.workload.training import TrainingLayer
from meshloom.sched.workload.training_data import random_gradients

from .base import SingleRequest, SingleRun
from .interface import Expected, Listener, WorkloadKind

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ...devices.interface import Run
    from ...results.schema import Row


@dataclass(frozen=True, eq=False)
class GradientRun(SingleRun[TrainingLayer]):
    """The two gradients of a layer, ready to run. `choice`: what their scheduler says of them; None for a file."""

    choice: GradientSchedule | None = None

    @property
    def macs(self) -> int:
        return self.subject.macs

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return random_gradients(self.subject).arrays()

    def golden(self) -> Callable[[str], NDArray[Any]]:
        from ...inputs.golden.layer import golden

        products = random_gradients(self.subject).products()
        return lambda name: golden(products[name])

    def row(self, run: Run, chip: ChipConfig, detailed: bool = True) -> Row:
        from ...results.figures import GradientFigures
        from ..single import row_of

        choice = self.choice
        figures = choice and GradientFigures(
            macs=self.macs,
            order=choice.order,
            nest=choice.nest,
            dram_bytes=choice.dram_bytes,
            spilled_bytes=choice.spilled_bytes,
            array_cycles=choice.array_cycles,
            vector_cycles=choice.vector_cycles,
            orders={order.value: cycles for order, cycles in choice.predicted.items()},
        )
        return row_of(self, self.macs, self.golden(), run, chip, detailed, gradient=figures)


class Gradients(SingleRequest[TrainingLayer]):
    """The two gradients of a layer, to be scheduled together."""

    scheduled_as = "gradients"

    @property
    def macs(self) -> int:
        return self.subject.macs

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> GradientRun:
        """Raises DoesNotFit and what the scheduler raises."""
        progress.step("scheduling")
        choice = find_gradient(scheduler, SCHEDULES.folder())(self.subject, chip)
        return GradientRun(self.subject, planned(choice.schedule, chip, progress.step), choice=choice)

    def expected(self) -> Expected:
        m, k, n = self.subject.m, self.subject.k, self.subject.n
        sizes = {"x": ("input", k, m), "w": ("constant", k, n), "dy": ("input", n, m), "dw": ("output", k, n)}
        if not self.subject.first:
            sizes["dx"] = "output", k, m
        tensors = matrices(sizes)
        return Expected(self.name, tensors, tuple(tensors))

    def run_of(self, planned: Planned, origin: Mapping[str, Any]) -> GradientRun:
        return GradientRun(self.subject, planned, origin)


def matrices(
    sizes: Mapping[str, tuple[str, int, int]],
) -> dict[str, tuple[str, type[ActivationLayout], tuple[int, ...]]]:
    """Matrices by name, as (role, channels, pixels), as `Expected` has tensors."""
    return {name: (role, ActivationLayout, (1, columns, 1, rows)) for name, (role, columns, rows) in sizes.items()}


def setting(chip: ChipConfig | None) -> training.Setting:
    """What a chip trains; without one, what a chip of an edge device does."""
    return training.Setting(False, training.EDGE_BATCH) if chip is None else training.setting_of(chip)


def _find(name: str, chip: ChipConfig | None) -> Sequence[Gradients]:
    return [Gradients(layer) for layer in training.find(name, setting(chip))]


def _syntax() -> str:
    networks = ", ".join((*training.VARIANTS, *training.TABLES))
    return f"training:\n{training.SYNTAX}\n{fill(f'networks: {networks}', 78, subsequent_indent='  ')}"


KIND = WorkloadKind(_find, _syntax)
