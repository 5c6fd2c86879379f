"""Out-of-order schedules against static ones: figures 8 to 11 of the Flexer paper, in the timeline model.

H. Min, J. Kwon, B. Egger, "Flexer: Out-of-Order Scheduling for Multi-NPUs" (CGO 2023). `flexer_rtl` measures the same
on the RTL, `flexer_policies` has figure 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshloom.hw.spec.config import load
from meshloom.sched.papers.flexer.judge import PLAYED_CYCLES
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.policy import OURS, PAPER, PAPER_STATIC, Policy
from meshloom.sched.workload.catalog import find

from ..build.builder import OUTPUT
from ..results.events import OnEvent
from .flexer_layers import (
    ARCHS,
    BUDGET,
    NETWORKS,
    LayerCost,
    budget_in_words,
    collected,
    grouped,
    measure,
    total,
)
from .flexer_plots import draw
from .flexer_reuse import KINDS, SHARED, Reuse, reuse, unlimited
from .interface import BenchmarkError
from .kept import told
from .results import FOLDER, Result, Sheet

#: Layers of Figures 10 and 11, and their architecture.
REUSED, REUSED_ARCH = ("vgg16/conv4_2", "resnet50/conv3_1_1"), "arch6"
#: The architecture of Figure 9, the layers whose transfers it weighs higher, and by what.
FIGURE_9, WEIGHED = "arch5", ("vgg16/conv3_1", "vgg16/conv3_2")
TRANSFERS = Policy(by_cycles=1.0, by_words=3.0)
PLOT = "flexer.svg"
PARTS = (*ARCHS, "kept")


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def end_to_end(costs: Sequence[LayerCost]) -> Sheet:
    """Figure 8: whole networks, layer after layer."""
    rows: list[tuple[str, ...]] = []
    for arch, some in grouped(costs, lambda one: one.arch).items():
        for network, layers in grouped(some, lambda one: one.network).items():
            cycles = {name: total(layers, name) for name in ("paper_static", "loop_order", "flexer", "hybrid")}
            paper, strong, ours, both = cycles["paper_static"], cycles["loop_order"], cycles["flexer"], cycles["hybrid"]
            rows.append(
                (
                    arch,
                    network,
                    f"{paper[0]:,}",
                    f"{strong[0]:,}",
                    f"{ours[0]:,}",
                    f"{both[0]:,}",
                    *(_ratio(a / b) for a, b in zip(paper, ours, strict=True)),
                    *(_ratio(a / b) for a, b in zip(strong, ours, strict=True)),
                    *(_ratio(a / b) for a, b in zip(strong, both, strict=True)),
                )
            )
    return Sheet(
        "End to end (Figure 8): cycles, and speed-up / transfer reduction",
        (
            "arch",
            "network",
            "paper_static>",
            "loop_order>",
            "flexer>",
            "hybrid>",
            "flexer/paper_static>",
            "transfers>",
            "flexer/loop_order>",
            "transfers>",
            "hybrid/loop_order>",
            "transfers>",
        ),
        rows,
    )


def extremes(costs: Sequence[LayerCost]) -> Sheet:
    """Best and worst layers of each architecture."""
    rows: list[tuple[str, ...]] = []
    for arch, layers in grouped(costs, lambda one: one.arch).items():
        for scheduler, baseline in (("flexer", "paper_static"), ("flexer", "loop_order"), ("hybrid", "loop_order")):
            speed = sorted(layers, key=lambda one: one.speedup(scheduler, baseline))
            saved = sorted(layers, key=lambda one: one.saving(scheduler, baseline))
            rows.append(
                (
                    arch,
                    f"{scheduler} / {baseline}",
                    f"{speed[-1].speedup(scheduler, baseline):.2f} {speed[-1].layer}",
                    f"{speed[0].speedup(scheduler, baseline):.2f} {speed[0].layer}",
                    f"{saved[-1].saving(scheduler, baseline):.2f} {saved[-1].layer}",
                    f"{saved[0].saving(scheduler, baseline):.2f} {saved[0].layer}",
                )
            )
    return Sheet(
        "Single layers: the best and the worst",
        ("arch", "who / over whom", "speed-up, best", "worst", "transfer reduction, best", "worst"),
        rows,
    )


def per_layer(costs: Sequence[LayerCost], network: str, arch: str) -> Sheet:
    """Figure 9 (a): one network on one architecture, layer by layer."""
    rows: list[tuple[str, ...]] = []
    for one in costs:
        if (one.network, one.arch) == (network, arch):
            rows.append(
                (
                    one.layer,
                    *(f"{one.costs[name][0]:,}" for name in ("paper_static", "loop_order", "flexer", "hybrid")),
                    one.best,
                    _ratio(one.speedup("flexer", "paper_static")),
                    _ratio(one.saving("flexer", "paper_static")),
                    _ratio(one.speedup("flexer", "loop_order")),
                    _ratio(one.saving("flexer", "loop_order")),
                    _ratio(one.speedup("hybrid", "loop_order")),
                )
            )
    return Sheet(
        f"{network} on {arch} (Figure 9 (a)): cycles, and speed-up / transfer reduction",
        (
            "layer",
            "paper_static>",
            "loop_order>",
            "flexer>",
            "hybrid>",
            "hybrid is",
            "flexer/paper_static>",
            "transfers>",
            "flexer/loop_order>",
            "transfers>",
            "hybrid/loop_order>",
        ),
        rows,
    )


def weighed(costs: Sequence[LayerCost]) -> Sheet:
    """Figure 9 (b): transfers count for more."""
    rows: list[tuple[str, ...]] = []
    baseline = {one.layer: one for one in costs if one.arch == FIGURE_9}
    for name in WEIGHED:
        if name not in baseline:
            continue
        layer = LayerSearch(find(name)[0].shape, load(FIGURE_9), 1 << 15, OUTPUT / "schedules", BUDGET)
        made, base = layer.best(TRANSFERS, "flexer"), baseline[name].costs["paper_static"]
        plain = baseline[name].costs["flexer"]
        rows.append(
            (
                name,
                f"{base[0] / plain[0]:.2f} / {base[1] / plain[1]:.2f}",
                f"{base[0] / made.cycles:.2f} / {base[1] / made.words:.2f}",
            )
        )
    return Sheet(
        f"Transfers weighed higher (Figure 9 (b), {FIGURE_9}): speed-up / transfer reduction over paper_static",
        ("layer", "cycles x words", "cycles x words ** 3"),
        rows,
    )


def reuses() -> dict[tuple[str, str], Reuse]:
    """Figures 10 and 11: by layer and scheduler."""
    found: dict[tuple[str, str], Reuse] = {}
    for name in REUSED:
        shape, chip = find(name)[0].shape, load(REUSED_ARCH)
        for label, arch, policy in (
            ("unlimited", unlimited(chip), PAPER),
            ("paper_static", chip, PAPER_STATIC),
            ("flexer", chip, PAPER),
            ("nest", chip, OURS),
        ):
            layer = LayerSearch(shape, arch, 1 << 15, OUTPUT / "schedules", BUDGET)
            found[name, label] = reuse(layer, layer.decided(policy).choice, policy)
    return found


def reload_sheet(found: dict[tuple[str, str], Reuse]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for (name, label), one in found.items():
        words = [f"{one.words.get(kind, 0):,}" for kind in KINDS]
        times = ["; ".join(f"{n} x {count}" for count, n in one.loads[kind].items()) or "-" for kind in KINDS[:3]]
        rows.append((name, label, *words, *times))
    return Sheet(
        f"Words moved and how often each tile is moved (Figure 10, {REUSED_ARCH}): tiles x times",
        ("layer", "schedule", *(f"{kind}>" for kind in KINDS), *KINDS[:3]),
        rows,
    )


def sharing_sheet(found: dict[tuple[str, str], Reuse]) -> Sheet:
    rows = [(name, label, *(f"{one.shared.get(kind, 0):,}" for kind in SHARED)) for (name, label), one in found.items()]
    return Sheet(
        f"Sets of operations by what their cores share (Figure 11, {REUSED_ARCH})",
        ("layer", "schedule", *(f"{kind}>" for kind in SHARED)),
        rows,
    )


def hybrid_failures(costs: Sequence[LayerCost]) -> list[str]:
    """Layers on which the hybrid is worse than another. (Its bar for networks is judged on the RTL.)"""
    found: list[str] = []
    for one in costs:
        least = min(cycles for cycles, _ in one.costs.values())
        if one.costs["hybrid"][0] > least:
            found.append(
                f"{one.layer} on {one.arch}: the hybrid takes {one.costs['hybrid'][0]:,} cycles, not {least:,}"
            )
    return found


def remarks(costs: Sequence[LayerCost]) -> tuple[str, ...]:
    """What the paper claims, beside what was found."""
    networks = [layers for some in grouped(costs, lambda one: one.arch).values()
                for layers in grouped(some, lambda one: one.network).values()]  # fmt: skip

    def most(scheduler: str, baseline: str) -> str:
        layer = max(one.speedup(scheduler, baseline) for one in costs)
        saved = max(one.saving(scheduler, baseline) for one in costs)
        whole = max(total(some, baseline)[0] / total(some, scheduler)[0] for some in networks)
        words = max(total(some, baseline)[1] / total(some, scheduler)[1] for some in networks)
        return f"{whole:.2f} / {words:.2f} end to end, {layer:.2f} / {saved:.2f} for a layer"

    whose = Counter(one.best for one in costs)
    share = ", ".join(f"{name} {100 * count / len(costs):.0f} %" for name, count in whose.most_common())
    paper = (
        "The paper's best speed-up and transfer reduction over its static baseline: 1.67 / 1.26 end to end, "
        "2.17 / 1.53 for a layer."
    )
    here = (
        f"Here, over the same kind of baseline (paper_static): {most('flexer', 'paper_static')}; over the strong one "
        f"(loop_order): {most('flexer', 'loop_order')}. The hybrid over loop_order: {most('hybrid', 'loop_order')}."
    )
    return (
        f"{paper} {here}",
        f"Whose schedule the hybrid takes, by layers: {share}.",
        "paper_static: the best loop nest, tiling and division of the scratchpad into fixed regions for inputs, "
        "weights and partial sums; the innermost loop unrolled over the cores. loop_order: double-buffered in the "
        "cores' own memories, free partition of the layer over the cores, operands staged in the scratchpad where "
        "that helps, tiles evicted by their next use. Both are searched, emitted and decided by the timeline model "
        "like the others.",
        "The timeline model plays two orders of operations at least, of different choices, and more as long as all "
        f"take no more than {PLAYED_CYCLES:,} cycles.",
        f"![end to end, layers, reloads, sharing]({PLOT})",
    )


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """All figures, of what is kept; first measures what is not on some architectures (`parts`; none named: all eight,
    "kept": none). Raises BenchmarkError for others, DoesNotFit."""
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    measure(on_progress, [arch for arch in ARCHS if arch in (parts or ARCHS)])
    costs, older = collected(ARCHS)
    whole = complete(costs)
    if not whole:
        raise BenchmarkError("no network is known as a whole on any architecture; name a part that measures one")
    found = reuses()
    draw(whole, found, FOLDER / PLOT)
    failures = hybrid_failures(costs)
    if len(whole) < (every := sum(len(find(network)) for network in NETWORKS) * len(ARCHS)):
        failures.append(
            f"{every - len(costs)} of {every} layers are missing; networks are shown where all of theirs are known"
        )
    sheets = (
        end_to_end(whole),
        extremes(whole),
        per_layer(whole, "vgg16", FIGURE_9),
        per_layer(whole, "resnet50", FIGURE_9),
        weighed(whole),
        reload_sheet(found),
        sharing_sheet(found),
    )
    return Result(
        "flexer",
        "Out-of-order schedules",
        f"{', '.join(NETWORKS)}, every layer by itself, on {', '.join(ARCHS)} (the paper's Table 1) in the timeline "
        "model; `meshloom bench flexer_rtl` says how exact that is on these schedules. "
        f"{budget_in_words(BUDGET)} Parts: {', '.join(PARTS)}.",
        tuple(sheet for sheet in sheets if sheet.rows),
        (*remarks(whole), *told([f"{one.layer} on {one.arch}" for one in older])),
        tuple(failures),
    )


def complete(costs: Sequence[LayerCost]) -> list[LayerCost]:
    """Those of networks of which all layers are known on an architecture."""
    found: list[LayerCost] = []
    for some in grouped(costs, lambda one: one.arch).values():
        for network, layers in grouped(some, lambda one: one.network).items():
            if len(layers) == len(find(network)):
                found += layers
    return found
