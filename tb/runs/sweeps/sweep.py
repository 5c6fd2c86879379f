"""A sweep from its file to its rows: what is to be done, what is done already, and the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from meshloom.sched.support.limits import guard

from ...devices.registry import find as find_device
from ...results.identity import sources
from ...results.schema import Status
from ...results.sweep import FAILED, PointRow, SweepFile
from . import cluster, grid
from .evaluate import Batch, Done, Task, deciding_code
from .store import SWEEPS_FOLDER, Store

#: Work of starting a simulator, as in `_work`; and of a batch at most, which is lost if its worker dies.
START = LARGEST = 20.0
#: Batches for each worker at least, so that none waits long for the last one.
EACH = 4
#: Work of a whole network, in that of preparing a layer; and products of each PE that take the RTL as long.
NETWORK, SIMULATED = 20.0, 10_000


@dataclass(frozen=True)
class Planned:
    """A point, its key, and the code that decides it."""

    point: grid.Point
    key: str
    code: str

    @property
    def parameters(self) -> str:
        """As in its row."""
        return json.dumps(dict(self.point.parameters), sort_keys=True)


@dataclass
class Outcome:
    """What became of a sweep. `existing`: points with a row already; `failed_before`: those of them that have
    not passed. `rows`: of the others. `batches`: those that came back from workers."""

    points: int
    existing: int
    rows: list[PointRow] = field(default_factory=list[PointRow])
    batches: list[Done] = field(default_factory=list[Done])
    failed_before: list[Status] = field(default_factory=list[Status])


def plan(sweep: SweepFile, folder: Path) -> list[Planned]:
    """The points of a sweep whose file is in `folder`, with their keys. Raises as `grid.points`, and PluginError for a
    device that there is not."""
    device = None
    if sweep.measure == "rtl":
        find_device(sweep.device)
        device = sweep.device
    plans: list[Planned] = []
    codes: dict[str, str] = {}
    for point in grid.points(sweep, folder):
        if (code := codes.get(point.scheduler)) is None:
            code = codes[point.scheduler] = deciding_code(point.scheduler, device)
        plans.append(Planned(point, grid.digest([1, point.content, device, code]), code))
    return plans


def run(
    sweep: SweepFile,
    folder: Path,
    out: Path,
    *,
    jobs: int,
    address: str | None = None,
    retry: bool = False,
    on_plan: Callable[[int, int], None] = lambda points, existing: None,
    on_rows: Callable[[Sequence[PointRow]], None] = lambda rows: None,
) -> Outcome:
    """Makes the points of a sweep (`folder`: where its file lies) that have no row in `out`, and adds their rows.

    `jobs`: worker processes here, or `address`: of the scheduler of a Dask cluster. `retry`: points that failed are
    made again. `on_plan` hears how many points there are and how many are done, `on_rows` of rows as they come.

    Raises SweepError and the errors of names before anything runs, ClusterError, OSError if rows cannot be written. An
    interrupt loses only batches under way.
    """
    if address is None:
        cluster.begin(cluster.ON_RTL if sweep.measure == "rtl" else ())
    planned = plan(sweep, folder)
    device = sweep.device if sweep.measure == "rtl" else None
    return run_points(planned, device, out, jobs=jobs, address=address, retry=retry, on_plan=on_plan, on_rows=on_rows)


def run_points(
    planned: Sequence[Planned],
    device: str | None,
    out: Path,
    *,
    jobs: int,
    address: str | None = None,
    retry: bool = False,
    on_plan: Callable[[int, int], None] = lambda points, existing: None,
    on_rows: Callable[[Sequence[PointRow]], None] = lambda rows: None,
) -> Outcome:
    """`run` for points that are planned already; `device`: None for predictions alone."""
    with Store(out) as store:
        done = store.done(failed_too=not retry)
        left = [each for each in planned if each.key not in done]
        outcome = Outcome(len(planned), len(planned) - len(left))
        before = (done[each.key] for each in planned if each.key in done)
        outcome.failed_before = [status for status in before if status is not Status.PASSED]
        on_plan(outcome.points, outcome.existing)

        def keep(rows: Sequence[PointRow]) -> None:
            store.add(rows)
            outcome.rows += rows
            on_rows(rows)

        def came_back(done: Done) -> None:
            outcome.batches.append(done)
            keep(done.rows)

        if impossible := [_impossible(each, device) for each in left if each.point.chip is None]:
            keep(impossible)
        if possible := [each for each in left if each.point.chip is not None]:
            with cluster.opened(min(jobs, len(possible)), address) as client:
                cluster.run(client, batches(possible, device, cluster.workers(client)), came_back)
    return outcome


def batches(planned: Sequence[Planned], device: str | None, workers: int) -> list[Batch]:
    """Points in groups of about equal work for one worker each, all of a group on one chip; the most work first, so
    that at the end all workers have something small. On a device those on one chip come together, unless they differ by
    more work than another simulator takes to start."""
    work = [_work(each.point, device) for each in planned]
    share = min(LARGEST, sum(work) / (EACH * max(1, workers)))
    pairs: list[tuple[float, Batch]] = []
    both = zip(planned, work, strict=True)
    for _, group in groupby(both, lambda each: each[0].point.chip and each[0].point.chip.digest):
        some: list[Planned] = []
        spent = 0.0
        for each, own in group:
            if some and spent + own > share:
                pairs.append((spent, _batch(some, device)))
                some, spent = [], 0.0
            some.append(each)
            spent += own
        pairs.append((spent, _batch(some, device)))
    if device is None:
        return [batch for _, batch in sorted(pairs, key=lambda each: -each[0])]
    chips = {batch.chip.digest: number for number, (_, batch) in enumerate(pairs)}

    def order(pair: tuple[float, Batch]) -> tuple[float, int, float]:
        spent, batch = pair
        return -(spent // START), chips[batch.chip.digest], -spent

    return [batch for _, batch in sorted(pairs, key=order)]


def _work(point: grid.Point, device: str | None) -> float:
    """What a point takes, roughly, in units of preparing a layer."""
    chip = point.chip
    if point.macs is None or chip is None:
        return NETWORK
    simulated = 0.0 if device is None else point.macs / (chip.rows * chip.cols * len(chip.cores)) / SIMULATED
    return 1.0 + simulated


def _batch(some: Sequence[Planned], device: str | None) -> Batch:
    """Points on one chip, as a worker takes them."""
    chip = some[0].point.chip
    assert chip is not None
    tasks = (
        Task(
            key=each.key,
            scheduler=each.point.scheduler,
            workload=each.point.workload,
            parameters=each.parameters,
            code=each.code,
        )
        for each in some
    )
    return Batch(sources=sources(), guard=guard(), chip=chip, device=device, tasks=tuple(tasks))


def _impossible(each: Planned, device: str | None) -> PointRow:
    """The row of a point whose chip cannot be."""
    return PointRow(
        key=each.key,
        chip=each.point.base,
        scheduler=each.point.scheduler,
        workload=each.point.workload,
        measure=device or "model",
        parameters=each.parameters,
        status=FAILED,
        error=each.point.problem,
        error_kind="ConfigError",
        error_stage="reading",
        code=each.code,
    )


def default_folder(sweep: SweepFile) -> Path:
    """Where its rows lie unless somebody says otherwise."""
    return SWEEPS_FOLDER / sweep.name
