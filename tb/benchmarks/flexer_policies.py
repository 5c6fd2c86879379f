"""How the search of out-of-order schedules fares: figure 12 of the Flexer paper, what ours adds, what de-duplication
costs, and the time of it all.

H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.sched.papers.flexer.policy import PAPER

from ..results.events import OnEvent
from ..studies.flexer.plots import draw_policies
from .flexer_layers import BUDGET, budget_in_words
from .flexer_search import (
    ADDED,
    ADDED_LAYERS,
    COMPARED,
    LAYERS,
    TABLE_2,
    Duplicates,
    SearchTime,
    compare,
    duplicates,
    mean_ratio,
    search_time,
)
from .results import FOLDER, Result, Sheet

#: Seconds in which all tilings and data flows of ResNet-50 are to be searched, with two CPUs, and where.
SEARCH_BAR, SEARCHED = 300.0, "arch5"
#: Architectures of the comparisons.
ARCHS = ("arch1", "arch5")
PLOT = "flexer_policies.svg"


def _by_arch(found: dict[tuple[str, str, str], tuple[float, float]], label: str) -> list[float]:
    """What a policy costs on each architecture, beside the paper's."""
    paper = "the paper's"
    pairs = {arch: [(found[arch, name, label], found[arch, name, paper]) for name in LAYERS] for arch in ARCHS}
    return [mean_ratio([(PAPER.metric(*one), PAPER.metric(*other)) for one, other in each]) for each in pairs.values()]


def policy_sheet(found: dict[tuple[str, str, str], tuple[float, float]]) -> Sheet:
    """Figure 12: priorities and memory policies of Table 2."""
    rows: list[tuple[str, ...]] = []
    archs = dict.fromkeys(arch for arch, _, _ in found)
    layers = dict.fromkeys(layer for _, layer, _ in found)
    for label in TABLE_2:
        cells: list[str] = []
        for arch in archs:
            pairs = [
                (PAPER.metric(*found[arch, layer, label]), PAPER.metric(*found[arch, layer, "the paper's"]))
                for layer in layers
            ]
            worst = max(one / other for one, other in pairs)
            cells += [f"{mean_ratio(pairs):.3f}", f"{worst:.2f}"]
        rows.append((label, *cells))
    columns = [name for arch in archs for name in (f"{arch}, mean>", "worst>")]
    return Sheet("Priorities and memory policies (Figure 12): cycles x words against the paper's", ("", *columns), rows)


def ablation_sheet(found: dict[tuple[str, str, str], tuple[float, float]]) -> Sheet:
    """What ours adds, with equal work of searching."""
    rows: list[tuple[str, ...]] = []
    archs = dict.fromkeys(arch for arch, _, _ in found)
    layers = dict.fromkeys(layer for _, layer, _ in found)
    for label in ADDED:
        cells: list[str] = []
        for arch in archs:
            first = [found[arch, layer, "the paper's"] for layer in layers]
            mine = [found[arch, layer, label] for layer in layers]
            cells += [
                f"{mean_ratio([(a[0], b[0]) for a, b in zip(mine, first, strict=True)]):.3f}",
                f"{mean_ratio([(a[1], b[1]) for a, b in zip(mine, first, strict=True)]):.3f}",
                f"{mean_ratio([(a[0] * a[1], b[0] * b[1]) for a, b in zip(mine, first, strict=True)]):.3f}",
            ]
        rows.append((label, *cells))
    columns = [name for arch in archs for name in (f"{arch}: cycles>", "words>", "product>")]
    return Sheet(
        "What ours adds, each with the same work of searching, against the paper's heuristics", ("", *columns), rows
    )


def time_sheet(found: SearchTime) -> Sheet:
    rows = [
        (
            f"ResNet-50 on {SEARCHED}, {found.layers} different layers",
            f"{sum(one.tilings for one in found.found):,}",
            f"{sum(one.proven for one in found.found):,}",
            f"{sum(one.schedules for one in found.found):,}",
            f"{found.wall_seconds:.0f}",
            f"{found.cpu_seconds:.0f}",
            f"{mean_ratio([(ratio, 1.0) for ratio in found.hurried]):.3f}",
            f"{max(found.hurried):.3f}",
        )
    ]
    return Sheet(
        "Search of all tilings and data flows with the paper's policy",
        (
            "",
            "tilings>",
            "excluded by their bound>",
            "schedules made or given up>",
            "seconds>",
            "CPU-seconds>",
            f"metric after {BUDGET} steps of each, mean>",
            "worst>",
        ),
        rows,
    )


def duplicate_sheet(found: Sequence[Duplicates]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for arch in dict.fromkeys(one.arch for one in found):
        some = [one for one in found if one.arch == arch]
        for pruning in ("pruned", "levels"):
            ratios = [one.metric[pruning] / one.metric["every"] for one in some]
            rows.append(
                (
                    arch,
                    {"pruned": "one set of each data flow, as the paper", "levels": "level by level"}[pruning],
                    f"{len(some)}",
                    f"{mean_ratio([(one.metric[pruning], one.metric['every']) for one in some]):.4f}",
                    f"{min(ratios):.3f}",
                    f"{max(ratios):.3f}",
                    f"{sum(one.seconds['every'] for one in some) / sum(one.seconds[pruning] for one in some):.1f}",
                )
            )
    return Sheet(
        "What de-duplication costs: cycles x words against looking at every set",
        ("arch", "looked at", "schedules>", "mean>", "best>", "worst>", "times faster>"),
        rows,
    )


def run(on_progress: OnEvent) -> Result:
    """All comparisons; searches that were made before are not made again, but for the one that is timed."""
    timed = search_time(on_progress, arch=SEARCHED)
    policies = compare(on_progress, TABLE_2, ARCHS, LAYERS)
    added = compare(on_progress, ADDED, ARCHS[1:], ADDED_LAYERS)
    copies = [one for arch in ARCHS for one in duplicates(arch, ADDED_LAYERS)]
    draw_policies(ARCHS, {label: _by_arch(policies, label) for label in TABLE_2}, FOLDER / PLOT)
    failures: list[str] = []
    if timed.wall_seconds > SEARCH_BAR:
        failures.append(f"the search of ResNet-50 took {timed.wall_seconds:.0f} s, the bar is {SEARCH_BAR:.0f}")
    if not all(one.complete for one in timed.found):
        failures.append("a search left out tilings without a proof")
    about = (
        "Layers by the search's own estimate of cycles and words, geometric means; below 1 is better than the paper's "
        f"policies. {budget_in_words(COMPARED)}"
    )
    remark = f"![priorities and memory policies]({PLOT})"
    sheets = (time_sheet(timed), policy_sheet(policies), ablation_sheet(added), duplicate_sheet(copies))
    return Result("flexer_policies", "The search of out-of-order schedules", about, sheets, (remark,), tuple(failures))
