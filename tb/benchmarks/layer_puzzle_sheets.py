"""The tables of `layer_puzzle`: metrics of schedulers beside the paper's, from whatever results there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshloom.sched.workload.workload_sets import EACH, SIZES

from ..results.scenario import Metrics, ScenarioResults
from .results import Sheet
from .served import Asked, Network, Programs

CHIPS = ("lp9", "lp25")
#: The paper's four, its own the last of them, and ours.
SCHEDULERS = ("prema", "planaria", "veltair", "layer_puzzle", "lookahead")
#: How many times as good Layer-Puzzle is as each of the others, by the paper: ANTT, STP, PE utilisation.
PAPER = {"prema": (1.61, 1.53, 1.95), "planaria": (1.33, 1.32, 1.28), "veltair": (1.22, 1.16, 1.13)}
#: Cycles of a second, to turn seconds of decisions into cycles (Table II).
HERTZ = 700e6

Found = Mapping[Asked, ScenarioResults]
#: ANTT, STP, SLA violations, PE utilisation.
Means = tuple[float, float, float, float]


def on_rtl(asked: Sequence[Asked], found: Found, failures: list[str]) -> Sheet:
    """A row for each scenario that ran on the RTL; what is wrong with one is a failure."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for one in asked:
        if (results := found.get(one)) is None:
            continue
        figures = results.scenario
        if not results.ok:
            bad.add(len(rows))
            failures += [f"{one.workload} on {one.chip} by {one.scheduler}: {reason}" for reason in results.reasons]
        worst = max((abs(row.error_percent) for row in results.programs if row.error_percent is not None), default=0.0)
        rows.append(
            (
                one.chip, one.workload, f"{len(results.instances)}", one.scheduler, f"{figures.rtl_cycles:,}",
                f"{figures.model_cycles:,}", f"{figures.antt:.3f}", f"{figures.model.antt:.3f}", f"{figures.stp:.3f}",
                f"{100 * figures.sla_violations:.0f}", f"{100 * figures.utilisation:.1f}", f"{figures.decisions}",
                f"{figures.decisions_differ}", f"{worst:.2f}", f"{figures.bytes_checked:,}", f"{figures.mismatches}",
            )
        )  # fmt: skip
    columns = (
        "chip", "workload", "networks>", "scheduler", "RTL cycles>", "model>", "ANTT>", "model>", "STP>",
        "SLA missed, %>", "PE use, %>", "launches>", "decided otherwise>", "worst end, %>", "bytes>", "wrong>",
    )  # fmt: skip
    return Sheet("On the RTL", columns, rows, frozenset(bad))


def _model(found: Found, chip: str, scheduler: str, sizes: Sequence[str]) -> dict[str, Metrics]:
    """Metrics in the model, by workload."""
    names = (f"{size}{index}" for size in sizes for index in range(EACH))
    kept = ((name, found.get(Asked(chip, name, scheduler))) for name in names)
    return {name: each.scenario.model for name, each in kept if each is not None}


def _shared(each: Sequence[Mapping[str, Metrics]]) -> list[str]:
    """Workloads that all of these have."""
    return [name for name in each[0] if all(name in other for other in each)] if each else []


def _mean(metrics: Mapping[str, Metrics], names: Sequence[str]) -> Means | None:
    """The mean of those workloads; None unless there are all of them."""
    if not names or any(name not in metrics for name in names):
        return None
    chosen = [metrics[name] for name in names]
    antt, stp, sla, use = (
        sum(getattr(one, metric) for one in chosen) / len(chosen)
        for metric in ("antt", "stp", "sla_violations", "utilisation")
    )
    return antt, stp, sla, use


def means(found: Found, failures: list[str]) -> Sheet:
    """Figure 6: means of the workloads that all of the paper's schedulers have served, by chip. Where ours is not ahead
    of them, that is a failure."""
    rows: list[tuple[str, ...]] = []
    for chip in CHIPS:
        each = {name: _model(found, chip, name, tuple(SIZES)) for name in SCHEDULERS}
        names = _shared([each[name] for name in SCHEDULERS[:4]])
        four = {name: mean for name in SCHEDULERS[:4] if (mean := _mean(each[name], names)) is not None}
        if not four:
            continue
        theirs = four["layer_puzzle"]
        for name, mean in four.items():
            rows.append((chip, f"{len(names)}", name, *_cells(mean), *_beside(mean, theirs, PAPER.get(name))))
        if (ours := _mean(each["lookahead"], names)) is None:
            continue
        rows.append((chip, f"{len(names)}", "lookahead", *_cells(ours), *_beside(ours, theirs, None)))
        antt, sla = min(mean[0] for mean in four.values()), min(mean[2] for mean in four.values())
        if ours[0] >= antt or ours[2] > sla:
            failures.append(
                f"lookahead on {chip}: ANTT {ours[0]:.3f} and {100 * ours[2]:.1f} % SLA violations; the best of the "
                f"four have {antt:.3f} and {100 * sla:.1f} %"
            )
    columns = (
        "chip", "workloads>", "scheduler", "ANTT>", "STP>", "SLA missed, %>", "PE use, %>",
        "ANTT: layer_puzzle better by / paper>", "STP / paper>", "PE use / paper>",
    )  # fmt: skip
    return Sheet("Means of the workloads in the timeline model (Figure 6)", columns, rows)


