"""Solvers of micro-op graphs side by side: lists, searches, CP-SAT, the paper's integer programs, and mappings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar, TypeVar

import numpy as np

from meshloom.sched.papers.klotski import ilp, mapping_ilp
from meshloom.sched.papers.klotski.bounds import bound
from meshloom.sched.papers.klotski.dag import Dag, Ints
from meshloom.sched.papers.klotski.exact import solved
from meshloom.sched.papers.klotski.flexibility import levels
from meshloom.sched.papers.klotski.listing import check, listed, makespan, searched
from meshloom.sched.papers.klotski.mapping import annealed, greedy, hop_words, mapped_by_cp_sat

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, ratio, table
from .graphs import NETWORKS, layered

#: Micro-ops, and sides of the mesh.
SIZES, SIDES = (12, 50, 200, 500, 1000, 2000), (3, 4, 5)
#: Lists that are tried, of any size; deterministic time of CP-SAT; percent above the bound that are allowed.
TRIES, WORK, GAP = 10_000, 1.0, 3.0
#: Micro-ops and seeds of the graphs that integer programs get, cores as rows and columns, nodes of their trees.
PROGRAMS, MESH, NODES = ((8, 1), (8, 2), (10, 3), (12, 4)), (1, 2), 2000
#: Micro-ops of the graphs whose mapping is compared; moves of annealing.
MAPPED, MOVES = ((8, 2, 2), (12, 2, 3), (50, 3, 3), (200, 3, 3), (1000, 4, 4), (2000, 5, 5)), 1_000_000
#: Edges x cores up to which CP-SAT maps, micro-ops up to which Eq. 20-28 are solved.
EDGES, EQUATIONS = 10_000, 12

T = TypeVar("T")


def mesh(rows: int, columns: int) -> Ints:
    """Hops between cores that are numbered row by row."""
    place = np.stack(np.divmod(np.arange(rows * columns), columns))
    return np.abs(place[:, :, None] - place[:, None, :]).sum(axis=0)


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    """What it returns, and CPU-seconds."""
    before = time.process_time()
    return make(), time.process_time() - before


class _Solved(Point):
    """A point whose row the solvers decide, and the work that they may do."""

    def inputs(self) -> Inputs:
        versions = tuple((name, metadata.version(name)) for name in ("ortools", "scipy"))
        return Inputs(("tb.studies.klotski.klotski_solvers",), versions)


@dataclass(frozen=True)
class Solutions:
    """Of a graph: bounds in cycles, makespans of the list, the search and the segments, CPU-seconds of the bounds and
    of these three."""

    bound: int
    chain: int
    work: int
    sets: int
    intervals: int
    ends: tuple[int, int, int]
    seconds: tuple[float, float, float, float]

    @property
    def gap(self) -> float:
        """Of the best, above the bound, in percent."""
        return 100 * (min(self.ends) / self.bound - 1)


@dataclass(frozen=True)
class GraphPoint(_Solved):
    """A graph on a mesh of `side` x `side` cores: random layers of `size` micro-ops, or, of size 0, the network
    `graph`."""

    graph: str
    size: int
    side: int
    row: ClassVar[Any] = Solutions

    @property
    def name(self) -> str:
        return self.graph + f", {self.size}" * (self.size > 0)

    @property
    def work(self) -> float:
        return 1 + self.size / 50

    def measure(self, report: Report) -> Solutions:
        cores = self.side**2
        graph = layered(self.size, self.size + self.side) if self.size else NETWORKS[self.graph](cores)
        known, bounding = _timed(lambda: bound(graph, cores))
        plain, listing = _timed(lambda: listed(graph, cores))
        report("searching")
        keys = [-levels(graph), -known.tails]
        best, searching = _timed(lambda: searched(graph, cores, keys, TRIES, known.best))
        report("solving segments")
        last, solving = _timed(lambda: solved(graph, cores, TRIES, WORK))
        plans = plain, best, last.plan
        for plan in plans:
            check(graph, plan, cores)
        first, second, third = (makespan(graph, plan) for plan in plans)
        return Solutions(
            max(known.best, last.bound), known.chain, known.work, known.sets, known.intervals, (first, second, third),
            (bounding, listing, searching, solving),
        )  # fmt: skip


@dataclass(frozen=True)
class Programs:
    """Of a small graph, as in the table: what CP-SAT and the paper's programs come to."""

    cells: tuple[str, ...]


