"""Which assumption flips which comparison of online schedulers: arrivals, DRAM arbitration, what is in the workload,
how layers are cut, how times are counted. Each ratio has the confidence interval of its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from meshloom.sched.workload.workload_sets import FACTORS

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import DASH, Table, count
from ..engine.values import with_settings
from . import paired
from .assumed import (
    CHIP,
    KILOCYCLES,
    OTHERS,
    SEEDS,
    SHORT,
    TRACE,
    AssumedPoint,
    Lives,
    NetworkTimesPoint,
    Setting,
    poisson,
    with_networks,
)
from .flips import BASE, HELD, assumptions, flips, lives
from .replanned import NAME as REPLANNED
from .views import FOUR, OURS, SCHEDULERS, THEIRS

#: The arbitration that is tried with several arrivals, and the load that is tried with several of everything.
FAIR, BUSY = "round_robin", 0.9
LOADS = (0.3, 0.6, BUSY, 1.2)
SETTINGS = (
    BASE,
    *map(poisson, LOADS),
    Setting("trace"),
    Setting(arbitration=FAIR),
    poisson(BUSY, arbitration=FAIR),
    Setting(arbitration="weighted"),
    Setting(short=False),
    Setting(mix="table3"),
    Setting(mix="whole"),
    Setting(batch=4),
)
#: Seeds of the quick study.
QUICK = SEEDS[:2]
#: Schedulers that show why NCF waits where networks arrive one by one: a block, and a successor, that are not there.
PROBES = {REPLANNED: "veltair, blocks planned anew", f"{OURS}:ahead=no": f"{OURS}, no successors"}


def points(full: bool) -> list[Point]:
    """Quick: two workloads at once and with Poisson arrivals, and Layer-Puzzle beside PREMA where channels are fair."""
    seeds, settings = (SEEDS, SETTINGS) if full else (QUICK, (BASE, poisson(BUSY)))
    some = [AssumedPoint(setting, seed, name) for setting in settings for seed in seeds for name in SCHEDULERS]
    some += [AssumedPoint(poisson(BUSY), seed, name) for seed in (seeds if full else QUICK[1:]) for name in PROBES]
    if full:
        some += [AssumedPoint(BASE, seed, name + HELD) for seed in seeds for name in FOUR]
    else:
        # a workload without GoogLeNet, which takes most of the time to compile
        some += [AssumedPoint(Setting(arbitration=FAIR), QUICK[1], name) for name in ("prema", THEIRS)]
    return with_networks(some)


def scores(rows: Rows) -> Table:
    """Means of each scheduler under each setting."""
    cells: list[tuple[str, ...]] = []
    for setting in SETTINGS:
        for name in (*SCHEDULERS, *(each + HELD for each in FOUR), *PROBES):
            some = list(lives(rows, setting, name).values())
            if some:
                cells.append((setting.words, PROBES.get(name, name), str(len(some)), *_scores(some)))
    columns = ("ANTT>", "STP>", "SLA missed, %>", "without those that none can meet, %>", "PE use, %>")
    return Table("Means of the workloads", ("assumed", "scheduler", "workloads>", *columns), cells)


def _scores(some: list[Lives]) -> tuple[str, ...]:
    late = (paired.missed(some), paired.missed(some, possible=True))
    return (
        f"{fmean(map(paired.antt, some)):.3f}", f"{fmean(map(paired.stp, some)):.3f}",
        *(DASH if each is None else f"{100 * each:.1f}" for each in late),
        f"{100 * fmean(each.use for each in some):.1f}",
    )  # fmt: skip


def _beside(rows: Rows, one: str, metric: str, title: str, others: tuple[str, ...]) -> Table:
    """How many times as good a scheduler is as others, under each assumption."""
    cells: list[tuple[str, ...]] = []
    for each in assumptions(SETTINGS):
        results = [each.better(rows, metric, one, other) for other in others]
        if any(results):
            seeds = max(result.seeds for result in results if result)
            cells.append((each.words, str(seeds), *(str(result or DASH) for result in results)))
    return Table(title, ("assumed", "workloads>", *(f"{other}>" for other in others)), cells)


def theirs_antt(rows: Rows) -> Table:
    """Layer-Puzzle's ANTT."""
    title = "ANTT: layer_puzzle better by, with 95 % intervals (the paper: 1.61, 1.33, 1.22)"
    return _beside(rows, THEIRS, "ANTT", title, FOUR[:3])


def theirs_stp(rows: Rows) -> Table:
    """Layer-Puzzle's STP."""
    return _beside(
        rows, THEIRS, "STP", "STP: layer_puzzle better by, with 95 % intervals (the paper: 1.53, 1.32, 1.16)", FOUR[:3]
    )


