"""The `loop_order` scheduler: the best static loop nest there is. The baseline that other schedulers must beat.

For each layer: every stationarity x tile sizes x partition over the cores x route of the operands, costed by a closed
form; the best of them, with and without small first and last tiles, are emitted and compared operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from meshloom.hw.config import ChipConfig
from meshloom.sched.schedule import Prediction, Schedule
from meshloom.sched.workload.layers import ConvShape

from .emit import Emission, emit, to_schedule
from .estimate import replay
from .problem import DoesNotFit, pose
from .space import Found, best
from .tiling import Candidate

#: Candidates of the closed form that are considered for replay, best first.
SHORTLIST = 96
#: Operations that a search may emit and replay in all: a limit on its time that is the same on every machine.
BUDGET = 40000

#: Switches of a candidate that are tried in all combinations on the leaders.
VARIANTS = ("ramp_rows", "ramp_k", "tail_rows", "strip", "late")


@dataclass(frozen=True)
class Ranked:
    """A candidate, the closed form's cycles and the replay's."""

    candidate: Candidate
    closed_form: float
    replayed: Prediction


@dataclass(frozen=True)
class Search:
    """What a search found: the best candidates (best first), how many the space has, how many were replayed."""

    ranked: tuple[Ranked, ...]
    space: int
    replays: int


def search(shape: ConvShape, chip: ChipConfig, shortlist: int = SHORTLIST) -> Search:
    """The best candidates of a layer, by replay. Deterministic. Raises DoesNotFit when no tiling fits the chip."""
    problem = pose(shape, chip)
    pool, space = best(problem, chip, 10 * shortlist, shape.name)
    error: DoesNotFit | None = None
    ranked: list[Ranked] = []
    seen: set[Candidate] = set()
    replays = spent = 0

    def judge(found: Found) -> None:
        nonlocal replays, spent, error
        if found.candidate in seen:
            return
        seen.add(found.candidate)
        try:
            emission = emit(shape, chip, found.candidate)
        except DoesNotFit as reason:
            error = reason
            return
        replays += 1
        spent += len(emission.nodes)
        ranked.append(Ranked(found.candidate, found.cycles, replay(emission.nodes, chip)))

    for found in _spread(pool, shortlist):
        if spent > BUDGET // 2:
            break
        judge(replace(found, candidate=replace(found.candidate, ramp_k=True)))
    for found in pool:
        if ranked:
            break
        judge(found)
    if not ranked:
        raise error or DoesNotFit(f"layer {shape.name}: no candidate of {space} could be emitted on {chip.name}")
    ranked.sort(key=_cycles)
    for leader in ranked.copy():
        for values in product((False, True), repeat=len(VARIANTS)):
            ramps = dict(zip(VARIANTS, values, strict=True))
            if spent <= BUDGET:
                judge(Found(replace(leader.candidate, **ramps), leader.closed_form))
    ranked.sort(key=_cycles)
    return Search(tuple(ranked), space, replays)


def _cycles(ranked: Ranked) -> int:
    return ranked.replayed.cycles


def _spread(pool: Sequence[Found], count: int) -> list[Found]:
    """The best `count` of which at most a quarter share partition, order and routes."""
    found: list[Found] = []
    kinds: dict[tuple, int] = {}
    for entry in pool:
        c = entry.candidate
        kind = (c.parts_m, c.parts_n, c.order, c.x_spm, c.w_spm)
        if kinds.get(kind, 0) < max(2, count // 6):
            kinds[kind] = kinds.get(kind, 0) + 1
            found.append(entry)
        if len(found) == count:
            break
    return found


def schedule(
    shape: ConvShape,
    chip: ChipConfig,
    scale: int = 1 << 16,
    predict: Callable[[Schedule, ChipConfig], Prediction] | None = None,
    rerank: int = 4,
) -> Schedule:
    """The best static schedule of a layer on a chip, with its predicted cycles.

    `scale`: the multiplier m of the requantisation. `predict`: a model that decides among the `rerank` best (and whose
    prediction the schedule then carries); without it the replay's word is final. Raises DoesNotFit.
    """
    leaders = search(shape, chip).ranked
    if predict is None:
        leader = leaders[0]
        made = to_schedule(emit(shape, chip, leader.candidate, scale), shape, chip)
        return made.model_copy(update={"predicted": leader.replayed})
    choices = []
    for leader in leaders[:rerank]:
        made = to_schedule(emit(shape, chip, leader.candidate, scale), shape, chip)
        choices.append(made.model_copy(update={"predicted": predict(made, chip)}))
    return min(choices, key=lambda made: made.predicted.cycles if made.predicted else 0)


__all__ = ["Emission", "Ranked", "Search", "schedule", "search"]