@dataclass(frozen=True)
class ProgramPoint(_Solved):
    """A layered graph with cycles of 1 to 5 slots, for which time slots lose nothing."""

    size: int
    seed: int
    row: ClassVar[Any] = Programs

    @property
    def name(self) -> str:
        return f"{self.size} ({self.seed})"

    @property
    def work(self) -> float:
        return 2.0 * self.size

    def graph(self) -> Dag:
        """The graph."""
        graph = layered(self.size, self.seed, 0.3)
        return Dag(1 + graph.cycles % 5, graph.edges, graph.words, graph.order)

    def measure(self, report: Report) -> Programs:
        graph, hops = self.graph(), mesh(*MESH)
        cores = len(hops)
        best = solved(graph, cores, 100, WORK)
        cells = [f"{best.makespan}" + ("" if best.gap == 0 else f" (≥ {best.bound})")]
        for relaxed in (False, True):
            report(f"solving Eq. {18 + relaxed}")
            plan = ilp.scheduled(graph, cores, relaxed, NODES)
            end = makespan(graph, ilp.played(graph, plan, cores))
            cells += [f"{plan.makespan}" if plan.proven else f"{plan.makespan} (≥ {plan.bound:.0f})", str(end)]
        for exclusive in (False, True):
            report("solving Eq. 15")
            whole = ilp.unified(graph, hops, 0.01, exclusive, NODES)
            end = makespan(graph, ilp.played(graph, whole, cores))
            cells += [f"{whole.objective:.2f}" if whole.proven else f"{whole.objective:.2f} (≥ {whole.bound:.2f})"]
            cells += [str(end)]
        return Programs(tuple(cells))


@dataclass(frozen=True)
class Mappings:
    """Words x hops of mappings of a graph; None where a method was not tried. `cut`: which of the two forms of Eq.
    20-28, mended and printed, hit their limit."""

    greedy: int
    lowest_idle: int
    annealed: int
    cp_sat: float | None
    bound: float | None
    equations: tuple[float, float] | None
    cut: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class MappingPoint(_Solved):
    """A layered graph on a mesh."""

    size: int
    height: int
    width: int
    row: ClassVar[Any] = Mappings

    @property
    def name(self) -> str:
        return f"{self.size} on {self.height} x {self.width}"

    @property
    def work(self) -> float:
        return 60.0 if self.size <= EQUATIONS else 5 + self.size / 50

    def measure(self, report: Report) -> Mappings:
        graph, hops = layered(self.size, 7 * self.size + self.width, 0.3), mesh(self.height, self.width)
        plain = searched(graph, len(hops), [-levels(graph)], 200)
        first = greedy(graph, plain.starts, hops)
        report("annealing")
        better = annealed(graph, first, hops, MOVES)
        check(graph, better, len(hops))
        costs = [hop_words(graph, plan.cores, hops) for plan in (first, plain, better)]
        exact = mapped_by_cp_sat(graph, better, hops, WORK) if len(graph.edges) * len(hops) <= EDGES else None
        equations, cut = None, (False, False)
        if self.size <= EQUATIONS:
            report("solving Eq. 20-28")
            (mended, proven), (printed, known) = (
                mapping_ilp.mapped(graph, plain.starts, self.height, self.width, as_printed, NODES)
                for as_printed in (False, True)
            )
            equations, cut = (float(mended.cost), float(printed.cost)), (not proven, not known)
        return Mappings(
            int(costs[0]), int(costs[1]), int(costs[2]), float(exact.cost) if exact else None,
            float(exact.bound) if exact else None, equations, cut,
        )  # fmt: skip


def points(full: bool) -> Sequence[Point]:
    """Quick: graphs of up to 500 micro-ops on 3x3 cores, the two smallest programs, mappings of up to 200."""
    sides, sizes = (SIDES, SIZES) if full else (SIDES[:1], SIZES[:4])
    graphs = [GraphPoint("layers", size, side) for side in sides for size in sizes]
    graphs += [GraphPoint(name, 0, side) for side in sides for name in NETWORKS]
    programs = [ProgramPoint(*each) for each in (PROGRAMS if full else PROGRAMS[:2])]
    mappings = [MappingPoint(*each) for each in MAPPED if full or each[0] in (8, 50, 200)]
    return [*graphs, *programs, *mappings]


_Graph = tuple[GraphPoint, Solutions]


