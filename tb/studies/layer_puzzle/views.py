"""The tables of `layer_puzzle`: metrics of schedulers beside the paper's, from whatever rows there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from meshloom.sched.workload.workload_sets import EACH, NETWORKS, SIZES

from ..engine.rows import Rows
from ..engine.tables import DASH, Table, count, table
from .served import Life, ProgramsPoint, Scores, Served, ServedPoint, look, mean_of

CHIPS = ("lp9", "lp25")
#: The paper's four, its own the last of them, and ours.
SCHEDULERS = ("prema", "planaria", "veltair", "layer_puzzle", "lookahead")
FOUR, THEIRS, OURS = SCHEDULERS[:4], "layer_puzzle", "lookahead"
#: How many times as good Layer-Puzzle is as each of the others, by the paper: ANTT, STP, PE utilisation.
PAPER = {"prema": (1.61, 1.53, 1.95), "planaria": (1.33, 1.32, 1.28), "veltair": (1.22, 1.16, 1.13)}
#: Cycles of a second, to turn seconds of decisions into cycles (Table II).
HERTZ = 700e6
#: Algorithm 2, by what is read as printed.
READINGS = {
    "layer_puzzle": "",
    "layer_puzzle:order=ahead": "sign of the priority",
    "layer_puzzle:skips=every": "skips: every decision that leaves a network waiting",
    "layer_puzzle:order=ahead,skips=every": "both",
    "layer_puzzle:literal=yes": "loop without a way out",
}
_SCORES = "ANTT>", "STP>", "SLA missed, %>", "PE use, %>"


def workloads(sizes: Sequence[str]) -> list[str]:
    """The names of all workloads of these sizes."""
    return [f"{size}{index}" for size in sizes for index in range(EACH)]


def on_rtl(rows: Rows) -> Table:
    """A row for each workload that ran on the RTL."""
    columns: dict[str, Callable[[tuple[ServedPoint, Served]], str]] = {
        "chip": lambda each: each[0].chip,
        "workload": lambda each: each[0].workload,
        "networks>": lambda each: str(each[1].networks),
        "scheduler": lambda each: each[0].scheduler,
        "RTL cycles>": lambda each: count(each[1].rtl_cycles),
        "in the model>": lambda each: count(each[1].model_cycles),
        "ANTT>": lambda each: f"{each[1].scores.antt:.3f}",
        "ANTT in the model>": lambda each: f"{each[1].model.antt:.3f}",
        "STP>": lambda each: f"{each[1].scores.stp:.3f}",
        "SLA missed, %>": lambda each: f"{100 * each[1].scores.sla:.0f}",
        "PE use, %>": lambda each: f"{100 * each[1].scores.use:.1f}",
        "launches>": lambda each: str(each[1].decisions),
        "decided otherwise>": lambda each: str(each[1].differ),
        "worst end, %>": lambda each: f"{each[1].worst_end:.2f}",
        "bytes>": lambda each: count(each[1].compared),
        "wrong>": lambda each: str(each[1].wrong),
    }
    some = [(point, row) for point, row in rows.items() if isinstance(point, ServedPoint) and point.rtl]
    return table("On the RTL", columns, some, lambda each: bool(each[1].reasons))


def wrong(rows: Rows) -> list[str]:
    """What is wrong with workloads that were served, in words."""
    return [
        f"{point.name}: {reason}"
        for point, row in rows.items()
        if isinstance(point, ServedPoint)
        for reason in row.reasons
    ]


def _shared(rows: Rows, chip: str, schedulers: Sequence[str], sizes: Sequence[str]) -> dict[str, list[Served]]:
    """By scheduler the rows of workloads that all of these have served."""
    points = {each: [ServedPoint(chip, name, each) for name in workloads(sizes)] for each in schedulers}
    every = {each: [look(rows, point) for point in some] for each, some in points.items()}
    places = [at for at in range(len(workloads(sizes))) if all(some[at] is not None for some in every.values())]
    return {each: [row for at in places if (row := some[at]) is not None] for each, some in every.items()}


def means(rows: Rows, chip: str, sizes: Sequence[str] = tuple(SIZES)) -> tuple[dict[str, Scores], int]:
    """By scheduler its mean of the workloads that all of the paper's four have served, of ours if it has served all of
    these too; and how many they are."""
    four = _shared(rows, chip, FOUR, sizes)
    served = len(four[THEIRS])
    five = _shared(rows, chip, SCHEDULERS, sizes)
    every = five if len(five[OURS]) == served else four
    scores = {each: mean_of([row.model for row in some]) for each, some in every.items()}
    return {each: mean for each, mean in scores.items() if mean is not None}, served


def _cells(mean: Scores) -> tuple[str, ...]:
    return f"{mean.antt:.3f}", f"{mean.stp:.3f}", f"{100 * mean.sla:.1f}", f"{100 * mean.use:.1f}"


def ratios(mean: Scores, theirs: Scores) -> tuple[float, float, float]:
    """How many times as good Layer-Puzzle (`theirs`) is: ANTT, STP, PE utilisation."""
    return mean.antt / theirs.antt, theirs.stp / mean.stp, theirs.use / mean.use


def _beside(mean: Scores, theirs: Scores, paper: tuple[float, float, float] | None) -> tuple[str, ...]:
    """How many times as good Layer-Puzzle is, beside what the paper says."""
    if paper is None:
        return tuple(f"{each:.2f}" for each in ratios(mean, theirs))
    return tuple(f"{each:.2f} / {of_it:.2f}" for each, of_it in zip(ratios(mean, theirs), paper, strict=True))


def by_chip(rows: Rows) -> Table:
    """Figure 6: means of the workloads, by chip."""
    cells = [
        (chip, str(served), name, *_cells(mean), *_beside(mean, scores[THEIRS], PAPER.get(name)))
        for chip in CHIPS
        for scores, served in (means(rows, chip),)
        for name, mean in scores.items()
    ]
    columns = "ANTT: layer_puzzle better by / paper>", "STP / paper>", "PE use / paper>"
    title = "Means of the workloads in the timeline model (Figure 6)"
    return Table(title, ("chip", "workloads>", "scheduler", *_SCORES, *columns), cells)


def behind(rows: Rows) -> list[str]:
    """Chips on which ours is not ahead of the paper's four."""
    texts: list[str] = []
    for chip in CHIPS:
        scores, _ = means(rows, chip)
        if OURS not in scores:
            continue
        ours = scores.pop(OURS)
        antt, sla = min(mean.antt for mean in scores.values()), min(mean.sla for mean in scores.values())
        if ours.antt >= antt or ours.sla > sla:
            texts.append(
                f"lookahead on {chip}: ANTT {ours.antt:.3f} and {100 * ours.sla:.1f} % SLA violations; the best of the "
                f"four have {antt:.3f} and {100 * sla:.1f} %"
            )
    return texts


