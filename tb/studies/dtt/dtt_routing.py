"""Ahead-of-time routing: page moves planned per CPU-second, beside networkx; waypoints; pushed against pulled flow."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import TypeVar

from meshloom.sched.routing.waypoints import Between

from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, ratio, share, table
from .dtt_plot import draw
from .flows import BothFlows, Flows
from .routing_points import (
    BATCHES,
    FLITS,
    Beside,
    BesideNetworkx,
    PlanFigures,
    PlanTimed,
    Reduced,
    StoredBits,
    TreeReduced,
    WaypointsStored,
)

PLOT = "dtt_routing.svg"
#: Least page moves per CPU-second.
BAR = 30_000
SIDES = (4, 8)
#: Moves of random programs; the quick study has the first ones.
SIZES, QUICK_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000), 4
#: Share of cycles in which the busiest ports carry a flit as planned; the second is more than there is.
LOAD, TOO_MUCH = 0.6, 1.1
#: Plans below so many moves are made so many times, and the fastest counts.
SHORT, REPEATS = 30_000, 3
#: Moves that networkx is asked for, and weights of a hop: against a cycle waited, as planned and as in the paper.
MOVES, WEIGHTS = 150, (16, 1000)
#: Moves of the plans whose waypoints are counted, and routes between waypoints.
STORED = 10_000
BETWEEN: dict[Between, str] = {"yx": "YX", "xy": "XY", "search": "the same search"}
#: Layers in both flows.
WORKLOADS = {
    "resnet8, all layers": ("resnet8",),
    "gemm:256x256x256": ("gemm:256x256x256",),
    "resnet50/conv2_1_2": ("resnet50/conv2_1_2",),
    "resnet50/conv3_2_1..3": ("resnet50/conv3_2_1", "resnet50/conv3_2_2", "resnet50/conv3_2_3"),
    "resnet50/conv5_2_2": ("resnet50/conv5_2_2",),
    "vgg16/conv4_2": ("vgg16/conv4_2",),
}
#: Whole networks take minutes; this one is planned on the largest mesh only, and not in the quick study.
WHOLE = BothFlows(f"square{SIDES[-1]}", "vgg16, all layers", ("vgg16",))
#: Sizes of dot products that share the eight multipliers of the reduction tree.
REDUCTIONS = ((8,), (4, 4), (3, 3, 2), (2, 4, 2), (1, 2, 2, 2, 1), (3, 2, 3))

P = TypeVar("P", bound=Point)


def points(full: bool) -> list[Point]:
    """Plans, questions for networkx, waypoints, flows and reductions."""
    sizes = SIZES if full else SIZES[:QUICK_SIZES]
    some: list[Point] = []
    for side in SIDES:
        loads = [*((size, LOAD) for size in sizes), (sizes[-1], TOO_MUCH)]
        some += [PlanTimed(side, size, load, REPEATS if size < SHORT else 1) for size, load in loads]
        some += [BesideNetworkx(side, weight, MOVES, LOAD, REPEATS) for weight in WEIGHTS]
        some += [WaypointsStored(side, STORED, LOAD, between) for between in BETWEEN]
    for chip in ("quad16", *(f"square{side}" for side in SIDES)):
        some += [BothFlows(chip, name, layers) for name, layers in WORKLOADS.items()]
    return some + [WHOLE] * full + [TreeReduced(sizes) for sizes in REDUCTIONS]


def _of(rows: Rows, kind: type[P]) -> list[P]:
    return [point for point in rows if isinstance(point, kind)]


def _mesh(point: PlanTimed | BesideNetworkx | WaypointsStored) -> str:
    return f"{point.side}x{point.side}"


def speeds(rows: Rows) -> Table:
    """Random programs of all sizes."""

    def of(point: PlanTimed) -> PlanFigures:
        return rows[point]

    columns: dict[str, Callable[[PlanTimed], str]] = {
        "mesh": _mesh,
        "port load>": lambda point: share(point.port_load, 0),
        "moves>": lambda point: count(of(point).moves),
        "hits>": lambda point: count(of(point).hits),
        "cycles>": lambda point: count(of(point).cycles),
        "link load>": lambda point: share(of(point).link_load, 0),
        "late moves>": lambda point: share(of(point).missed / max(of(point).moves, 1)),
        "tasks re-timed>": lambda point: f"{of(point).late:,} of {of(point).tasks:,}",
        "links looked at>": lambda point: f"{of(point).looked_at / max(of(point).moves, 1):.0f}",
        "CPU ms>": lambda point: count(1000 * of(point).seconds),
        "moves/s>": lambda point: count(of(point).rate),
    }
    title = f"Random programs, pages of {FLITS} flits"
    return table(title, columns, _of(rows, PlanTimed), bad=lambda point: bool(_wrong_plan(point, of(point))))


def beside(rows: Rows) -> Table:
    """The plain formulation beside the compiled search, on the same moves."""

    def of(point: BesideNetworkx) -> Beside:
        return rows[point]

    columns: dict[str, Callable[[BesideNetworkx], str]] = {
        "mesh": _mesh,
        "hop weight>": lambda point: f"{point.weight}",
        "moves>": lambda point: count(of(point).networkx.moves),
        "of equal cost>": lambda point: count(of(point).networkx.equal),
        "turning back>": lambda point: count(of(point).networkx.turning),
        "graph, CPU s>": lambda point: f"{of(point).networkx.building:.2f}",
        "networkx moves/s>": lambda point: f"{of(point).networkx.rate:,.1f}",
        "compiled moves/s>": lambda point: count(of(point).rate),
        "ratio>": lambda point: count(of(point).rate / of(point).networkx.rate),
    }
    title = "Beside networkx: the same questions over the same reservations"
    return table(title, columns, _of(rows, BesideNetworkx), bad=lambda point: of(point).networkx.wrong > 0)


def waypoints(rows: Rows) -> Table:
    """What the routes of a plan cost as waypoints."""

    def of(point: WaypointsStored) -> StoredBits:
        return rows[point]

    def each(point: WaypointsStored, total: int, digits: int = 1) -> str:
        return ratio(total, max(of(point).moves, 1), digits)

    columns: dict[str, Callable[[WaypointsStored], str]] = {
        "mesh": _mesh,
        "between waypoints": lambda point: BETWEEN[point.between],
        "moves>": lambda point: count(of(point).moves),
        "hops>": lambda point: each(point, of(point).hops, 2),
        "waypoints>": lambda point: each(point, of(point).points, 3),
        "most>": lambda point: count(of(point).most_points),
        "listed>": lambda point: each(point, of(point).listed),
        "routes>": lambda point: each(point, of(point).routes),
        "stored>": lambda point: each(point, of(point).stored),
        "listed / stored>": lambda point: ratio(of(point).listed, of(point).stored, 2),
        "turns / rest>": lambda point: ratio(of(point).turns, max(of(point).rest, 1), 2),
    }
    return table("Waypoints: bits of a move", columns, _of(rows, WaypointsStored))


def flows(rows: Rows) -> Table:
    """Workloads pushed and pulled."""

    def of(point: BothFlows) -> Flows:
        return rows[point]

    columns: dict[str, Callable[[BothFlows], str]] = {
        "chip": lambda point: point.chip,
        "workload": lambda point: point.workload,
        "tasks>": lambda point: count(of(point).tasks),
        "ideal cycles>": lambda point: count(of(point).ideal),
        "pushed>": lambda point: count(of(point).cycles),
        "pulled, asking 0 / 1 / 2 ahead>": lambda point: " / ".join(count(run.cycles) for run in of(point).pulled),
        "pulled, pages expected>": lambda point: " / ".join(count(run.cycles) for run in of(point).expecting),
        "gain>": lambda point: ratio(of(point).gain, digits=2),
        "moves pushed>": lambda point: count(of(point).moves),
        "pulled>": lambda point: count(of(point).best.moves),
        "flit hops pushed>": lambda point: count(of(point).flit_hops),
        "pulled, + requests>": lambda point: f"{of(point).best.flit_hops:,} + {of(point).best.request_flit_hops:,}",
        "link load>": lambda point: f"{100 * of(point).link_load:.1f} / {share(of(point).best.link_load)}",
        "busiest port>": lambda point: share(of(point).port_share, 0),
        "moves/s>": lambda point: count(of(point).rate),
    }
    return table("Pushed and pulled", columns, _of(rows, BothFlows), bad=lambda point: of(point).gain < 1)


def reductions(rows: Rows) -> Table:
    """The reduction tree of the paper's section III-B, with and without its side links."""

    def of(point: TreeReduced) -> Reduced:
        return rows[point]

    columns: dict[str, Callable[[TreeReduced], str]] = {
        "dot products": lambda point: "+".join(map(str, point.sizes)),
        "in all>": lambda point: count(of(point).reductions),
        "energy, tree>": lambda point: f"{of(point).plain.energy:.1f}",
        "augmented>": lambda point: f"{of(point).augmented.energy:.1f}",
        "saved>": lambda point: share(1 - of(point).augmented.energy / of(point).plain.energy),
        "cycles, tree>": lambda point: count(of(point).plain.cycles),
        "augmented >": lambda point: count(of(point).augmented.cycles),
        "side links used>": lambda point: " / ".join(share(used, 0) for used in of(point).augmented.side_links),
    }
    title = f"Reduction tree, scheduled backwards: {BATCHES} times eight products"
    return table(title, columns, _of(rows, TreeReduced))


