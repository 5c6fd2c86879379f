"""`python -m meshloom.tb.verify.mutants`, which `make mutate` runs: changes of our sources, shown to tests. Goes on
where it was interrupted.

Exit status: 0 every folder keeps the bar; 1 one does not; 2 bad input.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from pydantic import TypeAdapter

from meshloom.sched.store import provenance
from meshloom.sched.store.store import key

from ...build.builder import OUTPUT, ROOT
from ..pinned import installed
from ..record import SoakRecord
from . import trial
from .drawing import Draw, MutantError, digest_of, mutant, plan
from .trial import Trial, try_out
from .witnesses import importers

#: Changes of a campaign, by side; the seed is one that shows other changes when it is another.
COUNT, SEED = 500, 1
#: Least percent of the changes of a folder that a test must notice.
BAR = 95.0
TOOLS = ROOT / "scripts" / "mutants_requirements.txt"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

Say = Callable[[str], None]


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


def record_of(draws: list[Draw]) -> SoakRecord[Trial | None]:
    """What has been done of a plan: of these sources, by these tests and this code."""
    code, tools = provenance.digest(trial.__name__.removeprefix("meshloom.")), TOOLS.read_text(encoding="utf-8")
    keys: dict[str, str] = {}
    for draw in draws:
        file = draw.file()
        tests = sorted({text for test in importers(file) for text in test.texts})
        texts = digest_of(ROOT / file, *(ROOT / text for text in tests))
        keys[draw.name] = key("mutant", draw=repr(draw), file=file, texts=texts, code=code, tools=tools)
    return SoakRecord(keys, TypeAdapter(Trial | None))


def carry_out(draws: list[Draw], record: SoakRecord[Trial | None], tools: Path, jobs: int, say: Say) -> dict[str, str]:
    """Tries what has not been tried, `jobs` changes at a time; by draw, why one could not be."""
    errors: dict[str, str] = {}
    ended = Event()

    def attempt(draw: Draw) -> None:
        try:
            change = mutant(draw, tools)
            result = None if change is None else try_out(change, tools)
        except (MutantError, OSError, subprocess.SubprocessError) as error:
            errors[draw.name] = str(error)
            return
        if ended.is_set():  # its tests were ended too, which says nothing
            return
        record.add(draw.name, result)
        if change is None or result is None:
            say(f"{draw.name}: {draw.file()} has nothing to change")
        else:
            say(f"{draw.name}: {change.text}: {result.test or f'NOT NOTICED by {result.files} files of tests'}")

    with ThreadPoolExecutor(jobs) as pool:
        todo = [pool.submit(attempt, draw) for draw in draws if draw.name not in record.done]
        try:
            for each in as_completed(todo):
                each.result()
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            trial.end_all()
            raise
    return errors


def by_folder(draws: list[Draw], done: Mapping[str, Trial | None]) -> dict[str, list[Trial]]:
    """Changes that were tried, by folder."""
    result: dict[str, list[Trial]] = {}
    for draw in draws:
        if (one := done.get(draw.name)) is not None:
            result.setdefault(draw.folder, []).append(one)
    return dict(sorted(result.items()))


def _is(one: Trial, known: list[Equivalent]) -> bool:
    return any((one.file, one.before, one.after) == (each.file, each.before, each.after) for each in known)


def report(trials: Mapping[str, list[Trial]], known: list[Equivalent]) -> Iterator[str]:
    """The lines of a report: a table by folder, then each change that no test noticed."""
    yield f"{'folder':32} {'changes':>8} {'noticed':>8} {'equivalent':>11} {'percent':>8}"
    for folder, ones in trials.items():
        equal = sum(_is(one, known) for one in ones if not one.killed)
        killed = sum(one.killed for one in ones)
        yield f"{folder:32} {len(ones):8} {killed:8} {equal:11} {_percent(ones, known):8.1f}"
    for ones in trials.values():
        for one in ones:
            if not one.killed and not _is(one, known):
                unreached = not one.reached and not one.file.startswith("hw/")  # of gateware nobody knows
                words = f"{one.files} files of tests asked{', none known to run the line' if unreached else ''}"
                yield f"{one.file}:{one.line}: {words}\n  - {one.before}\n  + {one.after}"


def _percent(ones: list[Trial], known: list[Equivalent]) -> float:
    counted = [one for one in ones if one.killed or not _is(one, known)]
    return 100.0 * sum(one.killed for one in counted) / len(counted) if counted else 100.0


def main(
    hw: Annotated[int, typer.Option(min=0, help="Changes of the gateware.")] = COUNT,
    software: Annotated[int, typer.Option(min=0, help="Changes of schedulers and bench.")] = COUNT,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other changes.")] = SEED,
    jobs: Annotated[int, typer.Option(min=1, help="Changes at a time.")] = len(os.sched_getaffinity(0)),
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard what an earlier campaign has done.")] = False,
) -> None:
    """Changes of our sources at random places: each has to be noticed by a test."""
    from ...report.console import console

    screen = console()

    def say(words: str) -> None:
        screen.print(words, markup=False, highlight=False, soft_wrap=True)

    try:
        known = equivalents()
    except ValueError as error:
        say(f"error: {EQUIVALENT.name} cannot be read: {str(error).splitlines()[0]}")
        raise typer.Exit(2) from error
    draws = plan({"hw": hw, "software": software}, seed)
    record = record_of(draws)
    if fresh:
        record.forget()
    try:
        tools = installed(TOOLS, OUTPUT / "mutants" / "tools", say)
        errors = carry_out(draws, record, tools, jobs, say)
    except subprocess.CalledProcessError as error:
        say(f"error: pip could not install what {TOOLS.name} names (exit status {error.returncode})")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        say(f"interrupted with {len(record.done)} of {len(draws)} changes tried; the same command goes on")
        raise typer.Exit(130) from None
    trials = by_folder(draws, record.done)
    for line in report(trials, known):
        say(line)
    for name, why in errors.items():
        say(f"error: {name}: {why}")
    low = [folder for folder, ones in trials.items() if _percent(ones, known) < BAR]
    say(f"mutants: {sum(map(len, trials.values())):,} changes; {len(low)} of {len(trials)} folders below {BAR:.0f} %")
    if low or errors:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
