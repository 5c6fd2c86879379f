"""The `loop_order` scheduler: the best static loop nest there is. The baseline that other schedulers must beat.

Every stationarity x tile sizes x partition over the cores x route of the operands is costed by a closed form. The best
of every kind are emitted and replayed operation by operation, the best of those are predicted by the timeline model,
and the leaders then vary how they begin and end. Budgets count operations and not seconds, so that a search finds the
same on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, TypeVar

from meshloom.hw.spec.config import ChipConfig

from ...ir.hazards import dependences
from ...ir.schedule import Prediction, Schedule
from ...mapping.emit.emission import Emission, emit, to_schedule
from ...mapping.play.replay import replay
from ...mapping.tiling.problem import DoesNotFit, pose
from ...mapping.tiling.space import best
from ...mapping.tiling.tiles import Candidate
from ...workload.layers import ConvShape
from .alike import Alike

if TYPE_CHECKING:
    from ...lowering.predict import Lowered

#: Candidates of the closed form that are looked at more closely, at most.
POOL = 1000
#: Operations that a search may emit and replay in all, and those that it may have predicted by the model.
REPLAY_BUDGET, MODEL_BUDGET = 30000, 6000
#: The least that a candidate counts, however small it is.
LEAST = 60
#: Candidates whose replay is worse than the best by this factor are not worth a prediction.
HOPELESS = 1.15
#: Switches of a candidate that are tried in all combinations on the leaders (a strip is never tight).
VARIANTS = tuple(
    dict(zip(("ramp_rows", "ramp_k", "tail_rows", "late", "strip", "tight"), (*values, *inputs), strict=True))
    for inputs in ((False, False), (True, False), (False, True))
    for values in product((False, True), repeat=4)
)

Predict = Callable[[Schedule, ChipConfig], Prediction]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Ranked:
    """A candidate, the closed form's cycles, the replay's, and the model's with the schedule (if it was asked)."""

    candidate: Candidate
    closed_form: float
    replayed: int
    operations: int
    schedule: Schedule | None = None

    @property
    def cycles(self) -> int:
        """The best knowledge there is of its cycles."""
        predicted = self.schedule.predicted if self.schedule else None
        return predicted.cycles if predicted else self.replayed


@dataclass(frozen=True)
class Search:
    """What a search found: candidates that were predicted, then those only replayed, best first; sizes of the space."""

    ranked: tuple[Ranked, ...]
    space: int
    replays: int
    predictions: int


