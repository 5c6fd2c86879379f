"""Layers of networks on the architectures of the Flexer paper, by every scheduler, in the timeline model.

What is found is kept, on this machine and as text, so that a run that was stopped goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from os import sched_getaffinity

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import ConvShape

from ..build.builder import OUTPUT
from ..results.events import OnEvent, Stage
from .kept import Decided, Kept, Record
from .results import FOLDER

NETWORKS = ("vgg16", "resnet50", "squeezenet", "yolov2")
ARCHS = tuple(f"arch{number}" for number in range(1, 9))
#: The two baselines, the paper's scheduler, and ours (the best of these and of `Policy`s of our own).
SCHEDULERS = ("paper_static", "loop_order", "flexer", "hybrid")
#: What a search may do for a layer: so many steps of work, one to two seconds of a thread.
BUDGET = Budget(steps=100_000_000)
#: Architectures with the narrow DRAM, on which the hybrid is to be this much faster than the strong baseline.
MEMORY_BOUND, HYBRID_BAR = ("arch1", "arch3", "arch5", "arch7"), 1.15

Cost = tuple[int, int]  #: cycles, and words moved between chip and DRAM


def budget_in_words(budget: Budget) -> str:
    """What a page says of its searches."""
    seconds = (budget.steps or 0) / 1e8
    return (
        f"Each search may do {budget} steps of work for a layer (some {seconds:g} to {2 * seconds:g} seconds of "
        "one thread), so what it finds is the same on every machine and with any number of threads."
    )


@dataclass(frozen=True)
class LayerCost:
    """What one layer costs on one architecture, by scheduler; `best`: whose schedule the hybrid's is."""

    arch: str
    network: str
    layer: str
    costs: dict[str, Cost]
    best: str

    def speedup(self, scheduler: str, baseline: str) -> float:
        """Cycles of the baseline for one of the scheduler."""
        return self.costs[baseline][0] / self.costs[scheduler][0]

    def saving(self, scheduler: str, baseline: str) -> float:
        """Words of the baseline for one of the scheduler."""
        return self.costs[baseline][1] / self.costs[scheduler][1]


def same(shape: ConvShape) -> ConvShape:
    """What decides how a layer is scheduled: layers that differ in nothing else are done once."""
    return replace(shape, name="", relu=False, clamp=127)


def cost(shape: ConvShape, chip: ChipConfig) -> tuple[dict[str, Cost], str]:
    """Costs of a layer by scheduler, and whose schedule the hybrid takes. Raises DoesNotFit."""
    from meshloom.sched.papers.flexer.layer import LayerSearch
    from meshloom.sched.papers.flexer.scheduler import candidates

    layer = LayerSearch(shape, chip, 1 << 15, OUTPUT / "schedules", BUDGET, threads=1)
    found = candidates(layer)
    best = min(found, key=lambda name: found[name].cycles)
    costs = {name: (made.cycles, made.words) for name, made in found.items()}
    return costs | {"hybrid": costs[best]}, best


def compile_search(on_progress: OnEvent) -> None:
    """Has the searches compiled, once and for all processes, unless that has been done."""
    from meshloom.sched.papers.flexer.ready import KINDS, ready

    for kind in KINDS:
        ready(
            kind, lambda done, total: on_progress(Stage(workload="search", what=f"compiling, once: {done} of {total}"))
        )


@dataclass(frozen=True)
class Asked:
    """A layer on an architecture, by the first name of all that are scheduled alike."""

    arch: str
    layer: str


@dataclass(frozen=True)
class Costs:
    """What it costs by scheduler, and whose schedule the hybrid takes."""

    costs: dict[str, Cost]
    best: str


@cache
def _firsts() -> dict[ConvShape, str]:
    """The first name of layers that are scheduled alike."""
    found: dict[ConvShape, str] = {}
    for network in NETWORKS:
        for one in find(network):
            found.setdefault(same(one.shape), one.name)
    return found


@cache
def _chip(arch: str) -> ChipConfig:
    return load(arch)


def _decided(asked: Asked) -> Decided:
    (layer,) = find(asked.layer)
    return Decided(_chip(asked.arch), ("sched.papers.flexer.scheduler",), f"{same(layer.shape)!r}, {BUDGET}")


KEPT = Kept(
    FOLDER / "flexer_layers.jsonl", "flexer layers", TypeAdapter(Record[Asked, Costs]), TypeAdapter(Costs), _decided
)


def plan(archs: Sequence[str]) -> list[Asked]:
    """All layers of the networks that are scheduled differently, on architectures."""
    return [Asked(arch, name) for arch in archs for name in _firsts().values()]


def _cost(asked: Asked) -> tuple[Asked, Costs]:
    (layer,) = find(asked.layer)
    return asked, Costs(*cost(replace(same(layer.shape), name="layer"), load(asked.arch)))


def measure(on_progress: OnEvent, archs: Sequence[str], jobs: int | None = None) -> None:
    """Schedules what is not kept of the layers on architectures, in `jobs` processes (None: one for each CPU), and
    keeps each as it comes."""
    todo = KEPT.missing(plan(archs))
    if not todo:
        return
    compile_search(on_progress)
    with ProcessPoolExecutor(jobs or len(sched_getaffinity(0))) as pool:
        futures = [pool.submit(_cost, one) for one in todo]
        try:
            for count, future in enumerate(as_completed(futures)):
                KEPT.put(*future.result())
                on_progress(Stage(workload="layers", what=f"{count + 1} of {len(todo)} scheduled"))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def collected(archs: Sequence[str]) -> tuple[list[LayerCost], set[Asked]]:
    """All layers of the networks (those that occur twice, twice) on architectures, as far as that is known, and what of
    it older code has found."""
    found, older = KEPT.collected(plan(archs))
    costs: list[LayerCost] = []
    for arch in archs:
        for network in NETWORKS:
            for one in find(network):
                known = found.get(Asked(arch, _firsts()[same(one.shape)]))
                if known is not None:
                    costs.append(LayerCost(arch, network, one.name, known.costs, known.best))
    return costs, older


def floor_cycles(arch: str, network: str) -> int:
    """Cycles that no schedule of a network can undercut: all products on all arrays, or weights, biases, input and
    output over the DRAM channels."""
    from meshloom.sched.workload.zoo import load as load_network

    chip, graph = load(arch), load_network(network)
    arrays = graph.total_macs / (len(chip.cores) * chip.rows * chip.cols)
    constants = sum(layer.w.nbytes for layer in graph.layers if layer.w is not None)
    constants += sum(layer.bias.nbytes for layer in graph.layers if layer.bias is not None)
    ends = sum(value.channels * value.height * value.width for value in graph.inputs)
    ends += sum(
        graph.values[name].channels * graph.values[name].height * graph.values[name].width for name in graph.outputs
    )
    return ceil(max(arrays, (constants + ends) / (len(chip.drams) * chip.dram.bytes_per_cycle)))


def total(costs: Sequence[LayerCost], scheduler: str) -> Cost:
    """Cycles and words of layers one after the other."""
    return sum(one.costs[scheduler][0] for one in costs), sum(one.costs[scheduler][1] for one in costs)


def grouped(costs: Sequence[LayerCost], key: Callable[[LayerCost], str]) -> dict[str, list[LayerCost]]:
    """Layers by a key, in the order in which it first occurs."""
    found: dict[str, list[LayerCost]] = {}
    for one in costs:
        found.setdefault(key(one), []).append(one)
    return found
