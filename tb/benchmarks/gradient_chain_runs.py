"""What `gradient_chain` measures, kept under all that decides it, so whoever is interrupted goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.ir.schedule import Move
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.gradient.chain_plan import ChainPlan, Update
from meshloom.sched.papers.gradient.chain_search import schedule as chained
from meshloom.sched.papers.gradient.scheduler import Refused, Searches, ways
from meshloom.sched.papers.gradient.scheduler import schedule as fastest
from meshloom.sched.schedulers.training.across import Across
from meshloom.sched.schedulers.training.across import named as across_named
from meshloom.sched.schedulers.training.orders import Order
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.schedulers.training.step import training_step
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import trainable
from meshloom.sched.workload.training import TrainingLayer, setting_of
from meshloom.sched.workload.training import find as find_layers
from meshloom.sched.workload.training_chain import Chain, find

from ..build.builder import ingredients
from ..results.events import Event, OnEvent, Stage
from ..results.schema import Row, Status
from ..results.training import TrainingResults
from ..runs.options import RunOptions
from ..runs.runner import run as run_workloads
from ..runs.training.numbers import Update as Weights
from ..runs.training.run import Training, train
from ..runs.training.trainer import Rates

DEVICE, CHIP = "verilator", "quad16"


@dataclass(frozen=True)
class Way:
    """A way of training steps. `weights`: who keeps them."""

    order: Order
    across: frozenset[Across]
    weights: Weights

    @property
    def name(self) -> tuple[str, str, str]:
        return self.order.value, across_named(self.across), self.weights.value

    @property
    def rates(self) -> Rates:
        """The usual ones; without momentum those of the table of trainings."""
        return Rates() if self.weights is Weights.DOUBLE else Rates(0.5, 0.0, self.weights)


_ACROSS = (
    frozenset[Across](), frozenset({Across.KEEP}), frozenset({Across.OVERLAP}),
    frozenset({Across.OVERLAP, Across.KEEP}), frozenset({Across.DEFER}), frozenset(Across),
)  # fmt: skip
#: Ways of a training step, the first of each who keeps the weights as a base for the others; steps of each on the RTL.
STEP_WAYS = (
    *(Way(order, some, Weights.DOUBLE) for order in (Order.SEQUENTIAL, Order.INTERLEAVED) for some in _ACROSS),
    *(Way(Order.SEQUENTIAL, some, Weights.INT8) for some in (_ACROSS[0], _ACROSS[-1])),
    *(Way(Order.SEQUENTIAL, some, Weights.CHIP) for some in (_ACROSS[0], _ACROSS[-1])),
)
STEPS = 3
#: Trainings in the functional executor: who keeps the weights, learning rate, momentum, seed; steps of each.
LEARNED = (
    ("double", 0.05, 0.9, 0),
    *(("int8", 0.5, 0.0, seed) for seed in (0, 1, 2, 3)),
    ("int8", 0.0625, 0.0, 0),
)
LEARNED_STEPS = 200
#: Ways to compute layers in a row: whether dX is kept, dW put off; those with an update.
WAYS = {"one program": (False, False), "keep": (True, False), "defer": (False, True), "keep, defer": (True, True)}
UPDATES = {"update apart": Update.APART, "update fused": Update.FUSED}
_MODULES = (
    "sched.papers.gradient.chain_search", "sched.papers.gradient.scheduler", "sched.lowering.programs",
    "sched.model.timeline",
)  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """What gradients take in the model; `refused`: why they cannot be computed so; `plain`: cycles of the paper's
    baseline, of single layers."""

    cycles: int
    dram_bytes: int
    refused: str = ""
    plain: int = 0


@dataclass(frozen=True)
class Ran:
    """A chain on the RTL."""

    nest: str
    rtl_cycles: int
    model_cycles: int
    compared: int
    wrong: int
    trouble: str = ""


@dataclass(frozen=True)
class Stepped:
    """A few training steps on the RTL, and the bytes of DRAM that one moves."""

    results: TrainingResults
    dram_bytes: int


_TAKEN, _RAN, _STEPPED, _LEARNED = (
    TypeAdapter(Taken),
    TypeAdapter(Ran),
    TypeAdapter(Stepped),
    TypeAdapter(TrainingResults),
)


@cache
def _memory(chip: str, rtl: bool = False) -> SearchCache:
    config = load(chip)
    said = "in the model"
    if rtl:
        parts = sorted(ingredients(config, DEVICE, waves=False).items())
        said = "on " + ", ".join(f"{name} {value}" for name, value in parts)
    more = ("tb.runs.training.run",) if chip == CHIP else ()
    return SearchCache(SCHEDULES.folder(), config, f"across layers {said}", *_MODULES, *more)


# -- training steps ---------------------------------------------------------------------------------------------------


def step(way: Way) -> Stepped | None:
    """What is kept of a way of training steps."""
    return _memory(CHIP, rtl=True).get(("step", *way.name), _STEPPED)


def learned(update: str, rate: float, momentum: float, seed: int) -> TrainingResults | None:
    """What is kept of a training in the functional executor."""
    return _memory(CHIP).get(("learned", update, rate, momentum, seed), _LEARNED)


def measure_steps(on_progress: OnEvent) -> None:
    """Trains on the RTL in each way, and with each way to keep the weights."""
    chip = load(CHIP)
    for way in STEP_WAYS:
        if step(way) is None:
            on_progress(Stage(workload="digits", what=", ".join(way.name)))
            asked = Training(
                "digits", chip, STEPS, Path(), order=way.order, across=way.across, device=DEVICE, rates=way.rates
            )
            found = Stepped(_trained(asked), _step_bytes(chip, way))
            _memory(CHIP, rtl=True).put(("step", *way.name), _STEPPED, found)
    for update, rate, momentum, seed in LEARNED:
        if learned(update, rate, momentum, seed) is None:
            on_progress(Stage(workload="digits", what=f"weights in {update}, rate {rate:g}, seed {seed}"))
            rates = Rates(rate, momentum, Weights(update))
            results = _trained(Training("digits", chip, LEARNED_STEPS, Path(), device=None, rates=rates, seed=seed))
            _memory(CHIP).put(("learned", update, rate, momentum, seed), _LEARNED, results)


def _trained(asked: Training) -> TrainingResults:
    with tempfile.TemporaryDirectory() as folder:
        return train(replace(asked, keep=Path(folder) / "checkpoint.npz"))


def _step_bytes(chip: ChipConfig, way: Way) -> int:
    net, updates = trainable.load("digits")[0], way.weights is Weights.CHIP
    made = training_step(net, chip, 64, way.order, across=way.across, update=updates)
    drams = set(chip.drams)
    operations = [one for half in (made.forward, made.backward) for one in half.schedule.operations]
    moved = (one for one in operations if isinstance(one, Move) and {one.src.tile, one.dst.tile} & drams)
    return sum(one.words for one in moved) * chip.lanes


# -- layers by themselves ---------------------------------------------------------------------------------------------


def chains(chip: str, network: str) -> tuple[Chain, ...]:
    """A network's rows of layers for a chip."""
    return find(f"chain:{network}", setting_of(load(chip)))


