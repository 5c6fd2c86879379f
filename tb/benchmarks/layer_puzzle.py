"""Many networks at once by five online schedulers, on the RTL and in the model, beside the figures of Layer-Puzzle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

from meshloom.hw.config import ChipConfig, load
from meshloom.sched.mapping.problem import DoesNotFit
from meshloom.sched.schedulers.layer_puzzle import latency
from meshloom.sched.schedulers.layer_puzzle.versions import saving
from meshloom.sched.serving.network import ServedNetwork
from meshloom.sched.serving.schemes import Scheme, schemes
from meshloom.sched.serving.template import compile_stage, template_cache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo
from meshloom.sched.workload.scenario import Scenario
from meshloom.sched.workload.workload_sets import BATCHES, NETWORKS, workload_sets

from ..build.builder import build
from ..results.scenario import ScenarioResults
from ..results.schema import OnEvent, Plan, Stage
from ..runs.workers import workers
from ..runtime.networks import compile_networks
from ..runtime.serve import serve
from .results import Result, Sheet

CHIP = "lp9"
#: Ours is the last.
SCHEDULERS = ("prema", "planaria", "veltair", "layer_puzzle", "lookahead")
#: Workloads of the small size that every scheduler serves on the RTL, and those that ours alone does.
ALL, OURS = (3, 7), (0, 1, 2, 4, 5, 9)
#: Layers, with random schemes and numbers of cores, for which closed forms are compared with the model.
SAMPLES = 600
SEED = 15
#: How many times as good Layer-Puzzle is as each of the others, by the paper: ANTT, STP, PE utilisation.
PAPER = {"prema": (1.61, 1.53, 1.95), "planaria": (1.33, 1.32, 1.28), "veltair": (1.22, 1.16, 1.13)}
#: Share of versions that Pareto fronts save, and mean and worst error of Algorithm 1, by the paper.
PAPER_SAVED, PAPER_ERROR = 0.44, (4.0, 9.0)
FORMS = {"as printed": latency.literal, "mended": latency.corrected, "with queues": latency.queued}


def small(chip: ChipConfig) -> tuple[Scenario, ...]:
    """The ten smallest of the thirty workloads, all networks at once."""
    return tuple(each for each in workload_sets(len(chip.cores)) if each.name.startswith("small"))


def served(chip: str, index: int, scheduler: str, rtl: bool) -> str:
    """The results of a workload, as JSON: in a worker process."""
    config = load(chip)
    return serve(small(config)[index], config, scheduler, device="verilator" if rtl else None).results.model_dump_json()


def errors(chip: str, part: int, parts: int) -> list[tuple[float, ...]]:
    """Signed errors of `FORMS`, in percent of the model's cycles, for one of `parts` equal parts of the samples."""
    config, found = load(chip), list[tuple[float, ...]]()
    memory = template_cache(SCHEDULES.folder(), config)
    nets = [ServedNetwork(zoo.load(name), config) for name in NETWORKS]
    random = Random(SEED)
    asked: list[tuple[int, int, Scheme]] = []
    while len(asked) < SAMPLES:
        net = random.randrange(len(nets))
        index, cores = random.randrange(len(nets[net].stages)), random.randint(1, len(config.cores))
        if every := schemes(nets[net].shapes[index], cores):
            asked.append((net, index, random.choice(every)))
    for number, index, scheme in asked[part::parts]:
        net = nets[number]
        try:
            cycles = compile_stage(net, index, scheme, memory).measures.cycles
        except DoesNotFit:
            continue
        shape = net.shapes[index]
        found.append(tuple(100 * (form(shape, scheme, config, 1.0).cycles / cycles - 1) for form in FORMS.values()))
    return found


def run(on_progress: OnEvent) -> Result:
    """Serves the small workloads, compares closed forms with the model, counts versions."""
    chip = load(CHIP)
    scenarios = small(chip)
    cpus = len(os.sched_getaffinity(0))
    on_rtl = [(index, name) for index in ALL for name in SCHEDULERS] + [(index, SCHEDULERS[-1]) for index in OURS]
    in_model = [(index, name) for index in range(len(scenarios)) for name in SCHEDULERS]
    on_progress(Plan(rows=len(on_rtl) + len(in_model)))
    build(chip, "verilator", False, lambda what: on_progress(Stage(workload=CHIP, what=what, passing=True)))
    results: dict[tuple[int, str], ScenarioResults] = {}
    with workers(cpus) as pool:
        each = [pool.submit(compiled, CHIP, name) for name in NETWORKS]  # once, not in each worker
        for future, name in zip(each, NETWORKS, strict=True):
            on_progress(Stage(workload=name, what="compiling"))
            pool.result(future, on_progress)
        off = [pool.submit(errors, CHIP, part, cpus) for part in range(cpus)]
        futures = {key: pool.submit(served, CHIP, *key, key in on_rtl) for key in dict.fromkeys([*on_rtl, *in_model])}
        samples = [sample for future in off for sample in pool.result(future, on_progress)]
        for (index, name), future in futures.items():
            on_progress(Stage(workload=scenarios[index].name, what=f"served by {name}"))
            results[index, name] = ScenarioResults.model_validate_json(pool.result(future, on_progress))
    failures: list[str] = []
    sheets = (
        _rtl(scenarios, {key: results[key] for key in on_rtl}, failures),
        _means(results, len(scenarios), failures),
        _closed(samples),
        _saved(chip),
    )
    return Result(
        "layer_puzzle",
        "Many networks at once",
        f"{len(scenarios)} workloads of three networks each, drawn from those of the paper's Table III with batches of "
        f"1 and 4 (`sched/workload/workload_sets.py`), all asked for in cycle 0 on {CHIP}, deadlines of 0.4 times the "
        "time on one core. Isolated times: of the timeline model, the fastest version of each layer on all cores. "
        "`lookahead` is ours. On the RTL every tensor of every network is compared with ONNX Runtime. Still missing: "
        "the paper's medium and large workloads, and its 25 cores.",
        sheets,
        failures=tuple(failures),
    )