def _wrong_plan(point: PlanTimed, row: PlanFigures) -> list[str]:
    texts: list[str] = []
    if row.problems:
        texts.append(f"{_mesh(point)}, {row.moves:,} moves: {row.first_problem} (and {row.problems - 1} more)")
    if point.port_load == LOAD and row.rate < BAR:
        texts.append(f"{_mesh(point)}: {row.moves:,} moves at {row.rate:,.0f} moves/s, below {BAR:,}")
    return texts


def wrong(rows: Rows) -> list[str]:
    """Plans that are wrong or slow, and routes that do not cost what networkx finds."""
    texts = [text for point in _of(rows, PlanTimed) for text in _wrong_plan(point, rows[point])]
    for point in _of(rows, BesideNetworkx):
        yardstick = rows[point].networkx
        if yardstick.wrong:
            texts.append(
                f"{_mesh(point)}: {yardstick.wrong} of {yardstick.moves} routes do not cost what networkx finds"
            )
    return texts


def lost(rows: Rows) -> list[str]:
    """Where the pulled flow is faster, and how near the pushed one is to the limits of the chip there."""
    texts: list[str] = []
    for point in _of(rows, BothFlows):
        row: Flows = rows[point]
        if row.gain < 1:
            texts.append(
                f"{point.name}, by {100 * (1 - row.gain):.1f} % (pushed, the cores work in "
                f"{100 * row.ideal / row.cycles:.0f} % of all cycles, and the {row.port} carries flits in "
                f"{100 * row.port_share:.0f} %)"
            )
    return [f"Pulled is faster in {'; '.join(texts)}."] if texts else []


