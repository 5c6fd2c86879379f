"""Layers of networks on the architectures of the paper, by every scheduler, in the timeline model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.policy import Policy
from meshloom.sched.papers.flexer.scheduler import candidates
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..points.runs import chip_of

NETWORKS = ("vgg16", "resnet50", "squeezenet", "yolov2")
ARCHS = tuple(f"arch{number}" for number in range(1, 9))
#: The network of the quick study, of whose layers it has one of so many.
QUICK, EVERY = "squeezenet", 3
#: The two baselines, the paper's scheduler, and ours (the best of these and of `Policy`s of our own).
SCHEDULERS = ("paper_static", "loop_order", "flexer", "hybrid")
#: What a search may do for a layer: so many steps of work, one to two seconds of a thread.
BUDGET = Budget(steps=100_000_000)
#: Right shift of sums, which decides no cycle.
SCALE = 1 << 15

Cost = tuple[int, int]  #: cycles, and words moved between chip and DRAM
Pair = tuple[str, str]  #: a scheduler, and the baseline that it is compared with


def same(shape: ConvShape) -> ConvShape:
    """What decides how a layer is scheduled: layers that differ in nothing else are done once."""
    return replace(shape, name="", relu=False, clamp=127)


@cache
def shape_of(layer: str) -> ConvShape:
    """The shape of a layer of a network."""
    (one,) = find(layer)
    return one.shape


@cache
def layers_of(network: str) -> tuple[str, ...]:
    """The names of its layers."""
    return tuple(one.name for one in find(network))


@cache
def first_names() -> dict[ConvShape, str]:
    """The first name of layers that are scheduled alike."""
    names: dict[ConvShape, str] = {}
    for network in NETWORKS:
        for one in find(network):
            names.setdefault(same(one.shape), one.name)
    return names


def search_of(shape: ConvShape, chip: ChipConfig, budget: Budget = BUDGET) -> LayerSearch:
    """The searches of a layer, in one thread; what they come to is kept on this machine. Raises DoesNotFit."""
    return LayerSearch(shape, chip, SCALE, SCHEDULES.folder(), budget, threads=1)


@dataclass(frozen=True)
class LayerCosts:
    """What a layer costs by scheduler, and whose schedule the hybrid takes."""

    costs: dict[str, Cost]
    best: str


@dataclass(frozen=True)
class LayerPoint(Point):
    """A layer on an architecture by all schedulers: the first of all that are scheduled alike."""

    arch: str
    layer: str
    row: ClassVar[Any] = LayerCosts

    @property
    def name(self) -> str:
        return f"{self.layer} on {self.arch}"

    @property
    def work(self) -> float:
        return 6.0

    def inputs(self) -> Inputs:
        more = ("chip", chip_of(self.arch).digest), ("layer", f"{same(shape_of(self.layer))!r}, {BUDGET}")
        return Inputs(("sched.papers.flexer.scheduler",), more)

    def measure(self, report: Report) -> LayerCosts:
        """Raises DoesNotFit."""
        schedules = candidates(search_of(replace(same(shape_of(self.layer)), name="layer"), chip_of(self.arch)))
        best = min(schedules, key=lambda name: schedules[name].cycles)
        costs = {name: (one.cycles, one.words) for name, one in schedules.items()}
        return LayerCosts(costs | {"hybrid": costs[best]}, best)


@dataclass(frozen=True)
class PolicyPoint(Point):
    """A layer on an architecture by one policy's search, in the timeline model."""

    arch: str
    layer: str
    policy: Policy
    row: ClassVar[Any] = Cost

    @property
    def name(self) -> str:
        return f"{self.layer} on {self.arch} by {self.policy.kind}, words to the {self.policy.by_words:g}"

    def inputs(self) -> Inputs:
        more = ("chip", chip_of(self.arch).digest), ("layer", f"{same(shape_of(self.layer))!r}, {BUDGET}")
        return Inputs(("sched.papers.flexer.layer",), more)

    def measure(self, report: Report) -> Cost:
        """Raises DoesNotFit."""
        decision = search_of(shape_of(self.layer), chip_of(self.arch)).decided(self.policy)
        return decision.cycles, decision.words


@dataclass(frozen=True)
class LayerCost:
    """What one layer of a network costs on one architecture; see `LayerCosts`."""

    arch: str
    network: str
    layer: str
    costs: dict[str, Cost]
    best: str

    def ratio(self, pair: Pair, words: bool = False) -> float:
        """Cycles, or words, of the baseline (the second of the pair) for one of the scheduler."""
        return ratio_of(self.costs, pair, words)


def points_of(archs: Sequence[str], networks: Sequence[str] = NETWORKS, every: int = 1) -> list[LayerPoint]:
    """Layers of networks that are scheduled differently, on architectures: of so many of a network one."""
    layers = [layer for each in networks for layer in layers_of(each)[::every]]
    names = dict.fromkeys(first_names()[same(shape_of(layer))] for layer in layers)
    return [LayerPoint(arch, name) for arch in archs for name in names]


def layer_costs(rows: Rows) -> list[LayerCost]:
    """All layers of networks (those that occur twice, twice) on architectures, as far as there are rows."""
    costs: list[LayerCost] = []
    for arch in ARCHS:
        for network in NETWORKS:
            for layer in layers_of(network):
                row = rows.get(LayerPoint(arch, first_names()[same(shape_of(layer))]))
                if row is not None:
                    costs.append(LayerCost(arch, network, layer, row.costs, row.best))
    return costs


def complete(costs: Sequence[LayerCost]) -> list[LayerCost]:
    """Those of networks of which all layers are known on an architecture; of the network of the quick study also if
    those of its sample are, under a name that says so."""
    whole: list[LayerCost] = []
    for some in grouped(costs, lambda one: one.arch).values():
        for network, layers in grouped(some, lambda one: one.network).items():
            if len(layers) == len(layers_of(network)):
                whole += layers
            elif network == QUICK:
                sample = [one for one in layers if one.layer in layers_of(QUICK)[::EVERY]]
                if len(sample) == len(layers_of(QUICK)[::EVERY]):
                    whole += [replace(one, network=f"{QUICK}, one layer of {EVERY}") for one in sample]
    return whole


def ratio_of(costs: Mapping[str, Cost], pair: Pair, words: bool) -> float:
    """Cycles, or words, of the baseline for one of the scheduler."""
    scheduler, baseline = pair
    return costs[baseline][words] / costs[scheduler][words]


def total(costs: Sequence[LayerCost], scheduler: str) -> Cost:
    """Cycles and words of layers one after the other."""
    return sum(one.costs[scheduler][0] for one in costs), sum(one.costs[scheduler][1] for one in costs)


def grouped(costs: Sequence[LayerCost], key: Callable[[LayerCost], str]) -> dict[str, list[LayerCost]]:
    """Layers by a key, in the order in which it first occurs."""
    groups: dict[str, list[LayerCost]] = {}
    for one in costs:
        groups.setdefault(key(one), []).append(one)
    return groups
