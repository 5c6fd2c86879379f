"""Sweeps with two workers, one of which is killed in the middle, against the same points one after another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from meshloom.hw.spec.config import load

from ...results.identity import sources
from ...results.sweep import PointRow, SweepFile
from ...runs.sweeps import cluster
from ...runs.sweeps import sweep as sweeps
from ...runs.sweeps.evaluate import Batch, Done, evaluate
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, table
from ..points.runs import gateware

WORKERS = 2
#: Milliseconds of a worker that a point may cost beside its own work, with what the kill costs.
MOST_MS = 50.0
#: Batches without points.
EMPTY = 500
_SIZES: dict[str, Any] = {
    "schedulers": ("loop_order:effort={effort}",),
    "workloads": ("gemm:{m}x{n}x{k}", "conv:{m}x{n}x16-16,k3,p1"),
    "parameters": {
        "effort": [0.005, 0.01],
        "m": {"low": 4, "high": 12, "step": 4},
        "n": {"low": 4, "high": 20, "step": 4},
        "k": {"low": 8, "high": 32, "step": 8},
    },
}
#: Points of each sweep: of the full study, and of the quick one.
SAMPLES = {"model": (1000, 200), "rtl": (200, 40)}


def sweep_of(name: str, sample: int) -> SweepFile:
    """A sweep in the model, or on the RTL."""
    more: dict[str, Any] = {"measure": "rtl", "chips": ("tiny", "quad8")}
    if name == "model":
        # a word of tiny has 4 bytes: points with 8 a cycle cannot be, and are rows that say so
        changes = {"dram.bytes_per_cycle": [2, 4, 8], "core.a_words": [1024, 4096]}
        more = {"chips": ("tiny", "quad8", "quad16"), "chip": changes}
    return SweepFile.model_validate(_SIZES | more | {"name": name, "sample": sample, "seed": 1})


@dataclass(frozen=True)
class SweepTimes:
    """A sweep, run twice; seconds. `serial`, `wall`: one after another, and with workers. Of the workers' time: `busy`
    in batches that came back, `start` before their first one, `between` batches, `lost` in what was killed, `again`
    until the worker that replaces it has begun, `end` after their last one. `killed`: process that was."""

    rows: int
    failed: int
    differ: int
    batches: int
    serial: float
    wall: float
    busy: float
    start: float
    between: float
    lost: float
    again: float
    end: float
    killed: int

    @property
    def overhead(self) -> float:
        """Milliseconds of a worker for each point between one batch and the next, and by the kill."""
        return 1000 * (self.between + self.lost + self.again) / self.rows

    @property
    def whole_overhead(self) -> float:
        """The same with all that is no work: the first start, and waiting at the end."""
        return self.overhead + 1000 * (self.start + self.end) / self.rows


class WorkerPoint(Point):
    """Starts workers of its own."""

    @property
    def work(self) -> float:
        return 120.0

    def inputs(self) -> Inputs:
        return Inputs(("tb.runs.sweeps.sweep",), (("gateware", gateware()),))


@dataclass(frozen=True)
class SweepPoint(WorkerPoint):
    """A sweep by its name, with so many points."""

    sweep: str
    sample: int
    row: ClassVar[Any] = SweepTimes

    @property
    def name(self) -> str:
        return f"{self.sweep} of {self.sample} points"

    def measure(self, report: Report) -> SweepTimes:
        return _both(sweep_of(self.sweep, self.sample), report)


@dataclass(frozen=True)
class EmptyTimes:
    """Seconds of wall clock, and of CPU time of client and scheduler."""

    wall: float
    client: float


@dataclass(frozen=True)
class EmptyPoint(WorkerPoint):
    """Batches without points."""

    batches: int
    row: ClassVar[Any] = EmptyTimes

    @property
    def name(self) -> str:
        return f"{self.batches} batches without points"

    def measure(self, report: Report) -> EmptyTimes:
        report("sending batches of nothing")
        return _empty(self.batches)


def points(full: bool) -> list[Point]:
    """Quick: a fifth of the points."""
    return [*(SweepPoint(name, sample[not full]) for name, sample in SAMPLES.items()), EmptyPoint(EMPTY)]


#: A sweep that was run.
Measured = tuple[SweepPoint, SweepTimes]


def sweeps_of(rows: Rows) -> list[Measured]:
    """Those with the most points of each name: a full study has the quick one's rows, too."""
    return list({point.sweep: (point, row) for point, row in sorted(rows.pairs(SweepPoint), key=_sample)}.values())


