"""What is found for one layer on one chip by searches of out-of-order schedules and by baselines, kept in files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Prediction, Schedule
from ...mapping.tiling import Candidate
from ...schedulers.budget import Budget, labelled
from ...store.findings import SearchCache
from ...workload.layers import ConvShape
from .judge import Decision, Judge, dram_words
from .playing import attempt
from .policy import Choice, Policy
from .ready import ready
from .search import OnProgress, Partial, compiling, distinct, search

#: Choices that a search keeps.
KEPT = 48


@dataclass(frozen=True)
class Made:
    """A schedule with its predicted cycles and the words that it moves from and to DRAM."""

    schedule: Schedule
    cycles: int
    words: int


_CHOICES = TypeAdapter(list[Choice])
_PARTIAL = TypeAdapter(Partial)
_DECISION = TypeAdapter(Decision)
_NEST = TypeAdapter(tuple[Candidate, int])


class Layer(Judge):
    """One layer on one chip: what is searched for it, and what has been found.

    `folder`: where results are kept (None: nowhere); `budget`: of each search (None: to the end); `on_progress` is
    called while a search goes on, in `threads` threads (None: one for each CPU).
    """

    def __init__(
        self,
        shape: ConvShape,
        chip: ChipConfig,
        scale: int,
        folder: Path | None = None,
        budget: Budget | None = None,
        on_progress: OnProgress | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__(shape, chip, scale)
        self.budget, self.on_progress, self.threads = budget, on_progress, threads
        self.searches = SearchCache(folder, chip, "flexer", "sched.papers.flexer.search")
        self.decisions = SearchCache(folder, chip, "decided", "sched.papers.flexer.search", "sched.papers.flexer.judge")
        self.nests = SearchCache(folder, chip, "nests", "sched.schedulers.loop_order.scheduler", "sched.mapping.emit")
        self.key = replace(shape, name="", relu=False, clamp=127)

    def choices(self, policy: Policy) -> list[Choice]:
        """The best choices by a policy's metric, found now or before. Raises DoesNotFit."""
        if policy.lookahead:
            return self._ahead(policy)
        asked = self.key, policy, self.budget, KEPT
        found = self.searches.get(asked, _CHOICES)
        if found is None:
            partly = *asked, "partly"
            found = search(
                self.problem, self.chip, policy, self.shape.name, KEPT, self.budget, self.on_progress, self.threads,
                before=self.searches.get(partly, _PARTIAL),
                save=lambda partial: self.searches.put(partly, _PARTIAL, partial),
            ).choices  # fmt: skip
            self.searches.put(asked, _CHOICES, found)
            self.searches.drop(partly)
        return distinct(found)

    def _ahead(self, policy: Policy) -> list[Choice]:
        """The best choices of list scheduling, then looking ahead, one after the other until the budget is spent once
        more (one in any case)."""
        asked = self.key, policy, self.budget, KEPT
        found = self.searches.get(asked, _CHOICES)
        if found is None:
            listed = self.choices(replace(policy, lookahead=0))
            ready("ahead", compiling(self.shape.name, self.on_progress))
            found, spent, begun = list[Choice](), 0, monotonic()
            for choice in listed:
                if found and self.budget is not None and self.budget.over(spent, monotonic() - begun):
                    break
                _, cycles, words, _, steps = attempt(self.problem, self.chip, choice, policy)
                found.append(choice.judged(cycles, words))
                spent += steps
            found.sort(key=lambda choice: policy.metric(choice.cycles, choice.words))
            self.searches.put(asked, _CHOICES, found)
        return distinct(found)

    def decided(self, policy: Policy, rank: Policy | None = None) -> Decision:
        """The best of a policy's choices by its own metric, or that of `rank`, found now or before. Raises
        DoesNotFit."""
        asked = self.key, policy, rank or policy, self.budget, KEPT
        found = self.decisions.get(asked, _DECISION)
        if found is None:
            found = self.decide(self.choices(policy), policy, rank or policy)
            self.decisions.put(asked, _DECISION, found)
        return found

    def best(self, policy: Policy, name: str, rank: Policy | None = None) -> Made:
        """The best schedule by a policy's metric, or that of `rank`. Raises DoesNotFit."""
        found = self.decided(policy, rank)
        made = self.emitted(found.choice, policy)
        order = self.orders(made).run(found.ahead)
        schedule = self.schedule(made, order, labelled(name, self.budget))
        return Made(
            schedule.model_copy(update={"predicted": Prediction(cycles=found.cycles)}), found.cycles, found.words
        )

    def loop_order(self) -> Made:
        """The strong static baseline: the best that `loop_order` finds. Raises DoesNotFit."""
        from ...mapping.emit import build
        from ...schedulers.loop_order.scheduler import search as search_nests

        asked = self.key, "loop_order"
        found = self.nests.get(asked, _NEST)
        if found is None:
            leader = search_nests(self.shape, self.chip, self.scale).ranked[0]
            found = leader.candidate, leader.cycles
            self.nests.put(asked, _NEST, found)
        candidate, cycles = found
        made = build(self.shape, self.chip, candidate, self.scale)
        predicted = made.model_copy(update={"predicted": Prediction(cycles=cycles)})
        return Made(predicted, cycles, dram_words(made, self.chip))