def by_size(rows: Rows) -> Table:
    """Figure 7: mean ANTT by chip and size of the workloads."""
    cells = [
        (chip, size, str(served), *(f"{scores[name].antt:.3f}" if name in scores else DASH for name in SCHEDULERS))
        for chip in CHIPS
        for size in SIZES
        for scores, served in (means(rows, chip, (size,)),)
        if served
    ]
    columns = ("chip", "size", "workloads>", *(f"{name}>" for name in SCHEDULERS))
    return Table("Mean ANTT by size of the workloads (Figure 7)", columns, cells)


def waits(rows: Rows) -> Table:
    """Of the workloads that all schedulers have served: mean slowdown by network, the worst, and what a network does in
    its turnaround time."""
    cells: list[tuple[str, ...]] = []
    for chip in CHIPS:
        for scheduler, some in _shared(rows, chip, SCHEDULERS, tuple(SIZES)).items():
            if lives := [life for row in some for life in row.lives]:
                cells.append((chip, str(len(some)), scheduler, *_life_cells(lives)))
    columns = (*(f"{network}>" for network in NETWORKS), "worst>", "waiting, % of turnaround>", "cores while running>")
    title = "Who waits: mean slowdown by network, in the model"
    return Table(title, ("chip", "workloads>", "scheduler", *columns), cells)


def _life_cells(lives: Sequence[Life]) -> tuple[str, ...]:
    slowdowns = [[each.slowdown for each in lives if each.network == network] for network in NETWORKS]
    worst = max(lives, key=lambda each: each.slowdown)
    whole, ran = sum(each.turnaround for each in lives), sum(each.ran for each in lives)
    return (
        *(f"{fmean(each):.2f}" if each else DASH for each in slowdowns),
        f"{worst.slowdown:.1f}, {worst.network}",
        f"{100 * (1 - ran / whole):.0f}",
        f"{sum(each.held for each in lives) / ran:.1f}",
    )


def readings(rows: Rows, sizes: Sequence[str]) -> Table:
    """A row for each reading that has been served, on the workloads of these sizes that all of those have."""
    names = [name for name in READINGS if _shared(rows, CHIPS[0], [name], sizes)[name]]
    some = _shared(rows, CHIPS[0], names, sizes) if len(names) > 1 else {}
    cells: list[tuple[str, ...]] = []
    for name, served in some.items():
        mean = mean_of([row.model for row in served])
        slowdowns = [life.slowdown for row in served for life in row.lives if life.network == "ncf"]
        if mean is not None:
            ncf = f"{fmean(slowdowns):.1f}" if slowdowns else DASH
            cells.append((name, READINGS[name], str(len(served)), *_cells(mean), ncf))
    title = f"Algorithm 2 by its readings, on {CHIPS[0]} in the model"
    return Table(title, ("scheduler", "read as printed", "workloads>", *_SCORES, "slowdown of ncf>"), cells)


