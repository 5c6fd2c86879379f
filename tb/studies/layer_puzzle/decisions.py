"""How long a form takes to predict a layer, and an online scheduler to decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.model.modelled import ModelSession
from meshloom.sched.papers.layer_puzzle import samples
from meshloom.sched.papers.layer_puzzle.samples import Runs, shape_of
from meshloom.sched.papers.layer_puzzle.stepwise import stepwise
from meshloom.sched.schedulers.online import latency
from meshloom.sched.schedulers.online.interface import Instance, Network, OnlineScheduler, Placement, Platform, View
from meshloom.sched.schedulers.online.registry import online_scheduler
from meshloom.sched.schedulers.online.versions import predicted, saving
from meshloom.sched.workload import zoo
from meshloom.sched.workload.workload_sets import BATCHES, NETWORKS

from ..engine.point import Inputs, Point, Report
from ..points.runs import chip_of
from .chunks import drawn

#: Algorithm 1 in four forms.
FORMS: dict[str, latency.Predictor] = {
    "as printed": latency.literal,
    "mended": latency.corrected,
    "mended, with queues (7 constants fitted)": latency.queued,
    "by steps (none fitted)": stepwise,
}
#: Decisions that are timed, and how often each: the quickest counts, for what else the machine does is not the
#: scheduler's.
DECISIONS, TRIES = 200, 3


class _Timed(Point):
    """A point whose row has times, or what they are of."""

    chip: str

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        modules = (
            "sched.schedulers.online.registry",
            "sched.papers.layer_puzzle.samples",
            "tb.studies.layer_puzzle.decisions",
        )
        return Inputs(modules, (("chip", chip_of(self.chip).digest),))


@dataclass(frozen=True)
class FormTimes:
    """CPU-microseconds a layer: of each form, in the order of FORMS, and of the timeline model."""

    forms: tuple[float, ...]
    model: float


@dataclass(frozen=True)
class FormTimesPoint(_Timed):
    """The layers of the first chunk."""

    chip: str
    row: ClassVar[Any] = FormTimes

    @property
    def name(self) -> str:
        return "times of predictions"

    def measure(self, report: Report) -> FormTimes:
        chip = chip_of(self.chip)
        layers = samples.compiled(drawn(self.chip)[0], chip)
        runs = Runs(ModelSession(chip), layers)
        before = time.process_time()
        for layer in range(len(layers)):
            runs.alone(layer)
        model = (time.process_time() - before) / len(layers) * 1e6
        draws = [draw for draw, _ in layers]

        def spent(form: Callable[[samples.Draw], object]) -> float:
            begin = time.process_time()
            for draw in draws:
                form(draw)
            return (time.process_time() - begin) / len(draws) * 1e6

        forms = (
            spent(lambda draw, form=form: form(shape_of(draw, chip), draw.scheme, chip, 1.0)) for form in FORMS.values()
        )
        return FormTimes(tuple(forms), model)


@dataclass(frozen=True)
class DecisionTimes:
    """Launches of a decision, in the mean, and CPU-microseconds that it takes, in the mean and at worst."""

    launches: float
    mean: float
    worst: float


@dataclass(frozen=True)
class DecisionPoint(_Timed):
    """Decisions of a scheduler on a chip."""

    chip: str
    scheduler: str
    row: ClassVar[Any] = DecisionTimes

    @property
    def name(self) -> str:
        return f"decisions of {self.scheduler} on {self.chip}"

    def measure(self, report: Report) -> DecisionTimes:
        chip = chip_of(self.chip)
        platform = Platform.of(chip)
        networks = [predicted(ServedNetwork(zoo.load(name), chip, batch)) for name in NETWORKS for batch in BATCHES]
        for network in networks:  # what a network knows of itself it works out once
            for cores in range(network.least_cores(), len(platform.cores) + 1):
                network.isolated(cores)
        views = list(islice(_views(networks, platform, Random(samples.SEED)), DECISIONS))
        schedulers = [[online_scheduler(self.scheduler, platform) for _ in range(TRIES)] for _ in views]
        spent = [min(_microseconds(one, view) for one in each) for each, view in zip(schedulers, views, strict=True)]
        launches = fmean(len(online_scheduler(self.scheduler, platform).decide(view)) for view in views)
        return DecisionTimes(launches, fmean(spent), max(spent))


def _views(networks: Sequence[Network], platform: Platform, random: Random) -> Iterator[View]:
    """Ten networks somewhere in their course, some of which run, on a chip of which some cores are free."""
    while True:
        free = list(platform.cores)
        random.shuffle(free)
        free = free[: random.randint(1, len(free))]
        busy = [core for core in platform.cores if core not in free]
        instances: list[Instance] = []
        running: list[Placement] = []
        for number, network in enumerate(networks):
            one = Instance(
                number, network, 0, random.randint(1_000_000, 9_000_000), random.randrange(len(network.layers))
            )
            version = one.layer.fastest(len(busy))
            if version is not None and random.random() < 0.5:
                cores, busy = tuple(busy[: version.cores]), busy[version.cores :]
                running.append(Placement(number, one.next, version, cores, 999_000))
                one = replace(one, running=True)
            instances.append(one)
        slots = platform.programs - len(running)
        yield View(1_000_000, platform, tuple(sorted([*free, *busy])), slots, tuple(instances), tuple(running))


def _microseconds(scheduler: OnlineScheduler, view: View) -> float:
    """Of a decision."""
    before = time.process_time_ns()
    scheduler.decide(view)
    return (time.process_time_ns() - before) / 1000


@dataclass(frozen=True)
class Versions:
    """Of a network for a batch: all versions of its layers, and those on Pareto fronts."""

    all: int
    front: int


@dataclass(frozen=True)
class VersionPoint(_Timed):
    """The versions of a network."""

    chip: str
    network: str
    batch: int
    row: ClassVar[Any] = Versions

    @property
    def name(self) -> str:
        return f"versions of {self.network}, batch {self.batch}"

    @property
    def work(self) -> float:
        return 3.0

    def measure(self, report: Report) -> Versions:
        chip: ChipConfig = chip_of(self.chip)
        saved = saving(ServedNetwork(zoo.load(self.network), chip, self.batch).shapes, chip)
        return Versions(saved.all, saved.front)
