"""Questions to the rows of sweeps and runs: SQL, Pareto fronts, and their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshloom.sched.support.text import printable, shortened

from ...report.plots import save_plot
from ...results import flat
from ...results.recorder import RESULTS_FOLDER
from ...results.schema import load
from ...results.sweep import PointRow, SweepError
from . import store
from .sql import SqlError, run

if TYPE_CHECKING:
    import polars

#: Columns that one wants first: of what a row is, and its figures.
_OF = ("workload", "chip", "scheduler")
_FIGURES = (
    *("status", "cycles", "rtl_cycles", "model_cycles", "error_percent", "utilisation"),
    *("dram_bytes", "network.dram_bytes", "time.milliseconds", "mismatches", "error", "error.message"),
)
_MOST = 10
#: The table's name in SQL.
TABLE = "points"


class QueryError(SweepError):
    """A question that the rows cannot answer; the message names what is wrong with it."""


def rows(place: Path) -> polars.DataFrame:
    """The rows of a sweep (its folder, or its name), of a run (its .json, its name, or `latest`), or of a table (.csv,
    .parquet).

    Raises QueryError if it is none of these, SweepError and ResultsError for what cannot be read.
    """
    import polars

    place = _at(place)
    if place.is_dir():
        frame = store.read(place)
        if not frame.height:
            raise QueryError(f"{place}: has no rows of a sweep; name the folder that `meshloom sweep` wrote to")
        return store.with_parameters(frame)
    readers: dict[str, Any] = {".csv": polars.read_csv, ".parquet": polars.read_parquet}
    try:
        if place.suffix in readers:
            return readers[place.suffix](place)
        if place.suffix == ".json":
            return flat.frame(load(place))
    except (OSError, polars.exceptions.PolarsError) as error:
        raise QueryError(f"{place}: cannot be read: {str(error).partition(chr(10))[0]}") from error
    raise QueryError(
        f"{place}: is neither a sweep, a run nor a .json, .csv or .parquet file; `meshloom runs` lists runs"
    )


def _at(place: Path) -> Path:
    """Where the rows of a name are: of a sweep, or of a run; `place` itself if it is there, or is no name."""
    if place.exists() or place.parent != Path():
        return place
    others = store.SWEEPS_FOLDER / place, RESULTS_FOLDER / f"{place}.json"
    return next((other for other in others if other.exists()), place)


def select(frame: polars.DataFrame, sql: str) -> polars.DataFrame:
    """What a SELECT on table `points` gives. Raises QueryError."""
    try:
        return run(frame, TABLE, sql)
    except SqlError as error:
        raise QueryError(
            f"{shortened(sql)!r}: {error}; the table is {TABLE}, its columns are {', '.join(frame.columns)}"
        ) from None


def main_columns(frame: polars.DataFrame) -> list[str]:
    """The columns that one wants first, ten at most: what each row is of, what is its own, how it ended and what it
    took. Of any other table the first ten. Columns without a value are left out."""
    own = [name for name in frame.columns if name not in PointRow.model_fields and name not in flat.columns()]
    order = [*_OF, *own, *_FIGURES] if "workload" in frame.columns else frame.columns
    there = [name for name in order if name in frame.columns and frame[name].null_count() < frame.height]
    return there[:_MOST]


def pareto(frame: polars.DataFrame, aims: Sequence[str]) -> polars.DataFrame:
    """The rows that no other row beats: none is as good in all columns of `aims` and better in one.

    An aim is a column whose least values are best; with `-` in front, the greatest. Rows without a value in one of them
    are left out. In order of the first aim. Raises QueryError for what is no column of numbers.
    """
    names = [aim.removeprefix("-") for aim in aims]
    _numbers(frame, names)
    data_frame = frame.drop_nulls(names)
    costs = [
        tuple(-value if aim.startswith("-") else value for aim, value in zip(aims, row, strict=True))
        for row in data_frame.select(names).iter_rows()
    ]
    front: list[int] = []
    for index in sorted(range(len(costs)), key=costs.__getitem__):
        mine = costs[index]
        # those before are as good in the first aim; one that is equal in all beats nobody
        if not any(costs[f] != mine and all(a <= b for a, b in zip(costs[f], mine, strict=True)) for f in front):
            front.append(index)
    return data_frame[front]


def _numbers(frame: polars.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise QueryError(f"there is no column {name}; columns are {', '.join(frame.columns)}")
        if not frame.schema[name].is_numeric():
            raise QueryError(f"column {name} has no numbers")


def draw(frame: polars.DataFrame, aims: Sequence[str], path: Path) -> None:
    """Writes all rows and their Pareto front in the first two aims as a picture, in the form of the path's suffix.

    Raises QueryError for fewer aims, or a form that there is not; WriteError.
    """
    import matplotlib as mpl

    if len(aims) < 2:
        raise QueryError("a picture needs two columns: --pareto cycles,dram_bytes")
    across, up = (aim.removeprefix("-") for aim in aims[:2])
    front = pareto(frame, aims[:2])
    mpl.use("agg")
    from matplotlib import pyplot as plt

    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none", "text.parse_math": False}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axes = plt.subplots(figsize=(6, 4))
        axis: Any = axes
        groups = frame.partition_by("chip", as_dict=True) if "chip" in frame.columns else {("rows",): frame}
        for (name,), some in groups.items():
            axis.scatter(some[across].to_list(), some[up].to_list(), s=8, alpha=0.6, label=printable(str(name)))
        axis.plot(front[across].to_list(), front[up].to_list(), color="black", linewidth=0.8, label="Pareto front")
        axis.set(xlabel=printable(across), ylabel=printable(up))
        axis.grid(alpha=0.3)
        axis.legend()
        figure.tight_layout()
        try:
            save_plot(figure, path)
        except ValueError as error:
            raise QueryError(f"{path}: {error}; take .svg or .png") from None
