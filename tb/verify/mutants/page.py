"""What a campaign says of its changes: lines for a screen, and a page as Markdown."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from .drawing import Draw, Mutant
from .trial import Trial

#: Least percent of the changes of a folder that a test must notice.
BAR = 95.0
EQUIVALENT = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """A change that no test can notice, and why."""

    file: str
    before: str
    after: str
    reason: str


def equivalents(path: Path = EQUIVALENT) -> list[Equivalent]:
    """Changes that are known to change nothing. Raises ValueError, OSError."""
    table = TypeAdapter(dict[str, list[Equivalent]]).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    return table.get("equivalent", [])


def is_equivalent(change: Trial | Mutant, known: list[Equivalent]) -> bool:
    """Whether a change is one of those that no test can notice."""
    return any((change.file, change.before, change.after) == (each.file, each.before, each.after) for each in known)


def by_folder(draws: list[Draw], done: Mapping[str, Trial | None]) -> dict[str, list[Trial]]:
    """Changes that were tried, by folder."""
    result: dict[str, list[Trial]] = {}
    for draw in draws:
        if (one := done.get(draw.name)) is not None:
            result.setdefault(draw.folder, []).append(one)
    return dict(sorted(result.items()))


@dataclass(frozen=True)
class Count:
    """Changes of a folder: all, those that a test noticed, those that none can notice, and the others."""

    changes: int
    killed: int
    equivalent: int
    survivors: tuple[Trial, ...]

    @property
    def percent(self) -> float:
        """Of those that can be noticed, those that were."""
        counted = self.killed + len(self.survivors)
        return 100.0 * self.killed / counted if counted else 100.0


def count(trials: list[Trial], known: list[Equivalent]) -> Count:
    """What became of the changes of a folder."""
    alive = [each for each in trials if not each.killed]
    survivors = tuple(each for each in alive if not is_equivalent(each, known))
    return Count(len(trials), len(trials) - len(alive), len(alive) - len(survivors), survivors)


def report(trials: Mapping[str, list[Trial]], known: list[Equivalent]) -> Iterator[str]:
    """The lines of a report: a table by folder, then each change that no test noticed."""
    yield f"{'folder':32} {'changes':>8} {'noticed':>8} {'equivalent':>11} {'percent':>8}"
    counts = {folder: count(each, known) for folder, each in trials.items()}
    for folder, each in counts.items():
        yield f"{folder:32} {each.changes:8} {each.killed:8} {each.equivalent:11} {each.percent:8.1f}"
    for each in counts.values():
        for survivor in each.survivors:
            yield f"{_place(survivor)}\n  - {survivor.before}\n  + {survivor.after}"


def _place(trial: Trial) -> str:
    unreached = not trial.reached and not trial.file.startswith("hw/")  # of gateware in a simulator nobody knows
    words = f"{trial.files} files of tests asked{', none known to run the line' if unreached else ''}"
    return f"{trial.file}:{trial.line}: {words}"


def page(trials: Mapping[str, list[Trial]], known: list[Equivalent], command: str, drawn: int) -> str:
    """The same as a page of Results. `command`: what prints it; `drawn`: how many changes there are to try."""
    counts = {folder: count(each, known) for folder, each in trials.items()}
    every = count([trial for each in trials.values() for trial in each], known)
    low = [folder for folder, each in counts.items() if each.percent < BAR]
    parts = [
        "# Mutants",
        f"**Which small changes of the sources does no test notice?** Of {every.changes} random changes in "
        f"{len(counts)} folders tests notice {every.killed}, {every.equivalent} change nothing that anyone can see, "
        f"and {len(every.survivors)} survive.",
        f"**Verdict: {f'{len(low)} folders below the bar' if low else 'all folders keep the bar'}.**",
        f"`{command}` prints this page; {every.changes} of {drawn} changes have been tried. "
        "They are drawn in turn from the folders. Each is shown to the first tier of the tests that run its line, the "
        "cheapest first, until one fails ([verification](../architecture/verification.md)). The bar: of the changes "
        f"that can be noticed, tests notice {BAR:.0f} % in every folder. "
        "`--budget` bounds the CPU-seconds of these tests: dearer ones may notice what survives.",
        "\n".join(_rows(counts)),
    ]
    if every.survivors:
        parts += ["## Survivors", "\n".join(f"- `{each.file}:{each.line}`: {_text(each)}" for each in every.survivors)]
    unnoticed = {
        (each.file, each.before, each.after): each for tried in trials.values() for each in tried if not each.killed
    }
    reasons = [(change, each) for each in known if (change := unnoticed.get((each.file, each.before, each.after)))]
    if reasons:
        lines = [f"- `{change.file}:{change.line}`: {_text(change)}. {each.reason}" for change, each in reasons]
        parts += ["## Equivalent", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _rows(counts: Mapping[str, Count]) -> Iterator[str]:
    yield "| folder | changes | noticed | equivalent | survivors | noticed, % |"
    yield "|---|---:|---:|---:|---:|---:|"
    for folder, each in counts.items():
        survivors = len(each.survivors)
        yield f"| {folder} | {each.changes} | {each.killed} | {each.equivalent} | {survivors} | {each.percent:.0f} |"


def _text(trial: Trial) -> str:
    before, after = (text.replace("`", "'") for text in (trial.before, trial.after))
    return f"`{before}` as `{after}`"
