"""Algorithm 1: every tiling and data flow is scheduled, and the best by the metric are kept.

Nothing is left out without a proof: a tiling whose lower bound exceeds the worst that is kept is not begun, and a
schedule is given up as soon as it must end above that. The bound is what the arrays need for all products, and what
DRAM needs to move every tile once. Good schedules should come early, so one quick nest of each tiling is played first,
and tilings come in the order of what that costs. What is kept is the same in whatever order the threads come to it.
Source: Min, Kwon, Egger, "Flexer" (CGO 2023), Algorithm 1 and section 5 (metric).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import ChipConfig
from meshloom.sched.loop_order.problem import Problem

from .listing import make
from .memory import FUTURE
from .nests import nest, of_log, replay
from .policy import Choice, Policy
from .sets import scratch
from .state import (
    CORES,
    DRAIN,
    DRAM,
    END,
    FAR,
    LOGGED,
    ORDERS,
    RUN_CODE,
    START,
    STORE_CODE,
    SUM_SLOTS,
    K,
    M,
    N,
    Order,
    begin,
    rates,
)  # fmt: skip
from .static import divisions, regions, unroll
from .tiles import Space, Tiles, Tiling, viable

Floats = NDArray[np.float64]
#: Seconds between two savings of what an interrupted search would lose.
SAVE_SECONDS = 5.0
#: Kept is what is at most so many times as bad as the best: the estimate sees no requests and no queues of single
#: moves, so what it ranks first is often not what the chip ends first.
SLACK = 1.3
#: Share of a budget after which no tiling is probed.
PROBING = 0.3
_LOOPS = {"m": 0, "n": 1, "k": 2}
#: How much worse than the best a nest may become that is played for the order of the tilings.
_FAR = 8.0


@dataclass(frozen=True)
class Progress:
    """How far a search is: tilings probed, or scheduled or proven hopeless; schedules made, and the best so far."""

    layer: str
    done: int
    total: int
    schedules: int
    best: Choice | None


Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Partial:
    """An interrupted search: tilings that are done, and (metric, tiling, number, choice) of what is kept."""

    done: list[int]
    kept: list[tuple[float, int, int, Choice]]
    schedules: int


#: Called every now and then with what would be lost.
Save = Callable[[Partial], None]


@dataclass
class Found:
    """The best choices, best first, and how the search went.

    `schedules`: made to their end or given up; `proven`: tilings that the bound excludes; `complete`: whether nothing
    was left out.
    """

    choices: list[Choice]
    tilings: int
    schedules: int = 0
    proven: int = 0
    complete: bool = True
    seconds: float = 0.0
    kept: list[tuple[float, int, int, Choice]] = field(default_factory=list, repr=False)


def bounds(space: Space, chip: ChipConfig) -> tuple[Floats, Floats]:
    """Least cycles and least words of each tiling, whatever the schedule."""
    rate = rates(chip)
    words = (space.in_words + space.wt_words + space.out_words).astype(float)
    arrays = space.cycles / len(chip.cores) + space.first * rate[DRAM] + rate[FAR] + rate[DRAIN]
    results = space.operations / space.k_tiles
    code = space.operations * rate[RUN_CODE] + results * rate[STORE_CODE]
    dram = (words + code) * rate[DRAM]
    return np.maximum(arrays, dram) + rate[START] + rate[END], words


def play(
    problem: Problem, chip: ChipConfig, choice: Choice, policy: Policy, limit: float = np.inf, record: bool = False
) -> tuple[bool, float, int, NDArray[np.int64]]:
    """Makes the schedule of a choice: (finished, cycles, words moved, log)."""
    tiles = Tiles(problem, choice.tiling)
    order = Order(choice.loops if len(choice.loops) == 3 else "mnk")
    start = begin(tiles, chip, order, policy.home)
    arrays = start.work
    weights = np.array([policy.by_cycles, policy.by_words])
    room = scratch(start)
    if choice.shape is not None:
        order_ = nest(arrays.dims, *choice.shape, choice.loops == "m", choice.group)
        state = start.fresh()
        done = replay(arrays, state, room, order_, FUTURE, weights, limit, record)
    elif choice.slots is not None:
        state = regions(start, choice.slots)
        loops = np.array([_LOOPS[loop] for loop in choice.loops])
        done = unroll(arrays, state, loops, np.array(choice.slots), weights, limit, record)
    else:
        state = start.fresh()
        late = np.inf if policy.again else limit
        done = make(
            arrays, state, room, policy.pruning, policy.priority, policy.memory, weights, late,
            record or policy.again,
        )  # fmt: skip
        if policy.again:
            order_ = of_log(arrays.dims, done[3][: state.totals[LOGGED]])
            state = start.fresh()
            done = replay(arrays, state, room, order_, FUTURE, weights, limit, record)
    good, cycles, words, log = done
    return good, cycles, int(words), log[: state.totals[LOGGED]]


class _Search:
    def __init__(
        self, problem: Problem, chip: ChipConfig, policy: Policy, layer: str, keep: int, tell: Tell | None,
        before: Partial | None, save: Save | None,
    ) -> None:  # fmt: skip
        self.problem, self.chip, self.policy, self.layer, self.tell = problem, chip, policy, layer, tell
        self.keep, self.save = keep, save
        self.space = viable(problem, chip, layer)
        cycles, words = bounds(self.space, chip)
        self.bound = cycles**policy.by_cycles * words**policy.by_words
        self.found = Found([], len(self.space))
        self.done: set[int] = set()
        if before is not None:
            self.done |= set(before.done)
            self.found.kept, self.found.schedules = list(before.kept), before.schedules
        self.lock = threading.Lock()
        self.probed = np.full(len(self.space), np.inf)
        self.told = self.saved = time.monotonic()

    @property
    def limit(self) -> float:
        """What a schedule must not exceed to be kept: the worst of those kept, and not much more than the best."""
        kept = self.found.kept
        if not kept:
            return np.inf
        return min(kept[0][0] * SLACK, kept[-1][0] if len(kept) == self.keep else np.inf)

    def choices(self, tiling: Tiling) -> Iterator[Choice]:
        """All data flows of a tiling; of the baseline, with all divisions of the scratchpad."""
        if self.policy.kind == "nest":
            yield from self.nests(tiling)
            return
        tiles = Tiles(self.problem, tiling)
        long = {loop for loop, size in zip("mnk", tiles.shape, strict=True) if size > 1}
        seen: set[str] = set()
        for order in ORDERS:  # a loop of one step is nowhere
            same = "".join(loop for loop in order.loops if loop in long)
            if self.policy.static:
                same += [loop for loop in order.loops if loop != "k"][-1]  # but the one that is unrolled
            if same in seen:
                continue
            seen.add(same)
            if not self.policy.static:
                yield Choice(tiling, order.loops)
                continue
            for slots in divisions(begin(tiles, self.chip, order), order):
                yield Choice(tiling, order.loops, slots)

    def nests(self, tiling: Tiling) -> Iterator[Choice]:
        """All nests of rectangles of a tiling."""
        dims = begin(Tiles(self.problem, tiling), self.chip, ORDERS[0], True).work.dims
        m, n, k, cores, slots = (int(dims[index]) for index in (M, N, K, CORES, SUM_SLOTS))
        shapes = {(min(tall, m), min(cores // tall, n)) for tall in range(1, cores + 1)}
        shapes |= {(min(cores // wide, m), wide) for _, wide in shapes}
        widest = max(tall * wide for tall, wide in shapes)
        for tall, wide in sorted(shape for shape in shapes if 2 * shape[0] * shape[1] > widest):
            for loops, inner in (("m", -(-n // wide)), ("n", -(-m // tall))):
                for group in sorted({1, min(2, slots, inner), min(slots, inner)}) if k > 1 else (1,):
                    yield Choice(tiling, loops, shape=(tall, wide), group=group)

    def probe(self, index: int) -> None:
        """Plays one nest of a tiling, for the order in which tilings come."""
        tiling = self.space.tiling(index)
        cores = min(len(self.chip.cores), -(-self.problem.n_blocks // tiling.n))
        choice = Choice(tiling, "m", shape=(len(self.chip.cores) // cores, cores))
        limit = _FAR * float(self.probed.min())
        good, cycles, words, _ = play(self.problem, self.chip, choice, self.policy, limit)
        if good:
            self.probed[index] = self.policy.metric(cycles, words)

    def schedule(self, index: int) -> None:
        """Schedules every data flow of a tiling."""
        for number, choice in enumerate(self.choices(self.space.tiling(index))):
            good, cycles, words, _ = play(self.problem, self.chip, choice, self.policy, self.limit)
            with self.lock:
                self.found.schedules += 1
                if good:
                    value = self.policy.metric(cycles, words)
                    kept = self.found.kept
                    kept.append((value, index, number, choice.judged(cycles, words)))
                    kept.sort(key=lambda entry: entry[:3])
                    del kept[self.keep :]
        with self.lock:
            self.done.add(index)

    def _save(self) -> None:
        if self.save is not None and self.done:
            with self.lock:
                partial = Partial(sorted(self.done), list(self.found.kept), self.found.schedules)
            self.save(partial)
            self.saved = time.monotonic()

    def run(self, budget: float | None, threads: int) -> Found:
        for choice in islice(self.choices(self.space.tiling(0)), 1):  # compiles, which is no part of the budget
            play(self.problem, self.chip, choice, self.policy, 0.0)
        self.probe(0)
        began, spent = time.monotonic(), time.process_time()

        def late(share: float = 1.0) -> bool:
            # By the processor's time: what else runs on the machine must not decide what is found.
            return budget is not None and time.process_time() - spent > budget * threads * share

        with ThreadPoolExecutor(threads) as pool:
            ranks = [int(index) for index in np.argsort(self.bound, kind="stable")]
            self._each(
                pool, threads, ranks, self.probe, lambda index: late(PROBING) and bool(np.isfinite(self.probed).any())
            )
            ranks.sort(key=lambda index: (self.probed[index], self.bound[index], index))

            def skipped(index: int) -> bool:
                if index in self.done:
                    return True
                if self.bound[index] > self.limit:
                    self.found.proven += 1
                    return True
                if late() and self.found.kept:
                    self.found.complete = False
                    return True
                return False

            self._each(pool, threads, ranks, self.schedule, skipped)
        # What was kept while the best was worse depends on who came first.
        limit = self.found.kept[0][0] * SLACK
        self.found.choices = [choice for value, _, _, choice in self.found.kept if value <= limit]
        self.found.seconds = time.monotonic() - began
        return self.found

    def _each(
        self,
        pool: ThreadPoolExecutor,
        threads: int,
        ranks: Sequence[int],
        task: Callable[[int], None],
        skipped: Callable[[int], bool],
    ) -> None:
        """Does a task for all tilings but those to skip, a few at a time."""
        pending: set[Future[None]] = set()
        try:
            for done, index in enumerate(ranks):
                if skipped(index):
                    continue
                pending.add(pool.submit(task, index))
                if len(pending) >= 2 * threads:
                    ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                    self._finish(ready, done)
            while pending:
                ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                self._finish(ready, len(ranks) - len(pending))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            self._save()
            raise

    def _finish(self, done: set[Future[None]], count: int) -> None:
        """Takes tasks that are done, and tells how far the search is."""
        for future in done:
            future.result()
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self._save()
        if self.tell and time.monotonic() - self.told > 0.1:
            self.told = time.monotonic()
            kept = self.found.kept
            best = kept[0][3] if kept else None
            self.tell(Progress(self.layer, count, len(self.space), self.found.schedules, best))


def search(
    problem: Problem,
    chip: ChipConfig,
    policy: Policy,
    layer: str,
    keep: int = 8,
    budget: float | None = None,
    tell: Tell | None = None,
    threads: int | None = None,
    before: Partial | None = None,
    save: Save | None = None,
) -> Found:
    """The `keep` best choices of a layer by the policy's metric, as far as they come near the best (`SLACK`).
    `budget`: seconds of each thread after which no tiling is begun.

    `before`: what an interrupted search had found, as it was handed to `save`. Without a budget the result depends
    neither on that nor on the number of threads. Raises DoesNotFit.
    """
    threads = threads or len(os.sched_getaffinity(0))
    return _Search(problem, chip, policy, layer, keep, tell, before, save).run(budget, threads)


def distinct(choices: Sequence[Choice]) -> list[Choice]:
    """Without those that cost the same to the cycle and word as one before: they are the same schedule."""
    seen: set[tuple[float, int]] = set()
    found = []
    for choice in choices:
        if (choice.cycles, choice.words) not in seen:
            seen.add((choice.cycles, choice.words))
            found.append(choice)
    return found