def _sample(pair: Measured) -> int:
    return pair[0].sample


def missed(point: SweepPoint, row: SweepTimes) -> list[str]:
    """Bars that a sweep missed."""
    reasons: list[str] = []
    if row.differ:
        reasons.append(f"{point.sweep}: {row.differ} rows are not those of the serial run")
    if row.rows != point.sample:
        reasons.append(f"{point.sweep}: {row.rows} rows, not {point.sample}")
    if not row.killed:
        reasons.append(f"{point.sweep}: no worker was killed")
    elif row.lost <= 0:
        reasons.append(f"{point.sweep}: the worker was killed between batches, and no work was lost")
    if row.overhead > MOST_MS:
        reasons.append(f"{point.sweep}: {row.overhead:.1f} ms for each point, {MOST_MS:g} are allowed")
    return reasons


def times(rows: Rows) -> Table:
    """Sweeps with a worker killed."""
    parts = ("busy", "start", "between", "lost", "again", "end")
    columns: dict[str, Callable[[Measured], str]] = {
        "sweep": lambda each: each[0].sweep,
        "points>": lambda each: count(each[1].rows),
        "failed>": lambda each: str(each[1].failed),
        "rows that differ>": lambda each: str(each[1].differ),
        "batches>": lambda each: str(each[1].batches),
        "serial, s>": lambda each: f"{each[1].serial:.1f}",
        f"{WORKERS} workers, s>": lambda each: f"{each[1].wall:.1f}",
        **{f"{part}>": lambda each, part=part: f"{getattr(each[1], part):.1f}" for part in parts},
        "overhead, ms/point>": lambda each: f"{each[1].overhead:.1f}",
        "all but work, ms/point>": lambda each: f"{each[1].whole_overhead:.1f}",
    }
    title = "With one worker killed, against a serial run"
    return table(title, columns, sweeps_of(rows), lambda each: bool(missed(*each)))


def empty(rows: Rows) -> Table:
    """Batches without points."""
    columns: dict[str, Callable[[tuple[EmptyPoint, EmptyTimes]], str]] = {
        "batches>": lambda each: count(each[0].batches),
        "wall clock, ms/batch>": lambda each: f"{1000 * each[1].wall / each[0].batches:.1f}",
        "CPU time of client and scheduler, ms/batch>": lambda each: f"{1000 * each[1].client / each[0].batches:.1f}",
    }
    return table("Batches without points, to two workers", columns, rows.pairs(EmptyPoint))


def _overhead(rows: Rows) -> float | None:
    return max((row.overhead for _, row in sweeps_of(rows)), default=None)


