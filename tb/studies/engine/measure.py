"""Measures the points of studies, all together: by workers on this machine or on a cluster, the most work first,
resumed where another run has ended. A point that comes to an error stops no other."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from meshloom.hw.spec.config import Exact
from meshloom.sched.store.room import unwritten
from meshloom.sched.support.files import write_error
from meshloom.sched.support.limits import Guard, guard, guarded

from ...results.events import OnEvent, RowCount, Stage
from ...results.identity import code, sources
from ...runs.failures import Failure, attempt, row_error
from ...runs.sweeps import cluster
from ...runs.sweeps.evaluate import OtherSourcesError
from .point import Point, Report, form, place_of
from .rows import Line, RowFile, StudyError

#: CPU-seconds of points that make a job for a worker: each job costs some milliseconds.
JOB = 5.0
#: Where tracebacks of errors that nobody raised on purpose are written.
TRACES = Path("sim_build") / "bench"
_LINES: TypeAdapter[list[Line]] = TypeAdapter(list[Line])


class PointJob(Exact):
    """Points of one class for a worker. `place`: `module:Class`; `points`: as JSON values; `sources`: digest of the
    sources that sent it; `guard`: what schedulers are held to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: str
    guard: Guard
    place: str
    points: tuple[str, ...]

    @staticmethod
    def perform(text: str) -> str:
        """The lines of a job, as JSON. Raises OtherSourcesError if the sources here are others; WriteError."""
        job = PointJob.model_validate_json(text)
        if job.sources != sources():
            raise OtherSourcesError(
                f"a worker has Meshloom with sources {sources()}, the study was sent by {job.sources}: install the "
                "same on all machines"
            )
        with guarded(job.guard):
            return _LINES.dump_json([measured(point) for point in job.read()]).decode()

    def read(self) -> Iterator[Point]:
        """Its points."""
        module, _, name = self.place.partition(":")
        kind = getattr(import_module(module), name)
        return (form(kind).validate_json(text) for text in self.points)

    def apart(self) -> tuple[PointJob, ...]:
        """Its points one by one."""
        return tuple(self.model_copy(update={"points": (point,)}) for point in self.points)

    def outcome(self, text: str) -> list[Line]:
        """The lines that a worker has returned."""
        return _LINES.validate_json(text)

    def lost(self, why: Failure) -> list[Line]:
        """Lines that say why there are no rows."""
        return [_failed(point, why, 0.0) for point in self.read()]


def measured(point: Point, report: Report = lambda what: None) -> Line:
    """The line of a point, measured in this process. Raises WriteError where the disk is full."""

    def measure(at: Report) -> object:
        def both(what: str) -> None:
            at(what)
            report(what)

        try:
            return point.measure(both)
        except Exception as error:
            if (full := unwritten(error)) is not None:  # that is nothing that a row should keep
                raise write_error(full, str(full.filename)) from None
            raise

    before = _seconds()
    row = attempt(measure, "measuring")
    spent = _seconds() - before
    if isinstance(row, Failure):
        return _failed(point, row, spent)
    return _line(point, spent, row=point.dump(row))


def _seconds() -> float:
    """Of the processor, of this process and of those that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def _line(point: Point, seconds: float, row: object = None, error: str = "") -> Line:
    kind, fields = type(point).__name__, form(type(point)).dump_python(point, mode="json")
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return Line(kind, fields, row, point.key, error, code(), date, round(seconds, 3))


def _failed(point: Point, why: Failure, seconds: float) -> Line:
    return _line(point, seconds, error=row_error(why, point.name, TRACES).words)


@dataclass(frozen=True)
class PendingStudy:
    """What is left of a study. `left`: its points that are measured; `file`: where their lines are added; `done`: heard
    when all are there, at once if there are none."""

    name: str
    file: RowFile
    left: Sequence[Point]
    done: Callable[[], None] = lambda: None


def left_of(points: Iterable[Point], file: RowFile, retry: bool = False) -> list[Point]:
    """Those of some points that the present code has not measured. `retry`: or that came to an error. Raises
    StudyError, and what a point raises that cannot say what decides it."""
    points = list(points)
    left = file.missing(points)
    if retry:
        errors = [each.point for each in file.look(points).values() if each.error]
        left = list(dict.fromkeys([*left, *errors]))
    return left


def measure(parts: Sequence[PendingStudy], on_progress: OnEvent, *, jobs: int, address: str | None = None) -> int:
    """Measures what is left of some studies, all of them together, and adds their lines to their files as they come;
    returns how many points they were. What several need is measured once.

    `jobs`: worker processes here (0: none, points are measured in this process), or `address`: of the scheduler of a
    Dask cluster. Raises ClusterError, WriteError; an interrupt loses only the points under way.
    """
    waiting = {part.name: {point.key for point in part.left} for part in parts}
    points = list({point.key: point for part in parts for point in part.left}.values())
    points.sort(key=lambda point: -point.work)
    on_progress(RowCount(rows=len(points)))
    for part in parts:
        if not part.left:
            part.done()

    def add(lines: Sequence[Line]) -> None:
        for part in parts:
            mine = [line for line in lines if line.key in waiting[part.name]]
            if not mine:
                continue
            waiting[part.name] -= {line.key for line in mine}
            part.file.add([line for line in mine if not part.file.has(line)])  # one file may be of several
            far, of = len(part.left) - len(waiting[part.name]), len(part.left)
            on_progress(Stage(workload=part.name, what=f"{far} of {of} points measured"))
            if far == of:
                part.file.tidy()
                part.done()

    elsewhere = [point for point in points if jobs and not point.alone and _importable(point)]
    if elsewhere:
        with cluster.opened(min(jobs, len(elsewhere)), address) as client:
            cluster.run(client, _jobs(elsewhere), add)
    for point in points:
        if point not in elsewhere:
            add([measured(point, lambda what, name=point.name: on_progress(Stage(name, what, passing=True)))])
    return len(points)


def _importable(point: Point) -> bool:
    """Whether a worker can import the class of a point: not that of a file that was named, or of a function."""
    module, _, name = place_of(point).partition(":")
    package = module.partition(".")[0]
    # not by `sys.modules`, which has the file too; an editable install is there by a finder of its own
    if not any(finder.find_spec(package, None) for finder in sys.meta_path):
        return False
    return getattr(import_module(module), name, None) is type(point)


def _jobs(points: Sequence[Point]) -> list[PointJob]:
    """Points in jobs of about `JOB` seconds or of a single point, those of a job of one class."""
    some: dict[str, list[Point]] = {}
    jobs: list[PointJob] = []

    def close(place: str) -> None:
        texts = tuple(form(type(point)).dump_json(point).decode() for point in some.pop(place))
        jobs.append(PointJob(sources=sources(), guard=guard(), place=place, points=texts))

    for point in points:
        place = place_of(point)
        some.setdefault(place, []).append(point)
        if sum(each.work for each in some[place]) >= JOB:
            close(place)
    for place in list(some):
        close(place)
    return jobs


def shard(points: Sequence[Point], text: str) -> list[Point]:
    """The part of points that `i/n` names, the same on every machine. Raises StudyError."""
    number, slash, of = text.partition("/")
    if not slash or not number.isdecimal() or not of.isdecimal() or not 1 <= int(number) <= int(of):
        raise StudyError(f"--shard {text}: give I/N, such as 2/5: the second of five parts")
    return [point for index, point in enumerate(dict.fromkeys(points)) if index % int(of) == int(number) - 1]
