"""`python -m meshloom.tb.verify.mutants`, which `make mutate` runs: changes of our sources, shown to tests. Goes on
where it was interrupted.

Exit status: 0 every folder keeps the bar; 1 one does not; 2 bad input.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Annotated

import typer
from pydantic import TypeAdapter

from meshloom.sched.store.store import key
from meshloom.sched.support.files import WriteError, check_writable, write_atomically

from ...build.builder import OUTPUT, ROOT
from ..pinned import installed
from ..record import SoakRecord
from . import trial
from .copies import copied
from .drawing import DRAWS, Draw, MutantError, digest_of, mutant, plan
from .page import BAR, EQUIVALENT, Equivalent, by_folder, count, equivalents, is_equivalent, page, report
from .places import PlaceError, plan_of
from .trial import Trial, code, try_out, untried
from .witnesses import importers

#: Changes of a campaign, by side; the seed is one that shows other changes when it is another.
COUNT, SEED = 500, 1
#: CPU-seconds of tests that a change is shown to at most.
BUDGET = 60.0
TOOLS = ROOT / "scripts" / "mutants_requirements.txt"

Say = Callable[[str], None]


def record_of(draws: list[Draw]) -> SoakRecord[Trial | None]:
    """What has been done of a plan: of these sources, with these changes and tests."""
    made, tools = digest_of(*DRAWS), TOOLS.read_text(encoding="utf-8")
    keys: dict[str, str] = {}
    for draw in draws:
        file = draw.file()
        tests = sorted({text for test in importers(file) for text in test.texts})
        texts = digest_of(ROOT / file, *(ROOT / text for text in tests))
        keys[draw.name] = key("mutant", draw=repr(draw), file=file, texts=texts, code=made, tools=tools)
    return SoakRecord(keys, TypeAdapter(Trial | None))


def is_open(trial: Trial | None, budget: float, known: list[Equivalent]) -> bool:
    """Whether other tests are to be asked about a change than were: more, or chosen otherwise."""
    if trial is None or trial.killed or is_equivalent(trial, known):
        return False
    return trial.budget < budget or trial.code != code()


def carry_out(
    draws: list[Draw], record: SoakRecord[Trial | None], tools: Path, jobs: int, budget: float, say: Say
) -> dict[str, str]:
    """Tries what has not been tried, `jobs` changes at a time; by draw, why one could not be."""
    errors: dict[str, str] = {}
    known = equivalents()
    ended, free = Event(), SimpleQueue[Path]()

    def attempt(draw: Draw) -> None:
        tree = free.get()
        try:
            change = mutant(draw, tools, tree)
            if change is None:
                result = None
            elif is_equivalent(change, known):
                result = untried(change)
            else:
                result = try_out(change, tools, tree, budget)
        except (MutantError, OSError, subprocess.SubprocessError) as error:
            errors[draw.name] = str(error)
            return
        finally:
            free.put(tree)
        if ended.is_set():  # its tests were ended too, which says nothing
            return
        record.add(draw.name, result)
        if change is None or result is None:
            say(f"{draw.name}: {draw.file()} has nothing to change")
        else:
            say(f"{draw.name}: {change.text}: {result.test or f'NOT NOTICED by {result.files} files of tests'}")

    with ExitStack() as copies, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            free.put(copies.enter_context(copied(ROOT, linked=True)))
        done = {name for name, trial in record.done.items() if not is_open(trial, budget, known)}
        todo = [pool.submit(attempt, draw) for draw in draws if draw.name not in done]
        try:
            for each in as_completed(todo):
                each.result()
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            trial.end_all()
            raise
    return errors


def main(
    hw: Annotated[int, typer.Option(min=0, help="Changes of the gateware.")] = COUNT,
    software: Annotated[int, typer.Option(min=0, help="Changes of schedulers and bench.")] = COUNT,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other changes.")] = SEED,
    only: Annotated[list[str] | None, typer.Option(help="Changes of this folder or file alone; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Changes at a time.")] = len(os.sched_getaffinity(0)),
    budget: Annotated[float, typer.Option(min=1, help="CPU-seconds of tests that a change is shown to.")] = BUDGET,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard what an earlier campaign has done.")] = False,
    tried: Annotated[bool, typer.Option("--tried", help="Only reports on what has been tried.")] = False,
    out: Annotated[Path | None, typer.Option("--page", help="Writes a page of Results as Markdown.")] = None,
) -> None:
    """Changes of our sources at random places: each has to be noticed by a test."""
    from ...report.console import console

    screen = console()

    def say(words: str) -> None:
        screen.print(words, markup=False, highlight=False, soft_wrap=True)

    try:
        known = equivalents()
        if out is not None:
            check_writable(out)
        counts = {"hw": hw, "software": software}
        draws = plan_of(only, counts, seed) if only else plan(counts, seed)
    except (WriteError, PlaceError) as error:
        say(f"error: {error}")
        raise typer.Exit(2) from error
    except ValueError as error:
        say(f"error: {EQUIVALENT.name} cannot be read: {str(error).splitlines()[0]}")
        raise typer.Exit(2) from error
    record = record_of(draws)
    if fresh:
        record.forget()
    errors: dict[str, str] = {}
    try:
        if not tried:
            tools = installed(TOOLS, OUTPUT / "mutants" / "tools", say)
            errors = carry_out(draws, record, tools, jobs, budget, say)
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
    if out is not None:
        options = f"--hw {hw} --software {software} --seed {seed} --budget {budget:g}"
        options += "".join(f" --only {path}" for path in only or ()) + f" --page {out.as_posix()}"
        command = f'make mutate MUTATE="{options}"'
        write_atomically(out, page(trials, known, command, len(draws)))
    low = [folder for folder, each in trials.items() if count(each, known).percent < BAR]
    say(f"mutants: {sum(map(len, trials.values())):,} changes; {len(low)} of {len(trials)} folders below {BAR:.0f} %")
    if low or errors:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
