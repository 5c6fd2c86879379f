"""Workloads of many networks, served by online schedulers in the timeline model and on the RTL; what these networks
are compiled to."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from meshloom.sched.schedulers.online.registry import chosen
from meshloom.sched.workload.scenario import Request, Scenario
from meshloom.sched.workload.workload_sets import workload_sets

from ...build.builder import ROOT
from ...results.scenario import Metrics, ScenarioResults
from ...runs.online.networks import compile_networks
from ...runs.online.serve import serve
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..points.runs import DEVICE, chip_of, gateware

#: What decides what happens, besides the scheduler; with what these import, such as the compiler.
DECIDE = (
    *(f"sched.schedulers.online.{name}" for name in ("drive", "instances", "metrics")),
    "sched.model.modelled",
    "sched.papers.layer_puzzle.estimator",
    "tb.runs.online.serve",
)
#: What else decides for schedulers that ask the trained estimator.
FOREST = "sched/papers/layer_puzzle/congestion.npz"


@dataclass(frozen=True)
class Scores:
    """Average normalised turnaround time, system throughput, parts of deadlines missed and of PEs used."""

    antt: float
    stp: float
    sla: float
    use: float


def scores_of(metrics: Metrics) -> Scores:
    """Those of a scenario's metrics."""
    return Scores(metrics.antt, metrics.stp, metrics.sla_violations, metrics.utilisation)


@dataclass(frozen=True)
class Life:
    """An instance that came to its end. `ran`: cycles in which a program of it ran; `held`: the same times its cores;
    `slowdown`: its normalised turnaround time."""

    network: str
    turnaround: int
    slowdown: float
    ran: int
    held: int


@dataclass(frozen=True)
class Served:
    """A workload that was served. `scores`: as it ran, on the RTL if it did; `model`: in the timeline model; `wait`:
    cycles of a decision; `decisions`, of which `differ` on the RTL; `seconds` of a decision here, mean and worst;
    `worst_end`: how far a program's end is from the model's, in percent; `compared` bytes of which `wrong` differ;
    `lives`: of `networks` those that came to their end; `reasons`: what is wrong, in words."""

    scores: Scores
    model: Scores
    networks: int
    rtl_cycles: int
    model_cycles: int
    wait: int
    decisions: int
    differ: int
    seconds: tuple[float, float]
    worst_end: float
    compared: int
    wrong: int
    lives: tuple[Life, ...]
    reasons: tuple[str, ...] = ()


def row_of(results: ScenarioResults) -> Served:
    """What a study needs of results."""
    figures = results.scenario
    errors = (abs(row.error_percent) for row in results.programs if row.error_percent is not None)
    return Served(
        scores_of(figures), scores_of(figures.model), len(results.instances), figures.rtl_cycles or 0,
        figures.model_cycles, figures.decision_cycles, figures.decisions, figures.decisions_differ,
        figures.decision_seconds, max(errors, default=0.0), figures.bytes_checked, figures.mismatches,
        lives_of(results), () if results.ok else tuple(results.reasons),
    )  # fmt: skip


def lives_of(results: ScenarioResults) -> tuple[Life, ...]:
    """All instances that came to their end, as they were in the model or, had it run, on the RTL."""
    ran, held, until = (defaultdict[int, int](int) for _ in range(3))
    for row in sorted(results.programs, key=lambda row: row.launched):
        end = row.model_end if row.rtl_end is None else row.rtl_end
        if end is None:
            continue
        cycles = end - max(row.launched, until[row.instance])  # a successor is launched while the layer before runs
        ran[row.instance] += cycles
        held[row.instance] += cycles * len(row.cores)
        until[row.instance] = end
    return tuple(
        Life(row.network, row.turnaround, row.slowdown, ran[row.number], held[row.number])
        for row in results.instances
        if row.turnaround is not None and row.slowdown is not None
    )


@dataclass(frozen=True)
class Programs:
    """What a network was compiled to. `forms`: how many of its templates differ in more than addresses and scales;
    `code`: bytes of all; `pages`: of an instance's window."""

    layers: int
    templates: int
    forms: int
    instructions: int
    code: int
    pages: int


