"""What is measured of routing ahead of time: plans of random programs, the same questions asked of networkx, waypoints,
the reduction tree. Times are of the processor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

from meshloom.sched.papers.dtt import examples
from meshloom.sched.papers.dtt.reduction import Reduction, reduce
from meshloom.sched.papers.dtt.reference_search import Yardstick, compare
from meshloom.sched.papers.dtt.synthetic import random_program
from meshloom.sched.routing import check
from meshloom.sched.routing.plan import Plan, Settings
from meshloom.sched.routing.planner import Planner
from meshloom.sched.routing.program import Program
from meshloom.sched.routing.waypoints import Between, compress

from ..engine.point import Inputs, Point, Report

#: Flits of a page: 16 words and a head.
FLITS = 17
#: Batches of eight products that a reduction tree sums.
BATCHES = 6
_COMPILER = ("numba", metadata.version("numba"))


@dataclass(frozen=True)
class RoutedPlan:
    """A plan and the CPU-seconds it took, without the making of tables for it."""

    plan: Plan
    seconds: float


def route(program: Program, settings: Settings | None = None, repeats: int = 1) -> RoutedPlan:
    """Plans a program; the fastest of `repeats` times. The search is compiled before, unless it is cached."""
    Planner(random_program(4, 50)).plan()
    plans: list[RoutedPlan] = []
    for _ in range(repeats):
        planner = Planner(program, settings)
        before = time.process_time()
        plan = planner.plan()
        plans.append(RoutedPlan(plan, time.process_time() - before))
    return min(plans, key=lambda each: each.seconds)


def rate(moves: int, seconds: float) -> float:
    """Moves per CPU-second."""
    return moves / max(seconds, 1e-9)


@dataclass(frozen=True)
class PlanFigures:
    """A plan: its moves, inputs that were where they are read, moves that come too late, tasks that begin later, links
    that were looked at for all moves; `problems`: what a check finds wrong with it, the first in words."""

    moves: int
    hits: int
    cycles: int
    link_load: float
    missed: int
    late: int
    tasks: int
    looked_at: int
    seconds: float
    problems: int = 0
    first_problem: str = ""

    @property
    def rate(self) -> float:
        """Page moves per CPU-second."""
        return rate(self.moves, self.seconds)


@dataclass(frozen=True)
class PlanTimed(Point):
    """A random program of so many page moves on a square mesh, the fastest of some repeats. `port_load`: share of
    cycles for which the busiest ports are planned."""

    side: int
    size: int
    port_load: float
    repeats: int
    row: ClassVar[Any] = PlanFigures
    alone: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.size:,} moves on {self.side}x{self.side} at {100 * self.port_load:.0f} %"

    @property
    def work(self) -> float:
        return 5 + self.size / 2000

    def inputs(self) -> Inputs:
        return Inputs(("sched.papers.dtt.synthetic", "sched.routing.planner", "sched.routing.check"), (_COMPILER,))

    def measure(self, report: Report) -> PlanFigures:
        routed = route(random_program(self.side, self.size, load=self.port_load, flits=FLITS), repeats=self.repeats)
        report("checking")
        return plan_figures(routed)


def plan_figures(routed: RoutedPlan) -> PlanFigures:
    """The figures of a plan, checked."""
    plan, problems = routed.plan, check.problems(routed.plan)
    return PlanFigures(
        plan.moves, plan.hits, plan.cycles, plan.link_load, plan.missed, len(plan.late), len(plan.program.tasks),
        plan.looked_at, routed.seconds, len(problems), problems[0] if problems else "",
    )  # fmt: skip


@dataclass(frozen=True)
class Beside:
    """What networkx says of the moves of a plan, and those of the compiled search per CPU-second."""

    networkx: Yardstick
    rate: float


@dataclass(frozen=True)
class BesideNetworkx(Point):
    """The first moves of a random program, asked of networkx over the same reservations. `weight`: of a hop against a
    cycle waited."""

    side: int
    weight: int
    moves: int
    port_load: float
    repeats: int
    row: ClassVar[Any] = Beside
    alone: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"networkx on {self.side}x{self.side}, hop weight {self.weight}"

    @property
    def work(self) -> float:
        return 10.0

    def inputs(self) -> Inputs:
        modules = "sched.papers.dtt.reference_search", "sched.papers.dtt.synthetic", "sched.routing.planner"
        return Inputs(modules, (_COMPILER, ("networkx", metadata.version("networkx"))))

    def measure(self, report: Report) -> Beside:
        program = random_program(self.side, self.moves, load=self.port_load, flits=FLITS, results=False)
        routed = route(program, Settings(hop_weight=self.weight), self.repeats)
        report("asking networkx")
        return Beside(compare(routed.plan, self.moves), rate(routed.plan.moves, routed.seconds))


@dataclass(frozen=True)
class StoredBits:
    """What the moves of a plan are stored in: links of their ways, waypoints, most of one move; bits of all as a list
    of (tile, cycle), as routes, and as they are stored, and of the last two without departures."""

    moves: int
    hops: int
    points: int
    most_points: int
    listed: int
    routes: int
    stored: int
    turns: int
    rest: int


@dataclass(frozen=True)
class WaypointsStored(Point):
    """A random plan stored as waypoints, with routes `between` them. Every route is rebuilt as it was planned, or there
    is no row."""

    side: int
    size: int
    port_load: float
    between: Between
    row: ClassVar[Any] = StoredBits

    @property
    def name(self) -> str:
        return f"waypoints on {self.side}x{self.side}, {self.between} between them"

    @property
    def work(self) -> float:
        return 10.0

    def inputs(self) -> Inputs:
        modules = "sched.papers.dtt.synthetic", "sched.routing.planner", "sched.routing.waypoints"
        return Inputs(modules, (_COMPILER,))

    def measure(self, report: Report) -> StoredBits:
        plan = route(random_program(self.side, self.size, load=self.port_load, flits=FLITS)).plan
        report("rebuilding every route")
        some = compress(plan, self.between)
        hops = sum(carry.hops for carry in plan.carries)
        return StoredBits(
            len(some.moves), hops, some.points, some.most_points, some.listed_bits, some.route_bits, some.stored_bits,
            some.turn_bits, some.point_bits,
        )  # fmt: skip


@dataclass(frozen=True)
class Tree:
    """Reductions on a tree: energy, cycles, and the share of its side links that is used."""

    energy: float
    cycles: int
    side_links: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reduced:
    """Reductions on the plain tree of the paper's section III-B, and on the one with side links."""

    reductions: int
    plain: Tree
    augmented: Tree


@dataclass(frozen=True)
class TreeReduced(Point):
    """Dot products of these sizes, which share the eight multipliers of the tree."""

    sizes: tuple[int, ...]
    batches: int = BATCHES
    row: ClassVar[Any] = Reduced

    @property
    def name(self) -> str:
        return "dot products of " + "+".join(map(str, self.sizes))

    def inputs(self) -> Inputs:
        return Inputs(("sched.papers.dtt.examples", "sched.papers.dtt.reduction"))

    def measure(self, report: Report) -> Reduced:
        todo: list[Reduction] = []
        for _ in range(self.batches):
            first = 0
            for size in self.sizes:
                todo.append(Reduction(len(todo), tuple(f"MUL_{index}" for index in range(first, first + size))))
                first += size
        plain, augmented = (reduce(examples.reduction_network(style), todo) for style in (False, True))
        links = tuple(augmented.utilisation[wire] for wire in examples.AUGMENTED)
        return Reduced(
            len(todo),
            Tree(float(plain.energy), plain.runtime),
            Tree(float(augmented.energy), augmented.runtime, links),
        )
