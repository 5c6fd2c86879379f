"""Partitions of networks into micro-ops: Klotski's Bayesian optimisation beside its baselines and what beats it.

C. Bai et al., "Klotski: DNN Model Orchestration Framework for Dataflow Architecture Accelerators", ICCAD 2023, section
III-B and IV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean, mean

import numpy as np

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play as play_program
from meshloom.sched.papers.klotski.cutting import cut_up
from meshloom.sched.papers.klotski.judging import Judge, Objective, Trial, trial_cache
from meshloom.sched.papers.klotski.partition import listed, micro_ops
from meshloom.sched.papers.klotski.placing import placed
from meshloom.sched.papers.klotski.playing import Cores, Played, play
from meshloom.sched.papers.klotski.program import program
from meshloom.sched.papers.klotski.search import BUDGET, Method, search
from meshloom.sched.papers.klotski.shares import shared
from meshloom.sched.papers.klotski.space import MOST_OPS, Form
from meshloom.sched.papers.klotski.work import stages_of
from meshloom.sched.papers.klotski.zigzag import undivided, zigzag
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo

from ..results.events import OnEvent, Stage
from .results import Result, Sheet

CHIPS = ("klotski9", "klotski16", "klotski25")
NETWORKS = ("vgg16", "vgg19", "resnet50", "resnet152", "inception_v3")
#: Networks, chip and seeds on which objectives are compared.
COMPARED, SEEDS = ("resnet50", "inception_v3"), (1, 2, 3)
#: Network whose partitions become programs, on the first chip.
PLAYED = "squeezenet"


@dataclass(frozen=True)
class Way:
    """A search: its name in tables, how it goes on, what its points are, what it maximises."""

    name: str
    method: Method
    form: Form
    objective: Objective


BAYES = Way("Bayesian optimisation (Algorithm 1)", Method.BAYES, Form.SIZES, Objective.ENTROPY)
WAYS = (
    Way("annealing (atomic dataflow)", Method.ANNEALING, Form.SIZES, Objective.MAKESPAN),
    BAYES,
    Way("random", Method.RANDOM, Form.SIZES, Objective.MAKESPAN),
    Way("annealing, parts", Method.ANNEALING, Form.PARTS, Objective.MAKESPAN),
    Way("layer-wise", Method.LAYERWISE, Form.LAYERS, Objective.MAKESPAN),
)
WHOLE, SHARED = "zig-zag, whole layers", "zig-zag, all cores"


@lru_cache(maxsize=1)
def judge(network: str, chip: str) -> Judge:
    """Of a network on a chip; its trials are kept, so a benchmark that was interrupted goes on."""
    config = load(chip)
    return Judge(stages_of(zoo.load(network), config), config, trial_cache(SCHEDULES.folder(), config))


def layer_by_layer(asked: Judge, whole: bool) -> tuple[Trial, Played]:
    """Baseline 1: one layer after the other, uncut or shared by all cores, in zig-zag order. The trial is of the same
    partition; how it is played here is the second."""
    chip = asked.chip
    given = undivided(asked.works, chip) if whole else shared(asked.works, chip, 1)
    parts = asked.fitted([partition.extent(work, chip) for partition, work in zip(given, asked.works, strict=True)])
    cut = cut_up(asked.stages, asked.works, parts, chip)
    where = np.array(zigzag(listed(cut, chip), chip, whole).cores, np.int64)
    return asked.look(parts), play(cut, Cores.of(chip), where, barrier=True)


def _searched(asked: Judge, way: Way, seed: int = 1) -> Trial:
    return search(asked, way.method, way.form, way.objective, BUDGET, seed).best


def partitions(on_progress: OnEvent) -> dict[tuple[str, str], dict[str, tuple[Trial, int]]]:
    """For each chip and network, by method, the partition and the makespan of its schedule."""
    found: dict[tuple[str, str], dict[str, tuple[Trial, int]]] = {}
    for chip in CHIPS:
        for network in NETWORKS:
            asked = judge(network, chip)
            rows = found[chip, network] = {}
            for name, whole in ((WHOLE, True), (SHARED, False)):
                trial, played = layer_by_layer(asked, whole)
                rows[name] = trial, played.makespan
            for way in WAYS:
                on_progress(Stage(workload=network, what=f"{chip}: {way.name}"))
                trial = _searched(asked, way)
                rows[way.name] = trial, trial.makespan
    return found


def partition_sheet(chip: str, found: dict[tuple[str, str], dict[str, tuple[Trial, int]]]) -> Sheet:
    """All methods on one chip."""
    rows: list[tuple[str, ...]] = []
    for (where, network), ways in found.items():
        if where != chip:
            continue
        first = ways[WHOLE][1]
        for name, (trial, makespan) in ways.items():
            rows.append(
                (
                    network,
                    name,
                    f"{trial.kinds}",
                    f"{trial.count:,}",
                    f"{trial.entropy:.2f}",
                    f"{makespan:,}",
                    f"{trial.bound:,}",
                    f"{makespan / trial.bound - 1:.1%}",
                    f"{makespan / first:.3f}",
                )
            )
    columns = ("network", "method", "kinds>", "micro-ops>", "entropy>", "makespan>", "bound>", "above it>", "ratio>")
    return Sheet(chip, columns, rows)


def mean_sheet(found: dict[tuple[str, str], dict[str, tuple[Trial, int]]]) -> Sheet:
    """Makespans against Algorithm 1's."""
    rows: list[tuple[str, ...]] = []
    for name in (WHOLE, SHARED, *(way.name for way in WAYS)):
        cells: list[str] = []
        for chip in CHIPS:
            ratios = [ways[name][1] / ways[BAYES.name][1] for (where, _), ways in found.items() if where == chip]
            cells.append(f"{geometric_mean(ratios):.3f}")
        rows.append((name, *cells))
    return Sheet(
        "Makespan against Bayesian optimisation's, geometric mean of all networks",
        ("method", *(f"{chip}>" for chip in CHIPS)), rows,
    )  # fmt: skip


