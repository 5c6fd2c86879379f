"""Algorithm 1: every tiling and data flow is scheduled, and the best by the metric are kept.

Nothing is left out without a proof: a tiling whose lower bound exceeds the worst that is kept is not begun, and a
schedule is given up as soon as it must end above that. The bound is what the arrays need for all products, and what
DRAM needs to move every tile once. Good schedules should come early, so one quick nest of each tiling is played first,
and tilings come in the order of what that costs.

Work is counted in steps (`playing`). A budget of steps is spent in the order of the tilings, to the step, and the limit
above which a schedule is given up follows from a fixed part of those before it (`turns`). So the same is found on every
machine, by any number of threads, and after any interruption.
Source: Min, Kwon, Egger, "Flexer" (CGO 2023), Algorithm 1 and section 5 (metric).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.problem import DoesNotFit, Problem
from ...schedulers.budget import Budget
from .flows import flows
from .playing import UNLIMITED, attempt
from .policy import Choice, Policy
from .ready import Heard, ready
from .state import rates
from .tiles import TilingSpace, viable
from .turns import WINDOW, in_turn, seen

Floats = NDArray[np.float64]
#: Seconds between two savings of what an interrupted search would lose.
SAVE_SECONDS = 5.0
#: Kept is what is at most so many times as bad as the best: the estimate sees no requests and no queues of single
#: moves, so what it ranks first is often not what the chip ends first.
SLACK = 1.3
#: Share of a budget after which no tiling is probed.
PROBING = 0.3
#: How much worse than the best a nest may become that is played for the order of the tilings.
_FAR = 8.0


@dataclass(frozen=True)
class Progress:
    """How far a search is: tilings probed, or scheduled or proven hopeless; schedules made, and the best so far.

    `compiling`: the search itself is being compiled (functions done, of so many), which happens once. A total of 0: by
    another process.
    """

    layer: str
    done: int
    total: int
    schedules: int
    best: Choice | None
    compiling: bool = False


OnProgress = Callable[[Progress], None]


@dataclass
class Partial:
    """How far a search is: everything that decides how it goes on.

    `probed`: tilings and the metric of their nests; `ranked`: whether all are probed that will be. `taken`: tilings
    that are done, in their order; `limits`: what a schedule had to stay below after each of the last of these.
    `spent` steps; `schedules` and `proven`: see `SearchResult`; `cut`: whether the budget is spent. `leaders`: (metric,
    tiling, number, choice), best first.
    """

    probed: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    ranked: bool = False
    taken: int = 0
    limits: list[float | None] = field(default_factory=lambda: [None])
    spent: int = 0
    schedules: int = 0
    proven: int = 0
    cut: bool = False
    leaders: list[tuple[float, int, int, Choice]] = field(default_factory=list[tuple[float, int, int, Choice]])

    def copy(self) -> Partial:
        """As it is now."""
        return replace(self, probed=list(self.probed), limits=list(self.limits), leaders=list(self.leaders))


#: Called every now and then with what would be lost.
Save = Callable[[Partial], None]


@dataclass
class SearchResult:
    """The best choices, best first, and how the search went.

    `schedules`: made to their end or given up; `proven`: tilings that the bound excludes; `complete`: whether nothing
    was left out; `steps` of work.
    """

    choices: list[Choice]
    tilings: int
    schedules: int = 0
    proven: int = 0
    complete: bool = True
    steps: int = 0
    seconds: float = 0.0


class _Tried(NamedTuple):
    """A schedule: which of its tiling, with its cost; its metric (None: it was given up); steps that it took."""

    number: int
    choice: Choice
    value: float | None
    steps: int


def bounds(space: TilingSpace, chip: ChipConfig) -> tuple[Floats, Floats]:
    """Least cycles and least words of each tiling, whatever the schedule."""
    rate = rates(chip)
    words = (space.in_words + space.wt_words + space.out_words).astype(float)
    arrays = (
        (space.cycles + space.serial * rate.link) / len(chip.cores) + space.first * rate.dram + rate.far + rate.drain
    )
    results = space.operations / space.k_tiles
    code = space.operations * rate.run_code + results * rate.store_code
    dram = (words + code) * rate.dram
    return np.maximum(arrays, dram) + rate.start + rate.end, words


class _TilingSearch:
    def __init__(  # see `search`
        self, problem: Problem, chip: ChipConfig, policy: Policy, layer: str, keep: int, on_progress: OnProgress | None,
        budget: Budget | None, before: Partial | None, save: Save | None,
    ) -> None:  # fmt: skip
        self.problem, self.chip, self.policy, self.layer, self.on_progress = problem, chip, policy, layer, on_progress
        self.keep, self.save = keep, save
        self.space = viable(problem, chip, layer)
        cycles, words = bounds(self.space, chip)
        self.bound = [policy.metric(*least) for least in zip(cycles.tolist(), words.tolist(), strict=True)]
        self.at = before.copy() if before is not None else Partial()
        self.halted, self.steps = False, None if budget is None else budget.steps
        self.reported = self.saved = time.monotonic()

    def probe(self, index: int, best: float | None) -> _Tried:
        """Plays one nest of a tiling, for the order in which tilings come. `best`: of the tilings probed before."""
        tiling = self.space.tiling(index)
        cores = min(len(self.chip.cores), -(-self.problem.n_blocks // tiling.n))
        choice = Choice(tiling, "m", shape=(len(self.chip.cores) // cores, cores))
        most = self._left(PROBING) if self.at.probed else UNLIMITED
        return self._try(0, choice, np.inf if best is None else _FAR * best, most)

    def schedule(self, index: int, limit: float | None) -> list[_Tried]:
        """Schedules every data flow of a tiling, as far as the budget goes. `limit`: what a schedule must not exceed
        to be kept, as far as tilings before have shown."""
        trials: list[_Tried] = []
        something, spent, most = bool(self.at.leaders), 0, np.inf if limit is None else limit
        tiling = self.space.tiling(index)
        for number, choice in enumerate(flows(self.problem, self.chip, self.policy, tiling)):
            left = self._left() - spent if something else UNLIMITED
            if left <= 0 or self.halted:
                break
            trials.append(one := self._try(number, choice, most, left))
            spent += one.steps
            if one.value is not None:
                something, most = True, min(most, one.value * SLACK)
        return trials

    def _try(self, number: int, choice: Choice, limit: float, most: int) -> _Tried:
        good, cycles, words, _, steps = attempt(self.problem, self.chip, choice, self.policy, limit, most=most)
        value = self.policy.metric(cycles, words) if good else None
        return _Tried(number, choice.judged(cycles, words), value, steps)

    def _left(self, share: float = 1.0) -> int:
        """Steps that (a share of) the budget may have left. Tasks that are not taken yet may use them up: whether a
        schedule was within the budget is decided when it is taken."""
        return UNLIMITED if self.steps is None else int(self.steps * share) - self.at.spent

    def _known(self, position: int) -> float | None:
        """The limit that a task knows (None: none)."""
        return self.at.limits[seen(position) - self.at.taken - 1]

    def run(self, threads: int, seconds: float | None = None) -> SearchResult:
        """The search, in so many threads. `seconds` of each one's processor: after which nothing more is begun."""
        began, spent = time.monotonic(), time.process_time()

        def late(share: float = 1.0) -> bool:
            return seconds is not None and time.process_time() - spent > seconds * threads * share

        try:
            ranks = [int(index) for index in np.argsort(np.array(self.bound), kind="stable")]
            if not self.at.ranked:
                self._probe(ranks, threads, late)
            probed = dict(self.at.probed)
            ranks.sort(key=lambda index: (probed.get(index, np.inf), self.bound[index], index))
            self._schedule(ranks, threads, late)
        except BaseException:
            self._save()
            raise
        if not self.at.leaders:
            raise DoesNotFit(
                f"{self.layer} on {self.chip.name}: no tiling leaves each region of the scratchpad room for its tiles; "
                "raise spm_words, or let the regions differ"
            )
        # What was kept while the best was worse depends on who came first.
        limit = self.at.leaders[0][0] * SLACK
        choices = [choice for value, _, _, choice in self.at.leaders if value <= limit]
        rest = [index for index in ranks[self.at.taken :] if self.bound[index] <= limit]
        proven = self.at.proven + len(ranks) - self.at.taken - len(rest)
        return SearchResult(
            choices, len(self.space), self.at.schedules, proven, not rest and not self.at.cut, self.at.spent,
            time.monotonic() - began,
        )  # fmt: skip

    def _probe(self, ranks: Sequence[int], threads: int, late: Callable[[float], bool]) -> None:
        """Probes tilings in the order of their bounds."""

        def begin(position: int) -> Callable[[], _Tried]:
            return partial(self.probe, ranks[position], self._known(position))

        def take(position: int, one: _Tried | None) -> bool:
            assert one is not None
            at = self.at.copy()
            if at.probed and one.steps > self._left(PROBING):
                return False
            at.spent += one.steps
            best = at.limits[-1]
            if one.value is not None:
                at.probed.append((ranks[position], one.value))
                best = one.value if best is None else min(best, one.value)
            self._take(at, best)
            return not (at.probed and late(PROBING))

        in_turn(self.at.taken, len(ranks), threads, begin, take, lambda: None)
        self.at = replace(self.at, ranked=True, taken=0, limits=[None])

    def _schedule(self, ranks: Sequence[int], threads: int, late: Callable[[], bool]) -> None:
        """Schedules tilings in their order."""

        def begin(position: int) -> Callable[[], list[_Tried]] | None:
            index, limit = ranks[position], self._known(position)
            if limit is not None and self.bound[index] > limit:
                return None
            return partial(self.schedule, index, limit)

        def take(position: int, tries: list[_Tried] | None) -> bool:
            at = self.at.copy()
            at.proven += tries is None
            for one in tries or ():
                if at.leaders and self.steps is not None and at.spent + one.steps > self.steps:
                    at.cut = True
                    break
                at.spent += one.steps
                at.schedules += 1
                if one.value is not None:
                    at.leaders.append((one.value, ranks[position], one.number, one.choice))
                    at.leaders.sort(key=lambda entry: entry[:3])
                    del at.leaders[self.keep :]
            if at.cut or (at.leaders and self.steps is not None and at.spent >= self.steps):
                at.cut, self.at = True, at
                return False
            self._take(at, self._limit(at))
            return not (at.leaders and late())

        if not self.at.cut:
            in_turn(self.at.taken, len(ranks), threads, begin, take, self._halt)

    def _limit(self, at: Partial) -> float | None:
        """What a schedule must not exceed to be kept: the worst of those kept, and not much more than the best."""
        if not at.leaders:
            return None
        return min(at.leaders[0][0] * SLACK, at.leaders[-1][0] if len(at.leaders) == self.keep else np.inf)

    def _take(self, at: Partial, limit: float | None) -> None:
        """One more task is taken; all at once, for an interruption may come at any time."""
        at.taken += 1
        at.limits = [*at.limits[-WINDOW:], limit]
        self.at = at
        self._tell()

    def _halt(self) -> None:
        """Whatever is under way need not be made to its end."""
        self.halted = True

    def _save(self) -> None:
        if self.save is not None and (self.at.taken or self.at.ranked):
            self.save(self.at.copy())
            self.saved = time.monotonic()

    def _tell(self) -> None:
        """Saves and tells how far the search is, every now and then."""
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self._save()
        if self.on_progress and time.monotonic() - self.reported > 0.1:
            self.reported = time.monotonic()
            best = self.at.leaders[0][3] if self.at.leaders else None
            self.on_progress(Progress(self.layer, self.at.taken, len(self.space), self.at.schedules, best))


