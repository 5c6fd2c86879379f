"""Why a run took its cycles: waterfall, critical path, costly waits, and where model and RTL differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..results.artefacts import Artefacts
from ..results.energy import EnergyTable
from ..results.explanation import CriticalPath, Explanation, Waterfall
from ..results.named import NamedRun
from ..results.record import ResultsError
from .area import area_of
from .bounds import bounds_of
from .causes import AttributionError, Causes
from .clock import time_of
from .critical import costly_waits, critical_path
from .energy import energy_of
from .finished import Entry, FinishedRun, finished_run
from .records import InstructionPlace
from .spread import spread
from .waterfall import waterfall


class ExplainError(ResultsError):
    """A run that cannot be explained, or a layer or operation that it does not have; the message says why."""


class ExplainedRun(NamedTuple):
    """A workload of a run with what it left, and why it took its cycles, or its model's."""

    artefacts: Artefacts
    run: FinishedRun
    why: Explanation
    model: bool


def explained_all(
    workloads: Sequence[NamedRun],
    table: EnergyTable | None,
    model: bool | None = False,
    most: int = 10,
    area: bool = False,
    on_progress: Callable[[str], None] = lambda what: None,
    clock_mhz: float | None = None,
) -> tuple[list[ExplainedRun], dict[str, str]]:
    """Explains workloads of a run; of those that cannot be, the reason by name. `table`: of the estimates of their
    energy; None is that of each run, or ours. `model`: None is the RTL, or the model where nothing was measured (after
    a fault). `area`: those of their chips are measured if they are not known, which takes minutes. `on_progress` hears
    what is being done. `clock_mhz`: instead of the chips' own. Raises what the first of them does if none can be
    explained, BuildError if synthesis fails."""
    runs: list[ExplainedRun] = []
    failed: dict[str, str] = {}
    first: Exception | None = None
    for each in workloads:
        on_progress(f"explaining {each.row.workload}")
        try:
            left = each.load()
            run = finished_run(left)
            planned = not run.measured if model is None else model
            why = explained(run, planned, most=most)
            spent = energy_of(left, table)
            clock = run.chip.clock_mhz if clock_mhz is None else clock_mhz
            estimates = {
                "energy": spent,
                "time": time_of(run.row, run.schedule, clock, spent, why.waterfall.cycles),
                "area": area_of(run.chip, area, on_progress),
            }
            why = why.model_copy(update=estimates)
            runs.append(ExplainedRun(left, run, why, planned))
        except (ResultsError, AttributionError) as error:
            first = first or error
            failed[each.row.workload] = str(error).removeprefix(f"{each.row.workload}: ")
    if first is not None and not runs:
        raise first
    return runs, failed


def times(run: FinishedRun, model: bool) -> tuple[Mapping[InstructionPlace, Entry], int]:
    """The records and the cycles of a run, measured or the model's. Raises ExplainError where there are none."""
    if model:
        return run.predicted, run.row.model_cycles
    if not run.measured:
        why = run.row.reason or run.row.untraced
        raise ExplainError(f"{run.row.workload}: no cycles were measured: {why}; --model explains those of the model")
    return run.measured, run.row.rtl_cycles


def waterfall_of(run: FinishedRun, model: bool) -> Waterfall:
    """The waterfall of a run. Raises ExplainError, AttributionError."""
    records, cycles = times(run, model)
    causes = None if run.program.ahead else Causes(run.program, records, run.chip)
    return waterfall(run, causes, records, cycles)


def explained(
    run: FinishedRun, model: bool = False, layer: str | None = None, operation: int | None = None, most: int = 10
) -> Explanation:
    """A run explained from its records, or from the model's.

    `layer`: only the waits of its GEMMs. `operation`: only its waits, and the path is that to its end. `most`: of the
    waits. Raises ExplainError for a layer or operation that the run does not have, AttributionError if records are
    missing.
    """
    model = model or run.planned
    records, cycles = times(run, model)
    causes = None if run.program.ahead else Causes(run.program, records, run.chip)
    falls = waterfall(run, causes, records, cycles)
    if layer is not None and layer not in (there := {run.layer(op) for op in run.schedule.operations}):
        raise ExplainError(f"{run.row.workload} has no layer {layer!r}; it has {', '.join(sorted(there))}")
    last, end = _last(run, records, operation, cycles)

    def chosen(place: InstructionPlace) -> bool:
        number = run.number(place)
        if number is None:
            return False
        return operation in (None, number) and layer in (None, run.layer(run.schedule.operations[number]))

    path: CriticalPath | None = None
    if causes is not None:
        path = critical_path(causes, last, end, run.who)
    return Explanation(
        workload=run.row.workload,
        chip=run.row.chip,
        scheduler=run.row.scheduler,
        source="model" if model else "rtl",
        planned=run.planned,
        waterfall=falls,
        path=path,
        waits=() if causes is None else costly_waits(causes, most, run.who, chosen),
        spread=spread(run),
        claim=run.schedule.claim,
        bounds=bounds_of(run, causes, cycles) if layer is None and operation is None else None,
    )


def _last(
    run: FinishedRun, records: Mapping[InstructionPlace, Entry], operation: int | None, cycles: int
) -> tuple[InstructionPlace, int]:
    """The instruction at which the path ends, and the cycle of its end; that of the run, if it is the last of all."""
    if operation is None:
        place = max(records, key=lambda place: records[place].end)
        return place._replace(remote=False), cycles
    if not 0 <= operation < len(run.schedule.operations):
        count = len(run.schedule.operations)
        raise ExplainError(f"{run.row.workload} has no operation {operation}; its {count:,} are numbered from 0")
    pairs = [(entry.end, place) for place, entry in records.items() if run.number(place) == operation]
    if not pairs:
        raise ExplainError(f"operation {operation} of {run.row.workload} left no record")
    end, place = max(pairs)
    return place._replace(remote=False), end
