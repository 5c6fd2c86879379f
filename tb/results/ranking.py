"""A workload in several runs, as data: what `meshloom compare A B C --json` prints."""

from __future__ import annotations

from pydantic import computed_field

from .comparison import Side
from .record import Record


class RankedRun(Record):
    """A workload in one of the runs, `run` by name. `ratio`: its cycles as a multiple of those in the first run; null
    if one of them has none, or they must not be compared, for the reason `refused`. `causes`: what makes the
    difference, in cycles, the largest first; empty if that is unknown."""

    run: str
    side: Side
    ratio: float | None = None
    causes: dict[str, float] = {}
    refused: str = ""


class Ranking(Record):
    """A workload in all runs that have it, in the order given; the first is what the others are compared with."""

    workload: str
    runs: tuple[RankedRun, ...]

    @computed_field
    @property
    def fastest(self) -> str | None:
        """The run that takes the least time, of those that may be compared: the fewest cycles, or milliseconds where
        all clocks are known; null if fewer than two may."""
        order = self.by_time
        return order[0].run if len(order) > 1 else None

    @property
    def timed(self) -> bool:
        """Whether the clocks of all that may be compared are known."""
        return all(each.side.milliseconds is not None for each in self.runs if each.ratio is not None)

    @property
    def by_time(self) -> list[RankedRun]:
        """The runs that may be compared, the fastest first."""
        return sorted((each for each in self.runs if each.ratio is not None), key=self.duration)

    def duration(self, run: RankedRun) -> float:
        """In milliseconds where all clocks are known, in cycles otherwise."""
        return (run.side.milliseconds if self.timed else run.side.cycles) or 0


class Rankings(Record):
    """The workloads that at least two of `runs` have. `alone`: those that only one has, by name, with that run."""

    runs: tuple[str, ...]
    workloads: tuple[Ranking, ...]
    alone: dict[str, str] = {}
    max_regression: float | None = None
    regressions: tuple[str, ...] = ()
