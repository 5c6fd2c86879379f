"""The gradients of layers in a row in training, as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from meshloom.sched.lowering.programs import Planned, planned
from meshloom.sched.schedulers.registry import Chosen, find_chain
from meshloom.sched.schedulers.training.schedules import ChainSchedule
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import training_chain
from meshloom.sched.workload.chain_data import random_chain
from meshloom.sched.workload.training_chain import Chain

from .base import SingleRequest, SingleRun
from .gradients import matrices, setting
from .interface import Expected, Listener, WorkloadKind

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ...devices.interface import Run
    from ...results.schema import Row


@dataclass(frozen=True, eq=False)
class ChainRun(SingleRun[Chain]):
    """The gradients of layers in a row, ready to run. `choice`: what their scheduler says of them; None for a file."""

    choice: ChainSchedule | None = None

    @property
    def macs(self) -> int:
        return self.subject.macs

    @property
    def data(self) -> str:
        return "random bytes, seeded by the layers' names"

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return random_chain(self.subject).arrays()

    def golden(self) -> Callable[[str], NDArray[Any]]:
        from ...inputs.golden.chain import chain

        return chain(random_chain(self.subject)).__getitem__

    def row(self, run: Run, chip: ChipConfig, detailed: bool = True) -> Row:
        from ...results.figures import GradientFigures
        from ..single import row_of

        choice = self.choice
        figures = choice and GradientFigures(
            macs=self.macs,
            order=self.schedule.scheduler,
            nest=choice.nest,
            dram_bytes=choice.dram_bytes,
            spilled_bytes=0,
            array_cycles=choice.array_cycles,
            vector_cycles=choice.vector_cycles,
            orders={},
        )
        return row_of(self, self.macs, self.golden(), run, chip, detailed, gradient=figures)


class ChainGradients(SingleRequest[Chain]):
    """The gradients of layers in a row, to be scheduled together."""

    scheduled_as = "chains"

    @property
    def macs(self) -> int:
        return self.subject.macs

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Listener) -> ChainRun:
        """Raises DoesNotFit and what the scheduler raises."""
        progress.step("scheduling")
        choice = find_chain(scheduler, SCHEDULES.folder())(self.subject, chip)
        return ChainRun(self.subject, planned(choice.schedule, chip, progress.step), choice=choice)

    def expected(self) -> Expected:
        chain = self.subject
        m, last = chain.m, chain.layers[-1]
        sizes = {"dy": ("input", last.n, m), f"dx:{chain.tag(0)}": ("output", chain.layers[0].k, m)}
        for index, layer in enumerate(chain.layers):
            tag = chain.tag(index)
            sizes |= {f"x:{tag}": ("input", layer.k, m), f"w:{tag}": ("constant", layer.k, layer.n)}
            sizes |= {f"{name}:{tag}": ("output", layer.k, layer.n) for name in ("dw", "w'")}
            if index:
                sizes[f"dy:{chain.tag(index - 1)}"] = "output", layer.k, m
        needed = [name for name, (role, _, _) in sizes.items() if role != "output"]
        return Expected(chain.name, matrices(sizes), needed)

    def run_of(self, planned: Planned, origin: Mapping[str, Any]) -> ChainRun:
        return ChainRun(self.subject, planned, origin)


def _find(name: str, chip: ChipConfig | None) -> Sequence[ChainGradients]:
    return [ChainGradients(chain) for chain in training_chain.find(name, setting(chip))]


def _syntax() -> str:
    return f"{training_chain.SYNTAX}\nnetworks: {', '.join(training_chain.ROWS)}"


KIND = WorkloadKind(_find, _syntax)
