"""How the search of out-of-order schedules fares: figure 12 of the Flexer paper, what ours adds, what de-duplication
costs, and the time of it all.

H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.mapping.tiling.problem import Problem, pose
from meshloom.sched.papers.flexer.playing import play
from meshloom.sched.papers.flexer.policy import PAPER, Choice, Policy
from meshloom.sched.papers.flexer.ready import KINDS, ready
from meshloom.sched.papers.flexer.search import bounds, search
from meshloom.sched.papers.flexer.tiles import Tiles, viable
from meshloom.sched.schedulers.budget import Budget

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, ratio, table
from ..points.runs import chip_of
from .layers import BUDGET, first_names, layers_of, same, search_of, shape_of
from .plots import draw_policies

#: Seconds in which all tilings and data flows of ResNet-50 are to be searched, with two CPUs, and where.
SEARCH_BAR, SEARCHED = 300.0, "arch5"
#: Architectures of the comparisons.
ARCHS = ("arch1", "arch5")
THE_PAPERS = "the paper's"
#: Table 2's priorities and memory policies beside the paper's own.
TABLE_2 = {
    THE_PAPERS: PAPER,
    "min transfer": Policy(priority=1),
    "min spilling": Policy(priority=2),
    "first-fit spill": Policy(memory=1),
    "small spill": Policy(memory=2),
}
#: What we add, one after the other.
ADDED = {
    THE_PAPERS: PAPER,
    "+ known future": Policy(again=True),
    "+ sums stay in their cores": Policy(home=True, again=True),
    "+ min transfer": Policy(priority=1, home=True, again=True),
    "+ beam": Policy(priority=1, pruning=3, home=True, again=True),
    "nests, known future, sums in cores": Policy("nest", home=True),
}
#: Layers of the ablation: compute-bound and memory-bound, large and small maps.
LAYERS = (
    "resnet50/conv3_1_1",
    "squeezenet/fire4_expand3",
    "vgg16/conv4_2",
    "vgg16/conv3_1",
    "resnet50/conv2_1_2",
    "resnet50/conv4_1_3",
    "resnet50/conv5_1_1",
    "yolov2/conv5_3",
)
#: Layers of what ours adds and of exhaustive enumeration, which takes long.
ADDED_LAYERS = ("resnet50/conv3_1_1", "squeezenet/fire4_expand3", "resnet50/conv2_1_2", "resnet50/conv4_1_3")
#: Layers of each comparison in the quick study.
QUICK = 1
#: What each search of a comparison may do: twice as much as one for a table.
COMPARED = Budget(steps=200_000_000)
#: De-duplication is compared with exhaustive enumeration where there are at most so many ready operations, and
#: operations, by the number of cores.
READY, OPERATIONS = {2: 48, 4: 16}, 160
#: Tilings of each layer, and loop nests, of that comparison.
SAMPLE, NESTS = 6, ("mnk", "nkm")
PRUNINGS = ("every", "pruned", "levels")


def _inputs(arch: str, what: object) -> Inputs:
    return Inputs(("tb.studies.flexer.flexer_policies",), (("chip", chip_of(arch).digest), ("what", repr(what))))


@dataclass(frozen=True)
class SearchTime:
    """A search of all tilings and data flows of all layers of a network, to its end, in wall-clock and CPU-seconds.

    `complete`: nothing was left out without a proof; `hurried`: what a search with BUDGET comes to instead, by the
    metric, for each layer: the end's is 1.
    """

    layers: int
    tilings: int
    proven: int
    schedules: int
    complete: bool
    wall_seconds: float
    cpu_seconds: float
    hurried: tuple[float, ...]


@dataclass(frozen=True)
class SearchPoint(Point):
    """A network's layers with the paper's policy; what was searched before is not used."""

    arch: str
    network: str
    row: ClassVar[Any] = SearchTime
    alone: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"the search of {self.network} on {self.arch}"

    @property
    def work(self) -> float:
        return 400.0

    def inputs(self) -> Inputs:
        return _inputs(self.arch, BUDGET)

    def measure(self, report: Report) -> SearchTime:
        chip = chip_of(self.arch)
        names = dict.fromkeys(first_names()[same(shape_of(layer))] for layer in layers_of(self.network))
        shapes = [shape_of(name) for name in names]
        compile_searches(report)
        wall, cpu = time.monotonic(), time.process_time()
        ends = [search(pose(shape, chip), chip, PAPER, shape.name, keep=1) for shape in shapes]
        seconds = time.monotonic() - wall, time.process_time() - cpu
        hurried: list[float] = []
        for shape, end in zip(shapes, ends, strict=True):
            some = search_of(shape, chip).choices(PAPER), end.choices
            least, best = (min(PAPER.metric(one.cycles, one.words) for one in each) for each in some)
            hurried.append(least / best)
        tilings, proven, schedules = (
            sum(getattr(end, field) for end in ends) for field in ("tilings", "proven", "schedules")
        )
        complete = all(end.complete for end in ends)
        return SearchTime(len(shapes), tilings, proven, schedules, complete, *seconds, tuple(hurried))


def compile_searches(report: Report) -> None:
    """Has the searches compiled, once for all processes, unless that has been done."""
    for kind in KINDS:
        ready(kind, lambda done, total: report(f"compiling, once: {done} of {total}"))


@dataclass(frozen=True)
class ChoicePoint(Point):
    """A layer by a policy, with COMPARED steps; (cycles, words) by the search's estimate."""

    arch: str
    layer: str
    policy: Policy
    row: ClassVar[Any] = tuple[float, float]

    @property
    def name(self) -> str:
        return f"{self.layer} on {self.arch} by {self.policy}"

    @property
    def work(self) -> float:
        return 5.0

    def inputs(self) -> Inputs:
        return _inputs(self.arch, COMPARED)

    def measure(self, report: Report) -> tuple[float, float]:
        choices = search_of(shape_of(self.layer), chip_of(self.arch), COMPARED).choices(self.policy)
        leader = min(choices, key=lambda choice: PAPER.metric(choice.cycles, choice.words))
        return leader.cycles, leader.words


