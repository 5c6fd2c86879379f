"""Many networks at once by five online schedulers, on the RTL and in the model, beside the figures of Layer-Puzzle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meshloom.sched.workload.workload_sets import EACH, FACTORS, SIZES

from ..engine.figures import total
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table
from ..engine.values import with_settings
from . import cases, views
from .cases import CASES, CasePoint
from .served import ServedPoint, with_networks
from .views import CHIPS, FOUR, PAPER, READINGS, SCHEDULERS, THEIRS

CHIP = CHIPS[0]
#: On the RTL, by chip: workloads that every scheduler serves, and those that one does. `large3` has most work of all.
ALL = {"lp9": ("small3", "small7"), "lp25": ("small3",)}
ONE = {
    "lp9": (
        ("large3", "veltair"),
        ("large3", "layer_puzzle"),
        *((f"small{index}", "lookahead") for index in (0, 1, 2, 4, 5, 9)),
    ),
    "lp25": (("small7", "layer_puzzle"), ("small7", "lookahead")),
}
#: Parallelisations to which the paper's four are held.
KINDS = ("fmap", "output")
#: Sizes of the workloads on which Algorithm 2 is served by all its readings.
READ = ("small", "medium")
#: Cycles from an event to the launch of what is decided on it: none, the least that registers take on lp9, some more,
#: 10 us at 700 MHz, and ten and a hundred times that.
WAITS = (0, None, 2_000, 7_000, 70_000, 700_000)
#: Workloads for which these are tried, and the one of the quick study.
WAITED, QUICK = ("small3", "small7"), "small3"
#: Cases of the quick study: what compiles least.
QUICK_CASES = ("a network larger than memory",)


def points(full: bool) -> list[Point]:
    """Quick: one workload in all ways, on the RTL by ours, and two cases."""
    if full:
        return [*with_networks(_all()), *map(CasePoint, CASES)]
    some = [
        *(ServedPoint(CHIP, QUICK, each) for each in SCHEDULERS),
        ServedPoint(CHIP, QUICK, "lookahead", rtl=True),
        *(ServedPoint(CHIP, QUICK, each) for each in READINGS),
        *(ServedPoint(CHIP, QUICK, f"{each}:schemes=output") for each in FOUR),
        *(ServedPoint(CHIP, QUICK, each, wait=wait) for each in SCHEDULERS for wait in WAITS[4:5]),
    ]
    return [*with_networks(some), *map(CasePoint, QUICK_CASES)]


def _all() -> Iterator[ServedPoint]:
    for chip in CHIPS:
        for name in views.workloads(tuple(SIZES)):
            yield from (ServedPoint(chip, name, each) for each in SCHEDULERS)
        every = [(name, each) for name in ALL[chip] for each in SCHEDULERS]
        yield from (ServedPoint(chip, *each, rtl=True) for each in (*every, *ONE[chip]))
    for kind in KINDS:
        for index in range(EACH):
            yield from (ServedPoint(CHIP, f"small{index}", f"{each}:schemes={kind}") for each in FOUR)
    for name in WAITED:
        yield from (ServedPoint(CHIP, name, each, wait=wait) for each in SCHEDULERS for wait in WAITS)
    for name in views.workloads(READ):
        yield from (ServedPoint(CHIP, name, each) for each in READINGS)


def _decisions(rows: Rows) -> tuple[Table, ...]:
    return views.decisions(rows, WAITED, WAITS)


def _better(name: str, metric: int, chip: str, kind: str = "all") -> Callable[[Rows], float | None]:
    """How many times as good Layer-Puzzle is as another scheduler by a metric, in the mean; `kind`: what that one is
    held to."""

    def value(rows: Rows) -> float | None:
        if kind == "all":
            scores, _ = views.means(rows, chip)
            other, theirs = scores.get(name), scores.get(THEIRS)
        else:
            held, _ = views.held(rows, KINDS)
            other, theirs = held.get((name, kind)), held.get((THEIRS, "all"))
        return views.ratios(other, theirs)[metric] if other and theirs else None

    return value


def _figures() -> Iterator[Figure]:
    for chip in CHIPS:
        for metric, what in enumerate(("ANTT", "STP", "PE use")):
            for name in FOUR[:3]:
                label = f"{what.partition(' ')[0].lower()}_{name}_{chip}"
                words = f"{what} of layer_puzzle better than {name}'s on {chip} by"
                yield Figure(label, words, _better(name, metric, chip), "{:.2f}", paper=f"{PAPER[name][metric]}")
    for name in FOUR[:3]:
        words = f"PE use better than {name}'s where that cuts layers by output channels alone"
        value = _better(name, 2, CHIP, "output")
        yield Figure(f"output_{name}", words, value, "{:.2f}", paper=f"{PAPER[name][2]}")


def _checks(rows: Rows) -> list[str]:
    return [*views.wrong(rows), *cases.failures(rows), *views.behind(rows)]


STUDY = Study(
    name="layer_puzzle",
    title="Many networks at once",
    question="Does Layer-Puzzle serve many networks at once better than the schedulers that it is compared with?",
    answer="Where all networks are asked for at once, the ANTT of Layer-Puzzle on lp9 is {{ antt_prema_lp9 }} times as "
    "good as PREMA's (the paper: 1.61), its PE utilisation {{ pe_prema_lp9 }} times (1.95).",
    about=with_settings(prose(__file__), deadline9=FACTORS[9], deadline25=FACTORS[25]),
    points=points,
    tables=(
        views.on_rtl,
        cases.outcomes,
        views.by_chip,
        views.by_size,
        views.waits,
        lambda rows: views.readings(rows, READ),
        lambda rows: views.one_parallelisation(rows, KINDS),
        _decisions,
        views.programs,
    ),
    figures=(
        *_figures(),
        total("compared", "bytes compared on the RTL", "compared", ServedPoint),
        total("wrong", "bytes that differ", "wrong", ServedPoint, none=True),
    ),
    checks=_checks,
    paper="layer_puzzle",
    store="served",
)
