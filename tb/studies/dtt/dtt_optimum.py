"""The routing step of DTT beside the optimum: in order, and repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib import metadata
from random import Random
from statistics import fmean
from typing import Any, ClassVar

from meshloom.sched.papers.dtt.exact_routing import Optimum, optimum
from meshloom.sched.papers.dtt.random_needs import random_needs
from meshloom.sched.papers.dtt.repair import repaired, routed

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, table
from ..engine.values import with_settings

#: Random cases in all and in the quick study; cycles that a need may be late; rounds of repair; deterministic time of
#: the solver for each case.
CASES, QUICK, PATIENCE, ROUNDS, WORK = 60, 12, 6, (0, 25, 100, 400, 1600), 6.0
#: Energy above the least, in percent, that the most rounds may take in the mean.
EXCESS = 1.0


@dataclass(frozen=True)
class NeedsRouted:
    """`ways`: (cycles late, energy) by rounds of repair; `best`: the optimum, or what the solver found."""

    needs: int
    ways: tuple[tuple[int, Fraction], ...]
    best: Optimum


@dataclass(frozen=True)
class RandomNeeds(Point):
    """Random needs, by their seed; with so many rounds of repair."""

    seed: int
    rounds: tuple[int, ...] = ROUNDS
    patience: int = PATIENCE
    solving: float = WORK
    row: ClassVar[Any] = NeedsRouted

    @property
    def name(self) -> str:
        return f"random needs of seed {self.seed}"

    @property
    def work(self) -> float:
        return 10.0

    def inputs(self) -> Inputs:
        modules = "exact_routing", "random_needs", "repair"
        return Inputs(
            tuple(f"sched.papers.dtt.{module}" for module in modules), (("ortools", metadata.version("ortools")),)
        )

    def measure(self, report: Report) -> NeedsRouted:
        hardware, loads, needs = random_needs(Random(self.seed), self.patience)
        report("routing")
        ways = [
            repaired(hardware, loads, needs, self.patience, rounds)
            if rounds
            else routed(hardware, loads, needs, self.patience)
            for rounds in self.rounds
        ]
        report("solving")
        best = optimum(hardware, loads, needs, self.patience, self.solving)
        return NeedsRouted(len(needs), tuple((way.late, way.energy) for way in ways), best)


def points(full: bool) -> list[RandomNeeds]:
    """One case for each seed."""
    return [RandomNeeds(seed) for seed in range(CASES if full else QUICK)]


def _proven(rows: Rows) -> list[NeedsRouted]:
    return [row for row in rows.values() if row.best.proven]


class _Line:
    """So many rounds of repair, beside the optimum."""

    def __init__(self, at: int, rows: Rows) -> None:
        proven = _proven(rows)
        self.rounds, self.cases = ROUNDS[at], len(proven)
        self.late = [row.ways[at][0] - row.best.late for row in proven]
        timely = [row for row in proven if row.ways[at][0] == row.best.late]
        self.excess = [100 * float(row.ways[at][1] / row.best.energy - 1) for row in timely]
        self.wrong = sum(row.ways[at] < (row.best.late, row.best.energy) for row in proven)


def optimum_table(rows: Rows) -> Table:
    """Each number of rounds beside the optimum."""
    columns: dict[str, Callable[[_Line], str]] = {
        "rounds of repair": lambda line: f"{line.rounds}" if line.rounds else "none: in the order of their cycles",
        "optimal>": lambda line: f"{sum(not over for over in line.excess)} of {line.cases}",
        "later than the optimum>": lambda line: f"{sum(size > 0 for size in line.late)}",
        "by cycles, most>": lambda line: f"{max(line.late, default=0)}",
        "energy above the least, mean, %>": lambda line: f"{fmean(line.excess):.2f}",
        "worst, %>": lambda line: f"{max(line.excess):.1f}",
    }
    lines = [_Line(at, rows) for at in range(len(ROUNDS))]
    return table("Against the optimum", columns, [line for line in lines if line.excess])


def _wrong(rows: Rows) -> list[str]:
    return [
        f"{line.rounds} rounds: {line.wrong} cases are better than what the solver has proven"
        for line in (_Line(at, rows) for at in range(len(ROUNDS)))
        if line.wrong
    ]


def _excess(at: int) -> Callable[[Rows], float | None]:
    return lambda rows: fmean(excess) if (excess := _Line(at, rows).excess) else None


STUDY = Study(
    name="dtt_optimum",
    title="Routing ahead of time beside the optimum",
    question="How far from the optimum are data that are routed ahead of time, one after the other and repaired?",
    answer="One after the other they take {{ plain }} more energy than the least in the mean, after "
    f"{ROUNDS[-1]:,} rounds of repair {{{{ repaired }}}}.",
    about=with_settings(prose(__file__), most=CASES),
    points=points,
    tables=(optimum_table,),
    figures=(
        Figure("cases", "cases", len, "{:,.0f}"),
        Figure("proven", "cases whose optimum is proven", lambda rows: len(_proven(rows)), "{:,.0f}"),
        Figure("plain", "energy above the least, in the order of cycles, mean", _excess(0), "{:.2f} %"),
        Figure(
            "repaired",
            f"energy above the least, {ROUNDS[-1]:,} rounds, mean",
            _excess(-1),
            "{:.2f} %",
            Bar("at most", EXCESS),
        ),
        Figure(
            "late",
            f"cycles later than the optimum, {ROUNDS[-1]:,} rounds, all cases",
            lambda rows: sum(_Line(-1, rows).late),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
    ),
    checks=_wrong,
    paper="dtt",
)