@dataclass(frozen=True)
class ProgramsPoint(Point):
    """A network compiled for a chip and a batch size. `schemes`: "all", or the parallelisation that it is held to."""

    chip: str
    network: str
    batch: int
    schemes: str = "all"
    row: ClassVar[Any] = Programs

    @property
    def name(self) -> str:
        return f"{self.network} x{self.batch} for {self.chip}, schemes {self.schemes}"

    @property
    def work(self) -> float:
        """More than anything that needs what it compiles: it comes first."""
        return 150.0 * self.batch

    def inputs(self) -> Inputs:
        return Inputs(("tb.runs.online.networks",), (("chip", chip_of(self.chip).digest),))

    def measure(self, report: Report) -> Programs:
        """Compiles it; what is compiled is kept on this machine. Raises DoesNotFit, WorkloadError."""
        scenario = Scenario(self.network, (Request(self.network, self.batch),))
        (one,) = compile_networks(scenario, chip_of(self.chip), report, self.schemes).values()
        templates = [template for each in one.templates for template in each.values()]
        forms = {
            (one.served.form(index), template.scheme)
            for index, each in enumerate(one.templates)
            for template in each.values()
        }
        return Programs(
            len(one.templates), len(templates), len(forms), sum(len(each.words) for each in templates),
            sum(each.size for each in templates), one.pages,
        )  # fmt: skip


@cache
def _scenarios(chip: str) -> dict[str, Scenario]:
    return {each.name: each for each in workload_sets(len(chip_of(chip).cores))}


@cache
def digest_of(file: str) -> str:
    return hashlib.sha256(Path(ROOT, file).read_bytes()).hexdigest()


@dataclass(frozen=True)
class ServedPoint(Point):
    """One of the workload sets' scenarios. `scheduler`: with its options; `rtl`: on the RTL, too; `wait`: cycles from
    an event to the launch of what is decided on it, None for the least that registers take."""

    chip: str
    workload: str
    scheduler: str
    rtl: bool = False
    wait: int | None = None
    row: ClassVar[Any] = Served

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.chip} by {self.scheduler}" + " on the RTL" * self.rtl

    @property
    def scenario(self) -> Scenario:
        """What is served."""
        return _scenarios(self.chip)[self.workload]

    @property
    def networks(self) -> tuple[ProgramsPoint, ...]:
        """What has to be compiled: for fixed parallelisations, all versions too, which give deadlines."""
        held = getattr(chosen(self.scheduler)[1], "schemes", "all")
        kinds = dict.fromkeys(("all", held))
        return tuple(ProgramsPoint(self.chip, *each, kind) for kind in kinds for each in self.scenario.networks)

    @property
    def work(self) -> float:
        """The RTL takes some three times as long as the model."""
        return 3.0 * len(self.scenario.requests) * (4 if self.rtl else 1)

    def inputs(self) -> Inputs:
        scheduler, options = self.scheduler.partition(":")[0], chosen(self.scheduler)[1].model_dump()
        folder = "schedulers.online" if scheduler == "lookahead" else "papers.layer_puzzle"
        more = [("chip", chip_of(self.chip).digest), ("scenario", repr(self.scenario)), ("options", repr(options))]
        more += [("gateware", gateware())] * self.rtl
        more += [("forest", digest_of(FOREST))] * (options.get("estimator") == "forest")
        return Inputs((*DECIDE, f"sched.{folder}.{scheduler}"), tuple(more))

    def measure(self, report: Report) -> Served:
        """Raises ServingError, WindowError, CheckError, DeviceError."""
        device = DEVICE if self.rtl else None
        return row_of(
            serve(
                self.scenario, chip_of(self.chip), self.scheduler, device=device, wait=self.wait, on_progress=report,
                on_event=lambda where, cycle, instance, what: report(f"{where}, cycle {cycle:,}"),
            ).results
        )  # fmt: skip


def with_networks(points: Iterable[ServedPoint]) -> list[Point]:
    """Points, and before them what they need to have compiled."""
    some = list(dict.fromkeys(points))
    return [*dict.fromkeys(network for point in some for network in point.networks), *some]


def look(rows: Rows, point: ServedPoint) -> Served | None:
    """The row of a point; where none was measured in the model alone, that of an RTL run will do."""
    row = rows.get(point)
    return rows.get(replace(point, rtl=True)) if row is None else row


def mean_of(scores: Sequence[Scores]) -> Scores | None:
    """The mean of all; None of none."""
    if not scores:
        return None
    antt, stp, sla, use = (
        sum(getattr(one, metric) for one in scores) / len(scores) for metric in ("antt", "stp", "sla", "use")
    )
    return Scores(antt, stp, sla, use)