def _both(sweep: SweepFile, report: Report) -> SweepTimes:
    report("one after another")
    planned = sweeps.plan(sweep, Path())
    device = sweep.device if sweep.measure == "rtl" else None
    batches = sweeps.batches([each for each in planned if each.point.chip], device, WORKERS)
    alone: dict[str, PointRow] = {}
    evaluate(batches[0].model_dump_json())  # imports and simulators are there before anything is measured
    began = time.time()
    for batch in batches:
        alone |= {row.key: row for row in Done.model_validate_json(evaluate(batch.model_dump_json())).rows}
    serial = time.time() - began
    report(f"{WORKERS} workers")
    killer = _Killer(len(planned) // 2, serial / len(batches) / 2)
    with TemporaryDirectory() as folder:
        began = time.time()
        outcome = sweeps.run(sweep, Path(), Path(folder), jobs=WORKERS, on_rows=killer)
        ended = time.time()
    killer.over()
    differ = sum(_content(alone[row.key]) != _content(row) for row in outcome.rows if row.key in alone)
    missing = len({each.key for each in planned} - {row.key for row in outcome.rows})
    failed = sum(row.error_kind is not None for row in outcome.rows)
    return SweepTimes(
        len(outcome.rows),
        failed,
        differ + missing,
        len(batches),
        serial,
        ended - began,
        **_spent(outcome.batches, began, ended, killer),
        killed=killer.pid,
    )


def _spent(batches: Sequence[Done], began: float, ended: float, killer: _Killer) -> dict[str, float]:
    """What the workers did in their time, by name; see `SweepTimes`."""
    spent: dict[str, float] = dict.fromkeys(("busy", "start", "between", "lost", "again", "end"), 0.0)
    for worker in {each.worker for each in batches}:
        own = sorted((each.began, each.ended) for each in batches if each.worker == worker)
        spent["busy"] += sum(end - start for start, end in own)
        spent["between"] += sum(start - end for (_, end), (start, _) in zip(own, own[1:], strict=False))
        # one that began after the kill replaces what was killed
        replaces = killer.pid != 0 and own[0][0] > killer.at
        spent["again" if replaces else "start"] += own[0][0] - (killer.at if replaces else began)
        spent["lost" if worker == killer.pid else "end"] += (killer.at if worker == killer.pid else ended) - own[-1][1]
    return spent


def _empty(batches: int) -> EmptyTimes:
    """Sends batches without points; seconds of wall clock, and of CPU time of this process, which has client and
    scheduler in it."""
    batch = Batch(sources=sources(), chip=load("quad16"), device=None, tasks=())
    with cluster.opened(WORKERS, None) as client:
        cluster.run(client, [batch] * 10, lambda done: None)  # the workers have imported what they need
        began, used = time.time(), time.process_time()
        cluster.run(client, [batch] * batches, lambda done: None)
        return EmptyTimes(time.time() - began, time.process_time() - used)


class _Killer:
    """Hears of rows; when there are enough of them, it waits `delay` seconds, until the workers are in the middle of
    their batches, and kills one."""

    def __init__(self, after: int, delay: float) -> None:
        self._after, self._rows, self._due = after, 0, False
        self._timer = threading.Timer(delay, self._kill)
        self.pid, self.at = 0, 0.0

    def __call__(self, rows: Sequence[PointRow]) -> None:
        self._rows += len(rows)
        if self._rows >= self._after and not self._due:
            self._due = True
            self._timer.start()

    def _kill(self) -> None:
        children = [child.pid for child in multiprocessing.active_children() if child.pid]
        if children:
            self.pid, self.at = children[0], time.time()
            os.kill(self.pid, signal.SIGKILL)

    def over(self) -> None:
        """Nothing is killed any more."""
        self._timer.cancel()


def _content(row: PointRow) -> dict[str, Any]:
    return row.model_dump(exclude={"seconds", "simulation_seconds"})


STUDY = Study(
    name="sweep",
    title="Sweeps on workers that die",
    question="Are the rows of a sweep the same if a worker is killed, and what do workers cost beside their work?",
    answer="Of {{ rows }} rows {{ differ }} differ from those of a serial run; a point costs a worker at most "
    "{{ overhead }} ms beside its work.",
    about=prose(__file__),
    points=points,
    tables=(times, empty),
    figures=(
        Figure("rows", "points", lambda rows: sum(row.rows for _, row in sweeps_of(rows)), "{:,.0f}"),
        Figure(
            "differ",
            "rows that are not those of the serial run",
            lambda rows: sum(row.differ for _, row in sweeps_of(rows)),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
        Figure(
            "overhead", "ms of a worker for each point beside its work", _overhead, "{:.1f}", Bar("at most", MOST_MS)
        ),
    ),
    checks=lambda rows: [text for each in sweeps_of(rows) for text in missed(*each)],
    alone=True,
)
