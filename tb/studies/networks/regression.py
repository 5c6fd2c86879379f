"""The model's error over the regression, layer by layer, on chips of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean

from meshloom.sched.workload.catalog import regression

from ...results.schema import MEAN_ERROR_PERCENT, WORST_ERROR_PERCENT, Row, Status, summarise
from ..engine.figures import total
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..points.runs import RunPoint

CHIPS = ("quad16", "quad8", "pe12x14", "tiny")
#: `tiny` has 16 PEs: it runs the layers of at most so many multiply-accumulates.
SMALL_CHIP, SMALL_MACS = "tiny", 2_000_000
#: On this chip, layers that the arrays bound have bars, in percent of useful PE cycles: from the start of a core's
#: first GEMM to the end of its last, and over the whole run.
BOUND_CHIP = "quad16"
WITHIN, END_TO_END = 97.0, 94.0
#: How many layers of a chip are quick, and what they are drawn with.
QUICK: Mapping[str, int] = {BOUND_CHIP: 20, SMALL_CHIP: 8}
SEED = 41


def layers(chip: str) -> list[str]:
    """Names of the regression's layers that run on a chip."""
    return [layer.name for layer in regression() if chip != SMALL_CHIP or layer.shape.macs <= SMALL_MACS]


def points(full: bool) -> list[RunPoint]:
    """Quick: some of quad16's and of the small chip's, drawn with `SEED`."""
    if full:
        return [RunPoint(chip, name) for chip in CHIPS for name in layers(chip)]
    return [
        RunPoint(chip, name) for chip, number in QUICK.items() for name in Random(SEED).sample(layers(chip), number)
    ]


def _of(rows: Rows, chip: str) -> list[Row]:
    return [row for point, row in rows.pairs(RunPoint) if point.chip == chip]


def chip_table(chip: str, some: Sequence[Row]) -> Table:
    """The layers of one chip."""
    summary = summarise(some)
    columns: dict[str, Callable[[Row], str]] = {
        "workload": lambda row: row.workload + f" [{row.status}]" * (row.status is not Status.PASSED),
        "RTL cycles>": lambda row: count(row.rtl_cycles),
        "model cycles>": lambda row: count(row.model_cycles),
        "error>": lambda row: share((row.error_percent or 0.0) / 100, 2, "+"),
        "PE util.>": lambda row: share(row.utilisation),
        "bytes checked>": lambda row: count(row.bytes_checked),
        "mismatches>": lambda row: count(row.mismatches),
        "instructions>": lambda row: count(row.instructions),
        "cycles/s>": lambda row: count(row.cycles_per_second),
    }
    title = (
        f"{chip}: {summary.passed} of {summary.rows} passed, mean error {summary.mean_error_percent or 0:.2f} %, "
        f"worst {summary.worst_error_percent or 0:.2f} %"
    )
    return table(title, columns, some, lambda row: row.status is not Status.PASSED)


def by_chip(rows: Rows) -> list[Table]:
    """A table for each chip, on one of them a second one of what the arrays bound."""
    tables: list[Table] = []
    for chip in CHIPS:
        if some := _of(rows, chip):
            tables += [chip_table(chip, some), *([bounded(chip, some)] if chip == BOUND_CHIP else [])]
    return tables


def by_arrays(some: Sequence[Row]) -> list[Row]:
    """The layers that the arrays bound."""
    return [row for row in some if row.arrays is not None and row.arrays.limit.partition("+")[0] == "compute"]


def _shares(row: Row) -> dict[str, tuple[float, float]]:
    """Where, the share of useful PE cycles in percent, and the bar."""
    within = 100 * row.arrays.within if row.arrays else 0.0
    return {"within its cores": (within, WITHIN), "end to end": (100 * row.utilisation, END_TO_END)}


def idle(chip: str, row: Row) -> list[str]:
    """Bars that a layer misses that the arrays bound."""
    left = 100 * row.arrays.edges if row.arrays else 0.0
    return [
        f"{chip}: {row.workload}, {where}: {used:.1f} % of the PE cycles are useful, not {bar:g} %"
        + f": its edges leave {left:.1f} % of the PEs" * (left < bar)
        for where, (used, bar) in _shares(row).items()
        if used < bar
    ]


def bounded(chip: str, some: Sequence[Row]) -> Table:
    """How much of the arrays the layers use that these bound."""

    def fed(row: Row) -> float:
        return row.arrays.fed_cycles / max(1, row.arrays.span_cycles) if row.arrays else 0.0

    columns: dict[str, Callable[[Row], str]] = {
        "layer": lambda row: row.workload,
        "RTL cycles>": lambda row: count(row.rtl_cycles),
        "within cores>": lambda row: f"{_shares(row)['within its cores'][0]:.1f} %",
        "end to end>": lambda row: f"{_shares(row)['end to end'][0]:.1f} %",
        "edges leave>": lambda row: share(row.arrays.edges if row.arrays else None),
        "fed within cores>": lambda row: share(fed(row)),
    }
    return table(f"{chip}: layers that the arrays bound", columns, by_arrays(some), lambda row: bool(idle(chip, row)))


def wrong(rows: Rows) -> list[str]:
    """Layers that did not pass, chips whose errors are too large, arrays that are too idle."""
    reasons: list[str] = []
    for chip in CHIPS:
        some = _of(rows, chip)
        reasons += [f"{chip}: {reason}" for reason in summarise(some).reasons] if some else []
        if chip == BOUND_CHIP:
            reasons += [text for row in by_arrays(some) for text in idle(chip, row)]
    return reasons


def _errors(rows: Rows) -> list[float]:
    return [abs(row.error_percent) for row in rows.values() if row.error_percent is not None]


STUDY = Study(
    name="regression",
    title="Model against RTL over the regression",
    question="How far are the cycles of the timeline model from those of the RTL, layer by layer?",
    answer="Over {{ layers }} runs of layers the model is {{ mean }} off in the mean and {{ worst }} at worst; "
    "{{ wrong }} of {{ compared }} bytes differ.",
    about=prose(__file__),
    points=points,
    tables=(by_chip,),
    figures=(
        Figure("layers", "runs of layers", len, "{:,.0f}"),
        Figure(
            "mean",
            "the model's error, mean",
            lambda rows: fmean(_errors(rows)) if rows else None,
            "{:.2f} %",
            Bar("at most", MEAN_ERROR_PERCENT),
        ),
        Figure(
            "worst",
            "the model's error, worst",
            lambda rows: max(_errors(rows), default=None),
            "{:.2f} %",
            Bar("at most", WORST_ERROR_PERCENT),
        ),
        total("compared", "bytes compared", "bytes_checked"),
        total("wrong", "bytes that differ", "mismatches", none=True),
    ),
    checks=wrong,
)
