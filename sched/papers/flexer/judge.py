"""The best of a search's choices for one layer: emitted, put in order, and decided by the timeline model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Move, Schedule
from ...lowering.predict import predict
from ...mapping.tiling.problem import Problem, pose
from ...workload.layers import ConvShape
from .emit import Emitted, emit
from .order import AHEAD, Ordered, Orderer
from .playing import play
from .policy import Choice, Policy
from .striping import Places
from .tiles import Tiles

#: Operations that are put in order before the model plays, all choices together.
ORDERED = 16_000
#: Of the choices that come out best in order, the model plays so many orders of the best one, the second, ...; but for
#: the first two orders, at most so many cycles in all.
PLAYED, PLAYED_CYCLES = (2, 2, 1), 1_200_000
#: How far ahead streams are while choices are compared.
COMPARED = AHEAD[1]
#: The fewest sets that banks are ahead in any of `AHEAD`.
NEAREST = min(bank for _, bank in AHEAD)
#: Choices that are played so in any case.
CAREFUL = 2


@dataclass(frozen=True)
class Decision:
    """A choice, how far ahead its streams are (`order.AHEAD`), and what the timeline model says it costs."""

    choice: Choice
    ahead: tuple[int, int]
    cycles: int
    words: int


def dram_words(schedule: Schedule, chip: ChipConfig) -> int:
    """Words that a schedule's MOVEs read from DRAM or write to it."""
    drams = set(chip.drams)
    return sum(
        op.words * ((op.src.tile in drams) + (op.dst.tile in drams))
        for op in schedule.operations
        if isinstance(op, Move)
    )


class Orders(Protocol):
    """Puts operations into an order."""

    def run(self, ahead: tuple[int, int]) -> Ordered:
        """The order in which streams are so far `ahead` of themselves (`order.AHEAD`)."""
        ...


class InTurn(Orders):
    """The order of the log, whose cycles nobody estimates: 0."""

    def __init__(self, emission: Emitted) -> None:
        self.count = len(emission.nodes)

    def run(self, ahead: tuple[int, int]) -> Ordered:
        return Ordered(list(range(self.count)), 0, ahead)


class Judge:
    """One layer on one chip: what becomes of choices.

    `scale`: of the requantisation.
    """

    def __init__(self, shape: ConvShape, chip: ChipConfig, scale: int) -> None:
        self.shape, self.chip, self.scale = shape, chip, scale
        self.problem: Problem = pose(shape, chip)

    def emitted(self, choice: Choice, policy: Policy, places: Places | None = None, result: str = "") -> Emitted:
        """The operations of a choice in the order of its log; `places`, `result`: in a network (see `emit`)."""
        _, _, _, log = play(self.problem, self.chip, choice, policy, record=True)
        places = places or Places(Tiles(self.problem, choice.tiling), self.chip)
        return emit(self.shape, self.chip, places, log, self.scale, result, policy)

    def orders(self, emission: Emitted) -> Orders:
        """The orders in which operations can be issued: that of the log alone if nothing is to overlap."""
        return InTurn(emission) if emission.fences else Orderer(emission.nodes, emission.steps, self.chip)

    def schedule(self, emission: Emitted, order: Ordered, name: str) -> Schedule:
        """The schedule of operations in an order, without a prediction."""
        return Schedule(
            chip=self.chip.name,
            chip_digest=self.chip.digest,
            workload=self.shape.name,
            scheduler=name,
            operations=tuple(emission.nodes[index].operation() for index in order.order),
            fences=emission.fences,
            tensors=emission.tensors,
        )

    def decide(self, choices: Sequence[Choice], policy: Policy, rank: Policy) -> Decision:
        """The best of a policy's choices by the metric of `rank`, as the timeline model sees them. Raises
        DoesNotFit."""
        best: Decision | None = None
        played = 0
        turns, careful = self._promising(choices, policy, rank)
        for number, (_, _, order) in enumerate(turns):
            if number > 1 and played + order.cycles > PLAYED_CYCLES:
                turns = turns[:number]
                break
            played += order.cycles
        for choice, emission, order in turns + careful:
            schedule = self.schedule(emission, order, "")
            cycles, words = predict(schedule, self.chip).cycles, dram_words(schedule, self.chip)
            if best is None or rank.metric(cycles, words) < rank.metric(best.cycles, best.words):
                best = Decision(choice, order.ahead, cycles, words)
        assert best is not None
        return best

    def _promising(
        self, choices: Sequence[Choice], policy: Policy, rank: Policy
    ) -> tuple[list[tuple[Choice, Emitted, Ordered]], list[tuple[Choice, Emitted, Ordered]]]:
        """The choices that are best once their operations are put in order, with the orders that the model is to play:
        the best of `AHEAD`, those that come to the same once. And the best `CAREFUL` choices with the best order in
        which banks are not far ahead, if it is not among these: what they load fills the queues of DRAM, and programs,
        which are fetched from there, have to wait behind it; the play does not know that."""
        trials: list[tuple[float, int, Choice, Emitted, Orders]] = []
        operations = 0
        for number, choice in enumerate(choices):
            emission = self.emitted(choice, policy)
            operations += len(emission.nodes)
            if number > 1 and operations > ORDERED:
                break
            orderer = self.orders(emission)
            cycles = orderer.run(COMPARED).cycles or choice.cycles
            trials.append((rank.metric(cycles, choice.words), number, choice, emission, orderer))
        trials.sort(key=lambda entry: entry[:2])
        turns: list[tuple[int, int, Choice, Emitted, Ordered]] = []
        careful: list[tuple[Choice, Emitted, Ordered]] = []
        for number, (count, (_, _, choice, emission, orderer)) in enumerate(zip(PLAYED, trials, strict=False)):
            orders = {order.cycles: order for order in map(orderer.run, AHEAD)}
            some = [orders[cycles] for cycles in sorted(orders)]
            turns += [(turn, number, choice, emission, order) for turn, order in enumerate(some[:count])]
            if number < CAREFUL:
                near = [order for order in some if order.ahead[1] == NEAREST]
                careful += [(choice, emission, order) for order in near[:1] if order not in some[:count]]
        # Choices differ more than the orders of one do: all have their first turn before any has its second.
        turns.sort(key=lambda entry: entry[:2])
        return [(choice, emission, order) for _, _, choice, emission, order in turns], careful
