"""The runs that are over, by their files: what they were and how they ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from meshloom.sched.support.reading import parse_json

from .listings import PastRun
from .recorder import RESULTS_FOLDER
from .scenario import ScenarioResults
from .schema import Results, Row, Status
from .tokens import TokenResults
from .training import TrainingResults


def names(folder: Path = RESULTS_FOLDER) -> list[str]:
    """The names of the runs whose results are in a folder, newest first."""
    return sorted((path.stem for path in folder.glob("[0-9]*T[0-9]*Z-*.json")), reverse=True)


def past(last: int, folder: Path = RESULTS_FOLDER) -> Iterator[PastRun]:
    """The last runs, newest first, read one by one. `last`: how many; 0: all."""
    for name in names(folder)[: last or None]:
        yield _read(name, folder / f"{name}.json")


def _read(name: str, path: Path) -> PastRun:
    started = datetime.strptime(f"{name.partition('-')[0]}+0000", "%Y%m%dT%H%M%S.%fZ%z")
    try:
        value: object = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("is no results file")
        values = cast(Mapping[str, Any], value)
        if "instances" in values:
            return _served(name, ScenarioResults.model_validate(values))
        if "runs" in values:
            return _texts(name, TokenResults.model_validate(values))
        return _trained(name, values) if "losses" in values else _ran(name, Results.model_validate(values))
    except (OSError, ValueError) as error:  # a file of another version is one of many
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        return PastRun(run=name, kind="unknown", started=started, ended=f"cannot be read: {problem}")


def _ran(name: str, results: Results) -> PastRun:
    rows, summary = results.rows, results.summary
    if summary.ok:
        ended = "passed"
    elif not results.complete:
        ended = f"interrupted, {summary.passed} of {summary.rows} rows passed"
    else:
        worst = min((row.status for row in rows), key=list(Status).index, default=Status.FAILED)
        ended = str(worst) if summary.rows == 1 else f"{summary.passed} of {summary.rows} passed"
        ended = "model" if summary.rows and summary.passed == summary.rows else ended
    return PastRun(
        run=name,
        kind="run",
        started=results.started,
        seconds=results.wall_seconds,
        workloads=_once(row.workload for row in rows),
        chips=_once(row.chip for row in rows),
        schedulers=_once(_scheduler(row) for row in rows),
        device=next((row.simulator for row in rows if row.simulator), ""),
        cycles=sum(row.rtl_cycles for row in rows),
        ok=summary.ok,
        ended=ended,
    )


def _scheduler(row: Row) -> str:
    return row.settings.scheduler if row.settings else row.scheduler


def _served(name: str, results: ScenarioResults) -> PastRun:
    figures = results.scenario
    return PastRun(
        run=name,
        kind="serve",
        started=results.started,
        workloads=(figures.name,),
        chips=(figures.chip,),
        schedulers=(figures.scheduler,),
        device=figures.simulator or "model",
        cycles=figures.rtl_cycles if figures.rtl_cycles is not None else figures.model_cycles,
        ok=results.ok,
        ended="passed" if results.ok else results.reasons[0],
    )


def _texts(name: str, results: TokenResults) -> PastRun:
    runs = results.runs
    return PastRun(
        run=name,
        kind="serve-tokens",
        started=results.started,
        workloads=_once(run.scenario for run in runs),
        chips=_once(run.chip for run in runs),
        schedulers=_once(run.scheduler for run in runs),
        device=next((run.simulator for run in runs if run.simulator), "model"),
        cycles=sum(run.figures.cycles for run in runs),
        ok=results.ok,
        ended="passed" if results.ok else results.reasons[0],
    )


def _trained(name: str, values: Mapping[str, Any]) -> PastRun:
    results = TrainingResults.model_validate(values)
    ended = "passed" if results.ok else results.reasons[0]
    return PastRun(
        run=name,
        kind="train",
        started=results.started,
        workloads=(results.network,),
        chips=(results.chip,),
        schedulers=(results.order,),
        device=results.simulator or "model",
        cycles=results.rtl_cycles if results.rtl_cycles is not None else results.model_cycles,
        ok=results.ok,
        ended=ended if results.complete else f"interrupted after {results.steps} steps",
    )


def _once(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
