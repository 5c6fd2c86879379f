"""The events of a run, as whoever started it hears of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .schema import Row


@dataclass(frozen=True)
class RowCount:
    """Event of a run: the number of rows to come."""

    rows: int


@dataclass(frozen=True)
class MoreRows:
    """Files have so many more inputs than it seemed, each of which is a row (below 0: fewer)."""

    rows: int


@dataclass(frozen=True)
class Stage:
    """Event of a run: what is being done for which workload, in a word or two ("building", "simulating").

    `passing`: progress within a stage, of interest only until the next event.
    """

    workload: str
    what: str
    passing: bool = False


@dataclass(frozen=True)
class Unwritten:
    """Event of a run: artefacts of a workload that could not be written; `why` names the file. `required`: they
    were to be kept, so that the run has failed in this."""

    workload: str
    why: str
    required: bool = True


#: The events of a run: its plan, then stages, and each row as soon as it is finished.
Event = RowCount | MoreRows | Stage | Row | Unwritten

OnEvent = Callable[[Event], None]
