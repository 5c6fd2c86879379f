"""Partitions of networks into micro-ops: Klotski's Bayesian optimisation beside its baselines and what beats it.

C. Bai et al., "Klotski: DNN Model Orchestration Framework for Dataflow Architecture Accelerators", ICCAD 2023, section
III-B and IV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean
from typing import Any, ClassVar

import numpy as np

from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play as play_program
from meshloom.sched.papers.klotski.cutting import cut_up
from meshloom.sched.papers.klotski.judging import Judge, Objective, Trial, trial_cache
from meshloom.sched.papers.klotski.partition import listed, micro_ops
from meshloom.sched.papers.klotski.placing import placed
from meshloom.sched.papers.klotski.playing import Cores, play
from meshloom.sched.papers.klotski.program import program
from meshloom.sched.papers.klotski.search import BUDGET, Method, search
from meshloom.sched.papers.klotski.shares import shared
from meshloom.sched.papers.klotski.space import MOST_OPS, Form
from meshloom.sched.papers.klotski.work import stages_of
from meshloom.sched.papers.klotski.zigzag import undivided, zigzag
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, ratio, share, table
from ..engine.values import with_settings
from ..points.runs import chip_of

CHIPS = ("klotski9", "klotski16", "klotski25")
NETWORKS = ("vgg16", "vgg19", "resnet50", "resnet152", "inception_v3")
#: Networks and seeds on which objectives are compared, on the first chip.
COMPARED, SEEDS = ("resnet50", "inception_v3"), (1, 2, 3)
#: Network whose partitions become programs, on the first chip.
PLAYED = "squeezenet"
#: Percent that a program may be off its trial.
PROGRAM_BAR = 15.0


@dataclass(frozen=True)
class Way:
    """How a partition is chosen: by a search (how it goes on, what its points are, what it maximises), or, without one,
    in zig-zag order: `turns` micro-ops for each core and layer, 0 for whole layers."""

    method: Method | None
    form: Form = Form.SIZES
    objective: Objective = Objective.MAKESPAN
    turns: int = 1


BAYES = "Bayesian optimisation (Algorithm 1)"
LAYERWISE = "layer-wise"
WHOLE, SHARED = "zig-zag, whole layers", "zig-zag, all cores"
WAYS = {
    WHOLE: Way(None, turns=0),
    SHARED: Way(None),
    "annealing (atomic dataflow)": Way(Method.ANNEALING),
    BAYES: Way(Method.BAYES, objective=Objective.ENTROPY),
    "random": Way(Method.RANDOM),
    "annealing, parts": Way(Method.ANNEALING, Form.PARTS),
    LAYERWISE: Way(Method.LAYERWISE, Form.LAYERS),
}
#: Searches whose objectives are compared.
SEARCHES = (
    (Method.BAYES, Form.SIZES),
    (Method.ANNEALING, Form.SIZES),
    (Method.BAYES, Form.PARTS),
    (Method.ANNEALING, Form.PARTS),
    (Method.LAYERWISE, Form.LAYERS),
)


@lru_cache(maxsize=1)
def judge(network: str, chip: str) -> Judge:
    """Of a network on a chip; its trials are kept, so a search that was interrupted goes on."""
    config = chip_of(chip)
    return Judge(stages_of(zoo.load(network), config), config, trial_cache(SCHEDULES.folder(), config))


@dataclass(frozen=True)
class Partition:
    """A partition: kinds of micro-ops and how many, entropy in nats, cycles of its schedule and of its bound; and of
    its program in the timeline model, 0 where it was not made."""

    kinds: int
    micro_ops: int
    entropy: float
    makespan: int
    bound: int
    program_cycles: int = 0


@dataclass(frozen=True)
class PartitionPoint(Point):
    """A partition of a network for a chip; `program`: with the program of it."""

    chip: str
    network: str
    way: Way
    seed: int = 1
    program: bool = False
    row: ClassVar[Any] = Partition

    @property
    def name(self) -> str:
        return f"{self.network} on {self.chip}, {self.way.method or 'zig-zag'} over {self.way.form}"

    @property
    def work(self) -> float:
        return 20.0 if self.way.method else 2.0

    def inputs(self) -> Inputs:
        programs = ("sched.papers.klotski.program", "sched.lowering.semaphores.lower", "sched.model.timeline")
        modules = ("sched.papers.klotski.search", "sched.papers.klotski.zigzag", "sched.workload.zoo")
        return Inputs(modules + programs * self.program, (("chip", chip_of(self.chip).digest),))

    def measure(self, report: Report) -> Partition:
        known = judge(self.network, self.chip)
        trial, makespan = self._searched(known) if self.way.method else self._zigzag(known)
        cycles = _program_cycles(known, trial) if self.program else 0
        return Partition(trial.kinds, trial.count, trial.entropy, makespan, trial.bound, cycles)

    def _searched(self, known: Judge) -> tuple[Trial, int]:
        assert self.way.method is not None
        best = search(known, self.way.method, self.way.form, self.way.objective, BUDGET, self.seed).best
        return best, best.makespan

    def _zigzag(self, known: Judge) -> tuple[Trial, int]:
        """Baseline 1: one layer after the other, uncut or shared by all cores, in zig-zag order. The trial is of the
        same partition; how it is played here is the second, but where a program is made of the trial."""
        chip, whole = known.chip, self.way.turns == 0
        given = undivided(known.works, chip) if whole else shared(known.works, chip, self.way.turns)
        extents = [partition.extent(work, chip) for partition, work in zip(given, known.works, strict=True)]
        if self.program:
            trial = known.look(extents)
            return trial, trial.makespan
        parts = known.fitted(extents)
        cut = cut_up(known.stages, known.works, parts, chip)
        where = np.array(zigzag(listed(cut, chip), chip, whole).cores, np.int64)
        return known.look(parts), play(cut, Cores.of(chip), where, barrier=True).makespan


def _program_cycles(known: Judge, trial: Trial) -> int:
    chip = known.chip
    graph = micro_ops(known.stages, chip, trial.partitions(chip))
    schedule = program(graph, placed(graph, chip), chip, "klotski").schedule
    return play_program(lower(schedule, chip), chip).cycles


def _compared(seeds: Sequence[int], networks: Sequence[str]) -> list[PartitionPoint]:
    return [
        PartitionPoint(CHIPS[0], network, Way(method, form, objective), seed)
        for network in networks
        for method, form in SEARCHES
        for objective in Objective
        for seed in seeds
    ]


#: Partitions that become programs, by name.
PROGRAMS = {
    "1 micro-ops a core and layer": Way(None, turns=1),
    "2 micro-ops a core and layer": Way(None, turns=2),
    **{name: way for name, way in WAYS.items() if way.method},
}


def points(full: bool) -> list[PartitionPoint]:
    """Quick: ResNet-50 on the first chip, one seed, and the programs."""
    chips, networks = (CHIPS, NETWORKS) if full else (CHIPS[:1], COMPARED[:1])
    some = [PartitionPoint(chip, network, way) for chip in chips for network in networks for way in WAYS.values()]
    some += _compared(SEEDS, COMPARED) if full else _compared(SEEDS[:1], COMPARED[:1])
    return [*some, *(PartitionPoint(CHIPS[0], PLAYED, way, program=True) for way in PROGRAMS.values())]


class _Line:
    """A partition beside that of whole layers."""

    def __init__(self, rows: Rows, network: str, name: str, point: PartitionPoint) -> None:
        self.network, self.name, self.row = network, name, rows[point]
        self.first = rows.get(PartitionPoint(point.chip, network, WAYS[WHOLE]))


def partitions(rows: Rows) -> list[Table]:
    """All ways, a table for each chip."""
    columns: dict[str, Callable[[_Line], str]] = {
        "network": lambda line: line.network,
        "method": lambda line: line.name,
        "kinds>": lambda line: count(line.row.kinds),
        "micro-ops>": lambda line: count(line.row.micro_ops),
        "entropy>": lambda line: f"{line.row.entropy:.2f}",
        "makespan>": lambda line: count(line.row.makespan),
        "bound>": lambda line: count(line.row.bound),
        "above it>": lambda line: f"{line.row.makespan / line.row.bound - 1:.1%}",
        "ratio>": lambda line: ratio(line.row.makespan, line.first.makespan if line.first else None),
    }
    return [
        table(
            chip,
            columns,
            [
                _Line(rows, network, name, point)
                for network in NETWORKS
                for name, way in WAYS.items()
                if (point := PartitionPoint(chip, network, way)) in rows
            ],
        )
        for chip in CHIPS
    ]


def _against_bayes(name: str, chip: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        pairs = ((rows.get(PartitionPoint(chip, n, WAYS[each])) for each in (name, BAYES)) for n in NETWORKS)
        return mean_ratio((mine.makespan, theirs.makespan) for mine, theirs in pairs if mine and theirs)

    return value


def means(rows: Rows) -> Table:
    """Makespans against Algorithm 1's."""
    columns: dict[str, Callable[[str], str]] = {
        "method": lambda name: name,
        **{f"{chip}>": lambda name, chip=chip: ratio(_against_bayes(name, chip)(rows)) for chip in CHIPS},
    }
    return table("Makespan against Bayesian optimisation's, geometric mean of all networks", columns, WAYS)


