"""The core's timing against its formulas, on random GEMMs; its utilisation alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import built_in_chips
from meshloom.hw.spec.timing import gemm_folds

from ...devices.interface import Job
from ...devices.simulated import VERILATOR
from ..engine.figures import total
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows, StudyError
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..points.runs import chip_of, gateware
from .random_gemms import deviation, fold_rich, program, random_gemms, shape_of, spans, utilisation, waits

#: Chips of the quick study.
QUICK = ("tiny", "quad8", "quad16")
#: Least utilisation of a core fed from its own memories.
BAR = 0.99


@dataclass(frozen=True)
class GemmTiming:
    """What random GEMMs on a chip come to. `addends`: how many have one; `folded`: have several folds; `waiting`: begin
    on an idle unit; `start`, `end`: the largest deviation of those from their formulas, in cycles; `utilisation`: of
    the fold-rich GEMM."""

    gemms: int
    addends: int
    folded: int
    waiting: int
    cycles: int
    start: int
    end: int
    utilisation: float


@dataclass(frozen=True)
class GemmPoint(Point):
    """Random GEMMs, then a fold-rich one, on the RTL of a built-in chip."""

    chip: str
    row: ClassVar[Any] = GemmTiming

    @property
    def name(self) -> str:
        return f"random GEMMs on {self.chip}"

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        return Inputs(
            ("tb.studies.chip.random_gemms",), (("chip", chip_of(self.chip).digest), ("gateware", gateware()))
        )

    def measure(self, report: Report) -> GemmTiming:
        """Raises BuildError; StudyError for a program that faults, or leaves too few records."""
        chip = chip_of(self.chip)
        device = VERILATOR.open(chip, False, report)
        bodies, rich = random_gemms(chip), [fold_rich(chip)]
        report(f"running {len(bodies)} random GEMMs")
        jobs = [Job(program(some, chip), (), ()) for some in (bodies, rich)]
        runs = list(device.run(jobs, "bench"))
        for run in runs:
            if run.fault is not None:
                raise StudyError(f"{chip.name}: fault {run.fault.describe(chip)}")
        worst = deviation(spans(runs[0].records), bodies, chip)
        return GemmTiming(
            worst.count,
            sum(bool(body["addend"]) for body in bodies),
            sum(gemm_folds(chip, shape_of(body)) > 1 for body in bodies),
            sum(map(waits, range(len(bodies)))),
            runs[0].cycles,
            worst.start,
            worst.end,
            utilisation(spans(runs[1].records), rich, chip),
        )


def points(full: bool) -> list[GemmPoint]:
    """Quick: the small chips."""
    return [GemmPoint(name) for name in (built_in_chips() if full else QUICK)]


def timing(rows: Rows) -> Table:
    """A line for each chip."""
    columns: dict[str, Callable[[tuple[GemmPoint, GemmTiming]], str]] = {
        "chip": lambda pair: pair[0].chip,
        "PEs": lambda pair: f"{chip_of(pair[0].chip).rows}x{chip_of(pair[0].chip).cols}",
        "GEMMs>": lambda pair: count(pair[1].gemms),
        "with addend>": lambda pair: count(pair[1].addends),
        "several folds>": lambda pair: count(pair[1].folded),
        "from idle>": lambda pair: count(pair[1].waiting),
        "cycles>": lambda pair: count(pair[1].cycles),
        "max start dev.>": lambda pair: count(pair[1].start),
        "max end dev.>": lambda pair: count(pair[1].end),
        "utilisation>": lambda pair: share(pair[1].utilisation, 2),
    }
    pairs = rows.pairs(GemmPoint)
    return table("Random GEMMs on the RTL", columns, pairs, lambda pair: bool(wrong_with(*pair)))


def wrong_with(point: GemmPoint, row: GemmTiming) -> list[str]:
    """Formulas that are wrong on a chip, and a core that is idle too long."""
    reasons: list[str] = []
    if row.start or row.end:
        reasons.append(f"starts are up to {row.start} cycles off their formula, ends up to {row.end}")
    if row.utilisation < BAR:
        reasons.append(f"utilisation {100 * row.utilisation:.2f} % is below {100 * BAR:g} %")
    return [f"{point.chip}: {reason}" for reason in reasons]


def _worst(rows: Rows) -> float | None:
    return max((max(row.start, row.end) for row in rows.values()), default=None)


STUDY = Study(
    name="gemm",
    title="GEMM timing, cycle by cycle",
    question="Are the cycles of a GEMM what the formulas say, and how busy is a core that its own memories feed?",
    answer="On {{ chips }} chips, starts and ends of {{ gemms }} random GEMMs are at most {{ worst }} cycles off; at "
    "least {{ least }} of the multiply-accumulates of a core are useful.",
    about=prose(__file__),
    points=points,
    tables=(timing,),
    figures=(
        Figure("chips", "chips", len, "{:,.0f}"),
        total("gemms", "random GEMMs", "gemms"),
        Figure("worst", "largest deviation from the formulas, cycles", _worst, "{:,.0f}", Bar("exactly", 0)),
        Figure(
            "least",
            "least utilisation of the fold-rich GEMM",
            lambda rows: min((100 * row.utilisation for row in rows.values()), default=None),
            "{:.2f} %",
            Bar("at least", 100 * BAR),
        ),
    ),
    checks=lambda rows: [text for pair in rows.pairs(GemmPoint) for text in wrong_with(*pair)],
)
