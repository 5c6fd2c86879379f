"""How far list scheduling is from the best of all sequences of sets, on small random layers; and how far looking ahead.

Every sequence of a tiling with up to six operations is tried (`sched/papers/flexer/exhaustive.py`), in the search's
estimate and in the timeline model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.lowering.predict import predict
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.flexer.emit import emit
from meshloom.sched.papers.flexer.exhaustive import MOST, POLICIES, Tried, tried
from meshloom.sched.papers.flexer.flows import flows
from meshloom.sched.papers.flexer.judge import COMPARED, Judge
from meshloom.sched.papers.flexer.playing import attempt
from meshloom.sched.papers.flexer.policy import PAPER, Choice, Policy
from meshloom.sched.papers.flexer.striping import Places
from meshloom.sched.papers.flexer.tiles import Tiles, Tiling, viable
from meshloom.sched.workload.shapes import parse

from ..results.events import OnEvent, Stage
from .results import Result, Sheet

#: Cases, and of them those that are played in the timeline model as well; the least operations that one has.
CASES, ON_TIMELINE, LEAST = 240, 200, 4
#: A case is played in the timeline model if no more of its sequences differ in cycles or words by the estimate.
PLAYED = 150
CHIPS = ("tiny", "quad8", "arch1", "arch5")
#: Partial schedules that look-ahead keeps side by side.
WIDTHS = (1, 4, 8, 16, 32)
#: The one that is held to the bar, and the bar: the mean of its metric over the optimum's.
JUDGED, BAR = 16, 1.05
#: How far the estimate that orders operations, and so decides between choices, may be from the timeline in the mean.
ERROR = 0.05
SEED = 19


@dataclass(frozen=True)
class Case:
    """A layer on a chip whose scratchpad holds one operation at least, and seldom everything; one of its tilings."""

    judge: Judge
    tiling: Tiling

    @property
    def name(self) -> str:
        return f"{self.judge.shape.name} on {self.judge.chip.name}, {self.judge.chip.spm_words} rows, as {self.tiling}"

    def choices(self) -> list[Choice]:
        """All data flows of the tiling."""
        return list(flows(self.judge.problem, self.judge.chip, PAPER, self.tiling))

    def tried(self) -> Tried:
        """All sequences of it."""
        return tried(self.judge.problem, self.judge.chip, self.tiling, PAPER)


def cases(count: int, seed: int = SEED) -> Iterator[Case]:
    """Random convolutions of `LEAST` to `exhaustive.MOST` operations."""
    random = np.random.default_rng(seed)
    while count:
        chip = load(str(random.choice(CHIPS)))
        size, kernel = int(random.integers(6, 29)), int(random.choice([1, 3]))
        inputs, outputs = (int(blocks) * chip.lanes for blocks in random.integers(1, 5, 2))
        shape = parse(f"conv:{size}x{size}x{inputs}-{outputs},k{kernel},p{kernel // 2}")
        operations = int(random.integers(LEAST, MOST + 1))
        try:
            judge = Judge(shape, chip, 1 << 15)
            space = viable(judge.problem, chip, shape.name)
        except DoesNotFit:
            continue
        some = np.flatnonzero((space.operations == operations) & (space.k_tiles < operations))
        if not len(some):
            continue
        tiling = space.tiling(int(random.choice(some)))
        parts = Tiles(judge.problem, tiling).heights(len(chip.spms))
        one, all_ = sum(int(part.max()) for part in parts), sum(int(part.sum()) for part in parts)
        rows = max(8, int(random.integers(one, min(all_, 2 * one) + 1)))
        smaller = ChipConfig.model_validate(chip.model_dump() | {"spm_words": rows})
        yield Case(Judge(shape, smaller, 1 << 15), tiling)
        count -= 1


@dataclass(frozen=True)
class Cost:
    """Cycles by the search's estimate, words, and the steps of work of finding out; the log of it."""

    cycles: float
    words: int
    steps: int
    log: NDArray[np.void]

    @property
    def metric(self) -> float:
        return PAPER.metric(self.cycles, self.words)


def cost(case: Case, policy: Policy) -> Cost:
    """The best data flow by the metric."""
    found = [attempt(case.judge.problem, case.judge.chip, choice, policy, record=True) for choice in case.choices()]
    steps = sum(one[4] for one in found)
    _, cycles, words, log, _ = min(found, key=lambda one: PAPER.metric(one[1], one[2]))
    return Cost(cycles, words, steps, log)


def played(case: Case, log: NDArray[np.void]) -> tuple[int, int]:
    """Cycles in the timeline model, and by the estimate that puts operations in order."""
    judge = case.judge
    places = Places(Tiles(judge.problem, case.tiling), judge.chip)
    made = emit(judge.shape, judge.chip, places, log, judge.scale)
    order = judge.orders(made).run(COMPARED)
    return predict(judge.schedule(made, order, ""), judge.chip).cycles, order.cycles


def best_played(case: Case, all_: Tried) -> tuple[float, int] | None:
    """The least metric of all sequences in the timeline model, and how many were played: one of those that cost the
    same to the cycle and word by the estimate. None if they are more than `PLAYED`."""
    different: dict[tuple[float, float], tuple[int, int]] = {}
    for number, which in np.argwhere(np.isfinite(all_.cycles)):
        different.setdefault(
            (float(all_.cycles[number, which]), float(all_.words[number, which])), (int(number), int(which))
        )
    if len(different) > PLAYED:
        return None
    metrics = [PAPER.metric(played(case, all_.log(*at))[0], words) for (_, words), at in different.items()]
    return min(metrics), len(different)


