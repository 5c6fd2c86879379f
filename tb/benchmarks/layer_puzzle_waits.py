"""Who waits under which scheduler, and Layer-Puzzle's Algorithm 2 by each way to read it: from whatever results there
are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from meshloom.sched.workload.workload_sets import EACH, NETWORKS, SIZES

from ..results.scenario import ScenarioResults
from .layer_puzzle_sheets import CHIPS, SCHEDULERS, Found
from .results import Sheet
from .served import Asked

#: Algorithm 2, by what is read as printed.
READINGS = {
    "layer_puzzle": "",
    "layer_puzzle:order=ahead": "sign of the priority",
    "layer_puzzle:skips=every": "skips: every decision that leaves a network waiting",
    "layer_puzzle:order=ahead,skips=every": "both",
    "layer_puzzle:literal=yes": "loop without a way out",
}


def workloads(sizes: Sequence[str]) -> list[str]:
    """The names of all workloads of these sizes."""
    return [f"{size}{index}" for size in sizes for index in range(EACH)]


def readings(found: Found, sizes: Sequence[str]) -> Sheet:
    """A row for each reading that has been served, on the workloads of these sizes that all of those have."""
    every = {
        name: {one: found[asked] for one in workloads(sizes) if (asked := Asked(CHIPS[0], one, name)) in found}
        for name in READINGS
    }
    every = {name: each for name, each in every.items() if each}
    names = [one for one in workloads(sizes) if all(one in each for each in every.values())]
    rows: list[tuple[str, ...]] = []
    for name, each in every.items() if names and len(every) > 1 else ():
        metrics = [each[one].scenario.model for one in names]
        slowdowns = [row.slowdown or 0.0 for one in names for row in each[one].instances if row.network == "ncf"]
        cells = (
            f"{fmean(one.antt for one in metrics):.3f}", f"{fmean(one.stp for one in metrics):.3f}",
            f"{100 * fmean(one.sla_violations for one in metrics):.1f}",
            f"{100 * fmean(one.utilisation for one in metrics):.1f}",
            f"{fmean(slowdowns):.1f}" if slowdowns else "-",
        )  # fmt: skip
        rows.append((name, READINGS[name], f"{len(names)}", *cells))
    columns = (
        "scheduler", "read as printed", "workloads>", "ANTT>", "STP>", "SLA missed, %>", "PE use, %>",
        "slowdown of ncf>",
    )  # fmt: skip
    return Sheet(f"Algorithm 2 by its readings, on {CHIPS[0]} in the model", columns, rows)


@dataclass(frozen=True)
class _Lived:
    """An instance. `ran`: cycles in which a program of it ran; `held`: the same times its cores; `slowdown`: its
    normalised turnaround time."""

    network: str
    turnaround: int
    slowdown: float
    ran: int
    held: int


def _lived(results: ScenarioResults) -> list[_Lived]:
    """All instances that came to their end, as they were in the model or, had it run, on the RTL."""
    ran, held, until = (defaultdict[int, int](int) for _ in range(3))
    for row in sorted(results.programs, key=lambda row: row.launched):
        end = row.model_end if row.rtl_end is None else row.rtl_end
        if end is None:
            continue
        cycles = end - max(row.launched, until[row.instance])  # a successor is launched while the layer before runs
        ran[row.instance] += cycles
        held[row.instance] += cycles * len(row.cores)
        until[row.instance] = end
    return [
        _Lived(row.network, row.turnaround, row.slowdown, ran[row.number], held[row.number])
        for row in results.instances
        if row.turnaround is not None and row.slowdown is not None
    ]


def waits(found: Found) -> Sheet:
    """Of the workloads that all schedulers have served: mean slowdown by network, the worst, and what a network does in
    its turnaround time."""
    rows: list[tuple[str, ...]] = []
    for chip in CHIPS:
        names = [one for one in workloads(tuple(SIZES)) if all(Asked(chip, one, each) in found for each in SCHEDULERS)]
        for scheduler in SCHEDULERS if names else ():
            lived = [each for one in names for each in _lived(found[Asked(chip, one, scheduler)])]
            means = [[each.slowdown for each in lived if each.network == network] for network in NETWORKS]
            worst = max(lived, key=lambda each: each.slowdown)
            whole, ran = sum(each.turnaround for each in lived), sum(each.ran for each in lived)
            rows.append(
                (
                    chip, f"{len(names)}", scheduler, *(f"{fmean(each):.2f}" if each else "-" for each in means),
                    f"{worst.slowdown:.1f}, {worst.network}", f"{100 * (1 - ran / whole):.0f}",
                    f"{sum(each.held for each in lived) / ran:.1f}",
                )
            )  # fmt: skip
    columns = (
        "chip", "workloads>", "scheduler", *(f"{network}>" for network in NETWORKS), "worst>",
        "waiting, % of turnaround>", "cores while running>",
    )  # fmt: skip
    return Sheet("Who waits: mean slowdown by network, in the model", columns, rows)