def _rates(side: int, which: Callable[..., float | None]) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        plans = [point for point in _of(rows, PlanTimed) if point.side == side and point.port_load == LOAD]
        return which((rows[point].rate for point in plans), default=None)

    return value


def _late(load: float) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        some = [rows[point] for point in _of(rows, PlanTimed) if point.port_load == load]
        return max((100 * row.missed / max(row.moves, 1) for row in some), default=None)

    return value


def _gain(which: Callable[..., float | None]) -> Callable[[Rows], float | None]:
    return lambda rows: which((rows[point].gain for point in _of(rows, BothFlows)), default=None)


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("numba", "networkx", "matplotlib")}


STUDY = Study(
    name="dtt_routing",
    title="Dijkstra through time",
    question="How fast are page moves planned ahead of time, and is pushing pages better than pulling them?",
    answer=f"{{{{ least_4 }}}} to {{{{ most_4 }}}} moves a CPU-second on 4x4 meshes and {{{{ least_8 }}}} to "
    f"{{{{ most_8 }}}} on 8x8 at {100 * LOAD:.0f} % load of the ports; pushed is {{{{ least_gain }}}} to "
    "{{ most_gain }} times as fast as pulled.",
    about=prose(__file__),
    points=points,
    tables=(speeds, beside, waypoints, flows, reductions),
    figures=(
        *(
            Figure(
                f"{name}_{side}",
                f"moves a CPU-second on {side}x{side} at 60 %, {name}",
                _rates(side, which),
                "{:,.0f}",
                Bar("at least", BAR),
            )
            for side in SIDES
            for name, which in (("least", min), ("most", max))
        ),
        Figure("late", "late moves at 60 %, most", _late(LOAD), "{:.1f} %"),
        Figure("too_late", "late moves at 110 %, most", _late(TOO_MUCH), "{:.1f} %"),
        Figure("least_gain", "cycles pulled / pushed, least", _gain(min), "{:.2f}"),
        Figure("most_gain", "cycles pulled / pushed, most", _gain(max), "{:.2f}"),
    ),
    checks=wrong,
    pictures={PLOT: draw},
    remarks=lost,
    paper="dtt",
    versions=_versions,
)
