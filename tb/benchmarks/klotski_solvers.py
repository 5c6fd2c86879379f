"""Solvers of micro-op graphs side by side: lists, searches, CP-SAT, the paper's integer programs, and mappings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TypeVar

import numpy as np

from meshloom.sched.papers.klotski import ilp, mapping_ilp
from meshloom.sched.papers.klotski.bounds import bound
from meshloom.sched.papers.klotski.dag import Dag, Ints
from meshloom.sched.papers.klotski.exact import solved
from meshloom.sched.papers.klotski.flexibility import levels
from meshloom.sched.papers.klotski.listing import check, listed, makespan, searched
from meshloom.sched.papers.klotski.mapping import annealed, greedy, hop_words, mapped_by_cp_sat

from ..results.events import OnEvent, Stage
from .klotski_graphs import NETWORKS, layered
from .results import Result, Sheet

#: Micro-ops, and sides of the mesh.
SIZES, SIDES = (12, 50, 200, 500, 1000, 2000), (3, 4, 5)
#: Lists that are tried, of any size; deterministic time of CP-SAT; the gap that is asked for.
TRIES, WORK, GAP = 10_000, 1.0, 0.03
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
    """What it makes, and CPU-seconds."""
    before = time.process_time()
    return make(), time.process_time() - before


def _graphs() -> Iterator[tuple[str, int, Dag]]:
    for side in SIDES:
        for size in SIZES:
            yield f"layers, {size}", side * side, layered(size, size + side)
        for name, make in NETWORKS.items():
            yield name, side * side, make(side * side)


def _schedules(on_progress: OnEvent) -> tuple[Sheet, list[str], float]:
    rows, wide, slowest = list[tuple[str, ...]](), list[str](), 0.0
    for name, cores, graph in _graphs():
        on_progress(Stage(workload=name, what=f"scheduling on {cores} cores"))
        known, bounding = _timed(lambda graph=graph, cores=cores: bound(graph, cores))
        plain, listing = _timed(lambda graph=graph, cores=cores: listed(graph, cores))
        keys = [-levels(graph), -known.tails]
        best, searching = _timed(
            lambda graph=graph, cores=cores, keys=keys, known=known: searched(graph, cores, keys, TRIES, known.best)
        )
        last, solving = _timed(lambda graph=graph, cores=cores: solved(graph, cores, TRIES, WORK))
        for plan in (plain, best, last.plan):
            check(graph, plan, cores)
        least = max(known.best, last.bound)
        ends = [makespan(graph, plan) for plan in (plain, best, last.plan)]
        gap = min(ends) / least - 1
        slowest = max(slowest, bounding, searching, solving)
        if gap > GAP:
            wide.append(f"{name} on {cores} cores: {100 * gap:.1f} %")
        rows.append(
            (
                name, str(cores), f"{least:,}", f"{known.chain / least:.3f}", f"{known.work / least:.3f}",
                f"{known.sets / least:.3f}", f"{known.intervals / least:.3f}",
                *(f"{end / least:.4f}" for end in ends), f"{100 * gap:.2f} %",
                f"{searching / max(listing, 1e-4):.0f}", f"{solving / max(listing, 1e-4):.0f}",
            )
        )  # fmt: skip
    columns = (
        "graph", "cores>", "bound>", "chain>", "work>", "sets>", "intervals>", "list>", "search>", "segments>", "gap>",
        "search, time>", "segments, time>",
    )  # fmt: skip
    return Sheet("Schedules: bounds and makespans as shares of the best bound", columns, rows), wide, slowest


def small(size: int, seed: int) -> Dag:
    """A layered graph with cycles of 1 to 5 slots, for which time slots lose nothing."""
    graph = layered(size, seed, 0.3)
    cycles = 1 + graph.cycles % 5
    return Dag(cycles, graph.edges, graph.words, graph.order)


def _programs(on_progress: OnEvent) -> Sheet:
    rows: list[tuple[str, ...]] = []
    hops = mesh(*MESH)
    cores = len(hops)
    for size, seed in PROGRAMS:
        on_progress(Stage(workload=f"layers, {size}", what="solving the paper's programs"))
        graph = small(size, seed)
        best = solved(graph, cores, 100, WORK)
        cells = [f"{size} ({seed})", f"{best.makespan}" + ("" if best.gap == 0 else f" (≥ {best.bound})")]
        for relaxed in (False, True):
            found = ilp.scheduled(graph, cores, relaxed, NODES)
            end = makespan(graph, ilp.played(graph, found, cores))
            cells += [f"{found.makespan}" if found.proven else f"{found.makespan} (≥ {found.bound:.0f})", str(end)]
        for exclusive in (False, True):
            whole = ilp.unified(graph, hops, 0.01, exclusive, NODES)
            end = makespan(graph, ilp.played(graph, whole, cores))
            cells += [f"{whole.objective:.2f}" if whole.proven else f"{whole.objective:.2f} (≥ {whole.bound:.2f})"]
            cells += [str(end)]
        rows.append(tuple(cells))
    columns = (
        "micro-ops (seed)", "CP-SAT>", "Eq. 18>", "played>", "Eq. 19>", "played>", "Eq. 15>", "played>",
        "Eq. 15, exclusive>", "played>",
    )  # fmt: skip
    return Sheet(f"The paper's programs on {MESH[0]} x {MESH[1]} cores, in slots", columns, rows)


def _mappings(on_progress: OnEvent) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for size, height, width in MAPPED:
        on_progress(Stage(workload=f"layers, {size}", what=f"mapping on {height} x {width} cores"))
        graph, hops = layered(size, 7 * size + width, 0.3), mesh(height, width)
        plain = searched(graph, len(hops), [-levels(graph)], 200)
        first = greedy(graph, plain.starts, hops)
        better = annealed(graph, first, hops, MOVES)
        check(graph, better, len(hops))
        base, cost = (hop_words(graph, plan.cores, hops) for plan in (first, better))
        base = max(1, base)
        cells = [f"{size}", f"{height} x {width}", f"{base:,}", f"{hop_words(graph, plain.cores, hops) / base:.3f}"]
        cells.append(f"{cost / base:.3f}")
        if len(graph.edges) * len(hops) <= EDGES:
            exact = mapped_by_cp_sat(graph, better, hops, WORK)
            cells += [f"{exact.cost / base:.3f}", f"{exact.bound / base:.3f}"]
        else:
            cells += ["-", "-"]
        if size <= EQUATIONS:
            for printed in (False, True):
                found, proven = mapping_ilp.mapped(graph, plain.starts, height, width, printed, NODES)
                cells.append(f"{found.cost / base:.3f}" + ("" if proven else " (cut)"))
        else:
            cells += ["-", "-"]
        rows.append(tuple(cells))
    columns = (
        "micro-ops", "mesh", "greedy, words x hops>", "lowest idle core>", "annealing>", "CP-SAT>", "proven bound>",
        "Eq. 20-28, mended>", "as printed>",
    )  # fmt: skip
    return Sheet("Mappings: words x hops as shares of the greedy one", columns, rows)


def run(on_progress: OnEvent) -> Result:
    """Compares all methods on the same graphs."""
    on_progress(Stage(workload="klotski", what="compiling, unless it is cached"))
    warm = layered(20, 1)
    solved(warm, 2, 10, 0.01)
    annealed(warm, greedy(warm, listed(warm, 4).starts, mesh(2, 2)), mesh(2, 2), 10)
    schedules, wide, slowest = _schedules(on_progress)
    return Result(
        "klotski_solvers",
        "Schedules and mappings of micro-ops",
        "Random layers with halos, barriers and ways around (`tb/benchmarks/klotski_graphs.py`), after Bai et al., "
        "*Klotski* (ICCAD 2023), sections II-B, III-C and III-D. Everything is bounded by work, so all figures but "
        f"times are the same on every machine: {TRIES:,} lists, {MOVES:,} moves, deterministic time {WORK:g}, "
        f"{NODES:,} nodes. Every schedule is checked. Bar: within {100 * GAP:.0f} % of the bound.",
        (schedules, _programs(on_progress), _mappings(on_progress)),
        (
            "*chain*, *work*, *sets*, *intervals*: bounds, each with what those before it have shown "
            "(`sched/papers/klotski/bounds.py`). *list*: by bottom levels. *search*: the best of many lists. "
            "*segments*: the same for each segment by itself, then CP-SAT for short ones. *time*: CPU time as a "
            "multiple of the single list's.",
            f"The dearest single step (bounds, search or segments) took {slowest:.0f} CPU-seconds.",
            "*Eq. 18* bounds how many run, *Eq. 19* only how many start, so its makespan is below what cores that do "
            "one at a time can reach; *played*: its order on such cores. *Eq. 15*: makespan + 0.01 x hops, as printed "
            "(only starts are kept apart) and with one at a time on each core. By HiGHS; where the limit was hit, the "
            "bound is shown (≥).",
            "*As printed*: Eq. 21 counts the distance in rows twice and that in columns never, and Eq. 27 counts cores "
            "from 1; its cores, at their true cost.",
        ),
        tuple(wide),
        {name: metadata.version(name) for name in ("numba", "ortools", "scipy")},
    )
