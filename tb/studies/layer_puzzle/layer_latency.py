"""Algorithm 1 of Layer-Puzzle and its congestion estimator against the timeline model and the RTL: random layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.layer_puzzle import samples
from meshloom.sched.papers.layer_puzzle.estimator import CHIP
from meshloom.sched.papers.layer_puzzle.samples import Draw, shape_of
from meshloom.sched.workload.workload_sets import BATCHES, NETWORKS

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, table
from ..engine.values import with_settings
from ..points.runs import chip_of
from . import congestion
from .chunks import CHUNKS, OTHER, OTHER_CHUNKS, AgainPoint, ChunkPoint, Pair, RtlChunk, RtlChunkPoint
from .congestion import Measured
from .decisions import FORMS, DecisionPoint, DecisionTimes, FormTimes, FormTimesPoint, VersionPoint, Versions
from .views import SCHEDULERS

#: Chunks for tests, which run on the RTL too: every fourth of those beyond the package's samples, so that tests see the
#: same kinds of layers; how many of these are played once more in the model; how many are quick.
EVERY, AGAIN, QUICK = 4, 8, 2
TEST = range(samples.CHUNKS, CHUNKS, EVERY)
TRAIN = tuple(number for number in range(CHUNKS) if number not in TEST)
#: Bars: mean and worst error of the best form in percent, how much faster than the model it is, the worst decision in
#: microseconds.
MEAN, WORST, FASTER, DECISION = 2.0, 15.0, 50.0, 1000.0
#: By the paper: mean and worst error of Algorithm 1, in percent; share of versions that Pareto fronts save.
PAPER = (4.0, 9.0, 0.44)
#: Upper ends of the classes of errors, in percent.
CLASSES = (1, 2, 5, 10, 15, 25, 50, 100)


def points(full: bool) -> Sequence[Point]:
    """Quick: two chunks for tests, one of them once more and on the RTL; decisions on one chip; versions whole."""
    one = TEST[QUICK - 1 : QUICK]
    test, again, rtl = (TEST, TEST[:AGAIN], TEST) if full else (TEST[:QUICK], one, one)
    chips = (CHIP, OTHER) if full else (CHIP,)
    chunks = [*test, *(TRAIN if full else ())]
    return [
        *(ChunkPoint(CHIP, number) for number in chunks),
        *(ChunkPoint(OTHER, number) for number in range(OTHER_CHUNKS if full else 0)),
        *(AgainPoint(CHIP, number) for number in again),
        *(RtlChunkPoint(CHIP, number) for number in rtl),
        FormTimesPoint(CHIP),
        *(DecisionPoint(chip, scheduler) for chip in chips for scheduler in SCHEDULERS),
        *(VersionPoint(CHIP, name, batch) for name in NETWORKS for batch in BATCHES),
    ]


def measured(rows: Rows) -> Measured:
    """The chunks that there are."""
    return rows.once(_measured)


def _measured(rows: Rows) -> Measured:
    chunks = {point.number: row for point, row in rows.items() if isinstance(point, ChunkPoint) and point.chip == CHIP}
    again = {point.number: row for point, row in rows.items() if isinstance(point, AgainPoint)}
    return Measured(
        [chunks[number] for number in TRAIN if number in chunks],
        [chunks[number] for number in TEST if number in chunks],
        [row for point, row in rows.items() if isinstance(point, RtlChunkPoint)],
        [(chunks[number], cycles) for number, cycles in again.items() if number in chunks],
        [row for point, row in rows.items() if isinstance(point, ChunkPoint) and point.chip == OTHER],
    )


@dataclass(frozen=True)
class Error:
    """Signed errors of `FORMS` for one layer, in percent of what was measured."""

    draw: Draw
    matrix: bool
    errors: tuple[float, ...]


def errors(cycles: Sequence[tuple[Draw, int]], chip: ChipConfig) -> list[Error]:
    """Of layers that have been measured, with their cycles."""
    some: list[Error] = []
    for draw, each in cycles:
        shape = shape_of(draw, chip)
        off = tuple(100 * (form(shape, draw.scheme, chip, 1.0).cycles / each - 1) for form in FORMS.values())
        some.append(Error(draw, shape.matrix, off))
    return some


def _in_model(rows: Rows) -> list[Error]:
    return rows.once(_modelled)


def _modelled(rows: Rows) -> list[Error]:
    chunks = measured(rows)
    cycles = [(one.draw, one.measures.cycles) for chunk in (*chunks.train, *chunks.test) for one in chunk.alone]
    return errors(cycles, chip_of(CHIP))


def _pairs(rows: Rows) -> list[Pair]:
    return [pair for chunk in measured(rows).rtl for pair in chunk.alone]


def _times(rows: Rows) -> FormTimes | None:
    return rows.get(FormTimesPoint(CHIP))


def forms(rows: Rows) -> Table:
    """Errors and times of all forms."""
    columns = (
        "form", "in the model>", "mean error, %>", "worst, %>", "on the RTL>", "RTL: mean error, %>", "RTL: worst, %>",
        "microseconds each>", "times the model's speed>",
    )  # fmt: skip
    title = "Algorithm 1, and what follows from the chip"
    off, pairs, times = _in_model(rows), _pairs(rows), _times(rows)
    on_rtl = errors([(pair.draw, pair.rtl) for pair in pairs], chip_of(CHIP))
    if not off:
        return Table(title, columns, [])
    lines: list[tuple[str, ...]] = []
    for number, name in enumerate(FORMS):
        both: list[str] = []
        for each in (off, on_rtl):
            sizes = [abs(one.errors[number]) for one in each]
            both += [count(len(sizes)), *((f"{fmean(sizes):.1f}", f"{max(sizes):.1f}") if sizes else (DASH, DASH))]
        spent = (count(times.forms[number]), count(times.model / times.forms[number])) if times else (DASH, DASH)
        lines.append((name, *both, *spent))
    exact = [abs(100 * (pair.model / pair.rtl - 1)) for pair in pairs]
    played = (count(len(exact)), *((f"{fmean(exact):.1f}", f"{max(exact):.1f}") if exact else (DASH, DASH)))
    lines.append(("timeline model", count(len(off)), "", "", *played, count(times.model) if times else DASH, "1"))
    lines.append(("the paper, against its simulator", "8,000", f"{PAPER[0]}", f"{PAPER[1]}", "", "", "", "", ""))
    return Table(title, columns, lines)


def _summary(some: Sequence[float]) -> tuple[str, ...]:
    """Mean size, bias and worst."""
    values = (fmean(map(abs, some)), fmean(some), max(map(abs, some))) if some else ()
    return tuple(f"{value:.1f}" for value in values) or (DASH,) * 3


def causes_of(off: Sequence[Error], pairs: Sequence[Pair]) -> Table:
    """Errors of the two best forms by kind of layer, and how far programs differ from themselves."""
    kinds: dict[str, Callable[[Error], bool]] = {
        f"matrix, {name} cores, no ring": lambda one, low=low, high=high: (
            one.matrix and one.draw.scheme.input == 1 and low <= one.draw.scheme.cores <= high
        )
        for name, low, high in (("1", 1, 1), ("2-3", 2, 3), ("4-6", 4, 6), ("7-9", 7, 9))
    }
    kinds["matrix, ring of partial sums"] = lambda one: one.draw.scheme.input > 1
    kinds["vector"] = lambda one: not one.matrix
    rows: list[tuple[str, ...]] = []
    for name, belongs in kinds.items():
        each = [one for one in off if belongs(one)]
        cells = [cell for number in (-2, -1) for cell in _summary([one.errors[number] for one in each])]
        rows.append((name, count(len(each)), *cells))
    several = [100 * (pair.rtl / pair.expected - 1) for pair in pairs if pair.draw.scheme.cores > 1]
    what = "the same program, launched otherwise, several cores"
    rows.append((what, count(len(several)), "", "", "", *_summary(several)))
    columns = (
        "layers", "samples>", "with queues: mean error, %>", "with queues: bias, %>", "with queues: worst, %>",
        "by steps: mean error, %>", "by steps: bias, %>", "by steps: worst, %>",
    )  # fmt: skip
    return Table("Where the error lies", columns, rows)


def causes(rows: Rows) -> Table:
    """See `causes_of`."""
    off = _in_model(rows)
    one = causes_of(off, _pairs(rows))
    return one if off else Table(one.title, one.columns, [])


def classes_of(off: Sequence[Error]) -> Table:
    """How errors are distributed."""
    rows: list[tuple[str, ...]] = []
    for number, name in enumerate(FORMS if off else ()):
        sizes = [abs(one.errors[number]) for one in off]
        rows.append((name, *(f"{100 * sum(size <= end for size in sizes) / len(sizes):.0f}" for end in CLASSES)))
    return Table("Share of layers, in %, with an error of at most", ("form", *(f"{end} %>" for end in CLASSES)), rows)


def exact(rows: Rows) -> Table:
    """Completions on both."""
    rtl = measured(rows).rtl
    columns: dict[str, Callable[[Sequence[RtlChunk]], str]] = {
        "layers alone>": lambda some: count(sum(len(chunk.alone) for chunk in some)),
        "beside others>": lambda some: count(sum(len(chunk.beside) for chunk in some)),
        "programs>": lambda some: count(sum(chunk.programs for chunk in some)),
        "cycles>": lambda some: count(sum(chunk.cycles for chunk in some)),
        "other cycle than in the model>": lambda some: count(sum(chunk.differ for chunk in some)),
    }
    return table("The model against the RTL", columns, [rtl] if rtl else [], lambda some: any(c.differ for c in some))


def decisions(rows: Rows) -> Table:
    """Times of decisions."""
    pairs = [(point, row) for point, row in rows.items() if isinstance(point, DecisionPoint)]
    columns: dict[str, Callable[[tuple[DecisionPoint, DecisionTimes]], str]] = {
        "chip": lambda pair: pair[0].chip,
        "scheduler": lambda pair: pair[0].scheduler,
        "launches>": lambda pair: f"{pair[1].launches:.1f}",
        "microseconds, mean>": lambda pair: count(pair[1].mean),
        "worst>": lambda pair: count(pair[1].worst),
    }
    return table(f"Time of a decision with {len(NETWORKS) * len(BATCHES)} networks", columns, pairs)


def saved(rows: Rows) -> Table:
    """Versions that Pareto fronts save."""
    pairs = [(point, row) for point, row in rows.items() if isinstance(point, VersionPoint)]
    columns: dict[str, Callable[[tuple[VersionPoint, Versions]], str]] = {
        "network": lambda pair: pair[0].network,
        "batch>": lambda pair: str(pair[0].batch),
        "versions>": lambda pair: count(pair[1].all),
        "kept>": lambda pair: count(pair[1].front),
        "saved, %>": lambda pair: f"{100 * (1 - pair[1].front / pair[1].all):.0f}",
    }
    return table(f"Versions that Pareto fronts save (paper: {100 * PAPER[2]:.0f} %)", columns, pairs)


def _sizes(form: int, on_rtl: bool, rows: Rows) -> list[float]:
    off = errors([(pair.draw, pair.rtl) for pair in _pairs(rows)], chip_of(CHIP)) if on_rtl else _in_model(rows)
    return [abs(one.errors[form]) for one in off]


def _mean(form: int, on_rtl: bool) -> Callable[[Rows], float | None]:
    return lambda rows: fmean(sizes) if (sizes := _sizes(form, on_rtl, rows)) else None


def _differ(rows: Rows) -> float | None:
    rtl = measured(rows).rtl
    return sum(chunk.differ for chunk in rtl) if rtl else None


def _faster(rows: Rows) -> float | None:
    return times.model / times.forms[-1] if (times := _times(rows)) else None


def _worst_decision(rows: Rows) -> float | None:
    return max((row.worst for point, row in rows.items() if isinstance(point, DecisionPoint)), default=None)


def outdated(rows: Rows) -> list[str]:
    """Whether the package's samples have to be drawn anew."""
    text = "the samples of the package are others; run sched/papers/layer_puzzle/estimator.py"
    return [text] if measured(rows).outdated() else []


