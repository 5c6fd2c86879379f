"""What the parts of our online scheduler are worth: each switched off in turn, in the timeline model."""

from __future__ import annotations

from math import fsum

from meshloom.sched.workload.workload_sets import EACH

from ..results.events import OnEvent, RowCount
from .layer_puzzle import CHIP
from .results import Result, Sheet
from .served import Asked, known, measure, result

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
_SHOWN = ("antt", "stp", "sla_violations", "utilisation")


def run(on_progress: OnEvent) -> Result:
    """Serves the small workloads by each variant, but for what is kept."""
    asked = {name: [Asked(CHIP, f"small{index}", name) for index in range(EACH)] for name in VARIANTS}
    every = [one for each in asked.values() for one in each]
    on_progress(RowCount(rows=len(every)))
    failures = measure(every, on_progress)
    compiled = known(every)
    means: dict[str, dict[str, float]] = {}
    for name, each in asked.items():
        metrics = [found.scenario.model for one in each if (found := result(one, compiled)) is not None]
        if len(metrics) == len(each):
            means[name] = {shown: fsum(getattr(one, shown) for one in metrics) / len(metrics) for shown in _SHOWN}
        else:
            failures.append(f"{name}: {len(each) - len(metrics)} of {len(each)} workloads are missing")
    rows = [
        (
            name, VARIANTS[name], f"{found['antt']:.3f}", f"{found['stp']:.3f}", f"{100 * found['sla_violations']:.1f}",
            f"{100 * found['utilisation']:.1f}",
        )
        for name, found in means.items()
    ]  # fmt: skip
    best, ours = means.get("prema"), means.get("lookahead")
    if best and ours and (ours["antt"] >= best["antt"] or ours["sla_violations"] >= best["sla_violations"]):
        failures.append(
            f"lookahead: ANTT {ours['antt']:.3f} and {100 * ours['sla_violations']:.1f} % of deadlines missed; "
            f"prema has {best['antt']:.3f} and {100 * best['sla_violations']:.1f} %"
        )
    return Result(
        "online_ablation",
        "What the parts of our online scheduler are worth",
        f"Means of the {EACH} smallest workloads (see `layer_puzzle`) in the timeline model, on {CHIP}.",
        (
            Sheet(
                "Each part switched off",
                ("scheduler", "without", "ANTT>", "STP>", "SLA missed, %>", "PE use, %>"),
                rows,
            ),
        ),
        failures=tuple(failures),
    )
