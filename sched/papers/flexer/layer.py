"""What is found for one layer on one chip by searches of out-of-order schedules and by baselines, kept in files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Prediction, Schedule
from ...mapping.tiling.tiles import Candidate
from ...schedulers.budget import Budget, labelled
from ...store.findings import SearchCache
from ...workload.layers import ConvShape
from .judge import Decision, Judge, dram_words
from .playing import attempt
from .policy import Choice, Policy
from .ready import ready
from .search import OnProgress, Partial, compiling, distinct, search

#: Choices that a search keeps.
BEST_RUNS = 48


@dataclass(frozen=True)
class LayerSchedule:
    """A schedule with its predicted cycles and the words that it moves from and to DRAM."""

    schedule: Schedule
    cycles: int
    words: int


_CHOICES = TypeAdapter(list[Choice])
_PARTIAL = TypeAdapter(Partial)
_DECISION = TypeAdapter(Decision)
_NEST = TypeAdapter(tuple[Candidate, int])


class LayerSearch(Judge):
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
        self.nests = SearchCache(
            folder, chip, "nests", "sched.schedulers.loop_order.scheduler", "sched.mapping.emit.emission"
        )
        self.key = replace(shape, name="", relu=False, clamp=127)

    def choices(self, policy: Policy) -> list[Choice]:
        """The best choices by a policy's metric, found now or before. Raises DoesNotFit."""
        if policy.lookahead:
            return self._ahead(policy)
        key = self.key, policy, self.budget, BEST_RUNS
        choices = self.searches.get(key, _CHOICES)
        if choices is None:
            partly = *key, "partly"
            choices = search(
                self.problem, self.chip, policy, self.shape.name, BEST_RUNS, self.budget, self.on_progress,
                self.threads, before=self.searches.get(partly, _PARTIAL),
                save=lambda partial: self.searches.put(partly, _PARTIAL, partial),
            ).choices  # fmt: skip
            self.searches.put(key, _CHOICES, choices)
            self.searches.drop(partly)
        return distinct(choices)

    def _ahead(self, policy: Policy) -> list[Choice]:
        """The best choices of list scheduling, then looking ahead, one after the other until the budget is spent once
        more (one in any case)."""
        key = self.key, policy, self.budget, BEST_RUNS
        choices = self.searches.get(key, _CHOICES)
        if choices is None:
            listed = self.choices(replace(policy, lookahead=0))
            ready("ahead", compiling(self.shape.name, self.on_progress))
            choices, spent, begun = list[Choice](), 0, monotonic()
            for choice in listed:
                if choices and self.budget is not None and self.budget.over(spent, monotonic() - begun):
                    break
                _, cycles, words, _, steps = attempt(self.problem, self.chip, choice, policy)
                choices.append(choice.judged(cycles, words))
                spent += steps
            choices.sort(key=lambda choice: policy.metric(choice.cycles, choice.words))
            self.searches.put(key, _CHOICES, choices)
        return distinct(choices)

    def decided(self, policy: Policy, rank: Policy | None = None) -> Decision:
        """The best of a policy's choices by its own metric, or that of `rank`, found now or before. Raises
        DoesNotFit."""
        key = self.key, policy, rank or policy, self.budget, BEST_RUNS
        decision = self.decisions.get(key, _DECISION)
        if decision is None:
            decision = self.decide(self.choices(policy), policy, rank or policy)
            self.decisions.put(key, _DECISION, decision)
        return decision

    def best(self, policy: Policy, name: str, rank: Policy | None = None) -> LayerSchedule:
        """The best schedule by a policy's metric, or that of `rank`. Raises DoesNotFit."""
        decision = self.decided(policy, rank)
        emission = self.emitted(decision.choice, policy)
        order = self.orders(emission).run(decision.ahead)
        schedule = self.schedule(emission, order, labelled(name, self.budget))
        return LayerSchedule(
            schedule.model_copy(update={"predicted": Prediction(cycles=decision.cycles)}),
            decision.cycles,
            decision.words,
        )

    def loop_order(self) -> LayerSchedule:
        """The strong static baseline: the best that `loop_order` finds. Raises DoesNotFit."""
        from ...mapping.emit.emission import build
        from ...schedulers.loop_order.scheduler import search as search_nests

        key = self.key, "loop_order"
        nest = self.nests.get(key, _NEST)
        if nest is None:
            leader = search_nests(self.shape, self.chip, self.scale).ranked[0]
            nest = leader.candidate, leader.cycles
            self.nests.put(key, _NEST, nest)
        candidate, cycles = nest
        emission = build(self.shape, self.chip, candidate, self.scale)
        predicted = emission.model_copy(update={"predicted": Prediction(cycles=cycles)})
        return LayerSchedule(predicted, cycles, dram_words(emission, self.chip))
