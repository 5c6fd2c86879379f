"""Runs by name: what `meshloom explain`, `compare` and `report` are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshloom.sched.store.use import touch
from meshloom.sched.support.reading import parse_json

from . import artefacts, schema
from .record import ResultsError
from .recorder import RESULTS_FOLDER
from .schema import Row
from .shelf import places

#: Names the run that ended last.
LATEST = "latest"


#: Other files of ours by a field that only they have, and what to do with them instead.
_OTHERS = {
    "instances": "of `meshloom serve`, many networks at once, whose own tables say when each ran; run one alone",
    "operations": "a schedule, of which nothing has run yet; run it (`meshloom run`), and give the results of that",
}


class RunNameError(ResultsError):
    """A name that means no run, or none with what is asked; the message names it and the fix."""


@dataclass(frozen=True)
class NamedRun:
    """A workload of a run. `folder`: its artefacts, None if it has none; `gone`: where they were, if they are there no
    more."""

    row: Row
    folder: Path | None
    gone: str = ""

    def load(self) -> artefacts.Artefacts:
        """Its artefacts. Raises RunNameError if it has none, ArtefactsError if they are damaged."""
        if self.folder is None:
            why = self.row.reason or "its artefacts were not kept; run it again with --artefacts"
            if self.gone:
                why = (
                    f"its artefacts are not in {self.gone} any more; run it again (--artefacts keeps them for good, "
                    "next to the results)"
                )
            raise RunNameError(f"{self.row.workload}: {why}")
        return artefacts.load(self.folder)


def find(name: str, folder: Path = RESULTS_FOLDER) -> tuple[NamedRun, ...]:
    """The workloads of a run, by its results file, its name in `folder`, its folder of artefacts or one workload's, or
    "latest". Raises RunNameError for a name that means none of these, ResultsError for a damaged file."""
    path = folder / f"{LATEST}.json" if name == LATEST else Path(name)
    if path.is_dir():
        return _of_folders(path)
    if not path.exists() and (folder / f"{name}.json").is_file():
        path = folder / f"{name}.json"
    if not path.is_file():
        raise RunNameError(_missing(name, path, folder))
    _refuse_others(path)
    rows = schema.load(path).rows
    if not rows:
        raise RunNameError(f"{path}: no workload was run; run it again")
    return tuple(_named_run(row, path) for row in rows)


def _missing(name: str, path: Path, folder: Path) -> str:
    """Why there is no such run, and what to do instead."""
    there = any(folder.glob("*Z-*.json"))
    if name == LATEST and not there:
        return f"{path}: nothing has been run here; run something first, `meshloom run gemm:8x8x8 --chip tiny`"
    if name == LATEST:
        return f"{path}: no run has come to its end here; name one of those that `meshloom runs` lists"
    names = f"{LATEST} or a name that `meshloom runs` lists, " if there else ""
    return f"{path}: there is no such run; give {names}a results file of `meshloom run`, or a folder of artefacts"


def _refuse_others(path: Path) -> None:
    """Raises RunNameError for a file of ours that is something else than the results of a run."""
    try:
        value: object = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:  # reading it as results says what is wrong
        return
    for field, what in _OTHERS.items():
        if isinstance(value, dict) and field in value and "rows" not in value:
            raise RunNameError(f"{path}: is {what}")


def _of_folders(path: Path) -> tuple[NamedRun, ...]:
    single = (path / artefacts.MANIFEST).exists()
    folders = [path] if single else sorted(file.parent for file in path.glob(f"*/{artefacts.MANIFEST}"))
    if not folders:
        raise RunNameError(
            f"{path}: has no {artefacts.MANIFEST}; give a folder of artefacts, or a results file of `meshloom run`"
        )
    return tuple(NamedRun(artefacts.manifest(folder).row, folder) for folder in folders)


def of_results(results: schema.Results) -> tuple[NamedRun, ...]:
    """The workloads of a run of this process."""
    return tuple(_named_run(row, RESULTS_FOLDER / f"{LATEST}.json") for row in results.rows)


def _named_run(row: Row, file: Path) -> NamedRun:
    """A row and its folder."""
    if row.artefacts is None:
        return NamedRun(row, None)
    for place in places(Path(row.artefacts), file):
        if (place / artefacts.MANIFEST).exists():
            touch(place.parent)  # in the cache, what was looked at last goes last
            return NamedRun(row, place)
    return NamedRun(row, None, row.artefacts)


def chosen(answers: Sequence[NamedRun], workload: str | None, scheduler: str | None = None) -> tuple[NamedRun, ...]:
    """The rows of a run that are of that workload and by that scheduler, with or without its options (None: any).
    Raises RunNameError that lists those there are."""
    some = tuple(each for each in answers if workload is None or each.row.workload == workload)
    if not some:
        raise RunNameError(
            f"the run has no workload {workload!r}; it has {_listed(each.row.workload for each in answers)}"
        )
    own = tuple(each for each in some if scheduler is None or scheduler in _schedulers(each.row))
    if not own:
        there = _listed(_schedulers(each.row)[0] for each in some)
        raise RunNameError(f"the run has nothing by scheduler {scheduler!r}; it has {there}")
    return own


def one(answers: Sequence[NamedRun], workload: str | None, scheduler: str | None = None) -> NamedRun:
    """The only one of these rows; of several samples the first. Raises RunNameError that lists what would choose."""
    fitting = chosen(answers, workload, scheduler)
    workloads, by = (dict.fromkeys(some) for some in zip(*map(_names, fitting), strict=True))
    if len(workloads) > 1:
        raise RunNameError(f"the run has {len(workloads)} workloads; name one with --workload: {', '.join(workloads)}")
    if len(by) > 1:
        raise RunNameError(
            f"the run has {len(fitting)} rows of {fitting[0].row.workload}; name one with --scheduler: {', '.join(by)}"
        )
    return fitting[0]


def _names(each: NamedRun) -> tuple[str, str]:
    return each.row.workload, _schedulers(each.row)[0]


def _schedulers(row: Row) -> tuple[str, ...]:
    """The names of a row's scheduler: with its options, and without."""
    whole = row.settings.scheduler if row.settings else ""
    return tuple(filter(None, (whole, row.scheduler))) or ("",)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
