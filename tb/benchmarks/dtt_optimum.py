"""The routing step of DTT beside the optimum: in order, and repaired."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from statistics import fmean

from meshloom.sched.papers.dtt.exact_routing import Optimum, optimum
from meshloom.sched.papers.dtt.random_needs import random_needs
from meshloom.sched.papers.dtt.repair import repaired, routed

from ..results.events import OnEvent, RowCount, Stage
from ..runs.workers import workers
from .results import Result, Sheet

#: Random cases; cycles that a need may be late; rounds of repair; deterministic time of the solver for each case.
CASES, PATIENCE, ROUNDS, WORK = 60, 6, (0, 25, 100, 400, 1600), 6.0
#: Energy above the least, in percent, that is asked for in the mean.
EXCESS = 1.0


@dataclass(frozen=True)
class Case:
    """`found`: (cycles late, energy) by rounds of repair, and the optimum."""

    needs: int
    found: tuple[tuple[int, Fraction], ...]
    best: Optimum


def case(seed: int) -> Case:
    """A random case: in a worker process."""
    hardware, loads, needs = random_needs(Random(seed), PATIENCE)
    tried = [routed(hardware, loads, needs, PATIENCE)]
    tried += [repaired(hardware, loads, needs, PATIENCE, rounds) for rounds in ROUNDS[1:]]
    best = optimum(hardware, loads, needs, PATIENCE, WORK)
    return Case(len(needs), tuple((one.late, one.energy) for one in tried), best)


def sheet(cases: list[Case], failures: list[str]) -> Sheet:
    """Each number of rounds beside the optimum."""
    proven = [one for one in cases if one.best.proven]
    rows: list[tuple[str, ...]] = []
    for at, rounds in enumerate(ROUNDS):
        timely = [one for one in proven if one.found[at][0] == one.best.late]
        excess = [100 * float(one.found[at][1] / one.best.energy - 1) for one in timely]
        late = [one.found[at][0] - one.best.late for one in proven]
        best = sum(not over for over in excess)
        wrong = [one for one in proven if one.found[at] < (one.best.late, one.best.energy)]
        rows.append(
            (f"{rounds}" if rounds else "none: in the order of their cycles", f"{best} of {len(proven)}",
             f"{sum(size > 0 for size in late)}", f"{max(late, default=0)}", f"{fmean(excess):.2f}",
             f"{max(excess):.1f}")
        )  # fmt: skip
        if wrong:
            failures.append(f"{rounds} rounds: {len(wrong)} cases are better than what the solver has proven")
        if rounds == ROUNDS[-1] and (fmean(excess) > EXCESS or any(late)):
            failures.append(
                f"{rounds} rounds: {fmean(excess):.2f} % above the least energy, {sum(late)} cycles later; "
                f"{EXCESS} % and none are asked"
            )
    columns = (
        "rounds of repair", "optimal>", "later than the optimum>", "by cycles, most>",
        "energy above the least, mean, %>", "worst, %>",
    )  # fmt: skip
    return Sheet("Against the optimum", columns, rows)


def run(on_progress: OnEvent) -> Result:
    """Routes and solves all cases."""
    on_progress(RowCount(rows=CASES))
    with workers(len(os.sched_getaffinity(0))) as pool:
        futures = [pool.submit(case, seed) for seed in range(CASES)]
        cases: list[Case] = []
        for number, future in enumerate(futures, 1):
            on_progress(Stage(workload="random hardware", what=f"case {number} of {CASES}"))
            cases.append(pool.result(future, on_progress))
    failures: list[str] = []
    shown = sheet(cases, failures)
    proven = sum(one.best.proven for one in cases)
    return Result(
        "dtt_optimum",
        "Routing ahead of time beside the optimum",
        f"{CASES} random pieces of hardware of five to eight nodes with narrow wires, and three to eight data to be "
        "somewhere in some cycle (`sched/papers/dtt/random_needs.py`). Routed one after the other as the paper does "
        "(Algorithm 2), the same with so many rounds of repair (other turns and stopovers, `repair.py`), and all at "
        "once by CP-SAT: first the fewest cycles late, then the least energy, movements and waits. Energies are "
        f"compared where nothing is later than it must be. The solver had a limit of work and proved {proven} of "
        f"{CASES} cases; the others are left out.",
        (shown,),
        failures=tuple(failures),
    )
