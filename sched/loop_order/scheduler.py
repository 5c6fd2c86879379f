"""The `loop_order` scheduler: the best static loop nest there is. The baseline that other schedulers must beat.

Every stationarity x tile sizes x partition over the cores x route of the operands is costed by a closed form. The best
of every kind are emitted and replayed operation by operation, the best of those are predicted by the timeline model, and
the leaders then vary how they begin and end. Budgets count operations and not seconds, so that a search finds the
same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from meshloom.hw.config import ChipConfig
from meshloom.sched.schedule import Prediction, Schedule
from meshloom.sched.workload.layers import ConvShape

from .emit import emit, to_schedule
from .estimate import replay
from .problem import DoesNotFit, pose
from .space import Found, best
from .tiling import Candidate

#: Candidates of the closed form that are looked at more closely, at most.
POOL = 1000
#: Operations that a search may emit and replay in all, and those that it may have predicted by the model.
REPLAY_BUDGET, MODEL_BUDGET = 16000, 8000
#: Candidates whose replay is worse than the best by this factor are not worth a prediction.
HOPELESS = 1.3
#: Switches of a candidate that are tried in all combinations on the leaders.
VARIANTS = ("ramp_rows", "ramp_k", "tail_rows", "strip", "late", "tight")

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

    def __init__(self, shape: ConvShape, chip: ChipConfig, scale: int, predict: Predict | None) -> None:
        self.shape, self.chip, self.scale, self.predict = shape, chip, scale, predict
        self.replayed: dict[Candidate, Ranked | None] = {}
        self.predicted: dict[Candidate, Ranked] = {}
        self.error: DoesNotFit | None = None
        self.replay_left, self.model_left = REPLAY_BUDGET, MODEL_BUDGET

    def replay(self, candidate: Candidate, closed_form: float) -> Ranked | None:
        """Judges a candidate by replay; None if a tile of it does not fit after all."""
        if candidate not in self.replayed:
            try:
                nodes = emit(self.shape, self.chip, candidate).nodes
            except DoesNotFit as error:
                self.error, self.replayed[candidate] = error, None
                return None
            self.replay_left -= len(nodes)
            self.replayed[candidate] = Ranked(candidate, closed_form, replay(nodes, self.chip), len(nodes))
        return self.replayed[candidate]

    def model(self, ranked: Ranked) -> None:
        """Has a candidate predicted by the model."""
        if self.predict is None or ranked.candidate in self.predicted:
            return
        made = to_schedule(emit(self.shape, self.chip, ranked.candidate, self.scale), self.shape, self.chip)
        made = made.model_copy(update={"predicted": self.predict(made, self.chip)})
        self.model_left -= ranked.operations
        self.predicted[ranked.candidate] = replace(ranked, schedule=made)

    def run(self) -> Search:
        problem = pose(self.shape, self.chip)
        pool, space = best(problem, self.chip, POOL, self.shape.name)
        for found in _turns(pool, lambda entry: _kind(entry.candidate)):
            if self.replay_left < REPLAY_BUDGET // 3 and self._leaders():
                break
            self.replay(replace(found.candidate, ramp_k=True), found.cycles)
        if not self._leaders():
            raise self.error or DoesNotFit(f"layer {self.shape.name}: nothing of {space} candidates could be emitted")
        self._predict_best(MODEL_BUDGET // 2)
        # The leaders' ways to begin and end.
        for leader in self._ranked():
            for values in product((False, True), repeat=len(VARIANTS)):
                if self.replay_left > 0:
                    self.replay(replace(leader.candidate, **dict(zip(VARIANTS, values, strict=True))), leader.closed_form)
        self._predict_best(0)
        replays = sum(ranked is not None for ranked in self.replayed.values())
        return Search(tuple(self._ranked()), space, replays, len(self.predicted))

    def _leaders(self) -> list[Ranked]:
        return sorted((ranked for ranked in self.replayed.values() if ranked), key=lambda ranked: ranked.replayed)

    def _predict_best(self, leave: int) -> None:
        """Predicts the best replays, kind by kind in turn, until only `leave` of the budget is left."""
        leaders = self._leaders()
        leaders = [ranked for ranked in leaders if ranked.replayed <= HOPELESS * leaders[0].replayed]
        for ranked in _turns(leaders, lambda entry: _kind(entry.candidate)):
            if self.model_left - ranked.operations < leave and self.predicted:
                break
            self.model(ranked)

    def _ranked(self) -> list[Ranked]:
        done = sorted(self.predicted.values(), key=lambda ranked: ranked.cycles)
        return done + [ranked for ranked in self._leaders() if ranked.candidate not in self.predicted]


def _kind(candidate: Candidate) -> Hashable:
    return candidate.parts_m, candidate.parts_n, candidate.x_spm, candidate.w_spm


def _turns(entries: Iterable[_T], kind: Callable[[_T], Hashable]) -> Iterator[_T]:
    """The first of each kind, then the second of each, and so on."""
    groups: dict[Hashable, list[_T]] = {}
    for entry in entries:
        groups.setdefault(kind(entry), []).append(entry)
    for turn in range(max((len(group) for group in groups.values()), default=0)):
        yield from (group[turn] for group in groups.values() if turn < len(group))


def timeline(schedule: Schedule, chip: ChipConfig) -> Prediction:
    """The timeline model's prediction."""
    from meshloom.sched.model.predict import predict

    return predict(schedule, chip)


def search(shape: ConvShape, chip: ChipConfig, scale: int = 1 << 16, predict: Predict | None = timeline) -> Search:
    """The best candidates of a layer. `predict`: the model that decides (None: the replay does).

    Deterministic. Raises DoesNotFit, naming the memory and by how much it is too small, when no tiling fits the chip.
    """
    return _Searcher(shape, chip, scale, predict).run()


def schedule(
    shape: ConvShape, chip: ChipConfig, scale: int = 1 << 16, predict: Predict | None = timeline
) -> Schedule:
    """The best static schedule of a layer on a chip, with the cycles that `predict` (see `search`) expects.

    `scale`: the multiplier m of the requantisation. Raises DoesNotFit.
    """
    leader = search(shape, chip, scale, predict).ranked[0]
    return leader.schedule or to_schedule(emit(shape, chip, leader.candidate, scale), shape, chip)
