"""What the program checker has to say: problems, and the report when there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..program.program import ProgramError

#: Problems listed in the text of one error; all found ones (at most `Problems.LIMIT`) are in its `problems`.
SHOWN = 12


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a program: `where` (tile, unit, position, tag, operation), `what`, and the `mend`."""

    where: str
    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.mend}"


class CheckError(ProgramError):
    """A program that must not run. `problems` lists everything that the checker found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        shown = [f"  {problem}" for problem in problems[:SHOWN]]
        if len(problems) > SHOWN:
            shown.append(f"  and {len(problems) - SHOWN} more")
        super().__init__(f"the program has {count}:\n" + "\n".join(shown))

    def __reduce__(self) -> tuple[type[CheckError], tuple[Any, ...]]:
        return CheckError, (self.problems,)  # by itself an exception would come out of a worker process with its text


class Problems:
    """Collects problems; past `LIMIT` of them nothing more is learnt, so they are dropped."""

    LIMIT = 64

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, where: str, what: str, mend: str) -> None:
        """Notes one problem."""
        if len(self.found) < self.LIMIT:
            self.found.append(Problem(where, what, mend))

    @property
    def full(self) -> bool:
        """Whether looking further is pointless."""
        return len(self.found) >= self.LIMIT

    def settle(self) -> None:
        """Raises CheckError if anything was found."""
        if self.found:
            raise CheckError(tuple(self.found))


@dataclass(frozen=True)
class Report:
    """A program that may run.

    `instructions`, `streams`, `semaphores` (used), `accesses` (to memories), `chains` (of ordered events): what was
    checked. `peak` is the largest value that any semaphore can reach in any timing. `warnings` are oddities that do no
    harm to this run, such as semaphores that end above zero. `timed`: instructions whose cycles have been proven, of a
    program that is timed ahead.
    """

    instructions: int
    streams: int
    semaphores: int
    accesses: int
    chains: int
    peak: int
    warnings: tuple[str, ...]
    timed: int = 0
