"""How far list scheduling is from the best of all sequences of sets, on small random layers; and how far looking ahead.

Every sequence of a tiling with up to six operations is tried (`sched/papers/flexer/exhaustive.py`), in the search's
estimate and in the timeline model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.predict import predict
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.flexer.emit import emit
from meshloom.sched.papers.flexer.exhaustive import MOST, Tried, tried
from meshloom.sched.papers.flexer.flows import flows
from meshloom.sched.papers.flexer.judge import COMPARED, Judge
from meshloom.sched.papers.flexer.playing import attempt
from meshloom.sched.papers.flexer.policy import PAPER, Choice, Policy
from meshloom.sched.papers.flexer.striping import Places
from meshloom.sched.papers.flexer.tiles import Tiles, Tiling, viable
from meshloom.sched.workload.shapes import parse

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count
from ..points.runs import chip_of

#: Cases of the full and of the quick study, and how many of them are shown as played in the timeline model; the least
#: operations that one has.
CASES, QUICK, ON_TIMELINE, LEAST = 240, 24, 200, 4
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
class Drawn:
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


def cases(count: int, seed: int = SEED) -> Iterator[Drawn]:
    """Random convolutions of `LEAST` to `exhaustive.MOST` operations."""
    random = np.random.default_rng(seed)
    while count:
        chip = chip_of(str(random.choice(CHIPS)))
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
        yield Drawn(Judge(shape, smaller, 1 << 15), tiling)
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


def cost(case: Drawn, policy: Policy) -> Cost:
    """The best data flow by the metric."""
    attempts = [attempt(case.judge.problem, case.judge.chip, choice, policy, record=True) for choice in case.choices()]
    steps = sum(one[4] for one in attempts)
    _, cycles, words, log, _ = min(attempts, key=lambda one: PAPER.metric(one[1], one[2]))
    return Cost(cycles, words, steps, log)


def played(case: Drawn, log: NDArray[np.void]) -> tuple[int, int]:
    """Cycles in the timeline model, and by the estimate that puts operations in order."""
    judge = case.judge
    places = Places(Tiles(judge.problem, case.tiling), judge.chip)
    emission = emit(judge.shape, judge.chip, places, log, judge.scale)
    order = judge.orders(emission).run(COMPARED)
    return predict(judge.schedule(emission, order, ""), judge.chip).cycles, order.cycles


def best_played(case: Drawn, all_: Tried) -> tuple[float, int] | None:
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


@dataclass(frozen=True)
class Optimum:
    """Of one case: `ratios` of the metric to the optimum's in the estimate, by width (0: list scheduling), `steps`;
    `timeline` the same there, empty if there are too many sequences; `errors` of list scheduling's cycles against the
    timeline: of the search's estimate, and of the one that orders; how many `sequences` there are, and how many were
    `played`."""

    case: str
    ratios: dict[int, float]
    steps: dict[int, int]
    sequences: int
    played: int = 0
    timeline: dict[int, float] = field(default_factory=dict[int, float])
    errors: tuple[float, float] = (0.0, 0.0)


def optimum(case: Drawn) -> Optimum:
    """One case."""
    all_ = case.tried()
    least = float(np.nanmin(all_.cycles * all_.words))
    costs = {width: cost(case, replace(PAPER, lookahead=width)) for width in (0, *WIDTHS)}
    ratios = {width: one.metric / least for width, one in costs.items()}
    steps = {width: one.steps for width, one in costs.items()}
    one = Optimum(case.name, ratios, steps, len(all_.sequences))
    if (best := best_played(case, all_)) is None:
        return one
    timeline: dict[int, float] = {}
    errors = 0.0, 0.0
    for width in (0, JUDGED):
        cycles, ordered = played(case, costs[width].log)
        timeline[width] = PAPER.metric(cycles, costs[width].words) / best[0]
        if width == 0:
            errors = costs[0].cycles / cycles - 1, ordered / cycles - 1
    return replace(one, played=best[1], timeline=timeline, errors=errors)


@cache
def _drawn() -> list[Drawn]:
    return list(islice(cases(CASES), CASES))


@dataclass(frozen=True)
class OptimumPoint(Point):
    """One of the cases, by its number."""

    number: int
    row: ClassVar[Any] = Optimum

    @property
    def name(self) -> str:
        return f"case {self.number} of {CASES}"

    @property
    def work(self) -> float:
        return 5.0

    def inputs(self) -> Inputs:
        chips = tuple((name, chip_of(name).digest) for name in CHIPS)
        return Inputs(("tb.studies.flexer.flexer_optimum",), chips)

    def measure(self, report: Report) -> Optimum:
        """Tries all of its sequences."""
        return optimum(_drawn()[self.number])


def points(full: bool) -> list[OptimumPoint]:
    """All cases, or the first of them."""
    return [OptimumPoint(number) for number in range(CASES if full else QUICK)]


def _all(rows: Rows) -> list[Optimum]:
    return list(rows.values())


def _shown(rows: Rows) -> list[Optimum]:
    """The first of those that were played."""
    return [one for one in _all(rows) if one.timeline][:ON_TIMELINE]


def _label(width: int) -> str:
    return f"lookahead={width}" if width else "list scheduling (the paper's)"


def _cells(width: int, ratios: Sequence[float], more: str) -> tuple[str, ...]:
    some = np.array(ratios)
    return _label(width), f"{some.mean():.3f}", f"{some.max():.2f}", f"{100 * (some < 1.0005).mean():.0f} %", more


_COLUMNS = "schedule", "mean>", "worst>", "at the optimum>"


def by_estimate(rows: Rows) -> Table:
    """All cases, by width."""
    some = _all(rows)
    cells = [
        _cells(width, [one.ratios[width] for one in some], count(float(np.mean([one.steps[width] for one in some]))))
        for width in (0, *WIDTHS)
        if some
    ]
    title = f"{len(some)} cases, by the search's estimate: cycles x words over the best of all sequences"
    return Table(title, (*_COLUMNS, "steps of work>"), cells)


def by_timeline(rows: Rows) -> Table:
    """Those that were played."""
    some = _shown(rows)
    cells = [_cells(width, [one.timeline[width] for one in some], str(len(some))) for width in (0, JUDGED) if some]
    title = f"{len(some)} of them in the timeline model: the same over the best sequence there"
    return Table(title, (*_COLUMNS, "cases>"), cells)


def estimates(rows: Rows) -> Table:
    """How far estimates are from the timeline."""
    labels = "of the search", "of the order (requests, movers, links, channels)"
    cells: list[tuple[str, ...]] = []
    for which, label in enumerate(labels):
        if errors := [one.errors[which] for one in _shown(rows)]:
            size, worst = np.mean(np.abs(errors)), max(errors, key=abs)
            cells.append((label, f"{100 * np.mean(errors):+.1f} %", f"{100 * size:.1f} %", f"{100 * worst:+.0f} %"))
    title = "Estimates of what list scheduling has found, against the timeline model"
    return Table(title, ("estimate", "mean error>", "mean size of it>", "worst>"), cells)


def remarks(rows: Rows) -> list[str]:
    """The worst of list scheduling, and how many sequences were played."""
    if not rows:
        return []
    worst = max(_all(rows), key=lambda one: one.ratios[0])
    played_ = sum(one.played for one in _shown(rows))
    return [
        f"List scheduling's worst: {worst.ratios[0]:.2f}, {worst.case} ({worst.sequences:,} sequences). "
        f"{played_:,} sequences were played in all."
    ]


def better(rows: Rows) -> list[str]:
    """That something is better than the best, which cannot be."""
    some = [one for one in _all(rows) if min(one.ratios.values()) < 1 - 1e-9]
    return [f"{one.case}: better than the best of all sequences" for one in some]


def _mean(width: int, timeline: bool = False) -> Callable[[Rows], float | None]:
    """Of the metric over the optimum's."""

    def value(rows: Rows) -> float | None:
        some = [one.timeline[width] for one in _shown(rows)] if timeline else [one.ratios[width] for one in _all(rows)]
        return float(np.mean(some)) if some else None

    return value