@dataclass(frozen=True)
class Duplicates:
    """Of each small tiling and loop nest of a layer, by pruning: the metric, and CPU-seconds."""

    metric: dict[str, tuple[float, ...]]
    seconds: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class DuplicatePoint(Point):
    """Schedules of a layer that look at all sets, beside those that look at one of each data flow."""

    arch: str
    layer: str
    row: ClassVar[Any] = Duplicates

    @property
    def name(self) -> str:
        return f"de-duplication of {self.layer} on {self.arch}"

    @property
    def work(self) -> float:
        return 30.0

    def inputs(self) -> Inputs:
        return _inputs(self.arch, (READY, OPERATIONS, SAMPLE, NESTS))

    def measure(self, report: Report) -> Duplicates:
        chip = chip_of(self.arch)
        problem = pose(shape_of(self.layer), chip)
        metric: dict[str, list[float]] = {pruning: [] for pruning in PRUNINGS}
        seconds: dict[str, list[float]] = {pruning: [] for pruning in PRUNINGS}
        for choice in small(choices_of(self.layer, chip), problem, chip):
            for number, pruning in enumerate(PRUNINGS):
                begin = time.process_time()
                _, cycles, words, _ = play(problem, chip, choice, Policy(pruning=number))
                metric[pruning].append(PAPER.metric(cycles, words))
                seconds[pruning].append(time.process_time() - begin)
        return Duplicates(
            {pruning: tuple(values) for pruning, values in metric.items()},
            {pruning: tuple(values) for pruning, values in seconds.items()},
        )


def choices_of(layer: str, chip: ChipConfig) -> Iterator[Choice]:
    """Tilings of a layer by their bound, with the nests of the comparison."""
    space = viable(pose(shape_of(layer), chip), chip, layer)
    cycles, words = bounds(space, chip)
    for index in np.argsort(cycles * words, kind="stable"):
        for loops in NESTS:
            yield Choice(space.tiling(int(index)), loops)


def small(choices: Iterator[Choice], problem: Problem, chip: ChipConfig) -> Iterator[Choice]:
    """The first of them that are small enough to enumerate, and large enough to matter."""
    taken = 0
    for choice in choices:
        m, n, k = Tiles(problem, choice.tiling).shape
        if 2 * len(chip.cores) <= m * n <= READY[len(chip.cores)] and m * n * k <= OPERATIONS:
            yield choice
            taken += 1
            if taken == SAMPLE * len(NESTS):
                return


