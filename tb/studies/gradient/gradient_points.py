"""Pairs of gradients in every order: in the model, and on the RTL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import inf
from typing import Any, ClassVar

from meshloom.hw.spec.config import load
from meshloom.sched.papers.gradient.scheduler import Refused, Searches
from meshloom.sched.papers.gradient.search import LEADERS, Slower
from meshloom.sched.schedulers.training.orders import Order, selected
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.training import TrainingLayer, find, setting_of

from ...results.events import Event, Stage
from ...results.schema import Status
from ...runs import runner
from ...runs.options import RunOptions
from ..engine.point import Inputs, Point, Report
from ..points.runs import DEVICE, gateware
from .gradient_cases import EDGE, NETWORKS, Case, chip_with, config_for, fits, shared

#: Of layers with more products than these the model plays one candidate of each order and split, instead of the usual
#: number: a play takes seconds there.
LARGE = 10**10
#: On several cores and in the sweeps every order is searched of layers with at most so many products: on a core that
#: is a matter of seconds for each order and split. Of larger ones those that the table's other columns need.
SMALL = 3 * 10**9
#: Splits in the order in which they are tried.
_SPLITS = (Split.K, Split.M, Split.N)


@dataclass(frozen=True)
class OrderCycles:
    """What a pair takes in an order, on so many cores that share it by a split: cycles, words of DRAM and those of
    spilled sums among them. `slower`: it takes at least these cycles, and another split less; `refused`: why it cannot
    be computed so."""

    order: Order
    cores: int
    split: Split
    cycles: int = 0
    words: int = 0
    spilled: int = 0
    slower: bool = False
    refused: str = ""

    @property
    def played(self) -> bool:
        """Whether the model has played it."""
        return not self.slower and not self.refused

    @property
    def way(self) -> tuple[int, Split]:
        """How it is shared."""
        return self.cores, self.split


@dataclass(frozen=True)
class PairCycles:
    """What a pair takes in the model, in every order and split. `enlarged`: words of a channel with which it is
    planned, where its chip has fewer than it needs; 0: those of the chip."""

    orders: tuple[OrderCycles, ...]
    enlarged: int = 0


@dataclass(frozen=True)
class PairModelled(Point):
    """Both gradients of a layer in the model. `bytes`: of DRAM a cycle, None: as the chip has; `every_order`: otherwise
    the two baselines and what algorithm 1 selects."""

    chip: str
    layer: str
    bytes: int | None
    every_order: bool
    row: ClassVar[Any] = PairCycles

    @property
    def name(self) -> str:
        width = f" with {self.bytes} bytes a cycle" * (self.bytes is not None)
        return f"{self.layer} on {self.chip}{width}"

    @property
    def work(self) -> float:
        return min(600.0, 1 + self._layer().macs / 1e8)

    def inputs(self) -> Inputs:
        chip = chip_with(self.chip, self.bytes).digest
        return Inputs(("sched.papers.gradient.scheduler", "sched.workload.training"), (("chip", chip),))

    def _layer(self) -> TrainingLayer:
        (layer,) = find(self.layer, setting_of(load(self.chip)))
        return layer

    def orders(self, layer: TrainingLayer) -> tuple[Order, ...]:
        """Those that are measured; of a first layer one."""
        if layer.first:
            return (Order.SEQUENTIAL,)
        if self.every_order:
            return tuple(Order)
        return tuple(dict.fromkeys((Order.SEQUENTIAL, Order.PLAIN, selected(layer.m, layer.k, layer.n))))

    def measure(self, report: Report) -> PairCycles:
        """An order shared by rows of the batch, as is usual, is always played; other ways only unless it is certain
        that they take longer than the order does by one before, the fastest most often being the first."""
        layer = self._layer()
        config = config_for(layer, self.chip, self.bytes)
        searches = Searches(config, SCHEDULES.folder(), leaders=LEADERS if layer.macs <= LARGE else 1)
        orders: list[OrderCycles] = []
        fastest: dict[Order, float] = {}
        for cores, split in sorted(shared(layer, config), key=lambda way: _SPLITS.index(way[1])):
            for order in self.orders(layer):
                report(f"{order} by {split}")
                enough = inf if split is Split.M or cores == 1 else fastest.get(order, inf)
                match searches.find(layer, order, cores, split, enough):
                    case Refused() as refused:
                        orders.append(OrderCycles(order, cores, split, refused=refused.why))
                    case Slower() as slower:
                        orders.append(OrderCycles(order, cores, split, slower.cycles, slower=True))
                    case best:
                        fastest[order] = min(best.cycles, fastest.get(order, inf))
                        orders.append(OrderCycles(order, cores, split, best.cycles, best.words, best.spilled))
        return PairCycles(tuple(orders), config.dram.words if config.dram.words > load(self.chip).dram.words else 0)


def modelled(case: Case, layer: TrainingLayer) -> PairModelled:
    """The point of a layer: layers of the same sizes have one, whatever their names."""
    chip = chip_with(case.chip, None)
    width = None if case.bytes == chip.dram.bytes_per_cycle else case.bytes
    every_order = layer.macs <= SMALL or (case.plain and len(chip.cores) == 1)
    return PairModelled(case.chip, _first_of_size(case, layer), width, every_order)


def _sizes(layer: TrainingLayer) -> tuple[int, int, int, bool]:
    return layer.m, layer.k, layer.n, layer.first


@cache
def _by_size(case: Case) -> dict[tuple[int, int, int, bool], str]:
    names: dict[tuple[int, int, int, bool], str] = {}
    for network in NETWORKS:
        for layer in case.layers(network):
            names.setdefault(_sizes(layer), layer.name)
    return names


def _first_of_size(case: Case, layer: TrainingLayer) -> str:
    return _by_size(Case(case.chip, None, case.batch))[_sizes(layer)]


@dataclass(frozen=True)
class PairRow:
    """A pair on the RTL: cycles there and in the model, bytes compared and wrong; how it was computed, or why it cannot
    be computed so; `trouble`: what is wrong otherwise."""

    nest: str
    rtl_cycles: int
    model_cycles: int
    compared: int
    wrong: int
    refused: str = ""
    trouble: str = ""

    @property
    def error(self) -> float:
        """Percent that the model is off."""
        return 100 * (self.model_cycles - self.rtl_cycles) / max(1, self.rtl_cycles)


@dataclass(frozen=True)
class PairRun(Point):
    """A pair on the RTL, in an order, shared by its cores in some way."""

    chip: str
    layer: str
    order: Order
    cores: int
    split: Split
    row: ClassVar[Any] = PairRow

    @property
    def scheduler(self) -> str:
        """As on the command line."""
        return f"gradient:order={self.order}" + (f",split={self.split}" if self.cores > 1 else "")

    @property
    def name(self) -> str:
        return f"{self.layer} on {self.chip} by {self.scheduler}"

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        modules = "sched.papers.gradient.entry", "sched.lowering.programs", "sched.model.timeline"
        return Inputs(modules, (("chip", load(self.chip).digest), ("gateware", gateware())))

    def measure(self, report: Report) -> PairRow:
        def on_event(event: Event) -> None:
            if isinstance(event, Stage):
                report(event.what)

        (row,) = runner.run([self.layer], self.chip, self.scheduler, on_event, RunOptions(device=DEVICE, here=True))
        refused = row.error.words if row.error is not None and row.error.kind == "DoesNotFit" else ""
        trouble = "" if row.status is Status.PASSED or refused else f"{row.status}: {row.reason}"
        nest = row.gradient.nest if row.gradient else ""
        return PairRow(nest, row.rtl_cycles, row.model_cycles, row.bytes_checked, row.mismatches, refused, trouble)


#: Layers of each chip that run, and most products of one.
ON_RTL = {
    EDGE: (36, 150_000_000),
    "server1": (14, 150_000_000),
    "server2": (4, 1_500_000_000),
    "server4": (4, 3_000_000_000),
    "server8": (1, 6_000_000_000),
}


@cache
def on_rtl(chip: str) -> tuple[PairRun, ...]:
    """The pairs that run on a chip's RTL: layers of all sizes up to the largest, of several cores those that can be
    shared by M, N and K, each in every order and every way to share it."""
    most = ON_RTL[chip][1]
    sizes: dict[tuple[int, int, int, bool], TrainingLayer] = {}
    for network in NETWORKS:
        for layer in Case(chip).layers(network):
            if layer.macs <= most:
                sizes.setdefault(_sizes(layer), layer)
    return tuple(
        PairRun(chip, layer.name, order, cores, split)
        for layer in _spread(chip, sorted(sizes.values(), key=lambda layer: (layer.macs, layer.name)))
        for cores, split in shared(layer, load(chip))
        for order in ((Order.SEQUENTIAL,) if layer.first else Order)
    )


def _spread(chip: str, layers: Sequence[TrainingLayer]) -> list[TrainingLayer]:
    count, config, some = ON_RTL[chip][0], load(chip), list(layers)
    if len(config.cores) > 1:
        able = (
            layer
            for layer in some
            if not layer.first and all(cores > 1 for cores, _ in shared(layer, config_for(layer, chip)))
        )
        some = list(islice(able, count))
    some = [layer for layer in some if fits(layer, chip)]
    return [some[at * (len(some) - 1) // (count - 1)] for at in range(count)] if len(some) > count else some
