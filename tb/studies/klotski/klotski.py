"""Klotski's Tables I to III and its ablation on this chip, in the model and on the RTL, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, mean_ratio, ratio, share, table
from ..points.network_runs import STORE, NetworkCycles, NetworkRun, accuracy
from .paper import CLOCK, PRINTED, Printed
from .waits import CHIPS as WAITING
from .waits import WaitPoint, waits

CHIPS = ("klotski9", "klotski16", "klotski25")
NETWORKS = ("vgg16", "vgg19", "resnet50", "resnet152", "inception_v3")

ONE, TWO, OURS, LOOPS = "zigzag:whole=yes", "atomic", "klotski:fallback=none", "loop_order"
SHARED, ROUNDS = "zigzag", "klotski:rounds=yes,fallback=none"
#: A budget that one try uses up: the first way to share layers out, and no other.
FIRST = "klotski:budget=0.001k,fallback=none"
PAPERS_WAY = "klotski:partition=bayes,plan=solved,fallback=none"
#: Schedulers of the tables, with their names there. The first three are those of the paper.
NAMES = {
    ONE: "baseline 1: whole layers, zig-zag",
    TWO: "baseline 2: atomic dataflow",
    PAPERS_WAY: "Klotski as printed: entropy, then solvers",
    SHARED: "layers shared by all cores, zig-zag",
    OURS: "klotski",
    LOOPS: "loop_order: whole layers as loop nests",
}
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
    "all of it, with rounds": ROUNDS,
}
#: What runs on the RTL, and by whom.
ON_RTL = {
    ("klotski9", "squeezenet"): (SHARED, TWO, OURS, ROUNDS, LOOPS),
    ("klotski9", "resnet50"): (OURS, LOOPS, TWO, SHARED),
    ("klotski25", "resnet50"): (OURS, LOOPS, TWO, SHARED),
    ("klotski9", "inception_v3"): (OURS, LOOPS, TWO, SHARED),
    ("klotski25", "inception_v3"): (OURS, LOOPS, TWO, SHARED),
}
#: Percent by which the model may be off: in the mean, and at worst.
MEAN_ERROR, WORST_ERROR = 1.0, 3.0


def points(full: bool) -> Sequence[Point]:
    """Quick: SqueezeNet in micro-ops on the RTL, ResNet-50 in the model, both on the first chip."""
    if not full:
        rtl = [NetworkRun(CHIPS[0], "squeezenet", each, True) for each in (TWO, OURS)]
        return [*rtl, *(NetworkRun(CHIPS[0], "resnet50", each) for each in (ONE, TWO, OURS))]
    tables = (OURS, LOOPS, TWO, SHARED, ONE, PAPERS_WAY, FIRST)
    modelled = [NetworkRun(chip, network, each) for chip in CHIPS for network in NETWORKS for each in tables]
    ideas = [NetworkRun(CHIPS[0], network, each) for network in ABLATED for each in IDEAS.values()]
    rtl = [NetworkRun(*where, each, True) for where, some in ON_RTL.items() for each in some]
    return [*modelled, *ideas, *rtl, *map(WaitPoint, WAITING)]


class _Line:
    """A network on a chip by a scheduler in the model, beside others."""

    def __init__(self, rows: Rows, point: NetworkRun) -> None:
        self.point, self.row = point, _row(rows, point)
        self.one, self.two, self.ours = (_row(rows, replace(point, scheduler=each)) for each in (ONE, TWO, OURS))

    @property
    def printed(self) -> Printed | None:
        """What the paper has, of its schedulers."""
        return (
            PRINTED.get((self.point.chip, self.point.network))
            if self.point.scheduler in (ONE, TWO, PAPERS_WAY)
            else None
        )

    @property
    def place(self) -> int:
        """Which of the paper's three the scheduler is."""
        return (ONE, TWO, PAPERS_WAY).index(self.point.scheduler)

    def of_one(self) -> str:
        """Cycles against baseline 1's, here and in the paper."""
        text = ratio(self.row.cycles, self.one.cycles if self.one else None)
        return text + (f" / {self.printed.cycles[self.place] / self.printed.one:.3f}" if self.printed else "")

    def busy(self) -> str:
        """Share of the cycles in which arrays read operands."""
        chip = self.point.chip
        text = share(self.row.utilisation(chip))
        if self.one:
            text += f" ({self.row.utilisation(chip) / self.one.utilisation(chip):.2f})"
        printed = (1.0, self.printed.busy_two, self.printed.busy_klotski)[self.place] if self.printed else None
        return text + (f" / {printed:.2f}" if printed else "")

    def time(self) -> str:
        """Of the search, against baseline 2."""
        if self.point.scheduler not in (TWO, PAPERS_WAY, OURS):
            return DASH
        printed = f" / {self.printed.time:.2f}" if self.printed and self.point.scheduler == PAPERS_WAY else ""
        return ratio(self.row.seconds, self.two.seconds if self.two else None, 2) + printed


def _row(rows: Rows, point: NetworkRun) -> NetworkCycles:
    """The row of a point; of one that has none a row that counts as none."""
    return rows.get(point, _NOTHING)


