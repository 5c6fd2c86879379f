"""What is tried for a network, one after the other: the schedule that ends first in the timeline model is taken.

A budget bounds how many are tried: by the micro-ops that are scheduled (the same on every machine) or by seconds. The
first is always made, so there is a schedule whenever the search ends, and what each came to is kept, so that one that
was interrupted goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import DoesNotFit
from ...schedulers.budget import Budget
from ...schedulers.network.form import form
from ...schedulers.network.scheduler import MicroOps, NetworkSchedule
from ...store.findings import SearchCache
from ...support.garbage import uncollected
from ...workload.graph import Graph


@dataclass(frozen=True)
class Try:
    """A way to schedule a network. `name`: what it makes, as `MicroOps.taken` says it; `what`: the same for people;
    `asked`: what decides what comes of it, besides network and chip; `make` may raise DoesNotFit."""

    name: str
    what: str
    asked: object
    make: Callable[[], NetworkSchedule]


@dataclass(frozen=True)
class Outcome:
    """What came of a try: `cycles` in the timeline model, and what it says of its micro-ops, if it has any."""

    cycles: int
    figures: MicroOps | None


_FORM = TypeAdapter(Outcome)


def outcomes(folder: Path | None, chip: ChipConfig) -> SearchCache:
    """Where outcomes are kept below `folder` (None: in this process only). Raises SettingError."""
    decide = "sched.papers.klotski.entry", "sched.lowering.semaphores.lower", "sched.model.timeline"
    return SearchCache(folder, chip, "micro-op schedules", *decide)


class Trying:
    """Looks for the quickest schedule of one network. `memory`: keeps outcomes; `tell`: is called with what is tried,
    its number from 0 on, and how many there are."""

    def __init__(
        self, graph: Graph, chip: ChipConfig, budget: Budget | None, memory: SearchCache,
        tell: Callable[[str, int, int], None] | None,
    ) -> None:  # fmt: skip
        self.chip, self.budget, self.memory, self.tell = chip, budget, memory, tell
        self.graph = form(graph)
        self.began, self.steps = process_time(), 0
        self.outcomes: dict[int, Outcome] = {}  # by number of the try
        self.fastest: tuple[int, NetworkSchedule] | None = None  # the quickest, if it has been made

    def quickest(self, tries: Sequence[Try]) -> NetworkSchedule:
        """The schedule that ends first; of equal ones that of the earlier try. Those that do not fit are left out.
        Raises the DoesNotFit of the first if none does."""
        troubles: list[DoesNotFit] = []
        for number, one in enumerate(tries):
            if self.outcomes and self._over():
                break
            if self.tell:
                best = min((each.cycles for each in self.outcomes.values()), default=None)
                self.tell(one.what + (f", best {best:,} cycles" if best is not None else ""), number, len(tries))
            try:
                if (alone := self._look(one, number, number + 1 == len(tries))) is not None:
                    return alone
            except DoesNotFit as error:
                troubles.append(error)
        if not self.outcomes:
            raise troubles[0]
        return self._fastest(tries)

    def _over(self) -> bool:
        return self.budget is not None and self.budget.over(self.steps, process_time() - self.began)

    def _look(self, one: Try, number: int, last: bool) -> NetworkSchedule | None:
        """Makes one, unless its outcome is kept, and plays it; returns it if nothing is to be compared with it."""
        question = self.graph, one.asked
        outcome = self.memory.get(question, _FORM)
        if outcome is not None:
            self._count(outcome.figures)
        else:
            with uncollected():
                result = one.make()
            self._count(result.micro_ops)
            if not self.outcomes and (last or self._over()):
                return result
            outcome = Outcome(_cycles(result, self.chip), result.micro_ops)
            self.memory.put(question, _FORM, outcome)
            if all(outcome.cycles < each.cycles for each in self.outcomes.values()):
                self.fastest = number, result
        self.outcomes[number] = outcome
        return None

    def _count(self, figures: MicroOps | None) -> None:
        self.steps += figures.count if figures is not None else 0

    def _fastest(self, tries: Sequence[Try]) -> NetworkSchedule:
        """The quickest. What has no micro-ops says how many the quickest of those would have that have some."""
        number = min(self.outcomes, key=lambda each: self.outcomes[each].cycles)
        result = self.fastest[1] if self.fastest is not None and self.fastest[0] == number else tries[number].make()
        if result.micro_ops is not None:
            return result
        others = [each for each in self.outcomes.values() if each.figures is not None]
        figures = min(others, key=lambda each: each.cycles).figures if others else None
        return replace(result, micro_ops=figures and replace(figures, taken=tries[number].name))


def _cycles(result: NetworkSchedule, chip: ChipConfig) -> int:
    """Of a schedule, in the timeline model."""
    from ...lowering.semaphores.lower import lower
    from ...model.timeline import play

    with uncollected():
        return play(lower(result.schedule, chip), chip).cycles
