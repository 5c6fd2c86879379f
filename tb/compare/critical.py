"""The critical path of a run, and the waits of its arrays that cost most.

Both walk backwards along `causes`: from the end of the run or of an operation to cycle 0, and from each GEMM to the
windows of the one before it on its core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nlargest

from ..results.explanation import CriticalPath, PathStep, Wait, Who
from ..results.legend import CycleCause
from .attribution import Gap, cause_of, gap
from .causes import Activity, Causes, Step
from .finished import Entry
from .records import InstructionPlace


def critical_path(
    causes: Causes[Entry], last: InstructionPlace, end: int, who: Callable[[InstructionPlace], Who]
) -> CriticalPath:
    """The path to cycle `end`, from the end of the instruction `last` backwards."""
    steps: list[PathStep] = []
    at = end
    first = Step(causes.records[causes.executing(last)].end, Activity.END, causes.executing(last))
    for step in _chain(first, causes.trace(last)):
        since = min(at, step.since)
        if since < at:
            cause = str(cause_of(causes, step))
            steps.append(
                PathStep(
                    start=since,
                    end=at,
                    activity=step.activity,
                    cause=cause,
                    who=who(step.place),
                    behind=_behind(causes, step.place, step.activity, who),
                )
            )
        at = since
    return CriticalPath(cycles=end, steps=tuple(reversed(steps)))


def _chain(first: Step, rest: Iterable[Step]) -> Iterable[Step]:
    yield first
    yield from rest


def costly_waits(
    causes: Causes[Entry], most: int, who: Callable[[InstructionPlace], Who], chosen: Callable[[InstructionPlace], bool]
) -> tuple[Wait, ...]:
    """The `most` longest waits of arrays before GEMMs that are `chosen`, the longest first; fill and drain of the array
    is none."""
    values: list[tuple[int, int, InstructionPlace, list[Gap]]] = []
    for core in causes.chip.cores:
        first = 0
        for place in causes.gemms(core):
            if chosen(place) and (parts := [part for part in gap(causes, place, first) if _waits(part)]):
                values.append((sum(part.cycles for part in parts), -causes.records[place].start, place, parts))
            first = causes.windows_end(place)
    return tuple(
        _wait(causes, place, parts, who) for *_, place, parts in nlargest(most, values, key=lambda each: each[:3])
    )


def _waits(part: Gap) -> bool:
    return part.cause is not CycleCause.PIPELINE


def _behind(
    causes: Causes[Entry], place: InstructionPlace, activity: str, who: Callable[[InstructionPlace], Who]
) -> Who | None:
    """In a queue for a mover, the MOVE that it executed before."""
    before = causes.queued_behind(place) if activity == Activity.QUEUE else None
    return None if before is None else who(before)


def _wait(
    causes: Causes[Entry], gemm: InstructionPlace, parts: list[Gap], who: Callable[[InstructionPlace], Who]
) -> Wait:
    spent = Counter[str]()
    blamed = Counter[tuple[InstructionPlace, str]]()
    for part in parts:
        spent[part.cause] += part.cycles
        blamed[part.step.place, part.step.activity] += part.cycles
    (place, activity), cycles = blamed.most_common(1)[0]
    return Wait(
        core=gemm.tile,
        start=min(part.start for part in parts),
        end=max(part.stop for part in parts),
        gemm=who(gemm),
        causes=dict(spent.most_common()),
        by=who(place),
        by_activity=activity,
        by_cycles=cycles,
        behind=_behind(causes, place, activity, who),
    )
