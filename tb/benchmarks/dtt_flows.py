"""A workload in both flows: its pages pushed ahead of time, or pulled by the tiles that need them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.dtt.demand_model import Pulled, pull
from meshloom.sched.papers.dtt.layers import layer_program
from meshloom.sched.routing import check
from meshloom.sched.routing.plan import Plan, Settings
from meshloom.sched.routing.planner import Planner
from meshloom.sched.routing.program import Program
from meshloom.sched.workload.catalog import find

from .interface import BenchmarkError

#: Tasks ahead that a pulled tile asks for.
AHEAD = (0, 1, 2)


@dataclass(frozen=True)
class Routed:
    """A plan and the CPU-seconds it took, without the making of tables for it."""

    plan: Plan
    seconds: float

    @property
    def rate(self) -> float:
        """Page moves per CPU-second."""
        return self.plan.moves / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Flows:
    """A workload on a chip in both flows. `ideal`: cycles if no page were ever waited for; `pulled`, `expecting`:
    asking so many tasks ahead (`AHEAD`), with a directory that knows who holds a page, and one that knows also who
    will."""

    chip: str
    workload: str
    ideal: float
    pushed: Plan
    seconds: float
    pulled: tuple[Pulled, ...]
    expecting: tuple[Pulled, ...]

    @property
    def best(self) -> Pulled:
        """The fastest pulled run."""
        return min((*self.pulled, *self.expecting), key=lambda run: run.cycles)

    @property
    def gain(self) -> float:
        """Cycles of the fastest pulled run for each of the pushed one."""
        return self.best.cycles / self.pushed.cycles


def route(program: Program, settings: Settings | None = None, repeats: int = 1) -> Routed:
    """Plans a program; the fastest of `repeats` times."""
    best: Routed | None = None
    for _ in range(repeats):
        planner = Planner(program, settings)
        before = time.process_time()
        plan = planner.plan()
        seconds = time.process_time() - before
        if best is None or seconds < best.seconds:
            best = Routed(plan, seconds)
    assert best is not None
    return best


def pushed_and_pulled(chip: ChipConfig, workload: str, names: Sequence[str]) -> Flows:
    """Plans layers, and plays them pulled. Raises BenchmarkError if the plan is not what it says."""
    shapes = [found.shape for name in names for found in find(name)]
    program = layer_program(shapes, chip, name=workload)
    routed = route(program)
    if wrong := check.problems(routed.plan):
        raise BenchmarkError(f"{chip.name}, {workload}: {wrong[0]}")
    ideal = sum(task.cycles for task in program.tasks) / len(chip.cores)
    pulled, expecting = (tuple(pull(program, ahead, knows) for ahead in AHEAD) for knows in (False, True))
    return Flows(chip.name, workload, ideal, routed.plan, routed.seconds, pulled, expecting)


def flows_row(flows: Flows) -> tuple[str, ...]:
    """A row of the comparison of flows."""
    pushed, best = flows.pushed, flows.best
    return (
        flows.chip,
        flows.workload,
        f"{len(pushed.program.tasks):,}",
        f"{flows.ideal:,.0f}",
        f"{pushed.cycles:,}",
        " / ".join(f"{run.cycles:,}" for run in flows.pulled),
        " / ".join(f"{run.cycles:,}" for run in flows.expecting),
        f"{flows.gain:.2f}",
        f"{pushed.moves:,}",
        f"{best.moves:,}",
        f"{pushed.flit_hops:,}",
        f"{best.flit_hops:,} + {best.request_flit_hops:,}",
        f"{100 * pushed.link_load:.1f} / {100 * best.link_load:.1f} %",
        f"{100 * pushed.busiest_port[1]:.0f} %",
        f"{pushed.moves / max(flows.seconds, 1e-9):,.0f}",
    )


FLOWS = (
    "chip",
    "workload",
    "tasks>",
    "ideal cycles>",
    "pushed>",
    "pulled, asking 0 / 1 / 2 ahead>",
    "pulled, pages expected>",
    "gain>",
    "moves pushed>",
    "pulled>",
    "flit hops pushed>",
    "pulled, + requests>",
    "link load>",
    "busiest port>",
    "moves/s>",
)
