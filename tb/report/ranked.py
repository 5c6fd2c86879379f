"""A workload in several runs, as a table on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..results.legend import legend
from ..results.ranking import RankedRun, Ranking, Rankings
from ..results.schema import Status
from .compared import mostly
from .console import dense
from .narrow import show


def print_rankings(rankings: Rankings, to: Console) -> None:
    """Prints each workload in all runs, who is the fastest and by what cause, and what could not be compared."""
    show(ranking_table(rankings), to)
    if any(run.causes for each in rankings.workloads for run in each.runs):
        to.print(legend(), style="dim", soft_wrap=True)
    for each in rankings.workloads:
        if each.fastest is not None:
            to.print(_verdict(each), markup=False, soft_wrap=True)
        for run in each.runs:
            if run.refused:
                to.print(f"not compared: {each.workload} in {run.run}: {run.refused}", style="yellow", soft_wrap=True)
    for name, run in rankings.alone.items():
        to.print(f"only in {run}: {name}", soft_wrap=True)
    for text in rankings.regressions:
        to.print(f"worse: {text}", style="red", soft_wrap=True)


def ranking_table(rankings: Rankings) -> Table:
    """A line for each workload in each run; ratios are to the first run of the workload."""
    timed = any(each.side.milliseconds is not None for ranking in rankings.workloads for each in ranking.runs)
    columns = ("cycles", "ratio", *(("ms",) if timed else ()), "mostly, in cycles")
    table = dense("compared with the first", ("workload", "run"), columns)
    for ranking in rankings.workloads:
        for each in ranking.runs:
            bad = each.side.status not in (Status.PASSED, Status.PLANNED)
            table.add_row(
                ranking.workload,
                each.run + f" [{each.side.status}]" * bad,
                "-" if each.side.cycles is None else f"{each.side.cycles:,}",
                "-" if each.ratio is None else f"{each.ratio:.3f}",
                *(("-" if each.side.milliseconds is None else f"{each.side.milliseconds:,.4g}",) if timed else ()),
                mostly(each.causes) or "-",
                end_section=each is ranking.runs[-1],
            )
    return table


def _verdict(ranking: Ranking) -> str:
    """Who is the fastest, how much faster than the first, or than the next if it is the first, and why."""
    able = ranking.by_time
    best, first = able[0], ranking.runs[0]
    other = able[1] if best is first else first
    if ranking.duration(best) == ranking.duration(other):
        return f"{ranking.workload}: {best.run} and {other.run} take the same time"
    times = ranking.duration(other) / ranking.duration(best)
    return f"{ranking.workload}: {best.run} is {times:.2f} times as fast as {other.run}{_because(best, other, first)}"


def _because(best: RankedRun, other: RankedRun, first: RankedRun) -> str:
    """The cause that saves most."""
    causes = best.causes if other is first else {cause: -change for cause, change in other.causes.items()}
    saved = {cause: -change for cause, change in causes.items() if change < 0}
    if not saved:
        return ""
    cause = max(saved, key=saved.__getitem__)
    return f", mostly by {saved[cause]:,.0f} cycles less of {cause}"
