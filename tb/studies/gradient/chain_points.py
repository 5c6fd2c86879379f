"""Gradients across layers: rows of layers and siblings in the model, and rows of layers on the RTL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.gradient.chain_plan import ChainPlan, Update
from meshloom.sched.papers.gradient.chain_search import schedule as chained
from meshloom.sched.papers.gradient.scheduler import Refused, Searches, ways
from meshloom.sched.papers.gradient.scheduler import schedule as fastest
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.training import TrainingLayer, setting_of
from meshloom.sched.workload.training import find as find_layers
from meshloom.sched.workload.training_chain import Chain, find

from ...results.events import Event, Stage
from ...results.schema import Status
from ...runs import runner
from ...runs.options import RunOptions
from ..engine.point import Inputs, Point, Report
from ..points.runs import DEVICE, gateware

#: Ways to compute layers in a row: whether dX is kept, dW put off; those with an update.
WAYS: Mapping[str, tuple[bool, bool]] = {
    "one program": (False, False), "keep": (True, False), "defer": (False, True), "keep, defer": (True, True),
}  # fmt: skip
UPDATES: Mapping[str, Update] = {"update apart": Update.APART, "update fused": Update.FUSED}
#: The layers one after the other, each in its fastest order; rows of layers and siblings have it.
ARGMIN = "argmin"
#: Siblings as one product.
JOINED = "joined"
_MODULES = (
    "sched.papers.gradient.chain_search", "sched.papers.gradient.scheduler", "sched.lowering.programs",
    "sched.model.timeline",
)  # fmt: skip


@dataclass(frozen=True)
class ChainCycles:
    """What gradients take in the model; `refused`: why they cannot be computed so; `plain`: cycles of the paper's
    baseline, of single layers."""

    cycles: int
    dram_bytes: int
    refused: str = ""
    plain: int = 0


def chains(chip: str, network: str) -> tuple[Chain, ...]:
    """A network's rows of layers for a chip."""
    return find(f"chain:{network}", setting_of(load(chip)))


def chain_names(chip: str, names: Sequence[str]) -> list[str]:
    """The whole names of rows of layers, with their batch."""
    return [chain.name for name in names for chain in find(name, setting_of(load(chip)))]


def _alone(chip: str, layers: Sequence[TrainingLayer]) -> ChainCycles:
    """The fastest order of each layer by itself, one after the other."""
    config, cycles, moved, plain = load(chip), 0, 0, 0
    searches = Searches(config, SCHEDULES.folder())
    for layer in layers:
        best = fastest(layer, config, folder=SCHEDULES.folder())
        assert best.schedule.predicted is not None
        cycles, moved = cycles + best.schedule.predicted.cycles, moved + best.dram_bytes
        if not layer.first:
            ((cores, split), *_) = ways(layer, config, len(config.cores), (Split.M, Split.N, Split.K))
            base = searches.find(layer, Order.PLAIN, cores, split)
            plain += best.schedule.predicted.cycles if isinstance(base, Refused) else base.cycles
        else:
            plain += best.schedule.predicted.cycles
    return ChainCycles(cycles, moved, plain=plain)


def chain_plan(chip: ChipConfig, way: str) -> ChainPlan:
    """How a way computes layers in a row."""
    keep, defer = WAYS.get(way, (True, True))
    return ChainPlan(0, 0, 0, len(chip.cores), keep, defer, UPDATES.get(way, Update.NONE))


@dataclass(frozen=True)
class ChainModelled(Point):
    """Layers in a row in the model, some way (`WAYS`, `UPDATES`) or by themselves (`ARGMIN`)."""

    chip: str
    chain: str
    way: str
    row: ClassVar[Any] = ChainCycles

    @property
    def name(self) -> str:
        return f"{self.chain} on {self.chip}, {self.way}"

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        return Inputs(_MODULES, (("chip", load(self.chip).digest),))

    def measure(self, report: Report) -> ChainCycles:
        config = load(self.chip)
        (chain,) = find(self.chain, setting_of(config))
        if self.way == ARGMIN:
            return _alone(self.chip, chain.layers)
        try:
            program = chained(chain, config, chain_plan(config, self.way), "chain", SCHEDULES.folder())
        except DoesNotFit as error:
            return ChainCycles(0, 0, str(error))
        assert program.schedule.predicted is not None
        return ChainCycles(program.schedule.predicted.cycles, program.dram_bytes)


