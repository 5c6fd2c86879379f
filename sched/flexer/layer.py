"""From the best choices of a search to one schedule: emitted, put in order, and decided by the timeline model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.config import ChipConfig
from meshloom.sched.loop_order.problem import Problem, pose
from meshloom.sched.loop_order.tiling import Candidate
from meshloom.sched.model.predict import predict
from meshloom.sched.schedule import Move, Prediction, Schedule
from meshloom.sched.workload.layers import ConvShape

from .emit import Emitted, emit
from .order import AHEAD, Ordered, Orderer
from .policy import Choice, Policy
from .search import Partial, Tell, distinct, play, search
from .store import DECISION, NESTS, SEARCH, Store
from .striping import Places
from .tiles import Tiles

#: Choices that a search keeps; operations that are put in order before the model plays, all choices together.
KEPT, ORDERED = 48, 16_000
#: Of the choices that come out best in order, the model plays so many orders of the best one, the second, ...; but for
#: the first two orders, at most so many cycles in all.
PLAYED, PLAYED_CYCLES = (2, 2, 1), 1_200_000
#: How far ahead streams are while choices are compared.
COMPARED = AHEAD[1]


@dataclass(frozen=True)
class Decision:
    """A choice, how far ahead its streams are (`order.AHEAD`), and what the timeline model says it costs."""

    choice: Choice
    ahead: tuple[int, int]
    cycles: int
    words: int


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


def dram_words(schedule: Schedule, chip: ChipConfig) -> int:
    """Words that a schedule's MOVEs read from DRAM or write to it."""
    drams = set(chip.drams)
    return sum(
        op.words * ((op.src.tile in drams) + (op.dst.tile in drams))
        for op in schedule.operations
        if isinstance(op, Move)
    )


class Layer:
    """One layer on one chip: what is searched for it, and what has been found.

    `folder`: where results are kept (None: nowhere); `budget`: seconds for each search (None: to the end); `tell` is
    called while a search goes on, in `threads` threads (None: one for each CPU).
    """

    def __init__(
        self,
        shape: ConvShape,
        chip: ChipConfig,
        scale: int,
        folder: Path | None = None,
        budget: float | None = None,
        tell: Tell | None = None,
        threads: int | None = None,
    ) -> None:
        self.shape, self.chip, self.scale, self.budget = shape, chip, scale, budget
        self.tell, self.threads = tell, threads
        self.problem: Problem = pose(shape, chip)
        self.searches = Store(folder, chip, "flexer", SEARCH)
        self.decisions = Store(folder, chip, "decided", DECISION)
        self.nests = Store(folder, chip, "nests", NESTS)
        self.key = replace(shape, name="", relu=False, clamp=127)

    def choices(self, policy: Policy) -> list[Choice]:
        """The best choices by a policy's metric, found now or before. Raises DoesNotFit."""
        asked = self.key, policy, self.budget, KEPT
        found = self.searches.get(asked, _CHOICES)
        if found is None:
            partly = *asked, "partly"
            found = search(
                self.problem, self.chip, policy, self.shape.name, KEPT, self.budget, self.tell, self.threads,
                before=self.searches.get(partly, _PARTIAL),
                save=lambda partial: self.searches.put(partly, _PARTIAL, partial),
            ).choices  # fmt: skip
            self.searches.put(asked, _CHOICES, found)
            self.searches.drop(partly)
        return distinct(found)

    def emitted(self, choice: Choice, policy: Policy, places: Places | None = None, made: str = "") -> Emitted:
        """The operations of a choice in the order of its log; `places`, `made`: in a network (see `emit`)."""
        _, _, _, log = play(self.problem, self.chip, choice, policy, record=True)
        places = places or Places(Tiles(self.problem, choice.tiling), self.chip)
        return emit(self.shape, self.chip, places, log, self.scale, made)

    def schedule(self, made: Emitted, order: Ordered, name: str) -> Schedule:
        """The schedule of operations in an order, without a prediction."""
        return Schedule(
            chip=self.chip.name,
            chip_digest=self.chip.digest,
            workload=self.shape.name,
            scheduler=name,
            operations=tuple(made.nodes[index].operation() for index in order.order),
            tensors=made.tensors,
        )

    def decide(self, policy: Policy, rank: Policy) -> Decision:
        """The best of a policy's choices by the metric of `rank`, as the timeline model sees them. Raises
        DoesNotFit."""
        best: Decision | None = None
        played = 0
        for number, (choice, made, order) in enumerate(self._promising(policy, rank)):
            if number > 1 and played + order.cycles > PLAYED_CYCLES:
                break
            played += order.cycles
            schedule = self.schedule(made, order, "")
            cycles, words = predict(schedule, self.chip).cycles, dram_words(schedule, self.chip)
            if best is None or rank.metric(cycles, words) < rank.metric(best.cycles, best.words):
                best = Decision(choice, order.ahead, cycles, words)
        assert best is not None
        return best

    def _promising(self, policy: Policy, rank: Policy) -> list[tuple[Choice, Emitted, Ordered]]:
        """The choices that are best once their operations are put in order, with the orders that the model is to play:
        the best of `AHEAD`, those that come to the same once."""
        found: list[tuple[float, int, Choice, Emitted, Orderer]] = []
        operations = 0
        for number, choice in enumerate(self.choices(policy)):
            made = self.emitted(choice, policy)
            operations += len(made.nodes)
            if number > 1 and operations > ORDERED:
                break
            orderer = Orderer(made.nodes, made.steps, self.chip)
            found.append((rank.metric(orderer.run(COMPARED).cycles, choice.words), number, choice, made, orderer))
        found.sort(key=lambda entry: entry[:2])
        promising: list[tuple[Choice, Emitted, Ordered]] = []
        for count, (_, _, choice, made, orderer) in zip(PLAYED, found, strict=False):
            orders = {order.cycles: order for order in map(orderer.run, AHEAD)}
            promising += [(choice, made, orders[cycles]) for cycles in sorted(orders)[:count]]
        return promising

    def decided(self, policy: Policy, rank: Policy | None = None) -> Decision:
        """The best of a policy's choices by its own metric, or that of `rank`, found now or before. Raises
        DoesNotFit."""
        asked = self.key, policy, rank or policy, self.budget
        found = self.decisions.get(asked, _DECISION)
        if found is None:
            found = self.decide(policy, rank or policy)
            self.decisions.put(asked, _DECISION, found)
        return found

    def best(self, policy: Policy, name: str, rank: Policy | None = None) -> Made:
        """The best schedule by a policy's metric, or that of `rank`. Raises DoesNotFit."""
        found = self.decided(policy, rank)
        made = self.emitted(found.choice, policy)
        order = Orderer(made.nodes, made.steps, self.chip).run(found.ahead)
        schedule = self.schedule(made, order, name)
        return Made(
            schedule.model_copy(update={"predicted": Prediction(cycles=found.cycles)}), found.cycles, found.words
        )

    def loop_order(self) -> Made:
        """The strong static baseline: the best that `loop_order` finds. Raises DoesNotFit."""
        from meshloom.sched.loop_order.emit import build
        from meshloom.sched.loop_order.scheduler import search as search_nests

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
