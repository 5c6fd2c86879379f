"""The gradients of layers in a row in training, as one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.lowering.programs import Planned, planned
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.registry import Chosen, find_chain
from meshloom.sched.schedulers.training.schedules import ChainSchedule
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import training_chain
from meshloom.sched.workload.chain_data import random_chain
from meshloom.sched.workload.training_chain import Chain

from .gradients import matrices, setting
from .interface import Expected, Kind, Progress, Single

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ...devices.interface import Job, Run
    from ...results.schema import Row


@dataclass(frozen=True, eq=False)
class ChainItem:
    """The gradients of layers in a row, ready to run. `choice`: what their scheduler says of them; None for a file."""

    chain: Chain
    choice: ChainSchedule | None
    schedule: Schedule
    program: Program
    timeline: Timeline
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return self.chain.name

    @property
    def macs(self) -> int:
        return self.chain.macs

    def job(self, chip: ChipConfig) -> Job:
        from ..single import job_of

        return job_of(self, random_chain(self.chain).arrays(), chip)

    def row(self, run: Run, chip: ChipConfig) -> Row:
        from ...inputs.golden.chain import chain
        from ...results.figures import GradientFigures
        from ..single import row_of

        right, choice = chain(random_chain(self.chain)), self.choice
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
        return row_of(self, self.macs, lambda name: right[name], run, chip, gradient=figures)

    def settings(self) -> dict[str, Any]:
        from ..single import digest

        data = random_chain(self.chain).arrays()
        return {**self.origin, "input": "random bytes, seeded by the layers' names", "input_digest": digest(data)}


@dataclass(frozen=True)
class ChainGradients(Single):
    """The gradients of layers in a row, to be scheduled together."""

    chain: Chain
    scheduled_as = "chains"

    @property
    def name(self) -> str:
        return self.chain.name

    @property
    def macs(self) -> int:
        return self.chain.macs

    def plan(self, chip: ChipConfig, scheduler: str | Chosen, progress: Progress) -> ChainItem:
        """Raises DoesNotFit and what the scheduler raises."""
        progress.step("scheduling")
        choice = find_chain(scheduler, SCHEDULES.folder())(self.chain, chip)
        made = planned(choice.schedule, chip, progress.step)
        return ChainItem(self.chain, choice, made.schedule, made.program, made.timeline)

    def expected(self) -> Expected:
        chain = self.chain
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

    def item(self, planned: Planned, origin: Mapping[str, Any]) -> ChainItem:
        return ChainItem(self.chain, None, planned.schedule, planned.program, planned.timeline, origin)


def _find(name: str, chip: ChipConfig | None) -> Sequence[ChainGradients]:
    return [ChainGradients(chain) for chain in training_chain.find(name, setting(chip))]


def _syntax() -> str:
    return f"{training_chain.SYNTAX}\nnetworks: {', '.join(training_chain.ROWS)}"


KIND = Kind(_find, _syntax)