def points(full: bool) -> Sequence[Point]:
    """Quick: SqueezeNet's search and the first layers of each comparison."""
    most = None if full else QUICK
    searched = SearchPoint(SEARCHED, "resnet50" if full else "squeezenet")
    table_2 = [ChoicePoint(arch, layer, p) for arch in ARCHS for layer in LAYERS[:most] for p in TABLE_2.values()]
    added = [ChoicePoint(ARCHS[1], layer, policy) for layer in ADDED_LAYERS[:most] for policy in ADDED.values()]
    copies = [DuplicatePoint(arch, layer) for arch in ARCHS for layer in ADDED_LAYERS[:most]]
    return [searched, *table_2, *added, *copies]


_Search = tuple[SearchPoint, SearchTime]


def _searches(rows: Rows) -> list[_Search]:
    return [(point, row) for point, row in rows.items() if isinstance(point, SearchPoint)]


def times(rows: Rows) -> Table:
    """What the whole search takes."""
    columns: dict[str, Callable[[_Search], str]] = {
        "network": lambda pair: f"{pair[0].network} on {pair[0].arch}, {pair[1].layers} different layers",
        "tilings>": lambda pair: count(pair[1].tilings),
        "excluded by their bound>": lambda pair: count(pair[1].proven),
        "schedules made or given up>": lambda pair: count(pair[1].schedules),
        "seconds>": lambda pair: count(pair[1].wall_seconds),
        "CPU-seconds>": lambda pair: count(pair[1].cpu_seconds),
        f"metric after {BUDGET} steps of each, mean>": lambda pair: ratio(
            mean_ratio((x, 1.0) for x in pair[1].hurried)
        ),
        "worst>": lambda pair: ratio(max(pair[1].hurried)),
    }
    return table("Search of all tilings and data flows with the paper's policy", columns, _searches(rows))


#: (cycles, words) of a policy and of the paper's, for each layer.
_Pairs = list[tuple[tuple[float, float], tuple[float, float]]]


def _pairs(rows: Rows, arch: str, policy: Policy, layers: Sequence[str]) -> _Pairs:
    both = [(ChoicePoint(arch, layer, policy), ChoicePoint(arch, layer, PAPER)) for layer in layers]
    return [(rows[mine], rows[papers]) for mine, papers in both if mine in rows and papers in rows]


def _metrics(pairs: _Pairs) -> list[tuple[float, float]]:
    return [(PAPER.metric(*mine), PAPER.metric(*papers)) for mine, papers in pairs]


def table_2(rows: Rows) -> Table:
    """Figure 12: priorities and memory policies of Table 2."""

    def cell(name: str, arch: str, worst: bool) -> str:
        metrics = _metrics(_pairs(rows, arch, TABLE_2[name], LAYERS))
        value = max((mine / papers for mine, papers in metrics), default=None) if worst else mean_ratio(metrics)
        return ratio(value, digits=2 if worst else 3)

    columns: dict[str, Callable[[str], str]] = {"policy": lambda name: name}
    for arch in ARCHS:
        columns[f"{arch}, mean>"] = lambda name, arch=arch: cell(name, arch, False)
        columns[f"{arch}, worst>"] = lambda name, arch=arch: cell(name, arch, True)
    some = [name for name, policy in TABLE_2.items() if any(_pairs(rows, arch, policy, LAYERS) for arch in ARCHS)]
    return table("Priorities and memory policies (Figure 12): cycles x words against the paper's", columns, some)


def added(rows: Rows) -> Table:
    """What ours adds, with equal work of searching."""

    def cell(name: str, value: Callable[[tuple[float, float]], float]) -> str:
        pairs = _pairs(rows, ARCHS[1], ADDED[name], ADDED_LAYERS)
        return ratio(mean_ratio((value(mine), value(papers)) for mine, papers in pairs))

    columns: dict[str, Callable[[str], str]] = {
        "policy": lambda name: name,
        f"{ARCHS[1]}: cycles>": lambda name: cell(name, lambda pair: pair[0]),
        "words>": lambda name: cell(name, lambda pair: pair[1]),
        "product>": lambda name: cell(name, lambda pair: pair[0] * pair[1]),
    }
    some = [name for name, policy in ADDED.items() if _pairs(rows, ARCHS[1], policy, ADDED_LAYERS)]
    title = "What ours adds, each with the same work of searching, against the paper's heuristics"
    return table(title, columns, some)


