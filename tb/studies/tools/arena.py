"""Our schedulers and other tools' mappings against each other on the RTL, with a proven bound beside each workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import geometric_mean

from ...compare.floors import floor_of
from ...results.arena import EntryStanding, Heat, Score, standings_of
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, ratio, table
from ..points.runs import RunPoint, chip_of
from .mapped import FILES, MappedPoint, every_point

#: Our schedulers of layers. `dtt` wants a controller, which these chips have not.
SCHEDULERS = ("loop_order", "paper_static", "hybrid", "flexer", "klotski", "atomic", "zigzag")
#: Chip and workload of each heat; the quick study has the first ones.
HEATS = (
    ("tiny", "gemm:32x32x32"),
    ("quad8", "gemm:64x64x64"),
    ("quad8", "resnet8/conv3_1_2"),
    ("quad16", "gemm:64x64x64"),
    ("quad16", "resnet8/conv4_1_2"),
    ("quad16", "squeezenet/fire8_squeeze"),
)
QUICK = 2


def points(full: bool) -> Sequence[Point]:
    """Every scheduler in every heat, and the mappings that tools have made of its layer for its chip."""
    heats = HEATS if full else HEATS[:QUICK]
    ours = [RunPoint(chip, workload, scheduler) for chip, workload in heats for scheduler in SCHEDULERS]
    return [*ours, *(point for point in every_point() if (point.chip, point.workload) in heats)]


def _scores(rows: Rows) -> Iterator[tuple[str, str, Score]]:
    """Chip, workload and score of each entry."""
    for point, row in rows.pairs(RunPoint):
        cycles = None if row.reason else row.rtl_cycles
        score = Score(entry=point.scheduler, status=row.status, cycles=cycles, reason=row.reason or "")
        yield point.chip, point.workload, score
    for point, run in rows.pairs(MappedPoint):
        why = run.refused or run.problem
        yield (
            point.chip,
            point.workload,
            Score(
                entry=f"{point.tool} (mapping)",
                status="failed" if why else "passed",
                cycles=None if why else run.rtl,
                claimed_cycles=run.claimed,
                reason=why,
            ),
        )


def heats_of(rows: Rows) -> list[Heat]:
    """The heats of which there are rows, the fastest entry first."""
    members: dict[tuple[str, str], list[Score]] = {}
    for chip, workload, score in _scores(rows):
        members.setdefault((chip, workload), []).append(score)
    heats: list[Heat] = []
    for chip, workload in (heat for heat in HEATS if heat in members):
        scores = sorted(members[chip, workload], key=lambda each: (each.cycles is None, each.cycles or 0, each.entry))
        floor = floor_of(workload, chip_of(chip))
        heats.append(Heat(workload=workload, chip=chip, floor_cycles=floor, scores=tuple(scores)))
    return heats


def standings(rows: Rows) -> Table:
    """A line for each entry."""
    columns: dict[str, Callable[[EntryStanding], str]] = {
        "entry": lambda each: each.entry,
        "heats>": lambda each: str(each.heats),
        "fastest in>": lambda each: str(each.wins),
        "failed in>": lambda each: str(each.failed),
        "of the fastest, mean>": lambda each: ratio(each.behind),
    }
    return table("Standings", columns, standings_of(heats_of(rows)))


def heats(rows: Rows) -> list[Table]:
    """A table for each workload on a chip."""
    return [_heat(heat) for heat in heats_of(rows)]


def _heat(heat: Heat) -> Table:
    bound = DASH if heat.floor_cycles is None else count(heat.floor_cycles)
    columns: dict[str, Callable[[Score], str]] = {
        "entry": lambda score: score.entry,
        "RTL cycles>": lambda score: count(score.cycles),
        "of the fastest>": lambda score: ratio(heat.behind(score)),
        "of the bound>": lambda score: ratio(heat.above_floor(score)),
        "claimed>": lambda score: count(score.claimed_cycles),
        "failed": lambda score: score.reason.partition(";")[0],
    }
    return table(f"{heat.workload} on {heat.chip}: no schedule takes fewer than {bound} cycles", columns, heat.scores)


def _above(rows: Rows) -> list[float]:
    """Of each heat, cycles of its fastest entry as a multiple of the bound."""
    return [
        heat.fewest_cycles / heat.floor_cycles for heat in heats_of(rows) if heat.fewest_cycles and heat.floor_cycles
    ]


def _mean_behind(rows: Rows, ours: bool) -> float | None:
    """The least mean, over heats in which tools took part, of the best entry of ours, or of the tools'."""
    ratios: list[float] = []
    for heat in heats_of(rows):
        sides = {True: list[int](), False: list[int]()}
        for score in heat.scores:
            if score.cycles is not None:
                sides[score.entry in SCHEDULERS].append(score.cycles)
        if all(sides.values()):
            ratios.append(min(sides[ours]) / min(map(min, sides.values())))
    return geometric_mean(ratios) if ratios else None


def _fastest(rows: Rows) -> float:
    """Heats in which an entry of ours is the fastest."""
    return sum(bool(heat.scores) and heat.scores[0].entry in SCHEDULERS for heat in heats_of(rows))


def wrong(rows: Rows) -> list[str]:
    """Entries that are below the bound, or whose bytes differ."""
    some: list[str] = []
    for heat in heats_of(rows):
        for score in heat.scores:
            if score.cycles is not None and heat.floor_cycles and score.cycles < heat.floor_cycles:
                some.append(f"{score.entry}, {heat.workload} on {heat.chip}: {score.cycles} cycles are below the bound")
    some += [f"{point.name}: {row.reason}" for point, row in rows.pairs(RunPoint) if row.reason]
    return some + [f"{point.name}: {run.problem}" for point, run in rows.pairs(MappedPoint) if run.problem]


STUDY = Study(
    name="arena",
    title="Arena: schedulers and mappings against each other",
    question="Who maps a layer best on RTL, by how much, and how far is that from a bound that no schedule undercuts?",
    answer="In {{ heats }} heats of {{ entries }} entries one of our schedulers is the fastest in {{ ours }}; the "
    "fastest entries take {{ above }} times the bound in the mean, and the best mapping of another tool {{ theirs }} "
    "times the cycles of the fastest.",
    about=prose(__file__),
    points=points,
    tables=(standings, heats),
    figures=(
        Figure("heats", "workloads on chips", lambda rows: len(heats_of(rows)), "{:,.0f}"),
        Figure("entries", "entries", lambda rows: len(standings_of(heats_of(rows))), "{:,.0f}"),
        Figure("ours", "heats in which a scheduler of ours is the fastest", _fastest, "{:,.0f}"),
        Figure(
            "above",
            "cycles of the fastest entry / bound, geometric mean",
            lambda rows: geometric_mean(some) if (some := _above(rows)) else None,
            bar=Bar("at least", 1),
        ),
        Figure(
            "theirs",
            "cycles of the best mapping of a tool / of the fastest entry, geometric mean",
            lambda rows: _mean_behind(rows, ours=False),
        ),
        Figure("tools", "tools whose mappings took part", lambda rows: len(_tools(rows)), "{:,.0f}"),
    ),
    checks=wrong,
)


def _tools(rows: Rows) -> set[str]:
    return {point.tool for point, _ in rows.pairs(MappedPoint) if point.tool in FILES}
