"""The results of the program checker: problems, or a report if there are none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..program.program import ProgramError

#: The label of an operation on a tile (`mapping.emit`), and what it says.
_LABEL = re.compile(r'"(?:\S+: )?(?:[xy] )?i\d+ y\d+ x\d+ |"(?:\S+: )?(?:w n\d+ k\d+|bias n\d+)')
_LEGEND = (
    "i0 y0 x0 n0 k0 names a tile by what it begins with: image, row, column, block of output channels, block of input "
    "channels; before it, x is a load of inputs, w of weights, bias of biases, y a store of results, none a GEMM"
)
#: Problems listed in the text of one error; its `problems` has all that were found (at most `Problems.LIMIT`).
SHOWN = 12


@dataclass(frozen=True)
class Problem:
    """One problem of a program: `where` (tile, unit, position, tag, operation), `what`, and how to fix it (`fix`)."""

    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"


class CheckError(ProgramError):
    """A program that must not run. `problems` lists everything that the checker found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        shown = [f"  {problem}" for problem in problems[:SHOWN]]
        if len(problems) > SHOWN:
            shown.append(f"  and {len(problems) - SHOWN} more")
        if any(map(_LABEL.search, shown)):
            shown.append(f"  ({_LEGEND})")
        super().__init__(f"the program has {count}:\n" + "\n".join(shown))

    def __reduce__(self) -> tuple[type[CheckError], tuple[Any, ...]]:
        return CheckError, (self.problems,)  # by default only the text would survive pickling in a worker process


class Problems:
    """Collects problems; drops those past `LIMIT`, which would add no information."""

    LIMIT = 64

    def __init__(self) -> None:
        self.list: list[Problem] = []

    def add(self, where: str, what: str, fix: str) -> None:
        """Adds one problem."""
        if len(self.list) < self.LIMIT:
            self.list.append(Problem(where, what, fix))

    @property
    def full(self) -> bool:
        """Whether further checks are pointless."""
        return len(self.list) >= self.LIMIT

    def settle(self) -> None:
        """Raises CheckError if anything was found."""
        if self.list:
            raise CheckError(tuple(self.list))


@dataclass(frozen=True)
class Report:
    """The report on a program that may run.

    `instructions`, `streams`, `semaphores` (used), `accesses` (to memories), `chains` (of ordered events): what was
    checked. `peak` is the largest value that any semaphore can reach in any timing. `warnings` are oddities that are
    harmless in this run, such as semaphores that end above zero. `timed`: in a program timed ahead, the number of
    instructions whose cycles have been proven.
    """

    instructions: int
    streams: int
    semaphores: int
    accesses: int
    chains: int
    peak: int
    warnings: tuple[str, ...]
    timed: int = 0