@dataclass
class Measured:
    """Of one case: `ratios` of the metric to the optimum's in the estimate, by width (0: list scheduling), `steps`;
    `timeline` the same there; `errors` of list scheduling's cycles against the timeline: of the search's estimate, and
    of the one that orders; how many `sequences` there are, and how many were `played`."""

    name: str
    ratios: dict[int, float]
    steps: dict[int, int]
    sequences: int
    played: int = 0
    timeline: dict[int, float] = field(default_factory=dict[int, float])
    errors: tuple[float, float] = (0.0, 0.0)


def measured(case: Case, on_timeline: bool) -> Measured:
    """One case."""
    all_ = case.tried()
    least = float(np.nanmin(all_.cycles * all_.words))
    found = {width: cost(case, replace(PAPER, lookahead=width)) for width in (0, *WIDTHS)}
    ratios = {width: one.metric / least for width, one in found.items()}
    steps = {width: one.steps for width, one in found.items()}
    one = Measured(case.name, ratios, steps, len(all_.sequences))
    if not on_timeline or (best := best_played(case, all_)) is None:
        return one
    one.played = best[1]
    for width in (0, JUDGED):
        cycles, ordered = played(case, found[width].log)
        one.timeline[width] = PAPER.metric(cycles, found[width].words) / best[0]
        if width == 0:
            one.errors = found[0].cycles / cycles - 1, ordered / cycles - 1
    return one


def _row(label: str, ratios: Sequence[float], more: str) -> tuple[str, ...]:
    some = np.array(ratios)
    return (label, f"{some.mean():.3f}", f"{some.max():.2f}", f"{100 * (some < 1.0005).mean():.0f} %", more)


def _label(width: int) -> str:
    return f"lookahead={width}" if width else "list scheduling (the paper's)"


def sheets(found: Sequence[Measured]) -> tuple[Sheet, ...]:
    """The tables."""
    shown = [one for one in found if one.timeline]
    columns = ("", "mean>", "worst>", "at the optimum>")
    estimate = [
        _row(
            _label(width), [one.ratios[width] for one in found], f"{np.mean([one.steps[width] for one in found]):,.0f}"
        )
        for width in (0, *WIDTHS)
    ]
    timeline = [_row(_label(w), [one.timeline[w] for one in shown], f"{len(shown)}") for w in (0, JUDGED)]
    errors = [
        (
            label,
            f"{100 * np.mean([one.errors[which] for one in shown]):+.1f} %",
            f"{100 * np.mean([abs(one.errors[which]) for one in shown]):.1f} %",
            f"{100 * max((one.errors[which] for one in shown), key=abs):+.0f} %",
        )
        for which, label in enumerate(("of the search", "of the order (requests, movers, links, channels)"))
    ]
    return (
        Sheet(f"{len(found)} cases, by the search's estimate: cycles x words over the best of all sequences",
              (*columns, "steps of work>"), estimate),
        Sheet(f"{len(shown)} of them in the timeline model: the same over the best sequence there",
              (*columns, "cases>"), timeline),
        Sheet("Estimates of what list scheduling has found, against the timeline model",
              ("estimate", "mean error>", "mean size of it>", "worst>"), errors),
    )  # fmt: skip


def run(on_progress: OnEvent) -> Result:
    """All cases."""
    found: list[Measured] = []
    for number, case in enumerate(cases(CASES)):
        on_progress(Stage(workload=case.name, what=f"case {number + 1} of {CASES}"))
        found.append(measured(case, sum(bool(one.timeline) for one in found) < ON_TIMELINE))
    ahead = [one.ratios[JUDGED] for one in found]
    shown = [one for one in found if one.timeline]
    played_ = [one.timeline[JUDGED] for one in shown]
    failures = [
        f"look-ahead {JUDGED} {where}: {np.mean(some):.3f} times the optimum in the mean, the bar is {BAR}"
        for where, some in (("by the estimate", ahead), ("in the timeline model", played_))
        if np.mean(some) > BAR
    ]
    if (error := float(np.mean([abs(one.errors[1]) for one in shown]))) > ERROR:
        failures.append(f"the order's estimate is {100 * error:.1f} % off in the mean")
    if min(min(one.ratios.values()) for one in found) < 1 - 1e-9:
        failures.append("something is better than the best of all sequences")
    worst = max(found, key=lambda one: one.ratios[0])
    return Result(
        "flexer_optimum",
        "Flexer beside every sequence",
        f"Random convolutions on {', '.join(CHIPS)}, tiled into {LEAST} to {MOST} operations, with scratchpads that "
        "hold one operation to two; the best data flow of the one tiling counts. The optimum: all sequences of sets of "
        f"operations that are ready, in all orders, under {len(POLICIES)} memory policies "
        f"(`sched/papers/flexer/exhaustive.py`). Bars: lookahead={JUDGED} at most {BAR} times the optimum in the "
        "mean, in the estimate and in the timeline model; the order's estimate within "
        f"{100 * ERROR:.0f} % in the mean.",
        sheets(found),
        (
            f"List scheduling's worst: {worst.ratios[0]:.2f}, {worst.name} ({worst.sequences:,} sequences). It always "
            "takes a set of the largest size, which may force tiles out that the next set needs.",
            f"In the timeline model, one of the sequences that cost the same to the cycle and word by the estimate was "
            f"played, {sum(one.played for one in shown):,} in all; cases with more than {PLAYED} such costs were left "
            f"out. Operations are put in order {COMPARED[0]} and {COMPARED[1]} sets ahead in all of them.",
        ),
        tuple(failures),
    )
