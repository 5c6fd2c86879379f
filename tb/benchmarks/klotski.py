"""Klotski's Tables I to III and its ablation on this chip, in the model and on the RTL, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import geometric_mean

from ..report.console import percent
from ..results.events import OnEvent, RowCount
from . import kept
from . import klotski_waits as waits
from .interface import BenchmarkError
from .network_runs import KEPT, Asked, Found, measure, told
from .results import Result, Sheet

CHIPS = ("klotski9", "klotski16", "klotski25")
NETWORKS = ("vgg16", "vgg19", "resnet50", "resnet152", "inception_v3")

ONE, TWO, OURS, LOOPS = "zigzag:whole=yes", "atomic", "klotski:fallback=none", "loop_order"
#: A budget that one try uses up: the first way to share layers out, and no other.
FIRST = "klotski:budget=0.001k,fallback=none"
PAPERS_WAY = "klotski:partition=bayes,plan=solved,fallback=none"
#: Schedulers of the tables, with their names there. The first three are those of the paper.
NAMES = {
    ONE: "baseline 1: whole layers, zig-zag",
    TWO: "baseline 2: atomic dataflow",
    PAPERS_WAY: "Klotski as printed: entropy, then solvers",
    "zigzag": "layers shared by all cores, zig-zag",
    OURS: "klotski",
    LOOPS: "loop_order: whole layers as loop nests",
}
#: The paper's cycles of baseline 1, baseline 2 and Klotski; of its hardware utilisation and of its search time, against
#: baseline 1 and baseline 2.
PAPER: dict[tuple[str, str], tuple[tuple[float, float, float], tuple[float, float], float]] = {
    ("klotski9", "vgg16"): ((1.2283e8, 5.5633e7, 4.0659e7), (2.5617, 3.0602), 1.8399),
    ("klotski9", "vgg19"): ((1.5523e8, 7.4207e7, 5.5381e7), (2.5229, 2.9857), 1.5401),
    ("klotski9", "resnet50"): ((7.7422e7, 5.7060e7, 4.8174e7), (0.9762, 1.3050), 3.0481),
    ("klotski9", "resnet152"): ((1.8984e8, 1.7102e8, 1.5947e8), (1.2523, 1.3605), 3.2302),
    ("klotski9", "inception_v3"): ((2.5122e7, 1.6345e7, 1.3348e7), (2.5103, 3.2996), 2.9719),
    ("klotski16", "vgg16"): ((1.2283e8, 4.5869e7, 3.0670e7), (2.1196, 2.4547), 2.7760),
    ("klotski16", "vgg19"): ((1.5523e8, 5.8049e7, 3.9934e7), (1.9895, 2.2964), 2.9076),
    ("klotski16", "resnet50"): ((7.7422e7, 5.3365e7, 4.6260e7), (2.8954, 3.1953), 1.8811),
    ("klotski16", "resnet152"): ((1.8984e8, 1.6578e8, 1.5754e8), (1.2264, 1.3438), 2.9323),
    ("klotski16", "inception_v3"): ((2.5188e7, 1.5183e7, 1.0781e7), (2.2822, 2.8579), 3.4148),
    ("klotski25", "vgg16"): ((1.2283e8, 4.2621e7, 2.4240e7), (2.7157, 3.4766), 3.5120),
    ("klotski25", "vgg19"): ((1.5523e8, 5.0412e7, 3.9046e7), (2.8346, 3.1257), 4.8351),
    ("klotski25", "resnet50"): ((7.7422e7, 5.0868e7, 4.4029e7), (1.8228, 1.9678), 2.6617),
    ("klotski25", "resnet152"): ((1.8984e8, 1.6460e8, 1.5240e8), (1.2575, 1.3352), 5.2515),
    ("klotski25", "inception_v3"): ((2.5180e7, 1.2733e7, 8.3088e6), (2.8642, 3.3710), 5.4126),
}
#: Clock of the paper's accelerators, in cycles a millisecond.
CLOCK = 1e6
#: Ideas one by one, on the first chip: name, scheduler.
ABLATED = ("resnet50", "inception_v3")
IDEAS = {
    "printed partition, lists of baseline 2 (Figure 7)": "klotski:partition=bayes,plan=listed,fallback=none",
    "printed partition, solvers": PAPERS_WAY,
    "printed partition, runs of neighbours": "klotski:partition=bayes,fallback=none",
    "shared partition, lists of baseline 2": "klotski:plan=listed,fallback=none",
    "shared partition, solvers": "klotski:plan=solved,fallback=none",
    "shared partition, runs of neighbours, weights once": "klotski:copies=no,fallback=none",
    "the first way of sharing alone": FIRST,
    "all of it": OURS,
    "all of it, with rounds": "klotski:rounds=yes,fallback=none",
}
#: Of these all schedulers run on the RTL, too.
ON_RTL = {
    ("klotski9", "squeezenet"): ("zigzag", TWO, OURS, "klotski:rounds=yes,fallback=none", LOOPS),
    ("klotski9", "resnet50"): (OURS, LOOPS, TWO, "zigzag"),
    ("klotski25", "resnet50"): (OURS, LOOPS, TWO, "zigzag"),
    ("klotski9", "inception_v3"): (OURS, LOOPS, TWO, "zigzag"),
    ("klotski25", "inception_v3"): (OURS, LOOPS, TWO, "zigzag"),
}
#: Percent by which the model may be off: in the mean, and at worst.
MEAN_ERROR, WORST_ERROR = 1.0, 3.0
#: Where ours has to be below all others on the RTL.
TO_WIN = tuple(where for where in ON_RTL if where[1] != "squeezenet")

Results = Mapping[Asked, Found]


def plan() -> dict[str, tuple[Asked, ...]]:
    """What is measured, by the name of the part."""
    found: dict[str, tuple[Asked, ...]] = {}
    for chip in CHIPS:
        plain = (OURS, LOOPS, TWO, "zigzag", ONE)
        found[chip] = tuple(Asked(chip, network, each) for network in reversed(NETWORKS) for each in plain)
        found[f"{chip}-printed"] = tuple(Asked(chip, network, PAPERS_WAY) for network in reversed(NETWORKS))
    found["search"] = tuple(Asked(chip, network, FIRST) for chip in CHIPS for network in reversed(NETWORKS))
    found["ideas"] = tuple(Asked(CHIPS[0], network, each) for network in ABLATED for each in IDEAS.values())
    for (chip, network), some in ON_RTL.items():
        found[f"{network}-{chip}-rtl"] = tuple(Asked(chip, network, each, rtl=True) for each in some)
    return found


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures `parts` of the plan (none named: all of it), but for what is kept; shows everything that there is then.

    Part "kept" measures nothing. Raises BenchmarkError for others.
    """
    planned = plan()
    names = *planned, "waits", "kept"
    if unknown := [part for part in parts if part not in names]:
        raise BenchmarkError(f"no part {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [one for part in (parts or planned) for one in planned.get(part, ())]
    on_progress(RowCount(rows=len(chosen)))
    failures = measure(chosen, on_progress)
    if not parts or "waits" in parts:
        waits.measure(on_progress)
    everything = dict.fromkeys(one for part in planned.values() for one in part)
    found, older = KEPT.collected(everything)
    failures += _failures(found)
    left = missing(planned, found, older)
    held, held_older = waits.sheet()
    if len(found) < len(everything):
        failures.append(f"{len(everything) - len(found)} of {len(everything)} results are missing")
    good = {one: each for one, each in found.items() if not each.trouble}
    tables = *(table(chip, good) for chip in CHIPS), means(good), searches(good), ideas(good)
    return Result(
        "klotski",
        "Micro-ops beside the paper's tables",
        "C. Bai et al., *Klotski* (ICCAD 2023), Tables I to III and Figure 7, on chips of as many cores with 12x14 "
        "elements each; numbers have 8 bits here, 32 there. *ms*: at the paper's 1 GHz. *Busy*: share of all cycles of "
        "all arrays in which they read operands, and in brackets that of baseline 1 = 1, as the paper states it. *a / "
        "b*: what was found, and what the paper says. *Gap*: of the plan, above cycles below which no schedule of "
        "these micro-ops can be (`sched/papers/klotski/proof.py`). *Time*: of the search, against baseline 2; "
        "*CPU time*: of making the schedule, plays in the model included. "
        "`klotski` here never takes anything but micro-ops, if need be those of baseline 2; asked for by this name "
        "alone, it takes `loop_order`'s schedule where the model says that it is quicker. On the RTL every tensor is "
        "compared with ONNX Runtime.",
        tuple(sheet for sheet in (on_rtl(found), *tables, held, left) if sheet.rows),
        (
            "The paper's ratio of 0.8443 for ResNet-50 on 3x3 cores is against baseline 2; against baseline 1 its "
            "cycles are 0.622. From its tables, Klotski needs 44, 50 and 53 % fewer cycles than baseline 1 and 15, 16 "
            "and 17 % fewer than baseline 2.",
            *told(older),
            *kept.told([f"what holds up {waits.NETWORK} on {chip}" for chip in held_older]),
        ),
        failures=tuple(failures),
    )


def table(chip: str, found: Results) -> Sheet:
    """Table I, II or III."""
    rows: list[tuple[str, ...]] = []
    for network in NETWORKS:
        first, second = (found.get(Asked(chip, network, each)) for each in (ONE, TWO))
        cycles, busy_there, time_there = PAPER[chip, network]
        printed = zip(cycles, (1.0, *busy_there), strict=True)
        said = dict(zip((ONE, TWO, PAPERS_WAY), printed, strict=True))
        for scheduler, name in NAMES.items():
            one = found.get(Asked(chip, network, scheduler))
            if one is None:
                continue
            used, share = one.utilisation(chip), f"{one.cycles / first.cycles:.3f}" if first else "-"
            busy = percent(100 * used, digits=1) + (f" ({used / first.utilisation(chip):.2f})" if first else "")
            searched = scheduler in (TWO, PAPERS_WAY, OURS) and second is not None
            time = f"{one.seconds / second.seconds:.2f}" if searched and second else "-"
            if scheduler in said:
                share += f" / {said[scheduler][0] / said[ONE][0]:.3f}"
                busy += f" / {said[scheduler][1]:.2f}"
            if scheduler == PAPERS_WAY:
                time += f" / {time_there:.2f}"
            cells = f"{one.cycles:,}", f"{one.cycles / CLOCK:.2f}", share, busy, *_micro_ops(one), time
            rows.append((network, name, *cells))
    columns = (
        "network", "scheduler", "cycles>", "ms>", "of baseline 1>", "busy>", "micro-ops>", "planned>", "bound>", "gap>",
        "hops x bytes>", "time>",
    )  # fmt: skip
    return Sheet(f"{chip}: Table {'I' * (CHIPS.index(chip) + 1)}, in the model", columns, rows)


def _micro_ops(one: Found) -> tuple[str, ...]:
    said = one.micro_ops
    if said is None or said.gap is None:
        return ("-",) * 5
    numbers = (said.count, said.planned_cycles, said.bound_cycles)
    return *(f"{number:,}" for number in numbers), percent(100 * said.gap, digits=1), f"{said.hops_bytes:,}"


def means(found: Results) -> Sheet:
    """Cycles against both baselines, of all networks for which there are all three."""
    rows: list[tuple[str, ...]] = []
    for base, place in ((ONE, 0), (TWO, 1)):
        for scheduler in (PAPERS_WAY, OURS, LOOPS):
            cells: list[str] = []
            for chip in CHIPS:
                pairs = [
                    (mine.cycles / theirs.cycles, PAPER[chip, network][0][2] / PAPER[chip, network][0][place])
                    for network in NETWORKS
                    if (mine := found.get(Asked(chip, network, scheduler))) is not None
                    and (theirs := found.get(Asked(chip, network, base))) is not None
                ]
                if not pairs:
                    cells.append("-")
                    continue
                ours, said = (geometric_mean(each) for each in zip(*pairs, strict=True))
                few = f" ({len(pairs)} networks)" if len(pairs) < len(NETWORKS) else ""
                cells.append(f"{ours:.3f}" + (f" / {said:.3f}" if scheduler != LOOPS else "") + few)
            if set(cells) != {"-"}:
                rows.append((NAMES[scheduler], NAMES[base], *cells))
    return Sheet("Cycles, geometric mean", ("scheduler", "against", *(f"{chip}>" for chip in CHIPS)), rows)


def searches(found: Results) -> Sheet:
    """What a search costs, and what that finds whose budget ends with the first try."""
    rows: list[tuple[str, ...]] = []
    for chip in CHIPS:
        for network in NETWORKS:
            first, every = (found.get(Asked(chip, network, each)) for each in (FIRST, OURS))
            if first is not None and every is not None:
                above = percent(100 * (first.cycles / every.cycles - 1), digits=1)
                cells = f"{every.cycles:,}", f"{first.cycles:,}", above
                rows.append((chip, network, *cells, f"{every.seconds:.0f} s", f"{first.seconds:.0f} s"))
    columns = ("chip", "network", "all ways, cycles>", "the first>", "more>", "CPU time, all>", "the first>")
    return Sheet("Searches: all ways to share layers out, and the first alone, in the model", columns, rows)


def ideas(found: Results) -> Sheet:
    """What each idea is worth."""
    rows: list[tuple[str, ...]] = []
    for network in ABLATED:
        last = found.get(Asked(CHIPS[0], network, OURS))
        for name, scheduler in IDEAS.items():
            one = found.get(Asked(CHIPS[0], network, scheduler))
            if one is not None:
                ratio = f"{one.cycles / last.cycles:.3f}" if last else "-"
                rows.append((network, name, f"{one.cycles:,}", ratio, *_micro_ops(one), f"{one.seconds:.0f} s"))
    columns = (
        "network", "what", "cycles>", "of all>", "micro-ops>", "planned>", "bound>", "gap>", "hops x bytes>",
        "CPU time>",
    )  # fmt: skip
    return Sheet(f"{CHIPS[0]}: ideas one by one, in the model", columns, rows)


def on_rtl(found: Results) -> Sheet:
    """What ran on the RTL."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for (chip, network), some in ON_RTL.items():
        mine = found.get(Asked(chip, network, OURS, rtl=True))
        for scheduler in some:
            one = found.get(Asked(chip, network, scheduler, rtl=True))
            if one is None:
                continue
            if one.trouble:
                bad.add(len(rows))
            ratio = f"{one.rtl_cycles / mine.rtl_cycles:.3f}" if mine and mine.rtl_cycles else "-"
            error = percent(100 * one.error, sign="+") if one.rtl_cycles else "-"
            row = chip, network, scheduler.removesuffix(":fallback=none").removesuffix(",fallback=none")
            rows.append((*row, f"{one.rtl_cycles:,}", ratio, error, f"{one.compared:,}", f"{one.wrong:,}"))
    columns = ("chip", "network", "scheduler", "RTL cycles>", "of klotski's>", "model>", "bytes compared>", "wrong>")
    return Sheet("On the RTL", columns, rows, frozenset(bad))


def _failures(found: Results) -> list[str]:
    """Bars that were missed."""
    failures = [
        f"{one.network} on {one.chip} by {one.scheduler}: {each.trouble}" for one, each in found.items() if each.trouble
    ]
    ran = {one: each for one, each in found.items() if one.rtl}
    errors = {one: 100 * abs(each.error) for one, each in ran.items() if each.rtl_cycles}
    failures += [
        f"{one.network} on {one.chip} by {one.scheduler}: the model is {error:.2f} % off, the bound is "
        f"{WORST_ERROR:g} %"
        for one, error in errors.items()
        if error > WORST_ERROR
    ]
    if errors and sum(errors.values()) / len(errors) > MEAN_ERROR:
        failures.append(f"the model's mean error is above {MEAN_ERROR:g} %")
    for chip, network in TO_WIN:
        mine = ran.get(Asked(chip, network, OURS, rtl=True))
        for scheduler in ON_RTL[chip, network]:
            other = ran.get(Asked(chip, network, scheduler, rtl=True))
            if mine and other and scheduler != OURS and other.rtl_cycles <= mine.rtl_cycles:
                failures.append(
                    f"{network} on {chip}: micro-ops take {mine.rtl_cycles:,} cycles, {scheduler} {other.rtl_cycles:,}"
                )
    return failures


def missing(planned: Mapping[str, Sequence[Asked]], found: Results, older: Collection[Asked] = ()) -> Sheet:
    """What has not been measured, or on older code, by part."""
    rows: list[tuple[str, ...]] = []
    for part, asked in planned.items():
        left = sum(one not in found for one in asked)
        stale = sum(one in older for one in asked)
        if left or stale:
            rows.append((part, f"{left}", f"{stale}", f"{len(asked)}"))
    title = "Not measured since what decides it changed; `meshloom bench klotski --part NAME` measures a part"
    return Sheet(title, ("part", "missing>", "of older code>", "of>"), rows)
