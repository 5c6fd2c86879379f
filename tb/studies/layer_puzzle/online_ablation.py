"""What the parts of our online scheduler are worth: each switched off in turn, in the timeline model."""

from __future__ import annotations

from collections.abc import Callable

from meshloom.sched.workload.workload_sets import EACH

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Figure, Study, prose
from ..engine.tables import Table, ratio, table
from .served import Scores, ServedPoint, look, mean_of, with_networks

CHIP = "lp9"
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
#: Workloads of the quick study, and of the full one.
QUICK, FULL = ("small3",), tuple(f"small{index}" for index in range(EACH))


def points(full: bool) -> list[Point]:
    """Small workloads by each variant."""
    return with_networks(ServedPoint(CHIP, name, each) for name in (FULL if full else QUICK) for each in VARIANTS)


def _workloads(rows: Rows) -> list[str]:
    """Those that some variant has served."""
    return list(dict.fromkeys(point.workload for point in rows if isinstance(point, ServedPoint)))


def _means(rows: Rows) -> dict[str, Scores]:
    """Of each variant that has served all that others have."""
    names, means = _workloads(rows), dict[str, Scores]()
    for variant in VARIANTS:
        served = [look(rows, ServedPoint(CHIP, name, variant)) for name in names]
        mean = mean_of([row.model for row in served if row is not None])
        if mean is not None and all(served):
            means[variant] = mean
    return means


def variants(rows: Rows) -> Table:
    """Each part switched off."""
    columns: dict[str, Callable[[tuple[str, Scores]], str]] = {
        "scheduler": lambda each: each[0],
        "without": lambda each: VARIANTS[each[0]],
        "ANTT>": lambda each: ratio(each[1].antt),
        "STP>": lambda each: ratio(each[1].stp),
        "SLA missed, %>": lambda each: f"{100 * each[1].sla:.1f}",
        "PE use, %>": lambda each: f"{100 * each[1].use:.1f}",
    }
    title = f"Each part switched off; workloads: {', '.join(_workloads(rows))}"
    return table(title, columns, _means(rows).items())


def _score(variant: str, metric: str) -> Callable[[Rows], float | None]:
    """A metric's mean."""

    def value(rows: Rows) -> float | None:
        scores = _means(rows).get(variant)
        return getattr(scores, metric) if scores else None

    return value


def behind(rows: Rows) -> list[str]:
    """That ours is not ahead of the best of the four, in the mean."""
    means = _means(rows)
    best, ours = means.get("prema"), means.get("lookahead")
    if best is None or ours is None or (ours.antt < best.antt and ours.sla < best.sla):
        return []
    return [
        f"lookahead: ANTT {ours.antt:.3f} and {100 * ours.sla:.1f} % of deadlines missed; "
        f"prema has {best.antt:.3f} and {100 * best.sla:.1f} %"
    ]


STUDY = Study(
    name="online_ablation",
    title="What the parts of our online scheduler are worth",
    question="What is each part of our online scheduler worth?",
    answer="`lookahead` has an ANTT of {{ ours }}, the best of the paper's four {{ prema }}; without an order by cost "
    "it has {{ weights }}, without successors {{ ahead }}.",
    about=prose(__file__),
    points=points,
    tables=(variants,),
    figures=(
        Figure("ours", "ANTT of lookahead", _score("lookahead", "antt")),
        Figure("prema", "ANTT of prema", _score("prema", "antt")),
        Figure("weights", "ANTT of lookahead without an order by cost", _score("lookahead:weights=no", "antt")),
        Figure("ahead", "ANTT of lookahead without successors", _score("lookahead:ahead=no", "antt")),
    ),
    checks=behind,
    paper="layer_puzzle",
    store="served",
)
