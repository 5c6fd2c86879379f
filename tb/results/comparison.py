"""Two runs side by side, as data: what `meshloom compare --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, computed_field

from .energy import EnergyFigures
from .record import Record
from .schema import Status

Count = Annotated[int, Field(ge=0)]


#: Differences below this many cycles are of the figures of a results file, which are percentages.
_LEAST = 1e-6


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What changed, the largest change first; what is as before is left out."""
    numbers = {cause: after.get(cause, 0.0) - before.get(cause, 0.0) for cause in dict.fromkeys((*before, *after))}
    moved = [(cause, change) for cause, change in numbers.items() if abs(change) > _LEAST]
    return dict(sorted(moved, key=lambda each: -abs(each[1])))


class Side(Record):
    """One of the two runs of a workload: what ran on what, and its cycles (null if it did not come to its end).

    `source`: rtl or model. `code`: version and commit, if the row says. `milliseconds`: null if its clock is not known.
    """

    workload: str
    chip: str
    chip_digest: str
    scheduler: str
    source: str
    code: str
    status: Status
    cycles: Count | None
    milliseconds: float | None = None


class LayerMoved(Record):
    """A layer's part of the cycles of both runs (null where it has none: see `Waterfall`), and the difference by cause,
    `b` - `a`, in cycles; causes that are as before are left out."""

    layer: str
    a: float | None
    b: float | None
    causes: dict[str, float]

    @computed_field
    @property
    def change(self) -> float:
        """`b` - `a`, in cycles."""
        return (self.b or 0.0) - (self.a or 0.0)


class Comparison(Record):
    """A workload in two runs. `a_causes`, `b_causes`: cycles by cause, empty if it is unknown (`note` says why).
    `a_energy`, `b_energy`: estimates; null of a run without artefacts. `chip_fields`: fields of the chip that differ,
    by their names in its file, with the value in `a` and in `b`; empty of runs without artefacts."""

    a: Side
    b: Side
    a_causes: dict[str, float]
    b_causes: dict[str, float]
    layers: tuple[LayerMoved, ...]
    note: str = ""
    a_energy: EnergyFigures | None = None
    b_energy: EnergyFigures | None = None
    chip_fields: dict[str, tuple[str, str]] = {}

    @computed_field
    @property
    def change(self) -> int | None:
        """Cycles of `b` - those of `a`; null if one has none."""
        return None if self.a.cycles is None or self.b.cycles is None else self.b.cycles - self.a.cycles

    @computed_field
    @property
    def change_percent(self) -> float | None:
        """The same, in percent of `a`'s."""
        return 100.0 * self.change / self.a.cycles if self.change is not None and self.a.cycles else None

    @property
    def moved(self) -> dict[str, float]:
        """What changed by cause, `b` - `a`, in cycles, the largest change first; what is as before is left out."""
        return difference(self.a_causes, self.b_causes)


class Comparisons(Record):
    """All workloads of two runs; those that only one of them has are named. `refused`: by name, why a workload that
    both have is not compared. `regressions`: what exceeds
    `max_regression` (percent), in words; without such a bound there is none."""

    workloads: tuple[Comparison, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    refused: dict[str, str] = {}
    max_regression: float | None = None
    regressions: tuple[str, ...] = ()
