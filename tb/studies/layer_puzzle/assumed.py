"""Workloads served under one assumption after the other: who arrives when, how a channel shares itself, what is in the
workload, how layers may be cut.

Each workload is a scenario (`Setting.scenario`), so `meshloom serve` serves the same; `scripts/puzzle_scenario.py`
writes it as a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.online.registry import chosen
from meshloom.sched.support.garbage import uncollected
from meshloom.sched.workload.arrivals import Poisson
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.sched.workload.workload_sets import FACTORS

from ...results.scenario import InstanceRow, ScenarioResults
from ...runs.online.networks import Compiled, compile_networks
from ...runs.online.serve import serve
from ..engine.point import Inputs, Point, Report
from ..points.runs import chip_of
from .replanned import NAME as REPLANNED
from .served import DECIDE, FOREST, digest_of

CHIP = "lp9"
#: Networks of every workload: NCF once, and `OTHERS` more, drawn from a mix.
SHORT, OTHERS = "ncf", 3
#: The Transformer with all that it computes beside products with weights; cores need `vec_whole` for it.
WHOLE = "transformer_whole"
#: Mixes: what is served soonest; all of Table III, the Transformer by its products with weights, and whole.
MIXES = {
    "two": ("googlenet", "mobilenet_v1"),
    "table3": ("googlenet", "mobilenet_v1", "resnet50", "transformer"),
    "whole": ("googlenet", "mobilenet_v1", "resnet50", WHOLE),
}
#: Thousands of cycles that a network takes alone on all nine cores, rounded: loads are reckoned with these.
KILOCYCLES = {"googlenet": 435, "mobilenet_v1": 183, "resnet50": 822, "ncf": 3, "transformer": 612, WHOLE: 918}
#: The trace: two networks at a time, the second 20,000 cycles behind the first, every 400,000 cycles.
TRACE = (0, 20_000, 400_000, 420_000)
#: Seeds of workloads.
SEEDS = tuple(range(1, 11))


@dataclass(frozen=True)
class Setting:
    """What is assumed. `arrivals`: "at once", "poisson" or "trace"; `load`: of a Poisson process, the networks' cycles
    alone on all cores over the time between two arrivals; `arbitration`: of DRAM channels; `short`: whether NCF is in
    the workload; `mix`: of `MIXES`; `batch`: images of MobileNet and NCF."""

    arrivals: str = "at once"
    load: float = 0.0
    arbitration: str = "fifo"
    short: bool = True
    mix: str = "two"
    batch: int = 1

    @property
    def chip(self) -> ChipConfig:
        """The chip that serves."""
        shared = () if self.arbitration == "fifo" else (("dram.arbitration", self.arbitration),)
        return chip_of(CHIP, shared + ((("core.vec_whole", True),) if self.mix == "whole" else ()))

    @property
    def words(self) -> str:
        """What is assumed, for a table."""
        arrivals = f"Poisson, load {self.load:g}" if self.arrivals == "poisson" else self.arrivals
        more = (
            "" if self.arbitration == "fifo" else f"channels {self.arbitration.replace('_', ' ')}",
            "" if self.short else "no NCF",
            {"two": "", "table3": "all of Table III", "whole": "all of Table III, the Transformer whole"}[self.mix],
            "" if self.batch == 1 else f"batches of {self.batch}",
        )
        return ", ".join((arrivals, *filter(None, more)))

    def scenario(self, seed: int) -> Scenario:
        """The workload of a seed. Networks and the draws of arrivals depend on nothing but seed and mix: workloads of
        one seed differ by what is assumed alone."""
        raw = [int(draw) >> 16 for draw in np.atleast_1d(np.asarray(np.random.PCG64(seed).random_raw(OTHERS + 1)))]
        names = [MIXES[self.mix][draw % len(MIXES[self.mix])] for draw in raw[:OTHERS]]
        names.insert(raw[OTHERS] % (OTHERS + 1), SHORT)
        requests = [
            Request(name, self.batch if name in ("mobilenet_v1", SHORT) else 1, cycle, None, FACTORS[9])
            for name, cycle in zip(names, self._cycles(names, seed), strict=True)
            if self.short or name != SHORT
        ]
        return Scenario(f"puzzle{seed}", tuple(requests))

    def _cycles(self, names: list[str], seed: int) -> tuple[int, ...]:
        if self.arrivals == "trace":
            return TRACE
        if self.arrivals == "at once":
            return (0,) * len(names)
        mean = sum(KILOCYCLES[name] for name in names) / len(names)
        return Poisson(poisson=1000 * self.load / mean, number=len(names), seed=1000 + seed).cycles()


@dataclass(frozen=True)
class NetworkTimes:
    """A network as it is compiled: its layers and programs, and cycles alone on one core and on all."""

    layers: int
    programs: int
    one: int
    all: int


@dataclass(frozen=True)
class NetworkTimesPoint(Point):
    """A network compiled for the chip with an arbitration. `schemes`: "all", or the parallelisation that it is held
    to."""

    network: str
    batch: int = 1
    arbitration: str = "fifo"
    schemes: str = "all"
    row: ClassVar[Any] = NetworkTimes

    @property
    def name(self) -> str:
        return f"{self.network} x{self.batch} for {CHIP}, {self.arbitration}, schemes {self.schemes}"

    @property
    def work(self) -> float:
        """More than anything that needs what it compiles: it comes first."""
        return 50.0 * self.batch

    @property
    def chip(self) -> ChipConfig:
        """That it is compiled for."""
        return Setting(arbitration=self.arbitration, mix="whole" if self.network == WHOLE else "two").chip

    def inputs(self) -> Inputs:
        return Inputs(("tb.runs.online.networks",), (("chip", self.chip.digest),))

    def measure(self, report: Report) -> NetworkTimes:
        """Compiles it; what is compiled is kept on this machine. Raises DoesNotFit, WorkloadError."""
        scenario = Scenario(self.network, (Request(self.network, self.batch),))
        (one,) = compile_networks(scenario, self.chip, report, self.schemes).values()
        return NetworkTimes(
            len(one.templates), sum(map(len, one.templates)), *_alone(one, len(self.chip.cores)),
        )  # fmt: skip


def _alone(one: Compiled, cores: int) -> tuple[int, int]:
    """Cycles alone on as few cores as it needs, and on all."""
    return one.network.isolated(one.network.least_cores()), one.network.isolated(cores)


@dataclass(frozen=True)
class RequestLife:
    """A request that was served, in cycles. `turnaround`: from arrival to end; `one`, `all`: alone on one core, and on
    all; `due`: from arrival to deadline; `waited`: from arrival to the first launch; `free`: cores that nothing ran on
    meanwhile, in the mean."""

    network: str
    batch: int
    arrival: int
    turnaround: int
    one: int
    all: int
    due: int
    waited: int
    free: float

    @property
    def possible(self) -> bool:
        """Whether the deadline leaves the time that it takes alone on the whole chip."""
        return self.due >= self.all


@dataclass(frozen=True)
class Lives:
    """A workload that was served in the timeline model: its requests in order of arrival, cycles to the last end, part
    of the PEs' cycles that were used, launches; `reasons`: what is wrong, in words."""

    requests: tuple[RequestLife, ...]
    cycles: int
    use: float
    launches: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class AssumedPoint(Point):
    """A workload served under a setting. `scheduler`: with its options."""

    setting: Setting
    seed: int
    scheduler: str
    row: ClassVar[Any] = Lives

    @property
    def name(self) -> str:
        return f"workload {self.seed}, {self.setting.words}, by {self.scheduler.rpartition('.')[2]}"

    @cached_property
    def scenario(self) -> Scenario:
        """What is served."""
        return self.setting.scenario(self.seed)

    @property
    def networks(self) -> tuple[NetworkTimesPoint, ...]:
        """What has to be compiled: for fixed parallelisations, all versions too, which give deadlines."""
        kinds = dict.fromkeys(("all", getattr(chosen(self.scheduler)[1], "schemes", "all")))
        arbitration = self.setting.arbitration
        return tuple(NetworkTimesPoint(*each, arbitration, kind) for kind in kinds for each in self.scenario.networks)

    @property
    def work(self) -> float:
        """Some seconds for each million cycles of the networks alone."""
        return 0.005 * sum(KILOCYCLES[each.network] * each.batch for each in self.scenario.requests)

    def inputs(self) -> Inputs:
        scheduler, options = self.scheduler.partition(":")[0], chosen(self.scheduler)[1].model_dump()
        where = {
            "lookahead": "sched.schedulers.online.lookahead",
            REPLANNED.partition(":")[0]: "tb.studies.layer_puzzle.replanned",
        }
        more = [("chip", self.setting.chip.digest), ("scenario", repr(self.scenario)), ("options", repr(options))]
        more += [("forest", digest_of(FOREST))] * (options.get("estimator") == "forest")
        return Inputs((*DECIDE, where.get(scheduler, f"sched.papers.layer_puzzle.{scheduler}")), tuple(more))

    def measure(self, report: Report) -> Lives:
        """Raises ServingError, WindowError, CheckError."""
        chip = self.setting.chip
        with uncollected():
            results = serve(self.scenario, chip, self.scheduler, device=None, on_progress=report).results
        compiled = compile_networks(self.scenario, chip, report)
        times = {key: _alone(one, len(chip.cores)) for key, one in compiled.items()}
        return lives_of(results, times)


