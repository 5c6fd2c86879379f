"""What a benchmark is, whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..results.events import OnEvent
    from ..results.schema import Row
    from .results import Result


class BenchmarkError(RuntimeError):
    """A benchmark that cannot be run as asked, or at all; the message says why and what would help."""


@dataclass(frozen=True)
class Benchmark:
    """Something that is measured. `run(on_progress)` measures it and says through `on_progress` how far it is; it
    raises BenchmarkError where that cannot be done. `parts`: whether it can be held to parts of it, by their names, as
    a second argument: what it has not measured it then shows as far as it knows. `paper`: whose study it is, by the
    folder in `sched/papers`; without that it is not listed."""

    summary: str
    run: Callable[..., Result]
    parts: bool = False
    paper: str = ""


def module(summary: str, name: str, *, parts: bool = False, paper: str = "") -> Benchmark:
    """A benchmark whose `run` is in a module of this package; that is not imported before it runs."""

    def run(on_progress: OnEvent, *asked: Sequence[str]) -> Result:
        return import_module(f"{__package__}.{name}").run(on_progress, *asked)

    return Benchmark(summary, run, parts, paper)


def all_ran(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of a run, for figures that need every one of them. Raises BenchmarkError when some have not run."""
    if missing := [f"{row.workload}: {row.reason}" for row in rows if row.error is not None]:
        raise BenchmarkError("; ".join(missing))
    return rows