def held(rows: Rows, kinds: Sequence[str]) -> tuple[dict[tuple[str, str], Scores], int]:
    """Means of the paper's four with all schemes, and held to one parallelisation of all layers, by scheduler and kind,
    of small workloads that are there for each; a kind that nobody has been held to is left out. And how many they
    are."""
    names = {(each, "all"): each for each in FOUR}
    names |= {(each, kind): f"{each}:schemes={kind}" for kind in kinds for each in FOUR}
    chosen: dict[tuple[str, str], str] = {}
    for kind in ("all", *kinds):
        some = {key: name for key, name in names.items() if key[1] == kind}
        if kind == "all" or _shared(rows, CHIPS[0], list(some.values()), ("small",))[some[THEIRS, kind]]:
            chosen |= some
    every = _shared(rows, CHIPS[0], list(chosen.values()), ("small",))
    scores = {key: mean_of([row.model for row in every[name]]) for key, name in chosen.items()}
    return {key: mean for key, mean in scores.items() if mean is not None}, len(every[THEIRS])


def one_parallelisation(rows: Rows, kinds: Sequence[str]) -> Table:
    """The same as a table."""
    scores, served = held(rows, kinds)
    cells = [
        (name, kind, str(served), *_cells(mean), *_beside(mean, scores[THEIRS, "all"], PAPER.get(name)))
        for (name, kind), mean in scores.items()
    ]
    columns = "ANTT: layer_puzzle with all better by / paper>", "STP / paper>", "PE use / paper>"
    title = f"One parallelisation for all layers: small workloads on {CHIPS[0]} in the model"
    return Table(title, ("scheduler", "schemes", "workloads>", *_SCORES, *columns), cells)


def decisions(rows: Rows, names: Sequence[str], some: Sequence[int | None]) -> tuple[Table, Table]:
    """What the time of a decision costs, and what a decision takes."""
    cells: list[tuple[str, ...]] = []
    took: list[tuple[str, ...]] = []
    least = 0
    for scheduler in SCHEDULERS:
        seconds: list[tuple[float, float]] = []
        for workload in names:
            served = [look(rows, ServedPoint(CHIPS[0], workload, scheduler, wait=wait)) for wait in some]
            seconds += [row.seconds for row in served if row]
            least = next((row.wait for row, wait in zip(served, some, strict=True) if row and wait is None), least)
            if any(served):
                texts = (f"{row.model.antt:.3f}, {100 * row.model.sla:.0f}" if row else DASH for row in served)
                cells.append((workload, scheduler, *texts))
        if seconds:
            mean, worst = fmean(each[0] for each in seconds), max(each[1] for each in seconds)
            times = f"{1e6 * mean:.0f}", f"{1e6 * worst:.0f}", f"{mean * HERTZ:,.0f}", f"{worst * HERTZ:,.0f}"
            took.append((scheduler, *times))
    columns = ("workload", "scheduler", *(f"{least if wait is None else wait:,} cycles>" for wait in some))
    return (
        Table(f"ANTT, and SLA missed in %, by the time of a decision, on {CHIPS[0]} in the model", columns, cells),
        Table(
            "Time of a decision in Python, on the machine that measured it, and in cycles at 700 MHz",
            ("scheduler", "mean, us>", "worst, us>", "mean, cycles>", "worst, cycles>"),
            took,
        ),
    )


def programs(rows: Rows) -> Table:
    """What networks were compiled to."""
    points = [point for point in rows if isinstance(point, ProgramsPoint)]
    points.sort(key=lambda one: (CHIPS.index(one.chip), one.schemes, one.network, one.batch))
    columns: Mapping[str, Callable[[ProgramsPoint], str]] = {
        "chip": lambda one: one.chip,
        "network": lambda one: one.network,
        "batch>": lambda one: str(one.batch),
        "schemes": lambda one: one.schemes,
        "layers>": lambda one: str(rows[one].layers),
        "programs>": lambda one: str(rows[one].templates),
        "compiled>": lambda one: str(rows[one].forms),
        "instructions>": lambda one: count(rows[one].instructions),
        "code, MB>": lambda one: f"{rows[one].code / 1e6:.1f}",
        "window, pages>": lambda one: str(rows[one].pages),
    }
    return table("Programs of each network, and how many of them differ in more than addresses", columns, points)
