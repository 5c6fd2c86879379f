"""`python -m meshloom.tb.verify.parsers`, which `make parsers` runs: readers of users' files, each with inputs that
Atheris finds. Goes on where it was interrupted; corpus and findings are kept in the cache.

Exit status: 0 every file was read or refused in one clear error; 1 one was not; 2 bad input.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from pydantic import TypeAdapter

from meshloom.sched.store import provenance
from meshloom.sched.store.store import key

from ...build.builder import OUTPUT, ROOT
from ..pinned import installed
from ..record import SoakRecord
from . import readers
from .readers import PARSERS

#: Of the campaign of a night: inputs for all parsers together, and how many of one are a round: what an interrupt can
#: lose of each worker.
INPUTS, ROUND = 1_000_000, 10_000
#: Seconds that an input may take, MB of memory that a process may have, bytes of an input.
SECONDS, MEGABYTES, BYTES = 10, 2048, 1 << 16
#: What a process ends with when nothing was found.
_FINE = 0
TOOLS = ROOT / "scripts" / "parsers_requirements.txt"
#: Where everything lies, in the cache.
FOLDER = "parsers"
_UNITS = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
_COVERAGE = re.compile(r"\bcov: (\d+)")
_RAISED = re.compile(r"=== Uncaught Python exception: ===\n([\s\S]*?)\n==\d+==", re.MULTILINE)
_LIMIT = re.compile(r"ERROR: libFuzzer: (.*)")


@dataclass(frozen=True)
class Round:
    """A stretch of a campaign: so many inputs for one parser."""

    parser: str
    number: int
    seed: int
    inputs: int

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"{self.parser}, round {self.number} of seed {self.seed}"


@dataclass(frozen=True)
class RoundResult:
    """`coverage`: branches that the corpus reaches. `file`, `words`: what was found, empty if nothing."""

    inputs: int
    coverage: int
    file: str = ""
    words: str = ""


def rounds(names: list[str], inputs: int, seed: int) -> list[Round]:
    """The rounds of a campaign; all parsers have as many inputs."""
    each = -(-inputs // len(names))
    return [
        Round(name, number, seed, min(ROUND, each - number * ROUND))
        for number in range(-(-each // ROUND))
        for name in names
    ]


def record_of(plan: list[Round]) -> SoakRecord[RoundResult]:
    """What has been done of a plan by this code."""
    code = provenance.digest(readers.__name__.removeprefix("meshloom."))
    keys = {
        each.name: key(f"parsers-{each.parser.replace(' ', '-')}", round=repr(each), code=code, tools=TOOLS.read_text())
        for each in plan
    }
    return SoakRecord(keys, TypeAdapter(RoundResult))


class Campaign:
    """Runs rounds, each in a process of its own. `place`: the folder of corpora and findings."""

    def __init__(self, place: Path, atheris: Path) -> None:
        self.place, self.atheris = place, atheris
        self.processes: set[subprocess.Popen[str]] = set()
        self.ended = False

    def run(self, stretch: Round) -> RoundResult | None:
        """A round; None if it was interrupted."""
        home = self.place / stretch.parser.replace(" ", "_")
        corpus, findings = home / "corpus", home / "findings"
        for folder in (corpus, findings):
            folder.mkdir(parents=True, exist_ok=True)
        before = set(findings.iterdir())
        with TemporaryDirectory() as seeds:
            options = [
                f"-runs={stretch.inputs}", f"-seed={1_000 * stretch.seed + stretch.number + 1}", f"-timeout={SECONDS}",
                f"-rss_limit_mb={MEGABYTES}", f"-max_len={BYTES}", f"-artifact_prefix={findings}/",
                "-print_final_stats=1", "-reload=0",
            ]  # fmt: skip
            command = [sys.executable, "-m", f"{__package__}.target", stretch.parser, seeds, *options, str(corpus)]
            environment = os.environ | {"PYTHONPATH": str(self.atheris), "PYTHONUNBUFFERED": "1"}
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                env=environment, start_new_session=True,
            )  # fmt: skip
            self.processes.add(process)
            printed, _ = process.communicate()
            self.processes.discard(process)
        (home / "log.txt").write_text(printed, encoding="utf-8")
        if self.ended:
            return None
        new = sorted(set(findings.iterdir()) - before)
        coverage = _COVERAGE.findall(printed)
        units = _UNITS.search(printed)
        result = RoundResult(int(units[1]) if units else 0, int(coverage[-1]) if coverage else 0)
        if process.returncode == _FINE and units and not new:
            return result
        raised, limit = _RAISED.search(printed), _LIMIT.search(printed)
        words = raised[1].strip() if raised else limit[1] if limit else f"it ended with {process.returncode}"
        return RoundResult(result.inputs, result.coverage, str(new[0] if new else home / "log.txt"), words)

    def end(self) -> None:
        """Ends all processes."""
        self.ended = True
        for process in list(self.processes):
            process.kill()


def carry_out(
    plan: list[Round], record: SoakRecord[RoundResult], campaign: Campaign, jobs: int, say: Callable[[str], None]
) -> list[tuple[Round, RoundResult]]:
    """Runs what has not been done, `jobs` parsers at a time; a parser ends with its first finding. Returns findings."""
    findings: dict[str, tuple[Round, RoundResult]] = {}
    todo = {
        name: [stretch for stretch in plan if stretch.parser == name]
        for name in dict.fromkeys(stretch.parser for stretch in plan)
    }

    def of_parser(name: str) -> None:
        for stretch in todo[name]:
            result = record.done.get(stretch.name)
            if result is None:
                if campaign.ended:
                    return
                result = campaign.run(stretch)
                if result is None:
                    return
                say(f"{stretch.name}: {result.inputs:,} inputs, {result.coverage:,} branches")
                if not result.words:
                    record.add(stretch.name, result)
            if result.words:
                findings[name] = stretch, result
                return

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(of_parser, todo))
        except BaseException:
            campaign.end()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return list(findings.values())


def _reported(findings: list[tuple[Round, RoundResult]]) -> Iterator[str]:
    for stretch, result in findings:
        yield f"{stretch.parser}: {result.words}\n  {result.file}\n  keep it as a test in tests/tb/parser_corpus"


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PARSER]...", help="Parsers; all if none.")] = None,
    inputs: Annotated[int, typer.Option(min=1, help="Inputs, for all parsers together.")] = INPUTS,
    seed: Annotated[int, typer.Option(min=1, help="A different seed gives other inputs.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Parsers at a time.")] = len(os.sched_getaffinity(0)),
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard what an earlier campaign has done.")] = False,
) -> None:
    """Readers of users' files, each with inputs that reach new branches: a result, or one clear error."""
    from ...report.console import console

    screen = console()

    def say(words: str) -> None:
        screen.print(words, markup=False, soft_wrap=True)

    chosen = names or list(PARSERS)
    if unknown := [name for name in chosen if name not in PARSERS]:
        say(f"error: no parser is called {unknown[0]!r}; there are {', '.join(PARSERS)}")
        raise typer.Exit(2)
    place = OUTPUT / FOLDER
    plan = rounds(chosen, inputs, seed)
    record = record_of(plan)
    if fresh:
        record.forget()
    try:
        campaign = Campaign(place, installed(TOOLS, place / "tools", say))
        findings = carry_out(plan, record, campaign, jobs, say)
    except subprocess.CalledProcessError as error:
        say(f"error: pip could not install what {TOOLS.name} names (exit status {error.returncode})")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        say(f"interrupted with {len(record.done)} of {len(plan)} rounds done; the same command goes on")
        raise typer.Exit(130) from None
    count = sum(result.inputs for result in record.done.values()) + sum(result.inputs for _, result in findings)
    say(f"parsers: {count:,} inputs for {len(chosen)} parsers; {len(findings)} of them with a finding")
    for text in _reported(findings):
        screen.print(text, style="red", markup=False, soft_wrap=True)
    if findings:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