def _error(rows: Rows) -> float | None:
    some = [abs(one.errors[1]) for one in _shown(rows)]
    return 100 * float(np.mean(some)) if some else None


STUDY = Study(
    name="flexer_optimum",
    title="Flexer beside every sequence",
    question="How far are list scheduling's sequences from the best of all, and how far does looking ahead get?",
    answer="List scheduling is {{ listed }} times the optimum in the mean, {{ worst }} at worst; looking ahead "
    "{{ ahead }}.",
    about=prose(__file__),
    points=points,
    tables=(by_estimate, by_timeline, estimates),
    figures=(
        Figure("listed", "list scheduling over the optimum, mean, estimate", _mean(0)),
        Figure(
            "worst",
            "list scheduling over the optimum, worst, estimate",
            lambda rows: max((one.ratios[0] for one in _all(rows)), default=None),
            "{:.2f}",
        ),
        Figure("ahead", f"lookahead={JUDGED} over the optimum, mean, estimate", _mean(JUDGED), bar=Bar("at most", BAR)),
        Figure(
            "ahead_played",
            f"lookahead={JUDGED} over the optimum, mean, timeline",
            _mean(JUDGED, timeline=True),
            bar=Bar("at most", BAR),
        ),
        Figure("order", "error of the order's estimate, mean", _error, "{:.1f} %", Bar("at most", 100 * ERROR)),
    ),
    checks=better,
    remarks=remarks,
    paper="flexer",
)