class _Pruned:
    """What looking at fewer sets costs on an architecture."""

    def __init__(self, rows: Rows, arch: str, pruning: str) -> None:
        some = [row for point, row in rows.items() if isinstance(point, DuplicatePoint) and point.arch == arch]
        self.arch, self.pruning = arch, pruning
        self.pairs = [pair for row in some for pair in zip(row.metric[pruning], row.metric["every"], strict=True)]
        self.ratios = [mine / every for mine, every in self.pairs]
        self.faster = sum(sum(row.seconds["every"]) for row in some), sum(sum(row.seconds[pruning]) for row in some)


def duplicates(rows: Rows) -> Table:
    """What de-duplication costs."""
    names = {"pruned": "one set of each data flow, as the paper", "levels": "level by level"}
    columns: dict[str, Callable[[_Pruned], str]] = {
        "arch": lambda one: one.arch,
        "looked at": lambda one: names[one.pruning],
        "schedules>": lambda one: count(len(one.pairs)),
        "mean>": lambda one: ratio(mean_ratio(one.pairs), digits=4),
        "best>": lambda one: ratio(min(one.ratios)),
        "worst>": lambda one: ratio(max(one.ratios)),
        "times faster>": lambda one: ratio(*one.faster, digits=1),
    }
    some = [_Pruned(rows, arch, pruning) for arch in ARCHS for pruning in names]
    title = "What de-duplication costs: cycles x words against looking at every set"
    return table(title, columns, [one for one in some if one.pairs])


def draw(rows: Rows, path: Path) -> None:
    """Figure 12."""
    series: dict[str, list[float]] = {}
    for name, policy in TABLE_2.items():
        means = [mean_ratio(_metrics(_pairs(rows, arch, policy, LAYERS))) for arch in ARCHS]
        if all(mean is not None for mean in means):
            series[name] = [mean or 0.0 for mean in means]
    draw_policies(ARCHS, series, path)


def incomplete(rows: Rows) -> list[str]:
    """Searches that left out tilings without a proof."""
    return [f"{point.name} left out tilings without a proof" for point, row in _searches(rows) if not row.complete]


def _seconds(rows: Rows) -> float | None:
    return max((row.wall_seconds for _, row in _searches(rows)), default=None)


def _worst(pruning: str, end: Callable[[list[float]], float]) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        ratios = [each for arch in ARCHS for each in _Pruned(rows, arch, pruning).ratios]
        return end(ratios) if ratios else None

    return value


def _added(rows: Rows) -> float | None:
    return mean_ratio(_metrics(_pairs(rows, ARCHS[1], ADDED["+ beam"], ADDED_LAYERS)))


_FIGURES: Mapping[str, tuple[str, Callable[[Rows], float | None]]] = {
    "best": ("one set of each data flow, of every set's metric, best", _worst("pruned", min)),
    "worst": ("one set of each data flow, of every set's metric, worst", _worst("pruned", max)),
    "added": ("all that ours adds, of the paper's metric, mean", _added),
}

STUDY = Study(
    name="flexer_policies",
    title="The search of out-of-order schedules",
    question="What do the search's policies and its pruning by data flow cost, and what does ours add?",
    answer="Pruning by data flow changes cycles x words by factors of {{ best }} to {{ worst }}; all that ours adds "
    "brings them to {{ added }} of the paper's.",
    about=prose(__file__),
    points=points,
    tables=(times, table_2, added, duplicates),
    figures=(
        Figure("seconds", "seconds of a whole search", _seconds, "{:.0f}", Bar("at most", SEARCH_BAR)),
        *(Figure(name, *each) for name, each in _FIGURES.items()),
    ),
    checks=incomplete,
    pictures={"flexer_policies.svg": draw},
    paper="flexer",
)
