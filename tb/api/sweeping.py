"""Sweeps from Python: what `meshloom sweep` and `meshloom query` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from meshloom.hw.spec.mistakes import mistakes
from meshloom.sched.support.limits import guard_of, guarded

from ..results.sweep import PointRow, SweepError, SweepFile, read
from ..runs.sweeps import query
from ..runs.sweeps import sweep as sweeps
from .request import jobs_of

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Swept:
    """What became of a sweep. `points` of it in all, of which `kept` had a row already; `rows`: of the others; `out`:
    the folder of all of them."""

    points: int
    kept: int
    rows: tuple[PointRow, ...]
    out: Path

    @property
    def failed(self) -> tuple[PointRow, ...]:
        """Rows made now that have an error."""
        return tuple(row for row in self.rows if row.error is not None)

    def frame(self) -> polars.DataFrame:
        """All rows in the folder, those of earlier sweeps too; parameters are columns."""
        return query.rows(self.out)

    def pareto(self, *aims: str) -> polars.DataFrame:
        """The rows that no other one beats in these columns: least is best, with `-` in front greatest. Raises
        QueryError."""
        return query.pareto(self.frame(), aims)


def sweep(
    points: str | Path | Mapping[str, object] | SweepFile,
    out: str | Path | None = None,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    network: bool = False,
    on_rows: Callable[[Sequence[PointRow]], None] = lambda rows: None,
) -> Swept:  # the options of `meshloom sweep`, by name
    """Predicts or runs every point of a sweep that has no row yet.

    `points`: a file, or what stands in one (`{"name": ..., "chips": [...], ...}`, see docs/sweeps.md). `out`: the
    folder of the rows. `jobs`: worker processes (all CPUs), or `cluster`: the address of a Dask scheduler. `retry`:
    points that failed are made again. `time_limit`, `memory_limit`, `network`: as of `meshloom.schedule`, for each
    point. `on_rows` hears of rows as they come. A point that fails is a row with its error.

    Raises SweepError and the errors of names before anything runs, ClusterError. Worker processes begin by importing
    the script that runs: keep the call below `if __name__ == "__main__":` there.
    """
    folder = Path()
    if isinstance(points, SweepFile):
        file = points
    elif isinstance(points, Mapping):
        try:
            file = SweepFile.model_validate(dict(points))
        except ValidationError as error:
            raise SweepError(f"sweep: {mistakes(error, points, SweepFile)}") from error
    else:
        file, folder = read(Path(points)), Path(points).parent
    place = Path(out) if out is not None else sweeps.default_folder(file)
    count = jobs_of(jobs)
    with guarded(guard_of(time_limit, memory_limit, network)):
        outcome = sweeps.run(file, folder, place, jobs=count, address=cluster, retry=retry, on_rows=on_rows)
    return Swept(outcome.points, outcome.existing, tuple(outcome.rows), place)
