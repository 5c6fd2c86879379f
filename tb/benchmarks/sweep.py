"""Sweeps with two workers, one of which is killed in the middle, against the same points one after another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from meshloom.hw.spec.config import load

from ..results.events import OnEvent, RowCount, Stage
from ..results.identity import sources
from ..results.sweep import PointRow, SweepFile
from ..runs.sweeps import cluster
from ..runs.sweeps import sweep as sweeps
from ..runs.sweeps.evaluate import Batch, Done, evaluate
from .results import Result, Sheet

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
SWEEPS = (
    SweepFile.model_validate(
        _SIZES
        | {
            "name": "model",
            "chips": ("tiny", "quad8", "quad16"),
            # a word of tiny has 4 bytes: points with 8 a cycle cannot be, and are rows that say so
            "chip": {"dram.bytes_per_cycle": [2, 4, 8], "core.a_words": [1024, 4096]},
            "sample": 1000,
            "seed": 1,
        }
    ),
    SweepFile.model_validate(
        _SIZES | {"name": "rtl", "measure": "rtl", "chips": ("tiny", "quad8"), "sample": 200, "seed": 1}
    ),
)


@dataclass(frozen=True)
class Ran:
    """A sweep, made twice; seconds. `serial`, `wall`: one after another, and with workers. Of the workers' time: `busy`
    in batches that came back, `start` before their first one, `between` batches, `lost` in what was killed, `again`
    until the worker that replaces it has begun, `end` after their last one. `killed`: process that was."""

    sweep: SweepFile
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


def run(on_progress: OnEvent) -> Result:
    """Makes both sweeps both ways, and sends batches of nothing."""
    on_progress(RowCount(rows=2 * len(SWEEPS) + 1))
    found = [_both(sweep, on_progress) for sweep in SWEEPS]
    on_progress(Stage(workload="nothing", what=f"{EMPTY:,} batches without points"))
    wall, client = _empty()
    failures: list[str] = []
    for ran in found:
        if ran.differ:
            failures.append(f"{ran.sweep.name}: {ran.differ} rows are not those of the serial run")
        if ran.rows != ran.sweep.sample:
            failures.append(f"{ran.sweep.name}: {ran.rows} rows, not {ran.sweep.sample}")
        if not ran.killed:
            failures.append(f"{ran.sweep.name}: no worker was killed")
        elif ran.lost <= 0:
            failures.append(f"{ran.sweep.name}: the worker was killed between batches, and no work was lost")
        if ran.overhead > MOST_MS:
            failures.append(f"{ran.sweep.name}: {ran.overhead:.1f} ms for each point, {MOST_MS:g} are allowed")
    columns = (
        "sweep", "points>", "failed>", "rows that differ>", "batches>", "serial, s>", "2 workers, s>", "busy>",
        "start>", "between>", "lost>", "again>", "end>", "overhead, ms/point>",
        "all but work, ms/point>",
    )  # fmt: skip
    rows = [
        (
            ran.sweep.name, f"{ran.rows:,}", str(ran.failed), str(ran.differ), str(ran.batches),
            *(f"{each:.1f}" for each in (ran.serial, ran.wall, ran.busy, ran.start, ran.between, ran.lost, ran.again)),
            f"{ran.end:.1f}",
            f"{ran.overhead:.1f}", f"{ran.whole_overhead:.1f}",
        )
        for ran in found
    ]  # fmt: skip
    return Result(
        "sweep",
        "Sweeps on workers that die",
        "The points of two sweeps, in the model and on the RTL: one after another in one process, and by "
        f"`meshloom sweep` with {WORKERS} workers, of which one is killed in the middle of a batch when half of the "
        "points are there. All rows must be the same, but for their seconds; those that failed are chips that cannot "
        "be. The seconds of all workers together: *busy* in batches that came back; at the *start* until the first "
        "batch; *between* one batch and the next; *lost* in the batch that was killed, whose points are made once "
        "more; until work goes on *again* in the worker that replaces the killed one; at the *end*, with nothing left "
        f"to do. The overhead for each point is *between*, *lost* and *again* (the bar is {MOST_MS:g} ms); the last "
        "column has *start* and *end* too. "
        "Seconds are wall clock, differ between machines, and grow with whatever else these do.",
        (
            Sheet("With one worker killed, against a serial run", columns, rows),
            Sheet(
                "Batches without points, to two workers",
                ("batches>", "wall clock, ms/batch>", "CPU time of client and scheduler, ms/batch>"),
                [(f"{EMPTY:,}", f"{1000 * wall / EMPTY:.1f}", f"{1000 * client / EMPTY:.1f}")],
            ),
        ),
        failures=tuple(failures),
    )


def _both(sweep: SweepFile, on_progress: OnEvent) -> Ran:
    on_progress(Stage(workload=sweep.name, what="one after another"))
    planned = sweeps.plan(sweep, Path())
    device = sweep.device if sweep.measure == "rtl" else None
    batches = sweeps.batches([each for each in planned if each.point.chip], device, WORKERS)
    alone: dict[str, PointRow] = {}
    evaluate(batches[0].model_dump_json())  # imports and simulators are there before anything is measured
    began = time.time()
    for batch in batches:
        alone |= {row.key: row for row in Done.model_validate_json(evaluate(batch.model_dump_json())).rows}
    serial = time.time() - began
    on_progress(Stage(workload=sweep.name, what=f"{WORKERS} workers"))
    killer = _Killer(len(planned) // 2, serial / len(batches) / 2)
    with TemporaryDirectory() as folder:
        began = time.time()
        outcome = sweeps.run(sweep, Path(), Path(folder), jobs=WORKERS, on_rows=killer)
        ended = time.time()
    killer.over()
    differ = sum(_content(alone[row.key]) != _content(row) for row in outcome.rows if row.key in alone)
    missing = len({each.key for each in planned} - {row.key for row in outcome.rows})
    failed = sum(row.error_kind is not None for row in outcome.rows)
    return Ran(
        sweep, len(outcome.rows), failed, differ + missing, len(batches), serial, ended - began,
        **_spent(outcome.batches, began, ended, killer), killed=killer.pid,
    )  # fmt: skip


def _spent(done: Sequence[Done], began: float, ended: float, killer: _Killer) -> dict[str, float]:
    """What the workers did in their time, by name; see `Ran`."""
    spent: dict[str, float] = dict.fromkeys(("busy", "start", "between", "lost", "again", "end"), 0.0)
    for worker in {each.worker for each in done}:
        own = sorted((each.began, each.ended) for each in done if each.worker == worker)
        spent["busy"] += sum(end - start for start, end in own)
        spent["between"] += sum(start - end for (_, end), (start, _) in zip(own, own[1:], strict=False))
        # one that began after the kill replaces what was killed
        replaces = killer.pid != 0 and own[0][0] > killer.at
        spent["again" if replaces else "start"] += own[0][0] - (killer.at if replaces else began)
        spent["lost" if worker == killer.pid else "end"] += (killer.at if worker == killer.pid else ended) - own[-1][1]
    return spent


def _empty() -> tuple[float, float]:
    """Sends batches without points; seconds of wall clock, and of CPU time of this process, which has client and
    scheduler in it."""
    batch = Batch(sources=sources(), chip=load("quad16"), device=None, tasks=())
    with cluster.opened(WORKERS, None) as client:
        cluster.run(client, [batch] * 10, lambda done: None)  # the workers have imported what they need
        began, used = time.time(), time.process_time()
        cluster.run(client, [batch] * EMPTY, lambda done: None)
        return time.time() - began, time.process_time() - used


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