def search(  # all but the first four have defaults and are named where they are given
    problem: Problem,
    chip: ChipConfig,
    policy: Policy,
    layer: str,
    keep: int = 8,
    budget: Budget | None = None,
    on_progress: OnProgress | None = None,
    threads: int | None = None,
    before: Partial | None = None,
    save: Save | None = None,
) -> SearchResult:
    """The `keep` best choices of a layer by the policy's metric, as far as they come near the best (`SLACK`).

    `budget`: after which no schedule is made any more (None: all are, or proven hopeless); one is made in any case.
    `before`: what an interrupted search of the same had found, as it was handed to `save`. Neither that nor the number
    of threads nor the machine decides what is found, unless the budget is one of seconds. Raises DoesNotFit.
    """
    threads = threads or len(os.sched_getaffinity(0))
    searcher = _TilingSearch(problem, chip, policy, layer, keep, on_progress, budget, before, save)
    ready(policy.kind, compiling(layer, on_progress))
    return searcher.run(threads, None if budget is None else budget.seconds)


def compiling(layer: str, on_progress: OnProgress | None) -> Heard | None:
    """Tells of what is compiled before a search."""
    if on_progress is None:
        return None
    return lambda done, total: on_progress(Progress(layer, done, total, 0, None, compiling=True))


def distinct(choices: Sequence[Choice]) -> list[Choice]:
    """Without those that cost the same to the cycle and word as one before: they are the same schedule."""
    seen: set[tuple[float, int]] = set()
    different: list[Choice] = []
    for choice in choices:
        if (choice.cycles, choice.words) not in seen:
            seen.add((choice.cycles, choice.words))
            different.append(choice)
    return different
