"""Workloads in both flows: their pages pushed ahead of time, or pulled by the tiles that need them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.dtt.demand_model import pull
from meshloom.sched.papers.dtt.layers import layer_program
from meshloom.sched.routing import check
from meshloom.sched.workload.catalog import find

from ..engine.point import Inputs, Point, Report
from ..engine.rows import StudyError
from ..points.runs import chip_of
from .routing_points import rate, route

#: Tasks ahead that a pulled tile asks for.
AHEAD = (0, 1, 2)


def square(side: int) -> ChipConfig:
    """A chip of `side` x `side` tiles: memories in the first column, of large ones DRAM in the last, else cores."""
    rows: list[list[str]] = []
    for y in range(side):
        kinds = ["dram" if y % 2 == 0 else "spm", *["core"] * (side - 1)]
        if side > 4 and y % 2 == 0:
            kinds[-1] = "dram"
        rows.append(kinds)
    rows[-1][0] = "host"
    return ChipConfig.model_validate(
        {
            "name": f"square{side}",
            "lanes": 16,
            "floorplan": [" ".join(kinds) for kinds in rows],
            "dram": {"bytes_per_cycle": 16, "words": 1 << 22},
            "spm_words": 1 << 16,
        }
    )


@dataclass(frozen=True)
class PulledFlow:
    """How a pulled run went; hops are flits x links, of data and of requests."""

    cycles: int
    moves: int
    flit_hops: int
    request_flit_hops: int
    link_load: float


@dataclass(frozen=True)
class Flows:
    """A workload in both flows. `ideal`: cycles if no page were ever waited for; `port`: the busiest one, and its share
    of cycles with a flit; `seconds`: of the processor, for the plan. `pulled`, `expecting`: asking so many tasks ahead
    (`AHEAD`), with a directory that knows who holds a page, and one that knows also who will."""

    tasks: int
    ideal: float
    cycles: int
    moves: int
    flit_hops: int
    link_load: float
    port: str
    port_share: float
    seconds: float
    pulled: tuple[PulledFlow, ...]
    expecting: tuple[PulledFlow, ...]

    @property
    def best(self) -> PulledFlow:
        """The fastest pulled run."""
        return min((*self.pulled, *self.expecting), key=lambda run: run.cycles)

    @property
    def gain(self) -> float:
        """Cycles of the fastest pulled run for each of the pushed one."""
        return self.best.cycles / self.cycles

    @property
    def rate(self) -> float:
        """Page moves planned per CPU-second."""
        return rate(self.moves, self.seconds)


@dataclass(frozen=True)
class BothFlows(Point):
    """Layers on a chip, in both flows. `chip`: built in, or `square` and a side."""

    chip: str
    workload: str
    layers: tuple[str, ...]
    row: ClassVar[Any] = Flows

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        side = self.chip.removeprefix("square")
        return square(int(side)) if side != self.chip else chip_of(self.chip)

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.chip}"

    @property
    def work(self) -> float:
        return 600.0 if "vgg16, all" in self.workload else 20.0

    def inputs(self) -> Inputs:
        modules = (
            "sched.papers.dtt.demand_model", "sched.papers.dtt.layers", "sched.routing.check", "sched.routing.planner",
            "sched.workload.catalog",
        )  # fmt: skip
        return Inputs(modules, (("chip", self.config.digest), ("numba", metadata.version("numba"))))

    def measure(self, report: Report) -> Flows:
        """Raises StudyError if the plan is not what it says."""
        chip = self.config
        shapes = [workload.shape for name in self.layers for workload in find(name)]
        program = layer_program(shapes, chip, name=self.workload)
        routed = route(program)
        plan = routed.plan
        if problems := check.problems(plan):
            raise StudyError(f"{chip.name}, {self.workload}: {problems[0]}")
        runs: list[tuple[PulledFlow, ...]] = []
        for knows in (False, True):
            report("pulled, pages expected" if knows else "pulled")
            some = [pull(program, ahead, knows) for ahead in AHEAD]
            runs.append(
                tuple(
                    PulledFlow(run.cycles, run.moves, run.flit_hops, run.request_flit_hops, run.link_load)
                    for run in some
                )
            )
        return Flows(
            len(program.tasks), sum(task.cycles for task in program.tasks) / len(chip.cores), plan.cycles, plan.moves,
            plan.flit_hops, plan.link_load, *plan.busiest_port, routed.seconds, *runs,
        )  # fmt: skip