def ours_antt(rows: Rows) -> Table:
    """The ANTT of ours."""
    return _beside(rows, OURS, "ANTT", "ANTT: lookahead better by, with 95 % intervals", FOUR)


def flipped(rows: Rows) -> Table:
    """Which assumption flips which comparison."""
    cells = [
        (one.words, f"{metric}, {THEIRS} and {other}", str(before), str(after), verdict, one.option)
        for one, metric, other, before, after, verdict in rows.once(_flips)
    ]
    columns = ("assumed", "comparison", f"{BASE.words}, fifo>", "as assumed>", "verdict", "on the command line")
    return Table("Which assumption flips which comparison", columns, cells)


def _flips(rows: Rows) -> list[Any]:
    return list(flips(rows, SETTINGS))


def blocking(rows: Rows) -> Table:
    """How long NCF waits for its first launch, and what is free meanwhile."""
    cells: list[tuple[str, ...]] = []
    for setting in SETTINGS:
        for name in (*SCHEDULERS, *PROBES):
            some = [
                life for one in lives(rows, setting, name).values() for life in one.requests if life.network == SHORT
            ]
            if some:
                waits = [life.waited for life in some]
                cells.append(
                    (setting.words, PROBES.get(name, name), str(len(some)), count(fmean(waits)), count(max(waits)),
                     f"{fmean(life.turnaround / life.all for life in some):.2f}", f"{_free(some):.1f}")
                )  # fmt: skip
    columns = ("requests>", "waits, cycles>", "at most>", "slowdown>", "cores free meanwhile>")
    return Table("NCF from its arrival to its first launch", ("assumed", "scheduler", *columns), cells)


def _free(some: list[Any]) -> float:
    """Cores free in the mean of all waiting time."""
    return sum(life.free * life.waited for life in some) / max(1, sum(life.waited for life in some))


def times(rows: Rows) -> Table:
    """Networks alone, and whether their deadlines can be met."""
    cells: list[tuple[str, ...]] = []
    for point, row in sorted(rows.pairs(NetworkTimesPoint), key=lambda each: (each[0].arbitration, each[0].network)):
        if point.schemes == "all":
            due = round(FACTORS[9] * row.one)
            can = "yes" if due >= row.all else "no"
            texts = (count(row.one), count(row.all), count(due), can, str(row.layers), str(row.programs))
            cells.append((point.network, str(point.batch), point.arbitration, *texts))
    columns = ("one core, cycles>", "all cores>", "deadline>", "can be met", "layers>", "programs>")
    title = f"Networks alone on {CHIP}, and deadlines"
    return Table(title, ("network", "batch>", "channels", *columns), cells)


def _ours(rows: Rows) -> list[tuple[str, str, paired.Interval]]:
    """The ANTT of ours beside each of the others under each assumption: in words, whose, by how much it is better."""
    return [
        (each.words, other, result)
        for each in assumptions(SETTINGS)
        for other in FOUR
        if (result := each.better(rows, "ANTT", OURS, other)) is not None
    ]


def remarks(rows: Rows) -> list[str]:
    """Where ours is behind, or may be, and why."""
    every = rows.once(_ours)
    behind = [f"{other} ({words}: {result})" for words, other, result in every if result.mean < 1]
    perhaps = [f"{other} ({words})" for words, other, result in every if result.mean >= 1 and not result.side]
    if not every:
        return []
    texts = [f"`lookahead` has the better ANTT in {len(every) - len(behind)} of {len(every)} comparisons."]
    texts += [f"It is behind {'; '.join(behind)}."] * bool(behind)
    texts += [f"Its intervals have 1 beside {'; '.join(perhaps)}."] * bool(perhaps)
    if (behind or perhaps) and _waits(f"{OURS}:ahead=no")(rows) is not None:
        texts.append(
            f"Why: a layer has been given its successor, on all cores, before NCF comes, and nothing that has been "
            f"launched can be taken back. With Poisson arrivals of load {BUSY} NCF waits {{{{ most_ours }}}} cycles at "
            f"most, with PREMA {{{{ most_prema }}}}, with `lookahead:ahead=no` {{{{ most_apart }}}}; alone it takes "
            f"{KILOCYCLES[SHORT]},000."
        )
    return [" ".join(texts)]


def _ratio(setting: Setting, other: str, metric: str = "ANTT", one: str = THEIRS) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        result = paired.better(metric, lives(rows, setting, one), lives(rows, setting, other), paired.ALL)
        return result and result.mean

    return value


def _turns(setting: Setting, name: str) -> Callable[[Rows], float | None]:
    """How many times as good a scheduler's ANTT is where channels take turns."""

    def value(rows: Rows) -> float | None:
        fair = lives(rows, replace(setting, arbitration=FAIR), name)
        result = paired.better("ANTT", fair, lives(rows, setting, name), paired.ALL)
        return result and result.mean

    return value