def lives_of(results: ScenarioResults, times: dict[tuple[str, int], tuple[int, int]]) -> Lives:
    """What the study needs of results. `times`: of each network and batch, cycles alone on one core and on all."""
    requests = tuple(_life(row, results, *times[row.network, row.batch]) for row in results.instances if row.end)
    figures = results.scenario
    return Lives(
        requests, figures.model_cycles, figures.model.utilisation, figures.decisions,
        () if results.ok else tuple(results.reasons),
    )  # fmt: skip


def _life(row: InstanceRow, results: ScenarioResults, one: int, every: int) -> RequestLife:
    """A request that came to its end."""
    spans = [(each.launched, each.model_end or each.launched, len(each.cores)) for each in results.programs]
    first = min(each.launched for each in results.programs if each.instance == row.number)
    busy = sum(max(0, min(end, first) - max(begin, row.arrival)) * cores for begin, end, cores in spans)
    waited, cores = first - row.arrival, len(chip_of(CHIP).cores)
    return RequestLife(
        row.network, row.batch, row.arrival, row.turnaround or 0, one, every, (row.deadline or 0) - row.arrival,
        waited, cores - busy / max(1, waited),
    )  # fmt: skip


def with_networks(points: Iterable[AssumedPoint]) -> list[Point]:
    """Points, and before them what they need to have compiled."""
    some = list(dict.fromkeys(points))
    return [*dict.fromkeys(network for point in some for network in point.networks), *some]


def poisson(load: float, **more: Any) -> Setting:
    """Networks that arrive one by one."""
    return replace(Setting("poisson", load), **more)
