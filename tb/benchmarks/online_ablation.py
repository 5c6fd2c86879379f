"""What the parts of our online scheduler are worth: each switched off in turn, in the timeline model."""

from __future__ import annotations

import os
from math import fsum

from pydantic import TypeAdapter

from meshloom.hw.config import load
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.workload_sets import NETWORKS

from ..results.scenario import ScenarioFigures
from ..results.schema import OnEvent, Plan, Stage
from ..runs.online.serve import serve
from ..runs.workers import workers
from .layer_puzzle import CHIP, compiled, small
from .results import Result, Sheet

#: Schedulers, and what they are without. Each but `prema`, with which ours is compared, is ours.
VARIANTS = {
    "prema": "(the best of the four)",
    "lookahead": "",
    "lookahead:ahead=no": "successors",
    "lookahead:beside=no": "layers of others beside the first network's",
    "lookahead:queues=no": "counting what layers wait for each other at the channels",
    "lookahead:reserve=no": "waiting for cores",
    "lookahead:pace=no": "correcting predicted times",
    "lookahead:deadlines=no": "searching for an order that meets deadlines",
    "lookahead:weights=no": "an order by cost",
    "lookahead:ahead=no,beside=no,reserve=no,pace=no,deadlines=no": "all but the order by cost",
}
_METRICS = TypeAdapter(dict[str, float])
_SHOWN = ("antt", "stp", "sla_violations", "utilisation")


def served(chip: str, index: int, scheduler: str) -> dict[str, float]:
    """The metrics of a workload in the model, from the store if they have been found before: in a worker process."""
    config = load(chip)
    memory = SearchCache(
        SCHEDULES.folder(), config, "ablation", "tb.runs.online.serve", "sched.schedulers.layer_puzzle.entry"
    )
    if (found := memory.get((index, scheduler), _METRICS)) is None:
        figures: ScenarioFigures = serve(small(config)[index], config, scheduler).results.scenario
        found = {name: float(getattr(figures, name)) for name in _SHOWN}
        memory.put((index, scheduler), _METRICS, found)
    return found


def run(on_progress: OnEvent) -> Result:
    """Serves the small workloads by each variant."""
    scenarios = small(load(CHIP))
    on_progress(Plan(rows=len(VARIANTS) * len(scenarios)))
    means: dict[str, dict[str, float]] = {}
    with workers(len(os.sched_getaffinity(0))) as pool:
        for name in NETWORKS:
            on_progress(Stage(workload=name, what="compiling"))
            pool.result(pool.submit(compiled, CHIP, name), on_progress)
        futures = {
            (name, index): pool.submit(served, CHIP, index, name)
            for name in VARIANTS
            for index in range(len(scenarios))
        }
        for name in VARIANTS:
            each: list[dict[str, float]] = []
            for index, scenario in enumerate(scenarios):
                on_progress(Stage(workload=scenario.name, what=f"served by {name}"))
                each.append(pool.result(futures[name, index], on_progress))
            means[name] = {metric: fsum(one[metric] for one in each) / len(each) for metric in _SHOWN}
    rows = [
        (
            name, without, f"{found['antt']:.3f}", f"{found['stp']:.3f}", f"{100 * found['sla_violations']:.1f}",
            f"{100 * found['utilisation']:.1f}",
        )
        for (name, without), found in zip(VARIANTS.items(), means.values(), strict=True)
    ]  # fmt: skip
    best, ours = means["prema"], means["lookahead"]
    failures: list[str] = []
    if ours["antt"] >= best["antt"] or ours["sla_violations"] >= best["sla_violations"]:
        failures.append(
            f"lookahead: ANTT {ours['antt']:.3f} and {100 * ours['sla_violations']:.1f} % of deadlines missed; "
            f"prema has {best['antt']:.3f} and {100 * best['sla_violations']:.1f} %"
        )
    return Result(
        "online_ablation",
        "What the parts of our online scheduler are worth",
        f"Means of the {len(scenarios)} smallest workloads (see `layer_puzzle`) in the timeline model, on {CHIP}.",
        (
            Sheet(
                "Each part switched off",
                ("scheduler", "without", "ANTT>", "STP>", "SLA missed, %>", "PE use, %>"),
                rows,
            ),
        ),
        failures=tuple(failures),
    )