def _waits(name: str, of: Callable[[list[int]], float] = fmean) -> Callable[[Rows], float | None]:
    """Cycles from NCF's arrival to its first launch, Poisson arrivals: their mean, or the most."""

    def value(rows: Rows) -> float | None:
        every = lives(rows, poisson(BUSY), name).values()
        waits = [life.waited for one in every for life in one.requests if life.network == SHORT]
        return of(waits) if waits else None

    return value


def _impossible(rows: Rows) -> float | None:
    """Percent of the deadlines that leave less than the time alone on all cores."""
    some = [life.possible for one in lives(rows, BASE, THEIRS).values() for life in one.requests]
    return 100 * (1 - fmean(some)) if some else None


def _figures() -> Iterator[Figure]:
    for other in FOUR[:3]:
        for label, setting in (("at_once", BASE), ("poisson", poisson(BUSY)), ("fair", Setting(arbitration=FAIR))):
            words = f"ANTT of layer_puzzle better than {other}'s, {setting.words}"
            yield Figure(f"{other}_{label}", words, _ratio(setting, other), "{:.2f}")
    for name in (THEIRS, "prema"):
        for label, setting in (("", BASE), ("_poisson", poisson(BUSY))):
            words = f"ANTT of {name} better if channels take turns, {setting.words}"
            yield Figure(f"turns_{name}{label}", words, _turns(setting, name), "{:.2f}")
    yield Figure("wait", "cycles that NCF waits with veltair, Poisson arrivals", _waits("veltair"), "{:,.0f}")
    words = "cycles that NCF waits with veltair whose blocks end when a network arrives"
    yield Figure("wait_anew", words, _waits(REPLANNED), "{:,.0f}")
    for label, name in (("ours", OURS), ("prema", "prema"), ("apart", f"{OURS}:ahead=no")):
        words = f"cycles that NCF waits at most with {name}, Poisson arrivals"
        yield Figure(f"most_{label}", words, _waits(name, max), "{:,.0f}")
    yield Figure("impossible", "deadlines that no scheduler can meet", _impossible, "{:.0f} %")
    words = "comparisons in which lookahead has the better ANTT"
    yield Figure("ahead", words, lambda rows: _ahead(rows, lambda one: one.mean > 1), "{:.0f}")
    words = "... with an interval that leaves out 1"
    yield Figure("surely", words, lambda rows: _ahead(rows, lambda one: one.side > 0), "{:.0f}")
    yield Figure("compared", "... of so many", lambda rows: _ahead(rows, lambda one: True), "{:.0f}")
    yield Figure("flips", "comparisons that flip", lambda rows: _count(rows, "flips"), "{:.0f}")
    yield Figure("undecided", "comparisons that are decided no more", lambda rows: _count(rows, "undecided"), "{:.0f}")


def _ahead(rows: Rows, good: Callable[[paired.Interval], bool]) -> float | None:
    """How many of the comparisons of ours are so."""
    return float(sum(good(result) for _, _, result in rows.once(_ours))) or None


def _count(rows: Rows, verdict: str) -> float | None:
    return float(sum(each[-1] == verdict for each in rows.once(_flips))) if rows else None


def checks(rows: Rows) -> list[str]:
    """Workloads that went wrong, and loads that are reckoned with other times than the networks take."""
    texts = [f"{point.name}: {reason}" for point, row in rows.pairs(AssumedPoint) for reason in row.reasons]
    for point, row in rows.pairs(NetworkTimesPoint):
        as_it_is = (point.batch, point.arbitration, point.schemes) == (1, "fifo", "all")
        if as_it_is and round(row.all / 1000) != KILOCYCLES[point.network]:
            texts.append(f"{point.name}: {count(row.all)} cycles alone, not {KILOCYCLES[point.network]} thousand")
    return texts


STUDY = Study(
    name="puzzle_assumptions",
    title="Layer-Puzzle's assumptions",
    question="Which assumption flips which comparison of Layer-Puzzle with PREMA, Planaria and VELTAIR?",
    answer="With all networks at once Layer-Puzzle's ANTT is {{ prema_at_once }} times as good as PREMA's, with "
    "Poisson arrivals {{ prema_poisson }} times, with channels that take turns {{ prema_fair }} times.",
    about=with_settings(
        prose(__file__), factor=FACTORS[9], others=OTHERS, seeds=len(SEEDS), behind=TRACE[1], every=TRACE[2]
    ),
    points=points,
    tables=(flipped, theirs_antt, theirs_stp, ours_antt, scores, blocking, times),
    figures=tuple(_figures()),
    checks=checks,
    remarks=remarks,
    paper="layer_puzzle",
)