def named(chip: str, names: Sequence[str]) -> list[Chain]:
    """Rows of layers by name."""
    return [chain for name in names for chain in find(name, setting_of(load(chip)))]


def _alone(chip: str, layers: Sequence[TrainingLayer]) -> Taken:
    """The fastest order of each layer by itself, one after the other."""
    config, cycles, moved, plain = load(chip), 0, 0, 0
    searches = Searches(config, SCHEDULES.folder())
    for layer in layers:
        made = fastest(layer, config, folder=SCHEDULES.folder())
        assert made.schedule.predicted is not None
        cycles, moved = cycles + made.schedule.predicted.cycles, moved + made.dram_bytes
        if not layer.first:
            ((cores, split), *_) = ways(layer, config, len(config.cores), (Split.M, Split.N, Split.K))
            found = searches.find(layer, Order.PLAIN, cores, split)
            plain += made.schedule.predicted.cycles if isinstance(found, Refused) else found.cycles
        else:
            plain += made.schedule.predicted.cycles
    return Taken(cycles, moved, plain=plain)


def argmin(chip: str, chain: Chain) -> Taken | None:
    """What is kept of a chain's layers by themselves."""
    return _memory(chip).get(("argmin", chain.name), _TAKEN)


def taken(chip: str, chain: Chain, way: str) -> Taken | None:
    """What is kept of a chain."""
    return _memory(chip).get((way, chain.name), _TAKEN)


def _plan(chip: ChipConfig, way: str) -> ChainPlan:
    keep, defer = WAYS.get(way, (True, True))
    return ChainPlan(0, 0, 0, len(chip.cores), keep, defer, UPDATES.get(way, Update.NONE))