class _Searcher:
    """One search: what has been judged already, and what is left of the budgets."""

    def __init__(self, shape: ConvShape, chip: ChipConfig, scale: int, predict: Predict | None, effort: float) -> None:
        self.shape, self.chip, self.scale, self.predict = shape, chip, scale, predict
        self.problem = pose(shape, chip)
        self.alike = Alike(self.problem, chip)
        self.replayed: dict[Candidate, Ranked | None] = {}
        self.predicted: dict[Candidate, Ranked] = {}
        # by the first candidate of those that are the same schedule
        self.emissions: dict[Candidate, Emission] = {}
        self.schedules: dict[Candidate, Schedule] = {}
        self.error: DoesNotFit | None = None
        self.replay_budget, self.model_budget = REPLAY_BUDGET * effort, MODEL_BUDGET * effort
        self.replay_left, self.model_left = self.replay_budget, self.model_budget

    def replay(self, candidate: Candidate, closed_form: float) -> Ranked | None:
        """Judges a candidate by replay; None if a tile of it does not fit after all. One that is the same schedule as
        one before counts as much, and is not made again."""
        if candidate not in self.replayed:
            self.replayed[candidate] = self._replay(candidate, closed_form)
        return self.replayed[candidate]

    def _replay(self, candidate: Candidate, closed_form: float) -> Ranked | None:
        try:
            first = self.alike.first(candidate)
            if first is candidate:
                plans = self.alike.plans(candidate)
                self.emissions[candidate] = emit(self.shape, self.chip, candidate, self.scale, plans)
        except DoesNotFit as error:
            self.error = error
            return None
        if first is candidate:
            nodes = self.emissions[candidate].nodes
            judged = Ranked(candidate, closed_form, replay(nodes, self.chip), len(nodes))
        elif (like := self.replayed[first]) is not None:
            judged = replace(like, candidate=candidate, closed_form=closed_form)
        else:
            return None
        self.replay_left -= max(judged.operations, LEAST)
        return judged

    def _model(self, ranked: Ranked) -> int:
        """Has a candidate predicted by the model; its cycles."""
        assert self.predict is not None
        first = self.alike.first(ranked.candidate)
        schedule = self.schedules.get(first)
        if schedule is None:
            schedule = to_schedule(self.emissions.pop(first), self.shape, self.chip)
            schedule = schedule.model_copy(update={"predicted": self.predict(schedule, self.chip)})
            self.schedules[first] = schedule
        self.model_left -= max(ranked.operations, LEAST)
        predicted = self.predicted[ranked.candidate] = replace(ranked, schedule=schedule)
        return predicted.cycles

    def run(self) -> Search:
        pool, space = best(self.problem, self.chip, POOL, self.shape.name)
        for turn in _turns(pool, lambda entry: entry.grid.kind):
            if self.replay_left < self.replay_budget / 2 and self._leaders():
                break
            self.replay(replace(turn.candidate, ramp_k=True), turn.cycles)
        if not self._leaders():
            raise self.error or DoesNotFit(f"layer {self.shape.name}: none of {space} candidates could be emitted")
        self._predict_best(self.model_budget / 2)
        # The leaders' ways to begin and end.
        for leader in self._ranked():
            for variant in VARIANTS:
                if self.replay_left > 0:
                    self.replay(replace(leader.candidate, **variant), leader.closed_form)
        self._predict_best(0)
        replays = sum(ranked is not None for ranked in self.replayed.values())
        return Search(tuple(self._ranked()), space, replays, len(self.predicted))

    def _leaders(self) -> list[Ranked]:
        return sorted((ranked for ranked in self.replayed.values() if ranked), key=lambda ranked: ranked.replayed)

    def _predict_best(self, leave: float) -> None:
        """Predicts the most promising replays until only `leave` of the budget is left."""
        if self.predict is None:
            return
        # A replay errs alike for candidates of a kind; a kind that has not been predicted yet is believed.
        trust: dict[Hashable, float] = {}
        for ranked in self.predicted.values():
            kind = kind_of(ranked.candidate)
            trust[kind] = min(trust.get(kind, 9.0), ranked.cycles / ranked.replayed)
        leaders = self._leaders()
        limit = HOPELESS * leaders[0].replayed
        queues: dict[Hashable, deque[tuple[int, Ranked]]] = {}  # those of each kind, the best first
        for place, ranked in enumerate(leaders):
            if ranked.replayed <= limit and ranked.candidate not in self.predicted:
                queues.setdefault(kind_of(ranked.candidate), deque()).append((place, ranked))
        while queues:
            # of equals the one whose replay is shorter
            kind = min(
                queues, key=lambda kind: (queues[kind][0][1].replayed * trust.get(kind, 1.0), queues[kind][0][0])
            )
            _, ranked = queues[kind][0]
            if self.model_left - ranked.operations < leave and self.predicted:
                return
            cycles = self._model(ranked)
            trust[kind] = min(trust.get(kind, 9.0), cycles / ranked.replayed)
            queues[kind].popleft()
            if not queues[kind]:
                del queues[kind]

    def _ranked(self) -> list[Ranked]:
        done = sorted(self.predicted.values(), key=lambda ranked: ranked.cycles)
        return done + [ranked for ranked in self._leaders() if ranked.candidate not in self.predicted]


def kind_of(candidate: Candidate) -> tuple[Hashable, ...]:
    """What candidates have in common for which a replay errs alike: parts, and what passes through the scratchpad."""
    return candidate.parts_m, candidate.parts_n, candidate.x_spm, candidate.w_spm, candidate.strip


def _turns(entries: Iterable[_T], kind: Callable[[_T], Hashable]) -> Iterator[_T]:
    """The first of each kind, then the second of each, and so on."""
    groups: dict[Hashable, list[_T]] = {}
    for entry in entries:
        groups.setdefault(kind(entry), []).append(entry)
    for turn in range(max((len(group) for group in groups.values()), default=0)):
        yield from (group[turn] for group in groups.values() if turn < len(group))


def timeline(
    schedule: Schedule, chip: ChipConfig, on_lowered: Callable[[Lowered], None] = lambda done: None
) -> Prediction:
    """The timeline model's prediction. What the search emits is valid; who runs it looks at it once more. `on_lowered`:
    called with the program that was played."""
    from ...lowering.predict import lowered, prediction

    done = lowered(schedule, chip, dependences(schedule.operations, chip))
    on_lowered(done)
    return prediction(schedule, done.program, done.timeline)


def search(
    shape: ConvShape, chip: ChipConfig, scale: int = 1 << 15, predict: Predict | None = timeline, effort: float = 1.0
) -> Search:
    """The best candidates of a layer. `predict`: the model that decides (None: the replay does). `effort`: share of the
    budgets to spend.

    Deterministic. Raises DoesNotFit, naming the memory and by how much it is too small, when no tiling fits the chip.
    """
    return _Searcher(shape, chip, scale, predict, effort).run()


def schedule(
    shape: ConvShape, chip: ChipConfig, scale: int = 1 << 15, predict: Predict | None = timeline, effort: float = 1.0
) -> Schedule:
    """The best static schedule of a layer on a chip, with the cycles that `predict` (see `search`) expects.

    `scale`: the multiplier m of the requantisation. Raises DoesNotFit.
    """
    leader = search(shape, chip, scale, predict, effort).ranked[0]
    return leader.schedule or to_schedule(emit(shape, chip, leader.candidate, scale), shape, chip)