def objectives(rows: Rows) -> Table:
    """What is maximised: mean of the seeds."""
    lines: list[tuple[str, ...]] = []
    for network in COMPARED:
        for method, form in SEARCHES:
            for objective in Objective:
                some = [PartitionPoint(CHIPS[0], network, Way(method, form, objective), seed) for seed in SEEDS]
                if each := [rows[point] for point in some if point in rows]:
                    spans = [row.makespan for row in each]
                    numbers = f"{mean(row.micro_ops for row in each):,.0f}", f"{mean(row.entropy for row in each):.2f}"
                    cells = network, method, form, objective, str(len(each)), *numbers
                    lines.append((*cells, f"{mean(spans):,.0f}", f"{min(spans):,}"))
    columns = ("network", "search", "numbers", "maximises", "seeds>", "micro-ops>", "entropy>", "makespan>", "best>")
    return Table(f"Objectives on {CHIPS[0]}, means", columns, lines)


def _programs(rows: Rows) -> dict[str, Partition]:
    some = {name: PartitionPoint(CHIPS[0], PLAYED, way, program=True) for name, way in PROGRAMS.items()}
    return {name: rows[point] for name, point in some.items() if point in rows}


def programs(rows: Rows) -> Table:
    """Partitions as programs in the timeline model, by how much these are longer than trials say."""
    cores = len(chip_of(CHIPS[0]).cores)
    columns: dict[str, Callable[[tuple[str, Partition]], str]] = {
        "partition": lambda pair: pair[0],
        "micro-ops>": lambda pair: count(pair[1].micro_ops),
        "makespan>": lambda pair: count(pair[1].makespan),
        "program's cycles>": lambda pair: count(pair[1].program_cycles),
        "difference>": lambda pair: share(pair[1].program_cycles / pair[1].makespan - 1, sign="+"),
        "a micro-op and core>": lambda pair: count(
            (pair[1].program_cycles - pair[1].makespan) * cores / pair[1].micro_ops
        ),
    }
    title = f"{PLAYED} on {CHIPS[0]}: trials and programs in the timeline model"
    return table(title, columns, _programs(rows).items())