def measure(chip: str, networks: Sequence[str], on_progress: OnEvent) -> None:
    """Chains of networks in all ways, and their layers by themselves, in the model."""
    config, memory = load(chip), _memory(chip)
    for network in networks:
        for chain in chains(chip, network):
            if argmin(chip, chain) is None:
                on_progress(Stage(workload=chain.name, what=f"{chip}, layers by themselves"))
                memory.put(("argmin", chain.name), _TAKEN, _alone(chip, chain.layers))
            for way in (*WAYS, *UPDATES):
                if taken(chip, chain, way) is not None:
                    continue
                on_progress(Stage(workload=chain.name, what=f"{chip}, {way}"))
                try:
                    made = chained(chain, config, _plan(config, way), "chain", SCHEDULES.folder())
                except DoesNotFit as error:
                    found = Taken(0, 0, str(error))
                else:
                    assert made.schedule.predicted is not None
                    found = Taken(made.schedule.predicted.cycles, made.dram_bytes)
                memory.put((way, chain.name), _TAKEN, found)


# -- siblings ---------------------------------------------------------------------------------------------------------


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
_SIBLINGS = {"goo": ("_1x1", "_3x3_reduce", "_5x5_reduce"), "res": ("_1", "_shortcut")}


@cache
def siblings(chip: str, name: str) -> tuple[Siblings, ...]:
    """Those of a network, or of a module (`NETWORK/MODULE`), unless they are unfolded."""
    network, _, module = name.partition("/")
    layers = {
        layer.name.partition(",")[0]: layer for layer in find_layers(f"gradient:{network}", setting_of(load(chip)))
    }
    first, *others = _SIBLINGS[network]
    found: list[Siblings] = []
    for layer in layers:
        stem = layer.removesuffix(first)
        some = [layers[stem + end] for end in (first, *others) if stem != layer and stem + end in layers]
        whole = len(some) == len(others) + 1 and stem.partition("/")[2].startswith(module)
        if whole and not any(one.unfolded for one in some):
            found.append(Siblings(f"{stem.removeprefix('gradient:')}: {len(some)}", tuple(some)))
    return tuple(found)


def apart(chip: str, some: Siblings) -> Taken | None:
    """What is kept of siblings by themselves."""
    return _memory(chip).get(("apart", some.name), _TAKEN)


def joined(chip: str, some: Siblings) -> Taken | None:
    """What is kept of siblings as one product."""
    return _memory(chip).get(("joined", some.name), _TAKEN)


def measure_joined(chip: str, networks: Sequence[str], on_progress: OnEvent) -> None:
    """Siblings by themselves and joined, in the model."""
    for network in networks:
        for some in siblings(chip, network):
            for what, layers in (("apart", some.layers), ("joined", find_layers(some.joined, setting_of(load(chip))))):
                if _memory(chip).get((what, some.name), _TAKEN) is None:
                    on_progress(Stage(workload=some.name, what=f"{chip}, {what}"))
                    _memory(chip).put((what, some.name), _TAKEN, _alone(chip, layers))


# -- on the RTL -------------------------------------------------------------------------------------------------------


def rtl_ways(chip: str) -> tuple[str, ...]:
    """The ways that run on a chip's RTL: updates where words of W and of results have the same channels."""
    config = load(chip)
    updates = tuple(UPDATES) if config.cols == config.lanes else ()
    return ("one program", "keep, defer", *updates)


def ran(chip: str, chain: Chain, way: str) -> Ran | None:
    """What is kept of a run on the RTL."""
    return _memory(chip, rtl=True).get((way, chain.name), _RAN)


def measure_on_rtl(chip: str, names: Sequence[str], on_progress: OnEvent) -> None:
    """Runs chains in all ways."""
    for way in rtl_ways(chip):
        plan = _plan(load(chip), way)
        scheduler = f"chain:keep={plan.keep},defer={plan.defer},update={plan.update}".lower()
        left = {chain.name: chain for chain in named(chip, names) if ran(chip, chain, way) is None}

        def keep(event: Event, left: dict[str, Chain] = left, way: str = way) -> None:
            if not isinstance(event, Row):
                on_progress(event)
                return
            trouble = "" if event.status is Status.PASSED else f"{event.status}: {event.reason}"
            nest = event.gradient.nest if event.gradient else ""
            one = Ran(nest, event.rtl_cycles, event.model_cycles, event.bytes_checked, event.mismatches, trouble)
            _memory(chip, rtl=True).put((way, left[event.workload].name), _RAN, one)

        if left:
            run_workloads(list(left), chip, scheduler, keep, RunOptions(device=DEVICE, here=True))