def schedules(rows: Rows) -> Table:
    """Bounds and makespans of graphs."""

    def of(number: int, digits: int = 4) -> Callable[[_Graph], str]:
        return lambda pair: ratio(pair[1].ends[number], pair[1].bound, digits)

    def bounded(name: str) -> Callable[[_Graph], str]:
        return lambda pair: ratio(getattr(pair[1], name), pair[1].bound)

    def spent(number: int) -> Callable[[_Graph], str]:
        return lambda pair: f"{pair[1].seconds[number] / max(pair[1].seconds[1], 1e-4):.0f}"

    columns: dict[str, Callable[[_Graph], str]] = {
        "graph": lambda pair: pair[0].name,
        "cores>": lambda pair: str(pair[0].side ** 2),
        "bound>": lambda pair: count(pair[1].bound),
        **{f"{name}>": bounded(name) for name in ("chain", "work", "sets", "intervals")},
        "list>": of(0),
        "search>": of(1),
        "segments>": of(2),
        "gap>": lambda pair: f"{pair[1].gap:.2f} %",
        "search, time>": spent(2),
        "segments, time>": spent(3),
    }
    pairs = [(point, row) for point, row in rows.items() if isinstance(point, GraphPoint)]
    return table("Schedules: bounds and makespans as shares of the best bound", columns, pairs)


def programs(rows: Rows) -> Table:
    """What the paper's integer programs come to."""
    columns = (
        "micro-ops (seed)", "CP-SAT>", "Eq. 18>", "played>", "Eq. 19>", "played>", "Eq. 15>", "played>",
        "Eq. 15, exclusive>", "played>",
    )  # fmt: skip
    lines = [(point.name, *row.cells) for point, row in rows.items() if isinstance(point, ProgramPoint)]
    return Table(f"The paper's programs on {MESH[0]} x {MESH[1]} cores, in slots", columns, lines)


def mappings(rows: Rows) -> Table:
    """Mappings by all methods."""

    def equation(number: int) -> Callable[[tuple[MappingPoint, Mappings]], str]:
        def text(pair: tuple[MappingPoint, Mappings]) -> str:
            row = pair[1]
            if row.equations is None:
                return "-"
            return ratio(row.equations[number], max(1, row.greedy)) + " (cut)" * row.cut[number]

        return text

    columns: dict[str, Callable[[tuple[MappingPoint, Mappings]], str]] = {
        "micro-ops": lambda pair: str(pair[0].size),
        "mesh": lambda pair: f"{pair[0].height} x {pair[0].width}",
        "greedy, words x hops>": lambda pair: count(max(1, pair[1].greedy)),
        "lowest idle core>": lambda pair: ratio(pair[1].lowest_idle, max(1, pair[1].greedy)),
        "annealing>": lambda pair: ratio(pair[1].annealed, max(1, pair[1].greedy)),
        "CP-SAT>": lambda pair: ratio(pair[1].cp_sat, max(1, pair[1].greedy)),
        "proven bound>": lambda pair: ratio(pair[1].bound, max(1, pair[1].greedy)),
        "Eq. 20-28, mended>": equation(0),
        "as printed>": equation(1),
    }
    pairs = [(point, row) for point, row in rows.items() if isinstance(point, MappingPoint)]
    return table("Mappings: words x hops as shares of the greedy one", columns, pairs)


def _worst(value: Callable[[Solutions], float]) -> Callable[[Rows], float | None]:
    return lambda rows: max((value(row) for point, row in rows.items() if isinstance(point, GraphPoint)), default=None)


STUDY = Study(
    name="klotski_solvers",
    title="Schedules and mappings of micro-ops",
    question="How near to a proven bound do lists, searches and solvers schedule and map micro-ops?",
    answer="The best schedule is within {{ gap }} of a proven bound; the dearest step takes {{ seconds }} CPU-seconds.",
    about=prose(__file__),
    points=points,
    tables=(schedules, programs, mappings),
    figures=(
        Figure(
            "gap",
            "the best schedule above its bound, worst",
            _worst(lambda row: row.gap),
            "{:.2f} %",
            Bar("at most", GAP),
        ),
        Figure(
            "seconds",
            "CPU-seconds of the dearest step (bounds, search or segments)",
            _worst(lambda row: max(row.seconds[0], *row.seconds[2:])),
            "{:.0f}",
        ),
    ),
    paper="klotski",
    versions=lambda: {name: metadata.version(name) for name in ("numba", "ortools", "scipy")},
)
