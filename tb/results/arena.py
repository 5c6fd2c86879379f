"""The board of an arena, as data: what `meshloom arena --json` writes."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

from pydantic import computed_field

from .record import Count, Record


class Score(Record):
    """What an entry takes for a workload on a chip. `cycles`: null if it failed, for the `reason`. `seconds`: of making
    schedule, program and prediction. `claimed_cycles`: of a mapping, what its tool says (null: nothing)."""

    entry: str
    status: str
    cycles: Count | None = None
    seconds: float | None = None
    claimed_cycles: Count | None = None
    reason: str = ""


class Heat(Record):
    """A workload on a chip and all entries that took part, the fastest first, failed ones last. `floor_cycles`: no
    schedule can take fewer (null: not known)."""

    workload: str
    chip: str
    floor_cycles: Count | None = None
    scores: tuple[Score, ...]

    @computed_field
    @property
    def fewest_cycles(self) -> int | None:
        """Cycles of the fastest entry; null if all failed."""
        return min((score.cycles for score in self.scores if score.cycles is not None), default=None)

    def behind(self, score: Score) -> float | None:
        """Cycles of an entry as a multiple of the fastest one's."""
        return score.cycles / self.fewest_cycles if score.cycles and self.fewest_cycles else None

    def above_floor(self, score: Score) -> float | None:
        """Cycles of an entry as a multiple of the floor."""
        return score.cycles / self.floor_cycles if score.cycles and self.floor_cycles else None


class EntryStanding(Record):
    """An entry in all heats that it took part in. `wins`: heats in which none was faster; `behind`: geometric mean of
    its cycles as a multiple of the fastest ones, in heats where it did not fail (null: it always did)."""

    entry: str
    heats: Count
    wins: Count
    failed: Count
    behind: float | None = None


class ArenaChip(Record):
    """A chip of the board, by its digest."""

    name: str
    digest: str


class ArenaBoard(Record):
    """A board. `measure`: the device that ran programs, or `model`. `command`: what makes the board anew; `code`:
    version, commit and digest of the sources that made it. `standings`: see `standings_of`."""

    measure: str
    command: str
    code: str
    chips: tuple[ArenaChip, ...]
    heats: tuple[Heat, ...]
    standings: tuple[EntryStanding, ...]


def standings_of(heats: Sequence[Heat]) -> tuple[EntryStanding, ...]:
    """Every entry, the best first: by heats in which it took part and did not fail, then by `behind`."""
    entries = dict.fromkeys(score.entry for heat in heats for score in heat.scores)
    standings = [_standing(entry, heats) for entry in entries]
    return tuple(sorted(standings, key=lambda each: (each.failed - each.heats, each.behind or 0.0, each.entry)))


def _standing(entry: str, heats: Sequence[Heat]) -> EntryStanding:
    own = [(heat, score) for heat in heats for score in heat.scores if score.entry == entry]
    ratios = [ratio for heat, score in own if (ratio := heat.behind(score)) is not None]
    return EntryStanding(
        entry=entry,
        heats=len(own),
        wins=sum(ratio == 1.0 for ratio in ratios),
        failed=len(own) - len(ratios),
        behind=exp(sum(map(log, ratios)) / len(ratios)) if ratios else None,
    )
