"""Where the artefacts of a run go: next to its results and for good if asked for, otherwise into the cache, of which a
bounded part is kept, so that `explain`, `compare` and `report` know any recent run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshloom.sched.store import cache, use
from meshloom.sched.store.entries import trim
from meshloom.sched.store.kinds import ARTEFACTS

from .events import OnEvent, Unwritten

#: Runs whose artefacts are in the cache at most: many small ones take long to look through.
_RUNS = 500


@dataclass(frozen=True)
class Shelf:
    """A folder for the artefacts of one run, with a folder for each workload. `required`: somebody wants them, and
    what cannot be written is a failure."""

    folder: Path
    required: bool = True

    def take(self) -> None:
        """Makes the folder; nobody removes it while this process lives. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.required:
            use.keep(self.folder)


def cached(run: str, on_event: OnEvent) -> Shelf | None:
    """The shelf of a run in the cache, where room is made for it; None if nothing is to be kept there, or nothing can
    be, which is told once. Raises SettingError."""
    folder, limit = ARTEFACTS.folder(), ARTEFACTS.limit()
    if not limit:
        return None
    if cache.folder(ARTEFACTS.name) is None:
        on_event(Unwritten("this run", f"nothing can be written in {folder}; --artefacts keeps it", required=False))
        return None
    if folder.is_dir():
        trim(folder, limit, _RUNS)
    return Shelf(folder / run, required=False)


def places(path: Path, results: Path) -> tuple[Path, ...]:
    """Where artefacts can be that a results file says are in `path`: there, beside the file if both were moved, or in
    the cache, whatever folder the file is read in."""
    own = Path(*path.parts[-2:])  # run, workload
    return path, results.parent / own, ARTEFACTS.folder() / own