def compiled(chip: str, name: str) -> None:
    """Compiles a network for both batch sizes into the store."""
    from meshloom.sched.workload.scenario import Request

    config = load(chip)
    compile_networks(Scenario(name, tuple(Request(name, batch) for batch in BATCHES)), config, lambda what: None)


def _rtl(scenarios: Sequence[Scenario], results: dict[tuple[int, str], ScenarioResults], failures: list[str]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for (index, name), found in results.items():
        figures = found.scenario
        if not found.ok:
            bad.add(len(rows))
            failures += [f"{scenarios[index].name} by {name}: {reason}" for reason in found.reasons]
        worst = max((abs(row.error_percent) for row in found.programs if row.error_percent is not None), default=0.0)
        asked = ", ".join(f"{row.network} x{row.batch}" for row in found.instances)
        rows.append(
            (
                scenarios[index].name, asked, name, f"{figures.rtl_cycles:,}", f"{figures.model_cycles:,}",
                f"{figures.antt:.3f}", f"{figures.model.antt:.3f}", f"{figures.stp:.3f}",
                f"{100 * figures.sla_violations:.0f}", f"{100 * figures.utilisation:.1f}", f"{figures.decisions}",
                f"{figures.decisions_differ}", f"{worst:.2f}", f"{figures.bytes_checked:,}", f"{figures.mismatches}",
            )
        )  # fmt: skip
    columns = (
        "workload", "networks", "scheduler", "RTL cycles>", "model>", "ANTT>", "model>", "STP>", "SLA missed, %>",
        "PE use, %>", "launches>", "decided otherwise>", "worst end, %>", "bytes>", "wrong>",
    )  # fmt: skip
    return Sheet("On the RTL", columns, rows, frozenset(bad))


def _means(results: dict[tuple[int, str], ScenarioResults], count: int, failures: list[str]) -> Sheet:
    means: dict[str, tuple[float, ...]] = {}
    for name in SCHEDULERS:
        each = [results[index, name].scenario.model for index in range(count)]
        means[name] = tuple(
            sum(getattr(one, metric) for one in each) / count
            for metric in ("antt", "stp", "sla_violations", "utilisation")
        )
    rows: list[tuple[str, ...]] = []
    theirs = means["layer_puzzle"]
    for name, (antt, stp, sla, use) in means.items():
        paper = PAPER.get(name)
        ratios = (antt / theirs[0], theirs[1] / stp, theirs[3] / use)
        beside = [f"{ratio:.2f} / {said:.2f}" for ratio, said in zip(ratios, paper, strict=True)] if paper else [""] * 3
        rows.append((name, f"{antt:.3f}", f"{stp:.3f}", f"{100 * sla:.1f}", f"{100 * use:.1f}", *beside))
    antt, sla = min(means[name][0] for name in SCHEDULERS[:-1]), min(means[name][2] for name in SCHEDULERS[:-1])
    ours = means[SCHEDULERS[-1]]
    if ours[0] >= antt or ours[2] > sla:
        failures.append(
            f"{SCHEDULERS[-1]}: ANTT {ours[0]:.3f} and {100 * ours[2]:.1f} % SLA violations; the best of the four have "
            f"{antt:.3f} and {100 * sla:.1f} %"
        )
    columns = (
        "scheduler", "ANTT>", "STP>", "SLA missed, %>", "PE use, %>", "ANTT: layer_puzzle better by / paper>",
        "STP / paper>", "PE use / paper>",
    )  # fmt: skip
    return Sheet("Means of the ten workloads in the timeline model (Figures 6 and 7)", columns, rows)


def _closed(samples: Sequence[tuple[float, ...]]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for number, name in enumerate(FORMS):
        off = [abs(sample[number]) for sample in samples]
        rows.append((name, f"{len(off)}", f"{sum(off) / len(off):.1f}", f"{max(off):.1f}"))
    rows.append(("the paper's, against its simulator", "8000", f"{PAPER_ERROR[0]:.1f}", f"{PAPER_ERROR[1]:.1f}"))
    return Sheet(
        "Algorithm 1 against the timeline model: random layers of the five networks, cores and schemes",
        ("form", "samples>", "mean error, %>", "worst, %>"),
        rows,
    )


def _saved(chip: ChipConfig) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for name in NETWORKS:
        for batch in BATCHES:
            found = saving(ServedNetwork(zoo.load(name), chip, batch).shapes, chip)
            rows.append((name, f"{batch}", f"{found.all}", f"{found.front}", f"{100 * found.share:.0f}"))
    return Sheet(
        f"Versions that Pareto fronts save (paper: {100 * PAPER_SAVED:.0f} %)",
        ("network", "batch>", "versions>", "kept>", "saved, %>"),
        rows,
    )