def objective_sheet(on_progress: OnEvent) -> Sheet:
    """What is maximised: mean of some seeds."""
    rows: list[tuple[str, ...]] = []
    for network in COMPARED:
        asked = judge(network, CHIPS[0])
        for method, form in (
            (Method.BAYES, Form.SIZES),
            (Method.ANNEALING, Form.SIZES),
            (Method.BAYES, Form.PARTS),
            (Method.ANNEALING, Form.PARTS),
            (Method.LAYERWISE, Form.LAYERS),
        ):
            for objective in Objective:
                on_progress(Stage(workload=network, what=f"{method} over {form}: {objective}"))
                some = [_searched(asked, Way("", method, form, objective), seed) for seed in SEEDS]
                rows.append(
                    (
                        network,
                        method,
                        form,
                        objective,
                        f"{mean(one.count for one in some):,.0f}",
                        f"{mean(one.entropy for one in some):.2f}",
                        f"{mean(one.makespan for one in some):,.0f}",
                        f"{min(one.makespan for one in some):,}",
                    )
                )
    return Sheet(
        f"Objectives on {CHIPS[0]}, mean of {len(SEEDS)} seeds",
        ("network", "search", "numbers", "maximises", "micro-ops>", "entropy>", "makespan>", "best>"), rows,
    )  # fmt: skip


def program_sheet(on_progress: OnEvent) -> tuple[Sheet, list[float], str]:
    """Partitions as programs in the timeline model, by how much these are longer than trials say, and who is first."""
    asked = judge(PLAYED, CHIPS[0])
    chip, stages = asked.chip, asked.stages
    trials = {
        f"{turns} micro-ops a core and layer": asked.look(
            [p.extent(work, chip) for p, work in zip(shared(asked.works, chip, turns), asked.works, strict=True)]
        )
        for turns in (1, 2)
    }
    trials |= {way.name: _searched(asked, way) for way in WAYS}
    rows: list[tuple[str, ...]] = []
    errors: list[float] = []
    reached: dict[str, int] = {}
    for name, trial in trials.items():
        on_progress(Stage(workload=PLAYED, what=f"program of {trial.count} micro-ops ({name})"))
        graph = micro_ops(stages, chip, trial.partitions(chip))
        made = program(graph, placed(graph, chip), chip, "klotski")
        cycles = reached[name] = play_program(lower(made.schedule, chip), chip).cycles
        errors.append(cycles / trial.makespan - 1)
        each = (cycles - trial.makespan) * len(chip.cores) / trial.count
        rows.append(
            (name, f"{trial.count:,}", f"{trial.makespan:,}", f"{cycles:,}", f"{errors[-1]:+.1%}", f"{each:,.0f}")
        )
    columns = ("partition", "micro-ops>", "makespan>", "program's cycles>", "difference>", "a micro-op and core>")
    first, best = min(trials, key=lambda name: trials[name].makespan), min(reached, key=lambda name: reached[name])
    remark = (
        f"Of trials of {PLAYED} the shortest is that of {first}, of programs that of {best}: the last column is what a "
        "trial leaves out."
    )
    return Sheet(f"{PLAYED} on {CHIPS[0]}: trials and programs in the timeline model", columns, rows), errors, remark


def run(on_progress: OnEvent) -> Result:
    """All partitions; trials that were made before are not made again."""
    found = partitions(on_progress)
    objectives = objective_sheet(on_progress)
    programs, errors, remark = program_sheet(on_progress)
    failures = _failures(found, errors)
    about = (
        f"Each search looks at {BUDGET} partitions of at most {MOST_OPS:,} micro-ops, before what does not fit "
        "half of a core's memories is cut to the nearest size that does. Makespan: of a list schedule that "
        "feeds its cores (weights come from DRAM at a core's share of the channels, results of other cores over "
        "the mesh, a word a cycle); bound: the longest chain, or all work over all cores; entropy in nats; "
        "ratio: against whole layers one by one, the paper's baseline 1. Numbers are int8, those of the paper "
        "have 32 bits."
    )
    return Result(
        "klotski_partition", "Partitions into micro-ops", about,
        (*(partition_sheet(chip, found) for chip in CHIPS), mean_sheet(found), objectives, programs),
        remarks=(remark,), failures=tuple(failures),
    )  # fmt: skip


def _failures(found: dict[tuple[str, str], dict[str, tuple[Trial, int]]], errors: Sequence[float]) -> list[str]:
    failures: list[str] = []
    for (chip, network), ways in found.items():
        ours, theirs = ways["layer-wise"][1], ways[BAYES.name][1]
        if ours > theirs:
            failures.append(f"{network} on {chip}: layer-wise takes {ours:,} cycles, Algorithm 1 {theirs:,}")
    if max(map(abs, errors)) > 0.15:
        failures.append(f"a program is {max(map(abs, errors)):.0%} off its trial; the bar is 15 %")
    return failures
