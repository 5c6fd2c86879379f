"""What `meshloom.run` returns: the rows of a run, as objects, as a table, as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..results import flat
from ..results.schema import Results, Row

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Result:
    """A run. `results`: all of it, as `meshloom run` writes it and docs/results describes it."""

    results: Results

    @property
    def rows(self) -> tuple[Row, ...]:
        """A row for each workload, in the order given; of a network, for each of its inputs."""
        return self.results.rows

    @property
    def row(self) -> Row:
        """The row of a run of one workload. Raises ValueError for others."""
        (only,) = self.rows
        return only

    @property
    def ok(self) -> bool:
        """Whether every workload ran, every byte is right, and the model is within its bounds."""
        return self.results.summary.ok

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is wrong, in words; empty when `ok`."""
        return self.results.summary.reasons

    def frame(self) -> polars.DataFrame:
        """The rows as a table, whose columns are those of `meshloom run --csv`."""
        return flat.frame(self.results)

    def save(self, path: str | Path) -> None:
        """Writes the JSON file that `meshloom run --json` writes. Raises OSError."""
        self.results.save(Path(path))

    def __repr__(self) -> str:
        lines = [f"{row.workload} on {row.chip}: {row.status}, {row.rtl_cycles:,} cycles" for row in self.rows]
        return "\n".join((f"Result of {len(lines)} rows, {'all is well' if self.ok else 'not well'}", *lines))
