"""The rows of a sweep on disk: a folder of Parquet files, to which finished batches are added.

Every batch is a file of its own, written beside its place and renamed, so a client that is killed loses nothing that
had finished. Files are merged when there are many. A row is known by its key: what is there twice counts once.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from meshloom.sched.support.files import write_atomically, write_error
from meshloom.sched.support.limits import comes_again

from ...results.schema import Status
from ...results.sweep import PointRow, SweepError

if TYPE_CHECKING:
    import polars

#: Where sweeps lie unless somebody says otherwise, each in a folder with its name.
SWEEPS_FOLDER = Path("sim_build") / "sweeps"
#: Files of single batches that are merged into one.
MERGED_AT = 200
_BATCH, _MANY, _END = "batch-", "many-", ".parquet"


def _schema() -> dict[str, Any]:
    """Name to type of the columns."""
    kinds: dict[str, Any] = {}
    for name, field in PointRow.model_fields.items():
        kinds[name] = next(kind for kind in (int, float, str) if kind.__name__ in str(field.annotation))
    return kinds


class Store:
    """The folder of a sweep's rows, for one client at a time: use it as a context manager. Raises SweepError if another
    one has it, or if something in it cannot be read; WriteError."""

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock

        self.folder = folder
        self._lock = FileLock(folder / ".lock", timeout=0)

    def __enter__(self) -> Self:
        from filelock import Timeout

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise SweepError(f"{self.folder}: another sweep is adding rows; wait for it, or choose --out") from None
        except OSError as error:
            raise write_error(error, error.filename or self.folder) from error
        for left in self.folder.glob(f".*{_END}.*"):  # of a client that was killed while it wrote
            left.unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def done(self, failed_too: bool) -> dict[str, Status]:
        """Keys of the points that have a row, each with what became of it. Those that failed only if `failed_too`, and
        not at a limit that is another one now."""
        rows = read(self.folder).select("key", "error_kind", "error").iter_rows()
        return {
            key: Status.PASSED if error is None else Status.FAILED if kind is not None else Status.MISMATCH
            for key, kind, error in rows
            if kind is None or (failed_too and comes_again(kind, error or ""))
        }

    def add(self, rows: Sequence[PointRow]) -> None:
        """Adds the rows of a batch. Raises WriteError."""
        if rows:
            self._write(_BATCH, _frame(rows))
        small = list(self.folder.glob(f"{_BATCH}*{_END}"))
        if len(small) >= MERGED_AT:
            self._write(_MANY, _unique(_read_all(small)))
            for path in small:
                path.unlink()

    def _write(self, kind: str, frame: polars.DataFrame) -> None:
        out = io.BytesIO()
        frame.write_parquet(out)
        name = hashlib.sha256("".join(frame["key"].to_list()).encode()).hexdigest()[:24]
        write_atomically(self.folder / f"{kind}{name}{_END}", out.getvalue())


def _frame(rows: Sequence[PointRow]) -> polars.DataFrame:
    import polars

    return polars.DataFrame([row.model_dump() for row in rows], _schema())


def read(folder: Path) -> polars.DataFrame:
    """All rows, sorted by chip, scheduler and workload; of a point that failed and was made later, the later one.

    Raises SweepError for a file that cannot be read, or is of another version of Meshloom.
    """
    paths = sorted(folder.glob(f"*{_END}"))
    return _unique(_read_all(paths)) if paths else _frame([])


def _unique(frame: polars.DataFrame) -> polars.DataFrame:
    order = ["chip", "chip_digest", "scheduler", "workload", "measure", "parameters", "key"]
    data_frame = frame.sort("error_kind", nulls_last=False, maintain_order=True).unique("key", keep="first")
    return data_frame.sort(order)


def _read_all(paths: Sequence[Path]) -> polars.DataFrame:
    import polars

    frames: list[polars.DataFrame] = []
    for path in paths:
        try:
            frame = polars.read_parquet(path)
        except (OSError, polars.exceptions.PolarsError) as error:
            raise SweepError(f"{path}: cannot be read: {error}; delete it, and its points are made again") from error
        if frame.schema != polars.Schema(_schema()):
            raise SweepError(f"{path}: has other columns than this version of Meshloom writes; choose another --out")
        frames.append(frame)
    return polars.concat(frames)


def with_parameters(frame: polars.DataFrame) -> polars.DataFrame:
    """The rows with a column for each parameter, named as in the sweep, behind all others."""
    import polars

    values: list[dict[str, Any]] = [json.loads(text) for text in frame["parameters"].to_list()]
    names = dict.fromkeys(name for each in values for name in each)
    clash = [name for name in names if name in frame.columns]
    own = {f"{name}_" if name in clash else name: [each.get(name) for each in values] for name in names}
    return frame.hstack(polars.DataFrame(own, strict=False)) if own else frame
