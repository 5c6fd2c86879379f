"""What a run is worth, in the measures of Eyerman and Eeckhout ("System-level performance metrics for multiprogram
workloads", IEEE Micro 2008) that Layer-Puzzle takes (section IV).

With C_i the cycles from arrival to end of instance i, and S_i those of the same network alone on the whole chip:

    NTT_i = C_i / S_i                 normalised turnaround time
    ANTT  = mean of NTT_i             lower is better, 1 if nobody disturbs anybody
    STP   = sum of S_i / C_i          progress of all together, in networks that run alone
    SLA violation rate                part of the instances with a deadline that end after it, or never
    PE utilisation                    multiply-accumulates done / (PEs * cycles from first arrival to last end)

An instance that a fault ended counts for SLA and is left out of ANTT; it adds nothing to STP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from .drive import Run, Served


@dataclass(frozen=True)
class Turnaround:
    """One instance. `cycles`: from arrival to end, None if a fault ended it; `isolated`: alone on the whole chip;
    `met`: its deadline, None if it has none. `waited`, `skipped`: see `Served`."""

    number: int
    network: str
    arrival: int
    end: int | None
    cycles: int | None
    isolated: int
    deadline: int | None
    met: bool | None
    waited: int
    skipped: int

    @property
    def slowdown(self) -> float | None:
        """Normalised turnaround time."""
        return None if self.cycles is None else self.cycles / self.isolated


@dataclass(frozen=True)
class Metrics:
    """`sla`: part of the deadlines that were missed, 0..1, 0 without deadlines. `utilisation` of PEs, 0..1. `busy`:
    part of all core cycles in which a core had a layer. `cycles`: from first arrival to last end."""

    antt: float
    stp: float
    sla: float
    utilisation: float
    busy: float
    cycles: int
    turnarounds: tuple[Turnaround, ...]


def measure(run: Run, isolated: Mapping[int, int] | None = None) -> Metrics:
    """The metrics of a run. `isolated`: cycles of an instance's network alone on the whole chip, by its number; for
    those that are not in it, what the versions say that the scheduler was shown."""
    cores = len(run.platform.cores)
    turnarounds: list[Turnaround] = []
    for served in run.served:
        instance = served.instance
        alone = (isolated or {}).get(instance.number) or instance.network.isolated(cores)
        turnarounds.append(_turnaround(served, alone))
    ended = [one for one in turnarounds if one.slowdown is not None]
    dated = [one for one in turnarounds if one.met is not None]
    begin = min((one.arrival for one in turnarounds), default=0)
    cycles = max(1, run.end - begin)
    networks = {served.instance.number: served.instance.network for served in run.served}
    done = (ran.placement for ran in run.ran if ran.fault is None)
    macs = sum(networks[placement.instance].layers[placement.layer].macs for placement in done)
    busy = sum((ran.end - ran.placement.start) * len(ran.placement.cores) for ran in run.ran)
    return Metrics(
        fsum(one.slowdown or 0.0 for one in ended) / max(1, len(ended)),
        fsum(1 / one.slowdown for one in ended if one.slowdown),
        sum(not one.met for one in dated) / max(1, len(dated)),
        macs / (run.platform.macs * cores * cycles),
        busy / (cores * cycles),
        cycles,
        tuple(turnarounds),
    )


def cores_over_time(run: Run) -> dict[int, list[tuple[int, int]]]:
    """For each instance the cycles in which its number of cores changes, with the new number, from its first launch. A
    layer that begins in the cycle in which the one before ends, on as many cores, is no change."""
    changes: dict[int, dict[int, int]] = {}
    for ran in run.ran:
        steps = changes.setdefault(ran.placement.instance, {})
        steps[ran.placement.start] = steps.get(ran.placement.start, 0) + len(ran.placement.cores)
        steps[ran.end] = steps.get(ran.end, 0) - len(ran.placement.cores)
    lines: dict[int, list[tuple[int, int]]] = {}
    for number, steps in sorted(changes.items()):
        cores, points = 0, list[tuple[int, int]]()
        for cycle in sorted(steps):
            if steps[cycle]:
                cores += steps[cycle]
                points.append((cycle, cores))
        lines[number] = points
    return lines


def _turnaround(served: Served, isolated: int) -> Turnaround:
    instance, end = served.instance, served.end
    met = None
    if instance.deadline is not None:
        met = end is not None and end <= instance.deadline
    cycles = None if end is None else end - instance.arrival
    return Turnaround(
        instance.number,
        instance.network.label,
        instance.arrival,
        end,
        cycles,
        max(1, isolated),
        instance.deadline,
        met,
        served.waited,
        served.skipped,
    )
