"""From the bound of a schedule to the cycles that it took: why its busiest resource had nothing to do.

The busiest resource serves one operation at a time. Its operations, in the order of their ends and each as late as it
can be, cut the run into cycles in which it is busy, which are the bound, and the gaps before each of them. A gap is
explained by walking back from the operation's end along what it waited for (`causes`). So gaps by cause and place add
up to what the run takes longer than its bound. Of a memory's port, words and heads of packets count as busy; where
words of a MOVE come slower than a word a cycle, the rest is a gap before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from meshloom.hw.spec.isa import Opcode
from meshloom.sched.schedulers.network.limits import ResourceUse, uses

from ..results.explanation import BoundGap, GapPart
from ..results.legend import CycleCause
from .attribution import cause_of
from .causes import Activity, Causes, Step
from .finished import Entry, FinishedRun
from .records import InstructionPlace


class _Busy(NamedTuple):
    """Cycles [start, end) in which a resource serves an instruction of a layer."""

    start: int
    end: int
    place: InstructionPlace
    layer: str


def gap_of(run: FinishedRun, causes: Causes[Entry], cycles: int) -> BoundGap | None:
    """The gaps of the busiest resource of a run that took `cycles`, by its records in `causes`; None without
    operations."""
    loads: defaultdict[tuple[str, int, str], list[ResourceUse]] = defaultdict(list)
    for use in uses(run.schedule, run.chip):
        loads[use.kind, use.tile, use.what].append(use)
    if not loads:
        return None
    sums = {resource: sum(use.cycles for use in some) for resource, some in loads.items()}
    busiest = kind, tile, what = max(sums, key=sums.__getitem__)
    alike = [int(total) for (other, _, way), total in sums.items() if (other, way) == (kind, what)]
    parts = _parts(causes, _busy(run, causes, loads[busiest]), cycles)
    return BoundGap(tile=tile, what=what, mean=sum(alike) / len(alike), parts=parts)


def _busy(run: FinishedRun, causes: Causes[Entry], some: Iterable[ResourceUse]) -> list[_Busy]:
    """When a resource serves the operations that use it, in the order of time: each as late as its end allows."""
    places = _places(run, causes)
    queue: list[tuple[int, int, InstructionPlace, str]] = []
    total = 0.0
    for use in some:
        place, before = places[use.operation], int(total)
        total += use.cycles
        end = _served(causes, place)
        queue.append((end, int(total) - before, place, run.layer(run.schedule.operations[use.operation])))
    served: list[_Busy] = []
    free = max((end for end, *_ in queue), default=0)
    for end, width, place, layer in sorted(queue, reverse=True):
        end = min(end, free)
        free = max(0, end - width)
        served.append(_Busy(free, end, place, layer))
    return served[::-1]


def _places(run: FinishedRun, causes: Causes[Entry]) -> Mapping[int, InstructionPlace]:
    """Of each operation the instruction that ends it, at whoever executes that."""
    places: dict[int, InstructionPlace] = {}
    for place, entry in causes.records.items():
        number = run.number(place)
        if number is None or causes.executing(place) != place:
            continue
        if number not in places or causes.records[places[number]].end < entry.end:
            places[number] = place
    return places


def _served(causes: Causes[Entry], place: InstructionPlace) -> int:
    """The cycle after the last one in which an instruction needs its resource."""
    is_gemm = causes.records[place].opcode is Opcode.GEMM
    return causes.windows_end(place) if is_gemm else causes.records[place].end


def _parts(causes: Causes[Entry], served: list[_Busy], cycles: int) -> tuple[GapPart, ...]:
    """The gaps by the layers before and after them."""
    spent: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    at, layer = 0, ""
    for busy in served:
        if at < busy.start:
            spent[layer, busy.layer].update(_explained(causes, causes.trace(busy.place), at, busy.start))
        at, layer = max(at, busy.end), busy.layer
    if at < cycles:
        last = max(causes.records, key=lambda place: causes.records[place].end)
        end = Step(causes.records[last].end, Activity.END, last)
        spent[layer, ""].update(_explained(causes, chain([end], causes.trace(last)), at, cycles))
    return tuple(
        GapPart(after=after, before=before, causes=dict(counts.most_common()))
        for (after, before), counts in spent.items()
    )


def _explained(causes: Causes[Entry], steps: Iterable[Step], start: int, end: int) -> Counter[str]:
    """Cycles [start, end) by what the steps back from there were."""
    counts = Counter[str]()
    at = end
    for step in steps:
        since = max(start, min(at, step.since))
        if since < at:
            computing = step.activity is Activity.COMPUTE
            counts[CycleCause.DEPENDENCE if computing else cause_of(causes, step)] += at - since
            at = since
        if at == start:
            break
    return counts
