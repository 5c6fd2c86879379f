"""`meshloom bench`: measures studies, prints them and writes their pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from meshloom.sched.support.files import WriteError

from ..build.builder import BuildError
from ..devices.interface import DeviceError
from ..report.reporter import Reporter
from ..runs.sweeps.cluster import ClusterError
from .engine.index import save_index
from .engine.measure import measure, shard
from .engine.page import FOLDER, page_of, row_file, save
from .engine.point import Point
from .engine.rows import StudyError
from .engine.study import Study
from .engine.tables import Table, print_table
from .prose import save_prose
from .registry import REGISTRY, SHIPPED


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
    planned = [(study, points_of(study, options)) for study in studies]
    good = True
    for study, points in planned:
        screen.print(f"{study.name}: {study.question}", style="bold", soft_wrap=True)
        try:
            with Reporter(screen) as on_progress:
                if not options.printed:
                    jobs = 0 if study.alone else options.jobs
                    address = None if study.alone else options.cluster
                    file = row_file(study)
                    measure(points, file, on_progress, jobs=jobs, address=address, retry=options.retry)
            page = page_of(study)
            if not page.full.all:
                raise StudyError("none of its points is measured, so there is nothing to print")
            page.show(screen)
            screen.print(page.incomplete or f"page: {save(page)}", soft_wrap=True)
        except WriteError:
            raise
        except (StudyError, BuildError, DeviceError, ClusterError) as error:
            screen.print(f"{study.name}: did not run: {error}", style="red", soft_wrap=True)
            good = False
            continue
        good &= not page.missed
    if FOLDER.exists():
        save_index(SHIPPED, FOLDER)
        save_prose(FOLDER)
    return good


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
