"""Pairs of gradients in every order, as the tables of `gradient` need them: in the model, and on the RTL.

Each result is kept under all that decides it, so whoever is interrupted goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from math import inf

from pydantic import TypeAdapter

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.gradient.scheduler import BestTiling, Refused, Searches, ways
from meshloom.sched.papers.gradient.search import LEADERS, Slower
from meshloom.sched.schedulers.training.orders import Order, selected
from meshloom.sched.schedulers.training.pair import MOST_PRODUCTS, GradientPair, Split
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.training import TrainingLayer, find, setting_of

from ..build.builder import ingredients
from ..results.events import Event, OnEvent, Stage
from ..results.schema import Row, Status
from ..runs.options import RunOptions
from ..runs.runner import run as run_workloads

#: The paper's small NPU, and its large one with more and more cores (table 3).
EDGE, SERVERS = "edge45", ("server1", "server2", "server4", "server8")
#: The paper's networks (table 4); three of them are smaller on the small NPU.
NETWORKS = ("rcnn", "goo", "ncf", "res", "dlrm", "mob", "yolo", "bert", "t5")
#: Of layers with more products than these the model plays one candidate of each order and split, instead of the usual
#: number: a play takes seconds there.
LARGE = 10**10
DEVICE = "verilator"
_MADE_BY = ("sched.papers.gradient.entry", "sched.lowering.programs", "sched.model.timeline")


@dataclass(frozen=True)
class Case:
    """Where networks are measured: a chip, with other `bytes` of DRAM a cycle, or another `batch`, than usual if those
    are given (the batch is the whole chip's)."""

    chip: str
    bytes: int | None = None
    batch: int | None = None

    @property
    def plain(self) -> bool:
        """Whether a chip is as it usually is."""
        return self.bytes is None and self.batch is None

    @property
    def config(self) -> ChipConfig:
        """The chip."""
        return _chip(self.chip, self.bytes, False)

    def fits(self, layer: TrainingLayer) -> bool:
        """Whether the chip's DRAM has room for a layer."""
        return _fits(self, layer)

    def config_for(self, layer: TrainingLayer) -> ChipConfig:
        """The chip, for layers that its DRAM has no room for with as much of that as there can be: no cycle depends on
        it."""
        return _chip(self.chip, self.bytes, not self.fits(layer))

    def layers(self, network: str) -> tuple[TrainingLayer, ...]:
        """The layers with weights of a network, for the batch of the case.

        Where sums over all pixels of a batch may leave int32, a layer is trained in as many parts of its batch as they
        have to be, whose gradients the host adds up; it counts as often. It is left out where those of one picture may.
        """
        return tuple(layer for layer in _layers(self.chip, self.batch, network) if layer.m <= MOST_PRODUCTS)

    def left_out(self, network: str) -> tuple[TrainingLayer, ...]:
        """Those that are left out."""
        return tuple(layer for layer in _layers(self.chip, self.batch, network) if layer.m > MOST_PRODUCTS)

    def orders(self, layer: TrainingLayer) -> tuple[Order, ...]:
        """The orders that are measured: all on one core, on several and in sweeps the two baselines and what algorithm
        1 selects; of a first layer one."""
        if layer.first:
            return (Order.SEQUENTIAL,)
        if self.plain and len(self.config.cores) == 1:
            return tuple(Order)
        return tuple(dict.fromkeys((Order.SEQUENTIAL, Order.PLAIN, selected(layer.m, layer.k, layer.n))))

    def ways(self, layer: TrainingLayer) -> list[tuple[int, Split]]:
        """The ways to share a layer among the cores."""
        return _ways(self, layer)


@cache
def _chip(name: str, bytes_per_cycle: int | None, roomy: bool) -> ChipConfig:
    config = load(name)
    if bytes_per_cycle is None and not roomy:
        return config
    values = config.model_dump()
    values["dram"]["bytes_per_cycle"] = bytes_per_cycle or config.dram.bytes_per_cycle
    if roomy:
        values["dram"]["words"] = 1 << OFFSET_BITS
    return ChipConfig.model_validate(values)


@cache
def _fits(case: Case, layer: TrainingLayer) -> bool:
    try:
        GradientPair(layer, case.config)
    except DoesNotFit:
        return False
    return True


@cache
def _layers(chip: str, batch: int | None, network: str) -> tuple[TrainingLayer, ...]:
    setting = setting_of(load(chip))
    if batch is not None:
        setting = replace(setting, batch=batch)
    found: list[TrainingLayer] = []
    for layer in find(f"gradient:{network}", setting):
        parts, name = 1, layer.name.rpartition(",")[0]
        one = layer
        while one.m > MOST_PRODUCTS and setting.batch % (2 * parts) == 0:
            parts *= 2
            (one,) = find(f"{name},b{setting.batch // parts}", setting)
        found.append(replace(one, count=parts * one.count))
    return tuple(found)


@cache
def _ways(case: Case, layer: TrainingLayer) -> list[tuple[int, Split]]:
    config = case.config_for(layer)
    return ways(layer, config, len(config.cores), tuple(Split))


# -- in the model -----------------------------------------------------------------------------------------------------

#: What a layer takes in an order and a way to share it, or at least, or why it cannot be done so.
Taken = dict[tuple[Order, int, Split], BestTiling | Refused | Slower]
_Find = Callable[[TrainingLayer, Order, int, Split, float], BestTiling | Refused | Slower | None]
#: Splits in the order in which they are tried.
_SPLITS = (Split.K, Split.M, Split.N)


def _searches(case: Case, layer: TrainingLayer) -> Searches:
    return _searches_of(case, not case.fits(layer), LEADERS if layer.macs <= LARGE else 1)


@cache
def _searches_of(case: Case, roomy: bool, leaders: int) -> Searches:
    return Searches(_chip(case.chip, case.bytes, roomy), SCHEDULES.folder(), leaders=leaders)


def taken(case: Case, layer: TrainingLayer) -> Taken | None:
    """What is kept of a layer; None unless that is all."""
    return _each(case, layer, _searches(case, layer).stored)


def measure(case: Case, layer: TrainingLayer, on_progress: OnEvent) -> None:
    """Searches for what is not kept of a layer."""
    if taken(case, layer) is not None:
        return
    on_progress(Stage(workload=layer.name, what=f"{case.chip}, {case.config.dram.bytes_per_cycle} bytes a cycle"))
    _each(case, layer, _searches(case, layer).find)


def _each(case: Case, layer: TrainingLayer, find: _Find) -> Taken | None:
    """What `find` says of every order and way; None as soon as it says so.

    An order shared by rows of the batch, as is usual, is always played; other ways only unless it is certain that they
    take longer than the order does by one before, the fastest most often being the first."""
    found, fastest = Taken(), dict[Order, float]()
    for cores, split in sorted(case.ways(layer), key=lambda way: _SPLITS.index(way[1])):
        for order in case.orders(layer):
            enough = inf if split is Split.M or cores == 1 else fastest.get(order, inf)
            one = find(layer, order, cores, split, enough)
            if one is None:
                return None
            if isinstance(one, BestTiling):
                fastest[order] = min(one.cycles, fastest.get(order, inf))
            found[order, cores, split] = one
    return found


# -- on the RTL -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A pair on the RTL: cycles there and in the model, bytes compared and wrong; how it was computed."""

    nest: str
    rtl_cycles: int
    model_cycles: int
    compared: int
    wrong: int
    trouble: str = ""


@dataclass(frozen=True)
class Asked:
    """A pair that runs on the RTL: on a chip, in an order, shared by its cores in some way."""

    chip: str
    layer: TrainingLayer
    order: Order
    cores: int
    split: Split

    @property
    def scheduler(self) -> str:
        """As on the command line."""
        return f"gradient:order={self.order}" + (f",split={self.split}" if self.cores > 1 else "")


#: Layers of each chip that run, and most products of one.
ON_RTL = {
    EDGE: (36, 150_000_000),
    "server1": (14, 150_000_000),
    "server2": (4, 1_500_000_000),
    "server4": (4, 3_000_000_000),
    "server8": (1, 6_000_000_000),
}


@cache
def on_rtl(chip: str) -> tuple[Asked, ...]:
    """The pairs that run on a chip's RTL: layers of all sizes up to the largest, of several cores those that can be
    shared by M, N and K, each in every order and every way to share it."""
    count, most = ON_RTL[chip]
    case = Case(chip)
    sizes: dict[tuple[int, int, int, bool], TrainingLayer] = {}
    for network in NETWORKS:
        for layer in case.layers(network):
            if layer.macs <= most:
                sizes.setdefault((layer.m, layer.k, layer.n, layer.first), layer)
    some = sorted(sizes.values(), key=lambda layer: (layer.macs, layer.name))
    if len(case.config.cores) > 1:
        shared = (one for one in some if not one.first and all(cores > 1 for cores, _ in case.ways(one)))
        some = list(islice(shared, count))
    some = [one for one in some if case.fits(one)]
    spread = [some[at * (len(some) - 1) // (count - 1)] for at in range(count)] if len(some) > count else some
    return tuple(
        Asked(chip, layer, order, cores, split)
        for layer in spread
        for cores, split in case.ways(layer)
        for order in ((Order.SEQUENTIAL,) if layer.first else Order)
    )


def ran(asked: Asked) -> Ran | None:
    """What is kept of a run on the RTL."""
    return _rtl_memory(asked.chip).get((asked.layer.name, asked.scheduler), _RAN)


_RAN = TypeAdapter(Ran)


@cache
def _rtl_memory(chip: str) -> SearchCache:
    config = load(chip)
    said = ", ".join(f"{name} {value}" for name, value in sorted(ingredients(config, DEVICE, waves=False).items()))
    return SearchCache(SCHEDULES.folder(), config, f"gradients on {said}", *_MADE_BY)


def run_on_rtl(some: Sequence[Asked], on_progress: OnEvent) -> None:
    """Runs what is not kept; pairs that cannot be computed so are kept as such."""
    left: dict[tuple[str, str], dict[str, Asked]] = {}
    for one in some:
        if ran(one) is None:
            left.setdefault((one.chip, one.scheduler), {})[one.layer.name] = one
    for (chip, scheduler), asked in left.items():

        def keep(event: Event, asked: dict[str, Asked] = asked) -> None:
            if isinstance(event, Row):
                _keep(asked[event.workload], event)
            else:
                on_progress(event)

        run_workloads(list(asked), chip, scheduler, keep, RunOptions(device=DEVICE, here=True))


def _keep(asked: Asked, row: Row) -> None:
    refused = row.error is not None and row.error.kind == "DoesNotFit"
    trouble = "" if row.status is Status.PASSED or refused else f"{row.status}: {row.reason}"
    nest = row.gradient.nest if row.gradient else ""
    one = Ran(nest, row.rtl_cycles, row.model_cycles, row.bytes_checked, row.mismatches, trouble)
    _rtl_memory(asked.chip).put((asked.layer.name, asked.scheduler), _RAN, one)