@dataclass(frozen=True)
class Siblings:
    """Convolutions of 1x1 that read the same map, and the product that they are together."""

    name: str
    layers: tuple[TrainingLayer, ...]

    @property
    def joined(self) -> str:
        """The workload of all: M x N x K."""
        first = self.layers[0]
        return f"gradient:gemm:{first.m}x{sum(layer.n for layer in self.layers)}x{first.k}"


#: Endings of the names of layers that read the same map, after what they have in common.
_ENDINGS = {"goo": ("_1x1", "_3x3_reduce", "_5x5_reduce"), "res": ("_1", "_shortcut")}


@cache
def siblings(chip: str, name: str) -> tuple[Siblings, ...]:
    """Those of a network, or of a module (`NETWORK/MODULE`), unless they are unfolded."""
    network, _, module = name.partition("/")
    layers = {
        layer.name.partition(",")[0]: layer for layer in find_layers(f"gradient:{network}", setting_of(load(chip)))
    }
    first, *others = _ENDINGS[network]
    groups: list[Siblings] = []
    for layer in layers:
        stem = layer.removesuffix(first)
        some = [layers[stem + end] for end in (first, *others) if stem != layer and stem + end in layers]
        whole = len(some) == len(others) + 1 and stem.partition("/")[2].startswith(module)
        if whole and not any(one.unfolded for one in some):
            groups.append(Siblings(f"{stem.removeprefix('gradient:')}: {len(some)}", tuple(some)))
    return tuple(groups)


@dataclass(frozen=True)
class SiblingsModelled(Point):
    """Siblings of a network, or a module of it, in the model: by themselves (`ARGMIN`) or `JOINED`."""

    chip: str
    network: str
    siblings: str
    way: str
    row: ClassVar[Any] = ChainCycles

    @property
    def name(self) -> str:
        return f"{self.siblings} on {self.chip}, {self.way}"

    @property
    def work(self) -> float:
        return 60.0

    def inputs(self) -> Inputs:
        return Inputs(_MODULES, (("chip", load(self.chip).digest),))

    def measure(self, report: Report) -> ChainCycles:
        (some,) = (each for each in siblings(self.chip, self.network) if each.name == self.siblings)
        if self.way == ARGMIN:
            return _alone(self.chip, some.layers)
        return _alone(self.chip, find_layers(some.joined, setting_of(load(self.chip))))


@dataclass(frozen=True)
class ChainRow:
    """A chain on the RTL; `trouble`: what is wrong, besides bytes and cycles."""

    nest: str
    rtl_cycles: int
    model_cycles: int
    compared: int
    wrong: int
    trouble: str = ""


def rtl_ways(chip: str) -> tuple[str, ...]:
    """The ways that run on a chip's RTL: updates where words of W and of results have the same channels."""
    config = load(chip)
    updates = tuple(UPDATES) if config.cols == config.lanes else ()
    return ("one program", "keep, defer", *updates)


@dataclass(frozen=True)
class ChainRun(Point):
    """Layers in a row on the RTL, some way."""

    chip: str
    chain: str
    way: str
    row: ClassVar[Any] = ChainRow

    @property
    def scheduler(self) -> str:
        """As on the command line."""
        plan = chain_plan(load(self.chip), self.way)
        return f"chain:keep={plan.keep},defer={plan.defer},update={plan.update}".lower()

    @property
    def name(self) -> str:
        return f"{self.chain} on the RTL of {self.chip}, {self.way}"

    @property
    def work(self) -> float:
        return 30.0

    def inputs(self) -> Inputs:
        return Inputs(_MODULES, (("chip", load(self.chip).digest), ("gateware", gateware())))

    def measure(self, report: Report) -> ChainRow:
        def on_event(event: Event) -> None:
            if isinstance(event, Stage):
                report(event.what)

        (row,) = runner.run([self.chain], self.chip, self.scheduler, on_event, RunOptions(device=DEVICE, here=True))
        trouble = "" if row.status is Status.PASSED else f"{row.status}: {row.reason}"
        nest = row.gradient.nest if row.gradient else ""
        return ChainRow(nest, row.rtl_cycles, row.model_cycles, row.bytes_checked, row.mismatches, trouble)