def _cells(mean: Means) -> tuple[str, ...]:
    antt, stp, sla, use = mean
    return f"{antt:.3f}", f"{stp:.3f}", f"{100 * sla:.1f}", f"{100 * use:.1f}"


def _beside(mean: Means, theirs: Means, paper: tuple[float, float, float] | None) -> tuple[str, ...]:
    """How many times as good Layer-Puzzle (`theirs`) is, beside what the paper says."""
    ratios = (mean[0] / theirs[0], theirs[1] / mean[1], theirs[3] / mean[3])
    if paper is None:
        return tuple(f"{ratio:.2f}" for ratio in ratios)
    return tuple(f"{ratio:.2f} / {said:.2f}" for ratio, said in zip(ratios, paper, strict=True))


def by_size(found: Found) -> Sheet:
    """Figure 7: mean ANTT by chip and size of the workloads."""
    rows: list[tuple[str, ...]] = []
    for chip in CHIPS:
        for size in SIZES:
            each = {name: _model(found, chip, name, (size,)) for name in SCHEDULERS}
            names = _shared([each[name] for name in SCHEDULERS[:4]])
            if names:
                cells = [_mean(each[name], names) for name in SCHEDULERS]
                rows.append((chip, size, f"{len(names)}", *(f"{cell[0]:.3f}" if cell else "-" for cell in cells)))
    columns = ("chip", "size", "workloads>", *(f"{name}>" for name in SCHEDULERS))
    return Sheet("Mean ANTT by size of the workloads (Figure 7)", columns, rows)


def held(found: Found, schedulers: Sequence[str], kinds: Sequence[str]) -> Sheet:
    """Schedulers with all schemes, and held to one parallelisation of all layers, on workloads that are there for each.

    A parallelisation that has not been served at all has no rows.
    """
    every = {
        kind: [
            _model(found, CHIPS[0], name if kind == "all" else f"{name}:schemes={kind}", ("small",))
            for name in schedulers
        ]
        for kind in ("all", *kinds)
    }
    every = {kind: each for kind, each in every.items() if kind == "all" or _shared(each)}
    names = _shared([metrics for each in every.values() for metrics in each])
    rows: list[tuple[str, ...]] = []
    theirs = _mean(every["all"][-1], names)
    for kind, each in every.items():
        for name, metrics in zip(schedulers, each, strict=True):
            mean = _mean(metrics, names)
            if mean is not None and theirs is not None:
                rows.append((name, kind, f"{len(names)}", *_cells(mean), *_beside(mean, theirs, PAPER.get(name))))
    columns = (
        "scheduler", "schemes", "workloads>", "ANTT>", "STP>", "SLA missed, %>", "PE use, %>",
        "ANTT: layer_puzzle with all better by / paper>", "STP / paper>", "PE use / paper>",
    )  # fmt: skip
    title = f"One parallelisation for all layers: small workloads on {CHIPS[0]} in the model"
    return Sheet(title, columns, rows)


def decisions(found: Found, workloads: Sequence[str], waits: Sequence[int | None]) -> tuple[Sheet, Sheet]:
    """What the time of a decision costs, and what a decision takes."""
    rows: list[tuple[str, ...]] = []
    took: list[tuple[str, ...]] = []
    least = next((found[one].scenario.decision_cycles for one in found if one.chip == CHIPS[0] and one.wait is None), 0)
    for name in SCHEDULERS:
        seconds: list[tuple[float, float]] = []
        for workload in workloads:
            kept = [found.get(Asked(CHIPS[0], workload, name, wait=wait)) for wait in waits]
            seconds += [one.scenario.decision_seconds for one in kept if one is not None]
            if any(kept):
                cells = [one.scenario.model if one else None for one in kept]
                texts = [f"{one.antt:.3f}, {100 * one.sla_violations:.0f}" if one else "-" for one in cells]
                rows.append((workload, name, *texts))
        if seconds:
            mean, worst = sum(one[0] for one in seconds) / len(seconds), max(one[1] for one in seconds)
            times = f"{1e6 * mean:.0f}", f"{1e6 * worst:.0f}", f"{mean * HERTZ:,.0f}", f"{worst * HERTZ:,.0f}"
            took.append((name, *times))
    columns = ("workload", "scheduler", *(f"{least if wait is None else wait:,} cycles>" for wait in waits))
    return (
        Sheet(f"ANTT, and SLA missed in %, by the time of a decision, on {CHIPS[0]} in the model", columns, rows),
        Sheet(
            "Time of a decision in Python, on the machine that measured it, and in cycles at 700 MHz",
            ("scheduler", "mean, us>", "worst, us>", "mean, cycles>", "worst, cycles>"),
            took,
        ),
    )


def programs(compiled: Mapping[Network, Programs]) -> Sheet:
    """What networks were compiled to."""
    order = sorted(compiled, key=lambda one: (CHIPS.index(one.chip), one.schemes, one.name, one.batch))
    rows = [
        (
            one.chip, one.name, f"{one.batch}", one.schemes, f"{found.layers}", f"{found.templates}",
            f"{found.forms}", f"{found.instructions:,}", f"{found.code / 1e6:.1f}", f"{found.pages}",
        )
        for one, found in ((one, compiled[one]) for one in order)
    ]  # fmt: skip
    columns = (
        "chip", "network", "batch>", "schemes", "layers>", "programs>", "compiled>", "instructions>", "code, MB>",
        "window, pages>",
    )  # fmt: skip
    return Sheet("Programs of each network, and how many of them differ in more than addresses", columns, rows)