def first_of_programs(rows: Rows) -> list[str]:
    """Which trial is the shortest, and which program."""
    some = _programs(rows)
    if not some:
        return []
    first, best = min(some, key=lambda name: some[name].makespan), min(some, key=lambda name: some[name].program_cycles)
    return [
        f"Of trials of {PLAYED} the shortest is that of {first}, of programs that of {best}: the last column is what a "
        "trial leaves out."
    ]


def layerwise_behind(rows: Rows) -> list[str]:
    """Networks for which the layer-wise search comes to more cycles than the paper's."""
    failures: list[str] = []
    for chip in CHIPS:
        for network in NETWORKS:
            ours, theirs = (rows.get(PartitionPoint(chip, network, WAYS[name])) for name in (LAYERWISE, BAYES))
            if ours and theirs and ours.makespan > theirs.makespan:
                failures.append(
                    f"{network} on {chip}: layer-wise takes {ours.makespan:,} cycles, Algorithm 1 {theirs.makespan:,}"
                )
    return failures


def _worst_program(rows: Rows) -> float | None:
    return max((100 * abs(row.program_cycles / row.makespan - 1) for row in _programs(rows).values()), default=None)


STUDY = Study(
    name="klotski_partition",
    title="Partitions into micro-ops",
    question="Which search cuts networks into micro-ops best?",
    answer="On 3x3 cores the layer-wise search comes to {{ layerwise_klotski9 }} times the cycles of the paper's "
    "Bayesian optimisation, random points to {{ random_klotski9 }} times.",
    about=with_settings(prose(__file__), most=MOST_OPS),
    points=points,
    tables=(partitions, means, objectives, programs),
    figures=(
        *(
            Figure(
                f"{name.partition(' ')[0].replace('-', '')}_{chip}",
                f"{name}, cycles of Bayesian optimisation's, {chip}",
                _against_bayes(name, chip),
            )
            for name in (LAYERWISE, "random", "annealing (atomic dataflow)")
            for chip in CHIPS
        ),
        Figure("program", "a program off its trial, worst", _worst_program, "{:.1f} %", Bar("at most", PROGRAM_BAR)),
    ),
    checks=layerwise_behind,
    remarks=first_of_programs,
    paper="klotski",
)