STUDY = Study(
    name="layer_latency",
    title="Latencies of layers, predicted",
    question="How well does Layer-Puzzle's Algorithm 1 predict latencies of layers, and its forest congestion?",
    answer="As printed it is {{ printed }} off in the mean on the RTL, mended {{ mended }}, by steps {{ steps }}. "
    "The forest of all features is {{ forest }} off.",
    about=with_settings(prose(__file__), tests=len(TEST), chunks=CHUNKS),
    points=points,
    tables=(
        forms,
        causes,
        lambda rows: classes_of(_in_model(rows)),
        exact,
        lambda rows: congestion.table(measured(rows)),
        decisions,
        saved,
    ),
    figures=(
        Figure("printed", "as printed, mean error on the RTL", _mean(0, True), "{:.1f} %", paper="4 %"),
        Figure("mended", "mended, mean error on the RTL", _mean(1, True), "{:.1f} %"),
        Figure("steps", "by steps, mean error on the RTL", _mean(-1, True), "{:.1f} %"),
        Figure("steps_mean", "by steps, mean error in the model", _mean(-1, False), "{:.1f} %", Bar("at most", MEAN)),
        Figure(
            "steps_worst",
            "by steps, worst error in the model",
            lambda rows: max(_sizes(-1, False, rows), default=None),
            "{:.1f} %",
            Bar("at most", WORST),
        ),
        Figure("faster", "by steps, times as fast as the model", _faster, "{:.0f}", Bar("at least", FASTER)),
        Figure(
            "forest",
            "the forest of all features, mean error in the model",
            lambda rows: measured(rows).best,
            "{:.1f} %",
            Bar("at most", congestion.PAPER),
            f"{congestion.PAPER} %",
        ),
        Figure("differ", "programs that ended in another cycle on the RTL", _differ, "{:,.0f}", Bar("exactly", 0)),
        Figure("decision", "microseconds of a decision, worst", _worst_decision, "{:.0f}", Bar("at most", DECISION)),
    ),
    checks=outdated,
    paper="layer_puzzle",
)