class _Nothing(NetworkCycles):
    def __bool__(self) -> bool:
        return False


_NOTHING = _Nothing(0, 0, 0, None, 0.0)
_Columns = dict[str, Callable[[_Line], str]]


def _lines(rows: Rows, chips: Sequence[str], networks: Sequence[str], schedulers: Sequence[str]) -> list[_Line]:
    some = [NetworkRun(chip, network, each) for chip in chips for network in networks for each in schedulers]
    return [_Line(rows, point) for point in some if point in rows]


def _micro_ops(name: str, form: Callable[[float], str] = count) -> Callable[[_Line], str]:
    def text(line: _Line) -> str:
        figures = line.row.micro_ops
        return DASH if figures is None or figures.gap is None else form(getattr(figures, name))

    return text


_MICRO_OPS: _Columns = {
    "micro-ops>": _micro_ops("count"),
    "planned>": _micro_ops("planned_cycles"),
    "bound>": _micro_ops("bound_cycles"),
    "gap>": _micro_ops("gap", share),
    "hops x bytes>": _micro_ops("hops_bytes"),
}


def tables(rows: Rows) -> list[Table]:
    """Tables I to III."""
    columns: _Columns = {
        "network": lambda line: line.point.network,
        "scheduler": lambda line: NAMES[line.point.scheduler],
        "cycles>": lambda line: count(line.row.cycles),
        "ms>": lambda line: f"{line.row.cycles / CLOCK:.2f}",
        "of baseline 1>": _Line.of_one,
        "busy>": _Line.busy,
        **_MICRO_OPS,
        "time>": _Line.time,
    }
    return [
        table(f"{chip}: Table {'I' * number}, in the model", columns, _lines(rows, [chip], NETWORKS, tuple(NAMES)))
        for number, chip in enumerate(CHIPS, start=1)
    ]


def _both(chip: str, scheduler: str, base: str, rows: Rows) -> list[str]:
    """Networks of which there are the rows of both."""
    return [n for n in NETWORKS if {NetworkRun(chip, n, each) for each in (scheduler, base)} <= rows.keys()]


def _mean(chip: str, scheduler: str, base: str) -> Callable[[Rows], float | None]:
    """Cycles of a scheduler against another's, mean of the networks of which there are both."""

    def value(rows: Rows) -> float | None:
        some = _both(chip, scheduler, base, rows)
        pairs = ((NetworkRun(chip, network, scheduler), NetworkRun(chip, network, base)) for network in some)
        return mean_ratio((rows[mine].cycles, rows[theirs].cycles) for mine, theirs in pairs)

    return value


def _printed_mean(chip: str, base: str, rows: Rows, scheduler: str) -> float | None:
    """What the paper says of the same networks."""
    some = [PRINTED[chip, network] for network in _both(chip, scheduler, base, rows)]
    return mean_ratio((each.klotski, each.cycles[(ONE, TWO).index(base)]) for each in some)


def means(rows: Rows) -> Table:
    """Cycles against both baselines, of all networks for which there are both."""

    def cell(chip: str, scheduler: str, base: str) -> str:
        text = ratio(_mean(chip, scheduler, base)(rows))
        text += f" / {ratio(_printed_mean(chip, base, rows, scheduler))}" if scheduler != LOOPS else ""
        few = len(_both(chip, scheduler, base, rows))
        return text if few in (0, len(NETWORKS)) else f"{text} ({few} networks)"

    columns: dict[str, Callable[[tuple[str, str]], str]] = {
        "scheduler": lambda pair: NAMES[pair[0]],
        "against": lambda pair: NAMES[pair[1]],
        **{f"{chip}>": lambda pair, chip=chip: cell(chip, *pair) for chip in CHIPS},
    }
    pairs = [(scheduler, base) for base in (ONE, TWO) for scheduler in (PAPERS_WAY, OURS, LOOPS)]
    some = [pair for pair in pairs if any(_mean(chip, *pair)(rows) for chip in CHIPS)]
    return table("Cycles, geometric mean", columns, some)


def searches(rows: Rows) -> Table:
    """What a search costs, and what one comes to whose budget ends with the first try."""
    columns: _Columns = {
        "chip": lambda line: line.point.chip,
        "network": lambda line: line.point.network,
        "all ways, cycles>": lambda line: count(line.ours.cycles),
        "the first>": lambda line: count(line.row.cycles),
        "more>": lambda line: share(line.row.cycles / line.ours.cycles - 1),
        "CPU time, all>": lambda line: f"{line.ours.seconds:.0f} s",
        "of the first>": lambda line: f"{line.row.seconds:.0f} s",
    }
    some = [line for line in _lines(rows, CHIPS, NETWORKS, [FIRST]) if line.ours]
    return table("Searches: all ways to share layers out, and the first alone, in the model", columns, some)


