"""How the search fares: its time, what de-duplication costs, and what priorities and memory policies are worth."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from math import exp, log
from os import sched_getaffinity

import numpy as np

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.mapping.tiling.problem import Problem, pose
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import play
from meshloom.sched.papers.flexer.policy import PAPER, Choice, Policy
from meshloom.sched.papers.flexer.search import SearchResult, bounds, search
from meshloom.sched.papers.flexer.tiles import Tiles, viable
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape

from ..build.builder import OUTPUT
from ..results.events import OnEvent, Stage
from .flexer_layers import BUDGET, compile_search, same

#: Table 2's priorities and memory policies beside the paper's own.
TABLE_2 = {
    "the paper's": PAPER,
    "min transfer": Policy(priority=1),
    "min spilling": Policy(priority=2),
    "first-fit spill": Policy(memory=1),
    "small spill": Policy(memory=2),
}
#: What we add, one after the other.
ADDED = {
    "the paper's": PAPER,
    "+ known future": Policy(again=True),
    "+ sums stay in their cores": Policy(home=True, again=True),
    "+ min transfer": Policy(priority=1, home=True, again=True),
    "+ beam": Policy(priority=1, pruning=3, home=True, again=True),
    "nests, known future, sums in cores": Policy("nest", home=True),
}
#: Layers of the ablation: compute-bound and memory-bound, large and small maps.
LAYERS = (
    "vgg16/conv4_2",
    "vgg16/conv3_1",
    "resnet50/conv2_1_2",
    "resnet50/conv3_1_1",
    "resnet50/conv4_1_3",
    "resnet50/conv5_1_1",
    "squeezenet/fire4_expand3",
    "yolov2/conv5_3",
)
#: Layers of what ours adds and of exhaustive enumeration, which takes long.
ADDED_LAYERS = ("resnet50/conv2_1_2", "resnet50/conv3_1_1", "resnet50/conv4_1_3", "squeezenet/fire4_expand3")
#: What each search of a comparison may do: twice as much as one for a table.
COMPARED = Budget(steps=200_000_000)
#: De-duplication is compared with exhaustive enumeration where there are at most so many ready operations, and
#: operations, by the number of cores.
READY, OPERATIONS = {2: 48, 4: 16}, 160
#: Tilings of each layer, and loop nests, of that comparison.
SAMPLE, NESTS = 6, ("mnk", "nkm")


def distinct(networks: Sequence[str]) -> Iterator[ConvShape]:
    """Layers of networks, those that are scheduled alike once."""
    seen: set[ConvShape] = set()
    for network in networks:
        for one in find(network):
            if same(one.shape) not in seen:
                seen.add(same(one.shape))
                yield one.shape


@dataclass(frozen=True)
class SearchTime:
    """A search of all tilings and data flows of all layers of a network, to its end.

    `hurried`: what a search with BUDGET finds instead, by the metric, for each layer: the end's is 1.
    """

    layers: int
    found: tuple[SearchResult, ...]
    wall_seconds: float
    cpu_seconds: float
    hurried: tuple[float, ...]


def search_time(on_progress: OnEvent, network: str = "resnet50", arch: str = "arch5") -> SearchTime:
    """Searches a network with the paper's policy; nothing found before is used. (Compiling is not counted.)"""
    chip = load(arch)
    shapes = list(distinct([network]))
    compile_search(on_progress)
    found: list[SearchResult] = []
    wall, cpu = time.monotonic(), time.process_time()
    for number, shape in enumerate(shapes):
        on_progress(Stage(workload=network, what=f"searching layer {number + 1} of {len(shapes)}"))
        found.append(search(pose(shape, chip), chip, PAPER, shape.name, keep=1))
    seconds = time.monotonic() - wall, time.process_time() - cpu
    hurried: list[float] = []
    for shape, end in zip(shapes, found, strict=True):
        layer = LayerSearch(shape, chip, 1 << 15, OUTPUT / "schedules", BUDGET, threads=1)
        least, best = (
            min(PAPER.metric(one.cycles, one.words) for one in some) for some in (layer.choices(PAPER), end.choices)
        )
        hurried.append(least / best)
    return SearchTime(len(shapes), tuple(found), *seconds, tuple(hurried))


@dataclass(frozen=True)
class Duplicates:
    """Metric and CPU-seconds of one tiling and loop nest, by pruning: "every", "pruned", "levels"."""

    arch: str
    layer: str
    choice: Choice
    metric: dict[str, float]
    seconds: dict[str, float]


def duplicates(arch: str, layers: Sequence[str]) -> Iterator[Duplicates]:
    """Schedules that look at all sets, beside those that look at one of each data flow."""
    chip = load(arch)
    for name in layers:
        problem = pose(find(name)[0].shape, chip)
        for choice in _small(problem_choices(name, chip), problem, chip):
            metric: dict[str, float] = {}
            seconds: dict[str, float] = {}
            for number, pruning in enumerate(("every", "pruned", "levels")):
                begin = time.process_time()
                _, cycles, words, _ = play(problem, chip, choice, Policy(pruning=number))
                metric[pruning], seconds[pruning] = PAPER.metric(cycles, words), time.process_time() - begin
            yield Duplicates(arch, name, choice, metric, seconds)


def problem_choices(name: str, chip: ChipConfig) -> Iterator[Choice]:
    """Tilings of a layer by their bound, with the nests of the comparison."""
    space = viable(pose(find(name)[0].shape, chip), chip, name)
    cycles, words = bounds(space, chip)
    for index in np.argsort(cycles * words, kind="stable"):
        for loops in NESTS:
            yield Choice(space.tiling(int(index)), loops)


def _small(choices: Iterator[Choice], problem: Problem, chip: ChipConfig) -> Iterator[Choice]:
    """The first of them that are small enough to enumerate, and large enough to matter."""
    taken = 0
    for choice in choices:
        m, n, k = Tiles(problem, choice.tiling).shape
        if 2 * len(chip.cores) <= m * n <= READY[len(chip.cores)] and m * n * k <= OPERATIONS:
            yield choice
            taken += 1
            if taken == SAMPLE * len(NESTS):
                return


def _best(arch: str, name: str, label: str, policy: Policy) -> tuple[str, str, str, float, float]:
    layer = LayerSearch(find(name)[0].shape, load(arch), 1 << 15, OUTPUT / "schedules", COMPARED, threads=1)
    leader = min(layer.choices(policy), key=lambda choice: PAPER.metric(choice.cycles, choice.words))
    return arch, name, label, leader.cycles, leader.words


def compare(
    on_progress: OnEvent, policies: dict[str, Policy], archs: Sequence[str], layers: Sequence[str]
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(cycles, words) by the search's estimate, by architecture, layer and policy, each found with COMPARED."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    jobs = [(arch, name, label, policy) for arch in archs for name in layers for label, policy in policies.items()]
    with ProcessPoolExecutor(len(sched_getaffinity(0))) as pool:
        futures = [pool.submit(_best, *job) for job in jobs]
        try:
            for count, future in enumerate(as_completed(futures)):
                arch, name, label, cycles, words = future.result()
                found[arch, name, label] = cycles, words
                on_progress(Stage(workload=arch, what=f"{count + 1} of {len(jobs)} searches compared"))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def mean_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Geometric mean of first / second."""
    return exp(sum(log(one / other) for one, other in pairs) / len(pairs))
