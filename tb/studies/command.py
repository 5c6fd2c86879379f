"""`meshloom bench`: measures studies, prints them and writes their pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..build.builder import BuildError
from ..devices.interface import DeviceError
from ..report.reporter import Reporter
from ..runs.sweeps.cluster import ClusterError
from .engine.index import save_index
from .engine.measure import PendingStudy, left_of, measure, shard
from .engine.page import FOLDER, page_of, row_file, save
from .engine.point import Point
from .engine.rows import RowFile, StudyError
from .engine.study import Study
from .engine.tables import Table, print_table
from .prose import save_prose
from .registry import REGISTRY, SHIPPED

#: What stops a study and no other one.
_FAILURES = (StudyError, BuildError, DeviceError, ClusterError)


@dataclass(frozen=True)
class StudyOptions:
    """How studies are measured. `full`: the whole study, otherwise a sample of it; `shard`: `i/n`, that part of its
    points; `jobs`: worker processes here, or `cluster`: the address of a Dask scheduler; `retry`: points that came to
    an error are measured anew; `printed`: nothing is measured, pages are printed from the rows that there are."""

    full: bool = False
    shard: str = ""
    jobs: int = 1
    cluster: str | None = None
    retry: bool = False
    printed: bool = False


def chosen(names: Sequence[str]) -> dict[str, Study]:
    """Studies by name (none named: all that ship). Raises UnknownStudyError."""
    return {name: REGISTRY.get(name) for name in names or SHIPPED}


def points_of(study: Study, options: StudyOptions) -> Sequence[Point]:
    """What is measured. Raises StudyError."""
    points = study.points(options.full)
    return shard(points, options.shard) if options.shard else points


def run(studies: Sequence[Study], options: StudyOptions, screen: Console) -> bool:
    """Measures studies, prints them and writes their pages; whether all kept their bars. One that cannot be measured
    stops no other. Raises StudyError for a shard that is none, and if docs/claims.md refers to nothing; WriteError."""
    points = {study.name: points_of(study, options) for study in studies}
    bench = _StudyRun(screen)
    if options.printed:
        for study in studies:
            bench.show(study)
    else:
        pending = [(study, bench.pending(study, points[study.name], options)) for study in studies]
        together = [part for study, part in pending if part is not None and not study.alone]
        bench.measure(together, options.jobs, options.cluster)
        for study, part in pending:
            if part is not None and study.alone:
                bench.measure([part], 0, None)
    if FOLDER.exists():
        save_index(SHIPPED, FOLDER)
        save_prose(FOLDER)
    return bench.good


class _StudyRun:
    """Studies under way. `good`: whether all that were shown have been measured, and kept their bars."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._files: dict[Path, RowFile] = {}
        self.good = True

    def pending(self, study: Study, points: Sequence[Point], options: StudyOptions) -> PendingStudy | None:
        """What is left of a study; None if that cannot be said."""
        try:
            file = row_file(study)
            file = self._files.setdefault(file.path, file)  # studies may share one
            return PendingStudy(study.name, file, left_of(points, file, options.retry), lambda: self.show(study))
        except _FAILURES as error:
            self._fail(study.name, error)
            return None

    def measure(self, parts: Sequence[PendingStudy], jobs: int, address: str | None) -> None:
        """Measures what is left of some studies, and shows each when it is whole."""
        try:
            with Reporter(self._screen) as on_progress:
                measure(parts, on_progress, jobs=jobs, address=address)
        except _FAILURES as error:
            self._fail(", ".join(part.name for part in parts), error)

    def show(self, study: Study) -> None:
        """Prints a study and writes its page."""
        self._screen.print(f"{study.name}: {study.question}", style="bold", soft_wrap=True)
        try:
            page = page_of(study)
            if not page.full.all:
                raise StudyError("none of its points is measured, so there is nothing to print")
            page.show(self._screen)
            self._screen.print(page.incomplete or f"page: {save(page)}", soft_wrap=True)
        except _FAILURES as error:
            self._fail(study.name, error)
            return
        self.good &= not page.missed

    def _fail(self, name: str, error: Exception) -> None:
        self._screen.print(f"{name}: did not run: {error}", style="red", soft_wrap=True)
        self.good = False


def stale(studies: Sequence[Study], screen: Console) -> None:
    """Prints what the present code would measure anew, and what that takes."""
    rows: list[tuple[str, ...]] = []
    for study in studies:
        for size, full in (("quick", False), ("full", True)):
            points = list(dict.fromkeys(study.points(full)))
            file = row_file(study)
            known = file.look(points)
            left = [point for point in points if point not in known or not known[point].current]
            older = [point for point in left if point in known]
            seconds = sum(known[point].line.seconds if point in known else point.work for point in left)
            cells = len(points), len(left) - len(older), len(older)
            rows.append((study.name, size, *(f"{each:,}" for each in cells), f"{seconds:,.0f}"))
    columns = ("study", "size", "points>", "never measured>", "of older code>", "CPU-seconds, about>")
    print_table(Table("What the present code would measure", columns, rows), screen)