def ideas(rows: Rows) -> Table:
    """What each idea is worth."""
    names = {scheduler: name for name, scheduler in IDEAS.items()}
    columns: _Columns = {
        "network": lambda line: line.point.network,
        "what": lambda line: names[line.point.scheduler],
        "cycles>": lambda line: count(line.row.cycles),
        "of all>": lambda line: ratio(line.row.cycles, line.ours.cycles),
        **_MICRO_OPS,
        "CPU time>": lambda line: f"{line.row.seconds:.0f} s",
    }
    return table(
        f"{CHIPS[0]}: ideas one by one, in the model", columns, _lines(rows, CHIPS[:1], ABLATED, tuple(IDEAS.values()))
    )


def _ran(rows: Rows) -> list[NetworkRun]:
    some = [NetworkRun(*where, each, True) for where, schedulers in ON_RTL.items() for each in schedulers]
    return [point for point in some if point in rows]


def on_rtl(rows: Rows) -> Table:
    """What ran on the RTL."""

    def of_ours(point: NetworkRun) -> str:
        return ratio(rows[point].rtl_cycles, _row(rows, replace(point, scheduler=OURS)).rtl_cycles)

    columns: dict[str, Callable[[NetworkRun], str]] = {
        "chip": lambda point: point.chip,
        "network": lambda point: point.network,
        "scheduler": lambda point: point.scheduler.removesuffix(":fallback=none").removesuffix(",fallback=none"),
        "RTL cycles>": lambda point: count(rows[point].rtl_cycles),
        "of klotski's>": of_ours,
        "model>": lambda point: share(rows[point].error, 2, "+"),
        "bytes compared>": lambda point: count(rows[point].compared),
        "wrong>": lambda point: count(rows[point].wrong),
    }
    return table("On the RTL", columns, _ran(rows), lambda point: rows[point].wrong > 0)


def not_first(rows: Rows) -> list[str]:
    """Networks that others have as fast or faster on the RTL (SqueezeNet is not held to that)."""
    failures: list[str] = []
    for point in _ran(rows):
        mine = _row(rows, replace(point, scheduler=OURS))
        if (
            mine
            and point.network != "squeezenet"
            and point.scheduler != OURS
            and rows[point].rtl_cycles <= mine.rtl_cycles
        ):
            failures.append(
                f"{point.network} on {point.chip}: micro-ops take {mine.rtl_cycles:,} cycles, {point.scheduler} "
                f"{rows[point].rtl_cycles:,}"
            )
    return failures


def _less(chip: str, scheduler: str, base: str) -> Callable[[Rows], float | None]:
    """Percent of cycles that a scheduler saves, in the mean."""

    def value(rows: Rows) -> float | None:
        mean = _mean(chip, scheduler, base)(rows)
        return None if mean is None else 100 * (1 - mean)

    return value


def _figures() -> list[Figure]:
    figures: list[Figure] = []
    for name, scheduler, base, who in (
        ("one", OURS, ONE, "klotski: fewer cycles than baseline 1"),
        ("two", OURS, TWO, "klotski: fewer cycles than baseline 2"),
        ("printed", PAPERS_WAY, TWO, "Klotski as printed: fewer cycles than baseline 2"),
    ):
        for chip, paper in zip(
            CHIPS, ("44 %", "50 %", "53 %") if base == ONE else ("15 %", "16 %", "17 %"), strict=True
        ):
            value = _less(chip, scheduler, base)
            bar = Bar("at least", 0) if scheduler == OURS else None
            figures.append(Figure(f"{name}_{chip}", f"{who}, {chip}", value, "{:.1f} %", bar, paper))
    for network in NETWORKS:
        what = f"baseline 1 on {CHIPS[0]}, {network}: cycles over the paper's"
        figures.append(Figure(f"baseline_{network}", what, _of_the_papers(network), "{:.2f}"))
    return figures


def _of_the_papers(network: str) -> Callable[[Rows], float | None]:
    """Cycles of baseline 1 on the smallest chip, over those that the paper has."""
    point = NetworkRun(CHIPS[0], network, ONE)
    return lambda rows: rows[point].cycles / PRINTED[point.chip, network].one if point in rows else None


_TABLES = (
    "The paper's ratio of 0.8443 for ResNet-50 on 3x3 cores is against baseline 2; against baseline 1 its cycles are "
    "0.622. From its tables, Klotski needs 44, 50 and 53 % fewer cycles than baseline 1 and 15, 16 and 17 % fewer than "
    "baseline 2."
)
STUDY = Study(
    name="klotski",
    title="Micro-ops beside the paper's tables",
    question="Are networks in micro-ops faster than whole layers and than atomic dataflow?",
    answer="On 3x3 cores `klotski` takes {{ one_klotski9 }} fewer cycles than baseline 1 and {{ two_klotski9 }} fewer "
    "than baseline 2, whose micro-ops are among its candidates; the paper's way as printed {{ printed_klotski9 }} "
    "(negative: more).",
    about=prose(__file__),
    points=points,
    tables=(on_rtl, tables, means, searches, ideas, waits),
    figures=(*_figures(), *accuracy(MEAN_ERROR, WORST_ERROR)),
    checks=not_first,
    remarks=lambda rows: [_TABLES],
    paper="klotski",
    store=STORE,
)
