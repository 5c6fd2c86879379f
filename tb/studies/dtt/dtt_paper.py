"""Two questions that Dijkstra-Through-Time leaves open: what a simpler description of the hardware costs an explorer
before it (Figure 7), and what a controller without waypoints would save and need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from meshloom.hw.spec.contracts import REQUEST_INTERVAL
from meshloom.hw.spec.isa import INSTRUCTION_BYTES
from meshloom.sched.lowering.timed.again import Again, search_again
from meshloom.sched.papers.dtt import examples
from meshloom.sched.papers.dtt.entry import NAME
from meshloom.sched.papers.dtt.placing import DOT, Operation
from meshloom.sched.papers.dtt.upstream import explore, handed_on, mapped, simplified
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, mean_ratio, share, table
from ..engine.values import with_settings
from ..points.runs import Changes, chip_of, scheduled_by
from .dtt_holders import NINE

#: Layers whose programs are looked at.
LAYERS = ("resnet50/conv2_1_1", "gemm:128x512x256", "conv:14x14x256-256")
#: What differs from `ahead16`, by the name in the table; the first chip is quick.
CHIPS: dict[str, Changes] = {"ahead16": (), "nine cores": NINE}
#: Workloads for the butterfly of Figure 6, in all and in the quick study, and mappings that the explorer tries.
SEEDS, QUICK, TRIES = 6, 2, 20
#: Times the cycles that what is handed on may take, in the mean.
SLOWER = 1.05
#: Operands in its DRAM, and operations of a workload.
_DATA, _OPERATIONS = 8, 16


def random_workload(seed: int) -> list[Operation]:
    """Dot products, matrix products and custom functions, of operands in DRAM and of results that come at least four
    operations before."""
    random = Random(seed)
    operations: list[Operation] = []
    for number in range(_OPERATIONS):
        there = [*range(_DATA), *range(100, 100 + max(0, number - 3))]
        kind = random.choice(("matmul", DOT, "matmul", "custom"))
        operations.append(Operation(100 + number, tuple(random.sample(there, 3)), kind, slots=random.choice((2, 4))))
    return operations


@dataclass(frozen=True)
class ButterflyMapping:
    """Cycles and energy of a mapping of the butterfly; `moves`: those that were routed to find it."""

    cycles: int
    energy: float
    moves: int = 0


@dataclass(frozen=True)
class Explored:
    """`first_fit`: by First Best Fit alone; `star`: what the explorer finds in the star; `handed_on`: that in the
    butterfly; `whole`: what it finds if it knows all."""

    first_fit: ButterflyMapping
    star: ButterflyMapping
    handed_on: ButterflyMapping
    whole: ButterflyMapping


@dataclass(frozen=True)
class ButterflyExplored(Point):
    """A random workload for the butterfly, explored with so many mappings."""

    seed: int
    tries: int = TRIES
    row: ClassVar[Any] = Explored

    @property
    def name(self) -> str:
        return f"the butterfly with workload {self.seed}"

    @property
    def work(self) -> float:
        return 10.0

    def inputs(self) -> Inputs:
        return Inputs(tuple(f"sched.papers.dtt.{module}" for module in ("examples", "placing", "upstream")))

    def measure(self, report: Report) -> Explored:
        hardware = examples.butterfly()
        place = {"DRAM": range(_DATA)}, examples.BUTTERFLY_DISTRIBUTION
        operations = random_workload(self.seed)
        plain = mapped(hardware, operations, *place, {})
        report("exploring")
        star, whole = (explore(one, operations, *place, self.tries) for one in (simplified(hardware, "DRAM"), hardware))
        passed = handed_on(star, hardware, operations, *place)
        return Explored(
            ButterflyMapping(plain.runtime, float(plain.energy)),
            ButterflyMapping(star.outcome.runtime, float(star.outcome.energy), star.moves),
            ButterflyMapping(passed.runtime, float(passed.energy)),
            ButterflyMapping(whole.outcome.runtime, float(whole.outcome.energy), whole.moves),
        )


@dataclass(frozen=True)
class SearchedAgain(Point):
    """What a controller that searches again would save and need for a layer, on a chip by its name in `CHIPS`."""

    chip: str
    layer: str
    row: ClassVar[Any] = Again

    @property
    def name(self) -> str:
        return f"searching again for {self.layer} on {self.chip}"

    @property
    def work(self) -> float:
        return 20.0

    def inputs(self) -> Inputs:
        scheduled = scheduled_by(NAME)
        more = (*scheduled.more, ("chip", chip_of("ahead16", CHIPS[self.chip]).digest))
        return Inputs((*scheduled.modules, "sched.lowering.timed.again"), more)

    def measure(self, report: Report) -> Again:
        chip = chip_of("ahead16", CHIPS[self.chip])
        report("planning")
        return search_again(scheduler(NAME)(find(self.layer)[0].shape, chip, 1 << 15), chip)


def points(full: bool) -> list[Point]:
    """Workloads for the butterfly, and layers on both chips."""
    chips = list(CHIPS)[: None if full else 1]
    some: list[Point] = [ButterflyExplored(seed) for seed in range(SEEDS if full else QUICK)]
    return some + [SearchedAgain(chip, layer) for chip in chips for layer in LAYERS]


def _explored(rows: Rows) -> dict[ButterflyExplored, Explored]:
    return {point: row for point, row in rows.items() if isinstance(point, ButterflyExplored)}


def _again(rows: Rows) -> dict[SearchedAgain, Again]:
    return {point: row for point, row in rows.items() if isinstance(point, SearchedAgain)}


def figure_7(rows: Rows) -> Table:
    """The butterfly by an explorer that knows it, and by one that knows a star."""
    ways: dict[str, Callable[[Explored], ButterflyMapping]] = {
        "first fit": lambda row: row.first_fit,
        "in the star": lambda row: row.star,
        "handed on": lambda row: row.handed_on,
        "all known": lambda row: row.whole,
    }
    columns: dict[str, Callable[[tuple[ButterflyExplored, Explored]], str]] = {
        "workload": lambda each: f"{each[0].seed}",
        **{f"cycles, {words}>": lambda each, way=way: count(way(each[1]).cycles) for words, way in ways.items()},
        **{f"energy, {words}>": lambda each, way=way: f"{way(each[1]).energy:.1f}" for words, way in ways.items()},
        "moves routed, star>": lambda each: count(each[1].star.moves),
        "all known>": lambda each: count(each[1].whole.moves),
    }
    return table(f"Figure 7: {TRIES} mappings for the butterfly of Figure 6", columns, _explored(rows).items())


def looked_at(row: Again) -> float:
    """Links that the planner looked at, for a move."""
    return row.looked_at / max(1, row.moves)


def without_waypoints(rows: Rows) -> Table:
    """What searching again would save and need."""
    columns: dict[str, Callable[[tuple[SearchedAgain, Again]], str]] = {
        "chip": lambda each: each[0].chip,
        "layer": lambda each: each[0].layer,
        "moves>": lambda each: count(each[1].moves),
        "instructions>": lambda each: count(each[1].instructions),
        "for waypoints>": lambda each: count(each[1].waypoints),
        "share>": lambda each: share(each[1].waypoints / each[1].instructions),
        "links looked at / move>": lambda each: f"{looked_at(each[1]):.1f}",
        "moves held>": lambda each: count(each[1].held),
        "KB>": lambda each: f"{each[1].held * INSTRUCTION_BYTES / 1024:,.1f}",
        "cycles ahead>": lambda each: count(each[1].ahead),
        "links, ports>": lambda each: count(each[1].resources),
        "table, KB>": lambda each: f"{each[1].table_bits / 8192:,.1f}",
    }
    return table("A controller without waypoints", columns, _again(rows).items())


def _mean(pair: Callable[[Explored], tuple[float, float]]) -> Callable[[Rows], float | None]:
    return lambda rows: mean_ratio(pair(row) for row in _explored(rows).values())


def _worst(rows: Rows) -> float | None:
    return max((row.handed_on.cycles / row.whole.cycles for row in _explored(rows).values()), default=None)


def _looked_at(which: Callable[..., float | None]) -> Callable[[Rows], float | None]:
    return lambda rows: which((looked_at(row) for row in _again(rows).values()), default=None)


def _most_waypoints(rows: Rows) -> float | None:
    return max((100 * row.waypoints / row.instructions for row in _again(rows).values()), default=None)


STUDY = Study(
    name="dtt_paper",
    title="The explorer before it, and a controller without waypoints",
    question="What does simpler hardware cost an explorer before the planner, and what would a controller without "
    "waypoints save and need?",
    answer="What is found in the star takes {{ slower }} times the cycles; without waypoints at most "
    "{{ most_waypoints }} of the instructions would go.",
    about=with_settings(prose(__file__), instruction=INSTRUCTION_BYTES),
    points=points,
    tables=(figure_7, without_waypoints),
    figures=(
        Figure(
            "slower",
            "handed on: times the cycles, mean",
            _mean(lambda row: (row.handed_on.cycles, row.whole.cycles)),
            bar=Bar("at most", SLOWER),
        ),
        Figure("worst", "handed on: times the cycles, worst", _worst),
        Figure(
            "dearer", "handed on: times the energy, mean", _mean(lambda row: (row.handed_on.energy, row.whole.energy))
        ),
        Figure(
            "less_work",
            "times as many moves routed if all is known, mean",
            _mean(lambda row: (row.whole.moves, row.star.moves)),
            "{:.1f}",
        ),
        Figure(
            "first_fit",
            "First Best Fit alone: times the cycles, mean",
            _mean(lambda row: (row.first_fit.cycles, row.handed_on.cycles)),
            "{:.2f}",
        ),
        Figure("most_waypoints", "instructions for waypoints, most", _most_waypoints, "{:.1f} %"),
        Figure("least_looked", "links looked at for a move, least", _looked_at(min), "{:.0f}"),
        Figure("most_looked", "links looked at for a move, most", _looked_at(max), "{:.0f}"),
        Figure("wires", "wires of the butterfly", lambda rows: len(examples.butterfly().wires), "{:.0f}"),
        Figure(
            "simple_wires",
            "wires of the star",
            lambda rows: len(simplified(examples.butterfly(), "DRAM").wires),
            "{:.0f}",
        ),
        Figure("interval", "cycles from a control packet to the next", lambda rows: REQUEST_INTERVAL, "{:.0f}"),
    ),
    paper="dtt",
)
